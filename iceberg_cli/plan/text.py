"""Times and durations as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_DAY_MS = 86_400_000
_FOR_EVER_MS = 1_000_000 * 365 * _DAY_MS


def iso(timestamp_ms: int | None) -> str | None:
    """The ISO 8601 twin of a time in ms since the epoch, UTC; None where the calendar has no such day."""
    if timestamp_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def old(duration_ms: int) -> str:
    """An age in words; a negative one is the time that something is dated ahead."""
    return f"{age(duration_ms)} old" if duration_ms >= 0 else f"dated {age(duration_ms)} ahead"


def age(duration_ms: int) -> str:
    """A duration in words, without its sign: the two largest units that matter, such as "9 d 4 h" or "35 s".

    A duration of a million years or more stands for no bound.
    """
    duration_ms = abs(duration_ms)
    if duration_ms >= _FOR_EVER_MS:
        return "for ever"
    units = (("y", 365 * _DAY_MS), ("d", _DAY_MS), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
    parts: list[str] = []
    for name, unit_ms in units:
        count, duration_ms = divmod(duration_ms, unit_ms)
        if count:
            parts.append(f"{count} {name}")
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts) or "0 ms"
