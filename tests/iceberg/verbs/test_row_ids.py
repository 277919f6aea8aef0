"""Verbs whose manifest list gives row ids, on tables whose `next-row-id` is behind ids that are in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro
import pytest

from iceberg_cli.testing.iceberg_files import ADDED
from tests.cli.lakes import edited, listing
from tests.cli.running import iceberg_cli
from tests.cli.tables_without_row_ids import Table
from tests.delete_tables import STORAGE, DeleteTable
from tests.hazard_tables import entry

VERBS = ("rewrite-manifests", "assign-row-ids")
NAMES = ("a", "b", "c", "d", "e")


def a_table(folder: Path, place: str, counter: int) -> Table:
    """Five files of two rows, a manifest each; the first two files have the ids 0 to 3, and they stand in `place`.

    In place "branch" the first two are on another branch, and their entries have the ids.
    """
    table = Table(location=str(folder / "t"), format_version=3)
    for number, path in enumerate(table.data(*NAMES)):
        own = {"first_row_id": 2 * number} if place in ("entry", "branch") and number < 2 else {}
        name = table.manifest(NAMES[number], entry(ADDED, path, record_count=2, **own))
        if place == "list" and number < 2:
            table.rows[name]["first_row_id"] = 2 * number
    if place == "branch":
        table.snapshot(8, *NAMES[:2])
        table.snapshot(9, *NAMES[2:])
    else:
        table.snapshot(9, *NAMES)
    table.fields["next-row-id"] = counter
    others = {"audit": {"snapshot-id": 8, "type": "branch"}} if place == "branch" else {}
    path = table.publish(main=9, **others)
    if place == "snapshot":
        with edited(Path(path)) as document:
            document["snapshots"][0] |= {"first-row-id": 0, "added-rows": 4}
    return table


@pytest.mark.pairs
@pytest.mark.parametrize("counter", [0, 1, 2, 3])
@pytest.mark.parametrize("place", ["entry", "list", "snapshot", "branch"])
@pytest.mark.parametrize("verb", VERBS)
def test_no_id_in_use_is_given_to_another_row(tmp_path: Path, verb: str, place: str, counter: int) -> None:
    table = a_table(tmp_path, place, counter)
    before = listing(table.folder)
    ran = iceberg_cli(verb, table.location, "--yes")
    assert ran.code == 11, ran.out + ran.err
    assert "row-ids-above-next" in ran.err
    assert listing(table.folder) == before
    shown = iceberg_cli(verb, table.location, "--dry-run", "--format", "json")
    assert any("row-ids-above-next" in reason for reason in shown.json["blocked_by"])


@pytest.mark.parametrize("place", ["entry", "list", "snapshot"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_counter_above_every_id_gives_the_next_ones(tmp_path: Path, verb: str, place: str) -> None:
    table = a_table(tmp_path, place, 4)
    ran = iceberg_cli(verb, table.location, "--yes")
    assert ran.code == 0, ran.out + ran.err
    ids = table.first_row_ids()
    assert len({*ids.values()}) == len(NAMES)
    if place == "list":
        assert (ids["a"], ids["b"]) == (0, 2)
        assert min(ids[name] or 0 for name in "cde") >= 4


def with_deletes(folder: Path, counter: int) -> str:
    """Three files of ten rows, ids 0 to 29, of which the list has those of the first two; and position deletes."""
    table = DeleteTable(storage=STORAGE, location=str(folder / "t"))
    for name in "abc":
        table.data(name, 10)
        table.commit(ord(name))
    table.positions("p", {"a": [1, 2]})
    table.commit_and_publish(9)
    [metadata] = (folder / "t" / "metadata").glob("*.metadata.json")
    with edited(metadata) as document:
        document["next-row-id"] = counter
        for snapshot in document["snapshots"]:
            del snapshot["first-row-id"], snapshot["added-rows"]
        path = Path(document["snapshots"][-1]["manifest-list"])
    with path.open("rb") as file:
        reader: Any = fastavro.reader(file)
        schema, header, rows = reader.writer_schema, reader.metadata, list(reader)
    [last] = [row for row in rows if row["first_row_id"] == 20]
    last["first_row_id"] = None
    header = {key: text for key, text in header.items() if not key.startswith("avro.")}
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, metadata=header)
    return str(folder / "t")


@pytest.mark.parametrize(("counter", "code"), [(1, 11), (19, 11), (20, 0)])
def test_merge_dvs_gives_no_id_that_is_in_use(tmp_path: Path, counter: int, code: int) -> None:
    name = with_deletes(tmp_path, counter)
    before = listing(tmp_path / "t")
    ran = iceberg_cli("merge-dvs", name, "--yes")
    assert ran.code == code, ran.out + ran.err
    assert ("row-ids-above-next" in ran.err) is bool(code)
    assert (listing(tmp_path / "t") == before) is bool(code)


@pytest.mark.parametrize("place", ["entry", "list", "snapshot"])
def test_ids_that_are_shared_are_not_given_again(tmp_path: Path, place: str) -> None:
    table = a_table(tmp_path, place, 1)
    before = listing(table.folder)
    ran = iceberg_cli("assign-row-ids", table.location, "--share-ids", "--yes")
    assert (ran.code, "row-ids-above-next" in ran.err) == (11, True), ran.err
    assert listing(table.folder) == before
