"""The findings of a check."""

from __future__ import annotations

from iceberg_cli.cli.display import TextScreen
from iceberg_cli.cli.page import page_of
from iceberg_cli.cli.page.table_content import TableContent
from iceberg_cli.cli.render.inspection import show_findings
from iceberg_cli.formats.inspection import CheckedTable


def text(checked: CheckedTable) -> str:
    """What `inspect --check` prints."""
    screen = TextScreen(as_of_ms=checked.document["as_of_ms"])
    show_findings(screen, checked.document, deep_reads=checked.deep_reads)
    return screen.text


def page(checked: CheckedTable) -> str:
    """The page of `inspect --check --report`, without what is not in the findings."""
    content = TableContent(summary=None, summary_parts=(), states=(), warnings=checked.warnings)
    return page_of(checked.document, content=content)
