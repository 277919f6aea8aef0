"""The tables that patterns mean, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_cli.plan.inspection import ID, NAME, NUMBER, PATH, Column
from iceberg_cli.plan.text import count

if TYPE_CHECKING:
    from iceberg_cli.cli.render.surface import Surface


def show_tables(screen: Surface, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of `list/1`."""
    columns = (
        Column("table", "name", NAME),
        Column("format", "format", ID),
        Column(
            "location", lambda row: "" if row["location"] == row["name"] else row["location"], PATH, leaves=1
        ),
        Column("also", lambda row: ", ".join(row["also"]), NAME),
        Column("open", lambda row: row["open_operations"] or "", NUMBER),
    )
    screen.grid([column for column in columns if any(column.of(row) for row in rows)], rows)


def show_left_out(screen: Surface, views: int) -> None:
    """Print how many views were among the tables, where there are any."""
    if views:
        screen.line(f"{count(views, 'views')} left out")
