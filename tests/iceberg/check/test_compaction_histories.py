"""Whatever a table has been through, right compactions raise no alarm, and all of them are compared.

They are made by the verbs here and by a literal writer, between the commits of a writer that deletes in every way.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.plan.policy import Policy
from tests.iceberg.check.compaction_tables import check, of_rows, told
from tests.iceberg.verbs.rewrite_data_files.writers import OtherWriter, rewritten
from tests.manifest_tables import NAME

GONE = "its parent is not in the table any more"
BY_VALUE = "equality deletes reach files that it changed, and only --deep reads these"


class CompactingWriter(OtherWriter):
    """Now and then it rewrites files of a partition, as a reader sees their rows."""

    def compact(self) -> None:
        self._reload()
        document, rows = self.document, self.rows()
        head = document["current-snapshot-id"]
        (number,) = (s["sequence-number"] for s in document["snapshots"] if s["snapshot-id"] == head)
        names = sorted({self._name(row) for row in rows})
        if not names:
            return
        partition = self._partition_of(self.drawn.choice(names))
        own = [name for name in names if self._partition_of(name) == partition]
        chosen = self.drawn.sample(own, self.drawn.randint(1, len(own)))
        inputs = [row for row in rows if self._name(row) in chosen]
        columns = of_rows(inputs)[: 4 if self.version > 2 else 2]
        paths = {self._path(name) for name in chosen}
        for name in chosen:
            self._take_out(name)
        self.table._drop(lambda entry: entry["content"] == 1 and entry.get("referenced_data_file") in paths)
        self.commits += 1
        self.table.rows(f"c{self.commits}", columns, k=partition, sequence_number=number)
        self.table.time_ms += 1
        self.table.commit_files(
            "replace", self.table.added, self.table.gone, snapshot_id=5_000 + self.commits
        )
        self.table.added, self.table.gone = [], set()
        self.history[5_000 + self.commits] = dict(self.numbers)
        self.opened.catalog.locations[NAME] = self.table.publish()

    def rewrite(self) -> None:
        """By the verb here."""
        rewritten(self.opened, self.opened.world, rewrite_all=True, processes=1)

    def regroup(self) -> None:
        """By the verb here."""
        self._run(RewriteManifests(all_manifests=True))

    def merge(self) -> None:
        """By the verb here."""
        self._run(MergeDvs())

    def _run(self, policy: Policy) -> None:
        self.commits += 1
        planned = self.opened.prepare(policy.verb, policy.to_json())
        if planned.plan.due and not planned.plan.blocked_by:
            self.opened.apply(planned)


def a_history(seed: int, version: int) -> CompactingWriter:
    drawn = random.Random(seed)
    writer = CompactingWriter(drawn=drawn, version=version)
    kinds: list[Callable[[], None]] = [
        *[writer.act] * 6, *[writer.compact] * 4, writer.rewrite, writer.regroup, writer.merge,
    ]  # fmt: skip
    for _ in range(drawn.randint(1, 4)):
        drawn.choice(kinds)()
    writer.compact()
    assert {row.values[1] for row in writer.rows()} == writer.numbers.keys()
    return writer


@pytest.mark.few(60)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(250))
def test_right_compactions_raise_no_alarm(seed: int, version: int, deep: bool) -> None:
    writer = a_history(seed, version)
    writer.opened.table.load()
    result = check(writer.opened.table, deep=deep)
    assert told(result) == {}
    numbers = result.fields["compactions"]
    assert {each["reason"] for each in numbers["not_compared"]} <= ({GONE} if deep else {GONE, BY_VALUE})
    assert numbers["compared"] + len(numbers["not_compared"]) == numbers["found"] > 0
