"""The Iceberg tables of the benchmarks: their sizes, and those that no test needs.

Like those of `tests.large_tables`, they are valid and quick to make, and the same numbers make the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from iceberg_cli.testing import iceberg_files
from iceberg_cli.testing.iceberg_files import DATA, DELETES, POSITION_DELETES, Entry
from tests.large_tables import STEP_MS, Made, Manifest, Numbers, Size, Writer, an_entry, make_table

SIZES = {"S": Size(100, 100, 10), "M": Size(1_000, 204, 10), "L": Size(5_000, 520, 50)}
REPLACED_FILES = 50_000  # in a manifest
RECORDS = 1_000_000  # of a data file that has deletes


def make_replaced_table(location: str, size: Size) -> Made:
    """A v2 table whose snapshots have no file in common: almost all that it ever held go when they expire.

    Entries hold no metrics of columns, so that many of them are made and read in little time.
    """
    writer = Writer(location, small=True)
    files = size.files_per_snapshot
    for commit in range(1, size.snapshots + 1):
        new = np.arange((commit - 1) * files, commit * files)
        parts = np.array_split(new, -(-files // REPLACED_FILES))
        writer.snapshot([writer.manifest(part, len(part), commit) for part in parts], added=files)
    writer.publish()
    return Made(location, files, writer.entries, writer.written, size.last_ms)


def make_wide_table(location: str) -> None:
    """10,000 snapshots and 2,000 schemas, most of them in the metadata alone: a metadata.json of 16 MB."""
    made = make_table(location, Size(2, 10, 1))
    path = Path(f"{location}/metadata/v1.metadata.json")
    metadata = json.loads(path.read_text())
    old = [
        {
            **metadata["snapshots"][-1], "snapshot-id": 10 + i, "parent-snapshot-id": 9 + i,
            "timestamp-ms": made.last_ms - (10_000 - i) * STEP_MS, "sequence-number": 1, "schema-id": i // 5,
        }
        for i in range(9_998)
    ]  # fmt: skip
    old[0].pop("parent-snapshot-id")
    metadata["snapshots"] = [*old, *metadata["snapshots"]]
    fields = metadata["schemas"][0]["fields"]
    new = {"required": False, "type": "string", "doc": "added"}
    added = [{"id": 100 + k, "name": f"column_{k}", **new} for k in range(130)]
    schemas = ({"schema-id": n, "fields": [*fields, *added[: n % 130]]} for n in range(2_000))
    metadata["schemas"] = [{"type": "struct", **schema} for schema in schemas]
    metadata["last-column-id"] = 1_000
    path.write_text(json.dumps(metadata, separators=(",", ":")))


def make_puffin_table(
    location: str, *, puffins: int, vectors: int, superseded: float = 0.3, deleted: int = 1_000
) -> None:
    """A v3 table of Puffin files with a manifest each, which hold so many vectors of so many `deleted` positions.

    A part of the vectors is `superseded`: they have no entry any more, for a vector of a later file replaced them.
    """
    writer = Writer(location, version=3)
    rng = np.random.default_rng(3)
    slots = puffins * vectors
    # Nothing reads the data files, so there are none. A superseded slot has that of a slot of a later Puffin file.
    dead = rng.choice(slots - vectors, int(slots * superseded), replace=False)
    live = np.setdiff1d(np.arange(slots), dead)
    files = np.full(slots, -1)
    files[live] = np.arange(len(live))
    for slot in dead:
        first = np.searchsorted(live, (slot // vectors + 1) * vectors)
        files[slot] = rng.integers(min(first, len(live) - 1), len(live))
    manifests = [_data_files(writer, len(live), 1)]
    alive = np.isin(np.arange(slots), live)
    for number in range(puffins):
        mine = range(number * vectors, (number + 1) * vectors)
        positions = (np.unique(rng.integers(0, RECORDS, deleted)).tolist() for _ in mine)
        names = (writer.path_of(int(files[slot])) for slot in mine)
        data, blobs = iceberg_files.puffin(zip(names, positions, strict=True), {"created-by": "a benchmark"})
        path = writer.put(f"data/{number:05d}-deletes.puffin", data)
        entries = [
            an_entry(
                path, cardinality, len(data), file_format="PUFFIN", content=POSITION_DELETES,
                referenced_data_file=data_file, content_offset=offset, content_size_in_bytes=size,
            )
            for slot, (data_file, offset, size, cardinality) in zip(mine, blobs, strict=True)
            if alive[slot]
        ]  # fmt: skip
        if entries:
            manifests.append(writer.manifest_of(entries, len(manifests) + 1, content=DELETES))
    _publish(writer, manifests, len(live))


def make_position_delete_table(location: str, *, files: int, positions: int, data_files: int = 1_000) -> None:
    """A table upgraded to v3, each of whose position delete files deletes about `positions` rows of ten data files."""
    writer = Writer(location, version=3)
    rng = np.random.default_rng(4)
    entries = []
    for number in range(files):
        chosen = np.sort(rng.choice(data_files, min(10, data_files), replace=False))
        rows = [np.unique(rng.integers(0, RECORDS, positions // len(chosen))) for _ in chosen]
        paths = [writer.path_of(int(n)) for n in chosen]
        entries.append(_position_deletes(writer, f"{number:05d}", paths, rows))
    manifests = [_data_files(writer, data_files, 1), writer.manifest_of(entries, 2, content=DELETES)]
    _publish(writer, manifests, data_files)


def make_dangling_table(location: str, *, files: int, data_files: int = 1_000) -> None:
    """A v2 table of position delete files, each of one data file that a compaction has replaced, in ten manifests."""
    writer = Writer(location)
    manifests: list[Manifest] = []
    for part in np.split(np.arange(files), range(max(1, files // 10), files, max(1, files // 10))):
        names = [(f"{n:06d}", f"{location}/data/replaced-{n:06d}.parquet") for n in part]
        entries = [_position_deletes(writer, name, [replaced], [np.arange(10)]) for name, replaced in names]
        manifests.append(writer.manifest_of(entries, len(manifests) + 1, content=DELETES))
    manifests.append(_data_files(writer, data_files, len(manifests) + 1))
    _publish(writer, manifests, data_files)


def _publish(writer: Writer, manifests: list[Manifest], data_files: int) -> None:
    """One snapshot that lists all manifests, newest first."""
    writer.snapshot(manifests[::-1], added=0, commit=len(manifests), rows=data_files * RECORDS)
    writer.publish()


def _data_files(writer: Writer, count: int, commit: int) -> Manifest:
    entries = [an_entry(writer.path_of(n), RECORDS, 10 * RECORDS) for n in range(count)]
    return writer.manifest_of(entries, commit, content=DATA)


def _position_deletes(writer: Writer, name: str, paths: list[str], rows: list[Numbers]) -> Entry:
    """A position delete file of the rows of each data file; its entry."""
    indices = pa.array(np.repeat(np.arange(len(paths), dtype=np.int32), [len(part) for part in rows]))
    # As Iceberg's own writers do: the footer has field ids, and no Arrow schema.
    data = iceberg_files.position_delete_columns(
        pa.DictionaryArray.from_arrays(indices, pa.array(paths)), pa.array(np.concatenate(rows)),
        compression="zstd", use_dictionary=["file_path"], store_schema=False,
    )  # fmt: skip
    path = writer.put(f"data/{name}-deletes.parquet", data)
    return an_entry(path, sum(map(len, rows)), len(data), content=POSITION_DELETES)
