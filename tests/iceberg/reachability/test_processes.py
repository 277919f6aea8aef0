"""Answers are the same whether one process decodes the manifests or several do."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.inspect.inspector import TableInspector
from iceberg_cli.iceberg.reachability.question import ReachQuestion, snapshot_files
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.storage.aliases import OtherNames
from tests.large_tables import Made, Size, make_table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="lanes are forked on Linux only")

KEPT = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A table with enough manifests that lanes are worth it."""
    return make_table(str(tmp_path_factory.mktemp("warehouse") / "t"), Size(160, 150, KEPT))


def opened(made: Made, workers: int) -> IcebergTable:
    table = open_table(made.location, storage_options={}, on_event=lambda _: None)
    changed = dataclasses.replace(table, engine=LocalEngine(table.storage, workers=workers))
    changed.reachability.other_names = OtherNames(changed.roots().folders)
    return changed


def reach(table: IcebergTable) -> ReachQuestion:
    snapshots = [snapshot_files(snapshot) for snapshot in table.metadata.snapshots]
    return ReachQuestion(expired=tuple(snapshots[:-KEPT]), kept=tuple(snapshots[-KEPT:]))


def removals(table: IcebergTable) -> pa.Table:
    return table.reachability.answer(reach(table), step="expire").rows


def live(table: IcebergTable) -> bytes:
    snapshots = [snapshot_files(snapshot) for snapshot in table.metadata.snapshots]
    return table.reachability.everything_live(snapshots, ["named"]).whole().tobytes()


def files(table: IcebergTable) -> pa.Table:
    shown = TableInspector(table=table, snapshot=table.metadata.current_snapshot(), as_of_ms=0)
    return pa.concat_tables(shown.parts("files", shown.shower(), lambda rows: rows, limit=None))


def test_removals_are_those_of_one_process_and_are_the_files_that_nothing_kept_has(made: Made) -> None:
    several = removals(opened(made, 2)).sort_by("path")
    assert several.equals(removals(opened(made, 1)).sort_by("path"))
    content = several.filter(pa.array([kind == "data_file" for kind in several["kind"].to_pylist()]))
    # The table's maker wrote just the data files that its expiry deletes.
    assert {Path(path).name for path in content["path"].to_pylist()} == set(
        os.listdir(f"{made.location}/data")
    )
    assert len(content) == len(os.listdir(f"{made.location}/data"))


@pytest.mark.parametrize("look", [live, files])
def test_what_is_read_is_what_one_process_reads(made: Made, look: Callable[[IcebergTable], object]) -> None:
    assert look(opened(made, 2)) == look(opened(made, 1))


def test_a_limit_ends_the_reading_early(made: Made) -> None:
    table = opened(made, 2)
    shown = TableInspector(table=table, snapshot=table.metadata.current_snapshot(), as_of_ms=0)
    before = psutil.Process().children()
    found = list(shown.parts("files", shown.shower(), lambda rows: rows, limit=5_000))
    assert sum(len(part) for part in found) == 5_000
    assert psutil.Process().children() == before


@pytest.fixture
def damaged(made: Made) -> Iterator[str]:
    """The path of a kept manifest that does not end with its sync marker."""
    table = opened(made, 1)
    manifests = table.reachability.manifests(reach(table).kept, phase="", required=True)
    path = Path(manifests.rows["manifest_path"].to_pylist()[0])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 0xFF]))
    yield str(path)
    path.write_bytes(whole)


def test_a_damaged_kept_manifest_is_the_error_that_one_process_raises(made: Made, damaged: str) -> None:
    with pytest.raises(CorruptFile) as caught:
        live(opened(made, 2))
    assert caught.value.path == damaged
    with pytest.raises(CorruptFile) as alone:
        live(opened(made, 1))
    assert vars(caught.value) == vars(alone.value)


def test_a_killed_lane_stops_the_answer(made: Made) -> None:
    table = opened(made, 2)

    class Killer(OtherNames):
        def folders(self, keys: pa.Array) -> list[str]:
            if os.getpid() != parent:
                os.kill(os.getpid(), 9)
            return super().folders(keys)

    parent = os.getpid()
    table.reachability.other_names = Killer(table.roots().folders)
    with pytest.raises(BackendUnavailable, match="signal 9"):
        live(table)
