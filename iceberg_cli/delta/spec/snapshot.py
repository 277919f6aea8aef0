"""The table at a version, and action reconciliation: of all references to a logical file the newest one counts.

A logical file is a path, as `paths.path_keys` has it, and the id of its deletion vector. Keys are compared whole.
Where one commit adds and removes the same logical file, which the protocol does not allow, the file stays: a reader
that sees one too many is noticed, and a file deleted by mistake does not come back.

Spec: "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import Actions, Int64s, Irregularity, Json, combine, one_after_another
from iceberg_cli.delta.spec.columns import ADD, REMOVE, concat, dv_ids
from iceberg_cli.delta.spec.features import CATALOG_FEATURES, check_readable, supports
from iceberg_cli.delta.spec.in_commit_timestamps import has_in_commit_timestamps, in_commit_timestamp
from iceberg_cli.delta.spec.log import Listing, Segment
from iceberg_cli.delta.spec.paths import path_keys, physical_column
from iceberg_cli.delta.spec.protocol import Metadata, Protocol
from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.errors import CorruptFile

Bools = npt.NDArray[np.bool_]


def reconcile(newest_first: Sequence[Actions], base: Actions | None = None) -> Actions:
    """The actions that remain once newer ones have replaced older ones.

    Args:
        newest_first: parts whose ranges of versions do not overlap; parts of one checkpoint share its version.
        base: what was left of all before them.

    Returns:
        Adds of active files and removes of tombstones, oldest parts first, with their versions and lines; the newest
        protocol, metadata, transaction and domain of each; all commit infos, change data files and unknown lines.
    """
    parts = [*([] if base is None else [base]), *reversed(newest_first)]
    masks = _newest(parts) if base is None or any(map(_files, newest_first)) else _all(parts)
    adds, removes = masks[0::2], masks[1::2]
    small = combine([_without_files(part) for part in parts]) if parts else Actions()
    return replace(
        small,
        adds=concat([_masked(part.adds, mask) for part, mask in zip(parts, adds, strict=True)], ADD),
        removes=concat(
            [_masked(part.removes, mask) for part, mask in zip(parts, removes, strict=True)], REMOVE
        ),
        add_versions=one_after_another([p.add_versions[mask] for p, mask in zip(parts, adds, strict=True)]),
        add_lines=one_after_another([p.add_lines[mask] for p, mask in zip(parts, adds, strict=True)]),
        remove_versions=one_after_another(
            [p.remove_versions[mask] for p, mask in zip(parts, removes, strict=True)]
        ),
        remove_lines=one_after_another(
            [p.remove_lines[mask] for p, mask in zip(parts, removes, strict=True)]
        ),
    )


def _files(part: Actions) -> int:
    """How many files are added and removed."""
    return int(part.adds.num_rows + part.removes.num_rows)


def _all(parts: Sequence[Actions]) -> list[Bools]:
    """As `_newest` where every row is."""
    return [np.ones(table.num_rows, np.bool_) for part in parts for table in (part.adds, part.removes)]


def _newest(parts: Sequence[Actions]) -> list[Bools]:
    """For adds and removes of each part in turn, which rows are the newest reference to their logical file."""
    tables = [table for part in parts for table in (part.adds, part.removes)]
    lengths = [table.num_rows for table in tables]
    total = sum(lengths)
    if total == 0:
        return [np.zeros(0, np.bool_) for _ in tables]
    codes, count = _codes(tables)
    rank = np.concatenate(
        [rank for part in parts for rank in (part.add_versions * 2 + 1, part.remove_versions * 2)]
    )
    order = np.argsort(rank, kind="stable")
    newest = np.empty(count, np.int64)
    newest[codes[order]] = order  # of several values for one place the last one stays
    kept = np.zeros(total, np.bool_)
    kept[newest] = True
    return np.split(kept, np.cumsum(lengths)[:-1])


def _codes(tables: Sequence[pa.Table]) -> tuple[Int64s, int]:
    """A number below the count for each row of all tables, equal where path and deletion vector are equal."""
    paths = pa.chunked_array(
        [chunk for table in tables for chunk in _chunks(path_keys(table.column("path")))]
    )
    codes = _hash_codes(paths)
    if codes is None:
        codes = _dictionary_codes(paths)
    if all(table.column("deletionVector").null_count == table.num_rows for table in tables):
        return codes, int(codes.max()) + 1
    vectors = pa.chunked_array([chunk for table in tables for chunk in _chunks(dv_ids(table))])
    vector_codes = _dictionary_codes(vectors)
    _, both = np.unique(codes * (int(vector_codes.max()) + 1) + vector_codes, return_inverse=True)
    return both.astype(np.int64, copy=False), int(both.max()) + 1


def _hash_codes(values: pa.ChunkedArray) -> Int64s | None:
    """A number for each value, by a hash, faster than by a dictionary; None where two values share a hash."""
    values = values.cast(pa.large_string())  # offsets of 32 bits end at 2 GiB
    hashes = hash_column(values)
    order = np.argsort(hashes)
    other = hashes[order[1:]] != hashes[order[:-1]]
    again = np.flatnonzero(~other)
    same = pc.equal(values.take(order[again]), values.take(order[again + 1]))
    if not pc.all(same, skip_nulls=False, min_count=0).as_py():
        return None
    codes = np.zeros(len(values), np.int64)
    codes[order[1:]] = np.cumsum(other)
    return codes


def _dictionary_codes(values: pa.ChunkedArray) -> Int64s:
    """A number for each value; null is a value of its own."""
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks])
    return codes.astype(np.int64, copy=False)


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _masked(table: pa.Table, mask: Bools) -> pa.Table:
    return table if mask.all() else table.filter(pa.array(mask))


def _without_files(part: Actions) -> Actions:
    none = np.empty(0, np.int64)
    return replace(
        part,
        adds=ADD.empty_table(),
        removes=REMOVE.empty_table(),
        add_versions=none,
        add_lines=none,
        remove_versions=none,
        remove_lines=none,
    )


def added_again(adds: pa.Table, root: str) -> Bools:
    """Which of n active adds are of a file that an add before it names too, with another deletion vector.

    Args:
        adds: of a snapshot.
        root: the table's storage path.

    Raises:
        CorruptFile: a path cannot be read.
    """
    physical = physical_column(adds["path"], root)
    counted = physical.value_counts()
    twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    again: Bools = np.array(pc.is_in(physical, value_set=twice).to_numpy(zero_copy_only=False), np.bool_)
    rows = np.flatnonzero(again)
    repeated = pa.table({"path": physical.take(pa.array(rows)), "row": rows})
    again[repeated.group_by("path").aggregate([("row", "min")])["row_min"].to_numpy()] = False
    return again


def repeated_add(adds: pa.Table, root: str) -> str | None:
    """Why a commit must not repeat active adds, in words, or None: one path would be in it twice; see `added_again`."""
    again = np.flatnonzero(added_again(adds, root))
    if not len(again):
        return None
    return (
        f"the table has {adds['path'][int(again[0])].as_py()} more than once, with different deletion vectors, and a "
        "commit that adds it twice could not be read: `inspect --check` tells more; RESTORE a version that has it once"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The table at a version.

    Args:
        version: of the table.
        timestamp_ms: its in-commit timestamp where the table has these, else the modification time of its commit file,
            at least 1 ms after the version before.
        in_commit_timestamp_ms: None where the table has none, or neither a commit nor a version checksum tells it.
        adds: active files, columns of `columns.ADD` and unknown ones.
        removes: tombstones that nothing cancelled, whatever their age.
        add_versions: the commit of each add, or the checkpoint's version; likewise `remove_versions`.
        transactions: the newest `txn` action of each `appId`.
        domains: the newest `domainMetadata` action of each domain that is not removed.
        unknown: lines of action kinds that the protocol does not name, oldest first.
        segment: the files it was read from.
        listing: of the log, as it was when it was read, or looked at again for newer versions.
        irregular: what commits after the checkpoint do that the protocol does not allow.
        warnings: which files could not be read, and were not needed, in words.
    """

    version: int
    timestamp_ms: int
    in_commit_timestamp_ms: int | None
    protocol: Protocol
    metadata: Metadata
    adds: pa.Table
    removes: pa.Table
    add_versions: Int64s
    remove_versions: Int64s
    transactions: Mapping[str, Json]
    domains: Mapping[str, Json]
    unknown: tuple[Json, ...]
    segment: Segment
    listing: Listing = field(repr=False)
    irregular: tuple[Irregularity, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Which newer commits are not part of it, in words: those that a catalog has not published; empty: none.

        Only the catalog tells which of the staged commits of a version it took.

        Spec: "Catalog-managed tables", "Staged commits".
        """
        newer = {file.version for file in self.listing.staged if file.version > self.listing.latest}
        if not newer or not any(supports(self.protocol, name) for name in CATALOG_FEATURES):
            return ()
        commits = f"version {min(newer)}" if len(newer) == 1 else f"versions {min(newer)} to {max(newer)}"
        words = (
            f"staged commits of {commits} are left out: the table's catalog has not published them, and only it tells "
            f"which it took; the newest version here is {self.listing.latest}"
        )
        return (words,)


def snapshot_of(
    state: Actions,
    segment: Segment,
    listing: Listing,
    *,
    root: str,
    modified_ms: int,
    warnings: tuple[str, ...] = (),
) -> Snapshot:
    """The snapshot that reconciled actions make.

    Args:
        state: what `reconcile` left, with the commit info of the version.
        segment: what it was read from.
        listing: of the log.
        root: the table's storage path, for messages.
        modified_ms: of the version's commit file, see `Listing.commit_times_ms`.
        warnings: of reading.

    Raises:
        CorruptFile: there is no protocol or no metadata.
        Refused: the table needs a reader that knows more.
    """
    if state.protocol is None:
        raise CorruptFile(root, "protocol", f"no protocol action up to version {segment.version}")
    check_readable(state.protocol, root)
    if state.metadata is None:
        raise CorruptFile(root, "metaData", f"no metaData action up to version {segment.version}")
    timed = has_in_commit_timestamps(state.protocol, state.metadata)
    in_commit_ms = in_commit_timestamp(state, segment.version) if timed else None
    return Snapshot(
        version=segment.version,
        timestamp_ms=modified_ms if in_commit_ms is None else in_commit_ms,
        in_commit_timestamp_ms=in_commit_ms,
        protocol=state.protocol,
        metadata=state.metadata,
        adds=state.adds,
        removes=state.removes,
        add_versions=state.add_versions,
        remove_versions=state.remove_versions,
        transactions=state.transactions,
        domains={name: action for name, action in state.domains.items() if not action.get("removed", False)},
        unknown=state.unknown,
        segment=segment,
        listing=listing,
        irregular=state.irregular,
        warnings=warnings,
    )


def as_actions(snapshot: Snapshot) -> Actions:
    """The snapshot as actions, with which a replay begins."""
    return Actions(
        adds=snapshot.adds,
        removes=snapshot.removes,
        add_versions=snapshot.add_versions,
        add_lines=np.arange(snapshot.adds.num_rows, dtype=np.int64),
        remove_versions=snapshot.remove_versions,
        remove_lines=np.arange(snapshot.removes.num_rows, dtype=np.int64),
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=snapshot.transactions,
        domains=snapshot.domains,
        unknown=snapshot.unknown,
        irregular=snapshot.irregular,
    )
