"""What commands about many tables have in common: patterns, output as it becomes known, failures, exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from iceberg_cli.cli.context import Run
from iceberg_cli.errors import IcebergCliError, UsageError

if TYPE_CHECKING:
    from iceberg_cli.fleet.listing import TableList

TOTALS_SCHEMA: Final = "iceberg-cli/totals/1"
WORST_FIRST: Final = (1, 13, 15, 14, 16, 12, 10, 11)  # exit codes
_ROWS_AT_ONCE: Final = 1_000  # of text: each of these tables has titles and widths of its own

Patterns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATTERN...]",
        help="CATALOG, CATALOG.NAMESPACE, CATALOG.*.TABLE_*, or folders such as /wh/** and s3://lake/db/*; without "
        "one, every catalog that is configured.",
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--jsonl", help="One JSON object a line for each table as it is known; the last line has the totals."
    ),
]


def tables_of(run: Run, patterns: Sequence[str] | None) -> TableList:
    """The tables that patterns mean, not listed yet.

    Raises:
        UsageError: a pattern has no meaning.
    """
    from iceberg_cli.fleet.listing import list_tables
    from iceberg_cli.fleet.patterns import parse_pattern

    return list_tables(
        [parse_pattern(text) for text in dict.fromkeys(patterns or ())],
        catalog_config=run.catalog_config,
        storage_options=run.storage_options(),
    )


class TableOutput:
    """The rows of a command about many tables: JSON lines, one document, or text.

    Args:
        run: the options of all commands.
        schema: of the document.
        line_schema: of a line.
        jsonl: whether `--jsonl` is given.

    Raises:
        UsageError: `--jsonl` and `--format` contradict each other.
    """

    def __init__(self, run: Run, schema: str, line_schema: str, *, jsonl: bool) -> None:
        if jsonl and "--format" in run.settings.typed:
            raise UsageError("--jsonl and --format each say what standard output has; give one of them")
        self._run, self._schema, self._line_schema = run, schema, line_schema
        self._lines = jsonl
        self._json = run.json and not jsonl
        self._rows: list[dict[str, Any]] = []
        self._show: Callable[[list[dict[str, Any]]], None] = lambda _: None
        self._field = ""

    def row(self, field: str, row: Mapping[str, Any], show: Callable[[list[dict[str, Any]]], None]) -> None:
        """Print a row: a line at once, text a thousand rows at a time, a document when all is known.

        Args:
            field: of the document, which has the rows.
            row: an element of it.
            show: prints rows as text.
        """
        self._field, self._show = field, show
        if self._lines:
            self._run.progress.close()
            sys.stdout.write(json.dumps({"schema": self._line_schema, **row}) + "\n")
            sys.stdout.flush()
            return
        self._rows.append(dict(row))
        if not self._json and len(self._rows) >= _ROWS_AT_ONCE:
            self._show_rows()

    def _show_rows(self) -> None:
        if self._rows and not self._run.quiet:
            self._run.progress.close()
            self._show(self._rows)
        self._rows = []

    def end(self, totals: Mapping[str, Any], more: Mapping[str, Any], *, field: str = "tables") -> None:
        """Print what is left: the rest of the text, the document, or the line of totals.

        Args:
            totals: of all rows.
            more: further fields of the document and of the line of totals.
            field: of the document, where no row named it.
        """
        self._run.progress.close()
        if self._lines:
            sys.stdout.write(json.dumps({"schema": TOTALS_SCHEMA, **totals, **more}) + "\n")
            sys.stdout.flush()
        elif self._json:
            from iceberg_cli.cli.render import print_json

            print_json(
                {"schema": self._schema, self._field or field: self._rows, **more, "totals": dict(totals)}
            )
        else:
            self._show_rows()


def tell_failures(run: Run, found: TableList) -> list[tuple[str, IcebergCliError]]:
    """Print on standard error which places could not be listed and which patterns mean nothing.

    Args:
        run: the options of all commands.
        found: iterated over already.

    Returns:
        Each place or pattern with its error.
    """
    from iceberg_cli.cli.render.report import show_error

    errors: list[tuple[str, IcebergCliError]] = [(each.name, each.error) for each in found.failed]
    errors += [(pattern.text, error) for pattern, error in found.unmatched()]
    for _, error in errors:
        run.progress.close()
        show_error(run.err, error)
    return errors


def failed_json(errors: Iterable[tuple[str, IcebergCliError]]) -> list[dict[str, Any]]:
    """The field `failed` of a document."""
    return [{"name": name, "exit_code": error.exit_code, "message": error.message} for name, error in errors]


def leave_with_worst(codes: Iterable[int]) -> None:
    """Leave with the worst of some exit codes, unless all are 0.

    Raises:
        typer.Exit: one is not.
    """
    found = {code for code in codes if code}
    worst = next((code for code in (*WORST_FIRST, *sorted(found)) if code in found), 0)
    if worst:
        raise typer.Exit(worst)
