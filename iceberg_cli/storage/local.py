"""Files of the machine's own file systems, by plain system calls.

Not fsspec's local file system: it offers neither hard links, nor flushing of folders, nor a way to unlink
inside a folder that is held open, and without these three a file cannot be created whole and durable, nor
deleted without the risk that a folder is swapped for a symbolic link meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat as stat_module
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from iceberg_cli.errors import BackendUnavailable, UsageError
from iceberg_cli.storage import FileInfo
from iceberg_cli.storage.local_write import (
    FOLDER,
    link_named,
    link_unnamed,
    make_folder,
    replace_file,
    unlink_quietly,
)

_NO_NAMES = {"", ".", ".."}
_UNCLEAR = "the path contains '..' or a NUL character"
# Linux refuses to unlink a folder. Elsewhere it may be allowed to some, so it is looked at before.
_UNLINKS_FOLDERS = sys.platform != "linux"
# An attempt to unlink what is not there takes the time of some 16 entries of a listing.
_LOOK_ENTRIES = 16
_ENTRY_BYTES = 40  # or more, on most file systems, is what a file adds to the size of its folder
_FEW_FILES = 100
_STAT_FIRST = 64
_SLOW_STAT_S = 0.0002
_STAT_THREADS = 16
Seen = TypeVar("Seen")
_FILE_SCHEME = re.compile(r"file:(?://(?P<host>[^/]*))?", re.IGNORECASE)


class LocalStorage:
    """Files below `/`; canonical paths look like `/a/b`.

    Args:
        trusted_folders: folders that the operator named. `delete` accepts symbolic links in them and above
            them, and none below them. Without any, no part of a deleted path may be a symbolic link.
        unnamed_temporaries: write new files without a name first, where the system can, so that a crash
            leaves nothing behind. Otherwise a crash can leave `.iceberg-cli-<uuid>.tmp`, which the cleaners
            of all engines treat as hidden.
    """

    def __init__(self, *, trusted_folders: Sequence[str] = (), unnamed_temporaries: bool = True) -> None:
        self._working_folder = os.getcwd()
        self._unnamed = unnamed_temporaries and hasattr(os, "O_TMPFILE")
        trusted = {"/", *(self.canonical(folder) for folder in trusted_folders)}
        self._trusted = sorted(trusted, key=len, reverse=True)
        self._checksums: dict[str, bool] = {}

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

    def read(self, path: str) -> bytes:
        """The whole file."""
        with _translated("read", path):
            descriptor = _open_file(self.canonical(path))
            with os.fdopen(descriptor, "rb") as file:
                return file.read()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer only at the file's end."""
        with _translated("read", path):
            descriptor = _open_file(self.canonical(path))
            with os.fdopen(descriptor, "rb") as file:
                file.seek(offset)
                return file.read(length)

    def stat(self, path: str) -> FileInfo:
        """Size and modification time; of the file itself where the name is a symbolic link."""
        key = self.canonical(path)
        with _translated("look at", path):
            status = os.stat(key)
            if stat_module.S_ISDIR(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, "a folder is there, no file", key)
            return _info(key, status)

    def stat_many(self, paths: Sequence[str]) -> list[int | None]:
        """Sizes, one system call for each file; several at a time where the first ones show that each takes long."""
        return self._look_at(paths, lambda status: status.st_size)

    def sizes_and_times_many(self, paths: Sequence[str]) -> list[tuple[int, int] | None]:
        """Sizes and modification times, as `stat_many` gives sizes."""
        return self._look_at(paths, lambda status: (status.st_size, status.st_mtime_ns // 1_000_000))

    def versions_many(self, paths: Sequence[str]) -> list[str | None]:
        """Versions, as `stat_many` gives sizes. A hard link to a file has its version."""
        return self._look_at(paths, _version)

    def _look_at(self, paths: Sequence[str], told: Callable[[os.stat_result], Seen]) -> list[Seen | None]:
        def look(path: str) -> Seen | None:
            status = self._status(path)
            return None if status is None else told(status)

        started = time.perf_counter()
        seen = [look(path) for path in paths[:_STAT_FIRST]]
        rest = paths[_STAT_FIRST:]
        if time.perf_counter() - started < _SLOW_STAT_S * _STAT_FIRST:
            return [*seen, *(look(path) for path in rest)]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_STAT_THREADS) as pool:  # the folder is another machine's
            return [*seen, *pool.map(look, rest)]

    def _status(self, path: str) -> os.stat_result | None:
        """What the file system says of a file; None where none is there."""
        plain = path.startswith("/") and "//" not in path and "/." not in path
        try:
            status = os.stat(path if plain else self.canonical(path))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            raise BackendUnavailable(f"Cannot look at {path}: {_reason(error)}.") from error
        return status if not stat_module.S_ISDIR(status.st_mode) else None

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a file without a name, flush it, link it to its name, flush the folder.

        A link never replaces what is there, in one step of the file system. Renaming would replace it, and
        opening the name exclusively would show others a half-written file.
        """
        key = self.canonical(path)
        folder, _, name = key.rpartition("/")
        with _translated("write", path, new=True):
            make_folder(folder or "/")
            if os.path.lexists(key):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), key)
            parent = os.open(folder or "/", FOLDER)
            try:
                # Hadoop would hold the new content against the checksum of the file that had the name before.
                unlink_quietly(f".{name}.crc", parent)
                if not (self._unnamed and link_unnamed(parent, name, data)):
                    link_named(parent, name, data)
                os.fsync(parent)
            finally:
                os.close(parent)

    def replace(self, path: str, data: bytes) -> None:
        """Write a hidden temporary file beside it, flush it, rename it, flush the folder."""
        key = self.canonical(path)
        folder = key.rpartition("/")[0]
        with _translated("write", path, new=True):
            make_folder(folder or "/")
            replace_file(key, data, temporary=f"{folder}/.iceberg-cli-{uuid.uuid4()}.tmp")

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every file under the folder by path. Symbolic links to folders are not entered."""
        root = self.canonical(folder)
        with _translated("list", folder):
            yield from _walk("" if root == "/" else root)

    def holds_any(self, folder: str) -> bool:
        """Whether there is a file under the folder; of a large folder only the first entries are looked at."""
        root = self.canonical(folder)
        with _translated("list", folder):
            return _holds_any(root)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Unlink files and Hadoop's hidden checksum files beside them.

        Each folder is opened part by part without following links, and files are unlinked inside the open
        folder: a folder that is swapped for a link in the meantime leads nowhere.
        """
        kept: dict[str, str] = {}
        folders: dict[str, list[tuple[str, str]]] = {}
        for path in paths:
            folder, slash, name = path.rpartition("/")
            if not slash or name in _NO_NAMES:
                try:
                    folder, _, name = self.canonical(path).rpartition("/")
                except UsageError as error:
                    kept[path] = error.message
                    continue
                if name == "..":
                    kept[path] = _UNCLEAR
                    continue
            folders.setdefault(folder, []).append((path, name))
        for folder, names in folders.items():
            kept.update(self._delete_in(f"{folder}/", names))
        return kept

    def prune(self, folder: str) -> None:
        """Remove empty folders from the bottom up; links to folders are neither entered nor removed."""
        key = self.canonical(folder)
        with _translated("clean up", folder), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            root = self._open_without_links(key)
            try:
                for _, folders, _, parent in os.fwalk(".", topdown=False, dir_fd=root):
                    for name in folders:
                        with contextlib.suppress(OSError):  # not empty, or a link
                            os.rmdir(name, dir_fd=parent)
            finally:
                os.close(root)
            with contextlib.suppress(OSError):
                os.rmdir(key)

    def _delete_in(self, folder: str, names: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Unlink `names`, pairs of the caller's spelling and the file name, inside one folder of any spelling."""
        try:
            key = self.canonical(folder)
        except UsageError as error:
            return dict.fromkeys((path for path, _ in names), error.message)
        if "\0" in key or ".." in key.split("/"):
            return dict.fromkeys((path for path, _ in names), _UNCLEAR)
        try:
            parent = self._open_without_links(key)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, UnicodeEncodeError) as error:
            return dict.fromkeys((path for path, _ in names), _reason(error))
        try:
            checksums = self._may_hold_checksums(key, parent, len(names))
            reasons = ((path, _unlink(name, parent, checksums=checksums)) for path, name in names)
            return {path: reason for path, reason in reasons if reason}
        finally:
            os.close(parent)

    def _may_hold_checksums(self, folder: str, parent: int, files: int) -> bool:
        """Whether to try for a checksum file beside each of `files`: most folders hold none, as one look tells.

        The answer is kept, for the files that are about to go are older than the look. A look ends where it would
        take longer than the attempts that it can save; where the folder's size says that it will, it is not begun.
        """
        if files < _FEW_FILES:
            return True
        if folder not in self._checksums:
            if os.fstat(parent).st_size > _ENTRY_BYTES * _LOOK_ENTRIES * files:
                return True
            try:
                with os.scandir(parent) as entries:
                    looked_at = itertools.islice(entries, _LOOK_ENTRIES * files)
                    found = any(entry.name.endswith(".crc") for entry in looked_at)
                    self._checksums[folder] = found or next(entries, None) is not None
            except OSError:
                self._checksums[folder] = True
        return self._checksums[folder]

    def _open_without_links(self, folder: str) -> int:
        """A descriptor of the folder; `OSError` with ELOOP when a link is met below the trusted folders."""
        inside = f"{folder.rstrip('/')}/"
        root = next(trusted for trusted in self._trusted if inside.startswith(f"{trusted.rstrip('/')}/"))
        descriptor = os.open(root, FOLDER)
        for part in inside[len(root) :].split("/"):
            if not part:
                continue
            try:
                deeper = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    if stat_module.S_ISLNK(os.lstat(part, dir_fd=descriptor).st_mode):
                        text = f"it is reached through the symbolic link {part}"
                        raise OSError(errno.ELOOP, text) from None
                raise
            finally:
                os.close(descriptor)
            descriptor = deeper
        return descriptor


@contextlib.contextmanager
def _translated(verb: str, path: str, *, new: bool = False) -> Iterator[None]:
    """The errors of the file system as the port names them; `new`: the path is about to be created."""
    try:
        yield
    except FileExistsError:
        raise
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError) as error:
        if new:
            raise BackendUnavailable(f"Cannot {verb} {path}: {_reason(error)}.") from error
        raise FileNotFoundError(errno.ENOENT, _reason(error), path) from error
    except OSError as error:
        raise BackendUnavailable(f"Cannot {verb} {path}: {_reason(error)}.") from error
    except ValueError as error:  # a NUL character: no file can have that name
        if new:
            raise BackendUnavailable(f"Cannot {verb} {path!r}: {error}.") from error
        raise FileNotFoundError(errno.ENOENT, str(error), path) from error


def _reason(error: OSError | UnicodeEncodeError) -> str:
    text = error.strerror if isinstance(error, OSError) else error.reason
    return text or str(error)


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


def _info(key: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path=key, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


def _version(status: os.stat_result) -> str:
    """Without the time of the last change of the inode, which a hard link to the file moves."""
    return f"{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _walk(folder: str) -> Iterator[FileInfo]:
    """Files below `folder` in the order of their full paths."""
    try:
        with os.scandir(folder or "/") as entries:
            found = [
                (f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name) for entry in entries
            ]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(found):  # with its slash, a folder sorts where its content belongs
        key = f"{folder}/{name}"
        if name.endswith("/"):
            yield from _walk(key[:-1])
            continue
        try:  # cheaper than a context manager, for each of very many
            status = os.stat(key)
        except FileNotFoundError:
            continue
        if stat_module.S_ISREG(status.st_mode):
            yield _info(key, status)


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


def _unlink(name: str, parent: int, *, checksums: bool) -> str | None:
    """Unlink one file, and its checksum companion, in an open folder; the reason if it is still there."""
    try:
        if _UNLINKS_FOLDERS and stat_module.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            return "it is a folder"
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        return "it is a folder"
    except (OSError, ValueError) as error:
        return _reason(error) if isinstance(error, OSError) else str(error)
    if checksums:
        unlink_quietly(f".{name}.crc", parent)
    return None
