"""Deletes that arrive while files are rewritten are moved to the new files, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.moved_positions import MovedDeletes, ReadPositions, since
from iceberg_cli.layout.position_map import PositionMapBuilder
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.world import World
from iceberg_cli.testing.iceberg_reader import deleted_positions, entries_of, manifests_of
from iceberg_cli.testing.iceberg_rows import read_rows
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable
from tests.iceberg.verbs.rewrite_data_files.writers import rewritten
from tests.manifest_tables import NAME, Opened, opened


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def a_table(version: int) -> RowsTable:
    """Five files of three rows, 0 to 14, in one partition; of the first the row in the middle is deleted."""
    table = RowsTable(format_version=version)
    for number in range(5):
        table.rows(f"f{number}", [(N, [3 * number, 3 * number + 1, 3 * number + 2]), (K, ["a"] * 3)], k="a")
    table.rows("other", [(N, [100, 101]), (K, ["a"] * 2)], k="a", file_size_in_bytes=1 << 40)
    table.commit(1)
    delete(table, "first", {"f0": [1]})
    table.commit(2)
    return table


def delete(table: RowsTable, name: str, positions: dict[str, list[int]]) -> None:
    if table.format_version >= 3:
        table.vectors(name, {file: set(places) for file, places in positions.items()}, k="a")
    else:
        table.positions(name, positions, k="a")


def run(
    table: RowsTable, meanwhile: Callable[[], None], **values: Any
) -> tuple[Opened, Report | None, list[int]]:
    """Rewrite while another writer commits before the first swap; the rows afterwards."""
    opening = opened(table.storage, table.publish())

    def act() -> None:
        meanwhile()
        opening.catalog.locations[NAME] = table.publish()

    opening.committer.meanwhile = act
    report = rewritten(opening, World(), processes=1, **{"max_size": 1 << 41, **values})
    document = opening.metadata()
    rows = read_rows(table.storage, document, document["current-snapshot-id"])
    return opening, report, sorted(row.values[1] for row in rows)


def live_deletes(found: Opened) -> list[dict[str, Any]]:
    storage = found.storage
    manifests = manifests_of(storage, found.head())
    return [
        entry
        for manifest in manifests
        for entry in entries_of(storage, manifest)
        if entry["status"] != 2 and entry["content"] == 1
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_are_deleted_meanwhile_stay_deleted(version: int) -> None:
    table = a_table(version)

    def meanwhile() -> None:
        delete(table, "late", {"f0": [1, 2], "f3": [0]} if version >= 3 else {"f0": [2], "f3": [0]})
        table.commit(3)

    found, report, rows = run(table, meanwhile)
    assert report is not None
    assert (report.status, report.counts["remapped_deletes_count"]) == ("done", 2)
    assert rows == [0, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 100, 101]
    summary = found.head()["summary"]
    kind = "added-dvs" if version >= 3 else "added-position-delete-files"
    assert (summary["added-delete-files"], summary[kind], summary["added-position-deletes"]) == (
        "1",
        "1",
        "2",
    )
    assert (summary["added-records"], summary["deleted-records"]) == ("14", "15")
    output = next(
        entry["file_path"]
        for manifest in manifests_of(found.storage, found.head())
        for entry in entries_of(found.storage, manifest)
        if entry["status"] == 1 and entry["content"] == 0
    )
    (entry,) = (each for each in live_deletes(found) if each.get("referenced_data_file") == output)
    # Of the rows 0, 2, 3, 4 and so on, 2 and 9 are the second and the ninth.
    data = {"file_path": output, "sequence_number": 0, "partition": entry["partition"], "spec_id": 1}
    assert deleted_positions(found.storage, data, [entry]) == {1, 8}
    assert entry["sequence_number"] == 4
    assert entry["record_count"] == 2
    if version < 3:
        bounds = [
            {each["key"]: each["value"] for each in entry[name]} for name in ("lower_bounds", "upper_bounds")
        ]
        assert [each[2147483546] for each in bounds] == [output.encode()] * 2
    else:
        assert not [each for each in live_deletes(found) if each["referenced_data_file"] != output]


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_that_is_deleted_once_more_needs_no_delete(version: int) -> None:
    table = a_table(version)

    def meanwhile() -> None:
        delete(table, "late", {"f0": [1]})
        table.commit(3)

    found, report, rows = run(table, meanwhile)
    assert report is not None
    assert report.counts["remapped_deletes_count"] == 0
    assert rows == [0, *range(2, 15), 100, 101]
    assert "added-delete-files" not in found.head()["summary"]


def test_position_deletes_of_a_file_that_stays_stay_too() -> None:
    table = a_table(2)

    def meanwhile() -> None:
        table.positions("late", {"f1": [0], "other": [1]}, k="a")
        table.commit(3)

    found, report, rows = run(table, meanwhile)
    assert report is not None
    assert report.counts["remapped_deletes_count"] == 1
    assert rows == [0, 2, *range(4, 15), 100]
    assert any(each["file_path"].endswith("late-deletes.parquet") for each in live_deletes(found))


def test_newer_position_deletes_that_name_other_files_alone_cost_nothing() -> None:
    table = a_table(2)

    def meanwhile() -> None:
        table.positions("late", {"other": [1]}, k="a")
        table.commit(3)

    _, report, rows = run(table, meanwhile)
    assert report is not None
    assert (report.status, report.counts["remapped_deletes_count"]) == ("done", 0)
    assert rows == [0, *range(2, 15), 100]


@pytest.mark.parametrize("version", [2, 3])
def test_where_a_delete_that_was_applied_is_taken_back_the_group_is_left_out(version: int) -> None:
    table = a_table(version)

    def meanwhile() -> None:
        table.document["refs"]["main"]["snapshot-id"] = table.document["current-snapshot-id"] = 1

    found, report, rows = run(table, meanwhile)
    assert report is None
    assert rows == [*range(15), 100, 101]
    assert found.head()["snapshot-id"] == 1


def test_rows_that_equality_deletes_had_hidden_are_not_brought_back_by_a_move() -> None:
    table = a_table(2)
    table.equality_rows("by-value", [(N, [4])], k="a")
    table.commit(3)

    def meanwhile() -> None:
        table.positions("late", {"f1": [1, 2]}, k="a")
        table.commit(4)

    _, report, rows = run(table, meanwhile)
    assert report is not None
    assert report.counts["remapped_deletes_count"] == 1
    assert rows == [0, 2, 3, *range(6, 15), 100, 101]


# -- the rules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "then", "found"),
    [
        ((), (), ()), ((1, 5), (), (1, 5)), ((1, 5), (5,), (1,)), ((1, 5), (1, 5), ()), ((1,), (5,), None),
        ((), (5,), None), ((1, 2, 5), (2, 7), None),
    ],
)  # fmt: skip
def test_what_is_deleted_since_is_told_unless_something_is_not_deleted_any_more(
    now: tuple[int, ...], then: tuple[int, ...], found: tuple[int, ...] | None
) -> None:
    new = since(ints(*now), ints(*then))
    assert (None if new is None else tuple(new.tolist())) == found


def test_positions_of_several_inputs_are_looked_up_and_those_that_went_nowhere_are_left_out() -> None:
    builder = PositionMapBuilder()
    builder.add(0, ints(0, 2, 3), 0, 0)  # row 1 was deleted
    builder.add(1, ints(0, 1), 0, 3)
    builder.add(1, ints(2), 1, 0)
    moved = MovedDeletes()
    moved.add(builder.build(), 0, ints(1, 3))
    moved.add(builder.build(), 1, ints(0, 2))
    assert (moved.of(0).tolist(), moved.of(1).tolist(), moved.of(2).tolist()) == ([2, 3], [0], [])


def test_positions_that_were_read_are_kept_and_another_table_is_refused() -> None:
    kept = ReadPositions({0: ints(1, 2), 3: ints(), 4: ints(7)})
    found = ReadPositions.from_table(kept.to_table(), "p")
    assert {place: each.tolist() for place, each in found.by_input.items()} == {0: [1, 2], 3: [], 4: [7]}
    with pytest.raises(CorruptFile, match="no positions of inputs"):
        ReadPositions.from_table(kept.to_table().drop_columns(["input"]), "p")
