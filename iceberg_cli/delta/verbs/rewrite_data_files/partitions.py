"""The partitions of a Delta table's files: which files are of one, and which `--where` chooses.

Spec: Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import physical_name, primitive
from iceberg_cli.delta.spec.text_values import partition_values, value_of
from iceberg_cli.errors import UsageError
from iceberg_cli.layout.rolling import Bools, Ints
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.plan.where import Condition, Literal, no_value

_COMPARED: Final[Mapping[str, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    "=": pc.equal, "!=": pc.not_equal, "<>": pc.not_equal,
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_MOST_DIGITS: Final = 400  # of the largest double there are 309


def partitions_of(adds: pa.Table, metadata: Metadata) -> tuple[Ints, list[str]]:
    """A code for the partition of each file, and the name of each: files of one have the same texts in the log.

    The empty text is null, as the protocol has it. One value that is spelled in two ways is taken for two: nothing that
    is not equal becomes one.
    """
    codes = np.zeros(len(adds), np.int64)
    texts = []
    for name, as_written in _texts(adds, metadata).items():
        own = pc.if_else(pc.equal(as_written, ""), pa.scalar(None, pa.string()), as_written)
        encoded = own.dictionary_encode(null_encoding="encode")
        width = len(encoded.dictionary) + 1
        codes = np.unique(codes * width + encoded.indices.to_numpy(), return_inverse=True)[1]
        texts.append((name, own))
    first = np.unique(codes, return_index=True)[1] if len(codes) else codes
    names = ["/".join(f"{name}={_shown(own[int(row)].as_py())}" for name, own in texts) for row in first]
    return codes, names


def chosen_files(conditions: Sequence[Condition], adds: pa.Table, metadata: Metadata) -> Bools:
    """Which of n files may have rows that meet all conditions, by their partition values.

    A value that readers understand in different ways, or that is not a number, may meet each.

    Raises:
        UsageError: a condition is not on a partition column, or has a value that is none of its column's type.
    """
    texts = _texts(adds, metadata)
    kinds = {field["name"]: primitive(field.get("type")) for field in schema_fields(metadata)}
    chosen = np.ones(len(adds), np.bool_)
    for condition in conditions:
        kind = kinds.get(condition.field)
        if condition.field not in texts or kind is None:
            raise UsageError(
                f"--where: {condition.field!r} is no partition column.{did_you_mean(condition.field, texts)}",
                next_step=f"Partition columns: {', '.join(texts) or 'none'}.",
            )
        values, is_unknown = partition_values(texts[condition.field], kind)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            is_unknown = pa.repeat(False, len(values))  # noqa: FBT003 - the empty text is null, as in `partitions_of`
        elif pa.types.is_floating(kind):
            is_unknown = pc.or_(is_unknown, _true(pc.is_nan(values)))
        chosen &= np.asarray(pc.or_(is_unknown, _met(condition, values)).to_numpy(zero_copy_only=False))
    return chosen


def _texts(adds: pa.Table, metadata: Metadata) -> dict[str, pa.Array]:
    """By partition column the text that each file has in the log."""
    by_name = {field["name"]: physical_name(field) for field in schema_fields(metadata)}
    values = adds["partitionValues"].combine_chunks()
    return {
        name: pc.map_lookup(values, by_name.get(name, name), "first") for name in metadata.partition_columns
    }


def _met(condition: Condition, values: pa.Array) -> pa.Array:
    match condition.operator:
        case "NULL":
            return values.is_null()
        case "NOT NULL":
            return values.is_valid()
    targets = [_target(each, values.type, condition.field) for each in condition.values]
    if condition.operator == "IN":
        return pc.is_in(values, value_set=pa.array(targets, values.type), skip_nulls=True)
    return _true(_COMPARED[condition.operator](values, pa.scalar(targets[0], values.type)))


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


def _shown(text: str | None) -> str:
    return "null" if text is None else text
