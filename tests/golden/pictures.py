"""Draws what people see of commands on terminals, on a dark and on a light ground.

    python -m tests.golden.pictures FOLDER [SESSION...]

writes an SVG file for each session, width and ground. They are for looking: the golden files hold the same text.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

from tests.cli.printed import run_on_a_terminal
from tests.cli.running import Ran
from tests.golden.commands import transcript
from tests.golden.screens import SESSIONS, WIDTHS

LIGHT = TerminalTheme(
    (255, 255, 255),
    (38, 38, 38),
    [
        (38, 38, 38),
        (187, 0, 0),
        (0, 128, 0),
        (150, 110, 0),
        (0, 70, 187),
        (140, 0, 140),
        (0, 128, 140),
        (120, 120, 120),
    ],
)
GROUNDS = {"dark": DIMMED_MONOKAI, "light": LIGHT}


def draw(text: str, *, width: int, title: str, theme: TerminalTheme) -> str:
    """A terminal with a text, which may have colours, as SVG."""
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True)
    for line in text.splitlines():
        console.print(Text.from_ansi(line), soft_wrap=True)
    return console.export_svg(title=title, theme=theme).replace("Fira Code", "DejaVu Sans Mono")


def main(folder: str, *names: str) -> None:
    """Draw sessions into a folder."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name in names or SESSIONS:
        for width in WIDTHS:

            def run(*arguments: object, width: int = width) -> Ran:
                return run_on_a_terminal(width, *arguments, color=True)

            text = transcript(SESSIONS[name], run)
            for ground, theme in GROUNDS.items():
                path = target / f"{name}-{width}-{ground}.svg"
                path.write_text(draw(text, width=width, title=name, theme=theme), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
