"""Policy files: which verbs maintenance runs on which tables, by which options, and when."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.patterns import Pattern, is_path, parse_pattern
from iceberg_cli.fleet.policy_schema import read_document, read_options, thresholds_of
from iceberg_cli.fleet.thresholds import usual_thresholds
from iceberg_cli.fleet.windows import BothWindows, Window, parse_window
from iceberg_cli.formats import is_only_by_name, maintenance_verbs, policy_for
from iceberg_cli.paths import canonical
from iceberg_cli.plan.policy import DEFAULT, OF_TABLE, may_keep_less
from iceberg_cli.plan.text import count
from iceberg_cli.storage.router import located

if TYPE_CHECKING:
    from iceberg_cli.plan.policy import Policy

DUE, ALWAYS, NEVER = "due", "always", "never"
WHEN: Final = (DUE, ALWAYS, NEVER)
_WHEN_KEY: Final = "--when"  # among a verb's options, of which none is called so
SHORT_RETENTION: Final = "short-retention"
# The options that `unsafe` is about, and the switch without which Delta refuses short ones.
RETENTION: Final = ("--older-than", "--retain-last", "--retention", "--log-retention")
_ALLOW_SHORT: Final = "--unsafe-allow-short-retention"
# The only options of one verb that exclude each other: this value of the one, and any of the other.
_MODE, _LITE, _INVENTORY = "--mode", "lite", "--inventory"


@dataclass(frozen=True, kw_only=True)
class GivenOptions:
    """Values of a verb's options, as `VerbOptions` of the command line has them.

    Args:
        given: by flag the text, number or switch, or a list of them.
        sources: by flag where that comes from, in words.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def over(self, weaker: GivenOptions) -> GivenOptions:
        """These, and of the weaker ones those that these neither have nor exclude."""
        shut = set(self.given)
        if self.given.get(_MODE) == _LITE:
            shut.add(_INVENTORY)
        if _INVENTORY in self.given and weaker.given.get(_MODE) == _LITE:
            shut.add(_MODE)
        return GivenOptions(
            given={**{flag: value for flag, value in weaker.given.items() if flag not in shut}, **self.given},
            sources={
                **{flag: source for flag, source in weaker.sources.items() if flag not in shut},
                **self.sources,
            },
        )


_NOTHING: Final = GivenOptions()
_BY_DEFAULT: Final = "default of policy files"


@dataclass(frozen=True, kw_only=True)
class VerbPolicy:
    """What a policy file has for one verb on one table.

    Args:
        verb: its name.
        when: `DUE`, `ALWAYS` or `NEVER`.
        when_source: where that comes from, in words; "default" where the file does not say.
        given: by flag what the file has for options of both formats.
        sources: by flag where that comes from, such as `policy.toml: tables[1].expire-snapshots.older-than`.
        thresholds: from how much on it is due, by name.
        short_retention: the source of `unsafe = ["short-retention"]`; None: the table's properties are the floor.
        is_named: whether a policy file has it; else there is none, and it is looked at as every verb is.
    """

    verb: str
    when: str
    when_source: str
    given: Mapping[str, Any]
    sources: Mapping[str, str]
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    short_retention: str | None = None
    is_named: bool = True

    def policy(
        self,
        format_name: str,
        *,
        now_ms: int,
        weaker: GivenOptions = _NOTHING,
        stronger: GivenOptions = _NOTHING,
    ) -> Policy:
        """The verb's policy for a table.

        Args:
            format_name: of the table; options that only other formats have are left out.
            now_ms: the "now" of every age.
            weaker: what holds where the file has nothing: the configuration file.
            stronger: what holds over the file: variables.

        Raises:
            UsageError: an option has no meaning; it says where the value comes from.
        """
        own = policy_for(format_name, self.verb)
        flags = {flag for each in own.options() for flag in each.help_of}
        by_default = {
            each.flag: each.in_policy_files for each in own.options() if each.in_policy_files is not None
        }
        found = stronger.over(self._given()).over(weaker)
        found = found.over(GivenOptions(given=by_default, sources=dict.fromkeys(by_default, _BY_DEFAULT)))
        if self._allows_short(found):
            allowed = GivenOptions(
                given={_ALLOW_SHORT: True}, sources={_ALLOW_SHORT: self.short_retention or ""}
            )
            found = found.over(allowed)
        given = {flag: value for flag, value in found.given.items() if flag in flags}
        sources = {flag: source for flag, source in found.sources.items() if flag in given}
        try:
            return own.from_options(given, now_ms=now_ms, sources=sources)
        except UsageError as error:
            named = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", error.message)
            added = [f"{flag} comes from {sources[flag]}" for flag in dict.fromkeys(named) if flag in sources]
            if added:
                error.message = f"{error.message} ({'; '.join(added)})"
            raise

    def _given(self) -> GivenOptions:
        if self.short_retention is None:
            return GivenOptions(given=self.given, sources=self.sources)
        sources = {
            flag: may_keep_less(source) if flag in RETENTION else source
            for flag, source in self.sources.items()
        }
        return GivenOptions(given=self.given, sources=sources)

    def _allows_short(self, found: GivenOptions) -> bool:
        """Whether `unsafe` is about all retention that is given: what others give for all tables it does not allow."""
        given = found.given.keys() & set(RETENTION)
        return (
            self.short_retention is not None
            and bool(given)
            and all(found.sources[flag] == may_keep_less(self.sources.get(flag, "")) for flag in given)
        )


@dataclass(frozen=True, kw_only=True)
class TablePolicy:
    """What a policy file has for one table.

    Args:
        maintain: whether anything may run on it.
        reason: why not, in the file's words; "" where it does not say.
        maintain_source: the key that says so; "default" where none does.
        window: when work on it may begin; None: at any time.
        window_source: the key that has it; "default" where none does.
        unsafe: of `SHORT_RETENTION`.
        verbs: by name those that `[defaults]` or an entry names; others never run.
    """

    maintain: bool
    reason: str
    maintain_source: str
    window: Window | BothWindows | None
    window_source: str
    unsafe: frozenset[str]
    verbs: Mapping[str, VerbPolicy]

    @property
    def is_held_by_itself(self) -> bool:
        """Whether it is a property of the table by which nothing runs."""
        return not self.maintain and self.maintain_source.startswith(OF_TABLE)

    @property
    def why_not_maintained(self) -> str:
        """Why nothing runs on it, in words."""
        if self.is_held_by_itself:
            return self.reason
        return f"maintain = false{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, kw_only=True)
class PolicyEntry:
    """One of the `[[tables]]` of a policy file, or its `[defaults]`.

    Args:
        key: its path in the file: `tables[1]`.
        match: the tables that are meant, if none of `exclude` matches; none for the defaults.
        exclude: `except` of the file.
        maintain: None where it does not say.
        reason: as the file has it.
        window: None where it has none.
        unsafe: None where it does not say.
        verbs: by name what it has for each: by flag, and `when`.
    """

    key: str
    match: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    maintain: bool | None = None
    reason: str = ""
    window: Window | None = None
    unsafe: frozenset[str] | None = None
    verbs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def applies_to(self, names: Iterable[str]) -> bool:
        """Whether it is about the table of these names: it matches one of them and excepts none."""
        names = list(names)
        return any(each.matches(name) for each in self.match for name in names) and not any(
            each.matches(name) for each in self.exclude for name in names
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class PolicyFile:
    """A policy file that was read and checked whole; `Policy` of the package.

    Args:
        path: as it was given.
        digest: SHA-256 of its bytes, in hex.
        defaults: what holds for every table that an entry matches.
        entries: its `[[tables]]`, in their order.
    """

    path: str
    digest: str
    defaults: PolicyEntry
    entries: tuple[PolicyEntry, ...]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PolicyFile:
        """Read and check a policy file; see `load_policy`."""
        return load_policy(os.fspath(path))

    def __repr__(self) -> str:
        """Its path and how many entries it has."""
        return f"Policy({self.path!r}, {count(len(self.entries), 'entries')})"

    def to_json(self) -> dict[str, str]:
        """The field `policy` of a document."""
        return {"path": self.path, "digest": self.digest}

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """Every `match` once, those of tables that are not to be maintained, too: by these they are recognised."""
        return tuple(dict.fromkeys(pattern for entry in self.entries for pattern in entry.match))

    @property
    def holds(self) -> tuple[Pattern, ...]:
        """Every `match` of entries with `maintain = false`, once: a table may have another name beside that one."""
        return tuple(
            dict.fromkeys(
                pattern for entry in self.entries if entry.maintain is False for pattern in entry.match
            )
        )

    def of_table(self, names: Sequence[str]) -> TablePolicy | None:
        """What the file has for a table.

        An entry applies if it matches one of the table's names and excepts none; what a later one has replaces, key by
        key, that of an earlier one and of the defaults. `maintain` is decided for each name by itself, and a table is
        maintained only if none of its names forbids it: an entry for another name cannot lift a hold.

        Args:
            names: every name by which the table is known, with its location.

        Returns:
            None where no entry applies: then nothing may run on the table.
        """
        names = [_as_matched(name) for name in names]
        applying = [entry for entry in self.entries if entry.applies_to(names)]
        holding = self._holding(names, set(map(id, applying)))
        if not applying and holding is None:
            return None
        layers = [self.defaults, *applying]
        says = next((entry for entry in reversed(applying) if entry.maintain is not None), None)
        windows = [entry for entry in layers if entry.window is not None]
        unsafe = next((entry for entry in reversed(applying) if entry.unsafe is not None), None)
        short = unsafe is not None and SHORT_RETENTION in (unsafe.unsafe or ())
        decides = holding or says
        return TablePolicy(
            maintain=holding is None,
            reason="" if holding is None else holding.reason,
            maintain_source=DEFAULT if decides is None else self._source(decides, "maintain"),
            window=windows[-1].window if windows else None,
            window_source=self._source(windows[-1], "window") if windows else DEFAULT,
            unsafe=frozenset({SHORT_RETENTION} if short else ()),
            verbs=dict(
                self._verbs(
                    layers, short_retention=self._source(unsafe, "unsafe") if unsafe and short else None
                )
            ),
        )

    def unmatched(self, names: Iterable[str]) -> tuple[str, ...]:
        """Every `match` that means none of these tables, as the file spells it.

        Args:
            names: all names of all tables.
        """
        known = [_as_matched(name) for name in names]
        return tuple(
            pattern.text for pattern in self.patterns if not any(pattern.matches(name) for name in known)
        )

    def _holding(self, names: Iterable[str], applying: set[int]) -> PolicyEntry | None:
        """The entry by which nothing may run on the table of these names.

        Args:
            names: of the table.
            applying: the `id`s of entries that apply to the table by all of its names: only these lift a hold.
        """
        for name in names:
            holding = None
            for entry in self.entries:
                if entry.maintain is None or not entry.applies_to([name]):
                    continue
                if not entry.maintain:
                    holding = entry
                elif id(entry) in applying:
                    holding = None
            if holding is not None:
                return holding
        return None

    def _verbs(
        self, layers: Sequence[PolicyEntry], *, short_retention: str | None
    ) -> Iterator[tuple[str, VerbPolicy]]:
        for verb in maintenance_verbs():
            having = [entry for entry in layers if verb in entry.verbs]
            if not having or (is_only_by_name(verb) and having == [self.defaults]):
                continue
            found = _NOTHING
            for entry in having:
                found = self._given_by(entry, verb).over(found)
            given, sources = dict(found.given), dict(found.sources)
            when, when_source = given.pop(_WHEN_KEY, DUE), sources.pop(_WHEN_KEY, DEFAULT)
            thresholds = usual_thresholds(verb)
            sources = {**{f"--{name}": DEFAULT for name in thresholds}, **sources}
            thresholds |= {
                name: given.pop(f"--{name}") for name in thresholds_of(verb) if f"--{name}" in given
            }
            policy = VerbPolicy(
                verb=verb,
                when=when,
                when_source=when_source,
                given=given,
                sources=sources,
                thresholds=thresholds,
                short_retention=short_retention,
            )
            yield verb, policy

    def _given_by(self, entry: PolicyEntry, verb: str) -> GivenOptions:
        own = entry.verbs[verb]
        return GivenOptions(
            given={f"--{key}": value for key, value in own.items()},
            sources={f"--{key}": self._source(entry, f"{verb}.{key}") for key in own},
        )

    def _source(self, entry: PolicyEntry, key: str) -> str:
        return f"{self.path}: {entry.key}.{key}"


def load_policy(path: str) -> PolicyFile:
    """Read and check a policy file.

    Args:
        path: of the TOML.

    Raises:
        UsageError: it cannot be read, has a key that is not known, or a value that is out of bounds. The message names
            the file and the path of the key, entries counted from 0: `tables[2].merge-dvs.when`.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(
            f"Cannot read the policy file {path}: {error.strerror}",
            next_step="Name a policy file that is there.",
        ) from error
    return parse_policy(path, data)


def parse_policy(path: str, data: bytes) -> PolicyFile:
    """The policy file of these bytes; see `load_policy`."""
    import hashlib

    try:
        document = read_document(path, data)
        return PolicyFile(
            path=path,
            digest=hashlib.sha256(data).hexdigest(),
            defaults=_entry(path, "defaults", document.get("defaults", {})),
            entries=tuple(
                _entry(path, f"tables[{index}]", content) for index, content in enumerate(document["tables"])
            ),
        )
    except UsageError as error:
        if error.general:
            error.next_step = f"Correct {path}."
        raise


def _entry(path: str, key: str, content: Mapping[str, Any]) -> PolicyEntry:
    source = f"{path}: {key}"
    verbs = {
        verb: read_options(verb, content[verb], f"{source}.{verb}")
        for verb in maintenance_verbs()
        if verb in content
    }
    return PolicyEntry(
        key=key,
        match=_patterns(content.get("match", ()), f"{source}.match"),
        exclude=_patterns(content.get("except", ()), f"{source}.except"),
        maintain=content.get("maintain"),
        reason=content.get("reason", ""),
        window=parse_window(content["window"], f"{source}.window") if "window" in content else None,
        unsafe=frozenset(content["unsafe"]) if "unsafe" in content else None,
        verbs=verbs,
    )


def _patterns(texts: Iterable[str], source: str) -> tuple[Pattern, ...]:
    found = []
    for index, text in enumerate(texts):
        try:
            found.append(parse_pattern(text))
        except UsageError as error:
            error.message = f"{source}[{index}]: {error.message}"
            raise
    return tuple(found)


def _as_matched(name: str) -> str:
    """A table's name in the spelling that patterns have."""
    if is_path(name):
        try:
            spelled = located(name)
        except UsageError:  # of another host: a table's metadata may say so, and nothing is looked for there
            spelled = name
        return canonical(spelled).rstrip("/") or "/"
    return name
