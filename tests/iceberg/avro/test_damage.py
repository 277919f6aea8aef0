"""Damaged manifests and manifest lists: refused with `CorruptFile`, or read with the right number of rows.

A list carries neither its length nor its number of rows, so cut exactly between two blocks it is a legal, shorter
list: no rule on these bytes can tell. Those prefixes are counted and printed; the snapshot's totals catch them.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.columns import Executor
from iceberg_cli.iceberg.avro.container import read_container
from iceberg_cli.iceberg.spec.manifests.manifest import (
    ENTRY_COLUMNS,
    ManifestSource,
    read_entries,
    read_manifest_lists,
)
from iceberg_cli.iceberg.spec.manifests.writer import write_manifest, write_manifest_list
from tests.budget import few_or_many
from tests.builders import SCHEMA

CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
KINDS = ("list", "manifest")
ROWS = 3
SYNC = random.Random(1).randbytes(16)
MOST_SECONDS = 2.0
SPEC = {"spec-id": 0, "fields": [{"name": "n", "transform": "identity", "source-id": 1, "field-id": 1000}]}
PROJECTION = ("status", "snapshot_id", "file_path_hash", "sequence_number")

Read = Callable[[bytes], list[pa.Table]]


def an_entry(n: int) -> dict[str, Any]:
    return {
        "status": 1,
        "snapshot_id": None if n % 2 else 1 << 60,
        "file_path": f"s3://b/t/{n}.parquet",
        "file_format": "PARQUET",
        "partition": {"n": n},
        "record_count": n,
        "file_size_in_bytes": 1000 + n,
        "column_sizes": {1: 40, 2: 1 << 20},
        "nan_value_counts": {},
        "lower_bounds": {1: b"\x01" * 8, 2: b"\xc3\xa9"},
        "split_offsets": [4],
        "first_row_id": None,
    }


def a_row(n: int) -> dict[str, Any]:
    summary = {"contains_null": False, "contains_nan": None, "lower_bound": b"a", "upper_bound": None}
    counts = {
        f"{name}_{of}_count": n for name in ("added", "existing", "deleted") for of in ("files", "rows")
    }
    return {
        "manifest_path": f"s3://b/t/metadata/{n}-m0.avro",
        "manifest_length": 7000,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": 1,
        "min_sequence_number": 1,
        "added_snapshot_id": 1 << 60,
        "partitions": [summary] if n % 2 else None,
        **counts,
    }


def written(kind: str, codec: str, *, rows: int = ROWS, block_bytes: int = 1) -> bytes:
    if kind == "list":
        return write_manifest_list(
            [a_row(n) for n in range(rows)], format_version=3, snapshot_id=1, parent_snapshot_id=None,
            sequence_number=1, first_row_id=0, codec=codec, sync=SYNC, block_bytes=block_bytes,
        )  # fmt: skip
    return write_manifest(
        [an_entry(n) for n in range(rows)], schema=SCHEMA, partition_spec=SPEC, format_version=3, content=0,
        codec=codec, sync=SYNC, block_bytes=block_bytes,
    )  # fmt: skip


def reader(kind: str, executor: Executor, *, listed: ManifestSource | None = None) -> Read:
    """Reads a file by every way there is; `listed` is what the manifest list says of a manifest."""

    def read_list(data: bytes) -> list[pa.Table]:
        return [read_manifest_lists([("f", data)], format_version=3, executor=executor)]

    def read_manifest(data: bytes) -> list[pa.Table]:
        source = ManifestSource(path="f", data=data, sequence_number=1, added_snapshot_id=1, first_row_id=0)
        source = source if listed is None else dataclasses.replace(listed, data=data)
        return [
            read_entries([source], columns=columns, executor=executor)[0].table
            for columns in (ENTRY_COLUMNS, PROJECTION)
        ]

    return read_list if kind == "list" else read_manifest


def outcome(read: Read, data: bytes) -> list[pa.Table] | None:
    """The tables, or None where the file is refused; any other exception, or a hang, fails the test."""
    started = time.process_time()
    try:
        tables = read(data)
    except CorruptFile as error:
        if error.path != "f" or not error.reason:
            pytest.fail(f"says neither where nor why: {error}")
        tables = None
    assert time.process_time() - started < MOST_SECONDS
    for table in tables or ():
        table.validate(full=True)
    return tables


def boundaries(data: bytes) -> list[int]:
    """Where a cut leaves a legal file: behind the header, and behind each block but the last."""
    blocks = read_container(data, "f").blocks
    return [block.offset for block in blocks]


@pytest.mark.pairs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codec", CODECS)
def test_every_prefix_is_refused_unless_it_is_a_legal_shorter_file(kind: str, codec: str) -> None:
    data = written(kind, codec)
    legal = boundaries(data)
    assert len(legal) == ROWS
    read = reader(kind, "narrow")
    survived = {cut: tables for cut in range(len(data)) if (tables := outcome(read, data[:cut])) is not None}
    assert sorted(survived) == legal
    assert [survived[cut][0].num_rows for cut in legal] == list(range(ROWS))
    print(f"{kind} {codec}: {len(survived)} of {len(data)} prefixes are legal shorter files")


@pytest.mark.parametrize("codec", CODECS)
def test_every_prefix_of_a_manifest_with_a_listed_length_or_count_is_refused(codec: str) -> None:
    data = written("manifest", codec)
    by_length = ManifestSource(path="f", data=data, length=len(data), sequence_number=1)
    by_count = ManifestSource(path="f", data=data, added_files_count=ROWS, sequence_number=1)
    assert all(
        outcome(reader("manifest", "narrow", listed=by_length), data[:cut]) is None
        for cut in range(len(data))
    )
    assert all(
        outcome(reader("manifest", "narrow", listed=by_count), data[:cut]) is None for cut in boundaries(data)
    )


@pytest.mark.pairs
@pytest.mark.parametrize("executor", ["narrow", "lockstep"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codec", CODECS)
def test_cuts_around_every_block_boundary_of_a_large_file_are_refused(
    kind: str, codec: str, executor: Executor
) -> None:
    data = written(kind, codec, rows=100, block_bytes=600)
    legal = set(boundaries(data))
    assert len(legal) > 5
    read = reader(kind, executor)
    rng = random.Random(7)
    near = {cut for at in (*legal, len(data)) for cut in range(at - 64, min(at + 64, len(data)))}
    for cut in (*legal, *rng.sample(sorted(near - legal), 150)):
        assert (outcome(read, data[:cut]) is not None) == (cut in legal), cut
    for extra in (b"\x00", b"\x00" * 15, SYNC[:8], data[-30:-1]):
        assert outcome(read, data + extra) is None


@pytest.mark.pairs
@few_or_many(60, all_of=20_000)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codec", CODECS)
def test_single_bit_flips_are_refused_or_leave_the_number_of_rows(kind: str, codec: str, budget: int) -> None:
    """Both executors come to the same result, whatever the bytes are."""
    data = written(kind, codec, rows=8, block_bytes=600)
    first = boundaries(data)[0]
    rng = random.Random(f"{kind} {codec}")
    refused = 0
    for n in range(budget):
        # Every second one behind the header, which is most of the file but little of the format.
        at = rng.randrange(first if n % 2 else 0, len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        narrow, lockstep = (
            outcome(reader(kind, executor), bytes(changed)) for executor in ("narrow", "lockstep")
        )
        assert (narrow is None) == (lockstep is None), (at, changed[at])
        if narrow is None or lockstep is None:
            refused += 1
            continue
        assert all(one.equals(other) for one, other in zip(narrow, lockstep, strict=True)), at
        assert {table.num_rows for table in narrow} == {8}, at
    assert refused
    print(f"{kind} {codec}: {refused} of {budget} flips refused")


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_random_bytes_in_a_block_of_null_codec_are_refused_alike_by_both_executors(kind: str) -> None:
    data = written(kind, "null", rows=40, block_bytes=400)
    first = boundaries(data)[0]
    rng = random.Random(kind)
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(first, len(data))
            changed[at : at + 1] = rng.choice([b"\x00", b"\xff", b"\x80", b"\x7f", b"\x01", rng.randbytes(1)])
        narrow, lockstep = (
            outcome(reader(kind, executor), bytes(changed)) for executor in ("narrow", "lockstep")
        )
        assert (narrow is None) == (lockstep is None)
        if narrow is not None and lockstep is not None:
            assert all(one.equals(other) for one, other in zip(narrow, lockstep, strict=True))


@pytest.mark.parametrize("size", [1, 4, 100, 5_000])
def test_garbage_is_refused(size: int) -> None:
    rng = random.Random(size)
    for _ in range(200):
        junk = rng.randbytes(size)
        for data in (junk, b"Obj\x01" + junk, written("list", "null")[:-20] + junk):
            assert outcome(reader("list", "narrow"), data) is None
