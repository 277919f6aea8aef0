"""VACUUM: which files under a table's folder no version needs that is young enough to be read.

A file goes only when all of this holds: no active file is at its place; no tombstone younger than the cut-off names it,
as a data file or by its deletion vector, nor does a commit that young which removed it, whatever time its tombstone
tells; it was last written before the cut-off; no part of its name is hidden; it is not in the folder of another table
below this one's. Files are told apart by place (`paths.path_key`), so scheme, authority and doubled slashes do not
matter, and what a log may mean by a path is taken twice, decoded and as it stands: both places are kept.

Nothing goes by a listing that lacks an active file which is there, nor by one that lacks them all. What is gone for
good keeps each file of its name: a storage may have it by another path, which nothing names.

A tombstone without a time has its commit's; where that is not known either it keeps its file. Change data is named by
commits and by no state of a table: it goes by its age and theirs. Folders are never listed.

Delta Spark differs: it goes by the tombstones of the state alone, which checkpoints drop after the retention of their
day and which tell the clock of their writer; it deletes change data by age alone, and live files of a table in a folder
below; it takes a tombstone without a time for one of 1970, and lists folders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.log import LOG
from iceberg_cli.delta.spec.paths import dv_path_column, physical_column
from iceberg_cli.delta.spec.vacuum import (
    CHANGE_DATA,
    FILES,
    SLICE_ROWS,
    deletion_times,
    hidden,
    strings,
)
from iceberg_cli.paths import file_name_column, folder_column, path_key_column
from iceberg_cli.plan.listed_files import STORED_FILES
from iceberg_cli.plan.removal_rows import total_bytes

_NAMED: Final = pa.schema([("key", pa.string()), ("deleted_ms", pa.int64())])
_VECTOR_FILE = r"(^|/)deletion_vector_[^/]*\.bin$"
_OF_A_TABLE = rf"/(?:{LOG}/|metadata/[^/]*\.metadata\.json(?:\.gz)?$)"
_CHANGE_FILE = rf"^{CHANGE_DATA}[^/]*/|(^|/)cdc-[^/]*$"


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumDecision:
    """What became of a listing's files; each is counted once, by the first rule that decides it.

    Args:
        files: those that go, columns of `FILES`, in the listing's order.
        kept: `{rule: (files, bytes)}` of the others: outside, hidden, live, nested, young, namesake.
        folders: how many folders were looked at, the table's own among them.
        tables: canonical folders of the other tables in the listing.
    """

    files: pa.Table
    kept: Mapping[str, tuple[int, int]]
    folders: int
    tables: Sequence[str]


def removed_files(removes: pa.Table, *, root: str, commit_ms: pa.Array | None = None) -> pa.Table:
    """The files that tombstones name, data files and DV files, each with when it was removed last.

    Returns:
        `key` string, `deleted_ms` int64 (null where nothing tells); each key once.
    """
    deleted_ms = deletion_times(removes, commit_ms)
    columns = (physical_column(removes["path"], root), dv_path_column(removes, root))
    return _each_once(pa.concat_tables([_named(column, deleted_ms) for column in columns]))


def _named(paths: pa.Array, deleted_ms: pa.ChunkedArray) -> pa.Table:
    table = pa.table({"key": paths, "deleted_ms": deleted_ms})
    table = table.filter(pc.is_valid(table["key"]))
    return table.set_column(0, "key", path_key_column(strings(table["key"]))).cast(_NAMED)


def _each_once(rows: pa.Table) -> pa.Table:
    """One row for each key: the one that was removed last, by what is known."""
    times = rows["deleted_ms"].fill_null(-1).to_numpy()
    rows = rows.take(pa.array(np.argsort(-times, kind="stable")))
    codes = rows["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    return rows.take(pa.array(first))


def classify_files(
    listing: pa.Table,
    *,
    root: str,
    needed: Callable[[pa.Array], pa.Array],
    removed: pa.Table,
    cut_ms: int,
    partition_columns: Sequence[str],
    metadata_hidden: bool,
) -> VacuumDecision:
    """Which of the files that are there go.

    Args:
        listing: `STORED_FILES`, of files below `root` and of others, which are left out of account.
        root: the table's folder, canonical, without a trailing slash.
        needed: which of n path keys are among `live_keys` and `removed_keys`.
        removed: `removed_files`, for the reasons.
        cut_ms: files written at or after it stay.
        partition_columns: by their logical names.
        metadata_hidden: see `vacuum.hides_metadata`.
    """
    kept: dict[str, tuple[int, int]] = {}
    folders = {""}

    def without(files: pa.Table, rule: str, mask: pa.Array) -> pa.Table:
        stays = files["size_bytes"].filter(mask)
        count, size_bytes = kept.get(rule, (0, 0))
        kept[rule] = (count + len(stays), size_bytes + int(pc.sum(stays).as_py() or 0))
        return files.filter(pc.invert(mask)) if len(stays) else files

    listing = listing.select(STORED_FILES.names)
    # Looked up for all at once: each table of keys is built but once.
    keys = path_key_column(strings(listing["path"]))
    tombstones = pc.index_in(keys, value_set=removed["key"].combine_chunks())
    listing = listing.append_column("needed", needed(keys)).append_column("tombstone", tombstones)
    del keys
    going = [FILES.empty_table()]
    deleted_ms = removed["deleted_ms"].combine_chunks()
    tables = _other_tables(listing["path"], root)
    for batch in listing.to_batches(max_chunksize=SLICE_ROWS):
        files = pa.Table.from_batches([batch])
        files = without(files, "outside", pc.invert(pc.starts_with(files["path"], f"{root}/")))
        names = pc.utf8_slice_codeunits(strings(files["path"]), len(root) + 1)
        unseen = hidden(names, partition_columns=partition_columns, metadata=metadata_hidden)
        files = without(files.append_column("name", names), "hidden", unseen)
        _add_folders(folders, strings(files["path"]), root)
        files = without(files, "live", files["needed"])
        files = without(files, "nested", _below(strings(files["name"]), tables))
        files = without(files, "young", pc.greater_equal(files["modified_ms"], cut_ms))
        going.append(_with_reasons(files, deleted_ms))
    others = [f"{root}/{table}" for table in sorted(tables)]
    return VacuumDecision(files=pa.concat_tables(going), kept=kept, folders=len(folders), tables=others)


def without_namesakes(decision: VacuumDecision, lost: pa.Array) -> VacuumDecision:
    """The decision, by which no file goes that has the name of one that is gone.

    Args:
        decision: on a listing.
        lost: paths of n active files that are not there.
    """
    if not len(lost):
        return decision
    names = file_name_column(decision.files["path"])
    stays = pc.is_in(names, value_set=pc.unique(file_name_column(lost)))
    sizes = decision.files["size_bytes"].filter(stays)
    kept = {**decision.kept, "namesake": (len(sizes), total_bytes(sizes))}
    return replace(decision, files=decision.files.filter(pc.invert(stays)), kept=kept)


def _other_tables(paths: pa.ChunkedArray, root: str) -> frozenset[str]:
    """The folders below `root`, relative to it, that have a Delta log or Iceberg metadata of their own."""
    of_tables = pc.and_(pc.starts_with(paths, f"{root}/"), pc.match_substring_regex(paths, _OF_A_TABLE))
    names = pc.utf8_slice_codeunits(strings(paths.filter(of_tables)), len(root) + 1)
    found = pc.extract_regex(names, rf"(?s)^(?P<folder>.+?){_OF_A_TABLE}").drop_null()
    return frozenset(pc.unique(pc.struct_field(found, "folder")).to_pylist())


def _below(names: pa.Array, tables: frozenset[str]) -> pa.Array:
    """Which of n names are in one of some folders, or deeper."""
    inside = pa.repeat(value=False, size=len(names))
    for table in tables:
        inside = pc.or_(inside, pc.starts_with(names, f"{table}/"))
    return inside


def _add_folders(found: set[str], paths: pa.Array, root: str) -> None:
    """Add the folders of n files below `root`, and those above them up to it, relative to it."""
    for deepest in pc.unique(folder_column(paths)).to_pylist():
        folder = deepest[len(root) + 1 :]
        while folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]


def _with_reasons(listing: pa.Table, deleted_ms: pa.Array) -> pa.Table:
    """`FILES` for files that go, some of which have a tombstone, which were made at these times."""
    names = strings(listing["name"])
    tombstone_rows = listing["tombstone"].combine_chunks()
    tombstone = pc.is_valid(tombstone_rows)
    deleted_on = _day(deleted_ms.take(tombstone_rows))
    removed_text = pc.fill_null(
        pc.binary_join_element_wise("removed on ", deleted_on, ""), "removed, nobody knows when"
    )
    written = pc.binary_join_element_wise(
        "last written on ", _day(listing["modified_ms"].combine_chunks()), ""
    )
    vector = pc.match_substring_regex(names, _VECTOR_FILE)
    change = pc.match_substring_regex(names, _CHANGE_FILE)
    unnamed = pc.binary_join_element_wise(
        pc.if_else(vector, "deletion vectors that no file uses, ", "nothing in the log names it, "),
        written,
        "",
    )
    reason = pc.if_else(tombstone, removed_text, unnamed)
    reason = pc.if_else(
        pc.and_(change, pc.invert(tombstone)),
        pc.binary_join_element_wise("change data, ", written, ""),
        reason,
    )
    kind = pc.if_else(tombstone, "data_file", "untracked_file")
    kind = pc.if_else(change, "change_data_file", kind)
    kind = pc.if_else(vector, "deletion_vector_file", kind)
    return pa.table(
        {"path": listing["path"], "kind": kind, "size_bytes": listing["size_bytes"], "reason": reason},
        schema=FILES,
    )


def _day(times_ms: pa.Array) -> pa.Array:
    """The days, UTC, of n times; null for null."""
    each = times_ms.cast(pa.timestamp("ms")).dictionary_encode()
    each = each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each
    return pc.strftime(each.dictionary, format="%Y-%m-%d").take(each.indices)
