"""Which deletes may apply to data files, what changed of files since they were planned, and which deletes are dead.

States are compared, and not their history: of each data file whether it is live as it was, and whether the same deletes
may apply to it. So it makes no difference what snapshots lie between, who made them, or whether they are still there.

Spec: "Scan Planning", "Sequence Numbers", "Row Lineage".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, VECTOR, Bools, Ints
from iceberg_cli.iceberg.spec.types.schema import Type

Hashes = npt.NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER: Final = np.uint64(0xBF58476D1CE4E5B9)
_MOST: Final = np.iinfo(np.int64).max


@unique
class Doubt(IntEnum):
    """Why rows of a data file are not the same for all readers."""

    NONE = 0
    TWO_VECTORS = 1
    STRAY_VECTOR = 2
    OTHER_PARTITION = 3
    LISTED_TWICE = 4
    FLOATING_POINT = 5


DOUBTS: Final = {
    Doubt.TWO_VECTORS: "it has more than one deletion vector",
    Doubt.STRAY_VECTOR: "its deletion vector is of another partition, or older than it is",
    Doubt.OTHER_PARTITION: "position deletes of another partition name it, which readers take differently",
    Doubt.LISTED_TWICE: "it is listed twice",
    Doubt.FLOATING_POINT: "equality deletes that may apply to it compare floating point numbers",
}


BROKEN: Final = (Doubt.STRAY_VECTOR, Doubt.OTHER_PARTITION)
"""By these the table contradicts itself; `LISTED_TWICE` and `TWO_VECTORS` leave nothing of it to be relied on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedDeletes:
    """The deletes that may apply to n data files.

    Args:
        delete_files: how many, of any kind.
        deleted_rows: those that position deletes of that file alone, and its deletion vector, say they delete.
        position_digests: of position deletes and deletion vectors that are not newer than a sequence number.
        equality_digests: of equality deletes that are not newer.
        named_by_newer: whether a newer deletion vector, or position deletes of that file alone, name it.
        doubts: of `Doubt`.
    """

    delete_files: Ints
    deleted_rows: Ints
    position_digests: Hashes
    equality_digests: Hashes
    named_by_newer: Bools
    doubts: npt.NDArray[np.int8]


def applied_deletes(
    data: pa.Table, deletes: pa.Table, *, everywhere: Sequence[int], until: int
) -> AppliedDeletes:
    """The deletes that may apply to data files, by their entries alone: no delete file is read.

    A deletion vector, and position deletes that name one data file, apply to that one. Other position deletes may apply
    to each file of their partition that is not newer, equality deletes to each that is older.

    Args:
        data: n data files: `FILES_SCHEMA`.
        deletes: live deletes: `DELETES_SCHEMA`.
        everywhere: ids of partition specs without partitions, whose equality deletes apply to all files.
        until: sequence number of the deletes that digests have last.
    """
    count = len(data)
    file_groups, delete_groups = _codes(data["key"], deletes["key"])
    file_numbers, numbers = data["sequence_number"].to_numpy(), deletes["sequence_number"].to_numpy()
    kinds = deletes["kind"].to_numpy()
    identities = _identities(deletes)
    is_old = numbers <= until
    found = AppliedDeletes(
        delete_files=np.zeros(count, np.int64),
        deleted_rows=np.zeros(count, np.int64),
        position_digests=np.zeros(count, np.uint64),
        equality_digests=np.zeros(count, np.uint64),
        named_by_newer=np.zeros(count, np.bool_),
        doubts=np.zeros(count, np.int8),
    )
    # -- those that name one file
    names = named_files(deletes)
    targets = _places(names, data["path"].cast(pa.binary()))
    rows = np.flatnonzero(targets >= 0)
    files = targets[rows]
    is_vector = kinds[rows] == VECTOR
    is_older = numbers[rows] < file_numbers[files]
    is_elsewhere = delete_groups[rows] != file_groups[files]
    found.doubts[files[is_elsewhere & ~is_vector & ~is_older]] = Doubt.OTHER_PARTITION
    found.doubts[files[is_vector & (is_elsewhere | is_older)]] = Doubt.STRAY_VECTOR
    found.doubts[np.bincount(files[is_vector], minlength=count) > 1] = Doubt.TWO_VECTORS
    places = _places(data["path"], data["path"])
    found.doubts[np.bincount(places, minlength=count)[places] > 1] = Doubt.LISTED_TWICE
    rows, files = rows[~is_older], files[~is_older]
    np.add.at(found.delete_files, files, 1)
    np.add.at(found.deleted_rows, files, deletes["record_count"].to_numpy()[rows])
    old = is_old[rows]
    np.add.at(found.position_digests, files[old], identities[rows[old]])
    found.named_by_newer[files[~old]] = True
    # -- those of a partition, and of all
    by_file = names.is_valid().to_numpy(zero_copy_only=False)
    is_global = (kinds == EQUALITY) & np.isin(deletes["spec_id"].to_numpy(), list(everywhere))
    for mask, is_strict, is_everywhere in (
        (~by_file & (kinds != EQUALITY), False, False),
        ((kinds == EQUALITY) & ~is_global, True, False),
        (is_global, True, True),
    ):
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            continue
        groups = (np.zeros(count, np.int64), np.zeros(len(chosen), np.int64))
        if not is_everywhere:
            groups = (file_groups, delete_groups[chosen])
        weights = (np.ones(len(chosen), np.uint64), np.where(is_old, identities, 0)[chosen])
        sums = _sums_from(groups, (file_numbers, numbers[chosen]), weights, is_strict=is_strict)
        np.add(found.delete_files, sums[0].astype(np.int64), out=found.delete_files)
        digests = found.equality_digests if is_strict else found.position_digests
        np.add(digests, sums[1], out=digests)
    return found


def doubt_floating_point(
    doubts: npt.NDArray[np.int8],
    data: pa.Table,
    deletes: pa.Table,
    types: Mapping[int, Type],
    *,
    everywhere: Sequence[int],
    until: int,
) -> None:
    """Mark data files to which deletes may apply that compare floating point numbers, where no other doubt is there.

    Readers do not agree which of these are equal.

    Args:
        doubts: of the n data files, see `AppliedDeletes`; changed.
        data: see `applied_deletes`, as are the others.
        deletes: live deletes.
        types: of columns, by field id.
        everywhere: ids of partition specs without partitions.
        until: sequence number.
    """
    floating = _floating_point_deletes(deletes, types)
    if len(floating):
        applied = applied_deletes(data, floating, everywhere=everywhere, until=until)
        doubts[(applied.delete_files > 0) & (doubts == Doubt.NONE)] = Doubt.FLOATING_POINT


def _floating_point_deletes(deletes: pa.Table, types: Mapping[int, Type]) -> pa.Table:
    """The equality deletes that compare floating point numbers."""
    ids = pa.array([i for i, type_ in types.items() if type_ in ("float", "double")], pa.int32())
    lists = deletes["equality_ids"].combine_chunks()
    owners = pc.list_parent_indices(lists).filter(pc.is_in(pc.list_flatten(lists), value_set=ids))
    return deletes.take(pc.unique(owners))


def named_files(deletes: pa.Table) -> pa.Array:
    """The path of the one data file that each delete can apply to, as bytes; null where there may be several."""
    reference = pc.if_else(pc.equal(deletes["kind"], EQUALITY), None, deletes["ref"].cast(pa.binary()))
    return pc.coalesce(deletes["only"], reference).combine_chunks()


def _identities(deletes: pa.Table) -> Hashes:
    """A hash of each delete: of its file, its place in it, and its sequence number."""
    hashes = hash_column(deletes["path"].combine_chunks()) if len(deletes) else np.empty(0, np.uint64)
    for name in ("offset", "sequence_number"):
        values = pc.fill_null(deletes[name], -1).to_numpy().astype(np.int64).view(np.uint64)
        hashes = (hashes ^ (values + _GOLDEN)) * _MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _codes(*columns: pa.ChunkedArray) -> list[Ints]:
    """Numbers for the values of several columns: equal where the values are."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    numbers = pa.chunked_array(chunks, pa.binary()).combine_chunks().dictionary_encode().indices.to_numpy()
    return np.split(numbers.astype(np.int64), np.cumsum([len(column) for column in columns])[:-1])


def _places(values: pa.Array | pa.ChunkedArray, known: pa.ChunkedArray) -> Ints:
    """Index of each value in `known`, or -1."""
    found = pc.index_in(values, value_set=known.combine_chunks(), skip_nulls=True)
    places: Ints = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def _sums_from(
    groups: tuple[Ints, Ints],
    numbers: tuple[Ints, Ints],
    weights: Sequence[Hashes],
    *,
    is_strict: bool,
) -> list[Hashes]:
    """For each of n items the sums, modulo 2^64, of weights of those of m others that are in its group and not below.

    Args:
        groups: of the items and of the others.
        numbers: likewise.
        weights: arrays of m.
        is_strict: leave out those that have the item's number.
    """
    ranks = np.unique(np.concatenate(numbers), return_inverse=True)[1].astype(np.int64)
    width = int(ranks.max(initial=0)) + 2
    own = groups[0] * width + ranks[: len(numbers[0])]
    others = groups[1] * width + ranks[len(numbers[0]) :]
    order = np.argsort(others, kind="stable")
    begin = np.searchsorted(others[order], own, side="right" if is_strict else "left")
    end = np.searchsorted(others[order], (groups[0] + 1) * width)
    found = []
    for each in weights:
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each[order], dtype=np.uint64)])
        found.append(sums[end] - sums[begin])
    return found


# -- what changed ------------------------------------------------------------------------------------------------------


INPUTS_SCHEMA: Final = pa.schema(
    {
        "group": pa.int64(),
        "path": pa.string(),
        "file_format": pa.string(),
        "size_bytes": pa.int64(),
        "record_count": pa.int64(),
        "sequence_number": pa.int64(),
        "first_row_id": pa.int64(),
        "spec_id": pa.int32(),
        "key": pa.binary(),
        "position_digest": pa.uint64(),
        "equality_digest": pa.uint64(),
        "sort_order_id": pa.int32(),  # of the order in which the files of the group follow each other; 0: none
    }
)
"""Of data files that are to be rewritten, in the order in which they are read."""


@unique
class Difference(IntEnum):
    """Why what was read of a data file is not what the table has of it now."""

    NONE = 0
    GONE = 1
    LISTED_ANEW = 2
    ROW_IDS = 3
    EQUALITY_DELETES = 4
    POSITIONS = 5
    DOUBT = 6
    LOST_COLUMN = 7
    REVIVED = 8
    NOT_WHERE_IT_GOES = 9


DIFFERENCES: Final = {
    Difference.GONE: "is not live any more",
    Difference.LISTED_ANEW: "is listed with another partition or sequence number",
    Difference.ROW_IDS: "has other row ids than when it was read",
    Difference.EQUALITY_DELETES: "has other equality deletes of then than when it was read",
    Difference.POSITIONS: "has other position deletes than when it was read",
    Difference.DOUBT: "is listed in a way that readers take differently",
    Difference.LOST_COLUMN: "is compared by newer equality deletes in a column that the table has not any more",
    Difference.REVIVED: "has rows that were deleted when it was read, and are not any more",
    Difference.NOT_WHERE_IT_GOES: "is moved to another partition spec, and newer equality deletes are for one of both "
    "partitions",
}


def differences(
    inputs: pa.Table, data: pa.Table, deletes: pa.Table, *, everywhere: Sequence[int], until: int
) -> tuple[npt.NDArray[np.int8], Ints]:
    """What changed of data files since they were planned to be rewritten.

    Equality deletes that came since have a greater sequence number than the new files, and so apply to these as well:
    they are no difference. `Difference.POSITIONS` may be one that can be made up for, see `moved_positions.py`: it is
    told only where there is no other one.

    Args:
        inputs: n data files as they were planned: `INPUTS_SCHEMA`.
        data: live data files of the branch now.
        deletes: its live deletes now.
        everywhere: see `applied_deletes`.
        until: the sequence number of the snapshot that was planned on, which new files have, too.

    Returns:
        n codes of `Difference`, and n places in `data`, -1 where a file is gone.
    """
    places = _places(inputs["path"], data["path"])
    codes = np.full(len(inputs), Difference.NONE, np.int8)
    there = np.flatnonzero(places >= 0)
    planned = inputs.take(pa.array(there))
    # A path may be listed twice, so these are not the files at `places` alone.
    listed = data.filter(pc.is_in(data["path"], value_set=inputs["path"].combine_chunks()))
    applied = applied_deletes(listed, deletes, everywhere=everywhere, until=until)
    own = _places(planned["path"], listed["path"])
    found = listed.take(pa.array(own))
    is_same = applied.position_digests[own] == planned["position_digest"].to_numpy()
    codes[there[applied.named_by_newer[own] | ~is_same]] = Difference.POSITIONS
    is_same = applied.equality_digests[own] == planned["equality_digest"].to_numpy()
    codes[there[~is_same]] = Difference.EQUALITY_DELETES
    codes[there[_unequal(found["first_row_id"], planned["first_row_id"])]] = Difference.ROW_IDS
    for name in ("sequence_number", "key", "spec_id", "record_count"):
        codes[there[_unequal(found[name], planned[name])]] = Difference.LISTED_ANEW
    codes[there[applied.doubts[own] != Doubt.NONE]] = Difference.DOUBT
    codes[places < 0] = Difference.GONE
    return codes, places


def _unequal(first: pa.ChunkedArray, second: pa.ChunkedArray) -> Bools:
    same = pc.fill_null(pc.equal(first, second), False)  # noqa: FBT003
    both_null = pc.and_(pc.is_null(first), pc.is_null(second))
    found: Bools = pc.invert(pc.or_(same, both_null)).to_numpy()
    return found


def compared_columns_lost(
    inputs: pa.Table, deletes: pa.Table, columns: Collection[int], *, everywhere: Sequence[int], until: int
) -> Bools:
    """Which data files have newer equality deletes that compare a column which new files do not have.

    Args:
        inputs: n data files: `INPUTS_SCHEMA`.
        deletes: live deletes.
        columns: field ids of the table's columns.
        everywhere: see `applied_deletes`.
        until: see `differences`.
    """
    newer = deletes.filter(
        pc.and_(pc.equal(deletes["kind"], EQUALITY), pc.greater(deletes["sequence_number"], until))
    )
    lost = np.array(
        [not set(ids or ()) <= set(columns) for ids in newer["equality_ids"].to_pylist()], np.bool_
    )
    newer = newer.filter(pa.array(lost, pa.bool_()))
    if np.isin(newer["spec_id"].to_numpy(), list(everywhere)).any():
        return np.ones(len(inputs), np.bool_)
    found: Bools = pc.is_in(inputs["key"], value_set=newer["key"].combine_chunks()).to_numpy()
    return found


def newer_equality_keys(deletes: pa.Table, *, everywhere: Sequence[int], until: int) -> pa.Array:
    """The partitions for which there are newer equality deletes, which do not apply in another partition.

    Args:
        deletes: live deletes.
        everywhere: see `applied_deletes`.
        until: see `differences`.
    """
    mask = pc.and_(pc.equal(deletes["kind"], EQUALITY), pc.greater(deletes["sequence_number"], until))
    is_global = pc.is_in(deletes["spec_id"], value_set=pa.array(list(everywhere), pa.int32()))
    return pc.unique(deletes["key"].filter(pc.and_(mask, pc.invert(is_global))))


def unread_newer(inputs: pa.Table, deletes: pa.Table, *, until: int) -> pa.Table:
    """Newer position deletes of the partitions of data files, of which only their rows tell which files they name."""
    mask = pc.and_(
        pc.and_(pc.not_equal(deletes["kind"], EQUALITY), pc.greater(deletes["sequence_number"], until)),
        pc.is_in(deletes["key"], value_set=inputs["key"].combine_chunks()),
    )
    return deletes.filter(pc.and_(mask, named_files(deletes).is_null()))


# -- deletes that are dead ---------------------------------------------------------------------------------------------


def dead_deletes(
    data: pa.Table,
    deletes: pa.Table,
    *,
    removed: Ints,
    new_keys: pa.ChunkedArray,
    everywhere: Sequence[int],
    until: int,
) -> Bools:
    """Which deletes apply to no live data file once files are rewritten.

    Those of one file go with that file: the new files have no row that they delete, or the same deletes of their own.
    Of others none is dead that is newer than what was rewritten: where it names a file that is gone, its rows were
    deleted of one that had been rewritten before, and it is all that tells of that.

    Args:
        data: live data files before.
        deletes: d live deletes.
        removed: places in `data` of the files that are rewritten.
        new_keys: the partitions of new files, which have the sequence number `until`.
        everywhere: see `applied_deletes`.
        until: see `differences`.

    Returns:
        Of each of d deletes.
    """
    file_groups, groups, new_groups = _codes(data["key"], deletes["key"], new_keys)
    numbers, kinds = deletes["sequence_number"].to_numpy(), deletes["kind"].to_numpy()
    stays = np.ones(len(data), np.bool_)
    stays[removed] = False
    last = max(int(each.max(initial=-1)) for each in (file_groups, groups, new_groups))
    least = np.full(last + 1, _MOST)
    np.minimum.at(least, file_groups[stays], data["sequence_number"].to_numpy()[stays])
    np.minimum.at(least, new_groups, until)
    anywhere = int(least.min(initial=_MOST))
    is_touched = np.isin(groups, file_groups[removed])

    names = named_files(deletes)
    gone = pc.is_in(names, value_set=data["path"].cast(pa.binary()).take(pa.array(removed)).combine_chunks())
    by_file = names.is_valid().to_numpy(zero_copy_only=False)
    is_equality = kinds == EQUALITY
    is_global = is_equality & np.isin(deletes["spec_id"].to_numpy(), list(everywhere))
    own_least = np.where(is_global, anywhere, least[groups]) if len(deletes) else np.empty(0, np.int64)
    idle = np.where(is_equality, own_least >= numbers, own_least > numbers)
    idle &= (is_touched | is_global) & (numbers <= until)
    found: Bools = np.where(by_file, gone.to_numpy(zero_copy_only=False), idle)
    return found
