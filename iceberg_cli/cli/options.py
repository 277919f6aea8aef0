"""Groups of options that commands share: a dataclass of annotated fields stands for them in a command's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
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
    shared = [item for item in fields(options) if item.init]
    hints = inspect.get_annotations(options, eval_str=True)

    def decorate(function: Command) -> Command:
        signature = inspect.signature(function, eval_str=True)

        def call(**values: Any) -> None:
            group = options(**{item.name: values.pop(item.name) for item in shared})
            function(**{parameter: group}, **values)

        parameters = [
            *(
                own.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                for own in signature.parameters.values()
                if own.name != parameter
            ),
            *(
                inspect.Parameter(
                    item.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=item.default,
                    annotation=hints[item.name],
                )
                for item in shared
            ),
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {item.name: item.annotation for item in parameters}
        call.__name__, call.__doc__ = function.__name__, function.__doc__
        return call

    return decorate
