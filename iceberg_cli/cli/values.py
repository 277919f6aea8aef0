"""Parsers of option values: durations, times, sizes, numbers and key-value pairs."""

from __future__ import annotations

import re
from datetime import datetime

import typer

from iceberg_cli.errors import UsageError

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_NUMBER = r"[0-9]{1,18}"
_DURATION = re.compile(rf"({_NUMBER}(?:\.{_NUMBER})?)(ms|s|m|h|d|w)")
_ISO_DURATION = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_MIN_TARGET_BYTES, _MAX_TARGET_BYTES = 4 << 10, 1 << 40
_MAX_DURATION_MS = 1_000 * 365 * 86_400_000


def duration_ms(text: str, option: str) -> int:
    """A duration in ms: `7d`, `12h`, `30m`, `1w`, `90s`, or ISO 8601 such as `P7D` and `PT12H`.

    Raises:
        UsageError: anything else, or more than a thousand years.
    """
    match = _DURATION.fullmatch(text)
    if match:
        value = int(float(match[1]) * _UNITS_MS[match[2]])
    else:
        iso = _ISO_DURATION.fullmatch(text)
        if iso is None or text in ("P", "PT") or not any(iso.groups()):
            raise UsageError(f"{option}: {text!r} is no duration; write 7d, 12h, 30m, 1w or P7D")
        units = (7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1_000)
        value = sum(int(part or 0) * unit for part, unit in zip(iso.groups(), units, strict=True))
    if value > _MAX_DURATION_MS:
        raise UsageError(f"{option}: {text!r} is more than a thousand years")
    return value


def time_ms(text: str, option: str, *, now_ms: int) -> int:
    """A point in time, in ms since the epoch: ISO 8601 with zone, epoch ms, or a duration ago.

    Raises:
        UsageError: unreadable, without a zone, or after `now_ms`.
    """
    if re.fullmatch(r"[0-9]{11,18}", text):
        value = int(text)
    elif _DURATION.fullmatch(text) or text.startswith("P"):
        value = now_ms - duration_ms(text, option)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{option}: {text!r} is no time; write 2026-05-01T00:00:00Z, epoch milliseconds,"
                " or a duration such as 7d"
            ) from None
        if moment.tzinfo is None:
            raise UsageError(f"{option}: {text!r} has no zone; write {moment.isoformat()}Z for UTC")
        value = round(moment.timestamp() * 1_000)
    if value > now_ms:
        raise UsageError(f"{option}: {text!r} is in the future")
    return value


def size_bytes(text: str, option: str) -> int:
    """A size in bytes: `8MiB`, `512MB` or plain bytes.

    Raises:
        UsageError: unreadable or zero.
    """
    match = re.fullmatch(rf"({_NUMBER}(?:\.{_NUMBER})?) ?([A-Za-z]*)", text)
    unit = (match[2] or "B").upper() if match else ""
    if match is None or unit not in _SIZES or not float(match[1]):
        raise UsageError(f"{option}: {text!r} is no size; write 8MiB, 512MB or a number of bytes")
    return int(float(match[1]) * _SIZES[unit])


def target_bytes(text: str | None, option: str) -> int | None:
    """The target size of new files in bytes, or None where none is given.

    Raises:
        UsageError: unreadable, or no plausible file size: mostly one whose unit was forgotten.
    """
    if text is None:
        return None
    size = size_bytes(text, option)
    if not _MIN_TARGET_BYTES <= size <= _MAX_TARGET_BYTES:
        raise UsageError(
            f"{option} must be between 4KiB and 1TiB, not {text!r}, which is {size:,} bytes",
            next_step="Write the unit: 8MiB, 512MB.",
        )
    return size


def integer(text: str) -> int:
    """A whole number, for options that take one.

    Raises:
        typer.BadParameter: anything else; typer adds the option's name.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise typer.BadParameter(f"{text!r} is no whole number")
    return int(text)


def positive(value: int | None, option: str) -> int | None:
    """`value`, if it is above zero or absent.

    Raises:
        UsageError: zero or negative.
    """
    if value is not None and value < 1:
        raise UsageError(f"{option} must be at least 1, not {value}")
    return value


def key_value(text: str, option: str) -> tuple[str, str]:
    """`K=V` as its two parts.

    Raises:
        UsageError: there is no `=`.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        # What follows the first word may be a secret after a mistyped "=".
        shown = re.match(r"[\w.-]*", text)
        raise UsageError(f"{option}: {shown[0] if shown else ''!r} is not KEY=VALUE")
    return key, value
