"""The folder of cache entries: the user's own, bounded, each file written whole under a name of its own."""

from __future__ import annotations

import os
import stat
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

_SUFFIX = ".keys"
_UNFINISHED = ".new"
_TOUCH_EVERY_S = 3_600
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """The folder of cache entries, or None where this user has none. Spec: XDG Base Directory."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification says to take no notice of it then
        home = environment.get("HOME", "")
        base = os.path.join(home, ".cache") if os.path.isabs(home) else ""
    return Path(base) / "iceberg-cli" / "keys" if base else None


class CacheFolder:
    """The parts of one table in a folder.

    Args:
        folder: of all tables' parts; need not exist.
        name: of the table, as the beginning of its files' names.
        limit_bytes: of all tables' parts together; those that were used least lately go.
    """

    def __init__(self, folder: Path, name: str, *, limit_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._limit_bytes = limit_bytes

    def read(self) -> dict[Path, bytes]:
        """Every part by its path; nothing that this user does not own, or that somebody else may write to."""
        parts = {}
        try:
            if not _own(os.stat(self._folder), stat.S_ISDIR):
                return {}
            for path in sorted(self._folder.glob(f"{self._name}-*{_SUFFIX}")):
                # Read, not mapped: what was checked is what is used, whatever becomes of the file.
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                with open(descriptor, "rb", buffering=0) as file:
                    status = os.fstat(descriptor)
                    if _own(status, stat.S_ISREG):
                        parts[path] = file.readall()
                        _touch(path, status)
        except OSError:
            return parts  # another run may have put several into one meanwhile
        return parts

    def write(self, data: bytes) -> Path | None:
        """Add a part; None where it would fill all the room there is.

        Raises:
            OSError: it cannot be written.
        """
        if len(data) > self._limit_bytes:
            return None
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _own(os.stat(self._folder), stat.S_ISDIR):
            raise PermissionError(0, "others own it or may write to it", str(self._folder))
        path = self._folder / f"{self._name}-{uuid.uuid4().hex}{_SUFFIX}"
        unfinished = path.with_suffix(_UNFINISHED)
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
            os.rename(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return path

    def make_room(self, keep: Path) -> None:
        """Remove the least recently used entries, of any table, until the rest fits beside `keep`.

        Raises:
            OSError: something cannot be removed.
        """
        found = []
        for path in self._folder.iterdir():
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if path.suffix in (_SUFFIX, _UNFINISHED):
                found.append((path != keep, -status.st_mtime_ns, status.st_size, path))
        total = 0
        for _, _, size_bytes, path in sorted(found):
            total += size_bytes
            if total > self._limit_bytes:
                path.unlink(missing_ok=True)


def _own(status: os.stat_result, kind: object) -> bool:
    """Whether a file is of this kind and this user's, and nobody else may write to it."""
    assert callable(kind)
    return (
        bool(kind(status.st_mode))
        and status.st_uid == os.geteuid()
        and not status.st_mode & _OTHERS_MAY_WRITE
    )


def _touch(path: Path, status: os.stat_result) -> None:
    """Note that a part was used."""
    if time.time() - status.st_mtime > _TOUCH_EVERY_S:  # noqa: TID251 - this is the shell
        os.utime(path)
