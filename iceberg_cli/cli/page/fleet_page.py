"""The page of a survey of many tables: `fleet/1`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from iceberg_cli.cli.page.document import render
from iceberg_cli.cli.page.row_table import (
    PageRow,
    RowCell,
    age_cell,
    number_cell,
    ratio_cell,
    row_table,
    size_cell,
)
from iceberg_cli.formats import format_of
from iceberg_cli.plan.inspection import Row
from iceberg_cli.plan.text import count, listed, minute, size

_GRADES: Final = ("broken", "unreadable", "overdue", "due", "ok")
_FAILED: Final = ("broken", "unreadable")
_NAMED: Final = 3  # findings of a table
_COLUMNS: Final = (
    ("table", False),
    ("also", False),
    ("grade", False),
    ("rule", False),
    ("format", False),
    ("freed", True),
    ("due", False),
    ("snapshots", True),
    ("oldest", True),
    ("files", True),
    ("small files", True),
    ("data", True),
    ("deletes", True),
    ("manifests", True),
    ("metadata", True),
    ("since checkpoint", True),
    ("findings", True),
    ("open operations", True),
    ("saved a month", True),
)


def fleet_page(document: Mapping[str, Any]) -> str:
    """The page of a `fleet/1` document."""
    tables: Sequence[Row] = document["tables"]
    as_of_ms, totals = document["as_of_ms"], document["totals"]
    freed = [freed_bytes(each) for each in tables]
    rows = [_row(each, as_of_ms=as_of_ms) for each in tables]
    return render(
        "fleet.html",
        title="Survey of tables",
        heading="Survey",
        over=f"as of {minute(as_of_ms)}",
        policy=(document.get("policy") or {}).get("path"),
        headline=_headline(totals),
        totals=list(_totals(totals)),
        chart=freed_chart([each for each in freed if each], "Bytes that can be freed, by table"),
        failed=[
            *((name_of(each), each["grade"], _why(each)) for each in tables if each["grade"] in _FAILED),
            *not_listed(document),
        ],
        failed_title="Tables that need somebody",
        left=(),
        table=row_table("tables", _COLUMNS, rows, {"grade": "Grade", "format": "Format", "due": "Due verb"}),
    )


def name_of(each: Row) -> str:
    """The name of the table that an element of a document is about."""
    return str(each["table"]["name"])


def also_cell(each: Row) -> RowCell:
    """The other names of that table."""
    return RowCell(", ".join(each["table"].get("also", ())), style="note")


def not_listed(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Places that could not be listed whole, and patterns that mean no table."""
    return [(each["name"], f"exit code {each['exit_code']}", each["message"]) for each in document["failed"]]


def freed_bytes(each: Row) -> int:
    """What the due verbs of a table free together, without those that are blocked."""
    return sum(due["bytes"] or 0 for due in each["due"] if not due["blocked_by"])


def freed_chart(sizes: Sequence[int], title: str) -> Any:
    """How many tables free how much, as a chart with its numbers; None where none does."""
    if not sizes:
        return None
    import pyarrow as pa

    from iceberg_cli.cli.page.distributions import SizeDistribution
    from iceberg_cli.cli.page.table_page import size_figure

    distribution = SizeDistribution()
    distribution.add(pa.array(sizes, pa.int64()))
    return size_figure(distribution, chart_id="freed", title=title, noun="tables")


def _headline(totals: Row) -> str:
    parts = [f"{totals['grades'][grade]:,} {grade}" for grade in _GRADES if totals["grades"][grade]]
    found = f": {listed(parts)}" if parts else ""
    return f"{count(totals['tables'], 'tables')}{found}; {size(totals['freed_bytes'])} can be freed"


def _totals(totals: Row) -> Iterator[tuple[str, str]]:
    yield "tables", f"{totals['tables']:,}"
    yield "can be freed", size(totals["freed_bytes"])
    for name in ("snapshots", "files", "small_files"):
        yield name.replace("_", " "), f"{totals[name]:,}"
    yield "of data", size(totals["data_bytes"])
    for verb, tables in totals["offers"].items():
        yield f"tables with something for {verb}, which is not due", f"{tables:,}"
    for cost in totals["cost"]:
        yield "saved a month", f"{cost['month']:,.2f} {cost['currency']}"


def _row(each: Row, *, as_of_ms: int) -> PageRow:
    due, grade, cost = each["due"], each["grade"], each["cost"]
    kind, version = each["table"]["format"], each["format_version"]
    freed = freed_bytes(each)
    about = "" if all(item["exact"] for item in due) else "about "
    cells = [
        RowCell(name_of(each)),
        also_cell(each),
        RowCell(grade, float(_GRADES.index(grade)), "chip", grade),
        RowCell(each["rule"], style="note"),
        RowCell(kind if version is None else format_of(kind).version_text({"format_version": version})),
        RowCell(f"{about}{size(freed)}" if due else "", float(freed) if due else None, "number"),
        RowCell(", ".join(_due_text(item) for item in due), style="note"),
        number_cell(each["snapshots"]),
        age_cell(each["oldest_snapshot_ms"], as_of_ms=as_of_ms),
        number_cell(each["files"]),
        number_cell(each["small_files"]),
        size_cell(each["data_bytes"]),
        ratio_cell(each["delete_ratio"]),
        number_cell(each["manifests"]),
        size_cell(each["metadata_bytes"]),
        number_cell(each["log_versions_since_checkpoint"]),
        number_cell(len(each["findings"]) or None),
        number_cell(each["open_operations"] or None),
        RowCell("", None, "number")
        if cost is None
        else RowCell(f"{cost['month']:,.2f} {cost['currency']}", cost["month"], "number"),
    ]
    return PageRow(cells, {"grade": [grade], "format": [kind], "due": [item["operation"] for item in due]})


def _due_text(item: Row) -> str:
    return f"{item['operation']}{' (blocked)' if item['blocked_by'] else ''}"


def _why(each: Row) -> str:
    """The rule that gave a grade, and the first of what was found."""
    messages = [item["message"] for item in each["findings"][:_NAMED]]
    return "; ".join(dict.fromkeys([each["rule"], *messages]))
