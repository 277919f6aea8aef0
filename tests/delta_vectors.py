"""Deletion vectors as other writers make them: pyroaring, zlib and struct only."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from pyroaring import BitMap64

from iceberg_cli.delta.spec.paths import z85_encode

MAGIC = 1681511377


def data_of(positions: Iterable[int]) -> bytes:
    """What `sizeInBytes` counts: magic and bitmap, little-endian."""
    return struct.pack("<I", MAGIC) + BitMap64(list(positions)).serialize()


def frame_of(positions: Iterable[int]) -> bytes:
    """Size, data, CRC-32, big-endian."""
    data = data_of(positions)
    return struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def write_vectors(root: Path, number: int, *vectors: Iterable[int], dead: int = 0) -> list[dict[str, Any]]:
    """Write a file of vectors, with `dead` bytes behind them that nothing needs.

    Args:
        root: of the table.
        number: makes its name.
        vectors: the positions of each.
        dead: bytes.

    Returns:
        Their descriptors.
    """
    uuid = UUID(int=number)
    data, found = b"\x01", []
    for positions in map(list, vectors):
        frame = frame_of(positions)
        descriptor = {
            "storageType": "u",
            "pathOrInlineDv": z85_encode(uuid.bytes),
            "offset": len(data),
            "sizeInBytes": len(frame) - 8,
            "cardinality": len(positions),
        }
        found.append(descriptor)
        data += frame
    path = vector_path(root, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data + bytes(dead))
    return found


def an_inline_vector(positions: Iterable[int]) -> dict[str, Any]:
    """A vector in the log."""
    listed = list(positions)
    data = data_of(listed)
    text = z85_encode(data + bytes(-len(data) % 4))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": len(listed),
    }


def vector_path(root: Path, number: int) -> Path:
    """Where `write_vectors` writes."""
    return root / f"deletion_vector_{UUID(int=number)}.bin"


def positions_in(data: bytes, descriptor: dict[str, Any]) -> list[int]:
    """The positions of a vector in a file, read without a check but that of its size."""
    start, size = descriptor["offset"], descriptor["sizeInBytes"]
    assert struct.unpack_from(">I", data, start) == (size,)
    return list(BitMap64.deserialize(data[start + 8 : start + 4 + size]))
