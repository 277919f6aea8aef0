"""Lengths of time as Delta's properties spell them: `interval 7 days`, `168 hours`, `interval 1 day 12 hours`.

Delta Spark reads these, and fails on months, years and numbers in quotes; delta-kernel takes a property that it cannot
read for one that is not there. Such a value is read here as the longest that it can mean, and its `problem` is told.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_DAY: Final = 86_400_000_000
_MICROSECONDS: Final = {
    "week": 7 * _DAY,
    "day": _DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_LONGEST: Final = {"year": 366 * _DAY, "month": 31 * _DAY}
_PART: Final = re.compile(r"\s*([+-]?)\s*(\d{1,18})(?:\.(\d{1,9}))?\s+([a-z]+?)s?(?=\s|$)")


class Interval(NamedTuple):
    """A length of time.

    Args:
        length_ms: in milliseconds, microseconds beyond them cut off.
        problem: why Delta Spark does not read it, or None.
    """

    length_ms: int
    problem: str | None = None


def interval_ms(text: str) -> int:
    """The length in milliseconds of what Delta Spark reads as one.

    Raises:
        ValueError: it does not read it, for the reason in the message, or it is negative.
    """
    found = interval(text)
    if found.problem is not None:
        raise ValueError(found.problem)
    return found.length_ms


def interval(text: str) -> Interval:
    """The length of time that a property spells.

    Raises:
        ValueError: no interval, or a negative one.
    """
    quoted = "'" in text
    rest = re.sub(r"^\s*interval(?=\s)", "", text.lower().replace("'", " ")).rstrip()
    total = position = 0
    varies = False
    while position < len(rest) or not position:
        part = _PART.match(rest, position)
        unit = part[4] if part else ""
        if part is None or unit not in _MICROSECONDS | _LONGEST or (part[3] and unit != "second"):
            raise ValueError("no interval of weeks, days, hours, minutes, seconds or parts of these")
        length = int(part[2]) * (_MICROSECONDS | _LONGEST)[unit] + int((part[3] or "").ljust(6, "0")[:6])
        total += -length if part[1] == "-" else length
        varies = varies or (unit in _LONGEST and length != 0)
        position = part.end()
    if total < 0:
        raise ValueError("a negative interval")
    problem = "an interval with quotes" if quoted else None
    return Interval(
        total // 1_000, "an interval of months or years, whose length varies" if varies else problem
    )
