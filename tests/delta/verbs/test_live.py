"""Every verb in turn on every table: both readers read what was promised, Delta Spark writes on, and we run again."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.budget import FULL, deep_unless
from tests.delta_live import shapes
from tests.delta_live.lake import DeltaLake, Rows, commits, in_order, leftovers, rows_of_delta_rs
from tests.delta_live.shapes import Shape

NOW = ("--retention", "0s", "--unsafe-allow-short-retention")


def verbs(shape: Shape, expire: tuple[str, ...] = ()) -> tuple[tuple[str, tuple[object, ...]], ...]:
    """The verbs in the order in which an operator would call them, with what they are asked."""
    features = tuple(chain.from_iterable(("--feature", name) for name in shape.features))
    return (
        ("upgrade-v3", features),
        ("assign-row-ids", ("--count-rows",) if shape.count_rows else ()),
        ("merge-dvs", ("--min-files", 2)),
        ("rewrite-manifests", ()),
        ("expire-snapshots", expire),
    )


def written_on(rows: Rows) -> Rows:
    """What `shapes.WRITE_ON` makes of the first two columns of a table's rows."""
    found = [row[:2] for row in rows if row[0] != 2] + [(n, f"k{n % 2}") for n in range(900, 903) if n != 901]
    return in_order([*found, *((n, "k1") for n in range(903, 908))])


def by_number(rows: Rows) -> dict[int, tuple[int, int]]:
    """The id and the commit version of each row by its `n`."""
    return {row[0]: row[-2:] for row in rows}


@pytest.mark.parametrize("shape", deep_unless([shapes.MAPPED], shapes.ALL))
def test_both_read_every_version_that_is_promised_after_every_verb_and_delta_writes_on(
    delta_lake: DeltaLake, shape: Shape
) -> None:
    table, promised = delta_lake.table(shape)
    newest = promised[max(promised)]
    before = by_number(delta_lake.rows(table, ids=True)) if shape.tracked else {}

    carry_out(delta_lake, table, verbs(shape), newest)

    rows = delta_lake.rows(table, ids=True)
    assert in_order(row[:-2] for row in rows) == newest
    ids = by_number(rows)
    assert before in ({}, ids)
    assert len({row_id for row_id, _ in ids.values()}) == len(newest)
    assert all(type(version) is int for _, version in ids.values())
    added = {version: newest for version in commits(table) if version > max(promised)}
    delta_lake.assert_promised(table, promised | added)

    delta_lake.sql(table, *shapes.WRITE_ON)

    written = rows_of_delta_rs(table)
    assert in_order(row[:2] for row in written) == written_on(newest)
    carry_out(delta_lake, table, verbs(shape, NOW), written)
    rows = delta_lake.rows(table, ids=True)
    assert in_order(row[:-2] for row in rows) == written
    now = by_number(rows)
    assert {n: now[n] for n in ids if n != 2} == {n: each for n, each in ids.items() if n != 2}
    assert len({row_id for row_id, _ in now.values()}) == len(now)
    if FULL:
        delta_lake.sql(table, "OPTIMIZE {t}", shapes.insert(950, 951), "VACUUM {t} RETAIN 0 HOURS")
        again = by_number(delta_lake.rows(table, ids=True))
        assert {n: each for n, each in again.items() if n < 950} == now


def carry_out(
    lake: DeltaLake, table: Path, targets: tuple[tuple[str, tuple[object, ...]], ...], rows: Rows
) -> None:
    """Run verbs, after each of which the newest version has these rows."""
    for verb, options in targets:
        lake.verb(verb, table, *options)
        assert rows_of_delta_rs(table) == rows, verb
        if FULL:
            assert lake.rows(table) == rows, verb
    assert not leftovers(table)
