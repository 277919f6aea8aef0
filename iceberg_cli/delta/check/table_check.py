"""One check of a Delta table: reads its log and files, and applies the rules. Nothing here writes to a table.

The version that is checked has been read when the check begins. Any other file that cannot be read becomes a finding,
and the check goes on with the others.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from iceberg_cli.delta.check.compactions import check_compacted_files
from iceberg_cli.delta.check.rules import RULES
from iceberg_cli.delta.check.state import (
    check_files,
    check_hint,
    check_listing,
    check_metadata,
    check_protocol,
    check_row_ids,
    check_times,
    log_compaction_differences,
    missing_tombstones,
    state_differences,
)
from iceberg_cli.delta.spec.actions import Actions, Irregularity, clash_of
from iceberg_cli.delta.spec.checkpoints.checkpoint import lost_partition_values, sidecar_sizes
from iceberg_cli.delta.spec.checkpoints.last_checkpoint import NAME as LAST_CHECKPOINT
from iceberg_cli.delta.spec.checksum import differences, read_checksum
from iceberg_cli.delta.spec.log import MULTI_PART, Checkpoint, Listing, LogFile
from iceberg_cli.delta.spec.protocol import FILES_DEFAULT_MS, FILES_PROPERTY
from iceberg_cli.delta.spec.snapshot import Snapshot, reconcile
from iceberg_cli.errors import CorruptFile, InvalidMetadata, Refused, UsageError
from iceberg_cli.plan.findings import CheckResult, Findings, reason_of
from iceberg_cli.table.table import check_leftovers

if TYPE_CHECKING:
    from iceberg_cli.delta.table import DeltaTable


@dataclass(kw_only=True)
class DeltaTableCheck:
    """One check of one table.

    Args:
        table: opened.
        snapshot: the version whose files are looked at; the log is checked whole.
        deep: hold every checkpoint against the commits, not the newest alone, and look into Parquet files too.
        now_ms: by which leftovers are old, since the epoch.
    """

    table: DeltaTable
    snapshot: Snapshot
    deep: bool
    now_ms: int = 0
    findings: Findings = field(default_factory=Findings)

    def run(self) -> CheckResult:
        """Hold the table against every rule.

        Raises:
            BackendUnavailable: the storage did not answer.
        """
        log, snapshot, findings = self.table.log, self.snapshot, self.findings
        listing = log.listing()
        check_listing(listing, log.folder, findings)
        hint = log.last_checkpoint()
        check_hint(listing, hint, f"{log.folder}/{LAST_CHECKPOINT}", findings)
        self._read_commits(listing)
        broken = self._check_sidecars(listing)
        checkpoints = self._check_checkpoints(listing, but=broken)
        self._check_compactions(listing)
        checksums = self._check_checksum(listing)
        check_protocol(snapshot.protocol, snapshot.metadata, findings)
        check_metadata(snapshot.metadata, findings)
        self._check_catalog()
        check_files(snapshot, self.table.location, findings)
        check_row_ids(snapshot, findings)
        check_leftovers(self.table, findings, now_ms=self.now_ms)
        files = 0
        if "deletion-vector-path-unreadable" not in findings.totals:
            from iceberg_cli.delta.check.read_files import check_stored

            files = check_stored(self.table, snapshot, findings, deep=self.deep)
        return CheckResult(
            rules=RULES,
            found=findings,
            deep=self.deep,
            checked={
                "commits": len(listing.commits),
                "checkpoints": checkpoints,
                "checksums": checksums,
                "files": files,
            },
        )

    def run_quick(self) -> CheckResult:
        """Hold the version and the log's listing against the rules that need no other file."""
        log, snapshot, findings = self.table.log, self.snapshot, self.findings
        check_listing(snapshot.listing, log.folder, findings)
        check_protocol(snapshot.protocol, snapshot.metadata, findings)
        check_metadata(snapshot.metadata, findings)
        self._check_catalog()
        check_files(snapshot, self.table.location, findings)
        check_row_ids(snapshot, findings)
        return CheckResult(rules=RULES, found=findings, deep=False, checked={})

    def _check_catalog(self) -> None:
        """Add what a catalog has not published: the version is not the newest then."""
        for reason in self.snapshot.left_out:
            self.findings.add("feature-unknown", self.table.log.folder, reason)

    # -- the log -------------------------------------------------------------------------------------------------

    def _read_commits(self, listing: Listing) -> None:
        """Read every commit; in-commit timestamps are compared between commits that follow each other."""
        for run in _runs(listing.commits):
            actions = self._commits(run, listing)
            upto = [file for file in run if file.version <= self.snapshot.version]
            if actions is not None and upto:
                check_times(actions, upto, self.snapshot, self.findings)
                check_compacted_files(actions, self.snapshot, self.findings)

    def _add_irregular(self, found: Sequence[Irregularity]) -> None:
        """Add the irregularities of commits that the version is read from: a checkpoint is one reading of others."""
        checkpoint = self.snapshot.segment.checkpoint
        first = 0 if checkpoint is None else checkpoint.version + 1
        for each in found:
            if first <= each.version <= self.snapshot.version:
                self.findings.add(each.rule, each.path, f"{each.where}: {each.message}", times=each.times)

    def _commits(self, files: Sequence[LogFile], listing: Listing) -> Actions | None:
        """The actions of commits without a gap; where some cannot be read, these are findings and it is None."""
        log = self.table.log
        try:
            actions = log.commits(files[0].version, files[-1].version, listing=listing)
        except CorruptFile as error:
            if len(files) == 1:
                self.findings.add("commit-unreadable", files[0].path, reason_of(error))
                return None
        else:
            self._add_irregular(actions.irregular)
            return actions
        for file in files:
            self._commits([file], listing)
        return None

    def _check_checkpoints(self, listing: Listing, *, but: Container[str]) -> int:
        """Compare checkpoints with the commits before them, where these are there; the number compared.

        `but` has the files of those that are known to be broken.
        """
        checkpoints = listing.checkpoints
        if not self.deep and checkpoints:
            checkpoints = tuple(each for each in checkpoints if each.version == checkpoints[-1].version)
        for checkpoint in checkpoints:
            if checkpoint.files[0].path not in but:
                self._check_checkpoint(checkpoint, listing)
        return len(checkpoints)

    def _check_checkpoint(self, checkpoint: Checkpoint, listing: Listing) -> None:
        log, version, where = self.table.log, checkpoint.version, checkpoint.files[0].path
        alone = replace(listing, checkpoints=(checkpoint,), commits=(), compactions=())
        try:
            stated = log.snapshot_from(alone, version)
        except (CorruptFile, Refused) as error:
            self.findings.add("checkpoint-unreadable", where, _reason(error))
            return
        if stated.metadata.partition_columns:
            self._check_partition_values(checkpoint)
        before = tuple(each for each in listing.checkpoints if each.version < version)
        try:
            replayed = log.snapshot_from(replace(listing, checkpoints=before, compactions=()), version)
        except (CorruptFile, UsageError, Refused):
            return  # the commits are gone or damaged, and nobody can tell
        if clash_of(replayed.irregular) is not None:
            return  # the checkpoint is one reading of the commits, and there is another
        for difference in state_differences(stated, replayed):
            self.findings.add("checkpoint-differs", where, difference)
        self._check_tombstones(stated, replayed, checkpoint)

    def _check_partition_values(self, checkpoint: Checkpoint) -> None:
        """Look for partition values that the typed ones, which nothing else here reads, do not hold."""
        storage, folder = self.table.storage, self.table.log.folder
        for file in checkpoint.files:
            data = storage.read(file.path)
            self._check_typed(file.path, data)
            if checkpoint.kind != MULTI_PART:
                for path in sidecar_sizes(file.path, file.version, data, folder=folder):
                    self._check_typed(path, storage.read(path))

    def _check_typed(self, path: str, data: bytes) -> None:
        if not path.endswith(".parquet"):
            return
        try:
            count, first = lost_partition_values(path, data)
        except CorruptFile as error:
            self.findings.add("checkpoint-unreadable", path, reason_of(error))
            return
        if count:
            message = (
                f"partitionValues_parsed lacks values that partitionValues has ({count:,}), such as {first}"
            )
            self.findings.add("checkpoint-partition-value-lost", path, message)

    def _check_tombstones(self, stated: Snapshot, replayed: Snapshot, checkpoint: Checkpoint) -> None:
        try:
            retention_ms = replayed.metadata.property_interval_ms(FILES_PROPERTY, FILES_DEFAULT_MS)
        except InvalidMetadata:
            return
        # A checkpoint is no younger than its file says, so what was in its retention then is in it.
        written_ms = max(checkpoint.files[0].modified_ms, replayed.timestamp_ms)
        lost = missing_tombstones(stated.removes, replayed.removes, since_ms=written_ms - retention_ms)
        for name in lost.to_pylist():
            self.findings.add(
                "checkpoint-tombstone-missing",
                checkpoint.files[0].path,
                f"it lacks the tombstone of {name.strip()}, which is within the retention of removed files",
            )

    def _check_sidecars(self, listing: Listing) -> set[str]:
        """Sidecars that checkpoints name and that are not there, and the other way round; with `deep` their sizes.

        Returns:
            The files of the checkpoints that are broken.
        """
        there = {file.path: file.size_bytes for file in listing.sidecars}
        named: set[str] = set()
        broken: set[str] = set()
        whole = True
        for checkpoint in listing.checkpoints:
            if checkpoint.kind == MULTI_PART:
                continue
            (file,) = checkpoint.files
            try:
                data = self.table.storage.read(file.path)
                own = sidecar_sizes(file.path, file.version, data, folder=self.table.log.folder)
            except (CorruptFile, FileNotFoundError) as error:
                whole = False
                broken.add(file.path)
                self.findings.add("checkpoint-unreadable", file.path, _reason(error))
                continue
            named |= own.keys()
            for path in sorted(own.keys() & there.keys() if self.deep else ()):
                if own[path] != there[path]:
                    message = f"it has {there[path]} bytes, the checkpoint of version {file.version} says {own[path]}"
                    self.findings.add("sidecar-size-differs", path, message)
            for path in sorted(own.keys() - there.keys()):
                broken.add(file.path)
                self.findings.add(
                    "sidecar-missing", path, f"the checkpoint of version {file.version} names it"
                )
        if whole:
            for path in sorted(there.keys() - named):
                self.findings.add("sidecar-dangling", path, "no checkpoint names it")
        return broken

    def _check_compactions(self, listing: Listing) -> None:
        """Hold log compactions against their commits, where these are there."""
        log = self.table.log
        for file, end in listing.compactions:
            as_commit = replace(listing, commits=(replace(file, version=end),))
            try:
                compacted = log.commits(end, end, listing=as_commit)
            except CorruptFile as error:
                self.findings.add("compaction-unreadable", file.path, reason_of(error))
                continue
            try:
                replayed = log.commits(file.version, end, listing=listing)
            except CorruptFile:
                continue  # a commit is gone or damaged, and nobody can tell
            for difference in log_compaction_differences(compacted, reconcile([replayed])):
                self.findings.add("compaction-differs", file.path, difference)

    def _check_checksum(self, listing: Listing) -> int:
        """Compare the version checksum with the snapshot; the number compared."""
        for file in listing.checksums:
            if file.version != self.snapshot.version:
                continue
            try:
                fields = read_checksum(self.table.storage.read(file.path), file.path)
                for difference in differences(fields, self.snapshot, file.path):
                    stated, found = _short(difference.stated), _short(difference.found)
                    message = f"{difference.field} is {stated}, and the log adds up to {found}"
                    self.findings.add("checksum-differs", file.path, message)
            except (CorruptFile, FileNotFoundError) as error:
                self.findings.add("checksum-unreadable", file.path, _reason(error))
            return 1
        return 0


def _runs(commits: Sequence[LogFile]) -> Iterator[Sequence[LogFile]]:
    """The commits in runs between which versions are missing."""
    start = 0
    for place in range(1, len(commits) + 1):
        if place == len(commits) or commits[place].version != commits[place - 1].version + 1:
            yield commits[start:place]
            start = place


def _reason(error: CorruptFile | Refused | FileNotFoundError) -> str:
    match error:
        case CorruptFile():
            return reason_of(error)
        case Refused():
            return error.message
    return "it went while the table was checked"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
