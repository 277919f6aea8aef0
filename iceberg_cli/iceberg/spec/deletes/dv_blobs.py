"""Deletion vectors in Puffin files: extracted with every check, merged, and written into new files.

Spec: Puffin "deletion-vector-v1 blob type"; Iceberg v3 "Deletion Vectors".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from iceberg_cli import __version__
from iceberg_cli.encoding.deletion_vector import DeletionVector, Positions, decode, encode, unproven
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.spec.deletes.puffin import (
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
class ExtractedBlobs:
    """The deletion vector blobs of a Puffin file.

    Args:
        blobs: in the order of the request.
        dead_bytes: of the blobs that were not requested.
        out_of_range: indices in `blobs` of those with positions behind the last row of their data file.
    """

    blobs: list[bytes]
    dead_bytes: int
    out_of_range: list[int] = field(default_factory=list)


def read_vectors(files: Sequence[tuple[str, bytes, int]], targets: pa.Table) -> list[ExtractedBlobs]:
    """Take deletion vectors out of Puffin files.

    Args:
        files: of each its path, its bytes, and how many of the rows of `targets` are of it.
        targets: see `vectors_in`; every live entry of the files, file by file.

    Raises:
        CorruptFile: see `vectors_in`; positions behind the last row are no reason.
    """
    found, rows, owners = [], _rows(targets), []
    start = 0
    for path, data, count in files:
        mine = rows[start : start + count]
        footer = _footer(data, path, mine)
        live = {row.offset for row in mine}
        dead = [b.length for b in footer.blobs if b.type == DELETION_VECTOR and b.offset not in live]
        found.append(ExtractedBlobs(_taken(data, path, footer, mine), sum(dead)))
        owners += [path] * count
        start += count
    starts = list(accumulate((len(each.blobs) for each in found), initial=0))
    for row in _check_content([blob for each in found for blob in each.blobs], rows, owners):
        file = bisect_right(starts, row) - 1
        found[file].out_of_range.append(row - starts[file])
    return found


def vectors_in(data: bytes, path: str, targets: pa.Table) -> Iterator[bytes]:
    """Deletion vectors of a Puffin file, one after the other.

    Args:
        data: the file, whole.
        path: for messages.
        targets: `file_size`, `offset`, `size`, `ref`, `record_count`, and `last_row`, the data file's last position,
            or -1 where it is not known.

    Raises:
        CorruptFile: the file has another length than the entries say, its footer has another blob at such a place or
            none, a blob is no sound deletion vector, or it has positions behind the last row of its data file.
    """
    rows = _rows(targets)
    footer = _footer(data, path, rows)
    for begin in range(0, len(rows), _VECTORS_AT_ONCE):
        part = rows[begin : begin + _VECTORS_AT_ONCE]
        blobs = _taken(data, path, footer, part)
        for index in _check_content(blobs, part, [path] * len(part)):
            row = part[index]
            raise CorruptFile(
                path, row.offset, f"it has positions behind {row.last_row}, the last row of {row.ref}"
            )
        yield from blobs


class _Row(NamedTuple):
    """A deletion vector's manifest entry, and the last position of its data file or -1."""

    file_size: int
    offset: int
    size: int
    ref: str
    record_count: int
    last_row: int


def _rows(targets: pa.Table) -> list[_Row]:
    return list(map(_Row, *(targets[name].to_pylist() for name in _Row._fields)))


def _footer(data: bytes, path: str, rows: Sequence[_Row]) -> Footer:
    stated = sorted({row.file_size for row in rows})
    if stated not in ([], [len(data)]):
        raise CorruptFile(
            path, None, f"the file has {len(data)} bytes, manifests say {', '.join(map(str, stated))}"
        )
    return read_footer(data, len(data), path)


def _taken(data: bytes, path: str, footer: Footer, rows: Sequence[_Row]) -> list[bytes]:
    """The blobs at the offsets on which manifest and footer agree."""
    places = {blob.offset: blob for blob in footer.blobs}
    for row in rows:
        _check_place(places.get(row.offset), row.offset, row.size, row.ref, row.record_count, path)
    return [data[row.offset : row.offset + row.size] for row in rows]


def _check_content(blobs: Sequence[bytes], rows: Sequence[_Row], paths: Sequence[str]) -> list[int]:
    """Blobs are sound deletion vectors, with as many positions as manifests say.

    Returns:
        Places of those with positions behind the last row.
    """
    out_of_range = []
    for begin in range(0, len(rows), _VECTORS_AT_ONCE):
        some = slice(begin, begin + _VECTORS_AT_ONCE)
        cardinalities, last_rows = [r.record_count for r in rows[some]], [r.last_row for r in rows[some]]
        for index in unproven(blobs[some], cardinalities, last_rows):
            row, path = rows[begin + index], paths[begin + index]
            try:
                vector = decode(blobs[begin + index], path, cardinality=row.record_count)
            except CorruptFile as error:
                at = row.offset + error.offset if isinstance(error.offset, int) else error.offset
                raise CorruptFile(path, at, error.reason) from error
            if row.last_row >= 0 and vector.cardinality and vector.bitmap.max() > row.last_row:
                out_of_range.append(begin + index)
    return out_of_range


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
    stated = blob.properties.get("referenced-data-file"), blob.properties.get("cardinality")
    if stated != (ref, str(cardinality)):
        reason = f"the footer says {stated[1]} positions of {stated[0]}, a manifest {cardinality} of {ref}"
        raise CorruptFile(path, offset, reason)


def vector_of(blob: bytes) -> DeletionVector:
    """A blob that was checked or encoded here before."""
    return DeletionVector(BitMap64.deserialize(blob[8:-4]))


def positions_in(blob: bytes) -> Positions:
    """The positions of a blob that was checked or encoded here before, ascending."""
    positions: Positions = np.frombuffer(vector_of(blob).bitmap.to_array(), np.uint64)
    return positions


def merge_vectors(blobs: Sequence[bytes], *, record_count: int) -> tuple[bytes, int, int]:
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


def missing_positions(vector: bytes, others: Sequence[bytes], *, record_count: int) -> int:
    """How many positions below `record_count` of the others a deletion vector does not have."""
    own = vector_of(vector).bitmap
    missing = BitMap64()
    for other in others:
        missing |= vector_of(other).bitmap - own
    rank: int = missing.rank(record_count - 1) if record_count else 0
    return rank


def puffin_file(
    refs: Sequence[str], cardinalities: Sequence[int], blobs: Iterator[bytes | memoryview]
) -> bytes:
    """A Puffin file of n deletion vectors, in their order."""
    rows = [
        deletion_vector_blob(blob, referenced_data_file=ref, cardinality=cardinality)
        for ref, cardinality, blob in zip(refs, cardinalities, blobs, strict=True)
    ]
    return write(rows, CREATED_BY)
