"""Which files of a Delta table `--where` chooses: by partition values, and by the statistics of columns.

A condition on a column chooses every file that may have such a row; what a file's statistics do not tell, it may have.

Spec: Delta protocol, "Partition Value Serialization", "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import partition_texts, physical_name, primitive, stats_parsed
from iceberg_cli.delta.spec.text_values import partition_values, value_of
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import UsageError
from iceberg_cli.layout.rolling import Bools
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.plan.where import Condition, Literal, no_value

_COMPARED: Final[Mapping[str, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    "=": pc.equal, "!=": pc.not_equal, "<>": pc.not_equal,
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_MOST_DIGITS: Final = 400  # of the largest double there are 309
_CUT_US: Final = 999  # writers cut upper bounds of times to the millisecond


class _Leaf(NamedTuple):
    """A column: its physical names, and its type."""

    names: tuple[str, ...]
    kind: pa.DataType


def chosen_files(conditions: Sequence[Condition], adds: pa.Table, metadata: Metadata) -> Bools:
    """Which of n files may have rows that meet all conditions.

    A partition value that readers understand in different ways, or that is not a number, may meet each.

    Raises:
        UsageError: a condition is not on a column of a primitive type, or has a value that is none of its type.
    """
    texts = partition_texts(adds, metadata)
    leaves = _leaves(schema_fields(metadata))
    chosen = np.ones(len(adds), np.bool_)
    for condition in conditions:
        leaf = leaves.get(condition.field)
        if leaf is None:
            raise UsageError(
                f"--where: {condition.field!r} is no column of values.{did_you_mean(condition.field, leaves)}",
                next_step=f"Columns: {', '.join(leaves) or 'none'}.",
            )
        if condition.field in texts:
            found = _by_partition(condition, texts[condition.field], leaf.kind)
        else:
            found = _by_statistics(condition, adds, leaf)
        chosen &= np.asarray(found.to_numpy(zero_copy_only=False))
    return chosen


def _leaves(
    fields: Sequence[Mapping[str, Any]], above: str = "", names: tuple[str, ...] = ()
) -> dict[str, _Leaf]:
    """By their names the columns of primitive types, and those in structs by dotted ones."""
    found: dict[str, _Leaf] = {}
    for field in fields:
        own = (*names, physical_name(field))
        match field.get("type"):
            case {"type": "struct", "fields": inner}:
                found |= _leaves(inner, f"{above}{field['name']}.", own)
            case kind if (arrow := primitive(kind)) is not None:
                found[f"{above}{field['name']}"] = _Leaf(own, arrow)
    return found


def _by_partition(condition: Condition, texts: pa.Array, kind: pa.DataType) -> pa.Array:
    values, is_unknown = partition_values(texts, kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        is_unknown = pa.repeat(False, len(values))  # noqa: FBT003 - the empty text is null, as in `partitions_of`
    elif pa.types.is_floating(kind):
        is_unknown = pc.or_(is_unknown, _true(pc.is_nan(values)))
    return pc.or_(is_unknown, _met(condition, values))


def _met(condition: Condition, values: pa.Array) -> pa.Array:
    match condition.operator:
        case "NULL":
            return values.is_null()
        case "NOT NULL":
            return values.is_valid()
    targets = _targets(condition, values.type)
    if condition.operator == "IN":
        return pc.is_in(values, value_set=pa.array(targets, values.type), skip_nulls=True)
    return _true(_COMPARED[condition.operator](values, pa.scalar(targets[0], values.type)))


def _by_statistics(condition: Condition, adds: pa.Table, leaf: _Leaf) -> pa.Array:
    """Which files may have rows that meet a condition, by the bounds and the nulls of its column."""
    members = [pa.field("numRecords", pa.int64()), _nested("nullCount", leaf.names, pa.int64())]
    members += [_nested(name, leaf.names, leaf.kind) for name in ("minValues", "maxValues")]
    found = stats_parsed(one_array(adds["stats"]), pa.struct(members))
    records = pc.struct_field(found, "numRecords")
    nulls, lower, upper = (
        pc.struct_field(found, [name, *leaf.names]) for name in ("nullCount", "minValues", "maxValues")
    )
    # Of rows that a vector deletes nobody knows whether they were null.
    is_exact = adds["deletionVector"].is_null()
    is_all_null = pc.and_(_true(pc.equal(nulls, records)), one_array(is_exact))
    match condition.operator:
        case "NULL":
            return pc.invert(pc.and_(_true(pc.equal(nulls, 0)), one_array(is_exact)))
        case "NOT NULL":
            return pc.invert(is_all_null)
    targets = _targets(condition, leaf.kind)
    if pa.types.is_timestamp(leaf.kind):
        most = np.iinfo(np.int64).max - _CUT_US
        raised = pc.add(pc.min_element_wise(upper.cast(pa.int64()), most), _CUT_US)
        upper = raised.cast(leaf.kind)
    may = pa.repeat(False, len(adds))  # noqa: FBT003 - Arrow's way
    for target in targets:
        may = pc.or_(may, _may_meet(condition.operator, pa.scalar(target, leaf.kind), lower, upper))
    return pc.and_(may, pc.invert(is_all_null))


def _may_meet(operator: str, target: pa.Scalar, lower: pa.Array, upper: pa.Array) -> pa.Array:
    """Whether a value between bounds may be so; a bound that is null says nothing."""
    above = _true_or_unknown(pc.less_equal(lower, target))
    below = _true_or_unknown(pc.greater_equal(upper, target))
    match operator:
        case "<":
            return _true_or_unknown(pc.less(lower, target))
        case "<=":
            return above
        case ">":
            return _true_or_unknown(pc.greater(upper, target))
        case ">=":
            return below
        case "=" | "IN":
            return pc.and_(above, below)
    return pa.repeat(True, len(lower))  # noqa: FBT003 - bounds may be shortened, so a file of one value is not known


def _nested(name: str, names: Sequence[str], kind: pa.DataType) -> pa.Field:
    """A struct of one column, which may be in others."""
    for each in reversed(names):
        kind = pa.struct([pa.field(each, kind)])
    return pa.field(name, kind)


def _targets(condition: Condition, kind: pa.DataType) -> list[Any]:
    return [_target(each, kind, condition.field) for each in condition.values]


def _target(literal: Literal, kind: pa.DataType, field: str) -> Any:
    """A literal as a value that Arrow takes for the type."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    text: str | None = None
    if isinstance(literal, bool):
        text = str(literal).lower() if pa.types.is_boolean(kind) else None
    elif isinstance(literal, Decimal):
        text = _digits(literal, kind) if is_number else None
    elif not (is_number or pa.types.is_boolean(kind)):
        text = literal
    found = value_of(text, kind)
    if found is None:
        raise no_value(literal, field, str(kind))
    return found


def _digits(number: Decimal, kind: pa.DataType) -> str | None:
    """As the log has a number of the type; None for one that is none of it."""
    if abs(number.adjusted()) > _MOST_DIGITS:
        return None
    if not pa.types.is_integer(kind):
        return f"{number:f}"
    return str(int(number)) if number == int(number) else None


def _true(values: pa.Array) -> pa.Array:
    return pc.fill_null(values, False)  # noqa: FBT003 - Arrow's way


def _true_or_unknown(values: pa.Array) -> pa.Array:
    return pc.fill_null(values, True)  # noqa: FBT003 - Arrow's way
