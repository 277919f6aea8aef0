"""Which data files a compaction rewrites, and in what groups.

The rules are those of Iceberg Java's bin-pack planner, with one more, so that a second run right after the first finds
nothing: files go in for their size only where there are fewer of them afterwards, or where one that is too large is
split. Which go in for an order is decided before, see `order_choice`.

What is expected of a group is a forecast: the bytes of its files, less the share of rows that go, times the ratio of
the table's last run. It decides where groups are cut. Whether a group is worth it must not depend on it alone, since a
run changes it: a group that is expected to shrink has to have fewer files even if it does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from iceberg_cli.layout.compaction import (
    Codes,
    Compaction,
    CompactionInputs,
    CompactionSettings,
    FileGroups,
    PartitionReasons,
    RewriteReason,
    SkipReason,
)
from iceberg_cli.layout.rolling import Bools, Ints, output_files

_GROUPS_PER_PROCESS: Final = 2
# A smaller group, made for the sake of more processes, might become one small file, as all groups beside it would: the
# next run would find them. Before a ratio was measured, output may well be a fifth of what is expected.
_LEAST_GROUP_TARGETS: Final = 2
_LEAST_GROUP_TARGETS_UNMEASURED: Final = 4
_FILES_THAT_STAY: Final = 2  # a lone file, and what is left of those with deletes
_WORTH_IT: Final = -1  # in the place of a reason to skip
_FIRST: Final = np.zeros(1, np.int64)


def choose(inputs: CompactionInputs, settings: CompactionSettings) -> Compaction:
    """The files that a compaction rewrites, in groups."""
    files = _files(inputs, settings)
    is_candidate = files.by_size | files.by_deletes | files.moves | files.orders | settings.rewrite_all
    candidates = files.take(np.flatnonzero(is_candidate))
    candidates, starts = _without_lone_files(candidates, _group_starts(candidates, settings), settings)
    groups = _groups(candidates, starts, settings)
    order = _ordered(groups, np.flatnonzero(groups.code == _WORTH_IT), settings)
    bounds = _bound_codes(groups.files[order], groups.size_bytes[order], settings)
    groups.code[order] = bounds
    chosen = order[bounds == _WORTH_IT]
    lengths, is_last = groups.files[chosen], groups.is_last[chosen]
    places = _ranges(starts[chosen], lengths)
    if not len(chosen):
        places = _part_of_a_group(candidates, groups, order, settings)
        lengths = np.array([len(places)] if len(places) else [], np.int64)
        is_last = np.zeros(len(lengths), np.bool_)  # the others of the group come after it, in the next run
    rewritten = candidates.take(places)
    found = replace(_groups(rewritten, np.cumsum(lengths) - lengths, settings), is_last=is_last)
    return Compaction(
        file=rewritten.file,
        group=np.repeat(np.arange(len(lengths)), lengths),
        groups=_file_groups(found, settings),
        reasons=_reasons(files, candidates, groups, places),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Eligible files by partition, in the order in which their rows are written.

    Args:
        file: numbers of the inputs.
        expected_bytes: of their rows that stay, once they are written.
        unshrunk_bytes: the same, if rows do not take less than they did.
        by_size: whether each is too small or too large.
        by_deletes: whether enough of its rows are deleted, or enough delete files apply.
        is_split: whether it is too large, and expected to become several files.
        moves: see `CompactionInputs`.
        orders: likewise.
    """

    file: Ints
    partition: Ints
    size_bytes: Ints
    record_count: Ints
    deleted_rows: Ints
    expected_bytes: Ints
    unshrunk_bytes: Ints
    by_size: Bools
    by_deletes: Bools
    is_split: Bools
    moves: Bools
    orders: Bools

    def take(self, places: Ints) -> _Files:
        """Some of them."""
        return _Files(**{each.name: getattr(self, each.name)[places] for each in fields(self)})


def _files(inputs: CompactionInputs, settings: CompactionSettings) -> _Files:
    file = np.flatnonzero(inputs.eligible)
    file = file[np.argsort(inputs.partition[file], kind="stable")]
    size_bytes, rows = inputs.size_bytes[file], inputs.record_count[file]
    deleted = np.minimum(inputs.deleted_rows[file], rows)
    deleted_share = np.divide(deleted, rows, out=np.zeros(len(file)), where=rows > 0)
    by_deletes = deleted_share >= settings.delete_ratio
    if settings.delete_files is not None:
        by_deletes |= (inputs.delete_files[file] >= settings.delete_files) & (rows > 0)
    live_share = np.divide(rows - deleted, rows, out=np.zeros(len(file)), where=rows > 0)
    ratio = 1.0 if settings.ratio is None else settings.ratio
    expected_bytes = np.rint(size_bytes * (live_share * ratio)).astype(np.int64)
    is_large = size_bytes > settings.max_bytes
    return _Files(
        file=file,
        partition=inputs.partition[file],
        size_bytes=size_bytes,
        record_count=rows,
        deleted_rows=deleted,
        expected_bytes=expected_bytes,
        unshrunk_bytes=np.rint(size_bytes * (live_share * max(ratio, 1.0))).astype(np.int64),
        by_size=(size_bytes < settings.min_bytes) | is_large,
        by_deletes=by_deletes,
        is_split=is_large & (expected_bytes > settings.target_bytes),
        moves=inputs.moves[file],
        orders=np.zeros(len(file), np.bool_) if inputs.orders is None else inputs.orders[file],
    )


def _run_starts(partition: Ints) -> Ints:
    """Where each partition begins."""
    is_start = np.ones(len(partition), np.bool_)
    is_start[1:] = partition[1:] != partition[:-1]
    return np.flatnonzero(is_start)


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """All numbers of some ranges, one range after the other."""
    stops = np.cumsum(lengths)
    found: Ints = np.arange(lengths.sum()) + np.repeat(starts - (stops - lengths), lengths)
    return found


def _group_starts(files: _Files, settings: CompactionSettings) -> Ints:
    """Where groups begin: equal shares of each partition, of whole targets but the last one."""
    target = settings.target_bytes
    firsts = _run_starts(files.partition)
    stops = np.append(firsts[1:], len(files.file))[: len(firsts)]
    totals = np.add.reduceat(files.expected_bytes, firsts)
    most = settings.max_group_bytes // target * target
    numbers = -(-totals // most)
    enough = 0 if settings.in_order else _GROUPS_PER_PROCESS * settings.processes
    if numbers.sum() < enough:
        targets = _LEAST_GROUP_TARGETS if settings.ratio is not None else _LEAST_GROUP_TARGETS_UNMEASURED
        share = max(targets, int(totals.sum()) // enough // target) * target
        numbers = np.maximum(numbers, np.minimum(-(-totals // share), totals // (targets * target)))
    numbers = np.maximum(numbers, 1)
    down, up = totals // (numbers * target), -(-totals // (numbers * target))
    # What is less than a target joins the last group, which then is not much larger than those that others wait for.
    joins = (down > 0) & (totals - numbers * down * target < target)
    shares = np.minimum(np.where(joins, down, up) * target, most)

    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(files.expected_bytes)])
    begins = ends[:-1]
    stop = np.repeat(stops, stops - firsts)
    after = np.searchsorted(ends, begins + np.repeat(shares, stops - firsts))
    within = np.searchsorted(ends, begins + settings.max_group_bytes, side="right") - 1
    # Where the group that begins with each file ends: with the file that makes the share full, if that is not too much.
    following = np.clip(np.minimum(after, within), np.arange(1, len(stop) + 1), stop)
    # A rest by itself might be one file that is left alone, until the next run finds it beside another one.
    has_small_rest = ends[stop] - ends[following] < target
    following = np.where(has_small_rest, stop, following)
    return _followed(firsts, stops, following)


def _followed(firsts: Ints, stops: Ints, following: Ints) -> Ints:
    """From the first file of each partition to its end, the first of each group."""
    found, follows = [], following.tolist()
    for first, stop in zip(firsts.tolist(), stops.tolist(), strict=True):
        place = first
        while place < stop:
            found.append(place)
            place = follows[place]
    return np.array(found, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """Sums of groups of files that follow each other.

    Args:
        outputs: how many files they become at most, if rows do not take less than they did.
        is_last: whether it is the last of its partition.
        code: `_WORTH_IT`, or why it is not: `SkipReason.TOO_FEW_FILES` or `SkipReason.AS_MANY_FILES`.
    """

    starts: Ints
    partition: Ints
    files: Ints
    size_bytes: Ints
    record_count: Ints
    deleted_rows: Ints
    expected_bytes: Ints
    outputs: Ints
    by_deletes: Bools
    moves: Bools
    orders: Bools
    is_last: Bools
    code: Codes


def _groups(files: _Files, starts: Ints, settings: CompactionSettings) -> _Groups:
    """Groups, and whether it is worth it to rewrite them.

    By Java's rule a group is, if a file of it is a candidate by its deletes, if it is larger than one file may be, or
    if it has several files that are enough or more than the target. For sizes alone it must also do some good.
    """
    number = np.diff(np.append(starts, len(files.file)))[: len(starts)]
    size_bytes = np.add.reduceat(files.size_bytes, starts)
    rows = np.add.reduceat(files.record_count, starts)
    deleted = np.add.reduceat(files.deleted_rows, starts)
    partition = files.partition[starts]
    unshrunk = -(-np.add.reduceat(files.unshrunk_bytes, starts) // settings.target_bytes)
    outputs = np.where(deleted < rows, np.maximum(unshrunk, 1), 0)
    by_deletes = np.logical_or.reduceat(files.by_deletes, starts)
    is_enough = (number >= settings.min_input_files) | (size_bytes > settings.target_bytes)
    by_size = ((number > 1) & is_enough) | (size_bytes > settings.max_bytes)
    does_good = (outputs < number) | np.logical_or.reduceat(files.is_split, starts)
    moves = np.logical_or.reduceat(files.moves, starts)
    orders = np.logical_or.reduceat(files.orders, starts)
    is_worth_it = settings.rewrite_all | by_deletes | moves | orders | (by_size & does_good)
    return _Groups(
        starts=starts,
        partition=partition,
        files=number,
        size_bytes=size_bytes,
        record_count=rows,
        deleted_rows=deleted,
        expected_bytes=np.add.reduceat(files.expected_bytes, starts),
        outputs=outputs,
        by_deletes=by_deletes,
        moves=moves,
        orders=orders,
        is_last=np.append(partition[1:] != partition[:-1], True)[: len(starts)],
        code=np.where(
            is_worth_it, _WORTH_IT, np.where(by_size, SkipReason.AS_MANY_FILES, SkipReason.TOO_FEW_FILES)
        ).astype(np.int8),
    )


def _without_lone_files(files: _Files, starts: Ints, settings: CompactionSettings) -> tuple[_Files, Ints]:
    """Files and groups, without what would be rewritten for nothing beside files with deletes.

    A group with deletes is rewritten whole, as Java does: what is left of those files and several small ones might be
    a group of the next run. One small file alone is none with what is left, and stays where it does not become fewer,
    unless some of its own rows go: both could then be more than one file now and one file afterwards.
    """
    if settings.rewrite_all or settings.min_input_files <= _FILES_THAT_STAY:
        return files, starts
    groups = _groups(files, starts, settings)
    others = np.add.reduceat((~files.by_deletes).astype(np.int64), starts)
    shrinking = np.add.reduceat(np.where(files.by_deletes, 0, files.deleted_rows), starts)
    has_lone = groups.by_deletes & groups.is_last & (others == 1) & (groups.outputs >= groups.files)
    has_lone &= shrinking == 0
    by_itself = files.by_deletes | files.is_split | files.moves | files.orders
    is_lone = np.repeat(has_lone, groups.files) & ~by_itself
    left = groups.files - np.add.reduceat(is_lone.astype(np.int64), starts)
    return files.take(np.flatnonzero(~is_lone)), np.cumsum(left) - left


def _ordered(groups: _Groups, chosen: Ints, settings: CompactionSettings) -> Ints:
    """Groups in the order in which they are rewritten."""
    if settings.group_order is None:
        return chosen
    by, _, direction = settings.group_order.partition("-")
    numbers = (groups.size_bytes if by == "bytes" else groups.files)[chosen]
    return chosen[np.argsort(-numbers if direction == "desc" else numbers, kind="stable")]


def _bound_codes(files: Ints, size_bytes: Ints, settings: CompactionSettings) -> Codes:
    """Which groups are rewritten within the bounds: each that fits into what those before it have left.

    Returns:
        Of n groups `_WORTH_IT`, or the code of the bound that leaves it for the next run.
    """
    codes = np.full(len(files), _WORTH_IT, np.int8)
    if settings.max_files is None and settings.max_rewrite_bytes is None:
        return codes
    files_left, bytes_left = _bounds(settings)
    for row, (number, bytes_) in enumerate(zip(files.tolist(), size_bytes.tolist(), strict=True)):
        if number > files_left:
            codes[row] = SkipReason.MAX_FILES
        elif bytes_ > bytes_left:
            codes[row] = SkipReason.MAX_REWRITE_BYTES
        else:
            files_left, bytes_left = files_left - number, bytes_left - bytes_
    return codes


def _bounds(settings: CompactionSettings) -> tuple[float, float]:
    """The most files and the most bytes that are rewritten."""
    return (
        math.inf if settings.max_files is None else settings.max_files,
        math.inf if settings.max_rewrite_bytes is None else settings.max_rewrite_bytes,
    )


def _part_of_a_group(files: _Files, groups: _Groups, order: Ints, settings: CompactionSettings) -> Ints:
    """Where no whole group fits, places of a part of one that is worth it, of the first that has such a part."""
    for group in order.tolist():
        every = groups.starts[group] + np.arange(groups.files[group])
        by_itself = every[
            files.by_deletes[every] | files.is_split[every] | files.moves[every] | files.orders[every]
        ]
        smallest = every[np.argsort(files.size_bytes[every], kind="stable")]
        for places in (every, by_itself, smallest):
            part = np.sort(_first_within(files, places, settings))
            if len(part) and _groups(files.take(part), _FIRST, settings).code[0] == _WORTH_IT:
                return part
    return order[:0]


def _first_within(files: _Files, places: Ints, settings: CompactionSettings) -> Ints:
    """The first of some files within the bounds, without those that alone are too large for them."""
    most_files, most_bytes = _bounds(settings)
    places = places[files.size_bytes[places] <= most_bytes]
    fits = np.cumsum(files.size_bytes[places]) <= most_bytes
    return places[fits & (np.arange(len(places)) < most_files)]


def _file_groups(groups: _Groups, settings: CompactionSettings) -> FileGroups:
    expected_files = output_files(
        groups.expected_bytes,
        groups.is_last,
        target_bytes=settings.target_bytes,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
    )
    by_choice = np.where(groups.by_deletes, RewriteReason.DELETES, RewriteReason.SIZE)
    by_choice = np.where(groups.orders, RewriteReason.ORDER, by_choice)
    if settings.rewrite_all:
        by_choice = np.full_like(by_choice, RewriteReason.REWRITE_ALL)
    return FileGroups(
        partition=groups.partition,
        files=groups.files,
        size_bytes=groups.size_bytes,
        record_count=groups.record_count,
        deleted_rows=groups.deleted_rows,
        expected_files=np.where(groups.deleted_rows < groups.record_count, expected_files, 0),
        expected_bytes=groups.expected_bytes,
        leaves_rest=groups.is_last,
        reason=np.where(groups.moves, RewriteReason.MOVED, by_choice).astype(np.int8),
    )


def _reasons(files: _Files, candidates: _Files, groups: _Groups, places: Ints) -> PartitionReasons:
    """Why not more is rewritten.

    Args:
        files: all that are eligible.
        candidates: of them.
        groups: of the candidates, with the bound that leaves a group where one does.
        places: of candidates that are rewritten.
    """
    firsts = _run_starts(files.partition)
    partition = files.partition[firsts]
    number = np.diff(np.append(firsts, len(files.file)))[: len(firsts)]
    size_bytes = np.add.reduceat(files.size_bytes, firsts)
    deleted = np.add.reduceat(files.deleted_rows, firsts)
    expected, code = np.zeros_like(number), np.full(len(firsts), SkipReason.SIZES_ARE_GOOD, np.int8)

    weak = np.flatnonzero(
        (groups.code == SkipReason.TOO_FEW_FILES) | (groups.code == SkipReason.AS_MANY_FILES)
    )
    weak = weak[np.lexsort((groups.files[weak], groups.code[weak]))]
    rows = np.searchsorted(partition, groups.partition[weak])  # of several the last one counts
    number[rows], size_bytes[rows] = groups.files[weak], groups.size_bytes[weak]
    deleted[rows], expected[rows] = groups.deleted_rows[weak], groups.outputs[weak]
    code[rows] = groups.code[weak]

    is_left = np.repeat(groups.code >= SkipReason.MAX_FILES, groups.files)
    is_left[places] = False
    left = candidates.take(np.flatnonzero(is_left))
    firsts = _run_starts(left.partition)
    rows = np.searchsorted(partition, left.partition[firsts])
    number[rows] = np.diff(np.append(firsts, len(left.file)))[: len(firsts)]
    size_bytes[rows] = np.add.reduceat(left.size_bytes, firsts)
    deleted[rows], expected[rows] = np.add.reduceat(left.deleted_rows, firsts), 0
    code[rows] = np.repeat(groups.code, groups.files)[is_left][firsts]

    has_reason = ~np.isin(partition, candidates.partition[places]) | (code >= SkipReason.MAX_FILES)
    return PartitionReasons(
        partition=partition[has_reason],
        files=number[has_reason],
        size_bytes=size_bytes[has_reason],
        deleted_rows=deleted[has_reason],
        expected_files=expected[has_reason],
        code=code[has_reason],
    )
