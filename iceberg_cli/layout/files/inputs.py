"""How the data files are opened whose rows are written anew."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from iceberg_cli.encoding.row_batches import SMALL_BYTES
from iceberg_cli.engines import FileParts, Source
from iceberg_cli.engines.read_ahead import read_ahead
from iceberg_cli.errors import CorruptFile, GroupLeftOut, Refused, TakenOver, TooLittleMemory
from iceberg_cli.storage import Storage


class StoredFile(Protocol):
    """A data file as the table's metadata names it."""

    @property
    def path(self) -> str:
        """Where it is."""
        ...

    @property
    def size_bytes(self) -> int:
        """As the metadata says."""
        ...


File = TypeVar("File", bound=StoredFile)


def parts_of(storage: Storage, path: str) -> FileParts:
    """A stored file of which parts are read, as large as the storage says.

    Raises:
        FileNotFoundError: it is gone. BackendUnavailable.
    """
    size_bytes = storage.stat(path).size_bytes
    return FileParts(path, size_bytes, partial(_span, storage, path))


def _span(storage: Storage, path: str, offset: int, length: int) -> bytes:
    return storage.read(path, (offset, length))


@contextmanager
def breaking_the_group(inputs: Sequence[StoredFile]) -> Iterator[None]:
    """Have a file that is gone, or is not read here, break its group alone: the other groups are none the worse.

    Raises:
        CorruptFile: in place of FileNotFoundError and Refused.
    """
    try:
        yield
    except FileNotFoundError as error:
        path = error.filename or inputs[0].path
        raise CorruptFile(path, None, "the table needs this file and it is not there") from error
    except (TakenOver, TooLittleMemory, GroupLeftOut):
        raise
    except Refused as error:
        reason = f"it is rewritten with a file that is not read here: {error.message}. {error.next_step}"
        raise CorruptFile(inputs[0].path, None, reason) from error


def inputs_ahead(
    storage: Storage, inputs: Sequence[File], *, threads: int, most_bytes: int
) -> Generator[tuple[File, FileParts], None, None]:
    """Inputs in their order, of which parts can be read; small ones are read whole, side by side, before their turn.

    Args:
        storage: of the inputs.
        inputs: of a group.
        threads: that read.
        most_bytes: that are held of files before their turn.

    Raises:
        FileNotFoundError: one is gone. BackendUnavailable.
    """
    return read_ahead(inputs, _source, partial(_input_parts, storage), threads=threads, most_bytes=most_bytes)


def _source(file: StoredFile) -> Source:
    return Source(file.path, file.size_bytes if file.size_bytes <= SMALL_BYTES else 0)


def _input_parts(storage: Storage, file: StoredFile) -> FileParts:
    if 0 < file.size_bytes <= SMALL_BYTES:
        data = storage.read(file.path, (0, file.size_bytes + 1))
        if len(data) <= file.size_bytes:  # it ends there, and is no larger than its entry says
            return FileParts(file.path, len(data), partial(_part, data))
    return parts_of(storage, file.path)


def _part(data: bytes, offset: int, length: int) -> bytes:
    return data[offset : offset + length]
