"""A restored table is what it was: files, vectors, rows and their ids, by a reader that replays the log literally."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from iceberg_cli.testing.delta_rows import LiteralState, commits_of, deleted_positions, rows_of, state_of
from iceberg_cli.testing.delta_writer import a_protocol_with
from tests.budget import few_or_many, some
from tests.delta.verbs.restore.running import blocked_by, bodies, restored
from tests.delta.verbs.rewrite_data_files.drawn import Column, DrawnTable, drawn_table
from tests.duckdb_reading import duckdb_with_delta

HISTORIES = range(1_000_000)
MARK = "delta.rowTracking"


def newest(root: Path) -> int:
    return int(commits_of(root)[-1].stem)


def mark_of(state: LiteralState) -> int:
    text = state.domains.get(MARK, {}).get("configuration")
    return -1 if text is None else int(json.loads(text)["rowIdHighWaterMark"])


def features(state: LiteralState) -> set[str]:
    return {*state.protocol.get("readerFeatures", ()), *state.protocol.get("writerFeatures", ())}


def ids_in(root: Path, state: LiteralState) -> list[int]:
    """The ids that files give to their rows by place."""
    found: list[int] = []
    for add in state.adds.values():
        count = pq.ParquetFile(root / unquote(add["path"])).metadata.num_rows
        found += range(add["baseRowId"], add["baseRowId"] + count)
    return found


def check_state(root: Path, before: LiteralState, then: LiteralState) -> None:
    """Of the newest version: what it has is what the target had, and no mark is lowered."""
    now = state_of(root)
    assert now.adds.keys() == then.adds.keys()
    ids = ("baseRowId", "defaultRowCommitVersion")
    changing = {*ids, "dataChange"}
    for key, add in now.adds.items():
        old = then.adds[key]
        same = before.adds.get(key, old)  # a file that stays is as it was a moment ago
        assert {**add, **dict.fromkeys(changing)} == {**same, **dict.fromkeys(changing)}
        for name in ids:
            assert add.get(name) == old.get(name, add.get(name))
    configuration = {**now.configuration}
    for name in ("materializedRowIdColumnName", "materializedRowCommitVersionColumnName"):
        if f"{MARK}.{name}" not in then.configuration:
            configuration.pop(f"{MARK}.{name}", None)
    assert configuration == then.configuration
    assert {**now.metadata, "configuration": None} == {**then.metadata, "configuration": None}
    assert features(now) == features(before) | features(then)
    assert mark_of(now) >= max(mark_of(before), mark_of(then))
    if "rowTracking" in features(now):
        numbers = ids_in(root, now)
        assert len({*numbers}) == len(numbers)
        assert max(numbers, default=-1) <= mark_of(now)


def check_commit(root: Path, before: LiteralState, then: LiteralState) -> None:
    """The newest version has what Delta Spark's RESTORE writes."""
    (info,) = bodies(root, "commitInfo")
    assert (info["operation"], info["isBlindAppend"]) == ("RESTORE", False)
    adds, removes = bodies(root, "add"), bodies(root, "remove")
    back, leaving = then.adds.keys() - before.adds.keys(), before.adds.keys() - then.adds.keys()
    returned = [add for add in adds if add["dataChange"]]
    assert {(add["path"], *vector(add)) for add in returned} == {
        (then.adds[key]["path"], *vector(then.adds[key])) for key in back
    }
    assert len(removes) == len(leaving)
    for remove in removes:
        (add,) = (
            before.adds[key]
            for key in leaving
            if key[0] == remove["path"] and vector(before.adds[key]) == vector(remove)
        )
        kept = (
            "partitionValues",
            "size",
            "stats",
            "tags",
            "deletionVector",
            "baseRowId",
            "defaultRowCommitVersion",
        )
        assert {name: remove.get(name) for name in kept} == {name: add.get(name) for name in kept}
        assert (remove["dataChange"], remove["extendedFileMetadata"]) == (True, True)
    sizes = {
        "numRestoredFiles": len(back),
        "restoredFilesSize": sum(then.adds[key]["size"] for key in back),
        "numRemovedFiles": len(leaving),
        "removedFilesSize": sum(before.adds[key]["size"] for key in leaving),
        "numOfFilesAfterRestore": len(then.adds),
        "tableSizeAfterRestore": sum(add["size"] for add in then.adds.values()),
    }
    assert info["operationMetrics"] == {name: str(value) for name, value in sizes.items()}


def vector(action: dict[str, Any]) -> tuple[Any, ...]:
    found = action.get("deletionVector") or {}
    return tuple(found.get(name) for name in ("storageType", "pathOrInlineDv", "offset"))


def needs_counts(before: LiteralState, then: LiteralState) -> bool:
    """Whether a file that comes back gets row ids, and nobody has counted its rows."""
    return "rowTracking" in features(before) and any(
        "baseRowId" not in add and "numRecords" not in json.loads(add.get("stats") or "{}")
        for key, add in then.adds.items()
        if key not in before.adds
    )


def step_back(root: Path, target: int) -> None:
    """Restore a version, and check all that must hold then."""
    before, then, rows = state_of(root), state_of(root, target), rows_of(root, target)
    since = newest(root)
    if needs_counts(before, then):
        (reason,) = blocked_by(root, target)
        assert "its statistics do not tell how many rows it has" in reason
        return
    report = restored(root, target)
    if report is None:
        assert (before.adds, before.metadata) == (then.adds, then.metadata)
        return
    assert (report.status, newest(root)) == ("done", since + 1)
    assert rows_of(root) == rows
    check_commit(root, before, then)
    check_state(root, before, then)
    assert restored(root, target) is None


@few_or_many(8, many=60, all_of=1_000)
def test_a_drawn_table_is_what_it_was_and_then_itself_again(budget: int, tmp_path: Path) -> None:
    for seed in some(HISTORIES, budget):
        root = tmp_path / str(seed)
        table = drawn_table(root, seed)
        target = random.Random(seed).randint(0, table.version)
        last = table.version
        step_back(root, target)
        step_back(root, last)
        step_back(root, random.Random(-seed).randint(0, newest(root)))


def plain_table(root: Path, seed: int) -> DrawnTable:
    """A table of features that all readers know."""
    table = DrawnTable(root, random.Random(seed))
    table.configuration = {"delta.enableDeletionVectors": "true"}
    table.columns = [Column("n", "long", 1, "n"), Column("s", "string", 2, "s")]
    table.commit([a_protocol_with("deletionVectors"), table.metadata()])
    for _ in range(8):
        table.drawn.choice([table.append, table.delete_rows, table.drop_file, table.update_file])()
    return table


def rows_of_duckdb(root: Path) -> list[str]:
    found = duckdb_with_delta().execute(f"SELECT n, s FROM delta_scan('{root}')").fetchall()
    return sorted(map(repr, found))


def rows_of_delta_rs(root: Path) -> list[str]:
    table = pa.table(
        QueryBuilder().register("t", DeltaTable(str(root))).execute("SELECT n, s FROM t").read_all()
    )
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


@few_or_many(4, many=20, all_of=200)
def test_other_readers_read_the_rows_of_the_target(budget: int, tmp_path: Path) -> None:
    for seed in some(HISTORIES, budget):
        root = tmp_path / str(seed)
        table = plain_table(root, seed)
        target = random.Random(seed).randint(1, table.version)
        state = state_of(root, target)
        there = sorted(
            repr((row["n"], row["s"]))
            for add in state.adds.values()
            for position, row in enumerate(stored_rows(root, add))
            if position not in deleted_positions(root, add)
        )
        restored(root, target)
        assert rows_of_delta_rs(root) == there, seed
        assert rows_of_duckdb(root) == there, seed


def stored_rows(root: Path, add: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a file, deleted ones included; a column that it lacks is null."""
    rows = pq.ParquetFile(root / unquote(add["path"])).read().to_pylist()
    return [{"n": None, "s": None, **row} for row in rows]
