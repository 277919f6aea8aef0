"""Whatever a table has been through, right compactions raise no alarm, and all of them are compared.

They are made by the verbs here and by a literal writer, between the commits of a writer that deletes in every way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.plan.policy import Policy
from iceberg_cli.testing.iceberg_rows import LiteralRow, parquet_rows
from tests.budget import FULL
from tests.iceberg.check.compaction_tables import check, numbers_of, of_rows, told
from tests.iceberg.verbs.rewrite_data_files.writers import OtherWriter, rewritten
from tests.manifest_tables import NAME

Rows = Sequence[LiteralRow]
Change = Callable[["CompactingWriter", Rows], Rows]
GONE = "its parent is not in the table any more"
BY_VALUE = "equality deletes reach files that it changed, and only --deep reads these"


def as_they_are(writer: CompactingWriter, rows: Rows) -> Rows:
    return rows


class CompactingWriter(OtherWriter):
    """Now and then it rewrites files of a partition, as a reader sees their rows."""

    def compact(self, change: Change = as_they_are) -> None:
        """Rewrite some files; `change` may write other rows in their place."""
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
        columns = of_rows(change(self, inputs))[: 4 if self.version > 2 else 2]
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
        """By the verb here, now and then while another writer commits: deletes move to the new files then."""
        if self.drawn.random() < 0.5:
            self.opened.committer.meanwhile = self.act
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


def a_history(seed: int, version: int, change: Change = as_they_are) -> CompactingWriter:
    """The last compaction writes what `change` makes of the rows."""
    drawn = random.Random(seed)
    writer = CompactingWriter(drawn=drawn, version=version)
    kinds: list[Callable[[], None]] = [
        *[writer.act] * 6, *[writer.compact] * 4, *[writer.rewrite] * 2, writer.regroup, writer.merge,
    ]  # fmt: skip
    for _ in range(drawn.randint(1, 3)):
        drawn.choice(kinds)()
    assert {row.values[1] for row in writer.rows()} == writer.numbers.keys()
    if change is not as_they_are:
        writer._reload()
        writer.delete()  # so that there are rows to come back
        writer._commit()
        writer.opened.catalog.locations[NAME] = writer.table.publish()
    writer.compact(change)
    return writer


# -- wrong ones --------------------------------------------------------------------------------------------------------


def without_the_last(writer: CompactingWriter, rows: Rows) -> Rows:
    return rows[:-1]


def with_other_ids(writer: CompactingWriter, rows: Rows) -> Rows:
    return [row._replace(row_id=10_000 + place) for place, row in enumerate(rows)]


def with_deleted_rows(writer: CompactingWriter, rows: Rows) -> Rows:
    """All rows of the files, whatever is deleted of them."""
    found = []
    for path in sorted({row.path for row in rows}):
        template = next(row for row in rows if row.path == path)
        for position, values in enumerate(parquet_rows(writer.table.storage.read(path))):
            found.append(template._replace(position=position, values={1: values[1], 2: values[2]}))
    return found


def expected(writer: CompactingWriter, change: Change) -> dict[str, int]:
    """What a slow reader finds to be different between the last two snapshots."""
    document = writer.document
    after = document["snapshots"][-1]
    before, now = (writer.rows(each) for each in (after["parent-snapshot-id"], after["snapshot-id"]))
    more = len(now) - len(before)
    if more:
        return {"compaction-rows-came-back" if more > 0 else "compaction-rows-missing": abs(more)}
    lost = {row.row_id for row in before} - {row.row_id for row in now}
    return {"compaction-row-ids-lost": len(lost)} if change is with_other_ids and lost else {}


@pytest.mark.few(12)
@pytest.mark.parametrize(
    ("version", "change"),
    [
        (2, without_the_last),
        (3, without_the_last),
        (2, with_deleted_rows),
        (3, with_other_ids),
    ],
)
@pytest.mark.parametrize("seed", range(60))
def test_what_a_wrong_compaction_did_is_counted_as_a_slow_reader_counts_it(
    seed: int, version: int, change: Change
) -> None:
    writer = a_history(seed, version, change)
    writer.opened.table.load()
    assert numbers_of(check(writer.opened.table, deep=True)) == expected(writer, change)


# -- right ones --------------------------------------------------------------------------------------------------------


@pytest.mark.few(15)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(250 if FULL else 125))
def test_right_compactions_raise_no_alarm(seed: int, version: int, deep: bool) -> None:
    writer = a_history(seed, version)
    writer.opened.table.load()
    result = check(writer.opened.table, deep=deep)
    assert told(result) == {}
    numbers = result.fields["compactions"]
    assert {each["reason"] for each in numbers["not_compared"]} <= ({GONE} if deep else {GONE, BY_VALUE})
    assert numbers["compared"] + len(numbers["not_compared"]) == numbers["found"] > 0
