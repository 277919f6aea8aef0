"""`demo`: a small warehouse to try everything on."""

from __future__ import annotations

from typing import Annotated

import typer

from iceberg_cli.cli.context import Run, command
from iceberg_cli.cli.terminal.stopping import changed


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "demo", only=("document_format", "as_of", "quiet"))
    def demo(
        run: Run,
        folder: Annotated[
            str, typer.Argument(metavar="DIR", help="A folder that does not exist yet or is empty.")
        ],
    ) -> None:
        """Create a small warehouse: two Iceberg tables and one of Delta, with a history of forty days.

        It has snapshots and versions, a branch, tags, deletion vectors, and something to do for each verb.
        """
        from iceberg_cli.cli import render
        from iceberg_cli.demo import create_demo

        changed(f"What was written so far is in {folder}.")
        tables = create_demo(folder, now_ms=run.as_of_ms)
        if run.json:
            render.print_json({"schema": "iceberg-cli/demo/1", "tables": [*tables.every]})
        elif not run.quiet:
            for location in tables.every:
                run.out.command(location, indent=0)
            run.out.command(f"Now try: iceberg-cli inspect {tables.events}", indent=0)
