"""Which data files and deletes `--where` chooses: by partition values, and by bounds and counts of columns.

A name is that of a partition field, or else of a column of the current schema. A partition field's value meets a
condition or does not, and files of a spec without the field do not. A condition on a column chooses every file that may
have such a row; what a file's entry does not tell, it may have.

Spec: "Scan Planning" (inclusive projection), "Partition Transforms", "Data File Fields" (bounds and counts).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.branch.literal_values import value_of
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionField, PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import NestedField, StructType, Type
from iceberg_cli.iceberg.spec.types.single_value import decimal_parts, from_bytes, make_decimal
from iceberg_cli.iceberg.spec.types.transforms import Transform, apply, parse, result_type
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.plan.where import Condition

Bools = npt.NDArray[np.bool_]

_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_PROJECTED: Final = {"<": "<=", ">": ">=", "<=": "<=", ">=": ">=", "=": "=", "IN": "IN"}
"""Operators on a column, and what then is so of an order-preserving transform of it."""
_UNORDERED: Final = ("=", "IN")


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """A condition on the column of an id, and the column's type."""

    condition: Condition
    field_id: int
    type: str

    def values(self, transform: str = "identity") -> list[Any]:
        """See `value_of`."""
        return [value_of(each, self.type, transform, self.condition.field) for each in self.condition.values]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFilter:
    """The conditions of `--where`, all of which hold of what is chosen.

    Args:
        on_partitions: on partition fields.
        on_columns: on columns.
    """

    on_partitions: tuple[Condition, ...] = ()
    on_columns: tuple[ColumnCondition, ...] = ()

    @property
    def entry_columns(self) -> tuple[str, ...]:
        """The columns of manifest entries that `of_files` reads."""
        names = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
        return names if self.on_columns else ()

    def of_partitions(
        self, spec: PartitionSpec, types: Mapping[int, Type], partitions: pa.StructArray
    ) -> Bools:
        """Which of n partition tuples are chosen.

        Args:
            spec: of the tuples.
            types: of columns, by field id.
            partitions: in the order of the spec's fields, in Avro's representation.

        Raises:
            UsageError: a value is not of the type of its field or column.
        """
        chosen = np.ones(len(partitions), np.bool_)
        columns = partitions.flatten()
        for condition in self.on_partitions:
            places = [place for place, field in enumerate(spec.fields) if field.name == condition.field]
            if not places or places[0] >= len(columns):
                return np.zeros(len(partitions), np.bool_)
            field = spec.fields[places[0]]
            transform = parse(field.transform)
            type_ = result_type(transform, types.get(field.source_id, "unknown"))
            targets = [value_of(each, type_, transform.kind, field.name) for each in condition.values]
            chosen &= _met(condition.operator, targets, columns[places[0]], type_)
        for on_column in self.on_columns:
            for field, column in zip(spec.fields, columns, strict=False):
                if _is_of(field, on_column.field_id):
                    chosen &= _may_meet(on_column, parse(field.transform), column)
        return chosen

    def of_files(self, entries: pa.Table, sources: Sequence[ManifestSource]) -> Bools:
        """Which of n data files may have rows that meet the conditions on columns, by `entry_columns`.

        Args:
            entries: one chunk, with the place of its manifest among the sources as `manifest`.
            sources: for messages.

        Raises:
            CorruptFile: a bound is no value of its column's type. UsageError: as `of_partitions`.
        """
        chosen = np.ones(len(entries), np.bool_)
        for condition in self.on_columns:
            chosen &= _may_have(condition, entries, sources)
        return chosen


def file_filter(
    conditions: Sequence[Condition], metadata: TableMetadata, *, reads_bounds: bool = True
) -> FileFilter:
    """Look up what the conditions are about.

    Args:
        conditions: see `parse_where`.
        metadata: of the table.
        reads_bounds: False where files are chosen by their partitions alone: then a column has to have a partition
            field, and a name that is of both, and differs, is of the partition field.

    Raises:
        UsageError: a name is of neither, or of both, or a value is not of its column's type.
    """
    fields = [field for spec in metadata.partition_specs for field in spec.fields]
    by_name = {field.name: field for field in fields}
    columns = dict(_columns(metadata.current_schema().fields))
    on_partitions: list[Condition] = []
    on_columns: list[ColumnCondition] = []
    for condition in conditions:
        name = condition.field
        if name in by_name:
            field, column = by_name[name], columns.get(name)
            same = column is None or (field.transform == "identity" and _is_of(field, column.field_id))
            if reads_bounds and not same:
                raise UsageError(
                    f"--where: {name!r} is a partition field ({field.transform}), and not the column of that name"
                )
            on_partitions.append(condition)
            continue
        if name not in columns:
            near = did_you_mean(name, (*by_name, *columns))
            known = ", ".join(sorted(by_name)) or "none"
            raise UsageError(
                f"--where: {name!r} is no partition field and no column.{near}",
                next_step=f"Partition fields: {known}. Columns in structs have a dot in their names.",
            )
        field_id, type_ = columns[name].field_id, columns[name].type
        if not isinstance(type_, str):
            raise UsageError(f"--where: {name!r} is no column of single values")
        if not reads_bounds and not any(_is_of(field, field_id) for field in fields):
            raise UsageError(
                f"--where: {name!r} has no partition field, and deletes are chosen by their partitions",
                next_step=f"Partition fields: {', '.join(sorted(by_name)) or 'none'}.",
            )
        on_columns.append(ColumnCondition(condition, field_id, type_))
        on_columns[-1].values()
    return FileFilter(on_partitions=tuple(on_partitions), on_columns=tuple(on_columns))


def _is_of(field: PartitionField, field_id: int) -> bool:
    """Whether a partition field tells something of the column of an id, and of no other."""
    return field.source_ids == (field_id,) and parse(field.transform).kind not in ("void", "unknown")


def _columns(fields: Sequence[NestedField], prefix: str = "") -> Iterator[tuple[str, NestedField]]:
    """Columns and fields of structs, by their dotted names; a row has many values of what is in lists and maps."""
    for field in fields:
        yield prefix + field.name, field
        if isinstance(field.type, StructType):
            yield from _columns(field.type.fields, f"{prefix}{field.name}.")


def _may_meet(on_column: ColumnCondition, transform: Transform, column: pa.Array) -> Bools:
    """Which of n values of a partition field may have rows that meet a condition on its source column."""
    condition, type_ = on_column.condition, on_column.type
    if condition.operator in ("NULL", "NOT NULL"):  # every transform keeps nulls, and makes none
        return _met(condition.operator, [], column, type_)
    if transform.kind == "identity":
        return _met(condition.operator, on_column.values(), column, type_)
    sign = _PROJECTED.get(condition.operator)
    targets = _transformed(on_column, transform)
    if sign is None or targets is None or (transform.kind == "bucket" and sign not in _UNORDERED):
        return np.asarray(column.is_valid())
    return _met(sign, targets, column, result_type(transform, type_))


def _transformed(on_column: ColumnCondition, transform: Transform) -> list[Any] | None:
    """The condition's values in the domain of `_comparable`; None where the type cannot hold one, or is not taken."""
    values, parts = on_column.values(), decimal_parts(on_column.type)
    try:
        column = pa.array(values, None if parts is None else pa.decimal128(38, parts[1]))
        found = apply(transform, on_column.type, column)
    except (ValueError, OverflowError):  # Arrow's errors are ValueErrors
        return None
    if pa.types.is_date(found.type):
        found = found.cast(pa.int32())
    return list(found.to_pylist())


def _may_have(on_column: ColumnCondition, entries: pa.Table, sources: Sequence[ManifestSource]) -> Bools:
    """Which of n data files may have rows that meet a condition, by their bounds and counts of its column."""
    condition, type_ = on_column.condition, on_column.type
    key = pa.scalar(on_column.field_id, pa.int32())
    count, nulls = (
        pc.map_lookup(entries[name].combine_chunks(), key, "first")
        for name in ("value_counts", "null_value_counts")
    )
    if condition.operator == "NULL":
        return ~_true(pc.equal(nulls, 0))
    chosen = ~_true(pc.equal(nulls, count))
    # Java orders the bytes of a UUID as signed numbers, so that its bounds do not bound.
    if condition.operator in ("NOT NULL", "!=", "<>") or type_ == "uuid":
        return chosen
    lower, upper = (_bounds(on_column, name, entries, sources) for name in ("lower_bounds", "upper_bounds"))
    met = np.zeros(len(entries), np.bool_)
    for target in on_column.values():
        may = np.ones(len(entries), np.bool_)
        if condition.operator not in (">", ">="):
            may &= lower.may(operator.lt if condition.operator == "<" else operator.le, target)
        if condition.operator not in ("<", "<="):
            may &= upper.may(operator.gt if condition.operator == ">" else operator.ge, target)
        met |= may
    found: Bools = chosen & met
    return found


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of n files: `values[places[i]]`, None where there is none."""

    values: Sequence[Any]
    places: npt.NDArray[np.int64]

    def may(self, compared: Callable[[Any, Any], bool], target: Any) -> Bools:
        """Which compare so with a value, or are not known."""
        fits = [value is None or compared(value, target) for value in self.values]
        found: Bools = np.array(fits, np.bool_)[self.places]
        return found


def _bounds(
    on_column: ColumnCondition, name: str, entries: pa.Table, sources: Sequence[ManifestSource]
) -> _Bounds:
    key = pa.scalar(on_column.field_id, pa.int32())
    found = pc.map_lookup(entries[name].combine_chunks(), key, "first").dictionary_encode()
    places = found.indices.fill_null(len(found.dictionary)).to_numpy().astype(np.int64)
    _, first = np.unique(places, return_index=True)
    owners = entries["manifest"].to_numpy()[first]
    field = f"{name}[{on_column.field_id}]"
    values: list[Any] = []
    for stored, owner in zip(found.dictionary.to_pylist(), owners, strict=False):
        value = from_bytes(on_column.type, stored, path=sources[owner].path, field=field)
        is_nan = isinstance(value, float) and math.isnan(value)  # as old writers have bounds
        values.append(None if is_nan else value)
    return _Bounds((*values, None), places)


def _true(values: pa.Array) -> Bools:
    """Which are true; null is not."""
    return np.asarray(pc.fill_null(values, False))  # noqa: FBT003 - Arrow's way


def _met(sign: str, targets: Sequence[Any], column: pa.Array, type_: str) -> Bools:
    """Which of n values fit a comparison with values in the domain of `_comparable`; null fits none."""
    nulls = np.asarray(column.is_null())
    if sign in ("NULL", "NOT NULL"):
        return nulls if sign == "NULL" else ~nulls
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.bool_)
    encoded = column.dictionary_encode()
    present = [_comparable(value, type_) for value in encoded.dictionary.to_pylist()]
    compared = _COMPARED.get(sign)
    met = [value in targets if compared is None else compared(value, targets[0]) for value in present]
    indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    found: Bools = np.array(met or [False], np.bool_)[indices] & ~nulls
    return found


def _comparable(value: Any, type_: str) -> Any:
    """A value of Avro's representation as one that Python orders as the type does."""
    if isinstance(value, bytes) and (parts := decimal_parts(type_)) is not None:
        return make_decimal(int.from_bytes(value, "big", signed=True), parts[1])
    return value
