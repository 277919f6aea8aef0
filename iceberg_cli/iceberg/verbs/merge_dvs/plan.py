"""merge-dvs: what it reads to plan, and how it writes Puffin files and delete manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.commit.draft import SnapshotDraft
from iceberg_cli.iceberg.commit.summary import carried_totals
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.spec.snapshot import MAIN
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.branch import BranchHead, head_of
from iceberg_cli.iceberg.verbs.manifest_headers import losses
from iceberg_cli.iceberg.verbs.merge_dvs import rules as merge_dvs
from iceberg_cli.iceberg.verbs.merge_dvs import settings as merge_settings
from iceberg_cli.iceberg.verbs.merge_dvs.columns import VECTOR
from iceberg_cli.iceberg.verbs.merge_dvs.decide import decide
from iceberg_cli.iceberg.verbs.merge_dvs.index import DeleteIndex
from iceberg_cli.iceberg.verbs.merge_dvs.policy import VERB_NAME, MergeDvs
from iceberg_cli.iceberg.verbs.merge_dvs.read import DeleteReader
from iceberg_cli.iceberg.verbs.merge_dvs.rules import Merge
from iceberg_cli.iceberg.verbs.merge_dvs.where import parse_where
from iceberg_cli.iceberg.verbs.merge_dvs.write import MergeBuild
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.plan import Base, Change, Plan, Step, Verdict

STEP: Final = "merge-dvs main"
WITH_DELETES: Final = 2  # the first format version that has delete files
_PUFFIN = merge_dvs.SUBJECTS[VECTOR]


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
        base = table.load()
        made = plan_on(table, policy, base=base, as_of_ms=as_of_ms, within=within, earlier=earlier)
        return replace(made, plan=table.resolve(made.plan))


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
    settings = merge_settings.settings_of(metadata, policy)
    if within is not None and within.verb == VERB_NAME:
        # A table may be upgraded meanwhile: what was shown below version 3 made no vectors.
        with_vectors = settings.with_vectors and within.table["format_version"] >= merge_settings.WITH_VECTORS
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
    decided = decide(reader, settings, merge_dvs.shown_paths(within))
    plan = replace(plan, verdicts=decided.verdicts, warnings=decided.warnings)
    if not decided.removed.any():
        return Planned(plan=plan)
    # Without the memory of an earlier attempt it is not known where its files are: then all are written anew.
    made = merge_dvs.merge(
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
        blocked_by=(*head.blocked_by, *lost.blocked_by),
        steps=(step,),
    )
    return Planned(plan=plan, build=build)


def _step(index: DeleteIndex, made: Merge, head: BranchHead, verdicts: Sequence[Verdict]) -> Step:
    counted, differences = merge_dvs.summary_of(index, made, manifests=len(head.rows))
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
