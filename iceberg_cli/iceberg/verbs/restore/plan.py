"""restore: the plan, from the metadata, the manifests of the target, and a look for each of its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.spec.manifests.manifest import waiting
from iceberg_cli.iceberg.spec.table_metadata.snapshot import Snapshot
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.restore import rules
from iceberg_cli.iceberg.verbs.restore.policy import VERB_NAME, Restore
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.text import count

if TYPE_CHECKING:
    from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource

_AT_ONCE: Final = 100_000  # files that are looked for together
_ROW_LINEAGE: Final = 3  # format version from which on rows have ids


class RestoreVerb(Verb):
    """Sets a branch back to an earlier snapshot, and keeps the old head by a tag."""

    name: Final = VERB_NAME
    policy: Final = Restore
    result_columns: Final = rules.COLUMNS

    def plan(
        self,
        table: IcebergTable,
        policy: Restore,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """The plan.

        Raises:
            UsageError: there is no such branch or state.
            Refused: the branch is a tag; or the target is encrypted.
            CommitConflict: the branch has moved since `within`.
            CorruptFile: a list or manifest of the target is there and cannot be read whole.
        """
        move = rules.move_of(table.metadata, policy, as_of_ms=as_of_ms, within=within)
        missing: Sequence[str] = ()
        warnings: Sequence[str] = ()
        if not move.is_done:
            missing, warnings = looked_for(table, move.target.snapshot)
        plan = rules.plan(
            table.metadata,
            policy,
            move,
            base=table.base(),
            table=table.describe(),
            as_of_ms=as_of_ms,
            missing=missing,
            warnings=warnings,
        )
        return Planned(plan=table.resolve(plan))


def looked_for(table: IcebergTable, snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """The files of a snapshot that are not there, and a warning where its rows get other ids as the head of a branch.

    A list or manifest that is not there is all that is told: what it names is not known.

    Raises:
        Refused: the snapshot is encrypted. CorruptFile: a list or manifest is there and cannot be read whole.
    """
    target = snapshot_files(snapshot)
    lists = [target.manifest_list] if target.manifest_list is not None else list(target.manifests)
    if gone := table.workspace.missing(lists):
        return gone, []
    listed = table.reachability.manifests([target], phase="reading manifest lists", required=True).rows
    if gone := _missing(table, listed["manifest_path"]):
        return gone, []
    manifests = table.reachability.read_whole([target])
    gone = []
    for paths in table.reachability.from_entries(
        manifests, ("status", "file_path"), _live_paths, phase="looking for files"
    ):
        gone += _missing(table, paths)
    return gone, _ids(table, listed)


def _live_paths(_: Sequence[ManifestSource], batch: EntryBatch) -> pa.ChunkedArray:
    paths: pa.ChunkedArray = live(batch.table)["file_path"]
    return paths


def _missing(table: IcebergTable, paths: pa.ChunkedArray) -> list[str]:
    """Those of n paths at which there is no file, each once."""
    found: list[str] = []
    every = paths.cast(pa.string()).unique()
    for first in range(0, len(every), _AT_ONCE):
        found += table.workspace.missing(every.slice(first, _AT_ONCE).to_pylist())
    return found


def _ids(table: IcebergTable, listed: pa.Table) -> list[str]:
    """A warning where rows of the target have no ids as its manifests stand, and get others than they have now."""
    if table.metadata.format_version < _ROW_LINEAGE:
        return []
    without = int(waiting(listed).sum())
    if not without:
        return []
    manifests = count(without, "data manifests")
    ids = "ids, which are other ones than commits that leave may have given them"
    return [f"{manifests} of the target have no row ids: the next commit gives their rows {ids}"]


VERB: Final = RestoreVerb()
