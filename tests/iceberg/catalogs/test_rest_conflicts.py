"""Another writer's commit over REST between our read and our swap, for every verb: planned again, and nothing lost."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from iceberg_cli.iceberg.catalogs.rest.committer import RestCommitter
from iceberg_cli.operation.outcomes import Attempt, Outcome
from tests.cli.running import Ran, iceberg_cli
from tests.conformance.both_engines import with_deletes
from tests.iceberg.catalogs.test_rest import Lake, lake

__all__ = ["lake"]


@dataclass
class Served:
    """A table of the catalog behind the front of a lake."""

    lake: Lake
    name: str
    config: Path

    @property
    def table(self) -> str:
        """How the command line names it."""
        return f"prod.{self.lake.namespace}.inner.{self.name}"

    @property
    def options(self) -> tuple[object, ...]:
        return "--catalog-config", self.config

    def run(self, verb: str, *arguments: str) -> Ran:
        return iceberg_cli(verb, self.table, *arguments, "--format", "json", *self.options)

    @property
    def url(self) -> str:
        path = f"namespaces/{self.lake.namespace}%2Einner/tables/{self.name}"
        return f"{self.lake.front.behind}/v1/{path}"

    @property
    def metadata(self) -> dict[str, Any]:
        """The document of the current version."""
        answer = requests.get(self.url, timeout=60)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()["metadata"]
        return found

    def commit_of_others(self) -> int:
        """A snapshot that adds nothing; its id."""
        metadata = self.metadata
        [head] = [
            each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"]
        ]
        snapshot_id = uuid.uuid4().int & (1 << 62) - 1
        new = {
            **head,
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": head["snapshot-id"],
            "sequence-number": metadata["last-sequence-number"] + 1,
            "timestamp-ms": metadata["last-updated-ms"] + 1,
        }
        if metadata["format-version"] == 3:
            new |= {"first-row-id": metadata["next-row-id"], "added-rows": 0}
        ref = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
        updates = [{"action": "add-snapshot", "snapshot": new}, {"action": "set-snapshot-ref", **ref}]
        answer = requests.post(self.url, json={"requirements": [], "updates": updates}, timeout=60)
        assert answer.ok, answer.text
        return snapshot_id


def of_three_rows(lake: Lake, folder: Path) -> Served:
    """The table of version 2 that the lake has."""
    return Served(lake, "t", folder / "pyiceberg.yaml")


def of_version_3(lake: Lake, folder: Path) -> Served:
    """The same after an upgrade."""
    served = of_three_rows(lake, folder)
    assert served.run("upgrade-v3", "--yes").code == 0
    return served


def of_deletes(lake: Lake, folder: Path) -> Served:
    """A table of version 3 with position deletes, and vectors in several files."""
    with_deletes(folder / "d")
    lake.theirs.register_table((lake.namespace, "inner", "d"), f"{folder}/d/metadata/v1.metadata.json")
    return Served(lake, "d", folder / "pyiceberg.yaml")


VERBS: dict[str, tuple[Callable[[Lake, Path], Served], tuple[str, ...]]] = {
    "expire-snapshots": (of_three_rows, ("--snapshot-id",)),  # that of the oldest one
    "rewrite-manifests": (of_three_rows, ()),
    "upgrade-v3": (of_three_rows, ()),
    "assign-row-ids": (of_version_3, ()),
    "merge-dvs": (of_deletes, ("--min-files", "1")),
    "rewrite-data-files": (of_three_rows, ("--min-input-files", "2", "--processes", "1")),
}


@pytest.fixture
def served(request: pytest.FixtureRequest, lake: Lake, tmp_path: Path) -> Served:
    config = f"catalog:\n  prod:\n    type: rest\n    uri: {lake.front.uri}\n"
    (tmp_path / "pyiceberg.yaml").write_text(config)
    make, _ = VERBS[request.param]
    return make(lake, tmp_path)


MOMENTS = ["before our last look", "after it"]
ALWAYS = [("expire-snapshots", "after it"), ("rewrite-manifests", "after it")]
CASES = [
    pytest.param(
        verb, verb, moment, id=f"{verb}, {moment}", marks=() if (verb, moment) in ALWAYS else pytest.mark.deep
    )
    for verb, moment in itertools.product(VERBS, MOMENTS)
]


@pytest.mark.parametrize(("served", "verb", "moment"), CASES, indirect=["served"])
def test_a_conflict_is_planned_again_and_nothing_is_lost(
    served: Served, verb: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, arguments = VERBS[verb]
    if verb == "expire-snapshots":
        arguments = (*arguments, str(served.metadata["snapshots"][0]["snapshot-id"]))
    foreign = meet(served, moment, monkeypatch)
    ran = served.run(verb, *arguments, "--yes")
    assert (ran.code, ran.json.get("status")) == (0, "done"), ran.out + ran.err
    assert len(served.lake.front.bodies) == (2 if moment == "after it" else 1)
    # Five without a conflict; then the look that showed it, and that before the next attempt, which is sent or is not.
    # Who rewrote rows, which may have taken hours, looks once more before the first attempt.
    assert len(served.lake.front.requests) <= 5 + 3 + (verb == "rewrite-data-files")
    check_history(served, foreign)
    if verb != "expire-snapshots":
        again = served.run(verb, *arguments, "--yes")
        assert again.json["status"] == "nothing_to_do", again.out


@pytest.mark.deep
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("served", ["expire-snapshots"], indirect=True)
def test_what_comes_due_by_a_commit_meanwhile_is_kept(
    served: Served, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = meet(served, moment, monkeypatch)
    *_, former_head = (snapshot["snapshot-id"] for snapshot in served.metadata["snapshots"])
    ran = served.run("expire-snapshots", "--older-than", "0s", "--retain-last", "1", "--yes")
    assert (ran.code, ran.json.get("status")) == (0, "done"), ran.out
    check_history(served, foreign)
    assert {snapshot["snapshot-id"] for snapshot in served.metadata["snapshots"]} == {former_head, *foreign}
    assert "No open operation" in iceberg_cli("resume", served.table, "--list", *served.options).out


def meet(served: Served, moment: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let another writer's snapshot meet the next commit; what is returned has its id then."""
    foreign: list[int] = []
    commit = RestCommitter.commit

    def commit_after_others(committer: RestCommitter, attempt: Attempt) -> Outcome:
        if not foreign:
            foreign.append(served.commit_of_others())
        return commit(committer, attempt)

    served.lake.front.bodies.clear()
    served.lake.front.requests.clear()
    if moment == "after it":
        served.lake.front.meanwhile.append(lambda: foreign.append(served.commit_of_others()))
    else:
        monkeypatch.setattr(RestCommitter, "commit", commit_after_others)
    return foreign


def check_history(served: Served, foreign: list[int]) -> None:
    """The other writer's snapshot is in the history of main; the rows are there, and the table is whole."""
    assert len(foreign) == 1
    metadata = served.metadata
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata["snapshots"]}
    history = [metadata["current-snapshot-id"]]
    while (parent := by_id[history[-1]].get("parent-snapshot-id")) in by_id:
        history.append(parent)
    assert foreign[0] in history
    if served.name == "t":
        assert served.lake.table.scan().to_arrow()["i"].sort().to_pylist() == [0, 1, 2]
        assert iceberg_cli("inspect", served.table, "--check", *served.options).code == 0
