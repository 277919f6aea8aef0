"""Names of tables in catalogs as text: levels with dots between them, in backquotes what is more than a plain word.

So Spark writes and reads them, and with it Iceberg's procedures: prod.sales.`a.b`, and a backquote of a name twice.
PyIceberg has no spelling of its own: it splits text at every dot, and takes any other name as a tuple of levels only.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PLAIN: Final = re.compile(r"[\w-]+")
_PLAIN_CATALOG: Final = re.compile(r"[A-Za-z_][\w-]*")  # begins as no number and no option does
_PLAIN_NAME: Final = re.compile(rf"{_PLAIN_CATALOG.pattern}(?:\.{_PLAIN.pattern})*")
_LEVEL: Final = r"`(?:[^`]|``)*`|[^`./:\s]+"
_LEVELS: Final = re.compile(rf"(?:{_LEVEL})(?:\.(?:{_LEVEL}))*")
_EACH_LEVEL: Final = re.compile(_LEVEL)
TABLE_LEVELS: Final = 3  # that a table's name has at least: catalog, namespace, table


class Level(NamedTuple):
    """A level of a name or of a pattern.

    Args:
        text: without backquotes.
        quoted: whether it was in backquotes, so that every character stands for itself.
    """

    text: str
    quoted: bool


def parse_levels(text: str) -> tuple[Level, ...]:
    """The levels of a name or a pattern of names; none where it is neither, such as a path or URI."""
    if not _LEVELS.fullmatch(text):
        return ()
    return tuple(
        Level(text=each[1:-1].replace("``", "`"), quoted=True)
        if each.startswith("`")
        else Level(text=each, quoted=False)
        for each in _EACH_LEVEL.findall(text)
    )


def levels_of(name: str) -> tuple[str, ...]:
    """The levels of a name in a catalog, the catalog's own first; none where `name` is no such name.

    Args:
        name: as `name_of` gives it; other levels may be in backquotes, too.
    """
    if _PLAIN_NAME.fullmatch(name):
        return tuple(name.split("."))  # as nearly all are
    found = parse_levels(name)
    plain = all(
        level.quoted or (_PLAIN if index else _PLAIN_CATALOG).fullmatch(level.text)
        for index, level in enumerate(found)
    )
    return tuple(level.text for level in found) if plain else ()


def name_of(catalog: str, *levels: str) -> str:
    """The name of a table or namespace in a catalog as text, of which `levels_of` gives the levels again.

    Args:
        catalog: its name.
        levels: of the namespace, from the outermost, and of a table its own name.
    """
    return ".".join((_spelled(catalog, _PLAIN_CATALOG), *(_spelled(each, _PLAIN) for each in levels)))


def namespace_of(levels: tuple[str, ...]) -> str:
    """The name of a namespace within its catalog, its levels spelled as in `name_of`."""
    return ".".join(_spelled(each, _PLAIN) for each in levels)


def _spelled(level: str, plain: re.Pattern[str]) -> str:
    return level if plain.fullmatch(level) else f"`{level.replace('`', '``')}`"
