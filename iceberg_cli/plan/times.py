"""Times and durations as programs give them: by `datetime` and `timedelta`, by the texts of options, or in ms."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import duration_ms, iso, time_ms

Span = timedelta | str | int
"""A duration: a `timedelta`, a text such as "7d" or "P7D", or ms."""
Time = datetime | timedelta | str | int
"""A point in time: a `datetime` with a zone, how long ago it was, ISO 8601 as a text, or ms since the epoch."""

_YEAR_2000_MS: Final = 946_684_800_000


def span_ms(given: object, name: str) -> int:
    """A duration in ms.

    Args:
        given: a `Span`.
        name: of the argument.

    Raises:
        UsageError: it is none, or negative.
    """
    if isinstance(given, str):
        return duration_ms(given, name)
    if isinstance(given, timedelta):
        given = given // timedelta(milliseconds=1)
    if isinstance(given, bool) or not isinstance(given, int):
        raise UsageError(
            f"{name}: {given!r} is no duration",
            next_step='Give a timedelta, a text such as "7d", or milliseconds.',
        )
    if given < 0:
        raise UsageError(f"{name} must not be negative, and is {given} ms")
    return given


def moment_ms(given: object, name: str, *, now_ms: int | None = None) -> int:
    """A point in time, in ms since the epoch.

    Args:
        given: a `Time`.
        name: of the argument.
        now_ms: from which texts and durations count back, and after which no time may be; None: they are none of them.

    Raises:
        UsageError: it is none, has no zone, is in the future, or is a number of ms before the year 2000, which is
            mostly one of seconds.
    """
    if now_ms is not None and isinstance(given, str):
        return time_ms(given, name, now_ms=now_ms)
    if now_ms is not None and isinstance(given, timedelta):
        return now_ms - span_ms(given, name)
    if isinstance(given, datetime):
        return _of_datetime(given, name, now_ms=now_ms)
    if isinstance(given, bool) or not isinstance(given, int):
        raise UsageError(
            f"{name}: {given!r} is no time",
            next_step="Give a datetime with a zone, a timedelta, a text, or milliseconds since the epoch.",
        )
    return checked_moment_ms(given, name)


def checked_moment_ms(given_ms: int, name: str) -> int:
    """A number of ms since the epoch.

    Raises:
        UsageError: it is before the year 2000.
    """
    if given_ms < _YEAR_2000_MS:
        raise UsageError(
            f"{name}: {given_ms} is {iso(given_ms) or 'no time'}: a number is read as milliseconds since the epoch,"
            " and before the year 2000 no table was written",
            next_step="Give milliseconds and not seconds, a datetime, or for a duration a timedelta or a text such as"
            ' "7d".',
        )
    return given_ms


def deadline_ms(given: object, name: str, *, now_ms: int) -> int:
    """A point in time before which work must end, in ms since the epoch.

    Args:
        given: a `Time`, but a duration is how long from now.
        name: of the argument.
        now_ms: from which durations count.

    Raises:
        UsageError: see `moment_ms`.
    """
    if isinstance(given, timedelta):
        return now_ms + span_ms(given, name)
    if not isinstance(given, str):
        return moment_ms(given, name)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        return now_ms + duration_ms(given, name)
    return _of_datetime(moment, name, now_ms=None)


def _of_datetime(given: datetime, name: str, *, now_ms: int | None) -> int:
    if given.tzinfo is None:
        raise UsageError(
            f"{name}: {given!r} has no zone", next_step="Give it one, such as tzinfo=datetime.UTC."
        )
    value = round(given.timestamp() * 1_000)
    if now_ms is not None and value > now_ms:
        raise UsageError(f"{name}: {given.isoformat()} is in the future")
    return value
