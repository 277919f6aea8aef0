"""The commit of groups that are rewritten: which of them still can be committed, and what becomes of the manifests.

Spec: "Snapshots", "Manifests", "Sequence Numbers", "Delete Formats".
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, VECTOR, Bools, Ints
from iceberg_cli.iceberg.branch.head import head_of
from iceberg_cli.iceberg.branch.manifest_headers import losses
from iceberg_cli.iceberg.branch.row_ids import given_again
from iceberg_cli.iceberg.commit.draft import SnapshotDraft, snapshot_id_of
from iceberg_cli.iceberg.commit.summary import carried_totals
from iceberg_cli.iceberg.commit.verification import read_kept
from iceberg_cli.iceberg.spec.manifests.manifest import DATA, DELETES
from iceberg_cli.iceberg.spec.table_metadata.columns import WITH_ROW_IDS, column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files import rules
from iceberg_cli.iceberg.verbs.rewrite_data_files.branch_files import BranchFiles, branch_files
from iceberg_cli.iceberg.verbs.rewrite_data_files.delete_files import NewDeletes
from iceberg_cli.iceberg.verbs.rewrite_data_files.group import OutputFile
from iceberg_cli.iceberg.verbs.rewrite_data_files.lost_deletes import lost_deletes
from iceberg_cli.iceberg.verbs.rewrite_data_files.manifests import (
    AddedDeletes,
    AddedFiles,
    CarriedEntries,
    ManifestsBuild,
)
from iceberg_cli.iceberg.verbs.rewrite_data_files.moves import moved_deletes
from iceberg_cli.iceberg.verbs.rewrite_data_files.partitions import key_and_tuple, unpartitioned
from iceberg_cli.iceberg.verbs.rewrite_data_files.repartition import moved_groups, output_spec_id
from iceberg_cli.iceberg.verbs.rewrite_data_files.settings import WITH_NULL_SNAPSHOTS
from iceberg_cli.layout.moved_positions import Moved
from iceberg_cli.layout.position_map import Positions
from iceberg_cli.operation.groups.ports import Batch
from iceberg_cli.operation.groups.results import GroupResult
from iceberg_cli.plan.groups import Groups
from iceberg_cli.plan.plan import Change, Plan, Step, Task

_TARGET: Final = "commit.manifest.target-size-bytes"
_DEFAULT_TARGET_BYTES: Final = 8 << 20
_DROPPED_ROWS: Final = "iceberg-cli.rows-dropped-by-deletes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteBatch(Batch):
    """A commit, with what its next try need not read again.

    Args:
        build: of its files.
        files: of the branch's head.
        moved: deletes that arrived.
        seen: paths of manifests from which nothing is lost where others take their place.
    """

    build: ManifestsBuild
    files: BranchFiles
    moved: Moved
    seen: frozenset[str]


def batch_of(
    table: IcebergTable,
    plan: Plan,
    results: Sequence[GroupResult],
    *,
    committed: Collection[int],
    earlier: Batch | None = None,
) -> Batch:
    """The commit of finished groups on the table as loaded last; see `GroupVerb`."""
    assert plan.groups is not None
    metadata, groups = table.metadata, plan.groups
    ref, until = groups.base["ref"], int(groups.base["sequence_number"])
    numbers = [each.number for each in results]
    if metadata.format_version != plan.table["format_version"]:
        return _all_dropped(numbers, f"the table has format version {metadata.format_version} by now")
    if ref not in metadata.refs:
        return _all_dropped(numbers, f"branch {ref} is gone")
    head = head_of(table, ref)
    if head.blocked_by:
        raise Refused(f"Cannot commit to {table.name}: {'; '.join(head.blocked_by)}")
    before = earlier if isinstance(earlier, RewriteBatch) else None
    files = branch_files(table, head, earlier=None if before is None else before.files)
    lost = lost_deletes(files, groups.inputs_of([*committed]), until=until)
    inputs = groups.inputs_of(numbers)
    outputs = {each.number: _outputs(each) for each in results}
    new = _new_partitions(metadata, groups, inputs, outputs)
    compared = _compared(table, files, groups, inputs, new.keys, until=until)
    dropped = dict(compared.dropped)
    moved = moved_deletes(
        table,
        files,
        inputs,
        compared.moved,
        [each for each in results if each.number not in dropped],
        earlier=Moved() if before is None else before.moved,
    )
    dropped |= moved.dropped
    left_out = [*dropped, *moved.broken]
    kept = [each for each in results if each.number not in left_out]
    if not kept:
        return Batch(step=None, dropped=dropped, broken=moved.broken, lost_deletes=lost)
    is_kept = ~np.isin(inputs["group"].to_numpy(), left_out)
    commit = _Commit(
        table=table,
        files=files,
        results=kept,
        inputs=inputs.filter(pa.array(is_kept)),
        places=compared.places[is_kept],
        outputs={each.number: outputs[each.number] for each in kept},
        new=new,
        moved={key: positions for key, positions in moved.positions.items() if key[0] not in left_out},
        until=until,
        snapshot_id=_snapshot_id(metadata),
        seen=frozenset() if before is None else before.seen,
    )
    step, build, seen = commit.step(plan.steps[-1].name)
    if before is not None:
        build.delete_files.update(before.build.delete_files)
    read_kept(table.reachability, metadata, replace(plan, steps=(step,), groups=None))
    return RewriteBatch(
        step=step,
        build=build,
        dropped=dropped,
        broken=moved.broken,
        lost_deletes=lost,
        files=files,
        moved=moved,
        seen=seen,
    )


def changed(table: IcebergTable, plan: Plan, numbers: Sequence[int]) -> Mapping[int, str]:
    """Which of some groups are not what the table as loaded last has of their files; see `GroupVerb`."""
    assert plan.groups is not None
    ref, until = plan.groups.base["ref"], int(plan.groups.base["sequence_number"])
    if ref not in table.metadata.refs:
        return dict.fromkeys(numbers, f"branch {ref} is gone")
    files = branch_files(table, head_of(table, ref))
    inputs = plan.groups.inputs_of(numbers)
    return _compared(table, files, plan.groups, inputs, {}, until=until).dropped


def _snapshot_id(metadata: TableMetadata) -> int | None:
    """That entries of new manifests have, or None where they inherit it."""
    return None if metadata.format_version >= WITH_NULL_SNAPSHOTS else snapshot_id_of(str(uuid4()), metadata)


def _all_dropped(numbers: Sequence[int], reason: str) -> Batch:
    return Batch(step=None, dropped=dict.fromkeys(numbers, reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """What became of n inputs.

    Args:
        dropped: the groups that cannot be committed any more, each with the reason.
        places: of the inputs in the branch's data files, -1 where one is gone.
        moved: whether other rows may be deleted of each than when it was read.
    """

    dropped: Mapping[int, str]
    places: Ints
    moved: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewPartitions:
    """The partitions of new files.

    Args:
        spec_ids: of their specs, by group.
        keys: of each output of a group, its partition.
        tuples: of those that no file had that was read, in Avro's representation.
    """

    spec_ids: Mapping[int, int]
    keys: Mapping[int, tuple[bytes, ...]]
    tuples: Mapping[bytes, tuple[Any, ...]]


def _new_partitions(
    metadata: TableMetadata,
    groups: Groups,
    inputs: pa.Table,
    outputs: Mapping[int, Sequence[OutputFile]],
) -> _NewPartitions:
    moved, spec_id = moved_groups(groups), output_spec_id(groups)
    spec = None if spec_id is None else metadata.partition_spec(spec_id)
    types = column_types(metadata)
    columns = (inputs[name].to_pylist() for name in ("group", "spec_id", "key"))
    own = {number: (own_id, key) for number, own_id, key in zip(*columns, strict=True)}
    spec_ids, keys, tuples = dict[int, int](), dict[int, tuple[bytes, ...]](), dict[bytes, tuple[Any, ...]]()
    for number, (own_id, key) in own.items():
        found = outputs.get(number, ())
        if number not in moved or spec is None:  # without its spec it is dropped
            spec_ids[number], keys[number] = own_id, (key,) * len(found)
            continue
        pairs = [key_and_tuple(spec, types, each.partition or ()) for each in found]
        spec_ids[number], keys[number] = spec.spec_id, tuple(key for key, _ in pairs)
        tuples |= dict(pairs)
    return _NewPartitions(spec_ids=spec_ids, keys=keys, tuples=tuples)


def _compared(
    table: IcebergTable,
    files: BranchFiles,
    groups: Groups,
    inputs: pa.Table,
    new_keys: Mapping[int, Sequence[bytes]],
    *,
    until: int,
) -> _Compared:
    """What became of the inputs of groups since they were planned.

    Args:
        table: as loaded.
        files: of the branch's head.
        groups: of the plan.
        inputs: of some of them: `INPUTS_SCHEMA`.
        new_keys: the partitions of the new files of each group, where they are known.
        until: the sequence number of new files.
    """
    metadata = table.metadata
    everywhere = unpartitioned(metadata)
    codes, places = rules.differences(inputs, files.data, files.deletes, everywhere=everywhere, until=until)
    same = rules.Difference.NONE
    unread = rules.unread_newer(inputs, files.deletes, until=until)
    may_be_named = pc.is_in(inputs["key"], value_set=unread["key"].combine_chunks()).to_numpy()
    codes[may_be_named & (codes == same)] = rules.Difference.POSITIONS
    # Those of older schemas are not among them: new files do not have a column that was dropped.
    columns = metadata.current_schema().types_by_id().keys()
    lost = rules.compared_columns_lost(inputs, files.deletes, columns, everywhere=everywhere, until=until)
    codes[lost & ((codes == same) | (codes == rules.Difference.POSITIONS))] = rules.Difference.LOST_COLUMN
    known = [spec.spec_id for spec in metadata.partition_specs]
    codes[~np.isin(inputs["spec_id"].to_numpy(), known)] = rules.Difference.LISTED_ANEW
    numbers = inputs["group"].to_numpy()
    goes = np.isin(numbers, list(moved_groups(groups)))
    if goes.any() and output_spec_id(groups) not in known:
        codes[goes] = rules.Difference.LISTED_ANEW
    elif goes.any():
        newer = {*rules.newer_equality_keys(files.deletes, everywhere=everywhere, until=until).to_pylist()}
        missed = pc.is_in(inputs["key"], value_set=pa.array(newer, pa.binary())).to_numpy()
        missed |= np.isin(numbers, [number for number, keys in new_keys.items() if newer.intersection(keys)])
        codes[goes & missed & (codes != rules.Difference.GONE)] = rules.Difference.NOT_WHERE_IT_GOES
    moved = codes == rules.Difference.POSITIONS
    dropped: dict[int, str] = {}
    for row in np.flatnonzero((codes != same) & ~moved).tolist():
        text = rules.DIFFERENCES[rules.Difference(int(codes[row]))]
        dropped.setdefault(int(numbers[row]), f"{inputs['path'][row].as_py()} {text}")
    return _Compared(dropped=dropped, places=places, moved=moved)


def _outputs(result: GroupResult) -> tuple[OutputFile, ...]:
    path = f"the result of group {result.number}"
    found = tuple(
        OutputFile.from_json(each, path, f"outputs[{place}]")
        for place, each in enumerate(result.content["outputs"])
    )
    if tuple(each.path for each in found) != result.paths:
        raise Refused(f"Cannot commit {path}: it names other files than were written")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """A commit while it is made.

    Args:
        table: as loaded.
        files: of the branch's head.
        results: of the groups that are committed.
        inputs: of these groups: `INPUTS_SCHEMA`.
        places: of the inputs in `files.data`.
        outputs: new files by group.
        new: their partitions.
        moved: positions that are deleted of new files, by group and place of the file among the outputs.
        until: the sequence number of the new files.
        snapshot_id: see `ManifestsBuild`.
        seen: see `RewriteBatch`.
    """

    table: IcebergTable
    files: BranchFiles
    results: Sequence[GroupResult]
    inputs: pa.Table
    places: Ints
    outputs: Mapping[int, tuple[OutputFile, ...]]
    new: _NewPartitions
    moved: Mapping[tuple[int, int], Positions]
    until: int
    snapshot_id: int | None
    seen: frozenset[str]

    def step(self, name: str) -> tuple[Step, ManifestsBuild, frozenset[str]]:
        """The step, what builds its manifests, and paths as `RewriteBatch.seen`."""
        metadata, head = self.table.metadata, self.files.head
        dead = rules.dead_deletes(
            self.files.data,
            self.files.deletes,
            removed=self.places,
            new_keys=self._new_keys(),
            everywhere=unpartitioned(metadata),
            until=self.until,
        )
        added = self._added()
        deletes = self._added_deletes()
        carried = [
            *self._carried(DATA, self.files.data, np.isin(np.arange(len(self.files.data)), self.places)),
            *self._carried(DELETES, self.files.deletes, dead),
        ]
        replaced = sorted({row for job in carried for row in job.replaced})
        replaced_rows = head.rows.take(pa.array(replaced, pa.int64()))
        is_seen = pc.is_in(replaced_rows["manifest_path"], value_set=pa.array(self.seen, pa.string()))
        lost = losses(self.table, metadata, replaced_rows.filter(pc.invert(is_seen)))
        if reasons := (*lost.blocked_by, *given_again(self.table, metadata, head)):
            raise Refused(f"Cannot commit to {self.table.name}: {'; '.join(reasons)}")
        stays = np.ones(len(head.rows), np.bool_)
        stays[replaced] = False
        tasks = (
            *(task for job in deletes for task in job.files),
            *(job.task for job in added),
            *(job.task for job in deletes),
            *(job.task for job in carried),
        )
        manifests = tuple(task for task in tasks if task.kind == "manifest")
        counted, differences, counts = self._counted(dead, deletes)
        counted |= {
            "manifests-created": len(manifests),
            "manifests-kept": int(stays.sum()),
            "manifests-replaced": len(replaced),
        }
        draft = SnapshotDraft(
            ref=head.ref,
            parent_snapshot_id=head.snapshot.snapshot_id,
            operation="replace",
            added=manifests,
            kept=head.rows.filter(pa.array(stays)),
            summary={key: str(number) for key, number in counted.items()}
            | carried_totals(head.snapshot.summary, differences),
            snapshot_id=self.snapshot_id,
        )
        step = Step(name=name, tasks=tasks, change=Change(draft=draft, counts=counts))
        build = ManifestsBuild(
            table=self.table,
            files=self.files,
            added=added,
            deletes=deletes,
            carried=carried,
            snapshot_id=self.snapshot_id,
            tuples={**self.files.tuples, **self.new.tuples},
        )
        return step, build, self.seen.union(replaced_rows["manifest_path"].to_pylist())

    def _new_keys(self) -> pa.ChunkedArray:
        """The partition of each new file."""
        keys = [key for number in self.outputs for key in self.new.keys[number]]
        return pa.chunked_array([pa.array(keys, pa.binary())])

    def _added(self) -> list[AddedFiles]:
        """The manifests of new files, one for each partition spec."""
        by_spec: dict[int, list[tuple[OutputFile, bytes]]] = {}
        for number in (each.number for each in self.results):
            pairs = zip(self.outputs[number], self.new.keys[number], strict=True)
            by_spec.setdefault(self.new.spec_ids[number], []).extend(pairs)
        return [
            AddedFiles(
                task=Task(name=f"added-{self._digest(file.path for file, _ in own)}.avro", kind="manifest"),
                spec_id=spec_id,
                files=tuple(own),
                sequence_number=self.until,
            )
            for spec_id, own in sorted(by_spec.items())
            if own
        ]

    def _added_deletes(self) -> list[AddedDeletes]:
        """The deletes of new files, with their manifests, one for each partition spec."""
        by_spec: dict[int, list[NewDeletes]] = {}
        for (number, place), positions in sorted(self.moved.items()):
            by_spec.setdefault(self.new.spec_ids[number], []).append(
                NewDeletes(
                    data_file=self.outputs[number][place].path,
                    key=self.new.keys[number][place],
                    positions=positions,
                )
            )
        with_vectors = self.table.metadata.format_version >= WITH_ROW_IDS
        return [
            AddedDeletes.of(spec_id, own, with_vectors=with_vectors)
            for spec_id, own in sorted(by_spec.items())
        ]

    def _carried(self, content: int, entries: pa.Table, removed: Bools) -> list[CarriedEntries]:
        """The manifests in whose place others come, which say of some entries that they are removed."""
        owners, indices = entries["manifest"].to_numpy(), entries["entry"].to_numpy()
        rows = self.files.head.rows
        replaced = np.unique(owners[removed]).tolist()
        target = self.table.metadata.property_int(_TARGET, _DEFAULT_TARGET_BYTES)
        packed: dict[int, list[tuple[list[int], int]]] = {}
        for row in replaced:
            spec_id, length = rows["partition_spec_id"][row].as_py(), rows["manifest_length"][row].as_py()
            bins = packed.setdefault(spec_id, [])
            if not bins or bins[-1][1] + length > target:
                bins.append(([], 0))
            members, size_bytes = bins[-1]
            bins[-1] = ([*members, row], size_bytes + length)
        order = np.argsort(owners[removed], kind="stable")
        sorted_owners, sorted_indices = owners[removed][order], indices[removed][order]
        found = []
        for spec_id, bins in sorted(packed.items()):
            for members, _ in bins:
                own = {
                    row: np.sort(
                        sorted_indices[
                            np.searchsorted(sorted_owners, row) : np.searchsorted(sorted_owners, row + 1)
                        ]
                    )
                    for row in members
                }
                names = (f"{rows['manifest_path'][row].as_py()} {own[row].tolist()}" for row in members)
                task = Task(name=f"carried-{self._digest(names)}.avro", kind="manifest")
                found.append(
                    CarriedEntries(
                        task=task, content=content, spec_id=spec_id, replaced=tuple(members), removed=own
                    )
                )
        return found

    def _digest(self, parts: Iterable[str]) -> str:
        """Of all that a manifest is made of."""
        found = hashlib.sha256()
        for part in parts if self.snapshot_id is None else (str(self.snapshot_id), *parts):
            found.update(f"{part}\n".encode())
        return found.hexdigest()[:16]

    def _counted(
        self, dead: Bools, added_deletes: Sequence[AddedDeletes]
    ) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Counts of the summary, differences of its totals, and result columns.

        Raises:
            Refused: rows are missing, or too many.
        """
        removed = self.files.data.take(pa.array(self.places))
        outputs = [each for own in self.outputs.values() for each in own]
        rows = int(pc.sum(removed["record_count"]).as_py() or 0)
        added_rows = sum(each.metrics.record_count for each in outputs)
        dropped_rows = sum(each.content["rows_deleted"] for each in self.results)
        if added_rows != rows - dropped_rows:
            raise Refused(
                f"Cannot commit to {self.table.name}: {rows} rows were read, {dropped_rows} of them were deleted, "
                f"and {added_rows} were written"
            )
        deletes = self.files.deletes.filter(pa.array(dead))
        kinds = deletes["kind"].to_numpy()
        sizes = np.where(
            kinds == VECTOR, pc.fill_null(deletes["size"], 0).to_numpy(), deletes["file_size"].to_numpy()
        )
        records = deletes["record_count"].to_numpy()
        removed_bytes = int(pc.sum(removed["size_bytes"]).as_py() or 0)
        added_bytes = sum(each.size_bytes for each in outputs)
        new_deletes = sum(len(positions) for positions in self.moved.values())
        with_vectors = self.table.metadata.format_version >= WITH_ROW_IDS
        all_added_bytes = added_bytes + sum(job.size_bytes for job in added_deletes)
        is_equality = kinds == EQUALITY
        is_file = ~is_equality & (kinds != VECTOR)
        counts = {
            "added-data-files": len(outputs),
            "deleted-data-files": len(removed),
            "added-records": added_rows,
            "deleted-records": rows,
            "added-files-size": all_added_bytes,
            "removed-files-size": removed_bytes + int(sizes.sum()),
            "added-delete-files": len(self.moved),
            "added-dvs": len(self.moved) if with_vectors else 0,
            "added-position-delete-files": 0 if with_vectors else len(self.moved),
            "added-position-deletes": new_deletes,
            "removed-delete-files": len(deletes),
            "removed-dvs": int((kinds == VECTOR).sum()),
            "removed-position-delete-files": int(is_file.sum()),
            "removed-position-deletes": int(records[~is_equality].sum()),
            "removed-equality-delete-files": int(is_equality.sum()),
            "removed-equality-deletes": int(records[is_equality].sum()),
        }
        keys = pa.chunked_array(
            [*self.inputs["key"].chunks, *deletes["key"].chunks, *self._new_keys().chunks], pa.binary()
        )
        summary = {key: number for key, number in counts.items() if number}
        summary |= {"changed-partition-count": len(pc.unique(keys)), _DROPPED_ROWS: dropped_rows}
        differences = {
            "total-records": added_rows - rows,
            "total-files-size": all_added_bytes - counts["removed-files-size"],
            "total-data-files": len(outputs) - len(removed),
            "total-delete-files": len(self.moved) - len(deletes),
            "total-position-deletes": new_deletes - counts["removed-position-deletes"],
            "total-equality-deletes": -counts["removed-equality-deletes"],
        }
        columns = {
            "rewritten_data_files_count": len(removed),
            "added_data_files_count": len(outputs),
            "rewritten_bytes_count": removed_bytes,
            "added_bytes_count": added_bytes,
            "removed_delete_files_count": len(deletes),
            "rewritten_rows_count": added_rows,
            "dropped_rows_count": dropped_rows,
            "remapped_deletes_count": new_deletes,
        }
        return summary, differences, columns
