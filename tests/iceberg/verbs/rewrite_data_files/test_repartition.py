"""`--output-spec current`: rows come to the partitions of the table's current spec, and none of them is lost by it.

Which partition a value is in is told by PyIceberg's transforms.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import NestedField

from iceberg_cli.errors import CommitConflict, CorruptFile
from iceberg_cli.iceberg.verbs.rewrite_data_files import rewriting
from tests.iceberg.verbs.rewrite_data_files.tables import NK, K, N, RowsTable, column, of, schema
from tests.iceberg.verbs.rewrite_data_files.test_hazards import by_position, field
from tests.iceberg.verbs.rewrite_data_files.whole_runs import Run, in_spec, numbers, rewrite
from tests.manifest_tables import NOW_MS

VERSIONS = pytest.mark.parametrize("version", [2, 3])
DAY_MS = 86_400_000
CURRENT = {"output_spec": "current", "rewrite_all": False}


def evolved(table: RowsTable, *fields: dict[str, Any], spec_id: int = 2) -> RowsTable:
    """The table has another partition spec from now on."""
    table.document["partition-specs"] += [{"spec-id": spec_id, "fields": list(fields)}]
    table.document["default-spec-id"] = spec_id
    return table


def by_n(width: int = 10) -> dict[str, Any]:
    return field(1, "n", 1001, f"truncate[{width}]")


def rows_by_output(run: Run) -> dict[str, list[int]]:
    """By partition, the numbers that new files have, as they are in the files."""
    found: dict[str, list[int]] = {}
    for each in run.outputs:
        data = pa.BufferReader(run.table.storage.read(each["file_path"]))
        found.setdefault(repr(each["partition"]), []).extend(pq.read_table(data)["n"].to_pylist())
    return found


def notes_of(run: Run) -> str:
    assert run.report is not None
    return "\n".join(run.report.notes)


# -- where rows go ---------------------------------------------------------------------------------------------------


@VERSIONS
def test_rows_of_several_specs_come_to_partitions_of_the_current_one(version: int) -> None:
    table = RowsTable(format_version=version)
    table.rows("none", [(N, [1, 15, 2]), (K, ["x", "y", "x"])])
    numbers(table, "x", [3, 16], k="x")
    numbers(table, "y", [17], k="y")
    table.commit(1)
    by_position(table, "p", {"x": [0]}, k="x")
    table.commit(2)
    evolved(table, by_n())
    in_spec(table, "new", [(N, [4]), (K, ["z"])], spec_id=2, partition={"n": 0})
    table.commit(3)
    run = rewrite(table, **CURRENT)
    assert rows_by_output(run) == {"{'n': 0}": [1, 2], "{'n': 10}": [15, 16, 17]}
    assert {each["spec_id"] for each in run.outputs} == {2}
    assert run.left == ["new"]
    assert run.rows == [(1, "x"), (15, "y"), (16, "x"), (17, "y"), (2, "x"), (4, "z")]
    assert {each["file_path"].rpartition("/")[0].rpartition("/")[2] for each in run.outputs} == {
        "n=0",
        "n=10",
    }
    (groups,) = {row["partition"] for row in run.plan.groups.rows.to_pylist()} if run.plan.groups else {""}
    assert groups == "to spec 2"
    assert run.plan.warnings[0].startswith("3 data files of other specs are moved to partition spec 2.")
    assert rewrite(table, **CURRENT).report is None


def test_without_it_files_stay_in_their_spec_beside_those_that_move() -> None:
    table = evolved(RowsTable(format_version=2), by_n())
    for name, spec_id, partition in (
        ("a", 1, {"k": "x"}),
        ("b", 1, {"k": "x"}),
        ("c", 2, {"n": 0}),
        ("d", 2, {"n": 0}),
    ):
        in_spec(table, name, [(N, [1]), (K, ["x"])], spec_id=spec_id, partition=partition)
    table.commit(1)
    same = rewrite(table, min_input_files=2, rewrite_all=False)
    assert sorted(each["spec_id"] for each in same.outputs) == [1, 2]
    moved = rewrite(table, min_input_files=2, **CURRENT)
    # What is there of the current spec is in groups of its own; the next run joins both.
    assert [each["partition"] for each in moved.outputs] == [{"n": 0}]
    assert rewrite(table, min_input_files=2, **CURRENT).left == []


MOMENTS = [
    dt.datetime(*parts)  # noqa: DTZ001 - a column without a zone
    for parts in ((1969, 12, 31, 23, 59), (2026, 3, 1, 4), (2026, 3, 1, 5))
]
DECIMALS = [Decimal("-10.65"), Decimal("10.65"), Decimal("0.00")]
UUIDS = [uuid.UUID(int=1 << 100), uuid.UUID(int=(1 << 128) - 3), uuid.UUID(int=7)]
TRANSFORMS: dict[str, tuple[str, Any, list[Any]]] = {
    "bucket[4]": ("int", pa.int32(), [1, -7, 34]),
    "bucket[5]": ("string", pa.string(), ["iceberg", "", "ü"]),
    "bucket[6]": ("decimal(9, 2)", pa.decimal128(9, 2), DECIMALS),
    "bucket[7]": ("uuid", pa.binary(16), [each.bytes for each in UUIDS]),
    "bucket[8]": ("timestamp", pa.timestamp("us"), MOMENTS),
    "bucket[9]": ("date", pa.date32(), [each.date() for each in MOMENTS]),
    "bucket[10]": ("binary", pa.binary(), [b"\x00", b"", b"\xff\x01"]),
    "truncate[10]": ("long", pa.int64(), [-1, 1 << 40, 9]),
    "truncate[2]": ("string", pa.string(), ["ab", "abc", "üäö"]),
    "truncate[3]": ("decimal(9, 2)", pa.decimal128(9, 2), DECIMALS),
    "truncate[1]": ("binary", pa.binary(), [b"\x00\x01", b"", b"\x00"]),
    "void": ("double", pa.float64(), [1.5, -0.0, 0.0]),
    "year": ("date", pa.date32(), [each.date() for each in MOMENTS]),
    "month": ("timestamp", pa.timestamp("us"), MOMENTS),
    "day": (
        "timestamptz",
        pa.timestamp("us", "UTC"),
        [each.replace(tzinfo=dt.UTC) for each in MOMENTS],
    ),
    "hour": ("timestamp", pa.timestamp("us"), MOMENTS),
}
IDENTITIES: dict[str, tuple[Any, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, True]),
    "int": (pa.int32(), [1, -7, 1]),
    "string": (pa.string(), ["a/b", "null", ""]),
    "date": (pa.date32(), [each.date() for each in MOMENTS]),
    "timestamp": (pa.timestamp("us"), MOMENTS),
    "decimal(9, 2)": (pa.decimal128(9, 2), DECIMALS),
    "decimal(38, 2)": (pa.decimal128(38, 2), DECIMALS),
    "uuid": (pa.binary(16), [each.bytes for each in UUIDS]),
    "binary": (pa.binary(), [b"\x00\x01", b"", b"\x00"]),
    "fixed[3]": (pa.binary(3), [b"abc", b"abd", b"abc"]),
}
CASES = [(transform, *case) for transform, case in TRANSFORMS.items()]
CASES += [("identity", type_, *case) for type_, case in IDENTITIES.items()]


def partition_of(transform: str, type_: str, value: Any) -> Any:
    """As a manifest has it, by PyIceberg."""
    field_type = NestedField(1, "c", type_).field_type
    if not isinstance(value, Decimal):
        value = uuid.UUID(bytes=value) if type_ == "uuid" else _plain(value)
    found = parse_transform(transform).transform(field_type)(value)
    return _plain(found)


@pytest.mark.few(10)
@pytest.mark.parametrize(("transform", "type_", "arrow", "values"), CASES, ids=lambda each: str(each)[:20])
def test_each_transform_of_each_type_puts_rows_where_another_engine_looks_for_them(
    transform: str, type_: str, arrow: Any, values: list[Any]
) -> None:
    fields = [*NK["fields"], column(3, "c", type_)]
    table = RowsTable(format_version=2, schema=schema(*fields))
    c = of(3, "c", arrow)
    table.rows("a", [(N, [0, 1]), (K, ["t", "t"]), (c, values[:2])])
    table.rows("b", [(N, [2, 3]), (K, ["t", "t"]), (c, [values[2], None])])
    table.commit(1)
    evolved(table, field(3, "c", 1001, transform))
    run = rewrite(table, **{**CURRENT, "rewrite_all": True})
    found = {}
    for each in run.outputs:
        (value,) = each["partition"].values()
        data = pa.BufferReader(table.storage.read(each["file_path"]))
        found |= dict.fromkeys(pq.read_table(data)["n"].to_pylist(), _plain(value))
    assert found == {**{n: partition_of(transform, type_, value) for n, value in enumerate(values)}, 3: None}
    assert [n for n, *_ in run.rows] == [0, 1, 2, 3]


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _plain(value: Any) -> Any:
    """Dates, times and decimals as numbers, UUIDs as bytes: a reader of Avro may have either."""
    match value:
        case dt.datetime():
            return (value.replace(tzinfo=dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)
        case dt.date():
            return (value - EPOCH.date()).days
        case uuid.UUID():
            return value.bytes
        case Decimal():
            return int(value.scaleb(2))
    return value


def test_zeros_and_nan_have_partitions_of_their_own_and_a_source_may_be_in_a_struct() -> None:
    """Note 3 of "Scan Planning": floats are equal where their bits are."""
    fields = [*NK["fields"], column(3, "s", {"type": "struct", "fields": [column(4, "d", "double")]})]
    table = RowsTable(format_version=2, schema=schema(*fields))
    inner = of(4, "d", pa.float64())
    nan = float("nan")
    values = [{"d": 0.0}, {"d": -0.0}, {"d": nan}, {"d": -nan}, None, {"d": None}]
    table.rows("a", [(N, range(6)), (K, ["t"] * 6), (of(3, "s", pa.struct([inner])), values)])
    table.commit(1)
    evolved(table, field(4, "d", 1001, "identity"))
    run = rewrite(table, **{**CURRENT, "rewrite_all": True})
    assert {part: sorted(found) for part, found in rows_by_output(run).items()} == {
        "{'d': 0.0}": [0], "{'d': -0.0}": [1], "{'d': nan}": [2, 3], "{'d': None}": [4, 5],
    }  # fmt: skip


def test_more_partitions_than_files_that_may_be_open_lose_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_LEAST_OPEN", 2)
    monkeypatch.setattr(rewriting, "_OPEN_BYTES", 1 << 40)
    table = RowsTable(format_version=3)
    for name, first in (("a", 0), ("b", 100)):
        table.rows(name, [(N, range(first, first + 100)), (K, ["t"] * 100)], group_rows=10)
    table.commit(1)
    evolved(table, field(1, "n", 1001, "bucket[16]"))
    run = rewrite(
        table, **{**CURRENT, "rewrite_all": True}, memory="16KiB"
    )  # the rows of each file by themselves
    assert sorted(n for found in rows_by_output(run).values() for n in found) == list(range(200))
    partitions = [repr(each["partition"]) for each in run.outputs]
    # A file is ended for another one that is begun, and one more is begun for the rows that come after.
    assert len(partitions) > len({*partitions}) == 16


def test_rows_of_many_partitions_are_written_before_they_take_too_much_room() -> None:
    table = RowsTable(format_version=2)
    for name, first in (("a", 0), ("b", 1000)):
        table.rows(name, [(N, range(first, first + 1000)), (K, ["t"] * 1000)], group_rows=100)
    table.commit(1)
    evolved(table, field(1, "n", 1001, "bucket[4]"))
    run = rewrite(table, **{**CURRENT, "rewrite_all": True}, memory="4KiB", check=False)
    assert len(run.outputs) == 4
    assert sorted(n for found in rows_by_output(run).values() for n in found) == list(range(2000))
    for each in run.outputs:  # a KiB of rows, of which each takes 13 bytes
        footer = pq.read_metadata(pa.BufferReader(table.storage.read(each["file_path"])))
        assert 3 < footer.num_row_groups < 100


def test_files_that_are_listed_in_a_bucket_of_other_rows_are_moved() -> None:
    """H48: of a transform readers take the column's values."""
    table = RowsTable(format_version=2)
    table.document["partition-specs"] += [{"spec-id": 4, "fields": [field(1, "b", 1004, "bucket[4]")]}]
    for name, values in (("a", [1, 300]), ("b", [2, 301])):
        in_spec(table, name, [(N, values), (K, ["t", "t"])], spec_id=4, partition={"b": 0})
    table.commit(1)
    evolved(table, by_n(100))
    assert rows_by_output(rewrite(table, **CURRENT)) == {"{'n': 0}": [1, 2], "{'n': 300}": [300, 301]}


def test_recent_deletes_that_cannot_be_read_end_the_plan() -> None:
    table = RowsTable(format_version=2)
    numbers(table, "a", [1], k="x")
    numbers(table, "b", [2], k="x")
    table.commit(1)
    table.remove("b")
    table.commit(2)
    table.document["snapshots"][-1]["timestamp-ms"] = NOW_MS
    lost = table.document["snapshots"][-1]["manifest-list"]
    numbers(table, "c", [3], k="x")
    table.commit(3)
    evolved(table, by_n())
    table.storage.delete([lost])
    with pytest.raises(CorruptFile, match="it is not there"):
        rewrite(table, **CURRENT)


# -- what arrives meanwhile ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_arrive_follow_their_rows_into_each_partition(version: int) -> None:
    """K4: position 3 of `a` is in one new file, positions 1 and 2 are in another one."""
    table = RowsTable(format_version=version)
    numbers(table, "a", [1, 11, 12, 2, 13], k="x")
    numbers(table, "b", [3, 14], k="y")
    table.commit(1)
    evolved(table, by_n())

    def delete(table: RowsTable) -> None:
        by_position(table, "p", {"a": [1, 2, 3]}, k="x")
        table.commit(2)

    run = rewrite(table, meanwhile=delete, **CURRENT)
    assert run.report is not None
    assert (run.report.status, run.report.counts["remapped_deletes_count"]) == ("done", 3)
    assert run.rows == [(1, "x"), (13, "x"), (14, "y"), (3, "y")]
    new = [each for each in run.deletes if each["snapshot_id"] == run.own[0]["snapshot-id"]]
    assert sorted((each["spec_id"], each["partition"]["n"], each["record_count"]) for each in new) == [
        (2, 0, 1),
        (2, 10, 2),
    ]


@pytest.mark.parametrize("where", ["old", "new", "all"])
def test_equality_deletes_that_arrive_for_one_of_both_partitions_leave_the_group_out(where: str) -> None:
    """H13, C11: one by the old spec misses the new files, one of the new partition never was about the old ones."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2], k="eu")
    numbers(table, "b", [3], k="eu")
    table.commit(1)
    evolved(table, by_n())

    def delete(table: RowsTable) -> None:
        table.equality_rows("e", [(N, [2])], k="eu" if where == "old" else None)
        if where == "new":
            table.added[-1] |= {"spec_id": 2, "partition": {"n": 0}}
        table.commit(2)

    run = rewrite(table, meanwhile=delete, **CURRENT)
    if where == "all":
        assert run.report is not None
        assert run.report.status == "done"
        assert run.rows == [(1, "eu"), (3, "eu")]
        return
    assert isinstance(run.error, CommitConflict)
    assert "moved to another partition spec" in str(run.error)
    assert run.left == ["a", "b"]
    assert run.rows == [(1, "eu"), (3, "eu")] if where == "old" else [(1, "eu"), (2, "eu"), (3, "eu")]


def test_the_spec_goes_in_the_run() -> None:
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2], k="eu")
    numbers(table, "b", [3], k="eu")
    table.commit(1)
    evolved(table, by_n())

    def forget(table: RowsTable) -> None:
        table.document["partition-specs"].pop()
        table.document["default-spec-id"] = 1

    run = rewrite(table, meanwhile=forget, **CURRENT)
    assert isinstance(run.error, CommitConflict)
    assert run.left == ["a", "b"]


# -- what stays ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("live", "ago_ms", "stays"),
    [
        (True, 300 * DAY_MS, True),
        (False, 6 * DAY_MS, True),
        (False, 7 * DAY_MS, True),
        (False, 7 * DAY_MS + 1, False),
    ],
)
def test_files_for_whose_partition_jobs_write_equality_deletes_stay(
    live: bool, ago_ms: int, stays: bool
) -> None:
    """H54: the next delete of such a job is for the partition that it knows."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2], k="eu")
    numbers(table, "b", [3], k="eu")
    numbers(table, "c", [4], k="us")
    numbers(table, "d", [5], k="us")
    table.commit(1)
    table.equality_rows("e", [(N, [2])], k="eu")
    table.commit(2)
    table.document["snapshots"][-1]["timestamp-ms"] = NOW_MS - ago_ms
    table.remove("d")  # by a snapshot of today that has the old delete still
    table.commit(3)
    table.document["snapshots"][-1]["timestamp-ms"] = NOW_MS
    if not live:
        table.remove("e-eq-deletes")
        table.commit(4)
    evolved(table, by_n())
    gone = {2} if live else set()
    rows = [row for row in ((1, "eu"), (2, "eu"), (3, "eu"), (4, "us")) if row[0] not in gone]
    run = rewrite(table, **CURRENT)
    assert run.left == (["a", "b"] if stays else [])
    assert any("--unsafe-ignore-upserts" in each for each in run.plan.warnings) == stays
    assert run.rows == rows
    ignoring = rewrite(table, unsafe_ignore_upserts=True, **CURRENT)
    assert {each["spec_id"] for each in ignoring.data} == {2}
    assert ignoring.rows == rows


def test_rows_come_to_partitions_of_several_fields() -> None:
    table = RowsTable(format_version=2)
    table.rows("a", [(N, [1, 11, 12, 2, 13, 3]), (K, ["x", "x", "y", "y", "x", "x"])])
    table.rows("b", [(N, [14, None, 4]), (K, ["y", "x", None])])
    table.commit(1)
    evolved(table, by_n(), field(2, "k", 1002, "identity"))
    run = rewrite(table, **{**CURRENT, "rewrite_all": True})
    assert rows_by_output(run) == {
        "{'n': 0, 'k': 'x'}": [1, 3], "{'n': 10, 'k': 'x'}": [11, 13], "{'n': 10, 'k': 'y'}": [12, 14],
        "{'n': 0, 'k': 'y'}": [2], "{'n': None, 'k': 'x'}": [None], "{'n': 0, 'k': None}": [4],
    }  # fmt: skip


@pytest.mark.parametrize(("partition", "texts"), [("x", ["y", "y"]), ("x", ["x", "y"]), (None, ["y", None])])
def test_a_file_whose_rows_have_other_values_than_its_partition_stays(
    partition: str | None, texts: list[str | None]
) -> None:
    """C6: imported files; Java reads the partition's value, the specification the file's."""
    table = RowsTable(format_version=2)
    for name in ("a", "b"):
        in_spec(table, name, [(N, [1, 2]), (K, texts)], spec_id=1, partition={"k": partition})
    table.commit(1)
    evolved(table, by_n())
    run = rewrite(table, **CURRENT)
    assert run.report is not None
    assert (run.report.status, run.report.exit_code, run.left) == ("partial", 0, ["a", "b"])
    assert "readers take either" in notes_of(run)
    assert run.report.counts["conflicted_groups_count"] == run.report.counts["failed_groups_count"] == 0


@pytest.mark.parametrize(("names", "wrong"), [("ab", "b"), ("abc", "b"), ("abc", "c")])
def test_of_several_files_the_one_is_named_whose_rows_have_other_values(names: str, wrong: str) -> None:
    """C6"""
    table = RowsTable(format_version=2)
    for name in names:
        texts = ["y" if name == wrong else "x"] * 2
        in_spec(table, name, [(N, [1, 2]), (K, texts)], spec_id=1, partition={"k": "x"})
    table.commit(1)
    evolved(table, by_n())
    run = rewrite(table, **CURRENT)
    assert f"rows of {table.path(wrong)} have other values" in notes_of(run)
    assert run.left == [*names]


def test_a_group_that_would_become_more_files_stays_unless_all_are_to_move() -> None:
    """I25"""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 11], k="x")
    numbers(table, "b", [2, 21], k="x")
    table.commit(1)
    evolved(table, by_n())
    run = rewrite(table, **CURRENT)
    assert run.report is not None
    assert (run.report.status, run.report.exit_code, run.left) == ("partial", 0, ["a", "b"])
    assert "--rewrite-all" in notes_of(run)
    assert not any("n=" in each.path for each in table.storage.list(f"{table.location}/data"))
    moved = rewrite(table, **{**CURRENT, "rewrite_all": True})
    assert len(moved.outputs) == 3
    assert moved.rows == run.rows


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (field(1, "n", 1001, "zorder[3]"), "transform zorder[3], which is not known here"),
        (
            {**field(1, "n", 1001, "bucket[3]"), "source-ids": [1, 2]},
            "transform bucket[3], which is not known here",
        ),
        (field(99, "old", 1001, "identity"), "the column of its field old is not there any more"),
        (field(1, "n", 1001, "hour"), "its field n: Cannot apply transform 'hour'"),
    ],
)
def test_a_spec_into_which_rows_cannot_be_told_blocks_the_plan(made: dict[str, Any], sentence: str) -> None:
    table = RowsTable(format_version=2)
    numbers(table, "a", [1], k="x")
    numbers(table, "b", [2], k="x")
    table.commit(1)
    run = rewrite(evolved(table, made), **{**CURRENT, "rewrite_all": True})
    assert len(run.plan.blocked_by) == 1
    assert sentence in run.plan.blocked_by[0]
    # Where nothing else is due it is a warning: there is nothing to block.
    alone = rewrite(table, **CURRENT)
    assert (alone.plan.blocked_by, alone.plan.due) == ((), False)
    assert [each for each in alone.plan.warnings if sentence in each]


def test_equality_deletes_of_a_partition_that_is_empty_then_go() -> None:
    """C12: nothing is left of the old partition to which they could apply."""
    table = RowsTable(format_version=2)
    numbers(table, "a", [1, 2], k="eu")
    numbers(table, "b", [3], k="eu")
    table.commit(1)
    table.equality_rows("e", [(N, [2])], k="eu")
    table.commit(2)
    evolved(table, by_n())
    run = rewrite(table, unsafe_ignore_upserts=True, **CURRENT)
    assert (run.delete_names, run.rows) == ([], [(1, "eu"), (3, "eu")])
