"""Groups of options that commands share: a dataclass of annotated fields stands for them in a command's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

Command = Callable[..., None]


def spread(parameter: str, options: type) -> Callable[[Command], Command]:
    """Replace a command's parameter by the fields of `options`, and build `options` from their values.

    Args:
        parameter: name of the command's parameter of type `options`.
        options: a dataclass; each field is annotated as typer wants it and has a default.

    Returns:
        A decorator. The fields come after the command's other parameters.
    """
    own = _fields(options)

    def decorate(function: Command) -> Command:
        def call(**values: Any) -> None:
            group = options(**{name: values.pop(name) for name in own})
            function(**{parameter: group}, **values)

        return _signed(call, function, parameter, own.values())

    return decorate


def spread_all(parameter: str, groups: Mapping[str, type]) -> Callable[[Command], Command]:
    """Replace a command's parameter by the fields of several groups, each field once.

    Args:
        parameter: name of the command's parameter of type `Chosen`.
        groups: by name; see `spread`. A field that several have is one option, spelled by the first.

    Returns:
        A decorator.
    """
    own = {name: _fields(options) for name, options in groups.items()}
    every = {name: item for of_group in reversed(own.values()) for name, item in of_group.items()}

    def decorate(function: Command) -> Command:
        def call(**values: Any) -> None:
            given = {name: values.pop(name) for name in every}
            made = {
                group: options(**{name: given[name] for name in own[group]})
                for group, options in groups.items()
            }
            said = {name for name, value in given.items() if value != every[name].default}
            strays = {group: sorted(said - own[group].keys()) for group in groups}
            function(**{parameter: Chosen(groups=made, strays=strays)}, **values)

        return _signed(call, function, parameter, every.values())

    return decorate


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Groups of options by name, and for each the options that were given and are not its own."""

    groups: Mapping[str, Any]
    strays: Mapping[str, list[str]]


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
