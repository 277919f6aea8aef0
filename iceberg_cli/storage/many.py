"""What is told of many objects of a store whose every answer takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import TypeVar

Told = TypeVar("Told")

THREADS = 32
_LIST_FROM = 200  # paths: a listing names a thousand objects in one answer
_LISTED_FOR_EACH = 20  # a listing ends where it names so many more objects than are asked for


def look_at_many(
    keys: Sequence[str],
    ask: Callable[[str], Told],
    listing: Callable[[str], Iterable[tuple[str, Told]]],
) -> list[Told | None]:
    """What is told of each of n objects, None where there is none.

    Args:
        keys: canonical.
        ask: what is told of the object with a key; `FileNotFoundError` where there is none.
        listing: keys of the objects under a folder, each with what is told of it.
    """
    known = _listed(keys, listing) if len(keys) >= _LIST_FROM else {}

    def look(key: str) -> Told | None:
        if key in known:
            return known[key]
        try:
            return ask(key)
        except FileNotFoundError:
            return None

    if all(key in known for key in keys):
        return [known[key] for key in keys]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(look, keys))


def _listed(keys: Sequence[str], listing: Callable[[str], Iterable[tuple[str, Told]]]) -> dict[str, Told]:
    """What a listing of the folder that all keys share says of them; nothing where they share no folder."""
    first, last = min(keys).split("/")[:-1], max(keys).split("/")[:-1]
    shared = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))]
    folder = "/".join(shared)
    if len(shared) < 4:  # scheme://bucket: all that is in a bucket is too much
        return {}
    wanted = set(keys)
    found: dict[str, Told] = {}
    for seen, (key, told) in enumerate(listing(folder)):
        if key in wanted:
            found[key] = told
        if len(found) == len(wanted) or seen > _LISTED_FOR_EACH * len(wanted):
            break
    return found
