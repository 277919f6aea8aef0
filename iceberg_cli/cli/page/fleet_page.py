"""The page of a survey of many tables: `fleet/1`."""

from __future__ import annotations

from collections import Counter
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
from iceberg_cli.plan.inspection import Row
from iceberg_cli.plan.text import count, listed, minute, size

_GRADES: Final = ("broken", "unreadable", "overdue", "due", "ok")
_FAILED: Final = ("broken", "unreadable")
_COLUMNS: Final = (
    ("table", False),
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
    ("a month", True),
)


def fleet_page(document: Mapping[str, Any]) -> str:
    """The page of a `fleet/1` document."""
    tables: Sequence[Row] = document["tables"]
    as_of_ms = document["as_of_ms"]
    grades = Counter(str(each.get("grade")) for each in tables)
    freed = [freed_bytes(each) for each in tables]
    rows = [_row(each, as_of_ms=as_of_ms) for each in tables]
    return render(
        "fleet.html",
        title="Survey of tables",
        heading="Survey",
        over=f"as of {minute(as_of_ms)}",
        policy=(document.get("policy") or {}).get("path"),
        headline=_headline(grades, sum(freed)),
        totals=list(_totals(tables, sum(freed))),
        chart=freed_chart([each for each in freed if each], "Bytes that can be freed, by table"),
        failed=[
            (name_of(each), each["grade"], _why(each)) for each in tables if each.get("grade") in _FAILED
        ],
        failed_title="Tables that need somebody",
        left=(),
        table=row_table("tables", _COLUMNS, rows, {"grade": "Grade", "format": "Format", "due": "Due verb"}),
    )


def name_of(each: Row) -> str:
    """The name of the table that an element of a document is about."""
    table = each.get("table")
    if isinstance(table, Mapping):
        return str(table.get("name") or table.get("location") or "?")
    return str(table or each.get("name") or "?")


def format_name(each: Row) -> str:
    """The format of that table."""
    table = each.get("table")
    return str(table.get("format") or "") if isinstance(table, Mapping) else ""


def freed_bytes(each: Row) -> int:
    """What the due verbs of a table free together, without those that are blocked."""
    return sum(due.get("bytes") or 0 for due in each.get("due") or () if not due.get("blocked_by"))


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


def _headline(grades: Counter[str], freed: int) -> str:
    parts = [f"{grades[grade]:,} {grade}" for grade in _GRADES if grades[grade]]
    tables = count(sum(grades.values()), "tables")
    found = f": {listed(parts)}" if parts else ""
    return f"{tables}{found}; {size(freed)} can be freed"


def _totals(tables: Sequence[Row], freed: int) -> Iterator[tuple[str, str]]:
    yield "tables", f"{len(tables):,}"
    yield "can be freed", size(freed)
    for label, key in (("snapshots", "snapshots"), ("files", "files"), ("small files", "small_files")):
        yield label, f"{sum(each.get(key) or 0 for each in tables):,}"
    yield "of data", size(sum(each.get("data_bytes") or 0 for each in tables))
    costs = Counter[str]()
    for each in tables:
        cost = each.get("cost") or {}
        costs[str(cost.get("currency") or "")] += cost.get("month") or 0
    for currency, month in costs.items():
        if month:
            yield "a month", f"{month:,.2f} {currency}"


def _row(each: Row, *, as_of_ms: int) -> PageRow:
    due = [item for item in each.get("due") or () if isinstance(item, Mapping)]
    names = [str(item.get("operation")) for item in due]
    is_exact = all(item.get("exact", True) for item in due)
    freed = freed_bytes(each)
    grade, version = str(each.get("grade") or ""), each.get("format_version")
    kind = format_name(each)
    cost = each.get("cost") or {}
    findings = each.get("findings")
    found = len(findings) if isinstance(findings, Sequence) and not isinstance(findings, str) else findings
    month = cost.get("month")
    money = "" if month is None else f"{month:,.2f} {cost.get('currency') or ''}".strip()
    since = each.get("log_versions_since_checkpoint")
    cells = [
        RowCell(name_of(each)),
        RowCell(grade, float(_GRADES.index(grade)) if grade in _GRADES else None, "chip", grade),
        RowCell(str(each.get("rule") or ""), style="note"),
        RowCell(f"{kind} v{version}" if version is not None else kind),
        RowCell(
            f"{'' if is_exact else '~ '}{size(freed)}" if due else "", float(freed) if due else None, "number"
        ),
        RowCell(", ".join(_due_text(item) for item in due), style="note"),
        number_cell(each.get("snapshots")),
        age_cell(each.get("oldest_snapshot_ms"), as_of_ms=as_of_ms),
        number_cell(each.get("files")),
        number_cell(each.get("small_files")),
        size_cell(each.get("data_bytes")),
        ratio_cell(each.get("delete_ratio")),
        number_cell(each.get("manifests")),
        size_cell(each.get("metadata_bytes")),
        number_cell(since),
        number_cell(found if isinstance(found, int) else None),
        RowCell(money, month, "number"),
    ]
    return PageRow(cells, {"grade": [grade], "format": [kind], "due": names})


def _due_text(item: Row) -> str:
    blocked = " (blocked)" if item.get("blocked_by") else ""
    return f"{item.get('operation')}{blocked}"


def _why(each: Row) -> str:
    """The rule that gave a grade, and what was found."""
    findings = each.get("findings")
    if not isinstance(findings, Sequence) or isinstance(findings, str):
        findings = ()
    messages = [
        str(item.get("message") or item.get("id")) if isinstance(item, Mapping) else str(item)
        for item in findings[:3]
    ]
    return "; ".join(filter(None, (str(each.get("rule") or ""), *messages)))
