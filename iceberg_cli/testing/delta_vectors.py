"""Deletion vectors of Delta tables as other writers make them: by pyroaring, zlib and struct only.

Spec: "Deletion Vectors", "Deletion Vector Format"; ZeroMQ RFC 32, Z85.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from pyroaring import BitMap64

MAGIC = 1681511377
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85_encode(data: bytes) -> str:
    """Bytes as text, five characters for each four."""
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(_Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))


def z85_decode(text: str) -> bytes:
    """Text as bytes, four for each five characters."""
    digits = [_Z85.index(each) for each in text]
    words = [sum(digits[i + k] * 85 ** (4 - k) for k in range(5)) for i in range(0, len(digits), 5)]
    return struct.pack(f">{len(words)}I", *words)


def vector_file(descriptor: Mapping[str, Any], root: str) -> str | None:
    """The path of the file with a vector; None for one in the log itself."""
    name = descriptor["pathOrInlineDv"]
    match descriptor["storageType"]:
        case "i":
            return None
        case "p":
            return str(name)
        case _:
            folder = f"{name[:-20]}/" if len(name) > 20 else ""
            return f"{root}/{folder}deletion_vector_{UUID(bytes=z85_decode(name[-20:]))}.bin"


def data_of(positions: Iterable[int]) -> bytes:
    """What `sizeInBytes` counts: magic and bitmap, little-endian."""
    return struct.pack("<I", MAGIC) + BitMap64(list(positions)).serialize()


def frame_of(positions: Iterable[int]) -> bytes:
    """Size, data, CRC-32, big-endian."""
    data = data_of(positions)
    return struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def vector_file_name(number: int) -> str:
    """The name of the file of vectors whose UUID is this number."""
    return f"deletion_vector_{UUID(int=number)}.bin"


def vector_name(number: int) -> str:
    """What a descriptor calls that file."""
    return z85_encode(UUID(int=number).bytes)


def a_vector_file(number: int, *vectors: Iterable[int]) -> tuple[str, bytes, list[dict[str, Any]]]:
    """A file of the positions of each vector: its name below the table, its bytes, the descriptors of the vectors."""
    data, found = b"\x01", []
    for positions in map(list, vectors):
        frame = frame_of(positions)
        descriptor = {
            "storageType": "u",
            "pathOrInlineDv": vector_name(number),
            "offset": len(data),
            "sizeInBytes": len(frame) - 8,
            "cardinality": len(positions),
        }
        found.append(descriptor)
        data += frame
    return vector_file_name(number), data, found


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


def positions_in(data: bytes, descriptor: dict[str, Any]) -> list[int]:
    """The positions of a vector in a file, read without a check but that of its size."""
    start, size = descriptor["offset"], descriptor["sizeInBytes"]
    assert struct.unpack_from(">I", data, start) == (size,)
    return list(BitMap64.deserialize(data[start + 8 : start + 4 + size]))
