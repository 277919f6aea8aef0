"""The conformance suite of engines on the local engine, on lanes, on Spark; then what only lanes promise."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from iceberg_cli.engines import Engine, Scan, Source, local
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.engines.spark.engine import SparkEngine
from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.conformance.engines import (
    FILE_BYTES,
    FILES,
    SHORT_FILES,
    Batch,
    RunConformance,
    ScanConformance,
    ShuffleConformance,
    as_it_is,
    build_files,
    gather,
    make_files,
    no_process_left_behind,
    scan,
    unseen,
)
from tests.paths import ROOT

LANES = 3

needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="lanes are forked on Linux only")
on_spark = pytest.param("spark", marks=[pytest.mark.jvm, pytest.mark.deep])


@pytest.mark.few(0.5)
class TestScans(ScanConformance):
    """Every sentence about scans, on every engine."""

    @pytest.fixture(params=["one lane", pytest.param("lanes", marks=needs_fork), on_spark])
    def engine(self, request: pytest.FixtureRequest) -> Iterator[Engine]:
        if request.param == "spark":
            yield SparkEngine(request.getfixturevalue("spark_session"), LocalStorage())
            return
        with no_process_left_behind():
            yield LocalEngine(LocalStorage(), workers=1 if request.param == "one lane" else LANES)


class TestShuffles(ShuffleConformance):
    """Every sentence about shuffles, on every engine."""

    @pytest.fixture(params=["local", "local, spilled", on_spark])
    def engine(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
        if request.param == "spark":
            return SparkEngine(request.getfixturevalue("spark_session"), LocalStorage())
        if request.param == "local, spilled":
            monkeypatch.setattr(local, "_HELD_BYTES", 1)
        return LocalEngine(LocalStorage())


class TestRuns(RunConformance):
    """Every sentence about tasks, on every engine."""

    @pytest.fixture(params=["threads", pytest.param("processes", marks=needs_fork), on_spark])
    def engine(self, request: pytest.FixtureRequest) -> Iterator[Engine]:
        if request.param == "spark":
            yield SparkEngine(request.getfixturevalue("spark_session"), LocalStorage())
            return
        with no_process_left_behind():
            yield LocalEngine(LocalStorage(), workers=1 if request.param == "threads" else LANES)


@pytest.mark.parametrize("twice", [False, True], ids=["one round", "two rounds"])
@pytest.mark.parametrize("held_bytes", [1, 64 << 20], ids=["spilled", "in memory"])
def test_the_local_engine_builds_files_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int, twice: bool
) -> None:
    monkeypatch.setattr(local, "_HELD_BYTES", held_bytes)
    paths = make_files(tmp_path, count=SHORT_FILES, size_bytes=1_000)
    found = build_files(LocalEngine(LocalStorage()), paths, tmp_path, twice=twice)
    assert {process_id for _, _, process_id in found} == {os.getpid()}


# -- lanes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Files, each of its own bytes."""
    return make_files(tmp_path, count=FILES, size_bytes=FILE_BYTES)


@pytest.fixture
def laned() -> Iterator[LocalEngine]:
    with no_process_left_behind():
        yield LocalEngine(LocalStorage(), workers=LANES)


def process_ids(_: Batch) -> int:
    return os.getpid()


@needs_fork
def test_lanes_are_other_processes_that_share_the_batches(laned: LocalEngine, paths: list[str]) -> None:
    found = list(scan(laned, paths, process_ids))
    assert len(set(found)) == LANES
    assert os.getpid() not in found
    assert found == found[:LANES] * (len(found) // LANES)


@needs_fork
def test_files_of_unknown_size_are_parsed_here(laned: LocalEngine, paths: list[str]) -> None:
    found = laned.scan(Scan(Source, as_it_is, process_ids, phase="reading"), paths, on_event=unseen)
    assert set(found) == {os.getpid()}


@needs_fork
def test_files_of_another_storage_are_parsed_here(laned: LocalEngine, paths: list[str]) -> None:
    class Remote:
        def read(self, path: str) -> bytes:
            return Path(path.removeprefix("s3:/")).read_bytes()

    engine = LocalEngine(Remote(), workers=LANES)  # type: ignore[arg-type]
    assert set(scan(engine, [f"s3:/{path}" for path in paths], process_ids)) == {os.getpid()}


@needs_fork
@pytest.mark.parametrize("at", [0, 10, 22])
def test_a_lane_that_is_killed_is_an_error_and_no_short_result(
    laned: LocalEngine, paths: list[str], at: int
) -> None:
    def parse(batch: Batch) -> str:
        if batch[0][0] == paths[at]:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch[0][0]

    got: list[str] = []
    with pytest.raises(BackendUnavailable, match=r"ended by signal 9\b"):
        gather(scan(laned, paths, parse), got)
    assert got == paths[:at:2]


@needs_fork
def test_a_lane_that_leaves_in_the_middle_is_an_error(laned: LocalEngine, paths: list[str]) -> None:
    def parse(batch: Batch) -> None:
        if batch[0][0] == paths[6]:
            os._exit(0)

    with pytest.raises(BackendUnavailable, match="left early with code 0"):
        list(scan(laned, paths, parse))


@needs_fork
def test_a_bug_in_a_lane_shows_where_it_is(laned: LocalEngine, paths: list[str]) -> None:
    def broken_here(_: Batch) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError) as caught:
        list(scan(laned, paths, broken_here))
    assert "in broken_here" in "".join(caught.value.__notes__)


@needs_fork
def test_an_error_that_cannot_travel_is_still_an_error(laned: LocalEngine, paths: list[str]) -> None:
    class Stubborn(Exception):
        def __reduce__(self) -> str:
            raise pickle.PicklingError

    def parse(_: Batch) -> None:
        raise Stubborn("what went wrong")

    with pytest.raises(RuntimeError, match="what went wrong"):
        list(scan(laned, paths, parse))


@needs_fork
def test_a_result_that_cannot_travel_is_an_error(laned: LocalEngine, paths: list[str]) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        list(scan(laned, paths, lambda _: lambda: None))


@needs_fork
def test_lanes_do_not_run_far_ahead(laned: LocalEngine, paths: list[str], tmp_path: Path) -> None:
    def parse(batch: Batch) -> bytes:
        (tmp_path / f"parsed-{Path(batch[0][0]).name}").touch()
        return bytes(4 << 20)  # more than a pipe holds

    results = scan(laned, paths, parse)
    next(results)
    time.sleep(1)
    assert len(list(tmp_path.glob("parsed-*"))) <= 1 + LANES
    results.close()


@needs_fork
def test_warnings_that_are_errors_do_not_stop_a_fork(laned: LocalEngine, paths: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(scan(laned, paths, len))) == FILES // 2


_PROGRAM = """
import atexit, os, signal, sys, time
from iceberg_cli.engines import Scan, Source
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.storage.local import LocalStorage

how, *paths = sys.argv[1:]
atexit.register(lambda: os.write(1, b"[atexit]"))
sys.stdout.write("[buffered]")


def parse(batch):
    if how == "signals":
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
    if how == "parent dies":
        os.write(2, f"{os.getpid()}\\n".encode())
        return bytes(4 << 20)
    return len(batch)


engine = LocalEngine(LocalStorage(), workers=2)
scan = Scan(
    lambda path: Source(path, 600_000), lambda _, data: data, parse, phase="", batch_bytes=1_200_000
)
results = engine.scan(scan, paths, on_event=lambda _: None)
if how == "parent dies":
    next(results)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
print(sum(results), end="")
"""


def run_program(how: str, paths: Sequence[str]) -> subprocess.CompletedProcess[str]:
    root = str(ROOT)
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, how, *paths],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": root},
    )


@needs_fork
@pytest.mark.parametrize("how", ["quietly", "signals"])
def test_a_lane_flushes_nothing_runs_no_exit_handler_and_leaves_signals_to_its_parent(
    paths: list[str], how: str
) -> None:
    done = run_program(how, paths)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"[buffered]{FILES}[atexit]", "")


@needs_fork
def test_lanes_end_when_their_parent_is_killed(paths: list[str]) -> None:
    done = run_program("parent dies", paths)  # returns only when all have closed its standard error
    assert done.returncode == -signal.SIGKILL
    workers = {int(line) for line in done.stderr.split()}
    assert len(workers) == 2
    until = time.monotonic() + 10
    while any(alive(lane) for lane in workers):
        assert time.monotonic() < until
        time.sleep(0.01)


def alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")
