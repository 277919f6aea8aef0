"""A table of a page that sorts and filters: cells with what they are sorted by, and choices of what is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from iceberg_cli.plan.text import age, size

MOST_ROWS: Final = 5_000  # a browser sorts them in the time of a blink


class RowCell(NamedTuple):
    """A cell.

    Args:
        text: what is shown.
        order: what it is sorted by; None: its text, or last where there is none.
        style: a class: `number`, `chip`, `note` or nothing.
        chip: of a chip, the class that colours it.
    """

    text: str
    order: float | None = None
    style: str = ""
    chip: str = ""

    @property
    def sort_key(self) -> str:
        """What it is sorted by, as an attribute: empty where it is not known."""
        if self.order is None:
            return ""
        return f"{self.order:.0f}" if float(self.order).is_integer() else f"{self.order:.6g}"


def number_cell(value: float | None) -> RowCell:
    """A number; None is not known."""
    return RowCell("" if value is None else f"{value:,}", value, "number")


def size_cell(value: int | None) -> RowCell:
    """Bytes; None is not known."""
    return RowCell("" if value is None else size(value), value, "number")


def ratio_cell(value: float | None) -> RowCell:
    """A share of one; None is not known."""
    return RowCell("" if value is None else f"{value:.1%}", value, "number")


def age_cell(time_ms: int | None, *, as_of_ms: int) -> RowCell:
    """How long ago a time was; None is not known."""
    if time_ms is None:
        return RowCell("", None, "number")
    return RowCell(age(max(0, as_of_ms - time_ms), parts=1), as_of_ms - time_ms, "number")


def duration_cell(value_ms: int | None) -> RowCell:
    """A duration; None is not known."""
    return RowCell("" if value_ms is None else age(value_ms), value_ms, "number")


class PageRow(NamedTuple):
    """A row: its cells, and for each choice the words that it answers to."""

    cells: Sequence[RowCell]
    facets: Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class RowTable:
    """A table that sorts and filters.

    Args:
        label: what its rows are.
        titles: of the columns, each with whether it has numbers.
        rows: in the order in which they are shown first.
        choices: by facet, its label and what can be chosen, each with how many rows have it.
        left_out: how many rows are not on the page.
    """

    label: str
    titles: Sequence[tuple[str, bool]]
    rows: Sequence[PageRow]
    choices: Mapping[str, tuple[str, Sequence[tuple[str, int]]]]
    left_out: int


def row_table(
    label: str,
    columns: Sequence[tuple[str, bool]],
    rows: Sequence[PageRow],
    labels: Mapping[str, str],
) -> RowTable:
    """A table of rows, without the columns in which no row has anything.

    Args:
        label: what its rows are.
        columns: their titles, each with whether it has numbers.
        rows: with a cell for each.
        labels: of the facets that one can choose by.
    """
    used = [
        place
        for place, _ in enumerate(columns)
        if place == 0 or any(row.cells[place].text for row in rows) or not rows
    ]
    first = rows[:MOST_ROWS]
    return RowTable(
        label=label,
        titles=[columns[place] for place in used],
        rows=[PageRow([row.cells[place] for place in used], row.facets) for row in first],
        choices={
            name: (text, sorted(_counts(row.facets.get(name, ()) for row in first).items()))
            for name, text in labels.items()
        },
        left_out=len(rows) - len(first),
    )


def _counts(words: Iterable[Sequence[str]]) -> Counter[str]:
    return Counter(word for each in words for word in dict.fromkeys(each))
