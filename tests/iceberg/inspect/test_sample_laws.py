"""`inspect TABLE sample` of random tables, against the specification's scan planning word for word, row by row."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.testing.iceberg_files import DATA, EQUALITY_DELETES
from tests.budget import few_or_many
from tests.cli.lakes import metadata_of
from tests.cli.running import iceberg_cli as run
from tests.delete_tables import PARTITIONS, STORAGE, DeleteTable
from tests.scan_planning import view

Row = tuple[int | None, str | None]
FIELDS = (pa.field("n", pa.int64()), pa.field("k", pa.string()))


def parquet(rows: Sequence[tuple[Any, ...]], field_ids: Sequence[int], *, row_group_size: int = 5) -> bytes:
    fields = [FIELDS[i - 1].with_metadata({"PARQUET:field_id": str(i)}) for i in field_ids]
    columns = list(zip(*rows, strict=True)) or [[] for _ in fields]
    table = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=pa.schema(fields)
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=row_group_size, store_schema=False)
    return out.getvalue()


@dataclass(kw_only=True)
class RowTable(DeleteTable):
    """A table whose data files and equality delete files have rows."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    compared: dict[str, tuple[tuple[int, ...], set[tuple[Any, ...]]]] = field(default_factory=dict)

    def data_rows(self, name: str, rows: list[Row], *, k: Any = None) -> None:
        content = parquet(rows, (1, 2))
        entry = self.file(f"{name}.parquet", content, DATA, len(rows), file_size_in_bytes=len(content))
        self.rows[entry["file_path"]] = rows
        self.add(entry, k=k)

    def equality_rows(
        self, name: str, ids: tuple[int, ...], rows: list[tuple[Any, ...]], *, k: Any = None
    ) -> None:
        content = parquet(rows, ids)
        entry = self.file(
            f"{name}-eq-deletes.parquet", content, EQUALITY_DELETES, len(rows), equality_ids=list(ids),
            file_size_in_bytes=len(content),
        )  # fmt: skip
        self.compared[entry["file_path"]] = (ids, set(rows))
        self.add(entry, k=k)


def a_random_table(folder: Path, seed: int, *, careless: bool = False) -> RowTable:
    """Data files come and go, rows are deleted by position and by value, in partitions and everywhere.

    With `careless` position deletes name data files of other partitions too, which they do not apply to.
    """
    rng = random.Random(seed)
    table = RowTable(storage=STORAGE, location=str(folder), format_version=rng.choice([2, 3]))
    names = map(str, itertools.count())
    live: dict[str, tuple[str | None, int]] = {}
    for snapshot_id in range(1, rng.randint(3, 8)):
        for _ in range(rng.randint(1, 3)):
            name, k = f"f{next(names)}", rng.choice(PARTITIONS)
            value = None if k == "null" else k if k is not None else rng.choice(["x", "y", "", None])
            rows: list[Row] = [(rng.choice([*range(12), None]), value) for _ in range(rng.randint(1, 17))]
            table.data_rows(name, rows, k=k)
            live[name] = (k, len(rows))
        k = rng.choice(PARTITIONS)
        strays = careless and table.format_version == 2 and rng.random() < 0.3
        mine = [name for name, (other, _) in live.items() if (other == k or strays) and rng.random() < 0.6]
        positions = {name: {rng.randrange(live[name][1]) for _ in range(3)} for name in mine}
        if positions and table.format_version == 2:
            table.positions(f"p{next(names)}", positions, k=k)
        elif positions:
            table.vectors(f"v{next(names)}", positions, k=k)
        for _ in range(rng.choice([0, 1, 1, 2])):
            ids = rng.choice([(1,), (2,), (1, 2), (2, 1)])
            drawn = {1: lambda: rng.choice([*range(12), None]), 2: lambda: rng.choice(["x", "y", "", None])}
            deleted = [tuple(drawn[i]() for i in ids) for _ in range(rng.randint(1, 3))]
            table.equality_rows(f"e{next(names)}", ids, deleted, k=rng.choice(PARTITIONS))
        if rng.random() < 0.3 and len(live) > 2:
            gone = rng.choice(list(live))
            del live[gone]
            table.remove(gone)
        table.commit(snapshot_id)
    table.publish()
    return table


def visible(table: RowTable) -> Counter[Row]:
    """The rows that no delete hides, one by one."""
    found: Counter[Row] = Counter()
    for path, (_, positions, equality, *_) in view(STORAGE.read, metadata_of(Path(table.location))).items():
        for position, row in enumerate(table.rows[path]):
            hidden = position in positions or any(
                tuple(row[i - 1] for i in table.compared[delete][0]) in table.compared[delete][1]
                for delete in equality
            )
            found[row] += not hidden
    return +found


def shown(table: RowTable, *arguments: object) -> list[Row]:
    ran = run("inspect", table.location, "sample", "--jsonl", *arguments)
    assert ran.code == 0, ran.err
    return [tuple(json.loads(line).values()) for line in ran.out.splitlines()]


@few_or_many(12, many=150)
def test_rows_are_those_that_scan_planning_leaves(tmp_path: Path, budget: int) -> None:
    hidden = 0
    for seed in range(budget):
        table = a_random_table(tmp_path / str(seed), seed, careless=True)
        known = visible(table)
        assert Counter(shown(table, "--limit", 10_000)) == known, seed
        few = shown(table, "--limit", 3)
        assert len(few) == min(3, known.total())
        assert not Counter(few) - known
        hidden += sum(map(len, table.rows.values())) - known.total()
    assert hidden > budget


def test_no_more_of_a_large_file_is_read_than_its_rows_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = RowTable(storage=STORAGE, location=str(tmp_path / "t"))
    rng = random.Random(1)
    rows: list[Row] = [(i, rng.randbytes(40).hex()) for i in range(200_000)]
    content = parquet(rows, (1, 2), row_group_size=1 << 20)
    assert len(content) > 10 << 20
    table.add(table.file("large.parquet", content, DATA, len(rows), file_size_in_bytes=len(content)))
    table.commit(1)
    table.publish()
    read = 0
    plain = type(STORAGE).read

    def counted(self: Any, path: str, span: tuple[int, int] | None = None) -> bytes:
        nonlocal read
        data = plain(self, path, span)
        read += len(data) if path.endswith("large.parquet") else 0
        return data

    monkeypatch.setattr(type(STORAGE), "read", counted)
    assert shown(table) == rows[:20]
    assert 0 < read < 4 << 20
