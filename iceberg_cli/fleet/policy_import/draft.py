"""A policy file in the making, and what it cannot say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.patterns import parse_pattern
from iceberg_cli.fleet.policy_file import NEVER
from iceberg_cli.fleet.policy_import.documents import Node
from iceberg_cli.names import name_of

EXPIRE, REWRITE, MERGE = "expire-snapshots", "rewrite-manifests", "merge-dvs"
COMPACT: Final = "rewrite-data-files"
ORPHANS: Final = "remove-orphan-files"
NO_ORDER: Final = (
    "it does not say by which columns, so data files are left as they are: --curve-by or --sort-by names them"
)
NO_YOUNG: Final = "younger files may be of writers at work: it is 24h, the least without --unsafe-allow-young"
NO_FOLDERS: Final = (
    "the table's folders of data and metadata are looked through, whatever it says; location adds others"
)
NO_SCHEDULE: Final = "when it runs is up to the scheduler"
NO_REF_AGE: Final = (
    "how long branches and tags stay is up to the table: property history.expire.max-ref-age-ms"
)
NO_KEY: Final = "it has no counterpart"
_BY_TABLE: Final = "sort"  # by the sort order of the table
_BIN_PACK: Final = ("auto", "bin-pack", "bin_pack", "binpack")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_FORBIDDEN: Final = re.compile(r"[\x7f]")  # in TOML, and not in JSON
_DAY_H: Final = 24
_MIB: Final = 1 << 20

Verbs = dict[str, dict[str, Any]]  # by verb its options in kebab-case


@dataclass(frozen=True, kw_only=True)
class Note:
    """What other settings have and a policy file cannot say.

    Args:
        path: of the setting in its file.
        text: why not.
    """

    path: str
    text: str


@dataclass(frozen=True, kw_only=True)
class DraftEntry:
    """One of the `[[tables]]`.

    Args:
        match: patterns.
        verbs: what they have.
        reason: why nothing runs on them; "": something may.
    """

    match: tuple[str, ...]
    verbs: Verbs = field(default_factory=dict)
    reason: str = ""


@dataclass(kw_only=True)
class Draft:
    """A policy file in the making.

    Args:
        path: of the other settings.
        patterns: see `import_policy`.
        entries: in the order in which they are written.
        notes: what was left out.
    """

    path: str
    patterns: tuple[str, ...] = ()
    entries: list[DraftEntry] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def add(self, match: Iterable[str], verbs: Verbs, *, reason: str = "") -> None:
        """Add an entry; tables that have the same in consecutive entries share one."""
        patterns = tuple(match)
        for pattern in patterns:
            parse_pattern(pattern)
        last = self.entries[-1] if self.entries else None
        if last is not None and (last.verbs, last.reason) == (verbs, reason):
            merged = tuple(dict.fromkeys((*last.match, *patterns)))
            self.entries[-1] = DraftEntry(match=merged, verbs=verbs, reason=reason)
        else:
            self.entries.append(DraftEntry(match=patterns, verbs=verbs, reason=reason))

    def add_by_table(self, settings: Iterable[tuple[tuple[str, ...], Verbs, Node]]) -> None:
        """Add one entry for each table whose settings come one kind at a time, in any order.

        Args:
            settings: a table's patterns, what one kind of setting has for it, and where the file says that.

        Raises:
            UsageError: a table has the same kind twice: of two entries a later one would replace options one by one,
                and what came out would be neither.
        """
        found: dict[tuple[str, ...], Verbs] = {}
        for match, verbs, node in settings:
            own = found.setdefault(match, {})
            if taken := own.keys() & verbs.keys():
                raise UsageError(
                    f"{node.where}: a second setting for {', '.join(taken)} of {', '.join(match)}",
                    next_step="Keep the one that holds; save what names no table in a file for each table.",
                )
            own |= verbs
        for match, verbs in found.items():
            self.add(match, verbs)

    def leave_out(self, node: Node, text: str = NO_KEY) -> None:
        """Note a setting that has no counterpart."""
        self.notes.append(Note(path=node.path, text=text))

    def leave_out_others(self, node: Node | None, known: Iterable[str]) -> None:
        """Note the keys of an object that are none of these."""
        known = set(known)
        for key, child in node.children() if node is not None else ():
            if key not in known:
                self.leave_out(child)

    def tables(self) -> tuple[str, ...]:
        """The tables that the command line names, for a file that names none.

        Raises:
            UsageError: it names none either.
        """
        if not self.patterns:
            raise UsageError(
                f"{self.path} does not say for which tables its settings are",
                next_step="Name them behind the file: `policy import FILE prod.sales.* --from TOOL`.",
            )
        return self.patterns

    def catalog(self, otherwise: str | None = None) -> str:
        """The catalog, as PyIceberg's configuration calls it, in which the tables are that the file names.

        Args:
            otherwise: the file's own word for it; None: it has none.

        Raises:
            UsageError: neither the file nor the command line names it, or the command line has more.
        """
        if not self.patterns:
            if otherwise is None:
                raise UsageError(
                    f"{self.path} names its tables without a catalog",
                    next_step="Name the catalog, as PyIceberg's configuration calls it, behind the file: "
                    "`policy import FILE prod --from TOOL`.",
                )
            return otherwise
        if len(self.patterns) > 1 or "." in self.patterns[0] or "/" in self.patterns[0]:
            raise UsageError(
                f"{self.path} names its tables itself, in a catalog: {' '.join(self.patterns)} is none",
                next_step="Name one catalog, such as prod, or nothing.",
            )
        return self.patterns[0]

    def to_toml(self, title: str) -> str:
        """The policy file.

        Args:
            title: the sentence in its first line.
        """
        lines = [f"# {' '.join(title.split())}", "version = 1"]
        for entry in self.entries:
            lines += ["", "[[tables]]", f"match = {_toml(list(entry.match))}"]
            if entry.reason:
                lines += ["maintain = false", f"reason = {_toml(entry.reason)}"]
            lines += [f"{verb} = {_toml(values)}" for verb, values in entry.verbs.items()]
        return "\n".join(lines) + "\n"


def never(verb: str) -> Verbs:
    """A verb that does not run."""
    return {verb: {"when": NEVER}}


def order_options(strategy: Node | None, draft: Draft) -> dict[str, Any] | None:
    """What a strategy of compaction says of the order of rows; None where that cannot be said, which is noted."""
    # Such a table is not compacted at all: files that were clustered and are then merged as they are have wide bounds,
    # and only another run brings the narrow ones back. Small files that stay cost an operator one line, at any time.
    if strategy is None or strategy.text().lower() in _BIN_PACK:
        return {}
    if strategy.text().lower() == _BY_TABLE:
        return {"strategy": _BY_TABLE}
    draft.leave_out(strategy, NO_ORDER)
    return None


def orphan_age(value: Node, number_h: float, draft: Draft | None) -> str:
    """The age from which on files go that nothing names, as text; one that is refused here is noted.

    Args:
        value: that says it.
        number_h: in hours.
        draft: gets the note; None: it has it.
    """
    if number_h < _DAY_H and draft is not None:
        draft.leave_out(value, NO_YOUNG)
    return hours(max(number_h, _DAY_H))


def size(number_bytes: int) -> str | int:
    """A size as text in MiB; in bytes where these are no whole MiB."""
    return number_bytes if number_bytes % _MIB else f"{number_bytes // _MIB}MiB"


def hours(number: float) -> str:
    """A duration of so many hours as text, in days where it is whole days."""
    if number == int(number):
        whole = int(number)
        return f"{whole // _DAY_H}d" if whole % _DAY_H == 0 else f"{whole}h"
    return f"{round(number * 3_600)}s"


def table_pattern(catalog: str, *levels: str) -> str:
    """The pattern of one table of a catalog.

    Raises:
        UsageError: a level is empty.
    """
    if not all(levels):
        raise UsageError(f"{levels} is no table's name: a level is empty")
    return name_of(catalog, *levels)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            text = json.dumps(value, ensure_ascii=False)
            return _FORBIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            inner = ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            return str(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key)
