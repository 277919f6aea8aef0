"""Tasks in forked processes: one that is killed is told, none outlives its parent, and signals are the parent's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from iceberg_cli.engines import TaskEnd
from iceberg_cli.engines.task_pool import run_in_processes
from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.testing.conformance.engines import child_processes, no_process_left_behind
from tests.engines.test_every_engine import alive, needs_fork
from tests.paths import ROOT

pytestmark = needs_fork


def yes() -> bool:
    return True


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def check_killed(end: TaskEnd[int] | None) -> None:
    assert end is not None
    assert end.result is None
    assert isinstance(end.error, BackendUnavailable)
    assert "was ended" in end.error.message
    assert "--memory" in end.error.next_step


@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_that_is_killed_is_an_end_and_the_last_one(workers: int) -> None:
    def task(number: int) -> int:
        if number == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with no_process_left_behind():
        ends = [end for end in run_in_processes(task, [*range(50)], may_begin=yes, workers=workers) if end]
    check_killed(ends[-1])
    assert [end.error for end in ends[:-1]] == [None] * (len(ends) - 1)
    assert 4 not in [end.index for end in ends[:-1]]


def test_what_others_have_done_when_one_is_killed_is_not_lost(tmp_path: Path) -> None:
    """The caller is busy meanwhile, with a commit for example."""
    folder = str(tmp_path)

    def task(number: int) -> int:
        if number:
            wait_for(Path(folder, "go").exists)
        if number == 3:
            wait_for(lambda: len(os.listdir(folder)) == 6)
            time.sleep(0.2)  # their results arrive
            os.kill(os.getpid(), signal.SIGKILL)
        Path(folder, str(number)).touch()
        return number

    answers = iter([True] * 6)
    with no_process_left_behind():
        ends = run_in_processes(task, [*range(9)], may_begin=lambda: next(answers, False), workers=6)
        found = [next(ends)]
        Path(folder, "go").touch()
        wait_for(lambda: len(os.listdir(folder)) == 6)
        time.sleep(0.7)
        found += list(ends)
    *done, last = [end for end in found if end is not None]
    assert sorted(end.index for end in done) == [0, 1, 2, 4, 5]
    check_killed(last)


def test_a_worker_that_is_killed_between_two_tasks_is_no_bug() -> None:
    """The caller is busy meanwhile, and the next task cannot begin any more."""
    with no_process_left_behind():
        before = child_processes()
        ends = run_in_processes(abs, [*range(9)], may_begin=yes, workers=1)
        first = next(ends)
        assert first is not None
        assert first.result == 0
        (worker,) = child_processes() - before
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not alive(worker))
        time.sleep(0.5)
        rest = [end for end in ends if end is not None]
    check_killed(rest[-1])
    assert [end.error for end in rest[:-1]] == [None] * (len(rest) - 1)


def test_closed_before_the_end_it_ends_those_at_work(tmp_path: Path) -> None:
    def task(number: int) -> None:
        (tmp_path / str(number)).touch()
        time.sleep(3_600)

    with no_process_left_behind():
        ends = run_in_processes(task, [*range(4)], may_begin=yes, workers=2)
        assert next(ends) is None
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        ends.close()


_PROGRAM = """
import os, signal, sys, time
from iceberg_cli.engines.task_pool import run_in_processes


def task(number):
    if sys.argv[1] == "signals":
        for each in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), each)
        return number
    os.write(2, f"{os.getpid()}\\n".encode())
    time.sleep(3600)


def main():
    try:
        for end in run_in_processes(task, range(4), may_begin=lambda: True, workers=2):
            if end is not None:
                print(end.result, end=" ", flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)


main()
"""


def program(how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    assert process.stderr is not None
    return [int(process.stderr.readline()) for _ in range(2)]


def test_signals_that_a_worker_gets_do_nothing() -> None:
    with program("signals") as process:
        out, err = process.communicate(timeout=60)
    assert (sorted(out.split()), err, process.returncode) == (["0", "1", "2", "3"], "", 0)


def test_ctrl_c_for_all_of_them_stops_the_parent_which_ends_the_others() -> None:
    with program("sleep") as process:
        workers = workers_of(process)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("stopped\n", "", 0)
    assert not any(alive(worker) for worker in workers)


def test_workers_end_when_their_parent_is_killed() -> None:
    with program("sleep") as process:
        workers = workers_of(process)
        process.kill()
        process.communicate(timeout=60)  # returns only when all have closed its standard error
    wait_for(lambda: not any(alive(worker) for worker in workers))
