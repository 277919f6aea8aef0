"""Size and time of many objects of an object store: by a listing of their folder, and by single requests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from iceberg_cli.storage import FileInfo

THREADS: Final = 64  # with a request each
_LIST_FROM: Final = 200  # paths: a listing names a thousand objects in one answer
_LISTED_FOR_EACH: Final = 20  # a listing ends where it names so many more objects than are requested


def look_at_many(
    keys: Sequence[str],
    ask: Callable[[str], FileInfo],
    listing: Callable[[str], Iterable[FileInfo]],
) -> list[FileInfo | None]:
    """What is known of n objects; None where there is none.

    Args:
        keys: canonical.
        ask: for the object with a key; `FileNotFoundError` where there is none.
        listing: the objects under a folder.
    """
    infos = _listed(keys, listing) if len(keys) >= _LIST_FROM else {}

    def look(key: str) -> FileInfo | None:
        if key in infos:
            return infos[key]
        try:
            return ask(key)
        except FileNotFoundError:
            return None

    if len(keys) - len(infos) <= 1:
        return [look(key) for key in keys]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(look, keys))


def _listed(keys: Sequence[str], listing: Callable[[str], Iterable[FileInfo]]) -> dict[str, FileInfo]:
    """Those of n keys that a listing of their common folder has; nothing where they have none."""
    first, last = min(keys).split("/")[:-1], max(keys).split("/")[:-1]
    shared = [
        part
        for part, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    ]
    folder = "/".join(shared)
    if len(shared) < 4:  # scheme://bucket: all that is in a bucket is too much
        return {}
    names = set(keys)
    infos: dict[str, FileInfo] = {}
    for seen, info in enumerate(listing(folder)):
        if info.path in names:
            infos[info.path] = info
        if len(infos) == len(names) or seen > _LISTED_FOR_EACH * len(names):
            break
    return infos
