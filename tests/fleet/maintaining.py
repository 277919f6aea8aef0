"""Runs of `maintain` in tests: the policy file that each is given, and its document by table and operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.cli.running import Ran, iceberg_cli

OLD = '{ older-than = "5d", retain-last = 1 }'
EXPIRE = {"expire-snapshots": OLD}


def policy_file(
    path: Path, verbs: Mapping[str, str], match: Iterable[object], *, more: Iterable[str] = ()
) -> Path:
    """Write a policy: `verbs` with their options, as TOML has them, for every table that matches.

    Args:
        path: of the file.
        verbs: options by verb.
        match: patterns.
        more: further `[[tables]]` entries, as they stand in the file.
    """
    matching = ", ".join(f'"{each}"' for each in match)
    lines = ["version = 1", "[[tables]]", f"match = [{matching}]"]
    lines += [f"{verb} = {options}" for verb, options in verbs.items()]
    path.write_text("\n".join([*lines, *more]) + "\n")
    return path


def maintain(folder: Path, verbs: Mapping[str, str], *match: object, options: Iterable[object] = ()) -> Ran:
    """`maintain PATTERN... --policy FILE --yes --format json`, by a policy of these verbs, which lies in `folder`."""
    policy = policy_file(folder / "policy.toml", verbs, match)
    return iceberg_cli("maintain", *match, "--policy", policy, *options, "--yes", "--format", "json")


def runs_of(ran: Ran) -> dict[tuple[str, str], dict[str, Any]]:
    """The records of a `maintenance/1` document by table and operation, of which each has one."""
    runs = ran.json["runs"]
    found = {(run["table"]["name"], run["operation"]): run for run in runs}
    assert len(found) == len(runs), "a table and operation have one record"
    return found
