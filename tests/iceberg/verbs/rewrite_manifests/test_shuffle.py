"""rewrite-manifests whose new manifests are written by workers: what they hold is what one process writes.

The reader is fastavro, with the specification's rules of inheritance (`tests/manifest_tables.py`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.verbs.rewrite_manifests.build import ManifestBuild
from iceberg_cli.iceberg.verbs.rewrite_manifests.rules import Rewrite
from iceberg_cli.plan.plan import StagedFile
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING
from tests.manifest_tables import (
    BY_ONE,
    KIB,
    VERB,
    Manifests,
    Opened,
    avro,
    entry,
    live_entries,
    policy,
    spec,
)
from tests.shuffling import AdversarialEngine, Engines

WHOLE = spec()


class Driver(LocalStorage):
    """Local files, of which this process writes no new manifest."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """See `Storage.put_if_absent`."""
        assert "-spec0-" not in path
        super().put_if_absent(path, data)


def a_table(
    folder: Path,
    version: int = 2,
    by: dict[str, Any] = BY_ONE,
    *,
    files: int = 400,
    manifests: int = 8,
    codec: str = "deflate",
    **values: Any,
) -> Opened:
    """Files of 20 partitions, strewn over manifests; some existed before, and some are deleted."""
    lot = Manifests(spec=by, format_version=version, storage=LocalStorage(), location=str(folder), **values)
    numbers = random.Random(7)
    for number in range(manifests):
        row = {"first_row_id": number << 32} if version > 2 else {}
        lot.add(*(a_file(numbers, by) for _ in range(files // manifests)), codec=codec, **row)
    found = lot.table(next_row_id=1 << 40)
    found.table.storage = Driver()
    return found


def a_file(numbers: random.Random, by: Mapping[str, Any]) -> dict[str, Any]:
    partition = {"p1": numbers.choice([None, *range(-9, 10)])} if by["fields"] else {}
    path = f"/lake/data/{numbers.getrandbits(200):050x}.parquet"
    status = numbers.choices([ADDED, EXISTING, DELETED], [8, 3, 1])[0]
    return entry(status, path, partition=partition, record_count=numbers.randrange(1_000_000))


def planned(table: Opened, **values: Any) -> Rewrite:
    (found,) = table.prepare(VERB, policy(**values)).build.rewrites
    return found


def built(table: Opened, rewrite: Rewrite, engine: Any, name: str, *only: int) -> list[StagedFile]:
    """Write the new manifests, or only some, with an engine."""
    table.table.use(engine)
    if isinstance(engine, LocalEngine) and not isinstance(engine, AdversarialEngine):
        table.table.storage = LocalStorage()
    targets = only or range(len(rewrite.tasks))
    paths = {
        number: f"{table.metadata()['location']}/metadata/{name}-spec0-{number}.avro" for number in targets
    }
    staged = ManifestBuild(table=table.table, rewrite=rewrite, paths=paths).run()
    assert [staged[rewrite.tasks[number]].path for number in targets] == [*paths.values()]
    return [staged[rewrite.tasks[number]] for number in targets]


def stated(staged: StagedFile) -> tuple[list[str], dict[str, Any]]:
    """The entries of a new manifest, and what the list is to say of them; not how well it compressed."""
    data = Path(staged.path).read_bytes()
    assert staged.row["manifest_length"] == len(data)
    row = {key: value for key, value in staged.row.items() if key not in ("manifest_path", "manifest_length")}
    return sorted(map(repr, avro(data))), row


# -- the same as in one process ------------------------------------------------------------------------------------


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("by", "values", "several"),
    [
        (BY_ONE, {"target_size": 6 * KIB}, True),
        (WHOLE, {"target_size": 6 * KIB}, True),
        (BY_ONE, {}, False),
    ],
    ids=["sorted", "unsorted", "one"],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_new_manifest_holds_the_entries_that_one_process_gives_it(
    workers: Engines,
    tmp_path: Path,
    version: int,
    by: dict[str, Any],
    values: dict[str, Any],
    several: bool,
) -> None:
    table = a_table(tmp_path, version, by)
    rewrite = planned(table, **values)
    assert (len(rewrite.tasks) > 2) == several
    apart = [stated(each) for each in built(table, rewrite, workers(), "apart")]
    here = [stated(each) for each in built(table, rewrite, LocalEngine(LocalStorage()), "here")]
    assert apart == here
    assert sum(len(entries) for entries, _ in apart) == len(live_entries(table))


def test_a_table_that_workers_rewrote_reads_as_before(workers: Engines, tmp_path: Path) -> None:
    table = a_table(tmp_path, 3)
    before = live_entries(table)
    table.table.use(workers())
    report = table.apply(table.prepare(VERB, policy(target_size=6 * KIB)))
    assert report.counts["rewritten_manifests_count"] == 8
    assert report.counts["added_manifests_count"] > 2
    assert live_entries(table) == before
    assert all("-spec0-" in row["manifest_path"] for row in table.manifests())


@pytest.mark.deep
def test_manifests_that_several_tasks_read_come_together(workers: Engines, tmp_path: Path) -> None:
    table = a_table(tmp_path, files=20_000, manifests=12, codec="null")
    assert sum(row["manifest_length"] for row in table.manifests()) > 2 << 20
    rewrite = planned(table, target_size=256 * KIB)
    assert len(rewrite.tasks) > 2
    apart = [stated(each) for each in built(table, rewrite, workers(), "apart")]
    here = [stated(each) for each in built(table, rewrite, LocalEngine(LocalStorage()), "here")]
    assert apart == here


def test_only_the_manifests_that_are_wanted_are_written(workers: Engines, tmp_path: Path) -> None:
    table = a_table(tmp_path)
    rewrite = planned(table, target_size=6 * KIB)
    last = len(rewrite.tasks) - 1
    some = [stated(each) for each in built(table, rewrite, workers(), "some", 1, last)]
    every = [stated(each) for each in built(table, rewrite, LocalEngine(LocalStorage()), "here")]
    assert some == [every[1], every[last]]
    assert len([*(tmp_path / "metadata").glob("some-*")]) == 2


# -- twice, and another's ------------------------------------------------------------------------------------------


def test_the_same_work_done_again_finds_its_own_files(workers: Engines, tmp_path: Path) -> None:
    table = a_table(tmp_path)
    rewrite = planned(table, target_size=6 * KIB)
    found = []
    for _ in range(2):
        staged = built(table, rewrite, workers(), "new")
        files = [(Path(each.path).read_bytes(), os.stat(each.path).st_ino) for each in staged]
        found.append((staged, files))
    assert found[0] == found[1]


def test_the_order_in_which_parts_arrive_changes_no_byte(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    rewrite = planned(table, target_size=6 * KIB)
    found = [
        [
            Path(each.path).read_bytes()
            for each in built(table, rewrite, AdversarialEngine(LocalStorage(), seed=seed), f"new{seed}")
        ]
        for seed in range(4)
    ]
    assert found == found[:1] * 4


def test_a_file_of_others_under_one_of_the_names_is_an_error_and_stays(
    workers: Engines, tmp_path: Path
) -> None:
    table = a_table(tmp_path)
    rewrite = planned(table, target_size=6 * KIB)
    theirs = tmp_path / "metadata/new-spec0-1.avro"
    theirs.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        built(table, rewrite, workers(), "new")
    assert theirs.read_bytes() == b"theirs"


# -- fail closed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [BY_ONE, WHOLE], ids=["sorted", "unsorted"])
def test_a_manifest_that_is_gone_is_named(workers: Engines, tmp_path: Path, by: dict[str, Any]) -> None:
    table = a_table(tmp_path, by=by)
    rewrite = planned(table, target_size=6 * KIB)
    gone = table.manifests()[5]["manifest_path"]
    os.remove(gone)
    with pytest.raises(CorruptFile, match="the table needs this file and it is not there") as refused:
        built(table, rewrite, workers(), "new")
    assert refused.value.path == gone


@pytest.mark.parametrize("lost", [1, 2, 11])
@pytest.mark.parametrize("only", [(), (0, 1)], ids=["all", "some"])
def test_parts_that_do_not_arrive_stop_the_rewrite(tmp_path: Path, lost: int, only: tuple[int, ...]) -> None:
    table = a_table(tmp_path)
    rewrite = planned(table, target_size=6 * KIB)
    with pytest.raises(BackendUnavailable, match=r"workers wrote \d+ live files into \d new manifests, not"):
        built(table, rewrite, AdversarialEngine(LocalStorage(), lost=lost), "new", *only)


def test_manifests_that_do_not_come_back_stop_the_rewrite(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    rewrite = planned(table)
    with pytest.raises(BackendUnavailable, match="workers wrote 0 live files into 0 new manifests, not"):
        built(table, rewrite, AdversarialEngine(LocalStorage(), lost=8), "new")
