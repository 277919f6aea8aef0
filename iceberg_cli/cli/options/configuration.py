"""Options from variables and the configuration file; see `Settings` for which value is the strongest."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import typer

from iceberg_cli.cli.clock import now_ms
from iceberg_cli.cli.options.arguments import Argument
from iceberg_cli.cli.options.settings import Settings, all_typed
from iceberg_cli.errors import UsageError

if TYPE_CHECKING:
    from iceberg_cli.cli.options.configuration_file import ConfigurationFile

PREFIX: Final = "ICEBERG_CLI_"
FILE_VARIABLE: Final = "ICEBERG_CLI_CONFIG"
FILE_NAME: Final = "iceberg-cli.toml"
_TYPED, _OWN_VARIABLE, _VARIABLE = 100, 99, 98  # strengths; a file has those below
_OF_VARIABLE: Final = "variable "  # how such a source begins
_SHARED: Final = (_VARIABLE, 0)  # of values that are given whatever command has the option
# Options of which only one can be meant; with "=" this value of it.
_EXCLUSIVE: Final = (
    ("--snapshot", "--ref", "--at", "--version"),
    ("--spark-master", "--spark-remote"),
    *(("--engine=local", flag) for flag in ("--spark-master", "--spark-remote", "--spark-conf")),
    *(
        ("--check", flag)
        for flag in (
            "--limit", "--output", "--recount", "--dry-run", "--exit-code", "--yes", "--no-resume", "--limit-deletes",
            "--deadline",
        )
    ),
    ("--list", "--abandon"),
    ("--mode=lite", "--inventory"),
    ("--no-progress", "--progress"),
    ("--jsonl", "--format"),
    ("--jsonl", "--output"),
    ("--output=-", "--format"),
)  # fmt: skip
_LOOKS: Final = ("--check", "--list")  # only what is typed has them left out, so that something is done


def variable_of(flag: str, command: str = "") -> str:
    """The variable of an option: `ICEBERG_CLI_OLDER_THAN` of `--older-than`; with the command's name, of that alone."""
    name = f"{command}-{flag.removeprefix('--')}" if command else flag.removeprefix("--")
    return PREFIX + name.upper().replace("-", "_")


def is_variable(source: str) -> bool:
    """Whether a value comes from a variable, by its source in words."""
    return source.startswith(_OF_VARIABLE)


class Configuration:
    """The variables and the configuration file of this run."""

    def __init__(self, every_command: Callable[[], Mapping[str, Mapping[str, Argument]]]) -> None:
        """Read nothing yet.

        Args:
            every_command: the parameters of each command, by name; takes a while.
        """
        self._every_command = every_command

    @cached_property
    def commands(self) -> Mapping[str, Mapping[str, Argument]]:
        """The options of each command that takes any from a file, by flag."""
        return {
            command: {each.flag: each for each in parameters.values() if each.is_option}
            for command, parameters in self._every_command().items()
        }

    @cached_property
    def variables(self) -> Mapping[str, str]:
        """The variables with our prefix that are not empty."""
        names = [name for name in os.environ if name.startswith(PREFIX)]
        return {name: os.environ[name] for name in names if os.environ[name].strip()}

    @cached_property
    def file(self) -> ConfigurationFile | None:
        """The configuration file, checked whole.

        Raises:
            UsageError: it cannot be read, or has a key or value that no command could use.
        """
        found = self._find()
        if found is not None:
            with _correcting(found.path):
                found.check(self.commands, now_ms=now_ms())
        return found

    @property
    def path(self) -> str | None:
        """As `EverySettings`."""
        return None if self.file is None else self.file.path

    def of_all(self) -> Settings:
        """As `EverySettings`."""
        first: dict[str, Argument] = {}
        for options in self.commands.values():
            first = {**options, **first}
        return self._of(first, ())

    @property
    def gives_any(self) -> bool:
        """As `EverySettings`."""
        return self.path is not None or any(name.startswith(PREFIX) for name in os.environ)

    def of_command(self, command: str) -> Settings:
        """As `EverySettings`."""
        return self._of(self.commands[command], (command,))

    def _of(self, options: Mapping[str, Argument], tables: Sequence[str]) -> Settings:
        defaults = {flag: each.default for flag, each in options.items()}
        return _Resolver(self, options, defaults, frozenset()).settings(tables)

    def _find(self) -> ConfigurationFile | None:
        for path, needed in self._places():
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except OSError as error:
                # In a folder that this user may not enter there is no file for this user.
                if not needed and not os.path.lexists(path):
                    continue
                raise UsageError(
                    f"Cannot read the configuration file {path}: {error.strerror}",
                    next_step=f"Set {FILE_VARIABLE} to a file that is there, or to nothing."
                    if needed
                    else "",
                ) from error
            from iceberg_cli.cli.options.configuration_file import parse  # most runs have no file

            with _correcting(path):
                return parse(path, data)
        return None

    def _places(self) -> Iterator[tuple[str, bool]]:
        """The paths where the file may be, the first that is there is it; and whether it must be."""
        if named := self.variables.get(FILE_VARIABLE):
            yield named, True
            return
        yield FILE_NAME, False
        folder = os.environ.get("XDG_CONFIG_HOME", "")
        if not os.path.isabs(folder):  # as the XDG Base Directory Specification wants it
            folder = os.path.expanduser("~/.config")
        yield os.path.join(folder, "iceberg-cli", FILE_NAME), False

    def text_of(self, flag: str, command: str) -> str | None:
        """What a variable or the file has for an option, neither of which is checked; None: nothing."""
        if named := self.variables.get(variable_of(flag, command), self.variables.get(variable_of(flag))):
            return named
        try:
            file = self._find()
        except UsageError:
            return None
        found = None if file is None else file.find(flag, (command,))
        return None if found is None else str(found[0])

    def settings(
        self,
        command: str,
        parameters: Mapping[str, Argument],
        values: Mapping[str, Any],
        typed: Collection[str],
    ) -> Settings:
        """The values of a command line, with those of variables and the file for what is not on it.

        Args:
            command: its name.
            parameters: the command's, by name.
            values: by name of the parameter what the command line has, else the default.
            typed: the names of parameters that are on the command line.

        Raises:
            UsageError: a variable or the file cannot be used.
        """
        if not self.variables and self.file is None:
            return all_typed(
                values, [parameters[name].flag for name in typed if parameters[name].is_option], self
            )
        resolver = _Resolver(self, parameters, values, frozenset(typed))
        unknown = self._unknown_variables(resolver.flags.values())
        settings = resolver.settings((command,))
        if unknown and not settings.values.get("quiet"):
            from iceberg_cli.cli.render import printable

            for line in unknown:
                typer.echo(printable(f"warning: {line}"), err=True)
        return settings

    def _unknown_variables(self, own: Collection[str]) -> list[str]:
        """A line for each variable that no option has.

        Raises:
            UsageError: a variable is of an option that is taken from the command line alone.
        """
        from iceberg_cli.cli.options.configuration_file import command_line_alone
        from iceberg_cli.plan.text import did_you_mean

        lines: list[str] = []
        own_known = {FILE_VARIABLE, *map(variable_of, own)}
        known = set(own_known)
        for name in sorted(self.variables):
            if name not in known:
                known |= {variable_of(each) for options in self.commands.values() for each in options}
                known |= {
                    variable_of(each, command)
                    for command, options in self.commands.items()
                    for each in options
                }
            flag = _flag(name) if name in own_known else self._option_of(name)
            if command_line_alone(flag):
                raise UsageError(
                    f"Variable {name}: {flag} is taken from the command line alone",
                    next_step=f"Unset {name}.",
                )
            if name not in known:
                usable = [each for each in sorted(known) if not command_line_alone(self._option_of(each))]
                lines.append(f"variable {name} is no option of any command.{did_you_mean(name, usable)}")
        return lines

    def _option_of(self, variable: str) -> str:
        """The option that a variable names, of a command or of all."""
        flag = _flag(variable)
        command = next((each for each in self.commands if flag.startswith(f"--{each}-")), None)
        return flag if command is None else f"--{flag.removeprefix(f'--{command}-')}"


def _flag(variable: str) -> str:
    return f"--{variable.removeprefix(PREFIX).lower().replace('_', '-')}"


@contextmanager
def _correcting(source: str) -> Iterator[None]:
    """Have an error of the block say that not the command is to be corrected, but this."""
    try:
        yield
    except UsageError as error:
        if error.general:
            error.next_step = f"Correct {source}."
        raise


class _Resolver:
    """Puts values of variables and of the file in the place of what is not on the command line."""

    def __init__(
        self,
        configuration: Configuration,
        parameters: Mapping[str, Argument],
        values: Mapping[str, Any],
        typed: frozenset[str],
    ) -> None:
        self.configuration = configuration
        self.parameters = parameters
        self.values = values
        self.typed = typed
        self.flags = {name: each.flag for name, each in parameters.items() if each.is_option}

    def settings(self, tables: Sequence[str]) -> Settings:
        """The settings, of the file from these tables, the strongest first, and from the keys before all."""
        values, sources, strengths = dict(self.values), dict[str, str](), dict[str, int]()
        for name, flag in self.flags.items():
            if name in self.typed:
                sources[flag], strengths[flag] = flag, _TYPED
            elif (found := self._found(self.parameters[name], tables)) is not None:
                values[name], sources[flag], strengths[flag] = found
        names = {flag: name for name, flag in self.flags.items()}
        for flag in set(self._weaker(values, names, strengths)):
            values[names[flag]] = self.values[names[flag]]
            del sources[flag]
        settings = Settings(
            values=values,
            sources=sources,
            typed=frozenset(self.flags[name] for name in self.typed if name in self.flags),
            of_verb=lambda verb: self._of(verb).settings((tables[0], verb)) if self._has(verb) else settings,
            every=self.configuration,
            shared=frozenset(flag for flag, strength in strengths.items() if strength in _SHARED),
        )
        return settings

    def _of(self, verb: str) -> _Resolver:
        """The same, with the options as the command of a verb has them."""
        own = self.configuration.commands[verb]
        parameters = {
            name: own.get(each.flag, each) if each.is_option else each
            for name, each in self.parameters.items()
        }
        return _Resolver(self.configuration, parameters, self.values, self.typed)

    def _has(self, table: str) -> bool:
        file, begin = self.configuration.file, variable_of("", table)
        return (file is not None and table in file.document) or any(
            name.startswith(begin) for name in self.configuration.variables
        )

    def _found(self, argument: Argument, tables: Sequence[str]) -> tuple[Any, str, int] | None:
        """The value of an option that is not on the command line, its source and its strength."""
        if not self.configuration.variables and self.configuration.file is None:
            return None
        from iceberg_cli.cli.options.configured_values import read_text, read_value

        names = [(variable_of(argument.flag, each), _OWN_VARIABLE) for each in tables]
        if not argument.own:
            names.append((variable_of(argument.flag), _VARIABLE))
        for name, strength in names:
            if (text := self.configuration.variables.get(name)) is not None:
                source = f"{_OF_VARIABLE}{name}"
                with _correcting(source):
                    return read_text(argument, _utf8(text, source), source, now_ms=now_ms()), source, strength
        file = self.configuration.file
        found = None if file is None else file.find(argument.flag, tables)
        if found is None or (argument.own and found[2] in _SHARED):
            return None
        value, source, strength = found
        return read_value(argument, value, source, now_ms=now_ms()), source, strength

    @staticmethod
    def _weaker(
        values: Mapping[str, Any], names: Mapping[str, str], strengths: Mapping[str, int]
    ) -> Iterator[str]:
        """The flags that a stronger one excludes."""
        for group in _EXCLUSIVE:
            given = {
                flag: strengths[flag]
                for flag, _, only in (each.partition("=") for each in group)
                if flag in strengths and (values[names[flag]] == only if only else values[names[flag]] is not False)
            }  # fmt: skip
            strongest = max(given.values(), default=0)
            yield from (
                flag
                for flag, strength in given.items()
                if strength < strongest and (strongest == _TYPED or flag not in _LOOKS)
            )


def _utf8(text: str, source: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{source} is no UTF-8") from error
    return text
