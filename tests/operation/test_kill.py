"""The real program, really killed, at random moments, on a folder and on a SQLite catalog."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import pytest

from iceberg_cli.paths import OPERATIONS_FOLDER
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.iceberg_reader import check_table
from tests.budget import few_or_many
from tests.builders import DAY_MS, HOUR_MS, NOW_MS, TableWriter, a_tag
from tests.cli.lakes import newest_metadata, registered
from tests.cli.running import Ran, iceberg_cli
from tests.paths import ROOT, besides_history

SNAPSHOTS = 100
LONG_AGO_MS = 1_000 * DAY_MS  # the program refuses an `--as-of` in the future
AS_OF_MS = NOW_MS - LONG_AGO_MS
OPTIONS = ("--older-than", str(AS_OF_MS - DAY_MS), "--as-of", str(AS_OF_MS), "--yes", "--no-progress")
REFS = {"main": SNAPSHOTS, "eom": 3}
REFUSED = 11
# On another machine nobody can see that the process is only stopped.
ELSEWHERE = """import socket
socket.gethostname = lambda: "elsewhere"
from iceberg_cli.cli.starting import main
main()"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A table on disk, how the program finds it, and a copy to start from again."""

    folder: Path
    catalog: Path | None

    @property
    def name(self) -> str:
        return "lake.shop.t" if self.catalog else str(self.folder)

    @property
    def journal(self) -> Path:
        return self.folder / OPERATIONS_FOLDER

    def current(self) -> str:
        if self.catalog:
            with sqlite3.connect(self.catalog) as database:
                (location,) = database.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
            return str(location)
        return str(newest_metadata(self.folder))

    def restore(self, copy: Path) -> None:
        """Start again from the copy."""
        shutil.rmtree(self.folder.parent)
        shutil.copytree(copy, self.folder.parent)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "iceberg_cli", *arguments],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def check(self) -> set[str]:
        return check_table(open_storage(), self.current(), refs=REFS)

    def leftovers(self) -> set[str]:
        hint = self.folder / "metadata" / "version-hint.text"
        files = besides_history(str(path) for path in self.folder.rglob("*") if path.is_file())
        return files - self.check() - {str(hint)}


def a_place(root: Path, *, catalog: bool) -> Place:
    """A table of many snapshots, each of which adds a file and removes one; two of them stay."""
    folder = root / "live" / "visits"
    writer = TableWriter(storage=open_storage(), location=str(folder))
    writer.commit(1, age_ms=LONG_AGO_MS + 9 * DAY_MS, add=["0", "1"])
    for number in range(2, SNAPSHOTS + 1):
        age_ms = HOUR_MS if number == SNAPSHOTS else 9 * DAY_MS - number
        writer.commit(number, age_ms=LONG_AGO_MS + age_ms, add=[str(number)], remove=[str(number - 1)])
        if number == REFS["eom"]:
            writer.set_ref("eom", a_tag(number))
    location = writer.publish(None if catalog else "v1.metadata.json")
    if not catalog:
        return Place(folder=folder, catalog=None)
    path = folder.parent / "catalog.db"
    registered(path, location)
    return Place(folder=folder, catalog=path)


def wait_for_record(place: Place, process: subprocess.Popen[bytes], number: int) -> None:
    """Until a journal has this record, or the process is through."""
    # Not pathlib's glob, which fails where a folder is pruned while it looks.
    while process.poll() is None and not glob(f"{place.journal}/*/{number:06d}.json"):
        time.sleep(0.0002)


def done(ran: Ran) -> None:
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.few(1)
@few_or_many(5, all_of=50)
@pytest.mark.parametrize("catalog", [False, True], ids=["folder", "sqlite"])
def test_killed_at_random_moments_the_program_makes_good_what_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, catalog: bool, budget: int
) -> None:
    place = a_place(tmp_path, catalog=catalog)
    if catalog:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{place.catalog}")
    copy = tmp_path / "copy"
    shutil.copytree(place.folder.parent, copy)
    generator = random.Random(11)
    in_the_middle = 0
    for number in range(budget):
        place.restore(copy)
        process = place.start("expire-snapshots", place.name, *OPTIONS)
        # Most of a run is the start of Python. So most kills wait for a record of the journal.
        if number % 5:
            wait_for_record(place, process, generator.randrange(7))
            time.sleep(generator.uniform(0, 0.004))
        else:
            time.sleep(generator.uniform(0, 1.5))
        process.kill()
        process.wait()
        place.check()
        in_the_middle += place.journal.exists()
        if number % 2:  # the next regular run settles what is open, too
            done(iceberg_cli("resume", place.name))
            place.check()
        done(iceberg_cli("expire-snapshots", place.name, *OPTIONS))
        assert place.leftovers() == set()
        ids = {s["snapshot-id"] for s in json.loads(Path(place.current()).read_bytes())["snapshots"]}
        assert ids == set(REFS.values())
        assert not place.journal.exists()
    print(f"{in_the_middle} of {budget} kills found an operation under way")
    assert in_the_middle


@few_or_many(2, all_of=30)
def test_a_process_that_is_stopped_and_goes_on_after_another_took_its_work_over_harms_nothing(
    tmp_path: Path, budget: int
) -> None:
    place = a_place(tmp_path, catalog=False)
    copy = tmp_path / "copy"
    shutil.copytree(place.folder.parent, copy)
    taken_over = 0
    for number in range(budget):
        place.restore(copy)
        process = place.start("expire-snapshots", place.name, *OPTIONS)
        wait_for_record(place, process, number % 6)
        process.send_signal(signal.SIGSTOP)
        taken_over += place.journal.exists()
        taking_over = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, "resume", place.name],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert taking_over.returncode == 0, taking_over.stderr
        place.check()
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=120) in (0, REFUSED), number  # taken over, or done before it was stopped
        place.check()
        done(iceberg_cli("expire-snapshots", place.name, *OPTIONS))
        assert place.leftovers() == set()
    print(f"{taken_over} of {budget} were taken over")
    assert taken_over
