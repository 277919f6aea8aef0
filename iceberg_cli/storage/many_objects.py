"""What is done to many objects of an object store at once: looks at them, and deletions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from iceberg_cli.storage import FileInfo

THREADS: Final = 64  # with a request each
_BATCHES_AT_ONCE: Final = 4  # a bucket's prefix on S3 takes 3,500 deletions a second
_LIST_FROM: Final = 200  # paths: a listing names a thousand objects in one answer
_LISTED_FOR_EACH: Final = 20  # a listing ends where it names so many more objects than are requested


def is_folder_marker(key: str, size_bytes: int) -> bool:
    """Whether an object stands for a folder, as consoles make them: it has no bytes, and its key ends in a slash."""
    return key.endswith("/") and not size_bytes


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


def delete_in_batches(
    names: Sequence[str], *, most: int, delete: Callable[[Sequence[str]], Mapping[str, str]]
) -> dict[str, str]:
    """Those of n objects that are still there, each with the reason: some batches at once.

    Args:
        names: of the objects.
        most: in one batch.
        delete: a batch; gives the same of it.
    """
    batches = [names[start : start + most] for start in range(0, len(names), most)]
    reasons: dict[str, str] = {}
    with ThreadPoolExecutor(_BATCHES_AT_ONCE) as pool:
        for found in pool.map(delete, batches):
            reasons |= found
    return reasons


def delete_each(
    names: Sequence[str], why_not: Callable[[str], str | None], *, threads: int = THREADS
) -> dict[str, str]:
    """Those of n objects that are still there, each with the reason: by a request for each.

    Args:
        names: of the objects.
        why_not: deletes one; why it is still there, or None.
        threads: with a request each.
    """
    if len(names) <= 1:
        found = [why_not(name) for name in names]
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(why_not, names))
    return {name: reason for name, reason in zip(names, found, strict=True) if reason is not None}


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
