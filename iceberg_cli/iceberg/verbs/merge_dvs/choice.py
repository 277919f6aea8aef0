"""merge-dvs: which position deletes become deletion vectors, and which Puffin files are written again.

Columns only; nothing is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, POSITIONS, VECTOR, Bools, Ints
from iceberg_cli.iceberg.verbs.merge_dvs.index import SOUND, DeleteIndex

FOOTER_BYTES: Final = 200  # of one deletion vector in a Puffin footer, without its data file's path


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The position delete files that are removed, and the data files that get a deletion vector instead.

    Args:
        leaving: for each delete whether it is a position delete file that is removed.
        targets: rows of `data` that get a deletion vector.
        sequence_numbers: of these vectors: the greatest of the delete files merged in each.
    """

    leaving: Bools
    targets: Ints
    sequence_numbers: Ints


def allowed(index: DeleteIndex, shown: Mapping[int, frozenset[str]] | None) -> Bools:
    """Whether each delete may be changed: --where selects it and, on a base that moved, the plan had shown it.

    Args:
        index: of the base.
        shown: paths by kind; None for no limit.
    """
    chosen: Bools = index.deletes["chosen"].to_numpy().copy()
    if shown is not None:
        for kind, paths in shown.items():
            mine = np.flatnonzero(index.kinds == kind)
            listed = pc.is_in(
                index.deletes["path"].take(pa.array(mine)), value_set=pa.array(sorted(paths), pa.string())
            )
            chosen[mine] &= listed.to_numpy()
    return chosen


def covered(index: DeleteIndex, may: Bools) -> Ints:
    """Data files whose deletion vector must be compared with older position deletes before these may go."""
    applied = index.part_data >= 0
    named = np.unique(index.part_data[applied & may[index.part_delete]])
    found: Ints = named[(index.vector[named] >= 0) & (index.blocked[named] == SOUND)]
    return found


def convert(index: DeleteIndex, may: Bools, *, keep_dangling: bool) -> Conversion:
    """Choose position delete files to remove whole, and data files to get a vector of all that applies to them."""
    stays = ~may | (index.kinds != POSITIONS)
    applied = np.flatnonzero(index.part_data >= 0)
    held = index.blocked[index.part_data[applied]] != SOUND
    stays[index.part_delete[applied[held]]] = True
    leaving = ~stays
    if keep_dangling:
        leaving &= ~index.dangling
    owners, files = index.part_delete[applied], index.part_data[applied]
    targets = np.unique(files[leaving[owners] & (index.vector[files] < 0)])
    greatest = np.full(len(index.data), -1, np.int64)
    np.maximum.at(greatest, files, index.column("sequence_number")[owners])
    return Conversion(leaving=leaving, targets=targets, sequence_numbers=greatest[targets])


@dataclass(frozen=True, slots=True, kw_only=True)
class Puffins:
    """The Puffin files that hold live deletion vectors: n files.

    Args:
        paths: n.
        file: for each delete its index in `paths`, or -1.
        vectors: number of live deletion vectors in each.
        live_bytes: of their blobs.
        weight: of their blobs with their part of the footer.
        file_bytes: of the whole file.
        movable: whether every one of its vectors may be moved.
        dangling: number of vectors without a live data file that are removed.
    """

    paths: pa.Array
    file: Ints
    vectors: Ints
    live_bytes: Ints
    weight: Ints
    file_bytes: Ints
    movable: Bools
    dangling: Ints

    def suspects(self, ratio: float) -> Bools:
        """Files that may have this ratio of dead bytes; only the footer shows how many there are."""
        outside = self.file_bytes - self.live_bytes
        return self.movable & (outside >= ratio * self.file_bytes)


def puffins(index: DeleteIndex, may: Bools, *, keep_dangling: bool) -> Puffins:
    """The Puffin files of an index. Dangling vectors count as dead, unless they are kept."""
    rows = np.flatnonzero(index.kinds == VECTOR)
    encoded = index.deletes["path"].take(pa.array(rows)).combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    count = len(encoded.dictionary)
    file = np.full(len(index.kinds), -1, np.int64)
    file[rows] = codes
    named = index.vector_data[rows]
    blocked = (
        (named >= 0) & (index.blocked[named] != SOUND) if len(index.data) else np.zeros(len(rows), np.bool_)
    )
    held = ~may[rows] | blocked
    gone = index.dangling[rows] & (not keep_dangling)
    sizes, stays = index.column("size")[rows], ~gone
    weights = weights_of(sizes, index.deletes["ref"].take(pa.array(rows)))
    file_bytes = np.zeros(count, np.int64)
    np.maximum.at(file_bytes, codes, index.column("file_size")[rows])
    return Puffins(
        paths=encoded.dictionary,
        file=file,
        vectors=np.bincount(codes, minlength=count),
        live_bytes=_sums(codes[stays], sizes[stays], count),
        weight=_sums(codes[stays], weights[stays], count),
        file_bytes=file_bytes,
        movable=np.bincount(codes[held], minlength=count) == 0,
        dangling=np.bincount(codes[gone & may[rows]], minlength=count),
    )


def weights_of(sizes: Ints, refs: pa.Array | pa.ChunkedArray) -> Ints:
    """About how many bytes deletion vectors take in a Puffin file, footer included."""
    lengths = pc.fill_null(pc.binary_length(refs), 0).to_numpy()
    weights: Ints = sizes + lengths + FOOTER_BYTES
    return weights


def small(found: Puffins, due: Bools, last_weight: int, *, target_bytes: int, min_files: int) -> Bools:
    """Which Puffin files are merged because they are small: all small ones, or none if there are too few.

    A file is small up to half the target. All that is written but its last file reaches the target, so at most one
    new file is small: it counts with the others, and a second run finds too few.

    Args:
        found: n files.
        due: which of them are written again in any case.
        last_weight: of the last file that is written in any case; 0 for none.
        target_bytes: of a new file.
        min_files: fewer small ones stay as they are; never fewer than two.
    """
    least = target_bytes // 2
    candidates = found.movable & ~due & (found.weight <= least) & (found.weight > 0)
    count = int(candidates.sum()) + (0 < last_weight <= least)
    return candidates if count >= max(min_files, 2) else np.zeros_like(candidates)


def rolled(weights: Ints, target_bytes: int) -> Ints:
    """Cut a sequence of vectors into files: each is closed once it has reached the target.

    Returns:
        The index of each vector's file.
    """
    ends = np.cumsum(weights)
    numbers = np.zeros(len(weights), np.int64)
    start, base = 0, 0
    while start < len(weights):
        stop = int(np.searchsorted(ends, base + target_bytes)) + 1
        numbers[stop:] += 1
        start = stop
        base = int(ends[min(stop, len(ends)) - 1])
    return numbers


def idle_equality(index: DeleteIndex, may: Bools) -> Bools:
    """Equality delete files that apply to no live data file."""
    idle: Bools = (index.kinds == EQUALITY) & index.dangling & may
    return idle


def _sums(codes: Any, values: Ints, count: int) -> Ints:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, values)
    return sums
