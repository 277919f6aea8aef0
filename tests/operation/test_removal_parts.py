"""Removals that are too many for one part: what they say, and their files, are those of the same rows in memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_cli.encoding.external_sort import SortedRuns, SpillFile
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.reachability.unreachable import CONTENT_SCHEMA, content_removals, held_or_sorted
from iceberg_cli.operation import removal_files
from iceberg_cli.operation.removal_files import collect_removals, in_files, write_parts
from iceberg_cli.plan.events import Event
from iceberg_cli.plan.removal_rows import KINDS, SCHEMA
from iceberg_cli.plan.removals import Removals
from tests.plans import a_removal, removal_rows, removals_of

Row = dict[str, Any]
# Of one kind whose order is that of paths, and two others; steps in the order of their names.
ROWS = removal_rows(["data_file", "manifest_file", "manifest_list"], min_size=2, max_size=24)


@contextlib.contextmanager
def parts_of(rows: int) -> Iterator[None]:
    """Parts hold no more than so many rows, and more than these are many."""
    with patch.multiple(removal_files, PART_ROWS=rows, MEMORY_ROWS=rows):
        yield


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Delete order, by the words of `plan/removal_rows.py`."""
    return sorted(rows, key=lambda row: (row["step"], KINDS.index(row["kind"]), row["path"].encode()))


def split(rows: Sequence[Row], part_rows: int) -> Removals:
    with parts_of(part_rows):
        return in_files(removals_of(*rows))


def written(removals: Removals) -> tuple[str, dict[str, bytes]]:
    files: dict[str, bytes] = {}
    removals.write(files.__setitem__)
    return removals.file, files


def many(count: int = 10) -> list[Row]:
    return [a_removal(f"/t/data/{number:04}", size_bytes=number) for number in range(count)]


def test_progress_counts_the_parts_that_are_written() -> None:
    removals, events, files = split(many(), 3), list[Event](), dict[str, bytes]()
    write_parts(removals, files.__setitem__, events.append)
    assert (removals.file, files) == written(removals)
    assert [(event.done, event.total, event.unit) for event in events] == [
        (n, 4, "parts") for n in (1, 2, 3, 4)
    ]
    write_parts(split(many(), 10), files.__setitem__, events.append)
    assert len(events) == 4


MOST_BYTES = 2**63 - 1


def test_sizes_that_64_bits_cannot_add_up_are_written_and_read_back() -> None:
    found = split([a_removal(f"/t/data/{number}", size_bytes=1 << 62) for number in range(3)], 2)
    name, files = written(found)
    for each in (found, Removals.load(name, files.__getitem__, "/folder")):
        assert each.size_bytes == MOST_BYTES
        assert [kind["bytes"] for kind in each.by_kind.values()] == [MOST_BYTES]


@settings(max_examples=40)
@given(ROWS, st.integers(1, 9), st.data())
def test_parts_say_what_the_rows_say(rows: list[Row], part_rows: int, data: st.DataObject) -> None:
    expected = ordered(rows)
    found = split(rows, part_rows)
    assert len(found.parts) == -(-len(rows) // part_rows)
    assert found.rows.to_pylist() == expected
    assert found.count == len(rows)
    assert found.size_bytes == min(MOST_BYTES, sum(row["size_bytes"] or 0 for row in rows))
    assert found.by_kind == {
        kind: {"count": len(mine), "bytes": min(MOST_BYTES, sum(row["size_bytes"] or 0 for row in mine))}
        for kind in KINDS
        if (mine := [row for row in rows if row["kind"] == kind])
    }
    assert list(found.by_kind) == [kind for kind in KINDS if kind in found.by_kind]
    hashes = [
        hashlib.sha256(
            "\x00".join("" if row[name] is None else str(row[name]) for name in SCHEMA.names).encode()
        ).digest()
        for row in rows
    ]
    assert int(found.digest, 16) == sum(int.from_bytes(each) for each in hashes) % 2**256
    for step in ("expire", "sweep"):
        start, stop = found.of_step(step)
        assert expected[start:stop] == [row for row in expected if row["step"] == step]
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    assert found.read_rows(range(start, stop)).to_pylist() == expected[start:stop]
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True))
    assert found.read_rows(numbers).to_pylist() == [expected[number] for number in numbers]


@settings(max_examples=40)
@given(ROWS, ROWS, st.integers(1, 5), st.integers(1, 30))
def test_paths_outside_are_told_part_by_part(now: list[Row], shown: list[Row], few: int, others: int) -> None:
    known = {row["path"] for row in shown}
    expected = [row["path"] for row in ordered(now) if row["path"] not in known]
    assert list(split(now, few).paths_outside(split(shown, others))) == expected


@settings(max_examples=40)
@given(ROWS, st.integers(1, 9))
def test_files_hold_what_the_parts_hold(rows: list[Row], part_rows: int) -> None:
    made = split(rows, part_rows)
    name, files = written(made)
    assert list(files)[-1] == name
    assert len(files) == (len(made.parts) + 1 if len(made.parts) > 1 else 1)
    back = Removals.load(name, files.__getitem__, "/folder")
    assert back.rows.to_pylist() == ordered(rows)
    assert (back.count, back.digest, back.by_kind) == (made.count, made.digest, made.by_kind)
    assert back.of_step("sweep") == made.of_step("sweep")
    assert written(in_files(back)) == (name, files)


def test_rows_that_fit_into_one_part_are_one_parquet_file_as_ever() -> None:
    name, files = written(split(many(3), 3))
    (data,) = files.values()
    assert name == f"removals-{hashlib.sha256(data).hexdigest()[:32]}.parquet"


def damaged(files: dict[str, bytes], name: str, how: str) -> dict[str, bytes]:
    part = sorted(each for each in files if each.endswith(".parquet"))[1]
    match how:
        case "a part is gone":
            return {each: data for each, data in files.items() if each != part}
        case "a part is cut short":
            return {**files, part: files[part][:-1]}
        case "a part has a flipped bit":
            data = bytearray(files[part])
            data[len(data) // 2] ^= 1
            return {**files, part: bytes(data)}
        case "a part is another one":
            other = next(each for each in files if each.endswith(".parquet") and each != part)
            return {**files, part: files[other]}
        case "the index is cut short":
            return {**files, name: files[name][:-2]}
        case "the index lacks a part":
            index = json.loads(files[name])
            del index["parts"][0]
            return {**files, name: json.dumps(index).encode()}
    raise AssertionError(how)


@pytest.mark.parametrize(
    "how",
    [
        "a part is gone", "a part is cut short", "a part has a flipped bit", "a part is another one",
        "the index is cut short", "the index lacks a part",
    ],
)  # fmt: skip
def test_files_that_are_not_as_they_were_written_are_corrupt_by_name(how: str) -> None:
    name, files = written(split(many(), 3))
    left = damaged(files, name, how)

    def read(asked: str) -> bytes:
        if asked not in left:
            raise FileNotFoundError(asked)
        return left[asked]

    with pytest.raises(CorruptFile, match="/folder/removals-"):
        Removals.load(name, read, "/folder")


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../../etc/passwd"}, {"file": "other.parquet"}, {"file": 7}, {"count": "3"}, {"digest": "g"},
        {"paths": ["a"]}, {"by_step": {"expire": "3"}}, {"by_kind": {"data_file": [3]}}, {"by_kind": {"data_file": 3}},
    ],
)  # fmt: skip
def test_an_index_of_another_shape_is_corrupt(change: dict[str, object]) -> None:
    name, files = written(split(many(), 3))
    index = json.loads(files[name])
    index["parts"][1] |= change
    data = json.dumps(index).encode()
    forged = f"removals-{hashlib.sha256(data).hexdigest()[:32]}.json"
    with pytest.raises(CorruptFile, match=forged):
        Removals.load(forged, {**files, forged: data}.__getitem__, "/folder")


def test_tables_that_come_one_after_the_other_are_collected_part_by_part() -> None:
    rows = ordered([*many(), a_removal("/t/m", kind="manifest_file", size_bytes=0)])
    tables = [pa.Table.from_pylist(some, schema=SCHEMA) for some in (rows[:4][::-1], rows[4:9], [], rows[9:])]
    with parts_of(3):
        found = collect_removals(tables)
    assert [part.count for part in found.parts] == [3, 1, 3, 2, 2]
    assert all(part.file and part.rows is None for part in found.parts)
    assert found.rows.to_pylist() == rows
    with parts_of(3), pytest.raises(AssertionError):
        collect_removals(reversed(tables))


def test_few_rows_are_held_however_they_come() -> None:
    tables = [pa.Table.from_pylist(some, schema=SCHEMA) for some in (many(4)[2:], many(2))]
    found = collect_removals(tables)
    assert not any(part.file for part in found.parts)
    assert found.rows.to_pylist() == many(4)


# -- on disk -------------------------------------------------------------------------------------------------------


def test_what_is_spooled_is_read_back_from_a_file_that_has_no_name(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = SpillFile()
    pieces = [b"one", b"", b"x" * 100_000, b"last"]
    places = [spool.add(piece) for piece in pieces]
    assert [spool.read(place) for place in reversed(places)] == pieces[::-1]
    assert os.listdir(tmp_path) == []


def test_a_disk_that_takes_no_more_is_an_error_that_says_what_to_do() -> None:
    spool = SpillFile()
    spool.add(b"x" * 500)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(BackendUnavailable, match="no more than 500 bytes") as caught:
            spool.add(b"y" * 1_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "TMPDIR" in caught.value.next_step


def sorted_apart(batches: Sequence[Sequence[tuple[int, str]]], rows: int) -> list[list[tuple[int, str]]]:
    """What `SortedRuns` gives, table by table."""
    runs = SortedRuns(("a", "b"), rows=rows)
    schema = pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.large_string())])
    for batch in batches:
        runs.add(pa.table({"a": [a for a, _ in batch], "b": [b for _, b in batch]}, schema=schema))
    return [[(row["a"], row["b"]) for row in table.to_pylist()] for table in runs.merged()]


@settings(max_examples=40)
@given(
    st.dictionaries(st.tuples(st.integers(0, 2), st.text(max_size=3)), st.integers(0, 5), max_size=60),
    st.integers(1, 8),
)
def test_rows_are_put_in_order_and_come_out_within_bounds(
    keys: dict[tuple[int, str], int], rows: int
) -> None:
    batches = [[key for key, number in keys.items() if number == batch] for batch in range(6)]
    found = sorted_apart(batches, rows)
    assert [key for some in found for key in some] == sorted(keys)
    # Of each run one block, a row here, waits at most, and the last block that is read may go beyond.
    assert max(map(len, found), default=0) <= rows + len(keys) // (2 * rows) + 2


def test_blocks_of_many_rows_are_put_in_order_too() -> None:
    keys = [(number % 2, f"{number * 7919 % 10_007:05}") for number in range(10_007)]
    found = sorted_apart([keys[at : at + 1_000] for at in range(0, len(keys), 1_000)], 1_000)
    assert [key for some in found for key in some] == sorted(keys)
    assert max(map(len, found)) <= 1_000 + 7 * 7 + 7


@pytest.mark.parametrize("held_rows", [0, 3, 9, 10, 1_000])
def test_rows_of_batches_are_held_while_they_are_few_and_else_come_in_delete_order(held_rows: int) -> None:
    kinds = ["data_file", "position_delete_file", "equality_delete_file"]  # by `content`
    words = [f"last reached by expired snapshot {owner}" for owner in range(10)]
    rows = [
        {
            **row,
            "content": (number + 2) % 3,
            "kind": kinds[(number + 2) % 3],
            "owner": number,
            "reason": words[number],
        }
        for number, row in enumerate(many())
    ][::-1]
    batches = [pa.Table.from_pylist(rows[at : at + 3], schema=CONTENT_SCHEMA) for at in range(0, 10, 3)]
    held, content = held_or_sorted(iter(batches), held_rows=held_rows)
    reasons = pa.array(words, pa.large_string())
    found = [row for table in content for row in content_removals(table, reasons).to_pylist()]
    if held_rows >= 10:
        assert (held, found) == (batches, [])
    else:
        assert held == []
        names = [name for name in SCHEMA.names if name != "step"]
        expected = [{name: row[name] for name in names} for row in ordered(rows)]
        assert [{name: row[name] for name in names} for row in found] == expected
