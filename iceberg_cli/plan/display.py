"""How values of the Python API show themselves: as the text of the command, and in a notebook as its page.

What makes text and pages belongs to the command line, which stands above all who have such values: it is found by its
name when something is shown, as formats are, and nothing of it is loaded before.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, Final

_DISPLAYS: Final = "iceberg_cli.cli.display"
_STYLE: Final = "width:100%;height:36em;border:0"
_FRAME: Final = f'<iframe sandbox="allow-scripts" style="{_STYLE}" srcdoc="{{page}}"></iframe>'


class Shown:
    """A value that prints itself as the command does, and whose page a notebook shows.

    Args:
        shown_as: what of it is shown: the name of a module of `cli/display`, with `text` and `page` of the value.
    """

    __slots__ = ()
    shown_as: ClassVar[str]

    def __str__(self) -> str:
        """What the command prints."""
        return str(self._display().text(self)).rstrip("\n")

    def _repr_html_(self) -> str | None:
        """The page of `--report` in a frame of its own; None: it has none, or what makes pages is not installed."""
        from html import escape  # commands make no frames

        try:
            page = self._display().page(self)
        except ImportError:
            return None
        if page is None:
            return None
        return _FRAME.format(page=escape(page))

    def _display(self) -> Any:
        return import_module(f"{_DISPLAYS}.{self.shown_as}")
