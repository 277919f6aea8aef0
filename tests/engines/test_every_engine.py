"""Every sentence of the engine port, on the local engine, on lanes, on Spark; then what only lanes promise."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from iceberg_cli.engines import Engine, Event, OnEvent, Parsed, Scan, Source
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.engines.spark.engine import SparkEngine
from iceberg_cli.errors import BackendUnavailable, CorruptFile, InvalidMetadata, UsageError
from iceberg_cli.storage.local import LocalStorage
from tests.paths import ROOT

FILE_BYTES = 600_000
FILES = 24  # together enough that lanes are forked
BATCH_BYTES = 2 * FILE_BYTES
LANES = 3

Batch = Sequence[tuple[str, bytes | None]]

needs_fork = pytest.mark.skipif(sys.platform != "linux", reason="lanes are forked on Linux only")


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Files, each of its own bytes."""
    found = []
    for number in range(FILES):
        path = tmp_path / f"{number:02d}"
        path.write_bytes(bytes([number]) * FILE_BYTES)
        found.append(str(path))
    return found


ENGINES = [
    "one lane",
    pytest.param("lanes", marks=needs_fork),
    pytest.param("spark", marks=pytest.mark.jvm),
]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "spark":
        session = request.getfixturevalue("spark_session")
        yield SparkEngine(session, LocalStorage())
        return
    with no_process_left_behind():
        yield LocalEngine(LocalStorage(), workers=1 if request.param == "one lane" else LANES)


@pytest.fixture
def laned() -> Iterator[LocalEngine]:
    with no_process_left_behind():
        yield LocalEngine(LocalStorage(), workers=LANES)


@contextmanager
def no_process_left_behind() -> Iterator[None]:
    """Nothing that was started inside is there at the end, neither running nor waiting to be reaped."""
    before = psutil.Process().children()
    yield
    assert psutil.Process().children() == before


def unseen(_: Event) -> None:
    """Progress that nobody looks at."""


def as_it_is(_: str, data: bytes) -> bytes:
    return data


def scan(
    engine: Engine,
    paths: Sequence[str],
    parse: Callable[[Batch], Parsed],
    *,
    missing_ok: bool = False,
    on_event: OnEvent = unseen,
    load: Callable[[str, bytes], bytes] = as_it_is,
) -> Iterator[Parsed]:
    return engine.scan(
        Scan(
            lambda path: Source(path, FILE_BYTES),
            load,
            parse,
            phase="reading",
            missing_ok=missing_ok,
            batch_bytes=BATCH_BYTES,
        ),
        paths,
        on_event=on_event,
    )


def gather(results: Iterator[Parsed], into: list[Parsed]) -> None:
    """What came before an error is in `into` too."""
    for result in results:
        into.append(result)  # noqa: PERF402 - list.extend promises nothing about errors


def first_bytes(batch: Batch) -> list[tuple[str, int | None]]:
    return [(path, None if data is None else data[0]) for path, data in batch]


def process_ids(_: Batch) -> int:
    return os.getpid()


# -- the port ------------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_items_each_item_once(engine: Engine, paths: list[str]) -> None:
    found = [pair for batch in scan(engine, paths, first_bytes) for pair in batch]
    assert found == [(path, number) for number, path in enumerate(paths)]


def test_a_batch_that_takes_longer_does_not_change_the_order(engine: Engine, paths: list[str]) -> None:
    def slow_at_first(batch: Batch) -> str:
        time.sleep(0.3 if batch[0][0] == paths[0] else 0)
        return batch[0][0]

    assert list(scan(engine, paths, slow_at_first)) == paths[::2]


def test_a_batch_holds_about_as_many_bytes_as_it_may(engine: Engine, paths: list[str]) -> None:
    assert list(scan(engine, paths, len)) == [2] * (FILES // 2)


def test_results_larger_than_any_pipe_arrive_whole(engine: Engine, paths: list[str]) -> None:
    def large(batch: Batch) -> tuple[pa.Table, np.ndarray, bytes]:
        data = b"".join(data or b"" for _, data in batch)
        assert len(data) > 1 << 20  # what a pipe holds at most
        array = np.frombuffer(data, np.uint8)
        return pa.table({"bytes": pa.array(array), "text": pa.array(["é"] * len(array))}), array, data

    for number, (table, array, data) in enumerate(scan(engine, paths[:12], large)):
        expected = bytes([2 * number]) * FILE_BYTES + bytes([2 * number + 1]) * FILE_BYTES
        assert data == expected
        assert array.tobytes() == expected
        assert table["bytes"].to_numpy().tobytes() == expected
        assert table["text"].unique().to_pylist() == ["é"]


def test_progress_names_the_phase_and_ends_with_all_files(engine: Engine, paths: list[str]) -> None:
    events: list[Event] = []
    list(scan(engine, paths, len, on_event=events.append))
    assert {(event.phase, event.total) for event in events} == {("reading", FILES)}
    done = [event.done for event in events]
    assert done == sorted(done)
    assert done[-1] == FILES


def test_nothing_to_read_gives_no_result(engine: Engine) -> None:
    assert list(scan(engine, [], len)) == []


def test_a_missing_file_stops_and_is_named(engine: Engine, paths: list[str]) -> None:
    os.remove(paths[9])
    with pytest.raises(CorruptFile) as caught:
        list(scan(engine, paths, len))
    assert caught.value.path == paths[9]


def test_a_missing_file_is_handed_on_as_none_where_that_is_wanted(engine: Engine, paths: list[str]) -> None:
    os.remove(paths[9])
    found = [pair for batch in scan(engine, paths, first_bytes, missing_ok=True) for pair in batch]
    assert found == [(path, None if number == 9 else number) for number, path in enumerate(paths)]


def test_a_corrupt_file_found_by_parse_keeps_its_fields_and_what_came_before(
    engine: Engine, paths: list[str]
) -> None:
    def parse(batch: Batch) -> str:
        for path, _ in batch:
            if path == paths[14]:
                raise CorruptFile(path, 17, "no sync marker")
        return batch[0][0]

    got: list[str] = []
    results = scan(engine, paths, parse)
    with pytest.raises(CorruptFile) as caught:
        gather(results, got)
    assert got == paths[:14:2]
    error = caught.value
    assert (error.path, error.offset, error.reason, error.exit_code) == (paths[14], 17, "no sync marker", 15)
    assert str(error) == f"Cannot read {paths[14]} at byte 17: no sync marker"


def test_of_two_errors_the_one_of_the_earlier_batch_is_raised(engine: Engine, paths: list[str]) -> None:
    def parse(batch: Batch) -> None:
        if batch[0][0] in (paths[6], paths[8]):
            time.sleep(0.3 if batch[0][0] == paths[6] else 0)
            raise CorruptFile(batch[0][0], None, "bad")

    with pytest.raises(CorruptFile) as caught:
        list(scan(engine, paths, parse))
    assert caught.value.path == paths[6]


@pytest.mark.parametrize(
    "error",
    [
        BackendUnavailable("Cannot read x: gone", state="Half is done.", next_step="Wait."),
        InvalidMetadata("x", "field", "no number"),
        UsageError("Cannot"),
        PermissionError(13, "Permission denied", "/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        pa.ArrowInvalid("no array"),
        KeyError("name"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_load_arrives_as_it_was_raised(
    engine: Engine, paths: list[str], error: BaseException
) -> None:
    def load(path: str, data: bytes) -> bytes:
        if path == paths[11]:
            raise error
        return data

    with pytest.raises(type(error)) as caught:
        list(scan(engine, paths, len, load=load))
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    own = {name: value for name, value in vars(caught.value).items() if name != "__notes__"}
    assert own == {name: value for name, value in vars(error).items() if name != "__notes__"}


def test_a_scan_that_is_closed_early_leaves_nothing_behind(engine: Engine, paths: list[str]) -> None:
    with no_process_left_behind():
        results = scan(engine, paths, len)
        assert next(results) == 2
        results.close()


def test_a_consumer_that_fails_leaves_nothing_behind(engine: Engine, paths: list[str]) -> None:
    with no_process_left_behind(), pytest.raises(ZeroDivisionError):
        divide(scan(engine, paths, len))


def divide(results: Iterator[int]) -> None:
    for count in results:
        _ = count / 0


# -- lanes ---------------------------------------------------------------------------------------------------------


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
