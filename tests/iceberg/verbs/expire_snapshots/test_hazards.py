"""Ways in which other tools have deleted live files, one test each. Every table here is expired for real.

The names H-a, H-c and so on are those of hazards that were reproduced with Iceberg Java; S02 to S04 are reports
of data loss in the wild.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import fastavro
import pyarrow.parquet as pq
import pytest

from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING
from tests.builders import DAY_MS, a_snapshot, a_statistics_file
from tests.cli.lakes import (
    AS_OF_MS,
    LONG_AGO_MS,
    listing,
    listing_of_table,
    metadata_of,
    newest_metadata,
    registered,
)
from tests.cli.running import as_nobody, iceberg_cli
from tests.hazard_tables import OWN_GONE, Entry, Hazard, a_dv, entry, expire, removed, stopped
from tests.paths import FIXTURES, needs_fixtures
from tests.servers import S3Server


@pytest.fixture
def table(tmp_path: Path) -> Hazard:
    return Hazard(location=str(tmp_path / "lake" / "events"))


# -- H-a: deletion vectors share a Puffin file -----------------------------------------------------------------


def test_a_puffin_stays_while_one_of_its_deletion_vectors_is_live(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "events"), format_version=3)
    a, b, shared, own = table.data("a.parquet", "b.parquet", "shared.puffin", "own.puffin")
    files = table.manifest("m0", entry(ADDED, a), entry(ADDED, b))
    both = table.manifest("m1", a_dv(ADDED, shared, a), a_dv(ADDED, shared, b, offset=44), content=1)
    # The vector of a moves to a file of its own; that of b stays where it was.
    left = table.manifest("m2", a_dv(DELETED, shared, a), a_dv(EXISTING, shared, b, offset=44), content=1)
    new = table.manifest("m3", a_dv(ADDED, own, a), content=1)
    table.snapshot(9, files, both, first_row_id=0, added_rows=0)
    table.snapshot(1, files, left, new, parent=9, first_row_id=0, added_rows=0)
    table.publish(main=1)
    assert removed(table) == {"metadata/snap-9.avro", "metadata/m1.avro"}


def test_a_puffin_goes_once_when_none_of_its_deletion_vectors_is_live(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "events"), format_version=3)
    a, b, old, new = table.data("a.parquet", "b.parquet", "old.puffin", "new.puffin")
    files = table.manifest("m0", entry(ADDED, a), entry(ADDED, b))
    both = table.manifest("m1", a_dv(ADDED, old, a), a_dv(ADDED, old, b, offset=44), content=1)
    gone = table.manifest("m2", a_dv(DELETED, old, a), a_dv(DELETED, old, b, offset=44), content=1)
    again = table.manifest("m3", a_dv(ADDED, new, a), a_dv(ADDED, new, b, offset=44), content=1)
    table.snapshot(9, files, both, first_row_id=0, added_rows=0)
    table.snapshot(1, files, gone, again, parent=9, first_row_id=0, added_rows=0)
    table.publish(main=1)
    ran = expire(table)
    assert ran.json["deleted_position_delete_files_count"] == 1
    assert not Path(old).exists()
    assert Path(new).exists()


@needs_fixtures
def test_no_file_that_java_s_current_snapshot_needs_is_planned_to_go(tmp_path: Path) -> None:
    for case in ("16-iceberg-v3-java-row-lineage", "20-iceberg-v3-java-many-puffins"):
        expected = json.loads((FIXTURES / "EXPECTED.json").read_text())[case]
        [folder] = (FIXTURES / case).iterdir()
        copy = tmp_path / folder.name
        shutil.copytree(folder, copy)
        plan = tmp_path / f"{folder.name}.json"
        metadata = copy / expected["metadata_file"]
        arguments = ("--older-than", "0s", "--retain-last", "1", "-o", plan)
        assert iceberg_cli("plan", metadata, "expire-snapshots", *arguments).code == 0
        going = set(pq.read_table(f"{plan}.removals.parquet")["as_written"].to_pylist())
        live = {each["file"] for name in ("data", "delete") for each in expected[f"current_{name}_files"]}
        assert going
        assert not going & {f"{expected['prefix']}/{name}" for name in live}


# -- H-c: a kept list or manifest that was cut short -----------------------------------------------------------


def block_starts(data: bytes) -> list[int]:
    """Where the blocks of an Avro file begin: cut there, the file is a legal shorter one."""
    return [block.offset for block in fastavro.block_reader(io.BytesIO(data))]


def many_manifests(table: Hazard) -> None:
    """Expired snapshot 9 and kept 2 (branch audit) and 1 (main), with lists of one manifest in each block."""
    names = []
    for number in range(4):
        [path] = table.data(f"{number}.parquet")
        names.append(table.manifest(f"m{number}", entry(ADDED, path)))
    [dead] = table.data("dead.parquet")
    table.snapshot(9, *names, table.manifest("dead", entry(ADDED, dead)))
    table.snapshot(2, *names[:3], block_bytes=1)
    table.snapshot(1, *names, block_bytes=1)
    table.publish(main=1, audit={"snapshot-id": 2, "type": "branch"})


@pytest.mark.parametrize("snapshot_id", [1, 2])
def test_no_file_goes_where_a_kept_list_ends_at_any_earlier_block(table: Hazard, snapshot_id: int) -> None:
    many_manifests(table)
    path = table.file(f"snap-{snapshot_id}")
    whole = path.read_bytes()
    cuts = block_starts(whole)
    assert len(cuts) == (4 if snapshot_id == 1 else 3)
    for cut in [*cuts, 0, 3, cuts[-1] + 5, len(whole) - 1]:
        path.write_bytes(whole[:cut])
        assert path.name in stopped(table), cut
    path.write_bytes(whole)
    assert removed(table) == {"data/dead.parquet", "metadata/dead.avro", "metadata/snap-9.avro"}


def test_no_file_goes_where_a_kept_manifest_ends_at_any_earlier_block(table: Hazard) -> None:
    paths = table.data("a", "b", "c", "dead")
    kept = table.manifest("kept", *(entry(ADDED, path) for path in paths[:3]), block_bytes=1)
    dead = table.manifest("dead", *(entry(ADDED, path) for path in paths))
    table.snapshot(9, dead)
    table.snapshot(1, kept)
    table.publish(main=1)
    path = table.file("kept")
    whole = path.read_bytes()
    for cut in [*block_starts(whole), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        stopped(table)
    path.write_bytes(whole)
    assert removed(table) == {"data/dead", "metadata/dead.avro", "metadata/snap-9.avro"}


def test_a_list_without_totals_must_still_name_the_snapshot_s_own_manifest(table: Hazard) -> None:
    [old, new] = table.data("old", "new")
    first = table.manifest("m0", entry(ADDED, old))
    second = table.manifest("m1", entry(ADDED, new))
    table.rows[first]["added_snapshot_id"], table.rows[second]["added_snapshot_id"] = 9, 1
    table.snapshot(9, first, summary={})
    table.snapshot(1, first, second, summary={"added-data-files": "1"}, block_bytes=1)
    table.publish(main=1)
    path = table.file("snap-1")
    path.write_bytes(path.read_bytes()[: block_starts(path.read_bytes())[1]])
    stopped(table)


def test_a_list_below_its_summary_s_totals_is_believed_only_where_the_operator_says_so(table: Hazard) -> None:
    keep, dead = table.data("keep", "dead")
    table.snapshot(9, table.manifest("m9", entry(ADDED, dead)))
    table.snapshot(1, table.manifest("m1", entry(ADDED, keep)), summary={"total-data-files": "5"})
    table.publish(main=1)
    assert "hold 1 data files, its snapshot's summary says 5" in stopped(table)
    assert "data/dead" in removed(table, "--unsafe-trust-lists")


def test_an_expired_list_that_is_gone_or_damaged_stops_nothing_or_all_but_never_costs_a_live_file(
    table: Hazard,
) -> None:
    many_manifests(table)
    path = table.file("snap-9")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    stopped(table)
    path.unlink()
    assert removed(table) == set()


def test_a_manifest_that_an_expired_and_a_kept_snapshot_list_stays_with_its_files(table: Hazard) -> None:
    [path] = table.data("a")
    shared = table.manifest("m0", entry(ADDED, path))
    table.snapshot(9, shared)
    table.snapshot(1, shared)
    table.publish(main=1)
    assert removed(table) == {"metadata/snap-9.avro"}


def test_a_list_that_an_expired_and_a_kept_snapshot_share_stays(table: Hazard) -> None:
    table.snapshot(1, table.manifest("m1", *(entry(ADDED, path) for path in table.data("a"))))
    [kept] = table.snapshots
    age_ms = LONG_AGO_MS + 9 * DAY_MS
    table.snapshots.insert(0, a_snapshot(9, age_ms=age_ms, parent=None, manifest_list=kept["manifest-list"]))
    table.publish(main=1)
    assert removed(table) == set()


# -- v1 --------------------------------------------------------------------------------------------------------


def a_v1_table(folder: Path) -> Hazard:
    return Hazard(location=str(folder / "visits"), format_version=1)


def v1_without_lists(tmp_path: Path, *, last_has_list: bool) -> Hazard:
    """Snapshots 9 and 8 name their manifests themselves; 1 does too, or has a list without counts."""
    table = a_v1_table(tmp_path)
    keep, one, two = table.data("keep", "one", "two")
    table.manifest("m9", entry(ADDED, keep), entry(ADDED, one))
    table.manifest("m8", entry(EXISTING, keep), entry(DELETED, one))
    table.manifest("m1", entry(ADDED, two))

    def path_of(name: str) -> str:
        return str(table.rows[name]["manifest_path"])

    for snapshot_id, names in ((9, ["m9"]), (8, ["m8"]), (1, ["m8", "m1"])):
        if snapshot_id == 1 and last_has_list:
            table.forget_counts()
            table.snapshot(1, *names, parent=8, summary={"total-data-files": "2"})
            continue
        values = {"manifest_list": None, "manifests": [path_of(name) for name in names], "summary": {}}
        age_ms = LONG_AGO_MS + snapshot_id * DAY_MS
        table.snapshots.append(a_snapshot(snapshot_id, age_ms=age_ms, parent=None, **values))
    table.publish(main=1)
    return table


@pytest.mark.parametrize("last_has_list", [False, True])
def test_v1_snapshots_that_name_their_manifests_and_have_no_counts_expire(
    tmp_path: Path, last_has_list: bool
) -> None:
    table = v1_without_lists(tmp_path, last_has_list=last_has_list)
    assert removed(table) == {"data/one", "metadata/m9.avro"}
    [left] = metadata_of(tmp_path / "visits")["snapshots"]
    assert ("manifests" in left) is not last_has_list


def test_a_v1_list_without_counts_that_was_cut_short_stops_the_run(tmp_path: Path) -> None:
    table = a_v1_table(tmp_path)
    paths = table.data("a", "b", "dead")
    names = [table.manifest(f"m{n}", entry(ADDED, path)) for n, path in enumerate(paths)]
    table.forget_counts()
    table.snapshot(9, *names, summary={"total-data-files": "3"})
    table.snapshot(1, *names[:2], summary={"total-data-files": "2"}, block_bytes=1)
    table.publish(main=1)
    path = table.file("snap-1")
    whole = path.read_bytes()
    path.write_bytes(whole[: block_starts(whole)[1]])
    for cleanup in ("all", "metadata"):
        message = stopped(table, "--cleanup", cleanup)
        assert "hold 1 files, its snapshot's summary says 2" in message
    path.write_bytes(whole)
    assert removed(table) == {"data/dead", "metadata/m2.avro", "metadata/snap-9.avro"}


@pytest.mark.parametrize("flags", [(), ("--clean-metadata",), ("--clean-metadata", "--cleanup", "none")])
def test_a_v1_list_that_was_cut_short_stops_the_run_before_its_commit_too(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    # Every manifest of the expired snapshot is kept too, so that no file of a manifest is in question; but the
    # list hides a partition spec that is in use.
    table = v1_of_two_specs(tmp_path)
    path = table.file("snap-1")
    whole = path.read_bytes()
    path.write_bytes(whole[: block_starts(whole)[1]])
    stopped(table, *flags)


def v1_of_two_specs(tmp_path: Path) -> Hazard:
    """Expired 9 has a manifest of spec 0; kept 1 has it too, and one of spec 1. Spec 2 is the default."""
    table = a_v1_table(tmp_path)
    a, b = table.data("a", "b")
    table.manifest("m0", entry(ADDED, a))
    table.manifest("m1", entry(ADDED, b))
    table.rows["m1"]["partition_spec_id"] = 1
    table.forget_counts()
    table.snapshot(9, "m0", summary={"total-data-files": "1"})
    table.snapshot(1, "m0", "m1", summary={"total-data-files": "2"}, block_bytes=1)
    partition = {"name": "n_1", "transform": "identity", "source-id": 1, "field-id": 1000}
    specs = [
        {"spec-id": 0, "fields": []},
        {"spec-id": 1, "fields": [partition]},
        {"spec-id": 2, "fields": []},
    ]
    table.fields |= {"partition-specs": specs, "default-spec-id": 2}
    table.publish(main=1)
    return table


@pytest.mark.parametrize("cleanup", ["all", "metadata"])
def test_a_v1_snapshot_that_names_fewer_files_than_its_summary_says_stops_the_run(
    tmp_path: Path, cleanup: str
) -> None:
    table = a_v1_table(tmp_path)
    table.snapshot(9, table.manifest("m9", *(entry(ADDED, path) for path in table.data("a", "b"))))
    values = {"manifest_list": None, "manifests": [], "summary": {"total-data-files": "2"}}
    table.snapshots.append(a_snapshot(1, age_ms=LONG_AGO_MS + DAY_MS, parent=9, **values))
    table.publish(main=1)
    message = stopped(table, "--cleanup", cleanup)
    assert "snapshot 1: its manifests hold 0 files, its snapshot's summary says 2" in message


def test_no_partition_spec_goes_while_a_v1_snapshot_names_manifests_of_unknown_specs(tmp_path: Path) -> None:
    table = v1_of_two_specs(tmp_path)
    names = [str(table.rows[name]["manifest_path"]) for name in ("m0", "m1")]
    values = {"manifest_list": None, "manifests": names, "summary": {"total-data-files": "2"}}
    table.snapshots[1] = a_snapshot(1, age_ms=LONG_AGO_MS + DAY_MS, parent=9, **values)
    table.publish(main=1, name="v2.metadata.json")
    assert expire(table, "--clean-metadata").code == 0
    after = metadata_of(tmp_path / "visits")
    assert [spec["spec-id"] for spec in after["partition-specs"]] == [0, 1, 2]
    assert [snapshot["snapshot-id"] for snapshot in after["snapshots"]] == [1]


# -- S02 to S04: liveness is asked of paths, never read off DELETED entries ------------------------------------


def test_s02_a_file_that_was_removed_and_added_again_later_stays(table: Hazard) -> None:
    [path] = table.data("f")
    table.snapshot(9, table.manifest("m9", entry(ADDED, path)))
    table.snapshot(8, table.manifest("m8", entry(DELETED, path)), parent=9)
    table.snapshot(1, table.manifest("m1", entry(ADDED, path)), parent=8)
    table.publish(main=1)
    assert removed(table) == {f"metadata/{name}.avro" for name in ("snap-9", "snap-8", "m9", "m8")}


def test_s02_a_file_that_was_removed_and_added_in_one_commit_stays(table: Hazard) -> None:
    [path] = table.data("f")
    table.snapshot(9, table.manifest("m9", entry(ADDED, path)))
    gone, back = table.manifest("m8", entry(DELETED, path)), table.manifest("m8b", entry(ADDED, path))
    table.snapshot(8, gone, back, parent=9)
    table.snapshot(1, back, parent=8)
    table.publish(main=1)
    assert "data/f" not in removed(table)


def test_s03_the_files_of_a_staged_snapshot_that_was_cherry_picked_stay(table: Hazard) -> None:
    base, picked, dropped = table.data("base", "picked", "dropped")
    first = table.manifest("m9", entry(ADDED, base))
    table.snapshot(9, first)
    table.snapshot(8, first, table.manifest("m8", entry(ADDED, picked)), parent=9)
    table.snapshot(7, first, table.manifest("m7", entry(ADDED, dropped)), parent=9)
    table.snapshot(1, first, table.manifest("m1", entry(ADDED, picked)), parent=9)
    table.publish(main=1)
    gone = removed(table)
    assert "data/dropped" in gone
    assert not {"data/picked", "data/base"} & gone


def test_s04_the_files_that_a_rolled_back_snapshot_had_deleted_stay(table: Hazard) -> None:
    kept, added = table.data("kept", "added")
    first = table.manifest("m2", entry(ADDED, kept))
    table.snapshot(2, first)
    table.snapshot(9, table.manifest("m9", entry(DELETED, kept), entry(ADDED, added)), parent=2)
    table.publish(main=2)
    assert removed(table) == {"data/added", "metadata/m9.avro", "metadata/snap-9.avro"}


def test_a_gap_in_the_ancestry_costs_nothing(table: Hazard) -> None:
    # PyIceberg leaves such gaps; Java's incremental cleanup then reverts commits that are part of the table.
    a, b = table.data("a", "b")
    first = table.manifest("m9", entry(ADDED, a))
    second = table.manifest("m8", entry(ADDED, b))
    table.snapshot(9, first)
    table.snapshot(8, first, second, parent=None)
    table.snapshot(1, first, second, parent=77)
    table.publish(main=1)
    assert removed(table) == {"metadata/snap-9.avro", "metadata/snap-8.avro"}


# -- what metadata names directly ------------------------------------------------------------------------------


def test_a_statistics_file_that_two_snapshots_share_stays(table: Hazard) -> None:
    shared, own = table.data("shared.stats", "own.stats")
    table.snapshot(9)
    table.snapshot(8)
    table.snapshot(1, summary={"total-data-files": "0"})
    table.fields["statistics"] = [a_statistics_file(*item) for item in ((9, shared), (8, own), (1, shared))]
    table.publish(main=1)
    by_kind = expire(table, "--dry-run").json["removals"]["by_kind"]
    assert by_kind["statistics_file"]["count"] == 1
    gone = removed(table)
    assert "data/own.stats" in gone
    assert "data/shared.stats" not in gone


def test_statistics_that_name_a_live_file_or_the_metadata_itself_delete_neither(table: Hazard) -> None:
    [path] = table.data("live")
    live = table.manifest("m1", entry(ADDED, path))
    table.snapshot(9, live)
    table.snapshot(8, live)
    table.snapshot(7, live)
    table.snapshot(1, live)
    metadata = f"{table.location}/metadata"
    named = {9: path, 8: f"{metadata}/v1.metadata.json", 7: f"{metadata}/snap-1.avro"}
    table.fields["statistics"] = [a_statistics_file(*item) for item in named.items()]
    table.publish(main=1)
    assert removed(table) == {f"metadata/snap-{n}.avro" for n in (9, 8, 7)}


# -- interlocks ------------------------------------------------------------------------------------------------


def a_due_table(table: Hazard) -> None:
    """Expired snapshot 9 with a file of its own, kept 1."""
    keep, dead = table.data("keep", "dead")
    table.two_snapshots(expired=[keep, dead], kept=[keep])


@pytest.mark.parametrize("text", ["false", "False", "no", "0", "off", "", "true ", "1"])
def test_gc_enabled_is_off_wherever_java_reads_it_as_off(table: Hazard, text: str) -> None:
    # Boolean.parseBoolean: "true" in any case, nothing else.
    table.properties = {"gc.enabled": text}
    a_due_table(table)
    assert "gc.enabled" in stopped(table, code=11)


@pytest.mark.parametrize("text", ["true", "TRUE"])
def test_gc_enabled_is_on_wherever_java_reads_it_as_on(table: Hazard, text: str) -> None:
    table.properties = {"gc.enabled": text}
    a_due_table(table)
    assert "data/dead" in removed(table)


def test_a_table_that_no_branch_or_tag_holds_is_not_emptied(table: Hazard) -> None:
    for snapshot_id in (9, 8):
        paths = table.data(f"a{snapshot_id}")
        table.snapshot(snapshot_id, table.manifest(f"m{snapshot_id}", entry(ADDED, *paths)))
    table.fields |= {"refs": {}, "current-snapshot-id": -1}
    table.publish(main=8)
    assert "every snapshot of the table" in stopped(table, code=11)


def test_gc_enabled_that_is_switched_off_during_the_grace_stops_the_deletions(table: Hazard) -> None:
    a_due_table(table)
    assert expire(table, "--grace", "1s").json["status"] == "waiting"
    set_property(table, "gc.enabled", "false")
    time.sleep(1.05)
    before = table_files(table)
    for verb in (
        ("expire-snapshots", table.location, "--as-of", AS_OF_MS, "--yes"),
        ("resume", table.location),
    ):
        ran = iceberg_cli(*verb)
        assert ran.code == 11
        assert "gc.enabled" in ran.out + ran.err
        assert table_files(table) == before
    assert {"data/dead", *OWN_GONE} <= before
    set_property(table, "gc.enabled", "true")
    assert iceberg_cli("resume", table.location).code == 0
    assert before - table_files(table) == {"data/dead", *OWN_GONE}


def test_files_that_all_came_back_during_the_grace_stay(table: Hazard) -> None:
    # An operator restores the metadata of before the expiry as the next version.
    a_due_table(table)
    assert expire(table, "--grace", "1s").json["status"] == "waiting"
    time.sleep(1.05)
    folder = Path(table.location) / "metadata"
    (folder / "v3.metadata.json").write_bytes((folder / "v1.metadata.json").read_bytes())
    before = table_files(table)
    ran = iceberg_cli("resume", table.location, "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    assert table_files(table) == before


def set_property(table: Hazard, name: str, value: str) -> None:
    """Commit a table property as another writer."""
    newest = newest_metadata(Path(table.location))
    document = json.loads(newest.read_text())
    document["properties"] |= {name: value}
    version = int(newest.name[1:].partition(".")[0])
    newest.with_name(f"v{version + 1}.metadata.json").write_text(json.dumps(document))


def table_files(table: Hazard) -> set[str]:
    """The table's files without the journals of this tool."""
    return set(listing_of_table(Path(table.location)))


# -- other people's files --------------------------------------------------------------------------------------


def a_table_that_gives_up(table: Hazard, *paths: str) -> None:
    """Expired snapshot 9 has these paths and main has not."""
    [keep] = table.data("keep")
    table.two_snapshots(expired=[keep, *paths], kept=[keep])


@pytest.mark.parametrize(
    ("spelled", "stored"),
    [
        ("{lake}/other/data/x", "other/data/x"),
        ("{lake}/events/../other/data/x", "other/data/x"),
        ("file://{lake}/events/data/../../other/data/x", "other/data/x"),
        ("{lake}/events_old/data/x", "events_old/data/x"),
        ("{lake}/events.bak/x", "events.bak/x"),
        ("{lake}/x", "x"),
    ],
)
def test_a_path_outside_the_table_is_reported_and_never_deleted(
    table: Hazard, tmp_path: Path, spelled: str, stored: str
) -> None:
    lake = tmp_path / "lake"
    target = lake / stored
    target.parent.mkdir(parents=True)
    target.write_text("somebody else's")
    path = spelled.format(lake=lake)
    a_table_that_gives_up(table, path)
    plan = expire(table, "--dry-run").json
    assert any("1 file, 10 bytes, that would go stays for ever" in t and path in t for t in plan["warnings"])
    assert plan["removals"]["count"] == len(OWN_GONE)
    assert removed(table) == OWN_GONE
    assert target.read_text() == "somebody else's"


@pytest.mark.parametrize(
    "name",
    ["k=東京\uff0f大阪/x", "k=1\u20442/x", "k=a\\b/x", "a\\..\\x", "k=a%2F.%2Fb/x", "%2e%2e/%2E%2e/other/x"],
)
def test_a_name_that_only_looks_like_a_way_out_of_the_table_goes_as_any_other(
    table: Hazard, name: str
) -> None:
    [path] = table.data(name)
    a_table_that_gives_up(table, path)
    assert removed(table) == {*OWN_GONE, f"data/{name}"}
    assert not Path(path).exists()


def test_a_folder_that_the_operator_allows_is_deleted_from(table: Hazard, tmp_path: Path) -> None:
    other = tmp_path / "lake" / "other" / "x"
    other.parent.mkdir(parents=True)
    other.write_text("ours in fact")
    a_table_that_gives_up(table, str(other))
    assert removed(table, "--unsafe-allow-root", other.parent) == OWN_GONE
    assert not other.exists()


@pytest.mark.parametrize("root", ["/", "file:///", "s3://", ""])
def test_no_root_is_as_wide_as_a_disk(table: Hazard, tmp_path: Path, root: str) -> None:
    other = tmp_path / "lake" / "other" / "x"
    other.parent.mkdir(parents=True)
    other.write_text("somebody else's")
    a_table_that_gives_up(table, str(other))
    assert expire(table, "--unsafe-allow-root", root).code == 2
    assert other.exists()


def test_other_buckets_and_schemes_are_reported_and_never_looked_at(table: Hazard) -> None:
    paths = ["s3://other/events/data/x", "hdfs://nn/h", "gs://b/g", "http://127.0.0.1:9/w"]
    a_table_that_gives_up(table, *paths)
    plan = expire(table, "--dry-run").json
    assert any(
        text.startswith("4 files, 40 bytes, that would go stay for ever: they are outside")
        for text in plan["warnings"]
    )
    assert removed(table) == OWN_GONE


@pytest.mark.parametrize("output", [(), ("--quiet",), ("--format", "json")])
def test_files_that_stay_for_ever_are_counted_before_the_commit_whatever_is_printed(
    table: Hazard, tmp_path: Path, output: Sequence[str]
) -> None:
    old = tmp_path / "imported"
    a_table_that_gives_up(table, f"{old}/k=1/x", f"{old}/k=2/y")
    ran = iceberg_cli("expire-snapshots", table.location, "--as-of", AS_OF_MS, "--yes", *output)
    assert ran.code == 0
    line = (
        "warning: 2 files, 20 bytes, that would go stay for ever: they are outside the table's own locations, in "
        f"{old}, and nothing will reference them any more. `--unsafe-allow-root {old}` deletes them. "
        f"Such as: {old}/k=1/x, {old}/k=2/y\n"
    )
    assert line in (ran.err if output else ran.out)


@pytest.mark.parametrize(
    "arguments", [("expire-snapshots", "--dry-run"), ("plan", "expire-snapshots"), ("plan",)], ids=" ".join
)
def test_a_quiet_look_tells_of_files_that_will_stay_for_ever(
    table: Hazard, tmp_path: Path, arguments: Sequence[str]
) -> None:
    a_table_that_gives_up(table, f"{tmp_path}/imported/x")
    verb, *rest = arguments
    ran = iceberg_cli(verb, table.location, *rest, "--as-of", AS_OF_MS, "--quiet")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("warning: 1 file, 10 bytes, that would go stays for ever: ")
    assert ran.err.count("\n") == 1


def test_a_quiet_run_of_which_nothing_stays_says_nothing(table: Hazard) -> None:
    a_table_that_gives_up(table, *table.data("x"))
    ran = iceberg_cli("expire-snapshots", table.location, "--as-of", AS_OF_MS, "--yes", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def refusal(table: Hazard, *arguments: object) -> str:
    """Why an expiry is refused, which leaves everything as it was."""
    [reason] = expire(table, "--dry-run", *arguments).json["blocked_by"]
    assert reason in stopped(table, *arguments, code=11)
    return str(reason)


def data_behind_a_link(table: Hazard, target: Path) -> None:
    """A table whose folder `data` is a symbolic link to `target`; x is to go, and keep is live."""
    target.mkdir(parents=True)
    Path(table.location).mkdir(parents=True, exist_ok=True)
    (Path(table.location) / "data").symlink_to(target)
    a_table_that_gives_up(table, *table.data("x"))


@pytest.mark.parametrize("inside", [False, True])
def test_data_behind_a_symbolic_link_blocks_the_expiry_until_its_folder_is_allowed(
    table: Hazard, tmp_path: Path, inside: bool
) -> None:
    target = Path(table.location) / "other" if inside else tmp_path / "disk" / "data"
    data_behind_a_link(table, target)
    assert refusal(table) == (
        f"files cannot be deleted: the symbolic link {table.location}/data leads to {target}; "
        f"--unsafe-allow-root {target} allows that, or mount {target} there instead of the link"
    )
    refusal(table, "--unsafe-allow-root", tmp_path / "elsewhere")
    assert expire(table, "--cleanup", "metadata", "--dry-run").json["blocked_by"] == []
    before = listing(target)
    assert {"x", "keep"} <= set(before)
    assert expire(table, "--unsafe-allow-root", target).code == 0
    assert set(before) - set(listing(target)) == {"x"}


def test_a_link_that_is_allowed_leads_to_no_file_that_is_live_by_another_name(
    table: Hazard, tmp_path: Path
) -> None:
    target = tmp_path / "disk" / "data"
    data_behind_a_link(table, target)
    table.snapshots.clear()
    [shared] = table.data("shared")
    table.snapshot(8, table.manifest("m8", entry(ADDED, f"{table.location}/data/x"), entry(ADDED, shared)))
    table.snapshot(2, table.manifest("m2", entry(ADDED, f"{target}/shared")), parent=8)
    (Path(table.location) / "metadata" / "v1.metadata.json").unlink()
    table.publish(main=2)
    assert expire(table, "--unsafe-allow-root", target).code == 0
    assert not (target / "x").exists()
    assert (target / "shared").exists()


def test_a_link_that_is_swapped_for_one_to_another_place_leads_nowhere(table: Hazard, tmp_path: Path) -> None:
    target, canary = tmp_path / "disk" / "data", tmp_path / "canary"
    data_behind_a_link(table, target)
    plan = tmp_path / "plan.json"
    allowed = ("--unsafe-allow-root", target)
    assert (
        iceberg_cli(
            "plan", table.location, "expire-snapshots", "--as-of", AS_OF_MS, *allowed, "-o", plan
        ).code
        == 0
    )
    canary.mkdir()
    (canary / "x").write_text("somebody else's")
    (canary / "keep").write_text("somebody else's")
    (Path(table.location) / "data").unlink()
    (Path(table.location) / "data").symlink_to(canary)
    iceberg_cli("apply", plan, "--yes", *allowed)
    assert (canary / "x").exists()
    assert (target / "x").exists()


@pytest.mark.parametrize("trailing", ["", "/"])
def test_a_location_below_a_link_is_as_good_as_any(tmp_path: Path, trailing: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    table = Hazard(location=str(tmp_path / "link" / "events"))
    a_table_that_gives_up(table, *table.data("x"))
    table.location += trailing
    assert removed(table) == {*OWN_GONE, "data/x"}


def test_a_folder_that_may_not_be_written_to_blocks_the_expiry(tmp_path: Path) -> None:
    # As root everything may be written to, so it is tried as nobody, in folders that are open to all.
    with tempfile.TemporaryDirectory() as folder:
        table = Hazard(location=f"{folder}/events")
        a_table_that_gives_up(table, *table.data("x"))
        for each in (Path(folder), *Path(folder).rglob("*")):
            each.chmod(0o777)
        data = Path(table.location) / "data"
        data.chmod(0o555)
        with as_nobody():
            reason = refusal(table)
        assert reason == f"files in {data} cannot be deleted: it may not be written to"
        data.chmod(0o777)
        with as_nobody():
            assert expire(table).code == 0
        assert not (data / "x").exists()


def test_a_symbolic_link_is_unlinked_and_its_target_stays(table: Hazard, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("somebody else's")
    a_table_that_gives_up(table, f"{table.location}/data/x")
    (Path(table.location) / "data" / "x").symlink_to(target)
    assert expire(table).code == 0
    assert not (Path(table.location) / "data" / "x").is_symlink()
    assert target.read_text() == "somebody else's"


def test_data_in_the_table_s_own_write_data_path_goes(tmp_path: Path) -> None:
    elsewhere = tmp_path / "cold"
    properties = {"write.data.path": str(elsewhere)}
    table = Hazard(location=str(tmp_path / "events"), properties=properties)
    elsewhere.mkdir()
    (elsewhere / "x").write_text("ours")
    a_table_that_gives_up(table, str(elsewhere / "x"))
    assert removed(table) == OWN_GONE
    assert not (elsewhere / "x").exists()


# -- two spellings of one file ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expired", "kept"), [("{}", "file://{}"), ("file:{}", "{}"), ("/.{}", "{}"), ("/{}", "{}")]
)
def test_two_local_spellings_of_a_file_are_one_file(table: Hazard, expired: str, kept: str) -> None:
    [path] = table.data("x")
    table.two_snapshots(expired=[expired.format(path)], kept=[kept.format(path)])
    assert removed(table) == OWN_GONE


def objects(versitygw: S3Server, prefix: str) -> set[str]:
    storage = open_storage(versitygw.options)
    return {info.path.rsplit("/", 1)[-1] for info in storage.list(f"s3://{versitygw.bucket}/{prefix}")}


@pytest.mark.parametrize(("expired", "kept"), [("s3", "s3a"), ("s3a", "s3"), ("s3n", "s3a")])
def test_s3_s3a_and_s3n_are_one_file(
    versitygw: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expired: str,
    kept: str,
) -> None:
    prefix = f"hazards/{expired}-{kept}"
    rest = f"://{versitygw.bucket}/{prefix}"
    table = Hazard(location=f"s3{rest}", storage=open_storage(versitygw.options))
    table.data("x", "dead")
    table.snapshot(9, table.manifest("m9", *spelled(expired + rest, "x", "dead")))
    table.snapshot(1, table.manifest("m1", *spelled(kept + rest, "x")))
    registered(tmp_path / "c.db", table.publish(main=1, name="00000-a.metadata.json"))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/c.db")
    options = [part for item in versitygw.options.items() for part in ("--storage-option", "=".join(item))]
    before = objects(versitygw, prefix)
    ran = iceberg_cli("expire-snapshots", "lake.shop.t", "--as-of", AS_OF_MS, "--yes", *options)
    assert ran.code == 0, ran.err
    assert before - objects(versitygw, prefix) == {"dead", "m9.avro", "snap-9.avro"}


def spelled(location: str, *names: str) -> Sequence[Entry]:
    """Entries of data files below this spelling of the table's location."""
    return [entry(ADDED, f"{location}/data/{name}") for name in names]
