"""Table optimizers of AWS Glue.

Spec: GetTableOptimizer, BatchGetTableOptimizer and UpdateTableOptimizer of the Glue API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import Node
from iceberg_cli.fleet.policy_import.draft import (
    COMPACT,
    EXPIRE,
    NO_FOLDERS,
    NO_KEY,
    NO_SCHEDULE,
    ORPHANS,
    Draft,
    Verbs,
    hours,
    never,
    order_options,
    orphan_age,
    table_pattern,
)

# By the type of an optimizer its verb, and the key of its settings.
_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "retention": (EXPIRE, "retentionConfiguration"),
    "compaction": (COMPACT, "compactionConfiguration"),
    "orphan_file_deletion": (ORPHANS, "orphanFileDeletionConfiguration"),
}
_THRESHOLDS: Final = {"minInputFiles": "min-input-files", "deleteFileThreshold": "delete-files"}
_PERMISSIONS: Final = "what runs here has permissions of its own"
_OF_THE_JOB: Final = {"roleArn": _PERMISSIONS, "vpcConfiguration": _PERMISSIONS}
_DAY_H: Final = 24


def read(document: Node, draft: Draft) -> None:
    """Add what the optimizers of tables say.

    Args:
        document: an answer about one table's optimizer or about several, a request that sets one, or a list of these.
        draft: gets an entry for each table.

    Raises:
        UsageError: it is no such document.
    """
    draft.add_by_table(_settings(document, draft))


def _settings(document: Node, draft: Draft) -> Iterator[tuple[tuple[str, ...], Verbs, Node]]:
    """By table what each optimizer says, and its configuration."""
    for table, kind, configuration in _optimizers(document, draft):
        if kind.text() not in _VERBS:
            draft.leave_out(configuration, f"optimizers of the type {kind.text()} have no counterpart")
        elif verbs := _verbs(kind.text(), configuration, draft):
            yield _match(table, draft), verbs, configuration


def _match(table: Node, draft: Draft) -> tuple[str, ...]:
    database, name = (_lower(table).get(key) for key in ("databasename", "tablename"))
    if database is None or name is None:
        return draft.tables()
    return (table_pattern(draft.catalog(), str(database), str(name)),)


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


def _verbs(kind: str, configuration: Node, draft: Draft) -> Verbs:
    """What an optimizer says; nothing where what it does is not done here."""
    verb, own = _VERBS[kind]
    for key, value in configuration.children():
        if key in _OF_THE_JOB and value.value is not None:
            draft.leave_out(value, _OF_THE_JOB[key])
        elif key not in (*_OF_THE_JOB, "enabled", own):
            draft.leave_out(value)
    enabled = configuration.child("enabled")
    if enabled is not None and not enabled.switch():
        return never(verb)
    settings = configuration.child(own)
    iceberg = None if settings is None else settings.child("icebergConfiguration")
    if verb == EXPIRE:
        return {verb: _retention(iceberg, draft)}
    if verb == ORPHANS:
        return {verb: _orphans(iceberg, draft)}
    options = _compaction(iceberg, draft)
    return {} if options is None else {verb: options}


def _retention(iceberg: Node | None, draft: Draft) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in iceberg.children() if iceberg is not None else ():
        if value.value is None:
            continue
        if key == "snapshotRetentionPeriodInDays":
            options["older-than"] = hours(value.whole(0) * _DAY_H)
        elif key == "numberOfSnapshotsToRetain":
            options["retain-last"] = value.whole(1)
        elif key == "cleanExpiredFiles":
            if not value.switch():
                options["cleanup"] = "none"
        elif key == "runRateInHours":
            draft.leave_out(value, NO_SCHEDULE)
        else:
            draft.leave_out(value)
    return options


def _orphans(iceberg: Node | None, draft: Draft) -> dict[str, Any]:
    """The options of a removal of orphan files.

    How often it runs is Glue's default where it is not given or null, and written out because it is not the one here.
    The age has the same default.

    Spec: IcebergOrphanFileDeletionConfiguration of the Glue API.
    """
    options: dict[str, Any] = {}
    every_h = _DAY_H
    for key, value in iceberg.children() if iceberg is not None else ():
        if value.value is None:
            continue
        if key == "orphanFileRetentionPeriodInDays":
            options["older-than"] = orphan_age(value, value.whole(0) * _DAY_H, draft)
        elif key == "runRateInHours":
            every_h = value.whole(1)
        else:
            draft.leave_out(value, NO_FOLDERS if key == "location" else NO_KEY)
    return {**options, "every": hours(every_h)}


def _compaction(iceberg: Node | None, draft: Draft) -> dict[str, Any] | None:
    """The options of a compaction; None where it clusters.

    What is not given or null is Glue's default, and written out because it is not the one here: 100 files of a
    partition, and files to which a single delete applies. `deleteFileThreshold` is read as Iceberg's
    `delete-file-threshold`.

    Spec: IcebergCompactionConfiguration of the Glue API.
    """
    order = order_options(None if iceberg is None else iceberg.child("strategy"), draft)
    if order is None:
        return None
    options: dict[str, Any] = {**order, "min-input-files": 100, "delete-files": 1}
    for key, value in iceberg.children() if iceberg is not None else ():
        if value.value is None or key == "strategy":
            continue
        if key in _THRESHOLDS:
            options[_THRESHOLDS[key]] = value.whole(1)
        else:
            draft.leave_out(value)
    return options
