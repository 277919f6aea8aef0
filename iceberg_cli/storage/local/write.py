"""Whole and durable creation and replacement of local files, and what is left of it where a run was killed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterable

from iceberg_cli.errors import unavailable

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

# Longer than any write takes; a file of a process that lives is never taken for a leftover.
_LEFTOVER_MS = 86_400_000
_TEMPORARY_NAME = re.compile(r"\.iceberg-cli-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")
_FOLDER_TRIES = 100
_FOLDER_GONE = (errno.ENOENT, errno.ESTALE)
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def temporary_name() -> str:
    """The name of a temporary file, which no other has."""
    return f".iceberg-cli-{uuid.uuid4()}.tmp"


def is_temporary_name(name: str) -> bool:
    """Whether it is a name of a temporary file, of this process or of another."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


def replace_file(path: str, data: bytes, *, temporary: str) -> None:
    """Replace the local file `path` by `data`, whole and durable. For advisory files only.

    Args:
        path: of the file.
        data: its new content.
        temporary: in the same folder, and of no other process; a crash can leave it behind.

    Raises:
        OSError: the file system's own error.
    """
    folder, _, name = path.rpartition("/")
    parent = os.open(folder or "/", FOLDER)
    try:
        _write(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), data)
        unlink_quietly(f".{name}.crc", parent)
        os.replace(temporary, path)
        os.fsync(parent)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(parent)


def make_folder(folder: str) -> None:
    """Make the folder and those above it, each flushed into its parent."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    make_folder(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    descriptor = os.open(above, FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    """Write and flush; closes the descriptor."""
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def in_its_folder(key: str, write: Callable[[], None]) -> None:
    """Make the folder of a file and write the file, again where another process removes the empty folder meanwhile."""
    for tries_left in reversed(range(_FOLDER_TRIES)):
        try:
            make_folder(key.rpartition("/")[0] or "/")
            write()
        except OSError as error:
            if error.errno not in _FOLDER_GONE or not tries_left:
                raise
        else:
            return


def link_unnamed(parent: int, name: str, data: bytes) -> bool:
    """Create `name` from a file that never had another name; False where the system cannot."""
    descriptor = open_unnamed(parent)
    if descriptor is None:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
        return link_descriptor(descriptor, parent, name)


def open_unnamed(parent: int) -> int | None:
    """A descriptor of a new file without a name, to read and write; None where the system cannot."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666, dir_fd=parent)
    except OSError:
        return None


def link_descriptor(descriptor: int, parent: int, name: str) -> bool:
    """Give a file without a name one; False where the system cannot."""
    try:
        os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=parent, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def link_named(parent: int, name: str, data: bytes) -> None:
    """Create `name` from a hidden temporary file beside it."""
    temporary = temporary_name()
    descriptor = open_named(parent, temporary)
    try:
        _write(descriptor, data)
        link_temporary(temporary, parent, name)
    finally:
        unlink_quietly(temporary, parent)


def open_named(parent: int, temporary: str) -> int:
    """A descriptor of a new temporary file, to write."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(temporary, flags, 0o666, dir_fd=parent)


def link_temporary(temporary: str, parent: int, name: str) -> None:
    """Give a temporary file its name, beside the one that it has."""
    try:
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in _NO_LINKS:
            text = "this file system offers no hard links, without which a file cannot be created safely"
            raise OSError(error.errno, text) from error
        raise


def unlink_quietly(name: str, parent: int) -> None:
    """Unlink a checksum or temporary file, without an error where that fails."""
    try:  # noqa: SIM105 - suppress() takes longer than the call itself
        os.unlink(name, dir_fd=parent)
    except OSError:
        pass


def leftovers_in(folders: Iterable[str], *, now_ms: int) -> list[str]:
    """The temporary files of killed runs in local folders, not below them: those that are more than a day old.

    Args:
        folders: canonical, such as `/a/b`; those that are not there have none.
        now_ms: by the clock that the files' times are of, since the epoch.

    Returns:
        Their paths, in order.

    Raises:
        BackendUnavailable: a folder cannot be listed.
    """
    leftovers: list[str] = []
    for folder in dict.fromkeys(folders):
        try:
            with os.scandir(folder) as entries:
                leftovers += [
                    f"{folder.rstrip('/')}/{entry.name}"
                    for entry in entries
                    if _TEMPORARY_NAME.fullmatch(entry.name) is not None and _is_old(entry, now_ms)
                ]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise unavailable(f"Cannot list {folder}: {error.strerror}.", error) from error
    return sorted(leftovers)


def _is_old(entry: os.DirEntry[str], now_ms: int) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_mtime_ns // 1_000_000 < now_ms - _LEFTOVER_MS
