"""The commands, their arguments and options, as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from iceberg_cli.cli.app import make_app
from iceberg_cli.cli.commands.completion import SCRIPTS
from iceberg_cli.cli.commands.config import SHOW
from iceberg_cli.cli.commands.policy import ACTIONS
from iceberg_cli.formats import VERB_NAMES, maintenance_verbs
from iceberg_cli.formats.inspection import WHAT

Choices = Mapping[tuple[str, str], Iterable[str]]  # the values of arguments, by command and name

NAME = "iceberg-cli"
WRITTEN_BY = "written by .ci/generate.py"
_ARGUMENT_CHOICES: Choices = {
    ("inspect", "what"): WHAT,
    ("plan", "verb"): VERB_NAMES,
    ("config", "action"): (SHOW,),
    ("policy", "action"): ACTIONS,
    ("completion", "shell"): SCRIPTS,
}
_OPTION_CHOICES: Mapping[str, Iterable[str]] = {"--only": maintenance_verbs()}
_WITHOUT_OPTIONS = ("completion",)
_ASKS = {
    "--columns": "columns", "--ref": "refs", "--snapshot": "snapshots", "--snapshot-id": "snapshots",
    "--to": "states", "--version": "versions",
}  # fmt: skip
_ARGUMENTS_ASK = {
    "what": "what", "before": "states", "after": "states", "table": "tables", "patterns": "catalogs",
}  # fmt: skip
_PATHS = ("FILE", "DIR", "TABLE", "PLAN_FILE")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An option or an argument of one command."""

    names: tuple[str, ...]  # of an option: the short one first; of an argument: what the usage line calls it
    metavar: str  # "" for a flag
    help: str
    choices: tuple[str, ...]
    optional: bool
    repeatable: bool  # of an argument: it takes all words from its position on
    asks: str = ""  # the kind of values that the program gives

    @property
    def is_comma_separated(self) -> bool:
        """Whether one text may have several values."""
        return self.repeatable and "," in self.metavar

    @property
    def how_often(self) -> str:
        """What its help adds of an option that takes several values."""
        if self.is_comma_separated:
            return r"Several: with commas between them (`\,` is a comma of a value), or by giving it again."
        return "May be given more than once." if self.repeatable else ""

    @property
    def is_path(self) -> bool:
        """Whether names of files complete it."""
        return self.metavar in _PATHS or self.asks in ("tables", "catalogs")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command, or the program itself where `name` is empty."""

    name: str
    summary: str
    description: tuple[str, ...]  # paragraphs
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]

    @property
    def page(self) -> str:
        """The name of its manual page."""
        return f"{NAME}-{self.name}" if self.name else NAME


_FLAG: Any = {"metavar": "", "choices": (), "optional": True, "repeatable": False}
HELP = Parameter(names=("-h", "--help"), help="Show the help and exit.", **_FLAG)
HELP_ALL = Parameter(names=("--help-all",), help="Show the help with every option and exit.", **_FLAG)


def read_commands() -> tuple[Command, tuple[Command, ...]]:
    """The program itself, and its commands in the order of its help."""
    group: Any = typer.main.get_command(make_app())
    named = tuple(name for name in group.commands if name not in _WITHOUT_OPTIONS)
    choices = {**_ARGUMENT_CHOICES, ("config", "of"): named}
    commands = tuple(_command(name, found, choices) for name, found in group.commands.items())
    return _command("", group, choices), commands


def is_of_tables(command: Command) -> bool:
    """Whether it opens a table."""
    return any("--engine" in option.names for option in command.options)


def shared_options(commands: Iterable[Command]) -> tuple[Parameter, ...]:
    """The options that every command on tables has alike."""
    of_tables = [one for one in commands if is_of_tables(one)]
    return tuple(option for option in of_tables[0].options if all(option in one.options for one in of_tables))


def _command(name: str, found: Any, choices: Choices) -> Command:
    paragraphs = [" ".join(part.split()) for part in (found.help or "").split("\n\n")]
    shown = [item for item in found.params if not item.hidden]
    return Command(
        name=name,
        summary=re.split(r"(?<=\.)\s", paragraphs[0])[0].rstrip("."),
        description=tuple(paragraphs),
        arguments=tuple(
            _parameter(name, item, choices) for item in shown if item.param_type_name == "argument"
        ),
        options=(
            *(_parameter(name, item, choices) for item in shown if item.param_type_name == "option"),
            HELP,
            *([HELP_ALL] if name else []),
        ),
    )


def _parameter(command: str, found: Any, choices: Choices) -> Parameter:
    is_option = found.param_type_name == "option"
    metavar = "" if is_option and found.is_flag else (found.metavar or found.name.upper()).strip("[]")
    spelled = tuple(re.split(r"[|,]", metavar)) if re.fullmatch(r"[a-z0-9|]+|[a-z0-9,-]+", metavar) else ()
    if is_option:
        spelled += tuple(word for name in found.opts for word in _OPTION_CHOICES.get(name, ()))
    text = found.help or ""
    if is_option and isinstance(found.default, str):
        text = f"{text} Default: {found.default}."
    return Parameter(
        names=tuple(sorted(found.opts, key=len)) if is_option else (metavar,),
        metavar=metavar,
        help=text,
        choices=spelled if is_option else tuple(choices.get((command, found.name), ())),
        optional=not found.required,
        repeatable=found.multiple if is_option else found.nargs == -1,
        asks=_asks(command, found),
    )


def _asks(command: str, found: Any) -> str:
    if found.param_type_name == "argument":
        return _ARGUMENTS_ASK.get(found.name, "")
    return next((_ASKS[name] for name in found.opts if name in _ASKS and command), "")
