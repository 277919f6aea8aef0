"""The script that moves a table to format version 3 does that once, and stops where its page says."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.cli.app import EXIT_CODES
from tests.cli.running import Ran, iceberg_cli
from tests.schedulers.machine import EXAMPLES, RETRIED, Machine, bare_machine, machine, program_of

__all__ = ["bare_machine", "machine"]

SCRIPT = EXAMPLES / "migrate-to-v3.sh"
STEPS = [
    "upgrade-v3 T --check",
    "upgrade-v3 T --yes --quiet",
    "merge-dvs T --yes --quiet",
    "assign-row-ids T --yes --quiet",
    "inspect T --check",
]


def migrate(table: object, programs: Path, **environment: str) -> Ran:
    """Run the script.

    Args:
        table: its argument.
        programs: the folder with `iceberg-cli`.
        environment: more variables.
    """
    done = subprocess.run(
        [SCRIPT, str(table)],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(programs), "WAIT_S": "0", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with an `iceberg-cli` that writes down its arguments and ends with the codes in `codes`, then 0."""
    program = tmp_path / "iceberg-cli"
    program.write_text(
        "#!/bin/sh\n"
        f"cd '{tmp_path}'\n"
        'echo "$@" >> calls\n'
        "code=$(sed -n 1p codes)\n"
        "sed -i 1d codes\n"
        "exit ${code:-0}\n"
    )
    program.chmod(0o755)
    return tmp_path


def calls(programs: Path) -> list[str]:
    return (programs / "calls").read_text().splitlines()


def test_shellcheck_finds_nothing() -> None:
    shellcheck = program_of("shellcheck", "shellcheck")
    done = subprocess.run([shellcheck, SCRIPT], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert os.access(SCRIPT, os.X_OK)


def test_table_of_version_2_comes_to_version_3_and_keeps_its_rows(machine: Machine) -> None:
    table = machine.root / "legal" / "db" / "events"  # opened as a folder
    rows = machine.rows("legal.events")
    first = migrate(table, machine.root / "opt" / "bin")
    assert (first.code, first.err) == (0, "")
    assert first.out.endswith(f"{table}: format version 3\n")
    metadata, document = newest_metadata(table)
    assert document["format-version"] == 3
    from pyiceberg.table import StaticTable

    migrated = StaticTable.from_metadata(str(metadata)).scan().to_arrow()
    assert migrated.sort_by([(name, "ascending") for name in migrated.column_names]).to_pylist() == rows
    deletes = iceberg_cli("inspect", table, "deletes", "--format", "json").json
    assert {each["file_format"] for each in deletes["rows"]} == {"PUFFIN"}
    current = document["current-snapshot-id"]
    [snapshot] = [each for each in document["snapshots"] if each["snapshot-id"] == current]
    assert 0 <= snapshot["first-row-id"] < document["next-row-id"]

    again = migrate(table, machine.root / "opt" / "bin")
    assert (again.code, again.err) == (0, "")
    assert newest_metadata(table) == (metadata, document), "there was nothing left to do"


def newest_metadata(table: Path) -> tuple[Path, dict[str, Any]]:
    version = (table / "metadata" / "version-hint.text").read_text().strip()
    path = table / "metadata" / f"v{version}.metadata.json"
    return path, json.loads(path.read_text())


def test_table_that_is_not_there_stops_it_at_once(bare_machine: Machine) -> None:
    ran = migrate(bare_machine.root / "nowhere", bare_machine.root / "opt" / "bin")
    assert ran.code == 10
    assert "iceberg-cli upgrade-v3 ended with 10: stopped" in ran.err


def test_steps_come_in_their_order(programs: Path) -> None:
    assert migrate("T", programs).code == 0
    assert calls(programs) == STEPS


@pytest.mark.parametrize("code", [code for code in EXIT_CODES if code])
@pytest.mark.parametrize("step", [0, 1])
def test_exit_code_is_tried_again_or_ends_it(code: int, step: int, programs: Path) -> None:
    (programs / "codes").write_text("0\n" * step + f"{code}\n")
    ran = migrate("T", programs)
    if code in RETRIED:
        assert ran.code == 0
        assert calls(programs) == [*STEPS[:step], STEPS[step], *STEPS[step:]]
    else:
        assert ran.code == code
        assert calls(programs) == STEPS[: step + 1]


def test_what_does_not_get_better_ends_with_its_exit_code(programs: Path) -> None:
    (programs / "codes").write_text("16\n" * 9)
    assert migrate("T", programs, TRIES="3").code == 16
    assert calls(programs) == STEPS[:1] * 3


def test_without_a_table_it_says_how_it_is_called() -> None:
    done = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"usage: {SCRIPT} TABLE\n")
