"""`--purge`: rows that are deleted and columns that were dropped leave the files that the table names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from iceberg_cli.testing.delta_rows import commits_of, rows_of, state_of
from tests.cli.running import iceberg_cli
from tests.delta.verbs.rewrite_data_files.drawn import Column, DrawnTable
from tests.delta.verbs.rewrite_data_files.test_meanwhile import deletes, in_order
from tests.delta.verbs.rewrite_data_files.test_plan import a_table, plan_of

STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "long", "nullable": True, "metadata": {}},
        {"name": "b", "type": "string", "nullable": True, "metadata": {}},
    ],
}


def chosen(table: DrawnTable, **options: Any) -> list[str]:
    groups = plan_of(table.root, purge=True, **options).groups
    return [] if groups is None else sorted(groups.inputs["log_path"].to_pylist())


@pytest.mark.parametrize("tracking", ["none", "enabled"])
@pytest.mark.parametrize("mode", ["none", "name"])
def test_files_with_one_deleted_row_are_rewritten_and_no_other(
    mode: str, tracking: str, tmp_path: Path
) -> None:
    """D4, D17; a lone file too, TR 29041."""
    table = a_table(tmp_path / "t", mode=mode, tracking=tracking)
    assert chosen(table) == []
    deletes(table, [], [1], [], [0])
    paths = [add["path"] for add in in_order(table)]
    assert chosen(table) == sorted([paths[1], paths[3]])
    before = rows_of(table.root)
    ran = iceberg_cli("rewrite-data-files", table.root, "--purge", "--yes")
    assert ran.code == 0, ran.err
    assert "Old files have what is purged until `expire-snapshots` deletes them" in ran.out.replace("\n", " ")
    assert rows_of(table.root) == before
    assert not any(add.get("deletionVector") for add in state_of(table.root).adds.values())
    (info, *_) = (json.loads(line) for line in commits_of(table.root)[-1].read_text().splitlines())
    assert info["commitInfo"]["operation"] == "REORG"
    assert info["commitInfo"]["operationParameters"] == {"predicate": "[]", "applyPurge": "true"}
    assert chosen(table) == []


def with_struct(root: Path, mode: str) -> DrawnTable:
    table = a_table(root, mode=mode, tracking="enabled", files=2)
    inner = [
        {**each, "metadata": mapped(mode, 70 + place, f"p{place}")}
        for place, each in enumerate(STRUCT["fields"])
    ]
    table.columns.append(
        Column("g", {"type": "struct", "fields": inner}, 69, "pg" if mode != "none" else "g")
    )
    table.commit([table.metadata()])
    table.write([table.new_file(3) for _ in range(2)])
    return table


def mapped(mode: str, number: int, name: str) -> dict[str, Any]:
    if mode == "none":
        return {}
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("dropped", ["column", "field of a struct"])
def test_files_with_a_dropped_column_are_rewritten_without_it(
    dropped: str, mode: str, tmp_path: Path
) -> None:
    table = with_struct(tmp_path / "t", mode)
    (column,) = (each for each in table.columns if each.name == "g")
    having = [add["path"] for add in table.live.values() if has(table, add["path"], "pg")]
    assert len(having) >= 1
    assert chosen(table) == []
    if dropped == "column":
        table.columns.remove(column)
    else:
        column.kind = {"type": "struct", "fields": column.kind["fields"][:1]}
    table.commit([table.metadata()])
    assert chosen(table) == sorted(having)
    before = rows_of(table.root)
    ran = iceberg_cli("rewrite-data-files", table.root, "--purge", "--yes")
    assert ran.code == 0, ran.err
    assert rows_of(table.root) == before
    for add in state_of(table.root).adds.values():
        assert not has(table, add["path"], "pg" if dropped == "column" else "pg.p1")
    assert chosen(table) == []


def has(table: DrawnTable, path: str, column: str) -> bool:
    leaves = pq.ParquetFile(table.root / unquote(path)).schema
    names = [leaves.column(place).path for place in range(len(leaves))]
    return any(name == column or name.startswith(f"{column}.") for name in names)


def test_a_column_that_is_added_or_renamed_purges_nothing(tmp_path: Path) -> None:
    table = with_struct(tmp_path / "t", "name")
    table.columns[0].name += "r"
    table.add_column()
    table.commit([table.metadata()])
    assert chosen(table) == []
    assert plan_of(table.root, purge=True).not_applicable == (
        "the table has no data file that has deleted rows, or columns that were dropped"
    )


def test_a_file_whose_footer_cannot_be_read_stops_the_plan(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t")
    broken = table.root / unquote(in_order(table)[0]["path"])
    broken.write_bytes(broken.read_bytes()[:-6] + b"xxPAR1")
    ran = iceberg_cli("rewrite-data-files", table.root, "--purge", "--yes")
    assert ran.code == 15
    assert broken.name in ran.err
    broken.unlink()
    ran = iceberg_cli("rewrite-data-files", table.root, "--purge", "--yes")
    assert ran.code == 15
    assert "the table needs this file and it is not there" in ran.err.replace("\n", " ")


def test_an_iceberg_table_has_another_way(tmp_path: Path) -> None:
    assert iceberg_cli("demo", tmp_path / "demo", "--quiet").code == 0
    ran = iceberg_cli("rewrite-data-files", tmp_path / "demo" / "db" / "orders", "--purge")
    assert ran.code == 2
    assert "--delete-ratio" in ran.err
