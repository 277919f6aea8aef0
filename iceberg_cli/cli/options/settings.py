"""The values of one command line's options, each with its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from iceberg_cli.errors import UsageError

if TYPE_CHECKING:
    from typing import Protocol

    class EverySettings(Protocol):
        """The settings of all commands, as variables and the configuration file have them."""

        @property
        def path(self) -> str | None:
            """The configuration file as it was found, if there is one."""
            ...

        @property
        def commands(self) -> Mapping[str, Mapping[str, Any]]:
            """The `Argument`s of each command, by its name, and by flag."""
            ...

        @property
        def gives_any(self) -> bool:
            """Whether there is a configuration file or a variable at all."""
            ...

        def of_all(self) -> Settings:
            """The settings that hold where no command has its own; values by flag."""
            ...

        def of_command(self, command: str) -> Settings:
            """The settings of a command of which nothing but the name is on the command line; values by flag."""
            ...


# Nobody compares or prints these, and making the methods for that takes time at every start.
@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """The values of a command's parameters, and where they come from.

    An option's value comes from, strongest first: the command line; the variable `ICEBERG_CLI_<COMMAND>_<OPTION>`, for
    `plan` then that of the verb; the variable `ICEBERG_CLI_<OPTION>`; the configuration file, there from the table of
    the command, for `plan` then from that of the verb, then from the keys that stand before all tables; a property of
    the table that is maintained; the documented default. Of options that
    exclude each other the one of the weaker source is left out.

    Args:
        values: by name of the parameter.
        sources: by flag where an option's value comes from, in words; the flag itself for the command line. Options
            that nobody gave have none.
        typed: the flags that are on the command line.
        of_verb: the same settings as a verb has them, by its name: for a command that stands for several.
        every: those of all commands; None where there are no others.
        shared: the flags whose value a variable or the file gives whatever command has them.
    """

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    typed: frozenset[str]
    of_verb: Callable[[str], Settings]
    every: EverySettings | None = None
    shared: frozenset[str] = frozenset()

    def if_typed(self, flag: str, value: Any) -> Any:
        """The value of an option that is on the command line, else None.

        A file or a variable speaks to many command lines: where its value has no meaning it has no effect.
        """
        return value if flag in self.typed else None

    def without(self, idle: Mapping[str, str], values: Mapping[str, Any]) -> Settings:
        """The same settings without what variables and the file give some options.

        Args:
            idle: the parameter of each of these, by flag.
            values: in their place, by name of the parameter.
        """
        return replace(
            self,
            values={**self.values, **{name: values[name] for name in idle.values()}},
            sources={flag: source for flag, source in self.sources.items() if flag not in idle},
        )

    def add_sources(self, error: UsageError) -> None:
        """Add to a message about options where those come from that are not on the command line."""
        named = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", error.message)
        added = [
            f"{flag} comes from {self.sources[flag]}"
            for flag in dict.fromkeys(named)
            if flag in self.sources and flag not in self.typed
        ]
        if added:
            error.message = f"{error.message} ({'; '.join(added)})"


def all_typed(
    values: Mapping[str, Any], typed: Collection[str] = (), every: EverySettings | None = None
) -> Settings:
    """The settings of a command line without variables and files.

    Args:
        values: by name of the parameter.
        typed: the flags that are on the command line.
        every: see `Settings`.
    """
    settings = Settings(values, {flag: flag for flag in typed}, frozenset(typed), lambda _: settings, every)
    return settings
