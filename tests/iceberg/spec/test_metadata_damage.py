"""Damaged and hostile metadata files: refused cleanly and in bounds, or read as something that can be written again."""

from __future__ import annotations

import copy
import gzip
import json
import random
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_cli.encoding.strict_json import dumps, loads
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.commit.update import RemoveSnapshots, with_updates
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from tests.metadata_documents import PATH, a_document, a_snapshot, without
from tests.paths import ROOT

V1 = without(
    a_document(1), "schemas", "partition-specs", "sort-orders", "refs", "snapshot-log", "metadata-log"
)
SMALLEST = {"v1": V1, "v2": a_document(2, 1), "v3": a_document(3, 1, next_row_id=5)}
FORMS = {
    "plain": lambda data: data,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
CASES = [(version, form) for version in SMALLEST for form in FORMS]


def stored(version: str, form: str) -> bytes:
    result: bytes = FORMS[form](json.dumps(SMALLEST[version], separators=(",", ":")).encode())
    return result


def read(data: bytes) -> TableMetadata | None:
    """What is read, written and read again, or None where it is refused; every other error goes through."""
    try:
        metadata = TableMetadata.from_json(decode_metadata_file(data, PATH), path=PATH)
    except (CorruptFile, Refused):
        return None
    again = TableMetadata.from_json(loads(dumps(metadata.to_json()), PATH), path=PATH)
    # v1 may gain the deprecated `schema` and `partition-spec`, which it requires.
    assert replace(again, extra=metadata.extra) == metadata
    return metadata


@pytest.mark.parametrize(("version", "form"), CASES)
def test_every_prefix_is_refused(version: str, form: str) -> None:
    data = stored(version, form)
    whole = read(data)
    assert whole is not None
    for length in range(len(data)):
        # Only the checksum of a zstd frame may be missing without a loss.
        assert read(data[:length]) in (None, whole), length
        if form != "zstd":
            assert read(data[:length]) is None, length


@pytest.mark.pairs
@pytest.mark.parametrize(("version", "form"), CASES)
def test_flipped_bits_give_a_clean_error_or_metadata(version: str, form: str) -> None:
    data = stored(version, form)
    rng = random.Random(f"{version} {form}")
    refused = 0
    for _ in range(2_000):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        refused += read(bytes(damaged)) is None
    assert refused > 500


STRANGE = [
    *(None, True, False, 0, 1, -1, 2, 3, 2**63 - 1, -(2**63), 1.5, "", "main", "struct", "1"),
    *([], [[]], [None], [1, 1], {}, {"type": "struct"}, {"type": "list"}, {"main": {}}, {"x": None}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a document."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


@pytest.mark.parametrize("version", SMALLEST)
def test_any_value_in_any_place_gives_a_clean_error_or_metadata(version: str) -> None:
    document = SMALLEST[version]
    accepted = 0
    for place in places(document):
        for strange in STRANGE:
            changed = copy.deepcopy(document)
            parent = changed
            for key in place[:-1]:
                parent = parent[key]
            parent[place[-1]] = strange
            accepted += read(json.dumps(changed).encode()) is not None
    assert accepted > 0


HOSTILE = {
    "10,000 levels of arrays": b'{"format-version":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "10,000 levels of objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "10,000 levels behind a string that hides quotes": b'{"a":"\\\\\\"' + b'","b":[' * 10_000,
    "duplicate keys": b'{"format-version":2,"format-version":3}',
    "NaN": b'{"format-version":NaN}',
    "5,000 digits": b'{"format-version":' + b"1" * 5_000 + b"}",
    "a million digits": b'{"format-version":' + b"1" * 1_000_000 + b"}",
    "a long exponent": b'{"format-version":1e' + b"9" * 100_000 + b"}",
    "a schema as deep as may be": json.dumps(
        SMALLEST["v2"]
        | {
            "schemas": [
                json.loads(
                    '{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"n","required":false,"type":'
                    + '{"type":"list","element-id":2,"element-required":true,"element":' * 70
                    + '"int"'
                    + "}" * 70
                    + "}]}"
                )
            ]
        }
    ).encode(),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused(data: bytes) -> None:
    assert read(data) is None


def test_a_schema_with_fifty_nested_lists_is_read_and_written() -> None:
    type_: Any = "int"
    for i in range(50):
        type_ = {"type": "list", "element-id": 100 + i, "element-required": True, "element": type_}
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "n", "required": False, "type": type_}],
    }
    metadata = read(json.dumps(SMALLEST["v2"] | {"schemas": [schema]}).encode())
    assert metadata is not None
    assert len(metadata.current_schema().types_by_id()) == 51


def test_parent_cycles_hang_nothing() -> None:
    snapshots = [a_snapshot(i, parent_snapshot_id=1 + i % 3) for i in (1, 2, 3)]
    metadata = read(json.dumps(a_document(2, 1, 2, 3, snapshots=snapshots)).encode())
    assert metadata is not None
    new = with_updates(metadata, [RemoveSnapshots(snapshot_ids=(1,))], base_location=PATH, timestamp_ms=9)
    assert [snapshot.snapshot_id for snapshot in new.snapshots] == [2, 3]


def repeated(start: bytes, piece: bytes, end: bytes, size: int) -> bytes:
    return start + piece * (size // len(piece)) + end


def gzip_of_zeros(size: int) -> bytes:
    compressor = zlib.compressobj(9, wbits=31)
    zeros = bytes(2**20)
    return b"".join(compressor.compress(zeros) for _ in range(size >> 20)) + compressor.flush()


BOMBS = {
    "a gzip bomb of 1 GiB": lambda: gzip_of_zeros(2**30),
    "a gzip bomb of 200 MiB": lambda: gzip_of_zeros(200 * 2**20),
    "a zstd bomb of 300 MiB": lambda: pa.compress(bytes(300 * 2**20), codec="zstd", asbytes=True),
    "100 MiB of empty arrays": lambda: repeated(b'{"a":[[]', b",[]", b"]}", 100 * 2**20),
    "100 MiB of zeros": lambda: repeated(b'{"a":[0', b",0", b"]}", 100 * 2**20),
    "100 MiB of opening brackets": lambda: repeated(b'{"a":', b"[", b"", 100 * 2**20),
    "100 MiB of backslashes": lambda: repeated(b'{"a":"', b"\\", b"", 100 * 2**20),
    "100 MiB of quotes": lambda: repeated(b'{"a":', b'"', b"", 100 * 2**20),
    "257 MiB of spaces": lambda: repeated(b"{", b" ", b"}", 257 * 2**20),
}

MEASURED = """
import sys, time
from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
import pyarrow
with open(sys.argv[1], "rb") as file:
    data = file.read()
started = time.perf_counter()
try:
    TableMetadata.from_json(decode_metadata_file(data, "m"), path="m")
except (CorruptFile, Refused):
    seconds = time.perf_counter() - started
    with open("/proc/self/status") as status:
        peak_kb = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    print(seconds, int(peak_kb) / 1024)
"""


@pytest.mark.few(3)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_within_512_mb_and_a_few_seconds(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(make())
    root = ROOT
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    seconds, megabytes = map(float, done.stdout.split())
    assert megabytes < 512
    assert seconds < 10, "0.7 s for the gzip bomb and 3 s for the slowest, on an idle machine"
