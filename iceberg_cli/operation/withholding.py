"""Whether other operations of a table forbid deletions: what went with their commits needs all files.

A catalog that writes the metadata itself may drop a ref that was made between our look and the commit. It can only be
had back while its files are there, and snapshots share files. And a catalog that takes a late request though the table
has moved makes a version current again that names what others have removed since.
"""

from __future__ import annotations

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.operation.ports import Table
from iceberg_cli.operation.records import Operation


def check_others(table: Table, name: str, *, besides: str | None = None) -> None:
    """Refuse deletions while another operation is open that keeps all files, or that may come to do so.

    Args:
        table: with its operations.
        name: of the table, for the message.
        besides: the operation that asks.

    Raises:
        Refused: there is one.
    """
    for operation_id in table.workspace.open_operations():
        if operation_id == besides:
            continue
        try:
            operation = table.workspace.journal(operation_id).operation()
        except (CorruptFile, Refused) as error:
            raise Refused(
                f"Cannot delete files of {name}: whether operation {operation_id} keeps them is not known: "
                f"{error.message}",
                next_step=f"See `resume --list TABLE`; `resume TABLE {operation_id} --abandon` closes it.",
            ) from error
        if operation is None:
            continue
        if operation.withheld is not None:
            raise Refused(
                f"Cannot delete files of {name}: operation {operation_id} keeps all of them: {operation.withheld}",
                next_step=f"Save what is needed, then `resume TABLE {operation_id} --abandon`.",
            )
        if _is_asking(operation, table):
            raise Refused(
                f"Cannot delete files of {name}: what became of the commit of operation {operation_id} is not known, "
                "and it may turn out that all of them are needed",
                next_step=f"`resume TABLE {operation_id}` asks again.",
            )


def _is_asking(operation: Operation, table: Table) -> bool:
    """Whether a request has no known outcome yet, and is not dead once the table moves."""
    return any(
        state.intent is not None
        and state.outcome in (None, "unknown")
        and (state.intent.metadata_location is None or table.takes_late_requests)
        for state in operation.steps.values()
    )
