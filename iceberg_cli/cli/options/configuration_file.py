"""The configuration file: TOML whose keys are options, and whose tables are commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_cli.cli.options.arguments import Argument
from iceberg_cli.cli.options.configured_values import read_value
from iceberg_cli.encoding.toml_file import parse_toml
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import did_you_mean

Commands = Mapping[str, Mapping[str, Argument]]  # the options of each command, by flag


@dataclass(frozen=True, kw_only=True)
class ConfigurationFile:
    """A configuration file that can be read.

    Args:
        path: as it was found.
        document: its keys; not checked.
    """

    path: str
    document: Mapping[str, Any]

    def find(self, flag: str, tables: Sequence[str]) -> tuple[Any, str, int] | None:
        """The value of an option.

        Args:
            flag: of the option.
            tables: those that may have it, the strongest first; after them come the keys before all tables.

        Returns:
            The value, its source in words, and how many tables are weaker than its own; None where it is not there.
        """
        key = flag.removeprefix("--")
        for weaker, name in zip(range(len(tables), 0, -1), tables, strict=True):
            table = self.document.get(name)
            if isinstance(table, dict) and key in table:
                return table[key], f"{self.path}: {name}.{key}", weaker
        value = self.document.get(key)
        return None if value is None or isinstance(value, dict) else (value, f"{self.path}: {key}", 0)

    def check(self, commands: Commands, *, now_ms: int) -> None:
        """Refuse what no command could use.

        Args:
            commands: all of them.
            now_ms: the time.

        Raises:
            UsageError: a key is not known or not taken from a file, or its value has no meaning.
        """
        for key, value in self.document.items():
            if key in commands and not isinstance(value, dict) and not any(map(_has(key), commands.values())):
                raise UsageError(f"{self.path}: {key} is a command: write its options below [{key}]")
            if not isinstance(value, dict) or (
                key not in commands and any(map(_has(key), commands.values()))
            ):
                every = [options[f"--{key}"] for options in commands.values() if f"--{key}" in options]
                self._check_value(key, value, every, self._unknown(key, commands), now_ms=now_ms)
                continue
            if key not in commands:
                raise UsageError(
                    f"{self.path}: {key} is no command.{did_you_mean(key, commands)}",
                    next_step=f"Tables are: {', '.join(commands)}.",
                )
            for name, inner in value.items():
                own = commands[key].get(f"--{name}")
                unknown = self._unknown(name, {key: commands[key]}, commands, table=key)
                self._check_value(f"{key}.{name}", inner, [own] if own else [], unknown, now_ms=now_ms)

    def _check_value(
        self, path: str, value: Any, arguments: Sequence[Argument], unknown: UsageError, *, now_ms: int
    ) -> None:
        source = f"{self.path}: {path}"
        flag = f"--{path.rpartition('.')[2]}"
        if command_line_alone(flag):
            raise UsageError(
                f"{source}: {flag} is taken from the command line alone",
                next_step="Remove it from the file.",
            )
        if not arguments:
            raise unknown
        for argument in arguments:
            read_value(argument, value, source, now_ms=now_ms)

    def _unknown(
        self, key: str, commands: Commands, others: Commands | None = None, *, table: str = ""
    ) -> UsageError:
        names = {flag.removeprefix("--"): None for options in commands.values() for flag in options}
        having = [name for name, options in (others or {}).items() if f"--{key}" in options]
        where = f"{self.path}: {table}.{key}" if table else f"{self.path}: {key}"
        owner = f"of {table}" if table else "of any command"
        near = did_you_mean(key, names)
        elsewhere = f" It is one of {', '.join(having)}." if having and not near else ""
        return UsageError(
            f"{where} is no option {owner}.{near}{elsewhere}",
            next_step=f"`iceberg-cli {table or 'COMMAND'} --help` lists the options.",
        )


def _has(key: str) -> Any:
    return lambda options: f"--{key}" in options


def command_line_alone(flag: str) -> bool:
    """Whether an option is taken from the command line alone: whoever types it knows which table it is about."""
    return flag == "--yes" or flag.startswith("--unsafe-")


def parse(path: str, data: bytes) -> ConfigurationFile:
    """The configuration file of these bytes.

    Raises:
        UsageError: they are not TOML in UTF-8.
    """
    return ConfigurationFile(path=path, document=parse_toml(path, data))
