"""Action reconciliation: of all references to a logical file the newest one counts.

A logical file is a path, as `paths.path_keys` has it, and the id of its deletion vector. Keys are compared whole.
Where one commit adds and removes the same logical file, which the protocol does not allow, the file stays: a reader
that sees one too many is noticed, and a file deleted by mistake does not come back.

Spec: "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import ADD, REMOVE, Actions, combine, dv_ids
from iceberg_cli.delta.spec.columns import concat
from iceberg_cli.delta.spec.paths import path_keys
from iceberg_cli.encoding.string_hash import hash_column

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


def reconcile(newest_first: Sequence[Actions], base: Actions | None = None) -> Actions:
    """The actions that remain once newer ones have replaced older ones.

    Args:
        newest_first: parts whose ranges of versions do not overlap; parts of one checkpoint share its version.
        base: what was left of all before them.

    Returns:
        Adds of active files and removes of tombstones, oldest parts first, with their versions and places; the newest
        protocol, metadata, transaction and domain of each; all commit infos, change data files and unknown lines.
    """
    parts = [*([] if base is None else [base]), *reversed(newest_first)]
    kept = _newest(parts) if base is None or any(map(_files, newest_first)) else _all(parts)
    adds, removes = kept[0::2], kept[1::2]
    small = combine([_without_files(part) for part in parts]) if parts else Actions()
    return Actions(
        adds=concat([_kept(part.adds, mask) for part, mask in zip(parts, adds, strict=True)], ADD),
        removes=concat(
            [_kept(part.removes, mask) for part, mask in zip(parts, removes, strict=True)], REMOVE
        ),
        cdc=small.cdc,
        cdc_versions=small.cdc_versions,
        add_versions=_joined([p.add_versions[mask] for p, mask in zip(parts, adds, strict=True)]),
        add_places=_joined([p.add_places[mask] for p, mask in zip(parts, adds, strict=True)]),
        remove_versions=_joined([p.remove_versions[mask] for p, mask in zip(parts, removes, strict=True)]),
        remove_places=_joined([p.remove_places[mask] for p, mask in zip(parts, removes, strict=True)]),
        protocol=small.protocol,
        metadata=small.metadata,
        transactions=small.transactions,
        domains=small.domains,
        commit_infos=small.commit_infos,
        unknown=small.unknown,
        irregular=small.irregular,
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


def _kept(table: pa.Table, mask: Bools) -> pa.Table:
    return table if mask.all() else table.filter(pa.array(mask))


def _joined(arrays: Sequence[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _without_files(part: Actions) -> Actions:
    return Actions(
        cdc=part.cdc,
        cdc_versions=part.cdc_versions,
        protocol=part.protocol,
        metadata=part.metadata,
        transactions=part.transactions,
        domains=part.domains,
        commit_infos=part.commit_infos,
        unknown=part.unknown,
        irregular=part.irregular,
    )
