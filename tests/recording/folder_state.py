"""The files of a table: taken by name and content, and put back."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from iceberg_cli.cli.context import now_ms

POINTER = "catalog.json"
"""The name under which a catalog's row of the table is in a state."""
_DAY_SECONDS = 86_400
_JOURNAL = "_iceberg_cli"


class Pointer(Protocol):
    """A catalog's row of a table."""

    def get(self) -> tuple[str, str | None] | None:
        """The metadata file and the one before it; None: no such table."""

    def put(self, pointer: tuple[str, str | None]) -> None:
        """Make it so."""

    def remove(self) -> None:
        """Have the catalog know nothing of it."""


@dataclass(frozen=True)
class Content:
    """A file.

    Args:
        digest: of its bytes.
        size: of its bytes.
        days: since it was written, rounded.
    """

    digest: str
    size: int
    days: int


State = Mapping[str, Content]
"""By the name below the table's place; a folder that holds nothing ends with a slash."""


@dataclass(frozen=True)
class TableFolder:
    """Where a table is.

    Args:
        places: its folders by the first part of the names in a state.
        pointer: None: the catalog is the folder.
        stand_ins: parts of answers and files that are other ones in each run, by what stands for them on record.
    """

    places: Mapping[str, Path]
    pointer: Pointer | None = None
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    def state(self) -> State:
        """As it is now."""
        now = now_ms() / 1000
        found = {}
        for name, path in self._paths():
            data = b"" if name.endswith("/") else path.read_bytes()
            days = round((now - path.stat().st_mtime) / _DAY_SECONDS) if not name.endswith("/") else 0
            found[name] = Content(digest_of(data), len(data), days)
        if (row := self.pointer_now()) is not None:
            data = json.dumps(row).encode()
            found[POINTER] = Content(digest_of(data), len(data), 0)
        return found

    def pointer_now(self) -> tuple[str, str | None] | None:
        """The catalog's row, where there is one."""
        return None if self.pointer is None else self.pointer.get()

    def read(self, name: str) -> bytes:
        """What a file of the state holds."""
        if name == POINTER:
            return json.dumps(self.pointer_now()).encode()
        return b"" if name.endswith("/") else self._path(name).read_bytes()

    def put(
        self,
        files: Mapping[str, tuple[bytes, int]],
        *,
        removed: Collection[str] | None = None,
        empty: Collection[str] = (),
    ) -> None:
        """Make the table hold these files.

        Args:
            files: contents and ages in days by name.
            removed: names of files that go; None: all others.
            empty: names of folders that stay though nothing is in them.
        """
        for name, path in list(self._paths()):
            goes = name not in files if removed is None else name in removed
            if goes and not name.endswith("/"):
                path.unlink()
        for place, folder in self.places.items():
            for path in sorted(folder.rglob("*"), reverse=True):  # what is inside before what holds it
                is_empty = path.is_dir() and not any(path.iterdir())
                if is_empty and f"{place}/{path.relative_to(folder)}/" not in empty:
                    path.rmdir()
        now = now_ms() / 1000
        for name, (data, days) in files.items():
            if name == POINTER:
                assert self.pointer is not None
                location, previous = json.loads(data)
                self.pointer.put((location, previous))
                continue
            path = self._path(name)
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                continue
            if not path.exists() or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            if days:
                os.utime(path, (now - days * _DAY_SECONDS,) * 2)

    def clear(self) -> None:
        """Remove it, as another test may have left it."""
        if self.pointer is not None:
            self.pointer.remove()
        for folder in self.places.values():
            shutil.rmtree(folder, ignore_errors=True)

    def _path(self, name: str) -> Path:
        place, _, below = name.partition("/")
        return self.places[place] / below

    def _paths(self) -> Iterator[tuple[str, Path]]:
        for place, folder in self.places.items():
            for path in sorted(folder.rglob("*")):
                below = path.relative_to(folder)
                if below.parts[0] == _JOURNAL:
                    continue
                if path.is_file():
                    yield f"{place}/{below}", path
                elif not any(path.iterdir()):
                    yield f"{place}/{below}/", path


def is_checksum(name: str) -> bool:
    """Whether a file is Hadoop's checksum of the one beside it."""
    file = name.rpartition("/")[2]
    return file.startswith(".") and file.endswith(".crc")


def digest_of(data: bytes) -> str:
    """A name for contents."""
    return hashlib.sha256(data).hexdigest()[:32]
