"""What was done with a group, as JSON and a map of positions: nothing is lost, and nothing else is taken for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.encoding.transport import to_ipc
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.rows.file_metrics import FileMetrics
from iceberg_cli.iceberg.verbs.rewrite_data_files.group import OutputFile, RewrittenGroup
from iceberg_cli.layout.position_map import PositionMapBuilder
from iceberg_cli.layout.row_proof import RowProof

Json = dict[str, Any]
HASH = "0" * 16
PROOF = RowProof(5, (1, (1 << 64) - 1))


def an_output(number: int, rows: int) -> OutputFile:
    return OutputFile(
        path=f"s3://b/t/data/{number}.parquet",
        size_bytes=1000 + number,
        metrics=FileMetrics(
            record_count=rows,
            column_sizes={1: 40, 2: (1 << 53) - 1, 3: 1 << 53, 2147483540: (1 << 63) - 1},
            value_counts={1: rows},
            null_value_counts={1: 0},
            nan_value_counts={},
            lower_bounds={1: b"\x00\xff", 2: b""},
            upper_bounds={1: b"\xfe\xff\xff"},
            split_offsets=(4, 300),
        ),
    )


def a_result(proof: RowProof | None = PROOF) -> RewrittenGroup:
    builder = PositionMapBuilder()
    builder.add(0, np.array([0, 1, 5]), 0, 0)
    builder.add(1, np.array([3, 4]), 1, 0)
    return RewrittenGroup(
        number=7,
        outputs=(an_output(0, 3), replace(an_output(1, 2), partition=(b"\x00\xff", None, b""))),
        positions=builder.build(),
        rows_read=9,
        rows_deleted=4,
        rows_written=5,
        input_bytes=5000,
        output_bytes=2001,
        proof=proof,
    )


def read(document: object, data: bytes | None = None) -> RewrittenGroup:
    positions = a_result().position_data() if data is None else data
    return RewrittenGroup.from_json(document, positions, "journal.json", position_path="map.arrow")


@pytest.mark.parametrize("proof", [None, RowProof(5, (0, 0)), PROOF])
def test_a_result_is_the_same_after_it_was_kept(proof: RowProof | None) -> None:
    result = a_result(proof)
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    again = read(document, result.position_data())
    assert again.to_json() == result.to_json() == document
    assert (again.outputs, again.proof, again.rows_read) == (result.outputs, result.proof, 9)
    assert again.positions.to_table().equals(result.positions.to_table())


def test_bytes_are_in_base64_and_hashes_in_hexadecimal() -> None:
    document = a_result().to_json()
    assert document["row_hashes"] == ["0000000000000001", "ffffffffffffffff"]
    assert document["outputs"][0]["sort_order_id"] == 0
    assert [each.get("partition") for each in document["outputs"]] == [None, ["AP8=", None, ""]]
    assert document["outputs"][0]["lower_bounds"] == {"1": "AP8=", "2": ""}
    assert document["outputs"][0]["column_sizes"] == {
        "1": 40, "2": 9007199254740991, "3": "9007199254740992", "2147483540": "9223372036854775807",
    }  # fmt: skip


@pytest.mark.parametrize("offsets", [[], [0], [0, 4]])
def test_offsets_ascend_from_any_place(offsets: list[int]) -> None:
    document = a_result().to_json()
    document["outputs"][0]["split_offsets"] = offsets
    assert read(document).outputs[0].metrics.split_offsets == tuple(offsets)


def test_a_group_without_outputs_is_kept_too() -> None:
    empty = RewrittenGroup(
        number=0, outputs=(), positions=PositionMapBuilder().build(), rows_read=3, rows_deleted=3, rows_written=0,
        input_bytes=10, output_bytes=0, proof=RowProof(),
    )  # fmt: skip
    assert read(empty.to_json(), empty.position_data()).to_json() == empty.to_json()


def without(name: str) -> Callable[[Json], Any]:
    return lambda document: document.pop(name)


def with_(name: str, value: Any) -> Callable[[Json], Any]:
    return lambda document: document.update({name: value})


def in_output(name: str, value: Any) -> Callable[[Json], Any]:
    return lambda document: document["outputs"][1].update({name: value})


CHANGES: list[tuple[Callable[[Json], Any], str]] = [
    *[
        (change, name)
        for name in ("number", "rows_read", "rows_deleted", "rows_written", "input_bytes", "output_bytes")
        for change in (without(name), *(with_(name, value) for value in (None, "5", True, -1, 5.0)))
    ],
    (without("outputs"), "outputs"),
    (with_("outputs", {}), "outputs"),
    (with_("outputs", [[]]), "outputs[0]"),
    (with_("rows_deleted", 3), "rows_written"),
    (with_("output_bytes", 2000), "output_bytes"),
    *[
        (with_("row_hashes", value), "row_hashes")
        for value in (
            [HASH], [HASH] * 3, ["0" * 15, HASH], [HASH, "A" * 16], [HASH, "0" * 15 + "g"],
            [HASH, HASH + "0"], [1, 2], HASH,
        )
    ],
    (without("row_hashes"), "row_hashes"),
    (in_output("path", 1), "outputs[1].path"),
    (in_output("size_bytes", -1), "outputs[1].size_bytes"),
    (in_output("sort_order_id", None), "outputs[1].sort_order_id"),
    (in_output("record_count", "2"), "outputs[1].record_count"),
    (in_output("split_offsets", [300, 4]), "outputs[1].split_offsets"),
    (in_output("split_offsets", [4, 4]), "outputs[1].split_offsets"),
    (in_output("split_offsets", [-4, 4]), "outputs[1].split_offsets"),
    (in_output("split_offsets", None), "outputs[1].split_offsets"),
    *[
        (in_output(name, value), f"outputs[1].{name}{place}")
        for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
        for value, place in (
            (None, ""), ([], ""), ({"x": 1}, ".x"), ({"01": 1}, ".01"), ({"-1": 1}, ".-1"), ({"1": -1}, ".1"),
            ({"1": "-1"}, ".1"), ({"1": "01"}, ".1"), ({"1": 1.0}, ".1"), ({"1": ""}, ".1"),
            ({"1": "5"}, ".1"), ({"1": str((1 << 53) - 1)}, ".1"), ({"1": "9" * 20}, ".1"),
            ({"1": chr(0xFF19) * 17}, ".1"),
        )
    ],
    *[
        (in_output(name, value), f"outputs[1].{name}{place}")
        for name in ("lower_bounds", "upper_bounds")
        for value, place in (
            (None, ""), ({"1": 1}, ".1"), ({"1": "AP8"}, ".1"), ({"1": "AA*=="}, ".1"), ({"1": "ü"}, ".1"),
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_what_is_no_result_is_an_error_that_names_the_field(number: int) -> None:
    change, place = CHANGES[number]
    document = copy.deepcopy(a_result().to_json())
    change(document)
    with pytest.raises(CorruptFile) as caught:
        read(document)
    assert str(caught.value).startswith(f"Cannot read journal.json, {place}: ")


def test_what_is_no_object_is_an_error() -> None:
    with pytest.raises(CorruptFile, match=r"journal\.json: an object is expected"):
        read([])


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "map.arrow: no readable Arrow file"),
        (b"x" * 100, "map.arrow: no readable Arrow file"),
        (a_result().position_data()[:-300], "map.arrow"),
        (to_ipc(pa.table({"input": [1]})), "map.arrow, schema"),
        (PositionMapBuilder().build(), "map.arrow, runs: they do not have the rows of the outputs"),
    ],
)
def test_positions_that_are_none_are_an_error(data: Any, place: str) -> None:
    with pytest.raises(CorruptFile) as caught:
        read(a_result().to_json(), data if isinstance(data, bytes) else to_ipc(data.to_table()))
    assert str(caught.value).startswith(f"Cannot read {place}")


def test_positions_of_other_outputs_are_an_error() -> None:
    for runs in ([(0, 2), (1, 3)], [(0, 3), (2, 2)], [(0, 3), (1, 2), (2, 1)], [(0, 5)]):
        builder = PositionMapBuilder()
        for number, (output, count) in enumerate(runs):
            builder.add(number, np.arange(count), output, 0)
        with pytest.raises(CorruptFile, match="they do not have the rows of the outputs"):
            read(a_result().to_json(), to_ipc(builder.build().to_table()))


def test_rows_of_outputs_are_those_that_were_written() -> None:
    document = a_result().to_json()
    document["outputs"][0]["record_count"] = 2
    with pytest.raises(CorruptFile, match="they do not have the rows of the outputs"):
        read(document)
