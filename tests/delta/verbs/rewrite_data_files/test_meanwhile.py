"""What other writers commit while files are rewritten: E1 to E6, and the hazards of a run that is not alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.errors import CommitConflict
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.delta_rows import commits_of, deleted_positions, rows_of, state_of
from iceberg_cli.testing.delta_vectors import an_inline_vector
from iceberg_cli.testing.delta_writer import Action, Json, a_domain, a_protocol_with, write_vectors
from tests.delta.verbs.rewrite_data_files.drawn import FEATURES, DrawnTable
from tests.delta.verbs.rewrite_data_files.test_law import check_versions, rewritten
from tests.delta.verbs.rewrite_data_files.test_plan import a_table

FILES, ROWS = 6, 4  # of `a_table`


def run(table: DrawnTable, act: Callable[[DrawnTable], None], **options: Any) -> Report:
    """Rewrite while another writer does something before the first try to commit; rows are then what it left."""
    before: list[list[str]] = []
    since = table.version

    def other() -> None:
        if not before:
            act(table)
            before.append(rows_of(table.root))

    try:
        report = rewritten(table.root, at_commit=other, **options)
    finally:
        assert rows_of(table.root) == before[0]
        check_versions(table.root, since)
    assert report is not None
    return report


def in_order(table: DrawnTable) -> list[Json]:
    """The files in the order in which they are rewritten: they are of one time."""
    return sorted(table.live.values(), key=lambda add: str(add["path"]))


def deletes(table: DrawnTable, *positions: Sequence[int], inline: bool = False) -> None:
    """Delete rows of files in their order, by vectors, on top of those that are deleted."""
    actions: list[Action] = []
    for add, own in zip(in_order(table), positions, strict=False):
        gone = sorted(deleted_positions(table.root, add) | {*own})
        if not own:
            continue
        table.vectors += 1
        vector = (
            an_inline_vector(gone) if inline else write_vectors(table.root, 100 + table.vectors, [0], gone)[1]
        )
        actions += [table.remove_of(add), {"add": with_vector(add, vector)}]
    table.write(actions)


def with_vector(add: Json, vector: Json) -> Json:
    stats = {**json.loads(add["stats"]), "tightBounds": False}
    return {**add, "deletionVector": vector, "stats": json.dumps(stats)}


def replaces(table: DrawnTable, files: int) -> None:
    """Write other files in the place of the first, as UPDATE and MERGE do without vectors."""
    gone = in_order(table)[:files]
    actions = [table.remove_of(add) for add in gone]
    for add in gone:
        del table.live[add["path"]]
    table.write([*actions, *(table.new_file(2) for _ in gone)])


def new_adds(root: Path) -> list[Json]:
    """The adds of the newest version."""
    lines = commits_of(root)[-1].read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("tracking", ["none", "enabled"])
def test_rows_that_are_deleted_meanwhile_are_deleted_in_the_new_file(
    tracking: str, inline: bool, tmp_path: Path
) -> None:
    """E3, hazard 2; and what is deleted of a file that had a vector is what is new in its next one."""
    table = a_table(tmp_path / "t", tracking=tracking, mode="name")
    table.reload()
    deletes(table, [1], [], [0, 3])
    report = run(table, lambda table: deletes(table, [2], [0, 1], [], [3], inline=inline))
    assert (report.status, report.counts["remapped_deletes_count"]) == ("done", 4)
    assert report.counts["dropped_rows_count"] == 3
    (add,) = new_adds(table.root)
    # Rows 1 of the first file, 0 and 3 of the third were deleted before: 21 rows in the order of their files.
    assert deleted_positions(table.root, add) == {1, 3, 4, 12}
    assert (add["deletionVector"]["cardinality"], add["deletionVector"]["storageType"]) == (4, "u")
    stats = json.loads(add["stats"])
    assert (stats["numRecords"], stats["tightBounds"]) == (21, False)


def test_the_same_rows_under_another_vector_are_no_conflict(tmp_path: Path) -> None:
    """E3: as merge-dvs leaves them; the remove names the vector that is live then, which `check_versions` looks at."""
    table = a_table(tmp_path / "t")
    deletes(table, [1, 2])

    def merged(table: DrawnTable) -> None:
        (add, *_) = in_order(table)
        _, vector = write_vectors(table.root, 999, [0], [1, 2])
        table.write([table.remove_of(add), {"add": {**add, "deletionVector": vector}}])

    report = run(table, merged)
    assert (report.status, report.counts["remapped_deletes_count"]) == ("done", 0)
    (add,) = new_adds(table.root)
    assert "deletionVector" not in add


def test_deletes_that_arrive_before_each_try_are_all_moved(tmp_path: Path) -> None:
    """E1: the next try judges again; what it knows of an input whose vector stayed needs no second look."""
    table = a_table(tmp_path / "t", tracking="supported")
    tries: list[int] = []

    def other() -> None:
        tries.append(1)
        if len(tries) <= 3:
            table.reload()
            deletes(table, *[[len(tries)] if place in (0, len(tries)) else [] for place in range(4)])

    report = rewritten(table.root, at_commit=other)
    assert report is not None
    assert (report.status, len(tries)) == ("done", 4)
    (add,) = new_adds(table.root)
    assert deleted_positions(table.root, add) == {1, 2, 3, ROWS + 1, 2 * ROWS + 2, 3 * ROWS + 3}
    # One file of vectors is left of our tries, beside those of the other writer.
    assert len([*table.root.glob("deletion_vector*.bin")]) == 6 + 1


def test_a_file_that_is_replaced_meanwhile_is_masked_in_the_new_file(tmp_path: Path) -> None:
    """E3, hazard 29: 4 of 24 rows are someone else's by now; that file is not removed twice."""
    table = a_table(tmp_path / "t", tracking="enabled")
    gone = in_order(table)[0]["path"]
    report = run(table, lambda table: replaces(table, 1))
    assert (report.status, report.counts["remapped_deletes_count"]) == ("done", ROWS)
    assert report.counts["rewritten_data_files_count"] == FILES - 1
    (add,) = new_adds(table.root)
    assert deleted_positions(table.root, add) == {0, 1, 2, 3}
    removed = [
        action["remove"]["path"]
        for action in map(json.loads, commits_of(table.root)[-1].read_text().splitlines())
        if "remove" in action
    ]
    assert gone not in removed
    assert len(removed) == FILES - 1


def without_vectors(table: DrawnTable) -> None:
    deletes(table, [2])
    table.configuration["delta.enableDeletionVectors"] = "false"
    table.commit([table.metadata()])


def restored(table: DrawnTable) -> None:
    (add, *_) = in_order(table)
    whole = {name: each for name, each in add.items() if name != "deletionVector"}
    table.write([table.remove_of(add), {"add": whole}])


def without_feature(table: DrawnTable) -> None:
    table.commit([a_protocol_with(*(each for each in FEATURES if each != "typeWidening"))])


def compatible(table: DrawnTable) -> None:
    table.configuration["delta.enableIcebergCompatV2"] = "true"
    table.commit([a_protocol_with(*FEATURES, "icebergCompatV2"), table.metadata()])


def with_partition_columns(table: DrawnTable) -> None:
    table.iceberg = "partition columns"
    table.commit([table.protocol()])


def in_two_formats(table: DrawnTable) -> None:
    table.configuration["delta.universalFormat.enabledFormats"] = "iceberg"
    table.commit([table.metadata()])


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda table: replaces(table, 2), "is not live any more"),  # a third of the rows
        (lambda table: replaces(table, FILES), "is not live any more"),
        (without_vectors, "takes no deletion vectors"),
        (restored, "has rows again that were deleted"),
        (DrawnTable.track, "keeps row ids in another way"),
        (without_feature, "has lost the feature typeWidening"),
        (compatible, "asks for other files for the sake of Iceberg"),
        (with_partition_columns, "asks for other files for the sake of Iceberg"),
        (in_two_formats, "version behind until Delta Spark commits again"),
    ],
)
def test_what_cannot_be_moved_is_left_to_the_next_run(
    act: Callable[[DrawnTable], None], reason: str, tmp_path: Path
) -> None:
    """E3, hazards 13, 21, 30"""
    table = a_table(tmp_path / "t")
    deletes(table, [1])
    with pytest.raises(CommitConflict, match=reason):
        run(table, act)
    assert not list(table.root.rglob("part-*.parquet"))  # what was written for it is gone
    if act not in (compatible, in_two_formats):
        before = rows_of(table.root)
        report = rewritten(table.root, rewrite_all=True)
        assert report is not None
        assert report.status == "done"
        assert rows_of(table.root) == before


@pytest.mark.parametrize("damage", ["gone", "cut"])
@pytest.mark.parametrize("name", ["positions.arrow", "deleted.arrow", "table.json"])
def test_a_group_of_which_it_is_not_known_any_more_where_its_rows_went_is_dropped(
    name: str, damage: str, tmp_path: Path
) -> None:
    table = a_table(tmp_path / "t")
    deletes(table, [1])

    def act(table: DrawnTable) -> None:
        deletes(table, [2])
        if name == "table.json":
            table.commit(
                [table.metadata() | {"metaData": {**table.metadata()["metaData"], "name": "another"}}]
            )
        (kept,) = table.root.glob(f"_iceberg_cli/*/*/kept/*{name}")
        if damage == "gone":
            kept.unlink()
        else:
            kept.write_bytes(kept.read_bytes()[:-9])

    with pytest.raises(CommitConflict, match=name):
        run(table, act)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, mode) for kind in ("add", "widen", "property") for mode in ("none", "name", "id")),
        *((kind, mode) for kind in ("rename", "drop") for mode in ("name", "id")),
    ],
)
def test_other_columns_meanwhile_are_no_conflict(kind: str, mode: str, tmp_path: Path) -> None:
    """E3: new files have physical names, and are read as those would be whose rows they have."""
    table = a_table(tmp_path / "t", tracking="enabled", mode=mode)
    while not any(each.kind in ("byte", "short", "integer") for each in table.columns):
        table.add_column()
    table.write([table.new_file(ROWS) for _ in range(FILES)])
    table.commit([table.metadata()])

    def evolve(table: DrawnTable) -> None:
        (column, *_) = (each for each in table.columns if each.kind in ("byte", "short", "integer"))
        match kind:
            case "add":
                table.add_column()
            case "widen":
                column.kind = "long"
            case "rename":
                column.name += "r"
            case "drop":
                table.columns.remove(column)
            case "property":
                table.configuration["delta.appendOnly"] = "true"
        table.commit([table.metadata()])

    report = run(table, evolve)
    assert report.status == "done"
    assert len(state_of(table.root).adds) == 1


def test_a_change_to_mapping_by_ids_is_a_conflict(tmp_path: Path) -> None:
    """E3: files that were written have no ids to be read by."""
    table = a_table(tmp_path / "t")

    def by_ids(table: DrawnTable) -> None:
        table.mode = "id"
        table.configuration["delta.columnMapping.mode"] = "id"
        gone = [table.remove_of(add) for add in table.live.values()]
        table.live.clear()
        table.write([*gone, table.metadata(), table.new_file(2)])

    with pytest.raises(CommitConflict, match=r"delta.columnMapping.mode is id by now"):
        run(table, by_ids)


def test_appends_and_other_domains_meanwhile_change_nothing(tmp_path: Path) -> None:
    """E3, E5: row ids are drawn above the mark that is there then; hazard 12."""
    table = a_table(tmp_path / "t", tracking="enabled")

    def other(table: DrawnTable) -> None:
        table.append()
        table.commit([a_domain()])

    report = run(table, other)
    assert (report.status, [each["version"] for each in report.commits]) == ("done", [table.version + 1])
    table.reload()
    spans = sorted((add["baseRowId"], json.loads(add["stats"])["numRecords"]) for add in table.live.values())
    assert all(first + rows <= following for (first, rows), (following, _) in pairwise(spans))
    assert table.mark == spans[-1][0] + spans[-1][1] - 1


def test_of_twenty_groups_those_that_another_compaction_took_are_dropped_alone(tmp_path: Path) -> None:
    """E6, hazard 32"""
    table = DrawnTable(tmp_path / "t", random.Random(5), partitioned=True)
    table.found()
    for part in range(20):
        actions = [table.new_file(ROWS) for _ in range(2)]
        for action in actions:
            action["add"]["partitionValues"] = {"part": str(part)}
        table.write(actions)

    def compacts(table: DrawnTable) -> None:
        gone = [table.live[path] for path in [*table.live][:6]]
        table.write([table.remove_of(add) for add in gone])

    report = run(table, compacts, min_input_files=2)
    assert (report.status, report.counts["conflicted_groups_count"]) == ("partial", 3)
    assert (report.counts["rewritten_data_files_count"], len(new_adds(table.root))) == (34, 17)
