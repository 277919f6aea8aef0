"""The clock and the limits of what changes a table."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from iceberg_cli.api.arguments import now_ms
from iceberg_cli.operation.runtime import DeletionAllowance, Runtime, process_started, system_runtime
from iceberg_cli.plan.arguments import naming
from iceberg_cli.plan.events import Listener, unheard
from iceberg_cli.plan.times import Time, deadline_ms
from iceberg_cli.telemetry import traced


@naming({})
def new_runtime(
    *,
    on_event: Listener = unheard,
    limit_deletes: int | None = None,
    deadline: Time | None = None,
    allowance: DeletionAllowance | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
    actor: str | None = None,
) -> Runtime:
    """The clock and the limits of what changes a table.

    Args:
        on_event: see `open_table`.
        limit_deletes: files, counted over all that gets the same runtime; None: no limit.
        deadline: nothing more is begun after this time, or this long from now.
        allowance: of deletions, shared with other runtimes.
        stop_requested: whether to stop at the next safe point.
        actor: who runs it, for the table's history; None: the user at the host.

    Raises:
        UsageError: a deadline has no meaning.
    """
    return system_runtime(
        on_event=traced(on_event),
        host=socket.gethostname(),
        process_id=os.getpid(),
        process_started=process_started(os.getpid()),
        limit_deletes=limit_deletes,
        deadline_ms=None if deadline is None else deadline_ms(deadline, "deadline", now_ms=now_ms()),
        allowance=allowance,
        stop_requested=stop_requested,
        actor=actor or _user_at_host(),
    )


def _user_at_host() -> str:
    import getpass  # only what changes a table needs it

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
