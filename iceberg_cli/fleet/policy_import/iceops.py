"""The policy of iceops, `iceops.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import Node
from iceberg_cli.fleet.policy_import.draft import (
    COMPACT,
    EXPIRE,
    ORPHANS,
    REWRITE,
    Draft,
    Verbs,
    hours,
    orphan_age,
    size,
)

# Their verbs.
_OPERATIONS: Final = {EXPIRE: EXPIRE, REWRITE: REWRITE, "compact": COMPACT, "clean-orphans": ORPHANS}
# What iceops has where an operation is named without a value, by our options; Spark is always told to take two files.
_BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    EXPIRE: {"older-than": "7d", "retain-last": 10},
    REWRITE: {"target-size": "8MiB"},
    COMPACT: {"target-size": "512MiB", "min-input-files": 2},
    ORPHANS: {},  # from three days on, as here
}
_TARGETS: Final = {REWRITE: "target-manifest-size", COMPACT: "target-file-size"}
_NO_CONDITION: Final = "a verb runs where it is due; there are no conditions"
_NO_ENGINE: Final = "no other engine does it"
_ONE_LEVEL: Final = "a * of iceops stands for any text, here for any text within one level of the namespace"
_WIDENED: Final = "what is disabled is so for all that this may mean: a * stands for ? and [...]"
_LEVELS: Final = "what is disabled is so where its * stands for up to three levels of the namespace"
_DEFAULT_CATALOG: Final = "default"  # of PyIceberg, too
_DURATION: Final = re.compile(r"(\d+)([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SIZE: Final = re.compile(r"(\d+)\s*(b|kb|mb|gb)")
_BYTES: Final = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


def read(document: Node, draft: Draft) -> None:
    """Add what the file says: the defaults for all tables, then each pattern, those that mean fewer tables later.

    Args:
        document: of the file.
        draft: gets the entries; those of tables that are disabled come last, for nothing enables these again.

    Raises:
        UsageError: it is no such file.
    """
    named = document.child("catalog")
    catalog = draft.catalog(_DEFAULT_CATALOG if named is None else named.text())
    if (engine := document.child("engine")) is not None:
        draft.leave_out(engine, _NO_ENGINE)
    for key, value in document.children():
        if key not in ("catalog", "engine", "defaults", "tables"):
            raise UsageError(f"{value.where} is no key of iceops.yaml")
    defaults = document.child("defaults")
    usual = {} if defaults is None else _verbs(defaults, draft)
    if usual:
        draft.add((catalog,), {verb: {**_BUILT_IN[verb], **values} for verb, values in usual.items()})
    tables = document.child("tables")
    entries = [] if tables is None else sorted(tables.children(), key=lambda each: _specificity(each[0]))
    found = {glob: (entry, _verbs(entry, draft)) for glob, entry in entries}
    for verb in _OPERATIONS.values():
        # Below all that entries have for an operation that the defaults do not name stands what is built in.
        globs = [glob for glob, (_, verbs) in found.items() if verb in verbs and verb not in usual]
        if patterns := [each for glob in globs for each in _patterns(catalog, glob, found[glob][0], draft)]:
            draft.add(patterns, {verb: dict(_BUILT_IN[verb])})
    for glob, (entry, verbs) in found.items():
        own = {verb: values for verb, values in verbs.items() if values}
        if own and (patterns := _patterns(catalog, glob, entry, draft)):
            draft.add(patterns, own)
    for glob, (entry, _) in found.items():
        disabled = entry.child("disabled")
        if disabled is not None and disabled.switch():
            draft.add(_widened(catalog, glob, entry, draft), {}, reason=f"disabled in {draft.path}")


def _verbs(block: Node, draft: Draft) -> Verbs:
    """What a block has for operations; `when` and what has no counterpart is noted."""
    verbs: Verbs = {}
    for key, value in block.children():
        if key == "engine":
            draft.leave_out(value, _NO_ENGINE)
        elif key in _OPERATIONS:
            if value.value is not None:
                verbs[_OPERATIONS[key]] = _operation(_OPERATIONS[key], value, draft)
        elif key != "disabled":
            raise UsageError(f"{value.where} is no key of iceops.yaml")
    return verbs


def _operation(verb: str, block: Node, draft: Draft) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in block.children():
        if key == "when":
            if value.value is not None:
                draft.leave_out(value, _NO_CONDITION)
        elif verb == EXPIRE and key == "older-than":
            options[key] = hours(_hours_of(value))
        elif verb == ORPHANS and key == "older-than":
            options[key] = orphan_age(value, _hours_of(value), draft)
        elif verb == EXPIRE and key == "retain-last":
            options[key] = value.whole(1)
        elif key == _TARGETS.get(verb):
            options["target-size"] = _size(value)
        else:
            raise UsageError(f"{value.where} is no key of iceops.yaml")
    return options


def _hours_of(value: Node) -> float:
    match = _DURATION.fullmatch(value.text().strip().lower())
    if match is None:
        raise UsageError(f"{value.where}: {value.value!r} is no duration of iceops; it writes 12h, 7d")
    return int(match[1]) * _SECONDS[match[2]] / 3_600


def _size(value: Node) -> str | int:
    match = _SIZE.fullmatch(value.text().strip().lower())
    if match is None:
        raise UsageError(f"{value.where}: {value.value!r} is no size of iceops; it writes 64KB, 8MB")
    return size(int(match[1]) * _BYTES[match[2]])


def _specificity(glob: str) -> tuple[bool, int]:
    """How few tables it means, as iceops judges: names over patterns, then by letters."""
    return not any(each in glob for each in "*?["), len(glob.replace("*", "").replace("?", ""))


def _patterns(catalog: str, glob: str, entry: Node, draft: Draft) -> list[str]:
    """The patterns of a glob, which mean no table that it does not."""
    if any(each in glob for each in "?["):
        _note_once(draft, entry, "no pattern has ? or [...]: write the tables' names")
        return []
    if "*" in glob and glob != "*":
        _note_once(draft, entry, _ONE_LEVEL)
    return [catalog if glob == "*" else f"{catalog}.{glob}"]


def _widened(catalog: str, glob: str, entry: Node, draft: Draft) -> list[str]:
    """The patterns of a glob of what is disabled, which mean every table that it does, and maybe more."""
    text = re.sub(r"\[[^]]*\]|[?[]", "*", glob)
    if text != glob:
        _note_once(draft, entry, _WIDENED)
    if text == "*":
        return [catalog]
    if text.endswith(".*") and "*" not in text[:-1]:
        return [f"{catalog}.{text.removesuffix('.*')}"]
    parts = text.split("*")
    if len(parts) > 1:
        _note_once(draft, entry, _LEVELS)
    found = [parts[0]]
    for part in parts[1:]:
        found = [before + stars + part for before in found for stars in ("*", "*.*", "*.*.*")]
    return [f"{catalog}.{each}" for each in found]


def _note_once(draft: Draft, entry: Node, text: str) -> None:
    if not any(each.path == entry.path and each.text == text for each in draft.notes):
        draft.leave_out(entry, text)
