"""What a table's own properties say of its maintenance: its owner may forbid it, narrow it or keep more by them.

`iceberg-cli.maintain`, `iceberg-cli.window`, `iceberg-cli.grace`, `iceberg-cli.VERB.when = never` and
`iceberg-cli.VERB.OPTION` for options of retention. Nothing in them makes more go than the policy file lets. One that is
not understood forbids all: what its writer meant to keep would be gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_file import NEVER, RETENTION, TablePolicy, VerbPolicy
from iceberg_cli.fleet.policy_schema import options_of_verb
from iceberg_cli.fleet.windows import BothWindows, parse_window
from iceberg_cli.formats import maintenance_verbs
from iceberg_cli.iceberg.commit.draft import OPERATION_ID
from iceberg_cli.plan.deleting_policy import GRACE_PROPERTY, least_grace_ms
from iceberg_cli.plan.option_kinds import Duration, Moment
from iceberg_cli.plan.policy import OF_TABLE
from iceberg_cli.plan.text import did_you_mean

PREFIX: Final = "iceberg-cli."
_MAINTAIN, _WINDOW, _WHEN = "maintain", "window", "when"
_WINDOW_TEXT: Final = re.compile(r"(?:(?P<days>[a-z, -]+) )?(?P<from>[0-9:]+)-(?P<to>[0-9:]+) (?P<zone>\S+)")


def narrowed(own: TablePolicy, properties: Mapping[str, str], *, as_of_ms: int) -> TablePolicy:
    """What a policy file has for a table, as far as the table's properties let it.

    Args:
        own: by the file.
        properties: all of the table.
        as_of_ms: the "now" of every age: an age and a date can be compared by it alone.
    """
    found = own
    for name in sorted(properties):
        # A commit without a snapshot leaves its mark there, where the catalog is told of it (REST).
        if not name.startswith(PREFIX) or name == OPERATION_ID or not found.maintain:
            continue
        source = f"{OF_TABLE}{name}"
        try:
            found = _with(found, name.removeprefix(PREFIX), properties[name], source, as_of_ms=as_of_ms)
        except UsageError as error:
            found = replace(found, maintain=False, reason=error.message, maintain_source=source)
    return found


def _with(own: TablePolicy, key: str, text: str, source: str, *, as_of_ms: int) -> TablePolicy:
    if key == _MAINTAIN:
        if text not in ("true", "false"):
            raise UsageError(f"{source} must be true or false, not {text!r}")
        if text == "true":
            return own
        return replace(own, maintain=False, reason=f"{source} = false", maintain_source=source)
    if key == _WINDOW:
        window = _window(text, source)
        both = window if own.window is None else BothWindows(own.window, window)
        return replace(own, window=both, window_source=source)
    if source == f"{OF_TABLE}{GRACE_PROPERTY}":
        least_grace_ms(text)  # the plans of all verbs that delete go by it
        return own
    verb, _, option = key.partition(".")
    if verb not in maintenance_verbs():
        known = (_MAINTAIN, _WINDOW, GRACE_PROPERTY.removeprefix(PREFIX), *maintenance_verbs())
        raise UsageError(f"{source} is not known.{did_you_mean(verb, known)}")
    having = [flag.removeprefix("--") for flag in RETENTION if flag in options_of_verb(verb)]
    if option not in (_WHEN, *having):
        raise UsageError(f"{source} is not known; {verb} has {', '.join((_WHEN, *having))}")
    if option == _WHEN and text != NEVER:
        raise UsageError(f"{source} must be never, not {text!r}")
    if verb not in own.verbs:
        return own
    change: dict[str, Any] = {"when": NEVER, "when_source": source}
    if option != _WHEN:
        change = _kept(own.verbs[verb], f"--{option}", text, source, as_of_ms=as_of_ms)
    return replace(own, verbs={**own.verbs, verb: replace(own.verbs[verb], **change)})


def _window(text: str, source: str) -> Any:
    match = _WINDOW_TEXT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{source}: {text!r} is no window; write mon-fri 01:00-05:00 Europe/Berlin")
    given: dict[str, Any] = match.groupdict()
    days = given.pop("days")
    if days is not None:
        given["days"] = [each.strip() for each in days.split(",")]
    return parse_window(given, source)


def _kept(verb: VerbPolicy, flag: str, text: str, source: str, *, as_of_ms: int) -> dict[str, Any]:
    """The changes of a verb's policy by which an option keeps what both say."""
    kind = options_of_verb(verb.verb)[flag].kind
    value: Any = text
    if kind.takes is int:
        if not text.strip().isdecimal():
            raise UsageError(f"{source}: {text!r} is no whole number")
        value = int(text)
    kind.check(kind.read(value, source), source)
    keeps = _keeps(kind, value, source, as_of_ms=as_of_ms)
    if flag in verb.given and _keeps(kind, verb.given[flag], flag, as_of_ms=as_of_ms) >= keeps:
        return {}
    return {"given": {**verb.given, flag: value}, "sources": {**verb.sources, flag: source}}


def _keeps(kind: Any, value: Any, source: str, *, as_of_ms: int) -> int:
    """A number that is the greater the more is kept."""
    if isinstance(kind, Moment):
        return -int(kind.at(value, source, now_ms=as_of_ms))
    if isinstance(kind, Duration):
        return int(kind.read(value, source))
    return int(value)
