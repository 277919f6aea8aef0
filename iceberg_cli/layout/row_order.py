"""Whether rows are in an order, seen while they pass by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import Bools, one_array

_SIGNED: Final[Any] = {4: np.int32, 8: np.int64}


class SortKey(Protocol):
    """What rows are ordered by in the place of values: that of a greater value is no less, that of null is null."""

    def __call__(self, values: pa.Array) -> pa.Array:
        """Of n values, n."""
        ...

    def of_numbers(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The same, of values as `comparable` has them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedColumn:
    """A column that rows are ordered by.

    Args:
        place: of the column.
        descending: its values, whatever is so of nulls.
        nulls_first: before all values.
        key: by which they are, in the place of its values.
    """

    place: int
    descending: bool
    nulls_first: bool
    key: SortKey | None = None

    def of(self, rows: pa.Table) -> pa.Array:
        """What decides of n rows."""
        values = one_array(rows.column(self.place))
        return values if self.key is None else self.key(values)


class OrderCheck:
    """Looks at rows batch by batch; numbers with a fraction are ordered from -NaN to NaN, and -0.0 comes before 0.0."""

    def __init__(self, columns: Sequence[OrderedColumn]) -> None:
        """The first of the columns decides, the next one where its values are equal, and so on."""
        self._columns = columns
        self._last: pa.Table | None = None
        self.holds = True

    def see(self, rows: pa.Table) -> None:
        """Look at rows that follow those that were seen before."""
        if not self.holds or not rows.num_rows:
            return
        keys = [each.of(rows) for each in self._columns]
        rows = pa.Table.from_arrays(keys, names=[str(place) for place in range(len(keys))])
        if self._last is not None:
            rows = pa.concat_tables([self._last, rows])
        equal = np.ones(rows.num_rows - 1, np.bool_)
        for column, values in zip(self._columns, rows.columns, strict=True):
            before, after = _compared(one_array(values), column)
            self.holds = self.holds and not (equal & after).any()
            equal &= ~(before | after)
        self._last = rows.slice(rows.num_rows - 1)


def key_changes(rows: pa.Table, columns: Sequence[OrderedColumn]) -> Bools:
    """For each of n rows but the last, whether the next one differs from it in one of some columns."""
    changes = np.zeros(max(0, rows.num_rows - 1), np.bool_)
    for column in columns:
        before, after = _compared(column.of(rows), column)
        changes |= before | after
    return changes


def is_comparable(kind: pa.DataType) -> bool:
    """Whether values of a type have one order everywhere."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_temporal(kind)
        or types.is_string(kind)
        or types.is_binary(kind)
    )


def _compared(values: pa.Array, column: OrderedColumn) -> tuple[Bools, Bools]:
    """For each of n values but the last, whether it comes before the next one, and whether it comes after it."""
    if pa.types.is_floating(values.type):
        values = as_integers(values)
    this, following = values.slice(0, len(values) - 1), values.slice(1)
    less, greater = (
        pc.fill_null(compare(this, following), False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        for compare in (pc.less, pc.greater)
    )
    if column.descending:
        less, greater = greater, less
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    first, then = is_null[:-1] & ~is_null[1:], ~is_null[:-1] & is_null[1:]
    if not column.nulls_first:
        first, then = then, first
    return less | first, greater | then


def as_integers(values: pa.Array) -> pa.Array:
    """Numbers with a fraction as integers of the same order."""
    width = values.type.bit_width // 8
    signed = _SIGNED[width]
    bits = pc.fill_null(values, 0.0).to_numpy().view(signed)
    ordered = np.where(bits < 0, bits ^ np.iinfo(signed).max, bits)
    return pa.array(ordered, mask=values.is_null().to_numpy(zero_copy_only=False))
