"""Documents, texts and help of the command line are what they were."""

from __future__ import annotations

import pytest

from tests.cli.command_names import COMMANDS
from tests.cli.running import iceberg_cli
from tests.golden.commands import (
    JSON,
    SESSIONS,
    TABLES_OF_OTHERS,
    as_text,
    fixed,
    transcript,
)
from tests.golden.comparing import Hold
from tests.paths import FIXTURES, needs_fixtures

pytestmark = pytest.mark.xdist_group("golden")  # two workers would wait for each other: the folder is one


@pytest.mark.parametrize("name", SESSIONS)
def test_a_command_line_says_what_it_said(name: str, hold: Hold) -> None:
    hold(f"commands/{name}.txt", transcript(SESSIONS[name]))


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_what_it_was(command: str, hold: Hold) -> None:
    with fixed():
        ran = [iceberg_cli(command, option) for option in ("--help", "--help-all")] if command else []
        ran = ran or [iceberg_cli("--help")]
    hold(f"help/{command or 'iceberg-cli'}.txt", "".join(map(as_text, ran)))


@pytest.mark.few(4)
@needs_fixtures
@pytest.mark.parametrize("table", TABLES_OF_OTHERS)
def test_what_is_found_in_tables_of_other_engines_is_what_it_was(table: str, hold: Hold) -> None:
    parts = []
    with fixed():
        for arguments in (("--check", "--deep"), ("snapshots", "--limit", "3"), ()):
            ran = iceberg_cli("inspect", FIXTURES / table, *arguments, *JSON, "--no-cache")
            parts.append(f"$ inspect {table} {' '.join(arguments)}\n{as_text(ran)}")
    name = table.partition("/")[0]
    hold(f"fixtures/{name}.txt", "\n".join(parts).replace(str(FIXTURES), "FIXTURES"))
