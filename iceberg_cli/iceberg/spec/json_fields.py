"""Typed access to parsed JSON objects, and writing them back as they were laid out.

Every record of table metadata keeps two things beside its own fields: `extra`, the keys this package does not
know, and `layout`, the keys in the order of the file. So what nobody touched is written as it was read, key
for key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from iceberg_cli.errors import InvalidMetadata

Json = Mapping[str, Any]
Layout = tuple[str, ...]

NO_EXTRA: Final[Json] = {}


class Fields:
    """One JSON object while it is read.

    Args:
        value: what should be an object.
        path: file, for messages.
        where: place inside the file, as `snapshots[3]`; empty for the file's own object.

    Every method raises `InvalidMetadata` naming the field when it has another type than asked for, or, for
    those not called optional, when it is absent or null.
    """

    __slots__ = ("path", "value", "where")

    value: dict[str, Any]

    def __init__(self, value: object, path: str, where: str = "") -> None:
        self.path = path
        self.where = where
        if not isinstance(value, dict):
            raise InvalidMetadata(path, where or None, f"an object is expected, not {shown(value)}")
        self.value = value

    def name(self, key: str) -> str:
        """The field's full name, as messages spell it."""
        return f"{self.where}.{key}" if self.where else key

    def wrong(self, key: str, reason: str) -> InvalidMetadata:
        """The error that names `key`."""
        return InvalidMetadata(self.path, self.name(key), reason)

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def integer(self, key: str) -> int:
        """A required integer."""
        value = self.value.get(key)
        if type(value) is not int:
            raise self._not("an integer", key)
        return value

    def optional_integer(self, key: str) -> int | None:
        """An integer or, where absent or null, None."""
        value = self.value.get(key)
        if value is not None and type(value) is not int:
            raise self._not("an integer", key)
        return value

    def string(self, key: str) -> str:
        """A required string."""
        value = self.value.get(key)
        if not isinstance(value, str):
            raise self._not("a string", key)
        return value

    def optional_string(self, key: str) -> str | None:
        """A string or, where absent or null, None."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, str):
            raise self._not("a string", key)
        return value

    def boolean(self, key: str) -> bool:
        """A required true or false."""
        value = self.value.get(key)
        if not isinstance(value, bool):
            raise self._not("true or false", key)
        return value

    def array(self, key: str) -> list[Any]:
        """A required array."""
        value = self.value.get(key)
        if not isinstance(value, list):
            raise self._not("an array", key)
        return value

    def optional_array(self, key: str) -> list[Any]:
        """An array; empty where absent or null."""
        return self.array(key) if key in self else []

    def integers(self, key: str) -> tuple[int, ...]:
        """A required array of integers."""
        items = self.array(key)
        if not all(type(item) is int for item in items):
            raise self._not("an array of integers", key)
        return tuple(items)

    def strings(self, key: str) -> tuple[str, ...]:
        """A required array of strings."""
        items = self.array(key)
        if not all(isinstance(item, str) for item in items):
            raise self._not("an array of strings", key)
        return tuple(items)

    def optional_string_map(self, key: str) -> Mapping[str, str] | None:
        """An object whose values are strings or, where absent or null, None."""
        value = self.value.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._not("an object", key)
        for name, item in value.items():
            if type(item) is not str:
                raise self.wrong(f"{key}.{name}", f"a string is expected, not {shown(item)}")
        return value

    def leftover(self, known: frozenset[str]) -> Json:
        """The keys that are not `known`, with their values."""
        if self.value.keys() <= known:
            return NO_EXTRA
        return {key: item for key, item in self.value.items() if key not in known}

    def layout(self) -> Layout:
        """The keys in their order; equal layouts are one object."""
        return _one_of_equal(tuple(self.value))

    def _not(self, expected: str, key: str) -> InvalidMetadata:
        if key not in self.value:
            return self.wrong(key, f"the field is required ({expected})")
        return self.wrong(key, f"{expected} is expected, not {shown(self.value[key])}")


def laid_out(
    layout: Layout, values: Json, extra: Json, *, optional: Collection[str] = frozenset()
) -> dict[str, Any]:
    """`values` and `extra` as one JSON object in the order of `layout`; keys that are not in it follow.

    A key outside the layout is left out while its value is None or, for the `optional` ones, empty or zero.
    """
    written: dict[str, Any] = {}
    for key in layout:
        if key in values:
            written[key] = values[key]
        elif key in extra:
            written[key] = extra[key]
    for key, value in values.items():
        if key not in written and value is not None and (value or key not in optional):
            written[key] = value
    for key, value in extra.items():
        written.setdefault(key, value)
    return written


def all_to_json(records: Sequence[Any]) -> list[dict[str, Any]]:
    """`to_json` of each record."""
    return [record.to_json() for record in records]


def shown(value: object) -> str:
    """A short spelling of a JSON value for a message."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@lru_cache(maxsize=512)
def _one_of_equal(layout: Layout) -> Layout:
    return layout
