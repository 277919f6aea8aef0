"""Before a commit, what it keeps has been read whole and counted: whatever is damaged, and whichever verb commits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from iceberg_cli.testing.iceberg_files import ADDED
from tests.cli.lakes import listing, metadata_of
from tests.cli.running import Ran, iceberg_cli
from tests.delete_tables import puffin
from tests.hazard_tables import Hazard, entry
from tests.paths import FIXTURES, needs_fixtures

# Verb and what makes it due on `a_table`; the format version it starts from; whether it keeps older snapshots too.
VERBS: dict[str, tuple[list[str], int, bool]] = {
    "expire-snapshots": (["--snapshot-id", "4"], 2, True),
    "expire-snapshots of metadata": (["--snapshot-id", "4", "--cleanup", "metadata"], 2, True),
    "upgrade-v3": ([], 2, True),
    "upgrade-v3 of v1": ([], 1, True),
    "upgrade-v3 and more": (["--with", "merge-dvs,assign-row-ids"], 2, True),
    "assign-row-ids": ([], 3, False),
    "rewrite-manifests": (["--min-manifests", "2"], 2, False),
    "merge-dvs": ([], 3, False),
}
Damage = Callable[[Path], None]


def is_gone(path: Path) -> None:
    path.unlink()


def ends_after_a_block(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(bytes(16), 0, len(data) - 16) + 16])


def ends_inside_a_block(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def has_another_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-16] + bytes([1]) * 16)


DAMAGES = [
    *(("list", damage) for damage in (is_gone, ends_after_a_block, ends_inside_a_block)),
    *(("manifest", damage) for damage in (is_gone, ends_after_a_block, ends_inside_a_block, has_another_end)),
]


def a_table(folder: Path, version: int) -> Hazard:
    """Snapshots 4, 3 and 1 (main), one after the other; every manifest and list has a block for each of its records.

    Of 4 and 3 main has the manifest `both`. In version 3 no data manifest has row ids, and main has two deletion
    vectors of data files that are gone.
    """
    table = Hazard(location=str(folder / "t"), format_version=version)
    a, b, c, d, e, f = table.data(*"abcdef")
    for name, first, second in (("first", a, b), ("old", b, c), ("both", c, d), ("new", e, f)):
        table.manifest(name, entry(ADDED, first), entry(ADDED, second), block_bytes=1)
    deletes = []
    if version == 3:
        path = f"{table.location}/data/deletes.puffin"
        content, blobs = puffin({"gone": [1, 2], "too": [3]})
        table.storage.put_if_absent(path, content)
        vectors = [
            entry(
                ADDED, path, content=1, file_format="PUFFIN", referenced_data_file=name, record_count=rows,
                content_offset=offset, content_size_in_bytes=size, file_size_in_bytes=len(content),
            )
            for name, offset, size, rows in blobs
        ]  # fmt: skip
        deletes = [table.manifest("vectors", *vectors, content=1, block_bytes=1)]
    table.snapshot(4, "first", "both", block_bytes=1)
    table.snapshot(3, "old", "both", parent=4, block_bytes=1)
    table.snapshot(1, "new", "both", *deletes, parent=3, block_bytes=1)
    table.publish(main=1)
    return table


def run(verb: str, table: Hazard, *more: str) -> Ran:
    return iceberg_cli(verb.split(maxsplit=1)[0], table.location, *VERBS[verb][0], *more)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_something_to_commit_on_a_sound_table(tmp_path: Path, verb: str) -> None:
    table = a_table(tmp_path, VERBS[verb][1])
    ran = run(verb, table, "--yes")
    assert ran.code == 0, ran.err
    assert (tmp_path / "t/metadata/v2.metadata.json").exists(), ran.out + ran.err


@pytest.mark.pairs
@pytest.mark.parametrize(("kind", "damage"), DAMAGES)
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_commits_on_what_is_damaged(tmp_path: Path, verb: str, kind: str, damage: Damage) -> None:
    _, version, keeps_all = VERBS[verb]
    places = [("both", 1), *([("old", 3)] if keeps_all else [("new", 1)])]
    for manifest, snapshot in places:
        table = a_table(tmp_path / manifest, version)
        damage(table.file(manifest if kind == "manifest" else f"snap-{snapshot}"))
        before = listing(tmp_path / manifest)
        ran = run(verb, table, "--yes")
        assert ran.code == 15, (manifest, snapshot, ran.out, ran.err)
        assert "Nothing was changed." in ran.err
        if verb.startswith("expire"):
            assert "what is broken" in ran.err or "forgets the snapshot" in ran.err
        assert listing(tmp_path / manifest) == before
    assert run(verb, table, "--dry-run").code == 15


# -- rows, from which row ids follow -----------------------------------------------------------------------------


def of_eight_rows(folder: Path, *, version: int, listed_in: int, **listed: int | None) -> Hazard:
    """Main has one manifest, of two files of four rows; its list is of version `listed_in`, and says `listed` of it."""
    table = Hazard(location=str(folder / "t"), format_version=listed_in)
    entries = [entry(ADDED, path, record_count=4) for path in table.data("a", "b")]
    table.manifest("m", *entries)
    table.rows["m"] |= listed
    stated = {"total-records": str(listed.get("added_rows_count", 8)), "total-data-files": "2"}
    table.snapshot(1, "m", summary=stated)
    table.format_version = version
    table.publish(main=1)
    return table


@pytest.mark.parametrize(("verb", "version"), [("assign-row-ids", 3), ("upgrade-v3", 2), ("upgrade-v3", 1)])
@pytest.mark.parametrize("rows", [4, 9])
def test_rows_that_list_and_summary_both_count_wrong_stop_what_row_ids_follow_from(
    tmp_path: Path, verb: str, version: int, rows: int
) -> None:
    table = of_eight_rows(tmp_path, version=version, listed_in=version, added_rows_count=rows)
    before = listing(tmp_path)
    for more in ([], ["--with", "assign-row-ids"] if verb == "upgrade-v3" else []):
        ran = iceberg_cli(verb, table.location, *more, "--yes")
        assert ran.code == 15, ran.out + ran.err
        assert f"it has 8 rows, and its manifest list says {rows}" in ran.err
        assert listing(tmp_path) == before


@pytest.mark.parametrize("rows", [4, 8, None])
def test_a_manifest_without_file_counts_gets_as_many_ids_as_it_has_rows(
    tmp_path: Path, rows: int | None
) -> None:
    """Impala's `iceberg_v2_null_delete_record`: null file counts, and four rows listed of eight."""
    null = {"added_files_count": None, "added_rows_count": rows}
    for version, verb, more in (
        (3, "assign-row-ids", []),
        (2, "upgrade-v3", ["repair-manifests,assign-row-ids"]),
    ):
        table = of_eight_rows(tmp_path / str(version), version=version, listed_in=1, **null)
        ran = iceberg_cli(verb, table.location, *(["--with", *more] if more else []), "--yes")
        assert ran.code == 0, ran.out + ran.err
        assert metadata_of(Path(table.location))["next-row-id"] == 8
        assert iceberg_cli("inspect", table.location, "--check").code == 0


def test_rows_that_are_counted_wrong_do_not_stop_what_gives_no_ids(tmp_path: Path) -> None:
    table = of_eight_rows(tmp_path, version=2, listed_in=2, added_rows_count=4)
    table.snapshot(2, "m", block_bytes=1)
    table.publish(main=1, name="v2.metadata.json")
    ran = iceberg_cli("expire-snapshots", table.location, "--snapshot-id", "2", "--yes")
    assert ran.code == 0, ran.out + ran.err


def test_the_way_out_of_a_lost_list_of_an_older_snapshot_is_named_and_works(tmp_path: Path) -> None:
    table = a_table(tmp_path, 2)
    table.file("snap-3").unlink()
    refused = iceberg_cli("upgrade-v3", table.location, "--yes")
    assert f"expire-snapshots {table.location} --snapshot-id 3" in refused.err
    assert iceberg_cli("expire-snapshots", table.location, "--snapshot-id", "3", "--yes").code == 0
    assert iceberg_cli("upgrade-v3", table.location, "--yes").code == 0


# -- damage after the commit -------------------------------------------------------------------------------------


def test_an_operation_whose_table_was_damaged_after_its_commit_says_what_stays_and_can_be_closed(
    tmp_path: Path,
) -> None:
    table = a_table(tmp_path, 2)
    begun = run("expire-snapshots", table, "--yes", "--limit-deletes", "1", "--format", "json")
    operation = begun.json["operation_id"]
    table.file("new").unlink()
    before = listing(Path(table.location) / "data")
    for _ in range(2):
        stopped = iceberg_cli("resume", table.location)
        assert stopped.code == 14
        assert "new.avro: the table needs this file and it is not there" in stopped.err
        assert "still there: 2." in stopped.err
        assert f"`resume TABLE {operation} --abandon` closes it" in stopped.err
    closed = iceberg_cli("resume", table.location, operation, "--abandon")
    assert closed.code == 0
    assert "2 files that it was still to delete stay" in closed.out
    assert iceberg_cli("resume", table.location).out == "No open operation.\n"
    assert listing(Path(table.location) / "data") == before
    assert iceberg_cli("expire-snapshots", table.location, "--snapshot-id", "3", "--yes").code == 15
    assert iceberg_cli("resume", table.location).out == "No open operation.\n"


# -- Delta: the state is read whole whenever the table is loaded ---------------------------------------------------


def without_a_checkpoint_part(log: Path) -> None:
    (log / f"{6:020}.checkpoint.0000000002.0000000002.parquet").unlink()


def with_half_a_checkpoint_part(log: Path) -> None:
    path = log / f"{6:020}.checkpoint.0000000001.0000000002.parquet"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_a_commit(log: Path) -> None:
    (log / f"{9:020}.json").unlink()


@needs_fixtures
@pytest.mark.parametrize("damage", [without_a_checkpoint_part, with_half_a_checkpoint_part, without_a_commit])
def test_no_verb_of_delta_commits_on_a_log_that_is_damaged(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Of version 6 on only its checkpoint of two parts, and the commits after it, are left."""
    shutil.copytree(FIXTURES / "36-delta-spark-multipart-checkpoint-crc" / "table", tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    for path in (
        *(log / f"{version:020}.json" for version in range(6)),
        log / f"{12:020}.checkpoint.parquet",
    ):
        path.unlink()
    (log / "_last_checkpoint").unlink()
    damage(log)
    before = listing(tmp_path)
    for verb in ("upgrade-v3", "assign-row-ids", "merge-dvs", "rewrite-manifests", "expire-snapshots"):
        for mode in ("--dry-run", "--yes"):
            ran = iceberg_cli(verb, tmp_path / "t", mode)
            assert ran.code == 15, (verb, ran.out, ran.err)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("verb", ["expire-snapshots", "upgrade-v3"])
def test_what_main_s_list_says_of_a_manifest_is_held_against_it_though_an_older_list_says_the_truth(
    tmp_path: Path, verb: str
) -> None:
    table = a_table(tmp_path, 2)
    table.rows["both"] |= {"added_files_count": 1, "deleted_files_count": 1}
    table.snapshot(0, "both", parent=1, summary={"total-data-files": "1"})
    table.publish(main=0, name="v2.metadata.json")
    ran = run(verb, table, "--yes")
    assert ran.code == 15
    assert "both.avro" in ran.err
