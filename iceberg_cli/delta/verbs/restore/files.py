"""restore on Delta: which files come back and which leave, with their row ids. Columns only; nothing is read here.

A file is known by its path and its deletion vector: one that is in both versions with another vector leaves with the
one and comes back with the other.

Spec: "Action Reconciliation", "Add File and Remove File", "Row Tracking"; Delta Spark's `RestoreTableCommand`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.columns import ADD, REMOVE, dv_ids, without_data_change
from iceberg_cli.delta.spec.paths import dv_path_column, path_keys, physical_column
from iceberg_cli.delta.spec.row_ids import NO_MARK, UNKNOWN, Int64s, record_counts, with_fresh_ids
from iceberg_cli.delta.spec.vectors import FIRST_OFFSET, FRAME_BYTES
from iceberg_cli.encoding.arrow import one_array

Bools = npt.NDArray[np.bool_]

_IDS: Final = ("baseRowId", "defaultRowCommitVersion")
NEEDED: Final = pa.schema([("path", pa.string()), ("exact", pa.int64()), ("least", pa.int64())])
"""Files that a version needs: storage path, size in bytes where the log says it, and the least that they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """What a restore changes about files.

    Args:
        adds: n that come back, columns of `columns.ADD` and unknown ones; `dataChange` is true.
        removes: m that leave, columns of `columns.REMOVE`; `dataChange` is true, the time is the commit's.
        numbered: files that stay and are added again for their row ids; columns as `adds`, `dataChange` is false.
        mark: the high-water mark that the row ids of all files need, -1 where there is none.
        uncounted: the path of a file that needs row ids and does not say how many rows it has, or None.
        overlapping: the path of a file whose row ids another one has too, or None.
    """

    adds: pa.Table
    removes: pa.Table
    numbered: pa.Table
    mark: int
    uncounted: str | None = None
    overlapping: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the files are what they were."""
        return not (self.adds.num_rows or self.removes.num_rows or self.numbered.num_rows)


def file_changes(
    current: pa.Table, target: pa.Table, *, tracks: bool, suspended: bool, mark: int
) -> FileChanges:
    """The files that a restore adds and removes.

    A file that is in both versions stays as it is, but for its row ids: those that the target has count, so that a row
    has the id that it had then also where row tracking was dropped since and its files were numbered anew.

    Args:
        current: active files, columns of `columns.ADD` and unknown ones.
        target: those of the version that is restored.
        tracks: whether the table supports row tracking then: whatever is added has row ids.
        suspended: whether it gives no new ones.
        mark: the last row id that is used, -1 where none is.

    Raises:
        CorruptFile: statistics are no JSON, or no row ids are left.
    """
    own, theirs = logical_keys(current), logical_keys(target)
    back = _not_in(theirs, own)
    leaving = _not_in(own, theirs)
    adds = _as_change(target.filter(pa.array(back)))
    removes = removes_of(current.filter(pa.array(leaving)))
    staying = current.filter(pa.array(~leaving))
    if not tracks:
        return FileChanges(adds=adds, removes=removes, numbered=adds.slice(0, 0), mark=mark)
    then = target.take(pc.index_in(own.filter(pa.array(~leaving)), value_set=theirs))
    renumbered, changed = _with_ids_of(staying, then)
    return _numbered(adds, removes, renumbered, changed, suspended=suspended, mark=mark)


def logical_keys(files: pa.Table) -> pa.Array:
    """What tells n adds or removes from each other: their paths and the ids of their deletion vectors."""
    paths = one_array(path_keys(files["path"])).cast(pa.large_string())
    ids = pc.fill_null(one_array(dv_ids(files)).cast(pa.large_string()), "")
    return pc.binary_join_element_wise(paths, ids, pa.scalar("\n", pa.large_string()))


def _not_in(keys: pa.Array, others: pa.Array) -> Bools:
    return ~np.asarray(pc.is_in(keys, value_set=others).to_numpy(zero_copy_only=False), np.bool_)


def _as_change(adds: pa.Table) -> pa.Table:
    """The same with `dataChange` true: in a checkpoint it is false, whatever it was."""
    return _with(adds, "dataChange", pa.array([True] * adds.num_rows, pa.bool_()))


def removes_of(adds: pa.Table) -> pa.Table:
    """The removes of n active files, as Delta Spark writes them: all that the add says, and that rows go."""
    count = adds.num_rows
    columns: dict[str, Any] = {name: adds[name] for name in REMOVE.names if name in adds.schema.names}
    columns["deletionTimestamp"] = pa.nulls(count, pa.int64())
    for name in ("dataChange", "extendedFileMetadata"):
        columns[name] = pa.array([True] * count, pa.bool_())
    return pa.table([columns[name] for name in REMOVE.names], schema=REMOVE)


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), ADD.field(name), values)


# -- row ids ---------------------------------------------------------------------------------------------------


def _with_ids_of(staying: pa.Table, then: pa.Table) -> tuple[pa.Table, Bools]:
    """N files that stay, with the row ids that they had then; and which of them had others, or none."""
    changed = np.zeros(staying.num_rows, np.bool_)
    has = then["baseRowId"].is_valid()
    for name in _IDS:
        ids = pc.if_else(has, then[name], staying[name])
        same = pc.fill_null(pc.equal(ids, staying[name]), pc.and_(ids.is_null(), staying[name].is_null()))
        changed |= ~np.asarray(same.to_numpy(), np.bool_)
        staying = _with(staying, name, ids)
    return staying, changed


def _numbered(
    adds: pa.Table, removes: pa.Table, staying: pa.Table, changed: Bools, *, suspended: bool, mark: int
) -> FileChanges:
    """The changes once every file that is added has row ids, above all that are in use.

    Args:
        adds: that come back.
        removes: that leave.
        staying: the files that stay, with the ids that they get.
        changed: which of these are added again.
        suspended: whether no new ids are given.
        mark: the last row id that is used.
    """
    counts = record_counts(adds)
    of_staying = record_counts(staying)
    for files, rows in ((adds, counts), (staying, of_staying)):
        mark = max(mark, _highest(files, rows))
    uncounted = None
    missing = np.asarray(adds["baseRowId"].is_null().to_numpy(), np.bool_)
    if not suspended and missing.any():
        unknown = np.flatnonzero(missing & (counts == UNKNOWN))
        if len(unknown):
            uncounted = adds["path"][int(unknown[0])].as_py()
        else:
            adds, mark = with_fresh_ids(adds, counts, mark=mark)
    return FileChanges(
        adds=adds,
        removes=removes,
        numbered=without_data_change(staying.filter(pa.array(changed)), ADD),
        mark=mark,
        uncounted=uncounted,
        overlapping=_overlapping(adds, counts, staying, of_staying),
    )


def _highest(files: pa.Table, counts: Int64s) -> int:
    """The last row id of n files; a file whose rows nobody counted has at least the id that it begins with."""
    firsts = pc.fill_null(files["baseRowId"], NO_MARK).to_numpy()
    lasts = firsts + np.where(counts == UNKNOWN, 1, counts) - 1
    return int(lasts[firsts >= 0].max(initial=NO_MARK))


def _overlapping(adds: pa.Table, counts: Int64s, staying: pa.Table, of_staying: Int64s) -> str | None:
    """The path of a file whose row ids are, at least in part, another file's too; None where there is none."""
    first = np.concatenate([pc.fill_null(each["baseRowId"], NO_MARK).to_numpy() for each in (adds, staying)])
    rows = np.concatenate([counts, of_staying])
    rows = np.where(rows == UNKNOWN, 1, rows)
    order = np.flatnonzero((first >= 0) & (rows > 0))
    order = order[np.argsort(first[order], kind="stable")]
    reached = np.maximum.accumulate((first + rows - 1)[order])
    clash = np.flatnonzero(first[order[1:]] <= reached[:-1])
    if not len(clash):
        return None
    row = int(order[clash[0] + 1])
    path: str = (
        adds["path"][row].as_py() if row < adds.num_rows else staying["path"][row - adds.num_rows].as_py()
    )
    return path


# -- files that are needed -------------------------------------------------------------------------------------


def needed_files(adds: pa.Table, root: str) -> pa.Table:
    """The files that n adds need, each once: data files, and those of their deletion vectors; see `NEEDED`.

    Args:
        adds: columns of `columns.ADD`.
        root: the table's storage path.

    Raises:
        CorruptFile: a path cannot be read.
    """
    data = pa.table(
        [physical_column(adds["path"], root), adds["size"], pa.nulls(adds.num_rows, pa.int64())],
        schema=NEEDED,
    )
    with_vectors = adds.filter(adds["deletionVector"].is_valid())
    vectors = one_array(with_vectors["deletionVector"])
    offset, size = (pc.struct_field(vectors, name).cast(pa.int64()) for name in ("offset", "sizeInBytes"))
    ends = pc.add(pc.add(pc.fill_null(offset, FIRST_OFFSET), size), FRAME_BYTES)
    of_vectors = pa.table(
        [dv_path_column(with_vectors, root), pa.nulls(with_vectors.num_rows, pa.int64()), ends], schema=NEEDED
    )
    each = pa.concat_tables([data, of_vectors.filter(of_vectors["path"].is_valid())])
    needed = each.group_by("path", use_threads=False).aggregate([("exact", "min"), ("least", "max")])
    return needed.rename_columns(["path", "exact", "least"]).cast(NEEDED)


def unfit(needed: pa.Table, sizes: Int64s) -> tuple[Bools, Bools]:
    """Which of n files are not there, and which are there with another size than they must have.

    Args:
        needed: columns of `NEEDED`.
        sizes: in bytes, -1 where there is no file.
    """
    gone = sizes < 0
    exact = pc.fill_null(needed["exact"], -1).to_numpy()
    least = pc.fill_null(needed["least"], 0).to_numpy()
    other = ~gone & (((exact >= 0) & (exact != sizes)) | (sizes < least))
    return gone, other


def whole_versions(
    first: pa.Table,
    commits: tuple[pa.Table, Int64s, pa.Table, Int64s],
    bad: pa.Array,
    *,
    root: str,
    versions: range,
) -> list[int]:
    """Which of some versions need no file that is bad, in their order.

    Args:
        first: the active files of the version before `versions`.
        commits: adds with their versions, then removes with theirs, of `versions`.
        bad: storage paths of files that are gone, or have another size.
        root: the table's storage path.
        versions: that follow each other.
    """
    adds, add_versions, removes, remove_versions = commits
    tables = [first, adds, removes]
    before = versions.start - 1
    ranks = [np.full(first.num_rows, 2 * before + 1, np.int64), add_versions * 2 + 1, remove_versions * 2]
    keys, rank, active = [], [], []
    for table, each, is_add in zip(tables, ranks, (True, True, False), strict=True):
        needs = pc.or_(
            pc.is_in(physical_column(table["path"], root), value_set=bad),
            pc.is_in(dv_path_column(table, root), value_set=bad),
        )
        chosen = np.asarray(needs.to_numpy(zero_copy_only=False), np.bool_)
        keys.append(logical_keys(table.filter(pa.array(chosen))))
        rank.append(each[chosen])
        active.append(np.full(int(chosen.sum()), is_add, np.bool_))
    codes = pa.concat_arrays(keys).dictionary_encode().indices.to_numpy()
    rank_, active_ = np.concatenate(rank), np.concatenate(active)
    order = np.lexsort((rank_, codes))
    codes, at, active_ = codes[order], rank_[order] // 2, active_[order]
    # A file is needed from the commit that adds it up to the next one that says something of it.
    until = np.full(len(at), versions.stop, np.int64)
    follows = codes[1:] == codes[:-1]
    until[:-1][follows] = at[1:][follows]
    needed = np.zeros(len(versions) + 2, np.int64)
    np.add.at(needed, at[active_] - before, 1)
    np.add.at(needed, until[active_] - before, -1)
    return [versions.start + int(place) for place in np.flatnonzero(np.cumsum(needed)[1:-1] == 0)]
