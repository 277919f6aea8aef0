"""Log cleanup: what it reads of the log to decide, and the checkpoint that it may write first."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.delta.ownership import CHECKPOINT
from iceberg_cli.delta.reachability import expired_sidecars_of, readable
from iceberg_cli.delta.spec.actions import clash_of
from iceberg_cli.delta.spec.checkpoints.state import DEFAULT_INTERVAL, checkpoint_state, known_interval
from iceberg_cli.delta.spec.features import write_refusal
from iceberg_cli.delta.spec.log import V2, Listing
from iceberg_cli.delta.spec.log_cleanup import (
    expired_files,
    kept_checkpoints,
    new_checkpoint_frees_more,
    protected,
)
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.vacuum import FILES
from iceberg_cli.errors import CorruptFile, Refused, UsageError
from iceberg_cli.plan.plan import Task, Verdict
from iceberg_cli.plan.text import iso


@dataclass(frozen=True, kw_only=True)
class LogCleanupDecision:
    """What of a table's log goes, and what is written before.

    Args:
        why: the versions that stay do.
        kept_version: the oldest version that stays readable; None: all of the log stays.
        versions: the commits and checkpoints that go, columns `FILES`.
        sidecars: that go, columns `FILES`.
        tasks: the checkpoint that is written first, where one is.
        warnings: for the operator.
        blocked_by: why it is not carried out.
    """

    why: str
    kept_version: int | None = None
    versions: pa.Table = field(default_factory=FILES.empty_table)
    sidecars: pa.Table = field(default_factory=FILES.empty_table)
    tasks: tuple[Task, ...] = ()
    warnings: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()

    def verdict(self) -> Verdict:
        """The verdict on the versions of the log that stay."""
        kept = "log" if self.kept_version is None else f"from {self.kept_version}"
        return Verdict(subject="versions", id=kept, keep=True, reason=f"kept: {self.why}")


def plan_log_cleanup(
    log: DeltaLog, snapshot: Snapshot, *, cut_ms: int | None, as_of_ms: int
) -> LogCleanupDecision:
    """Decide what of a log goes.

    Args:
        log: of the table.
        snapshot: the newest.
        cut_ms: the oldest version that stays readable is the newest at this time; None: the log is not cleaned up.
        as_of_ms: now.

    Raises:
        CorruptFile: a commit does not tell its time where all should.
    """
    if cut_ms is None:
        return LogCleanupDecision(
            why="delta.enableExpiredLogCleanup is false, and --log-retention was not given"
        )
    listing = snapshot.listing
    cutoff = log.version_at(snapshot, cut_ms)
    if cutoff is None:
        return LogCleanupDecision(why=f"no commit is at or before {iso(cut_ms)}")
    kept, warnings = _newest_readable(log, listing, cutoff)
    written = _worthwhile_checkpoint(log, snapshot, kept, cutoff, as_of_ms=as_of_ms)
    if written is not None:
        kept = cutoff
        warnings += written.warnings
    if kept is None:
        why = f"no complete, readable checkpoint is at or before version {cutoff}"
        return LogCleanupDecision(why=why, warnings=tuple(warnings))
    expired = expired_files(listing, kept)
    if expired.num_rows and (reason := protected(snapshot, kept)):
        return LogCleanupDecision(why=reason, warnings=tuple(warnings))
    staying = [checkpoint for checkpoint in listing.checkpoints if checkpoint.version >= kept]
    damaged = [checkpoint for checkpoint in listing.damaged if checkpoint.version >= kept]
    try:
        sidecars = expired_sidecars_of(log, listing, [*staying, *damaged], as_of_ms=as_of_ms)
    except CorruptFile as error:
        sidecars = FILES.empty_table()
        warnings.append(f"no sidecar goes, for a checkpoint may name it: {error.message}")
    # A reader that does not know V2 checkpoints would take the log for one that begins after a gap; in a classic one it
    # finds the protocol, and that the table is not for it.
    if written is None and expired.num_rows and {each.kind for each in staying} == {V2}:
        own_warnings = _of_checkpoint(log.snapshot(kept, listing=listing), as_of_ms=as_of_ms)
        written = _WrittenCheckpoint(task=checkpoint_task(kept), warnings=own_warnings)
        warnings += own_warnings
    return LogCleanupDecision(
        why=f"checkpoint {kept} is the newest at or before version {cutoff}, that of {iso(cut_ms)}",
        kept_version=kept,
        versions=expired,
        sidecars=sidecars,
        tasks=() if written is None else (written.task,),
        warnings=tuple(warnings),
        blocked_by=() if written is None else written.blocked_by,
    )


@dataclass(frozen=True, kw_only=True)
class _WrittenCheckpoint:
    """A classic checkpoint that is written before the log is cut to it."""

    task: Task
    warnings: tuple[str, ...]
    blocked_by: tuple[str, ...] = ()


def _newest_readable(log: DeltaLog, listing: Listing, cutoff: int) -> tuple[int | None, list[str]]:
    """The newest version with a readable checkpoint to which the log can be cut, and a warning for each passed over."""
    warnings: list[str] = []
    for version in kept_checkpoints(listing, cutoff):
        # Nothing to delete needs no proof that it is not needed.
        if not expired_files(listing, version).num_rows or readable(log, listing, version):
            return version, warnings
        warnings.append(
            f"the checkpoint of version {version} cannot be read; the log is cleaned up to an older one"
        )
    return None, warnings


def _worthwhile_checkpoint(
    log: DeltaLog, snapshot: Snapshot, kept: int | None, cutoff: int, *, as_of_ms: int
) -> _WrittenCheckpoint | None:
    """A checkpoint of the cut-off's version, where that is worth it and can be written."""
    # One of another kind beside one that cannot be read would not help readers that prefer that.
    if any(each.version == cutoff for each in (*snapshot.listing.checkpoints, *snapshot.listing.damaged)):
        return None
    interval = known_interval(snapshot.metadata) or DEFAULT_INTERVAL
    if not new_checkpoint_frees_more(snapshot.listing, kept, cutoff, interval=interval):
        return None
    try:
        before = log.snapshot(cutoff, listing=snapshot.listing)
        clash = clash_of(before.irregular)
        warnings = () if clash else _of_checkpoint(before, as_of_ms=as_of_ms)
    except (CorruptFile, Refused, UsageError):
        return None
    if write_refusal(before.protocol, before.metadata) is not None:
        return None
    reason = f"no checkpoint can be written of version {cutoff}, to which the log would be cut: {clash}"
    return _WrittenCheckpoint(
        task=checkpoint_task(cutoff), warnings=warnings, blocked_by=(reason,) if clash else ()
    )


def _of_checkpoint(snapshot: Snapshot, *, as_of_ms: int) -> tuple[str, ...]:
    """Warnings about what a classic checkpoint of a snapshot will lack."""
    from iceberg_cli.delta.spec.checkpoints.columns import left_out_warnings, partition_warnings

    state = checkpoint_state(snapshot, as_of_ms=as_of_ms)
    return (*left_out_warnings(snapshot.unknown), *partition_warnings(state))


def checkpoint_task(version: int) -> Task:
    """Writes the classic checkpoint of a version."""
    from iceberg_cli.delta.spec.checkpoints.writing import classic_name

    return Task(name=classic_name(version), kind=CHECKPOINT, inputs=(str(version),))


def checkpoint_bytes(log: DeltaLog, newest: Snapshot, task: Task) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of the file of a `checkpoint_task`, and warnings about columns that it lacks."""
    from iceberg_cli.delta.spec.checkpoints.writing import checkpoint_writer

    (version,) = task.inputs
    snapshot = log.snapshot(int(version), listing=newest.listing)
    # No later than now, so that no tombstone that VACUUM still heeds is left out.
    made = checkpoint_writer(checkpoint_state(snapshot, as_of_ms=newest.timestamp_ms))
    return made.classic()[0], made.columns.warnings
