"""Whether a plan would delete abnormally much, beside what runs before it deleted or beside all there is. Pure.

A wrong cut-off, a clock that is ahead or a fault of this program shows first in how much would go. So a plan is refused
that goes far beyond what its verb did on this table so far, until somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from iceberg_cli.plan.text import age, count, size

ACCEPT_OPTION: Final = "--unsafe-accept-alarm"
OFF: Final = "off"  # in the place of a factor
DEFAULT_FACTOR: Final = 6.0
LEAST_FILES: Final = 1_000  # fewer raise no alarm by the runs before
MOST_RUNS: Final = 10  # that are looked at
_LEAST_RUNS: Final = 3
# No schedule repeats faster. Runs by hand, seconds apart, would make any later one look long overdue.
_SHORTEST_INTERVAL_MS: Final = 60_000


class PastDeletion(NamedTuple):
    """A run of a verb that deleted files: when it began, in ms since the epoch, and how many."""

    started_ms: int
    files: int


def history_alarm(
    going_files: int, past: Sequence[PastDeletion], *, verb: str, factor: float, as_of_ms: int
) -> str | None:
    """Why a plan deletes far more than the runs before it did, with the figures; None where it does not.

    That is more than `factor` times the median of what the last runs deleted; where the last one is longer ago than
    the median of the times between them, as many times more as it is longer ago.

    Args:
        going_files: that the plan deletes.
        past: runs of its verb on its table that deleted something, newest first; `MOST_RUNS` of them count.
        verb: its name, for the message.
        factor: above 0.
        as_of_ms: the "now" of the plan.
    """
    runs = past[:MOST_RUNS]
    if going_files < LEAST_FILES or len(runs) < _LEAST_RUNS:
        return None
    usual_files = _median([run.files for run in runs])
    interval_ms = max(
        _SHORTEST_INTERVAL_MS,
        _median([later.started_ms - earlier.started_ms for later, earlier in pairwise(runs)]),
    )
    since_ms = as_of_ms - runs[0].started_ms
    times = max(1.0, since_ms / interval_ms)
    limit = factor * usual_files * times
    if going_files <= limit:
        return None
    usual = f"{factor:g} times {_number(usual_files)}, the median of the last {len(runs)} runs of {verb} here that"
    interval, since = age(round(interval_ms)), age(since_ms)
    late = (
        f", times {_number(times)}, for the last was {since} ago and they are {interval} apart"
        if times > 1
        else ""
    )
    return (
        f"{count(going_files, 'files')} would be deleted, more than {int(limit):,}: {usual} deleted files{late}. "
        f"{ACCEPT_OPTION} carries it out"
    )


def share_alarm(going_files: int, listed_files: int, going_bytes: int, listed_bytes: int) -> str | None:
    """Why a plan deletes too much of what was listed: more than half of the files or of the bytes; None: it does not.

    Args:
        going_files: of the listed ones.
        listed_files: all.
        going_bytes: of the files that go.
        listed_bytes: of all.
    """
    if 2 * going_files <= listed_files and 2 * going_bytes <= listed_bytes:
        return None
    return (
        f"{going_files:,} of {count(listed_files, 'listed files')}, {size(going_bytes)} of {size(listed_bytes)}, would "
        f"be deleted, more than half. {ACCEPT_OPTION} carries it out"
    )


def _median(values: Sequence[int]) -> float:
    """That of one value or more; `statistics` takes long to import, and options are shown at every start."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _number(value: float) -> str:
    """With one digit after the point, where that is not 0."""
    return f"{value:,.1f}".removesuffix(".0")
