"""merge-dvs on Delta: which deletion vectors are copied into new files, and what the commit says of their data files.

A file of deletion vectors is written anew where it is small, up to half the target, or where the part of it that no
data file of the table needs reaches the ratio. A vector in the log counts as one small file: every checkpoint and every
reader of the log carries it. What is outside the table's folder belongs to another table, and stays.

Each data file is in the commit twice: its `remove` with the old vector, and its `add` with the new one and everything
else as it was. An add alone would leave it in the table twice, for its vector is part of what identifies it.

Columns only; nothing is read here.
Spec: "Deletion Vectors", "Action Reconciliation", "Add File and Remove File".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.paths import dv_path_column
from iceberg_cli.delta.spec.row_ids import UNKNOWN, record_counts
from iceberg_cli.delta.spec.vectors import FIRST_OFFSET, FRAME_BYTES
from iceberg_cli.errors import CorruptFile

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

INLINE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """The deletion vectors of active files: n vectors in m files, by file and offset, those in the log last.

    Args:
        adds: the n data files that have them, columns of `columns.ADD` and unknown ones.
        paths: m storage paths.
        file: for each vector the index of its file in `paths`, or `INLINE`.
        offset: of each in its file.
        size_bytes: of its data.
        cardinality: of each.
        rows: of each data file, or `UNKNOWN`.
    """

    adds: pa.Table
    paths: tuple[str, ...]
    file: Int64s
    offset: Int64s
    size_bytes: Int64s
    cardinality: Int64s
    rows: Int64s

    def descriptors(self, indices: Int64s) -> Int64s:
        """What descriptors and statistics say of some of the n: a row for each, with the fields of `vectors.Vector`."""
        rows = self.rows[indices]
        last = np.where(rows == UNKNOWN, UNKNOWN, rows - 1)
        columns = [self.offset[indices], self.size_bytes[indices], self.cardinality[indices], last]
        return np.stack(columns, axis=1)

    def live_bytes(self) -> Int64s:
        """Of each of m files, how many bytes its needed vectors take, frames and version included."""
        there = self.file != INLINE
        keys = np.stack([self.file[there], self.offset[there], self.size_bytes[there]])
        file, _, size = np.unique(keys, axis=1)
        live = np.full(len(self.paths), FIRST_OFFSET, np.int64)
        np.add.at(live, file, size + FRAME_BYTES)
        return live


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeChoice:
    """What is merged.

    Args:
        moved: for each of n vectors whether it is copied into a new file.
        files: for each of m files whether its vectors are.
        dead: of each of m files, its bytes that no vector needs.
        small: which of `files` are joined because they are small.
    """

    moved: Bools
    files: Bools
    dead: Int64s
    small: Bools


def vectors_of(adds: pa.Table, root: str) -> Vectors:
    """The deletion vectors of the files of a table.

    Args:
        adds: active files.
        root: the table's storage path.

    Raises:
        CorruptFile: a descriptor names no file, statistics make no sense, or more rows are deleted than there are.
    """
    chosen = adds.filter(pc.is_valid(adds.column("deletionVector"))).combine_chunks()
    vector_paths = dv_path_column(chosen, root)
    paths = pc.unique(vector_paths.drop_null()).sort()
    file = np.asarray(pc.fill_null(pc.index_in(vector_paths, value_set=paths), INLINE).to_numpy(), np.int64)
    offset = _numbers(chosen, "offset", FIRST_OFFSET)
    # Those in the log have no file; they come last, in the order of the log.
    order = np.lexsort((np.where(file == INLINE, 0, offset), np.where(file == INLINE, len(paths), file)))
    ordered = chosen.take(pa.array(order))
    vectors = Vectors(
        adds=ordered,
        paths=tuple(paths.to_pylist()),
        file=file[order],
        offset=offset[order],
        size_bytes=_numbers(ordered, "sizeInBytes", 0),
        cardinality=_numbers(ordered, "cardinality", 0),
        rows=record_counts(ordered),
    )
    excess = np.flatnonzero((vectors.rows != UNKNOWN) & (vectors.cardinality > vectors.rows))
    if len(excess):
        index = int(excess[0])
        raise CorruptFile(
            ordered.column("path")[index].as_py(),
            "deletionVector.cardinality",
            f"{vectors.cardinality[index]} rows are deleted of {vectors.rows[index]}",
        )
    return vectors


def choose(
    vectors: Vectors,
    file_bytes: Int64s,
    *,
    may: Bools,
    may_inline: bool,
    target_bytes: int,
    min_files: int,
    dead_ratio: float,
) -> MergeChoice:
    """Which vectors are copied.

    Args:
        vectors: n of them in m files.
        file_bytes: of the m files.
        may: which of the m files may be written anew.
        may_inline: whether vectors in the log may be moved into files.
        target_bytes: of a new file.
        min_files: fewer small ones stay as they are; never fewer than two.
        dead_ratio: from this part of dead bytes on a file is written anew.

    Raises:
        CorruptFile: a file is shorter than what it should hold.
    """
    live = vectors.live_bytes()
    dead = file_bytes - live
    for file_index in np.flatnonzero(dead < 0).tolist():
        raise CorruptFile(
            vectors.paths[file_index],
            int(file_bytes[file_index]),
            f"the file ends there, and its deletion vectors take {live[file_index]} bytes",
        )
    wasteful = may & (dead > 0) & (dead >= dead_ratio * file_bytes)
    small = may & ~wasteful & (file_bytes <= target_bytes // 2)
    inline = np.flatnonzero(vectors.file == INLINE)
    candidates = int(small.sum()) + (len(inline) if may_inline else 0)
    # The last file that is written may be small again: it counts with the others, and a second run finds too few.
    left = int((live[wasteful] - FIRST_OFFSET).sum()) % target_bytes
    candidates += 0 < left <= target_bytes // 2
    joined = candidates >= max(min_files, 2)
    small &= joined
    files = wasteful | small
    moved = np.zeros(len(vectors.file), np.bool_)
    in_files = vectors.file != INLINE
    moved[in_files] = files[vectors.file[in_files]]
    moved[inline] = joined and may_inline
    return MergeChoice(moved=moved, files=files, dead=dead, small=small)


def outputs(vectors: Vectors, moved: Bools, *, target_bytes: int) -> list[Int64s]:
    """The vectors of each new file, in order; a file is closed once it has reached the target."""
    indices = np.flatnonzero(moved)
    ends = np.cumsum(vectors.size_bytes[indices] + FRAME_BYTES)
    cut, start, base = [], 0, 0
    while start < len(indices):
        stop = min(int(np.searchsorted(ends, base + target_bytes)) + 1, len(indices))
        cut.append(indices[start:stop])
        start, base = stop, int(ends[stop - 1])
    return cut


def _numbers(adds: pa.Table, name: str, default: int) -> Int64s:
    column = pc.struct_field(adds.column("deletionVector"), name)
    return np.asarray(pc.fill_null(column, default).to_numpy(), np.int64)
