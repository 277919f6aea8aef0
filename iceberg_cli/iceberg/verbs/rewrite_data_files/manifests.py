"""The manifests of a commit of rewritten files, written and read back: those of new files, and those that take over.

Spec: "Manifests", "Manifest Entry Fields", "Sequence Number Inheritance", "First Row ID Inheritance".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.branch.carried_entries import carried_values
from iceberg_cli.iceberg.branch.entry_columns import Ints
from iceberg_cli.iceberg.branch.new_manifests import (
    UNBOUND,
    list_row,
    manifest_codec,
    manifest_data,
    schema_for,
    source_of,
    stored,
)
from iceberg_cli.iceberg.spec.manifests.manifest import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    EXISTING,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.manifests.writer import encoded_entries, manifest_header
from iceberg_cli.iceberg.spec.table_metadata.columns import WITH_ROW_IDS
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_data_files.branch_files import BranchFiles
from iceberg_cli.iceberg.verbs.rewrite_data_files.delete_files import (
    NewDeletes,
    position_entry,
    vector_entries,
)
from iceberg_cli.iceberg.verbs.rewrite_data_files.group import OutputFile
from iceberg_cli.plan.plan import StagedFile, Step, Task
from iceberg_cli.storage import put_checked

_IDENTITY: Final = pa.schema(
    {
        "status": pa.int32(),
        "file_path": pa.string(),
        "content_offset": pa.int64(),
        "sequence_number": pa.int64(),
        "record_count": pa.int64(),
    }
)
"""What identifies an entry, and is compared when a new manifest is read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFiles:
    """A manifest of new files.

    Args:
        task: that writes it.
        spec_id: of its partition spec.
        files: with the key of the partition of each.
        sequence_number: of all their rows.
    """

    task: Task
    spec_id: int
    files: tuple[tuple[OutputFile, bytes], ...]
    sequence_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedDeletes:
    """Deletes of new files, and a manifest of them.

    Args:
        task: that writes the manifest.
        files: tasks that write the delete files: one Puffin file of all, or a file of position deletes for each.
        spec_id: of the partition spec.
        deletes: one for each data file.
        data: of each the deletion vector, or the file of position deletes.
        with_vectors: which of these.
    """

    task: Task
    files: tuple[Task, ...]
    spec_id: int
    deletes: tuple[NewDeletes, ...]
    data: tuple[bytes, ...]
    with_vectors: bool

    @classmethod
    def of(cls, spec_id: int, deletes: Sequence[NewDeletes], *, with_vectors: bool) -> AddedDeletes:
        """Those of one partition spec. Tasks are named by what they write, so that it is not written twice."""
        data = tuple(each.vector() if with_vectors else each.position_file() for each in deletes)
        pairs = zip(deletes, data, strict=True)
        digests = [hashlib.sha256(f"{each.data_file}\n".encode() + own).hexdigest() for each, own in pairs]
        name = f"deletes-{hashlib.sha256(''.join(digests).encode()).hexdigest()[:16]}"
        names = [f"{name}.puffin"] if with_vectors else [f"deletes-{each[:16]}.parquet" for each in digests]
        return cls(
            task=Task(name=f"{name}.avro", kind="manifest"),
            files=tuple(Task(name=each, kind="puffin") for each in names),
            spec_id=spec_id,
            deletes=tuple(deletes),
            data=data,
            with_vectors=with_vectors,
        )

    @property
    def size_bytes(self) -> int:
        """What they add to a table as summaries count it: of a deletion vector its own bytes, not its file's.

        Spec: Appendix F, "Metrics".
        """
        return sum(map(len, self.data))


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedEntries:
    """A manifest in the place of others.

    Args:
        task: that writes it.
        content: data or deletes.
        spec_id: of its partition spec.
        replaced: rows of the manifest list.
        removed: by row, the indices of the entries that are removed, ascending.
    """

    task: Task
    content: int
    spec_id: int
    replaced: tuple[int, ...]
    removed: Mapping[int, Ints]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestsBuild:
    """Writes the manifests of a commit; see `Build`.

    Args:
        table: as loaded.
        files: of the branch's head.
        added: manifests of new files.
        deletes: of new files, with their manifests.
        carried: manifests in the place of others.
        snapshot_id: that entries have; None: they inherit it.
        tuples: the partition of each key, in Avro's representation.
        delete_files: where files of position deletes are that were written by this or for an earlier try.
    """

    table: IcebergTable
    files: BranchFiles
    added: Sequence[AddedFiles]
    deletes: Sequence[AddedDeletes]
    carried: Sequence[CarriedEntries]
    snapshot_id: int | None
    tuples: Mapping[bytes, tuple[Any, ...]]
    delete_files: dict[Task, str] = field(default_factory=dict)

    def __call__(self, _step: Step, paths: Mapping[Task, str]) -> dict[Task, StagedFile]:
        """Write the files of some tasks, each to its path.

        Raises:
            CorruptFile: what was read back is not what was planned. BackendUnavailable.
        """
        found = {job.task: self._added(job, paths[job.task]) for job in self.added if job.task in paths}
        for deletes in self.deletes:
            if deletes.task in paths:
                found |= self._deletes(deletes, paths)
        for job in self.carried:
            if job.task in paths:
                found[job.task] = self._carried(job, paths[job.task])
        return found

    def _deletes(self, job: AddedDeletes, paths: Mapping[Task, str]) -> dict[Task, StagedFile]:
        text, header = self._header(job.spec_id, DELETES)
        spec = self.table.metadata.partition_spec(job.spec_id)
        assert spec is not None  # without it there is no commit
        own = {task: paths[task] for task in job.files if task in paths}
        if job.with_vectors:
            entries = vector_entries(self.table.storage, paths[job.files[0]], job.deletes, job.data)
        else:
            for task, data in zip(job.files, job.data, strict=True):
                if task in own:
                    put_checked(self.table.storage, own[task], data)
            self.delete_files.update(own)
            entries = [
                position_entry(self.delete_files[task], len(data), each)
                for task, data, each in zip(job.files, job.data, job.deletes, strict=True)
            ]
        ids = [field.field_id for field in spec.fields]
        for entry, each in zip(entries, job.deletes, strict=True):
            entry["partition"] = dict(zip(ids, self.tuples[each.key], strict=True))
        columns = {
            "status": pa.array([ADDED] * len(entries), pa.int32()),
            "file_path": pa.array([entry["file_path"] for entry in entries], pa.string()),
            "content_offset": pa.array([entry.get("content_offset") for entry in entries], pa.int64()),
            "sequence_number": pa.array([UNBOUND] * len(entries), pa.int64()),
            "record_count": pa.array([len(each.positions) for each in job.deletes], pa.int64()),
        }
        identities = pa.table(columns, schema=_IDENTITY)
        values = pa.array(encoded_entries(entries, text), pa.binary())
        tuples = [self.tuples[key] for key in {each.key for each in job.deletes}]
        row = list_row(DELETES, identities, tuples, spec, self.table.metadata) | {"min_sequence_number": None}
        staged = {task: StagedFile(path=path) for task, path in own.items()}
        return staged | {job.task: self._written(paths[job.task], text, header, values, row, identities)}

    def _added(self, job: AddedFiles, path: str) -> StagedFile:
        text, header = self._header(job.spec_id, DATA)
        spec = self.table.metadata.partition_spec(job.spec_id)
        assert spec is not None  # without it there is no commit
        ids = [field.field_id for field in spec.fields]
        partitions = {key: self.tuples[key] for _, key in job.files}
        entries = [
            entry_of(
                file, dict(zip(ids, partitions[key], strict=True)), job.sequence_number, self.snapshot_id
            )
            for file, key in job.files
        ]
        columns = {
            "status": pa.array([ADDED] * len(entries), pa.int32()),
            "file_path": pa.array([file.path for file, _ in job.files], pa.string()),
            "content_offset": pa.nulls(len(entries), pa.int64()),
            "sequence_number": pa.array([job.sequence_number] * len(entries), pa.int64()),
            "record_count": pa.array([file.metrics.record_count for file, _ in job.files], pa.int64()),
        }
        identities = pa.table(columns, schema=_IDENTITY)
        try:
            values = pa.array(encoded_entries(entries, text), pa.binary())
        except ValueError as error:
            raise CorruptFile(path, "entries", str(error)) from error
        row = list_row(DATA, identities, partitions.values(), spec, self.table.metadata)
        return self._written(path, text, header, values, row, identities)

    def _carried(self, job: CarriedEntries, path: str) -> StagedFile:
        text, header = self._header(job.spec_id, job.content)
        spec = self.table.metadata.partition_spec(job.spec_id)
        assert spec is not None  # its entries were read by it
        entries = self.files.data if job.content == DATA else self.files.deletes
        owners, indices = entries["manifest"].to_numpy(), entries["entry"].to_numpy()
        mine = np.flatnonzero(np.isin(owners, job.replaced))
        mine = mine[np.lexsort((indices[mine], owners[mine]))]
        own = entries.take(pa.array(mine))
        is_removed = np.concatenate(
            [np.isin(indices[mine][owners[mine] == row], job.removed[row]) for row in sorted(job.replaced)]
        )
        columns = {
            "status": pa.array(np.where(is_removed, DELETED, EXISTING).astype(np.int32)),
            "file_path": own["path"],
            "content_offset": own["offset"] if job.content != DATA else pa.nulls(len(own), pa.int64()),
            "sequence_number": own["sequence_number"],
            "record_count": own["record_count"],
        }
        identities = pa.table(columns, schema=_IDENTITY)
        keys = pc.unique(own["key"]).to_pylist()
        row = list_row(job.content, identities, [self.tuples[key] for key in keys], spec, self.table.metadata)
        if job.content == DATA and self.table.metadata.format_version >= WITH_ROW_IDS:
            has_ids = own["first_row_id"].is_valid().to_numpy()
            row["all_rows_have_ids"] = bool(has_ids[~is_removed].all())
        return self._written(path, text, header, self._values(job, text), row, identities)

    def _values(self, job: CarriedEntries, schema_text: str) -> pa.Array:
        """The encodings of the entries of the manifests that are replaced, manifest by manifest."""
        rows = self.files.head.rows
        phase = "reading manifests again"
        return pa.concat_arrays(
            carried_values(
                self.table,
                rows,
                job.removed,
                schema_text=schema_text,
                phase=phase,
                removed_by=self.snapshot_id,
            )
        )

    def _header(self, spec_id: int, content: int) -> tuple[str, dict[str, bytes]]:
        metadata = self.table.metadata
        spec = metadata.partition_spec(spec_id)
        assert spec is not None  # its entries were read by it
        return manifest_header(
            schema=schema_for(metadata, spec).to_json(),
            partition_spec=spec.to_json(),
            format_version=metadata.format_version,
            content=content,
        )

    def _written(
        self,
        path: str,
        text: str,
        header: dict[str, bytes],
        values: pa.Array,
        row: dict[str, Any],
        identities: pa.Table,
    ) -> StagedFile:
        data = manifest_data(path, text, header, values, codec=manifest_codec(self.table.metadata))
        back = stored(self.table.storage, path, data)
        if back != data:
            raise CorruptFile(path, None, "read back: other bytes than were written")
        _check(back, path, row, identities, has_numbers=self.snapshot_id is None)
        return StagedFile(path=path, row={**row, "manifest_path": path, "manifest_length": len(data)})


def entry_of(
    file: OutputFile, partition: Mapping[int, Any], sequence_number: int, snapshot_id: int | None
) -> dict[str, Any]:
    """The entry of a new file: what the commit gives is inherited, and so are row ids that no row has yet.

    Args:
        file: the file.
        partition: by field id, in Avro's representation.
        sequence_number: of its rows, that of the snapshot that they were read of.
        snapshot_id: see `ManifestsBuild`.
    """
    metrics = file.metrics
    return {
        "status": ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": sequence_number,
        "file_sequence_number": None,
        "content": DATA,
        "file_path": file.path,
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": metrics.record_count,
        "file_size_in_bytes": file.size_bytes,
        "column_sizes": metrics.column_sizes,
        "value_counts": metrics.value_counts,
        "null_value_counts": metrics.null_value_counts,
        "nan_value_counts": metrics.nan_value_counts,
        "lower_bounds": metrics.lower_bounds,
        "upper_bounds": metrics.upper_bounds,
        "split_offsets": list(metrics.split_offsets),
        "sort_order_id": file.sort_order_id,
        "first_row_id": None,
    }


def _check(
    data: bytes, path: str, row: Mapping[str, Any], identities: pa.Table, *, has_numbers: bool
) -> None:
    """Compare a manifest that was read back, decoded as the next reader will, with what was planned.

    Args:
        data: of the manifest.
        path: of it.
        row: of the manifest list.
        identities: `_IDENTITY` of its entries.
        has_numbers: whether entries have sequence numbers, as from version 2 on.

    Raises:
        CorruptFile: they differ.
    """
    names = [name for name in _IDENTITY.names if has_numbers or name != "sequence_number"]
    (batch,) = read_entries([open_manifest(source_of(path, data, row), data)], columns=names)
    for name in names:
        if not batch.table[name].combine_chunks().equals(identities[name].combine_chunks()):
            raise CorruptFile(path, f"field {name}", "read back: other values than were written")
