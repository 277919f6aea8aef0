"""Several verbs at once on one table: each ends as one that was alone, or says that another was faster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from iceberg_cli.demo import create_demo
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.crash.delta_reader import commits, state_at
from iceberg_cli.testing.crash.world import DELTA_TABLE
from iceberg_cli.testing.delta_writer import NOW_MS, a_remove, an_add
from iceberg_cli.testing.iceberg_files import DELETED, records
from iceberg_cli.testing.iceberg_reader import check_table
from tests.budget import few_or_many
from tests.cli.forking import Program, program
from tests.cli.lakes import AS_OF_MS, newest_metadata, old_files
from tests.cli.running import iceberg_cli
from tests.delta_opened import a_log

DAY_MS = 86_400_000
DONE, REFUSED, CONFLICT = 0, 11, 12


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A table, the verbs that are due on it, and how to read which data files its current version has."""

    table: Path
    verbs: tuple[tuple[str, ...], ...]
    data_files: Callable[[Path], set[str]]


def iceberg_files(table: Path) -> set[str]:
    """The data files of `main`; every file that the table needs is there."""
    newest = newest_metadata(table)
    document = json.loads(newest.read_bytes())
    refs = {name: ref["snapshot-id"] for name, ref in document["refs"].items()}
    check_table(open_storage(), str(newest), refs=refs)
    [main] = [each for each in document["snapshots"] if each["snapshot-id"] == refs["main"]]
    entries = [
        entry
        for manifest in records(Path(main["manifest-list"]).read_bytes())
        for entry in records(Path(manifest["manifest_path"]).read_bytes())
        if manifest["content"] == 0 and entry["status"] != DELETED
    ]
    return {entry["data_file"]["file_path"] for entry in entries}


def delta_files(table: Path) -> set[str]:
    """The files of the newest version, all of which are there."""
    files = {
        f"{DELTA_TABLE}/{path.relative_to(table)}": path.read_bytes()
        for path in table.rglob("*")
        if path.is_file()
    }
    state = state_at(files, max(commits(files)))
    assert state.needed() <= set(files)
    return {path for path, _ in state.adds}


def an_iceberg_lake(folder: Path) -> Lake:
    table = create_demo(str(folder), now_ms=AS_OF_MS).orders
    verbs = (
        ("expire-snapshots", "--older-than", "1d", "--retain-last", "1"),
        ("rewrite-manifests", "--min-manifests", "2"),
        ("merge-dvs", "--min-files", "1"),
        ("assign-row-ids",),
        ("expire-snapshots", "--older-than", "9d"),
    )
    return Lake(table=Path(table), verbs=verbs, data_files=iceberg_files)


def a_delta_lake(folder: Path) -> Lake:
    table = folder / "visits"
    names = [f"{number}.parquet" for number in range(6)]
    removed = [a_remove(path=name, deletionTimestamp=AS_OF_MS - 20 * DAY_MS) for name in names[:3]]
    age_ms = NOW_MS - AS_OF_MS + 20 * DAY_MS
    a_log(table, [an_add(path=name, size=4) for name in names], *([each] for each in removed), age_ms=age_ms)
    old_files(table, *names)
    verbs = (
        ("expire-snapshots",),
        ("rewrite-manifests", "--checkpoint", "classic"),
        ("upgrade-v3", "--feature", "rowTracking"),
        ("expire-snapshots", "--mode", "lite"),
        ("rewrite-manifests", "--checkpoint", "v2"),
    )
    return Lake(table=table, verbs=verbs, data_files=delta_files)


@pytest.fixture(scope="module")
def imported() -> Iterator[Program]:
    with program() as process:
        yield process


@pytest.mark.pairs
@few_or_many(2, many=12, all_of=50)
@pytest.mark.parametrize("named", [False, True], ids=["", "named temporaries"])
@pytest.mark.parametrize("make", [an_iceberg_lake, a_delta_lake], ids=["iceberg", "delta"])
def test_four_verbs_at_once_each_end_well_or_say_that_another_was_faster(
    tmp_path: Path, imported: Program, make: Callable[[Path], Lake], *, named: bool, budget: int
) -> None:
    lake = make(tmp_path / "lake")
    files = lake.data_files(lake.table)
    assert files
    shutil.copytree(lake.table, tmp_path / "copy")
    done = 0
    for number in range(budget):
        shutil.rmtree(lake.table)
        shutil.copytree(tmp_path / "copy", lake.table)
        chosen = [lake.verbs[(number + place) % len(lake.verbs)] for place in range(4)]
        lines = [
            (verb, lake.table, *options, "--as-of", AS_OF_MS, "--no-cache", "--yes")
            for verb, *options in chosen
        ]
        for line, ended in zip(lines, imported.race(*lines, named=named), strict=True):
            assert ended.code in (DONE, REFUSED, CONFLICT), (line, ended.code, ended.err)
            done += ended.code == DONE
        assert lake.data_files(lake.table) == files
        checked = iceberg_cli("inspect", lake.table, "--check")
        assert checked.code == 0, checked.out + checked.err
        assert iceberg_cli("resume", lake.table).code == 0
        assert not (lake.table / "_iceberg_cli" / "ops").exists()
        assert lake.data_files(lake.table) == files
    assert done > 2 * budget
