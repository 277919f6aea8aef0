"""The files that go: order, totals, digest and the Parquet file that carries them."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.errors import CorruptFile
from iceberg_cli.plan.removal_rows import KINDS, SCHEMA, from_parquet, to_parquet
from iceberg_cli.plan.removals import Removals
from tests.plans import a_removal, removal_rows, removals_of

ROWS = removal_rows(KINDS, min_size=0, max_size=12)


def test_files_go_bottom_up_so_that_a_half_done_deletion_can_be_found_again() -> None:
    shuffled = [a_removal(f"/t/{kind}", kind=kind) for kind in reversed(KINDS)]
    assert removals_of(*shuffled).rows["kind"].to_pylist() == list(KINDS)
    order = list(KINDS)
    assert order.index("data_file") < order.index("manifest_file") < order.index("manifest_list")
    assert order.index("statistics_file") < order.index("metadata_file")


def test_within_a_step_and_kind_files_go_in_the_order_of_their_paths() -> None:
    found = removals_of(
        a_removal("/t/b"), a_removal("/t/a"), a_removal("/t/0", step="sweep"), a_removal("/t/c")
    )
    assert found.rows["path"].to_pylist() == ["/t/a", "/t/b", "/t/c", "/t/0"]
    assert found.of_step("expire") == (0, 3)
    assert found.of_step("sweep") == (3, 4)
    assert found.of_step("other") == (0, 0)


def test_totals_count_known_sizes_and_every_file() -> None:
    found = removals_of(
        a_removal("/t/a"),
        a_removal("/t/b", size_bytes=None),
        a_removal("/t/c", kind="manifest_list", size_bytes=5),
    )
    assert (found.count, found.size_bytes) == (3, 15)
    assert found.by_kind == {
        "data_file": {"count": 2, "bytes": 10},
        "manifest_list": {"count": 1, "bytes": 5},
    }
    assert list(found.by_kind) == ["data_file", "manifest_list"]


def test_no_removal_has_no_bytes_and_the_digest_zero() -> None:
    nothing = Removals.none()
    assert (nothing.count, nothing.size_bytes, nothing.by_kind) == (0, 0, {})
    assert nothing.digest == "0" * 64


def test_the_digest_of_one_row_is_the_sha_256_of_its_fields_divided_by_nul() -> None:
    text = "expire\x00/t/é\x00/t/é\x00data_file\x0010\x00last reached by expired snapshot 1"
    assert removals_of(a_removal("/t/é")).digest == hashlib.sha256(text.encode()).hexdigest()


@given(ROWS, st.randoms())
def test_the_digest_depends_on_the_rows_and_not_on_their_order_or_chunks(
    rows: list[dict[str, object]], random: object
) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    whole = removals_of(*rows)
    pieces = [pa.Table.from_pylist([row], schema=SCHEMA) for row in shuffled]
    split = Removals.in_memory(pa.concat_tables(pieces) if pieces else SCHEMA.empty_table())
    assert split.digest == whole.digest
    if rows:
        changed = [{**rows[0], "path": f"{rows[0]['path']}'"}, *rows[1:]]
        assert Removals.in_memory(pa.Table.from_pylist(changed, schema=SCHEMA)).digest != whole.digest


@given(ROWS)
def test_removals_come_back_from_parquet_and_are_written_with_the_same_bytes(
    rows: list[dict[str, object]],
) -> None:
    found = removals_of(*rows)
    data = to_parquet(found.rows)
    back = Removals.in_memory(from_parquet(data, "/p"))
    assert back.rows.schema.equals(found.rows.schema)
    assert back.rows.to_pylist() == found.rows.to_pylist()
    assert to_parquet(back.rows) == data
    assert pq.read_table(pa.BufferReader(data)).to_pylist() == found.rows.to_pylist()


def test_removals_in_plain_columns_and_one_row_group_are_read() -> None:
    plain = pa.schema(
        [
            pa.field("step", pa.string(), nullable=False),
            pa.field("path", pa.large_string(), nullable=False),
            pa.field("as_written", pa.large_string(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("size_bytes", pa.int64()),
            pa.field("reason", pa.large_string(), nullable=False),
        ]
    )
    rows = [a_removal("/t/a"), a_removal("/t/b", size_bytes=None, as_written="file:/t/b"), a_removal("/t/c")]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=plain), sink, compression="zstd", row_group_size=1 << 20)
    found = Removals.in_memory(from_parquet(sink.getvalue().to_pybytes(), "/p"))
    assert found.rows.to_pylist() == rows
    assert found.digest == removals_of(*rows).digest
    assert pq.read_schema(pa.BufferReader(to_parquet(found.rows))).equals(plain)


def test_a_row_takes_the_memory_of_its_path_once_and_a_few_numbers() -> None:
    count, path = 10_000, "/t/data/" + "0" * 100
    rows = removals_of(*(a_removal(f"{path}{number:08}") for number in range(count)))
    again = Removals.in_memory(from_parquet(to_parquet(rows.rows), "/p"))
    for held in (rows, again):
        assert held.rows.get_total_buffer_size() / count < len(path) + 8 + 40


@pytest.mark.parametrize("cut", [0, 4, 20, -1])
def test_a_parquet_file_that_is_cut_short_is_corrupt(cut: int) -> None:
    data = to_parquet(removals_of(a_removal("/t/a")).rows)
    with pytest.raises(CorruptFile, match="/plans/removals"):
        from_parquet(data[:cut], "/plans/removals")


def test_a_parquet_file_of_something_else_is_corrupt() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}), sink)
    with pytest.raises(CorruptFile):
        from_parquet(sink.getvalue().to_pybytes(), "/p")


def test_paths_outside_are_those_that_were_not_shown() -> None:
    shown = removals_of(a_removal("/t/a"), a_removal("/t/b"))
    now = removals_of(a_removal("/t/b"), a_removal("/t/c"))
    assert list(now.paths_outside(shown)) == ["/t/c"]
    assert list(shown.paths_outside(shown)) == []
    assert list(removals_of(a_removal("/t/a")).paths_outside(Removals.none())) == ["/t/a"]


def test_a_kind_without_a_place_in_the_order_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        removals_of(a_removal("/t/a", kind="mystery"))
