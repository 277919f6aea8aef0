"""What came of a verb on a table."""

from __future__ import annotations

from iceberg_cli.cli.display import TextScreen
from iceberg_cli.cli.page.blocks import Blocks
from iceberg_cli.cli.page.table_page import blocks_page
from iceberg_cli.cli.render.report import show_report
from iceberg_cli.plan.report import Report


def text(report: Report) -> str:
    """What a verb prints when it has run."""
    screen = TextScreen()
    show_report(screen, report, report.table.get("name", ""))
    return screen.text


def page(report: Report) -> str:
    """The same as a page."""
    blocks = Blocks(as_of_ms=0)
    show_report(blocks, report, report.table.get("name", ""))
    return blocks_page("Report", {"table": report.table}, blocks.blocks)
