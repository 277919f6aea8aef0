"""undo: the plan, from the journal or the snapshots of the operation; and what is done before and after its commit.

Of an operation whose files wait the journal is taken over first: from then on nobody else can delete a file by it. Then
every file of what comes back is looked for, then it is committed, then the operation is closed. A process that dies in
between leaves the table as it was or as it is to be, and a deletion that still comes finds all files reachable.

A rewrite whose snapshots are the newest of their branch is over, and its journal gone: the branch goes back to the
snapshot before them, as `restore` sets one back, under the requirement that it has not moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.branch.ref_states import check_unmoved
from iceberg_cli.iceberg.branch.target_files import look_for_files, missing_files
from iceberg_cli.iceberg.commit.own_snapshots import own_snapshots
from iceberg_cli.iceberg.commit.removed_file import name_of
from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.spec.table_metadata.removed import RemovedMetadata
from iceberg_cli.iceberg.spec.table_metadata.restoring import with_restored
from iceberg_cli.iceberg.spec.table_metadata.updates import RestoreRemoved
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.restore import rules as restore
from iceberg_cli.iceberg.verbs.restore.rules import Move
from iceberg_cli.iceberg.verbs.undo import rules
from iceberg_cli.iceberg.verbs.undo.policy import Undo
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.operation.undoing import GAVE_IDS, committed_steps
from iceberg_cli.plan.plan import REF_NAME, Change, Plan
from iceberg_cli.plan.text import count
from iceberg_cli.plan.undo_policy import UNDO
from iceberg_cli.table.undoable import FoundOperation
from iceberg_cli.table.undoing import (
    close_waiting,
    named_by,
    not_any_more,
    not_taken_back,
    plan_of,
    take_over_waiting,
    taken_again,
)


class UndoVerb(Verb):
    """Takes back an operation whose files still wait, or a rewrite that is the newest of its branch."""

    name: Final = UNDO
    policy: Final = Undo
    result_columns: Final = rules.COLUMNS

    def plan(
        self,
        table: IcebergTable,
        policy: Undo,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan.

        Raises:
            UsageError: no operation of that id is there.
            Refused: what comes back contradicts what the table has by now.
            CommitConflict: the branch has moved since `within`.
            CorruptFile: the journal, or what must be read of the table, cannot be read whole.
        """
        if within is not None and any(REF_NAME in update for update in within.updates):
            check_unmoved(table.metadata, within)
        found, plan = plan_of(table, policy, described=table.describe(), as_of_ms=as_of_ms, within=within)
        if found is None or plan.blocked_by:
            return Planned(plan=plan)
        plan = _of_head(table, found, plan) if found.is_over else _of_waiting(table, found, plan)
        return Planned(plan=table.checked(plan, deletes=False))

    def begin(self, table: IcebergTable, plan: Plan, runtime: Runtime) -> None:
        """See `Verb`: nobody else deletes files of the operation from here on, and all that comes back is there."""
        found = named_by(table, plan)
        if any(REF_NAME in update for update in plan.updates):
            if (reason := _head_obstacle(table, _move(table, found))) is not None:
                raise not_any_more(found.past, reason)
            return
        journal, operation = take_over_waiting(found, runtime)
        removed = _removed(journal, operation)
        if removed is not None:
            _check_files(table, removed)

    def end(self, table: IcebergTable, plan: Plan, runtime: Runtime) -> None:
        """See `Verb`: the operation is closed, its files stay."""
        close_waiting(table, plan, runtime)


def _of_waiting(table: IcebergTable, found: FoundOperation, plan: Plan) -> Plan:
    """The plan with what its commit puts back, where the operation committed anything."""
    journal, operation = found.journal, found.operation
    assert journal is not None
    assert operation is not None
    removed = _removed(journal, operation)
    if removed is None:
        return replace(plan, warnings=(*plan.warnings, *taken_again(journal)))
    metadata = table.metadata
    after = with_restored(metadata, removed)
    _check_files(table, removed)
    update = RestoreRemoved(removed=removed).to_json()
    change = Change(updates=(update,), counts=rules.counts(metadata, removed))
    (step,) = plan.steps
    return replace(
        plan,
        steps=(replace(step, change=change),),
        verdicts=(*rules.returning(metadata, removed),),
        warnings=(*plan.warnings, *rules.expired_again(len(after.snapshots) - len(metadata.snapshots))),
    )


def _of_head(table: IcebergTable, found: FoundOperation, plan: Plan) -> Plan:
    """The plan with the commit that sets the branch back."""
    metadata, move = table.metadata, _move(table, found)
    if isinstance(move, str):
        return _blocked(plan, found, move)
    obstacle = _head_obstacle(table, move)
    change = Change(updates=move.updates(), counts={restore.LEFT: len(move.leaving)})
    (step,) = plan.steps
    consequences = restore.consequences(metadata, move, plan.table, as_of_ms=plan.as_of_ms)
    plan = replace(
        plan,
        steps=(replace(step, change=change),),
        verdicts=(*restore.verdicts(move),),
        warnings=(*plan.warnings, *consequences, rules.kept_by_a_tag(move)),
    )
    return plan if obstacle is None else _blocked(plan, found, obstacle)


def _blocked(plan: Plan, found: FoundOperation, reason: str) -> Plan:
    return replace(plan, blocked_by=(*plan.blocked_by, not_taken_back(found.past, reason)))


def _move(table: IcebergTable, found: FoundOperation) -> Move | str:
    """Where the branch goes, or why it does not."""
    past = found.past
    own = own_snapshots(table.metadata, past.operation_id, past.branches)
    return own if isinstance(own, str) else rules.move_back(table.metadata, own)


def _head_obstacle(table: IcebergTable, move: Move | str) -> str | None:
    """Why a branch does not go back, with every file of where it would go looked for; None: it does.

    Raises:
        Refused: that snapshot is encrypted. CorruptFile: a list or manifest is there and cannot be read whole.
    """
    if isinstance(move, str):
        return move
    found = look_for_files(table, move.target.snapshot)
    if found.missing:
        files = count(len(found.missing), "files")
        are = "is" if len(found.missing) == 1 else "are"
        return f"{files} of {move.target.named} {are} gone, such as {found.missing[0]}"
    return GAVE_IDS if found.without_ids else None


def _removed(journal: Journal, operation: Operation) -> RemovedMetadata | None:
    """What the commit of an operation took out of the metadata; None where it committed nothing.

    Raises:
        CorruptFile: that was not kept, or cannot be read.
    """
    steps = committed_steps(operation)
    if not steps:
        return None
    (state,) = steps
    assert state.intent is not None
    name = name_of(state.intent.commit_uuid)
    path = f"{journal.folder}/{name}"
    try:
        data = journal.get(name)
    except FileNotFoundError:
        raise CorruptFile(path, None, "what the commit took out of the metadata was not kept") from None
    return RemovedMetadata.from_json(loads(data, path), path=path)


def _check_files(table: IcebergTable, removed: RemovedMetadata) -> None:
    """Read the lists and manifests of what comes back whole, and look for every file of it.

    Raises:
        Refused: a file is gone. CorruptFile: a list or manifest cannot be read whole.
    """
    gone: list[str] = []
    for paths in _files_of(table, removed):
        gone += missing_files(table, paths)
    if gone:
        raise Refused(
            f"Cannot undo: {count(len(gone), 'files')} of what would come back are gone, such as {gone[0]}",
            state="The table was not changed.",
        )


def _files_of(table: IcebergTable, removed: RemovedMetadata) -> Iterator[pa.ChunkedArray]:
    """The paths of all files that snapshots reach which come back, but for those of manifests that others list, too."""
    snapshots = [snapshot_files(each) for each in removed.snapshots]
    statistics = [each.statistics_path for each in removed.statistics]
    statistics += [each.statistics_path for each in removed.partition_statistics]
    lists = [each.manifest_list for each in removed.snapshots if each.manifest_list is not None]
    try:
        listed = table.reachability.kept_manifests(
            snapshots, phase="reading manifest lists of what comes back"
        )
    except CorruptFile as error:
        raise Refused(f"Cannot undo: {error.message}", state="The table was not changed.") from error
    yield pa.chunked_array([[*lists, *statistics]], pa.string())
    yield listed.rows["manifest_path"]
    current = [snapshot_files(each) for each in table.metadata.snapshots]
    now = table.reachability.kept_manifests(current, phase="reading manifest lists")
    theirs = pc.is_in(listed.rows["manifest_path"], value_set=now.rows["manifest_path"].combine_chunks())
    own = listed.rows.filter(pc.invert(theirs))
    for _, batch in table.reachability.entries(
        own, ("status", "file_path"), phase="reading manifests of what comes back"
    ):
        yield live(batch.table)["file_path"]


VERB: Final = UndoVerb()
