"""The open operations of a table for who only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iceberg_cli.table.table import OpenTable


def open_operation_rows(table: OpenTable, *, now_ms: int) -> tuple[dict[str, Any], ...]:
    """The open operations as elements of `operations/2`; see `recovery.operations`."""
    if not table.workspace.open_operations():
        return ()
    from iceberg_cli.table.recovery import operations  # which most tables need nothing of

    return tuple(each.to_json() for each in operations(table, now_ms=now_ms))
