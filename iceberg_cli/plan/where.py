"""Conditions as `--where` has them.

    condition [AND condition ...]      a condition is one of
    field = value   != <> < <= > >=    field IN (value, ...)    field IS NULL    field IS NOT NULL

A value is a number, true, false, or 'text': what `inspect partitions` shows, such as '2024-05' for a month. Null fits
no comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.option_kinds import Text

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*') | (?P<quoted>"[^"]+"|`[^`]+`) | (?P<sign><=|>=|<>|!=|[=<>(),])
    | (?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w-]) | (?P<word>[^\W\d][\w.]*))""",
    re.VERBOSE,
)
_COMPARISONS: Final = ("=", "!=", "<>", "<", "<=", ">", ">=")
Literal = str | Decimal | bool


class Where(Text):
    """An expression that can be read; `Condition`s, all of which hold."""

    def __init__(self) -> None:
        super().__init__(metavar="EXPR")

    def check(self, value: str, flag: str) -> None:
        """As `Kind`."""
        super().check(value, flag)
        parse_where(value, flag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; `values` are literals: str for text, Decimal for a number, bool."""

    field: str
    operator: str  # of _COMPARISONS, "IN", "NULL" or "NOT NULL"
    values: tuple[Literal, ...] = ()


def parse_where(text: str, flag: str = "--where") -> tuple[Condition, ...]:
    """Parse an expression; `flag` is the name of what has it, for the message.

    Raises:
        UsageError: it is none.
    """
    try:
        return tuple(_conditions(_tokens(text)))
    except ValueError as error:
        raise UsageError(
            f"{flag}: cannot read {text!r}: {error}",
            next_step="Write conditions such as: day = '2024-05-01' AND region IN ('north', 'east')",
        ) from None


def no_value(literal: Literal, field: str, kind: str) -> UsageError:
    """That a literal is no value of a field of this kind."""
    return UsageError(f"--where: {str(literal)!r} is no value of {field}, which is of type {kind}")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise ValueError(f"{text[position:].strip()[:20]!r} makes no sense there")
        kind, token = found.lastgroup, found[found.lastgroup]
        if kind == "word" and token.upper() in {"AND", "IN", "IS", "NOT", "NULL", "TRUE", "FALSE"}:
            token = token.upper()
        tokens.append((kind, token))
        position = found.end()
    return tokens


def _conditions(tokens: list[tuple[str, str]]) -> Iterator[Condition]:
    yield _condition(tokens)
    while tokens:
        if _next(tokens) != ("word", "AND"):
            raise ValueError("conditions are joined by AND")
        yield _condition(tokens)


def _next(tokens: list[tuple[str, str]]) -> tuple[str, str]:
    if not tokens:
        raise ValueError("it ends too early")
    return tokens.pop(0)


def _condition(tokens: list[tuple[str, str]]) -> Condition:
    kind, name = _next(tokens)
    if kind not in ("word", "quoted"):
        raise ValueError(f"{name!r} is no field")
    field = name[1:-1] if kind == "quoted" else name
    kind, sign = _next(tokens)
    if kind == "sign" and sign in _COMPARISONS:
        return Condition(field=field, operator=sign, values=(_literal(tokens),))
    if (kind, sign) == ("word", "IS"):
        _, word = _next(tokens)
        negated = word == "NOT"
        if (_next(tokens)[1] if negated else word) != "NULL":
            raise ValueError("IS is followed by NULL or NOT NULL")
        return Condition(field=field, operator="NOT NULL" if negated else "NULL")
    if (kind, sign) == ("word", "IN") and _next(tokens)[1] == "(":
        values = [_literal(tokens)]
        while (mark := _next(tokens)[1]) == ",":
            values.append(_literal(tokens))
        if mark == ")":
            return Condition(field=field, operator="IN", values=tuple(values))
    raise ValueError(f"{sign!r} makes no sense after {field!r}")


def _literal(tokens: list[tuple[str, str]]) -> Literal:
    kind, written = _next(tokens)
    if kind == "text":
        return written[1:-1].replace("''", "'")
    if kind == "number":
        return Decimal(written)
    if kind == "word" and written in ("TRUE", "FALSE"):
        return written == "TRUE"
    raise ValueError(f"{written!r} is no value; text is written in single quotes")
