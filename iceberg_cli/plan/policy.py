"""The shape of a small JSON document of this project: which fields it has, and of which types.

A shape is a type (`float` stands for any number), a list of one shape (an array of these), a mapping (an object with
at least these fields), a frozenset (one of these strings), or a pair of a shape and None (it may be null).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_cli.errors import UsageError


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Refuse with KeyError or TypeError a value of another type or without a field; additional fields pass."""
    match shape:
        case (first, None):
            if value is not None:
                check_shape(value, first, where)
        case [item]:
            check_shape(value, list, where)
            for each in value:
                check_shape(each, item, where)
        case Mapping():
            check_shape(value, dict, where)
            for name, inner in shape.items():
                check_shape(value[name], inner, name)
        case frozenset():
            if type(value) is not str or value not in shape:
                raise TypeError(f"{where} has {value!r}, which is none of {', '.join(sorted(shape))}")
        case _:
            # Not isinstance: true is no number.
            allowed = (int, float) if shape is float else (shape,)
            if type(value) not in allowed:
                raise TypeError(f"{where} has {value!r} in the place of {shape.__name__}")


def policy_fields(value: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a policy that was saved, exactly those of `shape`; arrays as tuples.

    Raises:
        UsageError: a field is missing, unknown or of another type.
    """
    try:
        check_shape(dict(value), shape, "the policy")
    except (KeyError, TypeError) as error:
        raise UsageError(f"Cannot plan again from this policy: {error!r}") from error
    unknown = value.keys() - shape.keys()
    if unknown:
        names = ", ".join(sorted(unknown))
        raise UsageError(f"Cannot plan again from this policy: it has {names}, which this verb does not know")
    return {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
