"""An open Delta table: its log, its newest snapshot, the files of its operations, and its answers to what they ask.

What another writer committed meanwhile is answered in one way: the newer commits are read, and the verb plans again on
the new snapshot by the rules by which it planned first, bounded by what was shown. So there are no rules of their own
for conflicts: every winner is looked at by the rules that would have planned after it.

Spec: Delta, "Delta Log Entries", "Writer Requirements".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli import __version__
from iceberg_cli.delta.commit import CommitDraft, CommitSummary, LogCommit, bind
from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.delta.ownership import (
    CHECKPOINT,
    DATA_SUFFIX,
    discardable,
    kept_commit,
    own_removals,
    remove_empty_folders,
    staging_path,
)
from iceberg_cli.delta.spec.actions import clash_of
from iceberg_cli.delta.spec.clients import Client, clients_of
from iceberg_cli.delta.spec.columns import lost_of_vectors
from iceberg_cli.delta.spec.commit_parsing import CommitBytes, unreadable_reason
from iceberg_cli.delta.spec.features import new_features, supports, write_refusal
from iceberg_cli.delta.spec.in_commit_timestamps import IN_COMMIT_TIMESTAMPS, has_in_commit_timestamps
from iceberg_cli.delta.spec.log import LOG, SIDECARS
from iceberg_cli.delta.spec.paths import physical_column
from iceberg_cli.delta.spec.protocol import Protocol
from iceberg_cli.delta.spec.snapshot import Snapshot, repeated_add
from iceberg_cli.delta.verb_registry import VERBS
from iceberg_cli.engines import Engine
from iceberg_cli.errors import InvalidMetadata, Refused
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Unknown
from iceberg_cli.operation.ports import Retries
from iceberg_cli.operation.verbs import FormatVerbs
from iceberg_cli.operation.workspace import Workspace
from iceberg_cli.paths import Roots, scheme_of
from iceberg_cli.plan.plan import Base, Change, Plan, StagedFile, Step, Task, Verdict, Voucher
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.writer_loss import CLIENT, accepts_loss, loss_reason
from iceberg_cli.table.nested_tables import NestedTables
from iceberg_cli.table.own_removals import with_own_removals
from iceberg_cli.table.table import OpenTable

if TYPE_CHECKING:
    from iceberg_cli.delta.reachability import DeltaReachability, IcebergReachability
    from iceberg_cli.operation.records import CommitIntent

# A commit is refused only where another one came first, and each refusal costs one more look at the log.
_RECENT_COMMITS = 20  # newest commits in which clients are looked for
_RETRIES = Retries(attempts=20, min_wait_ms=50, max_wait_ms=5_000, total_timeout_ms=1_800_000)


@dataclass(kw_only=True)
class DeltaWorkspace(Workspace):
    """The files that operations on one Delta table write, look up and delete.

    Args:
        storage: see `Workspace`.
        root: the table's folder in canonical spelling.
        loaded: the snapshot as loaded last.
        newest: the newest snapshot.
    """

    root: str
    loaded: Callable[[], Snapshot]
    newest: Callable[[], Snapshot]

    @property
    def location(self) -> str:
        """The table's folder."""
        return self.root

    @property
    def table_uuid(self) -> str:
        """The id in the table's metadata."""
        return self.loaded().metadata.id

    def staging_path(self, prefix: str, task: Task) -> str:
        """Where a task's new file goes."""
        return staging_path(self.root, prefix, task)

    def written_folders(self) -> list[str]:
        """The table's folder, and those of its log and of sidecars."""
        log = f"{self.root}/{LOG}"
        return [self.root, log, f"{log}/{SIDECARS}"]

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete files, then the folders that they leave empty; the files still there, with the reason."""
        failures = self.storage.delete(paths)
        if scheme_of(self.root) == "file":
            remove_empty_folders(self.storage, self.root, [path for path in paths if path not in failures])
        return failures

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        """Delete files that an operation wrote and that no version names; see `ownership.discardable`."""
        own = [
            path for path in map(self.storage.canonical, paths) if discardable(path, self.root, marks=marks)
        ]
        if any(path.endswith(".bin") for path in own):
            from iceberg_cli.delta.reachability import named_vectors

            named = named_vectors(
                self.newest(), self.root
            )  # not loaded: a plan was made of the table as it is loaded
            own = [path for path in own if path not in named]
        if any(path.endswith(DATA_SUFFIX) for path in own):
            named = self._named_data()
            own = [path for path in own if path not in named]
        self.storage.delete(own)

    def _named_data(self) -> frozenset[str]:
        """The data files that an add or a tombstone of the newest version names."""
        newest = self.newest()
        columns = (physical_column(files["path"], self.root) for files in (newest.adds, newest.removes))
        return frozenset(path for column in columns for path in column.to_pylist())


@dataclass(kw_only=True)
class DeltaTable(OpenTable):
    """One Delta table, opened.

    Args:
        name, storage, engine, on_event: see `OpenTable`.
        root: its folder in canonical spelling.
        committer: how versions are added.
        iceberg_files: what Iceberg metadata in the folder reaches, by the table's log.
        allow_roots: its root, where that is a whole bucket in which files may be deleted.
    """

    format: ClassVar[str] = "delta"
    verbs: ClassVar[FormatVerbs] = VERBS
    send_again_ms: ClassVar[int | None] = 3_600_000  # a vacuum goes by the times that a commit's removes tell
    root: str
    committer: DeltaLogCommitter
    iceberg_files: Callable[[DeltaLog], IcebergReachability]
    allow_roots: tuple[str, ...] = ()
    log: DeltaLog = field(init=False)
    _snapshot: Snapshot | None = None
    _reachability: DeltaReachability | None = None
    _adds_seen: tuple[Snapshot, str | None] | None = None  # a snapshot, and why its adds are not repeated
    _workspace: DeltaWorkspace = field(init=False)

    def __post_init__(self) -> None:
        """The log is read through the same storage and engine."""
        self.log = DeltaLog(self.storage, self.engine, self.root, self.on_event)
        self._workspace = DeltaWorkspace(
            storage=self.storage,
            root=self.root,
            loaded=lambda: self.snapshot,
            newest=lambda: self.log.advance(self.snapshot),
        )

    def use(self, engine: Engine) -> None:
        """Read with another engine from now on."""
        self.engine = engine
        self.log = DeltaLog(self.storage, engine, self.root, self.on_event)

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def workspace(self) -> DeltaWorkspace:
        """The files of its operations."""
        return self._workspace

    @property
    def snapshot(self) -> Snapshot:
        """The state as loaded last."""
        if self._snapshot is None:
            self.load()
        assert self._snapshot is not None
        return self._snapshot

    def load(self, seen: str | None = None) -> Base:  # noqa: ARG002 - the log is looked at in any case
        """Look at the log, and read the commits that are new.

        Raises:
            TableNotFound, CorruptFile, Refused (a reader feature that is not known), BackendUnavailable.
        """
        before = self._snapshot
        newest = self.log.snapshot() if before is None else self.log.advance(before)
        if before is not None and newest.metadata.id != before.metadata.id:
            raise Refused(
                f"Cannot go on with {self.name}: it was table {before.metadata.id}, and another, "
                f"{newest.metadata.id}, is in its place",
                state="What was committed before stays.",
            )
        self._snapshot = newest
        return self.base()

    def base(self) -> Base:
        """What the table was when it was loaded last."""
        return Base(table_uuid=self.snapshot.metadata.id, version=str(self.snapshot.version))

    def properties(self) -> Mapping[str, str]:
        """As `OpenTable`: of its configuration."""
        return self.snapshot.metadata.configuration

    def live_files(self) -> int:
        """Those of the version that is loaded."""
        return int(self.snapshot.adds.num_rows)

    def oldest_state_ms(self) -> int | None:
        """When the oldest version was made whose commit is in the log, by the time of that file."""
        commits = self.log.listing().commits
        return commits[0].modified_ms if commits else None

    def describe(self) -> dict[str, Any]:
        """How plans name this table."""
        protocol = self.snapshot.protocol
        return {
            **self.identity,
            "format_version": protocol.min_writer_version,
            "reader_version": protocol.min_reader_version,
        }

    def roots(self) -> Roots:
        """The folder in which this table's files may be deleted; none where it is a whole bucket or disk."""
        return Roots.of([self.root], allowed=self.allow_roots)

    def read_only_reason(self) -> str | None:
        """Why this table, as loaded last, is not written to, or None."""
        refusal = write_refusal(self.snapshot.protocol, self.snapshot.metadata)
        return refusal or self.committer.unvouched_reason() or self.storage_refusal()

    def recovery_refusal(self) -> str | None:
        """Why nothing is written at all, or None: a commit is refused by itself, what was committed may be swept."""
        return self.committer.unvouched_reason() or self.storage_refusal()

    def closing_refusal(self) -> None:
        """None: what is deleted is the operation's own, and no version names it."""

    def vouchers(self) -> Sequence[Voucher]:
        """What the operator vouches for where the table is on S3."""
        return self.committer.vouchers()

    def probe(self, path: str) -> None:
        """Refuse an object store that is seen not to keep conditional creates; see `OpenTable`."""
        self.committer.probe(path)

    def refusal(self, step: Step) -> str | None:
        """Why one step is not carried out on the table as loaded last, or None."""
        snapshot = self.snapshot
        if step.change is not None and supports(snapshot.protocol, "inCommitTimestamp"):
            try:
                snapshot.metadata.property_bool(IN_COMMIT_TIMESTAMPS, default=False)
            except InvalidMetadata as error:
                return f"whether commits must tell their time is not known: {error.message}"
        timed = has_in_commit_timestamps(snapshot.protocol, snapshot.metadata)
        if step.change is not None and timed and snapshot.in_commit_timestamp_ms is None:
            return (
                f"neither a commit nor a version checksum tells the in-commit timestamp of version {snapshot.version}, "
                "which that of the next version must exceed"
            )
        if _says_more_than_what_happened(step.change) and (clash := clash_of(snapshot.irregular)):
            return clash
        draft = None if step.change is None else step.change.draft
        repairs = isinstance(draft, CommitDraft) and draft.repairs
        if draft is not None and not repairs and (again := self.repeated_add()):
            return again
        checkpoint = any(task.kind == CHECKPOINT for task in step.tasks)
        if checkpoint or _names_vectors(step.change):
            return lost_of_vectors(snapshot.adds, snapshot.removes)
        return None

    def repeated_add(self) -> str | None:
        """Why no commit repeats adds of the table as loaded last, or None; looked for once for each snapshot."""
        if self._adds_seen is None or self._adds_seen[0] is not self.snapshot:
            self._adds_seen = self.snapshot, repeated_add(self.snapshot.adds, self.root)
        return self._adds_seen[1]

    def clients(self, features: frozenset[str]) -> tuple[Client, ...]:
        """Who wrote lately, and which of some features each lacks; none where no feature is asked about.

        Raises:
            CorruptFile: a commit cannot be read.
        """
        return clients_of(self.recent_commits(), sorted(features)) if features else ()

    def recent_commits(self) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """The versions and the `commitInfo` of the last commits, oldest first.

        Raises:
            CorruptFile: a commit cannot be read.
        """
        listing = self.snapshot.listing
        versions = [file.version for file in listing.commits[-_RECENT_COMMITS:]]
        if not versions:
            return ()
        last = versions[-1]
        # Of a log that was cleaned up, commits may be left that do not follow each other.
        first = next(
            version
            for version, distance in zip(versions, range(len(versions), 0, -1), strict=True)
            if version == last + 1 - distance
        )
        return self.log.commits(first, last, listing=listing).commit_infos

    # -- plans -------------------------------------------------------------------------------------------------

    def blocked(self, plan: Plan) -> Plan:
        """The plan, blocked where it would write or delete and the table, or one of the steps, does not allow that.

        It tells what was passed over in reading the table, too; and where it gives the table features, which of the
        clients that wrote lately do not know them. The one that wrote last is shut out only if the operator accepts it.

        Raises:
            CorruptFile: a commit cannot be read.
        """
        blocked = super().blocked(plan)
        reasons = [reason for step in plan.steps if (reason := self.refusal(step))]
        clients = self.clients(self._new_features(plan))
        lost = [client for client in clients if client.lacks]
        reasons += [
            loss_reason(client.name, client.reason)
            for client in lost
            if client.wrote_last and not accepts_loss(plan.policy, client.name)
        ]
        shown = [each for each in plan.verdicts if each.subject != CLIENT] if clients else plan.verdicts
        return replace(
            blocked,
            verdicts=(*shown, *map(_verdict, clients)),
            warnings=(
                *blocked.warnings,
                *(f"{client.name}: {client.reason}" for client in lost),
                *self.snapshot.warnings,
                *self.snapshot.left_out,
            ),
            blocked_by=tuple(dict.fromkeys([*blocked.blocked_by, *reasons])),
        )

    def _new_features(self, plan: Plan) -> frozenset[str]:
        """The features that the steps of a plan give the table."""
        updates = (update for step in plan.steps if step.change is not None for update in step.change.updates)
        protocols = [Protocol.from_json(update["protocol"]) for update in updates if "protocol" in update]
        return frozenset[str]().union(*(new_features(self.snapshot.protocol, each) for each in protocols))

    def resolve(self, plan: Plan) -> Plan:
        """A plan by which no file goes, blocked where its steps are not carried out."""
        return self.with_removals(self.blocked(plan), SCHEMA.empty_table())

    def with_removals(self, plan: Plan, rows: pa.Table) -> Plan:
        """The plan with its removals: those of `rows` that are below the table's root.

        Args:
            plan: without removals.
            rows: columns of `removal_rows.SCHEMA` in any order, each path once.
        """
        return with_own_removals(
            plan,
            [rows.select(SCHEMA.names).cast(SCHEMA)],
            partial(own_removals, root=self.root, roots=self.roots()),
            storage=self.storage,
            roots=self.roots(),
            locations=[self.root],
            takes_roots=False,
            takes_tags=False,
        )

    # -- commit ------------------------------------------------------------------------------------------------

    def retries(self) -> Retries:
        """Delta has no properties for this."""
        return _RETRIES

    def bind(
        self,
        step: Step,
        staged: Mapping[Task, StagedFile],
        *,
        timestamp_ms: int,
        commit_uuid: str,
        operation_id: str,
        mark: str,
    ) -> Attempt:
        """This attempt's commit on the table as loaded last.

        Its bytes are kept beside the journal until its outcome is known, so that the same ones can be sent again.

        Raises:
            Refused: the table must not be written to any more, or not this.
        """
        assert step.change is not None
        if reason := self.read_only_reason() or self.refusal(step):
            raise Refused(f"Cannot commit to {self.name}: {reason}")
        commit = bind(
            step.change,
            self.snapshot,
            staged=staged,
            timestamp_ms=timestamp_ms,
            commit_uuid=commit_uuid,
            engine_info=f"iceberg-cli/{__version__}",
            deleted_files=self._deleted_files(step, operation_id),
        )
        attempt = self.committer.prepare(commit)
        if reason := unreadable_reason(CommitBytes(attempt.file, commit.version, commit.data)):
            raise Refused(f"Cannot commit to {self.name}, for the table could not be read then: {reason}")
        commit_path = kept_commit(self.root, operation_id=operation_id, mark=mark, commit_uuid=commit_uuid)
        return replace(attempt, files={commit_path: commit.data}, temporary_files=(commit_path,))

    def _deleted_files(self, step: Step, operation_id: str) -> int:
        """The number of files that the operation deleted before an unconditional step, which records it."""
        if not step.unconditional:
            return 0
        from iceberg_cli.operation.records import SweepOutcome

        swept = self.workspace.journal(operation_id).records(SweepOutcome)
        return sum(count for record in swept for count in record.by_kind.values())

    def rebind(self, step: Step, intent: CommitIntent) -> Attempt | None:  # noqa: ARG002 - the port's signature
        """The attempt of an intent, from the bytes that were kept.

        Where these are gone it still can be looked up, by its digest and its txnId, but not sent.
        """
        commit_path = intent.scratch[0]
        try:
            data = self.storage.read(commit_path)
        except FileNotFoundError:
            data = b""
        (update,) = intent.updates
        commit = LogCommit(
            version=update["version"],
            data=data,
            timestamp_ms=intent.timestamp_ms,
            commit_uuid=intent.commit_uuid,
            updates=(CommitSummary(version=update["version"], operation=update["operation"]),),
        )
        return replace(self.committer.prepare(commit), digest=intent.digest, temporary_files=(commit_path,))

    def commit(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """Create the next version's file."""
        return self.committer.commit(attempt)

    def settle(self, attempt: Attempt) -> Committed | Conflict | Unknown:
        """The outcome of an earlier try."""
        return self.committer.settle(attempt)

    def effects_visible(self, step: Step) -> bool:  # noqa: ARG002 - the port's signature
        """False: only a log that was cleaned up past the commit leaves the question, and planning again answers it."""
        return False

    # -- sweep -------------------------------------------------------------------------------------------------

    @property
    def reachability(self) -> DeltaReachability:
        """The reachability of the table's files, scanned once for each snapshot."""
        from iceberg_cli.delta.reachability import DeltaReachability

        if self._reachability is None or self._reachability.log is not self.log:
            self._reachability = DeltaReachability(log=self.log, iceberg=self.iceberg_files(self.log))
        return self._reachability

    def nested_tables(self) -> NestedTables:
        """The other tables in the table's folder, as they are from now on."""
        return NestedTables(storage=self.storage, roots=[self.root], own=[self.root])

    def unreachable(self, removals: Removals, rows: Sequence[int], *, plan: Plan) -> list[int]:
        """Those of `rows` whose files are unreachable now by the rules of `plan`.

        Raises:
            Refused: the table must not be written to any more.
        """
        self.load()
        if reason := self.read_only_reason():
            raise Refused(
                f"Cannot delete files of {self.name} any more: {reason}",
                state="What was committed stays. Some unreferenced files are still there.",
            )
        request = removals.read_rows(rows)
        own = own_removals(request, root=self.root, roots=self.roots())
        gone = pc.and_(self.reachability.deletable(self.snapshot, request, plan), own)
        gone = pc.and_(gone, self.nested_tables().holding(request["path"]).is_null())
        return [rows[int(index)] for index in gone.to_numpy(zero_copy_only=False).nonzero()[0]]


def _verdict(client: Client) -> Verdict:
    reason = f"it wrote version {client.version}; {client.reason}"
    return Verdict(subject=CLIENT, id=client.name, keep=True, reason=reason)


def _says_more_than_what_happened(change: Change | None) -> bool:
    """Whether a commit would have more than a commitInfo, and so repeat some of the table's state."""
    if change is None:
        return False
    return change.draft is not None or any(
        kind != "commitInfo" for update in change.updates for kind in update
    )


def _names_vectors(change: Change | None) -> bool:
    """Whether a change adds or removes files with deletion vectors."""
    draft = None if change is None else change.draft
    files = (draft.adds, draft.removes) if isinstance(draft, CommitDraft) else ()
    return any(table["deletionVector"].null_count < table.num_rows for table in files)
