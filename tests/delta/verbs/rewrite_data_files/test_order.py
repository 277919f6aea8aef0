"""Rows of a Delta table in an order: what the log says of it, and what comes meanwhile."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from iceberg_cli.delta.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.errors import CommitConflict, UsageError
from iceberg_cli.formats.open import open_table
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import system_runtime
from iceberg_cli.testing.delta_rows import commits_of, deleted_positions, rows_of
from tests.delta.verbs.rewrite_data_files.drawn import Column, DrawnTable
from tests.delta.verbs.rewrite_data_files.test_law import NOW_MS, rewritten
from tests.delta.verbs.rewrite_data_files.test_meanwhile import deletes, in_order, new_adds, run
from tests.delta.verbs.rewrite_data_files.test_plan import plan_of

KINDS = {"n": "long", "s": "string", "d": "date", "b": "boolean", "x": "binary", "part": "string"}


def a_table(root: Path, *, files: int = 6, rows: int = 20, **values: Any) -> DrawnTable:
    """Files whose rows are anywhere, of columns of several types."""
    table = DrawnTable(root, random.Random(5), **values)
    table.add_column = lambda: None  # type: ignore[method-assign]
    table.columns = [
        Column(name, kind, number, name if table.mode == "none" else f"col-{number}")
        for number, (name, kind) in enumerate(KINDS.items(), start=1)
    ]
    table.partitioned = True
    table.next_id = 10
    table.columns.pop()  # which `found` adds
    table.found()
    table.write([counted(table.new_file(rows), rows) for _ in range(files)])
    return table


def counted(action: dict[str, Any], rows: int) -> dict[str, Any]:
    """A new file of one partition, of which the log says how many rows it has and no more."""
    add = action["add"]
    values = dict.fromkeys(add["partitionValues"], "x")
    return {"add": {**add, "partitionValues": values, "stats": json.dumps({"numRecords": rows})}}


def column_of(table: DrawnTable, name: str) -> list[list[Any]]:
    """Of each new file the values of a column, as it has them."""
    physical = next(each.physical for each in table.columns if each.name == name)
    return [
        pq.ParquetFile(table.root / add["path"].replace("%20", " ")).read().column(physical).to_pylist()
        for add in new_adds(table.root)
    ]


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_rows_are_sorted_by_the_name_that_the_table_has_for_a_column(mode: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", mode=mode)
    before = rows_of(table.root)
    assert rewritten(table.root, sort_by=["n:desc"]) is not None
    (values,) = column_of(table, "n")
    known = [value for value in values if value is not None]
    assert len(values) == 120
    assert values == [*sorted(known, reverse=True), *[None] * (120 - len(known))]
    assert rows_of(table.root) == before
    assert rewritten(table.root, sort_by=["n:desc"]) is None


@pytest.mark.parametrize(
    ("strategy", "named"), [("z-order", '["n","s"]'), ("hilbert", "[]"), (None, "[]")], ids=str
)
def test_a_z_order_says_its_columns_as_delta_s_own_does(
    strategy: str | None, named: str, tmp_path: Path
) -> None:
    """Z5: and no tag, nor a provider of clustering."""
    table = a_table(tmp_path / "t")
    rewritten(table.root, strategy=strategy, curve_by=["n", "s"])
    actions = [json.loads(line) for line in commits_of(table.root)[-1].read_text().splitlines()]
    info = actions[0]["commitInfo"]
    assert (info["operation"], info["operationParameters"]["zOrderBy"]) == ("OPTIMIZE", named)
    (add,) = new_adds(table.root)
    assert not {"tags", "clusteringProvider"} & {name for name, value in add.items() if value is not None}


@pytest.mark.parametrize("options", [{"sort_by": ["s", "n:desc"]}, {"curve_by": ["n", "d"]}], ids=str)
@pytest.mark.parametrize("tracking", ["none", "enabled"])
def test_rows_that_are_deleted_meanwhile_are_deleted_where_they_went(
    tracking: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Z7, E3: `run` holds the rows, and their ids, against what the other writer left."""
    table = a_table(tmp_path / "t", tracking=tracking)
    table.reload()
    deletes(table, [1], [], [0, 3])
    gone = ([2, 19], [0, 1], [], [4], [7], [11, 12, 13])
    report = run(table, lambda table: deletes(table, *gone), **options)
    assert (report.status, report.counts["remapped_deletes_count"]) == ("done", 9)
    (add,) = new_adds(table.root)
    assert len(deleted_positions(table.root, add)) == 9
    assert len(in_order(table)) == 6  # of its own, of which it knows


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "sort"}, "a Delta table has no sort order of its own"),
        ({"sort_by": ["part"]}, "it is a partition column"),
        ({"sort_by": ["b"]}, "Delta's statistics have no bounds of it"),
        ({"curve_by": ["n", "x"]}, "Delta's statistics have no bounds of it"),
        ({"sort_by": ["N"]}, "it is no column. Did you mean 'n'"),
        ({"sort_by": ["n"], "purge": True}, "purge and strategy sort exclude each other"),
    ],
)
def test_what_rows_cannot_be_ordered_by_is_refused(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    table = a_table(tmp_path / "t", files=1)
    with pytest.raises(UsageError, match=words) as refused:
        plan_of(table.root, **options)
    if "sort_by" in options and "purge" not in options:
        assert refused.value.next_step == "Columns that can be named: n, s, d."


def test_a_column_beyond_those_with_statistics_is_none_to_choose_by(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", files=1)
    table.configuration["delta.dataSkippingNumIndexedCols"] = "1"
    table.write([table.metadata()])
    with pytest.raises(
        UsageError, match="rows are not ordered by s: Delta's statistics have no bounds"
    ) as refused:
        plan_of(table.root, sort_by=["s"])
    assert refused.value.next_step == "Columns that can be named: n."


def test_a_column_that_has_another_name_by_now_leaves_rows_to_the_next_run(tmp_path: Path) -> None:
    """A resumed operation knows the columns by the names of its policy."""
    table = a_table(tmp_path / "t", mode="name")
    opened = open_table(str(table.root), storage_options={}, catalog_config=None, on_event=lambda _: None)
    planned = VERB.plan(opened, RewriteDataFiles(processes=1, sort_by=["n"]), as_of_ms=NOW_MS)
    table.columns[0].name = "number"
    table.write([table.metadata()])
    opened.load()
    runtime = system_runtime(on_event=lambda _: None, host="test", process_id=1)
    with pytest.raises(CommitConflict, match="rows are not ordered by n: it is no column"):
        apply(planned, opened, VERB, runtime)
    assert len(new_adds(table.root)) == 0
