"""The shared part of all commands: options, opening the table, confirmation, and exit codes of errors."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from iceberg_cli.cli import subject
from iceberg_cli.cli.clock import now_ms
from iceberg_cli.cli.listening import listeners
from iceberg_cli.cli.options.arguments import (
    ArgumentGroup,
    Idle,
    group_of,
    key_value,
    positive,
    spelled,
    values_of,
)
from iceberg_cli.cli.options.help_texts import epilog
from iceberg_cli.cli.options.plain_command import PlainCommand
from iceberg_cli.cli.options.settings import Settings, all_typed
from iceberg_cli.cli.terminal import stopping
from iceberg_cli.cli.terminal.streams import OutputLost, after
from iceberg_cli.errors import Cancelled, IcebergCliError, UsageError
from iceberg_cli.plan.text import duration_ms, size_bytes, time_ms

if TYPE_CHECKING:
    from iceberg_cli.api import Runtime, Table
    from iceberg_cli.cli.listening.progress import Progress
    from iceberg_cli.cli.render.screen import Screen
    from iceberg_cli.plan.events import Listener
    from iceberg_cli.plan.report import Report

DECLINED: Final = 4
"""The exit code where a question was answered with no: what stands behind `&&` must not run."""

TableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="A table's folder or URI, a metadata.json (read-only), or CATALOG.NAMESPACE.TABLE.",
    ),
]


@dataclass(kw_only=True)
class Run:
    """The options that every command shares, and the consoles, table and runtime made from them."""

    document_format: Annotated[
        str, typer.Option("--format", metavar="text|json", help="json: one document on standard output.")
    ] = "text"
    engine: Annotated[str, typer.Option(metavar="auto|local|spark", help="Where scans run.")] = "auto"
    spark_master: Annotated[str | None, typer.Option(metavar="URL", help="An existing Spark master.")] = None
    spark_remote: Annotated[str | None, typer.Option(metavar="URL", help="A Spark Connect server.")] = None
    spark_conf: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Spark configuration.")] = None
    catalog_config: Annotated[
        str | None, typer.Option(metavar="FILE", help="A .pyiceberg.yaml to read catalogs from.")
    ] = None
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K=V", help="Passed to the storage; K=@FILE and K=env:NAME keep secrets out of arguments."
        ),
    ] = None
    unsafe_allow_root: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URI",
            help="Delete in this folder too: one that is not the table's own, that is a whole bucket, or that a "
            "symbolic link inside the table leads to.",
        ),
    ] = None
    unsafe_trust_lists: Annotated[
        bool,
        typer.Option(
            "--unsafe-trust-lists", help="Believe manifest lists that hold fewer files than the summary says."
        ),
    ] = False
    unsafe_conditional_writes: Annotated[
        bool,
        typer.Option(
            "--unsafe-conditional-writes",
            help="Vouch that the object store keeps conditional creates under races and, on S3, that nobody writes "
            "the Delta table without them, as Delta Spark's own log stores do.",
        ),
    ] = False
    unsafe_single_writer: Annotated[
        bool,
        typer.Option(
            "--unsafe-single-writer",
            help="Vouch that nobody else commits to this Iceberg table by file names in an object store.",
        ),
    ] = False
    unsafe_forget_metadata: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Vouch that no table needs the metadata file of this name beside an Iceberg table's own, which is "
            "neither current nor in its log: what only that reaches may go.",
        ),
    ] = None
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache",
            help="Read every file again: use and keep nothing of what a run learns of immutable files.",
        ),
    ] = False
    cache_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Room for what runs learn, in $XDG_CACHE_HOME/iceberg-cli.")
    ] = "1GiB"
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The 'now' of every age decision (ISO 8601 or epoch ms)."),
    ] = None
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every row and every option.")] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only errors, and what is left undone.")
    ] = False
    progress_mode: Annotated[
        str | None,
        typer.Option(
            "--progress",
            metavar="auto|bar|lines|json|none",
            help="Progress on standard error. auto: a bar on a terminal, else a line every ten seconds; json: one "
            "event/1 document a line. Without it auto, and with --quiet none.",
        ),
    ] = None
    no_progress: Annotated[bool, typer.Option("--no-progress", help="As --progress none.")] = False
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Never show long output by $PAGER.")] = False
    log_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Append what is done to FILE, as JSON lines; SIGHUP opens it anew, as logrotate asks.",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse options that contradict each other before anything is opened."""
        if self.document_format not in ("text", "json"):
            raise UsageError(f"--format must be text or json, not {self.document_format!r}")
        if self.no_progress and self.progress_mode not in (None, "none"):
            raise UsageError("--progress and --no-progress contradict each other")
        from iceberg_cli.engines.selection import EngineChoice  # help and completion choose no engine

        self.engine_choice = EngineChoice(
            engine=self.engine,
            master=self.spark_master,
            remote=self.spark_remote,
            conf=dict(key_value(text, "--spark-conf") for text in self.spark_conf or ()),
            say=self._say,
            names_options=True,
        )
        self._opened: list[Table] = []
        self._storage_options_checked = False
        self.settings = all_typed({})
        self.started_ms = now_ms()
        self.as_of_ms = (
            self.started_ms if self.as_of is None else time_ms(self.as_of, "--as-of", now_ms=self.started_ms)
        )

    @classmethod
    def of(cls, settings: Settings, names: Collection[str]) -> Run:
        """The shared options of a command line.

        Args:
            settings: its own.
            names: of the fields that are among them; others keep their defaults.
        """
        run = cls(**{name: settings.values[name] for name in names})
        run.settings = settings
        return run

    def spelled(self) -> list[str]:
        """The typed options that decide which table and which time are meant, as words of another command line.

        Values of storage options are left out: they may be secrets.
        """
        given = Run(
            catalog_config=self.catalog_config,
            storage_option=[
                text if value.startswith(("@", "env:")) else f"{key}=..."
                for text in self.storage_option or ()
                for key, _, value in [text.partition("=")]
            ]
            or None,
            unsafe_allow_root=self.unsafe_allow_root,
            unsafe_trust_lists=self.unsafe_trust_lists,
            unsafe_conditional_writes=self.unsafe_conditional_writes,
            unsafe_single_writer=self.unsafe_single_writer,
            unsafe_forget_metadata=self.unsafe_forget_metadata,
            as_of=self.as_of,
        )
        return spelled(given, self.settings.typed)

    @property
    def json(self) -> bool:
        """Whether the output is one JSON document."""
        return self.document_format == "json"

    def listen(self) -> None:
        """Have the display of progress listen to what follows, the log file, and the trace where there is one.

        Raises:
            UsageError: an option for these has no meaning, or the log file cannot be written.
        """
        if self.log_file is not None:
            from iceberg_cli.cli.listening import log_file

            self._hide_secrets(dict(self._storage_options()))
            log_file.listen(self.log_file, as_of_ms=self.as_of_ms)
        from iceberg_cli import telemetry

        if telemetry.may_be_set_up():
            listeners.add(telemetry.RunSpan(subject.command(), subject.name()))
        listeners.add(self.progress)
        listeners.shows(self.progress.close)

    @functools.cached_property
    def progress(self) -> Progress:
        """The progress display on standard error."""
        from iceberg_cli.cli.listening.progress import Progress, mode_of

        requested = "none" if self.no_progress else self.progress_mode
        return Progress(sys.stderr, mode_of(requested, sys.stderr, silent=self.quiet))

    @property
    def on_event(self) -> Listener:
        """What passes events on to whatever listens to this run."""
        return listeners.tell

    @functools.cached_property
    def out(self) -> Screen:
        """Where text goes: standard output, unless that has the JSON document."""
        return self._screen(sys.stderr if self.json else sys.stdout)

    @functools.cached_property
    def err(self) -> Screen:
        """Where messages go: standard error."""
        return self._screen(sys.stderr)

    def _screen(self, stream: TextIO) -> Screen:
        from iceberg_cli.cli.render.screen import Screen

        return Screen(
            stream, as_of_ms=self.as_of_ms, verbose=self.verbose, color="NO_COLOR" not in os.environ
        )

    @contextmanager
    def paging(self, *, asks: bool = False) -> Iterator[None]:
        """Show what the block prints on standard output by the pager, where it is longer than the terminal.

        Args:
            asks: a question about it follows, so that it stays in sight unless it is much longer.
        """
        if self.no_pager or self.json or self.quiet or not sys.stdout.isatty():
            yield
            return
        from iceberg_cli.cli.terminal.paging import paged

        with paged(self.out, screens=2 if asks else 1):
            yield

    def open(self, name: str, *, even_unreadable: bool = False) -> Table:
        """Open the table that the operator named; see `api.open_table`.

        Raises:
            UsageError, TableNotFound, CorruptFile, BackendUnavailable.
        """
        from iceberg_cli.api import open_table

        cache_bytes = size_bytes(self.cache_size, "--cache-size")
        subject.named(name)
        storage_options = self.storage_options()
        table = open_table(
            name,
            storage_options=storage_options,
            catalog_config=self.catalog_config,
            allow_roots=self.unsafe_allow_root or (),
            trust_lists=self.unsafe_trust_lists,
            conditional_writes=self.unsafe_conditional_writes,
            single_writer=self.unsafe_single_writer,
            forget_metadata=self.unsafe_forget_metadata or (),
            engine=self.engine_choice,
            cache_bytes=None if self.no_cache else cache_bytes,
            even_unreadable=even_unreadable,
            names_options=True,
            on_event=self.on_event,
        )
        subject.opened(table.identity)
        listeners.opened(table)
        self._opened.append(table)
        return table

    def storage_options(self) -> dict[str, str]:
        """What storages are given, which no listener writes down; names that none knows are warned of once a run.

        Raises:
            UsageError: a file or a variable that has a value is not there.
        """
        options = dict(self._storage_options())
        self._hide_secrets(options)
        if options and not self._storage_options_checked:
            from iceberg_cli.cli.options.storage_option_names import warnings_of

            self._storage_options_checked = True
            for line in warnings_of(options):
                self.warn(line)
        return options

    def _hide_secrets(self, storage_options: Mapping[str, str]) -> None:
        """Have no listener write down what a storage is given."""
        words = [text.partition("=") for text in self.storage_option or ()]
        listeners.hide(
            storage_options, elsewhere=[key for key, _, value in words if value.startswith(("@", "env:"))]
        )

    def save_cache(self) -> None:
        """Save the cache of tables' immutable files for later runs; a run does not fail for it.

        Findings about these files that are in no plan are printed now.
        """
        for table in self._opened:
            for notice in table.notices():
                self.warn(notice)
            reason = table.save_cache()
            if reason is not None:
                self.warn(f"what this run learnt is not kept: {reason}")

    def warn(self, text: str) -> None:
        """Print a warning on standard error."""
        self._say(f"warning: {text}")
        listeners.warned(text)

    def _say(self, text: str) -> None:
        if not self.quiet:
            self.tell(text)

    def tell(self, text: str) -> None:
        """Print one line on standard error, also with --quiet."""
        from iceberg_cli.cli.render import printable

        self.progress.close()
        typer.echo(printable(text), err=True)

    def _storage_options(self) -> Iterator[tuple[str, str]]:
        for text in self.storage_option or ():
            key, value = key_value(text, "--storage-option")
            if value.startswith("@"):
                try:
                    with open(value[1:], encoding="utf-8") as file:
                        value = file.read().strip()
                except OSError as error:
                    raise UsageError(
                        f"--storage-option {key}: cannot read {error.filename}: {error.strerror}"
                    ) from error
            elif value.startswith("env:"):
                if value[4:] not in os.environ:
                    raise UsageError(f"--storage-option {key}: the environment has no {value[4:]}")
                value = os.environ[value[4:]]
            yield key, value

    def runtime(self, *, limit_deletes: int | None = None, deadline: str | None = None) -> Runtime:
        """The runtime of this run: clock, ids, limits and signals."""
        from iceberg_cli.api import new_runtime

        until_ms = None if deadline is None else self.started_ms + duration_ms(deadline, "--deadline")
        return new_runtime(
            on_event=self.on_event,
            limit_deletes=positive(limit_deletes, "--limit-deletes"),
            deadline=until_ms,
            stop_requested=lambda: bool(stopping.heard()),
        )

    @property
    def on_terminal(self) -> bool:
        """Whether the run is on a terminal, so that a question can be seen and answered."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def check_terminal(self) -> None:
        """Refuse to ask where nobody answers.

        Raises:
            UsageError: standard input is no terminal, or standard error, which has the question, is none.
        """
        if not self.on_terminal:
            stream = "error" if sys.stdin.isatty() else "input"
            raise UsageError(
                f"Nobody can be asked: standard {stream} is no terminal",
                next_step="Add --yes, or look with --dry-run.",
            )

    def confirm(self, question: str) -> bool:
        """Ask a question on the terminal."""
        self.progress.close()
        return typer.confirm(question, default=False, err=True)

    def confirm_by_name(self, name: str) -> bool:
        """Ask for a name to be typed on the terminal, which is not done by mistake."""
        from iceberg_cli.cli.render import printable

        self.progress.close()
        typed: str = typer.prompt(
            f"Type {printable(name)} to go on", default="", show_default=False, err=True
        )
        return typed.strip() == name.strip()

    def show_report(self, report: Report, table: Table, *, as_line: bool = False) -> None:
        """Print the report of a run on a table; `as_line`: as JSON, it is the last of several lines."""
        from iceberg_cli.cli.render import print_json
        from iceberg_cli.cli.render.report import show_report

        self.progress.close()
        with after(report):
            if self.json:
                print_json(report.to_json(table.identity), as_line=as_line)
            elif not self.quiet:
                # That nothing is to do stands in the first line of the plan.
                if report.status != "nothing_to_do" or report.notes:
                    show_report(self.out, report, table.name)
            elif report.failed_deletes or report.status == "partial":
                show_report(self.err, report, table.name)


class CommandList(typer.Typer):
    """An application that lists its commands and cannot call them: their options take time to make."""


def _without_options() -> None:
    """The function of a command that is only listed."""


OF_ENGINES: Final = ("engine", "spark_master", "spark_remote", "spark_conf")
WHERE_SCANS_RUN: Final = (*OF_ENGINES, "no_cache", "cache_size")
OF_CHANGES: Final = (
    "unsafe_allow_root",
    "unsafe_conditional_writes",
    "unsafe_single_writer",
    "unsafe_forget_metadata",
)


def command(
    app: typer.Typer,
    name: str,
    *,
    groups: Callable[[], Mapping[str, ArgumentGroup]] = dict,
    about: str = "",
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    idle: Idle = lambda _: (),
    changes: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose parameter `run` stands for all shared options.

    The cache is saved where the command comes to an end, whatever its exit code, also where nobody reads its output;
    not where an error stops it.

    Args:
        app: to register it with.
        name: of the command.
        groups: makes its other parameters that stand for several options.
        about: its help; by default the function's docstring.
        only: the names of the shared options that it has. None: all.
        without: those that mean nothing to it.
        idle: see `Idle`.
        changes: whether it may change a table. The errors of one that only looks do not say that nothing was changed.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def saving_cache(*, run: Run, **values: Any) -> None:
            run.listen()
            try:
                function(run=run, **values)
            except (typer.Exit, BrokenPipeError, OutputLost):
                run.save_cache()
                raise
            except IcebergCliError as error:
                error.was_looking = not changes
                raise
            run.save_cache()

        text = inspect.cleandoc(about or function.__doc__ or "")
        # The first sentence whole: without it the list of commands cuts it in the middle.
        summary = re.split(r"\.\s", " ".join(text.split()))[0].removesuffix(".")
        declare = app.command(
            name, cls=PlainCommand, help=text, short_help=f"{summary}.", epilog=epilog(name)
        )
        if isinstance(app, CommandList):
            declare(_without_options)
        else:
            shared = {
                each: argument
                for each, argument in group_of(Run, only=only).arguments.items()
                if each not in without
            }
            run = ArgumentGroup(shared, lambda settings: Run.of(settings, shared))
            declare(values_of(saving_cache, {**groups(), "run": run}, idle))
        return function

    return register


def leave_with(error: IcebergCliError, *, as_json: bool) -> int:
    """Print an error and return its exit code."""
    from iceberg_cli.cli import render

    listeners.failed(error)
    about = subject.document()
    if about["settled"] and error.state == IcebergCliError.default_state:
        error.state = stopping.state()
    if as_json:
        render.print_json({**render.error_document(error), **about})
    elif isinstance(error, Cancelled):
        sentences = (f"{error.message}.", error.state, error.next_step)
        typer.echo(render.printable(" ".join(text for text in sentences if text)), err=True)
    else:
        from iceberg_cli.cli.render.report import show_error
        from iceberg_cli.cli.render.screen import Screen

        show_error(Screen(sys.stderr, color="NO_COLOR" not in os.environ), error)
    return error.exit_code
