"""restore on Delta: the plan, from two versions of the table, the commits between, and a look for each file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.row_ids import Int64s
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.restore import rules
from iceberg_cli.delta.verbs.restore.files import needed_files, unfit, whole_versions
from iceberg_cli.delta.verbs.restore.policy import VERB_NAME, Restore
from iceberg_cli.delta.verbs.restore.rules import LaterVersion, Lookup
from iceberg_cli.delta.verbs.restore.target import TO, target_of
from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.text import iso

_AT_ONCE: Final = 100_000  # files that are looked for together
_LISTED: Final = "`inspect TABLE history` lists the versions that its log still has."


class RestoreVerb(Verb):
    """Sets a table back to an earlier version."""

    name: Final = VERB_NAME
    policy: Final = Restore
    result_columns: Final = rules.COLUMNS

    def plan(
        self,
        table: DeltaTable,
        policy: Restore,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan.

        Raises:
            UsageError: there is no such version, or the log has it no more.
            Refused: the version needs a reader that knows more.
            CommitConflict: others have committed since `within`.
            CorruptFile: what the version consists of is there and cannot be read whole.
        """
        policy.check_given()
        current = table.snapshot
        target, at_ms = _target(table, current, policy, as_of_ms=as_of_ms, within=within)
        change = rules.restoration(current, target, at_ms=at_ms)
        lookup: Lookup | None = None
        later: Sequence[LaterVersion] = ()
        warnings: list[str] = []
        if not change.is_done:
            rules.check_unmoved(current, within)
            commits, warnings = _commits(table, current, target)
            later = _later(current, target, commits)
            lookup = _looked_for(table, current, target, commits)
        plan = rules.plan(
            change,
            policy,
            base=table.base(),
            table=table.describe(),
            root=table.root,
            as_of_ms=as_of_ms,
            lookup=lookup,
            later=later,
            warnings=[*warnings, *target.warnings],
        )
        return Planned(plan=table.resolve(plan))


VERB: Final = RestoreVerb()


def _target(
    table: DeltaTable, current: Snapshot, policy: Restore, *, as_of_ms: int, within: Plan | None
) -> tuple[Snapshot, int | None]:
    """The version that the policy names, or that a plan named which is made again; and the time in its name."""
    version, at_ms = target_of(policy.to or "", newest=current.version, now_ms=as_of_ms)
    if (planned := rules.version_of(within)) is not None:
        version = planned
    if version is None and at_ms is not None:
        version = table.log.version_at(current, at_ms)
        if version is None:
            oldest = min(current.listing.commit_times_ms().items(), default=None)
            found = "" if oldest is None else f"; the oldest, {oldest[0]}, is of {iso(oldest[1])}"
            raise UsageError(
                f"{TO}: the log has no version of {iso(at_ms)} or before{found}", next_step=_LISTED
            )
    if version == current.version:
        return current, at_ms
    try:
        return table.log.snapshot(version, listing=current.listing), at_ms
    except UsageError as error:
        raise UsageError(f"{TO}: {error.message}", next_step=_LISTED) from None


def _commits(table: DeltaTable, current: Snapshot, target: Snapshot) -> tuple[Actions | None, list[str]]:
    """The commits after the target, None and a warning where they cannot be read: they can be left all the same."""
    try:
        return table.log.commits(target.version + 1, current.version, listing=current.listing), []
    except CorruptFile as error:
        unknown = f"what the versions after {target.version} did is not known: {error.message}"
        return None, [unknown]


def _later(current: Snapshot, target: Snapshot, commits: Actions | None) -> list[LaterVersion]:
    """The versions after the target, newest first; a commit need not say what it did."""
    if commits is None:
        return []
    times, infos = current.listing.commit_times_ms(), dict(commits.commit_infos)
    found = []
    for version in range(current.version, target.version, -1):
        info = infos.get(version, {})
        own = info.get("inCommitTimestamp")
        time_ms = own if type(own) is int else times.get(version)
        found.append(LaterVersion(version=version, info=info, timestamp_ms=time_ms))
    return found


def _looked_for(table: DeltaTable, current: Snapshot, target: Snapshot, commits: Actions | None) -> Lookup:
    """What is found of the files that the target needs."""
    needed = needed_files(target.adds, table.root)
    gone, other = unfit(needed, _sizes(table, needed))
    if not (gone.any() or other.any()):
        return Lookup(needed=needed.num_rows)
    whole = None if commits is None else _whole(table, current, target, commits, needed, gone | other)
    return Lookup(needed=needed.num_rows, gone=_first(needed, gone), other=_first(needed, other), whole=whole)


def _first(needed: pa.Table, marked: np.ndarray) -> tuple[str, int]:
    rows = np.flatnonzero(marked)
    return (needed["path"][int(rows[0])].as_py(), len(rows)) if len(rows) else ("", 0)


def _sizes(table: DeltaTable, needed: pa.Table) -> Int64s:
    """The sizes of n files in bytes, -1 where there is none."""
    sizes = np.full(needed.num_rows, -1, np.int64)
    for first in range(0, needed.num_rows, _AT_ONCE):
        paths = needed["path"].slice(first, _AT_ONCE).to_pylist()
        for row, info in enumerate(table.storage.stat_many(paths), first):
            if info is not None:
                sizes[row] = info.size_bytes
    return sizes


def _whole(
    table: DeltaTable,
    current: Snapshot,
    target: Snapshot,
    commits: Actions,
    needed: pa.Table,
    bad: np.ndarray,
) -> list[int]:
    """The versions after the target whose files are all there, but for the newest one."""
    of_later = needed_files(commits.adds, table.root)
    of_later = of_later.filter(
        pc.invert(pc.is_in(of_later["path"], value_set=needed["path"].combine_chunks()))
    )
    gone, other = unfit(of_later, _sizes(table, of_later))
    paths = [
        *needed["path"].filter(pa.array(bad)).chunks,
        *of_later["path"].filter(pa.array(gone | other)).chunks,
    ]
    return whole_versions(
        target.adds,
        (commits.adds, commits.add_versions, commits.removes, commits.remove_versions),
        pa.chunked_array(paths, pa.string()).combine_chunks(),
        root=table.root,
        versions=range(target.version + 1, current.version),
    )
