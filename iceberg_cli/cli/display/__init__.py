"""What values of the Python API look like, for `print` and for notebooks: see `iceberg_cli.plan.display`.

A module shows one kind of value: its `text` is what the command prints into a pipe, its `page` that of `--report`.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from iceberg_cli.cli.render.report import show_error
from iceberg_cli.cli.render.screen import Screen
from iceberg_cli.cli.render.table_list import show_left_out

if TYPE_CHECKING:
    from iceberg_cli.fleet.calls.result import FleetResult


class TextScreen(Screen):
    """A screen whose text is kept.

    Args:
        as_of_ms: the "now" of times that are shown as ages.
    """

    def __init__(self, *, as_of_ms: int = 0) -> None:
        self._kept = io.StringIO()
        super().__init__(self._kept, as_of_ms=as_of_ms)

    @property
    def text(self) -> str:
        """All that was shown."""
        return self._kept.getvalue()


def text_with_rest(screen: TextScreen, result: FleetResult[object]) -> str:
    """What was shown, and behind it what `result` has beside its rows: views, and what could not be listed."""
    show_left_out(screen, result.views)
    for _, error in result.failed:
        error.was_looking = True
        show_error(screen, error)
    return screen.text
