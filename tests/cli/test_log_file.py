"""`--log-file FILE`: JSON lines of what a run does, also across rotations, full disks and failures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.lakes import AS_OF, GONE, delta_with_removed_files, four_snapshots, listing
from tests.cli.running import iceberg_cli, process
from tests.cli.terminals import PATIENCE_S, Gate, background

VERB = "expire-snapshots"
FIELDS = ["time", "level", "event", "verb", "table", "operation_id", "phase", "message"]


def lines(path: Path) -> list[dict[str, Any]]:
    """Every line of a log, which has all fields."""
    text = path.read_text()
    assert text.endswith("\n")
    found = [json.loads(line) for line in text.splitlines()]
    for line in found:
        assert list(line)[: len(FIELDS)] == FIELDS
        assert line["time"].endswith("Z")
        assert line["level"] in {"INFO", "WARNING", "ERROR"}
        assert line["message"]
    assert [line["time"] for line in found] == sorted(line["time"] for line in found)
    return found


def of(event: str, log: Path) -> list[dict[str, Any]]:
    return [line for line in lines(log) if line["event"] == event]


def test_a_run_is_in_the_log_from_its_command_line_to_its_exit_code(tmp_path: Path) -> None:
    table, log = four_snapshots(tmp_path / "t").publish(), tmp_path / "log"
    before = {name: os.stat(Path(table) / name).st_size for name in listing(Path(table))}
    ran = iceberg_cli(VERB, table, *AS_OF, "--yes", "--format", "json", "--log-file", log)
    written, report = lines(log), ran.json
    assert {(line["verb"], line["table"]) for line in written} == {(VERB, table)}
    start, end = written[0], written[-1]
    assert start["command"] == [VERB, table, *AS_OF, "--yes", "--format", "json", "--log-file", str(log)]
    assert (start["event"], start["as_of_ms"]) == ("start", int(AS_OF[1]))
    assert (end["event"], end["exit_code"]) == ("end", 0)
    assert [line["message"] for line in written if line["event"].startswith("phase_")] == [
        f"{phase} {what}"
        for phase in ("open", "recover", "plan", "record", "commit", "sweep")
        for what in ("begins", "ends")
    ]
    assert all(line["duration_ms"] >= 0 for line in of("phase_ended", log))
    (plan,) = of("plan", log)
    assert (plan["due"], plan["files"]) == (True, len(GONE))
    (commit,) = of("commit", log)
    assert (commit["outcome"], commit["location"]) == ("committed", report["metadata_location"])
    (deleted,) = of("deleted", log)
    assert (deleted["files"], deleted["failed"], deleted["kept"]) == (len(GONE), 0, 0)
    assert deleted["by_kind"] == {
        "data_file": sum(name.startswith("data/") for name in GONE),
        "statistics_file": 1,
        "manifest_file": 2,
        "manifest_list": sum("snap-" in name for name in GONE),
    }
    (ended,) = of("operation_ended", log)
    assert (ended["status"], ended["reclaimed_bytes"]) == ("done", report["reclaimed_bytes"])
    assert {line["operation_id"] for line in (commit, deleted, ended)} == {report["operation_id"]}
    assert {line["level"] for line in written} == {"INFO"}
    assert before.keys() > GONE


def test_runs_are_added_to_one_log_and_errors_are_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    held = four_snapshots(tmp_path / "held", properties={"gc.enabled": "false"}).publish()
    assert iceberg_cli("inspect", held, "--quiet", "--log-file", log).code == 0
    assert iceberg_cli(VERB, held, *AS_OF, "--yes", "--log-file", log).code == 11
    assert iceberg_cli(VERB, f"{held}/no", "--yes", "--log-file", log).code == 10
    assert [line["verb"] for line in of("start", log)] == ["inspect", VERB, VERB]
    assert [line["exit_code"] for line in of("end", log)] == [0, 11, 10]
    refused, missing = of("error", log)
    assert (refused["error"], refused["exit_code"], refused["state"]) == (
        "Refused",
        11,
        "Nothing was changed.",
    )
    assert (missing["error"], missing["level"], missing["table"]) == ("TableNotFound", "ERROR", f"{held}/no")
    assert [line["error"] for line in of("phase_ended", log)][-1] == "TableNotFound"


def test_a_bug_and_a_signal_are_told(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    for name, code, error in (("bug", 1, "AssertionError"), ("int", 130, "Cancelled")):
        gate, log = Gate.at(tmp_path / f"gate-{name}", "metadata.json"), tmp_path / name
        with background(gate.command("read", "inspect", table, "--log-file", log)) as program:
            gate.wait()
            if name == "bug":
                gate.open("a bug")
            else:
                program.send_signal(signal.SIGINT)
            assert program.wait(PATIENCE_S) == code
        (line,) = of("error", log)
        assert (line["error"], line["exit_code"]) == (error, code)
        assert line["message"] in {"a bug", "Stopped by Ctrl-C"}
        assert lines(log)[-1]["exit_code"] == code


def test_each_file_that_stays_has_a_line_with_the_reason(tmp_path: Path) -> None:
    table, log = Path(four_snapshots(tmp_path / "t").publish()), tmp_path / "log"
    os.unlink(table / "data/one.parquet")
    (table / "data/one.parquet/in").mkdir(parents=True)
    assert iceberg_cli(VERB, table, *AS_OF, "--yes", "--log-file", log).code == 14
    (failed,) = of("delete_failed", log)
    assert (failed["level"], failed["path"]) == ("WARNING", f"{table}/data/one.parquet")
    assert failed["reason"]
    (deleted,) = of("deleted", log)
    assert (deleted["files"], deleted["failed"]) == (len(GONE) - 1, 1)
    (ended,) = of("operation_ended", log)
    assert (ended["level"], ended["status"], ended["exit_code"]) == ("WARNING", "partial", 14)


@pytest.mark.deep
def test_a_conflict_is_told_with_the_attempt_that_follows(tmp_path: Path) -> None:
    table, log = Path(four_snapshots(tmp_path / "t").publish()), tmp_path / "log"
    gate = Gate.at(tmp_path / "gate", "v2.metadata.json")
    with background(
        gate.command("put_if_absent", VERB, table, *AS_OF, "--yes", "--log-file", log)
    ) as program:
        gate.wait()
        shutil.copy(table / "metadata/v1.metadata.json", table / "metadata/v2.metadata.json")
        gate.open()
        assert program.wait(PATIENCE_S) == 0
    assert [(line["outcome"], line["level"]) for line in of("commit", log)] == [
        ("conflict", "WARNING"),
        ("committed", "INFO"),
    ]
    assert of("commit", log)[0]["reason"]
    assert "wait" in [line["phase"] for line in of("phase_ended", log)]


def test_warnings_are_told_also_where_they_are_not_printed(tmp_path: Path) -> None:
    delta_with_removed_files(tmp_path / "t", "b")
    log = tmp_path / "log"
    options = ("--retention", "1h", "--dry-run", "--quiet", "--log-file", log)
    ran = iceberg_cli(VERB, tmp_path / "t", *options)
    assert ran.code == 0
    assert of("warning", log) or of("blocked", log)


# -- the file --------------------------------------------------------------------------------------------------


def test_after_a_rotation_sighup_makes_a_new_file_and_no_line_is_lost(tmp_path: Path) -> None:
    table, log = four_snapshots(tmp_path / "t").publish(), tmp_path / "log"
    gate = Gate.at(tmp_path / "gate", "/data/one")
    with background(gate.command("delete", VERB, table, *AS_OF, "--yes", "--log-file", log)) as program:
        gate.wait()
        log.rename(tmp_path / "log.1")
        program.send_signal(signal.SIGHUP)
        until_s = time.monotonic() + PATIENCE_S
        while not log.exists():
            assert time.monotonic() < until_s, "the file is not made anew"
            time.sleep(0.01)
        gate.open()
        assert program.wait(PATIENCE_S) == 0
    before, after = lines(tmp_path / "log.1"), lines(log)
    assert (before[0]["event"], before[-1]["message"]) == ("start", "sweep begins")
    assert [line["event"] for line in after] == [
        "deleted_paths",
        "deleted",
        "phase_ended",
        "operation_ended",
        "end",
    ]


def test_a_file_that_cannot_be_opened_anew_is_a_warning_with_the_next_line(tmp_path: Path) -> None:
    table, log = four_snapshots(tmp_path / "t"), tmp_path / "log"
    table.publish()
    gate = Gate.at(tmp_path / "gate", "/data/one")
    command = gate.command("delete", VERB, table.name, *AS_OF, "--yes", "--log-file", log)
    with table.loses(GONE), background(command) as program:
        gate.wait()
        log.rename(tmp_path / "log.1")
        os.mkfifo(log)  # and nobody reads it
        program.send_signal(signal.SIGHUP)
        gate.open()
        _, err = program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 0
    assert err.count("warning: ") == 1
    assert f"--log-file: cannot write {log}, lines are lost: it cannot be opened anew" in err
    assert lines(tmp_path / "log.1")[-1]["event"] == "end"


def test_a_named_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    ran = process("inspect", tmp_path / "t", "--log-file", tmp_path / "log", timeout=PATIENCE_S)
    assert ran.code == 2
    assert f"--log-file: cannot write {tmp_path / 'log'}" in ran.err


@pytest.mark.deep
def test_without_a_log_file_sighup_ends_a_run_as_ever(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    gate = Gate.at(tmp_path / "gate", "/data/one")
    with background(gate.command("delete", VERB, table, *AS_OF, "--yes")) as program:
        gate.wait()
        program.send_signal(signal.SIGHUP)
        assert program.wait(PATIENCE_S) == -signal.SIGHUP


def test_a_full_disk_is_one_warning_and_the_run_goes_on(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    ran = process(VERB, table, *AS_OF, "--yes", "--quiet", "--log-file", "/dev/full")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == (
        "warning: --log-file: cannot write /dev/full, lines are lost: No space left on device\n"
    )
    assert not listing(Path(table)).keys() & GONE


@pytest.mark.parametrize("place", ["no/log", "."])
def test_a_log_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path: Path, place: str) -> None:
    table = four_snapshots(tmp_path / "t").publish()
    before = listing(Path(table))
    ran = iceberg_cli(VERB, table, *AS_OF, "--yes", "--log-file", tmp_path / place)
    assert (ran.code, "--log-file: cannot write" in ran.err) == (2, True)
    assert listing(Path(table)) == before


def test_secrets_in_the_name_of_a_table_are_not_told(tmp_path: Path) -> None:
    log, file = tmp_path / "log", tmp_path / "run.prom"
    ran = iceberg_cli(VERB, f"{tmp_path}/t?sig=zq-secret", "--yes", "--log-file", log, "--metrics", file)
    assert ran.code == 10
    assert "zq-secret" not in log.read_text() + file.read_text()
    assert {line["table"] for line in lines(log)} == {f"{tmp_path}/t?sig=***"}
    assert f'table="{tmp_path}/t?sig=***"' in file.read_text()


def test_secrets_of_the_command_line_are_not_told(tmp_path: Path) -> None:
    table, log = four_snapshots(tmp_path / "t").publish(), tmp_path / "log"
    words = (
        "--storage-option",
        "s3.session=zq-one",
        "--storage-option=adls.thing=zq-two",
        "--storage-option",
        "a=env:HOME",
    )
    assert iceberg_cli("inspect", table, *words, "--log-file", log).code == 0
    assert "zq-" not in log.read_text()
    assert of("start", log)[0]["command"][2:7] == [
        "--storage-option", "s3.session=***", "--storage-option=adls.thing=***", "--storage-option", "a=env:HOME",
    ]  # fmt: skip
