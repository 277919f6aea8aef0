"""The open operations of many tables: which there are, and finishing those that can be finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iceberg_cli.errors import IcebergCliError, Interrupted

if TYPE_CHECKING:
    from iceberg_cli.api import OpenOperation, Runtime
    from iceberg_cli.fleet.listing import ListedTable
    from iceberg_cli.fleet.opening import TableOpener
    from iceberg_cli.plan.report import RecoveredOperation


@dataclass(frozen=True, kw_only=True)
class TableOperations:
    """The open operations of one table.

    Args:
        table: its `name`, `location` and `format`.
        found: in the order in which they are gone on with.
        settled: what came of each, where they were gone on with.
        error: why the table's operations cannot be looked at.
    """

    table: Mapping[str, Any]
    found: tuple[OpenOperation, ...] = ()
    settled: tuple[RecoveredOperation, ...] = ()
    error: IcebergCliError | None = None


def operations_of(
    tables: Iterable[ListedTable], opener: TableOpener, *, runtime: Runtime | None = None
) -> Iterator[TableOperations]:
    """Those of tables that have some or cannot be opened, table by table.

    Args:
        tables: those that are listed.
        opener: opens them.
        runtime: limits, which are of all tables together; with it each operation is gone on with, as `resume` does.

    Raises:
        Interrupted: a signal asked to stop. UsageError, BackendUnavailable: Spark is to be used and cannot be.
    """
    if runtime is not None:
        opener.start_engine()
    for listed in tables:
        identity = listed.identity
        try:
            table = opener.open(listed)
            identity = table.identity
            if runtime is not None:
                table.remove_leftovers()
            found = tuple(table.operations())
            if found:
                settled = () if runtime is None else tuple(table.resume(runtime=runtime))
                yield TableOperations(table=identity, found=found, settled=settled)
        except Interrupted:
            raise
        except IcebergCliError as error:
            yield TableOperations(table=identity, error=error)
