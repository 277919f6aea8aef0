"""What a VACUUM leaves in the log: the commitInfo of its two commits.

Source: `VacuumCommand` of Delta Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iceberg_cli.delta.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.delta.verbs.expire_snapshots.retention import VacuumRetention

_END: Final = "VACUUM END"


def vacuum_started(
    policy: ExpireSnapshots, retention: VacuumRetention, *, files: int, size_bytes: int
) -> dict[str, Any]:
    """The commitInfo of VACUUM START, as Delta Spark has it."""
    parameters: dict[str, Any] = {
        "retentionCheckEnabled": not policy.unsafe_short_retention,
        "defaultRetentionMillis": retention.table_retention_ms,
    }
    if policy.retention_ms is not None:
        parameters["specifiedRetentionMillis"] = policy.retention_ms
    metrics = {"numFilesToDelete": files, "sizeOfDataToDelete": size_bytes}
    return _commit_info("VACUUM START", parameters, metrics)


def vacuum_ended(folders: int) -> dict[str, Any]:
    """The commitInfo of VACUUM END; how many files were deleted is known when it is written."""
    metrics = {"numDeletedFiles": None, "numVacuumedDirectories": folders}
    return _commit_info(_END, {"status": "COMPLETED"}, metrics)


def vacuum_failed() -> dict[str, Any]:
    """The commitInfo of VACUUM END where the VACUUM came to nothing, as Delta Spark's `logVacuumEnd` has the status."""
    return _commit_info(_END, {"status": "FAILED"}, {"numDeletedFiles": 0, "numVacuumedDirectories": 0})


def _commit_info(
    operation: str, parameters: Mapping[str, Any], metrics: Mapping[str, int | None]
) -> dict[str, Any]:
    info = {"operation": operation, "operationParameters": dict(parameters), "isBlindAppend": True}
    return {"commitInfo": {**info, "operationMetrics": dict(metrics)}}
