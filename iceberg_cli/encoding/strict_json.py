"""A strict reader of JSON from storage: whole, bounded, and with one meaning only.

The standard parser accepts more than JSON (NaN, duplicate keys, half a surrogate pair) and can be made to
recurse or to spend minutes on one number. All of that is refused with `CorruptFile` naming path and place;
nothing else is raised.

Values are to be treated as immutable: equal small objects, which schemas repeat by the thousand, are one
object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from iceberg_cli.errors import CorruptFile

MAX_BYTES: Final = 256 * 2**20
MAX_DEPTH: Final = 64
MAX_CONTAINERS: Final = (
    4_000_000  # objects and arrays; each costs tens of bytes more in memory than in the file
)
MAX_COMMAS: Final = 32_000_000

_I64_MIN: Final = -(2**63)
_I64_MAX: Final = 2**63 - 1
_I64_DIGITS: Final = 20  # of the longest one, with its sign
_INTERNED_LENGTH: Final = 24
_SHARED_PAIRS: Final = 8
_SHARED_OBJECTS: Final = 8192
_ITEM: Final = itemgetter(1)  # of a pair of key and item

_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'"{}[]'))
_STEP: Final = np.zeros(256, np.int8)
_STEP[list(b"{[")] = 1
_STEP[list(b"}]")] = -1
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)

_SCANNED_BYTES: Final = 2**19  # the scan for depth needs ten times as much memory


class _RefusedError(ValueError):
    """A parser hook's refusal; `place` is a key or None."""

    def __init__(self, place: str | None, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason


def loads(data: bytes | bytearray, path: str, *, sharing: bool = True) -> dict[str, Any]:
    """The JSON object that `data` spells.

    Args:
        data: at most 256 MiB of UTF-8 without byte order mark.
        path: file it came from, for messages.
        sharing: make equal leaves one object: less memory for what is kept, more time for what is not.

    Returns:
        Objects as dicts in the file's key order; integers fit a signed 64-bit long.

    Raises:
        CorruptFile: no JSON object, or one with a second meaning or beyond a bound.
    """
    _check_bounds(data, path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFile(path, error.start, "not UTF-8") from None
    decoder = json.JSONDecoder(
        object_pairs_hook=_SharedValues().to_object if sharing else _to_object,
        parse_int=_to_int,
        parse_float=_to_float,
        parse_constant=_no_constant,
    )
    try:
        value = decoder.decode(text)
    except _RefusedError as refused:
        raise CorruptFile(path, refused.place, refused.reason) from None
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode("utf-8"))
        raise CorruptFile(path, offset, f"not JSON: {error.msg}") from None
    if not isinstance(value, dict):
        raise CorruptFile(path, 0, f"a JSON object is expected, not {_kind(value)}")
    return value


class JsonLines(NamedTuple):
    """The objects of newline-delimited JSON.

    Args:
        values: one dict for each line that is not blank.
        numbers: line numbers of the values, the first line being 1.
        fractions: whether any number was written with a fraction or an exponent.
        repeated: line numbers where the last of several equal keys counts.
    """

    values: list[dict[str, Any]]
    numbers: list[int]
    fractions: bool
    repeated: list[int]


class _RepeatedKeys(dict[str, Any]):
    """An object that has a key twice, of which the last counts."""


def loads_lines(
    data: bytes, path: str, *, repeats_allowed: Callable[[Mapping[str, Any]], bool] | None = None
) -> JsonLines:
    """The JSON objects that `data` spells, one on each line; lines may end in CR LF, and the last one in nothing.

    Args:
        data: UTF-8 without byte order mark, of any length.
        path: file it came from, for messages.
        repeats_allowed: of a line, whether a key may be twice in an object inside of it; None: of no line.

    Raises:
        CorruptFile: a line is not one JSON object, or is one with a second meaning. Integers may be of any size.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise CorruptFile(path, 0, "a byte order mark before the JSON")
    if b"\\u" in data and (surrogate := _LONE_SURROGATE.search(_without_escapes(data))):
        raise CorruptFile(path, surrogate.start(), "half of a surrogate pair")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFile(path, error.start, "not UTF-8") from None
    fractions: list[float] = []

    def to_float(digits: str) -> float:
        fractions.append(_to_float(digits))
        return fractions[-1]

    decoder = json.JSONDecoder(
        object_pairs_hook=_to_object, parse_float=to_float, parse_constant=_no_constant
    )
    repeating = json.JSONDecoder(
        object_pairs_hook=_to_last, parse_float=to_float, parse_constant=_no_constant
    )
    values: list[dict[str, Any]] = []
    numbers: list[int] = []
    repeated: list[int] = []
    for number, whole in enumerate(text.split("\n"), 1):
        line = whole.strip(" \t\r")
        if not line:
            continue
        place = f"line {number}"
        try:
            try:
                value, end = decoder.raw_decode(line)
            except _RefusedError:
                value, end = repeating.raw_decode(line)
                if repeats_allowed is None or type(value) is _RepeatedKeys or not repeats_allowed(value):
                    raise
                repeated.append(number)
        except _RefusedError as refused:
            raise CorruptFile(path, f"{place}, {refused.place or 'a number'}", refused.reason) from None
        except json.JSONDecodeError as error:
            raise CorruptFile(path, place, f"the line is not one whole JSON object: {error.msg}") from None
        except (RecursionError, ValueError) as error:
            raise CorruptFile(path, place, f"the line cannot be parsed: {error}") from None
        if end != len(line) or not isinstance(value, dict):
            found = _kind(value) if end == len(line) else "an object and more"
            raise CorruptFile(path, place, f"one JSON object is expected on the line, not {found}")
        values.append(value)
        numbers.append(number)
    return JsonLines(values, numbers, bool(fractions), repeated)


def dumps(value: Mapping[str, Any]) -> bytes:
    """Compact JSON in UTF-8, keys in the order of `value`, as the Java library writes it.

    Raises:
        ValueError: a float is not finite.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")


def _check_bounds(data: bytes | bytearray, path: str) -> None:
    """Refuse text that could exhaust the parser's memory or stack."""
    if len(data) > MAX_BYTES:
        raise CorruptFile(path, MAX_BYTES, f"{len(data)} bytes of JSON; at most {MAX_BYTES} are read")
    if data.startswith(b"\xef\xbb\xbf"):
        raise CorruptFile(path, 0, "a byte order mark before the JSON")
    containers = data.count(b"{") + data.count(b"[")
    if containers > MAX_CONTAINERS or data.count(b",") > MAX_COMMAS:
        raise CorruptFile(
            path,
            None,
            f"more than {MAX_CONTAINERS} objects and arrays or {MAX_COMMAS} commas in one JSON file",
        )
    plain = data
    if b"\\" in data:
        plain = _without_escapes(data)
        if surrogate := _LONE_SURROGATE.search(plain):
            raise CorruptFile(path, surrogate.start(), "half of a surrogate pair")
    deepest = _first_too_deep(plain.translate(None, _NOT_STRUCTURE))
    if deepest is not None:
        offset = _offset_of_structure(plain, deepest)
        raise CorruptFile(path, offset, f"nested more than {MAX_DEPTH} deep")


def _without_escapes(data: bytes | bytearray) -> bytes | bytearray:
    """`data` without escaped backslashes and quotes, of the same length, so that offsets stay."""
    return data.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")


def _first_too_deep(structure: bytes | bytearray) -> int | None:
    """The index of the quote or bracket that goes too deep; None if none does. Reads one chunk at a time."""
    depth_before, quotes_before = 0, 0
    for start in range(0, len(structure), _SCANNED_BYTES):
        chunk = np.frombuffer(structure, np.uint8, min(_SCANNED_BYTES, len(structure) - start), start)
        quotes = np.cumsum(chunk == ord('"'), dtype=np.int32) + quotes_before
        depth = np.cumsum(_STEP[chunk] * (quotes & 1 == 0), dtype=np.int32) + depth_before
        too_deep = np.flatnonzero(depth > MAX_DEPTH)
        if too_deep.size:
            return start + int(too_deep[0])
        depth_before, quotes_before = int(depth[-1]), int(quotes[-1]) & 1
    return None


def _offset_of_structure(plain: bytes | bytearray, index: int) -> int:
    """The byte offset of the quote or bracket with this index among all of them."""
    for start in range(0, len(plain), _SCANNED_BYTES):
        chunk = plain[start : start + _SCANNED_BYTES]
        count = len(chunk.translate(None, _NOT_STRUCTURE))
        if index < count:
            marked = np.isin(np.frombuffer(chunk, np.uint8), list(b'"{}[]'))
            return start + int(np.flatnonzero(marked)[index])
        index -= count
    raise AssertionError(index)


class _SharedValues:
    """A builder of the objects of one file: equal leaves become one object, equal short strings one string."""

    __slots__ = ("objects", "strings")

    def __init__(self) -> None:
        self.strings: dict[str, str] = {}
        self.objects: dict[tuple[Any, ...], dict[str, Any]] = {}

    def to_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        identity: tuple[Any, ...] | None = None
        if len(pairs) <= _SHARED_PAIRS:
            # The types belong to the key because 1, 1.0 and true are equal in Python.
            identity = (*pairs, *map(type, map(_ITEM, pairs)))
            try:
                shared = self.objects.get(identity)
            except TypeError:  # an array or object inside: no leaf
                identity = None
            else:
                if shared is not None:
                    return shared
        value = dict(pairs)
        if len(value) != len(pairs):
            raise _RefusedError(_first_duplicate(pairs), "the key appears twice in one object")
        strings = self.strings
        for key, item in pairs:
            if type(item) is str and len(item) <= _INTERNED_LENGTH:
                value[key] = strings.setdefault(item, item)
        # 0.0 and -0.0 are equal and of one type, and still two values.
        if identity is not None and float not in identity:
            if len(self.objects) >= _SHARED_OBJECTS:
                self.objects.clear()
            self.objects[identity] = value
        return value


def _to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _RefusedError(_first_duplicate(pairs), "the key appears twice in one object")
    return value


def _to_last(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    return value if len(value) == len(pairs) else _RepeatedKeys(value)


def _first_duplicate(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError(pairs)


def _to_int(digits: str) -> int:
    # Longer ones are not converted at all: that takes quadratic time, or fails, with thousands of digits.
    if len(digits) <= _I64_DIGITS and _I64_MIN <= (value := int(digits)) <= _I64_MAX:
        return value
    raise _RefusedError(None, f"the integer {digits[:24]}… of {len(digits)} digits does not fit 64 bits")


def _to_float(digits: str) -> float:
    value = float(digits)
    if value - value == 0:  # neither infinite nor NaN
        return value
    raise _RefusedError(None, f"the number {digits[:24]} is beyond a double")


def _no_constant(name: str) -> NoReturn:
    raise _RefusedError(None, f"{name} is not JSON")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {list: "an array", str: "a string", bool: "true or false"}
    return names.get(type(value), "a number")


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Refuse with KeyError or TypeError a value of another type or without a field; additional fields pass.

    Args:
        value: parsed JSON.
        shape: a type (`float` stands for any number), a list of one shape (an array of these), a mapping (an object
            with at least these fields), a frozenset (one of these strings), or a pair of a shape and None (it may be
            null).
        where: what the value is, for the error.
    """
    match shape:
        case (first, None):
            if value is not None:
                check_shape(value, first, where)
        case [item]:
            check_shape(value, list, where)
            for each in value:
                check_shape(each, item, where)
        case Mapping():
            check_shape(value, dict, where)
            for name, inner in shape.items():
                check_shape(value[name], inner, name)
        case frozenset():
            if type(value) is not str or value not in shape:
                raise TypeError(f"{where} has {value!r}, which is none of {', '.join(sorted(shape))}")
        case _:
            # Not isinstance: true is no number.
            allowed = (int, float) if shape is float else (shape,)
            if type(value) not in allowed:
                raise TypeError(f"{where} has {value!r} in the place of {shape.__name__}")
