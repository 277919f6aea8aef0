"""Which partitions of a spec rows are in, by their values.

Spec: "Partitioning", "Partition Transforms".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.projection import field_id_of
from iceberg_cli.iceberg.rows.table_columns import primitive
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import NestedField, StructType
from iceberg_cli.iceberg.spec.types.single_value import to_bytes
from iceberg_cli.iceberg.spec.types.transforms import apply, parse, result_types

Places = npt.NDArray[np.int64]
StoredPartition = tuple[bytes | None, ...]
"""A value for each field of a spec, as Appendix D's "Binary single-value serialization" has it; null is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPartitioner:
    """Tells the partitions of rows.

    Args:
        spec: of the partitions.
        types: of its source columns, by field id.
    """

    spec: PartitionSpec
    types: Mapping[int, str]

    def __call__(self, rows: pa.Table) -> Iterator[tuple[StoredPartition, Places]]:
        """Each partition that rows are in, and the places of its rows, ascending.

        Args:
            rows: n, whose columns have field ids.
        """
        columns = [self._column(each.source_id, each.transform, rows) for each in self.spec.fields]
        codes = np.zeros(rows.num_rows, np.int64)
        for column in columns:
            own = _codes(column)
            # Numbered anew each time, so that they stay below the number of rows.
            codes = np.unique(codes * (len(codes) + 1) + own, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        ends = np.flatnonzero(np.diff(codes[order])) + 1
        kinds = self.result_types()
        for places in np.split(order, ends) if len(order) else ():
            first = int(places[0])
            values = [_value(column[first], kind) for column, kind in zip(columns, kinds, strict=True)]
            yield stored_partition(kinds, values), places

    def _column(self, source_id: int, transform: str, rows: pa.Table) -> pa.Array:
        column = column_of(rows, source_id)
        assert column is not None  # see `obstacle_to`
        return apply(parse(transform), self.types[source_id], column)

    def result_types(self) -> tuple[str, ...]:
        """Of the fields of the spec."""
        return tuple(result_types(self.spec, self.types))


def obstacle_to(spec: PartitionSpec, fields: Sequence[NestedField]) -> str | None:
    """Why rows cannot be told to be in a partition of a spec, or None.

    Args:
        spec: of the partitions.
        fields: that the rows have.
    """
    types = source_types(fields)
    for each in spec.fields:
        transform = parse(each.transform)
        if transform.kind == "unknown" or len(each.source_ids) > 1:
            return f"its field {each.name} is made by transform {each.transform}, which is not known here"
        if each.source_id not in types:
            return f"the column of its field {each.name} is not there any more, or has no single values"
        kind = primitive(types[each.source_id])
        own = pa.binary(16) if isinstance(kind, pa.ExtensionType) else kind
        try:
            apply(transform, types[each.source_id], pa.array([], own))
        except ValueError as error:
            return f"its field {each.name}: {error}"
    return None


def source_types(fields: Sequence[NestedField]) -> dict[int, str]:
    """Types of the columns that a partition spec can be about, by field id: those in structs, too."""
    found: dict[int, str] = {}
    for each in fields:
        if isinstance(each.type, StructType):
            found |= source_types(each.type.fields)
        elif isinstance(each.type, str):
            found[each.field_id] = each.type
    return found


def column_of(rows: pa.Table, field_id: int) -> pa.Array | None:
    """The values of a column by its field id, which may be in structs, UUIDs as 16 bytes; None where there is none."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if (found := _found(column, field, field_id)) is not None:
            whole = found.combine_chunks()
            return whole.storage if isinstance(whole, pa.ExtensionArray) else whole
    return None


def _found(column: pa.ChunkedArray, field: pa.Field, field_id: int) -> pa.ChunkedArray | None:
    if field_id_of(field) == field_id:
        return column
    if pa.types.is_struct(field.type):
        # Flattened, they are null where the struct is.
        for inner, values in zip(field.type, column.flatten(), strict=True):
            if (found := _found(values, inner, field_id)) is not None:
                return found
    return None


def stored_partition(types: Sequence[str], values: Sequence[Any]) -> StoredPartition:
    """A partition whose values are as `single_value` has them."""
    return tuple(
        None if value is None else to_bytes(type_, value) for type_, value in zip(types, values, strict=True)
    )


def _codes(column: pa.Array) -> Places:
    """A number for each value: equal where values are in one partition, which 0.0 and -0.0 are not, and NaNs are."""
    if pa.types.is_floating(column.type):
        doubles = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)
        column = pa.array(bits, mask=np.asarray(column.is_null()))
    encoded = column.dictionary_encode(null_encoding="encode")
    found: Places = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy().astype(np.int64)
    return found


def _value(scalar: pa.Scalar, type_: str) -> Any:
    """As `single_value` has it."""
    if not scalar.is_valid:
        return None
    if pa.types.is_temporal(scalar.type):
        return scalar.cast(pa.int32() if pa.types.is_date32(scalar.type) else pa.int64()).as_py()
    return UUID(bytes=scalar.as_py()) if type_ == "uuid" else scalar.as_py()
