"""`list`: the tables that patterns mean, one a line. Opens none of them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import typer

from iceberg_cli.cli.commands.many_tables import (
    FleetCommand,
    JsonLines,
    Patterns,
    TableOutput,
    leave_with_worst,
    patterns_of,
)
from iceberg_cli.cli.context import OF_CHANGES, WHERE_SCANS_RUN, Run, command
from iceberg_cli.errors import UsageError
from iceberg_cli.formats import BUILT_IN

_LINE_SCHEMA: Final = "iceberg-cli/list-table/1"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "list", without=(*WHERE_SCANS_RUN, *OF_CHANGES, "unsafe_trust_lists"), changes=False)
    def list_(
        run: Run,
        patterns: Patterns = None,
        kind: Annotated[
            str | None, typer.Option(metavar="|".join(BUILT_IN), help="Only tables of this format.")
        ] = None,
        jsonl: JsonLines = False,
    ) -> None:
        """List the tables of catalogs and folders, each once. Opens none of them.

        PATTERN is a catalog, a namespace or tables (prod, prod.sales, prod.*.orders_*), or folders (/wh/**,
        s3://lake/db/*); without one, every catalog that PyIceberg's configuration names. Two names of one table are
        one row, the other name beside it. With --verbose their open operations are counted, as far as the place of a
        table is known.
        """
        if kind is not None and kind not in BUILT_IN:
            raise UsageError(f"--kind must be {' or '.join(BUILT_IN)}, not {kind!r}")
        from iceberg_cli.fleet.calls.table_listing import LIST_SCHEMA

        fleet = FleetCommand(run, patterns_of(patterns))
        output = TableOutput(run, LIST_SCHEMA, _LINE_SCHEMA, partial(_show, run), jsonl=jsonl)
        opener = fleet.opener() if run.verbose else None
        total = 0
        for table in fleet.tables:
            if kind in (None, table.format):
                operations = None if opener is None else opener.open_operations(table, table.location)
                output.row({**table.to_json(), "open_operations": operations})
                total += 1
        failures = fleet.failures()
        output.end({"tables": total}, {"failed": failures.to_json()})
        fleet.show_failures(failures)
        if not jsonl:
            fleet.show_left_out()
        leave_with_worst(failures.codes)


def _show(run: Run, rows: list[dict[str, Any]]) -> None:
    from iceberg_cli.cli.render.table_list import show_tables

    show_tables(run.out, rows)
