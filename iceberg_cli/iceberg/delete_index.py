"""Which delete file or deletion vector applies to which data file, by columns.

Spec: "Scan Planning": a position delete applies within its partition, to data files that are not newer, unless a
deletion vector applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.avro_hash import hash_column
from iceberg_cli.iceberg.delete_columns import EQUALITY, POSITIONS, UNREADABLE, VECTOR, Bools, Ints
from iceberg_cli.iceberg.reachability import NO_KEYS, Keys, key_set
from iceberg_cli.iceberg.specs import PartitionSpec

FROZEN: Final = (
    "",
    "has more than one deletion vector, so readers fail",
    "has a deletion vector of another partition or of before its time, which readers take differently",
    "is listed twice",
    "has position deletes in a file that cannot be read here",
    "is named by position deletes of another partition, which readers take differently",
    "has a deletion vector that lacks older position deletes: an earlier tool lost deletes or revived rows",
)
SOUND, TWO_VECTORS, STRAY_VECTOR, LISTED_TWICE, HIDDEN_DELETES, OTHER_PARTITION, LOST_DELETES = range(7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Live deletes, the data files that they name, and how they belong together.

    Args:
        deletes: d rows, see `delete_columns`.
        parts: p rows of `PARTS_SCHEMA`: what each position delete file says of each data file.
        data: f live data files that something names.
        vector: for each data file the row in `deletes` of the deletion vector that applies, or -1.
        frozen: for each data file which of `FROZEN` forbids to touch its deletes; 0 for none.
        part_delete: for each part its row in `deletes`.
        part_data: for each part the row in `data` that it applies to, or -1 for none.
        vector_data: for each delete the row in `data` that it, a deletion vector, names, or -1.
        dangling: for each delete whether no data file needs it.
    """

    deletes: pa.Table
    parts: pa.Table
    data: pa.Table
    vector: Ints
    frozen: npt.NDArray[np.int8]
    part_delete: Ints
    part_data: Ints
    vector_data: Ints
    dangling: Bools
    kinds: npt.NDArray[np.int8] = field(repr=False)

    def column(self, name: str) -> npt.NDArray[Any]:
        """A number column of `deletes`; null as -1."""
        return _numbers(self.deletes[name])


def wanted_paths(deletes: pa.Table, parts: pa.Table) -> Keys:
    """Sorted hashes of every path that a deletion vector or a position delete names."""
    vectors = deletes.filter(pc.equal(deletes["kind"], VECTOR))["ref"]
    named = pc.unique(parts["path"]) if len(parts) else pa.array([], pa.string())
    return key_set([hash_column(vectors) if len(vectors) else NO_KEYS, hash_column(named)])


def index(
    deletes: pa.Table, parts: pa.Table, data: pa.Table, oldest: pa.Table, specs: Sequence[PartitionSpec]
) -> Index:
    """Bring deletes and data files together.

    Args:
        deletes: live entries of all delete manifests.
        parts: contents of the position delete files.
        data: live data files, of which every one that something names is there.
        oldest: lowest data sequence number of each partition with live data; needed for equality deletes only.
        specs: of the table.
    """
    deletes, parts, data = (table.combine_chunks() for table in (deletes, parts, data))
    kinds = deletes["kind"].to_numpy().copy()
    positions = np.flatnonzero(kinds == POSITIONS)
    names = deletes["path"].take(pa.array(positions))
    part_delete = positions[_places(parts["source"], names)] if len(parts) else np.empty(0, np.int64)
    # Several rows of one path would be taken for one another below.
    known = pc.unique(data["path"])
    to_file = _places(data["path"], known)
    first = np.unique(to_file, return_index=True)[1]
    twice = np.bincount(to_file, minlength=len(known)) > 1
    data = data.take(pa.array(first))
    frozen = np.where(twice, LISTED_TWICE, SOUND).astype(np.int8)
    keys = pa.chunked_array([*deletes["key"].chunks, *data["key"].chunks], pa.binary()).combine_chunks()
    groups = keys.dictionary_encode().indices.to_numpy()
    delete_group, data_group = groups[: len(deletes)], groups[len(deletes) :]
    sequence = deletes["sequence_number"].to_numpy()
    data_sequence = data["sequence_number"].to_numpy()

    vector_data = np.where(kinds == VECTOR, _places(deletes["ref"], data["path"]), -1)
    vectors = np.flatnonzero(vector_data >= 0)
    files = vector_data[vectors]
    stray = (delete_group[vectors] != data_group[files]) | (sequence[vectors] < data_sequence[files])
    frozen[files[stray]] = STRAY_VECTOR
    frozen[np.bincount(files, minlength=len(data)) > 1] = TWO_VECTORS
    vector = np.full(len(data), -1, np.int64)
    vector[files] = vectors

    part_data = _places(parts["path"], data["path"])
    named = np.flatnonzero(part_data >= 0)
    newer = data_sequence[part_data[named]] > sequence[part_delete[named]]
    elsewhere = delete_group[part_delete[named]] != data_group[part_data[named]]
    frozen[part_data[named[elsewhere & ~newer]]] = OTHER_PARTITION
    part_data[named[newer]] = -1
    _freeze_hidden(
        frozen, kinds, delete_group, sequence, data_group, data_sequence, deletes["ref"], data["path"]
    )

    dangling = (kinds == VECTOR) & (vector_data < 0)
    needed = np.zeros(len(deletes), np.bool_)
    needed[part_delete[part_data >= 0]] = True
    dangling |= (kinds == POSITIONS) & ~needed
    dangling |= _idle_equality(deletes, kinds, oldest, specs)
    return Index(
        deletes=deletes, parts=parts, data=data, vector=vector, frozen=frozen, part_delete=part_delete,
        part_data=part_data, vector_data=vector_data, dangling=dangling, kinds=kinds,
    )  # fmt: skip


def _freeze_hidden(
    frozen: npt.NDArray[np.int8], kinds: npt.NDArray[np.int8], delete_group: npt.NDArray[np.int32], sequence: Ints,
    data_group: npt.NDArray[np.int32], data_sequence: Ints, refs: pa.ChunkedArray, paths: pa.ChunkedArray,
) -> None:  # fmt: skip
    """A file that cannot be read may delete rows of any data file of its partition that is not newer."""
    hidden = np.flatnonzero(kinds == UNREADABLE)
    only = _places(refs.take(pa.array(hidden)), paths) if len(hidden) else hidden
    nameless = refs.take(pa.array(hidden)).is_null().to_numpy() if len(hidden) else hidden
    for row, file, all_files in zip(hidden.tolist(), only.tolist(), nameless.tolist(), strict=True):
        if not all_files:
            frozen[file] = HIDDEN_DELETES if file >= 0 else frozen[file]
            continue
        reached = (data_group == delete_group[row]) & (data_sequence <= sequence[row]) & (frozen == SOUND)
        frozen[reached] = HIDDEN_DELETES


def _idle_equality(
    deletes: pa.Table, kinds: npt.NDArray[np.int8], oldest: pa.Table, specs: Sequence[PartitionSpec]
) -> Bools:
    """Equality deletes that are not newer than any data file in their reach."""
    equality: Bools = kinds == EQUALITY
    if not equality.any():
        return np.zeros_like(equality)
    sequence = deletes["sequence_number"].to_numpy()
    lowest = oldest["sequence_number"].to_numpy()
    anywhere = int(lowest.min()) if len(lowest) else None
    places = _places(deletes["key"], oldest["key"])
    if anywhere is None:
        return np.array(equality)
    least = np.where(places >= 0, lowest[places], np.iinfo(np.int64).max)
    # All fields void is as good as no field, as in Java.
    bare = [spec.spec_id for spec in specs if all(field.transform == "void" for field in spec.fields)]
    least[np.isin(deletes["spec_id"].to_numpy(), bare)] = anywhere
    idle: Bools = equality & (least >= sequence)
    return idle


def _places(values: pa.ChunkedArray, known: pa.Array | pa.ChunkedArray) -> Ints:
    """Where each value is in `known`, or -1."""
    value_set = known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known
    found = pc.index_in(values, value_set=value_set, skip_nulls=True)
    places: Ints = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return places


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = pc.fill_null(column, -1).to_numpy()
    return numbers
