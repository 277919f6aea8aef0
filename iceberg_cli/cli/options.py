"""Groups of options that commands share: a dataclass of annotated fields stands for them in a command's signature."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

Command = Callable[..., None]


def spread(
    parameter: str, options: type, *, only: Collection[str] | None = None
) -> Callable[[Command], Command]:
    """Replace a command's parameter by the fields of `options`, and build `options` from their values.

    Args:
        parameter: name of the command's parameter of type `options`.
        options: a dataclass; each field is annotated as typer wants it and has a default.
        only: the names of the fields to replace it by; others keep their defaults. None: all.

    Returns:
        A decorator. The fields come after the command's other parameters.
    """
    own = {name: item for name, item in _fields(options).items() if only is None or name in only}

    def decorate(function: Command) -> Command:
        def call(**values: Any) -> None:
            group = options(**{name: values.pop(name) for name in own})
            function(**{parameter: group}, **values)

        return _signed(call, function, parameter, own.values())

    return decorate


def spread_all(
    parameter: str, groups: Mapping[str, type], *, helps: Mapping[str, str]
) -> Callable[[Command], Command]:
    """Replace a command's parameter by the fields of several groups, each field once.

    Args:
        parameter: name of the command's parameter of type `OptionGroups`.
        groups: by name; see `spread`. A field that several have is one option, spelled by the first.
        helps: by field, what the option does where the groups do not say the same.

    Returns:
        A decorator.
    """
    own = {name: _fields(options) for name, options in groups.items()}
    every = {name: item for of_group in reversed(own.values()) for name, item in of_group.items()}
    shown = [_with_help(item, helps[name]) if name in helps else item for name, item in every.items()]

    def decorate(function: Command) -> Command:
        def call(**values: Any) -> None:
            given = {name: values.pop(name) for name in every}
            made = {
                group: options(**{name: given[name] for name in own[group]})
                for group, options in groups.items()
            }
            stated_names = {name for name, value in given.items() if value != every[name].default}
            strays = {group: sorted(stated_names - own[group].keys()) for group in groups}
            words = {group: spelled(options, made[group]) for group, options in groups.items()}
            function(**{parameter: OptionGroups(groups=made, strays=strays, words=words)}, **values)

        return _signed(call, function, parameter, shown)

    return decorate


@dataclass(frozen=True, kw_only=True)
class OptionGroups:
    """Groups of options by name, and for each those that were given.

    Args:
        groups: the options' values.
        strays: names of options that were given and are not the group's own.
        words: the group's own that were given, as words of a command line.
    """

    groups: Mapping[str, Any]
    strays: Mapping[str, list[str]]
    words: Mapping[str, list[str]]


def spelled(options: type, group: object) -> list[str]:
    """The words of a command line that give the options of a group which differ from their defaults."""
    words = []
    for name, flag in given(options, group).items():
        value = getattr(group, name)
        for each in value if isinstance(value, list) else [value]:
            words += [flag] if each is True else [flag, str(each)]
    return words


def given(options: type, group: object) -> dict[str, str]:
    """By field the long names of the options of a group which differ from their defaults."""
    flags = {}
    for name, item in _fields(options).items():
        if getattr(group, name) == item.default:
            continue
        (info,) = item.annotation.__metadata__
        # The first name of an annotation stands where a default would: typer sorts that out later.
        names = (info.default, *(info.param_decls or ()))
        long = [each for each in names if isinstance(each, str) and each.startswith("--")]
        flags[name] = long[0] if long else f"--{name.replace('_', '-')}"
    return flags


def _with_help(item: inspect.Parameter, text: str) -> inspect.Parameter:
    """The same parameter with another help text."""
    kind, info = item.annotation.__origin__, copy.copy(item.annotation.__metadata__[0])
    info.help = text
    return item.replace(annotation=Annotated[kind, info])


def _fields(options: type) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass as parameters of a command, by name."""
    hints = inspect.get_annotations(options, eval_str=True)
    return {
        item.name: inspect.Parameter(
            item.name, inspect.Parameter.KEYWORD_ONLY, default=item.default, annotation=hints[item.name]
        )
        for item in fields(options)
        if item.init
    }


def _signed(
    call: Command, function: Command, parameter: str, options: Iterable[inspect.Parameter]
) -> Command:
    """`call` with the signature of `function`, where `options` stand for `parameter`."""
    signature = inspect.signature(function, eval_str=True)
    parameters = [
        *(
            own.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for own in signature.parameters.values()
            if own.name != parameter
        ),
        *options,
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {item.name: item.annotation for item in parameters}
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call
