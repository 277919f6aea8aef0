"""What happens between the plan and a deletion keeps the file; listings that lie delete nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import (
    BackendUnavailable,
    CorruptFile,
    DeletesFailed,
    IcebergCliError,
    Refused,
    StalePlan,
)
from iceberg_cli.storage import FileInfo
from iceberg_cli.testing.iceberg_files import ADDED
from tests.builders import NOW_MS
from tests.cli.lakes import listing_of_table
from tests.cli.running import Ran, iceberg_cli
from tests.hazard_tables import entry
from tests.iceberg.verbs.remove_orphan_files.tables import (
    LIVE,
    OLD_MS,
    ORPHAN,
    SUBJECT,
    VERB,
    DiskTable,
    StoreTable,
    make_old,
    name_of,
    uuid_of,
)

PLACE = f"data/k=1/{SUBJECT}"
Event = Callable[[DiskTable], object]


@pytest.fixture
def table(tmp_path: Path) -> DiskTable:
    """A table with two files that nobody names: an orphan, and the one that something happens to."""
    found = DiskTable(location=str(tmp_path / "t")).with_live()
    found.put(PLACE)
    return found


def planned(table: DiskTable, *arguments: object) -> Path:
    """A saved plan, which has both files."""
    saved = table.folder.parent / "plan"
    ran = iceberg_cli("plan", table.location, VERB, *arguments, "-o", saved, "--format", "json")
    assert (ran.code, ran.json["removals"]["count"]) == (0, 2)
    return saved


def applied(saved: Path) -> Ran:
    return iceberg_cli("apply", saved, "--yes", "--format", "json")


# -- between plan and deletion ---------------------------------------------------------------------------------------


def committed(table: DiskTable, path: str = "") -> None:
    table.snapshot(2, "m1", table.manifest("m2", entry(ADDED, path or f"{table.location}/{PLACE}")), parent=1)
    table.publish(main=2, name="v2.metadata.json")


def committed_otherwise(table: DiskTable) -> None:
    """By another scheme, place, encoding and case."""
    committed(table, f"hdfs://old:8020/else//{SUBJECT.upper().replace('A', '%41')}")


def committed_by_a_link(table: DiskTable) -> None:
    (table.folder / "data" / name_of("link")).symlink_to(table.folder / PLACE)
    committed(table, f"{table.location}/data/{name_of('link')}")


def made_statistics(table: DiskTable) -> None:
    entries = [{"snapshot-id": 1, "statistics-path": f"{table.location}/{PLACE}", "file-size-in-bytes": 10}]
    table.fields["partition-statistics"] = entries
    table.publish(main=1, name="v2.metadata.json")


def rewritten(table: DiskTable) -> None:
    table.put(PLACE, data=b"other bytes")


def rewritten_with_the_same_size(table: DiskTable) -> None:
    table.put(PLACE, data=b"TEN BYTES.", age_ms=OLD_MS - 1_500)


def touched(table: DiskTable) -> None:
    make_old(table.folder / PLACE, 0)


def surrounded_by_iceberg(table: DiskTable) -> None:
    table.put("data/k=1/metadata/v1.metadata.json", data=b"{}")


def surrounded_by_a_hint(table: DiskTable) -> None:
    table.put("data/k=1/metadata/version-hint.text", data=b"1")


def surrounded_by_delta(table: DiskTable) -> None:
    table.put("data/k=1/_delta_log/00000000000000000000.json", data=b"{}")


def reached_by_a_clone(table: DiskTable) -> None:
    """Its metadata has a name without a number."""
    table.snapshot(3, "m1", table.manifest("m3", entry(ADDED, f"{table.location}/{PLACE}")), parent=1)
    table.publish(main=3, name=f"{uuid_of('clone')}.metadata.json")


KEEPING = [
    committed, committed_otherwise, committed_by_a_link, made_statistics, rewritten, rewritten_with_the_same_size,
    touched, surrounded_by_iceberg, surrounded_by_a_hint, surrounded_by_delta, reached_by_a_clone,
]  # fmt: skip


@pytest.mark.parametrize("event", KEEPING, ids=lambda event: str(event.__name__))
def test_what_happens_to_a_file_after_the_plan_keeps_it_and_no_other(table: DiskTable, event: Event) -> None:
    saved = planned(table)
    event(table)
    ran = applied(saved)
    assert ran.code == 0, ran.err
    assert (table.folder / PLACE).exists()
    assert not (table.folder / "data" / ORPHAN).exists()


@pytest.mark.parametrize("event", KEEPING, ids=lambda event: str(event.__name__))
def test_the_same_after_a_run_that_stopped_at_a_limit(table: DiskTable, event: Event) -> None:
    """The orphan goes first, for its path does."""
    ran = table.run("--limit-deletes", "1")
    assert ran.json["deleted_orphan_files_count"] == 1
    assert (table.folder / PLACE).exists()
    event(table)
    ran = iceberg_cli("resume", table.location)
    assert ran.code == 0, ran.err
    assert (table.folder / PLACE).exists()


def forbidden(table: DiskTable) -> None:
    table.properties = {"gc.enabled": "false"}
    table.publish(main=1, name="v2.metadata.json")


def encrypted(table: DiskTable) -> None:
    table.properties = {"encryption.key-id": "k"}
    table.publish(main=1, name="v2.metadata.json")


def marked_by_delta(table: DiskTable) -> None:
    table.properties = {"delta.universalFormat.enabledFormats": "iceberg"}
    table.publish(main=1, name="v2.metadata.json")


def shared(table: DiskTable) -> None:
    table.beside("00007-x.metadata.json", table_uuid=uuid_of("another"))


def became_hudis(table: DiskTable) -> None:
    table.put(".hoodie/hoodie.properties")


def became_newer(table: DiskTable) -> None:
    table.beside("v2.metadata.json", format_version=4)


FORBIDDING = [forbidden, encrypted, marked_by_delta, shared, became_hudis, became_newer]


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("event", FORBIDDING, ids=lambda event: str(event.__name__))
def test_what_forbids_deletions_after_the_plan_keeps_all_files(
    table: DiskTable, event: Event, limited: bool
) -> None:
    if limited:
        assert table.run("--limit-deletes", "1").code == 0
        event(table)
        before = set(listing_of_table(table.folder))
        ran = iceberg_cli("resume", table.location)
    else:
        saved = planned(table)
        event(table)
        before = set(listing_of_table(table.folder))
        ran = applied(saved)
    assert ran.code == 11, ran.out + ran.err
    assert set(listing_of_table(table.folder)) == before


@pytest.mark.parametrize("event", [forbidden, became_hudis], ids=lambda event: str(event.__name__))
def test_metadata_files_stay_too_where_deletions_are_forbidden_by_now(table: DiskTable, event: Event) -> None:
    """Those that an expiry drops go by the table's own property; these go by their age alone."""
    for name in (PLACE, f"data/{ORPHAN}"):
        (table.folder / name).unlink()
    document = table.document() | {"last-updated-ms": table.document()["last-updated-ms"] - 10}
    table.put("metadata/v0.metadata.json", data=json.dumps(document).encode())
    saved = table.folder.parent / "plan"
    ran = iceberg_cli("plan", table.location, VERB, "--metadata-files", "-o", saved, "--format", "json")
    assert ran.json["removals"]["by_kind"]["metadata_file"]["count"] == 1
    event(table)
    assert applied(saved).code == 11
    assert (table.folder / "metadata" / "v0.metadata.json").exists()


def test_metadata_beside_that_cannot_be_read_by_now_stops_the_deletions(table: DiskTable) -> None:
    saved = planned(table)
    table.put("metadata/v9.metadata.json", data=b'{"format-version": 2')
    ran = applied(saved)
    assert ran.code not in (0, 2)
    assert {LIVE, ORPHAN} <= {path.name for path in (table.folder / "data").iterdir()}
    assert (table.folder / PLACE).exists()


def test_a_file_that_is_gone_by_now_is_no_failure(table: DiskTable) -> None:
    saved = planned(table)
    (table.folder / PLACE).unlink()
    assert applied(saved).code == 0
    assert not (table.folder / "data" / ORPHAN).exists()


def test_a_link_that_takes_the_place_of_a_file_stays_as_its_target_does(table: DiskTable) -> None:
    saved = planned(table)
    (table.folder / PLACE).unlink()
    (table.folder / PLACE).symlink_to(table.folder / "data" / LIVE)
    make_old(table.folder / PLACE)
    assert applied(saved).code == 0
    assert (table.folder / "data" / LIVE).exists()


@pytest.mark.parametrize("document", ["clone", "scrap"])
def test_metadata_beside_that_the_operator_vouches_for_keeps_nothing(table: DiskTable, document: str) -> None:
    """As the plan, or the error, says; its own file stays."""
    name = "x.metadata.json" if document == "clone" else "v0.metadata.json"
    if document == "clone":
        table.snapshot(3, "m1", table.manifest("m3", entry(ADDED, f"{table.location}/{PLACE}")), parent=1)
        table.publish(main=3, name=name)
        table.age()
        assert f"--unsafe-forget-metadata {name}" in str(table.dry()["warnings"])
    else:
        table.put(f"metadata/{name}", data=b'{"format-version": 2')
        assert f"--unsafe-forget-metadata {name}" in table.refused(code=15)
    with_others = {f"data/{ORPHAN}", PLACE} | (
        {"metadata/m3.avro", "metadata/snap-3.avro"} if document == "clone" else set()
    )
    assert table.removed("--unsafe-forget-metadata", name) == with_others
    assert (table.folder / "metadata" / name).exists()
    assert iceberg_cli(VERB, table.location, "--unsafe-forget-metadata", "y.metadata.json").code == 2


def test_a_clone_that_comes_after_another_one_was_vouched_for_keeps_its_files(table: DiskTable) -> None:
    table.snapshot(3, "m1", table.manifest("m3", entry(ADDED, f"{table.location}/{PLACE}")), parent=1)
    table.publish(main=3, name="x.metadata.json")
    table.file("m3").touch()
    saved = table.folder.parent / "plan"
    forget = ("--unsafe-forget-metadata", "x.metadata.json")
    assert iceberg_cli("plan", table.location, VERB, *forget, "-o", saved).code == 0
    table.publish(main=3, name="y.metadata.json")
    assert iceberg_cli("apply", saved, "--yes", *forget).code == 0
    assert (table.folder / PLACE).exists()
    assert not (table.folder / "data" / ORPHAN).exists()


# -- between batches, in a store -------------------------------------------------------------------------------------


@pytest.fixture
def stored() -> StoreTable:
    """A table with ten files that nobody names, of which four are looked at together."""
    table = StoreTable(location="s3://b/t").with_live()
    table.put(*(f"data/k={number}/{name_of(number)}" for number in range(9)))
    return table


def test_a_link_that_is_made_and_committed_during_a_run_keeps_its_target(table: DiskTable) -> None:
    """The folders of the table are looked through for links again."""
    opened = ic.open_table(table.location)
    plan = opened.plan(ic.iceberg.RemoveOrphanFiles())
    committed_by_a_link(table)
    assert opened.apply(plan).status == "done"
    assert (table.folder / PLACE).exists()
    assert not (table.folder / "data" / ORPHAN).exists()


def test_a_commit_between_two_batches_keeps_the_files_of_the_second(stored: StoreTable) -> None:
    last = [f"s3://b/t/data/k={number}/{name_of(number)}" for number in (7, 8)]

    def commit() -> None:
        stored.snapshot(2, "m1", stored.manifest("m2", *(entry(ADDED, each) for each in last)))
        stored.commit()

    planned = stored.process().plan()
    stored.storage.hooks["delete"] = lambda: stored.storage.hooks.update(delete=commit)  # after a probe
    report = stored.process().carry_out(planned)
    assert (report.status, report.kept_again) == ("done", 2)
    assert {*last} <= set(stored.world.files)
    assert f"s3://b/t/data/{ORPHAN}" not in stored.world.files


def test_a_property_that_is_set_between_two_batches_stops_the_second(stored: StoreTable) -> None:
    def forbid() -> None:
        stored.properties = {"gc.enabled": "false"}
        stored.commit()

    planned = stored.process().plan()
    stored.storage.hooks["delete"] = lambda: stored.storage.hooks.update(delete=forbid)  # after a probe
    with pytest.raises(Refused, match=r"gc\.enabled"):
        stored.process().carry_out(planned)
    left = [path for path in stored.short(set(stored.world.files)) if path.startswith("data/k=")]
    assert len(left) == 6  # of ten files a batch of four is gone


@pytest.mark.parametrize("earlier", [False, True])
def test_a_clone_that_comes_in_while_the_table_stays_as_it_is_keeps_its_files(
    stored: StoreTable, earlier: bool
) -> None:
    """In one process, which has looked for metadata beside the table's own, and seen an earlier clone or none."""
    path, pointer = f"s3://b/t/data/k=7/{name_of(7)}", stored.world.pointer
    if earlier:
        stored.snapshot(3, "m1", stored.manifest("m3", entry(ADDED, f"s3://b/t/data/k=1/{name_of(1)}")))
        stored.commit()
    stored.world.pointer = pointer
    process = stored.process()
    planned = process.plan()
    stored.snapshots = stored.snapshots[:1]
    stored.snapshot(2, "m1", stored.manifest("m2", entry(ADDED, path)))
    stored.commit()
    stored.world.pointer = pointer
    assert process.carry_out(planned).kept_again == 1
    assert path in stored.world.files
    assert (f"s3://b/t/data/k=1/{name_of(1)}" in stored.world.files) == earlier


def test_what_is_committed_while_folders_are_listed_is_in_no_plan(stored: StoreTable) -> None:
    path = f"data/k=7/{name_of(7)}"

    def commit() -> None:
        stored.snapshot(2, "m1", stored.manifest("m2", entry(ADDED, f"s3://b/t/{path}")))
        stored.commit()

    process = stored.process()
    process.table.load()
    stored.storage.hooks["listed"] = commit
    plan = process.plan().plan
    assert plan.removals is not None
    assert plan.base.version == stored.world.pointer
    assert f"s3://b/t/{path}" not in plan.removals.rows["path"].to_pylist()
    assert plan.removals.count == 9


def test_folders_that_change_while_they_are_listed_make_the_plan_stale(stored: StoreTable) -> None:
    def move() -> None:
        stored.properties = {"write.data.path": "s3://b/t/elsewhere"}
        stored.commit()

    process = stored.process()
    process.table.load()
    stored.storage.hooks["listed"] = move
    with pytest.raises(StalePlan):
        process.plan()


def test_a_file_that_is_rewritten_right_before_the_look_stays(stored: StoreTable) -> None:
    def rewrite() -> None:
        for number in range(9):
            stored.put(f"data/k={number}/{name_of(number)}", age_ms=1)

    planned = stored.process().plan()
    stored.storage.hooks["stat"] = rewrite
    assert stored.process().carry_out(planned).kept_again == 9
    assert stored.short(set(stored.world.files)) >= {
        f"data/k={number}/{name_of(number)}" for number in range(9)
    }


@pytest.mark.parametrize("moment", ["list", "listed", "stat", "delete"])
def test_two_runs_side_by_side_take_the_same_files(stored: StoreTable, moment: str) -> None:
    def other() -> None:
        stored.process().run(settle=False)

    stored.storage.hooks[moment] = other
    try:
        stored.process().run(settle=False)
    except IcebergCliError:
        stored.process().run()
    stored.process().run()
    left = stored.short(set(stored.world.files))
    assert not [path for path in left if path.startswith("data/k=")]
    assert f"data/{LIVE}" in left


# -- listings --------------------------------------------------------------------------------------------------------

LIES: dict[str, Callable[[list[FileInfo]], Sequence[FileInfo]]] = {
    "empty": lambda _: [],
    "cut after a page": lambda found: found[:2],
    "without its first page": lambda found: found[-1:],
    "a page twice": lambda found: [*found[:5], *found[:5], *found[5:]],
    "all twice": lambda found: [*found, *found],
    "one file twice": lambda found: [*found, found[0]],
    "one live file less": lambda found: [each for each in found if LIVE not in each.path],
}


@pytest.mark.parametrize("again", [False, True], ids=["first plan", "second plan"])
@pytest.mark.parametrize("lie", LIES)
def test_a_listing_that_lies_deletes_nothing(stored: StoreTable, lie: str, again: bool) -> None:
    """Also in a second plan of one opened table, which has read all manifests before."""
    process = stored.process()
    if again:
        process.plan()
    stored.storage.lie = LIES[lie]
    before = set(stored.world.files)
    with pytest.raises(BackendUnavailable) as error:
        process.plan()
    assert error.value.exit_code == 16
    assert set(stored.world.files) == before


def test_the_order_of_a_listing_means_nothing(stored: StoreTable) -> None:
    stored.storage.lie = lambda found: found[::-1]
    assert stored.removed() == {
        f"data/{ORPHAN}",
        *(f"data/k={number}/{name_of(number)}" for number in range(9)),
    }


def test_a_live_file_that_is_gone_breaks_the_table(stored: StoreTable) -> None:
    del stored.world.files[f"s3://b/t/data/{LIVE}"]
    before = set(stored.world.files)
    with pytest.raises(CorruptFile, match=LIVE) as error:
        stored.process().run()
    assert error.value.exit_code == 15
    assert set(stored.world.files) == before


@pytest.mark.parametrize("name", ["snap-1.avro", "m1.avro"])
def test_a_list_or_manifest_that_is_gone_by_the_second_look_stops_it(stored: StoreTable, name: str) -> None:
    planned = stored.process().plan()
    del stored.world.files[f"s3://b/t/metadata/{name}"]
    before = stored.short(set(stored.world.files))
    with pytest.raises((CorruptFile, DeletesFailed, Refused)):
        stored.process().carry_out(planned)
    assert stored.short(set(stored.world.files)) == before


@pytest.mark.parametrize("size_bytes", [10, 11])
@pytest.mark.parametrize("later_ms", [0, 999, 1_000, -1_000])
def test_times_are_the_same_within_a_second_and_sizes_to_the_byte(size_bytes: int, later_ms: int) -> None:
    table = StoreTable(location="s3://b/t").with_live()
    planned = table.process().plan()
    path = f"s3://b/t/data/{ORPHAN}"
    table.world.files[path] = bytes(size_bytes)
    table.world.written_ms[path] = NOW_MS - OLD_MS + later_ms
    table.process().carry_out(planned)
    assert (path not in table.world.files) == (size_bytes == 10 and abs(later_ms) < 1_000)
