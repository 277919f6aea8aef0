"""Outputs end where the next run leaves them alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.layout.rolling import Rolling, output_files

TARGET = 1000
ROLLING = Rolling(target_bytes=TARGET, min_bytes=750, max_bytes=1800)
WITHOUT_REST = Rolling(target_bytes=TARGET, min_bytes=750, max_bytes=1800, leaves_rest=False)
EARLY = Rolling(target_bytes=TARGET, min_bytes=750, max_bytes=1300, leaves_rest=False)
TIGHT = Rolling(target_bytes=TARGET, min_bytes=900, max_bytes=1050, leaves_rest=False)


def outputs(rolling: Rolling, total: int, shares: Iterator[float]) -> list[int]:
    """Sizes of files of so many bytes, of which the writer knows how many are left.

    Args:
        rolling: what ends them.
        total: bytes.
        shares: of the size of row groups that `rolling` says each row group has.
    """
    sizes, written, left = [], 0, total
    row_group = rolling.row_group_bytes(left, TARGET)
    while left:
        step = min(left, max(1, int(row_group * next(shares))))
        written, left = written + step, left - step
        if left and rolling.closes(written, left):
            sizes.append(written)
            written, row_group = 0, rolling.row_group_bytes(left, TARGET)
    return [*sizes, written]


@pytest.mark.parametrize(
    ("rolling", "expected_bytes", "files", "goal_bytes"),
    [
        (ROLLING, 0, 1, 0),
        (ROLLING, 799, 1, 799),
        (ROLLING, 1200, 1, 1200),
        (ROLLING, 1201, 1, 1201),
        (ROLLING, 1299, 1, 1299),  # of the target 299 would be left, below 0.3 of it
        (ROLLING, 1300, 2, 1000),
        (ROLLING, 1599, 2, 1000),
        (ROLLING, 1600, 2, 800),
        (ROLLING, 2400, 2, 1200),
        (ROLLING, 2401, 3, 801),  # 800.33
        (ROLLING, 2500, 3, 834),
        (ROLLING, 3499, 3, 1167),
        (ROLLING, 3500, 4, 875),  # as near to three as to four
        (ROLLING, 8400, 8, 1050),
        (WITHOUT_REST, 1300, 1, 1300),
        (WITHOUT_REST, 1599, 1, 1599),
        (WITHOUT_REST, 1600, 2, 800),
        (EARLY, 1300, 1, 1300),
        (EARLY, 1301, 2, 1000),
        (TIGHT, 1050, 1, 1050),
        (TIGHT, 1051, 2, 1000),  # shares of 525 would all be small
        (TIGHT, 1799, 2, 1000),
        (TIGHT, 1800, 2, 900),
        (TIGHT, 2100, 2, 1050),
        (TIGHT, 2101, 3, 1000),  # neither 1,050.5 nor 700.3
        (TIGHT, 12500, 13, 962),
        (TIGHT, 12499, 12, 1042),
        (Rolling(target_bytes=TARGET, min_bytes=100, max_bytes=1250), 1260, 1 + 1, 1000),
        (Rolling(target_bytes=TARGET, min_bytes=980, max_bytes=1800), 2600, 3, 1000),  # 866.67 would be small
        (
            Rolling(target_bytes=TARGET, min_bytes=980, max_bytes=1800),
            3500,
            3,
            1167,
        ),  # and 875, though nearer
    ],
)
def test_files_are_equal_or_of_the_target(
    rolling: Rolling, expected_bytes: int, files: int, goal_bytes: int
) -> None:
    assert (rolling.files(expected_bytes), rolling.goal_bytes(expected_bytes)) == (files, goal_bytes)


def test_files_of_many_groups_are_those_of_each() -> None:
    expected_bytes = np.array([0, 1200, 1300, 1300, 2401, 8400])
    leaves_rest = np.array([True, True, True, False, False, True])
    found = output_files(expected_bytes, leaves_rest, target_bytes=TARGET, min_bytes=750, max_bytes=1800)
    assert found.tolist() == [1, 1, 2, 1, 3, 8]


@pytest.mark.parametrize(
    ("rolling", "written_bytes", "remaining_bytes", "closes"),
    [
        (ROLLING, 949, 1051, False),
        (ROLLING, 950, 1050, True),  # 0.95 of an equal share of 2,000
        (ROLLING, 1100, 1200, True),  # of 2,300 the half is 1,150
        (ROLLING, 1101, 1201, False),  # which is above 1.2 of the target
        (ROLLING, 1199, 1201, False),
        (ROLLING, 1200, 1200, True),
        (ROLLING, 5000, 0, True),
        (ROLLING, 1200, 0, False),
        (ROLLING, 1301, 299, False),  # a rest below 0.3 of the target
        (ROLLING, 1300, 300, True),
        (ROLLING, 1501, 299, False),
        (ROLLING, 1502, 299, True),  # it would be above what a file may be
        (WITHOUT_REST, 1000, 600, False),
        (WITHOUT_REST, 1000, 749, False),
        (WITHOUT_REST, 1000, 750, True),
        (WITHOUT_REST, 1051, 749, False),
        (WITHOUT_REST, 1052, 749, True),
        # one more row group, a quarter of the goal, would leave less than 750, and both would be above 1,800
        (WITHOUT_REST, 840, 976, True),
        (WITHOUT_REST, 839, 977, False),
        (EARLY, 750, 750, True),
        (EARLY, 749, 751, False),
        (EARLY, 750, 749, False),
        (Rolling(target_bytes=TARGET, min_bytes=750, max_bytes=1500), 750, 750, False),
        (TIGHT, 899, 901, False),  # 855 would be 0.95 of the goal, and small
        (TIGHT, 900, 900, True),
        (TIGHT, 949, 1152, False),
        (TIGHT, 950, 1151, True),
        (Rolling(target_bytes=TARGET, min_bytes=999, max_bytes=1800), 998, 4000, False),
        (Rolling(target_bytes=TARGET, min_bytes=999, max_bytes=1800), 999, 4001, True),
    ],
)
def test_a_file_ends_at_its_goal_unless_a_small_rest_would_be_left(
    rolling: Rolling, written_bytes: int, remaining_bytes: int, closes: bool
) -> None:
    assert rolling.closes(written_bytes, remaining_bytes) is closes


@pytest.mark.parametrize(
    ("expected_mib", "most_mib", "row_group_mib"),
    [
        (512, 128, 128),
        (10, 128, 128),
        (5120, 128, 128),
        (5120, 64, 64),
        (4096 + 410, 128, 125.1666),
        (512, 1024, 128),
    ],
)
def test_a_row_group_is_an_equal_share_of_a_file(
    expected_mib: int, most_mib: int, row_group_mib: float
) -> None:
    """Of 4,506 MiB nine files become 500.67 MiB large, and four row groups of each 125.17."""
    rolling = Rolling(target_bytes=512 << 20, min_bytes=384 << 20, max_bytes=920 << 20)
    found = rolling.row_group_bytes(expected_mib << 20, most_mib << 20) / (1 << 20)
    assert found == pytest.approx(row_group_mib, abs=0.001)


def test_a_row_group_of_a_small_target_is_a_quarter_of_it() -> None:
    rolling = Rolling(target_bytes=32 << 20, min_bytes=24 << 20, max_bytes=57 << 20)
    assert rolling.row_group_bytes(320 << 20, 128 << 20) == 8 << 20
    assert rolling.row_group_bytes(1 << 20, 128 << 20) == 8 << 20
    assert rolling.row_group_bytes(40 << 20, 128 << 20) == 8 << 20


@given(st.integers(1, 20_000), st.booleans())
def test_files_of_a_group_are_equal_but_for_a_rest(total: int, leaves_rest: bool) -> None:
    """Row groups are at most a hundredth of the target: a file is off by 5 % and one of them."""
    rolling = Rolling(target_bytes=TARGET, min_bytes=750, max_bytes=1800, leaves_rest=leaves_rest)
    sizes = outputs(rolling, total, repeat(0.03))
    assert sum(sizes) == total
    if total < 800 or 1200 < total < (1300 if leaves_rest else 1600):
        assert sizes == [total]
    elif 1200 < total < 1600:
        assert len(sizes) == 2
        assert 950 <= sizes[0] <= 1010
    else:
        assert min(sizes) >= 0.95 * 800
        assert max(sizes) <= 1210
        assert len(sizes) in (total // TARGET, -(-total // TARGET))


@given(st.integers(1, 20_000), st.lists(st.floats(0.75, 1.0), min_size=1, max_size=20), st.booleans())
def test_no_file_is_a_candidate_again_if_row_groups_are_of_the_size(
    total: int, shares: list[float], leaves_rest: bool
) -> None:
    """A writer of row groups stays somewhat below the size: no file is too large, and only a rest too small."""
    rolling = Rolling(target_bytes=TARGET, min_bytes=750, max_bytes=1800, leaves_rest=leaves_rest)
    sizes = outputs(rolling, total, cycle(shares))
    assert max(sizes) <= 1800
    assert min(sizes[:-1], default=750) >= 750
    if total >= 750:
        assert sizes[-1] >= (300 if leaves_rest else 750)
