"""Delta tables of any size, valid and quick to make.

Each commit adds files and removes some of the commit before. Three checkpoints stand in the log, and all tombstones are
in them: the commits are closer together than tombstones live. All of it happened long enough ago for a vacuum to take
every removed file. Data files have one byte, and the times that the log says.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.delta.spec.checkpoint_columns import ACTIONS
from iceberg_cli.delta.spec.columns import ADD, REMOVE
from iceberg_cli.delta.spec.paths import z85_encode
from iceberg_cli.encoding.deletion_vector import encode

STEP_MS = 480_000
AGE_MS = 9 * 86_400_000  # of the newest commit: vacuum takes what is older than 7 days
RECORDS = 10_000
PARTITIONS = 10
CHECKPOINTS = (0.3, 0.6, 0.9)  # of all commits
AFTER_CHECKPOINT = 9  # commits, of a table with deletion vectors: Delta writes a checkpoint after each ten
GROUP = 100  # commits whose files make a row group of a checkpoint
_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd, so that each number gives another name
_COLUMNS = {"id": "long", "price": "double", "name": "string", "at": "timestamp", "day": "string"}
_FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _COLUMNS.items()]
_ADD = "path partitionValues size modificationTime dataChange stats tags deletionVector"
_REMOVE = "path deletionTimestamp dataChange extendedFileMetadata partitionValues size deletionVector"
_CHECKPOINT = pa.schema(
    {
        "protocol": ACTIONS["protocol"],
        "metaData": ACTIONS["metaData"],
        "add": pa.struct([ADD.field(name) for name in _ADD.split()]),
        "remove": pa.struct([REMOVE.field(name) for name in _REMOVE.split()]),
    }
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How many commits a table gets, and how many files each adds and removes."""

    commits: int
    added: int
    removed: int

    def files(self, version: int) -> range:
        """The files that a commit adds; the next one removes the first of them."""
        return range(version * self.added, (version + 1) * self.added)


SIZES = {"S": Size(100, 100, 35), "M": Size(1_000, 190, 66), "L": Size(5_000, 400, 140)}
VECTORS = {"S": (20, 20), "M": (500, 20), "L": (500, 20)}  # files of deletion vectors, vectors in each


class Writer:
    """Writes the log of a table and its files, in a folder that does not exist yet."""

    def __init__(
        self, location: str, commits: int, *, partitioned: bool, features: Sequence[str] = ()
    ) -> None:
        self.location = location
        self.partitioned = partitioned
        now_s = time.time()  # noqa: TID251 - vacuum compares with the clock
        self.start_ms = int(now_s * 1_000) - AGE_MS - commits * STEP_MS
        self.protocol: Json = {"minReaderVersion": 1, "minWriterVersion": 2}
        if features:
            names = {"readerFeatures": list(features), "writerFeatures": list(features)}
            self.protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **names}
        self.metadata: Json = {
            "id": "b0a4ccf3-5a3e-4b5c-8d0e-3f2f5f8a5a01",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": _FIELDS}),
            "partitionColumns": ["day"] if partitioned else [],
            "configuration": {f"delta.enable{name[0].upper()}{name[1:]}": "true" for name in features},
            "createdTime": self.start_ms,
        }
        os.makedirs(f"{location}/_delta_log")

    def at_ms(self, version: int) -> int:
        return self.start_ms + version * STEP_MS

    def path_of(self, file: int) -> str:
        name = f"part-{file % 200:05}-{uuid.UUID(int=file * _SPREAD % (1 << 128))}-c000.snappy.parquet"
        return f"{_folder(file)}/{name}" if self.partitioned else name

    def add(self, file: int, version: int) -> Json:
        times = {"modificationTime": self.at_ms(version), "dataChange": True}
        return {**self._file(file), **times, "stats": _stats(file)}

    def remove(self, file: int, version: int) -> Json:
        times = {"deletionTimestamp": self.at_ms(version), "dataChange": True, "extendedFileMetadata": True}
        return {**self._file(file), **times}

    def commit(self, version: int, actions: Iterable[Json]) -> None:
        info = {
            "timestamp": self.at_ms(version), "operation": "MERGE", "operationParameters": {},
            "isolationLevel": "Serializable", "isBlindAppend": False, "operationMetrics": {},
            "engineInfo": "a benchmark",
        }  # fmt: skip
        first = () if version else ({"protocol": self.protocol}, {"metaData": self.metadata})
        lines = (json.dumps(each, separators=(",", ":")) for each in ({"commitInfo": info}, *first, *actions))
        self._put(f"_delta_log/{version:020}.json", version, "".join(f"{line}\n" for line in lines).encode())

    def data_files(self, version: int, files: Iterable[int]) -> None:
        """One file under all names: links are made in a fraction of the time."""
        first, *others = map(self.path_of, files)
        self._put(first, version, b"x")
        for path in others:
            os.link(f"{self.location}/{first}", f"{self.location}/{path}")

    def checkpoint(self, version: int, files: Iterable[tuple[str, list[Json]]]) -> None:
        """A classic checkpoint, a row group for each of `files`, and the hint that names it."""
        name = f"_delta_log/{version:020}.checkpoint.parquet"
        options = list(self.metadata["configuration"].items())
        pairs = {"configuration": options, "format": {"provider": "parquet", "options": []}}
        rows = 0
        with pq.ParquetWriter(f"{self.location}/{name}", _CHECKPOINT, store_schema=False) as writer:
            first = (("protocol", [self.protocol]), ("metaData", [self.metadata | pairs]))
            for kind, values in (*first, *files):
                found = pa.array(values, _CHECKPOINT.field(kind).type)
                nulls = {each.name: pa.nulls(len(found), each.type) for each in _CHECKPOINT}
                columns = list((nulls | {kind: found}).values())
                writer.write_batch(pa.record_batch(columns, schema=_CHECKPOINT))
                rows += len(found)
        self._set_time(name, version)
        hint = json.dumps({"version": version, "size": rows})
        self._put("_delta_log/_last_checkpoint", version, hint.encode())

    def vectors(self, version: int, deleted: Iterable[np.ndarray]) -> list[Json]:
        """Write one file of deletion vectors; the descriptors of the vectors."""
        unique = uuid.UUID(int=version * _SPREAD % (1 << 128))
        stored = {"storageType": "u", "pathOrInlineDv": z85_encode(unique.bytes)}
        data, placed = b"\x01", []
        for positions in deleted:
            vector = encode(positions)  # between its length and its checksum
            place = {"offset": len(data), "sizeInBytes": len(vector) - 8, "cardinality": len(positions)}
            placed.append(stored | place)
            data += vector
        Path(f"{self.location}/deletion_vector_{unique}.bin").write_bytes(data)
        return placed

    def _file(self, file: int) -> Json:
        values = {"day": _folder(file)[4:]} if self.partitioned else {}
        return {"path": self.path_of(file), "partitionValues": values, "size": 1}

    def _put(self, name: str, version: int, data: bytes) -> None:
        Path(f"{self.location}/{name}").write_bytes(data)
        self._set_time(name, version)

    def _set_time(self, name: str, version: int) -> None:
        os.utime(f"{self.location}/{name}", ns=(self.at_ms(version) * 1_000_000,) * 2)


def make_delta_table(location: str, size: Size) -> None:
    """A partitioned table with data files, at a folder that does not exist yet."""
    writer = Writer(location, size.commits, partitioned=True)
    for part in range(PARTITIONS):
        os.makedirs(f"{location}/{_folder(part)}")
    checkpoints = {int(size.commits * split) for split in CHECKPOINTS}
    for version in range(size.commits):
        files = size.files(version)
        gone = size.files(version - 1)[: size.removed] if version else ()
        adds = [{"add": writer.add(file, version)} for file in files]
        writer.commit(version, [*adds, *({"remove": writer.remove(file, version)} for file in gone)])
        writer.data_files(version, files)
        if version in checkpoints:
            writer.checkpoint(version, _state(writer, size, version))


def make_vector_table(location: str, *, files: int, vectors: int, deleted: int = 1_000) -> None:
    """A table with files of deletion vectors, a commit each; data files are named and not made.

    About three in ten vectors have been replaced by one of a later file.
    """
    writer = Writer(location, files + 1, partitioned=False, features=("deletionVectors",))
    rng = np.random.default_rng(3)
    adds = [writer.add(file, 0) for file in range(int(1.3 * files * vectors))]
    writer.commit(0, [{"add": add} for add in adds])
    tombstones: list[Json] = []
    for version in range(1, files + 1):
        mine = rng.choice(len(adds), vectors, replace=False).tolist()
        rows = [np.unique(rng.integers(0, RECORDS, deleted)).astype(np.uint64) for _ in mine]
        actions = []
        for file, vector in zip(mine, writer.vectors(version, rows), strict=True):
            former = {name: value for name, value in adds[file].items() if name == "deletionVector"}
            removed = writer.remove(file, version) | former
            adds[file] = {**adds[file], "deletionVector": vector}
            actions += [{"remove": removed}, {"add": adds[file]}]
            tombstones.append(_as_pairs(removed))
        writer.commit(version, actions)
        if version == files - AFTER_CHECKPOINT:
            writer.checkpoint(version, (("add", list(map(_as_pairs, adds))), ("remove", tombstones)))


def _state(writer: Writer, size: Size, version: int) -> Iterator[tuple[str, list[Json]]]:
    """The files that a version has, and those removed before it, some at a time."""
    for first in range(0, version + 1, GROUP):
        adds: list[Json] = []
        removes: list[Json] = []
        for number in range(first, min(first + GROUP, version + 1)):
            files, gone = size.files(number), size.removed if number < version else 0
            adds += [_as_pairs(writer.add(file, number)) for file in files[gone:]]
            removes += [_as_pairs(writer.remove(file, number + 1)) for file in files[:gone]]
        yield from (("add", adds), ("remove", removes))


def _folder(file: int) -> str:
    return f"day=2026-01-{file % PARTITIONS + 1:02}"


def _stats(file: int) -> str:
    low, high = file * RECORDS, file * RECORDS + RECORDS - 1
    return (
        f'{{"numRecords":{RECORDS},"minValues":{{"id":{low},"price":{file % 97}.25,"name":"aardvark {low}",'
        f'"at":"2026-01-01T00:00:00.000Z"}},"maxValues":{{"id":{high},"price":{file % 97 + 900}.75,'
        f'"name":"zygote {high}","at":"2026-01-31T23:59:59.999Z"}},'
        '"nullCount":{"id":0,"price":0,"name":0,"at":0}}'
    )


def _as_pairs(action: Json) -> Json:
    return {**action, "partitionValues": list(action["partitionValues"].items()), "dataChange": False}
