"""The first line of `inspect` claims no more than was looked at."""

from __future__ import annotations

from pathlib import Path

from tests.cli.lakes import AS_OF, FolderTable, delta_with_removed_files
from tests.cli.printed import plain, run_on_a_terminal
from tests.cli.running import iceberg_cli
from tests.referee.iceberg import Table

DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000


def verdict(folder: Path) -> str:
    ran = iceberg_cli("inspect", folder, *AS_OF)
    assert ran.code == 0, ran.err
    return ran.out.splitlines()[0]


def test_a_table_that_lost_a_live_file_is_not_called_healthy(table: FolderTable) -> None:
    before = verdict(table.folder)
    assert before == "expire-snapshots is due: 3 snapshots (cut-off 5 d by default); not checked"
    for path in (table.folder / "data").iterdir():
        path.unlink()
    assert verdict(table.folder) == before
    assert iceberg_cli("inspect", table.folder, "--check").code == 15


def test_where_nothing_shows_it_is_said_by_what(table: FolderTable, tmp_path: Path) -> None:
    assert iceberg_cli("expire-snapshots", table.folder, *AS_OF, "--yes").code == 0
    assert verdict(table.folder) == "Nothing is due by metadata alone; not checked"
    delta = tmp_path / "delta"
    delta_with_removed_files(delta)
    assert verdict(delta) == "Nothing is due by the log alone; not checked"


def with_tags(folder: Path, number: int) -> Table:
    """A table of version 3 of which a branch and so many tags are kept."""
    table = Table(folder, version=3, seed=1, now_ms=NOW_MS)
    for _ in range(3):
        table.append()
    refs = {**table.document["refs"]}
    snapshot = refs["main"]["snapshot-id"]
    refs |= {f"day-{each}": {"snapshot-id": snapshot, "type": "tag"} for each in range(number)}
    refs["audit"] = {"snapshot-id": snapshot, "type": "branch", "max-snapshot-age-ms": 2 * DAY_MS}
    properties = {
        "history.expire.min-snapshots-to-keep": "3",
        "history.expire.max-ref-age-ms": str(9 * DAY_MS),
    }
    table.change({**table.document, "refs": refs, "properties": properties})
    return table


def test_many_tags_are_one_row_of_one_screen_and_all_are_shown_where_there_is_room(tmp_path: Path) -> None:
    with_tags(tmp_path / "t", 45)
    words = ("inspect", tmp_path / "t", "--as-of", NOW_MS)
    screen = plain(run_on_a_terminal(80, *words).out).splitlines()
    assert len(screen) <= 24
    rows = [line.split("  ") for line in screen if line.startswith(("main", "audit", "45 tags", "day-"))]
    assert {row[0].strip(): row[-1].strip() for row in rows} == {
        "main": "5 d, at least 3 (the table's default)",
        "audit": "2 d; by default at least 3, ref for 9 d",
        "45 tags": "ref for 9 d (the table's default)",
    }
    assert "uuid" not in "".join(screen)
    for whole in (run_on_a_terminal(80, *words, "--verbose").out, iceberg_cli(*words).out):
        assert all(f"day-{each}" in whole for each in range(45))
        assert "uuid" in whole
