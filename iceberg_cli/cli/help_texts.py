"""Texts of `--help` and the manual pages beside the commands' docstrings: groups of options, and examples."""

from __future__ import annotations

from typing import Final

WHAT_TO_DO: Final = "What to do"
SAFETY: Final = "Safety"
WHERE_IT_RUNS: Final = "Where it runs"
OUTPUT: Final = "Output"
GROUPS: Final = (WHAT_TO_DO, SAFETY, WHERE_IT_RUNS, OUTPUT)

_OF_GROUP: Final = {
    SAFETY: ("dry-run", "yes", "no-resume", "limit-deletes", "deadline", "grace", "replan", "list", "abandon"),
    WHERE_IT_RUNS: (
        "engine", "spark-master", "spark-remote", "spark-conf", "catalog-config", "storage-option", "no-cache",
        "cache-size",
    ),
    OUTPUT: ("format", "exit-code", "output", "verbose", "quiet", "no-progress", "help"),
}  # fmt: skip
_GROUP_OF: Final = {f"--{name}": group for group, names in _OF_GROUP.items() for name in names}

EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
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
    "expire-snapshots": (
        (
            "Show what would go:",
            "expire-snapshots prod.sales.orders --older-than 7d --retain-last 10 --dry-run",
        ),
        ("VACUUM and log cleanup of a Delta table:", "expire-snapshots /lake/db/clicks --retention 7d --yes"),
    ),
    "rewrite-manifests": (
        ("Manifests of 16 MiB, by partition:", "rewrite-manifests prod.sales.orders --target-size 16MiB"),
        ("A checkpoint of a Delta table now:", "rewrite-manifests /lake/db/clicks --checkpoint v2 --yes"),
    ),
    "merge-dvs": (
        ("All partitions, without a question:", "merge-dvs prod.sales.orders --yes"),
        ("One day only:", "merge-dvs prod.sales.orders --where \"day = '2026-11-01'\""),
    ),
    "upgrade-v3": (
        ("What stands in the way, and what to do about it:", "upgrade-v3 prod.sales.orders --check"),
        (
            "Upgrade, then merge deletes and give row ids, as one plan:",
            "upgrade-v3 prod.sales.orders --with merge-dvs,assign-row-ids",
        ),
    ),
    "assign-row-ids": (
        ("Every branch, main first:", "assign-row-ids prod.sales.orders"),
        ("One branch, in which rows of main get the ids that they have there:",
         "assign-row-ids prod.sales.orders --ref audit --share-ids"),
    ),
    "apply": (
        ("Carry out what was saved:", "apply orders.plan"),
        ("What would go beyond it by now:", "apply orders.plan --replan"),
    ),
    "resume": (
        ("What is open, and in which state:", "resume prod.sales.orders --list"),
        ("Finish or undo all of it:", "resume prod.sales.orders"),
    ),
    "demo": (
        ("In a new folder:", "demo /tmp/demo"),
        ("With snapshots that end on a certain day:", "demo /tmp/demo --as-of 2026-11-01T00:00:00Z"),
    ),
    "completion": (
        ("In ~/.bashrc:", "completion bash"),
        ("For zsh, in a folder of $fpath:", "completion zsh > ~/.zfunc/_iceberg-cli"),
    ),
}  # fmt: skip
"""The examples of each command, "" being the program itself: a description, and the words after `iceberg-cli`."""


def group_of(names: tuple[str, ...]) -> str:
    """The group of an option, by its names."""
    if any(name.startswith("--unsafe-") for name in names):
        return SAFETY
    return next((_GROUP_OF[name] for name in names if name in _GROUP_OF), WHAT_TO_DO)


def epilog(command: str) -> str:
    """The examples of a command, as the end of its help."""
    # A line with a backspace alone: the lines of that paragraph stay as they are.
    lines = [line for text, words in EXAMPLES[command] for line in (f"  {text}", f"    iceberg-cli {words}")]
    return "\b\nExamples:\n" + "\n".join(lines)
