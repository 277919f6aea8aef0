"""Patterns of tables' names: parts of a catalog, or folders and prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.names import TABLE_LEVELS, Level, levels_of, parse_levels
from iceberg_cli.paths import canonical
from iceberg_cli.storage.router import located

_ONE_LEVEL: Final = "*"
_ANY_LEVELS: Final = "**"


@dataclass(frozen=True)
class Pattern:
    """A pattern of tables' names.

    Of a catalog: `prod` is all of it, `prod.sales` a namespace with those below it or one table, `prod.*.orders_*`
    tables; `*` stands for any text within one level, in backquotes for itself, and the first part is a catalog's name.
    Of folders: `/wh/**`, `s3://lake/db/*`; `*` stands for any text within one level, `**` for any number of levels.

    Args:
        text: as it was written; a local path from `/` on.
        with_below: a folder without `*` stands for every table below it, too.
    """

    text: str
    with_below: bool = False

    @property
    def catalog(self) -> str | None:
        """The catalog that it names; None for folders."""
        return self._levels[0].text if self._levels else None

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Of folders: its parts below the root."""
        return tuple(self.text[len(self.root) :].split("/"))

    @cached_property
    def root(self) -> str:
        """Of folders: what comes before the first level that has a `*`, with a slash at its end."""
        fixed = self.text.partition(_ONE_LEVEL)[0]
        return fixed[: fixed.rfind("/") + 1]

    def matches(self, name: str) -> bool:
        """Whether a table's name is meant, written as `open_table` takes it.

        Args:
            name: `prod.sales.orders`, `/wh/db/t` or `s3://lake/db/t`.
        """
        if not self._levels:
            return self._expression.fullmatch(name) is not None
        given = levels_of(name)
        below = len(given) - len(self._levels)
        return (below == 0 or (below > 0 and self._is_namespace)) and self._begins(given)

    def may_match_below(self, name: str) -> bool:
        """Whether a name may be meant that begins with this one and has more levels.

        Args:
            name: of a namespace with its catalog, or of a folder, without a slash at its end.
        """
        if self._levels:
            above = levels_of(name)
            return (
                bool(above) and self._begins(above) and (len(above) < len(self._levels) or self._is_namespace)
            )
        if self._is_folder_with_below and f"{name}/".startswith(f"{self.text}/"):
            return True
        if not f"{name}/".startswith(self.root):
            return self.root.startswith(f"{name}/")
        given = name[len(self.root) :].split("/") if len(name) > len(self.root) else []
        for part, text in zip(self.levels, given, strict=False):
            if part == _ANY_LEVELS:
                return True
            if not re.fullmatch(_expression_of(part), text, re.DOTALL):
                return False
        return len(given) < len(self.levels)

    @property
    def _is_folder_with_below(self) -> bool:
        return self.with_below and self.catalog is None and _ONE_LEVEL not in self.text

    @property
    def _is_namespace(self) -> bool:
        """Whether it may name a namespace, and so all tables below it."""
        last = self._levels[-1]
        return len(self._levels) < TABLE_LEVELS or last.quoted or _ONE_LEVEL not in last.text

    @cached_property
    def _levels(self) -> tuple[Level, ...]:
        """Of names in a catalog: their levels, its own first; of folders: none."""
        return parse_levels(self.text)

    @cached_property
    def _level_expressions(self) -> tuple[re.Pattern[str], ...]:
        return tuple(
            re.compile(
                re.escape(each.text) if each.quoted else _expression_of(each.text, any_text=".*"), re.DOTALL
            )
            for each in self._levels
        )

    def _begins(self, given: tuple[str, ...]) -> bool:
        """Whether the levels of a name are as these, as far as both go."""
        return all(own.fullmatch(text) for own, text in zip(self._level_expressions, given, strict=False))

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        """Of folders: what a table's must be."""
        if self._is_folder_with_below:
            return re.compile(f"{re.escape(self.text)}(?:/.+)?", re.DOTALL)
        parts = [
            "(?:[^/]+/)*" if part == _ANY_LEVELS else f"{_expression_of(part)}/" for part in self.levels[:-1]
        ]
        last = self.levels[-1]
        end = "(?:[^/]+/)*[^/]+" if last == _ANY_LEVELS else _expression_of(last)
        return re.compile(re.escape(self.root) + "".join(parts) + end, re.DOTALL)


def parse_pattern(text: str) -> Pattern:
    """The pattern of a text.

    Raises:
        UsageError: it is empty, or no catalog or folder can be named so.
    """
    if not text.strip():
        raise UsageError("A pattern of tables is empty", next_step="Write prod.sales.* or /warehouse/**.")
    if is_path(text):
        pattern = Pattern(canonical(located(text)).rstrip("/") or "/")
        if any(_ANY_LEVELS in level and level != _ANY_LEVELS for level in pattern.levels):
            raise UsageError(f"{text}: ** stands for whole levels: write it between slashes")
        return pattern
    levels = parse_levels(text)
    if not levels:
        raise UsageError(
            f"{text} is no pattern of tables",
            next_step="Write prod.sales.*, prod.sales.`a b` or /warehouse/**.",
        )
    if not levels[0].quoted and _ONE_LEVEL in levels[0].text:
        raise UsageError(
            f"{text}: the first part of a pattern names a catalog and takes no *",
            next_step="Name each catalog; a folder's pattern has a slash, such as ./*.",
        )
    if any(_ANY_LEVELS in level.text and not level.quoted for level in levels):
        raise UsageError(f"{text}: ** is for folders", next_step="A namespace means all that is below it.")
    return Pattern(text)


def parse_patterns(texts: Iterable[str]) -> list[Pattern]:
    """The patterns of texts, each once; a folder means every table below it, too.

    Raises:
        UsageError: one has no meaning.
    """
    return [replace(parse_pattern(text), with_below=True) for text in dict.fromkeys(texts)]


def is_path(text: str) -> bool:
    """Whether a name or pattern is of folders, not of a catalog."""
    return ("/" in text or text in (".", "..") or ":" in text) and not parse_levels(text)


def _expression_of(part: str, *, any_text: str = "[^/]*") -> str:
    """What one level must be, with `any_text` for each `*`."""
    return any_text.join(map(re.escape, part.split(_ONE_LEVEL)))
