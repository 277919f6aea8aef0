"""The frame of a deletion vector's blob: length, magic, CRC-32.

Spec: Puffin "deletion-vector-v1 blob type".
"""

from __future__ import annotations

import struct

from isal import isal_zlib

from iceberg_cli.errors import CorruptFile

MAGIC = b"\xd1\xd3\x39\x64"
MAX_BLOB_BYTES = 256 << 20
FRAME_BYTES = 12  # length, magic, CRC-32


def framed(vector: bytes) -> bytes:
    """The blob of a vector.

    Raises:
        ValueError: it would have more than 256 MiB.
    """
    body = MAGIC + vector
    if len(body) + 8 > MAX_BLOB_BYTES:
        raise ValueError(f"Cannot frame a deletion vector: the blob would have {len(body) + 8} bytes.")
    return struct.pack(">I", len(body)) + body + struct.pack(">I", isal_zlib.crc32(body))


def unframe(data: bytes, path: str) -> bytes:
    """The vector inside a blob whose length, magic and CRC-32 are right."""
    if not FRAME_BYTES + 8 <= len(data) <= MAX_BLOB_BYTES:
        raise CorruptFile(path, 0, f"a deletion vector cannot have {len(data)} bytes")
    (length,) = struct.unpack_from(">I", data)
    if length != len(data) - 8:
        raise CorruptFile(path, 0, f"the deletion vector says {length} bytes, {len(data) - 8} are there")
    if data[4:8] != MAGIC:
        raise CorruptFile(path, 4, f"magic {data[4:8].hex()} instead of {MAGIC.hex()}")
    (expected,) = struct.unpack_from(">I", data, len(data) - 4)
    if (found := isal_zlib.crc32(memoryview(data)[4:-4])) != expected:
        raise CorruptFile(
            path, len(data) - 4, f"CRC-32 is {found:08x}, the deletion vector says {expected:08x}"
        )
    return data[8:-4]
