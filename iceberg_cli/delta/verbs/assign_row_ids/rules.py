"""assign-row-ids on Delta: declare row tracking, give ids to the files that have none, enable it.

Files are added again in batches, with the same path and deletion vector and without a remove: what is there changes in
nothing but `baseRowId` and `defaultRowCommitVersion`. The commit that enables row tracking gives ids to whatever file
still has none, so there is no version in which it is enabled and a file lacks them, whatever came in between.

Spec: "Row Tracking".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.commit import CommitDraft
from iceberg_cli.delta.spec.columns import ADD
from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.row_ids import (
    ENABLED,
    MATERIALIZED,
    Int64s,
    domain_action,
    with_fresh_ids,
    with_record_count,
)
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.plan.plan import Change

DEFAULT_BATCH_SIZE: Final = 22_000  # files, as Delta Lake has it
DECLARE, BACKFILL, ENABLE = "declare", "backfill", "enable"

_ENABLEMENT_ONLY: Final = "rowTrackingEnablementOnly"  # commit tag: nothing else is in it
_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesWithoutIds:
    """The n active files that lack row ids, in the order of the log.

    Args:
        adds: columns of `columns.ADD` and unknown ones.
        rows: of each.
        counted: whether its rows were counted, because its statistics do not tell.
    """

    adds: pa.Table
    rows: Int64s
    counted: np.ndarray[Any, np.dtype[np.bool_]]

    def batch(self, start: int, size: int) -> FilesWithoutIds:
        """Those from `start`, at most `size` of them."""
        stop = start + size
        return FilesWithoutIds(
            adds=self.adds.slice(start, size), rows=self.rows[start:stop], counted=self.counted[start:stop]
        )


def step_names(files: int, batch_size: int) -> tuple[str, ...]:
    """The names of the batches that n files take."""
    return tuple(f"{BACKFILL} {number}" for number in range(-(-files // batch_size)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Files that get ids in one commit.

    Args:
        adds: with their ids.
        rows: how many of them get an id.
        mark: the last id that is used then.
        domain: the action that says so; none where no row gets an id.
    """

    adds: pa.Table
    rows: int
    mark: int
    domain: tuple[Mapping[str, Any], ...]

    @property
    def counts(self) -> dict[str, int]:
        """The result columns of its commit."""
        return {"assigned_rows_count": self.rows, "assigned_files_count": self.adds.num_rows}


def numbered(snapshot: Snapshot, files: FilesWithoutIds, *, mark: int) -> Batch:
    """Ids for files.

    Args:
        snapshot: the base.
        files: of the batch.
        mark: the last id that is used before it.
    """
    adds, then = with_fresh_ids(files.adds, files.rows, mark=mark)
    unchanged = pa.array([False] * adds.num_rows, pa.bool_())
    adds = adds.set_column(ADD.get_field_index("dataChange"), "dataChange", unchanged)
    if files.counted.any():
        stats = adds.column("stats").to_pylist()
        for index in np.flatnonzero(files.counted).tolist():
            stats[index] = with_record_count(stats[index], int(files.rows[index]))
        adds = adds.set_column(ADD.get_field_index("stats"), "stats", pa.array(stats, pa.string()))
    domain = (domain_action(snapshot, then),) if then > mark else ()
    return Batch(adds=adds, rows=then - mark, mark=then, domain=domain)


def backfill(batch: Batch, name: str) -> Change:
    """The commit of one batch, under the name of its step."""
    number = name.removeprefix(f"{BACKFILL} ")
    info = {"operation": "ROW TRACKING BACKFILL", "operationParameters": {"batchId": number}}
    draft = CommitDraft(adds=batch.adds)
    return Change(updates=({"commitInfo": info}, *batch.domain), draft=draft, counts=batch.counts)


def enable(snapshot: Snapshot, batch: Batch) -> Change:
    """The commit that enables row tracking.

    Args:
        snapshot: the base.
        batch: the files that have no ids yet; mostly none.
    """
    metadata = snapshot.metadata
    properties = {ENABLED: "true"}
    names = column_names(metadata, snapshot.version)
    updated = replace(metadata, configuration={**metadata.configuration, **properties, **names})
    info: dict[str, Any] = {
        "operation": "SET TBLPROPERTIES",
        "operationParameters": {"properties": json.dumps(properties, separators=(",", ":"))},
    }
    action = {"metaData": updated.to_json()}
    if not batch.adds.num_rows:
        info |= {"isolationLevel": "Serializable", "isBlindAppend": True, "tags": {_ENABLEMENT_ONLY: "true"}}
        return Change(updates=({"commitInfo": info}, action))
    draft = CommitDraft(adds=batch.adds)
    return Change(updates=({"commitInfo": info}, action, *batch.domain), draft=draft, counts=batch.counts)


def has_column_names(metadata: Metadata) -> bool:
    """Whether both columns of `column_names` have a name."""
    return all(metadata.configuration.get(key) for key, _ in MATERIALIZED)


def column_names(metadata: Metadata, version: int) -> dict[str, str]:
    """The names of the two columns in which ids and commit versions of moved rows are kept; those that are set stay.

    Args:
        metadata: of the table.
        version: its newest; after row tracking was dropped and enabled again the names are others.
    """
    taken = _names(schema_fields(metadata))
    found = {}
    for key, prefix in MATERIALIZED:
        salt = 0
        name = metadata.configuration.get(key) or _name(prefix, metadata.id, version, salt)
        while name.lower() in taken:
            salt += 1
            name = _name(prefix, metadata.id, version, salt)
        taken.add(name.lower())
        found[key] = name
    return found


def _name(prefix: str, *parts: object) -> str:
    return f"{prefix}{uuid5(NAMESPACE_URL, '/'.join(map(str, (prefix, *parts))))}"


def _names(value: Any) -> set[str]:
    """Every name and physical name in a schema, in lower case."""
    if isinstance(value, list):
        return set().union(*map(_names, value))
    if not isinstance(value, dict):
        return set()
    own = {str(item).lower() for key, item in value.items() if key in ("name", _PHYSICAL_NAME)}
    return own.union(*map(_names, value.values()))


def shown_batches(names: Sequence[str]) -> tuple[str, ...]:
    """Which of a plan's steps are batches."""
    return tuple(name for name in names if name.startswith(f"{BACKFILL} "))
