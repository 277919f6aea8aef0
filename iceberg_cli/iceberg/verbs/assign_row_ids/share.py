"""Row ids that main assigned, written into the entries of another branch's manifests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import among
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.branch.opened_manifests import refuse_unknown_fields
from iceberg_cli.iceberg.reachability.keys import Keys, key_set, live, sources_of
from iceberg_cli.iceberg.spec.manifests.manifest import (
    ENTRY_COLUMNS,
    EntryBatch,
    ManifestSource,
    manifest_metadata,
    open_manifest,
    read_entries,
    waiting,
    with_ids,
)
from iceberg_cli.iceberg.spec.manifests.writer import write_manifest
from iceberg_cli.iceberg.spec.table_metadata.columns import schema_of
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.assign_row_ids import rules
from iceberg_cli.plan.plan import StagedFile, Task

_IDS = pa.schema([("file_path", pa.string()), ("record_count", pa.int64()), ("first_row_id", pa.int64())])
_IDENTITY = (
    "file_path",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "first_row_id",
    "record_count",
)
PHASE = "comparing branches"
_INHERITED = 1 << 61  # above every id that a table assigns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManifestRewrite:
    """A manifest to be written anew.

    Args:
        row: its row of the manifest list.
        ids: of its files that main has too: `file_path`, `record_count`, `first_row_id` (null while main has none).
        metadata: the table's.
    """

    row: pa.Table
    ids: pa.Table
    metadata: TableMetadata

    @property
    def path(self) -> str:
        """Path of the manifest as it is."""
        path: str = self.row["manifest_path"][0].as_py()
        return path

    @property
    def row_count(self) -> int:
        """Rows that get main's ids."""
        return int(pc.sum(self.ids["record_count"]).as_py() or 0)

    @classmethod
    def between(
        cls, table: IcebergTable, rows: pa.Table, main: pa.Table, *, known: bool, metadata: TableMetadata
    ) -> dict[Task, ManifestRewrite]:
        """The manifests that have files of main, each with the task that writes it anew.

        Args:
            table: whose manifests are read.
            rows: of the branch's manifest list, manifests without ids.
            main: rows of main's manifest list.
            known: main has its ids.
            metadata: the table's.
        """
        hashes = file_keys(table, rows)
        columns = ("status", "file_path", "file_path_hash", "record_count", "first_row_id")
        givers = main.filter(pa.array(with_ids(main) | waiting(main)))
        found = [
            *table.reachability.from_entries(givers, columns, _Ids(hashes), phase="reading main's row ids")
        ]
        ids = pa.concat_tables(found) if found else _IDS.empty_table()
        places: dict[str, npt.NDArray[np.int64]] = {}
        paths = ids["file_path"].combine_chunks()
        for part in table.reachability.from_entries(
            rows, ("status", "file_path"), _Places(paths), phase=PHASE
        ):
            places |= part
        rewrite = {}
        for index, path in enumerate(rows["manifest_path"].to_pylist()):
            if path in places:
                own = ids.take(pa.array(places[path]))
                task = rules.sharing_task(path, own if known else None)
                rewrite[task] = cls(row=rows.slice(index, 1), ids=own, metadata=metadata)
        return rewrite


def file_keys(table: IcebergTable, rows: pa.Table) -> Keys:
    """The keys of the live files of manifests, rows of manifest lists."""
    columns = ("status", "file_path_hash")
    return key_set([*table.reachability.from_entries(rows, columns, _hashes, phase=PHASE)])


def share(table: IcebergTable, rewrite: ManifestRewrite, path: str) -> StagedFile:
    """Write a manifest anew with main's ids for the files that both have, and read it back."""
    (source,) = sources_of(rewrite.row)
    opened = open_manifest(source, table.storage.read(source.path))
    refuse_unknown_fields(opened)
    (batch,) = read_entries([opened], columns=ENTRY_COLUMNS)
    entries = rules.take_over(batch.table, rewrite.ids)
    schema, spec = _schema_and_spec(opened, rewrite.metadata)
    try:
        data = write_manifest(
            _flat(entries, batch.partition_ids, spec["fields"], source.path),
            schema=schema,
            partition_spec=spec,
            format_version=3,
            content=source.content,
            sync=hashlib.sha256(path.encode()).digest()[:16],
        )
    except ValueError as error:
        raise CorruptFile(source.path, None, str(error)) from error
    _check_written(data, path, entries)
    table.storage.put_if_absent(path, data)
    (row,) = rewrite.row.to_pylist()
    files, rows = entries.num_rows, int(pc.sum(entries["record_count"]).as_py() or 0)
    row |= {
        "manifest_path": path,
        "manifest_length": len(data),
        "sequence_number": None,
        "added_snapshot_id": None,
        "min_sequence_number": pc.min(entries["sequence_number"]).as_py(),
        "added_files_count": 0,
        "existing_files_count": files,
        "deleted_files_count": 0,
        "added_rows_count": 0,
        "existing_rows_count": rows,
        "deleted_rows_count": 0,
        "first_row_id": None,
        "all_rows_have_ids": entries["first_row_id"].null_count == 0,
    }
    return StagedFile(path=path, row=row)


def _schema_and_spec(
    source: ManifestSource, metadata: TableMetadata
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The table's schema and partition spec for a manifest.

    Only where the table has forgotten a source column of the spec does the manifest's own header say what it was.
    """
    spec = metadata.partition_spec(source.partition_spec_id or 0)
    if spec is None:
        raise CorruptFile(source.path, "partition-spec", f"the table has no spec {source.partition_spec_id}")
    schema = schema_of(spec, metadata)
    if schema is not None:
        return schema.to_json(), spec.to_json()
    assert source.container is not None
    header = manifest_metadata(source.container)
    if header.schema is None:
        reason = (
            f"the table has no schema with all source columns of spec {spec.spec_id}, and the header has none"
        )
        raise CorruptFile(source.path, "schema", reason)
    own = _parsed(header.schema, source.path)
    return {**own, "schema-id": header.schema_id or own.get("schema-id", 0)}, spec.to_json()


def _parsed(text: str, path: str) -> Mapping[str, Any]:
    """The schema in a manifest's header."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CorruptFile(path, "schema", f"the header's JSON cannot be parsed: {error}") from error
    if not isinstance(value, dict):
        raise CorruptFile(path, "schema", f"{text!r:.40} is no schema")
    return value


def _flat(
    entries: pa.Table, ids: Sequence[int | None], fields: Sequence[Mapping[str, Any]], path: str
) -> list[dict[str, Any]]:
    """Entries as the writer takes them; a partition's values by the spec's names, whatever the file calls them.

    Args:
        entries: of one manifest.
        ids: of the fields of its partition struct.
        fields: of the spec; one without an id is found by its index.
        path: of the manifest.

    Raises:
        CorruptFile: the struct has no ids and does not fit the spec.
    """
    own: list[int | None] = [field.get("field-id") for field in fields]
    if len(ids) == len(own) and (set(ids) <= {None} or None in own):
        ids = own = list(range(len(own)))
    if None in ids or None in own:
        raise CorruptFile(path, "field partition", f"it has fields {list(ids)}, the spec has {own}")
    rows = entries.drop_columns(["manifest"]).to_pylist()
    for row in rows:
        values = dict(zip(ids, row["partition"].values(), strict=True))
        row["partition"] = {
            str(field["name"]): values.get(key) for field, key in zip(fields, own, strict=True)
        }
    return list(rows)


def _check_written(data: bytes, path: str, entries: pa.Table) -> None:
    """Refuse a manifest that does not read as the entries that it was made from."""
    source = ManifestSource(path=path, data=data, first_row_id=_INHERITED)
    (batch,) = read_entries([source], columns=_IDENTITY)
    ids = batch.table["first_row_id"]
    ids = pc.if_else(pc.less(ids, _INHERITED), ids, pa.scalar(None, pa.int64()))
    found = batch.table.set_column(batch.table.column_names.index("first_row_id"), "first_row_id", ids)
    if found.select(_IDENTITY).to_pydict() != entries.select(_IDENTITY).to_pydict():
        raise AssertionError(f"{path} does not read as it was written")


# -- over batches of entries, maybe in another process -----------------------------------------------------------


def _hashes(_: Sequence[ManifestSource], batch: EntryBatch) -> Keys:
    return key_set([live(batch.table)["file_path_hash"].to_numpy()])


@dataclass(frozen=True, slots=True)
class _Ids:
    """The ids of the live files whose hash is among `files`."""

    files: Keys

    def __call__(self, _: Sequence[ManifestSource], batch: EntryBatch) -> pa.Table:
        files = live(batch.table)
        return files.filter(pa.array(among(files["file_path_hash"].to_numpy(), self.files))).select(
            _IDS.names
        )


@dataclass(frozen=True, slots=True)
class _Places:
    """By manifest, the indices in `paths` of its live files that are there, in entry order."""

    paths: pa.Array

    def __call__(
        self, sources: Sequence[ManifestSource], batch: EntryBatch
    ) -> dict[str, npt.NDArray[np.int64]]:
        files = live(batch.table)
        places = pc.fill_null(pc.index_in(files["file_path"], value_set=self.paths), -1).to_numpy()
        owners = files["manifest"].to_numpy()
        parts = {}
        for index in batch.sources:
            mine = places[owners == index]
            if (mine >= 0).any():
                parts[sources[index].path] = mine[mine >= 0].astype(np.int64)
        return parts
