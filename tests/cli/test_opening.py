"""One table under many names: links, relative paths and single files; copies, and tables that moved."""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.testing.delta_writer import NOW_MS, a_remove, an_add
from tests.cli.lakes import (
    AS_OF,
    AS_OF_MS,
    GONE,
    CatalogTable,
    catalog_table,
    edited,
    four_snapshots,
    listing_of_table,
    old_files,
)
from tests.cli.running import dry, expire, iceberg_cli
from tests.delta_opened import a_log

DAY_MS = 86_400_000
# Run in `shop/here`, where `up` is a link to `lake/db`: what `..` means after it, only the system can tell.
SPELLINGS = ["link/", "up/t", "up/../db/t", "./../../lake/./db//t/"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the table goes; the working folder has links to it."""
    here = tmp_path / "shop" / "here"
    here.mkdir(parents=True)
    (tmp_path / "lake" / "db").mkdir(parents=True)
    (here / "up").symlink_to(tmp_path / "lake" / "db")
    (here / "link").symlink_to(tmp_path / "lake" / "db" / "t")
    (tmp_path / "link-to-lake").symlink_to(tmp_path / "lake")
    monkeypatch.chdir(here)
    return tmp_path / "lake" / "db" / "t"


def open_operations(name: object) -> list[dict[str, Any]]:
    ran = iceberg_cli("resume", name, "--list", "--format", "json")
    assert ran.code == 0, ran.err
    found: list[dict[str, Any]] = ran.json["operations"]
    return found


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_iceberg_table_is_the_same_by_every_name_that_leads_to_its_folder(
    folder: Path, spelling: str
) -> None:
    table = four_snapshots(folder)
    table.publish()
    with table.loses(GONE):
        assert dry(spelling, *AS_OF)["table"]["name"] == str(folder)
        expire(spelling, *AS_OF, "--limit-deletes", "1")
        (operation,) = open_operations(folder)
        assert open_operations(spelling) == [operation]
        assert iceberg_cli("resume", spelling).code == 0
    assert open_operations(folder) == []


def test_an_iceberg_table_is_the_same_by_its_real_name_where_its_own_has_a_link(folder: Path) -> None:
    table = four_snapshots(folder.parent.parent.parent / "link-to-lake" / "db" / "t")
    table.publish()
    with table.loses(GONE):
        assert dry(str(folder), *AS_OF)["table"]["name"] == str(table.folder)
        expire(str(folder), *AS_OF)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_delta_table_is_the_same_by_every_name_that_leads_to_its_folder(
    folder: Path, spelling: str
) -> None:
    removed = [a_remove(path=name, deletionTimestamp=AS_OF_MS - 20 * DAY_MS) for name in ("b", "c")]
    through_link = an_add(path=f"file:{Path.cwd()}/link/absolute")
    age_ms = NOW_MS - AS_OF_MS + 20 * DAY_MS
    a_log(folder, [an_add(path="a"), through_link], removed, age_ms=age_ms)
    old_files(folder, "a", "b", "c", "absolute")
    assert dry(spelling, *AS_OF)["table"]["name"] == str(folder)
    expire(spelling, *AS_OF, "--limit-deletes", "1")
    (operation,) = open_operations(folder)
    assert open_operations(spelling) == [operation]
    assert iceberg_cli("resume", spelling).code == 0
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["a", "absolute"]


@pytest.mark.parametrize(
    ("working", "name"),
    [
        ("t", "metadata/v1.metadata.json"),
        ("t", "./metadata/v1.metadata.json"),
        ("t/metadata", "v1.metadata.json"),
        ("t/metadata", "./v1.metadata.json"),
        ("t/data", "../metadata/v1.metadata.json"),
        ("../../shop/here", "link/metadata/v1.metadata.json"),
    ],
)
def test_a_metadata_file_is_one_of_its_table_by_every_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, working: str, name: str
) -> None:
    four_snapshots(folder).publish()
    (folder / "data").mkdir(exist_ok=True)
    monkeypatch.chdir(folder.parent / working)
    ran = iceberg_cli("expire-snapshots", name, *AS_OF, "--dry-run", "--format", "json")
    assert ran.json["table"]["name"] == f"{folder}/metadata/v1.metadata.json"
    (reason,) = ran.json["blocked_by"]
    assert "is one metadata file" in reason


def test_a_name_that_no_file_has_is_a_catalogs(folder: Path) -> None:
    ran = iceberg_cli("inspect", "v1.metadata.json")
    assert ran.code == 2
    assert "catalog v1" in ran.err


def test_a_copy_is_a_copy_by_every_name(folder: Path) -> None:
    four_snapshots(folder).publish()
    shutil.copytree(folder, folder.parent / "copy")
    for name in ("up/copy", "../../lake/db/copy", folder.parent / "copy"):
        ran = iceberg_cli("expire-snapshots", name, *AS_OF, "--yes")
        assert ran.code == 11
        assert f"/copy is a copy: the table's own location is {folder}" in ran.err


@pytest.mark.parametrize("option", [(), ("--abandon",)])
def test_an_open_operation_of_a_copy_is_left_alone(folder: Path, option: tuple[str, ...]) -> None:
    four_snapshots(folder).publish()
    expire(str(folder), *AS_OF, "--limit-deletes", "1")
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    before = listing_of_table(copy)
    ran = iceberg_cli("resume", copy, *option)
    assert ran.code == 11, ran.err
    assert "is a copy" in ran.err
    assert "Traceback" not in ran.err
    assert listing_of_table(copy) == before
    assert len(open_operations(copy)) == 1


# -- tables that moved -----------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogTable:
    return catalog_table(tmp_path, monkeypatch, appends=3)


def move(lake: CatalogTable, location: str, **properties: str) -> None:
    """Set the table's location, as ALTER TABLE ... SET LOCATION does: its files stay, new ones go elsewhere."""
    before = lake.open().metadata_location
    document = json.loads(Path(before.removeprefix("file://")).read_text())
    entry = {"metadata-file": before, "timestamp-ms": document["last-updated-ms"]}
    document |= {"location": location, "metadata-log": [*document.get("metadata-log", []), entry]}
    document["properties"] |= properties
    folder = document["properties"].get("write.metadata.path", f"{location}/metadata")
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = f"{folder}/00009-{uuid.uuid4()}.metadata.json"
    Path(path).write_text(json.dumps(document))
    with closing(sqlite3.connect(lake.database)) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (path,))


@pytest.mark.parametrize("metadata_path", [None, "elsewhere"])
def test_an_open_operation_is_found_where_the_table_was_when_it_began(
    lake: CatalogTable, tmp_path: Path, metadata_path: str | None
) -> None:
    if metadata_path is not None:
        move(lake, str(lake.folder), **{"write.metadata.path": f"{tmp_path}/{metadata_path}"})
    expire(lake.name, "--older-than", "0s", "--retain-last", "1", "--limit-deletes", "1")
    (operation,) = open_operations(lake.name)
    here = lake.open().metadata.location.removeprefix("file://")
    move(lake, f"{tmp_path}/moved")
    (found,) = open_operations(lake.name)
    assert found["operation_id"] == operation["operation_id"]
    assert f"the table was at {here} then, and is at {tmp_path}/moved now" in found["message"]
    left = set(lake.folder.glob("metadata/snap-*"))
    ran = iceberg_cli("resume", lake.name)
    assert ran.code == 11
    assert f"`resume` with --unsafe-allow-root {here} goes on with it" in " ".join(ran.err.split())
    assert set(lake.folder.glob("metadata/snap-*")) == left
    ran = iceberg_cli("resume", lake.name, "--unsafe-allow-root", here)
    assert ran.code == 0, ran.err
    assert len(set(lake.folder.glob("metadata/snap-*"))) == 1
    assert open_operations(lake.name) == []
    assert lake.ids() == [0, 1, 2]


def test_an_open_operation_of_a_table_that_moved_can_be_abandoned(lake: CatalogTable, tmp_path: Path) -> None:
    expire(lake.name, "--older-than", "0s", "--retain-last", "1", "--limit-deletes", "1")
    move(lake, f"{tmp_path}/moved")
    left = set(lake.folder.glob("metadata/snap-*"))
    assert iceberg_cli("resume", lake.name, "--abandon").code == 0
    assert open_operations(lake.name) == []
    assert set(lake.folder.glob("metadata/snap-*")) == left


def test_the_operations_of_another_table_that_is_where_the_table_was_are_its_own(
    lake: CatalogTable, tmp_path: Path
) -> None:
    move(lake, f"{tmp_path}/moved")
    other = four_snapshots(lake.folder)
    other.publish()
    shutil.move(lake.folder / "metadata", tmp_path / "aside")
    shutil.copytree(tmp_path / "aside", lake.folder / "metadata", ignore=shutil.ignore_patterns("0000*"))
    expire(str(lake.folder), *AS_OF, "--limit-deletes", "1")
    assert len(open_operations(lake.folder)) == 1
    assert open_operations(lake.name) == []


def test_a_table_whose_location_ends_in_metadata_is_read_by_a_file_in_it(tmp_path: Path) -> None:
    """As some writers have it: the metadata files are in the location itself."""
    made = four_snapshots(tmp_path / "t")
    made.publish()
    path = tmp_path / "t" / "metadata" / "v1.metadata.json"
    with edited(path) as document:
        document["location"] = f"{tmp_path}/t/metadata"
    for place in (tmp_path / "t", tmp_path / "copy"):
        if not place.exists():
            shutil.copytree(tmp_path / "t", place)
            shutil.rmtree(tmp_path / "t")
        ran = iceberg_cli("inspect", place / "metadata" / "v1.metadata.json", "files", "--format", "json")
        assert ran.code == 0, ran.err
        assert len(ran.json["rows"]) == 3


# -- what is no table ------------------------------------------------------------------------------------------


def stated(name: object, code: int) -> str:
    ran = iceberg_cli("inspect", name)
    assert ran.code == code, ran.out + ran.err
    return " ".join(ran.err.split())


@pytest.mark.parametrize("location", ["", " ", "file:"])
def test_a_location_that_names_no_folder_is_an_error_of_the_metadata(tmp_path: Path, location: str) -> None:
    four_snapshots(tmp_path / "t").publish()
    path = tmp_path / "t" / "metadata" / "v1.metadata.json"
    with edited(path) as document:
        document["location"] = location
    assert f"Cannot read {path}, location: a folder is expected, not {location!r}" in stated(
        tmp_path / "t", 15
    )


def test_a_file_that_is_no_metadata_file_is_called_one(folder: Path) -> None:
    four_snapshots(folder).publish()
    other = folder / "metadata" / "other.json"
    other.write_text("{}")
    for name in (other, "link/metadata/other.json", f"file://{other}"):
        message = stated(name, 10)
        assert (
            f"Cannot open {Path.cwd() / name if name == 'link/metadata/other.json' else other}: it is a file"
            in message
        )
        assert "ends in .metadata.json or .metadata.json.gz" in message


def test_what_is_not_there_and_a_metadata_folder_are_told_from_an_empty_table(folder: Path) -> None:
    four_snapshots(folder).publish()
    assert f"Cannot find a table at {folder}/absent.json: no file is there" in stated(
        folder / "absent.json", 10
    )
    message = stated(folder / "metadata", 10)
    assert f"{folder}/metadata: it is the metadata folder of a table" in message
    assert f"Name the folder above it: {folder}" in message
    assert "metadata/ has no metadata file" in stated(folder / "data", 10)


# As Iceberg's view specification has it.
VIEW = {
    "view-uuid": "fa6506c3-7681-40c8-86dc-e36561f83385",
    "format-version": 1,
    "location": "/lake/shop/view",
    "current-version-id": 1,
    "properties": {},
    "versions": [
        {
            "version-id": 1,
            "timestamp-ms": 1,
            "schema-id": 1,
            "default-namespace": ["shop"],
            "summary": {},
            "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
        }
    ],
    "schemas": [{"schema-id": 1, "type": "struct", "fields": []}],
    "version-log": [{"timestamp-ms": 1, "version-id": 1}],
}


def test_the_metadata_of_a_view_is_called_a_views(tmp_path: Path) -> None:
    path = tmp_path / "view" / "metadata" / f"00000-{uuid.uuid4()}.gz.metadata.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(VIEW))
    for name in (tmp_path / "view", path):
        assert f"Cannot open {path}: it is the metadata of a view" in stated(name, 10)
