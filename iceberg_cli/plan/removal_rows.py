"""Rows of removals (the files that a plan removes) as Arrow tables and Parquet files.

Columns: `step` string (name of the step), `path` large_string (canonical storage key), `as_written` large_string
(the manifest's or log's own spelling), `kind` string, `size_bytes` int64 (null where nothing records it), `reason`
large_string; and of files that a listing found `modified_ms` int64, when they were written by it. Rows are in delete
order: by step, then bottom-up by kind, then by path, of commits the last one first. Parents enumerate children, so a
half-done deletion can be derived again.

In memory, `step`, `kind` and `reason` are dictionary-encoded, for they have few values, and `as_written` uses the
memory of `path` where both are the same: a row takes its path and some 30 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile

ORPHAN_FILE = "orphan_file"  # of which nothing is known but its name
# In delete order, bottom-up. The names are those of the result columns of the peers, `deleted_<kind>s_count`.
ICEBERG_KINDS = (
    "data_file",
    "position_delete_file",
    "equality_delete_file",
    "statistics_file",
    "manifest_file",
    "manifest_list",
    "metadata_file",
)
DELTA_KINDS = (
    "data_file",
    "deletion_vector_file",
    "change_data_file",
    "untracked_file",
    "compacted_file",
    "checksum_file",
    "commit_file",
    "checkpoint_file",
    "sidecar_file",
)
KINDS = tuple(dict.fromkeys((ORPHAN_FILE, *ICEBERG_KINDS, *DELTA_KINDS)))
_LAST_FIRST = "commit_file"  # each builds on those before it, which must outlive it
FILE_SCHEMA = pa.schema(
    [
        pa.field("step", pa.string(), nullable=False),
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("as_written", pa.large_string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64()),
        pa.field("reason", pa.large_string(), nullable=False),
    ]
)
_FEW_VALUES = ("step", "kind", "reason")
SCHEMA = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in _FEW_VALUES else field
        for field in FILE_SCHEMA
    ]
)
_MODIFIED = pa.field("modified_ms", pa.int64(), nullable=False)
LISTED_SCHEMA = SCHEMA.append(_MODIFIED)
_LISTED_FILE_SCHEMA = FILE_SCHEMA.append(_MODIFIED)
_SLICE_ROWS = 1 << 16  # written at once
_WIDER = pa.decimal128(38, 0)
_MOST_BYTES = 2**63 - 1
_HASHED_ROWS = 1 << 13  # converted to text at once


def schema_of(rows: pa.Table) -> pa.Schema:
    """`SCHEMA`, or `LISTED_SCHEMA` of rows that have that column."""
    return LISTED_SCHEMA if _MODIFIED.name in rows.column_names else SCHEMA


def sort_for_deletion(rows: pa.Table) -> pa.Table:
    """Sort rows, of which each path is in one, into delete order; rows in that order already are not copied."""
    schema = schema_of(rows)
    if _in_order(rows):
        return _share_paths(rows.select(schema.names).cast(schema).unify_dictionaries())
    columns = {name: rows[name].cast(schema.field(name).type).combine_chunks() for name in schema.names}
    rank = pc.index_in(columns["kind"], value_set=pa.array(KINDS))
    if rank.null_count:
        raise AssertionError("a removal has a kind without a place in the delete order")
    steps = sorted(pc.unique(columns["step"]).to_pylist())
    step = pc.index_in(columns["step"], value_set=pa.array(steps, pa.string()))
    order = pc.sort_indices(
        pa.table({"step": step, "rank": rank, "path": _path_order(columns["kind"], columns["path"])}),
        sort_keys=[("step", "ascending"), ("rank", "ascending"), ("path", "ascending")],
    )
    same = columns["as_written"].equals(columns["path"])
    if same:
        del columns["as_written"]
    for name in list(columns):
        columns[name] = columns[name].take(order)  # one by one: the unsorted column goes at once
    if same:
        columns["as_written"] = columns["path"]
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def of_kinds(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Each kind that occurs and some columns of its rows, in delete order."""
    kinds = rows["kind"]
    present = pc.unique(kinds).to_pylist()
    some = rows.select(columns)
    for kind in KINDS:  # few: grouping would load Arrow's query engine
        if kind in present:
            yield kind, some if len(present) == 1 else some.filter(pc.equal(kinds, kind))


def kind_totals(rows: pa.Table) -> dict[str, tuple[int, int]]:
    """Rows and bytes of each kind that occurs, in delete order; files of unknown size count no bytes."""
    return {
        kind: (some.num_rows, total_bytes(some["size_bytes"]))
        for kind, some in of_kinds(rows, ["size_bytes"])
    }


def total_bytes(sizes: pa.Array | pa.ChunkedArray, start: int = 0) -> int:
    """The sum of `start` and of n sizes, null for unknown ones, which count nothing; see `sum_of_totals`."""
    return sum_of_totals((start, int(pc.sum(sizes.cast(_WIDER)).as_py() or 0)))


def sum_of_totals(totals: Iterable[int]) -> int:
    """At most the greatest int64, as the JSON of plans and journals has it: logs may state sizes far beyond."""
    return min(sum(totals), _MOST_BYTES)


def row_digests(rows: pa.Table) -> int:
    """The sum modulo 2^256 of the SHA-256 of each row: independent of order and of how rows are split."""
    divider, sha256 = pa.scalar("\x00", pa.large_string()), hashlib.sha256
    words = np.zeros(8, np.uint64)  # sums of 32-bit words, the most significant first
    for batch in rows.to_batches(max_chunksize=_HASHED_ROWS):
        fields = [column.cast(pa.large_string()) for column in batch.columns]
        texts = pc.binary_join_element_wise(*fields, divider, null_handling="replace")
        encoded = texts.cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
        hashes = b"".join([sha256(row).digest() for row in encoded])
        words += np.frombuffer(hashes, ">u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64)
    return sum(int(word) << 32 * index for index, word in enumerate(reversed(words))) % 2**256


def to_parquet(rows: pa.Table) -> bytes:
    """The rows as one Parquet file, the same bytes for the same rows."""
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    schema = FILE_SCHEMA if schema_of(rows) is SCHEMA else _LISTED_FILE_SCHEMA
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for start in range(0, rows.num_rows, _SLICE_ROWS):
            writer.write_table(rows.slice(start, _SLICE_ROWS).cast(schema))
    return bytes(sink.getvalue())


def from_parquet(data: bytes, path: str) -> pa.Table:
    """The rows of a Parquet file that `to_parquet` wrote.

    Raises:
        CorruptFile: `path` is no such file.
    """
    import pyarrow.parquet as pq

    try:
        file = pa.BufferReader(data)
        if not any(pq.read_schema(file).equals(schema) for schema in (FILE_SCHEMA, _LISTED_FILE_SCHEMA)):
            raise CorruptFile(path, None, "not a list of removals: its columns are others")
        rows = pq.read_table(file, read_dictionary=list(_FEW_VALUES))
        rows = rows.cast(schema_of(rows)).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(path, None, f"not a list of removals: {error}") from error
    return _share_paths(rows)


def _share_paths(rows: pa.Table) -> pa.Table:
    """The same rows, with `as_written` in the memory of `path` where both are equal."""
    if not rows["as_written"].equals(rows["path"]):
        return rows
    index = SCHEMA.get_field_index("as_written")
    return rows.set_column(index, SCHEMA.field(index), rows["path"])


def _path_order(kinds: pa.Array, paths: pa.Array) -> pa.Array:
    """The sort keys of n rows within their kind: their paths, reversed for the kind that goes last first."""
    last_first = pc.equal(kinds, _LAST_FIRST)
    if not pc.any(last_first).as_py():
        return paths
    rank = pc.rank(paths, sort_keys="ascending", tiebreaker="dense").cast(pa.int64())
    return pc.if_else(last_first, pc.negate(rank), rank)


def _in_order(rows: pa.Table) -> bool:
    """Whether rows of one step are in delete order, as far as that is known without decoding them."""
    kinds = rows["kind"]
    if not pa.types.is_dictionary(kinds.type) or len(pc.unique(rows["step"])) > 1:
        return False
    if pc.any(pc.equal(kinds, _LAST_FIRST)).as_py():
        return False
    last: tuple[int, str] = (-1, "")
    for batch in rows.select(["kind", "path"]).to_batches():
        if not len(batch):
            continue
        known = pc.fill_null(pc.index_in(batch["kind"].dictionary, value_set=pa.array(KINDS)), -1).to_numpy()
        ranks = known[batch["kind"].indices.to_numpy()]
        first = (int(ranks[0]), batch["path"][0].as_py())
        ascending = pc.greater_equal(batch["path"].slice(1), batch["path"].slice(0, len(batch) - 1))
        same = ranks[1:] == ranks[:-1]
        steps = (ranks[1:] > ranks[:-1]) | (same & ascending.to_numpy(zero_copy_only=False))
        if first < last or not steps.all() or ranks.min() < 0:
            return False
        last = (int(ranks[-1]), batch["path"][len(batch) - 1].as_py())
    return True
