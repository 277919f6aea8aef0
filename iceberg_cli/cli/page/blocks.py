"""The surface of a page: what `render/` shows of plans, inspections and findings, kept as blocks for a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from iceberg_cli.cli.render.layout import GAP, Layout, text_of
from iceberg_cli.cli.render.surface import Surface
from iceberg_cli.plan.inspection import (
    NUMBER,
    SIZE,
    SPAN,
    TIME,
    VERDICT,
    Column,
    Row,
)
from iceberg_cli.plan.text import day, minute

_CLASSES: Final = {"bold red": "bad", "yellow": "warning", "bold": "strong"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table.

    Args:
        text: what is shown.
        kind: of the column: see `plan/inspection.py`.
        verdict: `go`, `change` or `keep`; empty where the column has no verdicts.
    """

    text: str
    kind: str
    verdict: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it is set to the right, as numbers are."""
        return self.kind in (NUMBER, SIZE)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A paragraph, a command, labelled values or a table.

    Args:
        kind: `line`, `command`, `facts` or `grid`.
        text: of a line or a command.
        style: of a line: `strong`, `bad`, `warning` or nothing.
        is_inner: whether a line belongs to the one before it.
        pairs: labels and values.
        titles: of a table's columns.
        rows: of the table.
        begins: whether a gap is before it.
    """

    kind: str
    text: str = ""
    style: str = ""
    is_inner: bool = False
    pairs: Sequence[tuple[str, Cell]] = ()
    titles: Sequence[Cell] = ()
    rows: Sequence[Sequence[Cell]] = ()
    begins: bool = False


@dataclass(kw_only=True)
class Blocks(Surface):
    """Collects blocks; see `render/surface.py`.

    Args:
        as_of_ms: the "now" of times.
        layout: has room for dates and whole paths.
        blocks: what was shown, in order.
    """

    as_of_ms: int
    layout: Layout = field(init=False)
    blocks: list[Block] = field(default_factory=list)
    _has_gap: bool = False

    def __post_init__(self) -> None:
        # As in a pipe: nothing is wrapped or shortened, which is left to the browser.
        self.layout = Layout(width=None, as_of_ms=self.as_of_ms, verbose=False)

    def gap(self) -> None:
        """As `Surface`."""
        self._has_gap = bool(self.blocks)

    def line(self, text: object, *, style: str = "", indent: int = 0) -> None:
        """As `Surface`."""
        self._add(Block(kind="line", text=str(text), style=_CLASSES.get(style, ""), is_inner=indent > 0))

    def command(self, text: str, *, indent: int = GAP) -> None:  # noqa: ARG002 - the page's style sets it in
        """As `Surface`."""
        self._add(Block(kind="command", text=text))

    def facts(self, pairs: Sequence[tuple[str, object, str]]) -> None:
        """As `Surface`."""
        shown = [(label, self._cell(value, kind)) for label, value, kind in pairs if value not in (None, "")]
        self._add(Block(kind="facts", pairs=shown))

    def grid(self, columns: Sequence[Column], rows: Sequence[Row], *, folder: str = "") -> None:
        """As `Surface`."""
        shown = [column for column in columns if not column.seldom]
        titles = [Cell(text=column.title, kind=column.kind) for column in shown]
        cells = [[self._cell(column.of(row), column.kind, folder) for column in shown] for row in rows]
        self._add(Block(kind="grid", titles=titles, rows=cells))

    def _cell(self, value: object, kind: str, folder: str = "") -> Cell:
        text = text_of(value, kind, self.layout, folder=folder)
        if kind == VERDICT:
            return Cell(text=text, kind=kind, verdict=str(value))
        if kind == TIME and isinstance(value, int):
            return Cell(text=minute(value), kind=kind)
        if kind == SPAN and isinstance(value, list) and value:
            first, last = day(min(value)), day(max(value))
            text = minute(value[0]) if len(value) == 1 else first if first == last else f"{first} to {last}"
        return Cell(text=text, kind=kind)

    def _add(self, block: Block) -> None:
        self.blocks.append(replace(block, begins=self._has_gap))
        self._has_gap = False

    # -- in three parts ------------------------------------------------------------------------------------------

    @property
    def verdict(self) -> Sequence[Block]:
        """What is read first: all before the first table."""
        return self.blocks[: self._first_table]

    @property
    def details(self) -> Sequence[Block]:
        """What is between the verdict and the labelled values at the end."""
        return self.blocks[self._first_table : self._last_facts]

    @property
    def origin(self) -> Sequence[Block]:
        """The labelled values at the end: the table's names, and what it was made from."""
        return self.blocks[self._last_facts :]

    @property
    def _first_table(self) -> int:
        kinds = (place for place, block in enumerate(self.blocks) if block.kind in ("grid", "facts"))
        return next(kinds, len(self.blocks))

    @property
    def _last_facts(self) -> int:
        """Where the last block begins, if it has labelled values."""
        end = len(self.blocks)
        is_last = bool(self.blocks) and self.blocks[-1].kind == "facts"
        return max(self._first_table, end - 1) if is_last else end
