"""What came of the maintenance of many tables."""

from __future__ import annotations

from iceberg_cli.cli.display import TextScreen, text_with_rest
from iceberg_cli.cli.page import page_of
from iceberg_cli.cli.render.maintenance import is_printed, show_maintenance_totals, show_runs
from iceberg_cli.fleet.calls.maintenance_result import MaintenanceResult


def text(result: MaintenanceResult) -> str:
    """What `maintain` prints."""
    screen = TextScreen(as_of_ms=result.as_of_ms)
    if rows := [each.to_json() for each in result if is_printed(each)]:
        show_runs(screen, rows, dry=result.dry_run)
    show_maintenance_totals(screen, result.totals, result.left, dry=result.dry_run)
    for warning in result.warnings:
        screen.line(f"warning: {warning}")
    return text_with_rest(screen, result)


def page(result: MaintenanceResult) -> str:
    """The page of `maintain --report`."""
    return page_of(result.to_json())
