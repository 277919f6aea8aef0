"""Standard output that nobody reads or that is full, and questions on a terminal."""

from __future__ import annotations

import os
import pty
import select
import termios
from pathlib import Path

import pytest

from iceberg_cli.errors import BackendUnavailable
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF, GONE, FolderTable, unchanged
from tests.cli.printed import plain
from tests.cli.running import Ran, iceberg_cli, process
from tests.cli.terminals import PATIENCE_S
from tests.fleet.maintaining import policy_file

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


def typed(answer: str, *arguments: object) -> Ran:
    """Run the program with terminals as standard input, on which somebody answers, and as standard error."""
    keyboard, stdin = pty.openpty()
    screen, stderr = pty.openpty()
    try:
        for each in (stdin, stderr):
            termios.tcsetwinsize(each, (24, 1_000))
        os.write(keyboard, answer.encode())
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "1000"}
        ran = process(*arguments, stdin=stdin, redirection=f"2>{os.ttyname(stderr)}", env=environment)
        is_written, _, _ = select.select([screen], [], [], 0)
        err = os.read(screen, 1 << 16) if is_written else b""
        return Ran(ran.code, ran.out, plain(err.decode()))
    finally:
        for each in (keyboard, stdin, screen, stderr):
            os.close(each)


LOOKING = [["inspect", "T"], ["inspect", "T", "files", "--format", "json"], ["plan", "T"], ["--help"]]


@pytest.mark.parametrize("arguments", LOOKING)
def test_closed_output_is_141_as_a_pipe_that_nobody_reads(table: FolderTable, arguments: list[str]) -> None:
    ran = process(*(str(table.folder) if word == "T" else word for word in arguments), redirection=">&-")
    assert (ran.code, ran.err) == (141, "")


@needs_full
@pytest.mark.parametrize("arguments", LOOKING)
def test_full_output_is_an_error_that_says_that_nothing_was_changed(
    table: FolderTable, arguments: list[str]
) -> None:
    ran = process(
        *(str(table.folder) if word == "T" else word for word in arguments), redirection=">/dev/full"
    )
    assert ran.code == BackendUnavailable.exit_code
    assert ran.err.splitlines() == [
        "error: Cannot write standard output: No space left on device",
        "Nothing was changed.",
        "Give it room, or another place to write to, then run the same command again.",
    ]


@needs_full
def test_a_plan_that_cannot_be_shown_is_not_carried_out(table: FolderTable) -> None:
    with unchanged(table.folder):
        ran = process("expire-snapshots", table.folder, *AS_OF, "--yes", redirection=">/dev/full")
        assert ran.code == 16


@needs_full
def test_a_report_that_cannot_be_written_says_that_the_commit_is_done(table: FolderTable) -> None:
    with table.loses(GONE):
        ran = process(
            "expire-snapshots", table.folder, *AS_OF, "--yes", "--format", "json", redirection=">/dev/full"
        )
        assert ran.code == 16
        assert "The commit is done and the files that go are deleted." in ran.err
        assert "Traceback" not in ran.err


def test_closed_output_after_the_commit_is_141_and_the_commit_is_done(table: FolderTable) -> None:
    with table.loses(GONE):
        ran = process(
            "expire-snapshots", table.folder, *AS_OF, "--yes", "--format", "json", redirection=">&-"
        )
        assert (ran.code, ran.err) == (141, "")


def test_a_quiet_run_needs_no_stream_at_all(table: FolderTable) -> None:
    with table.loses(GONE):
        ran = process(
            "expire-snapshots", table.folder, *AS_OF, "--yes", "--quiet", redirection="<&- >&- 2>&-"
        )
        assert ran.code == 0


# -- questions -----------------------------------------------------------------------------------------------------


def test_no_changes_nothing_and_says_so(table: FolderTable) -> None:
    with unchanged(table.folder):
        ran = typed("n\n", "expire-snapshots", table.folder, *AS_OF)
        assert ran.code == 4
        goes = "3 of 4 snapshots go, 1 stays; 8 files, 14.8 KiB, are deleted for good."
        assert f"expire-snapshots {table.folder}: {goes}\nGo on?" in ran.err
        assert ran.out.endswith("Nothing was changed.\n")


def test_no_to_the_question_of_many_tables_has_the_same_exit_code(table: FolderTable, tmp_path: Path) -> None:
    policy = policy_file(
        tmp_path / "policy.toml", {"expire-snapshots": '{ older-than = "5d" }'}, [table.folder]
    )
    with unchanged(table.folder):
        ran = typed("n\n", "maintain", table.folder, "--policy", policy, *AS_OF)
        assert (ran.code, ran.out.endswith("Nothing was changed.\n")) == (4, True), ran.err


@pytest.mark.parametrize("verb", ["expire-snapshots", "upgrade-v3"])
def test_a_question_that_nobody_sees_is_not_asked(table: FolderTable, verb: str) -> None:
    keyboard, stdin = pty.openpty()
    try:
        os.write(keyboard, b"y\n")
        with unchanged(table.folder):
            ran = process(verb, table.folder, *AS_OF, stdin=stdin, timeout=PATIENCE_S)
    finally:
        os.close(keyboard)
        os.close(stdin)
    assert ran.code == 2
    assert "Nobody can be asked: standard error is no terminal" in ran.err
    assert "Add --yes, or look with --dry-run." in ran.err


def test_yes_is_done(table: FolderTable) -> None:
    with table.loses(GONE):
        assert typed("y\n", "expire-snapshots", table.folder, *AS_OF).code == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("answer", ["", "y", "yes", "event", "Events"])
def test_an_upgrade_wants_the_tables_name(table: FolderTable, answer: str) -> None:
    with unchanged(table.folder):
        ran = typed(f"{answer}\n", "upgrade-v3", table.folder)
    assert ran.code == 4
    assert "there is no way back from format version 3.\nType events to go on:" in ran.err
    assert ran.out.endswith("Nothing was changed.\n")


def test_an_upgrade_goes_on_where_the_tables_name_is_typed(table: FolderTable) -> None:
    assert typed("events\n", "upgrade-v3", table.folder).code == 0
    assert iceberg_cli("inspect", table.folder, "--format", "json").json["format_version"] == 3


@pytest.mark.parametrize("verb", ["expire-snapshots", "upgrade-v3", "rewrite-manifests"])
def test_json_on_a_terminal_wants_yes_because_nothing_was_shown(table: FolderTable, verb: str) -> None:
    with unchanged(table.folder):
        ran = typed("y\n", verb, table.folder, *AS_OF, "--format", "json")
        assert (ran.code, ran.json["exit_code"]) == (2, 2)
        assert "--yes" in ran.json["next"]


# -- encodings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_that_the_output_cannot_encode_is_escaped_and_ends_nothing(
    tmp_path: Path, encoding: str
) -> None:
    folder = tmp_path / "t"
    table = FolderTable(folder=folder)
    table.commit(1, age_ms=9 * DAY_MS, add=["注文é"])
    table.publish()
    ran = process(
        "inspect", folder, "files", env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding}
    )
    assert (ran.code, ran.err) == (0, "")
    assert {"ascii": r"\u6ce8\u6587\xe9", "latin-1": "\\u6ce8\\u6587\ufffd", "utf-8": "注文é"}[
        encoding
    ] in ran.out
