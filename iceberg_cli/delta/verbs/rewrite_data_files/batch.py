"""The commit of groups that are rewritten: which of them still can be committed, and its actions.

States are compared, and not what others did: whether each input is live as it was when it was read, with the same row
ids, and whether the table still takes files such as were written. Rows that were deleted since are deleted in the new
files, by deletion vectors.

Spec: Delta protocol, "Add File and Remove File", "Deletion Vectors", "Row Tracking", "Commit Provenance Information".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.commit import CommitDraft
from iceberg_cli.delta.rows.file_statistics import with_wide_bounds
from iceberg_cli.delta.spec.clustering import clustered, columns_text
from iceberg_cli.delta.spec.columns import ADD, dv_ids, removes_of, table_of
from iceberg_cli.delta.spec.features import VECTORS_PROPERTY, supports, takes_deletion_vectors
from iceberg_cli.delta.spec.iceberg_compat import UNIFORM, compat_tags, uniform_formats
from iceberg_cli.delta.spec.row_ids import (
    FEATURE,
    PRESERVED,
    Int64s,
    domain_action,
    high_water_mark,
    with_fresh_ids,
)
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.vectors import FRAME_BYTES, Vector
from iceberg_cli.delta.spec.vectors import UNKNOWN as UNKNOWN_LAST_ROW
from iceberg_cli.delta.stored_vectors import vectors_task, write_vectors
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.rewrite_data_files.clustering import clustered_by, declared_names
from iceberg_cli.delta.verbs.rewrite_data_files.group import RewrittenGroup
from iceberg_cli.delta.verbs.rewrite_data_files.moves import LiveInputs, moved_deletes
from iceberg_cli.delta.verbs.rewrite_data_files.partitions import one_spelling
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.delta.verbs.rewrite_data_files.settings import keeps_row_ids
from iceberg_cli.delta.verbs.rewrite_data_files.written_for import WRITTEN_FOR_FILE, why_not, written_for
from iceberg_cli.encoding.deletion_vector import encode
from iceberg_cli.errors import Refused
from iceberg_cli.layout.moved_positions import Moved, by_group
from iceberg_cli.layout.position_map import Positions
from iceberg_cli.operation.groups.ports import Batch
from iceberg_cli.operation.groups.results import GroupResult, digest_of
from iceberg_cli.operation.ports import Build
from iceberg_cli.plan.plan import Change, Plan, StagedFile, Step, Task

_MOST_VECTOR_BYTES: Final = 64 << 20  # of a file of deletion vectors; it is made in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteBatch(Batch):
    """A commit, with the deletes that arrived, which its next try need not look up again."""

    moved: Moved


def changed(table: DeltaTable, plan: Plan, numbers: Sequence[int]) -> Mapping[int, str]:
    """Which of some groups are not what the table as loaded last has of their files; see `GroupVerb`."""
    assert plan.groups is not None
    inputs = plan.groups.inputs_of(numbers)
    live, dropped = _compared(table.snapshot, inputs)
    for row in np.flatnonzero(live.is_deleted_from).tolist():
        what = "is not live any more" if live.is_gone[row] else "is deleted from by now"
        dropped.setdefault(inputs["group"][row].as_py(), f"{inputs['path'][row].as_py()} {what}")
    return dropped


def batch_of(
    table: DeltaTable,
    plan: Plan,
    results: Sequence[GroupResult],
    *,
    committed: Collection[int],  # noqa: ARG001 - what came too late for these is not looked for
    earlier: Batch | None = None,
) -> Batch:
    """The commit of finished groups on the table as loaded last; see `GroupVerb`.

    Raises:
        CorruptFile: a result is none, or the row ids of the table are damaged. Refused: a result is not what it says.
    """
    assert plan.groups is not None
    snapshot = table.snapshot
    groups = {each.number: _group_of(each) for each in results}
    inputs = plan.groups.inputs_of([*groups])
    live, dropped = _compared(snapshot, inputs)
    policy = RewriteDataFiles.of_plan(plan)
    dropped |= _of_another_table(table, policy, results, groups)
    moved = moved_deletes(
        table,
        inputs,
        live,
        {number: group for number, group in groups.items() if number not in dropped},
        [each for each in results if each.number not in dropped],
        earlier=earlier.moved if isinstance(earlier, RewriteBatch) else Moved(),
    )
    dropped |= moved.dropped
    if (why_none := _why_no_vectors(snapshot)) is not None:
        reason = f"rows of its files are deleted by now, and the table takes no deletion vectors ({why_none})"
        dropped |= {number: reason for number, _ in moved.positions if number not in dropped}
    left_out = [*dropped, *moved.broken]
    kept = {number: group for number, group in groups.items() if number not in left_out}
    if not kept:
        return Batch(step=None, dropped=dropped, broken=moved.broken)
    stays = ~np.isin(inputs["group"].to_numpy(), left_out)
    commit = _Commit(
        table=table,
        policy=policy,
        groups=kept,
        numbers=inputs["group"].to_numpy()[stays],
        places=live.places[stays],
        moved={key: positions for key, positions in moved.positions.items() if key[0] in kept},
    )
    step, build = commit.step(plan.steps[-1].name)
    return RewriteBatch(step=step, build=build, dropped=dropped, broken=moved.broken, moved=moved)


def _why_no_vectors(snapshot: Snapshot) -> str | None:
    """The property for which new files get no deletion vectors, or None.

    UniForm's conversion stops at a commit that adds one to a file that had none and is rewritten.
    """
    if not takes_deletion_vectors(snapshot.protocol, snapshot.metadata):
        return VECTORS_PROPERTY
    return UNIFORM if uniform_formats(snapshot.metadata.configuration) else None


def _of_another_table(
    table: DeltaTable,
    policy: RewriteDataFiles,
    results: Sequence[GroupResult],
    groups: Mapping[int, RewrittenGroup],
) -> dict[int, str]:
    """The groups whose files were written for a table that asked for others, each with the reason."""
    snapshot = table.snapshot
    reasons: dict[str, str | None] = {digest_of(written_for(snapshot)): None}
    found = {}
    for result in results:
        digest, path = groups[result.number].written_for, result.kept(WRITTEN_FOR_FILE)
        if digest not in reasons:
            try:
                reasons[digest] = why_not(table.storage.read(path), path, snapshot, policy)
            except FileNotFoundError:
                reasons[digest] = f"{path}, which says what the table was, is not there"
        if (reason := reasons[digest]) is not None:
            found[result.number] = reason
    return found


def _group_of(result: GroupResult) -> RewrittenGroup:
    path = f"the result of group {result.number}"
    found = RewrittenGroup.from_json(result.content, path)
    if tuple(each.path for each in found.outputs) != result.paths:
        raise Refused(f"Cannot commit {path}: it names other files than were written")
    return found


def _compared(snapshot: Snapshot, inputs: pa.Table) -> tuple[LiveInputs, dict[int, str]]:
    """What the table has of inputs, and the groups that cannot be committed any more, each with the reason."""
    adds = snapshot.adds
    places = pc.fill_null(
        pc.index_in(inputs["log_path"], value_set=adds["path"].combine_chunks()), -1
    ).to_numpy()
    gone = places < 0
    there = adds.take(pa.array(places, pa.int64(), mask=gone))
    dropped: dict[int, str] = {}
    for reason, differs in (
        ("has other row ids by now", _differ(inputs["base_row_id"], there["baseRowId"])),
        ("has other row ids by now", _differ(inputs["row_commit_version"], there["defaultRowCommitVersion"])),
        ("has another size by now", _differ(inputs["size_bytes"], there["size"])),
    ):
        for row in np.flatnonzero(differs & ~gone).tolist():
            dropped.setdefault(inputs["group"][row].as_py(), f"{inputs['path'][row].as_py()} {reason}")
    is_deleted_from = _differ(inputs["dv_id"], dv_ids(there)) | gone
    return LiveInputs(places=places, is_deleted_from=is_deleted_from), dropped


def _differ(one: pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> Any:
    """Where two columns have another value, or only one of them has none."""
    is_same = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(one.is_null(), other.is_null()))  # noqa: FBT003
    return ~np.asarray(
        is_same.to_numpy(zero_copy_only=False) if isinstance(is_same, pa.Array) else is_same.to_numpy()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """A commit while it is made.

    Args:
        table: as loaded.
        policy: what the operator asked for.
        groups: that are committed, by number.
        numbers: of the groups of their n inputs.
        places: of the inputs in the snapshot's adds, -1 where one is gone.
        moved: positions that are deleted of new files, by group and place of the file among its outputs.
    """

    table: DeltaTable
    policy: RewriteDataFiles
    groups: Mapping[int, RewrittenGroup]
    numbers: Int64s
    places: Int64s
    moved: Mapping[tuple[int, int], Positions]

    def step(self, name: str) -> tuple[Step, Build]:
        """The step, and what builds its files of deletion vectors."""
        snapshot = self.table.snapshot
        there = self.places >= 0
        before = snapshot.adds.take(pa.array(self.places[there]))
        members = by_group(self.numbers)
        rows = np.empty(len(self.numbers), np.int64)
        for number, places in members.items():
            rows[places] = self.groups[number].input_rows
        frames = {
            (number, place): encode(self.moved[number, place].astype(np.uint64))
            for number, group in self.groups.items()
            for place in range(len(group.outputs))
            if (number, place) in self.moved
        }
        adds = self._adds(before, frames)
        domain: tuple[dict[str, Any], ...] = ()
        if supports(snapshot.protocol, FEATURE):
            counts = np.array(
                [each.record_count for group in self.groups.values() for each in group.outputs], np.int64
            )
            adds, mark = with_fresh_ids(adds, counts, mark=high_water_mark(snapshot))
            domain = (domain_action(snapshot, mark),) if len(adds) else ()
        info = {
            **_operation(self.policy, snapshot),
            "operationMetrics": _metrics(before, adds),
        }
        if keeps_row_ids(snapshot):
            info["tags"] = {PRESERVED: "true"}
        has_vector = adds["deletionVector"].is_valid()
        vectors = _files_of_vectors(adds.filter(has_vector), [*frames.values()])
        draft = CommitDraft(
            adds=adds.filter(pc.invert(has_vector)),
            removes=removes_of(before, rows[there]),
            facts={"adds": len(adds)},
        )
        change = Change(
            updates=({"commitInfo": info}, *domain), draft=draft, counts=self._counts(before, adds)
        )
        return Step(name=name, tasks=tuple(vectors), change=change), _VectorsBuild(self.table, vectors)

    def _adds(self, before: pa.Table, frames: Mapping[tuple[int, int], bytes]) -> pa.Table:
        """The adds of new files, in the order of the groups; vectors are without a place."""
        values = before["partitionValues"].to_pylist()
        spelled = {
            number: one_spelling([dict(values[row]) for row in rows.tolist()], self.table.snapshot.metadata)
            for number, rows in by_group(self.numbers[self.places >= 0]).items()
        }
        paths = [each.path for group in self.groups.values() for each in group.outputs]
        found = self.table.storage.stat_many(paths)
        modified = {
            path: info.modified_ms for path, info in zip(paths, found, strict=True) if info is not None
        }
        names = clustered_by(self.policy, self.table.snapshot)
        compat = compat_tags(self.table.snapshot.metadata)
        rows = []
        for number, group in self.groups.items():
            for place, each in enumerate(group.outputs):
                of_cluster = clustered(names, group.outputs[0].log_path) if names else {}
                row = {
                    **of_cluster,
                    "tags": {**of_cluster.get("tags", {}), **compat} or None,
                    "path": each.log_path,
                    "partitionValues": spelled[number],
                    "size": each.size_bytes,
                    "modificationTime": modified.get(each.path, self.table.snapshot.timestamp_ms),
                    "dataChange": False,
                    "stats": each.stats,
                }
                if (number, place) in frames:
                    row["stats"] = with_wide_bounds(each.stats)
                    row["deletionVector"] = {
                        "storageType": "u",
                        "pathOrInlineDv": "",
                        "offset": 0,
                        "sizeInBytes": len(frames[number, place]) - FRAME_BYTES,
                        "cardinality": len(self.moved[number, place]),
                    }
                rows.append(row)
        return table_of(rows, ADD, lambda row: (paths[row], "add"))

    def _counts(self, before: pa.Table, adds: pa.Table) -> dict[str, int]:
        return {
            "rewritten_data_files_count": len(before),
            "added_data_files_count": len(adds),
            "rewritten_bytes_count": int(pc.sum(before["size"]).as_py() or 0),
            "added_bytes_count": int(pc.sum(adds["size"]).as_py() or 0),
            "removed_delete_files_count": len(before) - before["deletionVector"].null_count,
            "rewritten_rows_count": sum(each.rows_written for each in self.groups.values()),
            "dropped_rows_count": sum(each.rows_deleted for each in self.groups.values()),
            "remapped_deletes_count": sum(len(each) for each in self.moved.values()),
        }


def _files_of_vectors(adds: pa.Table, frames: Sequence[bytes]) -> dict[Task, _NewVectors]:
    """Files of deletion vectors, each with the adds of its data files.

    Args:
        adds: n.
        frames: n, of their vectors.
    """
    ends = np.cumsum([len(each) for each in frames], dtype=np.int64)
    found = {}
    for rows in by_group(ends // _MOST_VECTOR_BYTES).values():
        own = adds.take(pa.array(rows))
        found[vectors_task(own)] = _NewVectors(own, [frames[row] for row in rows.tolist()])
    return found


class _NewVectors(NamedTuple):
    """Deletion vectors of one file: the adds of their data files, and their frames."""

    adds: pa.Table
    frames: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class _VectorsBuild:
    """Writes the files of deletion vectors of a commit; see `Build`."""

    table: DeltaTable
    vectors: Mapping[Task, _NewVectors]

    def __call__(self, _step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
        """Write some of them.

        Raises:
            CorruptFile: one is read back differently. BackendUnavailable.
        """
        staged = {}
        for task, path in paths.items():
            adds, frames = self.vectors[task]
            sizes = pc.struct_field(adds["deletionVector"].combine_chunks(), "cardinality").to_pylist()
            own = [
                Vector(0, len(frame) - FRAME_BYTES, size, UNKNOWN_LAST_ROW)
                for frame, size in zip(frames, sizes, strict=True)
            ]
            staged[task] = write_vectors(self.table.storage, path, adds, frames, own)
        return staged


def _operation(policy: RewriteDataFiles, snapshot: Snapshot) -> dict[str, Any]:
    """What a commit says of itself, as Delta Spark's do."""
    predicate = json.dumps([] if policy.where is None else [policy.where])
    if policy.purge:
        return {"operation": "REORG", "operationParameters": {"predicate": predicate, "applyPurge": "true"}}
    parameters = {
        "predicate": predicate,
        "auto": "false",
        "clusterBy": columns_text(clustered_by(policy, snapshot)),
        "zOrderBy": columns_text(policy.curve_by if policy.order_strategy == "z-order" else ()),
    }
    if declared_names(snapshot):
        parameters["isFull"] = json.dumps(policy.full)
    return {"operation": "OPTIMIZE", "operationParameters": parameters}


def _metrics(before: pa.Table, adds: pa.Table) -> dict[str, int]:
    """As Delta Spark's OPTIMIZE has them."""
    sizes = np.sort(adds["size"].to_numpy()) if len(adds) else np.zeros(1, np.int64)
    quarters = [int(sizes[min(len(sizes) - 1, len(sizes) * part // 4)]) for part in (1, 2, 3)]
    return {
        "numRemovedFiles": len(before),
        "numRemovedBytes": int(pc.sum(before["size"]).as_py() or 0),
        "p25FileSize": quarters[0],
        "numDeletionVectorsRemoved": len(before) - before["deletionVector"].null_count,
        "minFileSize": int(sizes[0]),
        "numAddedFiles": len(adds),
        "maxFileSize": int(sizes[-1]),
        "p75FileSize": quarters[2],
        "p50FileSize": quarters[1],
        "numAddedBytes": int(pc.sum(adds["size"]).as_py() or 0),
    }
