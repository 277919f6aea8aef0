"""Where outputs of a group end, how much of its rows is held, and random tables in outputs of any size."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.testing.iceberg_rows import LAST_UPDATED, ROW_ID
from tests.budget import few_or_many
from tests.iceberg.verbs.rewrite_data_files.tables import (
    NK,
    Files,
    K,
    N,
    RowsTable,
    column,
    of,
    planned,
    rewritten,
    schema,
)

MIB = 1 << 20
NOISE = of(3, "noise", pa.float64())


def noisy(table: RowsTable, files: int, rows: int) -> RowsTable:
    """Files of rows that take about eight bytes each and do not compress."""
    draw = np.random.default_rng(files)
    for number in range(files):
        numbers = range(number * rows, (number + 1) * rows)
        columns = [(N, numbers), (K, ["x"] * rows), (NOISE, pa.array(draw.normal(size=rows)))]
        table.rows(f"f{number:03d}", columns, group_rows=10_000)
    table.commit(1)
    return table


def a_table(files: int, rows: int, **properties: str) -> RowsTable:
    own = {"write.parquet.compression-codec": "zstd", **properties}
    return noisy(
        RowsTable(
            format_version=2, schema=schema(*NK["fields"], column(3, "noise", "double")), properties=own
        ),
        files,
        rows,
    )


@pytest.mark.parametrize("is_proved", [True, False])
def test_outputs_end_near_the_target_and_have_all_rows_in_order(is_proved: bool) -> None:
    table = a_table(7, 3000)
    (result,) = rewritten(table, target_bytes=60_000, is_proved=is_proved)
    sizes = [each.size_bytes for each in result.outputs]
    assert len(sizes) in (3, 4)
    assert all(0.9 * 60_000 <= size <= 1.3 * 60_000 for size in sizes[:-1])
    assert sizes[-1] <= 1.8 * 60_000
    assert len({each.path for each in result.outputs}) == len(sizes)


def test_row_groups_are_as_large_as_the_properties_say_where_the_target_is_larger() -> None:
    table = a_table(4, 6000, **{"write.parquet.row-group-size-bytes": "20000"})
    (result,) = rewritten(table, target_bytes=100_000)
    footers = [pq.read_metadata(pa.BufferReader(table.storage.read(each.path))) for each in result.outputs]
    sizes = [
        sum(footer.row_group(i).column(j).total_compressed_size for j in range(3))
        for footer in footers
        for i in range(footer.num_row_groups)
    ]
    assert all(0.7 * 20_000 <= size <= 20_000 for size in sizes[:-1])
    assert all(0.9 * 100_000 <= each.size_bytes <= 1.3 * 100_000 for each in result.outputs[:-1])


def test_a_small_rest_joins_the_output_before_it() -> None:
    table = a_table(1, 9000)
    (whole,) = rewritten(table)
    size = whole.output_bytes
    for share, outputs in ((1.15, 1), (1.7, 2)):  # of the target, that all rows take
        (result,) = rewritten(a_table(1, 9000), target_bytes=int(size / share))
        assert len(result.outputs) == outputs, share


def test_no_more_rows_are_held_than_fit_into_the_memory() -> None:
    table = RowsTable(format_version=2)
    texts = [
        bytes(np.random.default_rng(n).integers(97, 122, MIB // 4, np.uint8)).decode() for n in range(24)
    ]
    for name in ("a", "b"):
        table.rows(name, [(N, range(24)), (K, texts)], group_rows=4)
    table.commit(1)
    (result,) = rewritten(table, memory_bytes=6 * MIB)
    footer = pq.read_metadata(pa.BufferReader(table.storage.read(result.outputs[0].path)))
    rows = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
    assert max(rows) * MIB / 4 <= 6 * MIB / 3 + MIB / 4 * 4  # and what is read at once
    assert sum(rows) == 48


def test_a_group_is_written_the_same_by_what_was_sent_to_a_worker() -> None:
    table = a_table(3, 50)
    table.equality_rows("e", [(N, [3, 77])])
    table.commit(2)
    plan = planned(table)
    files = Files(table.storage)
    rewriter, task = pickle.loads(pickle.dumps((plan.rewriter, plan.task), 5))
    result = rewriter(files, task)
    table.storage.delete([each.path for each in files.created])
    again = plan.rewriter(Files(table.storage), plan.task)
    assert result.to_json() == again.to_json()
    assert result.position_data() == again.position_data()
    assert result.rows_deleted == 2
    sent = pickle.loads(pickle.dumps(result, 5))
    assert sent.to_json() == result.to_json()


def a_random_table(rng: random.Random) -> RowsTable:
    """Files of two partitions and none, some columns absent, with deletes of every kind that its version has."""
    version = rng.choice([1, 2, 2, 3, 3, 3])
    default = {"initial-default": 7} if version > 2 else {}
    table = RowsTable(
        format_version=version, schema=schema(*NK["fields"], column(3, "added", "long", **default))
    )
    live: dict[str, tuple[Any, int]] = {}
    for commit in range(1, rng.randint(3, 7)):
        for _ in range(rng.randint(1, 3)):
            name, k, count = f"f{len(live)}", rng.choice([None, "x", "null"]), rng.choice([0, 1, 5, 60, 300])
            text = None if k == "null" else k
            columns: list[Any] = [(N, [rng.choice([*range(30), None]) for _ in range(count)])]
            if k is None or rng.random() < 0.7:
                columns.append((K, [text if k else rng.choice(["a", "", None]) for _ in range(count)]))
            if rng.random() < 0.5:
                columns.append((of(3, "added", pa.int64()), [rng.choice([7, 8, None]) for _ in range(count)]))
            if version == 3 and rng.random() < 0.4:
                ids = [rng.choice([None, 10_000 * len(live) + place + 100_000]) for place in range(count)]
                columns.append((of(ROW_ID, "_row_id", pa.int64()), ids))
                if rng.random() < 0.5:
                    updates = [rng.choice([None, 1]) for _ in range(count)]
                    columns.append((of(LAST_UPDATED, "_last_updated_sequence_number", pa.int64()), updates))
            rng.shuffle(columns)
            table.rows(name, columns, k=k, group_rows=rng.choice([1, 7, 100]))
            live[name] = (k, count)
        k = rng.choice([None, "x", "null"])
        named = [name for name, (own, count) in live.items() if own == k and count and rng.random() < 0.6]
        positions = {
            name: {rng.randrange(live[name][1]) for _ in range(rng.choice([1, 4, 200]))} for name in named
        }
        if positions and version == 2:
            table.positions(f"p{commit}", positions, k=k)
        elif positions and version == 3:
            table.vectors(f"v{commit}", positions, k=k)
        if version > 1 and rng.random() < 0.6:
            field, values = rng.choice(
                [(N, [3, None, 9]), (K, ["", None]), (of(3, "added", pa.int64()), [8])]
            )
            table.equality_rows(f"e{commit}", [(field, values)], k=rng.choice([None, "x"]))
        table.commit(commit)
    return table


@few_or_many(6, many=120)
def test_random_tables_keep_their_rows_in_outputs_of_any_size(budget: int) -> None:
    deleted = outputs = 0
    for seed in range(budget):
        rng = random.Random(seed)
        results = rewritten(
            a_random_table(rng),
            target_bytes=rng.choice([1, 700, 3000, 1 << 30]),
            memory_bytes=rng.choice([3, 3000, 1 << 28]),
            is_proved=rng.random() < 0.8,
        )
        deleted += sum(each.rows_deleted for each in results)
        outputs += sum(len(each.outputs) > 1 for each in results)
    assert deleted > budget
    assert outputs > budget / 4
