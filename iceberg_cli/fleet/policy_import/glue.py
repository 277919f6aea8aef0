"""Table optimizers of AWS Glue.

Spec: GetTableOptimizer, BatchGetTableOptimizer and UpdateTableOptimizer of the Glue API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import Node
from iceberg_cli.fleet.policy_import.draft import (
    EXPIRE,
    NO_COMPACTION,
    NO_ORPHANS,
    NO_SCHEDULE,
    Draft,
    Verbs,
    hours,
    never,
    table_pattern,
)

_RETENTION: Final = "retention"
_WITHOUT: Final = {"compaction": NO_COMPACTION, "orphan_file_deletion": NO_ORPHANS}
_PERMISSIONS: Final = "what runs here has permissions of its own"
_OF_THE_JOB: Final = {"roleArn": _PERMISSIONS, "vpcConfiguration": _PERMISSIONS}
_DAY_H: Final = 24


def read(document: Node, draft: Draft) -> None:
    """Add what the retention optimizers of tables say.

    Args:
        document: an answer about one table's optimizer or about several, a request that sets one, or a list of these.
        draft: gets an entry for each table.

    Raises:
        UsageError: it is no such document.
    """
    for table, kind, configuration in _optimizers(document, draft):
        if kind.text() != _RETENTION:
            draft.leave_out(
                configuration,
                _WITHOUT.get(kind.text(), f"optimizers of the type {kind.text()} have no counterpart"),
            )
            continue
        database, name = (_lower(table).get(key) for key in ("databasename", "tablename"))
        if database is None or name is None:
            match = draft.tables()
        else:
            match = (table_pattern(draft.catalog(), str(database), str(name)),)
        draft.add(match, _retention(configuration, draft))


def _optimizers(document: Node, draft: Draft) -> Iterator[tuple[Node, Node, Node]]:
    """Each table with the type and the configuration of an optimizer."""
    several = document if isinstance(document.value, list) else document.child("TableOptimizers")
    if several is not None:
        for each in several.items():
            yield from _optimizers(each, draft)
        failures = None if several is document else document.child("Failures")
        for failure in failures.items() if failures is not None else ():
            draft.leave_out(failure, "Glue did not tell the optimizer of this table")
        return
    optimizer = document.child("TableOptimizer") or document.child("tableOptimizer")
    if optimizer is None:
        kind, configuration = document.child("Type"), document.child("TableOptimizerConfiguration")
    else:
        kind, configuration = optimizer.child("type"), optimizer.child("configuration")
    if kind is None or configuration is None:
        raise UsageError(
            f"{document.where} has no optimizer with its type and configuration",
            next_step="Save what `aws glue get-table-optimizer` or `batch-get-table-optimizer` prints.",
        )
    yield document, kind, configuration


def _lower(document: Node) -> Mapping[str, Any]:
    """Its keys in lower case: an answer about one table spells them DatabaseName, one about several databaseName."""
    return {key.lower(): value for key, value in document.object().items()}


def _retention(configuration: Node, draft: Draft) -> Verbs:
    for key, value in configuration.children():
        if key in _OF_THE_JOB and value.value is not None:
            draft.leave_out(value, _OF_THE_JOB[key])
        elif key not in (*_OF_THE_JOB, "enabled", "retentionConfiguration"):
            draft.leave_out(value)
    enabled = configuration.child("enabled")
    if enabled is not None and not enabled.switch():
        return never(EXPIRE)
    verbs: Verbs = {EXPIRE: {}}
    retention = configuration.child("retentionConfiguration")
    iceberg = None if retention is None else retention.child("icebergConfiguration")
    for key, value in iceberg.children() if iceberg is not None else ():
        if value.value is None:
            continue
        if key == "snapshotRetentionPeriodInDays":
            verbs[EXPIRE]["older-than"] = hours(value.whole(0) * _DAY_H)
        elif key == "numberOfSnapshotsToRetain":
            verbs[EXPIRE]["retain-last"] = value.whole(1)
        elif key == "cleanExpiredFiles":
            if not value.switch():
                verbs[EXPIRE]["cleanup"] = "none"
        elif key == "runRateInHours":
            draft.leave_out(value, NO_SCHEDULE)
        else:
            draft.leave_out(value)
    return verbs
