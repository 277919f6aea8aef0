"""The order that rows are to come into, by what an operator asked for, and the files that are chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from iceberg_cli.errors import UsageError, how_to_install
from iceberg_cli.layout.compaction import CompactionInputs, CompactionSettings
from iceberg_cli.layout.curves import Curve
from iceberg_cli.layout.order_choice import OrderSettings, choose_for_order, expected_of
from iceberg_cli.layout.point_reads import ColumnRanges, files_opened, places_by_partition
from iceberg_cli.layout.rolling import Bools, Ints
from iceberg_cli.layout.row_order import OrderedColumn, is_comparable
from iceberg_cli.plan.column_reads import ReadsBeforeAndAfter
from iceberg_cli.plan.compaction_policy import CURVED, DECLARED, CompactionPolicy
from iceberg_cli.plan.sort_terms import SortTerm, sort_terms
from iceberg_cli.plan.text import did_you_mean

MIN_GAIN: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """The order of the rows of a group; rows that are equal in it stay in that of their files.

    Args:
        columns: by which rows are sorted; the first one decides first.
        names: of these.
        curve: on which rows are sorted by their places, then by the columns; None: by the columns alone.
    """

    columns: tuple[OrderedColumn, ...]
    names: tuple[str, ...]
    curve: Curve | None = None


def sorter() -> Any:
    """The library that sorts rows.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import duckdb  # nothing else needs it
    except ImportError as error:
        raise UsageError(
            f"Cannot bring rows into an order: {error}", next_step=how_to_install(error, extra="order")
        ) from error
    return duckdb


def without_order(order: Callable[[], object], numbers: Sequence[int]) -> Mapping[int, str]:
    """The groups whose rows can be brought into no order any more, each with the reason: a column has another name.

    Args:
        order: gives the order, by the table as it is; see `row_order`.
        numbers: of groups.
    """
    try:
        order()
    except UsageError as error:
        sorter()
        return dict.fromkeys(numbers, error.message)
    return {}


class Sortable(NamedTuple):
    """A column of files, by which rows may be ordered.

    Args:
        place: of the column in files.
        kind: of its values.
        obstacle: why rows are not ordered by it; empty: they may be.
    """

    place: int
    kind: pa.DataType
    obstacle: str = ""


def row_order(
    policy: CompactionPolicy,
    columns: Mapping[str, Sortable],
    elsewhere: Mapping[str, str],
    default: Callable[[], Sequence[SortTerm]],
) -> RowOrder:
    """The order that rows are to come into.

    Args:
        policy: what the operator asked for.
        columns: of files, by their names.
        elsewhere: other columns of the table, and why rows are not ordered by them.
        default: the table's own order, which rows can be brought into; raises UsageError where there is none.

    Raises:
        UsageError: it is by a column by which rows cannot be ordered, or nothing is installed that sorts.
    """
    sorter()
    flag, curve = "--sort-by", None
    terms: Sequence[SortTerm] = sort_terms(policy.sort_by)
    if policy.order_strategy in CURVED:
        flag, curve = "--curve-by", cast("Curve", policy.order_strategy)
        terms = [SortTerm(name, descending=False, nulls_first=True) for name in policy.curve_by]
    is_declared = policy.order_strategy == DECLARED
    is_named = bool(terms) or is_declared
    terms = terms or default()
    if is_declared:
        flag, curve = f"--strategy {DECLARED}", "hilbert" if len(terms) > 1 else None
    found, names = [], []
    for name, descending, nulls_first in terms:
        column = columns.get(name)
        obstacle = elsewhere.get(name, "it is no column") if column is None else _obstacle(column)
        if column is None or (obstacle and is_named):
            able = [each for each, own in columns.items() if not _obstacle(own)]
            hint = did_you_mean(name, able) if name not in {*columns, *elsewhere} else ""
            raise UsageError(
                f"{flag}: rows are not ordered by {name}: {obstacle}.{hint}",
                next_step=f"Columns that can be named: {', '.join(able) or 'none'}.",
            )
        found.append(OrderedColumn(place=column.place, descending=descending, nulls_first=nulls_first))
        names.append(name)
    return RowOrder(columns=tuple(found), names=tuple(names), curve=curve)


def _obstacle(column: Sortable) -> str:
    if not is_comparable(column.kind):
        return "its values have no order that all engines share"
    return column.obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPlan:
    """What an order does for the files of a table, each partition for itself.

    Args:
        order: that rows are to come into.
        ranges: of each of its columns, of n files.
        inputs: the n files.
        settings: what is chosen by.
    """

    order: RowOrder
    ranges: Sequence[ColumnRanges]
    inputs: CompactionInputs
    settings: OrderSettings

    def chosen(self) -> Bools:
        """Which of the n files are brought into the order."""
        found = np.zeros(len(self.inputs.record_count), np.bool_)
        rows, size_bytes = self._live()
        for own in self._partitions():
            ranges = [each.take(own) for each in self.ranges]
            found[own] = choose_for_order(ranges, rows[own], size_bytes[own], self.settings)
        return found

    def reads(self, chosen: Bools) -> tuple[ReadsBeforeAndAfter, ...]:
        """What reads of one value open, before and after some of the n files are brought into the order."""
        rows, size_bytes = self._live()
        sums = np.zeros((4, len(self.ranges)))
        whole = 0
        for own in self._partitions():
            ranges = [each.take(own) for each in self.ranges]
            weight = int(rows[own].sum())
            if chosen[own].any():
                found = expected_of(ranges, rows[own], size_bytes[own], self.settings, chosen[own])
                before, after, files = found.before, found.after, found.files_after
            else:
                before = after = tuple(files_opened(each, rows[own]) for each in ranges)
                files = len(own)
            counts = np.full((2, len(ranges)), [[len(own)], [files]])
            sums += weight * np.concatenate([[before, after], counts])
            whole += weight
        means = np.round(sums / max(1, whole), 2).T.tolist()
        return tuple(
            ReadsBeforeAndAfter(name, *own) for name, own in zip(self.order.names, means, strict=True)
        )

    def _live(self) -> tuple[Ints, Ints]:
        """The rows of the n files that are not deleted, and their bytes, about."""
        inputs = self.inputs
        rows = inputs.record_count - np.minimum(inputs.deleted_rows, inputs.record_count)
        share = np.divide(rows, inputs.record_count, out=np.zeros(len(rows)), where=inputs.record_count > 0)
        return rows, np.rint(inputs.size_bytes * share).astype(np.int64)

    def _partitions(self) -> Iterator[Ints]:
        """The places of the files of each partition that may be rewritten."""
        places = np.flatnonzero(self.inputs.eligible)
        for own in places_by_partition(self.inputs.partition[places]):
            yield places[own]


def order_settings(policy: CompactionPolicy, order: RowOrder, settings: CompactionSettings) -> OrderSettings:
    """What files are chosen by that are brought into an order."""
    return OrderSettings(
        curve=order.curve,
        min_gain=MIN_GAIN if policy.min_gain is None else policy.min_gain,
        target_bytes=settings.target_bytes,
        max_bytes=settings.max_bytes,
        most_bytes=settings.max_group_bytes,
        whole=policy.full or settings.rewrite_all,
        keys=tuple(each.key for each in order.columns),
    )
