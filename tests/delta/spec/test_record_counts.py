"""How many rows statistics tell, and statistics that are told it: every other character stays."""

from __future__ import annotations

import decimal
import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.spec.columns import ADD
from iceberg_cli.delta.spec.row_ids import UNKNOWN, record_counts, with_record_count
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.errors import CorruptFile
from iceberg_cli.testing.delta_writer import a_field, a_metadata, a_protocol, an_add
from tests.delta_opened import Operator, a_log, opened


def counted(*stats: str | None) -> list[int]:
    rows = [an_add(path=f"{number}", stats=text)["add"] for number, text in enumerate(stats)]
    return [int(count) for count in record_counts(pa.Table.from_pylist(rows, schema=ADD))]


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (None, '{"numRecords":7}'),
        ("null", '{"numRecords":7}'),
        (" null\n", '{"numRecords":7}'),
        ("{}", '{"numRecords":7}'),
        (" \n{ }", ' \n{"numRecords":7 }'),
        ('{"nullCount":{"d":0}}', '{"numRecords":7,"nullCount":{"d":0}}'),
        (
            '{"maxValues":{"d":1234567890123456789.12,"e":12345678901234567890123456789012345678}}',
            '{"numRecords":7,"maxValues":{"d":1234567890123456789.12,"e":12345678901234567890123456789012345678}}',
        ),
        ('\t{ "minValues": {"t": "\\u00e9{\\"", "x": 1.50}}', None),
        ('{"numRecords":null,"minValues":{}}', '{"numRecords":7,"minValues":{}}'),
        ('{"numRecords":null}', '{"numRecords":7}'),
        (
            '{"minValues":{"numRecords":1,"s":"\\"numRecords\\":2, {"},\n "num\\u0052ecords" : null , "x":[{}]}',
            '{"minValues":{"numRecords":1,"s":"\\"numRecords\\":2, {"},\n "num\\u0052ecords" : 7 , "x":[{}]}',
        ),
        ('{"numRecords":12,"tightBounds":false}', '{"numRecords":7,"tightBounds":false}'),
    ],
)
def test_the_count_is_put_into_the_text_and_nothing_else_changes(
    stats: str | None, expected: str | None
) -> None:
    if expected is None:
        assert stats is not None
        expected = stats.replace("{", '{"numRecords":7,', 1)
    found = with_record_count(stats, 7)
    assert found == expected
    assert counted(found) == [7]
    assert json.loads(found) == {**(json.loads(stats or "{}") or {}), "numRecords": 7}


@pytest.mark.parametrize("stats", ["", "[]", "{", '{"a":1,"a":2}', '{"a":NaN}', '{"a":"\n"}', '{"a":1} {}'])
def test_what_is_no_object_is_refused_and_never_added_to(stats: str) -> None:
    with pytest.raises(CorruptFile):
        with_record_count(stats, 7)
    with pytest.raises(CorruptFile):
        counted(stats)


def test_the_count_is_read_wherever_it_stands_and_whatever_bounds_are_beside_it() -> None:
    """Bounds of decimal(38,0) are numbers of up to 38 digits."""
    bounds = (
        '"minValues":{"d":-99999999999999999999999999999999999999},"maxValues":{"d":12345678901234567890123}'
    )
    assert counted(
        f'{{{bounds},"numRecords":1}}',
        f'{{"numRecords":2,{bounds}}}',
        f' {{ "numRecords" : 3 ,\r\n{bounds} }}\n',
        f"{{{bounds}}}",
        '{"minValues":{"numRecords":5}}',
        '{"numRecords":9223372036854775807}',
        None,
        "null",
        "\tnull ",
    ) == [1, 2, 3, UNKNOWN, UNKNOWN, 2**63 - 1, UNKNOWN, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("count", ["-1", "1.5", '"1"', "true", "9223372036854775808", "[1]"])
def test_a_count_that_is_no_number_of_rows_is_refused(count: str) -> None:
    with pytest.raises(CorruptFile, match="a number of rows is expected"):
        counted(f'{{"numRecords":{count}}}')


def test_delta_rs_finds_the_rows_of_a_file_whose_rows_were_counted(tmp_path: Path) -> None:
    """The bound as a double, 1234567890123456800, is above the value and hides its only row."""
    value = decimal.Decimal("1234567890123456789.12")
    pq.write_table(pa.table({"d": pa.array([value], pa.decimal128(38, 2))}), tmp_path / "a.parquet")
    stats = f'{{"minValues":{{"d":{value}}},"maxValues":{{"d":{value}}},"nullCount":{{"d":0}}}}'
    add = an_add(path="a.parquet", size=(tmp_path / "a.parquet").stat().st_size, stats=stats)
    a_log(tmp_path, [a_protocol(), a_metadata(a_field("d", "decimal(38,2)")), add])
    Operator(VERBS["assign-row-ids"]).run(tmp_path, count_rows=True)
    assert opened(tmp_path).snapshot.adds["stats"].to_pylist() == [f'{{"numRecords":1,{stats[1:]}']
    below = pc.field("d") < decimal.Decimal("1234567890123456790.00")
    for version in (0, 2):
        dataset = deltalake.DeltaTable(str(tmp_path), version=version).to_pyarrow_dataset()
        assert dataset.to_table(filter=below).num_rows == 1
