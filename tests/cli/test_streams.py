"""Standard output that nobody reads or that is full, and questions on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_cli.errors import BackendUnavailable
from tests.cli.lakes import AS_OF_MS, GONE, FolderTable, four_snapshots, listing
from tests.paths import ROOT

AS_OF = ("--as-of", str(AS_OF_MS))
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


@pytest.fixture
def table(tmp_path: Path) -> FolderTable:
    made = four_snapshots(tmp_path / "events")
    made.publish()
    return made


def shell(redirection: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the program from a shell with a redirection."""
    return subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'"$@" {redirection}',
            "sh",
            sys.executable,
            "-m",
            "iceberg_cli",
            *map(str, arguments),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def typed(answer: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the program with a terminal as standard input on which somebody answers."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        return subprocess.run(
            [sys.executable, "-m", "iceberg_cli", *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            stdin=theirs,
        )
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    "arguments", [["inspect", "T"], ["inspect", "T", "files", "--format", "json"], ["plan", "T"], ["--help"]]
)
def test_closed_output_is_141_as_a_pipe_that_nobody_reads(table: FolderTable, arguments: list[str]) -> None:
    ran = shell(">&-", *(str(table.folder) if word == "T" else word for word in arguments))
    assert (ran.returncode, ran.stderr) == (141, "")


@needs_full
@pytest.mark.parametrize(
    "arguments", [["inspect", "T"], ["inspect", "T", "files", "--format", "json"], ["plan", "T"], ["--help"]]
)
def test_full_output_is_an_error_that_says_that_nothing_was_changed(
    table: FolderTable, arguments: list[str]
) -> None:
    ran = shell(">/dev/full", *(str(table.folder) if word == "T" else word for word in arguments))
    assert ran.returncode == BackendUnavailable.exit_code
    assert ran.stderr.splitlines() == [
        "error: Cannot write standard output: No space left on device",
        "Nothing was changed.",
        "Give it room, or another place to write to, then run the same command again.",
    ]


@needs_full
def test_a_plan_that_cannot_be_shown_is_not_carried_out(table: FolderTable) -> None:
    before = listing(table.folder)
    ran = shell(">/dev/full", "expire-snapshots", table.folder, *AS_OF, "--yes")
    assert ran.returncode == 16
    assert listing(table.folder) == before


@needs_full
def test_a_report_that_cannot_be_written_says_that_the_commit_is_done(table: FolderTable) -> None:
    before = table.files()
    ran = shell(">/dev/full", "expire-snapshots", table.folder, *AS_OF, "--yes", "--format", "json")
    assert ran.returncode == 16
    assert "The commit is done and the files that go are deleted." in ran.stderr
    assert "Traceback" not in ran.stderr
    assert before - table.files() == GONE


def test_closed_output_after_the_commit_is_141_and_the_commit_is_done(table: FolderTable) -> None:
    before = table.files()
    ran = shell(">&-", "expire-snapshots", table.folder, *AS_OF, "--yes", "--format", "json")
    assert (ran.returncode, ran.stderr) == (141, "")
    assert before - table.files() == GONE


def test_a_quiet_run_needs_no_stream_at_all(table: FolderTable) -> None:
    before = table.files()
    ran = shell("<&- >&- 2>&-", "expire-snapshots", table.folder, *AS_OF, "--yes", "--quiet")
    assert ran.returncode == 0
    assert before - table.files() == GONE


# -- questions -----------------------------------------------------------------------------------------------------


def test_no_changes_nothing_and_says_so(table: FolderTable) -> None:
    before = listing(table.folder)
    ran = typed("n\n", "expire-snapshots", table.folder, *AS_OF)
    assert ran.returncode == 0
    assert f"Commit this to {table.folder} and delete 8 files?" in ran.stderr
    assert ran.stdout.endswith("Nothing was changed.\n")
    assert listing(table.folder) == before


def test_yes_is_done(table: FolderTable) -> None:
    before = table.files()
    assert typed("y\n", "expire-snapshots", table.folder, *AS_OF).returncode == 0
    assert before - table.files() == GONE


def test_an_upgrade_asks_for_what_it_is(table: FolderTable) -> None:
    ran = typed("n\n", "upgrade-v3", table.folder)
    assert f"Upgrade {table.folder} to format version 3? There is no way back." in ran.stderr
    assert ran.stdout.endswith("Nothing was changed.\n")


@pytest.mark.parametrize("verb", ["expire-snapshots", "upgrade-v3", "rewrite-manifests"])
def test_json_on_a_terminal_wants_yes_because_nothing_was_shown(table: FolderTable, verb: str) -> None:
    before = listing(table.folder)
    ran = typed("y\n", verb, table.folder, *AS_OF, "--format", "json")
    document = json.loads(ran.stdout)
    assert (ran.returncode, document["exit_code"]) == (2, 2)
    assert "--yes" in document["next"]
    assert listing(table.folder) == before
