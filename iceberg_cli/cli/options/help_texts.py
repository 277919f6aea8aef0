"""Texts of `--help` and the manual pages beside the commands' docstrings: groups of options, and examples."""

from __future__ import annotations

import re
from typing import Final

from iceberg_cli.formats import policies_of

WHAT_TO_DO: Final = "What to do"
SAFETY: Final = "Safety"
WHERE_IT_RUNS: Final = "Where it runs"
OUTPUT: Final = "Output"
GROUPS: Final = (WHAT_TO_DO, SAFETY, WHERE_IT_RUNS, OUTPUT)

_OF_GROUP: Final = {
    SAFETY: ("dry-run", "yes", "no-resume", "limit-deletes", "deadline", "grace", "alarm", "replan", "list",
        "abandon", "max-bytes"),
    WHERE_IT_RUNS: (
        "engine", "spark-master", "spark-remote", "spark-conf", "catalog-config", "storage-option", "no-cache",
        "cache-size",
    ),
    OUTPUT: (
        "format", "exit-code", "output", "jsonl", "verbose", "quiet", "progress", "no-progress", "no-pager",
        "log-file", "metrics", "help",
    ),
}  # fmt: skip
_AMONG_OWN: Final = ("--dry-run", "--yes", "--list", "--abandon", "--replan", "--output", "--jsonl", "--help")
_GROUP_OF: Final = {f"--{name}": group for group, names in _OF_GROUP.items() for name in names}

_EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "": (
        ("What is due in a table, Iceberg or Delta, and what it would free:", "plan /lake/db/events"),
        ("Every night, from cron:", "expire-snapshots prod.sales.orders --older-than 7d --yes --quiet"),
    ),
    "inspect": (
        ("One screen about a table:", "inspect /lake/db/events"),
        ("What breaks the specification, with Puffin and Parquet files:", "inspect prod.sales.orders --check --deep"),
    ),
    "plan": (
        ("Every verb, ranked by what it frees:", "plan /lake/db/events"),
        (
            "Save the plan of one, to be looked at and carried out later:",
            "plan prod.sales.orders expire-snapshots --older-than 14d -o orders.plan",
        ),
    ),
    "apply": (
        ("Carry out what was saved:", "apply orders.plan"),
        ("What would go beyond it by now:", "apply orders.plan --replan"),
    ),
    "resume": (
        ("What is open, and in which state:", "resume prod.sales.orders --list"),
        ("Finish or close all of it:", "resume prod.sales.orders"),
    ),
    "history": (
        ("What was done to a table, and by whom:", "history prod.sales.orders"),
        ("Its expiries, for a script:", "history prod.sales.orders --operation expire-snapshots --format json"),
    ),
    "demo": (
        ("In a new folder:", "demo /tmp/demo"),
        ("With snapshots that end on a certain day:", "demo /tmp/demo --as-of 2026-11-01T00:00:00Z"),
    ),
    "policy": (
        ("What a policy file means for one table:", "policy check policy.toml prod.sales.orders"),
        ("The settings of another tool as a policy file:", "policy import iceops.yaml --from iceops -o policy.toml"),
    ),
    "config": (
        ("What a file or variable sets:", "config show"),
        ("Every option of one command:", "config show expire-snapshots --verbose"),
    ),
    "list": (
        ("The tables of a namespace:", "list prod.sales"),
        ("Every table below a folder, for a script:", "list '/lake/**' --jsonl"),
    ),
    "survey": (
        ("What is due in every table of a catalog, the most bytes first:", "survey prod"),
        ("By a policy file, as JSON lines while it goes on:", "survey --policy policy.toml --jsonl"),
    ),
    "maintain": (
        ("What a policy file would do tonight:", "maintain --policy policy.toml --dry-run"),
        ("Every night, from cron, for at most two hours:", "maintain --policy policy.toml --deadline 2h --yes --quiet"),
    ),
    "completion": (
        ("In ~/.bashrc:", "completion bash"),
        ("For zsh, in a folder of $fpath:", "completion zsh > ~/.zfunc/_iceberg-cli"),
    ),
}  # fmt: skip


def examples_of(command: str) -> tuple[tuple[str, str], ...]:
    """The examples of a command, "" being the program itself: a description, and the words after `iceberg-cli`."""
    if command in _EXAMPLES:
        return _EXAMPLES[command]
    return tuple(example for policy in policies_of(command).values() for example in policy.examples)


def group_of(names: tuple[str, ...]) -> str:
    """The group of an option, by its names."""
    if any(name.startswith("--unsafe-") for name in names):
        return SAFETY
    return next((_GROUP_OF[name] for name in names if name in _GROUP_OF), WHAT_TO_DO)


def is_own(names: tuple[str, ...]) -> bool:
    """Whether an option, by its names, is one that few commands have: those that brief help shows."""
    return is_among_own(names) or (group_of(names) == WHAT_TO_DO and not {"--as-of", "--report"} & set(names))


def is_among_own(names: tuple[str, ...]) -> bool:
    """Whether an option of another group is shown among a command's own."""
    return any(name in _AMONG_OWN for name in names)


def in_few_words(text: str) -> str:
    """What an option does, without conditions and defaults."""
    return re.split(r"; |\. |\s*\[default|\s\(", text)[0].rstrip(".")


def epilog(command: str) -> str:
    """The examples of a command, as the end of its help."""
    # A line with a backspace alone: the lines of that paragraph stay as they are.
    lines = [
        line for text, words in examples_of(command) for line in (f"  {text}", f"    iceberg-cli {words}")
    ]
    return "\b\nExamples:\n" + "\n".join(lines) if lines else ""
