"""What a run left behind, read by other libraries than ours, so that both sides of a pair can be compared."""

from __future__ import annotations

import hashlib
import os
import re
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measure import Run
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import DELETED, DELETES
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of, vector_in
from iceberg_cli.testing.iceberg_writer import is_vector

_VERSION = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")


def files_left(location: str, _: Run) -> Hashable:
    """The names of the data files, manifests and manifest lists that are there."""
    names = os.listdir(f"{location}/data") + os.listdir(f"{location}/metadata")
    return frozenset(name for name in names if name.endswith((".avro", ".parquet")))


def live_entries(location: str, _: Run) -> Hashable:
    """Path, snapshot id and both sequence numbers of each live entry of the current snapshot, by PyIceberg."""
    table, snapshot = _head(location)
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

    storage = LocalStorage()
    _, snapshot = _head(location)
    entries = [
        entry
        for manifest in manifests_of(storage, {"manifest-list": snapshot.manifest_list})
        if manifest["content"] == DELETES
        for entry in entries_of(storage, manifest)
        if entry["status"] != DELETED
    ]
    read = lru_cache(maxsize=1)(storage.read)  # the vectors of a Puffin file follow each other
    vectors: dict[str, Any] = {}
    for entry in filter(is_vector, entries):
        name = entry["referenced_data_file"]
        if name in vectors:
            raise RuntimeError(f"two deletion vectors for {name}")
        vectors[name] = vector_in(read(entry["file_path"]), entry)
    others: defaultdict[str, Any] = defaultdict(BitMap64)
    for path in sorted({entry["file_path"] for entry in entries if not is_vector(entry)}):
        for name, positions in _positions(storage.canonical(path)):
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


def _head(location: str) -> tuple[Any, Any]:
    """The table of the metadata file of the greatest version, as a catalog in a folder has it, and its snapshot."""
    from pyiceberg.table import StaticTable

    names = os.listdir(f"{location}/metadata")
    versions = {int(match[1]): name for name in names if (match := _VERSION.fullmatch(name))}
    table = StaticTable.from_metadata(f"{location}/metadata/{versions[max(versions)]}")
    return table, table.current_snapshot()


def _positions(path: str) -> Iterator[tuple[str, Any]]:
    table = pq.read_table(path, columns=["file_path", "pos"]).combine_chunks()
    names = table["file_path"].combine_chunks().dictionary_encode()
    codes, positions = names.indices.to_numpy(), table["pos"].to_numpy()
    for code, name in enumerate(names.dictionary.to_pylist()):
        yield name, positions[np.flatnonzero(codes == code)].astype(np.uint64)
