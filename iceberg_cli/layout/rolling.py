"""Where output files end while rows are written anew: by bytes that are written, not by bytes that were read.

How many bytes rows take is known when they are written: compression, deletes and projection make outputs smaller or
larger than inputs. So numbers of files are a forecast, and each file ends by what is expected of the group by then.
Files of a group are equally large, 0.8 to 1.2 targets: none of them is a candidate of the next run. Between 1.2 and 1.6
targets there is no such number of files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LEAST_SHARE: Final = 0.8  # of the target, that files of equal size have
_MOST_SHARE: Final = 1.2
_REST_SHARE: Final = 0.3  # a smaller rest is no file of its own
_ENOUGH: Final = 0.95  # of the goal: a writer aims row groups so far below the size that it may not exceed
_LEAST_ROW_GROUPS: Final = 4  # of a file: it ends with one, so its size is off by at most a quarter


def output_files(
    expected_bytes: Ints, leaves_rest: Bools, *, target_bytes: int, min_bytes: int, max_bytes: int
) -> Ints:
    """How many files are written of groups of rows.

    Args:
        expected_bytes: of n groups, encoded.
        leaves_rest: whether the last file of each may be small; see `Rolling`.
        target_bytes: see `Rolling`.
        min_bytes: see `Rolling`.
        max_bytes: see `Rolling`.

    Returns:
        n numbers, at least 1: of no bytes it is one file, too, if there are rows.
    """
    down = np.maximum(1, expected_bytes // target_bytes)
    up = np.maximum(1, -(-expected_bytes // target_bytes))
    nearest = np.where(expected_bytes - down * target_bytes < up * target_bytes - expected_bytes, down, up)
    sizes = (target_bytes, min_bytes, max_bytes)
    joins = (expected_bytes <= max_bytes) & (
        ~leaves_rest | (expected_bytes < (1 + _REST_SHARE) * target_bytes)
    )
    found: Ints = np.where(joins, 1, up)
    for files in (down + up - nearest, nearest):
        found = np.where(_is_equal(expected_bytes, files, *sizes), files, found)
    return found


def _is_equal(expected_bytes: Ints, files: Ints, target_bytes: int, min_bytes: int, max_bytes: int) -> Bools:
    """Whether so many equal files are each about as large as the target, and of a size that is left alone."""
    least = files * max(_LEAST_SHARE * target_bytes, min_bytes)
    most = files * min(_MOST_SHARE * target_bytes, max_bytes)
    found: Bools = (least <= expected_bytes) & (expected_bytes <= most)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """When a writer of a group's rows ends a file and begins the next one.

    What is expected of rows that are still to come is best told by those that were written: the bytes of inputs that
    are left, times the bytes that were written of the group for each byte of inputs that was read.

    Args:
        target_bytes: of a file.
        min_bytes: a smaller file is a candidate of the next run.
        max_bytes: a larger one, too.
        leaves_rest: whether the last file may be small, as in the last group of a partition; else what would be
            below `min_bytes` joins the file before it, if that stays within `max_bytes`.
    """

    target_bytes: int
    min_bytes: int
    max_bytes: int
    leaves_rest: bool = True

    def files(self, expected_bytes: int) -> int:
        """How many files rows of so many bytes become."""
        found = output_files(
            np.array([expected_bytes], np.int64),
            np.array([self.leaves_rest]),
            target_bytes=self.target_bytes,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
        )
        return int(found[0])

    def _is_equal(self, expected_bytes: int) -> bool:
        """Whether these files are equally large."""
        files = np.array([self.files(expected_bytes)], np.int64)
        sizes = (self.target_bytes, self.min_bytes, self.max_bytes)
        return bool(_is_equal(np.array([expected_bytes], np.int64), files, *sizes)[0])

    def goal_bytes(self, expected_bytes: int) -> int:
        """The size of the first of these files: an equal share, or the target where shares would be of no good size."""
        files = self.files(expected_bytes)
        if files > 1 and not self._is_equal(expected_bytes):
            return self.target_bytes
        return -(-expected_bytes // files)

    def closes(self, written_bytes: int, remaining_expected_bytes: int) -> bool:
        """Whether the file ends here, at the end of a row group.

        It does at 0.95 of its goal, or at the goal where what it leaves could not be equal files; and before that where
        one more row group would leave a file that is too small, and too much to join this one.

        Args:
            written_bytes: of the file.
            remaining_expected_bytes: of the group's rows that are still to be written.
        """
        expected_bytes = written_bytes + remaining_expected_bytes
        if self.files(expected_bytes) == 1:
            return False
        least_bytes = _REST_SHARE * self.target_bytes if self.leaves_rest else self.min_bytes
        if remaining_expected_bytes < least_bytes and expected_bytes <= self.max_bytes:
            return False
        goal_bytes = self.goal_bytes(expected_bytes)
        spare_bytes = remaining_expected_bytes - self.min_bytes
        is_last_chance = 0 <= spare_bytes < goal_bytes / _LEAST_ROW_GROUPS
        if is_last_chance and written_bytes >= self.min_bytes and expected_bytes > self.max_bytes:
            return True
        if self._is_equal(expected_bytes) and not self._is_equal(remaining_expected_bytes):
            return written_bytes >= goal_bytes
        return written_bytes >= max(_ENOUGH * goal_bytes, min(goal_bytes, self.min_bytes))

    def row_group_bytes(self, expected_bytes: int, most_bytes: int) -> int:
        """The size of row groups by which a file ends near its goal.

        Args:
            expected_bytes: of the group's rows from this file on.
            most_bytes: that the table's properties give a row group.

        Returns:
            Equal shares of the goal within `most_bytes`, four of them at least: else a file of a small target would be
            one row group of several targets. Of what becomes one file, shares of the target: it may become more.
        """
        is_single = self.files(expected_bytes) == 1
        goal_bytes = self.target_bytes if is_single else self.goal_bytes(expected_bytes)
        row_groups = max(_LEAST_ROW_GROUPS, -(-goal_bytes // most_bytes))
        return -(-goal_bytes // row_groups)
