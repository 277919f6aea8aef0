"""How many rows Parquet files have: only their footers are read."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.engines import Event, OnEvent
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.storage import Storage

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 64 << 10  # most footers are in it
_END_BYTES: Final = 8  # length of the footer, and the magic
_MAX_FOOTER_BYTES: Final = 256 << 20
_THREADS: Final = 16


def rows_of(storage: Storage, files: Sequence[tuple[str, int]], on_event: OnEvent) -> list[int]:
    """The rows of n Parquet files.

    Args:
        storage: where they are.
        files: storage paths, and sizes in bytes as the log has them.
        on_event: progress.

    Raises:
        CorruptFile: a file is gone, or is no Parquet file of this size.
        Refused: a footer cannot be read here.
        BackendUnavailable.
    """
    phase = "counting rows"
    counts = []
    on_event(Event(phase=phase, done=0, total=len(files)))
    with ThreadPoolExecutor(_THREADS) as threads:
        for count in threads.map(lambda file: _rows(storage, *file), files):
            counts.append(count)
            on_event(Event(phase=phase, done=len(counts), total=len(files)))
    return counts


def _rows(storage: Storage, path: str, size_bytes: int) -> int:
    try:
        footer = _footer(storage, path, size_bytes)
    except FileNotFoundError:
        raise CorruptFile(path, None, "the table needs this file and it is not there") from None
    try:
        return int(pq.read_metadata(io.BytesIO(_MAGIC + footer)).num_rows)
    except (pa.ArrowException, OSError) as error:
        # Its frame is whole: another reader may know what this one does not.
        raise Refused(
            f"Cannot count the rows of {path}: its footer cannot be read here, pyarrow says: {error}",
            next_step="Have an engine that reads the file write it anew, or leave out --count-rows.",
        ) from None


def _footer(storage: Storage, path: str, size_bytes: int) -> bytes:
    """The footer with the length and magic behind it."""
    start = max(0, size_bytes - _TAIL_BYTES)
    # One byte more shows a file that is longer than the log says.
    tail = storage.read_range(path, start, size_bytes - start + 1)
    if len(tail) != size_bytes - start or tail[-len(_MAGIC) :] != _MAGIC:
        raise CorruptFile(path, size_bytes, f"a Parquet file of {size_bytes} bytes does not end there")
    length = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little") + _END_BYTES
    if length > min(size_bytes - len(_MAGIC), _MAX_FOOTER_BYTES):
        raise CorruptFile(path, size_bytes - _END_BYTES, f"a footer of {length - _END_BYTES} bytes")
    if length > len(tail):
        return storage.read_range(path, size_bytes - length, length)
    return tail[-length:]
