"""The files that a plan removes: one Arrow table, whatever their number.

Columns: `step` string (name of the step), `path` large_string (canonical storage key), `as_written` large_string
(the manifest's or log's own spelling), `kind` string, `size_bytes` int64 (null where nothing records it), `reason`
large_string. Rows are in delete order: by step, then bottom-up by kind, then by path, of commits the last one first.
Parents enumerate children, so a half-done deletion can be derived again.

In memory, `step`, `kind` and `reason` are dictionary-encoded, for they have few values, and `as_written` shares the
memory of `path` where both are the same: a row takes its path and some 30 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile

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
KINDS = tuple(dict.fromkeys((*ICEBERG_KINDS, *DELTA_KINDS)))
_LAST_FIRST = "commit_file"  # each stands on those before it, which must outlive it
_FILE_SCHEMA = pa.schema(
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
        for field in _FILE_SCHEMA
    ]
)
_SLICE_ROWS = 1 << 16  # of what is decoded at once


@dataclass(frozen=True)
class Removals:
    """The rows and what is derived from them."""

    table: pa.Table

    @classmethod
    def none(cls) -> Removals:
        """No row."""
        return cls(SCHEMA.empty_table())

    @classmethod
    def of(cls, table: pa.Table) -> Removals:
        """Rows in any order, each path once. Rows in delete order already are not copied."""
        if _in_order(table):
            return cls(_sharing(table.select(SCHEMA.names).cast(SCHEMA).unify_dictionaries()))
        columns = {name: table[name].cast(SCHEMA.field(name).type).combine_chunks() for name in SCHEMA.names}
        rank = pc.index_in(columns["kind"], value_set=pa.array(KINDS))
        if rank.null_count:
            raise AssertionError("a removal has a kind without a place in the delete order")
        steps = sorted(pc.unique(columns["step"]).to_pylist())
        step = pc.index_in(columns["step"], value_set=pa.array(steps, pa.string()))
        order = pc.sort_indices(
            pa.table({"step": step, "rank": rank, "path": _places(columns["kind"], columns["path"])}),
            sort_keys=[("step", "ascending"), ("rank", "ascending"), ("path", "ascending")],
        )
        same = columns["as_written"].equals(columns["path"])
        if same:
            del columns["as_written"]
        for name in list(columns):
            columns[name] = columns[name].take(order)  # one by one: the unsorted column goes at once
        if same:
            columns["as_written"] = columns["path"]
        return cls(pa.table(columns, schema=SCHEMA))

    @property
    def count(self) -> int:
        """Rows."""
        return int(self.table.num_rows)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files whose size is known."""
        return int(pc.sum(self.table["size_bytes"]).as_py() or 0)

    @cached_property
    def by_kind(self) -> Mapping[str, Mapping[str, int]]:
        """`{kind: {"count": n, "bytes": b}}`, in delete order, kinds without files left out."""
        return {
            kind: {"count": rows.num_rows, "bytes": int(pc.sum(rows["size_bytes"]).as_py() or 0)}
            for kind, rows in self._of_kinds(["size_bytes"])
        }

    def paths_of_kinds(self) -> Iterator[list[str]]:
        """The paths of each kind, in delete order: those of one kind may go in any order, before those of the next."""
        return (rows["path"].to_pylist() for _, rows in self._of_kinds(["path"]))

    def _of_kinds(self, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
        """The rows of each kind that is there."""
        kinds = self.table["kind"]
        present = pc.unique(kinds).to_pylist()
        some = self.table.select(columns)
        for kind in KINDS:  # few: grouping would load Arrow's query engine
            if kind in present:
                yield kind, some if len(present) == 1 else some.filter(pc.equal(kinds, kind))

    @cached_property
    def digest(self) -> str:
        """The sum modulo 2^256 of the SHA-256 of each row: independent of order and of how rows are split.

        Returns:
            64 hexadecimal digits.
        """
        divider, sha256 = pa.scalar("\x00", pa.large_string()), hashlib.sha256
        words = np.zeros(8, np.uint64)  # sums of 32-bit words, the most significant first
        for batch in self.table.to_batches(max_chunksize=_SLICE_ROWS):
            fields = [column.cast(pa.large_string()) for column in batch.columns]
            texts = pc.binary_join_element_wise(*fields, divider, null_handling="replace")
            rows = texts.cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
            hashes = b"".join([sha256(row).digest() for row in rows])
            words += np.frombuffer(hashes, ">u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64)
        total = sum(int(word) << 32 * place for place, word in enumerate(reversed(words)))
        return f"{total % 2**256:064x}"

    def rows(self, numbers: Sequence[int]) -> pa.Table:
        """The rows of these numbers, which may be none."""
        if isinstance(numbers, range) and numbers.step == 1:
            return self.table.slice(numbers.start, len(numbers))
        return self.table.take(pa.array(numbers, pa.int64()))

    def of_step(self, step: str) -> tuple[int, int]:
        """The row range `[start, stop)` of the step of that name."""
        matches = pc.equal(self.table["step"], step)
        count = int(pc.sum(matches).as_py() or 0)
        start = int(pc.index(matches, value=True).as_py()) if count else 0
        return start, start + count

    def paths_outside(self, shown: Removals) -> pa.Array:
        """Canonical paths that are here and not in `shown`."""
        known = pc.is_in(self.table["path"], value_set=shown.table["path"].combine_chunks())
        # Which metadata files drop out of the log depends on every commit in between, by the table's own properties.
        known = pc.or_(known, pc.equal(self.table["kind"], "metadata_file"))
        return self.table.filter(pc.invert(known))["path"].combine_chunks()

    def to_parquet(self) -> bytes:
        """The rows as one Parquet file, the same bytes for the same rows."""
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, _FILE_SCHEMA, compression="zstd") as writer:
            for start in range(0, self.count, _SLICE_ROWS):
                writer.write_table(self.table.slice(start, _SLICE_ROWS).cast(_FILE_SCHEMA))
        return bytes(sink.getvalue())

    @classmethod
    def from_parquet(cls, data: bytes, path: str) -> Removals:
        """Read `to_parquet`.

        Raises:
            CorruptFile: `path` is no such file.
        """
        import pyarrow.parquet as pq

        try:
            file = pa.BufferReader(data)
            if not pq.read_schema(file).equals(_FILE_SCHEMA):
                raise CorruptFile(path, None, "not a list of removals: its columns are others")
            table = pq.read_table(file, read_dictionary=list(_FEW_VALUES)).cast(SCHEMA).combine_chunks()
        except (pa.ArrowException, OSError) as error:
            raise CorruptFile(path, None, f"not a list of removals: {error}") from error
        return cls(_sharing(table))


def _sharing(table: pa.Table) -> pa.Table:
    """The same rows, in which `as_written` takes no memory where it is `path`."""
    if not table["as_written"].equals(table["path"]):
        return table
    place = SCHEMA.get_field_index("as_written")
    return table.set_column(place, SCHEMA.field(place), table["path"])


def _places(kinds: pa.Array, paths: pa.Array) -> pa.Array:
    """What n rows of a kind are in order by: their paths, the last one first where that is the kind's order."""
    last_first = pc.equal(kinds, _LAST_FIRST)
    if not pc.any(last_first).as_py():
        return paths
    place = pc.rank(paths, sort_keys="ascending", tiebreaker="dense").cast(pa.int64())
    return pc.if_else(last_first, pc.negate(place), place)


def _in_order(table: pa.Table) -> bool:
    """Whether rows of one step are in delete order, as far as that can be told without decoding them."""
    kinds = table["kind"]
    if not pa.types.is_dictionary(kinds.type) or len(pc.unique(table["step"])) > 1:
        return False
    if pc.any(pc.equal(kinds, _LAST_FIRST)).as_py():
        return False
    last: tuple[int, str] = (-1, "")
    for batch in table.select(["kind", "path"]).to_batches():
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
