"""The entry point of the command line: from arguments to an exit code. Each command has a module of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module

import typer
from typer.core import TyperGroup

from iceberg_cli import DISTRIBUTION, __version__
from iceberg_cli.cli import subject
from iceberg_cli.cli.context import DECLINED, CommandList, leave_with
from iceberg_cli.cli.listening import listeners
from iceberg_cli.cli.options.arguments import Argument, Values
from iceberg_cli.cli.options.configuration import FILE_NAME, Configuration, variable_of
from iceberg_cli.cli.options.help_texts import epilog
from iceberg_cli.cli.options.plain_command import PlainGroup
from iceberg_cli.cli.terminal import stopping
from iceberg_cli.cli.terminal.streams import OutputLost, give_up_output, guard_streams
from iceberg_cli.errors import Cancelled, IcebergCliError, UsageError
from iceberg_cli.formats import VERB_NAMES, plugged_verbs

EXIT_CODES = {
    0: "done, nothing to do, or nothing that applies to the table: go on",
    1: "bug (traceback): stop for this table and call somebody",
    2: "usage: fix the command",
    3: "something is due (only with --exit-code): go on",
    DECLINED: "declined: the answer to the question was no, nothing was changed: do not go on",
    10: "table not found: fix the name",
    11: "refused by policy or interlock: show it to a person, for retrying changes nothing",
    12: "conflict, nothing changed: retry later",
    13: "commit state unknown, nothing deleted: run resume, or the same command again",
    14: "committed, some deletions failed or it was stopped: run resume, or the same command again",
    15: "the table breaks its specification or a file is corrupt: stop for this table and call somebody",
    16: "backend unavailable, access denied, disk or standard output full: retry later, once that is mended",
    130: "Ctrl-C: nothing was changed, or it came twice: run resume, or the same command again",
    141: "nobody reads standard output any more: fix what reads it",
    143: "SIGTERM: nothing was changed, or it came twice: run resume, or the same command again",
}

_SUMMARY = (
    "Maintain Apache Iceberg and Delta tables: see what would go, save it as a plan, carry it out, resume it."
)

_ELSEWHERE = (
    f"Options also come from variables, such as {variable_of('--older-than')}, and from the file {FILE_NAME}; "
    "`iceberg-cli config show` prints them."
)

_BEFORE_VERBS = {"inspect": "inspect", "plan": "plan"}
_AFTER_VERBS = {
    "apply": "apply_plan",
    "resume": "resume",
    "history": "history",
    "demo": "demo",
    "policy": "policy",
    "config": "config",
    "completion": "completion",
}
_MANY_TABLES = {"list": "list_tables", "survey": "survey", "maintain": "maintain"}
_MODULES = {**_BEFORE_VERBS, **_AFTER_VERBS, **_MANY_TABLES}
_COMMANDS = (*_BEFORE_VERBS, *VERB_NAMES, *_AFTER_VERBS, *_MANY_TABLES)


def make_app(commands: Iterable[str] = _COMMANDS, *, kind: type[typer.Typer] = typer.Typer) -> typer.Typer:
    """The typer application with these commands, all by default; modules of others are not imported."""
    app = kind(
        name="iceberg-cli",
        cls=PlainGroup,
        help=_SUMMARY,
        epilog=f"{epilog('')}\n\n{_ELSEWHERE}\n\n\b\nExit codes:\n"
        + "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items()),
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(_root)
    for command in commands:
        if command in _MODULES:
            import_module(f"iceberg_cli.cli.commands.{_MODULES[command]}").register(app)
        else:
            from iceberg_cli.cli.commands import verb

            verb.register(app, command)
    return app


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"iceberg-cli {__version__} ({DISTRIBUTION})")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """What is asked of the program itself."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    guard_streams()
    argv = sys.argv[1:] if arguments is None else arguments
    if argv[:1] == ["__complete"]:  # a completion script asks
        from iceberg_cli.cli.options.candidates import answer

        answer(argv[1:])
    code = run(argv)
    stopping.end()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_left()
    except OutputLost as error:
        code = _nowhere_to_write(error)
    sys.stderr.flush()
    if (spark := sys.modules.get("iceberg_cli.engines.spark.startup")) is not None:
        spark.close_sessions()
    if (telemetry := sys.modules.get("iceberg_cli.telemetry")) is not None:
        telemetry.flush()
    # Not sys.exit: a thread of Arrow's that releases a Python object while the interpreter ends aborts the process.
    os._exit(code)


def run(argv: list[str]) -> int:
    """Run one command line.

    Returns:
        Its exit code.
    """
    stopping.begin()
    subject.begin()
    listeners.begin(argv)
    configuration = Configuration(_every_command)
    code = 1  # of what is a bug
    try:
        code = _outcome(argv, configuration)
    except BaseException as error:
        stopped = stopping.ended_by(error)
        if stopped is None:
            listeners.failed(error)
            raise
        cancelled = _cancelled(stopped)
        stopping.end()
        code = leave_with(cancelled, as_json=_as_json(argv, configuration))
    finally:
        stopping.end()
        listeners.end(code)
    return code


def _as_json(argv: list[str], configuration: Configuration) -> bool:
    """Whether an error is to be printed as a document."""
    formats = [
        following if text == "--format" else text.removeprefix("--format=")
        for text, following in zip(argv, [*argv, ""][1:], strict=True)
        if text == "--format" or text.startswith("--format=")
    ]
    if not formats and argv and argv[0] != "completion":  # which a shell reads, and no file is for it
        return configuration.text_of("--format", argv[0]) == "json"
    return "json" in formats


def _outcome(argv: list[str], configuration: Configuration) -> int:
    """Run one command line, print the error where it fails, and return its exit code."""
    try:
        return _invoke(argv, configuration)
    except OutputLost as error:
        return _nowhere_to_write(error)
    except BrokenPipeError:
        return _reader_left()
    except (IcebergCliError, typer.Abort, EOFError, typer.TyperException) as error:
        return _failed(error, as_json=_as_json(argv, configuration))


def _failed(error: Exception, *, as_json: bool) -> int:
    """Print an error and return its exit code."""
    match error:
        case Cancelled():
            error.message = f"Stopped by {stopping.name_of(stopping.heard())}"
            error.state, error.exit_code = stopping.state(), 128 + stopping.heard()
            stopping.end()
            return leave_with(error, as_json=as_json)
        case IcebergCliError():
            stopping.end()
            return leave_with(error, as_json=as_json)
        case typer.TyperException():
            return leave_with(UsageError(error.format_message(), next_step=_usage_of(error)), as_json=as_json)
        case _:
            return leave_with(UsageError("Not confirmed"), as_json=as_json)


def _usage_of(error: typer.TyperException) -> str:
    """How the command that was typed is written, and where more is said."""
    context = getattr(error, "ctx", None)
    path = "iceberg-cli" if context is None else context.command_path
    line = "" if context is None or context.parent is None else f"{' '.join(context.get_usage().split())}; "
    return f"{line}`{path} --help` says more."


def _cancelled(stopped: stopping.Stopped) -> Cancelled:
    """The error of a command that a signal ended."""
    by = stopping.name_of(stopped.number)
    if stopping.at_once():
        error = Cancelled(f"Stopped at once by {by}", state="", next_step=stopping.RESUMABLE)
    else:
        error = Cancelled(f"Stopped by {by}", state=stopping.state(), next_step="Run the same command again.")
    error.exit_code = 128 + stopped.number
    return error


def _refuse_other_encodings(argv: list[str]) -> None:
    """Refuse a name that is no UTF-8, or that is relative to a folder of such a name: no table can have it."""
    try:
        place = os.getcwd()
    except OSError as error:
        raise UsageError(
            f"Cannot start: the working folder cannot be told: {error.strerror}",
            next_step="Change to a folder that is there.",
        ) from error
    for text in (*argv, place):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = os.fsencode(text).decode("utf-8", "backslashreplace")
            raise UsageError(
                f"Cannot use {shown}: it is no UTF-8, in which tables name their files",
                next_step="Give the folder or file another name, or go by another way to it, such as a symbolic link.",
            ) from error


def _group_for(argv: list[str]) -> TyperGroup:
    """The commands, as far as a command line needs them: to make the rest takes time at every start."""
    if argv == ["--version"]:
        return _built_in(())
    if argv in ([], ["-h"], ["--help"]):
        return _group(make_app((*_COMMANDS, *_plugged_verbs()), kind=CommandList))
    if argv[0] in _COMMANDS:
        return _built_in((argv[0],))
    return _group(make_app(argv[:1])) if argv[0] in _plugged_verbs() else _built_in(_COMMANDS)


@cache  # for a program that runs many command lines
def _built_in(commands: tuple[str, ...]) -> TyperGroup:
    return _group(make_app(commands))


def _group(app: typer.Typer) -> TyperGroup:
    # Not typer's own main: it turns a broken pipe into exit code 1, which means a bug here.
    return typer.main.get_group(app)


def _plugged_verbs() -> Iterable[str]:
    """The verbs of formats of installed packages; a package that cannot be loaded takes nothing from the others."""
    try:
        return plugged_verbs()
    except UsageError as error:
        typer.echo(f"warning: {error.message}", err=True)
        return ()


def _every_command() -> dict[str, Mapping[str, Argument]]:
    """The parameters of each command that has shared options, by its name."""
    return {
        info.name or "": info.callback.parameters
        for info in make_app().registered_commands
        if isinstance(info.callback, type) and issubclass(info.callback, Values)
    }


def _invoke(argv: list[str], configuration: Configuration) -> int:
    _refuse_other_encodings(argv)
    root = _group_for(argv)
    if not argv:
        with root.make_context("iceberg-cli", [], resilient_parsing=True) as context:
            typer.echo(context.get_help(), err=True)
        return UsageError.exit_code
    try:
        with root.make_context("iceberg-cli", list(argv), obj=configuration) as context:
            root.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    return 0


def _reader_left() -> int:
    """The exit code of programs that write to a closed pipe: not 0, for what follows the output was not done."""
    give_up_output()
    return 141


def _nowhere_to_write(error: OutputLost) -> int:
    """Print the state on standard error, since the document that should have it cannot be written."""
    give_up_output()
    return leave_with(error, as_json=False)
