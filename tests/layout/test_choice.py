"""What a compaction chooses: Java's rules as a table and as a slow referee, and a second run that finds nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.layout.choice import choose
from iceberg_cli.layout.compaction import (
    Compaction,
    CompactionInputs,
    CompactionSettings,
    RewriteReason,
    SkipReason,
    compaction_settings,
    reason_text,
)
from iceberg_cli.layout.rolling import Rolling

TARGET: Final = 1000
SETTINGS: Final = compaction_settings(TARGET)  # 750 to 1,800
MIB: Final = 1 << 20


@dataclass(frozen=True)
class File:
    size: int
    rows: int = 100
    deletes: int = 0
    deleted: int = 0
    partition: int = 0
    eligible: bool = True
    moves: bool = False


def files(*sizes: int, partition: int = 0) -> list[File]:
    return [File(size, partition=partition) for size in sizes]


def chosen(found: Sequence[File], settings: CompactionSettings = SETTINGS) -> Compaction:
    def column(name: str) -> Any:
        return np.array([getattr(file, name) for file in found], np.int64)

    return choose(
        CompactionInputs(
            partition=column("partition"),
            size_bytes=column("size"),
            record_count=column("rows"),
            delete_files=column("deletes"),
            deleted_rows=column("deleted"),
            eligible=column("eligible").astype(np.bool_),
            moves=column("moves").astype(np.bool_),
        ),
        settings,
    )


def groups_of(found: Compaction) -> list[list[int]]:
    """Numbers of files, by group."""
    assert (np.diff(found.group) >= 0).all()
    numbers = [found.file[found.group == group].tolist() for group in range(len(found.groups.files))]
    assert [len(each) for each in numbers] == found.groups.files.tolist()
    return numbers


def reasons_of(found: Compaction, settings: CompactionSettings = SETTINGS) -> dict[int, str]:
    texts = [
        reason_text(found.reasons, row, settings, fits_nothing=not len(found.groups.files))
        for row in range(len(found.reasons.code))
    ]
    return dict(zip(found.reasons.partition.tolist(), texts, strict=True))


# -- settings --------------------------------------------------------------------------------------------------


def test_defaults_are_shares_of_the_target() -> None:
    """Those of Iceberg Java: 0.75 and 1.80; groups are of eight targets."""
    found = compaction_settings(512 * MIB)
    assert (found.min_bytes, found.max_bytes) == (384 * MIB, int(921.6 * MIB))
    assert (found.max_group_bytes, found.min_input_files, found.delete_ratio) == (4096 * MIB, 5, 0.3)
    assert (found.delete_files, found.max_files, found.max_rewrite_bytes, found.ratio) == (None,) * 4
    given = compaction_settings(1000, min_bytes=1, max_bytes=1001, max_group_bytes=1000, delete_ratio=1)
    assert (given.min_bytes, given.max_bytes, given.max_group_bytes) == (1, 1001, 1000)
    least = compaction_settings(
        1000, min_bytes=999, min_input_files=1, delete_files=1, max_files=1, max_rewrite_bytes=1
    )
    assert (least.min_bytes, least.max_rewrite_bytes) == (999, 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_bytes": 0}, "min-size 0 is not above 0"),
        ({"min_bytes": 1000}, "min-size 1000 B is not below target-size 1000 B"),
        ({"max_bytes": 1000}, "max-size 1000 B is not above target-size 1000 B"),
        ({"max_group_bytes": 999}, "max-group-size 999 B is below target-size 1000 B"),
        ({"delete_ratio": 0.0}, "delete-ratio 0.0 is not above 0 and at most 1"),
        ({"delete_ratio": 1.1}, "delete-ratio 1.1 is not above 0 and at most 1"),
        ({"delete_ratio": float("nan")}, "delete-ratio nan is not above 0 and at most 1"),
        ({"ratio": 0.0}, "the ratio 0.0 of output to input is not above 0"),
        ({"ratio": float("inf")}, "the ratio inf of output to input is not above 0"),
        (
            {"group_order": "size"},
            "group-order size is none of bytes-desc, bytes-asc, files-desc, files-asc",
        ),
        ({"min_input_files": 0}, "min-input-files 0 is not at least 1"),
        ({"delete_files": 0}, "delete-files 0 is not at least 1"),
        ({"max_files": 0}, "max-files 0 is not at least 1"),
        ({"max_rewrite_bytes": 0}, "max-rewrite-bytes 0 is not at least 1"),
        ({"processes": 0}, "processes 0 is not at least 1"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        compaction_settings(1000, **options)


# -- rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "numbers", "code"),
    [
        ([], [], None),
        # a file below min or above max is a candidate
        (files(749, 749, 749, 749, 749), [0, 1, 2, 3, 4], None),
        (files(750, 750, 750, 750, 750), [], SkipReason.SIZES_ARE_GOOD),
        (files(1800), [], SkipReason.SIZES_ARE_GOOD),
        (files(1801), [0], None),
        (files(100, 100, 1000, 100, 100, 1800, 100), [0, 1, 3, 4, 6], None),
        # so many files, or more bytes than the target
        (files(100, 100, 100, 100), [], SkipReason.TOO_FEW_FILES),
        (files(100, 100, 100, 100, 100), [0, 1, 2, 3, 4], None),
        (files(300, 300, 400), [], SkipReason.TOO_FEW_FILES),
        (files(300, 300, 401), [0, 1, 2], None),
        (files(100), [], SkipReason.TOO_FEW_FILES),
        # and afterwards fewer files
        (files(600, 401), [], SkipReason.AS_MANY_FILES),
        (files(600, 400), [], SkipReason.TOO_FEW_FILES),
        (files(700, 700, 601), [], SkipReason.AS_MANY_FILES),
        (files(700, 700, 600), [0, 1, 2], None),
        (files(1801, 700), [0, 1], None),  # three files of two, but the large one is split
        # no file
        (files(0, 0, 0, 0, 0), [0, 1, 2, 3, 4], None),
        (files(0, 0, 0, 0), [], SkipReason.TOO_FEW_FILES),
    ],
)
def test_files_are_chosen_by_their_sizes(found: list[File], numbers: list[int], code: int | None) -> None:
    result = chosen(found)
    assert result.file.tolist() == numbers
    assert result.groups.reason.tolist() == [RewriteReason.SIZE] * bool(numbers)
    assert result.reasons.code.tolist() == [each for each in [code] if each is not None]


@pytest.mark.parametrize(
    ("file", "options", "is_chosen"),
    [
        (File(1000, rows=10, deleted=3), {}, True),
        (File(1000, rows=100, deleted=29), {}, False),
        (File(1000, rows=100, deleted=29), {"delete_ratio": 0.29}, True),
        (File(1000, rows=10, deleted=25), {}, True),  # a row that two delete files name counts twice
        (File(1000, rows=10, deleted=25), {"delete_ratio": 1.0}, True),
        (File(1000, rows=10, deleted=9), {"delete_ratio": 1.0}, False),
        (File(1000, rows=0, deleted=3), {}, False),
        (File(1000, deletes=9), {}, False),
        (File(1000, deletes=2), {"delete_files": 2}, True),
        (File(1000, deletes=1), {"delete_files": 2}, False),
        (File(1000, rows=0, deletes=2), {"delete_files": 2}, False),  # no row leaves
        (File(1000, rows=1, deletes=2), {"delete_files": 2}, True),
        (File(1000), {"rewrite_all": True}, True),
        (File(1000, eligible=False), {"rewrite_all": True}, False),
    ],
)
def test_a_file_of_a_good_size_is_chosen_by_its_deletes(
    file: File, options: dict[str, Any], is_chosen: bool
) -> None:
    result = chosen([file], compaction_settings(TARGET, **options))
    assert result.file.tolist() == [0] * is_chosen
    reason = RewriteReason.REWRITE_ALL if "rewrite_all" in options else RewriteReason.DELETES
    assert result.groups.reason.tolist() == [reason] * is_chosen
    assert result.reasons.code.tolist() == [SkipReason.SIZES_ARE_GOOD] * (file.eligible and not is_chosen)


def test_a_large_file_that_becomes_one_is_not_split() -> None:
    """H47: of 1,801 bytes 71 % stay, 1,279; half of them would be 900, one file."""
    large = [File(1801, deleted=29)]
    assert chosen(large, compaction_settings(TARGET, delete_ratio=0.5)).file.tolist() == [0]
    assert chosen(files(2000), compaction_settings(TARGET, ratio=0.5)).file.tolist() == []
    assert chosen(files(2002), compaction_settings(TARGET, ratio=0.5)).file.tolist() == [0]
    shrinking = compaction_settings(TARGET, delete_ratio=0.5, ratio=0.5)
    result = chosen(large, shrinking)
    assert (result.file.tolist(), reasons_of(result, shrinking)) == (
        [],
        {0: "a second run would find the same files: 1 file of 1.8 KiB make 2"},
    )


def test_what_a_run_measures_makes_no_group_worth_it_that_was_not() -> None:
    """Three files of 2,100 bytes would be two at the ratio 0.9, and are left as they were at the first run."""
    for ratio in (None, 1.0, 0.9):
        assert chosen(files(700, 700, 700), compaction_settings(TARGET, ratio=ratio)).file.tolist() == []
    assert chosen(files(500, 500, 500), compaction_settings(TARGET, ratio=1.3)).file.tolist() == [0, 1, 2]
    assert chosen(files(500, 500, 500), compaction_settings(TARGET, ratio=1.34)).file.tolist() == []
    assert (
        chosen(files(700, 700), compaction_settings(TARGET, ratio=1.6)).file.tolist() == []
    )  # none is too large


def test_a_small_file_beside_deletes_goes_in_where_it_does_not_stay_alone() -> None:
    deleted = File(1300, deleted=40)  # 780 stay
    assert chosen([File(200), deleted]).file.tolist() == [0, 1]  # 980: one file
    assert chosen([File(300), deleted]).file.tolist() == [1]  # 1,080 would be two again
    assert chosen([File(300), File(100), deleted]).file.tolist() == [0, 1, 2]
    assert chosen([File(1801), deleted]).file.tolist() == [0, 1]
    larger = File(1700, deleted=40)  # 1,020 stay
    assert chosen([File(300), larger, larger]).file.tolist() == [1, 2]
    assert chosen([File(700), larger, File(700)]).file.tolist() == [
        0,
        1,
        2,
    ]  # as many, but they are not alone
    both = [File(300), deleted, File(300, partition=1), replace(deleted, partition=1)]
    assert groups_of(chosen(both)) == [[1], [3]]
    assert chosen([File(300), deleted], compaction_settings(TARGET, min_input_files=2)).file.tolist() == [
        0,
        1,
    ]
    assert chosen([File(300), deleted], compaction_settings(TARGET, min_input_files=3)).file.tolist() == [1]
    assert chosen([File(300), deleted], compaction_settings(TARGET, rewrite_all=True)).file.tolist() == [0, 1]
    result = chosen([File(300, partition=1), replace(deleted, partition=1), File(1000), replace(deleted)])
    assert (groups_of(result), reasons_of(result)) == ([[3], [1]], {})


def test_files_of_other_partitions_are_in_other_groups_in_the_given_order() -> None:
    found = [File(400, partition=turn % 3 - 1) for turn in range(9)]
    result = chosen(found)
    assert groups_of(result) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert result.groups.partition.tolist() == [-1, 0, 1]


def test_groups_say_what_they_are() -> None:
    found = [
        File(400, rows=10, deleted=12),
        File(1000, rows=50, deletes=1, deleted=25),
        File(700, rows=0),
        *files(2400, 100, partition=1),
        File(300, rows=5, deleted=9, partition=2),
    ]
    groups = chosen(found).groups
    assert groups.partition.tolist() == [0, 1, 2]
    assert groups.files.tolist() == [3, 2, 1]
    assert groups.size_bytes.tolist() == [2100, 2500, 300]
    assert groups.record_count.tolist() == [60, 200, 5]
    assert groups.deleted_rows.tolist() == [35, 0, 5]
    assert groups.expected_bytes.tolist() == [500, 2500, 0]
    assert groups.expected_files.tolist() == [1, 3, 0]
    assert groups.reason.tolist() == [RewriteReason.DELETES, RewriteReason.SIZE, RewriteReason.DELETES]
    assert groups.leaves_rest.tolist() == [True, True, True]
    assert chosen([File(0, rows=5)] * 5).groups.expected_files.tolist() == [1]  # H24: rows of unknown size
    assert chosen([File(100, rows=1)] * 5).groups.expected_bytes.tolist() == [500]
    halves = chosen(found, compaction_settings(TARGET, ratio=0.5)).groups
    assert halves.expected_bytes.tolist() == [250, 1250, 0]


def test_each_reason_has_a_number_of_its_own() -> None:
    assert [reason.value for reason in RewriteReason] == [0, 1, 2, 3, 4, 5]
    assert [reason.value for reason in SkipReason] == [0, 1, 2, 3, 4]


# -- groups ----------------------------------------------------------------------------------------------------


def test_a_partition_is_cut_where_a_whole_number_of_targets_is_expected() -> None:
    """Of 8,500 bytes, too many for a group, the half is four targets, and what is left joins the second one."""
    result = chosen(files(*[100] * 85))
    assert groups_of(result) == [list(range(40)), list(range(40, 85))]
    assert result.groups.leaves_rest.tolist() == [False, True]
    assert result.groups.expected_files.tolist() == [4, 5]  # 4,500 as five of 900
    lengths = [len(each) for each in groups_of(chosen(files(*[100] * 250)))]
    assert lengths == [70, 70, 70, 40]
    smaller = compaction_settings(TARGET, max_group_bytes=2900)  # two targets
    assert [len(each) for each in groups_of(chosen(files(*[100] * 85), smaller))] == [20, 20, 20, 25]
    halves = compaction_settings(TARGET, ratio=0.5)
    assert [len(each) for each in groups_of(chosen(files(*[100] * 170), halves))] == [80, 90]


def test_a_group_is_never_larger_than_allowed_unless_it_is_one_file() -> None:
    bounded = compaction_settings(TARGET, max_group_bytes=4000)
    result = chosen(files(2500, 2000, 9000, 700, 700, 2600, 1900, 100), bounded)
    assert groups_of(result) == [[0], [1], [2], [3, 4, 5], [6, 7]]
    assert result.groups.expected_bytes.tolist() == [2500, 2000, 9000, 4000, 2000]


def test_a_last_group_of_less_than_a_target_joins_the_one_before_it() -> None:
    """Shares are of two targets, seven files of 300 each; of 43 files one is left, and eight have 2,400 bytes."""
    for bound in (2400, 2399, 2100):  # which only that rest may exceed
        result = chosen(files(*[300] * 43), compaction_settings(TARGET, max_group_bytes=bound))
        assert [len(each) for each in groups_of(result)] == [7, 7, 7, 7, 7, 8]
        assert result.groups.leaves_rest.tolist() == [False] * 5 + [True]
    shared = compaction_settings(TARGET, processes=2, ratio=1.0)  # three shares of three targets
    assert [len(each) for each in groups_of(chosen(files(*[100] * 70), shared))] == [30, 30, 10]
    # Two targets each, and what is left is less than one more.
    assert [len(each) for each in groups_of(chosen(files(*[100] * 69), shared))] == [20, 20, 29]


def test_groups_are_smaller_where_processes_would_be_idle() -> None:
    found = files(*[100] * 240)
    for processes, ratio, lengths in [
        (1, 1.0, [80, 80, 80]),
        (2, 1.0, [60, 60, 60, 60]),
        (3, 1.0, [40] * 6),
        (6, 1.0, [20] * 12),
        (50, 1.0, [20] * 12),
        (50, None, [40] * 6),  # before a ratio was measured
    ]:
        settings = compaction_settings(TARGET, processes=processes, ratio=ratio)
        assert [len(each) for each in groups_of(chosen(found, settings))] == lengths
    enough = files(*[100] * 80) + [File(100, partition=turn // 10) for turn in range(10, 40)]
    settings = compaction_settings(TARGET, processes=2, ratio=1.0)
    assert [len(each) for each in groups_of(chosen(enough, settings))] == [80, 10, 10, 10]
    short = compaction_settings(TARGET, processes=2, ratio=1.0)
    assert [len(each) for each in groups_of(chosen(enough[:-10], short))] == [20, 20, 20, 20, 10, 10]


def test_groups_are_in_the_order_of_the_policy() -> None:
    found = files(100, 100, 100, 100, 100) + files(1900, partition=1) + files(50, *[60] * 6, partition=2)
    for order, partitions in [
        (None, [0, 1, 2]),
        ("bytes-desc", [1, 0, 2]),
        ("bytes-asc", [2, 0, 1]),
        ("files-desc", [2, 0, 1]),
        ("files-asc", [1, 0, 2]),
    ]:
        result = chosen(found, compaction_settings(TARGET, group_order=order))
        assert result.groups.partition.tolist() == partitions
        assert [found[each[0]].partition for each in groups_of(result)] == partitions
    equal = files(*[100] * 5) + files(*[100] * 5, partition=1)
    for order in ("bytes-desc", "files-asc"):
        result = chosen(equal, compaction_settings(TARGET, group_order=order))
        assert result.groups.partition.tolist() == [0, 1]
    two = chosen(files(*[100] * 85), compaction_settings(TARGET, group_order="files-asc"))
    assert (two.groups.files.tolist(), two.groups.leaves_rest.tolist()) == ([40, 45], [False, True])


# -- bounds ----------------------------------------------------------------------------------------------------


def test_a_group_that_does_not_fit_is_left_and_smaller_ones_are_taken() -> None:
    found = files(*[100] * 6) + files(*[200] * 5, partition=1) + files(2000, partition=2)
    for options, partitions, reasons in [
        ({"max_files": 12}, [0, 1, 2], {}),
        ({"max_files": 11}, [0, 1], {2: "1 file of 2.0 KiB left for the next run by --max-files 11"}),
        ({"max_files": 10}, [0, 2], {1: "5 files of 1000 B left for the next run by --max-files 10"}),
        ({"max_rewrite_bytes": 3600}, [0, 1, 2], {}),
        (
            {"max_rewrite_bytes": 3599},
            [0, 1],
            {2: "1 file of 2.0 KiB left for the next run by --max-rewrite-bytes 3.5 KiB"},
        ),
        (
            {"max_rewrite_bytes": 3599, "group_order": "bytes-desc"},
            [2, 1],
            {0: "6 files of 600 B left for the next run by --max-rewrite-bytes 3.5 KiB"},
        ),
        (
            {"max_rewrite_bytes": 999, "max_files": 6},
            [0],
            {
                1: "5 files of 1000 B left for the next run by --max-files 6",
                2: "1 file of 2.0 KiB left for the next run by --max-files 6",
            },
        ),
    ]:
        settings = compaction_settings(TARGET, **options)
        result = chosen(found, settings)
        assert (result.groups.partition.tolist(), reasons_of(result, settings)) == (partitions, reasons)


@pytest.mark.parametrize(
    ("found", "options", "numbers", "left"),
    [
        (files(*[100] * 9), {"max_files": 8}, [0, 1, 2, 3, 4, 5, 6, 7], 1),
        (files(*[100] * 9), {"max_files": 5}, [0, 1, 2, 3, 4], 4),
        (files(*[100] * 9), {"max_files": 4}, [], 9),  # no part of it is a group
        (files(*[100] * 9), {"max_rewrite_bytes": 799}, [0, 1, 2, 3, 4, 5, 6], 2),
        (files(700, 100, 100, 100, 100, 100), {"max_rewrite_bytes": 600}, [1, 2, 3, 4, 5], 1),
        (files(400, 400, 100, 100, 100, 100, 100), {"max_rewrite_bytes": 600}, [2, 3, 4, 5, 6], 2),
        ([File(100), File(900, deleted=50)], {"max_files": 1}, [1], 1),
        (files(100, 2000, 100), {"max_files": 1}, [1], 2),
        (files(100, 100), {"max_files": 1, "rewrite_all": True}, [0], 1),
        (files(100, 100), {"max_rewrite_bytes": 99, "rewrite_all": True}, [], 2),
        (files(100, 100), {"max_rewrite_bytes": 100, "rewrite_all": True}, [0], 1),
    ],
)
def test_where_no_group_fits_a_part_of_one_is_taken_that_does_some_good(
    found: list[File], options: dict[str, Any], numbers: list[int], left: int
) -> None:
    result = chosen(found, compaction_settings(TARGET, **options))
    assert groups_of(result) == ([numbers] if numbers else [])
    assert (result.reasons.files.tolist(), result.reasons.expected_files.tolist()) == ([left], [0])
    assert (
        result.reasons.size_bytes.sum() == sum(each.size for each in found) - result.groups.size_bytes.sum()
    )
    assert result.groups.leaves_rest.tolist() == [False] * bool(numbers)
    bound = SkipReason.MAX_FILES if "max_files" in options else SkipReason.MAX_REWRITE_BYTES
    assert result.reasons.code.tolist() == [bound]


def test_what_no_run_takes_within_a_bound_is_not_said_to_be_left_for_the_next_one() -> None:
    for found, options, reason in [
        (
            files(*[100] * 9),
            {"max_files": 4},
            "9 files of 900 B, of which no group is ever within --max-files 4",
        ),
        (
            files(100, 100),
            {"max_rewrite_bytes": 99, "rewrite_all": True},
            "2 files of 200 B, of which no group is ever within --max-rewrite-bytes 99 B",
        ),
    ]:
        settings = compaction_settings(TARGET, **options)
        assert reasons_of(chosen(found, settings), settings) == {0: reason}


def test_the_first_group_of_which_a_part_fits_is_the_one() -> None:
    found = files(*[300] * 6) + files(*[100] * 6, partition=1) + files(*[90] * 6, partition=2)
    settings = compaction_settings(TARGET, max_rewrite_bytes=520)
    result = chosen(found, settings)
    assert groups_of(result) == [[6, 7, 8, 9, 10]]
    assert result.groups.partition.tolist() == [1]
    assert result.reasons.partition.tolist() == [0, 1, 2]
    assert result.reasons.files.tolist() == [6, 1, 6]


# -- reasons ---------------------------------------------------------------------------------------------------


def test_each_partition_that_is_passed_by_has_one_reason() -> None:
    settings = compaction_settings(512 * MIB)
    sizes = [[30, 30], [60], [384, 500, 921], [380, 380, 380], [600], [600], [100], [1000], [600]]
    found = [File(size * MIB, partition=partition) for partition, each in enumerate(sizes) for size in each]
    found[10] = replace(found[10], deleted=29)
    found[11] = replace(found[11], eligible=False)
    found[12] = replace(found[12], eligible=False)
    result = chosen(found, settings)
    assert groups_of(result) == []
    assert reasons_of(result, settings) == {
        0: "2 files of 60.0 MiB, fewer than min-input-files 5",
        1: "1 file of 60.0 MiB, with none to join",
        2: "all 3 files are between 384.0 MiB and 921.6 MiB",
        3: "a second run would find the same files: 3 files of 1.1 GiB make 3",
        4: "its only file is between 384.0 MiB and 921.6 MiB",
        5: "its only file is between 384.0 MiB and 921.6 MiB, and below delete-ratio 0.3",
        8: "its only file is between 384.0 MiB and 921.6 MiB",
    }


def test_files_that_move_are_rewritten_whatever_their_sizes_within_the_bounds() -> None:
    moving = [File(1000, moves=True), File(900, deleted=90, moves=True), File(10, moves=True)]
    result = chosen([*moving, File(1000, partition=1)])
    assert groups_of(result) == [[0, 1, 2]]
    assert result.groups.reason.tolist() == [RewriteReason.MOVED]
    assert groups_of(chosen(moving[:1])) == [[0]]
    assert groups_of(chosen(moving, compaction_settings(TARGET, max_files=1))) == [[0]]
    assert groups_of(chosen([replace(moving[0], eligible=False)])) == []


# -- laws ------------------------------------------------------------------------------------------------------


def is_candidate(file: File, settings: CompactionSettings) -> bool:
    """`BinPackRewriteFilePlanner` of Iceberg Java: outside of the desired file size, or deletes."""
    is_size = file.size < settings.min_bytes or file.size > settings.max_bytes
    return is_size or has_deletes(file, settings) or file.moves


def has_deletes(file: File, settings: CompactionSettings) -> bool:
    """`tooManyDeletes` or `tooHighDeleteRatio`, but not of a file without rows."""
    if file.rows == 0:
        return False
    if settings.delete_files is not None and file.deletes >= settings.delete_files:
        return True
    return Fraction(min(file.deleted, file.rows), file.rows) >= Fraction(str(settings.delete_ratio))


def is_group(found: list[File], settings: CompactionSettings) -> bool:
    """`enoughInputFiles`, `enoughContent`, `tooMuchContent`, or a file of too many deletes."""
    total = sum(file.size for file in found)
    return (
        (len(found) > 1 and len(found) >= settings.min_input_files)
        or (len(found) > 1 and total > settings.target_bytes)
        or total > settings.max_bytes
        or any(has_deletes(file, settings) or file.moves for file in found)
    )


def referee(found: list[File], settings: CompactionSettings) -> list[int]:
    """What is rewritten of one partition, all of whose candidates are one group: Java's group, if it does some good."""

    def live(file: File) -> int:
        return round(Fraction(file.size * (file.rows - min(file.deleted, file.rows)), file.rows or 1))

    def is_split(file: File) -> bool:
        return file.size > settings.max_bytes and live(file) > settings.target_bytes

    def outputs(some: list[File]) -> int:
        rows_left = any(file.deleted < file.rows for file in some)
        return max(-(-sum(map(live, some)) // settings.target_bytes), 1) if rows_left else 0

    numbers = [row for row, file in enumerate(found) if file.eligible and is_candidate(file, settings)]
    group = [found[row] for row in numbers]
    if not group or not is_group(group, settings):
        return []
    does_good = outputs(group) < len(group)
    by_size = [row for row in numbers if not has_deletes(found[row], settings)]
    if len(by_size) == len(group):
        return numbers if does_good or any(map(is_split, group)) else []
    if (
        len(by_size) == 1
        and not does_good
        and not is_split(found[by_size[0]])
        and not min(found[by_size[0]].deleted, found[by_size[0]].rows)  # of its own rows none go
        and settings.min_input_files > 2
    ):
        return [row for row in numbers if row not in by_size]
    return numbers


FILES = st.builds(
    File,
    size=st.one_of(st.sampled_from([0, 749, 750, 1000, 1800, 1801]), st.integers(0, 2500)),
    rows=st.sampled_from([0, 1, 10, 1000]),
    deletes=st.sampled_from([0, 0, 0, 1, 2]),
    deleted=st.sampled_from([0, 0, 0, 0, 1, 3, 299, 300, 2000]),
    eligible=st.sampled_from([True, True, True, True, False]),
)
OPTIONS = st.fixed_dictionaries(
    {
        "min_input_files": st.sampled_from([1, 2, 3, 5]),
        "delete_files": st.sampled_from([None, 1, 2]),
        "delete_ratio": st.sampled_from([0.3, 0.1, 1.0]),
    }
)


def in_partition(file: File, partition: int) -> File:
    """Files that move are in a partition of their own, which is the last one here."""
    return replace(file, partition=partition, moves=partition == 3)


@given(st.lists(FILES, max_size=7), OPTIONS)
def test_files_are_chosen_as_java_does_where_it_does_some_good(
    found: list[File], options: dict[str, Any]
) -> None:
    settings = compaction_settings(TARGET, max_group_bytes=1 << 40, ratio=1.0, **options)
    two = [*found, *(replace(file, partition=1) for file in found)]
    expected = referee(found, settings)
    result = chosen(two, replace(settings, processes=1))
    assert sorted(result.file.tolist()) == [*expected, *(row + len(found) for row in expected)]


@given(
    st.lists(st.builds(in_partition, FILES, st.integers(0, 3)), max_size=60),
    OPTIONS,
    st.sampled_from([1000, 2000, 3700, 8000]),
    st.sampled_from([None, 0.4, 1.0, 1.4]),
    st.integers(1, 4),
    st.sampled_from([None, "bytes-desc", "bytes-asc", "files-desc", "files-asc"]),
    st.sampled_from([None, 1, 7, 20]),
    st.sampled_from([None, 700, 9000]),
)
def test_groups_hold_whole_files_of_one_partition_within_all_bounds(
    found: list[File],
    options: dict[str, Any],
    group_bytes: int,
    ratio: float | None,
    processes: int,
    order: Any,
    max_files: int | None,
    max_bytes: int | None,
) -> None:
    settings = compaction_settings(
        TARGET, max_group_bytes=group_bytes, ratio=ratio, processes=processes, group_order=order,
        max_files=max_files, max_rewrite_bytes=max_bytes, **options,
    )  # fmt: skip
    result = chosen(found, settings)
    groups = groups_of(result)
    rows = [row for group in groups for row in group]
    assert len(rows) == len(set(rows)) <= (max_files or len(found))
    assert sum(found[row].size for row in rows) <= (max_bytes or 1 << 40)
    assert all(found[row].eligible and is_candidate(found[row], settings) for row in rows)
    for number, group in enumerate(groups):
        assert group == sorted(group)
        inputs = [found[row] for row in group]
        assert {file.partition for file in inputs} == {result.groups.partition[number]}
        is_last = result.groups.leaves_rest[number]
        # What begins with a file above the bound is that file alone, but for such a rest.
        most = max(group_bytes, inputs[0].size * 2) + settings.target_bytes if is_last else group_bytes
        assert len(group) == 1 or result.groups.expected_bytes[number] <= most
        assert is_group(inputs, settings)
    moving = {row for row, file in enumerate(found) if file.eligible and file.moves}
    assert moving <= set(rows) or max_files or max_bytes
    reasons = result.reasons
    idle = {file.partition for file in found if file.eligible} - {found[row].partition for row in rows}
    assert idle <= set(reasons.partition.tolist())
    assert all(
        code >= SkipReason.MAX_FILES
        for part, code in zip(reasons.partition, reasons.code, strict=True)
        if part not in idle
    )
    assert len(set(reasons.partition.tolist())) == len(reasons.code) == len(reasons_of(result, settings))


def written(
    group: list[File], rolling: Rolling, *, ratio: float, shrinks: list[float], noise: Any
) -> list[int]:
    """Sizes of outputs, written as a writer of Parquet does: row groups of about the size that it aims at.

    Args:
        group: inputs, in order.
        rolling: of the group.
        ratio: what is expected before the first row group.
        shrinks: of each input the bytes that are really written for one of its bytes.
        noise: draws by how much a row group misses its size.
    """
    lives = [file.size * (file.rows - min(file.deleted, file.rows)) / max(file.rows, 1) for file in group]
    left = [live * shrink for live, shrink in zip(lives, shrinks, strict=True)]
    sizes, size, done, read = [], 0.0, 0.0, 0.0

    def remaining() -> int:
        return int((sum(lives) - read) * (done / read if read else ratio))

    row_group = rolling.row_group_bytes(remaining(), 1 << 40)
    while sum(left) > 0.5:
        room = row_group * noise.uniform(0.9, 1.0)
        for place, live in enumerate(left):
            took = min(room, live)
            room, size, done, left[place] = room - took, size + took, done + took, live - took
            read += took / shrinks[place]
        if sum(left) > 0.5 and rolling.closes(int(size), remaining()):
            sizes.append(int(size))
            size, row_group = 0.0, rolling.row_group_bytes(remaining(), 1 << 40)
    return [*sizes, int(size)] if size else sizes


def compacted(
    found: list[File], settings: CompactionSettings, shrink: Any, noise: Any
) -> tuple[list[File], float]:
    """The table afterwards, and the ratio that was measured."""
    result = chosen(found, settings)
    outputs: list[File] = []
    live = 0.0
    for number, group in enumerate(groups_of(result)):
        inputs = [found[row] for row in group]
        rolling = Rolling(
            target_bytes=settings.target_bytes,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            leaves_rest=bool(result.groups.leaves_rest[number]),
        )
        shrinks = [shrink(file) for file in inputs]
        sizes = written(inputs, rolling, ratio=settings.ratio or 1.0, shrinks=shrinks, noise=noise)
        outputs += [File(size, partition=inputs[0].partition) for size in sizes]
        live += float(result.groups.expected_bytes[number]) / (settings.ratio or 1.0)
    gone = set(result.file.tolist())
    rest = [file for row, file in enumerate(found) if row not in gone]
    return [*rest, *outputs], sum(file.size for file in outputs) / live if live else 1.0


SIZES = st.one_of(
    st.lists(st.floats(0, 0.7), max_size=80),
    st.lists(st.floats(0, 4), max_size=40),
    st.lists(st.sampled_from([0.1, 0.3, 0.6, 0.7499, 1.0, 1.79, 1.81, 3.0]), max_size=60),
)


@given(
    st.lists(SIZES, min_size=1, max_size=3),
    st.integers(10_000, 1 << 30),
    st.floats(0.5, 0.75),
    st.floats(1.8, 2.5),
    st.integers(1, 8),
    st.lists(st.floats(0.2, 1.5), min_size=3, max_size=3),
    st.sampled_from([0.0, 0.2, 0.2, 0.5, 0.9]),
    st.sampled_from([2, 5, 5, 9]),
    st.randoms(use_true_random=False),
)
def test_a_second_run_chooses_nothing(
    sizes: list[list[float]],
    target: int,
    min_share: float,
    max_share: float,
    processes: int,
    shrinks: list[float],
    deleted: float,
    min_input_files: int,
    random: Any,
) -> None:
    """H47: whatever rows shrink to; they do so in each partition by another number, which no run knows before."""
    found = [
        File(
            int(size * target), rows=1000, partition=partition, deleted=int(random.random() * deleted * 1000)
        )
        for partition, each in enumerate(sizes)
        for size in each
    ]
    settings = compaction_settings(
        target,
        min_bytes=int(min_share * target),
        max_bytes=int(max_share * target),
        processes=processes,
        min_input_files=min_input_files,
    )
    after, ratio = compacted(found, settings, lambda file: shrinks[file.partition], random)
    second = chosen(after, replace(settings, ratio=max(ratio, 0.01)))
    assert [[after[row].size / target for row in group] for group in groups_of(second)] == []
