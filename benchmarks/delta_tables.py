"""Delta tables of any size, valid and quick to make.

Each commit adds files and removes some of the commit before. Three checkpoints stand in the log, and all tombstones are
in them: the commits are closer together than tombstones live. All of it happened long enough ago for a vacuum to take
every removed file. Data files have one byte, and the times that the log says.
"""

from __future__ import annotations

import json
import os
import struct
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

STEP_MS = 480_000
AGE_MS = 9 * 86_400_000  # of the newest commit: vacuum takes what is older than 7 days
RECORDS = 10_000
PARTITIONS = 10
CHECKPOINTS = (0.3, 0.6, 0.9)  # of all commits
AFTER_CHECKPOINT = 9  # commits, of a table with deletion vectors: Delta writes a checkpoint after each ten
GROUP = 100  # commits whose files make a row group of a checkpoint
TABLE_ID = "b0a4ccf3-5a3e-4b5c-8d0e-3f2f5f8a5a01"
_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd, so that each number gives another name
_TAGS = pa.map_(pa.string(), pa.string())
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (
            ("id", "long"), ("price", "double"), ("name", "string"), ("at", "timestamp"), ("day", "string"),
        )
    ],
}  # fmt: skip
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()), ("cardinality", pa.int64()),
    ]
)  # fmt: skip
_ADD = pa.struct(
    [
        ("path", pa.string()), ("partitionValues", _TAGS), ("size", pa.int64()), ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()), ("stats", pa.string()), ("tags", _TAGS), ("deletionVector", _VECTOR),
    ]
)  # fmt: skip
_REMOVE = pa.struct(
    [
        ("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()), ("partitionValues", _TAGS), ("size", pa.int64()),
        ("deletionVector", _VECTOR),
    ]
)  # fmt: skip
_METADATA = pa.struct(
    [
        ("id", pa.string()), ("format", pa.struct([("provider", pa.string()), ("options", _TAGS)])),
        ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())), ("configuration", _TAGS),
        ("createdTime", pa.int64()),
    ]
)  # fmt: skip
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())), ("writerFeatures", pa.list_(pa.string())),
    ]
)  # fmt: skip

Json = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How many commits a table gets, and how many files each adds and removes."""

    commits: int
    added: int
    removed: int


SIZES = {"S": Size(100, 100, 35), "M": Size(1_000, 190, 66), "L": Size(5_000, 400, 140)}
VECTORS = {"S": (20, 20), "M": (500, 20), "L": (500, 20)}  # files of deletion vectors, vectors in each


def make_delta_table(location: str, size: Size) -> None:
    """A partitioned table with data files, at a folder that does not exist yet."""
    start_ms = _start_ms(size.commits)
    os.makedirs(f"{location}/_delta_log")
    for part in range(PARTITIONS):
        os.makedirs(f"{location}/{_folder(part)}")
    checkpoints = {int(size.commits * split) for split in CHECKPOINTS}
    for version in range(size.commits):
        at_ms = start_ms + version * STEP_MS
        files = _files(size, version)
        actions: list[Json] = [_commit_info(at_ms)]
        if not version:
            actions += [{"protocol": _protocol()}, {"metaData": _metadata(at_ms)}]
        actions += [{"add": _add(number, at_ms)} for number in files]
        if version:
            gone = _files(size, version - 1)[: size.removed]
            actions += [{"remove": _remove(number, at_ms)} for number in gone]
        _write_commit(location, version, at_ms, actions)
        _write_files([f"{location}/{_path(number)}" for number in files], at_ms)
        if version in checkpoints:
            state = _state(size, version, start_ms)
            _write_checkpoint(location, version, at_ms, _protocol(), _metadata(start_ms), state)


def make_vector_table(location: str, *, files: int = 500, vectors: int = 20, deleted: int = 1_000) -> None:
    """A table with files of deletion vectors; about three in ten vectors have been replaced by one of a later file.

    Args:
        location: a folder that does not exist yet; the data files are named and not made.
        files: how many, each of a commit of its own.
        vectors: in each.
        deleted: positions in each vector.
    """
    start_ms = _start_ms(files + 1)
    os.makedirs(f"{location}/_delta_log")
    rng = np.random.default_rng(3)
    data_files = int(1.3 * files * vectors)
    schema = _metadata(start_ms, partitioned=False, configuration={"delta.enableDeletionVectors": "true"})
    features = ["deletionVectors"]
    protocol = _protocol(3, 7) | {"readerFeatures": features, "writerFeatures": features}
    adds = [_add(number, start_ms, partitioned=False) for number in range(data_files)]
    begin = [_commit_info(start_ms), {"protocol": protocol}, {"metaData": schema}]
    _write_commit(location, 0, start_ms, [*begin, *({"add": add} for add in adds)])
    tombstones: list[Json] = []
    for version in range(1, files + 1):
        at_ms = start_ms + version * STEP_MS
        mine = rng.choice(data_files, vectors, replace=False).tolist()
        placed = _write_vectors(location, version, [_positions(rng, deleted) for _ in mine])
        actions = [_commit_info(at_ms)]
        for number, vector in zip(mine, placed, strict=True):
            removed = _remove(number, at_ms, partitioned=False)
            if "deletionVector" in adds[number]:
                removed["deletionVector"] = adds[number]["deletionVector"]
            adds[number] = {**adds[number], "deletionVector": vector}
            actions += [{"remove": removed}, {"add": adds[number]}]
            tombstones.append(_as_pairs(removed))
        _write_commit(location, version, at_ms, actions)
        if version == files - AFTER_CHECKPOINT:
            state = (("add", list(map(_as_pairs, adds))), ("remove", tombstones))
            _write_checkpoint(location, version, at_ms, protocol, schema, state)


def _positions(rng: np.random.Generator, deleted: int) -> BitMap64:
    return BitMap64(np.unique(rng.integers(0, RECORDS, deleted)).tolist())


def _write_vectors(location: str, version: int, bitmaps: Iterable[BitMap64]) -> list[Json]:
    """Write one file of deletion vectors; the descriptors of the vectors."""
    unique = uuid.UUID(int=version * _SPREAD % (1 << 128))
    name = f"deletion_vector_{unique}.bin"
    parts, at, placed = [b"\x01"], 1, []
    for bitmap in bitmaps:
        body = b"\xd1\xd39d" + bitmap.serialize()
        parts += [struct.pack(">I", len(body)), body, struct.pack(">I", zlib.crc32(body))]
        placed.append(
            {
                "storageType": "u", "pathOrInlineDv": _z85(unique.bytes), "offset": at, "sizeInBytes": len(body),
                "cardinality": len(bitmap),
            }
        )  # fmt: skip
        at += len(body) + 8
    Path(f"{location}/{name}").write_bytes(b"".join(parts))
    return placed


def _z85(data: bytes) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return "".join(
        digits[word // 85**power % 85]
        for (word,) in struct.iter_unpack(">I", data)
        for power in (4, 3, 2, 1, 0)
    )


# -- actions ---------------------------------------------------------------------------------------------------


def _start_ms(commits: int) -> int:
    now_s = time.time()  # noqa: TID251 - vacuum compares with the clock
    return int(now_s * 1_000) - AGE_MS - commits * STEP_MS


def _folder(part: int) -> str:
    return f"day=2026-01-{part + 1:02}"


def _path(number: int, *, partitioned: bool = True) -> str:
    name = f"part-{number % 200:05}-{uuid.UUID(int=number * _SPREAD % (1 << 128))}"
    folder = f"{_folder(number % PARTITIONS)}/" if partitioned else ""
    return f"{folder}{name}-c000.snappy.parquet"


def _stats(number: int) -> str:
    low, high = number * RECORDS, number * RECORDS + RECORDS - 1
    return (
        f'{{"numRecords":{RECORDS},"minValues":{{"id":{low},"price":{number % 97}.25,"name":"aardvark {low}",'
        f'"at":"2026-01-01T00:00:00.000Z"}},"maxValues":{{"id":{high},"price":{number % 97 + 900}.75,'
        f'"name":"zygote {high}","at":"2026-01-31T23:59:59.999Z"}},'
        '"nullCount":{"id":0,"price":0,"name":0,"at":0}}'
    )


def _values(number: int, *, partitioned: bool) -> Json:
    return {"day": _folder(number % PARTITIONS)[4:]} if partitioned else {}


def _add(number: int, at_ms: int, *, partitioned: bool = True) -> Json:
    return {
        "path": _path(number, partitioned=partitioned),
        "partitionValues": _values(number, partitioned=partitioned),
        "size": 1,
        "modificationTime": at_ms,
        "dataChange": True,
        "stats": _stats(number),
    }


def _remove(number: int, at_ms: int, *, partitioned: bool = True) -> Json:
    return {
        "path": _path(number, partitioned=partitioned),
        "deletionTimestamp": at_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": _values(number, partitioned=partitioned),
        "size": 1,
    }


def _commit_info(at_ms: int) -> Json:
    return {
        "commitInfo": {
            "timestamp": at_ms, "operation": "MERGE", "operationParameters": {}, "isolationLevel": "Serializable",
            "isBlindAppend": False, "operationMetrics": {}, "engineInfo": "a benchmark",
        }
    }  # fmt: skip


def _protocol(reader: int = 1, writer: int = 2) -> Json:
    return {"minReaderVersion": reader, "minWriterVersion": writer}


def _metadata(at_ms: int, *, partitioned: bool = True, configuration: dict[str, str] | None = None) -> Json:
    return {
        "id": TABLE_ID,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": ["day"] if partitioned else [],
        "configuration": configuration or {},
        "createdTime": at_ms,
    }


# -- files -----------------------------------------------------------------------------------------------------


def _write_commit(location: str, version: int, at_ms: int, actions: Iterable[Json]) -> None:
    path = f"{location}/_delta_log/{version:020}.json"
    Path(path).write_text("".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in actions))
    _set_time(path, at_ms)


def _write_files(paths: Sequence[str], at_ms: int) -> None:
    """One file under all names: links are made in a fraction of the time."""
    Path(paths[0]).write_bytes(b"x")
    _set_time(paths[0], at_ms)
    for path in paths[1:]:
        os.link(paths[0], path)


def _set_time(path: str, at_ms: int) -> None:
    os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def _write_checkpoint(
    location: str,
    version: int,
    at_ms: int,
    protocol: Json,
    metadata: Json,
    files: Iterable[tuple[str, list[Json]]],
) -> None:
    """A classic checkpoint, a row group for each of `files`, and the hint that names it."""
    schema = pa.schema([("protocol", _PROTOCOL), ("metaData", _METADATA), ("add", _ADD), ("remove", _REMOVE)])
    path = f"{location}/_delta_log/{version:020}.checkpoint.parquet"
    maps = {
        "configuration": list(metadata["configuration"].items()),
        "format": {"provider": "parquet", "options": []},
    }
    rows = 0
    with pq.ParquetWriter(path, schema, store_schema=False) as writer:
        for kind, values in (("protocol", [protocol]), ("metaData", [metadata | maps]), *files):
            found = pa.array(values, schema.field(kind).type)
            columns = [found if each.name == kind else pa.nulls(len(found), each.type) for each in schema]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            rows += len(found)
    _set_time(path, at_ms)
    hint = f"{location}/_delta_log/_last_checkpoint"
    Path(hint).unlink(missing_ok=True)
    Path(hint).write_text(json.dumps({"version": version, "size": rows}))
    _set_time(hint, at_ms)


def _state(size: Size, version: int, start_ms: int) -> Iterator[tuple[str, list[Json]]]:
    """The files that a version has, and those removed before it, some at a time."""
    for first in range(0, version + 1, GROUP):
        numbers = range(first, min(first + GROUP, version + 1))
        yield (
            "add",
            [
                _as_pairs(_add(file, start_ms + number * STEP_MS))
                for number in numbers
                for file in _files(size, number)[size.removed if number < version else 0 :]
            ],
        )
        yield (
            "remove",
            [
                _as_pairs(_remove(file, start_ms + (number + 1) * STEP_MS))
                for number in numbers
                if number < version
                for file in _files(size, number)[: size.removed]
            ],
        )


def _files(size: Size, version: int) -> range:
    """The files that a commit adds; the next one removes the first of them."""
    return range(version * size.added, (version + 1) * size.added)


def _as_pairs(action: Json) -> Json:
    return {**action, "partitionValues": list(action["partitionValues"].items()), "dataChange": False}
