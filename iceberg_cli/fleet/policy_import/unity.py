"""Tables of Unity Catalog with Databricks' predictive optimization, which runs OPTIMIZE and VACUUM on them.

Spec: the answers of "Get a table" and "List tables" of the Tables API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import Node
from iceberg_cli.fleet.policy_import.draft import COMPACT, EXPIRE, Draft, Verbs, never

_EFFECTIVE: Final = "effective_predictive_optimization_flag"  # by the table, its schema, or its catalog
_OWN: Final = "enable_predictive_optimization"
_AUTO_COMPACT: Final = "delta.autoOptimize.autoCompact"
_OFF: Final = ("false", "disabled", "none", "")
_NO_DELTA: Final = "it is no Delta table"
_UNKNOWN: Final = (
    f"whether it is optimized is not said: its schema or catalog decides, which {_EFFECTIVE} would tell"
)
_READ_THERE: Final = "the verbs read it from the table itself"
_PROPERTIES: Final = (
    "delta.targetFileSize",
    "delta.deletedFileRetentionDuration",
    "delta.logRetentionDuration",
)


def read(document: Node, draft: Draft) -> None:
    """Add what is said of one table, or of each of a list: tables are known by their locations.

    Args:
        document: an answer about a table, or about many.
        draft: gets an entry for each Delta table.

    Raises:
        UsageError: it is no such document.
    """
    draft.add_by_table(_settings(document, draft))


def _settings(document: Node, draft: Draft) -> Iterator[tuple[tuple[str, ...], Verbs, Node]]:
    listed = document if isinstance(document.value, list) else document.child("tables")
    for table in (document,) if listed is None else listed.items():
        location = table.child("storage_location")
        if location is None:
            raise UsageError(
                f"{table.where} has no storage_location, as Unity Catalog says it of a table",
                next_step="Save what `databricks tables get NAME --output json` prints.",
            )
        kind = table.child("data_source_format")
        if kind is not None and kind.text() != "DELTA":
            draft.leave_out(kind, _NO_DELTA)
        elif verbs := _verbs(table, draft):
            yield (location.text(),), verbs, table


def _verbs(table: Node, draft: Draft) -> Verbs:
    """What runs, or never does; nothing where that is not said."""
    properties = table.child("properties")
    for key, value in properties.children() if properties is not None else ():
        if key in _PROPERTIES:
            draft.leave_out(value, _READ_THERE)
    effective = table.child(_EFFECTIVE)
    flag = table.child(_OWN) if effective is None else effective.child("value")
    match None if flag is None else flag.text():
        case "ENABLE":
            return {EXPIRE: {}, COMPACT: {}}
        case "DISABLE":
            return {**never(EXPIRE), **never(COMPACT)}
        case None | "INHERIT":
            compacts = None if properties is None else properties.child(_AUTO_COMPACT)
            if compacts is not None and compacts.text().lower() not in _OFF:
                return {COMPACT: {}}
            draft.leave_out(table, _UNKNOWN)
            return {}
        case other:
            assert flag is not None
            raise UsageError(f"{flag.where} must be ENABLE, DISABLE or INHERIT, not {other!r}")
