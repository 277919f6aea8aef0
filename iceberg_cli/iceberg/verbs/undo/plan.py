"""undo: the plan, from the journal of an operation that waits or what the history has of one that is over.

Of one that waits the journal is taken over first: from then on nobody else can delete a file by it. Then every file of
what comes back is looked for, then it is committed, then the operation is closed. A process that dies in between leaves
the table as it was or as it is to be, and a deletion that still comes finds all files reachable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.commit.removed_file import name_of
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.spec.table_metadata.removed import RemovedMetadata
from iceberg_cli.iceberg.spec.table_metadata.restoring import with_restored
from iceberg_cli.iceberg.spec.table_metadata.updates import RestoreRemoved
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.undo import rules
from iceberg_cli.iceberg.verbs.undo.policy import Undo
from iceberg_cli.iceberg.verbs.undo.rewrites import check_parents, is_of_rewrite, taken_back
from iceberg_cli.operation.journal import Journal
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import UNDONE_OPERATION, Change, Option, Plan, Step
from iceberg_cli.plan.removals import Removals
from iceberg_cli.plan.text import count
from iceberg_cli.plan.verb_place import UNDO
from iceberg_cli.table.undoing import close, newest_operation, obstacle, open_operation, past_operation, take

_LOOKED_UP: Final = 1_000


class UndoVerb(Verb):
    """Takes back an operation whose files still wait, or a rewrite whose snapshot is still the head of a branch."""

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
            CorruptFile: the journal, or what must be read of the table, cannot be read whole.
        """
        operation_id = policy.operation
        if within is not None:
            operation_id = within.undoes
        found = newest_operation(table) if operation_id is None else operation_id
        plan = Plan(
            verb=UNDO,
            table=table.describe(),
            base=table.base(),
            as_of_ms=as_of_ms,
            options={UNDONE_OPERATION: Option(value=found, source=policy.source_of(UNDONE_OPERATION))},
            policy=policy.to_json(),
            removals=Removals.none(),
        )
        if found is None:
            return Planned(
                plan=replace(plan, blocked_by=("no operation of this program is open here, or on record",))
            )
        named = open_operation(table, found)
        if named is None:
            past, by = past_operation(table, found)
            step = Step(name=f"undo {past.operation}")
            plan = replace(plan, reason=f"operation {found}, {past.operation}", steps=(step,))
            return Planned(plan=taken_back(table, past, plan, by=by, within=within))
        journal, operation = named
        reason = _why_not(table, operation)
        step = Step(name=f"undo {operation.verb}")
        plan = replace(plan, reason=f"operation {found}, {operation.verb}", steps=(step,))
        if reason is not None:
            blocked = f"operation {found}, {operation.verb}, cannot be taken back: {reason}"
            return Planned(plan=replace(plan, blocked_by=(blocked,)))
        removed = _removed(journal, operation)
        if removed is not None:
            metadata = table.metadata
            after = with_restored(metadata, removed)
            _check_files(table, removed)
            update = RestoreRemoved(removed=removed).to_json()
            change = Change(updates=(update,), counts=rules.counts(metadata, removed))
            plan = replace(
                plan,
                steps=(replace(step, change=change),),
                verdicts=(*rules.returning(metadata, removed),),
                warnings=(
                    *plan.warnings,
                    *_next_expiry(len(after.snapshots) - len(metadata.snapshots)),
                ),
            )
        return Planned(plan=table.checked(plan, deletes=False))

    def begin(self, table: IcebergTable, plan: Plan, runtime: Runtime) -> None:
        """See `Verb`: nobody else deletes files of the operation from here on, and all that comes back is there."""
        if is_of_rewrite(plan):
            check_parents(table, str(plan.undoes))
            return
        removed = _removed(*take(table, plan, runtime))
        if removed is not None:
            _check_files(table, removed)

    def end(self, table: IcebergTable, plan: Plan, runtime: Runtime) -> None:
        """See `Verb`: the operation is closed, its files stay."""
        close(table, plan, runtime)


def _why_not(table: IcebergTable, operation: Operation) -> str | None:
    """Why an operation cannot be taken back, or None."""
    if (reason := obstacle(operation)) is not None:
        return reason
    steps = rules.committed(operation)
    if not steps:
        return None
    if not table.committer.writes_metadata:
        base = steps[0].intent.base_location if steps[0].intent is not None else ""
        return (
            "the catalog writes the metadata itself, and takes no snapshot back that it has forgotten. Register "
            f"{base} under another name, with gc.enabled=false, while its files wait; that table can be read"
        )
    return None


def _removed(journal: Journal, operation: Operation) -> RemovedMetadata | None:
    """What the commit of an operation took out of the metadata; None where it committed nothing.

    Raises:
        CorruptFile: that was not kept, or cannot be read.
    """
    steps = rules.committed(operation)
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
        for start in range(0, len(paths), _LOOKED_UP):
            some = paths[start : start + _LOOKED_UP]
            infos = table.storage.stat_many([table.storage.canonical(path) for path in some])
            gone += [path for path, info in zip(some, infos, strict=True) if info is None]
    if gone:
        raise Refused(
            f"Cannot undo: {count(len(gone), 'files')} of what would come back are gone, such as {gone[0]}",
            state="The table was not changed.",
        )


def _files_of(table: IcebergTable, removed: RemovedMetadata) -> Iterator[Sequence[str]]:
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
    yield [*lists, *statistics, *listed.rows["manifest_path"].to_pylist()]
    current = [snapshot_files(each) for each in table.metadata.snapshots]
    now = table.reachability.kept_manifests(current, phase="reading manifest lists")
    theirs = pc.is_in(listed.rows["manifest_path"], value_set=now.rows["manifest_path"].combine_chunks())
    own = listed.rows.filter(pc.invert(theirs))
    for _, batch in table.reachability.entries(
        own, ("status", "file_path"), phase="reading manifests of what comes back"
    ):
        rows = batch.table
        alive = rows.filter(pc.is_in(rows["status"], value_set=pa.array([0, 1], rows["status"].type)))
        yield alive["file_path"].to_pylist()


def _next_expiry(snapshots: int) -> Iterator[str]:
    if snapshots:
        yield (
            f"the next expiry by the same options takes these {count(snapshots, 'snapshots')} again; "
            "a tag on one keeps it"
        )


VERB: Final = UndoVerb()
