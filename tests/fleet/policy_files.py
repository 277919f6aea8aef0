"""Policy files in a temporary folder."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from iceberg_cli.fleet.policy_file import PolicyFile, TablePolicy, load_policy


def a_policy(folder: Path, text: str, *, version: str = "version = 1") -> PolicyFile:
    """The policy file of this text, called `policy.toml` in the working folder."""
    path = folder / "policy.toml"
    path.write_text(f"{version}\n{dedent(text)}", encoding="utf-8")
    return load_policy(str(path))


def of_table(folder: Path, text: str, *names: str) -> TablePolicy:
    """What a policy file of this text has for a table."""
    found = a_policy(folder, text).of_table(names)
    assert found is not None
    return found
