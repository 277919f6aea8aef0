"""rewrite-manifests of a Delta table: a checkpoint of the newest version, its version checksum, log compaction.

Nothing is committed and nothing goes: the state of the table is said once more, in fewer files. Every file is written
under its final name, the one that makes the others count last. A classic checkpoint appears whole. Sidecars mean
nothing until a top level names them; of a process that dies between the two they stay, and a later log cleanup takes
them: until the process is known to be gone, nobody can tell that it will not write the top level. `_last_checkpoint` is
a hint, and comes after what it hints at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iceberg_cli.delta.ownership import CHECKPOINT
from iceberg_cli.delta.spec.actions import Actions, clash_of
from iceberg_cli.delta.spec.checkpoints.columns import left_out_warnings, other_rows
from iceberg_cli.delta.spec.checkpoints.last_checkpoint import NAME, LastCheckpoint, may_replace
from iceberg_cli.delta.spec.checkpoints.state import (
    CheckpointState,
    checkpoint_state,
    commits_since,
    in_words,
    is_due,
    known_interval,
)
from iceberg_cli.delta.spec.checkpoints.writing import (
    PART_SIZE,
    V2_FEATURE,
    CheckpointFile,
    CheckpointWriter,
    checkpoint_writer,
    classic_name,
    sidecar_count,
    sidecar_name,
    top_level_name,
)
from iceberg_cli.delta.spec.checksum import may_write, version_checksum
from iceberg_cli.delta.spec.columns import lost_of_vectors
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.in_commit_timestamps import in_commit_timestamp
from iceberg_cli.delta.spec.log import Checkpoint, Listing, newest_checkpoint
from iceberg_cli.delta.spec.snapshot import Snapshot, reconcile, repeated_add
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.expire_snapshots.retention import dated_ahead
from iceberg_cli.delta.verbs.rewrite_manifests.policy import CLASSIC, V2, VERB_NAME, RewriteManifests
from iceberg_cli.delta.verbs.rewrite_manifests.rules import check_range, compacted, compacted_name
from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Option, Plan, StagedFile, Step, Task, Verdict
from iceberg_cli.plan.text import count
from iceberg_cli.storage import put_checked

SIDECAR, HINT, CHECKSUM, COMPACTION = "sidecar", "last-checkpoint", "checksum", "compaction"
_COUNTS: Final = {
    CHECKPOINT: "added_checkpoints_count",
    SIDECAR: "added_sidecars_count",
    CHECKSUM: "added_checksums_count",
    COMPACTION: "added_compactions_count",
}
_POLICY_PROPERTY: Final = "delta.checkpointPolicy"
_UNIQUE: Final = "{uuid}"  # takes its place in the names of files: see `ownership.staging_path`


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBuild:
    """A checkpoint that is due: its tasks, and what building them needs."""

    kind: str  # classic or v2
    writer: CheckpointWriter
    tasks: tuple[Task, ...]
    damaged: tuple[Checkpoint, ...] = ()  # of the same version and kind: cannot be read, and is replaced

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the checkpoint lacks, in words."""
        return self.writer.columns.warnings

    @property
    def state(self) -> CheckpointState:
        """What it will hold."""
        return self.writer.state

    def build(self, table: DeltaTable, paths: Mapping[Task, str]) -> dict[Task, StagedFile]:
        """Write the files of its tasks.

        Another writer's checkpoint of the same version is as good as ours, and stays.

        Raises:
            Refused: a field that Delta does not name has no type that Parquet can hold.
            CorruptFile: a file reads back differently. BackendUnavailable.
        """
        own_paths = {task: paths[task] for task in self.tasks if task in paths}
        if _there(table.snapshot.listing, self.state.version) is not None:
            return {task: StagedFile(path=path) for task, path in own_paths.items()}
        build = self._classic if self.kind == CLASSIC else self._v2
        hint = build(table, own_paths)
        for task, path in own_paths.items():
            if task.kind == HINT and hint is not None:
                _put_hint(table, path, hint)
        return {
            task: StagedFile(path=path, row={} if hint is None else self._row(task))
            for task, path in own_paths.items()
        }

    def _row(self, task: Task) -> dict[str, Any]:
        """What the report tells of a file that was written."""
        row: dict[str, Any] = {"counts": {_COUNTS[task.kind]: 1}} if task.kind in _COUNTS else {}
        return {**row, "notes": self.warnings} if task.kind == CHECKPOINT else row

    def _classic(self, table: DeltaTable, paths: Mapping[Task, str]) -> LastCheckpoint | None:
        """Write the file; its hint, or None where another writer was faster."""
        (path,) = (path for task, path in paths.items() if task.kind == CHECKPOINT)
        data, hint = self.writer.classic()
        if self.damaged:
            table.storage.replace(path, data)
            return hint
        try:
            put_checked(table.storage, path, data)
        except FileExistsError:
            return None
        return hint

    def _v2(self, table: DeltaTable, paths: Mapping[Task, str]) -> LastCheckpoint | None:
        """Write the sidecars, then the top level; its hint."""
        sidecars = []
        parts = [task for task in self.tasks if task.kind == SIDECAR]
        for part, task in enumerate(parts):
            put_checked(table.storage, paths[task], self.writer.sidecar(part))
            sidecars.append(_written(table, paths[task]))
        (path,) = (path for task, path in paths.items() if task.kind == CHECKPOINT)
        put_checked(table.storage, path, self.writer.top_level(sidecars))
        return self.writer.hint(_written(table, path), sidecars)


def checkpointing(
    snapshot: Snapshot, *, kind: str, as_of_ms: int, part_size: int | None = None
) -> CheckpointBuild:
    """How a checkpoint of a snapshot's version is written.

    Args:
        snapshot: of any version.
        kind: classic, or v2 where the table supports it.
        as_of_ms: tombstones that have expired by then are left out.
        part_size: actions in one sidecar.

    Raises:
        InvalidMetadata: the schema cannot be read, or a property is wrong.
        Refused: a field of an add or a remove has no type that Parquet can hold.
        UsageError: the part size is none.
    """
    state = checkpoint_state(snapshot, as_of_ms=as_of_ms)
    writer = checkpoint_writer(state, part_size=PART_SIZE if part_size is None else part_size)
    tasks = [Task(name=NAME, kind=HINT)]
    if kind == V2:
        parts = sidecar_count(state, writer.part_size)
        names = [sidecar_name(state.version, part, parts, _UNIQUE) for part in range(parts)]
        tasks = [Task(name=f"_sidecars/{name}", kind=SIDECAR) for name in names] + [
            Task(name=top_level_name(state.version, _UNIQUE), kind=CHECKPOINT),
            *tasks,
        ]
    else:
        tasks = [Task(name=classic_name(state.version), kind=CHECKPOINT), *tasks]
    damaged = _damaged(snapshot)
    return CheckpointBuild(kind=kind, writer=writer, tasks=tuple(tasks), damaged=damaged)


def _written(table: DeltaTable, path: str) -> CheckpointFile:
    info = table.storage.stat(path)
    return CheckpointFile(
        name=path.rpartition("/")[2], size_bytes=info.size_bytes, modified_ms=info.modified_ms
    )


def _put_hint(table: DeltaTable, path: str, hint: LastCheckpoint) -> None:
    """Let the hint name this checkpoint, unless it names a newer one."""
    try:
        current = table.storage.read(path)
    except FileNotFoundError:
        current = None
    if may_replace(current, hint.version, newest_version=table.log.listing().latest):
        table.storage.replace(path, hint.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogBuild:
    """The build of a checkpoint and of what comes with it."""

    table: DeltaTable
    snapshot: Snapshot
    checkpoint: CheckpointBuild | None
    compact_log: tuple[int, int] | None

    def __call__(self, _step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
        """Write the files, each under its final name.

        Raises:
            Refused: the table must not be written to. CorruptFile: a commit cannot be read, or a file reads back
            differently. BackendUnavailable.
        """
        table = self.table
        if reason := table.read_only_reason():
            raise Refused(f"Cannot write to the log of {table.name}: {reason}")
        staged: dict[Task, StagedFile] = {}
        if self.checkpoint is not None:
            staged |= self.checkpoint.build(table, paths)
        for task, path in paths.items():
            if task.kind == CHECKSUM:
                staged[task] = _put(table, path, _checksum(table, self.snapshot), CHECKSUM)
            elif task.kind == COMPACTION:
                assert self.compact_log is not None
                staged[task] = _put(table, path, _compacted(table, self.compact_log), COMPACTION)
        return staged


class RewriteManifestsVerb(Verb):
    """Writes a checkpoint, and what a reader can use in place of many commits."""

    name: Final = VERB_NAME
    policy: Final = RewriteManifests
    result_columns: Final = tuple(_COUNTS.values())

    def plan(
        self,
        table: DeltaTable,
        policy: RewriteManifests,
        *,
        as_of_ms: int,
        within: Plan | None = None,  # noqa: ARG002 - more is never done than one checkpoint and one range
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """One step, if the newest version has no checkpoint or the range no compaction.

        Raises:
            UsageError: the range has no commits, or the part size is none.
            InvalidMetadata: a property of the table is wrong.
        """
        base = table.base()
        snapshot, listing = table.snapshot, table.snapshot.listing
        options = _options(snapshot, policy)
        plan = Plan(
            verb=self.name,
            table=table.describe(),
            base=base,
            as_of_ms=as_of_ms,
            options=options,
            policy=policy.to_json(),
        )
        kind = options["checkpoint"].value
        verdicts, tasks, checkpoint = [], [], None
        if (there := _there(listing, snapshot.version)) is not None:
            reason = f"version {snapshot.version} has one"
            if policy.checkpoint not in (None, there):
                reason += f", and some readers fail where a version has a second one, of kind {kind}"
            verdicts.append(Verdict(subject="checkpoint", id=there, keep=True, reason=reason))
        elif blocked := _blocked(snapshot, kind):
            plan = replace(plan, blocked_by=(blocked,))
        else:
            try:
                checkpoint = checkpointing(snapshot, kind=kind, as_of_ms=as_of_ms, part_size=policy.part_size)
                if kind == CLASSIC:
                    other_rows(checkpoint.state.other_actions)
                    plan = replace(plan, warnings=left_out_warnings(snapshot.unknown))
            except Refused as refused:
                plan = replace(plan, blocked_by=(refused.message,))
            else:
                reason = _reason(snapshot, checkpoint)
                verdicts.append(Verdict(subject="checkpoint", id=kind, keep=False, reason=reason))
                tasks += [*checkpoint.tasks, *_checksum_task(listing, snapshot)]
                ahead = dated_ahead(snapshot, as_of_ms=as_of_ms)
                plan = replace(plan, warnings=(*plan.warnings, *ahead, *checkpoint.warnings))
        if policy.compact_log is not None:
            compaction = _compaction(listing, policy.compact_log)
            verdicts.append(compaction[0])
            tasks += compaction[1]
            if compaction[1]:
                commits = table.log.commits(*policy.compact_log, listing=listing)
                lost = lost_of_vectors(snapshot.adds, snapshot.removes)
                reasons = (lost, _why_not_compacted(commits, table.root))
                plan = replace(plan, blocked_by=(*plan.blocked_by, *dict.fromkeys(filter(None, reasons))))
        step = Step(name=VERB_NAME, tasks=tuple(tasks))
        if policy.compact_log is None and policy.checkpoint is None:
            since, wants_one = _since_checkpoint(listing, snapshot)
            plan = replace(plan, reason=since, early=None if wants_one else since)
        plan = replace(plan, verdicts=tuple(verdicts), steps=(step,) if tasks else ())
        build = _LogBuild(
            table=table, snapshot=snapshot, checkpoint=checkpoint, compact_log=policy.compact_log
        )
        return Planned(plan=table.resolve(plan), build=build)

    def options(
        self,
        table: DeltaTable,
        policy: RewriteManifests,
        *,
        as_of_ms: int,  # noqa: ARG002 - no age decides
    ) -> Mapping[str, Option]:
        """As `Verb`."""
        return _options(table.snapshot, policy)


VERB: Final = RewriteManifestsVerb()


def _options(snapshot: Snapshot, policy: RewriteManifests) -> dict[str, Option]:
    stated = snapshot.metadata.configuration.get(_POLICY_PROPERTY)
    kind = policy.chosen("checkpoint", CLASSIC)
    if policy.checkpoint is None and stated is not None:
        kind = Option(value=stated.strip().lower(), source=_POLICY_PROPERTY)
    options = {"checkpoint": kind}
    if kind.value == V2:
        options["part_size"] = policy.chosen("part_size", PART_SIZE)
    if policy.compact_log is not None:
        options["compact_log"] = policy.chosen("compact_log")
    return options


def _there(listing: Listing, version: int) -> str | None:
    """The kind of the checkpoint that the version has already: of several, the one that Delta prefers."""
    newest = newest_checkpoint(listing, version)
    return None if newest is None or newest.version != version else newest.kind


def _since_checkpoint(listing: Listing, snapshot: Snapshot) -> tuple[str, bool]:
    """The commits since the last checkpoint in words, and whether the table asks for one by now."""
    interval = known_interval(snapshot.metadata)
    since = commits_since(newest_checkpoint(listing, snapshot.version), snapshot.version)
    return in_words(since, interval), bool(listing.damaged) or is_due(since, interval)


def _damaged(snapshot: Snapshot) -> tuple[Checkpoint, ...]:
    """The checkpoints of the snapshot's version that cannot be read."""
    return tuple(each for each in snapshot.listing.damaged if each.version == snapshot.version)


def _blocked(snapshot: Snapshot, kind: str) -> str | None:
    """Why a checkpoint of this kind cannot be written, or None."""
    for damaged in _damaged(snapshot):
        if not damaged.kind == kind == CLASSIC:
            return (
                f"version {damaged.version} has a checkpoint that cannot be read, of kind {damaged.kind}, and some "
                f"readers fail where one of kind {kind} is beside it: move {damaged.files[0].path} and all else of it "
                "away, for the commits stand for it"
            )
    if kind not in (CLASSIC, V2):
        return f"{_POLICY_PROPERTY}={kind!r} is neither classic nor v2"
    if kind == V2 and not supports(snapshot.protocol, V2_FEATURE):
        return f"the table does not support the feature {V2_FEATURE}, without which readers do not know v2 checkpoints"
    return None


def _reason(snapshot: Snapshot, made: CheckpointBuild) -> str:
    expired = snapshot.removes.num_rows - made.state.removes.num_rows
    left = f"; {expired:,} expired ones are left out" if expired else ""
    return (
        f"version {snapshot.version} has none: {count(made.state.adds.num_rows, 'files')} and "
        f"{count(made.state.removes.num_rows, 'tombstones')}{left}"
    )


def _checksum_task(listing: Listing, snapshot: Snapshot) -> Sequence[Task]:
    """The version checksum file of the newest version, where it has none and all of it is known."""
    there = any(file.version == snapshot.version for file in listing.checksums)
    committed = any(file.version == snapshot.version for file in listing.commits)
    if there or not committed or not may_write(snapshot):
        return ()
    return (Task(name=f"{snapshot.version:020}.crc", kind=CHECKSUM),)


def _checksum(table: DeltaTable, snapshot: Snapshot) -> bytes | None:
    commit = table.log.commits(snapshot.version, snapshot.version, listing=snapshot.listing)
    return version_checksum(snapshot, in_commit_ms=in_commit_timestamp(commit, snapshot.version))


def _compaction(listing: Listing, versions: tuple[int, int]) -> tuple[Verdict, Sequence[Task]]:
    first, last = versions
    check_range(listing, first, last)
    there = any((file.version, end) == versions for file, end in listing.compactions)
    reason = "it is there" if there else f"the commits of {last - first + 1} versions in one file"
    verdict = Verdict(subject="log-compaction", id=f"{first}..{last}", keep=there, reason=reason)
    task = Task(name=compacted_name(first, last), kind=COMPACTION)
    return verdict, () if there else (task,)


def _compacted(table: DeltaTable, versions: tuple[int, int]) -> bytes | None:
    """The compaction of a range, or None where a log cleanup has taken commits of it since it was planned.

    Raises:
        Refused: it would lose fields of deletion vectors, or decide what readers disagree about.
    """
    listing = table.log.listing()
    try:
        check_range(listing, *versions)
    except UsageError:
        return None
    actions = table.log.commits(*versions, listing=listing)
    if reason := _why_not_compacted(actions, table.root):
        raise Refused(f"Cannot compact versions {versions[0]} to {versions[1]} of {table.name}: {reason}")
    return compacted(actions)


def _why_not_compacted(commits: Actions, root: str) -> str | None:
    """Why the actions of some commits must not be written anew, or None."""
    return (
        lost_of_vectors(commits.adds, commits.removes)
        or clash_of(commits.irregular)
        or repeated_add(reconcile([commits]).adds, root)
    )


def _put(table: DeltaTable, path: str, data: bytes | None, kind: str) -> StagedFile:
    """Create a file that nothing depends on, unless there is nothing to say or another writer has said it."""
    if not data:
        return StagedFile(path=path)
    try:
        put_checked(table.storage, path, data)
    except FileExistsError:
        return StagedFile(path=path)
    return StagedFile(path=path, row={"counts": {_COUNTS[kind]: 1}})
