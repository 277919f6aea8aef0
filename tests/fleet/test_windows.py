"""Windows of maintenance, held against clocks that are looked at second by second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.windows import DAYS, Window, parse_window

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
# Clocks are put forward by one hour, half an hour (Lord Howe), at midnight (Havana), over a whole day (Apia, 2011).
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Pacific/Apia",
         "Asia/Kathmandu", "Africa/Casablanca")  # fmt: skip


def ms(text: str) -> int:
    """A time in UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def a_window(**values: Any) -> Window:
    return parse_window(
        {"from": "01:00", "to": "05:00", "zone": "Europe/Berlin", **values}, "policy.toml: window"
    )


def shows(given_window: dict[str, Any], time_ms: int) -> bool:
    """Whether the clock on the wall shows a time of the window: the words of the documentation, taken literally."""
    clock = datetime.fromtimestamp(time_ms / 1_000, ZoneInfo(given_window["zone"]))
    days = []
    for text in given_window["days"]:
        first, _, last = text.partition("-")
        day = DAYS.index(first)
        days.append(day)
        while last and DAYS[day] != last:
            day = (day + 1) % 7
            days.append(day)
    now, start, end = clock.strftime("%H:%M"), given_window["from"], given_window["to"]
    yesterday = (clock.date() - timedelta(days=1)).weekday()
    if start < end:
        return clock.weekday() in days and start <= now < end
    return (clock.weekday() in days and now >= start) or (yesterday in days and now < end)


TIMES = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 1, 15, 30, 59]))
DAY_TEXTS = st.one_of(
    st.sampled_from(DAYS), st.builds("{}-{}".format, st.sampled_from(DAYS), st.sampled_from(DAYS))
)
WINDOWS = st.fixed_dictionaries(
    {
        "days": st.lists(DAY_TEXTS, min_size=1, max_size=3),
        "from": TIMES,
        "to": st.one_of(TIMES, st.just("24:00")),
        "zone": st.sampled_from(ZONES),
    }
).filter(lambda each: each["from"] != each["to"])
# Around the times at which clocks of these zones were or will be put, and any other.
PUT = [
    "2011-12-30 10:00", "2026-03-08 07:00", "2026-03-08 05:00", "2026-03-29 01:00", "2026-04-04 15:00",
    "2026-10-03 15:30", "2026-10-25 01:00", "2026-11-01 05:00", "2026-11-01 06:00", "2026-02-15 02:00",
    "2026-03-22 02:00",
]  # fmt: skip
MOMENTS = st.one_of(
    st.builds(
        lambda text, minutes: ms(text) + minutes * MINUTE_MS,
        st.sampled_from(PUT),
        st.integers(-2_000, 2_000),
    ),
    st.integers(ms("2020-01-01"), ms("2035-01-01")),
)


@given(WINDOWS, MOMENTS)
@settings(max_examples=500)
def test_a_time_is_in_it_where_the_clock_shows_one_of_its_hours(values: dict[str, Any], time_ms: int) -> None:
    assert a_window(**values).contains(time_ms) == shows(values, time_ms)


@given(WINDOWS, MOMENTS)
@settings(max_examples=60)
def test_the_next_start_and_the_end_are_those_of_a_walk_minute_by_minute(
    values: dict[str, Any], time_ms: int
) -> None:
    window = a_window(**values)
    minutes = range(time_ms - time_ms % MINUTE_MS + MINUTE_MS, time_ms + 20 * 24 * HOUR_MS, MINUTE_MS)
    inside = shows(values, time_ms)
    start = time_ms if inside else next(each for each in minutes if shows(values, each))
    assert window.next_start_ms(time_ms) == start
    later = (each for each in minutes if each > start)
    assert (
        window.end_ms(start) == next((each for each in later if not shows(values, each)), None)
        or (window.end_ms(start) or ms("2100-01-01")) > minutes[-1]
    )


@given(WINDOWS, MOMENTS)
def test_laws_of_starts_and_ends(values: dict[str, Any], time_ms: int) -> None:
    window = a_window(**values)
    start = window.next_start_ms(time_ms)
    assert start >= time_ms
    assert window.contains(start)
    assert start == time_ms or not window.contains(start - 1)
    assert window.next_start_ms(start) == start
    end = window.end_ms(start)
    if end is not None:
        assert end > start
        assert not window.contains(end)
        assert window.contains(end - 1)
        assert window.next_start_ms(end) > end


BERLIN = [
    # Clocks go from 02:00 to 03:00 on 2026-03-29, at 01:00 UTC, and back on 2026-10-25, at 01:00 UTC.
    ("01:00", "05:00", "2026-03-28T12:00", "2026-03-29T00:00", "2026-03-29T03:00"),  # three hours
    ("01:00", "05:00", "2026-10-24T12:00", "2026-10-24T23:00", "2026-10-25T04:00"),  # five
    ("02:15", "02:45", "2026-03-29T00:00", "2026-03-30T00:15", "2026-03-30T00:45"),  # not on that day
    (
        "01:30",
        "02:30",
        "2026-03-29T00:00",
        "2026-03-29T00:30",
        "2026-03-29T01:00",
    ),  # ends where the gap begins
    ("02:30", "04:00", "2026-03-29T00:00", "2026-03-29T01:00", "2026-03-29T02:00"),  # begins where it ends
    ("02:15", "02:45", "2026-10-25T00:00", "2026-10-25T00:15", "2026-10-25T00:45"),
    ("02:15", "02:45", "2026-10-25T00:45", "2026-10-25T01:15", "2026-10-25T01:45"),  # a second time
    ("01:00", "02:30", "2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30"),
    ("22:00", "03:00", "2026-03-28T12:00", "2026-03-28T21:00", "2026-03-29T01:00"),  # over midnight
    ("00:00", "24:00", "2026-07-01T12:00", "2026-07-01T12:00", None),
]


@pytest.mark.parametrize(("start", "end", "time", "opens", "closes"), BERLIN)
def test_where_clocks_are_put(start: str, end: str, time: str, opens: str, closes: str | None) -> None:
    window = a_window(**{"from": start, "to": end})
    assert window.next_start_ms(ms(time)) == ms(opens)
    assert window.end_ms(ms(opens)) == (None if closes is None else ms(closes))


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    window = a_window(days=["fri"], **{"from": "22:00", "to": "04:00", "zone": "UTC"})
    assert [window.contains(ms(f"2026-11-{text}")) for text in ("27T22:00", "28T03:59:59", "28T04:00", "28T22:00")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert window.next_start_ms(ms("2026-11-28T04:00")) == ms("2026-12-04T22:00")
    assert not window.contains(ms("2026-11-27T02:00"))


def test_days_go_over_the_end_of_the_week() -> None:
    window = a_window(days=["sat-mon"], zone="UTC")
    assert window.days == {5, 6, 0}
    assert a_window(days=["mon", "wed-thu"]).days == {0, 2, 3}
    assert a_window().days == set(range(7))


def test_a_day_that_a_zone_left_out_has_no_window() -> None:
    # There was no Friday the 30th of December 2011 in Apia.
    window = a_window(days=["fri"], zone="Pacific/Apia")
    assert window.next_start_ms(ms("2011-12-26T00:00")) == ms("2012-01-05T11:00")


@pytest.mark.parametrize("zone", ["", "Mars/Phobos", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b"])
def test_a_zone_that_is_none_is_named(zone: str) -> None:
    with pytest.raises(UsageError, match=r"policy\.toml: window\.zone: .* is no zone") as caught:
        a_window(zone=zone)
    assert "IANA" in caught.value.next_step


def test_utc_needs_no_database_of_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    import zoneinfo

    previous = zoneinfo.TZPATH
    try:
        zoneinfo.reset_tzpath([])
        assert a_window(zone="UTC").contains(ms("2026-11-27T01:00"))
    finally:
        zoneinfo.reset_tzpath(previous)


def test_its_words() -> None:
    assert a_window(days=["mon-fri", "sun"]).text == "mon-fri, sun 01:00 to 05:00 Europe/Berlin"
