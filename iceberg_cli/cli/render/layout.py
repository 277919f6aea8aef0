"""The layout of tables by the width that there is: which columns have room, and what of a cell is shown.

A column is as narrow as its kind allows: identifiers, times, sizes, numbers and headings stay whole, sentences are
wrapped between words or lose their end, and names and paths lose their middle. Where that is not enough columns leave
in the order that they state; where none may, names, paths and sentences are as narrow as they can be, and where that
does not do either, each row becomes a block of lines.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from iceberg_cli.cli.render import printable
from iceberg_cli.plan.inspection import GIST, NAME, NUMBER, PATH, SIZE, SPAN, TEXT, TIME, VERDICT, Column, Row
from iceberg_cli.plan.text import age_span, ago, day, moment, size

NO_BREAK: Final = "\ue000"  # a blank at which no line ends: rich breaks lines at U+00A0 too
WIDE: Final = 120  # from here on times are dates, and paths are whole
NARROW: Final = 60  # below this a row that does not fit in one line is a block
GAP: Final = 2
_MIN_PATH: Final = 24
_MIN_TEXT: Final = 30
_LONGEST_WORD: Final = 36
_LEAST: Final = 12  # of a name, a path or a sentence beside which nothing else gives way
_MIDDLELESS: Final = (NAME, PATH)
_MARKS: Final = {"go": "-", "change": "~", "keep": "="}
# A number and its unit, an age such as "9 d 4 h", and a date with its time.
_QUANTITY: Final = re.compile(
    r"(?<=\d) (?=(?:[KMGT]i?B|B|y|d|h|min|s|ms)\b)"
    r"|(?<=\d y) (?=\d+ d\b)|(?<=\d d) (?=\d+ h\b)|(?<=\d h) (?=\d+ min\b)|(?<=\d min) (?=\d+ s\b)"
    r"|(?<=\d\d-\d\d) (?=\d\d:\d\d)|(?<=:\d\d) (?=UTC\b)"
)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What decides how much is shown.

    Args:
        width: of the terminal in columns; None where the output is no terminal, and all is shown as it is.
        as_of_ms: the "now" of times that are shown as ages.
        verbose: paths are whole, and columns are there that seldom matter.
        ellipsis: stands for what is left out of a path.
    """

    width: int | None
    as_of_ms: int
    verbose: bool
    ellipsis: str = "…"

    @property
    def is_whole(self) -> bool:
        """Whether what seldom matters is shown too: where it was asked for, and where no screen has to hold it."""
        return self.verbose or self.width is None

    @property
    def is_wide(self) -> bool:
        """Whether there is room for dates and whole paths."""
        return self.width is None or self.width >= WIDE


@dataclass(frozen=True, kw_only=True)
class Cells:
    """A table as text.

    Args:
        columns: those that are shown.
        rows: a text for each column.
        widths: of the columns, in columns of the terminal; None: each row is a block of lines.
        left_out: titles of columns for which there is no room.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    widths: Sequence[int] | None
    left_out: Sequence[str] = ()


def unbroken(text: str) -> str:
    """A text whose quantities, ages and times no line end parts."""
    return _QUANTITY.sub(NO_BREAK, text)


def cells_of(columns: Sequence[Column], rows: Sequence[Row], layout: Layout, *, folder: str = "") -> Cells:
    """A table as text that fits.

    Args:
        columns: of the rows.
        rows: as each column reads them.
        layout: decides.
        folder: paths below it are shown as seen from there.
    """
    shown = [
        column._replace(title=text_of(column.title, TEXT, layout))  # of a sample it is a name from the table
        for column in columns
        if layout.verbose or not column.seldom
    ]
    texts = [
        [text_of(column.of(row), column.kind, layout, folder=folder) for column in shown] for row in rows
    ]
    natural = [
        max((cell_len(text) for text in (column.title, *(row[index] for row in texts))), default=0)
        for index, column in enumerate(shown)
    ]
    if layout.width is None or _total(natural) <= layout.width:
        return Cells(columns=shown, rows=texts, widths=natural)
    widths = None if layout.width < NARROW else _fit(shown, texts, natural, layout)
    if widths is None:
        return Cells(columns=shown, rows=texts, widths=None)
    return Cells(
        columns=[
            shown[index]._replace(title=shortened(shown[index].title, width, layout.ellipsis))
            for index, width in widths.items()
        ],
        rows=[
            [_fitting(row[index], shown[index].kind, width, layout) for index, width in widths.items()]
            for row in texts
        ],
        widths=list(widths.values()),
        left_out=[column.title for index, column in enumerate(shown) if index not in widths],
    )


def _fit(
    columns: Sequence[Column],
    texts: Sequence[Sequence[str]],
    natural: Sequence[int],
    layout: Layout,
) -> dict[int, int] | None:
    """The widths of the columns that stay, by index; None where they cannot fit."""
    assert layout.width is not None
    least = [
        _least(column, [row[index] for row in texts], natural[index], layout)
        for index, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while _total([least[index] for index in kept]) > layout.width:
        may_leave = [index for index in kept if columns[index].leaves and not layout.verbose]
        if not may_leave:
            narrower = [
                min(width, max(_title(column), _LEAST))
                if column.kind in (GIST, NAME, PATH, TEXT) and not layout.verbose
                else width
                for column, width in zip(columns, least, strict=True)
            ]
            if narrower == least:
                return None
            least = narrower
            continue
        kept.remove(min(may_leave, key=lambda index: columns[index].leaves))
    spare = layout.width - _total([least[index] for index in kept])
    missing = sum(natural[index] - least[index] for index in kept)
    return {
        index: least[index] + (natural[index] - least[index]) * min(spare, missing) // max(missing, 1)
        for index in kept
    }


def _least(column: Column, texts: Sequence[str], natural: int, layout: Layout) -> int:
    """The width below which a column is of no use."""
    title = _title(column)
    match column.kind:
        case kind if kind in _MIDDLELESS and not layout.verbose:
            return max(title, min(natural, _MIN_PATH))
        case kind if kind == GIST and not layout.verbose:
            return max(title, min(natural, _MIN_TEXT))
        case kind if kind in (TEXT, GIST, PATH):
            words = (word for text in texts for word in unbroken(text).split())
            word = min(max(map(cell_len, words), default=0), _LONGEST_WORD)
            return max(title, word, min(natural, _MIN_TEXT))
    return max(title, max(map(cell_len, texts), default=0))


def _title(column: Column) -> int:
    """The width of its title, of which a long one loses its middle: of a sample it is a name from the table."""
    return min(cell_len(column.title), _MIN_PATH)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(len(widths) - 1, 0)


def _fitting(text: str, kind: str, width: int, layout: Layout) -> str:
    if layout.verbose or cell_len(text) <= width:
        return text
    if kind == GIST:
        return set_cell_size(text, width - cell_len(layout.ellipsis)).rstrip() + layout.ellipsis
    return shortened(text, width, layout.ellipsis) if kind in _MIDDLELESS else text


def shortened(path: str, width: int, ellipsis: str = "…") -> str:
    """A path or name without its middle, so wide at most; more is kept of its end."""
    if cell_len(path) <= width:
        return path
    room = width - cell_len(ellipsis)
    head = set_cell_size(path, room // 3).rstrip()
    tail = set_cell_size(path[::-1], room - cell_len(head)).rstrip()[::-1]
    return f"{head}{ellipsis}{tail}"


def text_of(value: Any, kind: str, layout: Layout, *, folder: str = "") -> str:
    """A value as text: times by the room that there is, everything else by its kind."""
    if value is None:
        return "?" if kind == SIZE else ""
    match kind:
        case kind if kind == SIZE:
            return value if isinstance(value, str) else size(value)
        case kind if kind == NUMBER:
            return f"{value:,}" if isinstance(value, int) else printable(value)
        case kind if kind == TIME:
            return moment(value) if layout.is_wide else ago(layout.as_of_ms - value, parts=1)
        case kind if kind == SPAN:
            return _span(value, layout)
        case kind if kind == VERDICT:
            return f"{_MARKS[value]} {value}"
    text = printable(value.removeprefix(folder) if kind == PATH else value)
    return text if layout.width is None else _isolated(text)


def _span(times_ms: Sequence[int], layout: Layout) -> str:
    """The times of candidates that are shown as one."""
    if not times_ms:
        return ""
    oldest, newest = min(times_ms), max(times_ms)
    if layout.is_wide:
        return moment(oldest) if len(times_ms) == 1 else f"{day(oldest)} to {day(newest)}"
    return age_span(layout.as_of_ms - newest, layout.as_of_ms - oldest)


def _isolated(text: str) -> str:
    """A text that a terminal may write from right to left, so that it does not take what stands beside it along."""
    if text.isascii() or not any(unicodedata.bidirectional(char) in ("R", "AL") for char in text):
        return text
    return f"\u2068{text}\u2069"
