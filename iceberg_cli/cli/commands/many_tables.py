"""What commands about many tables have in common: patterns, output as it becomes known, failures, exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import typer

from iceberg_cli.cli.context import Run
from iceberg_cli.cli.options.arguments import integer
from iceberg_cli.cli.options.configuration import is_variable
from iceberg_cli.errors import UsageError, worst_of
from iceberg_cli.formats import maintenance_verbs
from iceberg_cli.plan.events import Event
from iceberg_cli.plan.text import did_you_mean, size_bytes

if TYPE_CHECKING:
    from iceberg_cli.fleet.due import FleetPolicy
    from iceberg_cli.fleet.facts import FactsStore
    from iceberg_cli.fleet.listing import Failures, TableList
    from iceberg_cli.fleet.opening import TableOpener
    from iceberg_cli.fleet.patterns import Pattern
    from iceberg_cli.fleet.policy_file import GivenOptions, PolicyFile

TOTALS_SCHEMA: Final = "iceberg-cli/totals/1"
DEFAULT_JOBS: Final = 2
_ROWS_AT_ONCE: Final = 1_000  # of text: each of these tables has titles and widths of its own

Patterns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATTERN...]",
        help="CATALOG, CATALOG.NAMESPACE, CATALOG.*.TABLE_*, or folders such as /wh/** and s3://lake/db/*; without "
        "one, what the file of --policy matches, else every catalog that is configured.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=integer, help=f"Tables that are worked on side by side; default: {DEFAULT_JOBS}."
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--jsonl", help="One JSON object a line for each table as it is known; the last line has the totals."
    ),
]


def patterns_of(texts: Sequence[str] | None, policy: PolicyFile | None = None) -> Sequence[Pattern]:
    """The patterns of a command line, each once; where it has none, those of a policy file.

    Raises:
        UsageError: one has no meaning.
    """
    from iceberg_cli.fleet.patterns import parse_patterns

    if not texts and policy is not None:
        return policy.patterns
    return parse_patterns(texts or ())


class FleetCommand:
    """A command about many tables: which they are, what opens them, and what of them could not be listed.

    Args:
        run: the options of all commands.
        patterns: of the tables, which are listed when they are iterated over.
        compared: see `TableList`.
    """

    def __init__(self, run: Run, patterns: Sequence[Pattern], *, compared: bool = False) -> None:
        self._run, self._patterns, self._compared = run, patterns, compared

    @cached_property
    def tables(self) -> TableList:
        """Its tables, not listed yet."""
        from iceberg_cli.fleet.listing import list_tables

        return list_tables(
            self._patterns,
            catalog_config=self._run.catalog_config,
            storage_options=self._run.storage_options(),
            compared=self._compared,
        )

    def opener(self) -> TableOpener:
        """What opens its tables.

        Raises:
            UsageError: a storage option has no meaning.
        """
        from iceberg_cli.fleet.opening import TableOpener

        run = self._run
        if run.unsafe_forget_metadata:
            raise UsageError(
                "--unsafe-forget-metadata is about the metadata files of one table",
                next_step="Run that table's verb by itself.",
            )
        return TableOpener(
            storage_options=run.storage_options(),
            catalog_config=run.catalog_config,
            allow_roots=run.unsafe_allow_root or (),
            trust_lists=run.unsafe_trust_lists,
            conditional_writes=run.unsafe_conditional_writes,
            single_writer=run.unsafe_single_writer,
            engine=run.engine_choice,
            cache_bytes=None if run.no_cache else size_bytes(run.cache_size, "--cache-size"),
            names_options=True,
            on_event=run.on_event,
        )

    def facts(self) -> FactsStore:
        """What earlier surveys read; with --no-cache nothing."""
        from iceberg_cli.fleet.facts import FactsStore, facts_folder

        return FactsStore(None if self._run.no_cache else facts_folder(os.environ))

    # -- once its tables have been iterated over ---------------------------------------------------------------

    def failures(self) -> Failures:
        """Which places could not be listed and which patterns mean nothing."""
        return self.tables.failures()

    def show_failures(self, failures: Failures) -> None:
        """Print them on standard error, and last the places of which tables may be missing."""
        if not failures:
            return
        from iceberg_cli.cli.render.report import show_error
        from iceberg_cli.plan.text import count, listed

        run = self._run
        run.progress.close()
        for _, error in failures:
            error.was_looking = True
            show_error(run.err, error)
        if places := [each.name for each in self.tables.failed]:
            run.err.line(f"{count(len(places), 'places')} could not be listed whole: {listed(places)}")

    def show_left_out(self) -> None:
        """Print how many views were among its tables, where there are any and text is shown."""
        run = self._run
        if not (run.json or run.quiet):
            from iceberg_cli.cli.render.table_list import show_left_out

            show_left_out(run.out, self.tables.views)


def fleet_policy(
    run: Run, path: str | None, *, only: Iterable[str] = (), memory: GivenOptions | None = None
) -> FleetPolicy:
    """Which verbs are looked at, by a policy file and by what variables and the configuration file give each of them.

    Args:
        run: the options of all commands.
        path: of the policy file, or None.
        only: the verbs that are looked at; none: all.
        memory: see `FleetPolicy`.

    Raises:
        UsageError: the file cannot be read, or a verb is none.
    """
    from iceberg_cli.fleet.due import FleetPolicy
    from iceberg_cli.fleet.policy_file import GivenOptions, load_policy

    known = maintenance_verbs()
    for verb in only:
        if verb not in known:
            raise UsageError(f"--only: {verb!r} is no verb that it runs.{did_you_mean(verb, known)}")
    file = None if path is None else load_policy(path)
    every = run.settings.every
    weaker: dict[str, GivenOptions] = {}
    stronger: dict[str, GivenOptions] = {}
    if every is not None and every.gives_any:
        for verb in maintenance_verbs():
            settings = every.of_command(verb)
            by_variable = {flag for flag, source in settings.sources.items() if is_variable(source)}
            for target, flags in (
                (stronger, by_variable),
                (weaker, settings.sources.keys() - by_variable),
            ):
                target[verb] = GivenOptions(
                    given={flag: settings.values[flag] for flag in flags},
                    sources={flag: settings.sources[flag] for flag in flags},
                )
    return FleetPolicy(file=file, weaker=weaker, stronger=stronger, only=frozenset(only), memory=memory)


class Outcome(Protocol):
    """What came of the work on a table, or of one verb of it."""

    @property
    def name(self) -> str:
        """Of the table."""
        ...

    @property
    def exit_code(self) -> int:
        """Of it alone."""
        ...

    @property
    def traceback(self) -> str:
        """Of a bug that was met, or empty."""
        ...


AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)


class Outcomes:
    """The outcomes of a run as they become known: progress, what bugs say, and the exit codes.

    Args:
        run: the options of all commands.
        phase: what progress calls the work.
    """

    def __init__(self, run: Run, phase: str) -> None:
        self._run, self._phase = run, phase
        self.codes: list[int] = []

    def of(self, outcomes: Iterable[AnyOutcome]) -> Iterator[AnyOutcome]:
        """Each of them; the line about progress goes at the end."""
        run = self._run
        names: set[str] = set()
        run.progress.of_tables = True
        self._tell(0)
        for outcome in outcomes:
            self.codes.append(outcome.exit_code)
            if outcome.traceback:
                run.tell(outcome.traceback.rstrip())
            yield outcome
            names.add(outcome.name)
            self._tell(len(names))
        run.progress.close()

    def _tell(self, tables: int) -> None:
        self._run.on_event(Event(phase=self._phase, done=tables, total=None, unit="tables"))


class TableOutput:
    """The rows of a command about many tables: JSON lines, one document, or text.

    Args:
        run: the options of all commands.
        schema: of the document.
        line_schema: of a line.
        show: prints rows as text.
        field: of the document, which has the rows.
        jsonl: whether `--jsonl` is given.
        report: where its page goes, which has every row, also those that are not printed; None: there is none.

    Raises:
        UsageError: `--jsonl` and `--format` contradict each other, or the page cannot be written.
    """

    def __init__(
        self,
        run: Run,
        schema: str,
        line_schema: str,
        show: Callable[[list[dict[str, Any]]], None],
        *,
        field: str = "tables",
        jsonl: bool,
        report: str | None = None,
    ) -> None:
        if report is not None:
            from iceberg_cli.cli.page import check_target

            check_target(report)
        if jsonl and "--format" in run.settings.typed:
            raise UsageError("--jsonl and --format each say what standard output has; give one of them")
        self._run, self._schema, self._line_schema = run, schema, line_schema
        self._show, self._field = show, field
        self._lines = jsonl
        self._json = run.json and not jsonl
        self._rows: list[dict[str, Any]] = []
        self._report = report
        self._of_page: list[dict[str, Any]] = []

    def row(self, row: Mapping[str, Any], *, is_printed: bool = True) -> None:
        """Print a row: a line at once, text a thousand rows at a time, a document when all is known.

        Args:
            row: an element of the document's field.
            is_printed: else it is on the page alone.
        """
        if self._report is not None:
            self._of_page.append(dict(row))
        if not is_printed:
            return
        if self._lines:
            self._run.progress.close()
            sys.stdout.write(json.dumps({"schema": self._line_schema, **row}) + "\n")
            sys.stdout.flush()
            return
        self._rows.append(dict(row))
        if not self._json and len(self._rows) >= _ROWS_AT_ONCE:
            self._show_rows()

    @property
    def is_document(self) -> bool:
        """Whether it is JSON, which programs read."""
        return self._lines or self._json

    def _show_rows(self) -> None:
        if self._rows and not self._run.quiet:
            self._run.progress.close()
            self._show(self._rows)
        self._rows = []

    def end(
        self,
        totals: Mapping[str, Any],
        more: Mapping[str, Any],
        *,
        head: Mapping[str, Any] | None = None,
    ) -> None:
        """Print what is left: the rest of the text, the document, or the line of totals.

        Args:
            totals: of all rows.
            more: further fields of the document and of the line of totals.
            head: fields of the document and of the line of totals that stand before the rows.
        """
        head = head or {}
        self._run.progress.close()
        if self._lines:
            sys.stdout.write(json.dumps({"schema": TOTALS_SCHEMA, **head, **totals, **more}) + "\n")
            sys.stdout.flush()
        elif self._json:
            from iceberg_cli.cli.render import print_json

            print_json(
                {
                    "schema": self._schema,
                    **head,
                    self._field: self._rows,
                    **more,
                    "totals": dict(totals),
                }
            )
        else:
            self._show_rows()
        if self._report is not None:
            from iceberg_cli.cli.page import write_page

            rows = {self._field: self._of_page}
            document = {"schema": self._schema, **head, **rows, **more, "totals": dict(totals)}
            write_page(document, self._report)


def leave_with_worst(codes: Iterable[int]) -> None:
    """Leave with the worst of some exit codes, unless all are 0.

    Raises:
        typer.Exit: one is not.
    """
    if worst := worst_of(codes):
        raise typer.Exit(worst)
