"""The folder of a partition in the paths of data files, as Iceberg Java spells it.

Nobody reads a value from a path, for the partition tuple of the entry has it: the folders are for people, and for
writers that keep the files of a partition together.

Spec: "Partition Transforms"; the spelling is Iceberg Java's.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote_plus

import numpy as np

from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Type
from iceberg_cli.iceberg.spec.types.single_value import UNITS_PER_SECOND, plain
from iceberg_cli.iceberg.spec.types.transforms import human, parse

_SAFE: Final = "*-._"  # besides letters and digits
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7  # Java writes numbers between these without an exponent


def partition_path(spec: PartitionSpec, types: Mapping[int, Type], values: Sequence[Any]) -> str:
    """Such as `day=2026-11-29/kind=a%2Fb`; empty where the spec has no fields.

    Args:
        spec: of the partition.
        types: of the table's columns, by field id.
        values: one for each field, as `single_value` has them.
    """
    folders = []
    for field, value in zip(spec.fields, values, strict=True):
        source = types.get(field.source_id, "unknown")
        text = _text(field.transform, source if isinstance(source, str) else "unknown", value)
        folders.append(f"{_escaped(field.name)}={_escaped(text)}")
    return "/".join(folders)


def _escaped(text: str) -> str:
    return quote_plus(text, safe=_SAFE).replace("~", "%7E")


def _text(transform: str, source_type: str, value: Any) -> str:
    if value is None:
        return "null"
    kind = parse(transform).kind
    if kind not in ("identity", "truncate", "void"):
        return human(parse(transform), source_type, value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if source_type in UNITS_PER_SECOND:
        return _time(source_type, value)
    if source_type in ("float", "double"):
        return _number(np.float32(value) if source_type == "float" else np.float64(value))
    return str(value) if source_type.startswith("decimal") else plain(source_type, value, fraction=False)


def _time(type_: str, value: int) -> str:
    """In ISO-8601, with no more digits of a second than it needs."""
    text = plain(type_, value, fraction=False)
    whole, dot, rest = text.partition(".")
    digits, plus, zone = rest.partition("+")
    return f"{whole}{dot}{digits.rstrip('0')}{plus}{zone}"


def _number(value: np.floating[Any]) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return np.format_float_positional(value, unique=True, trim="0")
    mantissa, _, exponent = np.format_float_scientific(value, unique=True, trim="0").partition("e")
    return f"{mantissa}E{int(exponent)}"
