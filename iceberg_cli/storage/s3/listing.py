"""Listings of S3 in the order of keys: page by page, and full subfolders of one folder side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

Page = Mapping[str, Any]
Entry = Mapping[str, Any]

_AHEAD: Final = 16  # first pages of subfolders that are held, at most
_WORTH_A_REQUEST: Final = 100  # objects; of a thousand that a page could have


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one bucket.

    Args:
        page: sends one ListObjectsV2 request with these parameters.
    """

    page: Callable[[Mapping[str, Any]], Page]

    def entries(self, prefix: str, *, first: Page | None = None) -> Iterator[Entry]:
        """Every object whose key begins with a prefix, by key: page after page, each when the one before is used up.

        A page that has nothing but objects of one subfolder shows that subfolders here are full: from there on
        several are read at once, until they turn out to be small.

        Args:
            prefix: empty, or with a slash at its end.
            first: the first page, where it is known.
        """
        page = self._first(prefix) if first is None else first
        divisible = True
        while True:
            entries = page.get("Contents", ())
            yield from entries
            if not page["IsTruncated"]:
                return
            if divisible and (subfolder := _common_subfolder(prefix, entries)) is not None:
                last = entries[-1]["Key"]
                following = self._first(subfolder, last)
                # Where a service does not know StartAfter, only its own tokens lead on.
                divisible = all(entry["Key"] > last for entry in following.get("Contents", ()))
                if divisible:
                    after = yield from self._side_by_side(prefix, subfolder, following, last)
                    if after is None:
                        return
                    page = self._first(prefix, after)
                    continue
            page = self.page({"Prefix": prefix, "ContinuationToken": page["NextContinuationToken"]})

    def _first(self, prefix: str, after: str = "") -> Page:
        return self.page({"Prefix": prefix, "StartAfter": after} if after else {"Prefix": prefix})

    def _side_by_side(
        self, prefix: str, subfolder: str, following: Page, after: str
    ) -> Generator[Entry, None, str | None]:
        """The objects of a subfolder from a page on, and all after that subfolder.

        Args:
            prefix: the folder.
            subfolder: directly in it.
            following: the page.
            after: the key before the page's.

        Returns:
            None, or where subfolders are small: the key of the last object, after which the rest is yet to be listed.
        """
        pool = ThreadPoolExecutor(_AHEAD)
        try:
            ahead: deque[tuple[str, Future[Page] | Entry]] = deque()
            ahead.append((subfolder, pool.submit(lambda: following)))
            rest = self._parts(prefix, subfolder)
            small = 0
            while ahead and small < _AHEAD:
                for name, entry in islice(rest, _AHEAD - len(ahead)):
                    ahead.append((name, pool.submit(self._first, name) if entry is None else entry))
                name, part = ahead.popleft()
                if not isinstance(part, Future):
                    yield part
                    after = name
                    continue
                page = part.result()
                is_small = not page["IsTruncated"] and len(page.get("Contents", ())) < _WORTH_A_REQUEST
                small = small + 1 if is_small else 0
                for entry in self.entries(name, first=page):
                    yield entry
                    after = entry["Key"]
            return after if ahead else None
        finally:
            pool.shutdown(cancel_futures=True)

    def _parts(self, prefix: str, subfolder: str) -> Iterator[tuple[str, Entry | None]]:
        """What is directly in a folder after one of its subfolders, by key: objects and, with None, subfolders."""
        # Some services list the subfolder itself once more.
        request: dict[str, Any] = {"Prefix": prefix, "Delimiter": "/", "StartAfter": subfolder}
        while True:
            page = self.page(request)
            found = {entry["Key"]: entry for entry in page.get("Contents", ())}
            found |= dict.fromkeys(each["Prefix"] for each in page.get("CommonPrefixes", ()))
            yield from ((name, found[name]) for name in sorted(found) if name > subfolder)
            if not page["IsTruncated"]:
                return
            request = {"Prefix": prefix, "Delimiter": "/", "ContinuationToken": page["NextContinuationToken"]}


def _common_subfolder(prefix: str, entries: Sequence[Entry]) -> str | None:
    """The folder directly below a prefix that has all of the objects, which are in order; None where there is none."""
    if not entries:
        return None
    first, last = (entry["Key"][len(prefix) :].partition("/") for entry in (entries[0], entries[-1]))
    return f"{prefix}{first[0]}/" if first[1] and first[:2] == last[:2] else None
