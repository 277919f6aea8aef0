"""What plans, inspections and findings are shown on: a terminal, or the page of `--report`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from iceberg_cli.cli.render.layout import GAP, Layout
from iceberg_cli.plan.inspection import COMMAND, DUE, FINDING, HEADLINE, Column, Facts, Grid, Lines, Part, Row

_STYLES: Final = {HEADLINE: "bold", FINDING: "yellow", DUE: "bold"}


class Surface(Protocol):
    """Takes paragraphs, labelled values and tables in the order in which they are read."""

    layout: Layout

    def gap(self) -> None:
        """Part what comes next from what came before, if anything did."""
        ...

    def line(self, text: object, *, style: str = "", indent: int = 0) -> None:
        """Show a paragraph."""
        ...

    def command(self, text: str, *, indent: int = GAP) -> None:
        """Show a command line, which is copied whole."""
        ...

    def part(self, part: Part, *, folder: str = "") -> None:
        """Show a part of a summary; `folder`: paths below it are shown as seen from there."""
        match part:
            case Lines(lines, about):
                for each in lines:
                    if about == COMMAND:
                        self.command(each)
                    else:
                        self.line(each, style=_STYLES.get(about, ""))
            case Grid(columns, rows, brief):
                self.grid(columns, rows if self.layout.is_whole or brief is None else brief, folder=folder)
            case Facts(pairs, seldom):
                self.facts([pair for pair in pairs if self.layout.is_whole or pair[0] not in seldom])

    def facts(self, pairs: Sequence[tuple[str, object, str]]) -> None:
        """Show labels, each with a value; one without a value is left out."""
        ...

    def grid(self, columns: Sequence[Column], rows: Sequence[Row], *, folder: str = "") -> None:
        """Show rows under titles; `folder`: paths below it are shown as seen from there."""
        ...
