"""merge-dvs on Delta: what it reads to plan, and how it writes files of deletion vectors.

The bytes of each vector are copied: checked as they are read, checked again in the new file, and that is read back.
Old files are left to expire-snapshots. A plan that takes the place of another one touches only files that that one
lists; each vector is chosen from the newest snapshot, so what other writers committed meanwhile is looked at by the
same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.commit import CommitDraft
from iceberg_cli.delta.spec.columns import removes_of
from iceberg_cli.delta.spec.features import VECTORS, VECTORS_PROPERTY, supports, takes_deletion_vectors
from iceberg_cli.delta.spec.row_ids import (
    ENABLED,
    FEATURE,
    PRESERVED,
    SUSPENDED,
    UNKNOWN,
    Int64s,
    domain_action,
    high_water_mark,
    ids_problem,
    with_fresh_ids,
    without_row_ids,
)
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.vectors import (
    FRAME_BYTES,
    Vector,
    VectorFile,
    read_inline,
    read_vectors,
)
from iceberg_cli.delta.stored_vectors import vectors_task, write_vectors
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.merge_dvs import rules
from iceberg_cli.delta.verbs.merge_dvs.policy import VERB_NAME, MergeDvs
from iceberg_cli.delta.verbs.merge_dvs.rules import INLINE, MergeChoice, Vectors
from iceberg_cli.engines import Scan, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.paths import Roots
from iceberg_cli.plan.plan import Change, Option, Plan, StagedFile, Step, Task, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedFile:
    """One new file: the indices of its vectors, and the adds of their files but for where the vectors are."""

    indices: Int64s
    adds: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBuild:
    """The build of a merge."""

    table: DeltaTable
    vectors: Vectors
    file_bytes: Int64s
    outputs: Mapping[Task, MergedFile]

    def __call__(self, _step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
        """Write the new files of some tasks, each once its vectors are read.

        Raises:
            CorruptFile: a vector is not sound, or is read back differently. BackendUnavailable.
        """
        targets = [task for task in self.outputs if task in paths]
        indices = [index for task in targets for index in self.outputs[task].indices.tolist()]
        frames = _frames(self, np.array(indices, np.int64))
        staged = {}
        for task in targets:
            output = self.outputs[task]
            taken = [next(frames) for _ in range(len(output.indices))]
            own = [Vector(*each) for each in self.vectors.descriptors(output.indices).tolist()]
            staged[task] = write_vectors(self.table.storage, paths[task], output.adds, taken, own)
        return staged


def _frames(build: MergeBuild, indices: Int64s) -> Iterator[bytes]:
    """The frames of vectors, checked, in the order of `indices`: those in files by file, those in the log last."""
    vectors = build.vectors
    in_files = indices[vectors.file[indices] != INLINE]
    files, starts = np.unique(vectors.file[in_files], return_index=True)
    stops = [*starts.tolist(), len(in_files)][1:]
    items = [
        (vectors.paths[file], int(build.file_bytes[file]), start, stop)
        for file, start, stop in zip(files.tolist(), starts.tolist(), stops, strict=True)
    ]
    descriptors = vectors.descriptors(in_files)

    def parse(batch: Sequence[tuple[tuple[str, int, int, int], bytes | None]]) -> list[list[bytes]]:
        """The frames of each file's vectors; in another process maybe."""
        return read_vectors(
            [
                VectorFile(path, data or b"", [Vector(*each) for each in descriptors[start:stop].tolist()])
                for (path, _, start, stop), data in batch
            ]
        )

    batches = build.table.engine.scan(
        Scan(
            lambda item: Source(item[0], item[1]),
            lambda _, data: data,
            parse,
            phase="reading deletion vectors",
        ),
        items,
        on_event=build.table.on_event,
    )
    for batch in batches:
        for frames in batch:
            yield from frames
    inline = indices[vectors.file[indices] == INLINE]
    structs = vectors.adds.column("deletionVector").combine_chunks()
    for index, each in zip(inline.tolist(), vectors.descriptors(inline).tolist(), strict=True):
        text = structs[index]["pathOrInlineDv"].as_py()
        yield read_inline(text, Vector(*each), vectors.adds.column("path")[index].as_py())


COMMITTED_AS: Final = "COMPACT DELETION VECTORS"
SUBJECT: Final = "deletion-vector-file"
INLINE_SUBJECT: Final = "deletion-vectors-in-the-log"
DEFAULT_TARGET_BYTES: Final = 2 << 20  # as Delta Lake packs them
DEFAULT_MIN_FILES: Final = 5
DEFAULT_DEAD_RATIO: Final = 0.3

_IN_LOG: Final = "_delta_log"
_EXAMPLES: Final = 3


class MergeDvsVerb(Verb):
    """Copies deletion vectors from many small, or mostly dead, files and from the log into few files."""

    name: Final = VERB_NAME
    policy: Final = MergeDvs
    result_columns: Final = (
        "rewritten_deletion_vectors_count",
        "rewritten_deletion_vector_files_count",
        "added_deletion_vector_files_count",
        "rewritten_bytes_count",
        "added_bytes_count",
    )

    def plan(
        self,
        table: DeltaTable,
        policy: MergeDvs,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """One step, if files are worth writing anew.

        Raises:
            UsageError: the policy makes no sense. CorruptFile: a file of vectors is gone or too short, or what an add
            says of its vector makes no sense.
        """
        base = table.base()
        snapshot = table.snapshot
        options = _options(policy)
        plan = Plan(
            verb=VERB_NAME,
            table=table.describe(),
            base=base,
            as_of_ms=as_of_ms,
            options=options,
            policy=policy.to_json(),
        )
        vectors = rules.vectors_of(snapshot.adds, table.root)
        if not len(vectors.file):
            reason = "the table has no deletion vectors"
            return Planned(plan=table.resolve(replace(plan, not_applicable=reason)))
        file_bytes = _sizes(table, vectors)
        own = np.asarray(Roots.of((), allowed=[table.root]).own_column(pa.array(vectors.paths, pa.string())))
        choice = rules.choose(
            vectors,
            file_bytes,
            may=own & _listed(vectors, within),
            may_inline=within is None or _goes(within, INLINE_SUBJECT, _IN_LOG),
            target_bytes=options["target_size_bytes"].value,
            # What was shown goes on while there is anything to join, also where another writer took some of it.
            min_files=options["min_files"].value if within is None else 0,
            dead_ratio=options["dead_ratio"].value,
        )
        plan = replace(plan, verdicts=tuple(_verdicts(vectors, choice, file_bytes, own)))
        if not choice.moved.any():
            return Planned(plan=table.resolve(plan))
        reasons = _blocked_by(snapshot, vectors, choice)
        cut = rules.outputs(vectors, choice.moved, target_bytes=options["target_size_bytes"].value)
        outputs: Mapping[Task, MergedFile] = {}
        step = Step(name=VERB_NAME)
        if not reasons:
            step, outputs = _step(snapshot, vectors, choice, file_bytes, cut)
        plan = table.resolve(replace(plan, steps=(step,), blocked_by=reasons))
        build = MergeBuild(table=table, vectors=vectors, file_bytes=file_bytes, outputs=outputs)
        return Planned(plan=plan, build=build)

    def options(
        self,
        table: DeltaTable,  # noqa: ARG002 - no property decides
        policy: MergeDvs,
        *,
        as_of_ms: int,  # noqa: ARG002 - no age decides
    ) -> Mapping[str, Option]:
        """As `Verb`."""
        return _options(policy)


VERB: Final = MergeDvsVerb()


# -- planning --------------------------------------------------------------------------------------------------


def _options(policy: MergeDvs) -> dict[str, Option]:
    return {
        **policy.chosen_or_none("allow_writer_loss"),
        "target_size_bytes": policy.chosen("target_size", DEFAULT_TARGET_BYTES),
        "min_files": policy.chosen("min_files", DEFAULT_MIN_FILES),
        "dead_ratio": policy.chosen("dead_ratio", DEFAULT_DEAD_RATIO),
    }


def _sizes(table: DeltaTable, vectors: Vectors) -> Int64s:
    sizes = np.empty(len(vectors.paths), np.int64)
    for file_index, info in enumerate(table.storage.stat_many(vectors.paths)):
        if info is None:
            raise CorruptFile(
                vectors.paths[file_index], None, "the table needs this file and it is not there"
            )
        sizes[file_index] = info.size_bytes
    return sizes


def _listed(vectors: Vectors, within: Plan | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which files a plan that was shown writes anew; all where there is none."""
    if within is None:
        return np.ones(len(vectors.paths), np.bool_)
    going = {verdict.id for verdict in within.verdicts if verdict.subject == SUBJECT and not verdict.keep}
    return np.array([path in going for path in vectors.paths], np.bool_)


def _goes(shown: Plan, subject: str, name: str) -> bool:
    return any(v.subject == subject and v.id == name and not v.keep for v in shown.verdicts)


def _verdicts(
    vectors: Vectors, choice: MergeChoice, file_bytes: Int64s, own: np.ndarray[Any, np.dtype[np.bool_]]
) -> Iterator[Verdict]:
    """One for each file, and one for the vectors in the log."""
    there = vectors.file != INLINE
    counts = np.bincount(vectors.file[there], minlength=len(vectors.paths)).tolist()
    for index, path in enumerate(vectors.paths):
        size, dead, number = int(file_bytes[index]), int(choice.dead[index]), counts[index]
        reason = f"{number:,} vectors in {size:,} bytes, {dead:,} of them dead"
        gist = "a good part of its bytes is dead"
        if not own[index]:
            gist = "outside the table's folder: another table may own it"
            reason = f"{gist}; {reason}"
        elif choice.small[index]:
            reason, gist = f"small: {reason}", "small"
        elif not choice.files[index]:
            reason, gist = f"nothing to gain: {reason}", "nothing to gain"
        yield Verdict(subject=SUBJECT, id=path, keep=not choice.files[index], reason=reason, gist=gist)
    inline = int((~there).sum())
    if inline:
        size = int(vectors.size_bytes[~there].sum())
        reason = f"{inline:,} vectors of {size:,} bytes, which every checkpoint carries"
        moved = bool(choice.moved[~there].any())
        yield Verdict(subject=INLINE_SUBJECT, id=_IN_LOG, keep=not moved, reason=reason)


def _blocked_by(snapshot: Snapshot, vectors: Vectors, choice: MergeChoice) -> tuple[str, ...]:
    """Why nothing may be merged."""
    reasons = []
    if not takes_deletion_vectors(snapshot.protocol, snapshot.metadata):
        reasons.append(
            f"new deletion vectors are not enabled: {VECTORS_PROPERTY} is not true; `upgrade-v3 --feature {VECTORS}` "
            "sets it"
        )
    moved = vectors.adds.filter(pa.array(choice.moved))
    if (uncounted := vectors.rows[choice.moved] == UNKNOWN).any():
        reasons.append(
            f"{_files(moved.filter(pa.array(uncounted)))} with deletion vectors have no numRecords in their "
            "statistics, without which Delta does not allow one"
        )
    if not reasons and _numbers(snapshot) and without_row_ids(moved).any():
        problem = ids_problem(snapshot)
        reasons += [] if problem is None else [problem]
    return tuple(reasons)


def _files(adds: pa.Table) -> str:
    names = adds.column("path").to_pylist()
    more = f" and {len(names) - _EXAMPLES:,} more" if len(names) > _EXAMPLES else ""
    return f"{', '.join(names[:_EXAMPLES])}{more}"


def _step(
    snapshot: Snapshot, vectors: Vectors, choice: MergeChoice, file_bytes: Int64s, cut: Sequence[Int64s]
) -> tuple[Step, Mapping[Task, MergedFile]]:
    """The step, and what each of its tasks writes."""
    moved = np.concatenate(cut)
    before = vectors.adds.take(pa.array(moved))
    adds, domain = _numbered(snapshot, before, vectors.rows[moved])
    outputs: dict[Task, MergedFile] = {}
    start = 0
    for indices in cut:
        mine = adds.slice(start, len(indices))
        start += len(indices)
        files = np.unique(vectors.file[indices])
        inputs = tuple(vectors.paths[file] if file != INLINE else _IN_LOG for file in files.tolist())
        task = vectors_task(mine, inputs=inputs)
        outputs[task] = MergedFile(indices=indices, adds=mine)
    count = len(moved)
    numbers = dict.fromkeys(("Added", "Removed", "Updated"), count)
    info: dict[str, Any] = {
        "operation": COMMITTED_AS,
        "operationParameters": {},
        "operationMetrics": {f"numDeletionVectors{kind}": number for kind, number in numbers.items()},
    }
    if snapshot.metadata.property_bool(ENABLED, default=False):
        info["tags"] = {PRESERVED: "true"}
    removes = removes_of(before, vectors.rows[moved])
    counts = {
        "rewritten_deletion_vectors_count": count,
        "rewritten_deletion_vector_files_count": int(choice.files.sum()),
        "added_deletion_vector_files_count": len(cut),
        "rewritten_bytes_count": int(file_bytes[choice.files].sum()),
        "added_bytes_count": int((vectors.size_bytes[moved] + FRAME_BYTES).sum()) + len(cut),
    }
    step = Step(
        name=VERB_NAME,
        tasks=tuple(outputs),
        change=Change(
            updates=({"commitInfo": info}, *domain),
            draft=CommitDraft(removes=removes, facts={"adds": count}),
            counts=counts,
        ),
    )
    return step, outputs


def _numbers(snapshot: Snapshot) -> bool:
    """Whether what is added gets row ids: the table supports them, and does not suspend giving them."""
    suspended = snapshot.metadata.property_bool(SUSPENDED, default=False)
    return supports(snapshot.protocol, FEATURE) and not suspended


def _numbered(
    snapshot: Snapshot, adds: pa.Table, rows: Int64s
) -> tuple[pa.Table, tuple[Mapping[str, Any], ...]]:
    """The adds with row ids where the table must give them to what is added, and the action with the mark then."""
    if not _numbers(snapshot) or not without_row_ids(adds).any():
        return adds, ()
    mark = high_water_mark(snapshot)
    numbered, then = with_fresh_ids(adds, rows, mark=mark)
    return numbered, (domain_action(snapshot, then),) if then > mark else ()
