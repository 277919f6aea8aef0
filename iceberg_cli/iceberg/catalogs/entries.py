"""The entries of a catalog's list of tables, and the walk through its namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from iceberg_cli.errors import BackendUnavailable

MayMatch = Callable[[tuple[str, ...]], bool]
"""Whether tables may be meant whose names begin with these levels of a namespace, the catalog not among them."""


class CatalogEntry(NamedTuple):
    """A table as its catalog lists it.

    Args:
        levels: of its namespace, from the outermost.
        table: its name.
        metadata_location: where the catalog's list tells it, or None.
    """

    levels: tuple[str, ...]
    table: str
    metadata_location: str | None = None


def walk_namespaces(
    may_match: MayMatch, below: Callable[[tuple[str, ...]], Iterator[tuple[str, ...]]]
) -> Iterator[tuple[str, ...]]:
    """The namespaces in which tables may be meant, those above before those below.

    Args:
        may_match: see `list_catalog`.
        below: the namespaces directly below one; those of the catalog for no levels.
    """
    waiting = [below(())]
    while waiting:
        levels = next(waiting[-1], None)
        if levels is None:
            waiting.pop()
        elif may_match(levels):
            yield levels
            waiting.append(below(levels))


def no_answer(name: str, reason: str) -> BackendUnavailable:
    """The error of a catalog that cannot be listed."""
    return BackendUnavailable(f"Cannot list the catalog {name}: {reason}")
