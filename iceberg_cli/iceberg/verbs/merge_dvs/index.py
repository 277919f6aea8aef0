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

from iceberg_cli.iceberg.branch.entry_columns import (
    EQUALITY,
    POSITIONS,
    UNREADABLE,
    VECTOR,
    Bools,
    Ints,
    PathKeys,
)
from iceberg_cli.iceberg.reachability.keys import Keys, key_set, keys_of
from iceberg_cli.iceberg.spec.deletes.position_deletes import TOP
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.paths import path_key_column

FROZEN: Final = (
    "",
    "has more than one deletion vector, so readers fail",
    "has a deletion vector of another partition or of before its time, which readers take differently",
    "is listed twice",
    "has position deletes in a file that cannot be read here",
    "is named by position deletes of another partition, which readers take differently",
    "has a deletion vector that lacks older position deletes: an earlier tool lost deletes or revived rows",
    "is named by position deletes whose entry says that they name another one, which readers take differently",
    "is named by deletes that spell its path in another way, which readers take differently",
    "has a deletion vector with positions behind its last row, which readers ignore",
)
SOUND, TWO_VECTORS, STRAY_VECTOR, LISTED_TWICE, HIDDEN_DELETES, OTHER_PARTITION, LOST_DELETES = range(7)
OTHER_REFERENCE, OTHER_SPELLING, BEHIND_END = 7, 8, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteIndex:
    """Live deletes, the data files that they name, and which applies to which.

    Args:
        deletes: d rows, see `all_deletes`.
        parts: p rows, see `read_parts`: one for each data file that a position delete file names.
        data: f live data files that a delete names.
        vector: for each data file the row in `deletes` of the deletion vector that applies, or -1.
        blocked: for each data file which of `FROZEN` forbids to change its deletes; 0 for none.
        part_delete: for each part its row in `deletes`.
        part_data: for each part the row in `data` that it applies to, or -1 for none.
        vector_data: for each delete the row in `data` that it, a deletion vector, names, or -1.
        dangling: for each delete whether it applies to no live data file.
        kinds: of each delete; a position delete file that contradicts its entry counts as unreadable.
    """

    deletes: pa.Table
    parts: pa.Table
    data: pa.Table
    vector: Ints
    blocked: npt.NDArray[np.int8]
    part_delete: Ints
    part_data: Ints
    vector_data: Ints
    dangling: Bools
    kinds: npt.NDArray[np.int8] = field(repr=False)

    def column(self, name: str) -> npt.NDArray[Any]:
        """A number column of `deletes`; null as -1."""
        return _numbers(self.deletes[name])


def target_paths(deletes: pa.Table, parts: pa.Table, path_keys: PathKeys = path_key_column) -> Keys:
    """Hashes of the keys of every path that a deletion vector or a position delete names, sorted."""
    vectors = deletes.filter(pc.equal(deletes["kind"], VECTOR))["ref"]
    return key_set([keys_of(path_keys(pc.unique(named))) for named in (vectors, parts["path"])])


def index(
    deletes: pa.Table,
    parts: pa.Table,
    data: pa.Table,
    oldest: pa.Table | None,
    specs: Sequence[PartitionSpec],
    path_keys: PathKeys = path_key_column,
) -> DeleteIndex:
    """Match deletes with the data files that they apply to.

    Args:
        deletes: live entries of all delete manifests.
        parts: contents of the position delete files.
        data: live data files, among them all that a delete names, in whatever spelling.
        oldest: lowest data sequence number of each partition with live data; needed for equality deletes only. None:
            no equality delete counts as dangling.
        specs: of the table.
        path_keys: see `EntryReader`.
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
    spelled_alike = path_keys(known).dictionary_encode().indices.to_numpy()
    twice |= np.bincount(spelled_alike, minlength=len(known))[spelled_alike] > 1
    # What is newer than one listing of a file may be older than another one.
    data_sequence = np.full(len(known), np.iinfo(np.int64).max)
    np.minimum.at(data_sequence, to_file, data["sequence_number"].to_numpy())
    data = data.take(pa.array(first))
    blocked = np.where(twice, LISTED_TWICE, SOUND).astype(np.int8)
    keys = pa.chunked_array([*deletes["key"].chunks, *data["key"].chunks], pa.binary()).combine_chunks()
    groups = keys.dictionary_encode().indices.to_numpy()
    delete_group, data_group = groups[: len(deletes)], groups[len(deletes) :]
    sequence = deletes["sequence_number"].to_numpy()

    vector_data = np.full(len(deletes), -1, np.int64)
    vectors = np.flatnonzero(kinds == VECTOR)
    vector_data[vectors], spelled = _named(deletes["ref"].take(pa.array(vectors)), data["path"], path_keys)
    vectors = np.flatnonzero(vector_data >= 0)
    files = vector_data[vectors]
    stray = (delete_group[vectors] != data_group[files]) | (sequence[vectors] < data_sequence[files])
    blocked[files[stray]] = STRAY_VECTOR
    blocked[np.bincount(files, minlength=len(data)) > 1] = TWO_VECTORS
    vector = np.full(len(data), -1, np.int64)
    vector[files] = vectors

    part_data, spelled_too = _named(parts["path"], data["path"], path_keys)
    named = np.flatnonzero(part_data >= 0)
    newer = data_sequence[part_data[named]] > sequence[part_delete[named]]
    newer &= ~twice[part_data[named]]
    elsewhere = delete_group[part_delete[named]] != data_group[part_data[named]]
    blocked[part_data[named[elsewhere & ~newer]]] = OTHER_PARTITION
    odd = _contradicting(deletes["only"], parts["path"], part_delete)
    blocked[part_data[named[odd[part_delete[named]]]]] = OTHER_REFERENCE
    part_data[named[newer]] = -1
    _block_hidden(
        blocked,
        kinds,
        delete_group,
        sequence,
        data_group,
        data_sequence,
        deletes["ref"],
        data["path"],
        path_keys,
    )
    kinds[odd] = UNREADABLE
    far = part_data[(parts["last"].to_numpy() >= TOP) & (part_data >= 0)]
    blocked[far[data["record_count"].to_numpy()[far] > TOP]] = HIDDEN_DELETES
    blocked[spelled] = blocked[spelled_too] = OTHER_SPELLING

    dangling = (kinds == VECTOR) & (vector_data < 0)
    needed = np.zeros(len(deletes), np.bool_)
    needed[part_delete[part_data >= 0]] = True
    dangling |= (kinds == POSITIONS) & ~needed
    if oldest is not None:
        dangling |= _idle_equality(deletes, kinds, oldest, specs)
    return DeleteIndex(
        deletes=deletes, parts=parts, data=data, vector=vector, blocked=blocked, part_delete=part_delete,
        part_data=part_data, vector_data=vector_data, dangling=dangling, kinds=kinds,
    )  # fmt: skip


def _contradicting(only: pa.ChunkedArray, named: pa.ChunkedArray, part_delete: Ints) -> Bools:
    """The delete files with rows of another data file than the one that their entry names."""
    found = np.zeros(len(only), np.bool_)
    other = pc.not_equal(only.take(pa.array(part_delete)), named.cast(pa.binary()))
    found[part_delete[pc.fill_null(other, fill_value=False).to_numpy()]] = True
    return found


def _block_hidden(
    blocked: npt.NDArray[np.int8], kinds: npt.NDArray[np.int8], delete_group: npt.NDArray[np.int32], sequence: Ints,
    data_group: npt.NDArray[np.int32], data_sequence: Ints, refs: pa.ChunkedArray, paths: pa.ChunkedArray,
    path_keys: PathKeys,
) -> None:  # fmt: skip
    """Block data files that an unreadable delete file may apply to: the one it names, or all of its partition."""
    hidden = np.flatnonzero(kinds == UNREADABLE)
    only = _named(refs.take(pa.array(hidden)).fill_null(""), paths, path_keys)[0] if len(hidden) else hidden
    nameless = refs.take(pa.array(hidden)).is_null().to_numpy() if len(hidden) else hidden
    for row, file, all_files in zip(hidden.tolist(), only.tolist(), nameless.tolist(), strict=True):
        if not all_files:
            blocked[file] = HIDDEN_DELETES if file >= 0 else blocked[file]
            continue
        reached = (data_group == delete_group[row]) & (data_sequence <= sequence[row]) & (blocked == SOUND)
        blocked[reached] = HIDDEN_DELETES


def _idle_equality(
    deletes: pa.Table, kinds: npt.NDArray[np.int8], oldest: pa.Table, specs: Sequence[PartitionSpec]
) -> Bools:
    """Equality deletes that are not newer than any data file that they may apply to."""
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


def _named(names: pa.ChunkedArray, paths: pa.ChunkedArray, path_keys: PathKeys) -> tuple[Ints, Ints]:
    """Index of each name in `paths`, in this spelling or else in another, or -1; and paths named in another one."""
    places = _places(names, paths)
    missing = np.flatnonzero(places < 0)
    if not len(missing) or not len(paths):
        return places, np.empty(0, np.int64)
    keys = path_keys(paths.combine_chunks())
    targets = path_keys(names.take(pa.array(missing)).combine_chunks())
    places[missing] = _places(targets, keys)
    return places, np.flatnonzero(pc.is_in(keys, value_set=pc.unique(targets)).to_numpy(zero_copy_only=False))


def _places(values: pa.Array | pa.ChunkedArray, known: pa.Array | pa.ChunkedArray) -> Ints:
    """Index of each value in `known`, or -1."""
    value_set = known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known
    found = pc.index_in(values, value_set=value_set, skip_nulls=True)
    places: Ints = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return places


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = pc.fill_null(column, -1).to_numpy()
    return numbers
