"""What a manifest entry says of the rows of a Parquet file: counts, sizes and bounds, from its footer.

A footer does not count NaN, has no minimum of long values, and orders UUIDs otherwise than Iceberg Java does: that is
seen in the rows while they are written.

Spec: "Data File Fields", "Metrics"; Appendix D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import leaf_arrays
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.rows.column_bounds import lower_bound, upper_bound
from iceberg_cli.iceberg.rows.leaf_columns import LeafColumn
from iceberg_cli.iceberg.rows.metrics_modes import NONE, MetricsMode

_LONGEST_IN_FOOTERS: Final = 4096  # bytes of a value in the statistics that Arrow writes
_BOUNDED_HERE: Final = ("string", "binary", "uuid")
_UUID_HALVES: Final = (0, 8)  # where Java's comparison of UUIDs looks at a sign


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMetrics:
    """Of one data file; maps are by field id.

    As in Iceberg Java nothing but the size is said of columns in lists and maps, and of those without statistics.

    Args:
        record_count: its rows.
        column_sizes: bytes, compressed.
        value_counts: with nulls and NaN.
        null_value_counts: of the same columns.
        nan_value_counts: of `float` and `double`.
        lower_bounds: as single values.
        upper_bounds: as single values.
        split_offsets: where its row groups begin, ascending.
    """

    record_count: int
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]


@dataclass(kw_only=True)
class SeenValues:
    """What is looked at in the rows of a file while they are written.

    Args:
        leaves: columns of the file.
        modes: by field id.
    """

    leaves: Sequence[LeafColumn]
    modes: Mapping[int, MetricsMode]
    nan_counts: dict[int, int] = field(default_factory=dict)
    long_values: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # the least and the greatest of all
    uuid_signs: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)

    def see(self, rows: pa.Table) -> None:
        """Take note of rows, which become one row group."""
        if not any(self._is_looked_at(leaf) for leaf in self.leaves):
            return
        for batch in rows.to_batches():  # without a copy
            arrays = [leaf for column in batch.columns for leaf in leaf_arrays(column)]
            for leaf, array in zip(self.leaves, arrays, strict=True):
                if self._is_looked_at(leaf):
                    self._see(leaf, array)

    def _is_looked_at(self, leaf: LeafColumn) -> bool:
        mode = self.modes[leaf.field_id]
        if leaf.is_repeated or mode == NONE:
            return False
        return leaf.type in ("float", "double") or (leaf.type in _BOUNDED_HERE and mode.bound_length != 0)

    def _see(self, leaf: LeafColumn, array: pa.Array) -> None:
        if leaf.type in ("float", "double"):
            count = pc.sum(pc.is_nan(array)).as_py() or 0
            self.nan_counts[leaf.field_id] = self.nan_counts.get(leaf.field_id, 0) + count
        elif leaf.type == "uuid":
            width = 16
            values = pc.drop_null(array)
            data = np.frombuffer(values.buffers()[1] or b"", np.uint8)[
                values.offset * width : (values.offset + len(values)) * width
            ].reshape(-1, width)
            signs = np.unique(data[:, list(_UUID_HALVES)] >> 7, axis=0).tolist()
            self.uuid_signs.setdefault(leaf.field_id, set()).update(tuple(each) for each in signs)
        else:
            longest = pc.max(pc.binary_length(array)).as_py() or 0
            if longest > _LONGEST_IN_FOOTERS or leaf.field_id in self.long_values:
                found = pc.min_max(array.cast(pa.binary())).as_py()
                known = self.long_values.get(leaf.field_id)
                values = [each for each in (found["min"], found["max"], *(known or ())) if each is not None]
                if values:
                    self.long_values[leaf.field_id] = min(values), max(values)

    def measured(self, footer: Any, path: str) -> FileMetrics:
        """As `Measure`: see `file_metrics`."""
        return file_metrics(footer, self, path)

    def orders_agree(self, field_id: int) -> bool:
        """Whether UUIDs of a column are in one order by their bytes and by Java's comparison of signed halves."""
        return len(self.uuid_signs.get(field_id, ())) <= 1


def file_metrics(footer: Any, seen: SeenValues, path: str) -> FileMetrics:
    """The metrics of a Parquet file that was just written.

    Args:
        footer: as `pyarrow.parquet` has it.
        seen: in all of its rows.
        path: for messages.

    Raises:
        CorruptFile: it has other columns than were written.
    """
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    # Not by the footer's schema: the two would keep each other until garbage is collected.
    own = [group.column(place).path_in_schema for group in groups[:1] for place in range(group.num_columns)]
    if own != [leaf.path for leaf in seen.leaves]:
        raise CorruptFile(path, "schema", f"the footer has the columns {', '.join(own)[:200]}")
    sizes, values, nulls = {}, {}, {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for index, leaf in enumerate(seen.leaves):
        mode = seen.modes[leaf.field_id]
        if not mode.counts:
            continue
        chunks = [group.column(index) for group in groups]
        statistics = [chunk.statistics for chunk in chunks]
        sizes[leaf.field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        if leaf.is_repeated or any(each is None or not each.has_null_count for each in statistics):
            continue
        values[leaf.field_id] = sum(chunk.num_values for chunk in chunks)
        nulls[leaf.field_id] = sum(each.null_count for each in statistics)
        if mode.bound_length != 0 and (found := _range(leaf, statistics, seen)):
            for bounds, bound in (
                (lower, lower_bound(leaf.type, found[0], mode.bound_length)),
                (upper, upper_bound(leaf.type, found[1], mode.bound_length)),
            ):
                if bound is not None:
                    bounds[leaf.field_id] = bound
    return FileMetrics(
        record_count=footer.num_rows,
        column_sizes=sizes,
        value_counts=values,
        null_value_counts=nulls,
        nan_value_counts=dict(seen.nan_counts),
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=tuple(sorted(_begin(group) for group in groups)),
    )


def _range(leaf: LeafColumn, statistics: Sequence[Any], seen: SeenValues) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column; None where they are not known of every row group."""
    if leaf.type == "uuid" and not seen.orders_agree(leaf.field_id):
        return None
    found = list(seen.long_values.get(leaf.field_id, ()))
    # Groups without a minimum have nulls alone, NaN alone, or long values, which were seen.
    without_minimum = leaf.type in ("float", "double") or leaf.field_id in seen.long_values
    for each in statistics:
        if each.has_min_max:
            found += [_comparable(leaf, each.min_raw), _comparable(leaf, each.max_raw)]
        elif each.num_values and not without_minimum:
            return None
    return (min(found), max(found)) if found else None


def _comparable(leaf: LeafColumn, raw: Any) -> Any:
    """A value of statistics in the order of the column's type."""
    if leaf.type in ("string", "binary"):
        return raw.encode() if isinstance(raw, str) else bytes(raw)
    if leaf.type.startswith("decimal") and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _begin(group: Any) -> int:
    """Where a row group begins: at the first page or dictionary of its first column."""
    first = group.column(0)
    offsets = [first.data_page_offset]
    if first.has_dictionary_page and first.dictionary_page_offset:
        offsets.append(first.dictionary_page_offset)
    return int(min(offsets))
