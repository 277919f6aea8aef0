"""The storage interface: bytes at a path.

An adapter is chosen by the path's scheme. Paths are the literal strings that tables record: they are
never percent-decoded, and only `canonical` decides when two spellings name one object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """The path, size and modification time of one stored object."""

    path: str  # canonical storage key
    size_bytes: int
    modified_ms: int  # by the storage's clock


class Storage(Protocol):
    """A storage of bytes at paths. Every sentence below is a test of `tests/conformance`.

    Errors: `FileNotFoundError` (gone), `FileExistsError` (put_if_absent), `BackendUnavailable` (any other
    error of the backend).
    """

    def canonical(self, path: str) -> str:
        """The one spelling of the object that `path` names: `/a/b` or `s3://bucket/key`. No I/O."""
        ...

    def read(self, path: str) -> bytes:
        """The whole object."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer only at the object's end."""
        ...

    def stat(self, path: str) -> FileInfo:
        """Size and modification time."""
        ...

    def stat_many(self, paths: Sequence[str]) -> list[int | None]:
        """Size in bytes of each of n objects, in their order; None where there is none."""
        ...

    def sizes_and_times_many(self, paths: Sequence[str]) -> list[tuple[int, int] | None]:
        """Size in bytes and modification time in ms since the epoch, as `stat_many` gives sizes."""
        ...

    def versions_many(self, paths: Sequence[str]) -> list[str | None]:
        """An opaque text for each of n objects, in their order, that is another one once other bytes are stored there.

        As fine as the storage has it: local files by device, inode, size and the tick of the clock at which they
        were written, unless the writer sets that time back. None where there is no object or no version.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create the object whole and durable, or raise `FileExistsError` and leave the old one as it is.

        A reader sees no object or all of it, also after a crash. Parent folders are made. May be empty.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Replace the object by `data`, whole and durable, or create it. For advisory files only.

        A reader sees the old object or the new one, also after a crash; of two writers the last one wins. Parent
        folders are made. Hadoop's hidden checksum file beside a local file goes.
        """
        ...

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every object under `folder` + "/", at any depth, by path; nothing of a sibling with that prefix."""
        ...

    def paths(self, folder: str) -> Iterator[str]:
        """The paths of `list` in its order; cheaper where sizes and times take requests of their own."""
        ...

    def holds_any(self, folder: str) -> bool:
        """Whether `list` would find an object; returns at the first one."""
        ...

    def subfolders_many(self, folders: Sequence[str], names: Sequence[str]) -> Sequence[frozenset[str]]:
        """Which of some names are folders directly in each of n folders, in their order; of a folder not there, none.

        Nothing else in the folders is listed. A local link to a folder counts; an empty folder, or an object store's
        marker of one, may count.
        """
        ...

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete objects, never folders, never through a symbolic link to a folder.

        Returns:
            The paths that are still there, each with the reason. A path that is gone already is a success.
        """
        ...

    def prune(self, folder: str) -> None:
        """Remove the empty folders under `folder`, and itself if empty then; object stores have none."""
        ...


def open_storage(options: Mapping[str, str] | None = None, *, trusted_folders: Sequence[str] = ()) -> Storage:
    """The storage for paths of all schemes, each handled by its adapter.

    Args:
        options: for the adapters, under their own names or PyIceberg's (`s3.endpoint` and the like).
        trusted_folders: local folders that the operator named. Deleting accepts symbolic links in and above
            them and none below; without any, no part of a deleted local path may be a symbolic link.
    """
    from iceberg_cli.storage.router import RoutedStorage

    return RoutedStorage(options or {}, trusted_folders=trusted_folders)
