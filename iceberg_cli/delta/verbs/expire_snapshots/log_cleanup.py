"""Log cleanup: what it reads of the log to decide, and the checkpoint that it may write first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.delta.ownership import CHECKPOINT
from iceberg_cli.delta.reachability import expired_sidecars_of, readable
from iceberg_cli.delta.spec.checkpoint_state import DEFAULT_INTERVAL, checkpoint_state, known_interval
from iceberg_cli.delta.spec.features import write_refusal
from iceberg_cli.delta.spec.file_keys import FILES
from iceberg_cli.delta.spec.irregularities import clash_of
from iceberg_cli.delta.spec.log import V2, Checkpoint, Listing
from iceberg_cli.delta.spec.log_cleanup import (
    expired_files,
    kept_checkpoints,
    new_checkpoint_frees_more,
    newest_commit_at,
    protected,
)
from iceberg_cli.delta.spec.snapshot import Snapshot, has_in_commit_timestamps, in_commit_timestamp
from iceberg_cli.errors import CorruptFile, Refused, UsageError
from iceberg_cli.plan.plan import Task, Verdict
from iceberg_cli.plan.text import iso

_IN_COMMIT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"


class LogCleanup:
    """The decision of a log cleanup, made from the log when this is constructed.

    Args:
        log: of the table.
        snapshot: the newest.
        cut_ms: the oldest version that stays readable is the newest at this time; None: the log is not cleaned up.
        as_of_ms: now.

    Raises:
        CorruptFile: a commit does not tell its time where all should.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot, *, cut_ms: int | None, as_of_ms: int) -> None:
        self._log, self._snapshot, self._as_of_ms = log, snapshot, as_of_ms
        self.kept_version: int | None = None
        self.versions: pa.Table = FILES.empty_table()
        self.sidecars: pa.Table = FILES.empty_table()
        self.tasks: tuple[Task, ...] = ()
        self.warnings: list[str] = []
        self.blocked_by: tuple[str, ...] = ()
        self._why = "kept: delta.enableExpiredLogCleanup is false, and --log-retention was not given"
        if cut_ms is not None:
            self._decide(cut_ms, as_of_ms)

    def verdict(self) -> Verdict:
        """The verdict on the versions of the log that stay."""
        kept = "log" if self.kept_version is None else f"from {self.kept_version}"
        return Verdict(subject="versions", id=kept, keep=True, reason=self._why)

    def _decide(self, cut_ms: int, as_of_ms: int) -> None:
        listing = self._log.listing()
        cutoff = newest_version_at(self._log, listing, self._snapshot, cut_ms)
        if cutoff is None:
            self._why = f"kept: no commit is at or before {iso(cut_ms)}"
            return
        kept = self._newest_readable(listing, cutoff)
        kept = self._with_new_checkpoint(listing, kept, cutoff)
        if kept is None:
            self._why = f"kept: no complete, readable checkpoint is at or before version {cutoff}"
            return
        expired = expired_files(listing, kept)
        if expired.num_rows and (reason := protected(self._snapshot, kept)):
            self._why, self.tasks, self.blocked_by = f"kept: {reason}", (), ()
            return
        self._why = (
            f"kept: checkpoint {kept} is the newest at or before version {cutoff}, that of {iso(cut_ms)}"
        )
        self.kept_version, self.versions = kept, expired
        try:
            self.sidecars = expired_sidecars_of(
                self._log, listing, _staying(listing.checkpoints, kept), as_of_ms=as_of_ms
            )
        except CorruptFile as error:
            self.warnings.append(f"no sidecar goes, for a checkpoint may name it: {error.message}")
        if expired.num_rows and not self.tasks:
            self.tasks = self._for_old_readers(listing, kept)

    def _newest_readable(self, listing: Listing, cutoff: int) -> int | None:
        for version in kept_checkpoints(listing, cutoff):
            # Nothing to delete needs no proof that it is not needed.
            if not expired_files(listing, version).num_rows or readable(self._log, version):
                return version
            self.warnings.append(
                f"the checkpoint of version {version} cannot be read; the log is cleaned up to an older one"
            )
        return None

    def _with_new_checkpoint(self, listing: Listing, kept: int | None, cutoff: int) -> int | None:
        """The version that is kept once a checkpoint was written where that is worth it."""
        interval = known_interval(self._snapshot.metadata) or DEFAULT_INTERVAL
        if not new_checkpoint_frees_more(listing, kept, cutoff, interval=interval):
            return kept
        try:
            before = self._log.snapshot(cutoff)
            clash = clash_of(before.irregular)
            warnings = () if clash else self._of_checkpoint(before)
        except (CorruptFile, Refused, UsageError):
            return kept
        if write_refusal(before.protocol, before.metadata) is not None:
            return kept
        if clash:
            reason = (
                f"no checkpoint can be written of version {cutoff}, to which the log would be cut: {clash}"
            )
            self.blocked_by = (reason,)
        self.warnings += warnings
        self.tasks = (checkpoint_task(cutoff),)
        return cutoff

    def _for_old_readers(self, listing: Listing, kept: int) -> tuple[Task, ...]:
        """A classic checkpoint where only V2 ones stay.

        A reader that does not know the others would take the log for one that begins after a gap; in this one it finds
        the protocol, and that the table is not for it.
        """
        if {checkpoint.kind for checkpoint in _staying(listing.checkpoints, kept)} != {V2}:
            return ()
        self.warnings += self._of_checkpoint(self._log.snapshot(kept))
        return (checkpoint_task(kept),)

    def _of_checkpoint(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Warnings about what a classic checkpoint of this snapshot will lack."""
        from iceberg_cli.delta.spec.checkpoint_columns import left_out_warnings, partition_warnings

        state = checkpoint_state(snapshot, as_of_ms=self._as_of_ms)
        return (*left_out_warnings(snapshot.unknown), *partition_warnings(state))


def checkpoint_task(version: int) -> Task:
    """Writes the classic checkpoint of a version."""
    from iceberg_cli.delta.spec.checkpoint_writing import classic_name

    return Task(name=classic_name(version), kind=CHECKPOINT, inputs=(str(version),))


def checkpoint_bytes(log: DeltaLog, task: Task, *, as_of_ms: int) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of the file of a `checkpoint_task`, and warnings about columns that it lacks."""
    from iceberg_cli.delta.spec.checkpoint_writing import checkpoint_writer

    (version,) = task.inputs
    made = checkpoint_writer(checkpoint_state(log.snapshot(int(version)), as_of_ms=as_of_ms))
    return made.classic()[0], made.columns.warnings


def _staying(checkpoints: Sequence[Checkpoint], kept: int) -> list[Checkpoint]:
    return [checkpoint for checkpoint in checkpoints if checkpoint.version >= kept]


def newest_version_at(log: DeltaLog, listing: Listing, snapshot: Snapshot, time_ms: int) -> int | None:
    """The newest commit in the log at or before a point in time, by in-commit timestamps where these are enabled.

    Raises:
        CorruptFile: a commit does not tell its time where all should.
    """
    metadata = snapshot.metadata
    in_commit_from = None
    if has_in_commit_timestamps(snapshot.protocol, metadata):
        in_commit_from = metadata.property_int(_IN_COMMIT_VERSION, 0)

    def timestamp_of(version: int) -> int:
        time_ms = in_commit_timestamp(log.commits(version, version, listing=listing), version)
        if time_ms is None:
            path = f"{log.folder}/{version:020}.json"
            raise CorruptFile(path, "commitInfo.inCommitTimestamp", "it is missing, and the table has these")
        return time_ms

    times = {
        version: written_ms
        for version, written_ms in listing.commit_times_ms().items()
        if version <= snapshot.version
    }
    return newest_commit_at(times, time_ms, in_commit_from=in_commit_from, timestamp_of=timestamp_of)
