"""The file format of a cache entry: what was read of a table's manifests and manifest lists, whole or not at all.

A part is a magic number, the SHA-256 of what follows, and one Arrow record batch of one row. It stands alone: the rows
that its lists name are in it. The digest covers every byte, also the table's identity and the version, so a part that
is cut short, torn, damaged, of another version or of another table does not decode, and is a part that is not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.iceberg.reachability.keys import Keys, keys_of

Numbers = npt.NDArray[np.int64]

MANIFEST_FACTS = (
    "manifest_length",
    "content",
    "partition_spec_id",
    "sequence_number",
    "added_snapshot_id",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
)
LIST_FACTS = (
    "size_bytes",
    "snapshot_id",
    "sequence_number",
    "timestamp_ms",
    "total_data_files",
    "total_delete_files",
    "added_data_files",
)
NOT_CACHED = -1  # in place of a number of keys
_ADDED, _EXISTING = MANIFEST_FACTS.index("added_files_count"), MANIFEST_FACTS.index("existing_files_count")
_MAGIC = b"ICEKEYS2"
_DIGEST_BYTES = 32
_TYPES = {
    "table": pa.large_string(),
    "manifest_paths": pa.large_string(),
    "manifest_facts": pa.int64(),
    "manifest_versions": pa.int64(),
    "key_counts": pa.int64(),
    "keys": pa.uint64(),
    "folders": pa.large_string(),
    "list_paths": pa.large_string(),
    "list_facts": pa.int64(),
    "list_versions": pa.int64(),
    "list_counts": pa.int64(),
    "list_rows": pa.int32(),
}
_SCHEMA = pa.schema([pa.field(name, pa.large_list(type_)) for name, type_ in _TYPES.items()])
_PROBES = (
    "s3://bucket/a//b/\u00fc",
    "file:/x/./y",
    "hdfs:/short",
    "/end/of/a/folder//",
    "/end/of/a/folder/./.",
    "/table/data/part-00000-of-a-name.parquet",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """The facts read from m manifests and l manifest lists.

    `manifest_facts` (m, 10) are `MANIFEST_FACTS`; `key_counts` (m) tell how many of `keys` are each
    manifest's, in their order, sorted; `NOT_CACHED` where it was not read. `manifest_versions` (m) and
    `list_versions` (l) are digests of the storage's version of each file before it was read; 0 for manifests
    that were not read. `folders` are all folders of the files behind the keys, as path keys; none where
    the table is not on a local disk. `list_facts` (l, 7) are `LIST_FACTS`, -1 where the summary has no such
    total; `list_counts` (l) tell how many of `list_rows` are each list's, places among the m manifests.
    """

    manifest_paths: Sequence[str]
    manifest_facts: Numbers
    manifest_versions: Numbers
    key_counts: Numbers
    keys: Keys
    folders: Sequence[str]
    list_paths: Sequence[str]
    list_facts: Numbers
    list_versions: Numbers
    list_counts: Numbers
    list_rows: npt.NDArray[np.int32]


def identity(table_uuid: str, location: str, *, links: bool) -> tuple[str, ...]:
    """The table and the hash function of a cache entry: another way to hash a path makes other keys.

    Args:
        table_uuid: of the table.
        location: of the table.
        links: whether the folders of its files are looked at for links.
    """
    facts = ",".join((*MANIFEST_FACTS, "", *LIST_FACTS, "links" if links else ""))
    return (_MAGIC.decode(), table_uuid, location, facts, keys_of(pa.array(_PROBES)).tobytes().hex())


def encode(part: CacheEntry, table: Sequence[str]) -> bytes:
    """A part as a file's content.

    Args:
        part: what to write.
        table: see `identity`.
    """
    values = {
        "table": table,
        "manifest_paths": part.manifest_paths,
        "manifest_facts": part.manifest_facts.ravel(),
        "manifest_versions": part.manifest_versions,
        "key_counts": part.key_counts,
        "keys": part.keys,
        "folders": part.folders,
        "list_paths": part.list_paths,
        "list_facts": part.list_facts.ravel(),
        "list_versions": part.list_versions,
        "list_counts": part.list_counts,
        "list_rows": part.list_rows,
    }
    columns = []
    for name, type_ in _TYPES.items():
        items = pa.array(values[name], type_)
        columns.append(pa.LargeListArray.from_arrays(pa.array([0, len(items)], pa.int64()), items))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
    body = sink.getvalue()
    return b"".join((_MAGIC, hashlib.sha256(body).digest(), body))


def decode(data: bytes, table: Sequence[str]) -> CacheEntry | None:
    """The cache entry in a file's content; None for anything but what `encode` made for this table, whole."""
    start = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        return None
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch()
    except pa.ArrowException:
        return None
    if batch.schema != _SCHEMA or batch.num_rows != 1:
        return None
    values = {name: batch.column(name).flatten() for name in _TYPES}
    if values["table"].to_pylist() != list(table):
        return None
    part = CacheEntry(
        manifest_paths=values["manifest_paths"].to_pylist(),
        manifest_facts=values["manifest_facts"].to_numpy().reshape(-1, len(MANIFEST_FACTS)),
        manifest_versions=values["manifest_versions"].to_numpy(),
        key_counts=values["key_counts"].to_numpy(),
        keys=values["keys"].to_numpy(),
        folders=values["folders"].to_pylist(),
        list_paths=values["list_paths"].to_pylist(),
        list_facts=values["list_facts"].to_numpy().reshape(-1, len(LIST_FACTS)),
        list_versions=values["list_versions"].to_numpy(),
        list_counts=values["list_counts"].to_numpy(),
        list_rows=values["list_rows"].to_numpy(),
    )
    return part if _fits(part) else None


def _fits(part: CacheEntry) -> bool:
    """Whether the numbers agree with each other; a writer that went wrong has a right digest too."""
    manifests, cached = len(part.manifest_paths), part.key_counts != NOT_CACHED
    if {len(part.manifest_facts), len(part.manifest_versions), len(part.key_counts)} != {manifests}:
        return False
    if {len(part.list_facts), len(part.list_versions), len(part.list_counts)} != {len(part.list_paths)}:
        return False
    live = part.manifest_facts[:, _ADDED] + part.manifest_facts[:, _EXISTING]
    # A path may be in a manifest twice, so there are fewer keys than files, and none only where there is no file.
    counted = (part.key_counts <= live) & ((part.key_counts > 0) == (live > 0))
    rows = part.list_rows
    return (
        bool(counted[cached].all())
        and int(part.key_counts[cached].sum()) == len(part.keys)
        and bool((part.list_counts >= 0).all())
        and int(part.list_counts.sum()) == len(rows)
        and (not len(rows) or (int(rows.min()) >= 0 and int(rows.max()) < manifests))
    )
