"""The maintenance settings of other tools and platforms, read as policy files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import read_file
from iceberg_cli.fleet.policy_import.draft import Draft, Note

# By name what a sentence calls it; each has a module here.
SOURCES: Final = {
    "polaris": "Polaris policies",
    "s3tables": "the maintenance configuration of S3 Tables",
    "glue": "Glue table optimizers",
    "zamboni": "the table-config or fleet file of zamboni",
    "iceops": "the policy of iceops",
    "unity": "tables of Unity Catalog",
}


@dataclass(frozen=True, kw_only=True)
class ImportedPolicy:
    """A policy file that was made of other settings.

    Args:
        text: TOML that `load_policy` takes.
        notes: what these settings have and a policy file cannot say.
    """

    text: str
    notes: tuple[Note, ...]


def import_policy(source: str, path: str, patterns: Sequence[str] = ()) -> ImportedPolicy:
    """The settings of another tool as a policy file.

    Args:
        source: of `SOURCES`.
        path: of the file that holds them.
        patterns: the catalog in which the tables are that the file names; where it names none, the tables.

    Raises:
        UsageError: the file cannot be read or is none of that tool's, nothing in it can be said in a policy file, or
            `patterns` are missing.
    """
    from iceberg_cli.fleet.policy_file import parse_policy

    draft = Draft(path=path, patterns=tuple(patterns))
    import_module(f"{__name__}.{source}").read(read_file(path), draft)
    if not draft.entries:
        raise UsageError(
            f"Nothing in {path} can be said in a policy file"
            + "".join(f"; {each.path}: {each.text}" for each in draft.notes),
            next_step=f"Name a file that holds {SOURCES[source]}.",
        )
    text = draft.to_toml(f"Made of {SOURCES[source]} in {os.path.basename(path)}.")
    parse_policy("the policy file that was made", text.encode())
    return ImportedPolicy(text=text, notes=tuple(draft.notes))
