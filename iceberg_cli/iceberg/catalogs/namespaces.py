"""The walk through the namespaces of a catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from iceberg_cli.iceberg.catalogs import MayMatch


def walk_namespaces(
    may_match: MayMatch, below: Callable[[tuple[str, ...]], Iterator[tuple[str, ...]]]
) -> Iterator[tuple[str, ...]]:
    """The namespaces in which tables may be meant, those above before those below.

    Args:
        may_match: see `Catalog.list`.
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
