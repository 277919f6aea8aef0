"""Writes checkpoints: every file under its final name, the one that makes the others count last.

There is no commit. A classic checkpoint appears whole. Sidecars mean nothing until a top level names them; of a process
that dies between the two they stay, and a later log cleanup takes them: until the process is known to be gone, nobody
can tell that it will not write the top level. `_last_checkpoint` is a hint, and comes after what it hints at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.delta.ownership import CHECKPOINT
from iceberg_cli.delta.spec import checkpoint_writing
from iceberg_cli.delta.spec.checkpoint_state import CheckpointState, checkpoint_state
from iceberg_cli.delta.spec.checkpoint_writing import (
    CheckpointFile,
    CheckpointWriter,
    checkpoint_writer,
    classic_name,
    sidecar_count,
    sidecar_name,
    top_level_name,
)
from iceberg_cli.delta.spec.last_checkpoint import NAME, LastCheckpoint, may_replace
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.rewrite_manifests.policy import CLASSIC, V2
from iceberg_cli.plan.plan import StagedFile, Task
from iceberg_cli.storage.verified_put import put_checked

SIDECAR, HINT = "sidecar", "last-checkpoint"
_COUNTS: Final = {CHECKPOINT: "added_checkpoints_count", SIDECAR: "added_sidecars_count"}
COLUMNS: Final = tuple(_COUNTS.values())
_UNIQUE: Final = "{uuid}"  # takes its place in the names of files: see `DeltaTable.staging_path`


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBuild:
    """A checkpoint that is due: its tasks, and what building them needs."""

    kind: str  # classic or v2
    writer: CheckpointWriter
    tasks: tuple[Task, ...]

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

        Another writer's checkpoint under the same name is as good as ours, and stays.

        Raises:
            Refused: a field that Delta does not name has no type that Parquet can hold.
            CorruptFile: a file reads back differently. BackendUnavailable.
        """
        own_paths = {task: paths[task] for task in self.tasks if task in paths}
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
    made = checkpoint_writer(
        state, part_size=checkpoint_writing.PART_SIZE if part_size is None else part_size
    )
    tasks = [Task(name=NAME, kind=HINT)]
    if kind == V2:
        parts = sidecar_count(state, made.part_size)
        names = [sidecar_name(state.version, part, parts, _UNIQUE) for part in range(parts)]
        tasks = [Task(name=f"_sidecars/{name}", kind=SIDECAR) for name in names] + [
            Task(name=top_level_name(state.version, _UNIQUE), kind=CHECKPOINT),
            *tasks,
        ]
    else:
        tasks = [Task(name=classic_name(state.version), kind=CHECKPOINT), *tasks]
    return CheckpointBuild(kind=kind, writer=made, tasks=tuple(tasks))


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
