"""Another engine changes the table itself while merge-dvs, or an upgrade with it, is under way: both must stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import UpgradeV3
from iceberg_cli.operation.apply import apply
from iceberg_cli.testing.crash.engine import OtherEngine
from tests.builders import NOW_MS, SCHEMA
from tests.crash import suite
from tests.crash.lakes import Case, Lake, fragmented, second, upgraded

NEW_SCHEMA = {
    **SCHEMA,
    "schema-id": 1,
    "fields": [*SCHEMA["fields"], {"id": 2, "name": "k", "required": False, "type": "string"}],
}
NEW_SPEC = {
    "spec-id": 1,
    "fields": [{"name": "n", "transform": "bucket[4]", "source-id": 1, "field-id": 1000}],
}
MERGE = MergeDvs(min_files=2).to_json()
CASES = [
    Case("merge-dvs", MERGE, fragmented),
    Case("merge-dvs", MERGE, upgraded),
    Case("upgrade-v3", UpgradeV3(recipe=("merge-dvs",)).to_json(), second),
]


def properties(engine: OtherEngine) -> None:
    """A property of the owner's, and one that the merge goes by."""
    asked = {"owner": "me", "write.delete.target-file-size-bytes": "1000"}
    engine.change({"properties": {**engine.document["properties"], **asked}})


def schema(engine: OtherEngine) -> None:
    """A column more."""
    engine.change({"schemas": [SCHEMA, NEW_SCHEMA], "current-schema-id": 1, "last-column-id": 2})


def spec(engine: OtherEngine) -> None:
    """Partitioned from here on."""
    specs = [*engine.document["partition-specs"][:1], NEW_SPEC]
    engine.change({"partition-specs": specs, "default-spec-id": 1, "last-partition-id": 1000})


def upgrade(engine: OtherEngine) -> None:
    """To version 3."""
    engine.upgrade()


def upgrade_and_delete(engine: OtherEngine) -> None:
    """To version 3, with the first deletion vectors right after it."""
    engine.upgrade()
    engine.delete({"a": [8], "c": [8]})


ACTS = (properties, schema, spec, upgrade, upgrade_and_delete)


@dataclass(kw_only=True)
class ChangedLake(Lake):
    """A table that another engine changes, and what it has made of it."""

    changes: tuple[Callable[[OtherEngine], None], ...] = ()

    def change(self, act: Callable[[OtherEngine], None]) -> None:
        """Let the other engine change the table."""
        self.disturb(act)()
        self.changes += (act,)

    def check(self) -> set[str]:
        """What the other engine said of the table is still so, too."""
        document: Mapping[str, Any] = self.engine.document
        expected = {
            properties: (document["properties"].get("owner"), "me"),
            schema: ((document["current-schema-id"], document["schemas"][1:]), (1, [NEW_SCHEMA])),
            spec: ((document["default-spec-id"], document["partition-specs"][1:]), (1, [NEW_SPEC])),
        }
        for act in self.changes:
            found, targets = expected.get(act, (document["format-version"], 3))
            assert found == targets
        return super().check()

    def finish(self) -> None:
        """The table has deletion vectors, too, whoever upgraded it."""
        super().finish()
        assert self.engine.document["format-version"] == 3


@pytest.fixture(scope="module", params=CASES, ids=str)
def scene(request: pytest.FixtureRequest) -> ChangedLake:
    return ChangedLake.of(request.param)


class TestChanges(suite.Commits, suite.CommitsMeanwhile):
    """A change of the table stands, and so does the merge."""

    commits = 2
    commits_meanwhile = 2

    @pytest.fixture(params=ACTS)
    def act(self, request: pytest.FixtureRequest) -> suite.Act:
        return lambda lake: lake.change(request.param)


def test_a_recipe_whose_upgrade_another_engine_does_first_goes_on_with_the_merge() -> None:
    lake = Lake.of(CASES[-1])
    before = next(n for n, effect in enumerate(lake.undisturbed()) if effect.startswith("swap"))
    report = lake.process(before={before: lake.disturb(upgrade)}).run()
    assert report.status == "done"
    assert report.counts["added_delete_files_count"] == 2
    operations = [snapshot["summary"]["operation"] for snapshot in lake.engine.document["snapshots"]]
    assert operations[-1] == "replace"
    lake.finish()


def test_a_merge_that_was_planned_on_version_2_makes_no_vectors_after_an_upgrade_and_a_new_plan_does() -> (
    None
):
    lake = Lake.of(Case("merge-dvs", MERGE, second))
    process = lake.process()
    plan = process.plan()
    assert not plan.plan.due
    lake.disturb(upgrade)()
    report = apply(plan, process.table, VERBS["merge-dvs"], process.runtime)
    assert (report.status, process.effects) == ("nothing_to_do", [])
    again = lake.process()
    fresh = VERBS["merge-dvs"].plan(again.table, MergeDvs.from_json(MERGE), as_of_ms=NOW_MS)
    assert apply(fresh, again.table, VERBS["merge-dvs"], again.runtime).status == "done"
    lake.finish()
