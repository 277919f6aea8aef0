"""Columns to sort by, as `--sort-by` has them: FIELD, FIELD:desc, FIELD:asc:nulls-last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from iceberg_cli.errors import UsageError

_DIRECTIONS: Final = ("asc", "desc")
_NULLS: Final = ("nulls-first", "nulls-last")


class SortTerm(NamedTuple):
    """A column to sort by.

    Args:
        name: of the column.
        descending: its values.
        nulls_first: before all values; by default where these ascend, as in Iceberg.
    """

    name: str
    descending: bool
    nulls_first: bool


def sort_terms(texts: Iterable[str]) -> tuple[SortTerm, ...]:
    """Columns to sort by.

    Raises:
        UsageError: a text names no column, or a column comes twice.
    """
    found: dict[str, SortTerm] = {}
    for text in texts:
        term = _term(text)
        if not term.name or term.name in found:
            what = "names no column" if not term.name else f"has {term.name} twice"
            raise UsageError(f"--sort-by: {text!r} {what}")
        found[term.name] = term
    return tuple(found.values())


def _term(text: str) -> SortTerm:
    name, nulls = _without(text, _NULLS)
    name, direction = _without(name, _DIRECTIONS)
    descending = direction == "desc"
    return SortTerm(name, descending, nulls_first=not descending if nulls is None else nulls == "nulls-first")


def _without(text: str, endings: tuple[str, ...]) -> tuple[str, str | None]:
    """A text without the word that it ends with, if that is one of some, and this word."""
    begin, _, end = text.rpartition(":")
    return (begin, end) if end in endings and begin else (text, None)
