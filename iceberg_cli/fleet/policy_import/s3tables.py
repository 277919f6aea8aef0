"""The maintenance configuration of S3 table buckets and of the tables in them.

Spec: GetTableMaintenanceConfiguration, GetTableBucketMaintenanceConfiguration and the Put... of both, of the S3 Tables
API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import Node
from iceberg_cli.fleet.policy_import.draft import (
    COMPACT,
    EXPIRE,
    ORPHANS,
    Draft,
    Verbs,
    hours,
    never,
    order_options,
    orphan_age,
    size,
    table_pattern,
)

_SNAPSHOTS: Final = "icebergSnapshotManagement"
_COMPACTION: Final = "icebergCompaction"
_REMOVAL: Final = "icebergUnreferencedFileRemoval"
_ELSEWHERE: Final = (
    "tables in a table bucket, where S3 Tables removes such files itself, are refused by remove-orphan-files: this is "
    "for those that move elsewhere"
)
_UNREFERENCED, _NON_CURRENT = "unreferencedDays", "nonCurrentDays"
_NON_CURRENT_DAYS: Final = 10  # by default
_DAY_H: Final = 24
_AUTO: Final = "auto"
_SORTS: Final = "auto sorts tables that have a sort order; here rows stay in the order in which they are"
_TARGET_MB: Final = 512  # by default
_MIB: Final = 1 << 20  # a MB of the service, whose default is Iceberg's
_STATUS: Final = {"enabled": True, "disabled": False}


def read(document: Node, draft: Draft) -> None:
    """Add what the configuration of one table, or of a table bucket, says, or of each of a list.

    Args:
        document: an answer to Get..., whose table the command line names, or a request of Put..., which names it. Of a
            table bucket the command line names the tables.
        draft: gets an entry for each table.

    Raises:
        UsageError: it is no such document.
    """
    draft.add_by_table(_settings(document, draft))


def _settings(document: Node, draft: Draft) -> Iterator[tuple[tuple[str, ...], Verbs, Node]]:
    """By table what each type of maintenance says, and its value."""
    for each in document.items() if isinstance(document.value, list) else (document,):
        for kind, value in _values(each):
            if kind not in _READERS:
                draft.leave_out(value, f"{kind} has no counterpart")
            elif verbs := _READERS[kind](value, draft):
                yield _tables(each, draft), verbs, value


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
    if not _is_enabled(value, draft):
        return never(EXPIRE)
    options: dict[str, Any] = {}
    own = _own_settings(value, _SNAPSHOTS)
    for key, each in own.children() if own is not None else ():
        if each.value is None:
            continue
        if key == "maxSnapshotAgeHours":
            options["older-than"] = hours(each.whole(1))
        elif key == "minSnapshotsToKeep":
            options["retain-last"] = each.whole(1)
        else:
            draft.leave_out(each)
    return {EXPIRE: options}


def _compaction(value: Node, draft: Draft) -> Verbs:
    """What compaction says; nothing where it clusters.

    A size that is not given is the service's 512 MB, and written out: a property of the table may say another.

    Spec: IcebergCompactionSettings of the S3 Tables API; "Maintenance for tables" of the user guide.
    """
    if not _is_enabled(value, draft):
        return never(COMPACT)
    own = _own_settings(value, _COMPACTION)
    strategy = None if own is None else own.child("strategy")
    order = order_options(strategy, draft)
    if order is None:
        return {}
    if strategy is None or strategy.text() == _AUTO:
        draft.leave_out(strategy or own or value, _SORTS)
    options: dict[str, Any] = {**order, "target-size": size(_TARGET_MB * _MIB)}
    for key, each in own.children() if own is not None else ():
        if each.value is None or key == "strategy":
            continue
        if key == "targetFileSizeMB":
            options["target-size"] = size(each.whole(1) * _MIB)
        else:
            draft.leave_out(each)
    return {COMPACT: options}


def _removal(value: Node, draft: Draft) -> Verbs:
    """What the removal of files says that nothing refers to. Its age has the same default.

    Spec: IcebergUnreferencedFileRemovalSettings of the S3 Tables API.
    """
    if not _is_enabled(value, draft):
        return never(ORPHANS)
    draft.leave_out(value, _ELSEWHERE)
    own = _own_settings(value, _REMOVAL)
    draft.leave_out_others(own, (_UNREFERENCED, _NON_CURRENT))
    age, non_current = (None if own is None else own.child(key) for key in (_UNREFERENCED, _NON_CURRENT))
    days = _NON_CURRENT_DAYS if non_current is None else non_current.whole(1)
    options = {} if age is None else {"older-than": orphan_age(age, age.whole(1) * _DAY_H, draft)}
    return {ORPHANS: {**options, "grace": hours(days * _DAY_H)}}


def _is_enabled(value: Node, draft: Draft) -> bool:
    draft.leave_out_others(value, ("status", "settings"))
    status = value.child("status")
    if status is not None and status.text() not in _STATUS:
        raise UsageError(f"{status.where} must be enabled or disabled, not {status.text()!r}")
    return status is None or _STATUS[status.text()]


def _own_settings(value: Node, kind: str) -> Node | None:
    settings = value.child("settings")
    return None if settings is None else settings.child(kind)


_READERS: Final[Mapping[str, Callable[[Node, Draft], Verbs]]] = {
    _SNAPSHOTS: _snapshots,
    _COMPACTION: _compaction,
    _REMOVAL: _removal,
}
