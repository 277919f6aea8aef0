"""Metadata files beside a table's own that are neither current nor in its log: what they reach stays."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import iceberg_cli as ic
from iceberg_cli.api import new_runtime
from iceberg_cli.plan.events import AnyEvent, FilesDeleted
from iceberg_cli.testing.iceberg_files import ADDED, EXISTING
from tests.cli.lakes import CatalogTable, catalog_table, listing, registered, rows
from tests.cli.running import Ran, iceberg_cli
from tests.hazard_tables import Hazard, entry

EVERYTHING = ("--older-than", "0s", "--retain-last", "1")
FORGET = "--unsafe-forget-metadata"


# -- a clone by register_table -------------------------------------------------------------------------------------


class Clone:
    """A second name for a catalog's table, under which rows were appended since."""

    def __init__(self, table: CatalogTable) -> None:
        catalog = self._catalog = table.catalog
        catalog.register_table("shop.clone", table.open().metadata_location)
        catalog.load_table("shop.clone").append(rows(100))

    def ids(self) -> list[int]:
        found: list[int] = self._catalog.load_table("shop.clone").scan().to_arrow()["id"].to_pylist()
        return sorted(found)

    @property
    def name(self) -> str:
        """Of its metadata file."""
        return self._catalog.load_table("shop.clone").metadata_location.rpartition("/")[2]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogTable:
    return catalog_table(tmp_path, monkeypatch, appends=5)


def test_a_clone_that_has_committed_since_keeps_its_files(table: CatalogTable) -> None:
    clone = Clone(table)
    table.open().overwrite(rows(7))
    time.sleep(0.01)
    done = iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--yes", "--format", "json")
    assert (done.code, done.json["status"]) == (0, "done")
    assert clone.ids() == [0, 1, 2, 3, 4, 100]
    assert table.ids() == [7]


def test_the_plan_says_what_stays_for_which_file_and_the_way_out(table: CatalogTable) -> None:
    clone = Clone(table)
    table.open().overwrite(rows(7))
    time.sleep(0.01)
    shown = iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--dry-run", "--format", "json").json
    (kept,) = (each for each in shown["verdicts"] if clone.name in each["reason"])
    (warning,) = (each for each in shown["warnings"] if clone.name in each)
    count, size_bytes = (int(text) for text in kept["id"].removesuffix(" bytes").split(" of "))
    assert kept["keep"]
    assert warning.startswith(f"{count:,} files, {size_bytes:,} bytes, stay")
    assert warning.endswith(f"{FORGET} {clone.name}")
    # The five data files, their manifests, and the lists that both have.
    assert count == 5 + 5 + 5
    alone = iceberg_cli(
        "expire-snapshots", table.name, *EVERYTHING, "--dry-run", "--format", "json", FORGET, clone.name
    ).json
    assert alone["removals"]["count"] == shown["removals"]["count"] + count
    assert alone["options"]["unsafe_forget_metadata"]["value"] == clone.name


def test_a_clone_that_somebody_vouches_for_is_forgotten(table: CatalogTable) -> None:
    clone = Clone(table)
    table.open().overwrite(rows(7))
    time.sleep(0.01)
    before = set(listing(table.folder))
    done = iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--yes", FORGET, clone.name)
    assert (
        done.code,
        f"vouches that no table needs what only these metadata files reach: {clone.name}" in done.out,
    ) == (
        0,
        True,
    )
    assert {path for path in before - set(listing(table.folder)) if path.startswith("data/")}
    assert table.ids() == [7]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("metadata/x.metadata.json", "is no name of a metadata file"),
        ("x.json", "is no name of a metadata file"),
        ("absent.metadata.json", "no metadata file of that name keeps files"),
        ("current", "it is the table's own"),
    ],
)
def test_a_name_that_cannot_be_forgotten_is_a_usage_error(table: CatalogTable, name: str, why: str) -> None:
    Clone(table)
    current = table.open().metadata_location.rpartition("/")[2]
    ran = iceberg_cli("expire-snapshots", table.name, "--yes", FORGET, current if name == "current" else name)
    assert (ran.code, why in ran.err) == (2, True)


def test_it_is_about_one_table(table: CatalogTable) -> None:
    ran = iceberg_cli("survey", "lake.shop", FORGET, "x.metadata.json")
    assert (ran.code, "one table" in ran.err) == (2, True)


def test_a_clone_that_comes_between_plan_and_sweep_keeps_its_files(
    table: CatalogTable, tmp_path: Path
) -> None:
    base = table.open().metadata_location
    table.open().overwrite(rows(7))
    time.sleep(0.01)
    plan = tmp_path / "plan"
    assert iceberg_cli("plan", table.name, "expire-snapshots", *EVERYTHING, "-o", plan).code == 0
    table.catalog.register_table("shop.clone", base)
    table.catalog.load_table("shop.clone").append(rows(100))
    assert iceberg_cli("apply", plan, "--yes").code == 0
    found = table.catalog.load_table("shop.clone").scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == [0, 1, 2, 3, 4, 100]


def test_a_clone_that_comes_between_two_batches_of_a_sweep_keeps_the_files_of_the_second(
    table: CatalogTable,
) -> None:
    base = table.open().metadata_location
    table.open().overwrite(rows(7))
    time.sleep(0.01)
    left: list[set[str]] = []

    def hear(event: AnyEvent) -> None:
        if isinstance(event, FilesDeleted) and not left:
            left.append(set(listing(table.folder)))
            table.catalog.register_table("shop.clone", base)
            with table.catalog.load_table("shop.clone").transaction() as transaction:
                transaction.set_properties({"whose": "clone"})

    opened = ic.open_table(table.name)
    plan = opened.plan(ic.iceberg.ExpireSnapshots(older_than="0s", retain_last=1))
    runtime = replace(new_runtime(on_event=hear), sweep_batch=2, quick_batch_ms=0)
    assert plan.removals.count > 4
    report = opened.apply(plan, runtime=runtime)
    # Five data files, their manifests, and the lists that both have, without the two that were gone by then.
    assert (report.status, report.kept_again) == ("done", 5 + 5 + 5 - 2)
    assert {path for path in left[0] if path.startswith("data/")} <= set(listing(table.folder))


def test_a_clone_keeps_its_files_from_an_operation_that_is_resumed(table: CatalogTable) -> None:
    base = table.open().metadata_location
    table.open().overwrite(rows(7))
    time.sleep(0.01)
    assert iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--yes", "--limit-deletes", "0").code in (
        0,
        2,
    )
    iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--yes", "--grace", "1s")
    table.catalog.register_table("shop.clone", base)
    table.catalog.load_table("shop.clone").append(rows(100))
    time.sleep(1)
    done = iceberg_cli("resume", table.name, "--format", "json")
    assert [report["status"] for report in done.json["reports"]] == ["done"]
    found = table.catalog.load_table("shop.clone").scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == [0, 1, 2, 3, 4, 100]


# -- commits under way ---------------------------------------------------------------------------------------------


class CommitUnderWay:
    """An append whose metadata file is written, and which the catalog has not taken yet."""

    def __init__(self, table: CatalogTable) -> None:
        self._table, self._before = table, table.open().metadata_location
        table.append(100)
        self._after = table.open().metadata_location
        self._point_to(self._before)

    @property
    def path(self) -> Path:
        return Path(self._after.removeprefix("file://"))

    def come_in(self) -> None:
        self._point_to(self._after)

    def _point_to(self, location: str) -> None:
        with closing(sqlite3.connect(self._table.database)) as connection, connection:
            connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))


def replaced(table: CatalogTable) -> set[str]:
    """Replace all rows; the data files that only older snapshots have then."""
    before = {path for path in listing(table.folder) if path.startswith("data/")}
    table.open().overwrite(rows(7))
    time.sleep(0.01)
    return before


def test_a_plan_is_carried_out_on_top_of_a_commit_that_was_under_way_when_it_was_made(
    table: CatalogTable, tmp_path: Path
) -> None:
    old, plan = replaced(table), tmp_path / "plan"
    commit = CommitUnderWay(table)
    assert iceberg_cli("plan", table.name, "expire-snapshots", *EVERYTHING, "-o", plan).code == 0
    commit.come_in()
    ran = iceberg_cli("apply", plan, "--yes")
    assert ran.code == 0, ran.err
    assert old.isdisjoint(listing(table.folder))
    assert table.ids() == [7, 100]


def test_what_it_reaches_is_told_and_stays_while_it_is_there(table: CatalogTable) -> None:
    old = replaced(table)
    commit = CommitUnderWay(table)
    shown = iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--dry-run", "--format", "json").json
    # Five data files, their manifests, and a list for each of five appends and of the deletion before the overwrite.
    count = shown["removals"]["count"]
    assert [
        text
        for text in shown["warnings"]
        if text.startswith(f"{count:,} files, ") and commit.path.name in text
    ]
    done = iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--yes", "--format", "json")
    assert (done.code, done.json["kept_again"]) == (0, count)
    assert old.issubset(listing(table.folder))


def test_what_only_one_that_failed_reached_goes(table: CatalogTable, tmp_path: Path) -> None:
    old, plan = replaced(table), tmp_path / "plan"
    commit = CommitUnderWay(table)
    assert iceberg_cli("plan", table.name, "expire-snapshots", *EVERYTHING, "-o", plan).code == 0
    commit.path.unlink()
    assert iceberg_cli("apply", plan, "--yes").code == 0
    assert old.isdisjoint(listing(table.folder))


def test_one_that_was_written_a_while_ago_is_a_root_for_the_plan_too(table: CatalogTable) -> None:
    replaced(table)
    commit = CommitUnderWay(table)
    os.utime(commit.path, (0, 0))
    shown = iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--dry-run", "--format", "json").json
    assert shown["removals"]["count"] == 0


def test_a_metadata_file_whose_end_is_not_written_yet_is_waited_for(table: CatalogTable) -> None:
    old = replaced(table)
    commit = CommitUnderWay(table)
    whole = commit.path.read_bytes()
    commit.path.write_bytes(whole[: len(whole) // 2])
    writer = threading.Timer(0.3, lambda: commit.path.write_bytes(whole))
    writer.start()
    ran = iceberg_cli("expire-snapshots", table.name, *EVERYTHING, "--dry-run", "--format", "json")
    writer.join()
    assert ran.code == 0, ran.err
    assert [text for text in ran.json["warnings"] if commit.path.name in text]
    assert old.issubset(listing(table.folder))


# -- which files are roots -----------------------------------------------------------------------------------------

GOES = {"data/gone", "metadata/m9.avro", "metadata/snap-9.avro"}


FOURTH, FIFTH = (f"0000{number}-11111111-2222-4333-8444-555555555555.metadata.json" for number in (4, 5))
UUID = "0b9bb5d1-8f0e-4c5c-9a8e-4a8b1c2d3e4f"
NAME = "lake.shop.t"


@pytest.fixture
def hazard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hazard:
    """A catalog's table at version 5, whose older snapshot alone reaches `gone`; its log begins at 4."""
    database = tmp_path / "catalog.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{database}")
    table = Hazard(location=str(tmp_path / "t"))
    live, gone = table.data("live", "gone")
    table.snapshot(9, table.manifest("m9", entry(ADDED, live), entry(ADDED, gone)))
    table.snapshot(1, table.manifest("m1", entry(EXISTING, live)), parent=9)
    table.publish(main=1, name=FOURTH)
    table.publish(main=1, name=FIFTH)
    current = document_of(table, FIFTH)
    first = Path(table.location) / "metadata" / FOURTH
    logged_ms = current["last-updated-ms"] - 10
    entries = [{"timestamp-ms": logged_ms, "metadata-file": str(first)}]
    put(table, FIFTH, current | {"metadata-log": entries})
    put(
        table,
        FOURTH,
        document_of(table, FOURTH) | {"last-updated-ms": entries[0]["timestamp-ms"]},
    )
    assert registered(database, f"{table.location}/metadata/{FIFTH}") == NAME
    return table


def expire(*arguments: object) -> Ran:
    return iceberg_cli("expire-snapshots", NAME, *EVERYTHING, "--yes", "--format", "json", *arguments)


def removed(table: Hazard, *arguments: object) -> set[str]:
    """What an expiry deletes, by path below the table's folder."""
    before = set(listing(Path(table.location)))
    ran = expire(*arguments)
    assert ran.code == 0, ran.out
    return before - set(listing(Path(table.location)))


def document_of(table: Hazard, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(table.location) / "metadata" / name).read_text())
    return found


def put(table: Hazard, name: str, document: dict[str, Any] | bytes) -> None:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    (Path(table.location) / "metadata" / name).write_bytes(data)


def beside(table: Hazard, name: str, *, later_ms: int = 0, **changed: Any) -> None:
    """Another version of the table, made so long after the oldest one that is logged."""
    document = document_of(table, FOURTH)
    document = {**document, "last-updated-ms": document["last-updated-ms"] + later_ms, **changed}
    put(table, name, {key: value for key, value in document.items() if value is not None})


@pytest.mark.parametrize(
    ("name", "later_ms", "stays"),
    [
        (f"00003-{UUID}.metadata.json", -1, False),  # a version that the log forgot
        (f"00003-{UUID}.metadata.json", 0, True),
        (f"00003-{UUID}.metadata.json", 1, True),  # of a catalog that counts again
        (f"00004-{UUID}.metadata.json", -1, True),
        (f"00007-{UUID}.metadata.json", 1, True),
        (f"{UUID}.metadata.json", -1, True),  # without a number
        (f"00007-{UUID}.metadata.json.bak", 1, False),  # no metadata file
    ],
)
def test_a_file_is_a_root_unless_its_number_and_its_time_are_before_the_log(
    hazard: Hazard, name: str, later_ms: int, stays: bool
) -> None:
    beside(hazard, name, later_ms=later_ms)
    assert removed(hazard) == (set() if stays else GOES)


def test_metadata_without_a_uuid_is_a_root_too(hazard: Hazard) -> None:
    beside(
        hazard, f"00007-{UUID}.metadata.json", **{"table-uuid": None, "format-version": 1, "schema": SCHEMA}
    )
    shown = expire("--dry-run")
    assert shown.code in (0, 15), shown.err
    assert set(listing(Path(hazard.location))) >= GOES


SCHEMA = {"type": "struct", "schema-id": 0, "fields": []}


def test_the_newest_of_a_lineage_stands_for_those_that_it_logs(hazard: Hazard) -> None:
    """An older version of the clone cannot be read any more, and does not have to be."""
    put(hazard, f"00006-{UUID}.metadata.json", b'{"format-version": 2, "table-uuid": "')
    log = [{"timestamp-ms": 1, "metadata-file": f"{hazard.location}/metadata/00006-{UUID}.metadata.json"}]
    beside(hazard, f"00007-{UUID}.metadata.json", later_ms=1, **{"metadata-log": log})
    assert removed(hazard) == set()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "content",
    [b'{"format-version": 2, "table-uuid": "', b"", b"[]"],
)
def test_one_that_cannot_be_read_stops_the_run_with_the_way_out(hazard: Hazard, content: bytes) -> None:
    name = f"00007-{UUID}.metadata.json"
    put(hazard, name, content)
    ran = expire()
    assert ran.code == 15
    assert (name in ran.json["message"], f"{FORGET} {name}" in ran.json["next"]) == (True, True)
    assert removed(hazard, FORGET, name) == GOES


def test_a_scrap_under_a_name_that_no_reader_looks_for_is_no_root(hazard: Hazard) -> None:
    put(hazard, f"{UUID}.metadata.json", b'{"format-ver')
    assert removed(hazard) == GOES


def test_what_a_root_names_and_is_gone_is_needed_no_more(hazard: Hazard) -> None:
    """Earlier runs may have deleted it: of snapshot 8 nothing is there."""
    document = document_of(hazard, FOURTH)
    lost = {
        **document["snapshots"][0],
        "snapshot-id": 8,
        "manifest-list": f"{hazard.location}/metadata/snap-8.avro",
    }
    beside(hazard, f"00006-{UUID}.metadata.json", later_ms=1, snapshots=[lost, document["snapshots"][1]])
    assert removed(hazard) == GOES


def test_a_newer_format_version_beside_the_table_is_refused(hazard: Hazard) -> None:
    beside(hazard, f"00007-{UUID}.metadata.json", later_ms=1, **{"format-version": 4})
    ran = expire()
    assert (ran.code, FORGET in ran.json["next"]) == (11, True)


def test_a_run_that_deletes_nothing_reads_none(hazard: Hazard) -> None:
    put(hazard, f"00007-{UUID}.metadata.json", b"{")
    done = iceberg_cli("expire-snapshots", NAME, "--older-than", "9000d", "--yes")
    assert done.code == 0


def test_metadata_files_that_the_table_drops_stay_where_a_clone_logs_them(hazard: Hazard) -> None:
    current = document_of(hazard, FIFTH)
    current["properties"] |= {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    put(hazard, FIFTH, current)
    log = [{"timestamp-ms": 1, "metadata-file": f"{hazard.location}/metadata/{FOURTH}"}]
    beside(hazard, f"00007-{UUID}.metadata.json", later_ms=1, **{"metadata-log": log})
    before = set(listing(Path(hazard.location)))
    assert expire().code == 0
    assert before - set(listing(Path(hazard.location))) == set()
