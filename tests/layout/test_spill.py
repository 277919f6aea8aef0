"""What is sorted beyond memory: how much it is said to be, and what a killed process leaves of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.layout.files.forecast import no_room
from iceberg_cli.layout.files.spill import PREFIX, spill_folder, spilled_bytes
from iceberg_cli.plan.groups import GROUPS_SCHEMA, Groups
from iceberg_cli.storage.router import open_storage
from tests.builders import TableWriter

MB = 1 << 20
HOLDS = """
import os, signal, sys
from iceberg_cli.layout.files.spill import spill_folder
with spill_folder() as folder:
    open(folder + "/rows", "wb").close()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("sizes", "side_by_side", "held", "expected"),
    [
        ([100 * MB], 1, 500 * MB, 0),  # 400 MB of rows fit
        ([200 * MB], 1, 500 * MB, 800 * MB),
        ([30 * MB], 1, MB, 0),  # DuckDB gets 128 MiB, however little is said
        ([200 * MB, 300 * MB, 150 * MB], 2, 500 * MB, 2_000 * MB),  # the two largest at a time
        ([], 2, 500 * MB, 0),
    ],
)
def test_what_does_not_fit_is_on_disk(sizes: list[int], side_by_side: int, held: int, expected: int) -> None:
    assert spilled_bytes(sizes, side_by_side=side_by_side, held_bytes=held) == expected


def test_what_a_killed_process_left_goes_and_what_one_at_work_has_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    other = tmp_path / f"{PREFIX}of-somebody"  # just made: its lock has no name yet
    other.mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    at_work, killed = (
        subprocess.Popen([sys.executable, "-c", HOLDS], env=env, stdin=pipe, stdout=pipe, text=True)
        for _ in range(2)
    )
    with at_work, killed:
        assert at_work.stdout is not None
        assert killed.stdout is not None
        held, left = (Path(each.stdout.readline().strip()) for each in (at_work, killed))  # type: ignore[union-attr]
        assert {each.name for each in left.iterdir()} == {"in-use", "rows"}
        killed.kill()
        killed.wait()
        assert left.exists()
        with spill_folder() as own:
            assert {*tmp_path.iterdir()} == {other, held, Path(own)}
        assert {*tmp_path.iterdir()} == {other, held}
        assert (held / "rows").exists()
        at_work.kill()


def test_a_folder_for_temporary_files_without_room_blocks(tmp_path: Path) -> None:
    writer = TableWriter(storage=open_storage(), location=str(tmp_path / "t"))
    writer.publish("v1.metadata.json")
    table = open_table(writer.location, storage_options={}, catalog_config=None, on_event=lambda _: None)
    rows = GROUPS_SCHEMA.empty_table()
    groups = Groups(rows=rows, inputs=rows, base={}, spill_bytes=1 << 50)
    (blocked,) = no_room(table, writer.location, RewriteDataFiles(), groups)
    assert blocked.startswith("sorting takes about 1024.0 TiB, and ")
    assert blocked.endswith("(TMPDIR) (--unsafe-accept-space carries on)")
    assert no_room(table, writer.location, RewriteDataFiles(unsafe_accept_space=True), groups) == ()
