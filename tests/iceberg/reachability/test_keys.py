"""The pure parts of "what does a snapshot reach?", with values computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.reachability import keys as keys_module
from iceberg_cli.iceberg.reachability.keys import (
    NO_KEYS,
    KnownKeys,
    among,
    check_counted,
    check_lists,
    first_listed,
    inline_rows,
    key_set,
    keys_of,
    live,
    live_count,
    live_files,
    live_rows,
    sources_of,
    without_counts,
)
from iceberg_cli.iceberg.reachability.question import SnapshotFiles
from iceberg_cli.iceberg.reachability.unreachable import content_removals, content_rows

LIST = "s3://b/t/metadata/snap-5.avro"


def keys(*values: int) -> Any:
    return np.array(values, np.uint64)


def a_snapshot(**values: Any) -> SnapshotFiles:
    return SnapshotFiles(**{"snapshot_id": 5, "manifest_list": LIST, **values})


def a_row(path: str = "m0", **values: Any) -> dict[str, Any]:
    """A row of a manifest list: one data file added by snapshot 5."""
    return {
        "list": 0,
        "manifest_path": path,
        "manifest_length": 100,
        "content": 0,
        "partition_spec_id": 3,
        "sequence_number": 7,
        "added_snapshot_id": 5,
        "first_row_id": 11,
        "added_files_count": 1,
        "existing_files_count": 0,
        "deleted_files_count": 2,
        "added_rows_count": 10,
        "existing_rows_count": 5,
        "key_metadata": None,
        **values,
    }


def a_table(*rows: dict[str, Any]) -> pa.Table:
    types = {
        "manifest_path": pa.string(),
        "key_metadata": pa.binary(),
        "content": pa.int32(),
        "added_files_count": pa.int32(),
        "existing_files_count": pa.int32(),
    }
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in a_row()])
    return pa.Table.from_pylist(list(rows), schema)


def delete_row(path: str = "d0", **values: Any) -> dict[str, Any]:
    return a_row(path, content=1, **values)


# -- keys ------------------------------------------------------------------------------------------------------


def test_spellings_of_one_file_have_one_key_and_other_files_others() -> None:
    column = pa.chunked_array([["s3a://b/x", "s3://b/y"], ["s3://b/x"]])
    first, second, third = keys_of(column)
    assert first == third != second
    assert list(keys_of(pa.array(["s3://b/y"]))) == [second]
    assert NO_KEYS.shape == keys_of(pa.array([], pa.string())).shape == (0,)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], []),
        ([keys()], []),
        ([keys(4)], [4]),
        ([keys(3, 1), keys(1, 2, 2), keys(2**64 - 1, 0)], [0, 1, 2, 3, 2**64 - 1]),
    ],
)
def test_a_set_of_keys_is_sorted_and_has_each_once(parts: Sequence[Any], expected: list[int]) -> None:
    assert key_set(parts).tolist() == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (keys(), [False, False, False, False]),
        (keys(5), [False, False, True, False]),
        (keys(2, 5), [False, True, True, False]),
    ],
)
def test_keys_among_others(known: Any, expected: list[bool]) -> None:
    assert among(keys(1, 2, 5, 9), known).tolist() == expected


# -- lists that were cut short ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("totals", "rows"),
    [
        ({"total_data_files": 2, "total_delete_files": 1}, [a_row(existing_files_count=1), delete_row()]),
        ({"total_data_files": 1, "total_delete_files": 0}, [a_row(), delete_row()]),  # a surplus
        ({"total_data_files": 0}, []),
        ({"total_delete_files": 0}, []),
        ({"total_data_files": 9}, [a_row(), a_row("m1", added_files_count=None)]),  # nothing to count by
        ({"total_data_files": 1, "added_data_files": 1}, [a_row(added_snapshot_id=4)]),
        ({"added_data_files": 1}, [a_row(added_snapshot_id=4), a_row("m1")]),
        ({"added_data_files": 0}, [a_row(added_snapshot_id=4)]),
        ({}, [a_row(added_snapshot_id=None)]),
    ],
)
def test_lists_that_may_be_whole(totals: dict[str, int], rows: list[dict[str, Any]]) -> None:
    check_lists([a_snapshot(**totals)], a_table(*rows))


@pytest.mark.parametrize(
    ("totals", "rows", "reason"),
    [
        ({"total_data_files": 2, "total_delete_files": 0}, [a_row(), delete_row()], "hold 1 data files"),
        ({"total_data_files": 1}, [delete_row()], "hold 0 data files"),
        ({"total_data_files": 1, "total_delete_files": 2}, [a_row(), delete_row()], "hold 1 delete files"),
        ({"total_delete_files": 1}, [a_row(added_files_count=None)], "hold 0 delete files"),
        ({}, [], "the list is empty"),
        ({"added_data_files": 1}, [a_row(added_snapshot_id=4)], "no manifest of its own"),
    ],
)
@pytest.mark.parametrize("manifest_list", [LIST, None])
def test_lists_that_were_cut_short(
    totals: dict[str, int], rows: list[dict[str, Any]], reason: str, manifest_list: str | None
) -> None:
    with pytest.raises(CorruptFile, match=reason) as caught:
        check_lists([a_snapshot(manifest_list=manifest_list, **totals)], a_table(*rows))
    assert caught.value.path == (manifest_list or "snapshot 5")


def test_a_row_that_names_no_snapshot_is_not_the_own_one_of_snapshot_1() -> None:
    with pytest.raises(CorruptFile, match="no manifest of its own"):
        check_lists([a_snapshot(snapshot_id=1, added_data_files=1)], a_table(a_row(added_snapshot_id=None)))


def test_each_list_is_counted_by_itself() -> None:
    snapshots = [
        a_snapshot(total_data_files=1),
        a_snapshot(snapshot_id=6, manifest_list="two", total_data_files=2),
    ]
    rows = [a_row(), a_row("m1", list=1), a_row("m2", list=1, added_snapshot_id=6)]
    check_lists(snapshots, a_table(*rows))
    with pytest.raises(CorruptFile) as caught:
        check_lists(snapshots, a_table(*rows[:2]))
    assert caught.value.path == "two"


def test_lists_without_counts_come_with_all_their_manifests() -> None:
    rows = [a_row("a"), a_row("b", list=1), a_row("c", list=1, existing_files_count=None), a_row("d", list=2)]
    assert without_counts(a_table(*rows)) == [(1, ("b", "c"))]


@pytest.mark.parametrize(
    ("totals", "files"),
    [
        ({}, 0),
        ({"total_data_files": 2}, 2),
        ({"total_delete_files": 2}, 2),
        ({"total_data_files": 2, "total_delete_files": 1}, 3),
    ],
)
@pytest.mark.parametrize("manifest_list", [LIST, None])
def test_manifests_read_whole_hold_as_many_files_as_the_summary_says(
    totals: dict[str, int], files: int, manifest_list: str | None
) -> None:
    snapshot = a_snapshot(manifest_list=manifest_list, **totals)
    check_counted(snapshot, files)
    check_counted(snapshot, files + 1)
    if files:
        with pytest.raises(
            CorruptFile, match=f"hold {files - 1} files, its snapshot's summary says {files}"
        ) as caught:
            check_counted(snapshot, files - 1)
        assert caught.value.path == (manifest_list or "snapshot 5")


def test_live_files_and_rows_are_those_added_and_existing() -> None:
    rows = a_table(
        a_row(added_files_count=2, existing_files_count=3),
        a_row("m1", added_files_count=4),
        delete_row(existing_files_count=None, added_rows_count=None),
    )
    assert live_files(rows).to_pylist() == [5, 4, None]
    assert live_rows(rows).to_pylist() == [15, 15, None]
    assert live_count(rows, 0) == 9
    assert live_count(rows, 1) is None
    assert live_count(rows.slice(0, 2), 1) == 0


# -- manifests -------------------------------------------------------------------------------------------------


def test_each_manifest_comes_once_with_its_first_row_unless_it_is_known() -> None:
    rows = [a_row(path, list=number) for number, path in enumerate(["c", "a", "c", "k", "b", "a"])]
    found = first_listed(a_table(*rows), pa.chunked_array([["k", "z"]]))
    assert found.select(["manifest_path", "list"]).to_pylist() == [
        {"manifest_path": "c", "list": 0},
        {"manifest_path": "a", "list": 1},
        {"manifest_path": "b", "list": 4},
    ]


def test_a_source_has_what_its_row_says() -> None:
    (source,) = sources_of(a_table(a_row()))
    assert (source.path, source.data, source.length, source.content) == ("m0", b"", 100, 0)
    assert (source.partition_spec_id, source.sequence_number, source.added_snapshot_id) == (3, 7, 5)
    assert (source.first_row_id, source.added_files_count) == (11, 1)
    assert (source.existing_files_count, source.deleted_files_count) == (0, 2)


def test_an_encrypted_manifest_is_refused() -> None:
    with pytest.raises(Refused, match="m1"):
        sources_of(a_table(a_row(), a_row("m1", key_metadata=b"key")))


# -- entries ---------------------------------------------------------------------------------------------------


def entries(*rows: tuple[int, int, int, str, int]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table(
        {
            "manifest": pa.chunked_array([pa.array(columns[0], pa.int32())]),
            "status": pa.chunked_array([pa.array(columns[1], pa.int32())]),
            "content": pa.chunked_array([pa.array(columns[2], pa.int32())]),
            "file_path": pa.chunked_array([pa.array(columns[3], pa.string())]),
            "file_size_in_bytes": pa.chunked_array([pa.array(columns[4], pa.int64())]),
        }
    )


def test_live_entries_are_existing_and_added() -> None:
    some = entries(*((0, status, 0, f"f{status}", 1) for status in (0, 1, 2)))
    assert live(some)["status"].to_pylist() == [0, 1]
    assert live(some.slice(0, 2)).equals(some.slice(0, 2))
    assert live(some.slice(2)).num_rows == 0


def test_live_files_that_nothing_kept_reaches_go_each_once() -> None:
    some = entries(
        (1, 1, 0, "s3://b/c", 30),
        (0, 0, 1, "s3://b/a", 10),
        (0, 1, 0, "s3://b/kept", 5),
        (0, 2, 0, "s3://b/deleted", 5),
        (0, 1, 0, "s3://b/c", 30),
        (0, 1, 2, "s3://b/b", 20),
    )
    kept = key_set([keys_of(pa.array(["s3://b/kept"]))])
    rows, found = content_rows(some, kept, np.array([0, 2], np.int32))
    assert content_removals(rows, pa.array(["of 7", "of 5", "of 8"], pa.large_string())).to_pylist() == [
        {
            "path": path,
            "as_written": path,
            "kind": kind,
            "size_bytes": size_bytes,
            "reason": reason,
        }
        for path, kind, size_bytes, reason in (
            ("s3://b/c", "data_file", 30, "of 8"),
            ("s3://b/a", "position_delete_file", 10, "of 7"),
            ("s3://b/b", "equality_delete_file", 20, "of 7"),
        )
    ]
    assert found.tolist() == keys_of(rows["path"]).tolist()


def test_a_spelling_of_the_manifests_own_comes_with_the_path() -> None:
    some = entries((0, 1, 0, "s3a://b/c", 1), (0, 1, 0, "s3://b/d", 1))
    rows, _ = content_rows(some, NO_KEYS, np.array([0], np.int32))
    table = content_removals(rows, pa.array(["of 7"], pa.large_string()))
    assert table["path"].to_pylist() == ["s3://b/c", "s3://b/d"]
    assert table["as_written"].to_pylist() == ["s3a://b/c", "s3://b/d"]


# -- keys of everything that stays


@pytest.mark.parametrize("together", [1, 700, 701, 1 << 16])
@pytest.mark.parametrize("asked", [0, 1, 3, 50, 4_000])
def test_known_keys_are_those_of_any_block_however_many_are_asked_for(
    asked: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "_AT_ONCE", together)
    rng = np.random.default_rng(asked)
    blocks = [rng.integers(0, 1 << 63, size, np.uint64) * np.uint64(2) for size in (0, 1, 700, 9_000)]
    known = KnownKeys(blocks)
    every = set(np.concatenate(blocks).tolist())
    chosen = np.concatenate([rng.choice(blocks[3], asked), rng.integers(0, 1 << 63, asked, np.uint64)])
    chosen = np.concatenate([chosen, blocks[1], blocks[2][:asked]])
    for _ in range(6):  # the way of answering changes with the number of questions
        assert known.contains(chosen).tolist() == [key in every for key in chosen.tolist()]
    assert known.whole().tolist() == sorted(every)
    assert known.size == 9_701


def test_few_keys_are_looked_for_without_sorting_those_that_are_known_and_many_looks_sort_them_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sorted_sizes: list[int] = []

    def key_set_of(blocks: Sequence[Any]) -> Any:
        sorted_sizes.append(sum(map(len, blocks)))
        return key_set(blocks)

    monkeypatch.setattr(keys_module, "key_set", key_set_of)
    rng = np.random.default_rng(7)
    known = KnownKeys([rng.integers(0, 1 << 63, 8_000, np.uint64) * np.uint64(2) for _ in range(2)])
    assert not known.contains(keys(1, 2)).any()
    assert max(sorted_sizes) < 100  # of 16,000, those whose first bits are those of a key that is asked for
    assert (known.few(1_999), known.few(2_000)) == (True, False)
    known.contains(rng.integers(0, 1 << 63, 2_000, np.uint64))
    assert sorted_sizes[-1] == 16_000
    before = len(sorted_sizes)
    known.contains(keys(1, 2))
    assert len(sorted_sizes) == before


def test_a_snapshot_s_own_manifests_are_rows_of_a_list_without_counts() -> None:
    rows = inline_rows(a_snapshot(manifest_list=None, manifests=("m0", "m1")))
    assert rows.column_names[0] == "list"
    assert rows.num_rows == 2
    for name in ("list", "content", "sequence_number", "min_sequence_number", "partition_spec_id"):
        assert rows[name].to_pylist() == [0, 0], name
    assert rows["manifest_path"].to_pylist() == ["m0", "m1"]
    assert rows["added_files_count"].to_pylist() == [None, None]
