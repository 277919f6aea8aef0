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
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.spec.checkpoints.columns import ACTIONS
from iceberg_cli.delta.spec.columns import ADD, REMOVE
from iceberg_cli.testing import delta_writer as delta
from iceberg_cli.testing.delta_writer import Action, Json

STEP_MS = 480_000
AGE_MS = 9 * 86_400_000  # of the newest commit: vacuum takes what is older than 7 days
RECORDS = 10_000
PARTITIONS = 10
CHECKPOINTS = (0.3, 0.6, 0.9)  # of all commits
AFTER_CHECKPOINT = 9  # commits, of a table with deletion vectors: Delta writes a checkpoint after each ten
GROUP = 100  # commits whose files make a row group of a checkpoint
_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd, so that each number gives another name
_COLUMNS = {"id": "long", "price": "double", "name": "string", "at": "timestamp", "day": "string"}
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
        self.root = Path(location)
        self.partitioned = partitioned
        now_s = time.time()  # noqa: TID251 - vacuum compares with the clock
        self.start_ms = int(now_s * 1_000) - AGE_MS - commits * STEP_MS
        metadata = delta.a_metadata(
            id="b0a4ccf3-5a3e-4b5c-8d0e-3f2f5f8a5a01",
            schemaString=json.dumps(delta.a_schema(*(delta.a_field(*each) for each in _COLUMNS.items()))),
            partitionColumns=["day"] if partitioned else [],
            configuration={f"delta.enable{name[0].upper()}{name[1:]}": "true" for name in features},
            createdTime=self.start_ms,
        )
        self.first = (delta.a_protocol_with(*features) if features else delta.a_protocol(), metadata)

    def at_ms(self, version: int) -> int:
        return self.start_ms + version * STEP_MS

    def path_of(self, file: int) -> str:
        name = f"part-{file % 200:05}-{uuid.UUID(int=file * _SPREAD % (1 << 128))}-c000.snappy.parquet"
        return f"{_folder(file)}/{name}" if self.partitioned else name

    def add(self, file: int, version: int, **others: object) -> Action:
        times = {"modificationTime": self.at_ms(version), "dataChange": True}
        return {"add": {**self._file(file), **times, "stats": _stats(file), **others}}

    def remove(self, file: int, version: int, **others: object) -> Action:
        times = {"deletionTimestamp": self.at_ms(version), "dataChange": True, "extendedFileMetadata": True}
        return {"remove": {**self._file(file), **times, **others}}

    def commit(self, version: int, actions: Iterable[Action]) -> None:
        info = delta.a_commit_info(
            timestamp=self.at_ms(version), operation="MERGE", isolationLevel="Serializable",
            isBlindAppend=False, operationMetrics={}, engineInfo="a benchmark",
        )  # fmt: skip
        data = delta.a_commit(info, *(() if version else self.first), *actions)
        delta.write_commit(self.root, version, data, modified_ms=self.at_ms(version))

    def data_files(self, version: int, files: Iterable[int]) -> None:
        """One file under all names: links are made in a fraction of the time."""
        first, *others = map(self.path_of, files)
        linked = delta.write_file(self.root, first, b"x", modified_ms=self.at_ms(version))
        for path in others:
            os.link(linked, f"{self.root}/{path}")

    def checkpoint(self, version: int, files: Iterable[list[Action]]) -> None:
        """A classic checkpoint, a row group for each of `files`, and the hint that names it."""
        path = self.root / "_delta_log" / f"{version:020}.checkpoint.parquet"
        groups = chain(([action] for action in self.first), files)
        rows = delta.write_row_groups(str(path), _CHECKPOINT, groups)
        delta.set_modified(path, self.at_ms(version))
        hint = json.dumps({"version": version, "size": rows}).encode()
        delta.write_log_file(self.root, "_last_checkpoint", hint, modified_ms=self.at_ms(version))

    def _file(self, file: int) -> Json:
        values = {"day": _folder(file)[4:]} if self.partitioned else {}
        return {"path": self.path_of(file), "partitionValues": values, "size": 1}


def make_delta_table(location: str, size: Size) -> None:
    """A partitioned table with data files, at a folder that does not exist yet."""
    writer = Writer(location, size.commits, partitioned=True)
    for part in range(PARTITIONS):
        os.makedirs(f"{location}/{_folder(part)}")
    checkpoints = {int(size.commits * split) for split in CHECKPOINTS}
    for version in range(size.commits):
        files = size.files(version)
        gone = size.files(version - 1)[: size.removed] if version else ()
        adds = [writer.add(file, version) for file in files]
        writer.commit(version, [*adds, *(writer.remove(file, version) for file in gone)])
        writer.data_files(version, files)
        if version in checkpoints:
            writer.checkpoint(version, _state(writer, size, version))


def make_vector_table(location: str, *, files: int, vectors: int, deleted: int = 1_000) -> None:
    """A table with files of deletion vectors, a commit each; data files are named and not made.

    About three in ten vectors have been replaced by one of a later file.
    """
    writer = Writer(location, files + 1, partitioned=False, features=("deletionVectors",))
    rng = np.random.default_rng(3)
    data_files = range(int(1.3 * files * vectors))
    writer.commit(0, [writer.add(file, 0) for file in data_files])
    tombstones: list[Action] = []
    newest: dict[int, Json] = {}  # the vector of a data file, as a field
    for version in range(1, files + 1):
        mine = rng.choice(len(data_files), vectors, replace=False).tolist()
        rows = [np.unique(rng.integers(0, RECORDS, deleted)).tolist() for _ in mine]
        written = delta.write_vectors(writer.root, version * _SPREAD % (1 << 128), *rows)
        actions = []
        for file, vector in zip(mine, written, strict=True):
            former, newest[file] = newest.get(file, {}), {"deletionVector": vector}
            actions += [writer.remove(file, version, **former), writer.add(file, 0, **newest[file])]
            tombstones.append(writer.remove(file, version, **former, dataChange=False))
        writer.commit(version, actions)
        if version == files - AFTER_CHECKPOINT:
            adds = [writer.add(file, 0, **newest.get(file, {}), dataChange=False) for file in data_files]
            writer.checkpoint(version, (adds, tombstones))


def _state(writer: Writer, size: Size, version: int) -> Iterator[list[Action]]:
    """The files that a version has, and those removed before it, some at a time."""
    for first in range(0, version + 1, GROUP):
        adds: list[Action] = []
        removes: list[Action] = []
        for number in range(first, min(first + GROUP, version + 1)):
            files, gone = size.files(number), size.removed if number < version else 0
            adds += [writer.add(file, number, dataChange=False) for file in files[gone:]]
            removes += [writer.remove(file, number + 1, dataChange=False) for file in files[:gone]]
        yield from (adds, removes)


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
