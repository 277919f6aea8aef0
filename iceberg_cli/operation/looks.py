"""Looks at a table by which nothing is carried out, in its history."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.operation.history import PastOperation, record_end

if TYPE_CHECKING:
    from iceberg_cli.operation.ports import Table, Verb
    from iceberg_cli.operation.runtime import Runtime
    from iceberg_cli.plan.plan import Plan


def keep_look(plan: Plan, table: Table, verb: Verb, runtime: Runtime) -> None:
    """Keep that a verb was planned and nothing of it is carried out, if its looks count as runs.

    It is done without where the table is read-only, and where its storage fails or forbids it: all that comes of it is
    that the verb looks again sooner.

    Args:
        plan: of which nothing is carried out.
        table: that it is of.
        verb: whose it is.
        runtime: has the time, an id, and who runs it.
    """
    if not verb.policy.place.looks_count:
        return
    now_ms = runtime.now_ms()
    with suppress(IcebergCliError):
        if table.read_only_reason() is not None:
            return
        look = PastOperation(
            operation_id=runtime.new_uuid(),
            operation=plan.verb,
            table_uuid=table.base().table_uuid,
            actor=runtime.actor,
            started_ms=now_ms,
            finished_ms=now_ms,
            status="done",
            committed=(),
            deleted_files_count=0,
            reclaimed_bytes=0,
            counts={},
            resumed=False,
        )
        record_end(table.workspace.storage, table.workspace.location, look)
