"""Rows, and their ids, are the same before and after; by a reader that replays the log, and by other engines."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

import iceberg_cli as ic
from iceberg_cli.delta.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.delta.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.errors import CommitConflict
from iceberg_cli.formats.open import open_table
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import system_runtime
from iceberg_cli.plan.events import COMMIT, AnyEvent, PhaseBegun
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.delta_rows import LiteralState, commits_of, deleted_positions, rows_of, state_of
from tests.budget import few_or_many, some
from tests.delta.verbs.rewrite_data_files.drawn import DrawnTable, drawn_table

HISTORIES = range(1_000_000)
NOW_MS = 1_900_000_000_000


def rewritten(root: Path, *, at_commit: Callable[[], None] = lambda: None, **options: Any) -> Report | None:
    """The report of a run; None where nothing was to be done.

    Args:
        root: of the table.
        at_commit: what another writer does before each try to commit.
        options: of the policy.
    """

    def see(event: AnyEvent) -> None:
        if isinstance(event, PhaseBegun) and event.phase == COMMIT:
            at_commit()

    table = open_table(str(root), storage_options={}, catalog_config=None, on_event=see)
    planned = VERB.plan(table, RewriteDataFiles(processes=1, **options), as_of_ms=NOW_MS)
    assert planned.plan.blocked_by == ()
    if not planned.plan.due:
        return None
    runtime = system_runtime(on_event=see, host="test", process_id=1)
    return apply(planned, table, VERB, replace(runtime, sleep_ms=lambda _: None))


def check_versions(root: Path, since: int) -> None:
    """Of each version of ours: no data is changed, and statistics are what the rows of its files say."""
    for path in commits_of(root):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        if int(path.stem) <= since or actions[0]["commitInfo"]["operation"] != "OPTIMIZE":
            continue
        before = state_of(root, int(path.stem) - 1)
        known = (state_of(root, version) for version in range(since, int(path.stem)))
        folders = {each["path"].rpartition("/")[0] for state in known for each in state.adds.values()} | {""}
        for action in actions:
            ((kind, body),) = action.items()
            assert kind in ("commitInfo", "add", "remove", "domainMetadata")  # and no `cdc`
            if kind in ("add", "remove"):
                assert body["dataChange"] is False
            if kind == "remove":
                vector = body.get("deletionVector")
                (add,) = (each for each in before.adds.values() if each["path"] == body["path"])
                assert vector == add.get("deletionVector")
            if kind == "add":
                # As the log spells it: Delta Spark's VACUUM deletes what is in a folder that is spelled otherwise.
                assert body["path"].rpartition("/")[0] in folders
                check_statistics(root, body)
                check_for_iceberg(root, state_of(root, int(path.stem)), body)
                if (vector := body.get("deletionVector")) is not None:
                    assert json.loads(body["stats"])["tightBounds"] is False
                    assert len(deleted_positions(root, body)) == vector["cardinality"]


def check_statistics(root: Path, add: dict[str, Any]) -> None:
    """Counts are those of the file, and no value is outside of its bounds."""
    stats = json.loads(add["stats"])
    table = pq.ParquetFile(root / unquote(add["path"])).read()
    assert stats["numRecords"] == len(table)
    for name, nulls in stats.get("nullCount", {}).items():
        if isinstance(nulls, int):
            assert nulls == table.column(name).null_count, name
    for name, least in stats.get("minValues", {}).items():
        values = [each for each in table.column(name).to_pylist() if each is not None]
        if isinstance(least, (int, float)) and values:
            assert float(least) <= min(map(float, values)), name
            assert float(stats["maxValues"][name]) >= max(map(float, values)), name
        elif isinstance(least, str) and isinstance(values[0], str):
            greatest = stats["maxValues"].get(name)
            assert least.encode() <= min(each.encode() for each in values)
            assert greatest is None or greatest.encode() >= max(each.encode() for each in values)
        elif isinstance(least, str):
            assert least[:10] <= min(each.isoformat()[:10] for each in values)
            assert stats["maxValues"][name][:10] >= max(each.isoformat()[:10] for each in values)


def check_for_iceberg(root: Path, state: LiteralState, add: dict[str, Any]) -> None:
    """Of partition columns a file has what the log says where the table asks for that, and ids and tag likewise."""
    table = pq.ParquetFile(root / unquote(add["path"])).read()
    (version,) = [
        each for each in "12" if state.configuration.get(f"delta.enableIcebergCompatV{each}") == "true"
    ] or [None]
    in_files = version is not None or "materializePartitionColumns" in state.protocol.get(
        "writerFeatures", ()
    )
    names = [*add["partitionValues"]]
    assert table.column_names[len(table.column_names) - len(names) :] == names if in_files else True
    assert [name in table.column_names for name in names] == [in_files] * len(names)
    for name in names if in_files else ():
        assert table[name].to_pylist() == [add["partitionValues"][name] or None] * len(table)
    assert (add.get("tags") or {}).get("ICEBERG_COMPAT_VERSION") == version
    for each in state.fields if version == "2" else ():
        for place, number in each["metadata"]["delta.columnMapping.nested.ids"].items():
            column, _, name = place.rpartition(".")
            if column in table.column_names:
                kind = table.schema.field(column).type
                item = (
                    kind.value_field
                    if name == "element"
                    else getattr(kind, f"{name.replace('value', 'item')}_field")
                )
                assert item.metadata[b"PARQUET:field_id"] == str(number).encode()


@few_or_many(30, many=150, all_of=2_000)
def test_rows_and_their_ids_stay_what_they_are(budget: int, tmp_path: Path) -> None:
    for seed in some(HISTORIES, budget):
        root = tmp_path / str(seed)
        table = drawn_table(root, seed)
        before = rows_of(root)
        report = rewritten(root, rewrite_all=True, **an_order(table))
        assert rows_of(root) == before, seed
        check_versions(root, table.version)
        if report is not None:
            assert report.status == "done", (seed, report)
            assert not any(add.get("deletionVector") for add in state_of(root).adds.values()), seed


@few_or_many(20, many=100, all_of=500)
def test_they_do_beside_another_writer(budget: int, tmp_path: Path) -> None:
    """Who commits right before ours, and maybe again before the next try."""
    for seed in some(HISTORIES, budget):
        root = tmp_path / str(seed)
        table = drawn_table(root, seed)
        writer = Writer(table)
        since = table.version
        options = {"rewrite_all": True, "commit_every": "1B", "max_group_size": 4096, "target_size": 4096}
        with suppress(CommitConflict):
            rewritten(root, at_commit=writer.commit, **options, **an_order(table))
        assert rows_of(root) == writer.rows_now(), seed
        check_versions(root, since)


def an_order(table: DrawnTable) -> dict[str, Any]:
    """Options by which rows come into an order, for most of the tables."""
    drawn = random.Random(f"order {table.root.name}")
    parts = state_of(table.root).metadata["partitionColumns"]
    names = [
        each.name
        for each in table.columns
        if isinstance(each.kind, str)
        and each.kind not in ("binary", "boolean")  # of which Delta has no bounds
        and each.name not in parts
    ]
    if table.clustered_by:  # what it declares, or none
        return drawn.choice([{}, {"full": True}, {"strategy": "bin-pack"}])
    if drawn.random() < 0.3 or not names:
        return {}
    chosen = drawn.sample(names, drawn.randint(1, min(4, len(names))))
    if len(chosen) == 1 or drawn.random() < 0.5:
        endings = ["", ":desc", ":nulls-last", ":desc:nulls-first"]
        return {"strategy": "sort", "sort_by": [name + drawn.choice(endings) for name in chosen]}
    return {"strategy": drawn.choice(["z-order", "hilbert"]), "curve_by": chosen}


class Writer:
    """Another writer of a table, which knows what others have committed."""

    def __init__(self, table: DrawnTable) -> None:
        self._table = table
        self._rows = rows_of(table.root)

    def commit(self) -> None:
        """Do something, now and then nothing; what others did since must have changed no row."""
        table = self._table
        assert rows_of(table.root) == self._rows
        if table.drawn.random() < 0.7:
            table.reload()
            table.step()
            self._rows = rows_of(table.root)

    def rows_now(self) -> list[str]:
        """The rows as it left them."""
        return self._rows


def test_deleted_rows_of_the_only_file_are_gone_and_so_is_the_file(tmp_path: Path) -> None:
    """Hazard 6: removes alone, and the table reads empty."""
    seed = next(
        each
        for each in range(200)
        if (table := drawn_table(tmp_path / str(each), each)).live and table.tracking == "enabled"
    )
    root = tmp_path / str(seed)
    table = drawn_table(tmp_path / "again", seed)
    root = table.root
    for _ in range(200):
        if not rows_of(root):
            break
        table.delete_rows()
    assert rows_of(root) == []
    assert [len(deleted_positions(root, add)) > 0 for add in state_of(root).adds.values()]
    report = rewritten(root)
    assert report is not None
    assert (report.status, report.counts["added_data_files_count"]) == ("done", 0)
    assert (state_of(root).adds, rows_of(root)) == ({}, [])


@pytest.mark.parametrize("seed", range(3))
def test_a_second_run_finds_nothing(seed: int, tmp_path: Path) -> None:
    table = drawn_table(tmp_path / "t", seed)
    for _ in range(6):
        table.append()
    assert rewritten(table.root, min_input_files=2) is not None
    assert rewritten(table.root, min_input_files=2) is None


def test_from_python_it_is_a_policy_of_delta(tmp_path: Path) -> None:
    table = drawn_table(tmp_path / "t", 0)
    for _ in range(6):
        table.append()
    opened = ic.open_table(str(table.root))
    report = opened.apply(opened.plan(ic.delta.RewriteDataFiles(min_input_files=2)))
    assert report.counts["rewritten_data_files_count"] > report.counts["added_data_files_count"] > 0
