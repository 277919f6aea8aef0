"""expire-snapshots on Delta: VACUUM, then log cleanup. What they read to plan, and what they write beside the log.

Steps, each only where something is due: `vacuum start` commits VACUUM START and deletes; `vacuum end` commits VACUUM
END with what was deleted; `log cleanup` deletes commits, checkpoints and what belongs to them, where that frees much
after it has written a checkpoint of the oldest version that stays; `sidecar cleanup` deletes what no checkpoint names
any more. A plan that takes the place of another one looks only at what that one lists, so nothing is listed again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.reachability import (
    KEPT_OPTION,
    SIDECAR_STEP,
    VERSION_STEP,
    KeySet,
    commit_times_of_removes,
    goes_back_to,
    lite_range,
    named_paths,
    oldest_of,
    removed_between,
    young_commits,
)
from iceberg_cli.delta.spec.vacuum import FILES, active_keys, hidden, strings, unlisted
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.expire_snapshots import commit_infos, rules
from iceberg_cli.delta.verbs.expire_snapshots.log_cleanup import (
    LogCleanupDecision,
    checkpoint_bytes,
    plan_log_cleanup,
)
from iceberg_cli.delta.verbs.expire_snapshots.policy import LITE, VERB_NAME, ExpireSnapshots
from iceberg_cli.delta.verbs.expire_snapshots.retention import (
    VacuumRetention,
    dated_ahead,
    options_of,
    retention_of,
    within_properties,
)
from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import CorruptFile
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.paths import path_key_column, scheme_of
from iceberg_cli.plan.listed_files import STORED_FILES
from iceberg_cli.plan.plan import Change, Option, Plan, StagedFile, Step, Task, Verdict
from iceberg_cli.plan.removal_rows import DELTA_KINDS, SCHEMA, total_bytes
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.text import count, iso
from iceberg_cli.table.inventories import read_inventory
from iceberg_cli.table.listings import find_files, list_files
from iceberg_cli.table.nested_tables import NestedFiles
from iceberg_cli.table.waiting_files import WaitingFiles, waiting_operations

START_STEP: Final = "vacuum start"
END_STEP: Final = "vacuum end"
INFO_FILE: Final = "_last_vacuum_info"  # in the log; what a VACUUM in lite mode goes on from
_INFO_TASK: Final = "last-vacuum-info"
_INFO_FIELD: Final = "latestCommitVersionOutsideOfRetentionWindow"
_LISTED_FIELD: Final = "listedSince"  # of the task alone
_HOUR_MS: Final = 3_600_000
_NAMED_TABLES: Final = 5
_NAMED_FILES: Final = 3
_RULES: Final = {
    "nested": "kept: they are in the folder of another table",
    "live": "kept: the table needs them, or a version that is younger than the cut-off",
    "young": "kept: written after the cut-off",
    "hidden": "kept: their names are hidden, or those of their folders",
    "outside": "kept: they are not below the table's folder",
    "namesake": "kept: a file of the same name is gone that the table needs",
}


class ExpireSnapshotsVerb(Verb):
    """Deletes what no version needs that is young enough to be read, then versions that are too old."""

    name: Final = VERB_NAME
    policy: Final = ExpireSnapshots
    result_columns: Final = tuple(f"deleted_{kind}s_count" for kind in DELTA_KINDS)

    def plan(
        self,
        table: DeltaTable,
        policy: ExpireSnapshots,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan with its removals.

        Raises:
            UsageError: the policy makes no sense. Refused: lite mode would miss files.
            CorruptFile: something that must be read cannot be read whole.
        """
        base = table.base()
        policy = within_properties(table.snapshot.metadata, policy)
        retention = retention_of(table.snapshot.metadata, policy, as_of_ms=as_of_ms)
        only = None if within is None else within.removals
        decision, info, lost = _classify(table, policy, retention, only)
        nested = NestedFiles(table.nested_tables())
        waiting = WaitingFiles(waiting_operations(table))
        log = _log_cleanup(table, retention, waiting, as_of_ms=as_of_ms)
        files = waiting.left_out(pa.concat_tables(nested.left_out([decision.files])))
        rows = pa.concat_tables(
            [
                _removals(files, START_STEP),
                _removals(log.versions, VERSION_STEP),
                _removals(log.sidecars, SIDECAR_STEP),
            ]
        )
        if only is not None:
            rows = rows.filter(pc.is_in(rows["path"], value_set=only.rows["path"].combine_chunks()))
        kept = Option(value=log.kept_version, source="default" if log.kept_version is None else "the log")
        plan = Plan(
            verb=VERB_NAME,
            table=table.describe(),
            base=base,
            as_of_ms=as_of_ms,
            options={**options_of(retention, policy), KEPT_OPTION: kept},
            policy=policy.to_json(),
            grace_ms=policy.grace_ms,
            verdicts=(*_verdicts(decision), *nested.verdicts(), *waiting.verdicts(), log.verdict()),
            warnings=(
                *dated_ahead(table.snapshot, as_of_ms=as_of_ms),
                *_lost_warning(lost),
                *_unproved(table, policy, retention, decision),
                *_shared(table),
                *log.warnings,
            ),
        )
        plan = table.with_removals(plan, rows)
        assert plan.removals is not None
        steps = _steps(plan.removals, policy, retention, log.tasks, info=info, folders=decision.folders)
        blocked = (*retention.blocked_by, *log.blocked_by) if steps else ()
        reason = count(plan.removals.count, "files") if steps else None
        plan = table.blocked(
            replace(plan, steps=steps, reason=reason, blocked_by=(*plan.blocked_by, *blocked))
        )
        return Planned(plan=plan, build=self.unconditional(table))

    def options(self, table: DeltaTable, policy: ExpireSnapshots, *, as_of_ms: int) -> Mapping[str, Option]:
        """As `Verb`, without the oldest version that a plan would keep."""
        policy = within_properties(table.snapshot.metadata, policy)
        return options_of(retention_of(table.snapshot.metadata, policy, as_of_ms=as_of_ms), policy)

    def undoing(self, operation: Operation) -> Change | None:
        """As `Verb`: VACUUM END, which says that it failed; none where no VACUUM START was written."""
        started = operation.steps.get(START_STEP)
        if started is None or started.metadata_location is None:
            return None
        return Change(updates=(commit_infos.failed(),))

    def unconditional(self, table: DeltaTable) -> Build:
        """What writes the record for the next VACUUM in lite mode, and the checkpoint that stands for what goes."""
        return partial(_build, table)


def _log_cleanup(
    table: DeltaTable, retention: VacuumRetention, waiting: WaitingFiles, *, as_of_ms: int
) -> LogCleanupDecision:
    """What of the log goes; nothing where another operation waits to clean it up: versions would go out of order."""
    earlier = waiting.operation_of((VERSION_STEP, SIDECAR_STEP))
    if earlier is not None:
        return LogCleanupDecision(why=f"the log's files wait for {earlier}")
    return plan_log_cleanup(table.log, table.snapshot, cut_ms=retention.log_cut_ms, as_of_ms=as_of_ms)


def _build(table: DeltaTable, _step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
    return {task: _write(table, task, path) for task, path in paths.items()}


def _classify(
    table: DeltaTable, policy: ExpireSnapshots, retention: VacuumRetention, only: Removals | None
) -> tuple[rules.VacuumDecision, dict[str, int], pa.Array]:
    """Which files outside the log go, what the next VACUUM in lite mode should know, and active files that are gone."""
    log, snapshot, root = table.log, table.snapshot, table.root
    info: dict[str, int] = {}
    if only is None and policy.mode == LITE:
        listing, removed, info = _files_of_old_commits(table, retention)
    else:
        commit_ms = commit_times_of_removes(log, snapshot)
        removed = rules.removed_files(snapshot.removes, root=root, commit_ms=commit_ms)
        if only is not None:
            listing = _as_listing(only, cut_ms=retention.cut_ms)
        elif policy.inventory is not None:
            listing = read_inventory(table.storage, policy.inventory)
        else:
            listing = list_files(table.storage, root, table.on_event)
            info = _info_of_all(table, retention)
    decision = rules.classify_files(
        listing,
        root=root,
        needed=partial(table.reachability.reachable, snapshot, cut_ms=retention.cut_ms),
        removed=removed,
        cut_ms=retention.cut_ms,
        partition_columns=snapshot.metadata.partition_columns,
        metadata_hidden=table.reachability.metadata_hidden(snapshot),
    )
    lost = pa.array([], pa.string())
    if only is not None:
        return replace(decision, files=_as_shown(decision.files, only)), info, lost
    if policy.mode != LITE and policy.inventory is None and decision.files.num_rows:
        lost = _lost_files(table, listing)
        decision = rules.without_namesakes(decision, lost)
    return decision, info, lost


def _lost_files(table: DeltaTable, listing: pa.Table) -> pa.Array:
    """The paths of files that the table needs and that are gone.

    A listing that does not have a file by the name that the log has is believed where other active files are in it
    and the storage, asked for that very path, has nothing there.

    Raises:
        CorruptFile: the listing proves nothing: it has no active file, or lacks one that is there.
    """
    missing, any_listed = unlisted(table.snapshot, listing, root=table.root)
    if not len(missing):
        return missing
    there = pc.is_in(missing, value_set=find_files(table.storage, missing)["path"].combine_chunks())
    unseen, lost = missing.filter(there), missing.filter(pc.invert(there))
    if scheme_of(table.root) == "file":
        # In a folder behind a link; what is behind it is taken for needed by all names.
        any_listed, unseen = any_listed or len(unseen) > 0, unseen.slice(0, 0)
    if len(unseen):
        raise _unproved_listing(unseen, "asked for it, the storage has it")
    if len(lost) and not any_listed:
        why = (
            "nor any other file that the table needs: they are gone, or the storage lists them by other names"
        )
        raise _unproved_listing(lost, why)
    return lost


def _unproved_listing(missing: pa.Array, why: str) -> CorruptFile:
    """The error for a listing that lacks n files and by which nothing may go."""
    others = f", nor {count(len(missing) - 1, 'others')}" if len(missing) > 1 else ""
    reason = f"the table needs this file, and a listing of its folder does not have it{others}; {why}"
    return CorruptFile(missing[0].as_py(), None, reason)


def _lost_warning(lost: pa.Array) -> tuple[str, ...]:
    """A warning that names files which the table needs and which are gone."""
    if not len(lost):
        return ()
    named = ", ".join(lost.slice(0, _NAMED_FILES).to_pylist())
    more = len(lost) - _NAMED_FILES
    others = f" and {more:,} more" if more > 0 else ""
    warning = (
        f"the table needs {named}{others}, and nothing is there: reading the table fails. `inspect --check` names all "
        "of them; put them back, or RESTORE a version without them. Files of the same names stay"
    )
    return (warning,)


def _unproved(
    table: DeltaTable, policy: ExpireSnapshots, retention: VacuumRetention, decision: rules.VacuumDecision
) -> tuple[str, ...]:
    """A warning where files go that may have been removed after the cut-off, by commits that are gone."""
    chosen_ms, promised_ms = retention.retention_ms.value, retention.table_retention_ms
    if policy.mode == LITE or chosen_ms <= promised_ms or not decision.files.num_rows:
        return ()
    if goes_back_to(table.snapshot.listing, retention.cut_ms):
        return ()
    warning = (
        f"the log does not go back to {iso(retention.cut_ms)}: files go that may have been removed since, by commits "
        f"that are gone, if checkpoints forgot them after the {promised_ms / _HOUR_MS:g} h that the table promises"
    )
    return (warning,)


def _shared(table: DeltaTable) -> tuple[str, ...]:
    """A warning for each Iceberg table that has its metadata in the table's folder."""
    return tuple(
        f"what the Iceberg table {uuid or 'without a UUID'} reaches stays, whose metadata is {path}"
        for uuid, path in table.reachability.iceberg.tables().items()
    )


def _as_listing(only: Removals, *, cut_ms: int) -> pa.Table:
    """What an earlier plan found old enough: whether it is needed is what has to be asked again."""
    rows = only.rows.filter(pc.equal(only.rows["step"].cast(pa.string()), START_STEP))
    old = pa.repeat(pa.scalar(cut_ms - 1), rows.num_rows)
    return pa.table([rows["path"].cast(pa.string()), rows["size_bytes"], old], schema=STORED_FILES)


def _as_shown(files: pa.Table, only: Removals) -> pa.Table:
    """The files with the kinds and reasons that an earlier plan gave them."""
    columns = {name: only.rows[name].cast(FILES.field(name).type) for name in FILES.names}
    shown = pa.table(columns, schema=FILES)
    return shown.filter(pc.is_in(shown["path"], value_set=files["path"].combine_chunks()))


def _files_of_old_commits(
    table: DeltaTable, retention: VacuumRetention
) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """The files that are there of those which old commits removed, when they did, and the newest of these commits."""
    log, root = table.log, table.root
    listing = table.snapshot.listing
    expired_to = _expired_to(table, retention)
    versions = lite_range(
        vacuumed_to=_vacuumed_to(table),
        first=listing.commits[0].version if listing.commits else table.snapshot.version + 1,
        newest=table.snapshot.version,
        expired_to=expired_to,
    )
    info = {} if expired_to is None else {_INFO_FIELD: expired_to}
    if not versions:
        none = rules.removed_files(table.snapshot.removes.slice(0, 0), root=root)
        return STORED_FILES.empty_table(), none, info
    actions = removed_between(log, versions[0], versions[-1], listing=listing)
    paths = named_paths(actions, root=root)
    inside = paths.filter(pc.starts_with(paths, f"{root}/"))
    return find_files(table.storage, inside), rules.removed_files(actions.removes, root=root), info


def _expired_to(table: DeltaTable, retention: VacuumRetention) -> int | None:
    """The newest commit before the cut-off; None where there is none.

    What a young commit removed stays, and must be looked at again: the next VACUUM in lite mode begins after this one.
    """
    commits = table.snapshot.listing.commits
    old = commits[: len(commits) - len(young_commits(table.snapshot.listing, cut_ms=retention.cut_ms))]
    found = table.log.version_at(table.snapshot, retention.cut_ms)
    return min(found, old[-1].version) if found is not None and old else None


def _info_of_all(table: DeltaTable, retention: VacuumRetention) -> dict[str, int]:
    """What a VACUUM that lists everything lets the next one in lite mode know, where one before it left a record.

    Delta Spark forgets the record: without the oldest commit it refuses lite mode from then on.
    """
    if _vacuumed_to(table) is None:
        return {}
    try:
        expired_to = _expired_to(table, retention)
    except CorruptFile:  # of a commit's time, which this mode does not depend on
        return {}
    if expired_to is None:
        return {}
    return {_INFO_FIELD: expired_to, _LISTED_FIELD: table.snapshot.listing.commits[0].version}


def _vacuum_record(table: DeltaTable, expired_to: int, *, listed_since: int) -> dict[str, int]:
    """The record for the next VACUUM in lite mode, which begins with the commit after the one that it names.

    That is the commit before the oldest one of which a file is still there, whyever: for a clock that was ahead, as a
    file of another table, or because it could not be deleted. A file that is active again is removed by a later commit.

    Args:
        table: as loaded after the deletions.
        expired_to: the newest commit that this VACUUM has looked at.
        listed_since: what older commits removed it has looked at by listing all files, though they are gone; else 0.
    """
    log, root, vacuumed_to = table.log, table.root, _vacuumed_to(table)
    before = {} if vacuumed_to is None else {_INFO_FIELD: vacuumed_to}
    first = max(listed_since, 0 if vacuumed_to is None else vacuumed_to + 1)
    if first > expired_to:
        return {_INFO_FIELD: expired_to}
    try:
        actions = removed_between(log, first, expired_to, listing=table.snapshot.listing)
    except CorruptFile:  # a commit is gone by now, and with it what it removed
        return before
    paths = named_paths(actions, root=root)
    inside = paths.filter(pc.starts_with(paths, f"{root}/"))
    there = strings(find_files(table.storage, inside)["path"])
    unseen = hidden(
        pc.utf8_slice_codeunits(there, len(root) + 1),
        partition_columns=table.snapshot.metadata.partition_columns,
        metadata=False,
    )
    keys = path_key_column(there.filter(pc.invert(unseen)))
    active = KeySet(active_keys(table.snapshot, root=root)).contains(keys)
    oldest = oldest_of(actions, keys.filter(pc.invert(active)), root=root)
    newest = expired_to if oldest is None else oldest - 1
    return {_INFO_FIELD: newest} if newest >= 0 else {}


def _vacuumed_to(table: DeltaTable) -> int | None:
    """Up to which commit the VACUUM before has looked; None where it says nothing that can be read."""
    path = f"{table.log.folder}/{INFO_FILE}"
    try:
        found = loads(table.storage.read(path), path).get(_INFO_FIELD)
    except (FileNotFoundError, CorruptFile, AttributeError):
        return None
    return found if type(found) is int and found >= 0 else None


def _removals(files: pa.Table, step: str) -> pa.Table:
    """Rows of `removal_rows.SCHEMA` for `FILES`."""
    columns = {
        "step": pa.repeat(pa.scalar(step), files.num_rows),
        "path": files["path"],
        "as_written": files["path"],
        "kind": files["kind"],
        "size_bytes": files["size_bytes"],
        "reason": files["reason"],
    }
    return pa.table(columns).cast(SCHEMA)


def _verdicts(decision: rules.VacuumDecision) -> tuple[Verdict, ...]:
    """How many files stay, by the rule that keeps them."""
    return tuple(
        Verdict(
            subject="files", id=f"{count} of {size_bytes} bytes", keep=True, reason=_reason(decision, rule)
        )
        for rule, (count, size_bytes) in decision.kept.items()
        if count
    )


def goes_by_the_log(table: DeltaTable, plan: Plan) -> bool:
    """Whether the same files go by a plan of any verb until the log changes or what it dates comes of age.

    Not where files stay for their own age, or as another table's, nor where Iceberg metadata or a listing of the
    operator's has a say.
    """
    if plan.verb != VERB_NAME:
        return True
    by_log = {_RULES[rule] for rule in ("live", "hidden", "outside")}
    stays = all(each.subject == "versions" or each.reason in by_log for each in plan.verdicts if each.keep)
    return stays and "inventory" not in plan.options and not table.reachability.iceberg.tables()


def _reason(decision: rules.VacuumDecision, rule: str) -> str:
    if rule != "nested":
        return _RULES[rule]
    more = len(decision.tables) - _NAMED_TABLES
    named = ", ".join(decision.tables[:_NAMED_TABLES]) + (f" and {more} more" if more > 0 else "")
    return f"{_RULES[rule]}, {named}"


def _steps(
    removals: Removals,
    policy: ExpireSnapshots,
    retention: VacuumRetention,
    tasks: tuple[Task, ...],
    *,
    info: Mapping[str, int],
    folders: int,
) -> tuple[Step, ...]:
    """What is due, in order."""
    steps = []
    start, stop = removals.of_step(START_STEP)
    if stop > start:
        sizes = removals.read_rows(range(start, stop))["size_bytes"]
        size_bytes = total_bytes(sizes)
        started = commit_infos.started(policy, retention, files=stop - start, size_bytes=size_bytes)
        steps.append(Step(name=START_STEP, change=Change(updates=(started,))))
        record = Task(name=INFO_FILE, kind=_INFO_TASK, inputs=(_text(info),))
        ended = Change(updates=(commit_infos.completed(folders),))
        steps.append(Step(name=END_STEP, unconditional=True, tasks=(record,), change=ended))
    for name, due in ((VERSION_STEP, tasks), (SIDECAR_STEP, ())):
        start, stop = removals.of_step(name)
        if stop > start:
            steps.append(Step(name=name, tasks=due))
    return tuple(steps)


def _text(info: Mapping[str, int]) -> str:
    return json.dumps(dict(info), separators=(",", ":"))


def _write(table: DeltaTable, task: Task, path: str) -> StagedFile:
    """Write the file of a task; a checkpoint that is there already is as good."""
    if task.kind == _INFO_TASK:
        (text,) = task.inputs
        due = loads(text.encode(), path)
        expired_to, since = due.get(_INFO_FIELD), due.get(_LISTED_FIELD, 0)
        info = {} if expired_to is None else _vacuum_record(table, expired_to, listed_since=since)
        table.storage.replace(path, f"{_text(info)}\n".encode())
        return StagedFile(path=path)
    data, warnings = checkpoint_bytes(table.log, table.snapshot, task)
    with contextlib.suppress(FileExistsError):
        table.storage.put_if_absent(path, data)
        return StagedFile(path=path, row={"notes": warnings})
    return StagedFile(path=path)


VERB: Final = ExpireSnapshotsVerb()
