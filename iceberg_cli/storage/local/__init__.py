"""The storage of local files, by plain system calls.

Not fsspec's local file system: it offers neither hard links, nor flushing of folders, nor a way to unlink
inside a folder that is held open, and without these three a file cannot be created whole and durable, nor
deleted without the risk that a folder is swapped for a symbolic link meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import stat as stat_module
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from iceberg_cli.errors import BackendUnavailable, Refused, UsageError, unavailable
from iceberg_cli.storage import FileInfo, Obstacle, Storage, Writer
from iceberg_cli.storage.local.delete import Deletions, reason_of
from iceberg_cli.storage.local.failures import translated
from iceberg_cli.storage.local.write import (
    FOLDER,
    in_its_folder,
    is_temporary_name,
    link_named,
    link_unnamed,
    replace_file,
    temporary_name,
    unlink_quietly,
)
from iceberg_cli.storage.local.writer import LocalWriter

Value = TypeVar("Value")

_FIRST_FILES = 64
_SLOW_LOOK_S = 0.0002  # as on a network file system
_SLOW_THREADS = 16
_THREADS = 2  # for quick calls: the system answers two as fast as one
_SLICE_FILES = 4_096
_FILE_SCHEME = re.compile(r"file:(?://(?P<host>[^/]*))?", re.IGNORECASE)


class LocalStorage(Storage):
    """A storage of local files; canonical paths look like `/a/b`.

    Args:
        trusted_folders: folders that the operator named. `delete` accepts symbolic links in them and above
            them, and none below them. Without any, no part of a deleted path may be a symbolic link.
        link_targets: folders to which links below a trusted one may lead.
        unnamed_temporaries: write new files without a name first, where the system can, so that a crash
            leaves nothing behind. Otherwise a crash can leave `.iceberg-cli-<uuid>.tmp`, which the cleaners
            of all engines treat as hidden.
    """

    def __init__(
        self,
        *,
        trusted_folders: Sequence[str] = (),
        link_targets: Sequence[str] = (),
        unnamed_temporaries: bool = True,
    ) -> None:
        self._working_folder = os.getcwd()
        self._unnamed = unnamed_temporaries and hasattr(os, "O_TMPFILE")
        trusted = {"/", *(self.canonical(folder) for folder in trusted_folders)}
        self._deletions = Deletions(
            self.canonical,
            sorted(trusted, key=len, reverse=True),
            targets=[self.canonical(folder) for folder in link_targets],
        )

    def canonical(self, path: str) -> str:
        """`/a/b` for `/a/b`, `file:/a/b`, `file:///a/b` and `file://localhost/a/b`.

        Doubled slashes and `.` go. `..` stays, because what it means depends on symbolic links. Relative
        paths start at the working folder of the moment when this object was made.

        Raises:
            UsageError: the path is empty or names another host.
        """
        rest = path
        if scheme := _FILE_SCHEME.match(path):
            if scheme["host"] and scheme["host"].lower() != "localhost":
                raise UsageError(f"Cannot use {path}: files of another host are out of reach.")
            rest = path[scheme.end() :]
        if not rest:
            raise UsageError(f"Cannot use {path!r} as a path: it names no file.")
        if not rest.startswith("/"):
            rest = f"{self._working_folder}/{rest}"
        if "//" in rest or "/./" in rest or rest.endswith(("/", "/.")):
            rest = "/" + "/".join(part for part in rest.split("/") if part not in {"", "."})
        return rest

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole file, or a part of it."""
        offset, length = span or (0, -1)
        with translated("read", path):
            descriptor = _open_file(self.canonical(path))
            with os.fdopen(descriptor, "rb") as file:
                file.seek(offset)
                return file.read(length)

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """What is known of files, after links, by one system call for each. A hard link to a file has its version."""
        return infos_of(paths, self.canonical, versions=versions)

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a file without a name, flush it, link it to its name, flush the folder.

        A link never replaces what is there, in one step of the file system. Renaming would replace it, and
        opening the name exclusively would show others a half-written file.
        """
        key = self.canonical(path)
        with translated("write", path, new=True):
            in_its_folder(key, partial(self._create, key, data))

    def _create(self, key: str, data: bytes) -> None:
        if os.path.lexists(key):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), key)
        folder, _, name = key.rpartition("/")
        parent = os.open(folder or "/", FOLDER)
        try:
            # Hadoop would check the new content against the checksum of the file that had the name before.
            unlink_quietly(f".{name}.crc", parent)
            if not (self._unnamed and link_unnamed(parent, name, data)):
                link_named(parent, name, data)
            os.fsync(parent)
        finally:
            os.close(parent)

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:
        """Write a file without a name, or a hidden temporary one, whose name is the id, and link it by the commit."""
        return LocalWriter(path, self.canonical(path), unnamed=self._unnamed, on_upload=on_upload)

    def abort_upload(self, path: str, upload_id: str) -> None:
        """Unlink a temporary file beside `path`."""
        if not is_temporary_name(upload_id):
            raise Refused(
                f"Cannot remove {upload_id!r} beside {path}: it is no name of a temporary file. Nothing was changed."
            )
        temporary = f"{self.canonical(path).rpartition('/')[0]}/{upload_id}"
        for reason in self.erase([temporary]).values():
            raise BackendUnavailable(f"Cannot remove {temporary}: {reason}.")

    def free_bytes(self, folder: str) -> int | None:
        """What the file system has for this user, by the nearest folder that is there."""
        key = self.canonical(folder)
        while key and not os.path.isdir(key):
            key = key.rpartition("/")[0]
        try:
            found = os.statvfs(key or "/")
        except OSError:  # a folder of others; whether there is room shows when files are written
            return None
        return found.f_bavail * found.f_frsize

    def replace(self, path: str, data: bytes) -> None:
        """Write a hidden temporary file beside it, flush it, rename it, flush the folder."""
        key = self.canonical(path)
        temporary = f"{key.rpartition('/')[0]}/{temporary_name()}"
        with translated("write", path, new=True):
            in_its_folder(key, partial(replace_file, key, data, temporary=temporary))

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every file under the folder by path. Symbolic links to folders are not entered."""
        root = self.canonical(folder)
        with translated("list", folder):
            for key in _walk("" if root == "/" else root):
                try:  # cheaper than a context manager, for each of very many
                    status = os.stat(key)
                except FileNotFoundError:
                    continue
                yield FileInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def paths(self, folder: str) -> Iterator[str]:
        """Every file's path under the folder, as the folders name them; only links take a call of their own."""
        root = self.canonical(folder)
        with translated("list", folder):
            yield from _walk("" if root == "/" else root)

    def holds_any(self, folder: str) -> bool:
        """Whether there is a file under the folder; of a large folder only the first entries are read."""
        root = self.canonical(folder)
        with translated("list", folder):
            return _holds_any(root)

    def subfolders(self, folder: str) -> Iterator[str]:
        """The names of the folders directly in a folder, and of links to some: one system call for most."""
        with translated("look into", folder):
            try:
                with os.scandir(self.canonical(folder)) as entries:
                    found = sorted(entry.name for entry in entries if entry.is_dir())
            except (FileNotFoundError, NotADirectoryError):
                found = []
        return iter(found)

    def subfolders_many(self, folders: Sequence[str], names: Sequence[str]) -> Sequence[frozenset[str]]:
        """Which of some names are folders, or links to some, in each of n folders: a system call for each."""

        def look(folder: str) -> frozenset[str]:
            with translated("look into", folder):
                return frozenset(name for name in names if _is_folder(f"{self.canonical(folder)}/{name}"))

        return side_by_side(folders, look)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Unlink files and Hadoop's hidden checksum files beside them, see `delete.py`."""
        return self._deletions.delete(paths)

    def obstacles(self, folders: Sequence[str]) -> Mapping[str, Obstacle]:
        """Those of n folders in which no file can be deleted, each with the reason."""
        found = ((folder, self._deletions.obstacle(self.canonical(folder))) for folder in folders)
        return {folder: obstacle for folder, obstacle in found if obstacle is not None}

    def prune(self, folder: str) -> None:
        """Remove empty folders from the bottom up; links to folders are neither entered nor removed."""
        key = self.canonical(folder)
        with translated("clean up", folder), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            root = self._deletions.open_folder(key)
            try:
                for _, folders, _, parent in os.fwalk(".", topdown=False, dir_fd=root):
                    for name in folders:
                        with contextlib.suppress(OSError):  # not empty, or a link
                            os.rmdir(name, dir_fd=parent)
            finally:
                os.close(root)
            with contextlib.suppress(OSError):
                os.rmdir(key)


def _open_file(key: str) -> int:
    """A descriptor of a regular file. A pipe must not make us wait for its other end."""
    descriptor = os.open(key, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat_module.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat_module.S_ISDIR(mode):
        raise FileNotFoundError(errno.ENOENT, "a folder is there, no file", key)
    raise OSError(errno.EINVAL, "it is not a regular file", key)


def _is_folder(key: str) -> bool:
    try:
        return stat_module.S_ISDIR(os.stat(key).st_mode)
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError, ValueError):
        return False


def _walk(folder: str) -> Iterator[str]:
    """Paths of the files below `folder` in the order of their full paths."""
    try:
        with os.scandir(folder or "/") as entries:
            found = [
                f"{entry.name}/" if is_folder else entry.name
                for entry in entries
                if (is_folder := entry.is_dir(follow_symlinks=False)) or entry.is_file()
            ]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(found):  # with its slash, a folder sorts where its content belongs
        key = f"{folder}/{name}"
        if name.endswith("/"):
            yield from _walk(key[:-1])
        else:
            yield key


def _holds_any(folder: str) -> bool:
    """Whether `_walk` finds a file below `folder`."""
    try:
        with os.scandir(folder) as entries:
            return any(
                _holds_any(entry.path)
                if entry.is_dir(follow_symlinks=False)
                else entry.is_file()  # where a link leads
                for entry in entries
            )
    except (FileNotFoundError, NotADirectoryError):
        return False


def side_by_side(
    paths: Sequence[str],
    look: Callable[[str], Value],
    look_at_many: Callable[[Sequence[str]], Iterable[Value]] | None = None,
) -> list[Value]:
    """The result of `look` for n files, in as many threads as pay off by the time that the first files take.

    Args:
        paths: of the files.
        look: for one file.
        look_at_many: for files in their order, without blocking Python's other threads; None where there is none.
    """
    seen: list[Value] = []
    times = []
    for path in paths[:_FIRST_FILES]:
        started = time.perf_counter()
        seen.append(look(path))
        times.append(time.perf_counter() - started)
    rest = paths[_FIRST_FILES:]
    if not rest:
        return seen
    # The median, because other programs may delay one call or another.
    slow = sorted(times)[len(times) // 2] >= _SLOW_LOOK_S
    threads = _SLOW_THREADS if slow else _THREADS if look_at_many is not None else 1
    if threads == 1:
        return [*seen, *map(look, rest)]
    from concurrent.futures import ThreadPoolExecutor

    def part(first: int) -> list[Value]:
        some = rest[first : first + size]
        return [*map(look, some)] if look_at_many is None else [*look_at_many(some)]

    size = min(_SLICE_FILES, math.ceil(len(rest) / threads))
    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(part, range(0, len(rest), size)):
            seen += found
    return seen


def infos_of(
    paths: Sequence[str], canonical: Callable[[str], str], *, versions: bool
) -> list[FileInfo | None]:
    """Size, modification time and, if `versions`, version of n files; None where there is no file.

    Arrow reads many at once, but no versions. What it does not report as a file is read again by a system call, which
    distinguishes a cycle of links from no file.

    Raises:
        BackendUnavailable: the system call failed.
    """

    def look(path: str) -> FileInfo | None:
        key = canonical(path) if _some_odd([path]) else path
        status = _status(path, key)
        if status is None:
            return None
        version = _version(status) if versions else None
        return FileInfo(key, status.st_size, status.st_mtime_ns // 1_000_000, version)

    def look_at_many(some: Sequence[str]) -> list[FileInfo | None]:
        from pyarrow.fs import FileType, LocalFileSystem

        if _some_odd(some):
            return [look(path) for path in some]
        try:
            infos = LocalFileSystem().get_file_info([*some])
        except (OSError, UnicodeEncodeError):  # for one of them, it does not report which
            return [look(path) for path in some]
        a_file = FileType.File
        return [
            FileInfo(path, info.size, info.mtime_ns // 1_000_000) if info.type == a_file else look(path)
            for path, info in zip(some, infos, strict=True)
        ]

    return side_by_side(paths, look, None if versions else look_at_many)


def _version(status: os.stat_result) -> str:
    """A file's version, without the time of the last change of the inode, which a hard link to the file moves."""
    return f"{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _status(path: str, key: str) -> os.stat_result | None:
    """The status of a file, after links; None where there is no file.

    Raises:
        BackendUnavailable: the system call failed.
    """
    try:
        status = os.stat(key)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise unavailable(f"Cannot look at {path}: {reason_of(error)}.", error) from error
    return status if not stat_module.S_ISDIR(status.st_mode) else None


def _some_odd(paths: Sequence[str]) -> bool:
    """Whether one of n paths may have another spelling. Checks them as one text, for there are very many."""
    text = "\0".join(["", *paths, ""])
    whole = text.count("\0") == text.count("\0/") + 1 == len(paths) + 1
    return not whole or any(noise in text for noise in ("//", "/.", "/\0"))
