"""Times, durations and sizes as people write and read them, and suggestions for a mistyped name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from iceberg_cli.errors import UsageError

_DAY_MS = 86_400_000
_FOR_EVER_MS = 1_000_000 * 365 * _DAY_MS
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_NUMBER = r"[0-9]{1,18}"
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_DURATION = re.compile(rf"({_NUMBER}(?:\.{_NUMBER})?)(ms|s|m|h|d|w)")
_ISO_DURATION = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_AGE_UNITS = (
    ("y", 365 * _DAY_MS),
    ("d", _DAY_MS),
    ("h", 3_600_000),
    ("min", 60_000),
    ("s", 1_000),
    ("ms", 1),
)
_SUGGESTIONS = 3
_MOST_OF_NAME = 40
_MAX_DURATION_MS = 1_000 * 365 * 86_400_000


def iso(timestamp_ms: int | None) -> str | None:
    """The ISO 8601 twin of a time in ms since the epoch, UTC; None where the calendar has no such day."""
    if timestamp_ms is None:
        return None
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def old(duration_ms: int) -> str:
    """An age in words; a negative one is the time that something is dated ahead."""
    return f"{age(duration_ms)} old" if duration_ms >= 0 else f"dated {age(duration_ms)} ahead"


def age(duration_ms: int, *, parts: int = 2) -> str:
    """A duration in words, without its sign: the largest units that matter, such as "9 d 4 h" or "35 s".

    A duration of a million years or more stands for no bound.
    """
    duration_ms = abs(duration_ms)
    if duration_ms >= _FOR_EVER_MS:
        return "for ever"
    words: list[str] = []
    for name, unit_ms in _AGE_UNITS:
        whole, duration_ms = divmod(duration_ms, unit_ms)
        if whole:
            words.append(f"{whole} {name}")
        if len(words) == parts or (words and not whole):
            break
    return " ".join(words) or "0 ms"


def age_span(least_ms: int, most_ms: int) -> str:
    """The shortest and the longest of durations, such as "6 to 38 d" or "9 h to 38 d"; one where they look the same."""
    least, most = age(least_ms, parts=1), age(most_ms, parts=1)
    if least == most:
        return most
    number, _, unit = least.partition(" ")
    return f"{number if most.endswith(f' {unit}') else least} to {most}"


def ago(age_ms: int, *, parts: int = 2) -> str:
    """How long ago something was, such as "2 h ago"; a negative age lies in the future."""
    return f"{age(age_ms, parts=parts)} ago" if age_ms >= 0 else f"{age(-age_ms, parts=parts)} in the future"


def number(value: int | None) -> str:
    """A number with separators, "?" where it is not known."""
    return "?" if value is None else f"{value:,}"


def size(bytes_: int | None) -> str:
    """Bytes in words, such as "12.3 MiB"."""
    if bytes_ is None:
        return "?"
    value = float(bytes_)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{bytes_} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def moment(timestamp_ms: int | None) -> str:
    """A time in ISO 8601, UTC, to the second; years that the calendar lacks stay numbers."""
    return "" if timestamp_ms is None else _formatted(timestamp_ms, "%Y-%m-%dT%H:%M:%SZ")


def minute(timestamp_ms: int) -> str:
    """A time in a sentence, such as "2026-11-17 01:00 UTC"."""
    return _formatted(timestamp_ms, "%Y-%m-%d %H:%M UTC")


def day(timestamp_ms: int) -> str:
    """The day of a time, UTC."""
    return _formatted(timestamp_ms, "%Y-%m-%d")


def _formatted(timestamp_ms: int, form: str) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def count(number: int, noun: str) -> str:
    """Such as "1 manifest" or "2 manifests"; the noun is a plural."""
    return f"{number:,} {noun}" if number != 1 else f"1 {singular(noun)}"


def end_of(name: str) -> str:
    """The end of a long name, such as of a table, by which it is known: what is shown of it fits a line."""
    return name if len(name) <= _MOST_OF_NAME else f"...{name[3 - _MOST_OF_NAME :]}"


def singular(noun: str) -> str:
    """The singular of a plural."""
    if noun.endswith("ies"):
        return f"{noun.removesuffix('ies')}y"
    return noun.removesuffix("es") if noun.endswith("ches") else noun.removesuffix("s")


def listed(words: Sequence[str], *, last: str = "and") -> str:
    """Words with commas between them, and a word of its own before the last: "a, b and c"."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


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
    """A point in time, in ms since the epoch: ISO 8601 with zone, a date, which begins in UTC, epoch ms, or an age.

    Raises:
        UsageError: unreadable, without a zone, or after `now_ms`.
    """
    if re.fullmatch(r"[0-9]{11,18}", text):
        value = int(text)
    elif _DURATION.fullmatch(text) or text.startswith("P"):
        value = now_ms - duration_ms(text, option)
    else:
        try:
            moment = datetime.fromisoformat(f"{text}T00:00Z" if _DATE.fullmatch(text) else text)
        except ValueError:
            raise UsageError(
                f"{option}: {text!r} is no time; write 2026-05-01T00:00:00Z, 2026-05-01, epoch milliseconds,"
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


def size_or_duration(text: str | None, option: str) -> tuple[int | None, int | None]:
    """The bytes and the ms of an option that is given in either; None both where it is not given.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None, None
    try:
        return None, duration_ms(text, option)
    except UsageError:
        return size_bytes(text, option), None


def comma_separated(text: str) -> list[str]:
    r"""The values of a text that has commas between them; `\,` is a comma of a value.

    A text with no comma between values is one value as it is; else there are no empty values, and no space around them.
    """
    parts = re.split(r"(?<!\\),", text)
    if len(parts) > 1:
        parts = [part.strip() for part in parts if part.strip()] or [""]
    return [part.replace("\\,", ",") for part in parts]


def as_one_value(value: str) -> str:
    """The text that `comma_separated` reads as this one value."""
    return value.replace(",", "\\,")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A sentence with the nearest of some names, the best first, to be put behind another one; empty if none is near.

    Args:
        word: what was written.
        names: what there is.
    """
    import difflib  # most runs mistype nothing

    by_lower = {name.lower(): name for name in names}
    nearest = difflib.get_close_matches(word.lower(), by_lower, n=_SUGGESTIONS)
    return f" Did you mean {' or '.join(repr(by_lower[name]) for name in nearest)}?" if nearest else ""
