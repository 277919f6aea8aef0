"""The operations of one table: those that are open, looked at and gone on with, and those that are over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from iceberg_cli.api.arguments import Arguments, now_ms
from iceberg_cli.api.runtime import new_runtime
from iceberg_cli.api.settling import OnSettled, settled_by
from iceberg_cli.errors import UsageError
from iceberg_cli.formats import format_of
from iceberg_cli.plan.events import RECOVER, phase

if TYPE_CHECKING:
    from iceberg_cli.operation.runtime import Runtime
    from iceberg_cli.plan.report import RecoveredOperation
    from iceberg_cli.table.history import OperationHistory
    from iceberg_cli.table.recovery import OpenOperation
    from iceberg_cli.table.table import OpenTable


_FRESH_S: Final = 1.0  # how long what was read of a table in opening it is as good as another look


class TableOperations:
    """What `Table` has of its operations."""

    def __init__(self, opened: OpenTable, *, names_options: bool = False) -> None:
        self._opened = opened
        self._arguments = Arguments(names_options=names_options)
        self._fresh_until = time.monotonic() + _FRESH_S

    @property
    def name(self) -> str:
        """As it was named, or its folder."""
        return self._opened.name

    @property
    def format(self) -> str:
        """`iceberg` or `delta`, or that of a package."""
        return self._opened.format

    @property
    def identity(self) -> dict[str, str]:
        """How every document names it: `name`, `location`, `format`."""
        return self._opened.identity

    def operations(self, operation_id: str | None = None) -> list[OpenOperation]:
        """The operations that were not closed, or this one of them, with the state of each.

        Raises:
            UsageError: the table has no such open operation.
        """
        return self._operations(operation_id)

    def history(self, *, operation: str | None = None, limit: int | None = None) -> OperationHistory:
        """What this program did to the table: its operations, open and over, newest first. Writes nothing.

        Args:
            operation: only those of this verb.
            limit: at most so many; None: all that are kept, of each verb the newest hundred.

        Raises:
            BackendUnavailable: the storage failed.
        """
        from iceberg_cli.table.history import history_of

        with self._arguments.naming(), phase(RECOVER, self._opened.on_event, table=self.name):
            return history_of(self._opened, verb=operation, limit=limit, now_ms=now_ms())

    def last_run_ms(self, verb: str) -> int | None:
        """When the newest run of a verb began that did what it was to do, in ms since the epoch; None: none is known.

        Raises:
            BackendUnavailable: the storage failed.
        """
        from iceberg_cli.operation.history import last_run_ms

        opened = self._opened
        return last_run_ms(opened.storage, opened.location, opened.base().table_uuid, verb)

    def _operations(self, operation_id: str | None, *, goes_on: bool = False) -> list[OpenOperation]:
        """See `operations`, and `recovery.operations`."""
        from iceberg_cli.table.recovery import operations

        with self._arguments.naming(), phase(RECOVER, self._opened.on_event, table=self.name):
            open_operations = operations(self._opened, now_ms=now_ms(), goes_on=goes_on)
        if operation_id is None:
            return open_operations
        named = [listed for listed in open_operations if listed.operation_id == operation_id]
        if not named:
            raise UsageError(
                f"{self.name} has no open operation {operation_id}",
                next_step="`resume --list` shows those that are open.",
            )
        return named

    def resume(
        self,
        operation_id: str | None = None,
        *,
        abandon: bool = False,
        runtime: Runtime | None = None,
        on_settled: OnSettled | None = None,
    ) -> list[RecoveredOperation]:
        """Finish open operations, or close them with `abandon`; one that cannot be finished does not stop the others.

        Args:
            operation_id: this one; None: all.
            abandon: close them without finishing them: their files stay.
            runtime: limits; None: none.
            on_settled: gets each result as it comes.

        Raises:
            UsageError: the table has no such open operation.
            Interrupted: `stop_requested`.
        """
        from iceberg_cli.table.recovery import close, finish

        runtime = runtime or new_runtime()
        open_operations = self._operations(operation_id, goes_on=True)
        self._fresh_until = 0.0
        verbs = format_of(self.format).verbs
        with self._arguments.naming(), phase(RECOVER, runtime.on_event, table=self.name):
            return settled_by(
                self.identity,
                (
                    close(self._opened, listed, runtime)
                    if abandon
                    else finish(self._opened, listed, runtime, verbs=verbs)
                    for listed in open_operations
                ),
                runtime.on_event,
                on_settled,
            )

    def recover(
        self, *, runtime: Runtime | None = None, on_settled: OnSettled | None = None
    ) -> list[RecoveredOperation]:
        """Finish the open operations that nobody works on and whose grace is over, as verbs that write do first.

        Args:
            runtime: see `resume`.
            on_settled: see `resume`.

        Raises:
            Interrupted: `stop_requested`.
        """
        from iceberg_cli.table.recovery import recover_all

        runtime = runtime or new_runtime()
        with self._arguments.naming(), phase(RECOVER, runtime.on_event, table=self.name):
            found = recover_all(self._opened, runtime, verbs=format_of(self.format).verbs)
            done = settled_by(self.identity, found, runtime.on_event, on_settled)
        if done:
            self._fresh_until = 0.0
        return done

    def remove_leftovers(self) -> list[str]:
        """Delete the temporary files that killed runs left more than a day ago; those that are gone."""
        from iceberg_cli.table.table import remove_leftovers

        return remove_leftovers(self._opened, now_ms=now_ms())
