"""Bounds of a column as manifest entries have them: cut to a length, and never tighter than the values.

Spec: "Data File Fields" (`lower_bounds`, `upper_bounds`), Appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

from typing import Any, Final

from iceberg_cli.iceberg.spec.types.single_value import decimal_parts, minimal_big_endian, to_bytes

_SURROGATES: Final = range(0xD800, 0xE000)
_LAST_CODE_POINT: Final = 0x10FFFF


def bound_bytes(type_: str, raw: Any) -> bytes:
    """A value as a bound has it.

    Args:
        type_: of the column, in the specification's words.
        raw: as Parquet has it: a number of the type's unit, a decimal's unscaled one or its bytes, or the bytes.
    """
    if decimal_parts(type_) is not None:
        return minimal_big_endian(raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True))
    return raw if isinstance(raw, bytes) else to_bytes(type_, raw)


def lower_bound(type_: str, raw: Any, length: int | None) -> bytes | None:
    """A lower bound of at most `length` code points or bytes, None: whole; None where there is none."""
    bound = bound_bytes(type_, raw)
    match type_:
        case "string":
            text = _text(bound)
            return None if text is None else text[:length].encode()
        case "binary":
            return bound[:length]
        case "float" | "double" if raw == 0:
            return bound_bytes(type_, -0.0)
    return bound


def upper_bound(type_: str, raw: Any, length: int | None) -> bytes | None:
    """An upper bound of at most `length` code points or bytes, None: whole; None where there is none."""
    bound = bound_bytes(type_, raw)
    match type_:
        case "string":
            text = _text(bound)
            if text is None or length is None or len(text) <= length:
                return None if text is None else bound
            return _raised_text(text[:length])
        case "binary" if length is not None and len(bound) > length:
            return _raised_bytes(bound[:length])
        case "float" | "double" if raw == 0:
            return bound_bytes(type_, 0.0)
    return bound


def _text(data: bytes) -> str | None:
    """None where it is no UTF-8: whoever reads such a bound would fail."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _raised_text(text: str) -> bytes | None:
    """The least text of this length that is greater than all that begin so: its last code point is the next one."""
    for end in range(len(text), 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return (text[: end - 1] + chr(following)).encode()
    return None


def _raised_bytes(data: bytes) -> bytes | None:
    """The least bytes that are greater than all that begin so."""
    kept = data.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
