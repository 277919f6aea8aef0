"""The first line of `inspect` claims no more than was looked at."""

from __future__ import annotations

from pathlib import Path

from tests.cli.lakes import AS_OF, FolderTable, delta_with_removed_files
from tests.cli.running import iceberg_cli


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
