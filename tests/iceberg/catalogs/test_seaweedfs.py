"""Tables in the catalog of SeaweedFS, which writes metadata by iceberg-go and not by Iceberg Java."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException

from iceberg_cli.testing.conformance.catalogs import CatalogConformance
from iceberg_cli.testing.conformance.rewriting import RewritingConformance
from tests.budget import FULL
from tests.cli.running import Ran, iceberg_cli
from tests.iceberg.catalogs.test_lost_fields import check_refused, register_changed
from tests.iceberg.catalogs.test_rest import Lake, OfTests, a_lake, race
from tests.iceberg.catalogs.test_rest_tag_races import Race, files_of, play
from tests.iceberg.catalogs.test_verbs_on_s3 import EXPIRY, check, look
from tests.paths import besides_history
from tests.rest_servers import configuration_of, empty_table_of_integers, pyiceberg_options_of
from tests.seaweedfs import SeaweedFS
from tests.spark_tables import Lake as SparkLake
from tests.spark_tables import Shape, insert, write
from tests.spark_tables.lake import JOURNAL
from tests.spark_tables.s3_lake import S3Lake, configured

DAY_MS = 86_400_000


@pytest.fixture
def lake(seaweedfs: SeaweedFS) -> Iterator[Lake]:
    """A table of three snapshots behind a front of the server."""
    with a_lake(seaweedfs.uri, None, pyiceberg_options_of(seaweedfs), seaweedfs.catalog_options) as made:
        yield made


@dataclass(frozen=True)
class Command:
    """Our command line on the table of a lake."""

    lake: Lake
    folder: Path

    def __call__(self, verb: str, *arguments: object) -> Ran:
        config = self.folder / "pyiceberg.yaml"
        properties = {"uri": self.lake.front.uri, **self.lake.options, **self.lake.properties}
        config.write_text(configuration_of("prod", properties))
        more = ("--catalog-config", config, "--no-cache", "--format", "json", "--no-progress")
        return iceberg_cli(verb, f"prod.{self.lake.namespace}.inner.t", *arguments, *more)


@pytest.fixture
def command(lake: Lake, tmp_path: Path) -> Command:
    return Command(lake, tmp_path)


def values(table: Any, snapshot_id: int | None = None) -> list[int]:
    found: list[int] = table.scan(snapshot_id=snapshot_id).to_arrow()["i"].to_pylist()
    return sorted(found)


@pytest.mark.deep
def test_an_expiry_leaves_rows_refs_and_their_files_and_no_others(lake: Lake, command: Command) -> None:
    second = lake.table.metadata.snapshots[1].snapshot_id
    lake.table.manage_snapshots().create_tag(second, "kept", max_ref_age_ms=9 * DAY_MS).commit()
    lake.table.overwrite(pa.table({"i": [7]}))
    before = lake.table
    ran = command(*EXPIRY, "--yes")
    assert (ran.code, ran.json["status"]) == (0, "done"), ran.err
    table = lake.table
    assert table.metadata.refs == before.metadata.refs
    assert {each.snapshot_id for each in table.metadata.snapshots} == {
        second,
        before.metadata.current_snapshot_id,
    }
    assert (values(table), values(table, second)) == ([7], [0, 1])
    there = besides_history(lake.storage.paths(lake.storage.canonical(table.location())))
    assert {path for path in there if not path.endswith(".metadata.json")} == {
        file for snapshot in table.metadata.snapshots for file in files_of(table, snapshot)
    }


@pytest.mark.deep
def test_no_verb_commits_to_a_table_of_which_the_server_would_lose_something(
    lake: Lake, tmp_path: Path
) -> None:
    snapshots = [each.model_dump(by_alias=True, exclude_none=True) for each in lake.table.metadata.snapshots]
    later = [{**each, "later": 1} for each in snapshots]
    register_changed(lake, "later", {"snapshots": later})
    check_refused(lake, "later", tmp_path, "snapshots.later")


# Many writers


@pytest.fixture
def catalog(seaweedfs: SeaweedFS) -> OfTests:
    """A table of one version."""
    identifier, options = (f"n{uuid.uuid4().hex}", "t"), pyiceberg_options_of(seaweedfs)
    more = seaweedfs.catalog_options
    theirs, _ = empty_table_of_integers(seaweedfs.uri, identifier[:1], None, {**options, **more}, {})
    return OfTests({"uri": seaweedfs.uri, **more}, theirs, identifier, options)


@pytest.mark.deep
class TestSeaweedFS(CatalogConformance):
    """Every sentence about catalogs."""


@pytest.mark.deep
class TestRewriting(RewritingConformance):
    """Every sentence about rows that are rewritten."""


@pytest.mark.deep
def test_racing_writers_lose_no_commit(lake: Lake) -> None:
    assert race(lake, **({"writers": 16, "commits": 40} if FULL else {"writers": 8, "commits": 3})) > 0


@pytest.mark.deep
def test_what_others_append_while_snapshots_expire_is_there(lake: Lake, command: Command) -> None:
    numbers, stop = count(100), Event()
    acknowledged: list[int] = []
    codes: list[int] = []

    def write(pause_s: float) -> None:
        while not stop.wait(pause_s):
            number = next(numbers)
            try:
                lake.table.append(pa.table({"i": [number]}))
            except (CommitFailedException, ValidationException):  # the latter: its base has expired meanwhile
                continue
            acknowledged.append(number)

    # Where pauses are shorter than an attempt, no expiry comes in: each gives up (12).
    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, pause_s) for pause_s in (1.0, 1.5, 2.0)]
        try:
            while len(codes) < (40 if FULL else 8) or len(acknowledged) < 3:
                codes.append(command(*EXPIRY, "--yes").code)
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    assert 0 in codes
    assert set(codes) <= {0, 12}
    assert {0, 1, 2, *acknowledged} <= set(values(lake.table))
    assert command("inspect", "--check", "--deep").code == 0


@pytest.mark.deep
def test_a_seen_tag_stays_and_no_file_of_another_is_deleted(lake: Lake, tmp_path: Path) -> None:
    play(Race(lake, tmp_path), 200 if FULL else 12)


# Every verb


@dataclass(frozen=True, kw_only=True)
class SeaweedLake(S3Lake):
    """The catalog as Spark, PyIceberg and our program have it configured; its objects are on no disk as files."""

    def kept_at(self, location: str) -> str:
        return location

    def metadata(self, table: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.s3.storage.read(self.metadata_location(table)))
        return document

    def files(self, table: str) -> set[str]:
        return {path for path in self._objects(table) if JOURNAL not in path.split("/")}

    def journals(self, table: str) -> list[str]:
        return [path for path in self._objects(table) if f"/{JOURNAL}/ops/" in path]

    def _objects(self, table: str) -> Iterator[str]:
        return self.s3.storage.paths(str(self.java(table).location()))


@pytest.fixture(scope="session")
def seaweed_lake(
    live_lakes: dict[str, SparkLake], seaweedfs: SeaweedFS, tmp_path_factory: pytest.TempPathFactory
) -> SeaweedLake:
    folder = tmp_path_factory.mktemp("seaweedfs")
    both = {"type": "rest", "uri": seaweedfs.uri, **seaweedfs.catalog_options}
    known = configured(live_lakes, "seaweedfs", seaweedfs, folder, java=both, pyiceberg=both)
    return SeaweedLake(warehouse=folder, **known)


@pytest.mark.deep
@pytest.mark.jvm
def test_each_verb_leaves_rows_history_and_files_as_others_need_them(
    seaweed_lake: SeaweedLake, tmp_path: Path
) -> None:
    lake, table = seaweed_lake, "t"
    shape = Shape(version=2, by="k").then(
        insert(0, 9),
        "ALTER TABLE {t} CREATE TAG first RETAIN 365 DAYS",
        insert(10, 19),
        "DELETE FROM {t} WHERE id = 3",
    )
    write(lake, table, shape)
    for verb, *options in (
        ("rewrite-manifests",),
        ("upgrade-v3", "--with", "merge-dvs,assign-row-ids"),
        ("merge-dvs", "--min-files", "2"),
    ):
        before = look(lake, table)
        assert lake.verb(verb, table, *options)["status"] == "done"
        check(lake, table, before, removes_snapshots=False)
        lake.sql(table, "DELETE FROM {t} WHERE id IN (SELECT max(id) FROM {t})")
    before = look(lake, table)
    plan = tmp_path / "a.plan"
    code, _ = lake.cli("plan", lake.argument(table), *EXPIRY, "--clean-metadata", "-o", plan)
    assert code == 0
    code, report = lake.cli("apply", str(plan), "--yes")
    assert (code, report["status"]) == (0, "done"), report
    check(lake, table, before, removes_snapshots=True)
