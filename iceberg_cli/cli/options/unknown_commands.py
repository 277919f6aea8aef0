"""What is said of a word that is no command: what it is called here, or that there is no such thing."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.formats import policies_of
from iceberg_cli.formats.inspection import WHAT

# Words of other tools and of other programs, for commands that are no verbs: verbs say their own.
_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "inspect TABLE": (
        "desc", "describe", "detail", "get", "info", "metadata", "show", "stat", "status", "summary", "table", "view",
    ),
    "inspect TABLE --check": ("check", "diagnose", "doctor", "fsck", "health", "lint", "validate", "verify"),
    "inspect TABLE sample": ("cat", "head", "preview", "query", "read", "rows", "scan", "select"),
    "inspect TABLE diff A": ("changes", "compare"),
    "inspect TABLE snapshots": ("log", "versions"),
    "inspect TABLE refs": ("branch", "branches", "ref", "tags"),
    "plan TABLE": ("analyze", "dry-run", "due", "explain", "preview-changes", "simulate"),
    "apply FILE": ("carry-out", "exec", "execute", "run"),
    "history TABLE": ("actions", "audit", "operations"),
    "resume TABLE": ("abandon", "abort", "continue", "recover", "retry"),
    "list": ("catalogs", "find", "ls", "namespaces", "tables"),
    "survey": ("fleet", "overview", "report", "stats"),
    "maintain --policy FILE": ("auto", "cron", "daemon", "maintenance", "schedule", "service"),
    "config show": ("configure", "options", "settings"),
    "demo DIR": ("example", "init", "quickstart", "sandbox", "tutorial"),
    "completion SHELL": ("autocomplete", "complete", "completions"),
    "--help": ("commands", "h", "help", "man", "usage"),
    "--version": ("v", "version"),
}  # fmt: skip
_NO_COMMAND: Final[Mapping[str, tuple[str, ...]]] = {
    "No command here moves a branch ahead": (
        "cherry-pick", "cherrypick", "cherrypick-snapshot", "fast-forward", "publish-changes",
    ),
    "No command here makes, drops or copies tables, or writes rows": (
        "add-files", "alter", "append", "clone", "convert", "copy", "create", "delete", "drop", "export", "import",
        "insert", "load", "merge", "migrate", "move", "register", "register-table", "rename", "rm", "snapshot-table",
        "sync", "truncate", "update", "upsert", "write",
    ),
}  # fmt: skip
_NEAR: Final = 0.75  # how alike two words are of which one may be a slip for the other


def unknown_command(word: str, commands: Collection[str]) -> UsageError:
    """The error for a word that is no command.

    From a word for looking it never leads to a verb that deletes: those are named for their own words alone.

    Args:
        word: as it was typed.
        commands: those that there are.
    """
    plain = word.lower().replace("_", "-").strip("-")
    lines = {name: line for line, names in _ELSEWHERE.items() for name in names}
    lines |= {name: f"inspect TABLE {name}" for name in WHAT if name not in ("summary", *commands)}
    verbs = {name: line for verb in commands for name, line in _names_elsewhere(verb)}
    for sentence, names in _NO_COMMAND.items():
        if plain in names:
            return UsageError(f"{word!r} is no command. {sentence}", next_step=_HELP)
    if plain in lines:
        return _leading_to(word, lines[plain])
    if plain in verbs:
        return _leading_to(word, verbs[plain])
    # The names of verbs last: of words that are equally near, one for looking is meant.
    near = difflib.get_close_matches(plain, [*lines, *commands], n=1, cutoff=_NEAR)
    if near and (near[0] in lines or near[0].split("-")[0][:2] == plain[:2]):
        return _leading_to(word, lines.get(near[0]) or near[0])
    return UsageError(f"{word!r} is no command", next_step=_HELP)


_HELP: Final = "`iceberg-cli --help` lists the commands."


def _leading_to(word: str, line: str) -> UsageError:
    return UsageError(f"{word!r} is no command. Did you mean `iceberg-cli {line}`?", next_step=_HELP)


def _names_elsewhere(command: str) -> Iterator[tuple[str, str]]:
    """What other tools call a verb, each with the command line that shows what it would do; nothing for others."""
    for policy in policies_of(command).values():
        line = " ".join(filter(None, [command, "TABLE", policy.required_words(), "--dry-run"]))
        yield from ((name, line) for name in policy.place.names_elsewhere)
