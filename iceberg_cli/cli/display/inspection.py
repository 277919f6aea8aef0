"""What a table is made of."""

from __future__ import annotations

from iceberg_cli.cli.display import TextScreen
from iceberg_cli.cli.page import page_of
from iceberg_cli.cli.page.blocks import Blocks
from iceberg_cli.cli.page.table_content import TableContent
from iceberg_cli.cli.page.table_page import blocks_page
from iceberg_cli.cli.render.inspection import read_rows, show_rows, show_summary
from iceberg_cli.cli.render.surface import Surface
from iceberg_cli.formats.inspection import DOCUMENTS, Inspection


def text(inspection: Inspection) -> str:
    """What `inspect` prints."""
    screen = TextScreen(as_of_ms=_as_of_ms(inspection))
    _show(screen, inspection)
    return screen.text


def page(inspection: Inspection) -> str:
    """Of a summary the page of `inspect --report`, without what only the table itself tells; of others their text."""
    if inspection.what == "summary":
        document = inspection.to_json()
        parts = list(inspection.inspector.summary_text(document))
        content = TableContent(summary=document, summary_parts=parts, states=(), warnings=inspection.warnings)
        return page_of(document, content=content)
    blocks = Blocks(as_of_ms=_as_of_ms(inspection))
    _show(blocks, inspection)
    return blocks_page(
        inspection.what.capitalize(), inspection.inspector.header(inspection.what), blocks.blocks
    )


def _show(surface: Surface, inspection: Inspection) -> None:
    inspector, what = inspection.inspector, inspection.what
    if what in DOCUMENTS:
        folder = f"{inspector.location.rstrip('/')}/"
        show_summary(surface, inspector.summary_text(inspection.to_json()), folder=folder)
        return
    rows = read_rows(inspector, what, limit=inspection.limit)
    show_rows(surface, rows, location=inspector.location)


def _as_of_ms(inspection: Inspection) -> int:
    return int(inspection.inspector.header(inspection.what)["as_of_ms"])
