"""Tables whose files Iceberg reads too: what new files have for it, and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.errors import CommitConflict
from iceberg_cli.testing.delta_rows import rows_of
from iceberg_cli.testing.delta_writer import a_field, a_metadata, a_protocol_with, an_add, write_log
from tests.cli.running import iceberg_cli
from tests.delta.verbs.rewrite_data_files.drawn import DrawnTable
from tests.delta.verbs.rewrite_data_files.test_law import rewritten
from tests.delta.verbs.rewrite_data_files.test_meanwhile import deletes, new_adds
from tests.delta.verbs.rewrite_data_files.test_plan import plan_of

COMPAT = {"delta.columnMapping.mode": "name", "delta.enableIcebergCompatV2": "true"}
DAY = [{"day": each} for each in ("2026-12-01", None, "2026-12-01")]


def mapped(number: int, physical: str, **nested: int) -> dict[str, Any]:
    """What Delta Spark 4.4 has of a column in the schema of a table that is compatible by version 2."""
    return {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": physical,
        "delta.columnMapping.nested.ids": {f"{physical}.{place}": item for place, item in nested.items()},
    }


LIST_OF_LISTS = {
    "type": "array",
    "elementType": {"type": "array", "elementType": "integer", "containsNull": True},
    "containsNull": True,
}
FIELDS = [
    a_field("id", "long", **mapped(1, "c-id")),
    a_field("d", "date", **mapped(2, "day")),
    a_field("xs", LIST_OF_LISTS, **mapped(3, "c-xs", **{"element": 10, "element.element": 11})),
]


def a_table(
    root: Path,
    *features: str,
    partitions: list[dict[str, str | None]] = DAY,
    fields: list[Any] = FIELDS,
    **configuration: str,
) -> Path:
    """Three files of two rows each, without partition columns."""
    adds = []
    schema = pa.schema({"c-id": pa.int64(), "c-xs": pa.list_(pa.list_(pa.int32()))})
    root.mkdir()
    for number, partition in enumerate(partitions):
        rows = pa.table([[2 * number, 2 * number + 1], [[[1], None], None]], schema=schema)
        pq.write_table(rows, root / f"f{number}.parquet")
        size = (root / f"f{number}.parquet").stat().st_size
        adds.append(an_add(path=f"f{number}.parquet", size=size, partitionValues=partition, rows=2))
    properties = COMPAT | {name.replace("_", "."): text for name, text in configuration.items()}
    metadata = a_metadata(*fields, configuration=properties, partitionColumns=["d"])
    write_log(root, [a_protocol_with("columnMapping", *features), metadata, *adds])
    return root


def ids_of(kind: pa.DataType) -> list[int]:
    """The ids of what is in lists, from the outside in."""
    if not pa.types.is_list(kind):
        return []
    return [int(kind.value_field.metadata[b"PARQUET:field_id"]), *ids_of(kind.value_type)]


def test_files_of_a_compatible_table_have_partition_columns_nested_ids_and_the_tag(tmp_path: Path) -> None:
    """Hazard 21, D9, D15"""
    root = a_table(tmp_path / "t", "icebergCompatV2")
    before = rows_of(root)
    assert rewritten(root, rewrite_all=True) is not None
    assert rows_of(root) == before
    days = {}
    for add in new_adds(root):
        table = pq.ParquetFile(root / unquote(add["path"])).read()
        assert table.column_names == ["c-id", "c-xs", "day"]
        assert ids_of(table.schema.field("c-xs").type) == [10, 11]
        assert [int(each.metadata[b"PARQUET:field_id"]) for each in table.schema] == [1, 3, 2]
        assert table.schema.field("day").type == pa.date32()
        assert add["tags"] == {"ICEBERG_COMPAT_VERSION": "2"}
        assert json.loads(add["stats"])["numRecords"] == len(table)
        days[add["partitionValues"]["day"]] = [*map(str, table["day"].to_pylist())]
    assert days == {"2026-12-01": ["2026-12-01"] * 4, None: ["None"] * 2}
    assert rewritten(root) is None  # a second run finds nothing


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partitions": [{"day": "tomorrow"}]}, "a file has 'tomorrow' in partition column day"),
        (
            {"fields": [FIELDS[0], a_field("d", "timestamp", **mapped(2, "day")), FIELDS[2]],
             "partitions": [{"day": "2026-12-01 12:00:00"}, {"day": "2026-12-01T12:00:00Z"}]},
            "a file has '2026-12-01 12:00:00' in partition column day, which readers take for different values",
        ),
        (
            {"fields": [*FIELDS[:2], a_field("xs", LIST_OF_LISTS, **mapped(3, "c-xs", element=10))]},
            "the schema has no ids of c-xs.element.element",
        ),
        (
            {"fields": [*FIELDS[:2], a_field("xs", LIST_OF_LISTS, **{**mapped(3, "c-xs"),
                                                                    "delta.columnMapping.nested.ids": "none"})]},
            "the schema has no ids of c-xs.element, c-xs.element.element",
        ),
    ],
)  # fmt: skip
def test_what_files_cannot_have_for_iceberg_blocks_the_plan(
    changes: Mapping[str, Any], sentence: str, tmp_path: Path
) -> None:
    root = a_table(tmp_path / "t", "icebergCompatV2", **changes)
    (blocked,) = plan_of(root, rewrite_all=True).blocked_by
    assert sentence in blocked


def test_a_table_in_two_formats_is_rewritten_only_where_that_was_said(tmp_path: Path) -> None:
    """D16"""
    uniform = {"delta_universalFormat_enabledFormats": "iceberg"}
    root = a_table(tmp_path / "t", "icebergCompatV2", **uniform)
    refused = iceberg_cli("rewrite-data-files", root, "--rewrite-all", "--yes")
    assert refused.code == 11
    assert "--leave-iceberg-behind carries on" in refused.err
    before = rows_of(root)
    ran = iceberg_cli("rewrite-data-files", root, "--rewrite-all", "--leave-iceberg-behind", "--yes")
    assert ran.code == 0
    assert "What UniForm tells readers of iceberg stays at the version before this run" in ran.out
    assert rows_of(root) == before


def test_no_new_file_of_a_table_in_two_formats_gets_a_vector(tmp_path: Path) -> None:
    """Hazard 22, E4: the conversion stops where one is added and none removed."""
    table = DrawnTable(tmp_path / "t", random.Random(3))
    table.configuration = {}
    table.found()
    table.configuration["delta.universalFormat.enabledFormats"] = "iceberg"
    table.write([table.metadata(), *(table.new_file(4) for _ in range(4))])
    acts = [lambda: deletes(table, [2])]

    def act() -> None:
        if acts:
            acts.pop()()

    with pytest.raises(CommitConflict, match=r"takes no deletion vectors \(delta.universalFormat"):
        rewritten(table.root, at_commit=act, rewrite_all=True, leave_iceberg_behind=True)
