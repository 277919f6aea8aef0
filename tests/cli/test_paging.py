"""Long output goes through the operator's pager, where standard output is a terminal; nothing of it is lost."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from iceberg_cli.cli.render.screen import Screen
from iceberg_cli.cli.terminal.paging import paged
from iceberg_cli.cli.terminal.stopping import Stopped
from iceberg_cli.demo import create_demo
from tests.cli.printed import Terminal
from tests.cli.running import process
from tests.cli.terminals import PATIENCE_S, terminal
from tests.paths import ROOT

ROWS = 24
NOW_MS = 1_760_000_000_000  # in the past: ages are counted from it


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 22 snapshots."""
    return create_demo(str(tmp_path_factory.mktemp("lake")), now_ms=NOW_MS).events


def on_a_screen(*arguments: str, rows: int = ROWS, answer: str = "", **environment: str) -> tuple[int, str]:
    """The exit code, and what came to a terminal of 100 columns, where `answer` is typed before it is asked for."""
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    termios.tcsetwinsize(theirs, (rows, 100))
    parts: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:
                return
            if not data:
                return
            parts.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    left = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "PAGER", "LESS")
    }
    done = subprocess.run(
        [sys.executable, "-m", "iceberg_cli", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        env={**left, "TERM": "xterm", **environment},
        check=False,
    )
    os.close(theirs)
    reader.join()
    os.close(ours)
    return done.returncode, b"".join(parts).decode().replace("\r\n", "\n")


def test_a_long_list_goes_through_the_pager_and_its_exit_code_stays(events: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code, screen = on_a_screen("inspect", events, "snapshots", PAGER=f"cat > {seen}; exit 3")
    assert (code, screen) == (0, "")
    lines = seen.read_text().splitlines()
    assert len(lines) > ROWS
    assert lines[-1] == "(22 rows)"


def test_what_fits_does_not(events: str, tmp_path: Path) -> None:
    code, screen = on_a_screen("inspect", events, "snapshots", rows=60, PAGER=f"cat > {tmp_path / 'seen'}")
    assert code == 0
    assert "(22 rows)" in screen
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--no-pager"], {}),
        ([], {"PAGER": ""}),
        ([], {"TERM": "dumb"}),
        ([], {"ICEBERG_CLI_NO_PAGER": "1"}),
        (["--format", "json"], {}),
    ],
)
def test_where_none_is_wanted_there_is_none(
    events: str, tmp_path: Path, arguments: list[str], environment: dict[str, str]
) -> None:
    seen = tmp_path / "seen"
    code, screen = on_a_screen(
        "inspect", events, "snapshots", *arguments, **{"PAGER": f"cat > {seen}", **environment}
    )
    assert code == 0
    assert len(screen.splitlines()) > ROWS
    assert not seen.exists()


def test_a_pager_that_is_not_there_loses_nothing(events: str) -> None:
    code, screen = on_a_screen("inspect", events, "snapshots", PAGER="no-such-pager")
    assert code == 0
    assert screen.splitlines()[-1] == "(22 rows)"


def test_a_pager_that_is_left_early_is_no_error(events: str) -> None:
    assert on_a_screen("inspect", events, "snapshots", PAGER="head -n 1 > /dev/null")[0] == 0


def test_a_signal_that_ends_the_program_ends_its_pager_too(events: str, tmp_path: Path) -> None:
    """A pager that lived on would take what is typed into the shell."""
    started, ended = tmp_path / "started", tmp_path / "ended"
    pager = f"trap 'touch {ended}; exit' TERM; touch {started}; while :; do sleep 0.05; done"
    command = [sys.executable, "-m", "iceberg_cli", "inspect", events, "snapshots"]
    with terminal(command, environment={"PAGER": pager}) as shown:
        until_s = time.monotonic() + PATIENCE_S
        while not started.exists():
            assert time.monotonic() < until_s, "no pager was started"
            time.sleep(0.01)
        shown.process.send_signal(signal.SIGTERM)
        assert shown.process.wait(PATIENCE_S) == 143
    assert ended.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_pager_starts_ends_it_too(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Also one that comes when the pager runs, and its process is not known yet."""
    viewers = []

    class Hit(subprocess.Popen[str]):
        def __init__(self, *arguments: object, **settings: object) -> None:
            super().__init__(*arguments, **settings)  # type: ignore[call-overload]
            viewers.append(self)
            signal.raise_signal(number)

    def stop(heard: int, _frame: object) -> None:
        raise Stopped(heard)

    monkeypatch.setattr(subprocess, "Popen", Hit)
    monkeypatch.setenv("PAGER", f"sleep {PATIENCE_S}")
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen(Terminal(), color=False)
    before = signal.signal(number, stop)
    try:
        with pytest.raises(Stopped), paged(screen):
            screen.write("a row\n" * 100)
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
    assert [viewer.returncode for viewer in viewers] == [-signal.SIGTERM]


def test_what_a_signal_cuts_short_is_not_paged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", f"cat > {tmp_path / 'seen'}")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    screen = Screen(stream, color=False)

    def cut_short() -> None:
        with paged(screen):
            for _ in range(100):
                screen.line("a row")
            raise Stopped(signal.SIGTERM)

    with pytest.raises(Stopped):
        cut_short()
    assert stream.getvalue().count("a row") == 100
    assert not (tmp_path / "seen").exists()


def test_a_plan_is_paged_and_its_exit_code_stays(events: str, tmp_path: Path) -> None:
    """With an exit code of its own, and with the messages of an error behind it."""
    seen = tmp_path / "seen"
    code, screen = on_a_screen(
        "expire-snapshots", events, "-n", "-v", "--exit-code", "--as-of", str(NOW_MS), PAGER=f"cat > {seen}"
    )
    assert (code, screen) == (3, "")
    assert "15 of 22 snapshots go, 7 stay" in seen.read_text()


def test_a_plan_stays_in_sight_when_the_question_comes_unless_it_is_much_longer(
    events: str, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    words = ("expire-snapshots", events, "-v", "--as-of", str(NOW_MS))
    shown = on_a_screen(*words, "-n", rows=500)[1].count("\n")
    for rows, is_paged in ((shown - 1, False), (shown // 2 + 1, False), (shown // 2 - 1, True)):
        code, screen = on_a_screen(*words, rows=rows, PAGER=f"cat > {seen}", answer="n\n")
        assert code == 4
        assert seen.exists() == is_paged
        assert ("15 of 22 snapshots go, 7 stay" in screen) == (not is_paged)
        assert "Go on?" in screen or "Type " in screen


def test_into_a_pipe_nothing_is_paged(events: str, tmp_path: Path) -> None:
    ran = process("inspect", events, "snapshots", env={**os.environ, "PAGER": f"cat > {tmp_path / 'seen'}"})
    assert "(22 rows)" in ran.out
    assert not (tmp_path / "seen").exists()
