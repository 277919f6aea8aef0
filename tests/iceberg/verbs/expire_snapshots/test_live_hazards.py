"""Tables on which an expiry that takes a short cut deletes live files or fails half-way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import fastavro
import pytest

from tests.spark_tables import Lake, Shape, Writing, insert, later_ms, shapes, write
from tests.spark_tables.old_writers import embed_manifests, remove, rows_of

# H-a: a Puffin file that a live deletion vector uses


def test_a_puffin_file_stays_while_one_of_its_deletion_vectors_lives(hadoop: Lake, tmp_path: Path) -> None:
    table = "hazard_a"
    write(hadoop, table, shapes.V3_SHARED_PUFFIN)
    vectors = hadoop.sql(
        table, "SELECT file_path, count(DISTINCT referenced_data_file) FROM {t}.all_delete_files GROUP BY 1"
    )
    (shared,) = [path.removeprefix("file:") for path, count in vectors if count == 2]
    rows = hadoop.rows(table, row_ids=True)
    saved = hadoop.save(table, tmp_path)
    cutoff_ms = later_ms()

    code, report = hadoop.cli("expire-snapshots", hadoop.argument(table), "--yes", "--older-than", cutoff_ms)

    assert (code, report["status"]) == (0, "done")
    assert report.get("deleted_position_delete_files_count", 0) == 0
    assert Path(shared).exists()
    assert hadoop.rows(table, row_ids=True) == rows

    hadoop.restore(table, saved)

    def expire_by_the_core() -> None:
        hadoop.java(table).expireSnapshots().expireOlderThan(cutoff_ms).retainLast(1).commit()

    hadoop.answer(table, "expire by Iceberg Java's core", expire_by_the_core)
    assert not Path(shared).exists(), (
        "Iceberg Java's core no longer falls into this trap: this table proves nothing"
    )


# H-c: a file of a kept snapshot that was cut short


def halve(path: Path) -> None:
    data = path.read_bytes()
    remove(path)
    path.write_bytes(data[: len(data) // 2])


def keep_only_header(path: Path) -> None:
    """What is left is a whole Avro file of no rows."""
    with path.open("rb") as file:
        first = next(fastavro.block_reader(file))
    data = path.read_bytes()
    remove(path)
    path.write_bytes(data[: first.offset])


ORDINARY = Shape(name="ordinary", version=2).then(
    insert(0, 9),
    "ALTER TABLE {t} CREATE TAG kept",
    "INSERT OVERWRITE {t} VALUES (10, 'k')",
    insert(20, 29),
    "DELETE FROM {t} WHERE id = 25",
)


@pytest.mark.parametrize("damage", [remove, halve, keep_only_header])
@pytest.mark.parametrize("kind", ["manifest list", "manifest"])
@pytest.mark.parametrize("ref", ["main", "kept"])
def test_a_kept_snapshot_that_cannot_be_read_whole_stops_the_expiry_before_it_changes_anything(
    hadoop: Lake, written: Writing, ref: str, kind: str, damage: Callable[[Path], None]
) -> None:
    lake, table = hadoop, written(hadoop, ORDINARY)
    metadata = lake.metadata(table)
    head = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["refs"][ref]["snapshot-id"])
    victim = Path(head["manifest-list"].removeprefix("file:"))
    if kind == "manifest":
        victim = Path(rows_of(victim)[0]["manifest_path"].removeprefix("file:"))
    damage(victim)
    before = lake.files(table)

    code, document = lake.cli("expire-snapshots", lake.argument(table), "--yes", "--older-than", later_ms())

    assert code == 15, document
    assert victim.name in json.dumps(document)
    assert lake.files(table) == before


# Version 1: snapshots that name their manifests themselves, and manifest lists without counts


@pytest.mark.parametrize("head_too", [False, True])
def test_version_1_snapshots_with_embedded_manifests_expire_like_those_with_lists(
    hadoop: Lake, head_too: bool, tmp_path: Path
) -> None:
    table = f"embedded_{head_too}".lower()
    shape = Shape(version=1, by="k").then(
        insert(0, 3),
        insert(10, 13),
        "INSERT OVERWRITE {t} VALUES (20, 'k0')",
        "DELETE FROM {t} WHERE id = 11",
        insert(30, 33),
    )
    write(hadoop, table, shape)
    saved = hadoop.save(table, tmp_path)
    rows = hadoop.rows(table)
    unnamed = embed_manifests(hadoop, table, head_too=head_too)
    assert hadoop.rows(table) == rows
    before = hadoop.files(table)
    cutoff_ms = later_ms()

    code, report = hadoop.cli("expire-snapshots", hadoop.argument(table), "--yes", "--older-than", cutoff_ms)

    assert (code, report["status"]) == (0, "done"), report
    ours = before - hadoop.files(table)
    assert hadoop.rows(table) == rows
    assert len(hadoop.snapshot_ids(table)) == 1
    # Spark cannot expire such a table, but it can expire the one that was rewritten into it.
    hadoop.restore(table, saved)
    hadoop.expire_with_spark(table, older_than_ms=cutoff_ms, retain_last=1)
    assert ours == (before - hadoop.files(table)) - unnamed
    assert any(path.endswith(".parquet") for path in ours)
