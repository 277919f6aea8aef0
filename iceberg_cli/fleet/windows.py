"""Windows of maintenance: the days and hours, in a zone, in which work on a table may begin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import did_you_mean

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EVERY_DAY: Final = ("mon-sun",)
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_DAY_S: Final = 86_400
_MIDNIGHT: Final = "24:00"  # the end of a day
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_HORIZON_MS: Final = 400 * _DAY_MS  # every window opens and closes sooner


@dataclass(frozen=True, kw_only=True)
class Window:
    """A daily span of a zone's wall clock, on some days of the week.

    A time is in it where the clocks of the zone show one of its hours: what they leave out when they are put forward
    is never in it, and what they show twice when they are put back is in it twice.

    Args:
        days: on which it begins, 0 for Monday.
        from_s: its first second, from midnight on.
        to_s: the second at which it has ended, 86,400 for the end of the day; not after `from_s` where it ends on the
            next day.
        zone: whose clocks are meant.
        text: as people read it.
    """

    days: frozenset[int]
    from_s: int
    to_s: int
    zone: tzinfo
    text: str

    def contains(self, time_ms: int) -> bool:
        """Whether a time is in it.

        Args:
            time_ms: in ms since the epoch.
        """
        local = _local(time_ms, self.zone)
        second = local.hour * 3_600 + local.minute * 60 + local.second
        today = local.weekday() in self.days
        if self.from_s < self.to_s:
            return today and self.from_s <= second < self.to_s
        yesterday = (local.weekday() - 1) % len(DAYS) in self.days
        return (today and second >= self.from_s) or (yesterday and second < self.to_s)

    def next_start_ms(self, time_ms: int) -> int:
        """The first time in it that is not before this one, in ms since the epoch: this one where it is in it."""
        if self.contains(time_ms):
            return time_ms
        return next(each for each in self._changes(time_ms) if self.contains(each))

    def end_ms(self, time_ms: int) -> int | None:
        """The first time after this one that is not in it, in ms since the epoch.

        Args:
            time_ms: a time in it.

        Returns:
            None where it never ends: it is all of every day.
        """
        if len(self.days) == len(DAYS) and (self.from_s, self.to_s) == (0, _DAY_S):
            return None
        return next(each for each in self._changes(time_ms) if not self.contains(each))

    def _changes(self, after_ms: int) -> Iterator[int]:
        """The times after this one, in order, at which a time in it may follow one outside, or the other way round."""
        for start_ms in range(after_ms, after_ms + _HORIZON_MS, _DAY_MS):
            end_ms = start_ms + _DAY_MS
            found = {*self._shown(start_ms, end_ms), *_put(self.zone, range(start_ms, end_ms + 1, _HOUR_MS))}
            yield from sorted(each for each in found if start_ms < each <= end_ms)

    def _shown(self, start_ms: int, end_ms: int) -> Iterator[int]:
        """The times between these, and some others, at which clocks show that it begins or ends."""
        day, last = (_local(each, self.zone).date() for each in (start_ms, end_ms))
        while day <= last:
            for second in (self.from_s, self.to_s % _DAY_S):
                shown = datetime(day.year, day.month, day.day, tzinfo=self.zone) + timedelta(seconds=second)
                for fold in (0, 1):
                    yield round(shown.replace(fold=fold).timestamp() * 1_000)
            day += timedelta(days=1)


class BothWindows:
    """The times that are in two windows.

    Args:
        first: one of them.
        second: the other.
    """

    def __init__(self, first: Window | BothWindows, second: Window | BothWindows) -> None:
        self._both = (first, second)
        self.text: str = f"{first.text}, and {second.text}"

    def contains(self, time_ms: int) -> bool:
        """See `Window`."""
        return all(each.contains(time_ms) for each in self._both)

    def next_start_ms(self, time_ms: int) -> int | None:
        """See `Window`; None where they have no time in common within a year."""
        start_ms: int | None = time_ms
        while start_ms is not None and start_ms < time_ms + _HORIZON_MS:
            if self.contains(start_ms):
                return start_ms
            starts = [each.next_start_ms(start_ms) for each in self._both]
            start_ms = None if None in starts else max(each for each in starts if each is not None)
        return None

    def end_ms(self, time_ms: int) -> int | None:
        """See `Window`."""
        ends = [each.end_ms(time_ms) for each in self._both]
        return min((each for each in ends if each is not None), default=None)


def _put(zone: tzinfo, times_ms: Sequence[int]) -> Iterator[int]:
    """The times between the first and the last of these at which the clocks of a zone are put forward or back."""
    for low, high in pairwise(times_ms):
        before = _local(low, zone).utcoffset()
        if before == _local(high, zone).utcoffset():
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if _local(middle, zone).utcoffset() == before:
                low = middle  # noqa: PLW2901 - the search narrows
            else:
                high = middle  # noqa: PLW2901
        yield high


def _local(time_ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(time_ms // 1_000, zone)


def parse_window(given: Mapping[str, Any], source: str) -> Window:
    """The window of a policy file.

    Args:
        given: `days` (`["mon-fri", "sun"]`, every day where there are none), `from` and `to` (`"01:00"`; `to` also
            `"24:00"`), and `zone` (`"Europe/Berlin"`).
        source: the path of the key, for messages.

    Raises:
        UsageError: one of them cannot be meant.
    """
    days = given.get("days", _EVERY_DAY)
    from_s = _second(given["from"], f"{source}.from")
    to_s = _DAY_S if given["to"] == _MIDNIGHT else _second(given["to"], f"{source}.to")
    if from_s == to_s:
        raise UsageError(
            f"{source}: it ends when it begins, at {given['from']}",
            next_step='A whole day is from = "00:00", to = "24:00".',
        )
    return Window(
        days=frozenset(
            day for index, each in enumerate(days) for day in _days(each, f"{source}.days[{index}]")
        ),
        from_s=from_s,
        to_s=to_s,
        zone=_zone(given["zone"], f"{source}.zone"),
        text=f"{', '.join(days)} {given['from']} to {given['to']} {given['zone']}",
    )


def _days(text: str, source: str) -> list[int]:
    """The days of `mon` or `fri-mon`, which goes over the week's end."""
    first, dash, last = text.partition("-")
    for name in (first, last) if dash else (first,):
        if name not in DAYS:
            raise UsageError(f"{source}: {name!r} is no day; write mon or mon-fri.{did_you_mean(name, DAYS)}")
    start, end = DAYS.index(first), DAYS.index(last or first)
    return [(start + offset) % len(DAYS) for offset in range((end - start) % len(DAYS) + 1)]


def _second(text: str, source: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise UsageError(f'{source}: {text!r} is no time of a day; write "01:00"')
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3_600 + minutes * 60 + seconds


def _zone(name: str, source: str) -> tzinfo:
    if name == "UTC":  # without the database of zones, too
        return UTC
    import zoneinfo  # most tables have no window

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = zoneinfo.available_timezones()
        if not known:
            raise UsageError(
                f"{source}: this machine has no database of zones to look up {name!r}",
                next_step="Install it with: pip install tzdata",
            ) from error
        raise UsageError(
            f"{source}: {name!r} is no zone.{did_you_mean(name, known)}",
            next_step="Write it as the IANA database of zones does: Europe/Berlin, UTC.",
        ) from error
