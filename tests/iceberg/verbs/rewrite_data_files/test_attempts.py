"""A commit that loses against other writers is tried again, and reads and writes what these have changed alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.errors import CommitConflict
from iceberg_cli.iceberg.branch.head import BranchHead, head_of
from iceberg_cli.iceberg.verbs.rewrite_data_files.branch_files import branch_files
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.operation.apply import apply
from iceberg_cli.testing.crash.world import World
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.iceberg.verbs.rewrite_data_files.tables import RowsTable
from tests.iceberg.verbs.rewrite_data_files.test_hazards import by_position
from tests.iceberg.verbs.rewrite_data_files.whole_runs import PLAIN, Act, numbers, reload, rewrite, rows_of
from tests.iceberg.verbs.rewrite_data_files.writers import runtime
from tests.manifest_tables import NAME, NOW_MS, opened

FILES = 5  # of each partition
NUMBERS = [number for first in (0, 100) for number in range(first, first + 10 * FILES)]


class WatchedStorage(MemoryStorage):
    """Remembers what is read and written, by name, between the commits of another writer."""

    def __init__(self) -> None:
        super().__init__()
        self.tries: list[list[str]] = [[]]
        self.before_read: Callable[[str], None] = lambda _: None

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        self.before_read(path)
        self.tries[-1].append(f"read {path.rpartition('/')[2]}")
        return super().read(path, span)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.tries[-1].append(f"put {path.rpartition('/')[2]}")
        super().put_if_absent(path, data)

    def named(self, number: int, action: str, part: str) -> set[str]:
        """What is done in a try to files whose names have a part, until its manifest list is written."""
        done = self.tries[number]
        end = next(place for place, each in enumerate(done) if each.startswith("put snap-"))
        return {
            name for each in done[:end] for verb, name in [each.split(" ")] if verb == action and part in name
        }


def a_table(version: int, storage: MemoryStorage) -> RowsTable:
    """Files of two partitions, each with a manifest of its own."""
    table = RowsTable(format_version=version, storage=storage)
    for number in range(FILES):
        for k, first in (("x", 0), ("y", 100)):
            begin = first + 10 * number
            numbers(table, f"{k}{number}", range(begin, begin + 10), k=k)
            table.commit(1 + begin)
    return table


def deleting(storage: WatchedStorage, number: int, name: str, *, one_file: bool) -> Act:
    """By its own commit, the row at a position of a file."""

    def act(table: RowsTable) -> None:
        by_position(table, f"p{number}", {name: [number]}, k=name[0])
        if one_file and table.format_version == 2:
            table.added[-1]["referenced_data_file"] = table.path(name)
        table.commit(200 + number)
        storage.tries.append([])

    return act


@pytest.mark.parametrize(("version", "one_file"), [(2, True), (2, False), (3, True)])
def test_a_next_try_reads_what_others_changed_alone(version: int, one_file: bool) -> None:
    storage = WatchedStorage()
    table = a_table(version, storage)
    acts = [
        deleting(storage, number, name, one_file=one_file)
        for number, name in ((1, "x0"), (2, "y0"), (3, "x1"))
    ]
    run = rewrite(table, before_swaps=acts)
    assert run.report is not None
    assert (run.report.status, run.report.counts["remapped_deletes_count"]) == ("done", 3)
    assert [n for n, _ in run.rows] == sorted({*NUMBERS} - {1, 102, 13}, key=str)

    assert not storage.named(0, "read", "-positions.arrow")  # nothing had arrived
    suffix = "puffin" if version > 2 else "parquet"
    manifests = ["201-m3.avro", "202-m3.avro", "203-m3.avro"]
    for number, last, read in ((1, 1, {"p1"}), (2, 2, {"p2"}), (3, 3, {"p1", "p3"})):
        listed = {each for each in storage.named(number, "read", ".avro") if "-m" in each and each[0] != "s"}
        # Which delete files stay is written anew; one that no other reader needs goes with what it names.
        assert manifests[last - 1] in listed
        assert listed <= {*manifests[:last]}
        if not one_file:  # nothing but what tells where rows of that partition went
            assert listed == {manifests[each - 1] for each in ({2} if number == 2 else {1, last})}
        deletes = {f"{each}-deletes.{suffix}" for each in read}
        assert {each for each in storage.named(number, "read", suffix) if each[0] == "p"} == deletes
        assert len(storage.named(number, "read", "-positions.arrow")) == 1
        # The deletes of the other partition's new file are those of the try before.
        assert len(storage.named(number, "put", f".{suffix}")) == 1


@pytest.mark.parametrize(
    ("commits", "takes_ms", "lists"), [(1, 600, 1), (3, 600, 1), (12, 600, 2), (3, 10, 2)]
)
def test_what_others_commit_while_a_commit_is_made_is_read_before_it_is_sent(
    commits: int, takes_ms: int, lists: int
) -> None:
    """So no request is lost by it, unless others commit however often one looks, or the commit is made at once."""
    storage = WatchedStorage()
    table = a_table(2, storage)
    found = opened(storage, table.publish())
    found.table.load()
    planned = VERB.plan(found.table, RewriteDataFiles(**PLAIN), as_of_ms=NOW_MS)
    left = [*range(commits)]

    def act(path: str) -> None:
        if left and "/snap-" in path:
            number = 500 + left.pop()
            storage.before_read = lambda _: None
            reload(table, found)
            numbers(table, f"z{number}", [number], k="z")
            table.commit(number)
            found.catalog.locations[NAME] = table.publish()
            storage.before_read = act

    storage.before_read = act
    storage.tries.append([])
    clock = itertools.count(NOW_MS, takes_ms)  # each time that it is looked at
    own = replace(runtime(World()), now_ms=lambda: next(clock))
    assert apply(planned, found.table, VERB, own).status == "done"
    assert sum(each.startswith("put snap-") for each in storage.tries[-1]) - commits == lists
    reload(table, found)
    assert [n for n, _ in rows_of(table)] == sorted([*NUMBERS, *range(500, 500 + commits)], key=str)


@pytest.mark.parametrize("version", [2, 3])
def test_of_a_group_files_with_the_same_deletes_as_before_are_left_alone(version: int) -> None:
    table = a_table(version, MemoryStorage())
    only = {"referenced_data_file": table.path("x0")} if version == 2 else {}
    (table.positions if version == 2 else table.vectors)("before", {"x0": {4}}, k="x", **only)
    table.commit(200)

    def delete(table: RowsTable) -> None:
        only = {"referenced_data_file": table.path("x1")} if version == 2 else {}
        (table.positions if version == 2 else table.vectors)("p", {"x1": {5}}, k="x", **only)
        table.commit(201)

    run = rewrite(table, meanwhile=delete)
    assert run.report is not None
    assert (run.report.status, run.report.counts["remapped_deletes_count"]) == ("done", 1)
    assert [n for n, _ in run.rows] == sorted({*NUMBERS} - {4, 15}, key=str)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(None, "a group that is finished kept it, and it is not there"), (b"ARROW1", "no readable Arrow file")],
)
def test_where_it_cannot_be_told_where_rows_went_their_group_is_left_out(
    data: bytes | None, reason: str
) -> None:
    storage = MemoryStorage()
    table = a_table(2, storage)

    def delete(table: RowsTable) -> None:
        by_position(table, "p", {"x1": [5]}, k="x")
        table.added[-1]["referenced_data_file"] = table.path("x1")
        table.commit(201)
        for each in [*storage.list(f"{table.location}/_iceberg_cli/groups")]:
            if each.path.endswith("-positions.arrow"):
                storage.delete([each.path])
                if data is not None:
                    storage.put_if_absent(each.path, data)

    run = rewrite(table, meanwhile=delete, where="k = 'x'")
    assert isinstance(run.error, CommitConflict)
    assert reason in str(run.error)
    assert (run.own, len(run.left)) == ([], 2 * FILES)


def renumbered(name: str, by: int) -> Callable[[pa.Table], pa.Table]:
    """One manifest is listed with another value."""

    def act(rows: pa.Table) -> pa.Table:
        values = rows[name].to_pylist()
        values[3] += by
        return rows.set_column(
            rows.column_names.index(name), name, pa.array(values, rows.schema.field(name).type)
        )

    return act


LISTED: dict[str, Callable[[pa.Table], pa.Table]] = {
    "alike": lambda rows: rows,
    "in another order": lambda rows: rows.take(pa.array(range(len(rows) - 1, -1, -1))),
    "without some": lambda rows: rows.slice(2, 5),
    "with other row ids": renumbered("first_row_id", 5000),
    "with another sequence number": renumbered("sequence_number", 7),
}


@pytest.mark.parametrize("listed", LISTED)
def test_what_was_read_before_is_taken_of_manifests_that_are_listed_alike(listed: str) -> None:
    """Row ids and sequence numbers are in the list: after an upgrade, or on another branch, one path has others."""
    storage = WatchedStorage()
    found = opened(storage, a_table(3, storage).publish())
    found.table.load()
    head = head_of(found.table, "main")
    earlier = branch_files(found.table, head)
    now = replace(head, rows=LISTED[listed](head.rows))

    def rows_of(head: BranchHead, **options: Any) -> list[dict[str, Any]]:
        files = branch_files(found.table, head, **options)
        assert {*files.data["key"].to_pylist()} <= files.tuples.keys()
        return sorted(files.data.to_pylist(), key=lambda each: each["path"])

    expected = rows_of(now)
    storage.tries.append([])
    assert rows_of(now, earlier=earlier) == expected
    assert len(storage.tries[-1]) == listed.startswith("with ")


@pytest.mark.parametrize("changed", ["specs", "types"])
def test_where_partitions_have_other_keys_all_manifests_are_read_again(changed: str) -> None:
    storage = WatchedStorage()
    found = opened(storage, a_table(3, storage).publish())
    found.table.load()
    head = head_of(found.table, "main")
    earlier, metadata = branch_files(found.table, head), found.table.metadata
    if changed == "specs":
        other = replace(metadata, partition_specs=metadata.partition_specs[:1])
    else:
        column = replace(metadata.current_schema().fields[0], type="int")
        schemas = (
            replace(metadata.current_schema(), fields=(column, *metadata.current_schema().fields[1:])),
        )
        other = replace(metadata, schemas=schemas)
    storage.tries.append([])
    branch_files(found.table, head, earlier=replace(earlier, metadata=other))
    assert len(storage.tries[-1]) == 2 * FILES
