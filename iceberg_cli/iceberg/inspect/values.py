"""Bounds and partition values as text, a column at a time.

Text is what Appendix D writes in JSON, with two liberties for people: a fraction of a second only where it is not zero,
and the human form of year, month, day and hour.

Spec: Appendix D; "Partition Transforms".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.json_rows import compact
from iceberg_cli.iceberg.spec.types.fixed_width import numbers_of
from iceberg_cli.iceberg.spec.types.schema import Type
from iceberg_cli.iceberg.spec.types.single_value import (
    UNITS_PER_SECOND,
    decimal_parts,
    from_bytes,
    is_geo,
    make_decimal,
    plain,
    show,
)
from iceberg_cli.iceberg.spec.types.transforms import Transform, human, parse, result_type

_NUMBERS: Final = ("int", "long", "float", "double", "boolean")
_DATE_PARTS: Final = ("year", "month", "day", "hour")
# Years 1 to 9999, in days since 1970: what Arrow and ISO 8601 spell alike.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896


def is_number(type_: Type) -> bool:
    """Whether JSON spells values of a type without quotes, NaN and infinities aside."""
    return type_ in _NUMBERS


def map_texts(column: pa.Array, types: Mapping[int, Type], *, path: str, name: str) -> pa.Array:
    """Bounds as text.

    Args:
        column: n maps from field id to bytes, or nulls.
        types: by field id; bounds of an unknown field stay hexadecimal.
        path: the table, for messages.
        name: of the column, for messages.

    Returns:
        n maps from field id to string.

    Raises:
        CorruptFile: a bound is no value of its column's type.
    """
    column = compact(column)
    keys, values = column.keys, column.items
    ids = keys.to_numpy()
    texts: list[pa.Array] = []
    places: list[Any] = []
    for field_id in np.unique(ids):
        chosen = np.flatnonzero(ids == field_id)
        places.append(chosen)
        type_ = types.get(int(field_id), "unknown")
        field = f"{name}[{field_id}]"
        texts.append(bound_texts(type_, values.take(pa.array(chosen)), path=path, field=field))
    if texts:
        order = np.argsort(np.concatenate(places), kind="stable")
        shown = pa.concat_arrays(texts).take(pa.array(order))
    else:
        shown = pa.array([], pa.string())
    child = pa.StructArray.from_arrays(
        [keys, shown],
        fields=[pa.field("key", pa.int32(), nullable=False), pa.field("value", pa.string())],
    )
    kind = pa.map_(pa.int32(), pa.string())
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, children=[child])


def bound_texts(type_: Type, values: pa.Array, *, path: str, field: str) -> pa.Array:
    """Binary single values as text; null stays null.

    Raises:
        CorruptFile: naming `path` and `field`; a value is not of the type.
    """
    if not isinstance(type_, str) or type_ == "unknown":
        return _by_value(values, lambda value: f"0x{value.hex()}")
    if not values.null_count and (numbers := numbers_of(type_, values)) is not None:
        return texts(type_, numbers)
    if type_ == "string":
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            pass  # the loop below names the value
    return _by_value(values, lambda value: _text(type_, from_bytes(type_, value, path=path, field=field)))


def texts(type_: str, values: pa.Array) -> pa.Array:
    """Values in Arrow's or Avro's representation of a type as text; null stays null."""
    if (
        type_ in UNITS_PER_SECOND
        and type_ != "time"
        and _on_calendar(values, 86_400 * UNITS_PER_SECOND[type_])
    ):
        unit = "ns" if type_.endswith("_ns") else "us"
        shown = values.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.string())
        shown = pc.replace_substring(shown, " ", "T", max_replacements=1)
        shown = pc.replace_substring_regex(shown, r"\.0+$", "")
        zone = "+00:00" if type_.startswith("timestamptz") else ""
        return pc.binary_join_element_wise(shown, zone, "")
    if type_ == "date" and _on_calendar(values, 1):
        return values.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    if type_ in {"float", "double"}:
        # Arrow leaves the point out of a whole number.
        return pc.replace_substring_regex(values.cast(pa.string()), r"^(-?\d+)$", r"\1.0")
    if type_ in _NUMBERS or type_ == "string":
        return values.cast(pa.string())
    if (parts := decimal_parts(type_)) is not None and pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    if parts is not None:
        scale = parts[1]
        return _by_value(
            values, lambda v: _text(type_, make_decimal(int.from_bytes(v, "big", signed=True), scale))
        )
    return _by_value(values, lambda value: _text(type_, value))


def _on_calendar(values: pa.Array, units_per_day: int) -> bool:
    if not pa.types.is_integer(values.type):
        return False
    found = pc.min_max(values)
    low, high = found["min"].as_py(), found["max"].as_py()
    return low is None or (low >= _FIRST_DAY * units_per_day and high < _LAST_DAY * units_per_day)


def partition_texts(transform: Transform, source_type: Type, values: pa.Array) -> pa.Array:
    """Values of one partition field as text; null stays null."""
    if not isinstance(source_type, str):
        return _by_value(values, str)
    if transform.kind in _DATE_PARTS:
        return _by_value(values, lambda value: human(transform, source_type, value))
    type_ = result_type(transform, source_type)
    if type_ == "unknown" or pa.types.is_null(values.type):
        return _by_value(values, lambda value: f"0x{value.hex()}" if isinstance(value, bytes) else str(value))
    return texts(type_, values)


def partition_summary_text(
    transform_text: str, source_type: Type, data: bytes | None, *, path: str
) -> str | None:
    """One bound of a manifest's partition field summary as text."""
    if data is None:
        return None
    transform = parse(transform_text)
    type_ = result_type(transform, source_type)
    if type_ == "unknown":
        return f"0x{data.hex()}"
    value = from_bytes(type_, data, path=path, field="partitions")
    if transform.kind in _DATE_PARTS:
        return human(transform, str(source_type), value)
    return _text(type_, value)


def is_bare(transform: Transform, source_type: Type) -> bool:
    """Whether JSON spells the field's values without quotes."""
    return (
        isinstance(source_type, str)
        and transform.kind not in _DATE_PARTS
        and is_number(result_type(transform, source_type))
    )


def _text(type_: str, value: Any) -> str:
    if isinstance(value, bytes):
        if type_.startswith("uuid") and len(value) == 16:
            hexadecimal = value.hex()
            return "-".join(hexadecimal[i:j] for i, j in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        return show(type_, value) if is_geo(type_) else value.hex()
    return plain(type_, value, fraction=False)


def _by_value(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    """Each distinct value once through `text`."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.string())
    encoded = values.dictionary_encode()
    shown = pa.array([text(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return shown.take(encoded.indices)
