"""Progress on standard error: what is on a terminal's screen at the end, lines elsewhere, and documents."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from iceberg_cli.cli import subject
from iceberg_cli.cli.listening.progress import Progress, mode_of
from iceberg_cli.cli.terminal import stopping
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.events import AnyEvent, Event, PhaseBegun, PhaseEnded
from tests.budget import deep_unless
from tests.cli.lakes import AS_OF, four_snapshots, listing
from tests.cli.running import SCHEMAS, iceberg_cli, process
from tests.cli.terminals import PATIENCE_S, Gate, Terminal, terminal
from tests.paths import ROOT

UNCHANGED = "Stopped by Ctrl-C. Nothing was changed. Run the same command again."


class Clock:
    """A clock that is set by hand, in seconds."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def played(mode: str, *events: tuple[float, AnyEvent], columns: int = 80, of_tables: bool = False) -> str:
    """What is written where events come at these seconds."""
    subject.begin()
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, mode, clock=clock, columns=lambda: columns, of_tables=of_tables)
    for second, event in events:
        clock.now_s = 100 + second
        progress(event)
    progress.end(0, None)
    return stream.getvalue()


def reading(done: int, total: int | None = 1_000, unit: str = "files") -> Event:
    return Event(phase="reading manifests", done=done, total=total, unit=unit)


def drawn(text: str) -> str:
    """The last bar of an output, which ends by erasing it."""
    *_, bar, end = text.split("\r\x1b[K")
    assert end == ""
    return bar


# -- what is written -------------------------------------------------------------------------------------------


def test_a_bar_has_done_of_total_the_rate_and_the_time_left() -> None:
    text = played("bar", (0, reading(0)), (10, reading(250)))
    assert drawn(text) == ("reading manifests [######" + "." * 20 + "] 250/1,000 files, 25/s, 30 s left")
    assert played("bar", (0, reading(0)), (0.9, reading(900))) == ""


@pytest.mark.parametrize("columns", [1, 5, 18, 25, 40, 60, 80, 200])
def test_a_bar_is_one_line_at_any_width(columns: int) -> None:
    for total in (9_876_543, None):
        events = ((0, reading(0, total)), (3_700, reading(1_234_567, total)))
        assert len(drawn(played("bar", *events, columns=columns))) < columns


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (61, "reading manifests 250/1,000 files, 25/s, 30 s left"),
        (47, "reading manifests 250/1,000 files, 30 s left"),
        (40, "reading manifests 25%, 30 s left"),
        (24, "reading manifests 25%"),
        (10, "reading m"),
    ],
)
def test_a_bar_says_less_where_there_is_less_room(columns: int, shown: str) -> None:
    assert drawn(played("bar", (0, reading(0)), (10, reading(250)), columns=columns)) == shown


def test_elsewhere_there_is_a_line_every_ten_seconds_whatever_the_phase() -> None:
    text = played(
        "lines",
        (0, PhaseBegun(phase="plan", table="t")),
        (0, reading(0)),
        (9, reading(90)),
        (10, reading(100)),
        (19, reading(190)),
        (19, Event(phase="counting", done=0, total=None)),
        (21, Event(phase="counting", done=40, total=None)),
        (22, PhaseEnded(phase="plan")),
        (22, PhaseBegun(phase="commit", table="t")),
        (97, PhaseBegun(phase="wait", table="t")),
        (99, PhaseEnded(phase="wait")),
        (99, Event(phase="deleting", done=1 << 20, total=1 << 30, unit="bytes")),
        (109, Event(phase="deleting", done=2 << 20, total=1 << 30, unit="bytes")),
    )
    assert text.splitlines() == [
        "reading manifests: 100 of 1,000 files, 10/s, 1 min 30 s left",
        "counting: 40 files, 20/s",
        "commit: 1 min 17 s so far",
        "deleting: 2.0 MiB of 1.0 GiB, 102.4 KiB/s, 2 h 50 min left",
    ]


def of_many(table: str) -> list[tuple[float, AnyEvent]]:
    """A run over many tables that has done 12 in 10 seconds and has begun one."""
    phase = "maintaining tables"
    return [
        (0, Event(phase=phase, done=0, total=None, unit="tables")),
        (10, PhaseBegun(phase="open", table=table)),
        (10, Event(phase=phase, done=12, total=None, unit="tables")),
    ]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, "maintaining tables 12 tables, 1.2/s; prod.sales.orders"),
        (50, "maintaining tables 12 tables, 1.2/s; ...es.orders"),
        (40, "maintaining tables 12 tables, 1.2/s"),
    ],
)
def test_of_many_tables_the_one_is_named_that_was_begun_last(columns: int, shown: str) -> None:
    events = of_many("prod.sales.orders")
    assert drawn(played("bar", *events, columns=columns, of_tables=True)) == shown
    (line,) = played("lines", *events, of_tables=True).splitlines()
    assert line == "maintaining tables: 12 tables, 1.2/s; now prod.sales.orders"
    documents = [json.loads(each) for each in played("json", *events, of_tables=True).splitlines()]
    assert [each["table"] for each in documents] == [None, "prod.sales.orders"]


@pytest.mark.parametrize("columns", [1, 5, 18, 25, 40, 60, 80, 200])
def test_a_name_never_breaks_the_bar(columns: int) -> None:
    for name in ("a\nb\x1b[2J" + "long" * 60, "注文の表" * 20):
        bar = drawn(played("bar", *of_many(name), columns=columns, of_tables=True))
        assert len(bar) < columns
        assert not bar or (bar.isascii() and bar.isprintable())
        (line,) = played("lines", *of_many(name), of_tables=True).splitlines()
        assert line.isprintable()


def test_a_phase_goes_on_after_another_inside_it() -> None:
    """Deletions come in batches, and before each the table is read again."""
    deleting = [Event(phase="deleting files", done=done, total=100) for done in (0, 10, 20)]
    text = played(
        "lines",
        (0, PhaseBegun(phase="sweep", table="t")),
        (0, deleting[0]),
        (9, deleting[1]),
        (9, reading(0, 5)),
        (19, reading(5, 5)),
        (20, deleting[2]),
        (29, deleting[2]),
    )
    assert text.splitlines() == [
        "reading manifests: 5 of 5 files, 0.5/s",
        "deleting files: 20 of 100 files, 0.7/s, 1 min 56 s left",
    ]


def test_a_phase_that_tells_nothing_has_its_lines_too() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, "lines", clock=clock)
    progress(PhaseBegun(phase="commit", table="t"))
    clock.now_s += 70
    until_s = time.monotonic() + PATIENCE_S
    while not stream.getvalue():
        assert time.monotonic() < until_s, "nothing is written"
        time.sleep(0.01)
    progress.end(0, None)
    assert stream.getvalue() == "commit: 1 min 10 s so far\n"


def test_documents_come_at_the_begin_and_the_end_and_at_most_ten_a_second() -> None:
    events = [(second / 100, reading(second, 300)) for second in range(301)]
    documents = [json.loads(line) for line in played("json", *events).splitlines()]
    assert [documents[0]["done"], documents[-1]["done"]] == [0, 300]
    assert 20 < len(documents) <= 32
    assert documents[-1] == {
        "schema": "iceberg-cli/event/1",
        "phase": "reading manifests",
        "table": None,
        "done": 300,
        "total": 300,
        "unit": "files",
        "per_second": 100.0,
        "left_ms": 0,
    }


@pytest.mark.parametrize(
    ("requested", "silent", "terminal_name", "mode"),
    [
        (None, False, "xterm", "bar"),
        (None, False, "dumb", "lines"),
        (None, True, "xterm", "none"),
        ("auto", True, "xterm", "bar"),
        ("lines", True, "xterm", "lines"),
        ("none", False, "xterm", "none"),
    ],
)
def test_the_display_by_options_and_terminal(
    requested: str | None, silent: bool, terminal_name: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", terminal_name)
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as stream:
        assert mode_of(requested, stream, silent=silent) == mode
    os.close(ours)
    assert mode_of("auto", io.StringIO(), silent=False) == "lines"
    with pytest.raises(UsageError, match="--progress must be auto, bar, lines, json or none, not 'fast'"):
        mode_of("fast", io.StringIO(), silent=True)


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    ran = iceberg_cli("inspect", tmp_path, "--no-progress", "--progress", "json")
    assert (ran.code, "--progress and --no-progress contradict each other" in ran.err) == (2, True)
    ran = iceberg_cli("inspect", tmp_path, "--progress", "fast")
    assert (ran.code, "not 'fast'" in ran.err) == (2, True)


def test_every_line_of_a_run_is_a_document_of_its_schema_also_with_quiet(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    ran = process("expire-snapshots", table, *AS_OF, "--yes", "--quiet", "--progress", "json")
    assert (ran.code, ran.out) == (0, "")
    documents = [json.loads(line) for line in ran.err.splitlines()]
    for document in documents:
        jsonschema.Draft202012Validator(SCHEMAS["iceberg-cli/event/1"]).validate(document)
    phases = [document["phase"] for document in documents]
    for phase in ("open", "recover", "plan", "reading kept manifests", "record", "commit", "deleting files"):
        assert phase in phases
    assert {document["table"] for document in documents} == {table}
    ran = process("inspect", table, "--quiet", "--progress", "none")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


# -- in a terminal ---------------------------------------------------------------------------------------------


def clean(shown: Terminal) -> bool:
    """Whether no bar is left, nor part of one, and the cursor is visible."""
    left = [
        line for line in shown.lines if "[#" in line or "[." in line or line.startswith(("open,", "sweep,"))
    ]
    return not left and not shown.screen.cursor.hidden


@pytest.mark.parametrize("columns", deep_unless([40], [40, 80]))
def test_ctrl_c_while_a_table_is_opened_leaves_one_line(tmp_path: Path, columns: int) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    before = listing(Path(table))
    gate = Gate.at(tmp_path / "gate", "metadata.json")
    command = gate.command("read", "expire-snapshots", table, *AS_OF, "--yes")
    with terminal(command, columns=columns) as shown:
        shown.wait_for("open, 1 s")
        shown.send("\x03")
        assert shown.end() == 130
        assert clean(shown)
        assert "".join(shown.screen.display).rstrip().removeprefix("^C") == UNCHANGED
    assert listing(Path(table)) == before


@pytest.mark.deep
def test_ctrl_c_while_files_are_deleted_waits_for_the_batch_and_leaves_a_report(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    gate = Gate.at(tmp_path / "gate", "/data/one")
    command = gate.command("delete", "expire-snapshots", table, *AS_OF, "--yes")
    with terminal(command, columns=120) as shown:
        shown.wait_for("deleting files [")
        shown.send("\x03")
        gate.open()
        assert shown.end() == 0  # it was the only batch
        assert clean(shown), shown.text
        assert ": Done; " in shown.text


@pytest.mark.deep
def test_ctrl_c_until_it_ends_at_once_leaves_one_line(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    gate = Gate.at(tmp_path / "gate", "/data/one")
    command = gate.command("delete", "expire-snapshots", table, *AS_OF, "--yes")
    with terminal(command, columns=120) as shown:
        shown.wait_for("deleting files [")
        shown.send("\x03")
        while shown.goes_on(0.2):
            shown.send("\x03")
        assert shown.end() == 130
        assert clean(shown), shown.text
        # The keys that come while it ends are shown by the terminal itself.
        text = "\n".join(shown.lines).rstrip("^C\n")
        assert text.endswith(
            "by Ctrl-C. What it had begun is in its journal: `iceberg-cli resume TABLE` finishes it."
        )
    assert iceberg_cli("resume", table).code == 0


@pytest.mark.deep
def test_sigterm_leaves_no_bar(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    gate = Gate.at(tmp_path / "gate", "metadata.json")
    with terminal(gate.command("read", "inspect", table)) as shown:
        shown.wait_for("open, 1 s")
        os.kill(shown.process.pid, signal.SIGTERM)
        assert shown.end() == 143
        assert clean(shown)
        assert shown.lines == ["Stopped by SIGTERM. Nothing was changed. Run the same command again."]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("what", "held", "phase"),
    [((), "metadata.json", "open, 1 s"), (("files",), "-m0.avro", "reading bounds [")],
)
def test_an_error_leaves_no_bar(tmp_path: Path, what: tuple[str, ...], held: str, phase: str) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    gate = Gate.at(tmp_path / "gate", held)
    with terminal(gate.command("read", "inspect", table, *what)) as shown:
        shown.wait_for(phase)
        gate.open("EIO")
        assert shown.end() != 0
        assert clean(shown)
        assert phase not in shown.text


def test_a_question_stands_where_no_bar_is_any_more(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "a table: \u8868 \u05d8\u05d1\u05dc\u05d4").publish()
    gate = Gate.at(tmp_path / "gate", "metadata.json")
    with terminal(gate.command("read", "expire-snapshots", table, *AS_OF)) as shown:
        shown.wait_for("open, 1 s")
        gate.open()
        shown.wait_for("[y/N]:")
        assert clean(shown)
        shown.send("n\n")
        assert shown.end() == 4
        assert clean(shown)
        # The blank behind the question comes late where the answer is typed as soon as that is there.
        assert shown.lines[-1].strip() == "Nothing was changed."


def test_no_thread_looks_at_the_clock_while_the_process_forks() -> None:
    script = (
        "import io, os, threading\n"
        "names = lambda: sorted(each.name for each in threading.enumerate())\n"
        "os.register_at_fork(before=lambda: print(names(), flush=True))  # called after those that come later\n"
        "from iceberg_cli.cli.listening.progress import Progress\n"
        "from iceberg_cli.plan.events import PhaseBegun\n"
        "progress = Progress(io.StringIO(), 'lines')\n"
        "progress(PhaseBegun(phase='plan', table='t'))\n"
        "print(names(), flush=True)\n"
        "child = os.fork()\n"
        "os._exit(0) if child == 0 else os.waitpid(child, 0)\n"
        "print(names(), flush=True)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    alive = "['MainThread', 'progress']"
    assert ran.stdout.splitlines() == [alive, "['MainThread']", alive]


def test_what_is_on_the_screen_is_known_to_who_ends_the_process() -> None:
    clock = Clock()
    progress = Progress(io.StringIO(), "bar", clock=clock, columns=lambda: 80)
    erased = []
    for second, event in enumerate((reading(0), reading(1), PhaseEnded(phase="reading manifests"))):
        clock.now_s = 100.0 + 2 * second
        progress(event)
        erased.append(stopping._process.erased)
    progress.end(0, None)
    assert erased == ["", "\r\x1b[K", ""]


def test_a_process_that_ends_at_once_erases_the_bar_first() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 2)
        stopping.begin()
        stopping.erase("\r\x1b[K")
        stopping._leave(signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert os.read(reader, 1_000).decode() == "\r\x1b[KStopped by Ctrl-C. Nothing was changed.\n"
    os.close(reader)
    os.close(writer)
