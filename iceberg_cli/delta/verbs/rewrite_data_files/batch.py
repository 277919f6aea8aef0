"""The commit of groups that are rewritten: which of them still can be committed, and its actions.

States are compared, and not what others did: whether each input is live as it was when it was read, with the same
deletion vector and the same row ids, and whether the table still asks for files such as were written.

Spec: Delta protocol, "Add File and Remove File", "Deletion Vectors", "Row Tracking", "Commit Provenance Information".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.commit import CommitDraft
from iceberg_cli.delta.spec.columns import ADD, dv_ids, removes_of, table_of
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.row_ids import FEATURE, PRESERVED, domain_action, high_water_mark, with_fresh_ids
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.rewrite_data_files.group import RewrittenGroup
from iceberg_cli.delta.verbs.rewrite_data_files.settings import keeps_row_ids, table_digest
from iceberg_cli.errors import Refused
from iceberg_cli.operation.groups.ports import Batch
from iceberg_cli.operation.groups.results import GroupResult
from iceberg_cli.plan.plan import Change, Plan, Step

COMMITTED_AS: Final = "OPTIMIZE"
_CHANGED: Final = "the table has another schema, protocol or configuration by now"
_PARAMETERS: Final = {"predicate": "[]", "auto": "false", "clusterBy": "[]", "zOrderBy": "[]"}


def changed(table: DeltaTable, plan: Plan, numbers: Sequence[int]) -> Mapping[int, str]:
    """Which of some groups are not what the table as loaded last has of their files; see `GroupVerb`."""
    assert plan.groups is not None
    return _compared(table.snapshot, plan.groups.inputs_of(numbers))[0]


def batch_of(
    table: DeltaTable,
    plan: Plan,
    results: Sequence[GroupResult],
    *,
    committed: Collection[int],  # noqa: ARG001 - what came too late for these is not looked for
) -> Batch:
    """The commit of finished groups on the table as loaded last; see `GroupVerb`.

    Raises:
        CorruptFile: a result is none, or the row ids of the table are damaged. Refused: a result is not what it says.
    """
    assert plan.groups is not None
    snapshot = table.snapshot
    groups = {each.number: _group_of(each) for each in results}
    inputs = plan.groups.inputs_of([*groups])
    dropped, places = _compared(snapshot, inputs)
    digest = table_digest(snapshot)
    dropped |= {number: _CHANGED for number, group in groups.items() if group.table_digest != digest}
    kept = {number: group for number, group in groups.items() if number not in dropped}
    if not kept:
        return Batch(step=None, dropped=dropped)
    stays = ~np.isin(inputs["group"].to_numpy(), [*dropped])
    before = snapshot.adds.take(pa.array(places[stays]))
    numbers = inputs["group"].to_numpy()[stays]
    rows = np.concatenate([np.array(group.input_rows, np.int64) for group in _in_order(kept, numbers)])
    adds = _adds(table, before, numbers, kept)
    domain: tuple[dict[str, Any], ...] = ()
    if supports(snapshot.protocol, FEATURE):
        counts = np.array([each.record_count for group in kept.values() for each in group.outputs], np.int64)
        adds, mark = with_fresh_ids(adds, counts, mark=high_water_mark(snapshot))
        domain = (domain_action(snapshot, mark),) if len(adds) else ()
    info = {
        "operation": COMMITTED_AS,
        "operationParameters": _PARAMETERS,
        "operationMetrics": _metrics(before, adds),
    }
    if keeps_row_ids(snapshot):
        info["tags"] = {PRESERVED: "true"}
    change = Change(
        updates=({"commitInfo": info}, *domain),
        draft=CommitDraft(adds=adds, removes=removes_of(before, rows)),
        counts=_counts(before, adds, kept),
    )
    return Batch(step=Step(name=plan.steps[-1].name, change=change), dropped=dropped)


def _group_of(result: GroupResult) -> RewrittenGroup:
    path = f"the result of group {result.number}"
    found = RewrittenGroup.from_json(result.content, path)
    if tuple(each.path for each in found.outputs) != result.paths:
        raise Refused(f"Cannot commit {path}: it names other files than were written")
    return found


def _in_order(groups: Mapping[int, RewrittenGroup], numbers: Any) -> list[RewrittenGroup]:
    return [groups[number] for number in dict.fromkeys(numbers.tolist())]


def _compared(snapshot: Snapshot, inputs: pa.Table) -> tuple[dict[int, str], Any]:
    """The groups that cannot be committed any more, each with the reason, and where inputs are among the adds."""
    adds = snapshot.adds
    places = pc.fill_null(
        pc.index_in(inputs["log_path"], value_set=adds["path"].combine_chunks()), -1
    ).to_numpy()
    gone = places < 0
    there = adds.take(pa.array(places, pa.int64(), mask=gone))
    dropped: dict[int, str] = {}
    for reason, differs in (
        ("is not live any more", gone),
        ("is deleted from by now", _differ(inputs["dv_id"], dv_ids(there))),
        ("has other row ids by now", _differ(inputs["base_row_id"], there["baseRowId"])),
        ("has other row ids by now", _differ(inputs["row_commit_version"], there["defaultRowCommitVersion"])),
        ("has another size by now", _differ(inputs["size_bytes"], there["size"])),
    ):
        for row in np.flatnonzero(differs).tolist():
            dropped.setdefault(inputs["group"][row].as_py(), f"{inputs['path'][row].as_py()} {reason}")
    return dropped, places


def _differ(one: pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> Any:
    """Where two columns have another value, or only one of them has none."""
    is_same = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(one.is_null(), other.is_null()))  # noqa: FBT003
    return ~np.asarray(
        is_same.to_numpy(zero_copy_only=False) if isinstance(is_same, pa.Array) else is_same.to_numpy()
    )


def _adds(
    table: DeltaTable, before: pa.Table, numbers: Any, groups: Mapping[int, RewrittenGroup]
) -> pa.Table:
    """The adds of new files, in the order of the groups."""
    values = before["partitionValues"].to_pylist()
    first = {number: row for row, number in reversed([*enumerate(numbers.tolist())])}
    paths = [each.path for group in groups.values() for each in group.outputs]
    found = table.storage.stat_many(paths)
    modified = {path: info.modified_ms for path, info in zip(paths, found, strict=True) if info is not None}
    rows = [
        {
            "path": each.log_path,
            "partitionValues": {name: text or None for name, text in values[first[number]]},
            "size": each.size_bytes,
            "modificationTime": modified.get(each.path, table.snapshot.timestamp_ms),
            "dataChange": False,
            "stats": each.stats,
        }
        for number, group in groups.items()
        for each in group.outputs
    ]
    return table_of(rows, ADD, lambda row: (paths[row], "add"))


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


def _counts(before: pa.Table, adds: pa.Table, groups: Mapping[int, RewrittenGroup]) -> dict[str, int]:
    return {
        "rewritten_data_files_count": len(before),
        "added_data_files_count": len(adds),
        "rewritten_bytes_count": int(pc.sum(before["size"]).as_py() or 0),
        "added_bytes_count": int(pc.sum(adds["size"]).as_py() or 0),
        "removed_delete_files_count": len(before) - before["deletionVector"].null_count,
        "rewritten_rows_count": sum(each.rows_written for each in groups.values()),
        "dropped_rows_count": sum(each.rows_deleted for each in groups.values()),
        "remapped_deletes_count": 0,
    }
