"""Inventories: what is read of each form, held against the objects that were put into it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from iceberg_cli.errors import UsageError
from iceberg_cli.table.inventories import open_inventory
from iceberg_cli.testing.memory_storage import MemoryStorage

BUCKET, LISTS = "lake", "lists"
MADE_MS = 1_790_000_000_000
WHEN, WHEN_MS = "2026-09-01T10:20:30.456Z", 1_788_258_030_456
PATH = f"s3://{LISTS}/inv/2026-09-21T00-00Z/manifest.json"
CSV_SCHEMA = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag"
# Each version of an object as S3 has it: key, version, whether it is the newest, whether a delete marker, and size.
OBJECTS: Sequence[tuple[str, str, bool, bool, int | None]] = (
    ("t/data/a.parquet", "v1", True, False, 10),
    ("t/data/k=x y/ü+%25.parquet", "v1", True, False, 20),
    ("t/data/old.parquet", "v1", False, False, 30),
    ("t/data/old.parquet", "v2", True, False, 31),
    ("t/data/gone.parquet", "v1", False, False, 40),
    ("t/data/gone.parquet", "v2", True, True, None),
    ("t/data/", "v1", True, False, 0),
    ("t/metadata/v1.metadata.json", "v1", True, False, 50),
)
THERE = {
    f"s3://{BUCKET}/t/data/a.parquet": 10,
    f"s3://{BUCKET}/t/data/k=x y/ü+%25.parquet": 20,
    f"s3://{BUCKET}/t/data/old.parquet": 31,
    f"s3://{BUCKET}/t/metadata/v1.metadata.json": 50,
}
# As S3 encodes keys in CSV: a space is a plus sign.
ENCODED = {
    "t/data/k=x y/ü+%25.parquet": "t/data/k%3Dx+y/%C3%BC%2B%2525.parquet",
}


def csv_part(objects: Sequence[tuple[Any, ...]] = OBJECTS) -> bytes:
    lines = []
    for key, version, newest, marker, size in objects:
        cells = [BUCKET, ENCODED.get(key, key), version, str(newest).lower(), str(marker).lower()]
        cells += ["" if size is None else str(size), WHEN, "etag"]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return gzip.compress(("\n".join(lines) + "\n").encode())


def columns() -> pa.Table:
    keys, versions, newest, markers, sizes = zip(*OBJECTS, strict=True)
    when = pa.array([WHEN_MS] * len(OBJECTS), pa.timestamp("ms", "UTC"))
    return pa.table(
        {
            "bucket": [BUCKET] * len(OBJECTS), "key": list(keys), "version_id": list(versions),
            "is_latest": list(newest), "is_delete_marker": list(markers), "size": pa.array(sizes, pa.int64()),
            "last_modified_date": when,
        }
    )  # fmt: skip


def parquet_part() -> bytes:
    sink = io.BytesIO()
    pq.write_table(columns(), sink, row_group_size=3)
    return sink.getvalue()


def orc_part() -> bytes:
    sink = io.BytesIO()
    orc.write_table(columns(), sink)
    return sink.getvalue()


PARTS = {"CSV": csv_part, "Parquet": parquet_part, "ORC": orc_part}


def stored(form: str, parts: Sequence[bytes], **changes: Any) -> MemoryStorage:
    """A manifest of parts, beside these."""
    storage = MemoryStorage()
    files = []
    for number, data in enumerate(parts):
        key = f"inv/data/{number}"
        storage.put_if_absent(f"s3://{LISTS}/{key}", data)
        files.append({"key": key, "size": len(data), "MD5checksum": hashlib.md5(data).hexdigest()})
    manifest: dict[str, Any] = {
        "sourceBucket": BUCKET, "destinationBucket": f"arn:aws:s3:::{LISTS}", "version": "2016-11-30",
        "creationTimestamp": str(MADE_MS), "fileFormat": form, "fileSchema": CSV_SCHEMA, "files": files,
    }  # fmt: skip
    storage.put_if_absent(PATH, json.dumps({**manifest, **changes}, indent=2).encode())
    return storage


def listed(storage: MemoryStorage, path: str = PATH) -> Mapping[str, tuple[int, int]]:
    found = pa.concat_tables([*open_inventory(storage, path).files])
    rows = found.to_pylist()
    assert len({row["path"] for row in rows}) == len(rows)
    return {row["path"]: (row["size_bytes"], row["modified_ms"]) for row in rows}


@pytest.mark.parametrize("form", PARTS)
def test_an_inventory_of_s3_has_the_newest_versions_that_are_no_delete_markers(form: str) -> None:
    storage = stored(form, [PARTS[form]()])
    assert listed(storage) == {path: (size, WHEN_MS) for path, size in THERE.items()}
    assert open_inventory(storage, PATH).made_ms == MADE_MS


def test_all_parts_are_read() -> None:
    storage = stored("CSV", [csv_part([each]) for each in OBJECTS])
    assert {path: size for path, (size, _) in listed(storage).items()} == THERE


@pytest.mark.parametrize("form", PARTS)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:-1], "bytes, and the manifest says"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "has MD5"),
        (lambda data: data[:0], "has 0 bytes"),
    ],
)
def test_a_part_that_is_not_what_the_manifest_says_is_refused(form: str, damage: Any, words: str) -> None:
    data = PARTS[form]()
    storage = stored(form, [data])
    storage.delete([f"s3://{LISTS}/inv/data/0"])
    storage.put_if_absent(f"s3://{LISTS}/inv/data/0", damage(data))
    with pytest.raises(UsageError, match=words):
        listed(storage)


def test_a_part_that_is_gone_is_refused() -> None:
    storage = stored("CSV", [csv_part()])
    storage.delete([f"s3://{LISTS}/inv/data/0"])
    with pytest.raises(UsageError, match=r"inv/data/0 is not there"):
        listed(storage)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fileFormat": "JSON"}, "no manifest of an S3 Inventory"),
        ({"creationTimestamp": "yesterday"}, "no manifest of an S3 Inventory"),
        ({"files": [{"key": "inv/data/0"}]}, "no manifest of an S3 Inventory"),
        ({"sourceBucket": None}, "no manifest of an S3 Inventory"),
        ({"fileSchema": "Bucket, Key, Size, ETag, IsLatest, A, B, C"}, "it has no lastmodifieddate"),
    ],
)
def test_a_manifest_of_another_form_is_refused(changes: Mapping[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        listed(stored("CSV", [csv_part()], **changes))


def test_lines_and_parquet_have_files_without_folders_and_times_of_either_kind() -> None:
    storage = MemoryStorage()
    rows = [
        {"path": "s3://lake/t/data/a", "length": 1, "isDir": False, "modificationTime": WHEN_MS},
        {"path": "s3://lake/t/data", "length": 0, "isDir": True, "modificationTime": WHEN_MS},
        {"path": "s3://lake/t/data/b", "length": 2, "isDir": False, "modificationTime": WHEN_MS + 1},
    ]
    storage.put_if_absent("s3://lake/i.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    sink = io.BytesIO()
    times = pa.array([row["modificationTime"] for row in rows], pa.timestamp("ms"))
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.set_column(3, "modificationTime", times), sink, row_group_size=1)
    storage.put_if_absent("s3://lake/i.parquet", sink.getvalue())
    expected = {"s3://lake/t/data/a": (1, WHEN_MS), "s3://lake/t/data/b": (2, WHEN_MS + 1)}
    for path in ("s3://lake/i.jsonl", "s3://lake/i.parquet"):
        assert listed(storage, path) == expected
        assert open_inventory(storage, path).made_ms is None


def test_lines_are_whole_wherever_they_are_read_in_parts() -> None:
    storage = MemoryStorage()
    sizes = {f"s3://lake/t/{'x' * (n % 97)}{n}": n for n in range(40_000)}
    lines = [
        json.dumps({"path": path, "length": n, "isDir": False, "modificationTime": 1})
        for path, n in sizes.items()
    ]
    storage.put_if_absent("s3://lake/i.jsonl", "\n".join(lines).encode())
    assert storage.stat("s3://lake/i.jsonl").size_bytes > 4 << 20  # which is read at once
    assert listed(storage, "s3://lake/i.jsonl") == {path: (n, 1) for path, n in sizes.items()}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"path": "a", "length": 1, "isDir": false}\n', "a field of it is null"),
        (b"PAR1 and no more", "Cannot use the inventory"),
        (b"not json\n", "Cannot use the inventory"),
    ],
)
def test_what_is_no_inventory_is_refused(data: bytes, words: str) -> None:
    storage = MemoryStorage()
    storage.put_if_absent("s3://lake/i", data)
    with pytest.raises(UsageError, match=words):
        listed(storage, "s3://lake/i")
    with pytest.raises(UsageError, match="no file is there"):
        listed(storage, "s3://lake/other")
