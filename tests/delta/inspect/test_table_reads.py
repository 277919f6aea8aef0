"""How many files a read of one value opens, as `inspect TABLE files` says it of a Delta table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iceberg_cli.testing.delta_writer import a_field, a_metadata, a_protocol, an_add
from tests.cli.running import iceberg_cli as run
from tests.delta_opened import a_log

FIELDS = [a_field("n", "long"), a_field("s", "string"), a_field("b", "boolean"), a_field("day", "date")]


def stats(rows: int, **bounds: tuple[Any, Any]) -> str:
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: low for name, (low, _) in bounds.items()},
            "maxValues": {name: high for name, (_, high) in bounds.items()},
            "nullCount": dict.fromkeys(bounds, 0),
        }
    )


def a_table(root: Path, *statistics: str) -> Path:
    adds = [an_add(path=f"{number}.parquet", stats=each) for number, each in enumerate(statistics)]
    a_log(root, [a_protocol(), a_metadata(*FIELDS), *adds])
    return root


def test_files_of_one_range_are_all_opened_and_those_that_follow_each_other_one_by_one(
    tmp_path: Path,
) -> None:
    """30 of 40 rows are in files that follow each other; of `s` there are bounds in two files alone."""
    table = a_table(
        tmp_path / "t",
        stats(10, n=(0, 9), s=("a", "m"), b=(False, True)),
        stats(10, n=(10, 19), s=("a", "m")),
        stats(10, n=(20, 29)),
        stats(10, n=(20, 29)),
    )
    document = run("inspect", table, "files", "--format", "json").json
    assert document["reads"] == [
        {"column": "n", "opened": 1.5, "files": 4.0},
        {"column": "s", "opened": 4.0, "files": 4.0},
    ]
    assert document["reads_note"] == ""
    lines = [line.split() for line in run("inspect", table, "files").out.splitlines()]
    assert lines[-2:] == [
        ["n", "1.5", "4.0", f"{'#' * 8}{'.' * 12}"],
        ["s", "4.0", "4.0", "#" * 20],
    ]


def test_statistics_that_cannot_be_read_leave_the_files_shown(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", "not json", stats(10, n=(1, 2)))
    shown = run("inspect", table, "files", "--format", "json")
    assert (shown.code, shown.json["row_count"], shown.json["reads"]) == (0, 2, [])
    assert shown.json["reads_note"].startswith("not told: ")


def test_bounds_that_cannot_be_read_leave_the_files_shown(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", stats(10, n=("x", "y")), stats(10, n=(1, 2)))
    shown = run("inspect", table, "files", "--format", "json")
    assert (shown.code, shown.json["row_count"]) == (0, 2)
    assert [each["column"] for each in shown.json["reads"]] in ([], ["n"])


def test_a_page_has_a_bar_for_each_column(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", stats(10, n=(0, 9)), stats(10, n=(10, 19)))
    page = tmp_path / "t.html"
    assert run("inspect", table, "--report", page).code == 0
    text = page.read_text()
    assert "Files that a read of one value opens" in text
    assert 'aria-label="50% of the files"' in text
