"""Our clock compared with the storage's: nothing goes by age because a clock is wrong."""

from __future__ import annotations

from typing import Final

from iceberg_cli.errors import Refused
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.late_files import close
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.text import age, iso

MAX_AHEAD_MS: Final = 86_400_000


def check_before_commit(plan: Plan, journal: Journal, runtime: Runtime, *, before_ms: int) -> None:
    """Refuse a plan that decides by an age which only our clock shows, and close its operation.

    A plan for an earlier moment, as --as-of names one, does not depend on our clock and is not refused.

    Args:
        plan: before its first commit.
        journal: to which a record was just appended.
        runtime: to close the operation.
        before_ms: what our clock showed before that, so that a process that stood still is not taken for a wrong clock.

    Raises:
        Refused: our clock is more than a day ahead of the storage's.
    """
    if not plan.by_age:
        return
    storage_ms = journal.clock_ms()
    if storage_ms and min(before_ms, plan.as_of_ms) - storage_ms > MAX_AHEAD_MS:
        close(journal, "refused", runtime)
        raise _refused(f"{plan.verb} {plan.table['name']}", before_ms, storage_ms)


def check_before_sweep(ends_ms: int, journal: Journal, *, before_ms: int) -> None:
    """Refuse to end a grace that is over by our clock alone.

    Args:
        ends_ms: the end of the grace.
        journal: see `check_before_commit`.
        before_ms: see `check_before_commit`.

    Raises:
        Refused: the grace is not over by the storage's clock, and ours is more than a day ahead of it.
    """
    storage_ms = journal.clock_ms()
    if storage_ms and ends_ms > storage_ms and before_ms - storage_ms > MAX_AHEAD_MS:
        error = _refused(f"end the grace of operation {journal.operation_id}", before_ms, storage_ms)
        error.state = "The commit is done, and the files that go wait on."
        raise error


def _refused(what: str, ours_ms: int, storage_ms: int) -> Refused:
    return Refused(
        f"Cannot {what}: this machine's clock shows {iso(ours_ms)}, and the storage's {iso(storage_ms)}. Ours is "
        f"{age(ours_ms - storage_ms)} ahead, so what is young would count as old",
        next_step="Set the clock, or name the time from which ages count by --as-of.",
    )
