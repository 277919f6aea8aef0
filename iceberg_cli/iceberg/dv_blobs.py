"""Deletion vectors in Puffin files: taken out with every check, joined, and written into new files.

Spec: Puffin "deletion-vector-v1 blob type"; Iceberg v3 "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from iceberg_cli import __version__
from iceberg_cli.deletion_vector import DeletionVector, Positions, decode, encode, unproven
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.puffin import (
    DELETION_VECTOR,
    BlobMetadata,
    Footer,
    deletion_vector_blob,
    read_footer,
    write,
)

_VECTORS_AT_ONCE: Final = 256
CREATED_BY: Final = {"created-by": f"iceberg-cli {__version__}"}


@dataclass(frozen=True, slots=True)
class Found:
    """A Puffin file's wanted blobs, in the order that was asked for, and the bytes of those that nobody wanted."""

    blobs: list[bytes]
    dead_bytes: int


def read_vectors(data: bytes, path: str, wanted: pa.Table) -> Found:
    """Take deletion vectors out of a Puffin file.

    Args:
        data: the file, whole.
        path: for messages.
        wanted: see `vectors_in`; every live entry of the file.

    Raises:
        CorruptFile: see `vectors_in`.
    """
    footer = _footer(data, path, wanted)
    live = set(wanted["offset"].to_pylist())
    dead = [b.length for b in footer.blobs if b.type == DELETION_VECTOR and b.offset not in live]
    return Found(list(_vectors(data, path, footer, wanted)), sum(dead))


def vectors_in(data: bytes, path: str, wanted: pa.Table) -> Iterator[bytes]:
    """Deletion vectors of a Puffin file, one after the other.

    Args:
        data: the file, whole.
        path: for messages.
        wanted: `file_size`, `offset`, `size`, `ref`, `record_count`, and `last_row`, the data file's last position,
            or -1 where it is not known.

    Raises:
        CorruptFile: the file has another length than the entries say, its footer has another blob at such a place or
            none, or a blob is no sound deletion vector.
    """
    return _vectors(data, path, _footer(data, path, wanted), wanted)


def _footer(data: bytes, path: str, wanted: pa.Table) -> Footer:
    said = pc.unique(wanted["file_size"]).to_pylist()
    if said not in ([], [len(data)]):
        raise CorruptFile(
            path, None, f"the file has {len(data)} bytes, manifests say {', '.join(map(str, said))}"
        )
    return read_footer(data, len(data), path)


def _vectors(data: bytes, path: str, footer: Footer, wanted: pa.Table) -> Iterator[bytes]:
    places = {blob.offset: blob for blob in footer.blobs}
    names = ("offset", "size", "ref", "record_count", "last_row")
    for begin in range(0, len(wanted), _VECTORS_AT_ONCE):
        part = wanted.slice(begin, _VECTORS_AT_ONCE)
        offsets, sizes, refs, cardinalities, last_rows = (part[name].to_pylist() for name in names)
        for offset, size, ref, cardinality in zip(offsets, sizes, refs, cardinalities, strict=True):
            _check_place(places.get(offset), offset, size, ref, cardinality, path)
        blobs = [data[offset : offset + size] for offset, size in zip(offsets, sizes, strict=True)]
        for row in unproven(blobs, cardinalities, last_rows):
            last = last_rows[row]
            try:
                decode(
                    blobs[row], path, cardinality=cardinalities[row], max_position=None if last < 0 else last
                )
            except CorruptFile as error:
                at = offsets[row] + error.offset if isinstance(error.offset, int) else error.offset
                raise CorruptFile(path, at, error.reason) from error
        yield from blobs


def _check_place(
    blob: BlobMetadata | None, offset: int, size: int, ref: str, cardinality: int, path: str
) -> None:
    """A manifest entry against the footer's row of the blob at its offset."""
    if blob is None or blob.type != DELETION_VECTOR or blob.length != size:
        found = "no blob" if blob is None else f"a blob {blob.type} of {blob.length} bytes"
        raise CorruptFile(
            path, offset, f"a manifest says a deletion vector of {size} bytes, the footer {found}"
        )
    if blob.compression_codec is not None:
        raise CorruptFile(path, offset, f"a deletion vector compressed with {blob.compression_codec}")
    said = blob.properties.get("referenced-data-file"), blob.properties.get("cardinality")
    if said != (ref, str(cardinality)):
        reason = f"the footer says {said[1]} positions of {said[0]}, a manifest {cardinality} of {ref}"
        raise CorruptFile(path, offset, reason)


def vector_of(blob: bytes) -> DeletionVector:
    """A blob that was checked or encoded here before."""
    return DeletionVector(BitMap64.deserialize(blob[8:-4]))


def positions_in(blob: bytes) -> Positions:
    """The positions of a blob that was checked or encoded here before, ascending."""
    positions: Positions = np.frombuffer(vector_of(blob).bitmap.to_array(), np.uint64)
    return positions


def joined(blobs: Sequence[bytes], *, record_count: int) -> tuple[bytes, int, int]:
    """One deletion vector of several.

    Args:
        blobs: encoded here, at least one.
        record_count: rows of the data file; positions behind its end delete nothing and are left out.

    Returns:
        The blob, its cardinality and the sum of its positions modulo 2^64; an empty blob where no position is left.
    """
    vector = vector_of(blobs[0]).bitmap
    for blob in blobs[1:]:
        vector |= vector_of(blob).bitmap
    positions: Positions = np.frombuffer(vector.to_array(), np.uint64)
    inside = positions[: np.searchsorted(positions, np.uint64(record_count))]
    whole = len(blobs) == 1 and len(inside) == len(positions)
    blob = blobs[0] if whole else encode(inside) if len(inside) else b""
    return blob, len(inside), int(inside.sum(dtype=np.uint64))


def lacking(vector: bytes, others: Sequence[bytes], *, record_count: int) -> int:
    """How many positions below `record_count` of the others a deletion vector does not have."""
    own = vector_of(vector).bitmap
    missing = BitMap64()
    for other in others:
        missing |= vector_of(other).bitmap - own
    rank: int = missing.rank(record_count - 1) if record_count else 0
    return rank


def puffin_file(refs: Sequence[str], cardinalities: Sequence[int], blobs: Iterator[bytes]) -> bytes:
    """A Puffin file of n deletion vectors, in their order."""
    rows = [
        deletion_vector_blob(blob, referenced_data_file=ref, cardinality=cardinality)
        for ref, cardinality, blob in zip(refs, cardinalities, blobs, strict=True)
    ]
    return write(rows, CREATED_BY)
