"""One file under two names, and two files under names that look alike: what is live stays under every name it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_cli.engines import Event
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.iceberg.reachability.question import ReachQuestion, SnapshotFiles
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.testing.crash.world import Script, SimStorage, World
from iceberg_cli.testing.iceberg_files import ADDED, EXISTING
from tests.builders import a_statistics_file
from tests.cli.lakes import listing
from tests.hazard_tables import OWN_GONE, Hazard, entry, removed


def unseen(_event: Event) -> None:
    """Nobody watches the progress."""


def data_files_that_go(table: Hazard) -> list[str]:
    """Those that the first snapshot reaches and the second one does not, as they are written."""
    expired, kept = (
        SnapshotFiles(snapshot_id=each["snapshot-id"], manifest_list=each["manifest-list"])
        for each in table.snapshots
    )
    reachability = Reachability(engine=LocalEngine(table.storage, threads=1), on_event=unseen)
    rows = reachability.answer(ReachQuestion(expired=(expired,), kept=(kept,)), step="expire").rows
    content = rows.filter([kind == "data_file" for kind in rows["kind"].to_pylist()])
    found: list[str] = content["as_written"].to_pylist()
    return found


# -- schemes and authorities -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("s3://lake", "s3://lake-data"),
        ("s3a://lake", "s3a://lake.old"),
        ("gs://b", "gs://b2"),
        ("file://", "file://localhost"),
        ("file:", "file://localhost"),
        ("hdfs:", "hdfs://nn:8020"),
    ],
)
def test_a_live_file_stays_where_its_authority_begins_like_that_of_the_file_before_it(
    short: str, long: str
) -> None:
    storage = SimStorage(World(), Script())
    table = Hazard(location="/lake/t", storage=storage)
    old, live, gone = f"{short}/t/data/old", f"{long}/t/data/live", f"{long}/t/data/gone"
    table.two_snapshots(expired=[live, gone], kept=[old, live])
    assert data_files_that_go(table) == [gone]


@pytest.mark.parametrize("end", ["/", "//", "/.", "/./"])
@pytest.mark.parametrize("odd", ["kept", "expired"])
def test_a_live_file_stays_where_one_snapshot_spells_it_like_a_folder(
    tmp_path: Path, odd: str, end: str
) -> None:
    table = Hazard(location=str(tmp_path / "events"))
    live, gone = table.data("live", "gone")
    kept, expired = (live + (end if odd == which else "") for which in ("kept", "expired"))
    table.two_snapshots(expired=[expired, gone], kept=[kept])
    assert removed(table) == OWN_GONE | {"data/gone"}


@pytest.mark.parametrize("name", ["m1.avro", "v1.metadata.json", "version-hint.text", "snap-1.avro"])
def test_a_tables_own_files_stay_where_an_expired_snapshot_spells_one_like_a_folder(
    tmp_path: Path, name: str
) -> None:
    table = Hazard(location=str(tmp_path / "events"))
    live, gone = table.data("live", "gone")
    spelled = f"{table.location}/metadata/{name}/"
    table.two_snapshots(expired=[spelled, gone], kept=[live])
    assert removed(table) == OWN_GONE | {"data/gone"}


def test_kept_manifests_whose_paths_differ_only_in_their_bucket_are_both_read() -> None:
    storage = SimStorage(World(), Script())
    table = Hazard(location="/lake/t", storage=storage)
    live, live_too, gone = (f"/lake/t/data/{name}" for name in ("live", "live_too", "gone"))
    for name, path in (("hot", live), ("cold", live_too)):
        table.manifest(name, entry(EXISTING, path))
        moved = f"s3://{name}/t/metadata/m.avro"
        storage.put_if_absent(moved, storage.read(table.rows[name]["manifest_path"]))
        table.rows[name]["manifest_path"] = moved
    table.snapshot(9, table.manifest("m9", entry(ADDED, live), entry(ADDED, live_too), entry(ADDED, gone)))
    table.snapshot(1, "hot", "cold")
    assert data_files_that_go(table) == [gone]


@pytest.mark.parametrize("first", ["file://", "file:", ""])
def test_a_live_file_of_localhost_stays_beside_one_without_a_host(tmp_path: Path, first: str) -> None:
    table = Hazard(location=str(tmp_path / "events"))
    old, live, gone = table.data("old", "live", "gone")
    host = "file://localhost"
    table.two_snapshots(expired=[host + live, host + gone], kept=[first + old, host + live])
    assert removed(table) == {"data/gone", *OWN_GONE}


# -- symbolic links above the table ----------------------------------------------------------------------------


@pytest.fixture(params=["link", "a link (of +1) $2"])
def linked(tmp_path: Path, request: pytest.FixtureRequest) -> Hazard:
    """A table whose location goes through a link to the folder `real`."""
    (tmp_path / "real").mkdir()
    (tmp_path / request.param).symlink_to(tmp_path / "real")
    return Hazard(location=str(tmp_path / request.param / "events"))


def real(table: Hazard, path: str) -> str:
    """The path with the link resolved."""
    return path.replace(table.location, str(Path(table.location).resolve()))


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}", "file://localhost{}", "/{}"])
def test_a_live_data_file_stays_under_the_real_name_of_a_linked_folder(linked: Hazard, spelling: str) -> None:
    live, gone = linked.data("live", "gone")
    linked.snapshot(9, linked.manifest("m9", entry(ADDED, live), entry(ADDED, gone)))
    linked.snapshot(1, linked.manifest("m1", entry(ADDED, spelling.format(real(linked, live)))))
    linked.publish(main=1)
    assert removed(linked) == {"data/gone", *OWN_GONE}


@pytest.mark.parametrize(
    ("location", "kept"), [("real", "link"), ("link", "other"), ("link", "real"), ("real/deep", "deep")]
)
def test_a_live_data_file_stays_under_any_name_that_a_link_to_a_folder_gives_it(
    tmp_path: Path, location: str, kept: str
) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    for name, target in (("link", "real"), ("other", "link"), ("deep", "other/deep")):
        (tmp_path / name).symlink_to(tmp_path / target)
    table = Hazard(location=str(tmp_path / location / "events"))
    live, gone = table.data("live", "gone")
    named = live.replace(f"{tmp_path}/{location}/", f"{tmp_path}/{kept}/")
    table.two_snapshots(expired=[live, gone], kept=[named])
    assert removed(table) == {"data/gone", *OWN_GONE}


def test_a_live_data_file_in_write_data_path_stays_under_the_name_of_a_link_inside_the_table(
    tmp_path: Path,
) -> None:
    cold = tmp_path / "cold"
    table = Hazard(location=str(tmp_path / "events"), properties={"write.data.path": str(cold)})
    cold.mkdir()
    for name in ("live", "gone"):
        (cold / name).write_text("ours")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "data").symlink_to(cold)
    table.two_snapshots(expired=[f"{cold}/live", f"{cold}/gone"], kept=[f"{table.location}/data/live"])
    assert "metadata/m9.avro" in removed(table)
    assert [path.name for path in cold.iterdir()] == ["live"]


@pytest.mark.parametrize("odd", ["/a\0b/x", "relative/x", "x", "/", "/x", "/a\nb/c\nd", "/é/漢"])
def test_odd_names_of_live_files_stop_nothing(tmp_path: Path, odd: str) -> None:
    table = Hazard(location=str(tmp_path / "events"))
    live, gone = table.data("live", "gone")
    table.two_snapshots(expired=[live, gone], kept=[odd, live])
    assert removed(table) == {"data/gone", *OWN_GONE}


def test_a_live_manifest_stays_under_the_real_name_of_a_linked_folder(linked: Hazard) -> None:
    [live] = linked.data("live")
    linked.snapshot(9, linked.manifest("m9", entry(ADDED, live)))
    linked.rows["m9"]["manifest_path"] = real(linked, linked.rows["m9"]["manifest_path"])
    linked.snapshot(1, "m9", parent=9)
    linked.publish(main=1)
    assert removed(linked) == {"metadata/snap-9.avro"}


def test_a_live_list_stays_under_the_real_name_of_a_linked_folder(linked: Hazard) -> None:
    for snapshot_id in (9, 8):
        linked.snapshot(snapshot_id)
    linked.snapshot(1, manifest_list=real(linked, linked.snapshots[1]["manifest-list"]))
    linked.publish(main=1)
    assert removed(linked) == {"metadata/snap-9.avro"}


def test_live_statistics_stay_under_the_real_name_of_a_linked_folder(linked: Hazard) -> None:
    shared, own = linked.data("shared.stats", "own.stats")
    for snapshot_id in (9, 8, 1):
        linked.snapshot(snapshot_id)
    sizes = {"file-size-in-bytes": 10, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    named = ((9, shared), (8, own), (1, real(linked, shared)))
    linked.fields["statistics"] = [
        {"snapshot-id": snapshot_id, "statistics-path": path, **sizes} for snapshot_id, path in named
    ]
    linked.publish(main=1)
    assert "data/own.stats" in removed(linked)
    assert Path(shared).exists()


# -- files that are a table's own records ----------------------------------------------------------------------


@pytest.mark.pairs
@pytest.mark.parametrize(
    "name",
    [
        "metadata/version-hint.text",
        "_iceberg_cli/note",
        "inner/metadata/version-hint.text",
        "inner/metadata/v1.metadata.json",
        "inner/metadata/00000-a.gz.metadata.json",
        "inner/metadata/00000-a.metadata.json.gz",
        "inner/_iceberg_cli/ops/0/000000.json",
    ],
)
@pytest.mark.parametrize("named_by", ["manifest", "statistics"])
def test_records_of_this_and_other_tables_stay_whatever_names_them_as_content(
    tmp_path: Path, name: str, named_by: str
) -> None:
    table = Hazard(location=str(tmp_path / "events"))
    keep, gone = table.data("keep", "gone")
    record = f"{table.location}/{name}"
    table.storage.put_if_absent(record, b"1")
    content = [keep, gone, record] if named_by == "manifest" else [keep, gone]
    if named_by == "statistics":
        table.fields["statistics"] = [a_statistics_file(9, record, size_bytes=1)]
    table.two_snapshots(expired=content, kept=[keep])
    assert removed(table) == {"data/gone", *OWN_GONE}
    assert name in listing(tmp_path / "events")
