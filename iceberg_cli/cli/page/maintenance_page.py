"""The page of a run of maintenance over many tables: `maintenance/1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from iceberg_cli.cli.page.document import render
from iceberg_cli.cli.page.fleet_page import also_cell, freed_chart, name_of, not_listed
from iceberg_cli.cli.page.row_table import PageRow, RowCell, duration_cell, number_cell, row_table, size_cell
from iceberg_cli.plan.inspection import Row
from iceberg_cli.plan.text import count, listed, minute, size

# The worst first.
_STATUSES: Final = (
    *("failed", "unknown", "conflict", "refused", "blocked", "partial", "left", "waiting"),
    *("due", "done", "nothing_to_do", "not_due", "skipped"),
)
_FAILED: Final = ("failed", "unknown", "conflict", "refused", "blocked")
_STYLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(_FAILED, "failed"),
    "partial": "waiting",
    "left": "waiting",
}
_COLUMNS: Final = (
    ("table", False),
    ("also", False),
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
    totals = document["totals"]
    statuses = totals["statuses"]
    by_table: Counter[str] = Counter()
    for each in runs:
        by_table[name_of(each)] += each["reclaimed_bytes"]
    is_dry = statuses["due"] > 0
    freed = "would be freed" if is_dry else "freed"
    parts = [f"{statuses[name]:,} {_words(name)}" for name in _STATUSES if statuses[name]]
    found = f": {listed(parts)}" if parts else ""
    return render(
        "fleet.html",
        title="Maintenance of tables",
        heading="Maintenance, dry run" if is_dry else "Maintenance",
        over=f"run {document['run_id']}, as of {minute(document['as_of_ms'])}",
        policy=(document["policy"] or {}).get("path"),
        headline=f"{count(totals['tables'], 'tables')}{found}; {size(totals['reclaimed_bytes'])} {freed}",
        totals=[
            ("tables", f"{totals['tables']:,}"),
            (freed, size(totals["reclaimed_bytes"])),
            ("files to delete" if is_dry else "files deleted", f"{totals['deleted_files_count']:,}"),
            ("failed", f"{sum(statuses[name] for name in _FAILED):,}"),
            ("exit code", str(document["exit_code"])),
        ],
        chart=freed_chart([each for each in by_table.values() if each], f"Bytes {freed}, by table"),
        failed=[
            *(
                (f"{name_of(each)}, {each['operation'] or 'every verb'}", _words(each["status"]), _why(each))
                for each in runs
                if each["status"] in _FAILED
            ),
            *not_listed(document),
        ],
        failed_title="What failed",
        left=[
            ", ".join(filter(None, (name_of(each), each["operation"], each["reason"])))
            for each in document["left"]
        ],
        table=row_table(
            "runs",
            _COLUMNS,
            [_row(each) for each in runs],
            {"status": "Status", "verb": "Verb", "format": "Format"},
        ),
    )


def _words(status: str) -> str:
    return status.replace("_", " ")


def _row(each: Row) -> PageRow:
    status = each["status"]
    committed = (each["committed_snapshot_id"], each["committed_version"])
    cells = [
        RowCell(name_of(each)),
        also_cell(each),
        RowCell(each["operation"] or ""),
        RowCell(_words(status), float(_STATUSES.index(status)), "chip", _STYLES.get(status) or status),
        RowCell(_why(each), style="note"),
        RowCell(each["table"]["format"]),
        size_cell(each["reclaimed_bytes"]),
        number_cell(each["deleted_files_count"]),
        duration_cell(each["duration_ms"]),
        number_cell(each["exit_code"]),
        RowCell(next((str(value) for value in committed if value is not None), ""), style="id"),
        RowCell(each["operation_id"] or "", style="id"),
    ]
    facets = {"status": [status], "verb": [each["operation"] or ""], "format": [each["table"]["format"]]}
    return PageRow(cells, facets)


def _why(each: Row) -> str:
    error = each["error"]
    texts: tuple[str | None, ...] = (each["reason"], None if error is None else error["message"])
    return "; ".join(dict.fromkeys(text for text in texts if text))
