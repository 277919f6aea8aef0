"""Ways in which orphan removal has taken live files, or would, a test each, with what is done here.

Numbers are those of the incidents of `orphans.md`, section 2; R1 to R15 are its rules, with the hazards of section 4.
"""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING
from tests.builders import a_snapshot
from tests.cli.lakes import catalog_table
from tests.cli.running import iceberg_cli
from tests.hazard_tables import a_dv, entry
from tests.iceberg.test_unknown_metadata import Clone
from tests.iceberg.verbs.remove_orphan_files.scenes import (
    DAY_S,
    OLD_S,
    ORPHANS,
    UUID,
    Lake,
    a_lake,
    files_of,
    published,
)

ALL = set(ORPHANS)
OTHER_UUID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return a_lake(tmp_path)


def test_what_nothing_names_goes_and_nothing_else(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet", "k=1/b.parquet"))
    lake.plant("data/README.md", "data/_SUCCESS", "data/.part.parquet.crc", "other/x.parquet", "x.parquet")
    lake.age()
    assert lake.gone() == ALL
    assert lake.gone() == set()


# -- R2: names decide (1, 2, 3, 15, 19, 20, 22, 25, 27) --------------------------------------------------------------

PREFIXES = (
    "file://", "file:", "FILE://", "s3://lake", "S3A://lake", "s3n://lake", "hdfs:", "hdfs://one:8020", "hdfs://two:9000",
    "abfss://c@acc.dfs.core.windows.net", "abfs://c@acc.blob.core.windows.net", "wasbs://c@acc.blob.core.windows.net",
    "abfss://acc/c", "gs://lake", "viewfs://lake", "alluxio://m:19998/lake",
)  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_file_whose_scheme_or_host_is_spelled_otherwise_stays(lake: Lake, prefix: str) -> None:
    (path,) = lake.data("a.parquet")
    assert published(lake, f"{prefix}{path}").gone() == ALL


@pytest.mark.parametrize(
    "spelled", ["//data//a.parquet", "/./data/a.parquet", "/data/./a.parquet", "/data///a.parquet"]
)
def test_a_file_whose_slashes_are_spelled_otherwise_stays(lake: Lake, spelled: str) -> None:
    lake.data("a.parquet")
    assert published(lake, f"{lake.location}{spelled}").gone() == ALL


@pytest.mark.parametrize("slash", ["/", "//", "/."])
def test_a_location_that_ends_in_a_slash_is_the_same(tmp_path: Path, slash: str) -> None:
    lake = a_lake(tmp_path, fields={"location": f"{tmp_path}/lake/events{slash}"})
    # What a path with dot segments means is up to its storage: in such a folder nothing is deleted.
    assert published(lake, *lake.data("a.parquet")).gone() == (set() if "." in slash else ALL)


@pytest.mark.parametrize(
    ("stored", "written"),
    [
        ("a b.parquet", "a%20b.parquet"), ("a%20b.parquet", "a b.parquet"), ("a%25.parquet", "a%.parquet"),
        ("a+b.parquet", "a%2Bb.parquet"), ("ü.parquet", "%C3%BC.parquet"), ("A.parquet", "a.parquet"),
        ("a.parquet", "A.PARQUET"), (unicodedata.normalize("NFD", "ü.parquet"), "ü.parquet"),
        (unicodedata.normalize("NFC", "ü.parquet"), unicodedata.normalize("NFD", "ü.parquet")),
    ],
)  # fmt: skip
def test_a_file_whose_name_is_encoded_or_cased_otherwise_stays(lake: Lake, stored: str, written: str) -> None:
    lake.data(stored)
    # Another host, so that nothing but the name can keep it, and the listing need not have that very path.
    assert published(lake, f"s3://elsewhere/data/{written}").gone() == ALL


def test_a_table_that_was_moved_keeps_what_it_recorded_at_its_old_place(lake: Lake) -> None:
    lake.data("a.parquet", "k=1/b.parquet")
    published(lake, "/old/place/data/a.parquet", "/old/place/data/k=1/b.parquet")
    assert lake.gone() == ALL
    assert lake.kept()["kept: a file that the table reaches has the same name"] == 2


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_behind_a_link_stays_and_so_does_the_link(lake: Lake, kind: str, tmp_path: Path) -> None:
    published(lake, *lake.data("a.parquet"))
    if kind == "folder":
        shutil.move(lake.folder / "data", tmp_path / "elsewhere")
        (lake.folder / "data").symlink_to(tmp_path / "elsewhere")
        assert "symbolic link" in lake.refused(code=11)
        assert (tmp_path / "elsewhere" / "nobody.parquet").exists()
        return
    # The table's file is a link to one that the folder has under another name.
    (lake.folder / "data" / "a.parquet").rename(lake.folder / "data" / "real.parquet")
    (lake.folder / "data" / "a.parquet").symlink_to(lake.folder / "data" / "real.parquet")
    (lake.folder / "data" / "lonely.parquet").symlink_to(tmp_path / "nowhere.parquet")
    assert lake.gone() == ALL


# -- R1: where it looks (7, 21, 23, 27) -------------------------------------------------------------------------------


def test_a_sibling_whose_name_begins_alike_is_not_looked_through(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    for name in ("events2/data/x.parquet", "events-old/metadata/y.avro"):
        path = lake.folder.parent / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
        os.utime(path, (OLD_S, OLD_S))
    assert lake.gone() == ALL
    assert (lake.folder.parent / "events2/data/x.parquet").exists()


def test_a_database_file_and_plain_parquet_beside_the_folders_stay(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant("catalog.db", "exports/report.parquet", "data/catalog.db", "data/part-0.csv")
    lake.age()
    assert lake.gone() == ALL


def test_a_data_path_that_tables_share_is_not_looked_through(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    lake = a_lake(tmp_path, properties={"write.data.path": str(shared)})
    published(lake, *lake.data("a.parquet"))
    shared.mkdir()
    (shared / "of-another-table.parquet").write_bytes(b"x")
    os.utime(shared / "of-another-table.parquet", (OLD_S, OLD_S))
    ran = lake.run(yes=False)
    assert any("write.data.path" in each for each in ran.json["warnings"])
    assert lake.gone() == ALL
    assert (shared / "of-another-table.parquet").exists()


def test_a_folder_inside_the_location_is_looked_through_where_it_is_named(tmp_path: Path) -> None:
    lake = a_lake(tmp_path, properties={"write.object-storage.path": f"{tmp_path}/lake/events/objects"})
    published(lake, *lake.data("a.parquet"))
    lake.plant("objects/0110/x.parquet", "old/y.parquet")
    lake.age()
    assert lake.gone() == ALL | {"objects/0110/x.parquet"}
    assert lake.gone("--location", f"{lake.location}/old") == {"old/y.parquet"}


@pytest.mark.parametrize(
    ("locations", "words"),
    [
        (["/elsewhere"], "is not inside the table's location"),
        (["{}2"], "is not inside the table's location"),
        (["/"], "is a whole bucket or disk"),
        (["s3://bucket"], "is a whole bucket or disk"),
        (["{}/../events"], "has dot segments"),
        (["{}/x", "{}/x/"], "is named twice"),
        (["{}/x", "{}/x/y"], "one is inside the other"),
    ],
)
def test_a_location_that_cannot_be_this_tables_is_refused(
    lake: Lake, locations: list[str], words: str
) -> None:
    published(lake, *lake.data("a.parquet"))
    options = [word for each in locations for word in ("--location", each.format(lake.location))]
    assert words in lake.refused(*options, code=2)


def test_reachable_files_elsewhere_are_counted_and_named(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"), "/migrated/hive/000000_0", "/migrated/hive/000001_0")
    (warning,) = [each for each in lake.run(yes=False).json["warnings"] if "outside" in each]
    assert warning.startswith("2 files that the table reaches are outside the folders")
    assert "/migrated/hive" in warning


# -- R3, R4, R5: time (1, 8, 9, 10, 11, 16) ---------------------------------------------------------------------------


@pytest.mark.parametrize("days", [-2, 0, 900, None])
def test_what_is_young_or_of_an_odd_time_stays(lake: Lake, days: int | None) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant("data/now.txt")
    now_s = (lake.folder / "data/now.txt").stat().st_mtime
    lake.age("data/nobody.parquet", seconds=0.0 if days is None else now_s + days * DAY_S)
    assert lake.gone() == ALL - {"data/nobody.parquet"}


@pytest.mark.parametrize(
    "young",
    [
        f"data/00007-9-{UUID}-00002.parquet",
        f"data/x-{UUID.replace('-', '')}.parquet",
        f"data/{UUID.upper()}.tmp",
    ],
)
def test_an_old_file_of_a_job_that_wrote_lately_stays(lake: Lake, young: str) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant(young)
    assert lake.gone() == ALL - {ORPHANS[1]}


def test_an_old_file_of_a_query_of_trino_that_wrote_lately_stays(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    query = "20260101_010203_00042_abcde"
    lake.plant(f"data/{query}-{OTHER_UUID}.parquet", "data/20260101_010203_00042_zzzzz.parquet")
    lake.age()
    lake.plant(f"data/{query}.parquet")
    assert lake.gone() == ALL | {"data/20260101_010203_00042_zzzzz.parquet"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--older-than", "2099-01-01T00:00:00Z"), "in the future"),
        (("--older-than", "23h"), "less than 24h ago"),
        (("--older-than", "0s"), "less than 24h ago"),
    ],
)
def test_a_cut_off_that_takes_what_is_being_written_is_refused(
    lake: Lake, options: tuple[str, ...], words: str
) -> None:
    published(lake, *lake.data("a.parquet"))
    assert words in lake.refused(*options, code=2)
    if words != "in the future":
        assert lake.gone(*options, "--unsafe-allow-young") == ALL


# -- R6, R7: whose files they are (4, 5, 6, 7, 26, 27) ----------------------------------------------------------------


def test_another_table_in_the_same_folder_is_refused_with_the_way_out(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    theirs = json.loads((lake.folder / "metadata" / "v1.metadata.json").read_text())
    theirs |= {"table-uuid": OTHER_UUID, "snapshots": [], "refs": {}, "current-snapshot-id": -1}
    (lake.folder / "metadata" / "00000-theirs.metadata.json").write_text(json.dumps(theirs))
    assert "move its metadata files away" in lake.refused(code=11)


@pytest.mark.parametrize(
    ("folders", "code"), [(("_delta_log",), 2), ((".hoodie",), 11), (("snapshot", "schema"), 11)]
)
def test_the_log_of_another_format_in_the_same_folder_is_refused(
    lake: Lake, folders: tuple[str, ...], code: int
) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant(*(f"{folder}/00000000000000000000.json" for folder in folders))
    lake.refused(code=code)


@pytest.mark.parametrize(
    "name",
    ["_delta_log/00000000000000000000.json", "metadata/v1.metadata.json", "metadata/version-hint.text"],
)
def test_what_is_in_the_folder_of_a_table_below_stays(lake: Lake, name: str) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant(f"data/nested/{name}", "data/nested/x.parquet", "data/nested/data/k=1/y.parquet", data=b"{}")
    lake.age()
    assert lake.gone() == ALL


# -- R8: metadata files beside the table's own (9, 24) ----------------------------------------------------------------


def beside(lake: Lake, *paths: str, name: str = "00007-clone.metadata.json", **changes: Any) -> None:
    """A metadata file of the table's own UUID that its log does not name, with a snapshot of its own."""
    lake.snapshot(3, lake.manifest("m3", *(entry(ADDED, path) for path in paths)), parent=1)
    document = json.loads((lake.folder / "metadata" / "v1.metadata.json").read_text())
    snapshot = lake.snapshots[-1]
    document |= {
        "snapshots": [*document["snapshots"], snapshot], "current-snapshot-id": 3,
        "refs": {"main": {"snapshot-id": 3, "type": "branch"}}, "last-sequence-number": 3, **changes,
    }  # fmt: skip
    (lake.folder / "metadata" / name).write_text(json.dumps(document))


def test_a_clone_that_has_committed_since_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch, appends=2)
    clone = Clone(table)
    orphan = table.folder / "data" / "nobody.parquet"
    orphan.write_bytes(b"x")
    for path in table.folder.rglob("*.*"):
        os.utime(path, (OLD_S, OLD_S))
    planned = iceberg_cli("remove-orphan-files", table.name, "--dry-run", "--format", "json").json
    assert any(clone.name in each for each in planned["warnings"])
    ran = iceberg_cli("remove-orphan-files", table.name, "--yes")
    assert (ran.code, orphan.exists()) == (0, False)
    assert len(clone.ids()) > len(table.open().scan().to_arrow())


def test_a_metadata_file_that_cannot_be_read_stops_the_run(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    (lake.folder / "metadata" / "v9.metadata.json").write_text('{"format-version": 2,')
    assert "v9.metadata.json" in lake.refused(code=15)


@pytest.mark.parametrize("hint", [None, "0", "99", "not a number"])
def test_a_version_hint_that_is_stale_or_wrong_takes_nothing_live(lake: Lake, hint: str | None) -> None:
    published(lake, *lake.data("a.parquet"))
    path = lake.folder / "metadata" / "version-hint.text"
    if hint is not None:
        path.write_text(hint)
        os.utime(path, (OLD_S, OLD_S))
    gone = lake.run()
    assert gone.code in (0, 10, 11, 15)
    assert (lake.folder / "data" / "a.parquet").exists()
    assert hint is None or path.exists()


def test_superseded_metadata_files_go_by_their_option_alone(lake: Lake) -> None:
    first = published(lake, *lake.data("a.parquet"))
    document = json.loads((lake.folder / "metadata" / "v1.metadata.json").read_text())
    for version in (2, 3):
        log = [
            {
                "metadata-file": f"{lake.location}/metadata/v2.metadata.json",
                "timestamp-ms": document["last-updated-ms"] + 2,
            }
        ]
        document |= {
            "metadata-log": log if version == 3 else [],
            "last-updated-ms": document["last-updated-ms"] + version,
        }
        (lake.folder / "metadata" / f"v{version}.metadata.json").write_text(json.dumps(document))
    first.age()
    assert lake.gone() == ALL
    assert (
        lake.kept()[
            "kept: they are metadata files of versions before the table's log; --metadata-files deletes them"
        ]
        == 1
    )
    assert lake.gone("--metadata-files") == {"metadata/v1.metadata.json"}


# -- R9: the listing proves itself (12) -------------------------------------------------------------------------------


def test_a_file_that_the_table_reaches_and_is_gone_stops_the_run(lake: Lake) -> None:
    a, b = lake.data("a.parquet", "b.parquet")
    published(lake, a, b)
    Path(b).unlink()
    assert "b.parquet" in lake.refused(code=15)


def an_inventory(lake: Lake, *leave_out: str, older_s: float = 0.0) -> Path:
    """Of all files of the table, but for some."""
    path = lake.folder.parent / "inventory.jsonl"
    with path.open("w") as out:
        for name in sorted(files_of(lake.folder) - {*leave_out}):
            stat = (lake.folder / name).stat()
            row = {"path": f"file://{lake.folder / name}", "length": stat.st_size, "isDir": False}
            out.write(
                json.dumps({**row, "modificationTime": int(stat.st_mtime * 1_000 - older_s * 1_000)}) + "\n"
            )
    return path


def test_an_inventory_takes_the_place_of_the_listing(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant("data/newest.parquet")  # which says how old the inventory is, at the most
    inventory = an_inventory(lake)
    lake.plant("data/since.parquet")
    lake.age("data/since.parquet")
    assert lake.gone("--inventory", inventory) == ALL


def test_an_inventory_without_a_live_file_is_refused(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant("data/newest.parquet")
    assert "a.parquet" in lake.refused("--inventory", an_inventory(lake, "data/a.parquet"), code=16)


def test_ages_of_an_inventory_count_from_its_own_time(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))  # all of it is of one moment, a month ago
    assert lake.gone("--inventory", an_inventory(lake)) == set()


def test_an_inventory_of_another_place_is_refused(lake: Lake, tmp_path: Path) -> None:
    published(lake, *lake.data("a.parquet"))
    other = a_lake(tmp_path / "b")
    published(other, *other.data("a.parquet"))
    assert "it has no file in" in lake.refused("--inventory", an_inventory(other), code=2)


def test_what_was_written_again_since_the_inventory_stays(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant("data/newest.parquet")
    inventory = an_inventory(lake)
    lake.plant("data/nobody.parquet", data=b"other bytes")
    assert lake.gone("--inventory", inventory) == ALL - {"data/nobody.parquet"}


# -- R11: marking (13, 14, 17, 18) ------------------------------------------------------------------------------------


def test_files_of_every_snapshot_stay_whoever_refers_to_it(lake: Lake) -> None:
    paths = lake.data("tag.parquet", "branch.parquet", "staged.parquet", "main.parquet")
    for number, path in enumerate(paths, start=2):
        lake.snapshot(number, lake.manifest(f"s{number}", entry(ADDED, path)))
    tag, branch = ({"snapshot-id": number, "type": kind} for number, kind in ((2, "tag"), (3, "branch")))
    lake.publish(main=5, t=tag, b=branch)
    lake.plant(*ORPHANS)
    lake.age()
    assert lake.gone() == ALL


def test_statistics_and_shared_puffins_stay(tmp_path: Path) -> None:
    lake = a_lake(tmp_path, format_version=3)
    a, b, puffin, stats, partitions = lake.data("a.parquet", "b.parquet", "dv.puffin", "s.stats", "p.parquet")
    named = {"snapshot-id": 1, "file-size-in-bytes": 10}
    lake.fields = {
        "statistics": [
            {**named, "statistics-path": stats, "file-footer-size-in-bytes": 1, "blob-metadata": []}
        ],
        "partition-statistics": [{**named, "statistics-path": partitions}],
    }
    deletes = lake.manifest("m2", a_dv(DELETED, puffin, a), a_dv(EXISTING, puffin, b, offset=44), content=1)
    files = lake.manifest("m0", entry(ADDED, a), entry(ADDED, b))
    lake.snapshot(1, files, deletes, first_row_id=0, added_rows=2)
    lake.publish(main=1)
    lake.plant(*ORPHANS)
    lake.age()
    assert lake.gone() == ALL


def test_a_file_deleted_in_one_manifest_and_live_in_another_stays(lake: Lake) -> None:
    a, b = lake.data("a.parquet", "b.parquet")
    lake.snapshot(
        1, lake.manifest("m1", entry(DELETED, a), entry(ADDED, b)), lake.manifest("m2", entry(EXISTING, a))
    )
    lake.publish(main=1)
    lake.plant(*ORPHANS)
    lake.age()
    assert lake.gone() == ALL


def test_manifests_that_a_snapshot_of_version_1_names_itself_are_read(tmp_path: Path) -> None:
    lake = a_lake(tmp_path, format_version=1)
    (a,) = lake.data("a.parquet")
    lake.manifest("m1", entry(ADDED, a))
    inline = [lake.rows["m1"]["manifest_path"]]
    lake.snapshots.append(
        a_snapshot(1, age_ms=0, parent=None, manifest_list=None, manifests=inline, summary={})
    )
    lake.publish(main=1)
    lake.plant(*ORPHANS)
    lake.age()
    assert lake.gone() == ALL


@pytest.mark.parametrize("name", ["snap-1", "m1"])
@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_a_list_or_manifest_that_cannot_be_read_whole_stops_the_run(
    lake: Lake, name: str, damage: str
) -> None:
    published(lake, *lake.data("a.parquet"))
    path = lake.file(name)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: -20 if damage == "cut" else 0])
    assert path.name in lake.refused(code=15)


# -- R10, R12: kinds of files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "data/_temporary/0/x.parquet", "data/.hive-staging_1/x.parquet", "data/.x.parquet.crc", "data/_x.parquet",
        "data/x.txt", "data/x", "data/x.parquet.tmp", "data/x.json", "data/x.db", "metadata/version-hint.text",
        "data/k=1/_SUCCESS", "data/x.orc.gz", "metadata/x.json",
    ],
)  # fmt: skip
def test_hidden_names_and_endings_of_others_stay(lake: Lake, name: str) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant(name)
    lake.age()
    assert lake.gone() == ALL


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro", "puffin", "stats", "PARQUET"])
def test_every_ending_of_iceberg_goes(lake: Lake, ending: str) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant(f"data/x.{ending}", f"metadata/y.{ending}")
    lake.age()
    assert lake.gone() == ALL | {f"data/x.{ending}", f"metadata/y.{ending}"}


def test_our_own_journals_and_history_stay(lake: Lake) -> None:
    published(lake, *lake.data("a.parquet"))
    lake.plant("_iceberg_cli/other/y.parquet", "data/_iceberg_cli/history/x.parquet")
    lake.age()
    before = files_of(lake.folder)
    lake.run("--location", lake.location)
    assert before - files_of(lake.folder) == ALL


# -- R13, R15: interlocks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{"gc.enabled": "false"}, {"encryption.key-id": "k"}])
def test_a_property_that_forbids_deletions_is_obeyed(tmp_path: Path, properties: dict[str, str]) -> None:
    lake = a_lake(tmp_path, properties=properties)
    published(lake, *lake.data("a.parquet"))
    assert next(iter(properties)) in lake.refused(code=11)
    shown = lake.run(yes=False)
    assert (shown.code, shown.json["removals"]["count"]) == (0, len(ALL))


def test_a_bucket_of_s3_tables_and_delta_tables_are_told_what_does_it(tmp_path: Path) -> None:
    assert iceberg_cli("demo", tmp_path / "demo", "-q").code == 0
    ran = iceberg_cli("remove-orphan-files", tmp_path / "demo" / "db" / "visits", "--yes")
    assert (ran.code, "expire-snapshots TABLE --mode full" in ran.err) == (2, True)


# -- R14: our own operations ------------------------------------------------------------------------------------------


def test_files_that_wait_for_a_grace_stay(tmp_path: Path) -> None:
    assert iceberg_cli("demo", tmp_path / "demo", "-q").code == 0
    table = tmp_path / "demo" / "db" / "events"
    assert iceberg_cli("expire-snapshots", table, "--grace", "48h", "--yes").code == 0
    for path in table.rglob("*"):
        if path.is_file() and "_iceberg_cli" not in str(path):
            os.utime(path, (OLD_S, OLD_S))
    before = files_of(table)
    ran = iceberg_cli("remove-orphan-files", table, "--yes", "--format", "json")
    assert (ran.code, files_of(table)) == (0, before)
    plan = iceberg_cli("remove-orphan-files", table, "--dry-run", "--format", "json").json
    reasons = {each["reason"]: int(each["id"].split()[0]) for each in plan["verdicts"]}
    assert reasons["kept: an open operation of this program names them"] > 10


# -- the second look --------------------------------------------------------------------------------------------------


def planned(lake: Lake, tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    assert iceberg_cli("plan", lake.location, "remove-orphan-files", "--output", file).code == 0
    return file


@pytest.mark.parametrize("change", ["size", "time", "reached", "nested", "metadata", "forbidden", "owner"])
def test_what_changes_between_the_plan_and_the_deletion_keeps_the_file(
    lake: Lake, tmp_path: Path, change: str
) -> None:
    published(lake, *lake.data("a.parquet"))
    file = planned(lake, tmp_path)
    target = lake.folder / "data" / "nobody.parquet"
    code = 0
    match change:
        case "size":
            target.write_bytes(b"longer than it was")
            os.utime(target, (OLD_S, OLD_S))
        case "time":
            os.utime(target, (OLD_S - 5_000, OLD_S - 5_000))
        case "reached":
            lake.snapshot(2, lake.manifest("m2", entry(ADDED, str(target))), "m1", parent=1)
            lake.publish(main=2, name="v2.metadata.json")
        case "nested":
            lake.plant("data/_delta_log/00000000000000000000.json")
        case "metadata":
            beside(lake, str(target), name="v7.metadata.json")
        case "forbidden":
            lake.properties = {"gc.enabled": "false"}
            lake.publish(main=1, name="v2.metadata.json")
            code = 11
        case "owner":
            document = json.loads((lake.folder / "metadata" / "v1.metadata.json").read_text())
            document["table-uuid"] = OTHER_UUID
            (lake.folder / "metadata" / "00001-x.metadata.json").write_text(json.dumps(document))
            code = 11
    ran = iceberg_cli("apply", file, "--yes")
    assert target.exists(), ran.out
    assert ran.code == code, ran.out + ran.err
    if change in ("size", "time", "reached"):
        assert not (lake.folder / ORPHANS[1]).exists()


def test_two_runs_of_one_plan_delete_what_is_there_once(lake: Lake, tmp_path: Path) -> None:
    published(lake, *lake.data("a.parquet"))
    first, second = planned(lake, tmp_path), tmp_path / "second.json"
    for path in tmp_path.glob("plan.*"):
        shutil.copy(path, tmp_path / path.name.replace("plan", "second", 1))
    assert iceberg_cli("apply", first, "--yes").code == 0
    assert iceberg_cli("apply", second, "--yes").code in (0, 11)
    assert files_of(lake.folder) >= {"data/a.parquet", "metadata/m1.avro", "metadata/snap-1.avro"}
    assert not files_of(lake.folder) & ALL
