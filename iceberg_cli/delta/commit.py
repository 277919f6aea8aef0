"""A commit to the Delta log: as it is planned, and its lines, made of draft actions, staged files and the snapshot.

`Change.updates` are small actions in their JSON form, each a mapping of one action: `{"commitInfo": {"operation": ...,
"operationParameters": {...}}}`, `{"protocol": {...}}`, `{"metaData": {...}}`, `{"txn": {...}}`, `{"domainMetadata":
{...}}`. `Change.draft` is a `CommitDraft` where there are adds or removes. What is known only when the version is,
`bind` fills in, on every attempt again, with the staged files kept:

- commitInfo: `timestamp`, `txnId`, `engineInfo`, `readVersion`, `isolationLevel`, `isBlindAppend`; metrics as text, and
  a metric that is null by what the operation has deleted so far;
- `inCommitTimestamp`, first, where the table as this commit leaves it wants it, and where this commit turns it on
  also the two properties that say since when, in the metadata of the change or, if it has none, the table's own;
- `defaultRowCommitVersion` of adds that have a `baseRowId` and none of these; `deletionTimestamp` of removes.

Spec: Delta, "Commit Provenance Information", "In-Commit Timestamps", "Row Tracking".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.columns import ADD, REMOVE, file_lines
from iceberg_cli.delta.spec.in_commit_timestamps import SINCE_TIME, SINCE_VERSION, has_in_commit_timestamps
from iceberg_cli.delta.spec.protocol import Metadata, Protocol
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.errors import Refused
from iceberg_cli.plan.plan import Change, StagedFile, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDraft:
    """The file actions of a commit.

    Args:
        adds: columns of `columns.ADD` and unknown ones, one row for each add. A null `defaultRowCommitVersion` beside
            a `baseRowId` becomes the version that is written.
        removes: columns of `columns.REMOVE` and unknown ones. A null `deletionTimestamp` becomes the commit's time.
        facts: what an operator may want to know, for the plan's document.
        repairs: whether the commit may be one that takes a fault from the table: what its own adds are decides whether
            it can be read, and not those that the table has.
    """

    adds: pa.Table = field(default_factory=ADD.empty_table)
    removes: pa.Table = field(default_factory=REMOVE.empty_table)
    facts: Mapping[str, Any] = field(default_factory=dict)
    repairs: bool = False

    def to_json(self) -> dict[str, Any]:
        """How many, and the facts; not the actions themselves."""
        return {"adds": self.adds.num_rows, "removes": self.removes.num_rows, **self.facts}


# As Delta Spark orders them; row tracking's domain, which depends on the adds, comes last.
_BEFORE_FILES: Final = ("metaData", "protocol", "txn")
_AFTER_FILES: Final = ("domainMetadata",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSummary:
    """The journal's update of a commit whose bytes are in a file of their own."""

    version: int
    operation: str

    def to_json(self) -> dict[str, Any]:
        """In the form of an update."""
        return {"action": "delta-commit", "version": self.version, "operation": self.operation}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCommit:
    """One version of the log, ready to be written."""

    version: int
    data: bytes  # JSON lines, each ended by a newline
    timestamp_ms: int
    commit_uuid: str  # its txnId
    updates: tuple[CommitSummary, ...]


def bind(
    change: Change,
    snapshot: Snapshot,
    *,
    staged: Mapping[Task, StagedFile],
    timestamp_ms: int,
    commit_uuid: str,
    engine_info: str,
    deleted_files: int = 0,
) -> LogCommit:
    """The commit of `change` on `snapshot`.

    Args:
        change: actions in their JSON form, and a `CommitDraft` made from `snapshot` or none.
        snapshot: the base of this attempt.
        staged: the files of the step's tasks. `StagedFile.row` may have Arrow tables `adds` and `removes`, which
            join those of the draft.
        timestamp_ms: the clock, in ms since the epoch.
        commit_uuid: drawn for this attempt; its txnId.
        engine_info: who writes.
        deleted_files: by this operation so far, for metrics that are null.

    Returns:
        The version after `snapshot`'s.

    Raises:
        Refused: a commitInfo without operation, or an action of unknown kind.
    """
    version = snapshot.version + 1
    actions = _by_kind(change.updates)
    commit_info = actions.pop("commitInfo", [{}])[-1]
    if not commit_info.get("operation"):
        raise Refused(f"Cannot write version {version}: the change names no operation")
    in_commit_ms = _in_commit_time(actions, snapshot, version=version, timestamp_ms=timestamp_ms)
    first = {} if in_commit_ms is None else {"inCommitTimestamp": in_commit_ms}
    info = {
        **first,
        "timestamp": timestamp_ms,
        "operation": commit_info["operation"],
        "operationParameters": {},
        "readVersion": snapshot.version,
        "isolationLevel": "SnapshotIsolation",
        "isBlindAppend": False,
        **commit_info,
        **_metrics(commit_info, deleted_files),
        "engineInfo": engine_info,
        "txnId": commit_uuid,
    }
    lines = [_line("commitInfo", info)]
    lines += [_line(kind, body) for kind in _BEFORE_FILES for body in actions.pop(kind, ())]
    after = [_line(kind, body) for kind in _AFTER_FILES for body in actions.pop(kind, ())]
    if actions:
        raise Refused(f"Cannot write version {version}: actions of kind {', '.join(sorted(actions))}")
    adds, removes = _file_actions(change, staged, version=version, timestamp_ms=timestamp_ms)
    lines += [*file_lines("add", adds), *file_lines("remove", removes), *after]
    data = "".join(f"{line}\n" for line in lines).encode()
    summary = CommitSummary(version=version, operation=info["operation"])
    return LogCommit(
        version=version,
        data=data,
        timestamp_ms=timestamp_ms,
        commit_uuid=commit_uuid,
        updates=(summary,),
    )


def _by_kind(updates: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    actions: dict[str, list[dict[str, Any]]] = {}
    for update in updates:
        for kind, body in update.items():
            actions.setdefault(kind, []).append(dict(body))
    return actions


def _in_commit_time(
    actions: dict[str, list[dict[str, Any]]], snapshot: Snapshot, *, version: int, timestamp_ms: int
) -> int | None:
    """The in-commit timestamp, or None where the table has none; says in the metadata since when there is one."""
    protocols, metadata = actions.get("protocol"), actions.get("metaData")
    protocol = Protocol.from_json(protocols[-1]) if protocols else snapshot.protocol
    after = Metadata.from_json(metadata[-1]) if metadata else snapshot.metadata
    if not has_in_commit_timestamps(protocol, after):
        return None
    value = max(timestamp_ms, snapshot.timestamp_ms + 1)
    if not has_in_commit_timestamps(snapshot.protocol, snapshot.metadata):
        since = {SINCE_VERSION: str(version), SINCE_TIME: str(value)}
        stated = metadata or actions.setdefault("metaData", [after.to_json()])
        stated[-1]["configuration"] = {**after.to_json()["configuration"], **since}
    return value


def _metrics(commit_info: Mapping[str, Any], deleted_files: int) -> dict[str, Any]:
    metrics = commit_info.get("operationMetrics")
    if metrics is None:
        return {}
    filled_in = {name: str(deleted_files if value is None else value) for name, value in metrics.items()}
    return {"operationMetrics": filled_in}


def _file_actions(
    change: Change, staged: Mapping[Task, StagedFile], *, version: int, timestamp_ms: int
) -> tuple[pa.Table, pa.Table]:
    draft = CommitDraft() if change.draft is None else change.draft
    assert isinstance(draft, CommitDraft), "a draft that was saved is made again before it is bound"
    rows = [file.row for file in staged.values()]
    adds = _joined([draft.adds, *(row["adds"] for row in rows if "adds" in row)])
    removes = _joined([draft.removes, *(row["removes"] for row in rows if "removes" in row)])
    fresh = pc.and_(pc.is_valid(adds["baseRowId"]), pc.is_null(adds["defaultRowCommitVersion"]))
    versions = pc.if_else(fresh, pa.scalar(version, pa.int64()), adds["defaultRowCommitVersion"])
    times = pc.fill_null(removes["deletionTimestamp"], timestamp_ms)
    return (
        adds.set_column(ADD.get_field_index("defaultRowCommitVersion"), "defaultRowCommitVersion", versions),
        removes.set_column(REMOVE.get_field_index("deletionTimestamp"), "deletionTimestamp", times),
    )


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows; a column that a table lacks is null in its rows."""
    return pa.concat_tables(tables, promote_options="default")


def _line(kind: str, body: Mapping[str, Any]) -> str:
    return json.dumps({kind: body}, separators=(",", ":"))
