"""The table's sort order in new files: groups whose files follow each other by it are read in that order.

Files say that they are sorted, and nobody has looked: an output is of the order only where its rows were seen to be.
Merging files that overlap is no matter of this verb's.

Spec: "Sort Orders", "Data File Fields".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import BOUNDS, Bools
from iceberg_cli.iceberg.rows.leaf_columns import arrow_schema
from iceberg_cli.iceberg.rows.table_columns import primitive
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.schema import NestedField
from iceberg_cli.iceberg.spec.types.single_value import from_bytes
from iceberg_cli.iceberg.spec.types.transforms import apply, parse
from iceberg_cli.layout.ranks import comparable
from iceberg_cli.layout.row_order import OrderedColumn, is_comparable

UNSORTED = 0
Columns = tuple[OrderedColumn, ...]
_OF_TIME = ("year", "month", "day", "hour")
_WHOLE_NUMBERS = ("int", "long")


@dataclass(frozen=True, slots=True)
class TransformedKey:
    """What a transform makes of a column's values, by which a sort order goes; a `SortKey`.

    Args:
        transform: as the sort order spells it.
        source_type: of the column.
    """

    transform: str
    source_type: str

    def __call__(self, values: pa.Array) -> pa.Array:
        """As `SortKey`."""
        return apply(parse(self.transform), self.source_type, values)

    def of_numbers(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """As `SortKey`."""
        kind = primitive(self.source_type)
        assert kind is not None  # see `_key_of`
        whole = np.asarray(np.floor(numbers), np.int32 if kind.bit_width == 32 else np.int64)
        return np.asarray(comparable(self(pa.array(whole).view(kind))), np.float64)


def _key_of(transform: str, source_type: Any) -> TransformedKey | None:
    """The key of a transform that keeps the order of values; None where it does not, or takes no such type."""
    kind = parse(transform).kind
    if kind not in _OF_TIME and (kind != "truncate" or source_type not in _WHOLE_NUMBERS):
        return None
    key = TransformedKey(transform, source_type)
    try:
        key(pa.array([], primitive(source_type)))
    except ValueError:
        return None
    return key


def ordered_columns(metadata: TableMetadata, fields: tuple[NestedField, ...]) -> Columns:
    """The columns of the table's sort order, by their places in files.

    Args:
        metadata: of the table.
        fields: that files have.

    Returns:
        None of them where there is no order, or rows cannot be held against it: it has a transform that does not keep
        the order of values, or a column that is in another one, or whose values not all engines order alike.
    """
    places = {each.field_id: place for place, each in enumerate(fields)}
    kinds = arrow_schema(fields).types
    found = []
    for field in _default_fields(metadata):
        place = places.get(field.source_ids[0])
        if place is None or len(field.source_ids) > 1 or not is_comparable(kinds[place]):
            return ()
        key = None
        if field.transform != "identity":
            key = _key_of(field.transform, fields[place].type)
            if key is None:
                return ()
        found.append(
            OrderedColumn(
                place=place,
                descending=field.direction == "desc",
                nulls_first=field.null_order == "nulls-first",
                key=key,
            )
        )
    return tuple(found)


def first_column(metadata: TableMetadata) -> tuple[int, ...]:
    """The id of the column that decides first in the table's sort order, if it has one."""
    return tuple(field.source_ids[0] for field in _default_fields(metadata)[:1])


def _default_fields(metadata: TableMetadata) -> Any:
    orders = {each.order_id: each for each in metadata.sort_orders}
    return orders[metadata.default_sort_order_id].fields


def in_key_order(
    inputs: pa.Table,
    metadata: TableMetadata,
    fields: tuple[NestedField, ...],
    *,
    moves: Bools,
    sorts: bool | None = None,
) -> tuple[pa.Table, int]:
    """Inputs in the order in which they are read.

    Args:
        inputs: of groups, which lie together, with `sort_order_id`, and bounds of `first_column`.
        metadata: of the table.
        fields: that files have.
        moves: whether the rows of each come to several partitions.
        sorts: whether rows are brought into the table's order, True, or into another one; None: into none.

    Returns:
        The same, with the table's order as `sort_order_id` where the files of a group follow each other by it, and
        none elsewhere; and how many files are of the order that new ones will not be of.
    """
    order_id, columns = metadata.default_sort_order_id, ordered_columns(metadata, fields)
    claimed = pc.fill_null(inputs["sort_order_id"], UNSORTED).to_numpy() == order_id
    kept = np.zeros(len(inputs), np.bool_)
    order = np.arange(len(inputs))
    if sorts:
        kept[:] = True
    elif sorts is None and columns and len(inputs):
        field = fields[columns[0].place]
        groups = inputs["group"].to_numpy()
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(groups)], strict=True):
            if claimed[start:end].all() and not moves[start]:
                found = _following(inputs.slice(start, end - start), field, descending=columns[0].descending)
                if found is not None:
                    order[start:end] = start + found
                    kept[start:end] = True
    at = inputs.schema.get_field_index("sort_order_id")
    ids = pa.array(np.where(kept, order_id, UNSORTED).astype(np.int32))
    lost = 0 if order_id == UNSORTED else int((claimed & ~kept).sum())
    return inputs.set_column(at, "sort_order_id", ids).take(pa.array(order)), lost


def _following(inputs: pa.Table, field: NestedField, *, descending: bool) -> Any:
    """The places of a group's files in key order; None where they overlap, or do not say where they begin and end."""
    if len(inputs) == 1:
        return np.zeros(1, np.int64)
    bounds = []
    for path, *both in zip(*(inputs[name].to_pylist() for name in ("path", *BOUNDS)), strict=True):
        ends = [each[0] for each in both]
        if None in ends:
            return None
        bounds.append([from_bytes(str(field.type), each, path=path, field=field.name) for each in ends])
    places = sorted(range(len(bounds)), key=lambda place: bounds[place], reverse=descending)
    for this, following in pairwise(places):
        first, second = (following, this) if descending else (this, following)
        if not bounds[first][1] <= bounds[second][0]:  # NaN is in no order
            return None
    return np.array(places)
