"""Rows of manifests and of removals for files that metadata names one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.iceberg.reachability.keys import KnownKeys, keys_of
from iceberg_cli.iceberg.reachability.question import NamedFile, ReachQuestion, SnapshotFiles
from iceberg_cli.iceberg.spec.manifest import MANIFEST_LIST_SCHEMA
from iceberg_cli.paths import canonical, path_key
from iceberg_cli.plan.removal_rows import SCHEMA


def inline_rows(snapshot: SnapshotFiles) -> pa.Table:
    """The manifests that a v1 snapshot names itself, as rows of a list without counts."""
    empty = no_rows().drop_columns(["snapshot_id"])
    count = len(snapshot.manifests)
    columns = {name: pa.nulls(count, empty.schema.field(name).type) for name in empty.column_names}
    columns["manifest_path"] = pa.array(snapshot.manifests, pa.string())
    for name in ("content", "sequence_number", "min_sequence_number", "partition_spec_id"):
        columns[name] = pa.array([0] * count, empty.schema.field(name).type)
    table = pa.table(columns).cast(empty.schema)
    return table.add_column(0, "list", pa.array([0] * count, pa.int32()))


def no_rows() -> pa.Table:
    """No manifest."""
    return MANIFEST_LIST_SCHEMA.empty_table().append_column("snapshot_id", pa.array([], pa.int64()))


def manifest_files(rows: pa.Table) -> list[NamedFile]:
    """Manifests that only expired snapshots list."""
    return [
        NamedFile(
            path=path,
            kind="manifest_file",
            size_bytes=length,
            reason=f"last listed by expired snapshot {snapshot_id}",
        )
        for path, length, snapshot_id in zip(
            rows["manifest_path"].to_pylist(),
            rows["manifest_length"].to_pylist(),
            rows["snapshot_id"].to_pylist(),
            strict=True,
        )
    ]


def list_files(lists: Sequence[tuple[str, int]], reach: ReachQuestion) -> list[NamedFile]:
    """Manifest lists of expired snapshots, given by path and bytes."""
    owner = {s.manifest_list: s.snapshot_id for s in reach.expired}
    return [
        NamedFile(
            path=path,
            kind="manifest_list",
            size_bytes=size_bytes,
            reason=f"manifest list of expired snapshot {owner[path]}",
        )
        for path, size_bytes in lists
    ]


def named_removals(files: Sequence[NamedFile], kept: KnownKeys) -> pa.Table:
    """The removals among files that metadata names directly, without those that are reachable, each path once."""
    chosen: dict[str, NamedFile] = {}
    for file in files:
        chosen.setdefault(path_key(file.path), file)
    unique = list(chosen.values())
    columns = {
        "path": [canonical(file.path) for file in unique],
        "as_written": [file.path for file in unique],
        "kind": [file.kind for file in unique],
        "size_bytes": [file.size_bytes for file in unique],
        "reason": [file.reason for file in unique],
    }
    table = pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})
    return table.filter(array_of(~kept.contains(keys_of(table["as_written"]))))
