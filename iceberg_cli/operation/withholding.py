"""Whether other operations of a table forbid deletions, or have them wait.

What went with a commit may need all files. A catalog that writes the metadata itself may drop a ref that was made
between our look and the commit. It can only be had back while its files are there, and snapshots share files. And a
catalog that takes a late request though the table has moved makes a version current again that names what others have
removed since.

And sweeps keep the order of commits: what an operation took from the table can be put back as long as its files wait
for their grace, and needs files that a later operation takes too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.operation.operation_state import Operation
from iceberg_cli.operation.ports import Table
from iceberg_cli.plan.text import iso


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierOperation:
    """An operation that another one's deletions wait for.

    Args:
        operation_id: its id.
        until_ms: when its grace is over, in ms since the epoch; None: its commit has no known outcome.
    """

    operation_id: str
    until_ms: int | None

    def __str__(self) -> str:
        """What is waited for, and the way out."""
        until = (
            "whose commit has no known outcome"
            if self.until_ms is None
            else f"whose grace ends at {iso(self.until_ms)}"
        )
        return (
            f"operation {self.operation_id}, {until}; `resume TABLE {self.operation_id} --abandon` frees them"
        )


def earlier_operation(operations: Iterable[Operation | None], *, now_ms: int) -> EarlierOperation | None:
    """The one of some open operations that is waited for longest, None where none is.

    Args:
        operations: that were committed before; None for those that are closed.
        now_ms: the time.
    """
    waits: list[tuple[int, str]] = []
    for operation in operations:
        if operation is None or operation.closed is not None:
            continue
        if operation.may_come_to_wait():
            return EarlierOperation(operation_id=operation.operation_id, until_ms=None)
        until_ms = operation.grace_until_ms()
        if until_ms is not None and until_ms > now_ms:
            waits.append((until_ms, operation.operation_id))
    if not waits:
        return None
    until_ms, operation_id = max(waits)
    return EarlierOperation(operation_id=operation_id, until_ms=until_ms)


def check_others(table: Table, name: str, *, besides: str | None = None) -> tuple[str, ...]:
    """Refuse deletions while another operation is open that keeps all files, or that may come to do so.

    Args:
        table: with its operations.
        name: of the table, for the message.
        besides: the operation that asks.

    Returns:
        The ids of the others whose files wait for a grace, or may come to.

    Raises:
        Refused: there is one.
    """
    waiting = []
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
        if operation.undoes is not None and operation.undoes == besides:
            raise Refused(
                f"Cannot delete files of {name}: operation {operation_id} takes this one back",
                next_step=f"`resume TABLE {operation_id}` ends that.",
            )
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
        if operation.grace_until_ms() is not None or operation.may_come_to_wait():
            waiting.append(operation_id)
    return tuple(waiting)


def _is_asking(operation: Operation, table: Table) -> bool:
    """Whether a request has no known outcome yet, and is not dead once the table moves."""
    return any(
        state.intent is not None
        and state.outcome in (None, "unknown")
        and (state.intent.metadata_location is None or table.takes_late_requests)
        for state in operation.steps.values()
    )
