"""The number of rows of a Parquet file, from its footer."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from iceberg_cli.errors import CorruptFile

PARQUET_TAIL_BYTES: Final = 64 << 10  # holds most footers
_MAX_PARQUET_FOOTER_BYTES: Final = 256 << 20
_PARQUET_TRAILER_BYTES: Final = 8  # length of the footer, magic
_PARQUET_MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"


@dataclass(frozen=True, slots=True)
class UnknownRowCount:
    """The reason why the rows of a Parquet file are not known: a finding's rule and message."""

    rule: str
    reason: str


def parquet_footer_bytes(tail: bytes, size: int, path: str) -> int | None:
    """The length of a Parquet file's footer in bytes; None where it is encrypted.

    Args:
        tail: the last bytes of the file, at least 8.
        size: of the file in bytes.
        path: for the message.

    Raises:
        CorruptFile: it is no Parquet file.
    """
    if len(tail) < _PARQUET_TRAILER_BYTES or size < _PARQUET_TRAILER_BYTES + len(_PARQUET_MAGIC):
        raise CorruptFile(path, 0, f"{size} bytes are too few for a Parquet file")
    if tail[-4:] == _ENCRYPTED_MAGIC:
        return None
    if tail[-4:] != _PARQUET_MAGIC:
        raise CorruptFile(path, size - 4, f"magic {tail[-4:].hex()} instead of {_PARQUET_MAGIC.hex()}")
    needed = struct.unpack("<I", tail[-8:-4])[0] + _PARQUET_TRAILER_BYTES
    if needed > min(_MAX_PARQUET_FOOTER_BYTES, size - len(_PARQUET_MAGIC)):
        raise CorruptFile(path, size - 8, f"the footer says {needed} bytes in a file of {size}")
    return int(needed)


def parquet_rows(tail: bytes) -> int | UnknownRowCount:
    """The number of rows by the footer of a Parquet file; a footer that pyarrow does not understand may be sound.

    Args:
        tail: the end of the file, with all of its footer.
    """
    import pyarrow.parquet as pq

    try:
        # The reader looks for the footer from the end, and needs nothing of what is before it.
        return int(pq.read_metadata(pa.BufferReader(_PARQUET_MAGIC + tail)).num_rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        return UnknownRowCount(
            "parquet-cannot-be-read-here", f"it cannot be read here, pyarrow says: {error}"
        )
