"""The storage interface: bytes at a path.

An adapter is chosen by the path's scheme. Paths are the literal strings that tables record: they are
never percent-decoded, and only `canonical` decides when two spellings name one object.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, runtime_checkable

from iceberg_cli.errors import BackendUnavailable, CorruptFile, IcebergCliError

_RANGE_BYTES: Final = 8 << 20  # read back at once


Renewal = Callable[[], Mapping[str, str]]
"""The options of a storage, with new credentials in place of those that end."""


class RequestToSign(NamedTuple):
    """A request to a storage that is to be sent with a signature; `body` only where a signer has to look at it."""

    method: str
    url: str
    region: str
    headers: Mapping[str, str]
    body: str | None


class SignedRequest(NamedTuple):
    """The URL that a request goes to, and the headers that it gets besides its own."""

    url: str
    headers: Mapping[str, str]


Signer = Callable[[RequestToSign], SignedRequest]
"""Signs a request by keys that are not here. `AccessDenied`: it will not. `BackendUnavailable`: it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCredential:
    """The options of a storage for paths that begin with a prefix, as REST catalogs give them: several for one table.

    Args:
        prefix: of paths, for example `s3://bucket/folder`; an empty one is that of all.
        options: with credentials.
        renewal: gives them with new credentials, or None.
        signer: of requests, where the options say that they are signed elsewhere, or None.
    """

    prefix: str
    options: Mapping[str, str] = field(repr=False)
    renewal: Renewal | None = None
    signer: Signer | None = None


class FileInfo(NamedTuple):
    """The path, size and modification time of one stored object."""

    path: str  # canonical storage key
    size_bytes: int
    modified_ms: int  # by the storage's clock
    version: str | None = None  # where it was asked for, see `Storage.stat_many`


class Writer(ABC):
    """An object that is being created: its bytes in their order, then visible whole or not at all.

    Where a write or the commit has failed, no other one is done, for bytes would be missing: only `abort` is left.
    To `pyarrow.parquet.ParquetWriter` it is a file, which stays open when that is closed.

    An adapter writes the three methods whose names begin with an underscore. Those raise `BackendUnavailable`.

    Args:
        path: of the object.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._size_bytes = 0
        self._closed = False
        self._failure: BaseException | None = None

    @abstractmethod
    def _write(self, data: memoryview) -> None:
        """Take the next bytes, at least one; who gave them may change them afterwards."""

    @abstractmethod
    def _commit(self) -> None:
        """Make what was written the object, or raise `FileExistsError`."""

    @abstractmethod
    def _abort(self) -> None:
        """Remove what was written. May be asked again where it failed."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Add bytes, or those of any other buffer; all of them, and how many these are.

        Raises:
            BackendUnavailable: they, or some before them, cannot be written.
            FileExistsError: the storage sees by now that an object is there, see `commit`.
        """
        self._open()
        view = memoryview(data).cast("B")
        if view:
            with self._failing():
                self._write(view)
            self._size_bytes += len(view)
        return len(view)

    @property
    def size_bytes(self) -> int:
        """How many bytes were written so far."""
        return self._size_bytes

    def commit(self) -> None:
        """Make the object durable and visible.

        Raises:
            FileExistsError: an object is there, which stays as it is.
            BackendUnavailable: nothing of this one is visible, or it is not known whether all of it is.
        """
        self._open()
        with self._failing():
            self._commit()
        self._closed = True

    def abort(self) -> None:
        """Remove what was written; after a commit, nothing is done.

        Raises:
            BackendUnavailable: it may still be there, invisible. See `Storage.abort_upload`.
        """
        if not self._closed:
            self._failure = self._failure or ValueError(f"Cannot write {self._path}: it was aborted")
            self._abort()
            self._closed = True

    def _open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ValueError(f"Cannot write {self._path}: it was committed")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abort what was not committed."""
        try:
            self.abort()
        except IcebergCliError:
            if error is None:  # else what led here says more
                raise

    @property
    def closed(self) -> bool:
        """Whether it was committed or aborted."""
        return self._closed

    def tell(self) -> int:
        """The same as `size_bytes`, as files have it."""
        return self._size_bytes

    def flush(self) -> None:  # noqa: B027 - what else a file has
        """Nothing: what was written becomes durable by the commit."""


class _WholeWriter(Writer):
    """A new object that is held in memory until it is put."""

    def __init__(self, path: str, put: Callable[[bytes], None]) -> None:
        super().__init__(path)
        self._put = put
        self._held = bytearray()

    def _write(self, data: memoryview) -> None:
        self._held += data

    def _commit(self) -> None:
        self._put(bytes(self._held))

    def _abort(self) -> None:
        self._held = bytearray()


class Storage(ABC):
    """A storage of bytes at paths. Every sentence below is a test of `iceberg_cli.testing.conformance.storages`.

    An adapter writes the seven abstract methods, and `prune` where there are folders. The others follow from these;
    it overrides those that it has a cheaper way for.

    Errors: `FileNotFoundError` (gone), `FileExistsError` (put_if_absent, create), `BackendUnavailable` (any other
    error of the backend).
    """

    @abstractmethod
    def canonical(self, path: str) -> str:
        """The one spelling of the object that `path` names: `/a/b` or `s3://bucket/key`. No I/O."""

    @abstractmethod
    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole object, or a part of it.

        Args:
            path: of the object.
            span: offset and length in bytes; the result is shorter only at the object's end.
        """

    @abstractmethod
    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """What is known of n objects without reading them, in their order; None where there is none.

        Args:
            paths: of the objects.
            versions: whether to give versions: an opaque text that is another one once other bytes are stored there.
                As fine as the storage has it: local files by device, inode, size and the tick of the clock at which
                they were written, unless the writer sets that time back. None where an object has no version.
        """

    @abstractmethod
    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every object under `folder` + "/", at any depth, by path; nothing of a sibling with that prefix."""

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create the object whole and durable, or raise `FileExistsError` and leave the old one as it is.

        A reader sees no object or all of it, also after a crash. Parent folders are made. May be empty.
        """

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:  # noqa: ARG002
        """Create an object of any size, of which at most two parts are in memory; here, all of it.

        Nothing is done, and no error is raised, before the first write or the commit. Parent folders are made.

        Args:
            path: of the object.
            on_upload: gets the id by which `abort_upload` removes what a process that died had sent, before the first
                of it is sent. It is not called where such a process leaves nothing, or what goes by itself.

        Returns:
            A writer, of one thread.
        """
        return _WholeWriter(path, partial(self.put_if_absent, path))

    def abort_upload(self, path: str, upload_id: str) -> None:  # noqa: B027 - where `on_upload` is never called
        """Remove what a process that is no more had sent for an object; nothing, where it was committed or is gone.

        Never touches the object at `path`. Nobody may be writing it: his commit would fail.

        Args:
            path: that `create` was called with.
            upload_id: that `on_upload` was called with.

        Raises:
            BackendUnavailable: it may still be there.
            Refused: it is no id of an upload.
        """

    def free_bytes(self, folder: str) -> int | None:  # noqa: ARG002 - of a storage that has an end
        """The room that is left for objects below a folder, in bytes; None where it has no end, or nobody knows it."""
        return None

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Replace the object by `data`, whole and durable, or create it. For advisory files only.

        A reader sees the old object or the new one, also after a crash; of two writers the last one wins. Parent
        folders are made. Hadoop's hidden checksum file beside a local file goes.
        """

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete objects, never folders, never through a symbolic link to a folder.

        Where the storage's options put something else in place of deletions, that is done, see `SoftDeletion`.

        Returns:
            The paths that are still there, each with the reason. A path that is gone already is a success.
        """

    def erase(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete objects of this program's own, such as journals, whatever the options put in place of deletions."""
        return self.delete(paths)

    def prune(self, folder: str) -> None:  # noqa: B027 - object stores have no folders
        """Remove the empty folders under `folder`, and itself if empty then."""

    def stat(self, path: str) -> FileInfo:
        """Size and modification time of one object."""
        info = self.stat_many([path])[0]
        if info is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return info

    def paths(self, folder: str) -> Iterator[str]:
        """The paths of `list` in its order, for storages whose sizes and times take requests of their own."""
        return (info.path for info in self.list(folder))

    def holds_any(self, folder: str) -> bool:
        """Whether `list` would find an object; returns at the first one."""
        return next(iter(self.paths(folder)), None) is not None

    def subfolders(self, folder: str) -> Iterator[str]:
        """The names of the folders directly in a folder, by name; of one that is not there, none.

        A local link to a folder counts, and an empty folder may; an object store's marker of a folder may.
        """
        last = None
        for path in self.paths(folder):
            name, slash, _ = path[len(folder.rstrip("/")) + 1 :].partition("/")
            if slash and name != last:
                yield name
                last = name

    def subfolders_many(self, folders: Sequence[str], names: Sequence[str]) -> Sequence[frozenset[str]]:
        """Which of some names are folders directly in each of n folders, in their order; of a folder not there, none.

        Nothing else in the folders is listed. A local link to a folder counts; an empty folder, or an object store's
        marker of one, may count.
        """
        return [frozenset(name for name in names if self.holds_any(f"{folder}/{name}")) for folder in folders]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftDeletion:
    """What a storage does in place of deleting an object, where its options turn deletions off.

    Args:
        tags: that the object gets; without any it is left as it is.
        option: by which deletions are off, with its value.
    """

    tags: Mapping[str, str]
    option: str


@runtime_checkable
class SoftStorage(Protocol):
    """A storage whose options can turn deletions off."""

    def soft_deletion(self, path: str) -> SoftDeletion | None:
        """What `delete` does in place of deleting the object at `path`; None: it deletes it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The reason why no file of a local folder can be deleted; `target` is that of a symbolic link on the way."""

    reason: str
    target: str | None = None


@runtime_checkable
class ObstructedStorage(Protocol):
    """A storage that knows some obstacles without trying to delete."""

    def obstacles(self, folders: Sequence[str]) -> Mapping[str, Obstacle]:
        """Those of n canonical local folders, `/a/b`, in which no file can be deleted, each with the reason."""
        ...


def put_checked(storage: Storage, path: str, data: bytes) -> None:
    """Create a file and read it back, or find that it has these bytes already.

    A task that runs twice, because a worker died or another was faster, puts the same bytes twice under one name.
    Other bytes there are another's file, which stays.

    Raises:
        FileExistsError: it has other bytes.
        CorruptFile: it was created, and other bytes are read.
        BackendUnavailable: it was created, and was gone when it was read back.
    """
    try:
        storage.put_if_absent(path, data)
    except FileExistsError:
        if _other_from(storage, path, data) is not None:
            raise
        return
    try:
        at = _other_from(storage, path, data)
    except FileNotFoundError as error:
        raise BackendUnavailable(
            f"Cannot write {path}: it was written, and was gone when it was read back"
        ) from error
    if at is not None:
        raise CorruptFile(path, at, "read back: other bytes than were written")


def _other_from(storage: Storage, path: str, data: bytes) -> int | None:
    """The first offset at which the file differs from `data`, None where it is equal."""
    at = 0
    while True:
        found = storage.read(path, (at, _RANGE_BYTES))
        # Compared in place: a copy of this much memory takes longer than reading the file.
        if len(found) != min(_RANGE_BYTES, len(data) - at) or not data.startswith(found, at):
            return at
        at += len(found)
        if len(found) < _RANGE_BYTES:
            return None
