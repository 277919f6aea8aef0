"""The files that a plan removes: one Arrow table, whatever their number.

Columns: `step` string (name of the step), `path` large_string (canonical storage key), `as_written` large_string
(the manifest's or log's own spelling), `kind` string, `size_bytes` int64 (null where nothing records it), `reason`
large_string. Rows are in delete order: by step, then bottom-up by kind, then by path. Parents enumerate children, so a
half-done deletion can be derived again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile

# Bottom-up. The names are those of the result columns of the peers, `deleted_<kind>s_count`.
KINDS = (
    "data_file",
    "position_delete_file",
    "equality_delete_file",
    "statistics_file",
    "manifest_file",
    "manifest_list",
    "metadata_file",
)
SCHEMA = pa.schema(
    [
        pa.field("step", pa.string(), nullable=False),
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("as_written", pa.large_string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64()),
        pa.field("reason", pa.large_string(), nullable=False),
    ]
)


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
        """Rows in any order, each path once."""
        rank = pc.index_in(table["kind"], value_set=pa.array(KINDS))
        if rank.null_count:
            raise AssertionError("a removal has a kind without a place in the delete order")
        keys = table.select(["step", "path"]).append_column("rank", rank)
        order = pc.sort_indices(
            keys, sort_keys=[("step", "ascending"), ("rank", "ascending"), ("path", "ascending")]
        )
        return cls(table.cast(SCHEMA).take(order).combine_chunks())

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
        grouped = self.table.group_by("kind").aggregate([("path", "count"), ("size_bytes", "sum")])
        found = {
            row["kind"]: {"count": row["path_count"], "bytes": row["size_bytes_sum"] or 0}
            for row in grouped.to_pylist()
        }
        return {kind: found[kind] for kind in KINDS if kind in found}

    @cached_property
    def digest(self) -> str:
        """The sum modulo 2^256 of the SHA-256 of each row: independent of order and of how rows are split.

        Returns:
            64 hexadecimal digits.
        """
        total = 0
        for batch in self.table.to_batches(max_chunksize=65_536):
            columns = [column.to_pylist() for column in batch.columns]
            for row in zip(*columns, strict=True):
                text = "\x00".join("" if value is None else str(value) for value in row)
                total += int.from_bytes(
                    hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest(), "big"
                )
        return f"{total % 2**256:064x}"

    def rows(self, numbers: Sequence[int]) -> pa.Table:
        """The rows of these numbers, which may be none."""
        return self.table.take(pa.array(numbers, pa.int64()))

    def of_step(self, step: str) -> tuple[int, int]:
        """The row range `[start, stop)` of the step of that name."""
        matches = pc.equal(self.table["step"], step)
        count = int(pc.sum(matches).as_py() or 0)
        start = int(pc.index(self.table["step"], pa.scalar(step, pa.string())).as_py()) if count else 0
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
        pq.write_table(self.table, sink, compression="zstd", row_group_size=1 << 20)
        return bytes(sink.getvalue())

    @classmethod
    def from_parquet(cls, data: bytes, path: str) -> Removals:
        """Read `to_parquet`.

        Raises:
            CorruptFile: `path` is no such file.
        """
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(pa.BufferReader(data))
        except (pa.ArrowException, OSError) as error:
            raise CorruptFile(path, None, f"not a list of removals: {error}") from error
        if not table.schema.equals(SCHEMA):
            raise CorruptFile(path, None, "not a list of removals: its columns are others")
        return cls(table.combine_chunks())
