"""The arguments of commands: groups of options that share a parameter, and the options that policies have.

An option that may be repeated takes several values by commas, too, where its metavar has one: `NAME,...`. Those without
are of values in which a comma means nothing: paths, URIs, names of files and of programs, `K=V`.

Whole numbers and key-value pairs are parsed here, too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_origin

import typer
from typer.models import OptionInfo

from iceberg_cli.errors import UsageError
from iceberg_cli.formats import format_of, policy_for
from iceberg_cli.plan.text import as_one_value

if TYPE_CHECKING:
    from iceberg_cli.api import Table
    from iceberg_cli.cli.options.settings import Settings
    from iceberg_cli.plan.policy import Kind, Policy, PolicyOption


# Nobody compares or prints these, and making the methods for that takes time at every start.
@dataclass(frozen=True, eq=False, repr=False)
class Argument:
    """An argument or option as typer wants it.

    Args:
        name: of the parameter.
        annotation: with typer's description of it.
        default: its value where it is not given; none where it must be.
        kind: of the values of a policy's option.
        own: see `PolicyOption`.
    """

    name: str
    annotation: Any
    default: Any = inspect.Parameter.empty
    kind: Kind | None = None
    own: bool = False

    @property
    def _about(self) -> Any:
        (about,) = self.annotation.__metadata__
        return about

    @property
    def is_option(self) -> bool:
        """Whether it is given by a flag, not by its position."""
        return isinstance(self._about, OptionInfo)

    @property
    def flag(self) -> str:
        """The long name of an option; of what is given by its place the metavar."""
        if not self.is_option:
            return self.metavar.strip("[]") or self.name.upper()
        # The first name of an annotation stands where a default would: typer sorts that out later.
        names = (self._about.default, *(self._about.param_decls or ()))
        spelled_out = (name for name in names if isinstance(name, str) and name.startswith("--"))
        return next(spelled_out, f"--{self.name.replace('_', '-')}")

    @property
    def is_switch(self) -> bool:
        """Whether it is given without a value."""
        return self.annotation.__origin__ is bool

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be given more than once."""
        kind = self.annotation.__origin__
        return any(get_origin(each) is list for each in (kind, *get_args(kind)))

    @property
    def is_comma_separated(self) -> bool:
        """Whether one text may have several values, with commas between them."""
        return self.is_repeatable and "," in self.metavar

    @property
    def metavar(self) -> str:
        """What its help calls the value."""
        return self._about.metavar or ""

    @property
    def parser(self) -> Callable[[str], Any] | None:
        """What makes a value of a text; None: it is the text."""
        parser: Callable[[str], Any] | None = self._about.parser
        return parser

    @property
    def optional(self) -> Argument:
        """The same argument, which may be left out."""
        if self.default is not inspect.Parameter.empty:
            return self
        return replace(
            self, annotation=Annotated[self.annotation.__origin__ | None, self._about], default=None
        )

    def with_help(self, text: str) -> Argument:
        """The same argument with another help."""
        about = copy(self._about)
        about.help = text
        return replace(self, annotation=Annotated[self.annotation.__origin__, about])


@dataclass(frozen=True, eq=False, repr=False)
class ArgumentGroup:
    """Arguments that a command takes as one parameter.

    Args:
        arguments: by name.
        make: the parameter from the settings of the whole command line.
    """

    arguments: Mapping[str, Argument]
    make: Callable[[Settings], Any]


# From the values of a command's parameters, by name, the flags that have no meaning beside the others. A variable or a
# file speaks to many command lines: what it gives these has no effect, while on the command line it may be refused.
Idle = Callable[[Mapping[str, Any]], Collection[str]]


class Values:
    """The values of one command line. Typer makes an instance of a subclass, whose signature has each argument."""

    _function: ClassVar[Callable[..., None]]
    _groups: ClassVar[Mapping[str, ArgumentGroup]]
    _own: ClassVar[tuple[str, ...]]
    _idle: ClassVar[Callable[..., Collection[str]]]
    parameters: ClassVar[Mapping[str, Argument]]

    def __init__(self, **values: Any) -> None:
        self._values = values

    def run(self, resolve: Callable[[Mapping[str, Argument], Mapping[str, Any]], Settings]) -> None:
        """Call the command's function.

        Args:
            resolve: the settings, from the parameters and their values on the command line, both by name.
        """
        on_command_line = {name: self._values[name] for name in self.parameters}
        settings = resolve(self.parameters, on_command_line)
        if settings.sources.keys() != settings.typed:
            idle = set(self._idle(settings.values)) - settings.typed
            names = {each.flag: name for name, each in self.parameters.items()}
            settings = settings.without(
                {flag: names[flag] for flag in idle if flag in names}, on_command_line
            )
        try:
            grouped = {parameter: group.make(settings) for parameter, group in self._groups.items()}
            self._function(**{name: settings.values[name] for name in self._own}, **grouped)
        except UsageError as error:
            settings.add_sources(error)
            raise


def values_of(
    function: Callable[..., None], groups: Mapping[str, ArgumentGroup], idle: Idle = lambda _: ()
) -> type[Values]:
    """The class of the values of a command's command lines.

    Args:
        function: the command; its parameters are names of `groups`, or annotated as typer wants it.
        groups: in the order of their arguments, which come after the function's own.
        idle: see `Idle`.
    """
    own = {
        name: Argument(name, each.annotation, each.default)
        for name, each in inspect.signature(function, eval_str=True).parameters.items()
        if name not in groups
    }
    every = {**own, **{name: each for group in groups.values() for name, each in group.arguments.items()}}
    assert len(every) == len(own) + sum(len(group.arguments) for group in groups.values()), (
        "two have one name"
    )
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.annotation
        )
        for name, each in every.items()
    ]
    namespace = {
        "__signature__": inspect.Signature(parameters),
        "__annotations__": {name: each.annotation for name, each in every.items()},
        "_function": staticmethod(function),
        "_groups": groups,
        "_own": tuple(own),
        "_idle": staticmethod(idle),
        "parameters": every,
    }
    return type(function.__name__, (Values,), namespace)


def group_of(options: type, *, only: Collection[str] | None = None) -> ArgumentGroup:
    """The fields of a dataclass, each annotated as typer wants it and with a default.

    Args:
        options: the dataclass, which becomes the parameter.
        only: the names of the fields that are arguments; others keep their defaults. None: all.
    """
    arguments = _arguments_of(options)
    if only is not None:
        arguments = {name: each for name, each in arguments.items() if name in only}
    return ArgumentGroup(
        arguments, lambda settings: options(**{name: settings.values[name] for name in arguments})
    )


@cache  # several commands have the same options
def _arguments_of(options: type) -> Mapping[str, Argument]:
    hints = inspect.get_annotations(options, eval_str=True)
    return {
        each.name: Argument(each.name, hints[each.name], each.default)
        for each in fields(options)
        if each.init
    }


def spelled(group: object, typed: Collection[str]) -> list[str]:
    """The words of a command line that give the options of a group, a dataclass.

    Args:
        group: its fields that are as by default are left out.
        typed: flags; all others are left out. What a variable or a file gives will be given by it again.
    """
    words: list[str] = []
    for name, each in group_of(type(group)).arguments.items():
        value = getattr(group, name)
        if value != each.default and each.flag in typed:
            words += _words(each, value)
    return words


def _words(argument: Argument, value: Any) -> list[str]:
    if value is True:
        return [argument.flag]
    if not argument.is_option:
        return [str(value)]
    texts = [str(each) for each in (value if isinstance(value, list) else [value])]
    if argument.is_comma_separated:
        texts = [as_one_value(text) for text in texts]
    return [word for text in texts for word in (argument.flag, text)]


# -- options of policies ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class VerbOptions:
    """What is given for a verb, by a command line, variables and the configuration file.

    Args:
        policies: the verb's, by format.
        given: by flag the text, number or switch, or a list of them; nothing that nobody gave.
        sources: by flag where that comes from, in words.
        typed: the flags that are on the command line, with their arguments.
    """

    policies: Mapping[str, type[Policy]]
    given: Mapping[str, Any]
    sources: Mapping[str, str]
    typed: Mapping[str, Argument]

    def policy(self, table: Table, *, now_ms: int) -> Policy:
        """The policy for a table.

        Args:
            table: whose format decides.
            now_ms: the "now" of every age.

        Raises:
            UsageError: the table's format has no such verb, or an option has no meaning, or none for that format.
        """
        title = " ".join(format_of(table.format).title)
        own = self.policies.get(table.format)
        if own is None:
            for known in self.policies.values():
                policy_for(table.format, known.verb)  # which says so where the format has no such verb
            raise UsageError(
                f"No command has options for {table.name}, which is {title} table",
                next_step="Maintain it from Python: `iceberg_cli.open_table`.",
            )
        flags = {flag for each in own.options() for flag in each.help_of}
        for other, policy in self.policies.items():
            for each in policy.options():
                # A variable or a file speaks to tables of both formats.
                for flag in each.help_of.keys() & set(self.typed) - flags:
                    raise UsageError(
                        f"{flag} is an option of {format_of(other).title[1]} tables, and {table.name} is {title} table",
                        next_step=f"Use {each.elsewhere}." if each.elsewhere else "Leave it out.",
                    )
        return own.from_options(self.given, now_ms=now_ms, sources=self.sources)

    def without_own(self) -> VerbOptions:
        """The same for a command line that names no verb: what means something else there than here is not for this."""
        own = {flag for flag, each in self.typed.items() if each.own}
        return VerbOptions(
            self.policies,
            {flag: value for flag, value in self.given.items() if flag not in own},
            {flag: source for flag, source in self.sources.items() if flag not in own},
            {flag: each for flag, each in self.typed.items() if flag not in own},
        )

    @property
    def words(self) -> list[str]:
        """The options that were on the command line as words of another one."""
        return [word for flag, each in self.typed.items() for word in _words(each, self.given[flag])]


def verb_group(policies: Mapping[str, type[Policy]]) -> ArgumentGroup:
    """The options of a verb for all formats, those that several have once; the parameter is `VerbOptions`."""
    arguments: dict[str, Argument] = {}
    for policy in policies.values():
        for each in policy.options():
            for flag in each.help_of:
                arguments.setdefault(_name(flag), _argument(each, flag))

    def make(settings: Settings) -> VerbOptions:
        by_place = {
            each.flag: each
            for name, each in arguments.items()
            if not each.is_option and settings.values[name] is not None
        }
        given = {
            each.flag: _one(each, settings.values[name])
            for name, each in arguments.items()
            if each.flag in by_place
            or (each.flag in settings.sources and not (each.own and each.flag in settings.shared))
        }
        sources = {flag: settings.sources.get(flag, flag) for flag in given}
        typed = {each.flag: each for each in arguments.values() if each.flag in settings.typed} | by_place
        return VerbOptions(policies, given, sources, typed)

    return ArgumentGroup(arguments, make)


def _one(argument: Argument, value: Any) -> Any:
    """The value of an option that takes one, where another verb of the same command line takes several by its flag.

    Raises:
        UsageError: there are several.
    """
    if not isinstance(value, list) or argument.is_repeatable or not value:
        return value
    if len(value) > 1:
        raise UsageError(f"{argument.flag} takes one value here, not {len(value)}")
    return value[0]


def _name(flag: str) -> str:
    name = flag.removeprefix("--").replace("-", "_").lower()
    return f"{name}_" if iskeyword(name) else name


def _argument(each: PolicyOption, flag: str) -> Argument:
    name, text, kind = _name(flag), each.help_of[flag], each.kind
    if each.positional:
        metavar = kind.metavar if each.required else f"[{kind.metavar}]"
        argument = Argument(
            name, Annotated[kind.takes, typer.Argument(metavar=metavar, help=text)], kind=kind
        )
        return argument if each.required else argument.optional
    if kind.takes is bool:
        return Argument(name, Annotated[bool, typer.Option(flag, help=text)], False, own=each.own)
    parser = integer if kind.takes is int else None
    about = typer.Option(flag, metavar=kind.metavar, help=text, parser=parser)
    if kind.repeatable:
        return Argument(name, Annotated[list[kind.takes] | None, about], None, kind, each.own)  # type: ignore[name-defined]
    if each.default in (None, ()):
        return Argument(name, Annotated[kind.takes | None, about], None, kind, each.own)
    return Argument(name, Annotated[kind.takes, about], kind.to_text(each.default), kind, each.own)


def integer(text: str) -> int:
    """A whole number, for options that take one.

    Raises:
        typer.BadParameter: anything else; typer adds the option's name.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise typer.BadParameter(f"{text!r} is no whole number")
    return int(text)


def positive(value: int | None, option: str) -> int | None:
    """`value`, if it is above zero or absent.

    Raises:
        UsageError: zero or negative.
    """
    if value is not None and value < 1:
        raise UsageError(f"{option} must be at least 1, not {value}")
    return value


def key_value(text: str, option: str) -> tuple[str, str]:
    """`K=V` as its two parts.

    Raises:
        UsageError: there is no `=`.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        # What follows the first word may be a secret after a mistyped "=".
        shown = re.match(r"[\w.-]*", text)
        raise UsageError(f"{option}: {shown[0] if shown else ''!r} is not KEY=VALUE")
    return key, value


ReportOption = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="Write the result as one page too, with charts and without network; an existing one is replaced.",
    ),
]
