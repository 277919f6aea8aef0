"""What came of operations: for whoever called, and for whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from iceberg_cli.plan.events import Listener, OperationEnded

if TYPE_CHECKING:
    from iceberg_cli.plan.report import RecoveredOperation, Report

OnSettled: TypeAlias = "Callable[[RecoveredOperation], None]"


def settled_by(
    table: Mapping[str, Any],
    found: Iterable[RecoveredOperation],
    on_event: Listener,
    on_settled: OnSettled | None,
) -> list[RecoveredOperation]:
    """What came of open operations, of each of which whoever listens hears as it comes.

    Args:
        table: its `name`, `location` and `format`.
        found: the operations, gone on with one by one.
        on_event: gets their ends.
        on_settled: gets each of them.
    """
    done = []
    for outcome in found:
        each = replace(outcome, report=replace(outcome.report, table=table))
        done.append(each)
        on_event(end_of(table["name"], each.report, exit_code=each.exit_code, earlier=True))
        if on_settled is not None:
            on_settled(each)
    return done


def end_of(table: str, report: Report, *, exit_code: int, earlier: bool) -> OperationEnded:
    """The event of a report; `earlier`: of an operation that an earlier run had begun."""
    return OperationEnded(
        table=table,
        verb=report.verb,
        operation_id=report.operation_id,
        status=report.status,
        earlier=earlier,
        exit_code=exit_code,
        counts=report.counts,
        reclaimed_bytes=report.reclaimed_bytes,
        notes=report.notes,
    )
