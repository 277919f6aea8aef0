"""The `commitInfo` of VACUUM START and VACUUM END, as Delta Spark writes them. No input or output.

Source: Delta Spark's `VacuumCommand`, which ends a VACUUM that could not delete its files with the status FAILED.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_cli.delta.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.delta.verbs.expire_snapshots.retention import VacuumRetention


def started(
    policy: ExpireSnapshots, retention: VacuumRetention, *, files: int, size_bytes: int
) -> dict[str, Any]:
    """That of VACUUM START.

    Args:
        policy: the options.
        retention: what they mean for the table.
        files: that are about to be deleted.
        size_bytes: of these.
    """
    parameters: dict[str, Any] = {
        "retentionCheckEnabled": not policy.unsafe_short_retention,
        "defaultRetentionMillis": retention.table_retention_ms,
    }
    if policy.retention_ms is not None:
        parameters["specifiedRetentionMillis"] = policy.retention_ms
    metrics = {"numFilesToDelete": files, "sizeOfDataToDelete": size_bytes}
    return _commit_info("VACUUM START", parameters, metrics)


def completed(folders: int) -> dict[str, Any]:
    """That of VACUUM END; how many files were deleted is known when it is written.

    Args:
        folders: that were looked through.
    """
    return _ended("COMPLETED", files=None, folders=folders)


def failed() -> dict[str, Any]:
    """That of VACUUM END where no file was deleted, nor will be."""
    return _ended("FAILED", files=0, folders=0)


def _ended(status: str, *, files: int | None, folders: int) -> dict[str, Any]:
    metrics = {"numDeletedFiles": files, "numVacuumedDirectories": folders}
    return _commit_info("VACUUM END", {"status": status}, metrics)


def _commit_info(
    operation: str, parameters: Mapping[str, Any], metrics: Mapping[str, int | None]
) -> dict[str, Any]:
    info = {"operation": operation, "operationParameters": dict(parameters), "isBlindAppend": True}
    return {"commitInfo": {**info, "operationMetrics": dict(metrics)}}
