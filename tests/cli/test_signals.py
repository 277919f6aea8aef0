"""Ctrl-C and SIGTERM at every moment: the program itself, real signals, both formats."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from iceberg_cli.cli.terminal import stopping
from tests.budget import few_or_many
from tests.cli.forking import Ended, Program, program
from tests.cli.lakes import AS_OF_MS, delta_with_removed_files, four_snapshots, listing
from tests.cli.running import Ran
from tests.paths import besides_history

DAY_MS = 86_400_000
INT, TERM = signal.SIGINT, signal.SIGTERM
NAMES = {INT: "Ctrl-C", TERM: "SIGTERM"}
AGAIN = "Run the same command again."


@dataclass(frozen=True, kw_only=True)
class Place:
    """A table with something to expire, and a copy of it."""

    table: Path
    copy: Path
    program: Program

    def restore(self) -> None:
        """The table as it was at first."""
        shutil.rmtree(self.table)
        shutil.copytree(self.copy, self.table)

    def expire(self, *arguments: object, signals: Sequence[tuple[int, int]] = ()) -> Ended:
        options = ("--as-of", AS_OF_MS, "--no-cache", "--yes")
        return self.program.run("expire-snapshots", self.table, *options, *arguments, signals=signals)

    def expire_anew(self, *arguments: object, signals: Sequence[tuple[int, int]] = ()) -> Ended:
        """On the table as it was at first."""
        self.restore()
        return self.expire(*arguments, signals=signals)


@pytest.fixture(scope="module")
def imported() -> Iterator[Program]:
    with program() as process:
        yield process


def an_iceberg_table(folder: Path) -> None:
    four_snapshots(folder).publish()


def a_delta_table(folder: Path) -> None:
    delta_with_removed_files(folder, "b")


@pytest.fixture(params=[an_iceberg_table, a_delta_table], ids=["iceberg", "delta"])
def place(request: pytest.FixtureRequest, tmp_path: Path, imported: Program) -> Place:
    table, copy = tmp_path / "t", tmp_path / "copy"
    make: Callable[[Path], None] = request.param
    make(table)
    shutil.copytree(table, copy)
    return Place(table=table, copy=copy, program=imported)


def writes(ended: Ended) -> list[int]:
    """When a run that nothing disturbed created files."""
    assert ended.code == 0, ended.err
    return [number for number, call in enumerate(ended.calls) if call.startswith("put_if_absent")]


def unchanged(number: int) -> str:
    return f"Stopped by {NAMES[number]}. Nothing was changed. {AGAIN}\n"


@pytest.mark.few(1)
def test_a_signal_while_planning_leaves_the_table_alone_and_says_so_in_one_line(place: Place) -> None:
    first, *_ = writes(place.expire())
    before = listing(place.copy)
    place.restore()
    for turn, at in enumerate(range(0, first + 1, max(1, first // 5))):
        number = (INT, TERM)[turn % 2]
        ended = place.expire(signals=[(at, number)])
        assert (ended.code, ended.err) == (128 + number, unchanged(number)), at
        assert listing(place.table) == before


@few_or_many(4, many=24)
def test_a_signal_at_any_moment_stops_before_anything_is_changed_or_leaves_what_resume_finishes(
    place: Place, budget: int
) -> None:
    whole = place.expire()
    first, last = writes(whole)[0], len(whole.calls)
    done = besides_history(listing(place.table))
    codes = set()
    for turn, at in enumerate(range(first, last, max(1, (last - first) // budget))):
        number = (INT, TERM)[turn % 2]
        ended = place.expire_anew(signals=[(at, number)])
        codes.add(ended.code)
        match ended.code:
            case 0:
                assert ": Done; " in ended.out
                assert besides_history(listing(place.table)) == done
            case 14:
                assert "`resume` finishes it." in ended.err
                assert (place.table / "_iceberg_cli" / "ops").exists()
            case _:
                assert (ended.code, ended.err) == (128 + number, unchanged(number)), at
                assert listing(place.table) == listing(place.copy)
        assert place.expire().code == 0
        assert besides_history(listing(place.table)) == done, at
    assert codes >= {0, 14}
    assert codes & {130, 143}


@pytest.mark.pairs
@pytest.mark.parametrize("number", [INT, TERM], ids=["int", "term"])
def test_a_second_signal_ends_it_at_once_and_names_resume(place: Place, number: int) -> None:
    at = writes(place.expire())[1]
    done = besides_history(listing(place.table))
    ended = place.expire_anew(signals=[(at, INT), (at + 1, number)])
    assert (ended.code, ended.err) == (
        128 + number,
        f"Stopped at once by {NAMES[number]}. {stopping.RESUMABLE}\n",
    )
    assert (place.table / "_iceberg_cli" / "ops").exists()
    assert place.program.run("resume", place.table).code == 0
    assert place.expire().code == 0
    assert besides_history(listing(place.table)) == done


def test_the_document_has_the_exit_code_of_the_signal(place: Place) -> None:
    first, *_ = writes(place.expire())
    for at in (0, first):
        ended = place.expire_anew("--format", "json", signals=[(at, TERM)])
        document = Ran(ended.code, ended.out, ended.err).json
        assert (ended.code, document["exit_code"], document["error"]) == (143, 143, "Cancelled"), at
        assert (document["state"], document["next"]) == ("Nothing was changed.", AGAIN)


@pytest.mark.few(1)
def test_a_signal_after_an_earlier_operation_was_settled_says_that_it_was(place: Place) -> None:
    moments = writes(place.expire())
    half = place.table.with_name("half")
    while place.expire_anew(signals=[(moments.pop(), INT)]).code != 14:
        assert moments
    shutil.copytree(place.table, half)
    calls = place.expire().calls
    pruned = max(number for number, call in enumerate(calls) if call.startswith("prune"))
    shutil.rmtree(place.table)
    shutil.copytree(half, place.table)
    ended = place.expire(signals=[(pruned + 1, INT)])
    assert (ended.code, ended.err) == (
        130,
        f"Stopped by Ctrl-C. Earlier operations were gone on with; nothing else was changed. {AGAIN}\n",
    )


STARTING = """import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
from iceberg_cli.cli.starting import main
main()"""


# Before the program's first line the system ends it, as it does every process: by SIGTERM without a word.
@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("iceberg_cli.cli.terminal.stopping", INT),
        ("typer", INT),
        ("typer", TERM),
        ("iceberg_cli.cli.commands.plan", TERM),
        ("pyarrow.lib", INT),
    ],
)
def test_a_signal_while_the_program_is_starting_ends_it_without_a_traceback(
    tmp_path: Path, module: str, number: int
) -> None:
    four_snapshots(tmp_path / "t").publish()
    done = subprocess.run(
        [sys.executable, "-c", STARTING.format(module=module, number=int(number)), "plan", tmp_path / "t"],
        capture_output=True,
        text=True,
        check=False,
        # Whoever runs the tests in the background lets them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(INT, signal.default_int_handler),
    )
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.startswith(f"Stopped by {NAMES[number]}. Nothing was changed.")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
