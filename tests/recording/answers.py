"""Rows of an engine in JSON and back."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable
from typing import Any


class Row(tuple[Any, ...]):  # noqa: SLOT001 - it has names
    """Values by place and by name, as Spark's own row has them."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str], values: Iterable[Any]) -> Row:
        row = cls(values)
        row.names = tuple(names)
        return row

    def asDict(self, *, recursive: bool = False) -> dict[str, Any]:  # noqa: N802 - as Spark's
        """Values by name; those inside, too, if asked."""
        values = map(_as_dict, self) if recursive else self
        return dict(zip(self.names, values, strict=True))


def _as_dict(value: Any) -> Any:
    match value:
        case Row():
            return value.asDict(recursive=True)
        case list():
            return [_as_dict(each) for each in value]
        case dict():
            return {key: _as_dict(each) for key, each in value.items()}
    return value


def encoded(value: Any) -> Any:
    """A value that JSON can hold. Rows of Spark's are taken as `Row` is."""
    match value:
        case None | bool() | int() | str() | float():
            return value
        case tuple() if hasattr(value, "asDict"):
            names = getattr(value, "__fields__", None) or getattr(value, "names")  # noqa: B009
            return {"row": [list(names), [encoded(each) for each in value]]}
        case tuple():
            return {"tuple": [encoded(each) for each in value]}
        case list():
            return [encoded(each) for each in value]
        case dict():
            return {"map": [[encoded(key), encoded(each)] for key, each in value.items()]}
        case bytes() | bytearray():
            return {"bytes": value.hex()}
        case decimal.Decimal():
            return {"decimal": str(value)}
        case dt.datetime():
            return {"datetime": value.isoformat()}
        case dt.date():
            return {"date": value.isoformat()}
    raise TypeError(f"{type(value).__name__} cannot be recorded")


def decoded(value: Any) -> Any:
    """What was encoded."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    match kind:
        case "row":
            names, values = content
            return Row.of(names, map(decoded, values))
        case "tuple":
            return tuple(map(decoded, content))
        case "map":
            return {decoded(key): decoded(each) for key, each in content}
        case "bytes":
            return bytearray.fromhex(content)
        case "decimal":
            return decimal.Decimal(content)
        case "datetime":
            return dt.datetime.fromisoformat(content)
        case "date":
            return dt.date.fromisoformat(content)
    raise ValueError(f"{kind} is nothing that is recorded")
