"""Sizes of many objects of a store whose every answer takes a while."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

from iceberg_cli.storage import Storage

_THREADS = 32
_LIST_FROM = 200  # paths: a listing names a thousand objects in one answer
_LISTED_FOR_EACH = 20  # a listing ends where it names so many more objects than are asked for


def sizes_of(storage: Storage, keys: Sequence[str]) -> list[int | None]:
    """Size in bytes of each of n objects, None where there is none.

    Args:
        storage: that has `stat` and `list`.
        keys: canonical.
    """
    known = _listed(storage, keys) if len(keys) >= _LIST_FROM else {}

    def size(key: str) -> int | None:
        if key in known:
            return known[key]
        try:
            return storage.stat(key).size_bytes
        except FileNotFoundError:
            return None

    if all(key in known for key in keys):
        return [known[key] for key in keys]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(size, keys))


def _listed(storage: Storage, keys: Sequence[str]) -> dict[str, int]:
    """What a listing of the folder that all keys share says of them; nothing where they share no folder."""
    first, last = min(keys).split("/")[:-1], max(keys).split("/")[:-1]
    shared = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))]
    folder = "/".join(shared)
    if len(shared) < 4:  # scheme://bucket: all that is in a bucket is too much
        return {}
    wanted = set(keys)
    sizes: dict[str, int] = {}
    for seen, info in enumerate(storage.list(folder)):
        if info.path in wanted:
            sizes[info.path] = info.size_bytes
        if len(sizes) == len(wanted) or seen > _LISTED_FOR_EACH * len(wanted):
            break
    return sizes
