"""Ways in which removers of orphan files have deleted live ones, each a test: 27 incidents, and 44 hazards.

The numbers are those of the tables of incidents and of hazards in the project's reference on orphan files; hazards are
counted row by row, the left cell first. Each table here has a file that nobody names, which goes where anything may.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from iceberg_cli.errors import AccessDenied, BackendUnavailable, CorruptFile, Refused
from iceberg_cli.testing.crash.catalogs import SimCommitter
from iceberg_cli.testing.iceberg_files import ADDED, DELETED
from tests.builders import DAY_MS, HOUR_MS, NOW_MS, a_snapshot, a_statistics_file, a_tag
from tests.cli.lakes import CatalogTable, catalog_table, listing, registered, rows
from tests.cli.running import iceberg_cli
from tests.hazard_tables import Hazard, a_dv, entry
from tests.iceberg.verbs.remove_orphan_files.tables import (
    LIVE,
    OLD_MS,
    ORPHAN,
    SUBJECT,
    VERB,
    DiskTable,
    StoreTable,
    kept_by,
    make_old,
    name_of,
    time_s,
    uuid_of,
)
from tests.servers import S3Server

GOES = {f"data/{ORPHAN}"}
OTHER_UUID = "11111111-2222-4333-8444-555555555555"


def on_disk(folder: Path, **fields: Any) -> DiskTable:
    return DiskTable(location=str(folder / "lake" / "t"), **fields)


def in_store(location: str, **fields: Any) -> StoreTable:
    return StoreTable(location=location, **fields)


def spelled(location: str, other: str, *, stored: str = f"data/{SUBJECT}", said: str = "") -> set[str]:
    """What goes from a table that names a stored file of its own as if it were at another location."""
    table = in_store(location)
    table.put(stored)
    table.with_live(f"{other}/{said or stored}")
    return table.removed()


# -- incidents -----------------------------------------------------------------------------------------------------


def test_incident_01_old_files_of_a_job_that_still_writes(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.put(f"data/{name_of('job', 0)}")
    table.put(f"data/{name_of('job', 1)}", age_ms=HOUR_MS)
    assert table.removed() == GOES


@pytest.mark.parametrize(
    ("location", "other"),
    [
        ("hdfs://nn:8020/lake/t", "hdfs:/lake/t"),
        ("hdfs://nn:8020/lake/t", "hdfs:///lake/t"),
        ("hdfs://nn:8020/lake/t", "hdfs://nn/lake/t"),
    ],
    ids=["incident-02 without host", "incident-02 empty host", "incident-02 without port"],
)
def test_files_whose_name_node_is_not_written_down(location: str, other: str) -> None:
    assert spelled(location, other) == GOES


def test_incident_03_files_from_before_a_change_of_name_node() -> None:
    assert spelled("hdfs://new:8020/lake/t", "hdfs://old:8020/lake/t") == GOES


def test_incident_04_another_tables_metadata_on_one_location(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.put(f"metadata/{name_of('other', ending='-m0.avro')}")
    table.beside(f"00001-{OTHER_UUID}.metadata.json", table_uuid=OTHER_UUID)
    assert OTHER_UUID in table.refused()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[CatalogTable, str]:
    """A catalog's table, and the name of another one that was created with a copy of its DDL."""
    table = catalog_table(tmp_path, monkeypatch, appends=2)
    opened = table.open()
    copy = table.catalog.create_table("shop.copy", opened.schema(), location=opened.location())
    copy.append(rows(7))
    (table.folder / "data" / ORPHAN).write_bytes(b"ten bytes.")
    for path in table.folder.rglob("*"):
        make_old(path)
    return table, "lake.shop.copy"


@pytest.mark.parametrize(
    "which", ["table", "copy"], ids=["incident-05 the first", "incident-06 the second, by a service"]
)
def test_a_table_that_was_created_with_the_location_of_another(
    pair: tuple[CatalogTable, str], which: str
) -> None:
    table, copy = pair
    before = listing(table.folder)
    ran = iceberg_cli(VERB, table.name if which == "table" else copy, "--yes")
    assert (ran.code, "another table" in ran.err) == (11, True)
    assert listing(table.folder) == before


def test_incident_07_a_table_inside_anothers_root(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    for place in ("inner", "data/inner"):
        inner = DiskTable(location=f"{table.location}/{place}").with_live()
        inner.age()
    assert table.removed("--location", table.location) == GOES


@pytest.mark.parametrize(
    "moment", ["list", "listed"], ids=["incident-08 before the listing", "incident-11 after the listing"]
)
def test_files_that_are_committed_after_the_job_has_started(moment: str) -> None:
    table = in_store("s3://b/t").with_live()
    table.put(f"data/{SUBJECT}")

    def commit() -> None:
        table.snapshot(2, "m1", table.manifest("m2", entry(ADDED, f"s3://b/t/data/{SUBJECT}")))
        table.commit()

    process = table.process()
    process.table.load()
    table.storage.hooks[moment] = commit
    process.run()
    assert f"s3://b/t/data/{ORPHAN}" not in table.world.files
    assert {f"s3://b/t/data/{SUBJECT}", "s3://b/t/metadata/m2.avro"} <= set(table.world.files)


def test_incident_09_data_of_a_snapshot_that_a_stale_hint_does_not_know(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    [new] = table.data(SUBJECT)
    table.snapshot(2, "m1", table.manifest("m2", entry(ADDED, new)), parent=1)
    table.publish(main=2, name="v2.metadata.json")
    table.put("metadata/version-hint.text", data=b"1")
    table.age()
    assert table.removed() == GOES


def test_incident_10_a_cut_off_in_the_future(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.put(f"data/{SUBJECT}", age_ms=0)
    assert "future" in table.refused("--older-than", "2099-01-01", "--unsafe-allow-young", code=2)
    assert table.removed() == GOES


def test_incident_12_a_listing_that_fails_and_folders() -> None:
    table = in_store("s3://b/t").with_live()

    def fail() -> None:
        raise BackendUnavailable("Cannot list s3://b/t/data: 503")

    before = set(table.world.files)
    for moment in ("list", "listed"):
        table.storage.hooks[moment] = fail
        with pytest.raises(BackendUnavailable):
            table.process().run()
        assert set(table.world.files) == before
    assert table.removed() == GOES


def test_incident_13_a_manifest_list_whose_read_fails(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.file("snap-1").write_bytes(b"")
    make_old(table.file("snap-1"))
    table.refused(code=15)


def test_incident_14_files_of_branches(tmp_path: Path) -> None:
    table = on_disk(tmp_path)
    [of_branch, of_tag] = table.data(SUBJECT, name_of("tag"))
    table.snapshot(2, table.manifest("m2", entry(ADDED, of_branch)))
    table.snapshot(3, table.manifest("m3", entry(ADDED, of_tag)))
    table.fields["refs"] = {
        "main": {"snapshot-id": 1, "type": "branch"},
        "audit": {"snapshot-id": 2, "type": "branch"},
        "eom": a_tag(3),
    }
    table.with_live()
    assert table.removed() == GOES


@pytest.mark.parametrize(
    "written",
    [
        "file://{}//data/./{}",
        "file:{}/data//{}",
        "FILE://{}/./data/{}",
        "/.{}/data/{}",
        "file://host{}/data/{}",
    ],
)
def test_incident_15_files_that_are_listed_and_recorded_with_different_spellings(
    tmp_path: Path, written: str
) -> None:
    table = on_disk(tmp_path)
    table.put(f"data/{SUBJECT}")
    table.with_live(written.format(table.location, SUBJECT))
    assert table.removed() == GOES


def test_incident_16_files_whose_time_of_access_is_0(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.put(f"data/{SUBJECT}", age_ms=HOUR_MS)
    path = table.folder / "data" / SUBJECT
    os.utime(path, ns=(0, path.stat().st_mtime_ns))
    assert table.removed() == GOES


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("statistics", ".stats"), ("partition-statistics", ".parquet"), ("statistics", ".puffin")],
    ids=["incident-17", "incident-18", "incident-17 puffin"],
)
def test_statistics_files(tmp_path: Path, kind: str, ending: str) -> None:
    table = on_disk(tmp_path)
    name = name_of("statistics", ending=ending)
    orphan = f"metadata/{name_of('orphan statistics', ending=ending)}"
    table.put(f"metadata/{name}", orphan)
    statistics = a_statistics_file(1, f"{table.location}/metadata/{name}")
    if kind == "partition-statistics":
        statistics = {
            key: statistics[key] for key in ("snapshot-id", "statistics-path", "file-size-in-bytes")
        }
    table.with_live(**{kind: [statistics]})
    assert table.removed() == {*GOES, orphan}


def test_incident_19_azure_with_the_container_in_the_path() -> None:
    location, other = "abfss://c@acct.dfs.core.windows.net/t", "abfss://acct/c/t"
    assert spelled(location, other) == GOES


@pytest.mark.parametrize("slash", ["/", "//"])
def test_incident_20_a_slash_at_the_end_of_the_data_path(slash: str) -> None:
    table = in_store("s3://b/t", properties={"write.data.path": f"s3://b/t/data{slash}"})
    table.put(f"data/{SUBJECT}", f"s3://b/t/data/{slash[1:]}{name_of('2')}")
    table.with_live(f"s3://b/t/data{slash}{SUBJECT}", f"s3://b/t/data/{slash[1:]}{name_of('2')}")
    assert table.removed() == GOES


def test_incident_21_a_catalogs_database_in_the_data_path(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.put("data/catalog.db", "data/catalog.ducklake", "data/meta.sqlite-wal")
    assert table.removed() == GOES


@pytest.mark.parametrize("written", ["data/{}", "./data/{}", "{}"])
def test_incident_22_relative_paths_against_absolute_ones(tmp_path: Path, written: str) -> None:
    table = on_disk(tmp_path)
    table.put(f"data/{SUBJECT}")
    table.with_live(written.format(SUBJECT))
    assert table.removed() == GOES


def test_incident_23_a_sibling_whose_name_begins_alike(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    sibling = DiskTable(location=f"{table.location}2").with_live()
    table.put(f"data2/{SUBJECT}", f"metadata_old/{SUBJECT}")
    assert table.removed() == GOES
    assert (sibling.folder / "data" / ORPHAN).exists()


class Hiding(SimCommitter):
    """A catalog that shows one of several branches, as Nessie does."""

    def hidden_snapshots_reason(self) -> str | None:
        return "this catalog may have snapshots of other branches"


def test_incident_24_files_of_other_branches_of_the_catalog() -> None:
    table = in_store("s3://b/t").with_live()
    table.put(f"data/{SUBJECT}")
    process = table.process()
    process.committer_type = Hiding
    process.table = process.open()
    before = set(table.world.files)
    with pytest.raises(Refused, match="other branches"):
        process.run()
    assert set(table.world.files) == before


def test_incident_25_azures_two_hosts() -> None:
    location, other = "abfss://c@acct.dfs.core.windows.net/t", "wasbs://c@acct.blob.core.windows.net/t"
    assert spelled(location, other) == GOES
    assert spelled(other, location) == GOES


def test_incident_26_a_second_table_on_a_location_from_which_one_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch, appends=2)
    opened = table.open()
    table.catalog.drop_table("shop.events")
    table.catalog.create_table("shop.events", opened.schema(), location=opened.location()).append(rows(9))
    for path in table.folder.rglob("*"):
        make_old(path)
    before = listing(table.folder)
    ran = iceberg_cli(VERB, table.name, "--yes")
    assert (ran.code, "move its metadata files away" in ran.err) == (11, True)
    assert listing(table.folder) == before


def test_incident_27_doubled_slashes_the_hint_nested_tables_and_a_cut_listing(tmp_path: Path) -> None:
    table = on_disk(tmp_path)
    table.put(f"data/{SUBJECT}", "metadata/version-hint.text", data=b"1")
    DiskTable(location=f"{table.location}/data/inner").with_live()
    table.with_live(f"{table.location}//data//{SUBJECT}")
    assert table.removed() == GOES
    cut = in_store("s3://b/t").with_live()
    cut.storage.lie = lambda found: found[:1]
    before = set(cut.world.files)
    with pytest.raises(BackendUnavailable):
        cut.process().run()
    assert set(cut.world.files) == before


# -- hazards: how files are spelled ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "other"),
    [
        ("s3://b/t", "s3a://b/t"),
        ("s3a://b/t", "s3n://b/t"),
        ("s3://b/t", "S3A://b/t"),
        ("s3://b/t", "s3://access-point/t"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfs://c@a.dfs.core.windows.net/t"),
        ("abfs://c@a.dfs.core.windows.net/t", "wasb://c@a.blob.core.windows.net/t"),
        ("gs://b/t", "GS://b/t"),
    ],
)
def test_hazard_01_schemes(location: str, other: str) -> None:
    assert spelled(location, other) == GOES


@pytest.mark.parametrize(("location", "said"), [("s3", "s3a"), ("s3a", "s3"), ("s3n", "S3")])
def test_hazard_01_schemes_of_a_real_service(
    versitygw: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, said: str
) -> None:
    """With names that requests, listings and answers write in other ways."""
    rest = f"://{versitygw.bucket}/orphans/{location}"
    table = Hazard(location=location + rest, storage=versitygw.storage)
    odd = ["a b.parquet", "a+b.parquet", "50%25.parquet", "k\u00e9y&<x>.parquet", "k=1/x=a%2Fb/y.parquet"]
    table.data(LIVE, ORPHAN, *odd, *(f"{each}.orc" for each in odd), "_SUCCESS")
    live = [entry(ADDED, f"{said}{rest}/data/{each}") for each in (LIVE, *odd)]
    table.snapshot(1, table.manifest("m1", *live))
    registered(tmp_path / "c.db", table.publish(main=1, name="00000-a.metadata.json"))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/c.db")
    options = [part for item in versitygw.options.items() for part in ("--storage-option", "=".join(item))]

    def stored() -> set[str]:
        return {info.path.partition("/data/")[2] for info in versitygw.storage.list(f"s3{rest}/data")}

    before = stored()
    now = ("--older-than", "0s", "--unsafe-allow-young")
    ran = iceberg_cli(VERB, "lake.shop.t", "--yes", *now, *options)
    assert ran.code == 0, ran.err
    assert before - stored() == {ORPHAN, *(f"{each}.orc" for each in odd)}


def test_hazard_02_branches_tags_staged_and_rolled_back_snapshots(tmp_path: Path) -> None:
    table = on_disk(tmp_path)
    names = [name_of(each) for each in ("branch", "tag", "staged", "rolled back")]
    for number, path in enumerate(table.data(*names), 2):
        table.snapshot(number, table.manifest(f"m{number}", entry(ADDED, path)))
    table.snapshots[-2]["summary"] |= {"wap.id": "w"}
    table.fields["refs"] = {
        "main": {"snapshot-id": 1, "type": "branch"},
        "b": {"snapshot-id": 2, "type": "branch"},
        "t": a_tag(3),
    }
    table.with_live()
    assert table.removed() == GOES


@pytest.mark.parametrize(
    ("location", "other"),
    [
        ("/lake/t", "file:/lake/t"),
        ("/lake/t", "file:///lake/t"),
        ("file:/lake/t", "file://localhost/lake/t"),
        ("hdfs://nn1/lake/t", "hdfs:/lake/t"),
        ("hdfs://nn1:8020/lake/t", "hdfs://nn2:9000/lake/t"),
        ("hdfs://nn/lake/t", "viewfs://cluster/lake/t"),
        ("hdfs://nn/lake/t", "webhdfs://nn:9870/webhdfs/v1/lake/t"),
    ],
)
def test_hazard_03_plain_paths_and_name_nodes(location: str, other: str) -> None:
    assert spelled(location, other) == GOES


def test_hazard_04_a_snapshot_in_no_ref_and_no_log(tmp_path: Path) -> None:
    table = on_disk(tmp_path)
    [path] = table.data(SUBJECT)
    table.snapshot(7, table.manifest("m7", entry(ADDED, path)))
    table.with_live()
    assert table.document()["refs"].keys() == {"main"}
    assert table.document()["snapshot-log"] == []
    assert table.removed() == GOES


@pytest.mark.parametrize(
    ("location", "other"),
    [
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@A.blob.core.windows.net/t"),
        ("abfss://c@a.dfs.core.windows.net/t", "wasbs://a.blob.core.windows.net/c/t"),
        ("abfss://a/c/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("abfss://c@a.dfs.fabric.microsoft.com/t", "https://a.dfs.fabric.microsoft.com/c/t"),
    ],
)
def test_hazard_05_azures_hosts_and_containers(location: str, other: str) -> None:
    assert spelled(location, other) == GOES


def test_hazard_06_inline_manifests_of_version_1_and_tables_without_uuid(tmp_path: Path) -> None:
    table = on_disk(tmp_path, format_version=1)
    [path] = table.data(SUBJECT)
    table.manifest("m0", entry(ADDED, path))
    inline = [table.rows["m0"]["manifest_path"]]
    table.snapshots.append(
        a_snapshot(2, age_ms=1_500 * DAY_MS, manifest_list=None, manifests=inline, parent=None)
    )
    table.fields["table-uuid"] = None
    table.with_live()
    stored = table.folder / "metadata" / "v1.metadata.json"
    stored.write_text(
        json.dumps({key: value for key, value in table.document().items() if value is not None})
    )
    make_old(stored)
    assert table.removed() == GOES
    table.put(f"data/{ORPHAN}")
    table.beside(f"00000-{OTHER_UUID}.metadata.json", table_uuid=OTHER_UUID)
    assert OTHER_UUID in table.refused()


@pytest.mark.parametrize(
    ("location", "other"),
    [
        ("s3://b/t", "s3://b//t"),
        ("s3://b/t", "s3://b/./t"),
        ("s3://b/t", "s3://b/t/"),
        ("s3://b/t/", "s3://b/t"),
        ("s3://b//t", "s3://b/t"),
        ("s3://b/t", "s3://b/t/data/../"),
    ],
)
def test_hazard_07_slashes_and_dots(location: str, other: str) -> None:
    assert spelled(location, other) <= GOES


def test_hazard_08_statistics_and_puffins_that_are_shared(tmp_path: Path) -> None:
    table = on_disk(tmp_path, format_version=3)
    a, b, shared = table.data(name_of("a"), name_of("b"), name_of("shared", ending=".puffin"))
    gone = table.manifest("m3", a_dv(DELETED, shared, a), a_dv(ADDED, shared, b, offset=44), content=1)
    table.snapshot(
        2, table.manifest("m2", entry(ADDED, a), entry(ADDED, b)), gone, first_row_id=0, added_rows=0
    )
    names = [name_of(each, ending=".stats") for each in ("s1", "s2")]
    table.put(*(f"metadata/{name}" for name in names))
    of_both = [a_statistics_file(1, f"{table.location}/metadata/{name}") for name in names]
    table.with_live(statistics=of_both[:1], **{"partition-statistics": of_both[1:]})
    assert table.removed() == GOES


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("a b.parquet", "a%20b.parquet"),
        ("a%20b.parquet", "a b.parquet"),
        ("a%20b.parquet", "a%20b.parquet"),
        ("a+b.parquet", "a%2Bb.parquet"),
        ("a%2bb.parquet", "a+b.parquet"),
        ("50%.parquet", "50%25.parquet"),
        ("50%25.parquet", "50%25.parquet"),
        ("k=%E2%82%AC.parquet", "k=\u20ac.parquet"),
        ("k=%ff.parquet", "k=%FF.parquet"),
    ],
)
def test_hazard_09_percent_escapes(stored: str, said: str) -> None:
    """Below another name node, so that no look for the very path finds the file."""
    found = spelled("hdfs://nn/lake/t", "hdfs://old/lake/t", stored=f"data/{stored}", said=f"data/{said}")
    assert found == GOES


@pytest.mark.parametrize("case", ["cut", "empty", "unreadable", "denied", "swapped"])
@pytest.mark.parametrize("what", ["snap-1", "m1"])
def test_hazard_10_lists_and_manifests_that_cannot_be_trusted(case: str, what: str) -> None:
    table = in_store("s3://b/t").with_live()
    path = f"s3://b/t/metadata/{what}.avro"
    data = table.world.files[path]
    blocks = [block.offset for block in fastavro.block_reader(io.BytesIO(data))]
    match case:
        case "cut":
            table.world.files[path] = data[: blocks[-1]]
        case "empty":
            table.world.files[path] = b""
        case "unreadable":
            table.world.files[path] = data[: len(data) // 2] + b"\0" * 9 + data[len(data) // 2 :]
        case "swapped":
            other = "m1" if what == "snap-1" else "snap-1"
            table.world.files[path] = table.world.files[f"s3://b/t/metadata/{other}.avro"]
    read = table.storage.read

    def denied(key: str, span: tuple[int, int] | None = None) -> bytes:
        if key == path:
            raise AccessDenied(f"Cannot read {path}: 403")
        found: bytes = read(key, span)
        return found

    if case == "denied":
        table.storage.read = denied
    before = set(table.world.files)
    with pytest.raises((CorruptFile, AccessDenied, BackendUnavailable)):
        table.process().run()
    assert set(table.world.files) == before


def test_hazard_10_a_list_without_counts_that_was_cut(tmp_path: Path) -> None:
    table = on_disk(tmp_path, format_version=1)
    table.put(f"data/{LIVE}", f"data/{ORPHAN}", f"data/{SUBJECT}")
    for name, file in (("m1", LIVE), ("m2", SUBJECT)):
        table.manifest(name, entry(ADDED, f"{table.location}/data/{file}"))
    table.forget_counts()
    table.snapshot(1, "m1", "m2", summary={"total-data-files": "2"}, block_bytes=1)
    table.publish(main=1)
    table.age()
    path = table.file("snap-1")
    whole = path.read_bytes()
    path.write_bytes(whole[: [block.offset for block in fastavro.block_reader(io.BytesIO(whole))][1]])
    assert "cut short" in table.refused(code=15)
    path.write_bytes(whole)
    assert table.removed() == GOES


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (unicodedata.normalize("NFD", "k\u00e9y.parquet"), "k\u00e9y.parquet"),
        ("k\u00e9y.parquet", unicodedata.normalize("NFD", "K\u00c9Y.PARQUET")),
        ("Part-A.parquet", "PART-a.parquet"),
        ("x.parquet", "X.Parquet"),
        ("x.parquet", "x.parquet."),
    ],
)
def test_hazard_11_unicode_forms_and_case(stored: str, said: str) -> None:
    found = spelled("hdfs://nn/lake/t", "hdfs://old/lake/t", stored=f"data/{stored}", said=f"data/{said}")
    assert found == GOES


def test_hazard_12_an_entry_that_is_deleted_in_one_manifest_and_live_in_another(tmp_path: Path) -> None:
    table = on_disk(tmp_path)
    [path, gone] = table.data(SUBJECT, name_of("gone"))
    deleted = table.manifest("m3", entry(DELETED, path), entry(DELETED, gone))
    table.snapshot(2, deleted, table.manifest("m2", entry(ADDED, path)))
    table.with_live()
    assert table.removed() == GOES | {f"data/{name_of('gone')}"}


def test_hazard_13_data_behind_a_link_to_a_folder(tmp_path: Path) -> None:
    """Nothing goes through the link, unless the operator allows its target."""
    target = tmp_path / "disk"
    target.mkdir()
    table = on_disk(tmp_path)
    (table.folder / "metadata").mkdir(parents=True)
    (table.folder / "data").symlink_to(target)
    table.with_live()
    assert str(target) in table.refused()
    assert {LIVE, ORPHAN} == {path.name for path in target.iterdir()}
    assert table.run("--unsafe-allow-root", target).code == 0
    assert {LIVE} == {path.name for path in target.iterdir()}


def test_hazard_13_a_partition_behind_a_link_to_a_folder(tmp_path: Path) -> None:
    """It is not listed, nothing of it goes, and that a live file of it is not listed says nothing of the listing."""
    target = tmp_path / "disk"
    target.mkdir()
    for name in (SUBJECT, name_of("orphan there")):
        (target / name).write_bytes(b"ten bytes.")
        make_old(target / name)
    table = on_disk(tmp_path)
    (table.folder / "data").mkdir(parents=True)
    (table.folder / "data" / "k=1").symlink_to(target)
    table.with_live(f"{table.location}/data/k=1/{SUBJECT}")
    assert table.removed() == GOES
    assert len([*target.iterdir()]) == 2


@pytest.mark.parametrize("linked", [False, True])
def test_hazard_13_a_live_file_that_is_gone_from_a_location_behind_a_link(
    tmp_path: Path, linked: bool
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    location = tmp_path / ("link" if linked else "lake") / "t"
    table = DiskTable(location=str(location)).with_live()
    (location / "data" / LIVE).unlink()
    assert LIVE in table.refused(code=15)


def test_hazard_13_the_target_of_a_link_to_a_file(tmp_path: Path) -> None:
    table = on_disk(tmp_path)
    table.put(f"data/{SUBJECT}")
    for link, target in ((name_of("link"), SUBJECT), (name_of("loose"), name_of("nowhere"))):
        (table.folder / "data" / link).symlink_to(target)
    table.with_live(f"{table.location}/data/{name_of('link')}")
    assert table.removed() == GOES
    assert (table.folder / "data" / name_of("link")).is_symlink()
    assert (table.folder / "data" / name_of("loose")).is_symlink()


@pytest.mark.parametrize("query", [False, True])
def test_hazard_14_a_writer_whose_job_outlives_the_cut_off(tmp_path: Path, query: bool) -> None:
    table = on_disk(tmp_path).with_live()
    names = [name_of("job", number) for number in range(2)]
    if query:
        trino = "20260101_010203_00042_abcde"
        names = [f"{trino}-{uuid_of(each)}.parquet" for each in range(2)]
    table.put(f"data/k=1/{names[0]}", f"metadata/{uuid_of('job')}-m0.avro")
    table.put(f"data/k=2/{names[1]}", age_ms=HOUR_MS)
    manifest = {f"metadata/{uuid_of('job')}-m0.avro"}
    assert table.removed() == (GOES | manifest if query else GOES)


def test_hazard_14_a_stream_that_commits_what_it_wrote_long_ago(tmp_path: Path) -> None:
    """An outage that is longer than the age is said in the docs; a shorter one costs nothing."""
    table = on_disk(tmp_path).with_live()
    table.put(f"data/{SUBJECT}", age_ms=6 * DAY_MS)
    assert table.removed("--older-than", "7d") == GOES


def test_hazard_15_a_table_that_was_copied_or_moved(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    copy = tmp_path / "copy"
    shutil.copytree(table.location, copy)
    for path in copy.rglob("*"):
        make_old(path)
    before, there = listing(copy), listing(table.folder)
    iceberg_cli(VERB, copy, "--yes")
    assert (listing(copy), listing(table.folder)) == (before, there)


def test_hazard_15_a_table_registered_where_its_manifests_have_the_old_paths(tmp_path: Path) -> None:
    old = "s3://old-bucket/warehouse/t"
    table = in_store("s3://b/t").with_live(f"{old}/data/{SUBJECT}")
    table.put(f"data/{SUBJECT}")
    assert table.removed() == GOES


@pytest.mark.parametrize("moment", ["listed", "delete"])
def test_hazard_16_a_commit_between_listing_and_load_and_between_load_and_delete(moment: str) -> None:
    table = in_store("s3://b/t").with_live()
    table.put(f"data/{SUBJECT}")

    def commit() -> None:
        table.snapshot(2, "m1", table.manifest("m2", entry(ADDED, f"s3://b/t/data/{SUBJECT}")))
        table.commit()

    process = table.process()
    if moment == "listed":
        table.storage.hooks["listed"] = commit
        process.run()
    else:
        planned = process.plan()
        commit()
        process.carry_out(planned)
    assert f"s3://b/t/data/{SUBJECT}" in table.world.files
    assert f"s3://b/t/data/{ORPHAN}" not in table.world.files


# -- hazards: whose files --------------------------------------------------------------------------------------------


def test_hazard_17_a_location_that_is_a_prefix_of_a_siblings() -> None:
    table = in_store("s3://b/t").with_live()
    table.put(f"s3://b/t2/data/{SUBJECT}", f"s3://b/t/data2/{SUBJECT}", f"s3://b/t/data{SUBJECT}")
    assert table.removed() == GOES


@pytest.mark.parametrize("change", ["bytes", "time"])
def test_hazard_18_a_file_that_is_put_back(change: str) -> None:
    table = in_store("s3://b/t").with_live()
    table.put(f"data/{SUBJECT}")
    process = table.process()
    planned = process.plan()
    data = b"other bytes" if change == "bytes" else b"TEN BYTES."
    table.put(f"data/{SUBJECT}", data=data, age_ms=OLD_MS if change == "bytes" else OLD_MS - 2_000)
    process.carry_out(planned)
    assert f"s3://b/t/data/{SUBJECT}" in table.world.files
    assert f"s3://b/t/data/{ORPHAN}" not in table.world.files


@pytest.mark.parametrize("place", ["metadata", "meta", "../elsewhere"])
def test_hazard_19_two_tables_on_one_location(tmp_path: Path, place: str) -> None:
    """Also where both have their metadata in another folder of it, as a copied DDL says."""
    table = on_disk(tmp_path)
    folder = os.path.normpath(table.folder / place)
    table.properties = {"write.metadata.path": folder}
    table.with_live()
    table.put(f"data/{SUBJECT}")
    name = f"00007-{OTHER_UUID}.metadata.json"
    table.beside(name, table_uuid=OTHER_UUID)
    if place != "metadata":
        Path(folder).mkdir()
        (table.folder / "metadata" / name).rename(f"{folder}/{name}")
    assert OTHER_UUID in table.refused()
    if place == "../elsewhere":  # where another table has its own location, both share that folder alone
        other = json.loads(Path(f"{folder}/{name}").read_text()) | {"location": f"{table.location}2"}
        Path(f"{folder}/{name}").write_text(json.dumps(other))
        assert table.removed() == GOES | {f"data/{SUBJECT}"}


def test_hazard_20_the_pointer_of_a_stale_replica() -> None:
    table = in_store("s3://b/t").with_live()
    stale = table.world.pointer
    table.put(f"data/{SUBJECT}")
    table.snapshot(2, "m1", table.manifest("m2", entry(ADDED, f"s3://b/t/data/{SUBJECT}")))
    table.commit()
    table.world.pointer = stale
    assert table.removed() == GOES


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogTable:
    """A catalog's table of two rows, and an orphan in it."""
    table = catalog_table(tmp_path, monkeypatch, appends=2)
    (table.folder / "data" / ORPHAN).write_bytes(b"ten bytes.")
    return table


def removed_from(table: CatalogTable, *arguments: object) -> set[str]:
    """What goes from a catalog's table, all of whose files are old."""
    for path in table.folder.rglob("*"):
        make_old(path)
    before = set(listing(table.folder))
    ran = iceberg_cli(VERB, table.name, "--yes", *arguments)
    assert ran.code == 0, ran.err
    return before - set(listing(table.folder))


def test_hazard_21_a_clone_that_has_committed_since(events: CatalogTable) -> None:
    events.catalog.register_table("shop.clone", events.open().metadata_location)
    events.catalog.load_table("shop.clone").append(rows(7))
    events.append(3)
    assert removed_from(events) == GOES
    assert sorted(events.catalog.load_table("shop.clone").scan().to_arrow()["id"].to_pylist()) == [0, 1, 7]


def test_hazard_22_a_hint_that_is_stale_missing_or_wrong(tmp_path: Path) -> None:
    for number, hint in enumerate((b"1", b"", b"99", b"x")):
        table = on_disk(tmp_path / str(number)).with_live()
        [new] = table.data(SUBJECT)
        table.snapshot(2, "m1", table.manifest("m2", entry(ADDED, new)), parent=1)
        table.publish(main=2, name="v2.metadata.json")
        if hint:
            table.put("metadata/version-hint.text", data=hint)
        table.age()
        ran = table.run()
        assert ran.code in (0, 15), ran.err
        assert Path(new).exists()
        assert not hint or (table.folder / "metadata" / "version-hint.text").exists()


def test_hazard_23_the_same_table_in_two_catalogs_that_both_commit(events: CatalogTable) -> None:
    for number in range(2):
        events.catalog.register_table(f"shop.other{number}", events.open().metadata_location)
    for name in ("other0", "other1", "events"):
        for each in range(3):
            events.catalog.load_table(f"shop.{name}").append(rows(10 + each))
    assert removed_from(events) == GOES
    for name in ("other0", "other1", "events"):
        found = events.catalog.load_table(f"shop.{name}").scan().to_arrow()["id"].to_pylist()
        assert sorted(found) == [0, 1, 10, 11, 12]


@pytest.mark.parametrize("modified_ms", [0, -1, NOW_MS + HOUR_MS, 4_070_908_800_000, NOW_MS - 3 * DAY_MS])
def test_hazard_24_clocks_and_times_that_tell_nothing(modified_ms: int) -> None:
    table = in_store("s3://b/t").with_live()
    table.put(f"data/{SUBJECT}", age_ms=NOW_MS - modified_ms)
    assert table.removed() == GOES


def test_hazard_24_our_clock_is_days_ahead_of_the_storages() -> None:
    table = in_store("s3://b/t").with_live()
    table.world.dated = True
    table.world.now_ms = NOW_MS - 3 * DAY_MS
    process = table.process()
    process.runtime = replace(process.runtime, now_ms=lambda: NOW_MS)
    with pytest.raises(Refused, match="clock"):
        process.run()
    assert f"s3://b/t/data/{ORPHAN}" in table.world.files


def test_hazard_25_nessie_and_another_branchs_metadata() -> None:
    """What a branch has committed is in a metadata file beside those that are known."""
    table = in_store("s3://b/t").with_live()
    main = table.world.pointer
    table.put(f"data/{SUBJECT}")
    table.snapshot(5, table.manifest("m5", entry(ADDED, f"s3://b/t/data/{SUBJECT}")))
    table.commit()
    table.world.pointer = main
    assert table.removed() == GOES


@pytest.mark.parametrize("lie", ["cut", "empty", "twice", "out of order"])
def test_hazard_26_listings_that_lie(lie: str) -> None:
    table = in_store("s3://b/t").with_live()
    table.put(*(f"data/k={number}/{name_of(number)}" for number in range(5)))
    lies = {
        "cut": lambda found: found[:-1],
        "empty": lambda _: [],
        "twice": lambda found: [*found, *found],
        "out of order": lambda found: found[::-1],
    }
    before = set(table.world.files)
    table.storage.lie = lies[lie]
    if lie == "out of order":
        assert table.removed() == {*GOES, *(f"data/k={number}/{name_of(number)}" for number in range(5))}
        return
    with pytest.raises(BackendUnavailable):
        table.process().run()
    assert set(table.world.files) == before


@pytest.mark.parametrize("place", ["", "data", "data/inner", "metadata/inner"])
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_hazard_27_a_table_below_that_is_made_after_the_plan(tmp_path: Path, place: str, kind: str) -> None:
    table = on_disk(tmp_path).with_live()
    folder = f"{place}/k" if place else "data"
    table.put(f"{folder}/{SUBJECT}")
    plan = tmp_path / "plan"
    location = ("--location", table.location) if not place else ()
    assert iceberg_cli("plan", table.location, VERB, *location, "-o", plan).code == 0
    inner = table.folder / folder
    if kind == "delta":
        write_deltalake(inner, pa.table({"n": [1]}))
    else:
        (inner / "metadata").mkdir(parents=True)
        (inner / "metadata" / "v1.metadata.json").write_text("{}")
    assert iceberg_cli("apply", plan, "--yes").code == 0
    assert (inner / SUBJECT).exists()
    assert (table.folder / "data" / ORPHAN).exists() == (folder == "data")


def inventory(to: Path, files: Iterator[Path] | list[Path], **changed: Any) -> Path:
    """An inventory of some files as JSON lines, each with some fields changed."""
    lines = []
    for file in files:
        status = file.stat()
        line = {"path": str(file), "length": status.st_size, "isDir": False}
        lines.append(json.dumps({**line, "modificationTime": status.st_mtime_ns // 1_000_000, **changed}))
    to.write_text("\n".join(lines))
    return to


def files_of(table: DiskTable) -> list[Path]:
    return sorted(path for path in table.folder.rglob("*") if path.is_file())


def test_hazard_28_an_inventory_that_is_old(tmp_path: Path) -> None:
    """A file that was young when it was made stays, and one that is another by now."""
    table = on_disk(tmp_path).with_live()
    young, other = name_of("young"), name_of("other")
    table.put(f"data/{young}", age_ms=OLD_MS - DAY_MS)
    table.put(f"data/{other}")
    made = inventory(tmp_path / "inventory", files_of(table))
    table.put(f"data/{other}", data=b"other bytes")
    assert table.removed("--inventory", made) == set()  # all were three days old at most
    table.put("data/_SUCCESS", age_ms=20 * DAY_MS)
    made = inventory(tmp_path / "inventory", files_of(table))
    table.put(f"data/{other}", data=b"yet other bytes")
    assert table.removed("--inventory", made) == GOES | {f"data/{young}"}


def test_hazard_28_an_inventory_that_is_partial_or_of_another_bucket(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.put("data/_SUCCESS", age_ms=DAY_MS)
    some = [path for path in files_of(table) if path.name != LIVE]
    message = table.refused("--inventory", inventory(tmp_path / "inventory", some), code=16)
    assert LIVE in message
    elsewhere = inventory(tmp_path / "inventory", files_of(table), path="s3://other/x.parquet")
    table.refused("--inventory", elsewhere, code=2)


def test_hazard_28_an_inventory_with_encoded_keys(tmp_path: Path) -> None:
    table = on_disk(tmp_path)
    [path] = table.data("a b.parquet")
    table.with_live(path)
    table.put("data/_SUCCESS", age_ms=DAY_MS)
    made = inventory(tmp_path / "inventory", files_of(table))
    made.write_text(made.read_text().replace("a b", "a%20b"))
    assert table.removed("--inventory", made) == GOES
    made.write_text(made.read_text().replace("a%20b", "a+b"))
    table.refused("--inventory", made, code=16)


def test_hazard_28_an_inventory_without_what_was_committed_lately(tmp_path: Path) -> None:
    """Services deliver late: what is not older than two days before its newest file may be missing."""
    table = on_disk(tmp_path).with_live()
    table.put("data/_SUCCESS", age_ms=DAY_MS)
    made = inventory(tmp_path / "inventory", files_of(table))
    [new] = table.data(SUBJECT)
    now_ms = int(time_s() * 1_000)
    for age_ms, code in ((2 * DAY_MS, 0), (4 * DAY_MS, 16)):
        table.snapshots = table.snapshots[:1]
        table.file(f"snap-{age_ms}").unlink(missing_ok=True)
        name = table.manifest(f"m{age_ms}", entry(ADDED, new))
        table.snapshot(age_ms, "m1", name, parent=1, timestamp_ms=now_ms - age_ms)
        table.publish(main=age_ms, name=f"v{age_ms}.metadata.json")
        table.put("metadata/version-hint.text", data=str(age_ms).encode())
        ran = table.run("--inventory", made)
        assert ran.code == code, ran.err
        assert Path(new).exists()
        assert not (table.folder / "data" / ORPHAN).exists()


def test_hazard_29_data_paths_that_tables_share(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / SUBJECT).write_bytes(b"another's.")
    make_old(shared / SUBJECT)
    table = on_disk(tmp_path, properties={"write.data.path": str(shared)}).with_live()
    assert table.removed() == GOES
    assert (shared / SUBJECT).exists()
    assert any("write.data.path" in text for text in table.dry()["warnings"])


def test_hazard_30_an_inventory_of_another_prefix(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    sibling = DiskTable(location=f"{table.location}2").with_live()
    table.refused("--inventory", inventory(tmp_path / "inventory", files_of(sibling)), code=2)
    both = [*files_of(sibling), *files_of(table)]
    table.put("data/_SUCCESS", age_ms=DAY_MS)
    assert (
        table.removed(
            "--inventory", inventory(tmp_path / "inventory", [*both, table.folder / "data/_SUCCESS"])
        )
        == GOES
    )
    assert (sibling.folder / "data" / ORPHAN).exists()


@pytest.mark.parametrize("name", ["write.object-storage.path", "write.folder-storage.path"])
@pytest.mark.parametrize("root", ["s3://b", "s3://b/hashed", "s3://b/t2/hashed", "s3://b/t/../hashed"])
def test_hazard_31_hashed_layouts_under_a_root_that_is_shared(name: str, root: str) -> None:
    table = in_store("s3://b/t", properties={name: root, "write.object-storage.enabled": "true"})
    table.put(f"{root}/0101/1010/{SUBJECT}", f"s3://b/hashed/0101/{SUBJECT}", f"s3://b/t2/hashed/{SUBJECT}")
    table.with_live()
    assert table.removed() == GOES


def test_hazard_31_a_hashed_layout_inside_the_location() -> None:
    table = in_store("s3://b/t", properties={"write.object-storage.path": "s3://b/t/hashed"})
    table.put(f"hashed/0101/{SUBJECT}")
    assert table.with_live().removed() == {*GOES, f"hashed/0101/{SUBJECT}"}


def test_hazard_32_folders_that_are_listed_and_keys_that_end_in_a_slash() -> None:
    table = in_store("s3://b/t").with_live()
    markers = {"s3://b/t/data/", f"s3://b/t/data/{SUBJECT}/", "s3://b/t/data/k=1/"}
    table.put(*markers, data=b"")
    assert table.removed() == GOES
    assert markers <= set(table.world.files)


def test_hazard_32_folders_on_disks(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    folder = table.folder / "data" / SUBJECT
    (folder / "empty").mkdir(parents=True)
    table.age()
    assert table.removed() == GOES
    [row] = [{"path": str(folder), "length": 4096, "isDir": True, "modificationTime": 1}]
    made = inventory(tmp_path / "inventory", files_of(table))
    made.write_text(made.read_text() + "\n" + json.dumps(row))
    assert table.removed("--inventory", made) == set()
    assert folder.is_dir()


def test_hazard_33_a_location_provider_of_ones_own(tmp_path: Path) -> None:
    table = on_disk(tmp_path, properties={"write.location-provider.impl": "com.example.Mine"})
    table.put(f"mine/{SUBJECT}", f"mine/{name_of('orphan of mine')}")
    table.with_live(f"{table.location}/mine/{SUBJECT}")
    plan = table.dry()
    assert any(f"{table.location}/mine" in text for text in plan["warnings"])
    assert table.removed() == GOES


def test_hazard_34_names_that_are_hidden_and_files_of_others(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    names = [
        f"data/_temporary/0/{SUBJECT}", f"data/.hive-staging_hive/{SUBJECT}", "data/_SUCCESS",
        f"data/_{SUBJECT}", f"data/.{SUBJECT}.crc", "data/README", "data/catalog.db", "data/x.parquet.tmp",
        "metadata/version-hint.text", f"data/_iceberg_cli/{SUBJECT}", "data/x.csv", "data/parquet",
    ]  # fmt: skip
    table.put(*names)
    assert table.removed() == GOES


def test_hazard_35_hive_tables_and_plain_files_below_the_location(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.put(f"ds=1/{SUBJECT}", f"other/{SUBJECT}", SUBJECT)
    assert table.removed() == GOES


@pytest.mark.parametrize("named", [True, False])
def test_hazard_36_partition_folders_that_begin_like_hidden_ones(tmp_path: Path, named: bool) -> None:
    """Where the table has such a partition field, its orphans go; live files stay either way."""
    table = on_disk(tmp_path)
    column = "_day" if named else "day"
    if named:
        field = {"name": column, "transform": "identity", "source-id": 1, "field-id": 1000}
        table.fields["partition-specs"] = [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": [field]}]
        table.fields["last-partition-id"] = 1000
    table.put(f"data/_day=1/{SUBJECT}", f"data/_day=1/{name_of('2')}", f"data/_day/{SUBJECT}")
    table.put(f"data/_day=1/_temporary/{name_of('3')}")
    table.with_live(f"{table.location}/data/_day=1/{SUBJECT}")
    assert table.removed() == (GOES | {f"data/_day=1/{name_of('2')}"} if named else GOES)


@pytest.mark.parametrize("log", [["_delta_log"], [".hoodie"], ["snapshot", "schema"], []], ids="-".join)
def test_hazard_37_other_formats_with_iceberg_metadata_beside(log: list[str]) -> None:
    """Also where their logs come after the plan."""
    properties = {} if log else {"delta.universalFormat.enabledFormats": "iceberg"}
    table = in_store("s3://b/t", properties=properties)
    table.put(*(f"{each}/0" for each in log[:1]))
    table.with_live()
    process = table.process()
    planned = process.plan()
    table.put(*(f"{each}/0" for each in log))
    assert bool(table.process().plan().plan.blocked_by)
    with pytest.raises(Refused):
        process.carry_out(planned)
    with suppress(Refused):
        table.process().run()
    assert f"s3://b/t/data/{ORPHAN}" in table.world.files


@pytest.mark.parametrize("file", [SUBJECT, "part-00000.parquet"])
def test_hazard_38_migrated_tables_and_added_files(tmp_path: Path, file: str) -> None:
    hive = tmp_path / "hive" / file
    hive.parent.mkdir()
    hive.write_bytes(b"ten bytes.")
    table = on_disk(tmp_path)
    table.put(f"data/ds=1/{file}", f"data/ds=2/{file}")
    table.with_live(str(hive), f"{table.location}/data/ds=1/{file}")
    plan = table.dry()
    assert kept_by(plan, "same name") == 1
    assert table.removed() == GOES
    assert hive.exists()


def test_hazard_39_dropped_and_created_again_on_the_spot(tmp_path: Path) -> None:
    table = on_disk(tmp_path).with_live()
    table.put(f"data/{SUBJECT}")
    table.beside(f"00003-{OTHER_UUID}.metadata.json", table_uuid=OTHER_UUID, last_updated_ms=1)
    assert "if that table is no more, move its metadata files away" in table.refused()
    (table.folder / "metadata" / f"00003-{OTHER_UUID}.metadata.json").unlink()
    assert table.removed() == GOES | {f"data/{SUBJECT}"}


@pytest.mark.parametrize("text", ["false", "no", "0"])
def test_hazard_40_a_snapshot_table_with_files_of_its_source(tmp_path: Path, text: str) -> None:
    table = on_disk(tmp_path, properties={"gc.enabled": text}).with_live()
    assert "gc.enabled" in table.refused()


def test_hazard_41_what_this_program_staged_keeps_and_left(tmp_path: Path) -> None:
    """An expiry waits for its grace: what is to go then stays until then."""
    table = on_disk(tmp_path)
    keep, gone = table.data(SUBJECT, name_of("gone"))
    table.snapshot(9, table.manifest("m9", entry(ADDED, keep), entry(ADDED, gone)))
    table.snapshot(1, table.manifest("m1", entry(ADDED, keep)), parent=9)
    table.publish(main=1)
    table.put(f"data/{ORPHAN}")
    table.age()
    expiry = iceberg_cli("expire-snapshots", table.location, "--older-than", "0s", "--grace", "1d", "--yes")
    assert expiry.code == 0, expiry.err
    [operation_id] = [path.name for path in (table.folder / "_iceberg_cli" / "ops").iterdir()]
    staged = f"data/00000-{operation_id}-0-1.parquet"
    table.put(staged)
    table.age()
    plan = table.dry()
    assert kept_by(plan, "open operation") == 4  # the data file, its manifest and list, and what is staged
    table.run()
    assert {"data/" + name_of("gone"), "metadata/m9.avro", "metadata/snap-9.avro", staged} <= set(
        listing(table.folder)
    )


@pytest.mark.parametrize("how", ["property", "key"])
def test_hazard_42_encrypted_tables(tmp_path: Path, how: str) -> None:
    table = on_disk(tmp_path)
    if how == "property":
        table.properties = {"encryption.key-id": "k"}
    table.with_live()
    if how == "key":
        document = table.document()
        document["snapshots"][0]["key-id"] = "k"
        document |= {"format-version": 3, "next-row-id": 0}
        document["snapshots"][0] |= {"first-row-id": 0, "added-rows": 0}
        document["encryption-keys"] = [{"key-id": "k", "encrypted-key-metadata": "aaaa"}]
        path = table.folder / "metadata" / "v1.metadata.json"
        path.write_text(json.dumps(document))
        make_old(path)
    table.refused()


def test_hazard_43_metadata_files_that_another_catalog_may_point_to(tmp_path: Path) -> None:
    """They go by an option of its own, and only those of versions before the log, by number and by time."""
    table = on_disk(tmp_path).with_live()
    before = table.document()["last-updated-ms"]
    first = {"timestamp-ms": before - 10, "metadata-file": f"{table.location}/metadata/v3.metadata.json"}
    table.beside("v3.metadata.json", last_updated_ms=before - 10)
    table.beside("v5.metadata.json", metadata_log=[first])
    (table.folder / "metadata" / "v1.metadata.json").unlink()
    document = table.document("v5.metadata.json")
    for name, updated_ms in (("v1", before - 20), ("v2", before), ("v4", before - 20)):
        old = {**document, "last-updated-ms": updated_ms, "metadata-log": []}
        table.put(f"metadata/{name}.metadata.json", data=json.dumps(old).encode())
    without = {**document, "last-updated-ms": before - 20}
    del without["table-uuid"]
    assert table.removed() == GOES
    assert table.removed("--metadata-files") == {"metadata/v1.metadata.json"}


def test_hazard_44_a_marking_that_misses_a_live_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with the marking: files that the table reaches are looked for by their names."""
    table = in_store("s3://b/t").with_live()
    table.storage.lie = lambda found: [info for info in found if not info.path.endswith(LIVE)]
    before = set(table.world.files)
    with pytest.raises(BackendUnavailable, match=LIVE):
        table.process().run()
    assert set(table.world.files) == before
    del table.world.files[f"s3://b/t/data/{LIVE}"]
    with pytest.raises(CorruptFile, match=LIVE):
        table.process().run()
    assert set(table.world.files) == before - {f"s3://b/t/data/{LIVE}"}
