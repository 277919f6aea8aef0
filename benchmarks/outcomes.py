"""What a run left behind, read by other libraries than ours, so that both sides of a pair can be compared."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measure import Run

_VERSION = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")
_BLOB_HEAD, _BLOB_TAIL = 8, 4  # length and magic; CRC
_DELETES = 1  # content of a manifest
_DELETED = 2  # status of an entry


def files_left(location: str, _: Run) -> Hashable:
    """The names of the data files, manifests and manifest lists that are there."""
    names = os.listdir(f"{location}/data") + os.listdir(f"{location}/metadata")
    return frozenset(name for name in names if name.endswith((".avro", ".parquet")))


def live_entries(location: str, _: Run) -> Hashable:
    """Path, snapshot id and both sequence numbers of each live entry of the current snapshot, by PyIceberg."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(_newest(location))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return _digest(
        f"{entry.data_file.file_path} {entry.snapshot_id} {entry.sequence_number} {entry.file_sequence_number}"
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    )


def deleted_rows(location: str, _: Run) -> Hashable:
    """The deleted positions of each data file, as a reader applies them, by fastavro, PyArrow and pyroaring.

    A data file that has a deletion vector has no other position deletes.
    """
    from pyroaring import BitMap64

    vectors: dict[str, Any] = {}
    others: defaultdict[str, Any] = defaultdict(BitMap64)
    files: set[str] = set()
    for entry in _delete_entries(location):
        if entry["file_format"].upper() != "PUFFIN":
            files.add(entry["file_path"])
            continue
        with open(_local(entry["file_path"]), "rb") as file:
            file.seek(entry["content_offset"] + _BLOB_HEAD)
            body = file.read(entry["content_size_in_bytes"] - _BLOB_HEAD - _BLOB_TAIL)
        name = entry["referenced_data_file"]
        if name in vectors:
            raise RuntimeError(f"two deletion vectors for {name}")
        vectors[name] = BitMap64.deserialize(body)
    for path in sorted(files):
        for name, positions in _positions(path):
            others[name] |= BitMap64(array("Q", positions.tobytes()))
    lines = []
    for name, rows in {**others, **vectors}.items():
        rows.run_optimize()  # so that equal sets have equal bytes
        lines.append(f"{name} {len(rows)} {hashlib.sha256(rows.serialize()).hexdigest()}")
    return _digest(lines)


def rows_shown(output: str, _: Run) -> Hashable:
    return int(pq.read_metadata(output).num_rows)


def rows_printed(run: Run) -> Hashable:
    return int(run.output)


def delta_files_left(location: str, _: Run) -> Hashable:
    """The data files of a partitioned Delta table that are there."""
    return _digest(f"{path.parent.name}/{path.name}" for path in Path(location).glob("day=*/*.parquet"))


def checkpoint(location: str, _: Run) -> Hashable:
    """The version of the newest checkpoint, its files and how many tombstones it has, by PyArrow."""
    path = max(Path(f"{location}/_delta_log").glob("*.checkpoint.parquet"))
    rows = pq.ParquetFile(path).read(columns=["add.path", "remove.path"])
    adds, removes = (pc.struct_field(rows[kind], "path").drop_null() for kind in ("add", "remove"))
    return path.name, _digest(adds.to_pylist()), len(removes)


def _digest(lines: Iterable[str]) -> Hashable:
    """How many, and a digest that does not depend on their order."""
    ordered = sorted(lines)
    return len(ordered), hashlib.sha256("\n".join(ordered).encode()).hexdigest()


def _newest(location: str) -> str:
    """The metadata file of the greatest version, as a catalog in a folder has it."""
    found = [
        (int(match[1]), name)
        for name in os.listdir(f"{location}/metadata")
        if (match := _VERSION.fullmatch(name))
    ]
    return f"{location}/metadata/{max(found)[1]}"


def _delete_entries(location: str) -> Iterable[dict[str, Any]]:
    path = Path(_newest(location))
    data = path.read_bytes()
    metadata = json.loads(gzip.decompress(data) if ".gz" in path.name else data)
    current = metadata["current-snapshot-id"]
    snapshot = next(s for s in metadata["snapshots"] if s["snapshot-id"] == current)
    for row in _records(snapshot["manifest-list"]):
        if row["content"] == _DELETES:
            for entry in _records(row["manifest_path"]):
                if entry["status"] != _DELETED:
                    yield entry["data_file"]


def _records(path: str) -> list[Any]:
    with open(_local(path), "rb") as file:
        return list(fastavro.reader(file))


def _positions(path: str) -> Iterable[tuple[str, Any]]:
    table = pq.read_table(_local(path), columns=["file_path", "pos"]).combine_chunks()
    names = table["file_path"].combine_chunks().dictionary_encode()
    codes, positions = names.indices.to_numpy(), table["pos"].to_numpy()
    for code, name in enumerate(names.dictionary.to_pylist()):
        yield name, positions[np.flatnonzero(codes == code)].astype(np.uint64)


def _local(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:")
