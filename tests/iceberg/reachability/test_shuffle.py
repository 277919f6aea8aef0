"""Removals that are found bucket by bucket are those that are found in one process, and nothing less is believed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.reachability import scan, unreachable
from iceberg_cli.iceberg.reachability.keys import NO_KEYS
from iceberg_cli.iceberg.reachability.question import NamedFile, ReachQuestion, snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.reachability.unreachable import (
    content_removals,
    held_or_sorted,
    reach_on_workers,
    reasons_of,
)
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.operation import removal_files
from iceberg_cli.operation.removal_files import collect_removals
from iceberg_cli.paths import Roots
from iceberg_cli.plan.removal_rows import SCHEMA
from iceberg_cli.plan.removals import Removals
from iceberg_cli.storage import Storage
from iceberg_cli.storage.aliases import OtherNames
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.table.own_removals import with_own_removals
from tests.budget import deep_unless
from tests.large_tables import Made, Size, make_table
from tests.plans import a_plan
from tests.shuffling import AdversarialEngine

KEPT = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Many manifests, some rewritten several times."""
    return make_table(str(tmp_path_factory.mktemp("warehouse") / "t"), Size(80, 30, KEPT))


def reachability(storage: Storage, *, apart: bool, lost: int = 0, **others: Any) -> Reachability:
    engine = AdversarialEngine(storage, lost=lost) if apart else LocalEngine(storage)
    return Reachability(engine=engine, on_event=lambda _: None, **others)


def opened(made: Made) -> IcebergTable:
    return open_table(made.location, storage_options={}, on_event=lambda _: None)


def reach(table: IcebergTable, kept: int = KEPT) -> ReachQuestion:
    snapshots = [snapshot_files(snapshot) for snapshot in table.metadata.snapshots]
    return ReachQuestion(expired=tuple(snapshots[:-kept]), kept=tuple(snapshots[-kept:]))


def answers(
    storage: Storage, asked: ReachQuestion, **others: Any
) -> tuple[pa.Table, pa.Table, Sequence[str]]:
    """The removals that are found apart and in one process, and the warnings."""
    apart = reachability(storage, apart=True, **others).answer(asked, step="expire")
    whole = reachability(storage, apart=False, **others).answer(asked, step="expire")
    assert apart.warnings == whole.warnings
    return pa.concat_tables([*apart.content, apart.rows]), whole.rows, apart.warnings


def same(apart: pa.Table, whole: pa.Table) -> bool:
    """Whether both have the same rows."""
    found, expected = Removals.of(apart), Removals.of(whole)
    return found.rows.to_pylist() == expected.rows.to_pylist() and found.digest == expected.digest


@pytest.mark.few(1)
@pytest.mark.parametrize("kept", [1, KEPT, 70])
def test_a_table_is_answered_for_as_in_one_process(made: Made, kept: int) -> None:
    table = opened(made)
    apart, whole, _ = answers(table.storage, reach(table, kept))
    assert len(whole) >= 10
    assert same(apart, whole)


@pytest.mark.few(1)
@pytest.mark.parametrize("held_rows", [0, 1 << 30])
@pytest.mark.parametrize("bucket_bytes", deep_unless([20_000], [1_000, 20_000, 1 << 30]))
def test_the_number_of_buckets_changes_nothing(
    made: Made, monkeypatch: pytest.MonkeyPatch, bucket_bytes: int, held_rows: int
) -> None:
    monkeypatch.setattr(unreachable, "held_or_sorted", partial(held_or_sorted, held_rows=held_rows))
    table = opened(made)
    asked, found = reach(table), reachability(table.storage, apart=False)
    kept = found.kept_manifests(asked.kept, phase="").rows
    expired = found.manifests(tuple(reversed(asked.expired)), phase="", required=False).rows
    held, rows, known = reach_on_workers(
        AdversarialEngine(table.storage),
        kept,
        expired,
        named=(),
        stays=NO_KEYS,
        other_names=None,
        on_event=lambda _: None,
        bucket_bytes=bucket_bytes,
    )
    whole = found.answer(asked, step="expire").rows
    content = [row["path"] for row in whole.to_pylist() if row["kind"] == "data_file"]
    in_order = [path for some in rows for path in some["path"].to_pylist()]
    assert in_order == ([] if held_rows else sorted(content))
    removals = [content_removals(some, reasons_of(expired)).to_pylist() for some in held]
    assert sorted(row["path"] for some in removals for row in some) == (sorted(content) if held_rows else [])
    assert known.size == 0


def test_links_to_folders_keep_what_they_keep_in_one_process(made: Made, tmp_path: Path) -> None:
    table = opened(made)
    (tmp_path / "link").symlink_to(made.location)
    names = OtherNames([made.location, str(tmp_path / "link")])
    apart, whole, _ = answers(table.storage, reach(table), other_names=names)
    assert same(apart, whole)


def test_a_file_that_something_kept_names_stays(made: Made) -> None:
    table = opened(made)
    asked = reach(table)
    apart, _, _ = answers(table.storage, asked)
    going = [row["path"] for row in apart.to_pylist() if row["kind"] == "data_file"]
    stays = replace(asked, kept_files=(going[0], f"file:{going[1]}"))
    apart, whole, _ = answers(table.storage, stays)
    assert not {going[0], going[1]} & set(apart["path"].to_pylist())
    assert same(apart, whole)


def test_a_named_file_that_a_kept_manifest_holds_stays(made: Made) -> None:
    table = opened(made)
    asked = reach(table)
    found = reachability(table.storage, apart=False)
    rows = found.manifests(asked.kept, phase="", required=True).rows
    held = [
        path
        for _, batch in found.entries(rows, ("status", "file_path"), phase="")
        for path in batch.table["file_path"].to_pylist()
    ]
    names = tuple(
        NamedFile(path=path, kind="statistics_file", size_bytes=None, reason="asked")
        for path in (held[0], "/elsewhere/s.stats", held[-1])
    )
    apart, whole, _ = answers(table.storage, replace(asked, expired_files=names))
    assert [path for path in apart["path"].to_pylist() if path.endswith(".stats")] == ["/elsewhere/s.stats"]
    assert not {held[0], held[-1]} & set(apart["path"].to_pylist())
    assert same(apart, whole)


# -- fail closed ---------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Iterator[IcebergTable]:
    """The table, which is as before after the test."""
    aside = tmp_path / "aside"
    shutil.copytree(f"{made.location}/metadata", aside)
    yield opened(made)
    shutil.rmtree(f"{made.location}/metadata")
    shutil.copytree(aside, f"{made.location}/metadata")


def manifests(table: IcebergTable, *, kept: bool) -> list[str]:
    """Those of kept snapshots, or those that only expired ones list."""
    found = reachability(table.storage, apart=False)
    asked = reach(table)
    paths = {
        name: found.manifests(each, phase="", required=True).rows["manifest_path"].to_pylist()
        for name, each in (("kept", asked.kept), ("expired", asked.expired))
    }
    return paths["kept"] if kept else [path for path in paths["expired"] if path not in paths["kept"]]


def test_a_kept_manifest_that_is_gone_stops_the_answer(copied: IcebergTable) -> None:
    path = manifests(copied, kept=True)[2]
    os.remove(path)
    with pytest.raises(CorruptFile) as caught:
        reachability(copied.storage, apart=True).answer(reach(copied), step="expire")
    assert caught.value.path == path


def test_a_kept_manifest_that_is_damaged_stops_the_answer(copied: IcebergTable) -> None:
    path = Path(manifests(copied, kept=True)[1])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptFile) as caught:
        reachability(copied.storage, apart=True).answer(reach(copied), step="expire")
    assert caught.value.path == str(path)


def test_an_expired_manifest_that_is_gone_takes_nothing_with_it(copied: IcebergTable) -> None:
    os.remove(manifests(copied, kept=False)[3])
    apart, whole, _ = answers(copied.storage, reach(copied))
    assert same(apart, whole)


@pytest.mark.parametrize("lost", [1, 5])
def test_parts_that_do_not_arrive_stop_the_answer(made: Made, lost: int) -> None:
    table = opened(made)  # kept manifests come first
    with pytest.raises(BackendUnavailable, match=r"workers saw \d+ live files in the kept manifests"):
        reachability(LocalStorage(), apart=True, lost=lost).answer(reach(table), step="expire")


# -- too many for memory -------------------------------------------------------------------------------------------


def test_what_is_too_much_for_one_part_goes_to_disk_and_is_the_same_plan(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(made)
    whole = reachability(table.storage, apart=False).answer(reach(table), step="expire")
    expected = Removals.of(whole.rows)
    monkeypatch.setattr(unreachable, "held_or_sorted", partial(held_or_sorted, held_rows=50))
    monkeypatch.setattr(unreachable, "PART_ROWS", 64)
    monkeypatch.setattr(removal_files, "PART_ROWS", 64)
    apart = reachability(table.storage, apart=True).answer(reach(table), step="expire")
    found = collect_removals([*apart.content, apart.rows])
    assert len(found.parts) > 4
    assert all(part.file for part in found.parts)
    assert max(part.count for part in found.parts) <= 64
    assert found.rows.to_pylist() == expected.rows.to_pylist()
    assert (found.digest, found.by_kind) == (expected.digest, expected.by_kind)


def test_this_process_too_puts_many_rows_on_disk(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(made)
    held = reachability(table.storage, apart=False).answer(reach(table), step="expire")
    assert not [*held.content]
    monkeypatch.setattr(scan, "held_or_sorted", partial(held_or_sorted, held_rows=50))
    monkeypatch.setattr(unreachable, "PART_ROWS", 64)
    found = reachability(table.storage, apart=False).answer(reach(table), step="expire")
    content = [*found.content]
    assert len(content) > 4
    assert same(pa.concat_tables([*content, found.rows]), held.rows)


def test_files_of_others_are_left_out_of_every_part_and_counted_once(made: Made) -> None:
    def rows(*paths: str) -> pa.Table:
        columns = {"step": "expire", "kind": "data_file", "size_bytes": 1, "reason": "r"}
        return pa.Table.from_pylist(
            [{**columns, "path": path, "as_written": path} for path in paths], schema=SCHEMA
        )

    def own(rows: pa.Table) -> pa.Array:
        return pc.starts_with(rows["path"], "/own/").combine_chunks()

    tables = iter([rows("/a", "/own/1"), rows("/b", "/c"), rows("/own/2"), rows(), rows("/d", "/e", "/f")])
    roots = Roots.of(["/own"])
    plan = with_own_removals(
        a_plan(removals=Removals.none()),
        tables,
        own,
        storage=opened(made).storage,
        roots=roots,
        locations=["/own"],
    )
    assert plan.removals is not None
    assert plan.removals.rows["path"].to_pylist() == ["/own/1", "/own/2"]
    *_, warning = plan.warnings
    assert warning == (
        "6 files, 6 bytes, that would go stay for ever: they are outside the table's own locations, in /, and nothing "
        "will reference them any more. `--unsafe-allow-root FOLDER` deletes them. Such as: /a, /b, /c, /d, /e"
    )
    assert plan.lasting == (warning,)
