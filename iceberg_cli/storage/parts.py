"""New objects that are sent to an object store part by part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from iceberg_cli.storage import Writer

_FIRST_BYTES: Final = 8 << 20
# Some services, as Cloudflare R2, take no parts of different sizes: only objects of more than 40 GiB have such.
_ALIKE: Final = 5_000
_GROWS_AFTER: Final = 19  # parts, by the size of the first ones


def part_bytes(number: int) -> int:
    """The size of a part unless it is the last one: such that 10,000 parts, the most on S3, make up its largest object.

    Args:
        number: of the part, from 1 on.
    """
    return _FIRST_BYTES * (1 + max(0, number - _ALIKE) // _GROWS_AFTER)


class PartWriter(Writer):
    """A new object of which one part is held, besides the one that is being sent; one of a single part is put whole.

    Args:
        path: of the object.
        put: creates it whole, see `Storage.put_if_absent`.
    """

    def __init__(self, path: str, put: Callable[[bytes], None]) -> None:
        super().__init__(path)
        self._put = put
        self._held = bytearray()
        self._sent_parts = 0

    @abstractmethod
    def _send(self, part: bytes) -> None:
        """Send the next part, behind which others follow."""

    @abstractmethod
    def _complete(self, part: bytes) -> None:
        """Send the last part, which has at least one byte, and make all of them the object; see `_commit`."""

    @abstractmethod
    def _discard(self) -> None:
        """Remove the parts that were sent, if any."""

    def _write(self, data: memoryview) -> None:
        while data:
            free = part_bytes(self._sent_parts + 1) - len(self._held)
            if not free:
                part = bytes(self._held)
                self._held.clear()
                self._send(part)
                self._sent_parts += 1
            self._held += data[:free]
            data = data[free:]

    def _commit(self) -> None:
        part = bytes(self._held)
        self._held.clear()
        if self._sent_parts:
            self._complete(part)
        else:
            self._put(part)

    def _abort(self) -> None:
        self._held.clear()
        self._discard()
