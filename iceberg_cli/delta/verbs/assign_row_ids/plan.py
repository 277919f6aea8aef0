"""assign-row-ids on Delta: which files have no ids, how many rows they have, and the steps that follow.

Steps: `declare`, `backfill 0`, `backfill 1`, ..., `enable`, each where it is due. A plan that takes the place of
another one has a step under each name that that one lists, all of them with the files that are first now: whichever of
them is carried out next takes the next files, and those whose turn comes when none are left have nothing to do. So
every batch is made on the table as it is then: files that others removed are not added again, and ids are above the
newest mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.paths import physical_column
from iceberg_cli.delta.spec.row_ids import (
    DOMAIN_FEATURE,
    ENABLED,
    FEATURE,
    SUSPENDED,
    UNKNOWN,
    high_water_mark,
    ids_problem,
    record_counts,
    without_row_ids,
)
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.assign_row_ids import rules
from iceberg_cli.delta.verbs.assign_row_ids.policy import VERB_NAME, AssignRowIds
from iceberg_cli.delta.verbs.assign_row_ids.rules import DECLARE, ENABLE, FilesWithoutIds
from iceberg_cli.delta.verbs.upgrade_v3 import rules as upgrade
from iceberg_cli.encoding.parquet import (
    PARQUET_TAIL_BYTES,
    UnknownRowCount,
    parquet_footer_bytes,
    parquet_rows,
)
from iceberg_cli.engines import Event, OnEvent
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.operation.ports import Build, Planned, Verb, nothing_to_build
from iceberg_cli.plan.plan import Change, Option, Plan, StagedFile, Step, Task, Verdict
from iceberg_cli.storage import Storage

_THREADS: Final = 16
_EXAMPLES: Final = 3
_DECLARED: Final = "row tracking is declared"


def rows_of(storage: Storage, files: Sequence[tuple[str, int]], on_event: OnEvent) -> list[int]:
    """The rows of n Parquet files.

    Args:
        storage: where they are.
        files: storage paths, and sizes in bytes as the log has them.
        on_event: progress.

    Raises:
        CorruptFile: a file is gone, or is no Parquet file of this size.
        Refused: a footer cannot be read here.
        BackendUnavailable.
    """
    phase = "counting rows"
    counts = []
    on_event(Event(phase=phase, done=0, total=len(files)))
    with ThreadPoolExecutor(_THREADS) as threads:
        for count in threads.map(lambda file: _rows(storage, *file), files):
            counts.append(count)
            on_event(Event(phase=phase, done=len(counts), total=len(files)))
    return counts


def _rows(storage: Storage, path: str, size_bytes: int) -> int:
    start = max(0, size_bytes - PARQUET_TAIL_BYTES)
    try:
        # One byte more shows a file that is longer than the log says.
        tail = storage.read(path, (start, size_bytes - start + 1))
        footer_bytes = (
            parquet_footer_bytes(tail, size_bytes, path) if len(tail) == size_bytes - start else None
        )
        if footer_bytes is None:
            raise CorruptFile(path, size_bytes, f"a Parquet file of {size_bytes} bytes does not end there")
        if footer_bytes > len(tail):
            tail = storage.read(path, (size_bytes - footer_bytes, footer_bytes))
    except FileNotFoundError:
        raise CorruptFile(path, None, "the table needs this file and it is not there") from None
    rows = parquet_rows(tail)
    if isinstance(rows, UnknownRowCount):
        # Its frame is whole: another reader may know what this one does not.
        raise Refused(
            f"Cannot count the rows of {path}: its footer {rows.reason.removeprefix('it ')}",
            next_step="Have an engine that reads the file write it anew, or leave out --count-rows.",
        )
    return rows


@dataclass(frozen=True, slots=True)
class _RowCounts:
    """A build of no files that remembers rows that were counted, by storage path: a file never changes."""

    rows: dict[str, int] = field(default_factory=dict)

    def __call__(self, step: Step, paths: Mapping[Task, str]) -> Mapping[Task, StagedFile]:
        """Never called: no step has a task."""
        return nothing_to_build(step, paths)


class AssignRowIdsVerb(Verb):
    """Gives row ids to the files that have none, and enables row tracking."""

    name: Final = VERB_NAME
    policy: Final = AssignRowIds
    result_columns: Final = ("assigned_rows_count", "assigned_files_count")

    def plan(
        self,
        table: DeltaTable,
        policy: AssignRowIds,
        *,
        as_of_ms: int,
        within: Plan | None = None,
        earlier: Build | None = None,
    ) -> Planned:
        """The steps that are due.

        Raises:
            UsageError: the policy makes no sense. CorruptFile: statistics, the high-water mark or a footer cannot be
            read.
        """
        base = table.base()
        snapshot = table.snapshot
        counted = earlier if isinstance(earlier, _RowCounts) else _RowCounts()
        files = _files(table, policy, counted)
        options = _options(policy)
        size = options["batch_size"].value
        plan = Plan(
            verb=VERB_NAME,
            table=table.describe(),
            base=base,
            as_of_ms=as_of_ms,
            options=options,
            policy=policy.to_json(),
            # What an earlier plan lists bounds this one by its steps: ids are given to whatever file has none then.
            verdicts=_verdicts(snapshot, files) if within is None else within.verdicts,
        )
        blocked = _blocked_by(snapshot, files)
        if files.adds.num_rows and (again := table.repeated_add()):
            blocked = (*blocked, again)
        names = _names(snapshot, files, size, within)
        if blocked:
            steps = tuple(Step(name=name) for name in names)
        else:
            steps = tuple(_steps(snapshot, files, names, size, again=within is not None))
        plan = replace(plan, steps=steps, blocked_by=blocked if steps else ())
        return Planned(plan=table.resolve(plan), build=counted)

    def options(
        self,
        table: DeltaTable,  # noqa: ARG002 - no property decides
        policy: AssignRowIds,
        *,
        as_of_ms: int,  # noqa: ARG002 - no age decides
    ) -> Mapping[str, Option]:
        """As `Verb`."""
        return _options(policy)


VERB: Final = AssignRowIdsVerb()


def _options(policy: AssignRowIds) -> dict[str, Option]:
    return {
        "batch_size": policy.chosen("batch_size", rules.DEFAULT_BATCH_SIZE),
        "count_rows": policy.chosen("count_rows"),
        **policy.chosen_or_none("allow_writer_loss"),
    }


# -- what lacks ids --------------------------------------------------------------------------------------------


def _files(table: DeltaTable, policy: AssignRowIds, counted: _RowCounts) -> FilesWithoutIds:
    """The files without ids; footers are read where that is asked for and statistics do not tell."""
    adds = table.snapshot.adds
    missing = adds.filter(pa.array(without_row_ids(adds))).combine_chunks()
    rows = record_counts(missing)
    unknown = rows == UNKNOWN
    if policy.count_rows and unknown.any():
        chosen = missing.filter(pa.array(unknown))
        paths = physical_column(chosen.column("path"), table.root).to_pylist()
        sizes = dict(zip(paths, chosen.column("size").to_pylist(), strict=True))
        new = [path for path in sizes if path not in counted.rows]
        found = rows_of(table.storage, [(path, sizes[path]) for path in new], table.on_event)
        counted.rows.update(zip(new, found, strict=True))
        rows[unknown] = [counted.rows[path] for path in paths]
    return FilesWithoutIds(adds=missing, rows=rows, counted=unknown & (rows != UNKNOWN))


def _declared(snapshot: Snapshot) -> bool:
    return supports(snapshot.protocol, FEATURE) and supports(snapshot.protocol, DOMAIN_FEATURE)


def _enabled(snapshot: Snapshot) -> bool:
    """Whether nothing is left to be set: the property, and the names that it needs."""
    on = _declared(snapshot) and snapshot.metadata.property_bool(ENABLED, default=False)
    return on and rules.has_column_names(snapshot.metadata)


def _blocked_by(snapshot: Snapshot, files: FilesWithoutIds) -> tuple[str, ...]:
    """Why no file may get ids."""
    reasons = []
    if snapshot.metadata.property_bool(SUSPENDED, default=False):
        reasons.append(f"row tracking is suspended: {SUSPENDED} is true")
    if (unknown := files.rows == UNKNOWN).any():
        names = files.adds.column("path").filter(pa.array(unknown)).to_pylist()
        more = f" and {len(names) - _EXAMPLES:,} more" if len(names) > _EXAMPLES else ""
        reasons.append(
            f"the statistics of {', '.join(names[:_EXAMPLES])}{more} do not tell how many rows there are: "
            "--count-rows reads the footers of such files"
        )
    problem = ids_problem(snapshot)
    return (*reasons, *([] if problem is None else [problem]))


def _verdicts(snapshot: Snapshot, files: FilesWithoutIds) -> tuple[Verdict, ...]:
    declared, enabled, count = _declared(snapshot), _enabled(snapshot), files.adds.num_rows
    mark = high_water_mark(snapshot)
    if not count:
        reason = f"each of {snapshot.adds.num_rows:,} files has them; the high-water mark is {mark}"
    elif (files.rows == UNKNOWN).any():
        reason = f"{count:,} of {snapshot.adds.num_rows:,} files have none"
    else:
        fresh = int(files.rows[pc.is_null(files.adds.column("baseRowId")).to_numpy()].sum())
        ids = f", ids {mark + 1} to {mark + fresh}" if fresh else ""
        reason = f"{count:,} of {snapshot.adds.num_rows:,} files have none: {fresh:,} rows{ids}"
    return (
        Verdict(
            subject="feature",
            id=FEATURE,
            keep=declared,
            reason="the table has it" if declared else f"it is added, with {DOMAIN_FEATURE}",
        ),
        Verdict(subject="row-ids", id="of files", keep=not count, reason=reason),
        Verdict(
            subject="property",
            id=ENABLED,
            keep=enabled,
            reason=_property_reason(snapshot),
        ),
    )


def _property_reason(snapshot: Snapshot) -> str:
    if not snapshot.metadata.property_bool(ENABLED, default=False):
        return "it is set to true once every file has row ids"
    if not supports(snapshot.protocol, FEATURE):
        return f"it is true without {FEATURE}: it is set to false, and to true once every file has row ids"
    if not rules.has_column_names(snapshot.metadata):
        return "it is true, and the names of the columns that it needs are added"
    return "it is true"


# -- steps -----------------------------------------------------------------------------------------------------


def _names(snapshot: Snapshot, files: FilesWithoutIds, size: int, within: Plan | None) -> tuple[str, ...]:
    """The steps that are due, in order; while files are left, all batches that a plan lists which was shown."""
    before = None if within is None else [step.name for step in within.steps]
    count = files.adds.num_rows
    batches = rules.step_names(count, size)
    if before is not None:
        batches = rules.shown_batches(before) if count else ()
    names = (
        *(() if _declared(snapshot) else (DECLARE,)),
        *batches,
        *(() if _enabled(snapshot) else (ENABLE,)),
    )
    if before is None:
        return names
    left = tuple(name for name in names if name in before)
    # Without the feature no file may get ids: where another writer dropped it again, there is nothing to go on with.
    return left if _declared(snapshot) or DECLARE in left else ()


def _steps(
    snapshot: Snapshot, files: FilesWithoutIds, names: Sequence[str], size: int, *, again: bool
) -> list[Step]:
    """The steps of these names.

    Args:
        snapshot: the base.
        files: without ids.
        names: of the steps.
        size: files in a batch.
        again: whether each step is made as if it came next; else each as if those before it had been carried out.
    """
    mark, start = high_water_mark(snapshot), 0
    steps: list[Step] = []
    batch = None
    for name in names:
        change = requires = None
        if name == DECLARE:
            names_of_features = (FEATURE, DOMAIN_FEATURE)
            updates = upgrade.updates_for(snapshot.protocol, snapshot.metadata, names_of_features)
            change = Change(updates=updates)
        elif again and DECLARE in names:
            # Without the feature no file may get ids. The step is made once `declare` has committed; where another
            # writer dropped the feature after that, it does nothing.
            requires = _DECLARED
        elif name == ENABLE:
            left = rules.numbered(snapshot, files.batch(start, files.adds.num_rows), mark=mark)
            change = rules.enable(snapshot, left)
            requires = "every file has row ids" if len(names) > 1 else None
        else:
            if batch is None or not again:
                batch = rules.numbered(snapshot, files.batch(start, size), mark=mark)
            change = rules.backfill(batch, name)
            requires = _DECLARED if DECLARE in names else None
            if not again:
                start, mark = start + size, batch.mark
        steps.append(Step(name=name, requires=requires, change=change))
    return steps
