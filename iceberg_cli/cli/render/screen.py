"""Text for people, on a terminal of any width or in a pipe: paragraphs, labelled values and tables.

Whatever comes from a table or a storage passes `printable`. On a terminal text is wrapped between words; in a pipe
nothing is wrapped, shortened or left out for want of room, so that it is the same everywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from iceberg_cli.cli.render import console, printable
from iceberg_cli.cli.render.layout import (
    GAP,
    NO_BREAK,
    Cells,
    Layout,
    cells_of,
    shortened,
    text_of,
    unbroken,
)
from iceberg_cli.cli.render.surface import Surface
from iceberg_cli.plan.inspection import (
    GIST,
    NUMBER,
    PATH,
    SIZE,
    STATE,
    TEXT,
    VERDICT,
    Column,
    Row,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_VERDICT_STYLES: Final = {"go": "bold red", "change": "yellow", "keep": "green"}
_STATE_STYLES: Final = {
    **dict.fromkeys(("broken", "unreadable", "failed", "refused", "unknown"), "bold red"),
    **dict.fromkeys(("overdue", "conflict", "partial", "left", "blocked"), "red"),
    **dict.fromkeys(("due", "waiting"), "yellow"),
    **dict.fromkeys(("ok", "done"), "green"),
}
_RIGHT: Final = (NUMBER, SIZE)
_LEAST_WIDTH: Final = 20  # of a paragraph, however narrow the terminal is
_ENDING_BLANKS: Final = re.compile(r"[ ]+(?=\n)")


class Screen(Surface):
    """A stream as people see it.

    Args:
        stream: where it goes.
        as_of_ms: the "now" of times that are shown as ages.
        verbose: paths are whole, and columns are there that seldom matter.
        color: may be used, where the stream is a terminal.
    """

    def __init__(
        self, stream: TextIO, *, as_of_ms: int = 0, verbose: bool = False, color: bool = True
    ) -> None:
        self.stream = stream
        self._console = console(stream, color=color)
        self.layout = Layout(
            width=self._console.width if stream.isatty() else None,
            as_of_ms=as_of_ms,
            verbose=verbose,
            ellipsis="…" if _has(stream, "…") else "...",
        )
        self._is_begun = False
        self._has_gap = False
        self._collected: list[str] | None = None

    # -- what is printed -------------------------------------------------------------------------------------

    def gap(self) -> None:
        """Put a blank line before what comes next, unless that comes first."""
        self._has_gap = self._is_begun

    def line(self, text: object, *, style: str = "", indent: int = 0) -> None:
        """Print a paragraph; where it is wrapped, what follows its first line stands further in."""
        from rich.text import Text

        content = Text(unbroken(printable(text)), style=style)
        if self.layout.width is None:
            self._print(Text(" " * indent) + content)
            return
        self._wrapped(content, first=Text(" " * indent), indent=indent + GAP)

    def command(self, text: str, *, indent: int = GAP) -> None:
        """Print a command line, which the terminal wraps and not we: what is copied is one line."""
        from rich.text import Text

        self._print(Text(" " * indent + printable(text)))

    def unwrapped(self, text: str) -> None:
        """Print a line as it is: one of very many, which nobody reads all of."""
        self.write(f"{self._gap_before()}{printable(text)}\n")

    def facts(self, pairs: Sequence[tuple[str, object, str]]) -> None:
        """Print labels, each with a value; one without a value is left out."""
        shown = [(label, value, kind) for label, value, kind in pairs if value not in (None, "")]
        indent = max((len(label) for label, _, _ in shown), default=0) + GAP
        for label, value, kind in shown:
            self._labelled(label, text_of(value, kind, self.layout), kind, indent=0, width=indent)

    def grid(self, columns: Sequence[Column], rows: Sequence[Row], *, folder: str = "") -> None:
        """Print rows under titles, or, where these have no room, a block of lines for each row.

        Args:
            columns: of the rows.
            rows: as the columns read them.
            folder: paths below it are shown as seen from there.
        """
        cells = cells_of(columns, rows, self.layout, folder=folder)
        if cells.widths is None:
            self._blocks(cells)
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for column, width in zip(cells.columns, cells.widths, strict=True):
            table.add_column(
                column.title,
                justify="right" if column.kind in _RIGHT else "left",
                width=width,
                no_wrap=self.layout.width is None or column.kind not in (TEXT, GIST, PATH),
                overflow="fold",
            )
        for row in cells.rows:
            table.add_row(
                *(
                    Text(unbroken(text), style=_style(text, column.kind))
                    for text, column in zip(row, cells.columns, strict=True)
                )
            )
        self._print(table)
        if cells.left_out:
            self.line(f"(no room for: {', '.join(cells.left_out)}; --verbose shows all)")

    def _blocks(self, cells: Cells) -> None:
        width = max((len(column.title) for column in cells.columns), default=0) + GAP
        for number, row in enumerate(cells.rows):
            if number:
                self.gap()
            named = [(column, text) for column, text in zip(cells.columns, row, strict=True) if text] or [
                (cells.columns[0], "")
            ]
            first, value = named[0]
            is_verdict = first.kind == VERDICT
            rest = named[2:] if is_verdict else named[1:]
            texts = [text for _, text in named[:2]] if is_verdict else [first.title, value]
            self.line(" ".join(texts).strip(), style=_style(value, first.kind) or "bold")
            for column, text in rest:
                self._labelled(column.title, text, column.kind, indent=GAP, width=width)

    def _labelled(self, label: str, text: str, kind: str, *, indent: int, width: int) -> None:
        """Print a label and a value, which starts `width` behind the label's beginning and is wrapped there."""
        from rich.text import Text

        head = Text(" " * indent + label.ljust(width), style="dim")
        if self.layout.width is None or (kind == PATH and self.layout.verbose):
            self._print(head + Text(text, style="not dim"))
            return
        if kind == PATH and not self.layout.is_wide:
            text = shortened(text, self._room(indent + width), self.layout.ellipsis)
            self._print(head + Text(text, style="not dim"))
            return
        self._wrapped(Text(unbroken(text), style="not dim"), first=head, indent=indent + width)

    def _wrapped(self, content: Text, *, first: Text, indent: int) -> None:
        """Print a text behind `first`, and what does not fit there on lines of its own so far in."""
        from rich.text import Text

        for number, each in enumerate(content.wrap(self._console, self._room(indent)) or [Text()]):
            each.rstrip()
            self._print((Text(" " * indent) if number else first) + each)

    def _room(self, indent: int) -> int:
        """The columns of a terminal behind an indentation."""
        assert self.layout.width is not None
        return max(self.layout.width - indent, _LEAST_WIDTH)

    # -- where it goes ---------------------------------------------------------------------------------------

    @contextmanager
    def collected(self) -> Iterator[list[str]]:
        """Keep what the block prints, instead of writing it."""
        self._collected, before = [], self._collected
        try:
            yield self._collected
        finally:
            self._collected = before

    def write(self, text: str) -> None:
        """Write what was collected."""
        if self._collected is not None:
            self._collected.append(text)
        else:
            self.stream.write(text)

    def _print(self, content: RenderableType) -> None:
        with self._console.capture() as captured:
            self._console.print(content, soft_wrap=True)
        text = captured.get().replace(NO_BREAK, " ")
        if self.layout.width is None:
            text = _ENDING_BLANKS.sub("", text)
        self.write(self._gap_before() + text)

    def _gap_before(self) -> str:
        """The blank line that was put before what is printed now, if any was."""
        gap = "\n" if self._has_gap else ""
        self._is_begun, self._has_gap = True, False
        return gap


def _style(text: str, kind: str) -> str:
    if kind == STATE:
        return _STATE_STYLES.get(text, "")
    return _VERDICT_STYLES[text.rsplit(maxsplit=1)[-1]] if kind == VERDICT and text else ""


def _has(stream: TextIO, char: str) -> bool:
    """Whether a stream can show a character."""
    if os.environ.get("TERM") == "dumb":
        return False
    try:
        char.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
