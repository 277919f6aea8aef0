"""Lengths of time as Delta's properties spell them: `interval 7 days`, `168 hours`, `interval 1 day 12 hours`."""

from __future__ import annotations

import re
from typing import Final

_MICROSECONDS: Final = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_PART: Final = re.compile(r"\s*([+-]?)\s*(\d{1,18})\s+([a-z]+?)s?(?=\s|$)")


def interval_ms(text: str) -> int:
    """The length in milliseconds, microseconds beyond them cut off.

    Raises:
        ValueError: no interval, one of months or years, whose length depends on the day, or a negative one.
    """
    rest = re.sub(r"^\s*interval(?=\s)", "", text.lower()).rstrip()
    total = position = 0
    while position < len(rest) or not position:
        part = _PART.match(rest, position)
        if part is None or part[3] not in _MICROSECONDS:
            raise ValueError("no interval of weeks, days, hours, minutes, seconds or parts of these")
        total += int(part[2]) * _MICROSECONDS[part[3]] * (-1 if part[1] == "-" else 1)
        position = part.end()
    if total < 0:
        raise ValueError("a negative interval")
    return total // 1_000
