"""Verbs whose manifest list gives row ids, on tables whose `next-row-id` is behind ids that are in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_cli.testing.iceberg_files import ADDED
from tests.cli.lakes import edited, listing
from tests.cli.running import iceberg_cli
from tests.cli.tables_without_row_ids import Table
from tests.hazard_tables import entry

VERBS = ("rewrite-manifests", "assign-row-ids")
NAMES = ("a", "b", "c", "d", "e")


def a_table(folder: Path, place: str, counter: int) -> Table:
    """Five files of two rows, a manifest each; the first two files have the ids 0 to 3, and they stand in `place`."""
    table = Table(location=str(folder / "t"), format_version=3)
    for number, path in enumerate(table.data(*NAMES)):
        own = {"first_row_id": 2 * number} if place == "entry" and number < 2 else {}
        name = table.manifest(NAMES[number], entry(ADDED, path, record_count=2, **own))
        if place == "list" and number < 2:
            table.rows[name]["first_row_id"] = 2 * number
    table.snapshot(9, *NAMES)
    table.fields["next-row-id"] = counter
    path = table.publish(main=9)
    if place == "snapshot":
        with edited(Path(path)) as document:
            document["snapshots"][0] |= {"first-row-id": 0, "added-rows": 4}
    return table


@pytest.mark.parametrize("counter", [0, 1, 2, 3])
@pytest.mark.parametrize("place", ["entry", "list", "snapshot"])
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
