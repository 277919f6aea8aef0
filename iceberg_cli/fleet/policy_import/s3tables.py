"""The maintenance configuration of tables in S3 table buckets.

Spec: GetTableMaintenanceConfiguration and PutTableMaintenanceConfiguration of the S3 Tables API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import Node
from iceberg_cli.fleet.policy_import.draft import (
    EXPIRE,
    NO_COMPACTION,
    NO_ORPHANS,
    Draft,
    Verbs,
    hours,
    never,
    table_pattern,
)

_SNAPSHOTS: Final = "icebergSnapshotManagement"
_WITHOUT: Final = {"icebergCompaction": NO_COMPACTION, "icebergUnreferencedFileRemoval": NO_ORPHANS}
_STATUS: Final = {"enabled": True, "disabled": False}


def read(document: Node, draft: Draft) -> None:
    """Add what the configuration of one table says, or of each of a list.

    Args:
        document: an answer to Get..., whose table the command line names, or a request of Put..., which names it.
        draft: gets an entry for each table.

    Raises:
        UsageError: it is no such document.
    """
    for each in document.items() if isinstance(document.value, list) else (document,):
        for kind, value in _values(each):
            if kind != _SNAPSHOTS:
                draft.leave_out(value, _WITHOUT.get(kind, f"{kind} has no counterpart"))
                continue
            draft.add(_tables(each, draft), _snapshots(value, draft))


def _values(document: Node) -> Iterator[tuple[str, Node]]:
    """Each type of maintenance with its value."""
    configuration, kind, value = (document.child(key) for key in ("configuration", "type", "value"))
    if configuration is not None:
        yield from configuration.children()
    elif kind is not None and value is not None:
        yield kind.text(), value
    else:
        raise UsageError(
            f"{document.where} has neither configuration, as GetTableMaintenanceConfiguration answers, nor type and "
            "value, as PutTableMaintenanceConfiguration takes them",
            next_step="Save what `aws s3tables get-table-maintenance-configuration` prints.",
        )


def _tables(document: Node, draft: Draft) -> tuple[str, ...]:
    namespace, name = document.child("namespace"), document.child("name")
    if namespace is None or name is None:
        return draft.tables()
    return (table_pattern(draft.catalog(), namespace.text(), name.text()),)


def _snapshots(value: Node, draft: Draft) -> Verbs:
    draft.leave_out_others(value, ("status", "settings"))
    status = value.child("status")
    if status is not None and status.text() not in _STATUS:
        raise UsageError(f"{status.where} must be enabled or disabled, not {status.text()!r}")
    if status is not None and not _STATUS[status.text()]:
        return never(EXPIRE)
    verbs: Verbs = {EXPIRE: {}}
    settings = value.child("settings")
    own = None if settings is None else settings.child(_SNAPSHOTS)
    for key, each in own.children() if own is not None else ():
        if each.value is None:
            continue
        if key == "maxSnapshotAgeHours":
            verbs[EXPIRE]["older-than"] = hours(each.whole(1))
        elif key == "minSnapshotsToKeep":
            verbs[EXPIRE]["retain-last"] = each.whole(1)
        else:
            draft.leave_out(each)
    return verbs
