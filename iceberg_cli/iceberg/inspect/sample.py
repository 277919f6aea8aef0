"""inspect: rows of a snapshot, as a reader sees them: what deletes hide is left out.

Manifests and data files are read a few at a time, until there are as many rows as are asked for. Delete manifests are
read once: any of them may hide a row.

Spec: "Scan Planning", "Column Projection", "Deletion Vectors", "Position Delete Files", "Equality Delete Files".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.deletion_vector import decode, encode
from iceberg_cli.encoding.projection import Field
from iceberg_cli.encoding.row_batches import FileSplit, splits_for
from iceberg_cli.engines import FileParts, Scan, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.container import encrypted_file
from iceberg_cli.iceberg.inspect import metadata_rows as rows_of
from iceberg_cli.iceberg.inspect.data_files import (
    DataFile,
    EqualityColumns,
    RowReader,
    batches,
    columns_for,
    keys_of,
)
from iceberg_cli.iceberg.inspect.data_files import rows_of as projected
from iceberg_cli.iceberg.inspect.table_columns import columns_of, scalar_of
from iceberg_cli.iceberg.reachability.keys import live
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.reachability.scan import Reachability
from iceberg_cli.iceberg.spec.columns import column_types
from iceberg_cli.iceberg.spec.partition_keys import in_spec_order, partition_keys
from iceberg_cli.iceberg.spec.position_deletes import FILE_PATH_ID, POS_ID, read_position_deletes
from iceberg_cli.iceberg.spec.snapshot import BRANCH
from iceberg_cli.iceberg.spec.transforms import parse, result_type
from iceberg_cli.plan.sample import SampleInspector

if TYPE_CHECKING:
    from iceberg_cli.iceberg.spec.manifest import EntryBatch, ManifestSource
    from iceberg_cli.iceberg.spec.metadata import PartitionSpec, Snapshot, TableMetadata
    from iceberg_cli.iceberg.spec.schema import Schema
    from iceberg_cli.iceberg.table import IcebergTable
    from iceberg_cli.plan.inspection import StateSelector

_COLUMNS: Final = (
    "status", "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes",
    "sequence_number", "key_metadata",
)  # fmt: skip
_DELETE_COLUMNS: Final = (
    *_COLUMNS, "equality_ids", "referenced_data_file", "content_offset", "content_size_in_bytes", "lower_bounds",
    "upper_bounds",
)  # fmt: skip
_MOST_FILES: Final = 512  # data files at once
_ROUND_BYTES: Final = 256 << 20  # of these
_MOST_MANIFESTS: Final = 64  # at once
_DATA_PHASE: Final = "reading data files"
_DELETE_PHASE: Final = "reading delete files"
_POSITION_FIELDS: Final = (
    Field(name="file_path", type=pa.string(), field_id=FILE_PATH_ID, names=("file_path",)),
    Field(name="pos", type=pa.int64(), field_id=POS_ID, names=("pos",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """Live entries of one partition spec.

    Args:
        table: their columns, `key` (of spec and partition) and `everywhere` (whether the spec has no partitions).
        spec_id: of the spec.
        keys: each once.
        partitions: those of the keys.
    """

    table: pa.Table
    spec_id: int
    keys: pa.Array
    partitions: pa.StructArray


@dataclass(frozen=True, slots=True, kw_only=True)
class _EntryReader:
    """Reads entries where an engine decodes them: adds the key of each entry's partition.

    Args:
        specs: of the table, by id.
        types: of its columns, by field id.
    """

    specs: Mapping[int, PartitionSpec]
    types: Mapping[int, Any]

    def __call__(self, sources: Sequence[ManifestSource], batch: EntryBatch) -> list[_Entries]:
        """Live entries, by partition spec.

        Raises:
            CorruptFile: a partition does not fit its spec. Refused: a file is encrypted.
        """
        entries = live(batch.table).combine_chunks()
        encrypted = entries.filter(pc.is_valid(entries["key_metadata"]))
        if encrypted.num_rows:
            raise encrypted_file(encrypted["file_path"][0].as_py(), "its manifest has key_metadata for it")
        owners = entries["manifest"].to_numpy()
        spec_ids = np.array([source.partition_spec_id or 0 for source in sources], np.int32)[owners]
        return [
            self._of_spec(
                spec_id,
                entries.filter(pa.array(spec_ids == spec_id)).combine_chunks(),
                batch.partition_ids,
                sources[owners[0]].path,
            )
            for spec_id in np.unique(spec_ids).tolist()
        ]

    def _of_spec(self, spec_id: int, entries: pa.Table, ids: Sequence[int | None], path: str) -> _Entries:
        spec = self.specs.get(spec_id)
        if spec is None:
            reason = f"its manifest list says partition spec {spec_id}, which is not there"
            raise CorruptFile(path, None, reason)
        try:
            partitions = in_spec_order(entries["partition"].combine_chunks(), ids, spec)
        except ValueError as error:
            raise CorruptFile(path, "field partition", str(error)) from error
        keys = partition_keys(spec_id, partitions, self._types_of(spec))
        _, first = np.unique(keys.dictionary_encode().indices.to_numpy(), return_index=True)
        everywhere = all(each.transform == "void" for each in spec.fields)
        table = entries.drop_columns(["partition", "manifest"]).append_column("key", keys)
        return _Entries(
            table=table.append_column("everywhere", pa.array([everywhere] * len(entries), pa.bool_())),
            spec_id=spec_id,
            keys=keys.take(pa.array(first)),
            partitions=partitions.take(pa.array(first)),
        )

    def _types_of(self, spec: PartitionSpec) -> list[str]:
        types = [self.types.get(each.source_id, "unknown") for each in spec.fields]
        return [
            result_type(parse(each.transform), type_) if isinstance(type_, str) else "unknown"
            for each, type_ in zip(spec.fields, types, strict=True)
        ]

    def constants(self, entries: Sequence[_Entries], keys: pa.Array) -> dict[bytes, dict[int, pa.Scalar]]:
        """Of partitions by their keys, the values of identity fields, by the id of the column.

        Args:
            entries: that have these partitions.
            keys: of those that are needed.
        """
        found: dict[bytes, dict[int, pa.Scalar]] = {}
        for each in entries:
            chosen = pc.is_in(each.keys, value_set=keys)
            pairs = zip(
                each.keys.filter(chosen).to_pylist(), each.partitions.filter(chosen).to_pylist(), strict=True
            )
            spec = self.specs[each.spec_id]
            found |= {key: self._identities(spec, values) for key, values in pairs}
        return found

    def _identities(self, spec: PartitionSpec, values: Mapping[str, Any]) -> dict[int, pa.Scalar]:
        return {
            each.source_id: scalar_of(self.types[each.source_id], values[str(each.field_id)])
            for each in spec.fields
            if each.transform == "identity"
            and isinstance(self.types.get(each.source_id), str)
            and values[str(each.field_id)] is not None
        }


class SnapshotSample(SampleInspector):
    """Reads rows of one snapshot of one table.

    Args:
        table: opened and loaded.
        snapshot: None for a table without data.
        schema: whose columns rows have.
        columns: see `SampleInspector`.
        as_of_ms: the "now" of the document.
    """

    def __init__(
        self,
        *,
        table: IcebergTable,
        snapshot: Snapshot | None,
        schema: Schema,
        columns: Sequence[str],
        as_of_ms: int,
    ) -> None:
        super().__init__(columns=columns)
        self._table, self._snapshot, self._schema, self._as_of_ms = table, snapshot, schema, as_of_ms
        self._reachability = Reachability(
            engine=table.engine, on_event=table.on_event, trust_lists=table.trust_lists
        )

    @property
    def location(self) -> str:
        """The table's folder."""
        return self._table.location

    @property
    def _state_warnings(self) -> Sequence[str]:
        return ()

    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document."""
        table = self._table
        head = rows_of.header(
            table.metadata,
            what,
            table=table.identity,
            metadata_location=table.metadata_location,
            as_of_ms=self._as_of_ms,
        )
        return head | {"snapshot_id": None if self._snapshot is None else str(self._snapshot.snapshot_id)}

    def _every_field(self) -> Sequence[tuple[Field, str, str]]:
        metadata = self._table.metadata
        return columns_of(self._schema, metadata.properties, path=self._table.metadata_location)

    # -- files -----------------------------------------------------------------------------------------------------

    def _rows(self, fields: Sequence[Field], limit: int | None) -> Iterator[pa.Table]:
        left = limit
        for entries in self._data_entries():
            files = pa.concat_tables([each.table for each in entries]).sort_by(
                [("file_size_in_bytes", "ascending"), ("file_path", "ascending")]
            )
            start = 0
            while start < files.num_rows:
                some = files.slice(start, _enough(files.slice(start), left))
                start += some.num_rows
                constants = self._entry_reader.constants(entries, some["key"].combine_chunks())
                for table in self._of_files(fields, some.combine_chunks(), constants, left):
                    yield table
                    if left is not None:
                        left -= table.num_rows
                        if left <= 0:
                            return

    def _of_files(
        self,
        fields: Sequence[Field],
        files: pa.Table,
        constants: Mapping[bytes, Mapping[int, pa.Scalar]],
        limit: int | None,
    ) -> Iterator[pa.Table]:
        """Rows of data files.

        Args:
            fields: of the rows.
            files: entries.
            constants: of their partitions.
            limit: at most about so many rows.
        """
        hidden = self._deletes.of(files)
        data = [
            DataFile(
                path=path,
                file_format=file_format.lower(),
                size_bytes=size_bytes,
                record_count=records,
                split=split,
                constants=constants[key],
                vectors=hidden.vectors.get(path, ()),
                equality_deletes=hidden.equality[place],
            )
            for place, (path, file_format, size_bytes, records, key) in enumerate(
                zip(
                    *(files[name].to_pylist() for name in ("file_path", "file_format", "file_size_in_bytes",
                                                           "record_count", "key")),
                    strict=True,
                )
            )
            for split in (
                splits_for(size_bytes, records, limit) if file_format.lower() == "parquet" else [FileSplit()]
            )
        ]  # fmt: skip
        reader = RowReader(fields=tuple(fields), equality=hidden.columns, deleted=hidden.keys, limit=limit)
        scan: Scan[DataFile, pa.Table, pa.Table] = Scan(
            lambda file: Source(file.path, file.size_bytes),
            reader,
            _joined,
            phase=_DATA_PHASE,
            in_parts=True,
        )
        return self._table.engine.scan(scan, data, on_event=self._table.on_event)

    def _data_entries(self) -> Iterator[list[_Entries]]:
        """The entries of data manifests, of one first and then of more and more at a time."""
        manifests = self._manifests.filter(pc.equal(self._manifests["content"], 0))
        start, count = 0, 1
        while start < manifests.num_rows:
            some = manifests.slice(start, count)
            start, count = start + count, min(2 * count, _MOST_MANIFESTS)
            parts = self._reachability.from_entries(
                some, _COLUMNS, self._entry_reader, phase="reading data manifests"
            )
            entries = [each for part in parts for each in part if each.table.num_rows]
            if entries:
                yield entries

    @cached_property
    def _manifests(self) -> pa.Table:
        snapshots = () if self._snapshot is None else (snapshot_files(self._snapshot),)
        return self._reachability.manifests(snapshots, phase="reading the manifest list", required=True).rows

    @cached_property
    def _entry_reader(self) -> _EntryReader:
        metadata = self._table.metadata
        return _EntryReader(
            specs={spec.spec_id: spec for spec in metadata.partition_specs}, types=column_types(metadata)
        )

    @cached_property
    def _deletes(self) -> _Deletes:
        manifests = self._manifests.filter(pc.equal(self._manifests["content"], 1))
        parts = self._reachability.from_entries(
            manifests, _DELETE_COLUMNS, self._entry_reader, phase="reading delete manifests"
        )
        tables = [_without_maps(each.table) for part in parts for each in part]
        metadata = self._table.metadata
        schemas = [metadata.current_schema(), *reversed(metadata.schemas)]
        path = self._table.metadata_location
        return _Deletes(
            entries=pa.concat_tables(tables).combine_chunks() if tables else None,
            schemas=[
                [field for field, _, _ in columns_of(each, metadata.properties, path=path)]
                for each in schemas
            ],
            table=self._table,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hidden:
    """What deletes hide of some data files.

    Args:
        vectors: by the path of a data file, blobs of positions.
        equality: for each data file the columns that are compared, and the delete files.
        columns: by the field ids of `equality`.
        keys: by the paths of delete files, the keys of their rows.
    """

    vectors: Mapping[str, tuple[bytes, ...]]
    equality: Sequence[tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]]
    columns: Mapping[tuple[int, ...], EqualityColumns]
    keys: Mapping[str, pa.Array]


@dataclass(kw_only=True)
class _Deletes:
    """The delete entries of a snapshot, and what they hide of data files, read as it is needed.

    Args:
        entries: None where there are none.
        schemas: columns of the table's schemas, the current one first.
        table: whose storage has the files.
    """

    entries: pa.Table | None
    schemas: Sequence[Sequence[Field]]
    table: IcebergTable
    _keys: dict[str, pa.Array] = field(default_factory=dict)

    def of(self, files: pa.Table) -> _Hidden:
        """What is hidden of some data files.

        Args:
            files: their entries.

        Raises:
            CorruptFile: a delete file cannot be read, or there are two deletion vectors for a data file.
        """
        if self.entries is None:
            return _Hidden(vectors={}, equality=[()] * files.num_rows, columns={}, keys={})
        entries = self.entries
        puffin = pc.equal(pc.utf8_lower(entries["file_format"]), "puffin")
        position = pc.equal(entries["content"], 1)
        vectors = self._vectors(files, entries.filter(pc.and_(position, puffin)))
        others = self._positions(
            files.filter(
                pc.invert(pc.is_in(files["file_path"], value_set=pa.array(list(vectors), pa.string())))
            ),
            entries.filter(pc.and_(position, pc.invert(puffin))),
        )
        equality, columns, keys = self._equality(files, entries.filter(pc.equal(entries["content"], 2)))
        return _Hidden(vectors=vectors | others, equality=equality, columns=columns, keys=keys)

    # -- deletion vectors and position deletes -----------------------------------------------------------------------

    def _vectors(self, files: pa.Table, entries: pa.Table) -> dict[str, tuple[bytes, ...]]:
        """Deletion vectors of data files: one that is older than its data file is none of it."""
        sequence_numbers = dict(_columns(files, "file_path", "sequence_number"))
        named = entries.filter(pc.is_in(entries["referenced_data_file"], value_set=files["file_path"]))
        by_file: dict[str, list[_Vector]] = {}
        seen: set[str] = set()
        for path, size, offset, length, records, ref, sequence_number in _columns(
            named, "file_path", "file_size_in_bytes", "content_offset", "content_size_in_bytes", "record_count",
            "referenced_data_file", "sequence_number",
        ):  # fmt: skip
            if sequence_number < sequence_numbers[ref]:
                continue
            if ref in seen:
                raise CorruptFile(path, offset, f"another deletion vector for {ref} is live, too")
            if offset is None or length is None:
                raise CorruptFile(
                    path, "content_offset", f"the manifest does not say where the vector of {ref} is"
                )
            seen.add(ref)
            by_file.setdefault(path, []).append(_Vector(path, size, offset, length, records, ref))
        scan: Scan[list[_Vector], list[tuple[str, bytes]], list[tuple[str, bytes]]] = Scan(
            lambda vectors: Source(vectors[0].path, vectors[0].size_bytes),
            _read_vectors,
            _chained,
            phase=_DELETE_PHASE,
            in_parts=True,
        )
        found: dict[str, tuple[bytes, ...]] = {}
        for pairs in self.table.engine.scan(scan, list(by_file.values()), on_event=self.table.on_event):
            found |= {ref: (blob,) for ref, blob in pairs}
        return found

    def _positions(self, files: pa.Table, entries: pa.Table) -> dict[str, tuple[bytes, ...]]:
        """Position deletes of data files: of their partition, and not older than they are."""
        if not files.num_rows:
            return {}
        oldest = pc.min(files["sequence_number"])
        entries = entries.filter(
            pc.and_(
                pc.is_in(entries["key"], value_set=files["key"]),
                pc.greater_equal(entries["sequence_number"], oldest),
            )
        )
        paths = sorted(files["file_path"].to_pylist())
        entries = entries.filter(pa.array(_may_name(entries, paths), pa.bool_()))
        reader = _PositionReader(frozenset(paths))
        scan: Scan[_DeleteFile, pa.Table, pa.Table] = Scan(
            lambda file: Source(file.path, file.size_bytes),
            reader,
            _joined,
            phase=_DELETE_PHASE,
            in_parts=True,
        )
        columns = _columns(entries, "file_path", "file_format", "file_size_in_bytes", "record_count")
        items = [_DeleteFile(path, kind.lower(), size, records) for path, kind, size, records in columns]
        of_delete = {
            path: (key, number)
            for path, key, number in _columns(entries, "file_path", "key", "sequence_number")
        }
        of_data = {
            path: (key, number)
            for path, key, number in _columns(files, "file_path", "key", "sequence_number")
        }
        found: dict[str, tuple[bytes, ...]] = {}
        for parts in self.table.engine.scan(scan, items, on_event=self.table.on_event):
            for source, path, blob in _columns(parts, "source", "path", "blob"):
                delete_key, delete_number = of_delete[source]
                data_key, data_number = of_data[path]
                if delete_key == data_key and delete_number >= data_number:
                    found[path] = (*found.get(path, ()), blob)
        return found

    # -- equality deletes --------------------------------------------------------------------------------------------

    def _equality(
        self, files: pa.Table, entries: pa.Table
    ) -> tuple[
        list[tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]],
        dict[tuple[int, ...], EqualityColumns],
        dict[str, pa.Array],
    ]:
        """Equality deletes of data files: of their partition or of none, and newer than they are."""
        oldest = pc.min(files["sequence_number"])
        entries = entries.filter(
            pc.and_(
                pc.or_(entries["everywhere"], pc.is_in(entries["key"], value_set=files["key"])),
                pc.greater(entries["sequence_number"], oldest),
            )
        )
        numbers = entries["sequence_number"].to_numpy()
        everywhere = np.asarray(entries["everywhere"].combine_chunks())
        # Keys of both from one dictionary, so that numbers are compared and not bytes.
        codes = pc.dictionary_encode(
            pa.chunked_array([*entries["key"].chunks, *files["key"].chunks], pa.binary())
        )
        places = codes.combine_chunks().indices.to_numpy()
        own, data = places[: len(numbers)], places[len(numbers) :]
        paths = entries["file_path"].to_pylist()
        ids = [tuple(each or ()) for each in entries["equality_ids"].to_pylist()]
        applied: list[tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]] = []
        for key, number in zip(data.tolist(), files["sequence_number"].to_pylist(), strict=True):
            chosen = np.flatnonzero((everywhere | (own == key)) & (numbers > number)).tolist()
            groups: dict[tuple[int, ...], list[str]] = {}
            for place in chosen:
                groups.setdefault(ids[place], []).append(paths[place])
            applied.append(tuple((each, tuple(some)) for each, some in groups.items()))
        used = {path for groups in applied for _, some in groups for path in some}
        columns = self._compared(entries, {each for groups in applied for each, _ in groups})
        self._read_keys(entries, ids, used, columns)
        return applied, columns, {path: self._keys[path] for path in used}

    def _compared(
        self, entries: pa.Table, ids: set[tuple[int, ...]]
    ) -> dict[tuple[int, ...], EqualityColumns]:
        found = {}
        for each in ids:
            columns = columns_for(each, self.schemas) if each else None
            if columns is None:
                path = entries["file_path"][0].as_py()
                raise CorruptFile(path, "equality_ids", f"no schema has all the columns {list(each)}")
            found[each] = columns
        return found

    def _read_keys(
        self,
        entries: pa.Table,
        ids: Sequence[tuple[int, ...]],
        used: set[str],
        columns: Mapping[tuple[int, ...], EqualityColumns],
    ) -> None:
        self._keys = {path: keys for path, keys in self._keys.items() if path in used}
        names = ("file_path", "file_format", "file_size_in_bytes", "record_count")
        items = [
            (_DeleteFile(path, kind.lower(), size, records), columns[own])
            for (path, kind, size, records), own in zip(_columns(entries, *names), ids, strict=True)
            if path in used and path not in self._keys
        ]
        scan: Scan[tuple[_DeleteFile, EqualityColumns], tuple[str, pa.Array], list[tuple[str, pa.Array]]] = (
            Scan(
                lambda item: Source(item[0].path, item[0].size_bytes),
                _read_equality,
                _listed,
                phase=_DELETE_PHASE,
                in_parts=True,
            )
        )
        for pairs in self.table.engine.scan(scan, items, on_event=self.table.on_event):
            self._keys |= dict(pairs)


class _Vector(NamedTuple):
    """Where a deletion vector is."""

    path: str
    size_bytes: int
    offset: int
    length: int
    record_count: int
    data_file: str


class _DeleteFile(NamedTuple):
    """A file of position deletes or equality deletes."""

    path: str
    file_format: str
    size_bytes: int
    record_count: int


def schema_of(metadata: TableMetadata, snapshot: Snapshot | None, state: StateSelector) -> Schema:
    """The schema by which a snapshot is read, as other readers choose it.

    Args:
        metadata: of the table.
        snapshot: that was selected.
        state: what selected it: the current state and branches have the table's schema, all else the snapshot's.
    """
    ref = None if state.ref is None else metadata.refs.get(state.ref)
    is_live = not state.given() or (ref is not None and ref.type == BRANCH)
    schema_id = None if snapshot is None or is_live else snapshot.schema_id
    found = next((each for each in metadata.schemas if each.schema_id == schema_id), None)
    return metadata.current_schema() if found is None else found


def _read_vectors(vectors: Sequence[_Vector], parts: FileParts) -> list[tuple[str, bytes]]:
    """The blobs of deletion vectors in one Puffin file, checked, by the paths of their data files."""
    found = []
    for each in vectors:
        blob = parts.read(each.offset, each.length)
        if len(blob) != each.length:
            raise CorruptFile(
                each.path, each.offset, f"a deletion vector of {each.length} bytes is not inside the file"
            )
        try:
            decode(blob, each.path, cardinality=each.record_count)
        except CorruptFile as error:
            inside = error.offset if isinstance(error.offset, int) else 0
            raise CorruptFile(each.path, each.offset + inside, error.reason) from error
        found.append((each.data_file, blob))
    return found


@dataclass(frozen=True, slots=True)
class _PositionReader:
    """Reads which positions a file deletes of some data files: `source`, `path` and `blob` for each."""

    only: frozenset[str]

    def __call__(self, file: _DeleteFile, parts: FileParts) -> pa.Table:
        """Rows of `source`, `path` and `blob`."""
        if file.file_format == "parquet":
            data = parts.read(0, parts.size_bytes)
            read = read_position_deletes(data, file.path, record_count=file.record_count, only=self.only)
            return read.select(["source", "path", "blob"])
        found: dict[str, list[Any]] = {}
        whole = _as_data(file)
        for batch in batches(whole, parts, _POSITION_FIELDS, limit=None):
            rows = projected(batch, _POSITION_FIELDS, whole)
            if rows["file_path"].null_count or rows["pos"].null_count:
                raise CorruptFile(file.path, "field pos", "file_path and pos are required, and one is null")
            rows = rows.filter(pc.is_in(rows["file_path"], value_set=pa.array(sorted(self.only))))
            grouped = rows.group_by("file_path").aggregate([("pos", "list")])
            for path, positions in _columns(grouped, "file_path", "pos_list"):
                found.setdefault(path, []).append(positions)
        blobs = [
            encode(np.concatenate([np.array(some, np.uint64) for some in each])) for each in found.values()
        ]
        return pa.table(
            {
                "source": pa.array([file.path] * len(found), pa.string()),
                "path": pa.array(list(found), pa.string()),
                "blob": pa.array(blobs, pa.large_binary()),
            }
        )


def _read_equality(item: tuple[_DeleteFile, EqualityColumns], parts: FileParts) -> tuple[str, pa.Array]:
    """The keys of the rows of an equality delete file, each once."""
    file, columns = item
    whole = _as_data(file)
    keys = [
        pc.unique(keys_of(projected(batch, columns.fields, whole), columns))
        for batch in batches(whole, parts, columns.fields, limit=None)
    ]
    return file.path, pc.unique(pa.chunked_array(keys, pa.binary()))


def _as_data(file: _DeleteFile) -> DataFile:
    return DataFile(
        path=file.path,
        file_format=file.file_format,
        size_bytes=file.size_bytes,
        record_count=file.record_count,
    )


def _joined(some: Sequence[tuple[Any, pa.Table | None]]) -> pa.Table:
    return pa.concat_tables([table for _, table in some if table is not None])


def _chained(some: Sequence[tuple[Any, list[tuple[str, bytes]] | None]]) -> list[tuple[str, bytes]]:
    return [pair for _, pairs in some for pair in pairs or ()]


def _listed(some: Sequence[tuple[Any, tuple[str, pa.Array] | None]]) -> list[tuple[str, pa.Array]]:
    return [pair for _, pair in some if pair is not None]


def _columns(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _without_maps(entries: pa.Table) -> pa.Table:
    """Delete entries with the bounds of their data files' paths alone."""
    for name in ("lower_bounds", "upper_bounds"):
        bound = pc.map_lookup(entries[name].combine_chunks(), pa.scalar(FILE_PATH_ID, pa.int32()), "first")
        entries = entries.set_column(entries.schema.get_field_index(name), name, bound)
    return entries


def _may_name(entries: pa.Table, paths: Sequence[str]) -> list[bool]:
    """For each position delete file, whether it may name one of some data files, which are sorted.

    Upper bounds that were cut short without being raised are taken for the beginning of names.
    """
    encoded = [path.encode() for path in paths]
    known = set(paths)
    found = []
    for ref, lower, upper in _columns(entries, "referenced_data_file", "lower_bounds", "upper_bounds"):
        if ref is not None:
            found.append(ref in known)
        elif lower is None or upper is None:
            found.append(True)
        else:
            place = bisect_left(encoded, lower)
            near = encoded[place] if place < len(encoded) else None
            found.append(near is not None and (near <= upper or near.startswith(upper)))
    return found


def _enough(files: pa.Table, left: int | None) -> int:
    """How many of some data files are read at once: as many as have the rows that are left, and at least one."""
    records = np.cumsum(files["record_count"].to_numpy())
    sizes = np.cumsum(files["file_size_in_bytes"].to_numpy())
    most = min(_MOST_FILES, int(np.searchsorted(sizes, _ROUND_BYTES)) + 1)
    return most if left is None else max(1, min(most, int(np.searchsorted(records, left)) + 1))
