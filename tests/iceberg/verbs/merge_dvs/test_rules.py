"""The pure parts of merge-dvs: expressions, partition keys, files by size, and bytes that equal Java's."""

from __future__ import annotations

import io
import tracemalloc
import zlib
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.encoding.deletion_vector import decode, encode, unproven
from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.iceberg.branch.file_filter import FileFilter
from iceberg_cli.iceberg.spec.deletes.dv_blobs import merge_vectors, missing_positions
from iceberg_cli.iceberg.spec.deletes.position_deletes import named_files, read_position_deletes
from iceberg_cli.iceberg.spec.types.partition_keys import in_spec_order, partition_keys
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionField, PartitionSpec
from iceberg_cli.iceberg.verbs.merge_dvs.choice import rolled
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.plan.where import parse_where
from iceberg_cli.testing.iceberg_files import position_deletes, vector_blob
from tests.paths import FIXTURES, needs_fixtures


def a_spec(*fields: tuple[str, str]) -> PartitionSpec:
    """Fields by name and transform; the source column of the first is 1, and so on."""
    return PartitionSpec(
        spec_id=0,
        fields=tuple(
            PartitionField(source_ids=(number,), field_id=999 + number, name=name, transform=transform)
            for number, (name, transform) in enumerate(fields, start=1)
        ),
    )


def met(
    where: str, type_: str, values: list[Any], *, transform: str = "identity", arrow: Any = None
) -> list[bool]:
    """Which of the values of one partition field meet an expression."""
    column = pa.StructArray.from_arrays([pa.array(values, arrow)], ["f"])
    where_ = FileFilter(on_partitions=parse_where(where))
    found: list[bool] = where_.of_partitions(a_spec(("f", transform)), {1: type_}, column).tolist()
    return found


@pytest.mark.parametrize(
    ("where", "type_", "transform", "values", "expected"),
    [
        ("f = 3", "int", "bucket[4]", [3, 1, None], [True, False, False]),
        ("f != 3", "long", "identity", [3, 1, None], [False, True, False]),
        ("f >= 2 AND f < 4", "int", "identity", [1, 2, 3, 4], [False, True, True, False]),
        ("f in ('it''s', 'b')", "string", "identity", ["it's", "c"], [True, False]),
        ("f IS NULL", "string", "identity", ["a", None], [False, True]),
        ("f is not null", "string", "identity", ["a", None], [True, False]),
        ("f = '2024-05-01'", "timestamp", "day", [19844, 19845], [True, False]),
        ("f > '2024-04'", "timestamp", "month", [651, 652], [False, True]),
        ("f = 2024", "date", "year", [54, 55], [True, False]),
        ("f = '2024-05-01-13'", "timestamptz", "hour", [476269, 476270], [True, False]),
        ("f = true", "boolean", "identity", [True, False], [True, False]),
        ("f <= 1.5", "double", "identity", [1.5, 2.0, float("nan")], [True, False, False]),
        ("`f` = '0xff'", "binary", "identity", [b"\xff", b"\x00"], [True, False]),
    ],
)
def test_an_expression_means_partitions_by_the_values_that_people_see(
    where: str, type_: str, transform: str, values: list[Any], expected: list[bool]
) -> None:
    assert met(where, type_, values, transform=transform) == expected


def test_decimals_compare_as_numbers() -> None:
    values = [Decimal(text).scaleb(2) for text in ("-1.50", "9.99", "10.00")]
    stored = [int(value).to_bytes(4, "big", signed=True) for value in values]
    assert met("f < 10", "decimal(9,2)", stored, arrow=pa.binary(4)) == [True, True, False]


@pytest.mark.parametrize(
    "where",
    [
        "",
        "f",
        "f =",
        "f = 1 OR f = 2",
        "f IN ()",
        "f IN (1",
        "f IS 3",
        "= 1",
        "f = 'x",
        "f = 1 f = 2",
        "f ~ 1",
    ],
)
def test_what_is_no_expression_is_a_usage_error_that_quotes_it(where: str) -> None:
    with pytest.raises(UsageError, match="--where"):
        parse_where(where)


@pytest.mark.parametrize(("where", "type_"), [("f = 'x'", "int"), ("f = 1.5", "long"), ("f = 'now'", "date"),
                                              ("f = 1", "string"), ("f = true", "string")])  # fmt: skip
def test_a_value_of_another_type_is_a_usage_error(where: str, type_: str) -> None:
    with pytest.raises(UsageError, match="no value of f"):
        met(where, type_, [None])


def keys(columns: dict[str, pa.Array], *types: str) -> list[bytes]:
    found: list[bytes] = partition_keys(
        0, pa.StructArray.from_arrays([*columns.values()], [*columns]), types or ["unknown"] * len(columns)
    ).to_pylist()
    return found


def test_partitions_are_equal_where_all_values_are_whatever_their_width() -> None:
    narrow = keys({"a": pa.array([1, None], pa.int32()), "b": pa.array([1.5, float("nan")], pa.float32())})
    wide = keys({"a": pa.array([1, None], pa.int64()), "b": pa.array([1.5, -float("nan")], pa.float64())})
    assert narrow == wide
    assert narrow[0] != narrow[1]


def test_no_value_looks_like_another_one_or_like_two() -> None:
    texts = [("a", "b"), ("a/1:b", ""), ("", "a/1:b"), (None, "n"), ("n", None), ("", None), (None, "")]
    first, second = zip(*texts, strict=True)
    found = keys({"a": pa.array(first, pa.string()), "b": pa.array(second, pa.string())})
    assert len(set(found)) == len(texts)
    none = pa.array([{}], pa.struct([]))
    assert partition_keys(0, none, []) != partition_keys(1, none, [])


def test_decimals_of_two_precisions_are_equal_and_bytes_that_are_no_decimals_are_not() -> None:
    narrow = pa.array([b"\x00\x00\x7d", b"\xff\xff\x80", b"\x00\x00\x80", None], pa.binary(3))
    wide = pa.array(
        [b"\x00\x00\x00\x00\x00\x7d", b"\xff" * 5 + b"\x80", b"\x00" * 5 + b"\x80", None], pa.binary(6)
    )
    shortest = pa.array([b"\x7d", b"\x80", b"\x00\x80", None], pa.binary())  # Avro's decimal of bytes
    found = [keys({"a": column}, "decimal(12,2)") for column in (narrow, wide, shortest)]
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 4
    assert keys({"a": shortest}, "binary") != keys({"a": narrow.cast(pa.binary())}, "binary")


def test_partition_fields_are_found_by_id_and_are_null_where_a_file_lacks_them() -> None:
    spec = a_spec(("x", "identity"), ("y", "identity"))
    struct = pa.array([{"b": "Y", "a": "X"}, {"b": None, "a": "x"}])
    assert [tuple(t.values()) for t in in_spec_order(struct, (1001, 1000), spec).to_pylist()] == [
        ("X", "Y"),
        ("x", None),
    ]
    missing_positions = pa.array([{"b": "Y"}, {"b": "X"}])
    assert [tuple(t.values()) for t in in_spec_order(missing_positions, (1001,), spec).to_pylist()] == [
        (None, "Y"),
        (None, "X"),
    ]
    assert in_spec_order(struct, (None, None), spec).equals(in_spec_order(struct, (1000, 1001), spec))
    with pytest.raises(ValueError, match="without an id"):
        in_spec_order(missing_positions, (None,), spec)


def test_floats_are_equal_by_their_bits() -> None:
    assert len(set(keys({"a": pa.array([0.0, -0.0])}))) == 2


def test_a_file_is_closed_once_it_has_reached_the_target() -> None:
    assert rolled(np.array([4, 4, 4, 4, 4]), 8).tolist() == [0, 0, 1, 1, 2]
    assert rolled(np.array([20, 1, 1]), 8).tolist() == [0, 1, 1]
    assert rolled(np.array([], np.int64), 8).tolist() == []


def test_a_policy_survives_its_json_and_another_one_is_refused() -> None:
    policy = MergeDvs(target_size=1, min_files=2, dead_ratio=0.5, where="k = 1", keep_dangling=True)
    assert MergeDvs.from_json(policy.to_json()) == policy
    for change in ({"min_files": "2"}, {"dead_ratio": 0}, {"more": 1}, {"keep_dangling": None}):
        with pytest.raises(UsageError):
            MergeDvs.from_json({**policy.to_json(), **change})


def test_joined_vectors_hold_what_any_of_them_holds_below_the_end_of_the_file() -> None:
    blob, cardinality, total = merge_vectors([vector_blob([1, 5]), vector_blob([5, 9, 12])], record_count=10)
    assert (cardinality, total) == (3, 15)
    assert blob == encode(np.array([1, 5, 9], np.uint64))
    assert merge_vectors([vector_blob([12])], record_count=10) == (b"", 0, 0)
    assert (
        missing_positions(vector_blob([1, 5]), [vector_blob([5]), vector_blob([9, 12])], record_count=10) == 1
    )


@needs_fixtures
@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("small-alternating-values", [1, 3, 5, 7, 9]),
        ("small-and-large-values", [100, 101, 2147483747, 2147483748]),
    ],
)
def test_a_joined_vector_has_the_bytes_that_java_writes(name: str, positions: list[int]) -> None:
    folder = FIXTURES / "01-iceberg-spec-fixtures/org/apache/iceberg/deletes"
    expected = (folder / f"{name}-position-index.bin").read_bytes()
    half = len(positions) // 2
    parts = [encode(np.array(each, np.uint64)) for each in (positions[:half], positions[half - 1 :])]
    assert merge_vectors(parts, record_count=1 << 40)[0] == expected


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_no_blob_is_proved_to_be_sound_that_decoding_refuses(step: int) -> None:
    good = encode(np.arange(0, 200_000, 40, dtype=np.uint64))
    blob = encode(np.arange(0, 60_000, step, dtype=np.uint64))
    cardinality = len(range(0, 60_000, step))
    places = [(5_000, 199_999), (cardinality, 59_999)]
    assert unproven([good, blob], *zip(*places, strict=True)) == ([] if step == 1000 else [1])
    assert 1 in unproven([good, blob], (5_000, cardinality + 1), (-1, -1))
    assert 1 in unproven([good, blob], (5_000, cardinality), (-1, 100))
    for place in range(0, len(blob), 1 + len(blob) // 300):
        bad = bytearray(blob)
        bad[place] ^= 1
        assert 1 in unproven([good, bytes(bad)], (5_000, cardinality), (-1, -1))


def test_bytes_that_are_in_order_but_for_one_thing_are_not_proved_to_be_sound() -> None:
    blob = encode(np.arange(0, 200_000, 40, dtype=np.uint64))
    assert unproven([blob], [5_000], [-1]) == []
    for place in range(8, len(blob) - 4):
        bad = bytearray(blob)
        bad[place] ^= 1
        bad[-4:] = zlib.crc32(bad[4:-4]).to_bytes(4, "big")
        try:
            decode(bytes(bad), "x", cardinality=5_000)
            refused = False
        except CorruptFile:
            refused = True
        # Another set of as many positions is sound; whatever decoding refuses must not be.
        assert not refused or unproven([bytes(bad)], [5_000], [-1]) == [0], place


def test_a_position_delete_file_is_held_against_its_entry_before_its_rows_are_read() -> None:
    data = bytearray(position_deletes([("/a", row) for row in range(100)], compression="none"))
    data[4:200] = bytes(196)
    with pytest.raises(CorruptFile, match="100 rows, its manifest says 1"):
        read_position_deletes(bytes(data), "p", record_count=1)


def test_a_file_of_fewer_rows_than_its_own_footer_says_is_not_read_whole() -> None:
    data = position_deletes([("/a", 1), ("/b", 2)], compression="none")
    # Thrift's 64-bit 2, in the footer's count of the file's rows and in that of the only row group's.
    for before, after in ((b"\x16\x04\x19\x1c", b"\x16\x06\x19\x1c"), (b"\x16\x04&\x08", b"\x16\x06&\x08")):
        assert data.count(before) == 1
        data = data.replace(before, after)
    assert pq.read_metadata(io.BytesIO(data)).num_rows == 3
    for read in (named_files, read_position_deletes):
        with pytest.raises(CorruptFile, match="2 rows were read"):
            read(data, "p", record_count=3)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("names", "order", "with_ids"),
    [
        (("file_path", "pos"), [0, 1], True),
        (("file_path", "pos"), [0, 1], False),
        (("p", "q"), [1, 0], True),
        (("p", "q"), [2, 0, 1], True),
    ],
)
def test_columns_of_a_position_delete_file_are_found_by_their_ids_wherever_they_are(
    names: tuple[str, str], order: list[int], with_ids: bool
) -> None:
    types = {names[0]: (pa.string(), 2147483546), names[1]: (pa.int64(), 2147483545)}
    fields = [
        pa.field(name, type_, metadata={"PARQUET:field_id": str(number)} if with_ids else None)
        for name, (type_, number) in types.items()
    ]
    fields.append(pa.field("row", pa.struct({"n": pa.string()}), metadata={"PARQUET:field_id": "2147483544"}))
    columns = [pa.array(["/b", "/a", "/b"]), pa.array([7, 1, 8]), pa.array([{"n": "/x"}] * 3)]
    table = pa.table(
        [columns[number] for number in order], schema=pa.schema([fields[number] for number in order])
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    assert named_files(out.getvalue(), "p", record_count=3) == ["/b", "/a"]
    found = read_position_deletes(out.getvalue(), "p", record_count=3)
    assert found.select(["path", "cardinality", "last"]).to_pylist() == [
        {"path": "/b", "cardinality": 2, "last": 8}, {"path": "/a", "cardinality": 1, "last": 1}
    ]  # fmt: skip


def test_one_position_said_millions_of_times_takes_the_memory_of_few() -> None:
    rows = 16 << 20  # 128 MiB of positions
    part = pa.table(
        {
            "file_path": pa.array(["/a"]).take(pa.array(np.zeros(1 << 20, np.int8))),
            "pos": np.zeros(1 << 20, np.int64),
        },
        schema=pa.schema(
            [
                pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": "2147483546"}),
                pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": "2147483545"}),
            ]
        ),
    )
    out = io.BytesIO()
    pq.write_table(pa.concat_tables([part] * 16), out)
    tracemalloc.start()
    try:
        found = read_position_deletes(out.getvalue(), "p", record_count=rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.select(["path", "cardinality", "last"]).to_pylist() == [
        {"path": "/a", "cardinality": 1, "last": 0}
    ]
    assert peak < 80 << 20
