"""The alarm: how much is abnormally much, beside the runs before and beside all that was listed."""

from __future__ import annotations

from fractions import Fraction
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.plan.alarm import PastDeletion, history_alarm, share_alarm

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 1_700_000_000_000
VERB = "expire-snapshots"


def past(*files: int, first_ago_ms: int = DAY_MS, apart_ms: int = DAY_MS) -> list[PastDeletion]:
    """Runs that deleted so many files, newest first, equally far apart."""
    return [
        PastDeletion(NOW_MS - first_ago_ms - index * apart_ms, number) for index, number in enumerate(files)
    ]


def is_alarmed(going: int, runs: list[PastDeletion], *, factor: float = 6.0) -> bool:
    return history_alarm(going, runs, verb=VERB, factor=factor, as_of_ms=NOW_MS) is not None


@pytest.mark.parametrize(("going", "alarmed"), [(2_400, False), (2_401, True), (1_000_000, True)])
def test_more_than_six_times_the_median_of_the_runs_before_is_abnormal(going: int, *, alarmed: bool) -> None:
    # The median of five numbers, whatever their order; one large run does not move it.
    assert is_alarmed(going, past(400, 90_000, 10, 400, 399)) == alarmed


@pytest.mark.parametrize(("going", "alarmed"), [(2_100, False), (2_101, True)])
def test_of_an_even_number_of_runs_the_median_is_between_the_two_in_the_middle(
    going: int, *, alarmed: bool
) -> None:
    assert is_alarmed(going, past(300, 1, 400, 5_000)) == alarmed  # 6 x 350


@pytest.mark.parametrize(("factor", "going", "alarmed"), [(2.5, 2_500, False), (2.5, 2_501, True)])
def test_the_factor_is_the_operators(factor: float, going: int, *, alarmed: bool) -> None:
    assert is_alarmed(going, past(1_000, 1_000, 1_000), factor=factor) == alarmed


def test_below_a_thousand_files_nothing_is_abnormal() -> None:
    assert not is_alarmed(999, past(1, 1, 1))
    assert is_alarmed(1_000, past(1, 1, 1))


def test_below_three_runs_nothing_is_known_to_be_abnormal() -> None:
    assert not is_alarmed(1_000_000, [])
    assert not is_alarmed(1_000_000, past(1, 1))
    assert is_alarmed(1_000_000, past(1, 1, 1))


def test_of_more_than_ten_runs_the_newest_ten_count() -> None:
    ten = [1_000] * 10
    assert is_alarmed(6_001, past(*ten, *[9_000] * 30))
    assert not is_alarmed(6_001, past(9_000, 9_000, *[1_000] * 4, 9_000, 9_000, 9_000, 9_000, *[1_000] * 30))


@pytest.mark.parametrize(
    ("first_ago_ms", "limit"),
    [
        (5 * DAY_MS, 6 * 1_000 * 5),  # five days' worth after a break of five days
        (3 * DAY_MS // 2, 6 * 1_000 * 3 // 2),
        (DAY_MS, 6 * 1_000),
        (HOUR_MS, 6 * 1_000),  # sooner than usual: not less
        (-3 * DAY_MS, 6 * 1_000),  # a plan for an earlier moment
    ],
)
def test_a_run_that_comes_late_may_delete_as_much_more(first_ago_ms: int, limit: int) -> None:
    runs = past(1_000, 1_000, 1_000, first_ago_ms=first_ago_ms)
    assert not is_alarmed(limit, runs)
    assert is_alarmed(limit + 1, runs)


def test_how_far_runs_are_apart_is_their_median_too() -> None:
    # 1, 2 and 30 days between them: usual are 2, and 6 have gone by.
    times = [NOW_MS - days * DAY_MS for days in (6, 7, 9, 39)]
    runs = [PastDeletion(time, 1_000) for time in times]
    assert not is_alarmed(18_000, runs)
    assert is_alarmed(18_001, runs)


def test_the_eleventh_run_does_not_count() -> None:
    runs = past(*[1_000] * 5, *[9_000] * 5, 9_000)
    assert not is_alarmed(30_000, runs)
    assert is_alarmed(30_001, runs)


def test_runs_a_minute_apart_are_as_far_apart_as_they_are() -> None:
    runs = past(1_000, 1_000, 1_000, first_ago_ms=120_000, apart_ms=60_000)
    assert not is_alarmed(12_000, runs)
    assert is_alarmed(12_001, runs)


@pytest.mark.parametrize("apart_ms", [0, 1, 59_999])
def test_runs_by_hand_within_a_minute_do_not_let_everything_pass(apart_ms: int) -> None:
    runs = past(1_000, 1_000, 1_000, first_ago_ms=60_000, apart_ms=apart_ms)
    assert not is_alarmed(6_000, runs)
    assert is_alarmed(6_001, runs)


def test_it_has_the_figures_and_the_way_out() -> None:
    assert history_alarm(12_000, past(400, 301, 500), verb=VERB, factor=6.0, as_of_ms=NOW_MS) == (
        "12,000 files would be deleted, more than 2,400: 6 times 400, the median of the last 3 runs of "
        "expire-snapshots here that deleted files. --unsafe-accept-alarm carries it out"
    )
    soon = past(400, 301, 500, first_ago_ms=36 * HOUR_MS)
    reason = history_alarm(12_000, soon, verb=VERB, factor=6.0, as_of_ms=NOW_MS) or ""
    assert ", times 1.5, for the last was 1 d 12 h ago and they are 1 d apart" in reason
    late = past(400, 301, 500, 401, first_ago_ms=60 * HOUR_MS)
    assert history_alarm(12_000, late, verb="remove", factor=1.5, as_of_ms=NOW_MS) == (
        "12,000 files would be deleted, more than 1,501: 1.5 times 400.5, the median of the last 4 runs of remove here "
        "that deleted files, times 2.5, for the last was 2 d 12 h ago and they are 1 d apart. "
        "--unsafe-accept-alarm carries it out"
    )


@given(
    going=st.integers(0, 20_000),
    files=st.lists(st.integers(1, 3_000), max_size=13),
    gaps_min=st.lists(st.integers(1, 50), min_size=13, max_size=13),
    ago_min=st.integers(-10, 500),
    factor=st.integers(1, 12),
)
def test_it_is_the_rule_read_literally(
    going: int, files: list[int], gaps_min: list[int], ago_min: int, factor: int
) -> None:
    started_min = [-ago_min]
    for gap in gaps_min:
        started_min.append(started_min[-1] - gap)
    runs = [
        PastDeletion(NOW_MS + minute * 60_000, number)
        for minute, number in zip(started_min, files, strict=False)
    ]
    expected = False
    if going >= 1_000 and len(files) >= 3:
        newest = files[:10]
        usual = median([Fraction(each) for each in newest])
        interval = median([Fraction(each) for each in gaps_min[: len(newest) - 1]])
        expected = going > factor * usual * max(Fraction(1), Fraction(ago_min) / interval)
    assert is_alarmed(going, runs, factor=factor) == expected


# -- beside all that was listed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "alarmed"),
    [
        ((50, 100, 50, 100), False),
        ((51, 100, 0, 100), True),
        ((0, 100, 51, 100), True),
        ((1, 1, 0, 0), True),
        ((0, 0, 0, 0), False),
        ((0, 3, 0, 3), False),
    ],
)
def test_more_than_half_of_what_was_listed_is_abnormal(
    figures: tuple[int, int, int, int], *, alarmed: bool
) -> None:
    assert (share_alarm(*figures) is not None) == alarmed


def test_the_share_has_the_figures_and_the_way_out() -> None:
    assert share_alarm(1_501, 3_000, 2_048, 1 << 20) == (
        "1,501 of 3,000 listed files, 2.0 KiB of 1.0 MiB, would be deleted, more than half. "
        "--unsafe-accept-alarm carries it out"
    )
