"""Tables of Delta Spark: it and delta-rs read the rows and ids that were there, and write on."""

from __future__ import annotations

import pytest

from iceberg_cli.testing.delta_rows import state_of
from tests.delta.verbs.test_live import by_number, written_on
from tests.delta_live import shapes
from tests.delta_live.lake import DeltaLake, commits, in_order, leftovers, rows_of_delta_rs
from tests.delta_live.shapes import Shape


@pytest.mark.deep
@pytest.mark.parametrize("shape", [*shapes.ALL, shapes.COMPATIBLE], ids=lambda shape: shape.name)
def test_other_engines_read_the_same_rows_and_write_on(delta_lake: DeltaLake, shape: Shape) -> None:
    table, promised = delta_lake.table(shape)
    newest = promised[max(promised)]
    before = by_number(delta_lake.rows(table, ids=True)) if shape.tracked else {}

    delta_lake.verb("rewrite-data-files", table, "--rewrite-all")

    assert rows_of_delta_rs(table) == newest
    assert delta_lake.rows(table) == newest
    if shape.tracked:
        assert by_number(delta_lake.rows(table, ids=True)) == before
    if shape.by.startswith("CLUSTER"):
        adds = state_of(table).adds.values()
        assert {(add["clusteringProvider"], add["tags"]["ZCUBE_ZORDER_BY"]) for add in adds} == {
            ("liquid", '["n"]')
        }
    added = {version: newest for version in commits(table) if version > max(promised)}
    assert added
    delta_lake.assert_promised(table, promised | added)
    assert not leftovers(table)

    delta_lake.sql(table, *shapes.WRITE_ON)
    written = rows_of_delta_rs(table)
    assert in_order(row[:2] for row in written) == written_on(newest)
    ids = by_number(delta_lake.rows(table, ids=True)) if shape.tracked else {}
    delta_lake.verb("rewrite-data-files", table, "--rewrite-all")
    assert delta_lake.rows(table) == rows_of_delta_rs(table) == written
    delta_lake.sql(table, "OPTIMIZE {t}", "VACUUM {t} RETAIN 0 HOURS")
    assert delta_lake.rows(table) == written
    if shape.tracked:
        assert by_number(delta_lake.rows(table, ids=True)) == ids
