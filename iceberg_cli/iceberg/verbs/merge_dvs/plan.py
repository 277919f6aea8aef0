"""merge-dvs: what becomes of each delete, by the rules of `choice.py`, in the order in which files must be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import POSITIONS, VECTOR, Bools, Ints
from iceberg_cli.iceberg.branch.head import BranchHead, head_of
from iceberg_cli.iceberg.branch.manifest_headers import losses
from iceberg_cli.iceberg.branch.row_ids import given_again
from iceberg_cli.iceberg.commit.draft import SnapshotDraft
from iceberg_cli.iceberg.commit.summary import carried_totals
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import MAIN
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.merge_dvs import rules
from iceberg_cli.iceberg.verbs.merge_dvs.build import MergeBuild
from iceberg_cli.iceberg.verbs.merge_dvs.choice import (
    Conversion,
    Puffins,
    allowed,
    convert,
    covered,
    idle_equality,
    puffins,
    small,
)
from iceberg_cli.iceberg.verbs.merge_dvs.due import early, reason_of
from iceberg_cli.iceberg.verbs.merge_dvs.index import BEHIND_END, LOST_DELETES, SOUND, DeleteIndex
from iceberg_cli.iceberg.verbs.merge_dvs.policy import VERB_NAME, MergeDvs
from iceberg_cli.iceberg.verbs.merge_dvs.read import DeleteReader
from iceberg_cli.iceberg.verbs.merge_dvs.rules import MOVED, NEW, OUTPUTS_SCHEMA, Merge, MergeSettings
from iceberg_cli.iceberg.verbs.merge_dvs.vectors import MergedVectors
from iceberg_cli.iceberg.verbs.merge_dvs.verdicts import delete_file_verdicts, puffin_verdicts, warnings_of
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Base, Change, Option, Plan, Step, Verdict
from iceberg_cli.plan.where import parse_where

STEP: Final = "merge-dvs main"
WITH_DELETES: Final = 2  # the first format version that has delete files
_PUFFIN = rules.SUBJECTS[VECTOR]


class MergeDvsVerb(Verb):
    """One deletion vector for each data file, few Puffin files, nothing that no data file needs."""

    name: Final = VERB_NAME
    policy: Final = MergeDvs
    result_columns: Final = (
        "rewritten_delete_files_count",
        "added_delete_files_count",
        "rewritten_bytes_count",
        "added_bytes_count",
        "rewritten_puffin_files_count",
        "added_puffin_files_count",
    )

    def plan(
        self,
        table: IcebergTable,
        policy: MergeDvs,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,
    ) -> Planned:
        """The plan for the head of main.

        Raises:
            UsageError: the policy makes no sense. CorruptFile: something that must be read cannot be read whole.
        """
        base = table.base()
        made = plan_on(table, policy, base=base, as_of_ms=as_of_ms, within=within, earlier=earlier)
        return replace(made, plan=table.resolve(made.plan))

    def options(
        self,
        table: IcebergTable,
        policy: MergeDvs,
        *,
        as_of_ms: int,  # noqa: ARG002 - no age decides
    ) -> Mapping[str, Option]:
        """As `Verb`."""
        return rules.settings_of(table.metadata, policy).options


VERB: Final = MergeDvsVerb()


def plan_on(
    table: IcebergTable,
    policy: MergeDvs,
    *,
    base: Base,
    as_of_ms: int,
    metadata: TableMetadata | None = None,
    within: Plan | None = None,
    earlier: Build | None = None,
) -> Planned:
    """The plan, without removals: a merge deletes no file.

    Args:
        table: as loaded last.
        policy: what the operator asked for.
        base: of `table`.
        as_of_ms: for the plan.
        metadata: as it will be when the step's turn comes, such as upgraded; None: as it is.
        within: see `Verb.plan`.
        earlier: see `Verb.plan`.
    """
    metadata = metadata or table.metadata
    settings = rules.settings_of(metadata, policy)
    if within is not None and within.verb == VERB_NAME:
        # A table may be upgraded meanwhile: what was shown below version 3 made no vectors.
        with_vectors = settings.with_vectors and within.table["format_version"] >= rules.WITH_VECTORS
        settings = replace(settings, with_vectors=with_vectors)
    plan = Plan(
        verb=VERB_NAME,
        table=table.describe(),
        base=base,
        as_of_ms=as_of_ms,
        options=settings.options,
        policy=policy.to_json(),
    )
    if metadata.format_version < WITH_DELETES:
        reason = f"the table has format version {metadata.format_version}, which has no delete files"
        return Planned(plan=replace(plan, not_applicable=reason))
    if MAIN not in metadata.refs:
        return Planned(plan=replace(plan, not_applicable="main has no snapshot"))
    head = head_of(table, MAIN)
    if not pc.any(pc.equal(head.rows["content"], 1)).as_py():
        return Planned(plan=replace(plan, not_applicable="main has no delete files"))
    if head.rows["key_metadata"].null_count < len(head.rows):
        return Planned(plan=replace(plan, blocked_by=("the table's manifests are encrypted",)))
    before = earlier if isinstance(earlier, MergeBuild) else None
    # What was read to see what dangles knows no positions, of which vectors are made.
    only_names = not settings.with_vectors
    read = before.reader if before is not None and before.reader.only_names == only_names else None
    reader = DeleteReader(
        table=table,
        metadata=metadata,
        rows=head.rows,
        conditions=() if policy.where is None else parse_where(policy.where),
        only_names=only_names,
        **({} if read is None else {"known_parts": read.index.parts, "kept": read.kept}),
    )
    decided = decide(reader, settings, rules.shown_paths(within))
    plan = replace(plan, verdicts=decided.verdicts, warnings=decided.warnings)
    if not decided.removed.any():
        return Planned(plan=plan)
    # Without the memory of an earlier attempt it is not known where its files are: then all are written anew.
    made = rules.merge(
        reader.index,
        decided.outputs,
        decided.removed,
        target_bytes=settings.target_bytes,
        salted=within is not None and before is None,
    )
    build = MergeBuild(
        reader=reader,
        made=made,
        metadata=metadata,
        written={} if before is None else before.written,
    )
    step = _step(reader.index, made, head, decided.verdicts)
    replaced = sorted({row for job in made.manifests for row in job.replaced})
    lost = losses(table, metadata, head.rows.take(pa.array(replaced, pa.int64())))
    plan = replace(
        plan,
        warnings=(*plan.warnings, *lost.warnings),
        blocked_by=(*head.blocked_by, *given_again(table, table.metadata, head), *lost.blocked_by),
        steps=(step,),
        reason=reason_of(decided.verdicts),
        early=None if policy.min_files is not None else early(decided.verdicts),
    )
    return Planned(plan=plan, build=build)


def _step(index: DeleteIndex, made: Merge, head: BranchHead, verdicts: Sequence[Verdict]) -> Step:
    counted, differences = rules.summary_of(index, made, manifests=len(head.rows))
    replaced = sorted({row for job in made.manifests for row in job.replaced})
    stays = np.ones(len(head.rows), np.bool_)
    stays[replaced] = False
    summary = {key: str(count) for key, count in counted.items()}
    draft = SnapshotDraft(
        ref=head.ref,
        parent_snapshot_id=head.snapshot.snapshot_id,
        operation="replace",
        added=tuple(job.task for job in made.manifests),
        kept=head.rows.filter(pa.array(stays)),
        summary=summary | carried_totals(head.snapshot.summary, differences),
    )
    counts = {
        "rewritten_delete_files_count": counted.get("removed-delete-files", 0),
        "added_delete_files_count": counted.get("added-delete-files", 0),
        "rewritten_bytes_count": counted.get("removed-files-size", 0),
        "added_bytes_count": counted.get("added-files-size", 0),
        "rewritten_puffin_files_count": sum(v.subject == _PUFFIN and not v.keep for v in verdicts),
        "added_puffin_files_count": len(made.puffins),
    }
    return Step(name=STEP, tasks=made.tasks, change=Change(draft=draft, counts=counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeDecision:
    """The deletes that go and the deletion vectors that are written, before they are divided into files."""

    conversion: Conversion
    outputs: pa.Table
    removed: Bools
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]


def decide(
    reader: DeleteReader, settings: MergeSettings, shown: Mapping[int, frozenset[str]] | None
) -> MergeDecision:
    """Decide what becomes of each delete, reading delete files and Puffin files as far as that needs them.

    Args:
        reader: of the base.
        settings: the limits.
        shown: paths that may be touched, by kind of delete; None for all.

    Raises:
        CorruptFile: something cannot be read whole.
    """
    index = reader.read()
    may = allowed(index, shown)
    if not settings.with_vectors:
        return _dangling_only(index, may, settings)
    found = puffins(index, may, keep_dangling=settings.keep_dangling)
    _hold_against_older(reader, found, covered(index, may))
    _block_out_of_range(reader)
    # No file is blocked below that is named by position deletes which may go: the vectors of those are read by now.
    conversion = convert(index, may, keep_dangling=settings.keep_dangling)
    joined = reader.vectors.merge(conversion.targets)
    new = _new_outputs(index, conversion, joined)
    gone = index.dangling & may & (index.kinds == VECTOR) & (not settings.keep_dangling)
    while True:
        # Vectors of blocked files are not moved either.
        found = puffins(index, may, keep_dangling=settings.keep_dangling)
        due, little, dead = _choose(reader, found, new, gone, settings)
        if not _block_out_of_range(reader):
            break
    moving = _vectors_in(found, due | little, gone)
    idle = idle_equality(index, may)
    removed = conversion.leaving | gone
    removed[moving] = True
    if not settings.keep_dangling:
        removed |= idle
    outputs = rules.ordered(pa.concat_tables([new, _moved_outputs(reader, moving)]))
    verdicts = [
        *delete_file_verdicts(index, conversion, may, idle, settings),
        *puffin_verdicts(found, dead, due, little, ~found.movable, settings),
    ]
    outside = _outside(index, conversion.targets)
    warnings = warnings_of(index, conversion.targets, joined.cardinality, outside)
    return MergeDecision(
        conversion=conversion, outputs=outputs, removed=removed, verdicts=tuple(verdicts),
        warnings=tuple(warnings),
    )  # fmt: skip


def _dangling_only(index: DeleteIndex, may: Bools, settings: MergeSettings) -> MergeDecision:
    """Before version 3: remove position delete files that name no live data file but newer ones, nothing else.

    Readers of such a table need no partition, spec or bound to see that: no row of these files applies anywhere.
    """
    leaving = index.dangling & (index.kinds == POSITIONS) & may & (not settings.keep_dangling)
    none = np.empty(0, np.int64)
    conversion = Conversion(leaving=leaving, targets=none, sequence_numbers=none)
    idle = np.zeros_like(leaving)
    verdicts = delete_file_verdicts(index, conversion, may, idle, settings)
    return MergeDecision(
        conversion=conversion, outputs=OUTPUTS_SCHEMA.empty_table(), removed=leaving, verdicts=tuple(verdicts),
        warnings=(),
    )  # fmt: skip


def _hold_against_older(reader: DeleteReader, found: Puffins, files: Ints) -> None:
    """Block data files whose deletion vector lacks an older position delete."""
    index = reader.index
    if not len(files):
        return
    reader.vectors.check(found, np.unique(found.file[index.vector[files]]))
    index.blocked[reader.vectors.missing(files)] = LOST_DELETES


def _block_out_of_range(reader: DeleteReader) -> bool:
    """Block the data files of vectors, of those read so far, with positions behind the end; whether any is new.

    Readers ignore such positions, but whoever wrote them may have meant another file.
    """
    index = reader.index
    named = index.vector_data[np.array(sorted(reader.vectors.out_of_range), np.int64)]
    files = named[index.blocked[named] == SOUND]
    index.blocked[files] = BEHIND_END
    return bool(len(files))


def _vectors_in(found: Puffins, files: Bools, gone: Bools) -> Ints:
    """The deletion vectors of some Puffin files that stay in the table."""
    rows: Ints = np.flatnonzero(np.isin(found.file, np.flatnonzero(files)) & ~gone)
    return rows


def _choose(
    reader: DeleteReader, found: Puffins, new: pa.Table, gone: Bools, settings: MergeSettings
) -> tuple[Bools, Bools, Ints]:
    """Which Puffin files are written again because they are dead in good part, which because they are small."""
    limits = {"target_bytes": settings.target_bytes, "min_files": settings.min_files}
    # Small files that are enough by themselves are read at the same time.
    enough = small(found, np.zeros(len(found.paths), np.bool_), 0, **limits)
    reader.vectors.check(found, np.flatnonzero(found.suspects(settings.dead_ratio) | enough))
    dead = reader.vectors.dead_bytes(found)
    known = dead >= 0
    dead[known] += _going_bytes(reader.index, found)[known]
    due = found.movable & known & (dead >= settings.dead_ratio * found.file_bytes) & (found.weight > 0)
    certain = pa.concat_tables([new, _moved_outputs(reader, _vectors_in(found, due, gone))])
    last = rules.last_weight(rules.ordered(certain), settings.target_bytes)
    little = small(found, due, last, **limits)
    reader.vectors.check(found, np.flatnonzero(little))
    return due, little, dead


def _going_bytes(index: DeleteIndex, found: Puffins) -> Ints:
    """Bytes of each Puffin file in live deletion vectors that are removed."""
    rows = np.flatnonzero(index.kinds == VECTOR)
    sizes = np.zeros(len(found.vectors), np.int64)
    np.add.at(sizes, found.file[rows], index.column("size")[rows])
    going: Ints = sizes - found.live_bytes
    return going


def _outside(index: DeleteIndex, targets: Ints) -> Ints:
    """Which of `targets` have position deletes behind their end."""
    mine = np.flatnonzero(np.isin(index.part_data, targets))
    records = index.data["record_count"].to_numpy()
    last = index.parts["last"].to_numpy()
    files: Ints = np.unique(index.part_data[mine[last[mine] >= records[index.part_data[mine]]]])
    return files


def _new_outputs(index: DeleteIndex, conversion: Conversion, joined: MergedVectors) -> pa.Table:
    kept = joined.cardinality > 0
    files = conversion.targets[kept]
    data = index.data.take(pa.array(files))
    applied = np.flatnonzero(index.part_data >= 0)
    spec_of = np.zeros(len(index.data), np.int32)
    spec_of[index.part_data[applied]] = index.deletes["spec_id"].to_numpy()[index.part_delete[applied]]
    columns = {
        "origin": np.full(len(files), NEW, np.int8),
        "row": files,
        "ref": data["path"],
        "key": data["key"],
        "spec_id": spec_of[files],
        "sequence_number": conversion.sequence_numbers[kept],
        "cardinality": joined.cardinality[kept],
        "size": joined.size[kept],
        "crc": pa.array(
            [crc for crc, keep in zip(joined.crc, kept.tolist(), strict=True) if keep], pa.binary()
        ),
        "sum": joined.sums[kept],
        "last_row": data["record_count"].to_numpy() - 1,
    }
    return pa.table(columns, schema=OUTPUTS_SCHEMA)


def _moved_outputs(reader: DeleteReader, rows: Ints) -> pa.Table:
    index = reader.index
    deletes = index.deletes.take(pa.array(rows))
    named = index.vector_data[rows]
    records = np.append(index.data["record_count"].to_numpy(), 0)
    columns = {
        "origin": np.full(len(rows), MOVED, np.int8),
        "row": rows,
        "ref": deletes["ref"],
        "key": deletes["key"],
        "spec_id": deletes["spec_id"],
        "sequence_number": deletes["sequence_number"],
        "cardinality": deletes["record_count"],
        "size": deletes["size"],
        "crc": pa.array(reader.vectors.crc(rows), pa.binary()),
        "sum": np.zeros(len(rows), np.uint64),
        "last_row": records[named] - 1,
    }
    return pa.table(columns, schema=OUTPUTS_SCHEMA)
