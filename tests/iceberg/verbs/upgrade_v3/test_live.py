"""Tables that Spark wrote as version 1 or 2, upgraded by us: the metadata is Java's, and row lineage is right after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark_tables import COMPACT, UPGRADE, Lake, Shape, Writing, insert, shapes, write
from tests.spark_tables.old_writers import embed_manifests

RECIPE = ("--with", "merge-dvs,assign-row-ids")
Ids = dict[int, int | None]
SHAPES = (
    shapes.V2_BRANCHES_AND_DELETES,
    shapes.V1_EVOLVED_SPEC,
    shapes.V2_EVOLVED_SPEC_AND_SCHEMA,
    shapes.SPECIAL_PATHS,
    shapes.GZIP_METADATA,
)


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Without when and in which file it was committed, and without the sequence numbers that are zero.

    The specification requires them of every snapshot from version 2 on; Java leaves them out.
    """
    kept = {key: value for key, value in document.items() if key not in ("last-updated-ms", "metadata-log")}
    kept["snapshots"] = [
        {key: value for key, value in snapshot.items() if (key, value) != ("sequence-number", 0)}
        for snapshot in document["snapshots"]
    ]
    return kept


def upgrade(lake: Lake, table: str, *arguments: object) -> dict[str, Any]:
    code, report = lake.cli("upgrade-v3", lake.argument(table), "--yes", *arguments)
    assert (code, report["status"]) == (0, "done"), report
    return report


def ids(lake: Lake, table: str, ref: str = "main") -> Ids:
    """Column `id` to row id, each once."""
    found = lake.sql(table, f"SELECT id, _row_id FROM {{t}} VERSION AS OF '{ref}'")
    by_id: Ids = {row[0]: row[1] for row in found}
    assert len(by_id) == len(found)
    return by_id


def check_ids(found: Ids, next_row_id: int) -> None:
    """Every row has one, no two the same, all below the table's counter."""
    values = [row_id for row_id in found.values() if row_id is not None]
    assert len(values) == len(found) == len(set(values))
    assert max(values) < next_row_id


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_our_upgrade_makes_the_metadata_that_java_makes(
    lake: Lake, written: Writing, shape: Shape, tmp_path: Path
) -> None:
    table = written(lake, shape)
    rows = lake.rows(table)
    saved = lake.save(table, tmp_path)
    lake.sql(table, UPGRADE)
    java = lake.metadata(table)
    assert java["format-version"] == 3
    lake.restore(table, saved)

    code, document = lake.cli("upgrade-v3", lake.argument(table), "--check")
    assert (code, document["blocked"]) == (0, False), document
    upgrade(lake, table)

    assert comparable(lake.metadata(table)) == comparable(java)
    assert lake.rows(table) == rows


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_row_lineage_is_right_when_spark_goes_on(lake: Lake, written: Writing, shape: Shape) -> None:
    table = written(lake, shape)
    if shape is shapes.GZIP_METADATA:
        lake.sql(table, insert(60, 63))
    rows = lake.rows(table)

    upgrade(lake, table, "--with", "assign-row-ids")

    assert lake.rows(table) == rows
    before = ids(lake, table)
    check_ids(before, lake.metadata(table)["next-row-id"])
    assert lake.cli("assign-row-ids", lake.argument(table))[1]["status"] == "nothing_to_do"
    kept, changed, *_, gone = sorted(before)
    others = ", ".join("null" for _ in range(len(rows[0]) - 1))
    lake.sql(table, f"INSERT INTO {{t}} SELECT 9000, {others}")
    lake.sql(table, f"UPDATE {{t}} SET {_last_column(lake, table)} = null WHERE id = {changed}")
    lake.sql(table, f"DELETE FROM {{t}} WHERE id = {gone}")
    lake.sql(table, COMPACT)
    after = ids(lake, table)
    check_ids(after, lake.metadata(table)["next-row-id"])
    assert after.keys() == (before.keys() | {9000}) - {gone}
    assert after[kept] == before[kept]
    assert {key: after[key] for key in before if key != gone} == {
        key: value for key, value in before.items() if key != gone
    }
    assert lake.cli("assign-row-ids", lake.argument(table))[1]["status"] == "nothing_to_do"


def _last_column(lake: Lake, table: str) -> str:
    metadata = lake.metadata(table)
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    return str(schema["fields"][-1]["name"])


def test_our_ids_are_those_that_java_gives_in_its_first_commit(
    lake: Lake, written: Writing, tmp_path: Path
) -> None:
    table = written(lake, shapes.V2_BRANCHES_AND_DELETES)
    upgrade(lake, table)
    assert set(ids(lake, table).values()) == {None}
    saved = lake.save(table, tmp_path)
    lake.sql(table, "DELETE FROM {t} WHERE id = 0")
    java, next_row_id = ids(lake, table), lake.metadata(table)["next-row-id"]
    lake.restore(table, saved)

    code, report = lake.cli("assign-row-ids", lake.argument(table), "--yes", "--ref", "main")

    assert (code, report["status"]) == (0, "done"), report
    ours = ids(lake, table)
    assert {key: value for key, value in ours.items() if key != 0} == java
    assert lake.metadata(table)["next-row-id"] == next_row_id == report["assigned_rows_count"]


@pytest.mark.parametrize("share", [False, True])
def test_branches_have_ids_of_their_own_or_share_mains(lake: Lake, written: Writing, share: bool) -> None:
    table = written(lake, shapes.V2_BRANCHES_AND_DELETES)
    upgrade(lake, table)
    rows = {
        ref: lake.rows(table, lake.metadata(table)["refs"][ref]["snapshot-id"]) for ref in ("main", "audit")
    }

    sharing = ["--share-ids"] if share else []
    code, report = lake.cli("assign-row-ids", lake.argument(table), "--yes", *sharing)

    assert (code, report["status"]) == (0, "done"), report
    heads = {ref: lake.metadata(table)["refs"][ref]["snapshot-id"] for ref in ("main", "audit")}
    assert {ref: lake.rows(table, head) for ref, head in heads.items()} == rows
    main, audit = ids(lake, table), ids(lake, table, "audit")
    next_row_id = lake.metadata(table)["next-row-id"]
    check_ids(main, next_row_id)
    check_ids(audit, next_row_id)
    common = main.keys() & audit.keys()
    assert len(common) > 20
    if share:
        assert {key: audit[key] for key in common} == {key: main[key] for key in common}
        assert (report["shared_rows_count"], report["rows_with_two_ids_count"]) == (40, 0)
    else:
        assert not {main[key] for key in main} & {audit[key] for key in audit}
        assert report["rows_with_two_ids_count"] == 40
    assert set(ids(lake, table, "before").values()) == {None}
    lake.sql(table, insert(200, 201, branch="audit"))
    lake.sql(table, "DELETE FROM {t}.branch_audit WHERE id = 100")
    later = ids(lake, table, "audit")
    assert {key: later[key] for key in audit if key != 100} == {
        key: audit[key] for key in audit if key != 100
    }
    check_ids(later, lake.metadata(table)["next-row-id"])


def test_the_whole_recipe_leaves_vectors_and_ids(lake: Lake, written: Writing) -> None:
    table = written(lake, shapes.V2_BRANCHES_AND_DELETES)
    rows = lake.rows(table)

    report = upgrade(lake, table, *RECIPE)

    assert lake.rows(table) == rows
    assert report["added_delete_files_count"] > 0
    formats = {row[0] for row in lake.sql(table, "SELECT DISTINCT file_format FROM {t}.delete_files")}
    assert formats == {"PUFFIN"}
    before = ids(lake, table)
    check_ids(before, lake.metadata(table)["next-row-id"])
    lake.sql(table, "DELETE FROM {t} WHERE id IN (3, 23)")
    lake.sql(table, insert(50, 51))
    after = ids(lake, table)
    assert after.keys() == (before.keys() | {50, 51}) - {3, 23}
    assert {key: after[key] for key in after if key < 50} == {
        key: value for key, value in before.items() if key in after
    }


@pytest.mark.parametrize("head_too", [False, True])
def test_version_1_with_embedded_manifests_can_be_written_to_after_our_upgrade(
    hadoop: Lake, head_too: bool
) -> None:
    """After Java's own upgrade of such a table every write fails with a NullPointerException."""
    table = f"inline_{head_too}".lower()
    shape = Shape(version=1, by="k")
    overwrite = "INSERT OVERWRITE {t} VALUES (20, 'k0')"
    write(hadoop, table, shape.then(insert(0, 3), insert(10, 13), overwrite, insert(30, 33)))
    rows = hadoop.rows(table)
    embed_manifests(hadoop, table, head_too=head_too)
    target = hadoop.argument(table)
    code, document = hadoop.cli("upgrade-v3", target, "--check")
    assert (code, document["blocked"]) == (11, True)
    assert hadoop.cli("upgrade-v3", target, "--yes")[0] == 11

    report = upgrade(hadoop, table, "--with", "repair-manifests,assign-row-ids")

    assert report["repaired_heads_count"] == 1
    assert hadoop.rows(table) == rows
    before = ids(hadoop, table)
    check_ids(before, hadoop.metadata(table)["next-row-id"])
    hadoop.sql(table, insert(40, 43))
    hadoop.sql(table, "UPDATE {t} SET k = 'k9' WHERE id = 31")
    hadoop.sql(table, "DELETE FROM {t} WHERE id = 30")
    after = ids(hadoop, table)
    check_ids(after, hadoop.metadata(table)["next-row-id"])
    assert after.keys() == (before.keys() | {40, 41, 42, 43}) - {30}
    assert all(after[key] == before[key] for key in before if key != 30)
    assert hadoop.reachable(table) <= hadoop.files(table)
