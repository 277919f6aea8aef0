"""Patterns of tables' names: parts of a catalog, or folders and prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.paths import canonical
from iceberg_cli.storage.router import located

_ONE_LEVEL: Final = "*"
_ANY_LEVELS: Final = "**"
_CATALOG_LEVEL: Final = re.compile(r"[^/\s.]+")
_TABLE_PARTS: Final = 3  # of a table's name in a catalog, at least


@dataclass(frozen=True)
class Pattern:
    """A pattern of tables' names.

    Of a catalog: `prod` is all of it, `prod.sales` a namespace with those below it or one table, `prod.*.orders_*`
    tables; `*` stands for any text within one level, and the first part is a catalog's name. Of folders: `/wh/**`,
    `s3://lake/db/*`; `*` stands for any text within one level, `**` for any number of levels.

    Args:
        text: as it was written; a local path from `/` on.
        with_below: a folder without `*` stands for every table below it, too.
    """

    text: str
    with_below: bool = False

    @property
    def catalog(self) -> str | None:
        """The catalog that it names; None for folders."""
        return None if _is_path(self.text) else self.text.partition(".")[0]

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Its parts below the catalog, or below the root of its storage."""
        if self.catalog is not None:
            return tuple(self.text.split(".")[1:])
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
        return self._expression.fullmatch(name) is not None

    def may_match_below(self, name: str) -> bool:
        """Whether a name may be meant that begins with this one and has more levels.

        Args:
            name: of a namespace with its catalog, or of a folder, without a slash at its end.
        """
        if self.catalog is not None:
            given = name.split(".")
            own = (self.catalog, *self.levels)
            return all(
                self._level(part).fullmatch(text) for part, text in zip(own, given, strict=False)
            ) and (len(given) < len(own) or self._is_namespace)
        if self._is_folder_with_below and f"{name}/".startswith(f"{self.text}/"):
            return True
        if not f"{name}/".startswith(self.root):
            return self.root.startswith(f"{name}/")
        given = name[len(self.root) :].split("/") if len(name) > len(self.root) else []
        for part, text in zip(self.levels, given, strict=False):
            if part == _ANY_LEVELS:
                return True
            if not self._level(part).fullmatch(text):
                return False
        return len(given) < len(self.levels)

    @property
    def _is_folder_with_below(self) -> bool:
        return self.with_below and self.catalog is None and _ONE_LEVEL not in self.text

    @property
    def _is_namespace(self) -> bool:
        """Whether it may name a namespace, and so all tables below it."""
        return len(self.levels) + 1 < _TABLE_PARTS or _ONE_LEVEL not in self.levels[-1]

    def _level(self, part: str) -> re.Pattern[str]:
        """What one level of a name must be."""
        any_text = "[^/]*" if self.catalog is None else "[^.]*"
        return re.compile(any_text.join(map(re.escape, part.split(_ONE_LEVEL))), re.DOTALL)

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        if self.catalog is not None:
            own = r"\.".join(self._level(part).pattern for part in (self.catalog, *self.levels))
            return re.compile(rf"{own}(\..+)?" if self._is_namespace else own, re.DOTALL)
        if self._is_folder_with_below:
            return re.compile(f"{re.escape(self.text)}(?:/.+)?", re.DOTALL)
        parts = [
            "(?:[^/]+/)*" if part == _ANY_LEVELS else f"{self._level(part).pattern}/"
            for part in self.levels[:-1]
        ]
        last = self.levels[-1]
        end = "(?:[^/]+/)*[^/]+" if last == _ANY_LEVELS else self._level(last).pattern
        return re.compile(re.escape(self.root) + "".join(parts) + end, re.DOTALL)


def parse_pattern(text: str) -> Pattern:
    """The pattern of a text.

    Raises:
        UsageError: it is empty, or no catalog or folder can be named so.
    """
    if not text.strip():
        raise UsageError("A pattern of tables is empty", next_step="Write prod.sales.* or /warehouse/**.")
    if _is_path(text):
        pattern = Pattern(canonical(located(text)).rstrip("/") or "/")
        if any(_ANY_LEVELS in level and level != _ANY_LEVELS for level in pattern.levels):
            raise UsageError(f"{text}: ** stands for whole levels: write it between slashes")
        return pattern
    catalog, *levels = text.split(".")
    if _ONE_LEVEL in catalog:
        raise UsageError(
            f"{text}: the first part of a pattern names a catalog and takes no *",
            next_step="Name each catalog; a folder's pattern has a slash, such as ./*.",
        )
    if _ANY_LEVELS in text:
        raise UsageError(f"{text}: ** is for folders", next_step="A namespace means all that is below it.")
    if not all(_CATALOG_LEVEL.fullmatch(level) for level in (catalog, *levels)):
        raise UsageError(f"{text} is no pattern of tables", next_step="Write prod.sales.* or /warehouse/**.")
    return Pattern(text)


def parse_patterns(texts: Iterable[str]) -> list[Pattern]:
    """The patterns of texts, each once; a folder means every table below it, too.

    Raises:
        UsageError: one has no meaning.
    """
    return [replace(parse_pattern(text), with_below=True) for text in dict.fromkeys(texts)]


def _is_path(text: str) -> bool:
    return "/" in text or text in (".", "..") or ":" in text
