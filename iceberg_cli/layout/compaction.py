"""What a compaction is chosen from and by, and what is chosen: values that know no format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from iceberg_cli.layout.rolling import Bools, Ints
from iceberg_cli.plan.text import count, size

Codes = npt.NDArray[np.int8]
GroupOrder = Literal["bytes-desc", "bytes-asc", "files-desc", "files-asc"]

_MIN_SHARE: Final = 0.75  # of the target, as in Iceberg Java
_MAX_SHARE: Final = 1.80
_GROUP_TARGETS: Final = 8
_ORDERED_GROUP_BYTES: Final = 100 << 30  # as in Iceberg Java


class RewriteReason(IntEnum):
    """Why a group is rewritten; `DELETES` where any of its files is a candidate by them, `ORDER` likewise.

    `MOVED` where all move.

    `PURGE` is for formats that choose files by what these have and the table has no more.
    """

    SIZE = 0
    DELETES = 1
    REWRITE_ALL = 2
    MOVED = 3
    PURGE = 4
    ORDER = 5


class SkipReason(IntEnum):
    """Why files of a partition are not rewritten."""

    SIZES_ARE_GOOD = 0
    TOO_FEW_FILES = 1
    AS_MANY_FILES = 2
    MAX_FILES = 3
    MAX_REWRITE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionInputs:
    """Data files of a table.

    Args:
        partition: n codes; files of different partition specs have different ones, too. Files of a partition are in
            the order in which their rows are to be written.
        size_bytes: n sizes, as the storage tells them.
        record_count: n numbers of rows, those that deletes hide among them.
        delete_files: n numbers of delete files of any kind that apply.
        deleted_rows: n numbers of rows that file-scoped position deletes and deletion vectors hide.
        eligible: whether each may be rewritten, as far as filters tell.
        moves: whether each is rewritten whatever its size, for its rows to come to other partitions; files that do are
            in partitions of their own.
        orders: whether each is rewritten for rows of its partition to come into an order; None: none is.
    """

    partition: Ints
    size_bytes: Ints
    record_count: Ints
    delete_files: Ints
    deleted_rows: Ints
    eligible: Bools
    moves: Bools
    orders: Bools | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """What is chosen by; made by `compaction_settings`.

    Args:
        target_bytes: of an output file.
        min_bytes: a smaller file is a candidate.
        max_bytes: a larger file is a candidate.
        min_input_files: so many are rewritten though together they are no larger than the target.
        delete_files: a file to which so many delete files apply is a candidate; None: however many.
        delete_ratio: a file of whose rows such a share is deleted is a candidate.
        rewrite_all: whether all files are candidates, and all groups are rewritten.
        max_group_bytes: of a group's expected output, if it has several files; of the last group of a partition less
            than a target more.
        max_files: to be rewritten; None: no bound.
        max_rewrite_bytes: of files to be rewritten; None: no bound.
        group_order: in which order groups are rewritten; None: by partition.
        processes: that rewrite groups side by side.
        ratio: output bytes for a byte of input rows that stay, measured in the table's last run; None: none was
            measured, and 1 is expected.
        in_order: whether rows of a group are brought into an order: a partition is one group then, up to its bound.
    """

    target_bytes: int
    min_bytes: int
    max_bytes: int
    min_input_files: int
    delete_files: int | None
    delete_ratio: float
    rewrite_all: bool
    max_group_bytes: int
    max_files: int | None
    max_rewrite_bytes: int | None
    group_order: GroupOrder | None
    processes: int
    ratio: float | None
    in_order: bool


def compaction_settings(
    target_bytes: int,
    *,
    min_bytes: int | None = None,
    max_bytes: int | None = None,
    min_input_files: int = 5,
    delete_files: int | None = None,
    delete_ratio: float = 0.3,
    rewrite_all: bool = False,
    max_group_bytes: int | None = None,
    max_files: int | None = None,
    max_rewrite_bytes: int | None = None,
    group_order: GroupOrder | None = None,
    processes: int = 1,
    ratio: float | None = None,
    in_order: bool = False,
) -> CompactionSettings:
    """Settings with the defaults that depend on the target: 0.75 and 1.80 of it, groups of 8, in order of 100 GiB.

    Raises:
        ValueError: values do not go together; a sentence that calls them as options are called.
    """
    most_bytes = max(target_bytes, _ORDERED_GROUP_BYTES) if in_order else target_bytes * _GROUP_TARGETS
    settings = CompactionSettings(
        target_bytes=target_bytes,
        min_bytes=int(target_bytes * _MIN_SHARE) if min_bytes is None else min_bytes,
        max_bytes=int(target_bytes * _MAX_SHARE) if max_bytes is None else max_bytes,
        min_input_files=min_input_files,
        delete_files=delete_files,
        delete_ratio=delete_ratio,
        rewrite_all=rewrite_all,
        max_group_bytes=most_bytes if max_group_bytes is None else max_group_bytes,
        max_files=max_files,
        max_rewrite_bytes=max_rewrite_bytes,
        group_order=group_order,
        processes=processes,
        ratio=ratio,
        in_order=in_order,
    )
    _check(settings)
    return settings


def _check(settings: CompactionSettings) -> None:
    target = f"target-size {size(settings.target_bytes)}"
    if settings.min_bytes < 1:
        raise ValueError(f"min-size {settings.min_bytes} is not above 0")
    if settings.min_bytes >= settings.target_bytes:
        raise ValueError(f"min-size {size(settings.min_bytes)} is not below {target}")
    if settings.max_bytes <= settings.target_bytes:
        raise ValueError(f"max-size {size(settings.max_bytes)} is not above {target}")
    if settings.max_group_bytes < settings.target_bytes:
        raise ValueError(f"max-group-size {size(settings.max_group_bytes)} is below {target}")
    if not 0 < settings.delete_ratio <= 1:
        raise ValueError(f"delete-ratio {settings.delete_ratio} is not above 0 and at most 1")
    if settings.ratio is not None and not 0 < settings.ratio < math.inf:
        raise ValueError(f"the ratio {settings.ratio} of output to input is not above 0")
    if settings.group_order not in (None, *get_args(GroupOrder)):
        raise ValueError(f"group-order {settings.group_order} is none of {', '.join(get_args(GroupOrder))}")
    numbers = {
        "min-input-files": settings.min_input_files,
        "delete-files": settings.delete_files,
        "max-files": settings.max_files,
        "max-rewrite-bytes": settings.max_rewrite_bytes,
        "processes": settings.processes,
    }
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} {number} is not at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroups:
    """Groups of files that are rewritten, in the order in which they are.

    Args:
        partition: n codes.
        files: n numbers of files.
        size_bytes: of these.
        record_count: of these, with the rows that go.
        deleted_rows: of these, as far as they are known before rows are read.
        expected_files: how many are written, about.
        expected_bytes: of these.
        leaves_rest: whether the last of these may be small; see `Rolling`.
        reason: n codes of `RewriteReason`.
    """

    partition: Ints
    files: Ints
    size_bytes: Ints
    record_count: Ints
    deleted_rows: Ints
    expected_files: Ints
    expected_bytes: Ints
    leaves_rest: Bools
    reason: Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReasons:
    """Why files of partitions are not rewritten: of each partition that has eligible files but no group, or not all.

    Args:
        partition: n codes, ascending.
        files: the files that the reason is about: the eligible ones where sizes are good, those that are left for the
            next run, else those of one group that would not be worth it, the one of most files.
        size_bytes: of these.
        deleted_rows: of these.
        expected_files: that would be written of these, where there would be as many; else 0.
        code: n codes of `SkipReason`; `reason_text` says them.
    """

    partition: Ints
    files: Ints
    size_bytes: Ints
    deleted_rows: Ints
    expected_files: Ints
    code: Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The files that are rewritten.

    Args:
        file: n numbers of `CompactionInputs`, each once, by group, and in a group in the order of its partition.
        group: n numbers of `groups`, ascending.
        groups: of them.
        reasons: why not more are.
    """

    file: Ints
    group: Ints
    groups: FileGroups
    reasons: PartitionReasons


def reason_text(
    reasons: PartitionReasons, row: int, settings: CompactionSettings, *, fits_nothing: bool = False
) -> str:
    """Why files of one partition are not rewritten, with the figures that decided it.

    Args:
        reasons: of all partitions.
        row: of these.
        settings: what was chosen by.
        fits_nothing: no group is within the bounds, and so none of the next run will be.
    """
    number = int(reasons.files[row])
    of_bytes = f"{count(number, 'files')} of {size(int(reasons.size_bytes[row]))}"
    match SkipReason(int(reasons.code[row])):
        case SkipReason.SIZES_ARE_GOOD:
            bounds = f"between {size(settings.min_bytes)} and {size(settings.max_bytes)}"
            sizes = f"all {number:,} files are {bounds}" if number != 1 else f"its only file is {bounds}"
            if settings.in_order:
                sizes += ", and an order would gain too little"
            if not reasons.deleted_rows[row]:
                return sizes
            return f"{sizes}, and below delete-ratio {settings.delete_ratio}"
        case SkipReason.TOO_FEW_FILES if number == 1:
            return f"{of_bytes}, with none to join"
        case SkipReason.TOO_FEW_FILES:
            return f"{of_bytes}, fewer than min-input-files {settings.min_input_files}"
        case SkipReason.AS_MANY_FILES:
            outputs = int(reasons.expected_files[row])
            return f"a second run would find the same files: {of_bytes} make {outputs:,}"
        case SkipReason.MAX_FILES:
            bound = f"--max-files {settings.max_files}"
        case SkipReason.MAX_REWRITE_BYTES:
            bound = f"--max-rewrite-bytes {size(settings.max_rewrite_bytes)}"
    if fits_nothing:
        return f"{of_bytes}, of which no group is ever within {bound}"
    return f"{of_bytes} left for the next run by {bound}"
