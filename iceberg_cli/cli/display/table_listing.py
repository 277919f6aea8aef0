"""The tables that patterns mean."""

from __future__ import annotations

from iceberg_cli.cli.display import TextScreen, text_with_rest
from iceberg_cli.cli.render.table_list import show_tables
from iceberg_cli.fleet.calls.table_listing import TableListing


def text(listing: TableListing) -> str:
    """What `list` prints."""
    screen = TextScreen()
    if listing:
        show_tables(screen, listing.to_json()["tables"])
    return text_with_rest(screen, listing)


def page(listing: TableListing) -> None:
    """`list` has no page."""
