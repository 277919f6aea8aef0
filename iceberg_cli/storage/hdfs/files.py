"""Files in HDFS, read through the client of pyarrow, which loads Hadoop's own library."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from iceberg_cli.errors import AccessDenied, BackendUnavailable, Refused, UsageError
from iceberg_cli.storage import FileInfo, Renewal, Storage, Writer
from iceberg_cli.storage.hdfs.declaration import WHY_READ_ONLY

_LOCATION: Final = re.compile(r"(hdfs|viewfs)://([^/]*)(/.*)?", re.IGNORECASE | re.DOTALL)


_READ_ONLY: Final = f"nothing is written there from here, since {WHY_READ_ONLY}"


class HdfsStorage(Storage):
    """Files in HDFS, which can only be read; canonical paths look like `hdfs://namenode:8020/a/b`.

    Args:
        options: `hdfs.host`, `hdfs.port`, `hdfs.user` and `hdfs.kerberos_ticket`, as PyIceberg has them. A path that
            names no host is in the one of the options, else in Hadoop's default file system.
        renewal: is not asked.
    """

    def __init__(self, options: Mapping[str, str], *, renewal: Renewal | None = None) -> None:  # noqa: ARG002
        self._options = options
        self._files: dict[str, Any] = {}

    def canonical(self, path: str) -> str:
        """The scheme in lower case, and the path as it is.

        Raises:
            UsageError: it names no file system.
        """
        if not (match := _LOCATION.fullmatch(path)):
            raise UsageError(f"Cannot use {path}: it is not of the form hdfs://namenode:8020/path.")
        return f"{match[1].lower()}://{match[2]}{match[3] or '/'}"

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole file, or a part of it."""
        files, name = self._open(path)
        try:
            with files.open_input_file(name) as file:
                if span is None:
                    return bytes(file.readall())
                size = file.size()
                offset = min(span[0], size)
                return bytes(file.read_at(min(span[1], size - offset), offset))
        except (OSError, pa.ArrowException) as error:
            raise _translated("read", path, error) from None

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """What is known of files; versions are of their time and size."""
        found = []
        for path in paths:
            files, name = self._open(path)
            try:
                info = files.get_file_info(name)
            except (OSError, pa.ArrowException) as error:
                raise _translated("look at", path, error) from None
            is_file = info.type == fs.FileType.File
            found.append(_info(self.canonical(path), info, versions=versions) if is_file else None)
        return found

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every file under the folder by path; all are gathered first."""
        files, name = self._open(folder)
        base = self.canonical(folder).removesuffix(name)
        try:
            selector = fs.FileSelector(name.rstrip("/") or "/", recursive=True, allow_not_found=True)
            found = files.get_file_info(selector)
        except (OSError, pa.ArrowException) as error:
            raise _translated("list", folder, error) from None
        kept = [each for each in found if each.type == fs.FileType.File]
        for each in sorted(kept, key=lambda one: str(one.path)):
            yield _info(f"{base}{each.path}", each, versions=False)

    def put_if_absent(self, path: str, data: bytes) -> None:  # noqa: ARG002
        """Refused.

        Raises:
            Refused.
        """
        raise Refused(f"Cannot write {path}: it is in HDFS, and {_READ_ONLY}.")

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:  # noqa: ARG002
        """Refused.

        Raises:
            Refused.
        """
        raise Refused(f"Cannot write {path}: it is in HDFS, and {_READ_ONLY}.")

    def replace(self, path: str, data: bytes) -> None:  # noqa: ARG002
        """Refused.

        Raises:
            Refused.
        """
        raise Refused(f"Cannot write {path}: it is in HDFS, and {_READ_ONLY}.")

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Nothing is deleted: every path is still there."""
        return dict.fromkeys(paths, _READ_ONLY)

    def _open(self, path: str) -> tuple[Any, str]:
        """The file system of a path, and the path in it."""
        match = _LOCATION.fullmatch(self.canonical(path))
        assert match is not None
        scheme, authority, name = match.groups()
        place = f"{scheme}://{authority}"
        if place not in self._files:
            self._files[place] = self._connected(scheme, authority, path)
        return self._files[place], name

    def _connected(self, scheme: str, authority: str, path: str) -> Any:
        host, _, port = authority.partition(":")
        host = host or self._options.get("hdfs.host", "")
        port = port or self._options.get("hdfs.port", "")
        try:
            return fs.HadoopFileSystem(
                f"{scheme}://{host}" if host else "default",
                int(port or 0),
                user=self._options.get("hdfs.user"),
                kerb_ticket=self._options.get("hdfs.kerberos_ticket"),
            )
        except (OSError, ValueError, pa.ArrowException) as error:
            if "libhdfs" in str(error) or "libjvm" in str(error):
                raise UsageError(
                    f"Cannot use {path}: Hadoop's library libhdfs cannot be loaded: {_line(error)}",
                    next_step="Install Hadoop and Java, and set HADOOP_HOME, JAVA_HOME and CLASSPATH, the last to what"
                    " `hadoop classpath --glob` prints.",
                ) from None
            raise _translated("use", path, error) from None


def _info(path: str, info: Any, *, versions: bool) -> FileInfo:
    modified_ms = round((info.mtime_ns or 0) / 1_000_000)
    return FileInfo(path, info.size, modified_ms, f"{modified_ms} {info.size}" if versions else None)


def _translated(verb: str, path: str, error: Exception) -> Exception:
    if isinstance(error, FileNotFoundError | IsADirectoryError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    denied = isinstance(error, PermissionError) or "AccessControlException" in str(error)
    kind = AccessDenied if denied else BackendUnavailable
    return kind(f"Cannot {verb} {path}: {_line(error)}")


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
