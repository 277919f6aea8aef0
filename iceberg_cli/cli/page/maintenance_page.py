"""The page of a run of maintenance over many tables: `maintenance/1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from iceberg_cli.cli.page.document import render
from iceberg_cli.cli.page.fleet_page import format_name, freed_chart, name_of
from iceberg_cli.cli.page.row_table import PageRow, RowCell, duration_cell, number_cell, row_table, size_cell
from iceberg_cli.plan.inspection import Row
from iceberg_cli.plan.text import count, listed, minute, size

# The worst first. What else there may be comes after them.
_STATUSES: Final = (
    *("failed", "unknown", "conflict", "refused", "blocked", "partial", "waiting"),
    *("done", "nothing_to_do", "not_due", "skipped"),
)
_FAILED: Final = ("failed", "unknown", "conflict", "refused", "blocked")
_STYLES: Final = {**dict.fromkeys(_FAILED, "failed"), "partial": "waiting", "nothing_to_do": "ok"}
_COLUMNS: Final = (
    ("table", False),
    ("verb", False),
    ("status", False),
    ("why", False),
    ("format", False),
    ("freed", True),
    ("files deleted", True),
    ("took", True),
    ("exit code", True),
    ("committed", False),
    ("operation", False),
)


def maintenance_page(document: Mapping[str, Any]) -> str:
    """The page of a `maintenance/1` document."""
    runs: Sequence[Row] = document["runs"]
    statuses = Counter(str(each.get("status")) for each in runs)
    freed = [each.get("reclaimed_bytes") or 0 for each in runs]
    by_table: Counter[str] = Counter()
    for each, size_bytes in zip(runs, freed, strict=True):
        by_table[name_of(each)] += size_bytes
    ordered = [*_STATUSES, *sorted(set(statuses) - set(_STATUSES))]
    parts = [f"{statuses[name]:,} {name.replace('_', ' ')}" for name in ordered if statuses[name]]
    found = f": {listed(parts)}" if parts else ""
    return render(
        "fleet.html",
        title="Maintenance of tables",
        heading="Maintenance",
        over=f"run {document.get('run_id')}, as of {minute(document['as_of_ms'])}",
        policy=(document.get("policy") or {}).get("path"),
        headline=f"{count(len(runs), 'runs')} of verbs on {count(len(by_table), 'tables')}{found}; "
        f"{size(sum(freed))} freed",
        totals=[
            ("tables", f"{len(by_table):,}"),
            ("freed", size(sum(freed))),
            ("files deleted", f"{sum(each.get('deleted_files_count') or 0 for each in runs):,}"),
            ("failed", f"{sum(statuses[name] for name in _FAILED):,}"),
            ("exit code", str(document.get("exit_code"))),
        ],
        chart=freed_chart([each for each in by_table.values() if each], "Bytes freed, by table"),
        failed=[
            (f"{name_of(each)}, {each.get('operation')}", str(each["status"]).replace("_", " "), _why(each))
            for each in runs
            if each.get("status") in _FAILED
        ],
        failed_title="Runs that did not do what is due",
        left=[_left(each) for each in document.get("left") or ()],
        table=row_table(
            "runs",
            _COLUMNS,
            [_row(each, ordered) for each in runs],
            {"status": "Status", "verb": "Verb", "format": "Format"},
        ),
    )


def _row(each: Row, ordered: Sequence[str]) -> PageRow:
    status = str(each.get("status"))
    committed = each.get("committed_snapshot_id") or each.get("committed_version")
    words = status.replace("_", " ")
    cells = [
        RowCell(name_of(each)),
        RowCell(str(each.get("operation") or "")),
        RowCell(words, float(ordered.index(status)), "chip", _STYLES.get(status, status)),
        RowCell(_why(each), style="note"),
        RowCell(format_name(each)),
        size_cell(each.get("reclaimed_bytes")),
        number_cell(each.get("deleted_files_count")),
        duration_cell(each.get("duration_ms")),
        number_cell(each.get("exit_code")),
        RowCell("" if committed is None else str(committed), style="id"),
        RowCell(str(each.get("operation_id") or ""), style="id"),
    ]
    facets = {"status": [status], "verb": [str(each.get("operation"))], "format": [format_name(each)]}
    return PageRow(cells, facets)


def _why(each: Row) -> str:
    error = each.get("error")
    message = error.get("message") if isinstance(error, Mapping) else error
    return "; ".join(dict.fromkeys(str(text) for text in (each.get("reason"), message) if text))


def _left(each: object) -> str:
    """Something that a bound left undone."""
    if not isinstance(each, Mapping):
        return str(each)
    words = [name_of(each), each.get("operation"), each.get("reason")]
    return ", ".join(str(word) for word in words if word)
