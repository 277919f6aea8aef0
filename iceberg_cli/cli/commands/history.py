"""`history`: the operations of this program on a table, open and over. Never writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from iceberg_cli.cli.context import OF_CHANGES, OF_ENGINES, Run, TableArgument, command
from iceberg_cli.cli.options.arguments import integer
from iceberg_cli.errors import UsageError
from iceberg_cli.formats import VERB_NAMES, plugged_verbs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iceberg_cli.plan.inspection import Column

_LIMIT: Final = 20


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "history", without=(*OF_ENGINES, *OF_CHANGES, "unsafe_trust_lists"), changes=False)
    def history(
        run: Run,
        table: TableArgument,
        operation: Annotated[
            str | None, typer.Option(metavar="VERB", help="Only operations of this verb.")
        ] = None,
        limit: Annotated[
            int | None,
            typer.Option(
                metavar="N", parser=integer, help=f"At most so many, the newest.  [default: {_LIMIT}]"
            ),
        ] = None,
    ) -> None:
        """Show what this program did to a table: its operations, open and over, newest first.

        Of each verb the newest hundred are kept, in the table's folder. What others did is in the table's own log:
        `inspect TABLE history`.
        """
        if operation is not None and operation not in VERB_NAMES:
            known = (*VERB_NAMES, *plugged_verbs())
            if operation not in known:
                raise UsageError(f"--operation must be one of {', '.join(known)}, not {operation!r}")
        if limit is not None and limit < 1:
            raise UsageError(f"--limit must be at least 1, and is {limit}")
        opened = run.open(table)
        found = opened.history(operation=operation, limit=_LIMIT if limit is None else limit)
        rows = found.rows()
        run.progress.close()
        if run.json:
            from iceberg_cli.cli.render import print_json

            unreadable = [error.message for error in found.unreadable]
            head: dict[str, Any] = {"schema": "iceberg-cli/history/1", "table": opened.identity}
            print_json({**head, "operations": rows, "unreadable": unreadable})
        elif rows:
            (run.err if run.quiet else run.out).grid(_columns(rows), rows)
        elif not run.quiet:
            run.out.line("No operation of this program.")
        for error in found.unreadable:
            run.err.line(error.message)
        if found.unreadable:
            raise typer.Exit(max(error.exit_code for error in found.unreadable))


def _columns(rows: Sequence[Mapping[str, Any]]) -> Sequence[Column]:
    """The columns; those about taking back only where a row has something there."""
    from iceberg_cli.plan.inspection import ID, NUMBER, SIZE, TEXT, TIME, Column

    undo = Column("undo", _undo_text, TEXT, leaves=5)
    by = Column("undone by", "undone_by", ID, leaves=1)
    return (
        Column("started", "started_ms", TIME),
        Column("verb", "operation", ID),
        Column("status", "status", ID),
        Column("commits", lambda row: len(row["committed"]), NUMBER, leaves=2),
        Column("files", lambda row: row["deleted_files_count"] or "", NUMBER),
        Column("freed", lambda row: row["reclaimed_bytes"] or "", SIZE, leaves=3),
        *((undo,) if any(map(_undo_text, rows)) else ()),
        Column("by", "actor", TEXT, leaves=4),
        *((by,) if any(row["undone_by"] for row in rows) else ()),
        Column("operation", "operation_id", ID, leaves=1),
    )


def _undo_text(row: Mapping[str, Any]) -> str:
    """Until when an operation can be taken back, in words; "" where it cannot."""
    from iceberg_cli.plan.text import moment

    undo = row["undo"]
    if row["undone_by"] is not None or not undo["possible"]:
        return "taken back" if row["undone_by"] is not None else ""
    return "while newest" if undo["until_ms"] is None else f"until {moment(undo['until_ms'])}"
