"""Deletion vectors of Delta: files of them, and those in the log itself.

A file is one version byte, then for each vector its size, its data and their CRC-32, which is the frame that
`iceberg_cli.encoding.deletion_vector` reads. A descriptor's `offset` is that of the size, its `sizeInBytes` counts the
data. A vector in the log is the data alone, in Z85.

Spec: "Deletion Vector Descriptor Schema", "Deletion Vector Format", "Deletion Vector File Storage Format".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from iceberg_cli.delta.spec.paths import z85_decode, z85_encode
from iceberg_cli.encoding.deletion_vector import decode, unproven
from iceberg_cli.encoding.deletion_vector.framing import MAGIC, framed
from iceberg_cli.errors import CorruptFile

VERSION: Final = b"\x01"
FRAME_BYTES: Final = 8  # size and CRC-32 around the data
MAX_FILE_BYTES: Final = 2**31 - 1  # offsets are 32-bit
FIRST_OFFSET: Final = len(VERSION)
UNKNOWN: Final = -1  # of a last row

_NAME: Final = "deletion_vector_"
_SUFFIX: Final = ".bin"
_Z85_GROUP: Final = 4  # bytes; what is encoded is filled up to a multiple


class Vector(NamedTuple):
    """One vector of a file, by its descriptor."""

    offset: int
    size_bytes: int  # of the data
    cardinality: int
    last_row: int  # the last position of the data file, or `UNKNOWN`


class VectorFile(NamedTuple):
    """A file of vectors, and the vectors to read from it."""

    path: str
    data: bytes
    vectors: Sequence[Vector]


def read_vectors(files: Sequence[VectorFile]) -> list[list[bytes]]:
    """The frames of the requested vectors, checked.

    Returns:
        For each of n files the frames of its vectors, in their order.

    Raises:
        CorruptFile: a file has another version; a vector is not inside of it; a size, the magic, a CRC-32, the bitmap,
            its cardinality or a position is wrong.
    """
    frames = [[_frame(file, vector) for vector in file.vectors] for file in files]
    vectors = [(file.path, vector) for file in files for vector in file.vectors]
    flat = [frame for each in frames for frame in each]
    doubtful = unproven(
        flat, [vector.cardinality for _, vector in vectors], [vector.last_row for _, vector in vectors]
    )
    for index in doubtful:
        path, vector = vectors[index]
        _check(flat[index], vector, path, at=vector.offset)
    return frames


def read_inline(text: str, vector: Vector, path: str) -> bytes:
    """The frame of a vector in the log, checked.

    Args:
        text: Z85.
        vector: its offset does not count.
        path: of the data file, for messages.

    Raises:
        CorruptFile: as `read_vectors`.
    """
    where = "deletionVector.pathOrInlineDv"
    try:
        data = z85_decode(text)
    except ValueError as error:
        raise CorruptFile(path, where, str(error)) from None
    if not 0 <= len(data) - vector.size_bytes < _Z85_GROUP:
        raise CorruptFile(path, where, f"it has {len(data)} bytes, and sizeInBytes is {vector.size_bytes}")
    data = data[: vector.size_bytes]
    if data[: len(MAGIC)] != MAGIC:
        raise CorruptFile(path, where, f"magic {data[: len(MAGIC)].hex()} instead of {MAGIC.hex()}")
    frame = framed(data[len(MAGIC) :])
    _check(frame, vector, path)
    return frame


def frame_of(path: str, version: bytes, frame: bytes, vector: Vector) -> bytes:
    """The frame of a vector of which no more of its file was read, checked.

    Args:
        path: of the file.
        version: its first byte.
        frame: what was read at the vector's offset.
        vector: its descriptor.

    Raises:
        CorruptFile: as `read_vectors`.
    """
    if version != VERSION:
        raise CorruptFile(path, 0, f"version {version.hex() or 'none'} of a file of deletion vectors")
    if vector.offset < FIRST_OFFSET or len(frame) != vector.size_bytes + FRAME_BYTES:
        raise CorruptFile(
            path, vector.offset, f"a deletion vector of {vector.size_bytes} bytes is not inside the file"
        )
    _check(frame, vector, path, at=vector.offset)
    return frame


def vector_file(frames: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """A file of n vectors, and the offset of each.

    Raises:
        ValueError: an offset would be beyond 32 bits.
    """
    offsets, at = [], FIRST_OFFSET
    for frame in frames:
        offsets.append(at)
        at += len(frame)
    if at > MAX_FILE_BYTES:
        raise ValueError(f"Cannot write deletion vectors: their file would have {at} bytes")
    return VERSION + b"".join(frames), offsets


def name_in_log(path: str) -> str:
    """The `pathOrInlineDv` of a file of vectors in the table's folder.

    Raises:
        ValueError: its name holds no UUID.
    """
    name = path.rpartition("/")[2]
    return z85_encode(UUID(name.removeprefix(_NAME).removesuffix(_SUFFIX)).bytes)


def _frame(file: VectorFile, vector: Vector) -> bytes:
    if file.data[: len(VERSION)] != VERSION:
        raise CorruptFile(
            file.path, 0, f"version {file.data[:1].hex() or 'none'} of a file of deletion vectors"
        )
    end = vector.offset + vector.size_bytes + FRAME_BYTES
    if vector.offset < FIRST_OFFSET or end > len(file.data):
        raise CorruptFile(
            file.path,
            vector.offset,
            f"a deletion vector of {vector.size_bytes} bytes is not inside the file of {len(file.data)}",
        )
    return file.data[vector.offset : end]


def _check(frame: bytes, vector: Vector, path: str, *, at: int | None = None) -> None:
    last = None if vector.last_row == UNKNOWN else vector.last_row
    try:
        decode(frame, path, cardinality=vector.cardinality, max_position=last)
    except CorruptFile as error:
        if at is None:
            raise CorruptFile(path, "deletionVector.pathOrInlineDv", error.reason) from None
        inside = error.offset if isinstance(error.offset, int) else 0
        raise CorruptFile(path, at + inside, error.reason) from None
