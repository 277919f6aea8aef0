"""inspect: rows of a version of a Delta table, without those that deletion vectors delete.

Spec: "Add File and Remove File", "Deletion Vectors", "Column Mapping", "Partition Value Serialization", "Type
Widening".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.inspect import rows as rows_of
from iceberg_cli.delta.inspect.files import num_records
from iceberg_cli.delta.spec.paths import dv_path, physical
from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import primitive
from iceberg_cli.delta.spec.text_values import value_of
from iceberg_cli.delta.spec.vectors import FRAME_BYTES, UNKNOWN, Vector, frame_of, read_inline
from iceberg_cli.encoding.deletion_vector import decode
from iceberg_cli.encoding.projection import (
    Field,
    FieldType,
    ListOf,
    MapOf,
    StructOf,
    arrow_type,
    concat_rows,
    find,
    has_ids,
    project,
    without_positions,
)
from iceberg_cli.encoding.row_batches import (
    FileSplit,
    parquet_batches,
    rows_at_once,
    splits_for,
)
from iceberg_cli.engines import FileParts, Scan, Source
from iceberg_cli.errors import CorruptFile, InvalidMetadata
from iceberg_cli.plan.sample import SampleInspector
from iceberg_cli.table.stored_files import true_sizes

if TYPE_CHECKING:
    from iceberg_cli.delta.spec.snapshot import Snapshot
    from iceberg_cli.delta.table import DeltaTable

Positions = npt.NDArray[np.uint64]

_ID: Final = "delta.columnMapping.id"
_NAME: Final = "delta.columnMapping.physicalName"
_MODE: Final = "delta.columnMapping.mode"
_MOST_FILES: Final = 512  # at once
_ROUND_BYTES: Final = 256 << 20  # of these
_NULL_NOTE: Final = "its values are shown as null, for they are not read here"


class _DataFile(NamedTuple):
    """A data file, or a part of one, to be read.

    Args:
        path: its storage path.
        size_bytes: of the file.
        records: in it, as far as the log says.
        split: the part.
        constants: values of partition columns, by the physical name.
        deleted: the frame of its deletion vector, checked; empty for none.
    """

    path: str
    size_bytes: int
    records: int
    split: FileSplit
    constants: Mapping[str, str | None]
    deleted: bytes


class _VectorOfFile(NamedTuple):
    """A deletion vector in a file, and the data file whose it is by its place among those that are read."""

    path: str
    vector: Vector
    place: int


class VersionSample(SampleInspector):
    """Reads rows of one version of one table.

    Args:
        table: opened.
        snapshot: the version.
        columns: see `SampleInspector`.
        as_of_ms: the "now" of the document.
    """

    def __init__(
        self, *, table: DeltaTable, snapshot: Snapshot, columns: Sequence[str], as_of_ms: int
    ) -> None:
        super().__init__(columns=columns)
        self._table, self._snapshot, self._as_of_ms = table, snapshot, as_of_ms

    @property
    def location(self) -> str:
        """The table's folder."""
        return self._table.location

    @property
    def _state_warnings(self) -> Sequence[str]:
        return (*self._snapshot.warnings, *self._snapshot.left_out)

    def header(self, what: str) -> dict[str, Any]:
        """The first fields of the document."""
        return rows_of.header(self._snapshot, what, table=self._table.identity, as_of_ms=self._as_of_ms)

    def _every_field(self) -> Sequence[tuple[Field, str, str]]:
        return columns_of(self._snapshot.metadata)

    def _rows(self, fields: Sequence[Field], limit: int | None) -> Iterator[pa.Table]:
        left = limit
        adds = self._snapshot.adds.select(["path", "partitionValues", "size", "stats", "deletionVector"])
        records = pc.fill_null(num_records(self._snapshot.adds), -1)
        adds = adds.append_column("records", records).sort_by([("size", "ascending"), ("path", "ascending")])
        start = 0
        while start < adds.num_rows:
            some = adds.slice(start, _enough(adds.slice(start), left)).combine_chunks()
            start += some.num_rows
            for table in self._of_files(fields, some, left):
                yield table
                if left is not None:
                    left -= table.num_rows
                    if left <= 0:
                        return

    def _of_files(self, fields: Sequence[Field], adds: pa.Table, limit: int | None) -> Iterator[pa.Table]:
        frames = self._frames(adds)
        paths = [physical(path, self._table.root) for path in adds["path"].to_pylist()]
        sizes, notes = true_sizes(self._table, paths, adds["size"].to_pylist())
        self.notes += notes
        items = [
            _DataFile(
                path=paths[place],
                size_bytes=sizes[place],
                records=row["records"],
                split=split,
                constants=dict(row["partitionValues"] or ()),
                deleted=frames[place],
            )
            for place, row in enumerate(
                adds.select(["path", "size", "records", "partitionValues"]).to_pylist()
            )
            for split in splits_for(sizes[place], row["records"], limit)
        ]
        metadata = self._snapshot.metadata
        reader = _RowReader(
            fields=tuple(fields),
            partitioned=tuple(
                field for field, _, _ in columns_of(metadata) if field.name in metadata.partition_columns
            ),
            needs_ids=metadata.configuration.get(_MODE) == "id",
            limit=limit,
        )
        scan: Scan[_DataFile, pa.Table, pa.Table] = Scan(
            lambda file: Source(file.path, file.size_bytes),
            reader,
            _joined,
            phase="reading data files",
            in_parts=True,
        )
        return self._table.engine.scan(scan, items, on_event=self._table.on_event)

    def _frames(self, adds: pa.Table) -> list[bytes]:
        """The frames of the deletion vectors of data files, empty where there is none.

        Raises:
            CorruptFile: one is damaged, or not there.
        """
        frames = [b""] * adds.num_rows
        by_file: dict[str, list[_VectorOfFile]] = {}
        paths = adds["path"].to_pylist()
        for place, descriptor in enumerate(adds["deletionVector"].to_pylist()):
            if descriptor is None:
                continue
            vector = Vector(
                descriptor["offset"] or 0, descriptor["sizeInBytes"], descriptor["cardinality"], UNKNOWN
            )
            text = descriptor["pathOrInlineDv"]
            path = dv_path(descriptor["storageType"], text, self._table.root)
            if path is None:
                frames[place] = read_inline(text, vector, paths[place])
            else:
                by_file.setdefault(path, []).append(_VectorOfFile(path, vector, place))
        scan: Scan[list[_VectorOfFile], list[tuple[int, bytes]], list[tuple[int, bytes]]] = Scan(
            lambda vectors: Source(vectors[0].path),
            _read_vectors,
            _chained,
            phase="reading deletion vectors",
            in_parts=True,
        )
        for pairs in self._table.engine.scan(scan, list(by_file.values()), on_event=self._table.on_event):
            for place, frame in pairs:
                frames[place] = frame
        return frames


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowReader:
    """Reads rows of data files, where an engine runs it.

    Args:
        fields: of the rows.
        partitioned: those of the table whose values the log has.
        needs_ids: whether columns are found by their ids alone.
        limit: of each part at most so many rows; None: all.
    """

    fields: tuple[Field, ...]
    partitioned: tuple[Field, ...]
    needs_ids: bool
    limit: int | None

    def __call__(self, file: _DataFile, parts: FileParts) -> pa.Table:
        """The rows of a part that are not deleted.

        Raises:
            CorruptFile: the file cannot be read. Refused: it is encrypted.
        """
        in_log = {field.name: _constant(field, file) for field in self.partitioned}
        stored = [field for field in self.fields if field.name not in in_log]

        def choose(own: Sequence[pa.Field]) -> list[int]:
            by_ids = self.needs_ids and self._with_ids(own, file.path)
            places = {find(field, own, by_ids=by_ids) for field in stored if field.is_readable}
            return sorted(place for place in places if place is not None)

        gone: Positions = np.empty(0, np.uint64)
        if file.deleted:
            gone = decode(file.deleted, file.path).positions()
        found: list[pa.Table] = []
        total = 0
        batch_rows = rows_at_once(file.size_bytes, file.records, self.limit)
        for batch in parquet_batches(parts, file.path, choose, split=file.split, batch_rows=batch_rows):
            rows = project(
                batch.columns,
                batch.fields,
                stored,
                count=batch.count,
                by_ids=self.needs_ids,
                constants={},
                mismatch_is_null=True,
            )
            columns = {name: (rows.schema.field(name), rows[name]) for name in rows.column_names} | {
                field.name: (field.arrow(), pa.repeat(in_log[field.name], batch.count))
                for field in self.partitioned
            }
            chosen = [columns[field.name] for field in self.fields]
            schema = pa.schema([field for field, _ in chosen])
            rows = pa.table([values for _, values in chosen], schema=schema)
            rows = without_positions(rows, batch.first, gone)
            found.append(rows)
            total += rows.num_rows
            if self.limit is not None and total >= self.limit:
                break
        schema = pa.schema([field.arrow() for field in self.fields])
        return concat_rows([schema.empty_table(), *found]).slice(0, self.limit)

    def _with_ids(self, own: Sequence[pa.Field], path: str) -> bool:
        if not has_ids(own):
            raise CorruptFile(
                path, None, "it has no field ids, and the table finds columns by these (mode id)"
            )
        return True


def _constant(field: Field, file: _DataFile) -> pa.Scalar:
    """The value of a partition column of a file.

    Raises:
        CorruptFile: the log has a text that is no value of the column's type.
    """
    kind = arrow_type(field.type)
    text = next((file.constants[name] for name in field.names if name in file.constants), None)
    value = value_of(text, kind)
    if value is None and text:
        raise CorruptFile(file.path, f"partitionValues.{field.name}", f"{text!r} is no value of type {kind}")
    return pa.scalar(value, kind) if not isinstance(value, int) else pa.array([value], kind)[0]


def _read_vectors(vectors: Sequence[_VectorOfFile], parts: FileParts) -> list[tuple[int, bytes]]:
    """The frames of deletion vectors in one file, checked, by the places of their data files."""
    version = parts.read(0, 1)
    return [
        (
            each.place,
            frame_of(
                each.path,
                version,
                parts.read(each.vector.offset, each.vector.size_bytes + FRAME_BYTES),
                each.vector,
            ),
        )
        for each in vectors
    ]


def _joined(some: Sequence[tuple[Any, pa.Table | None]]) -> pa.Table:
    return concat_rows([table for _, table in some if table is not None])


def _chained(some: Sequence[tuple[Any, list[tuple[int, bytes]] | None]]) -> list[tuple[int, bytes]]:
    return [pair for _, pairs in some for pair in pairs or ()]


def _enough(adds: pa.Table, left: int | None) -> int:
    """How many data files are read at once: as many as have the rows that are left, and at least one."""
    records = np.cumsum(np.maximum(adds["records"].to_numpy(), 1))
    sizes = np.cumsum(adds["size"].to_numpy())
    most = min(_MOST_FILES, int(np.searchsorted(sizes, _ROUND_BYTES)) + 1)
    return most if left is None else max(1, min(most, int(np.searchsorted(records, left)) + 1))


# -- columns -----------------------------------------------------------------------------------------------------


def columns_of(metadata: Metadata) -> list[tuple[Field, str, str]]:
    """The columns of a version, each with its type as text, and how its values are shown where not as they are.

    Raises:
        CorruptFile: the schema is no struct. InvalidMetadata: a type is none.
    """
    mapped = metadata.configuration.get(_MODE, "none").lower() != "none"
    return [
        (_field(each, mapped=mapped), type_text(each.get("type")), _note(each.get("type")))
        for each in schema_fields(metadata)
    ]


def _field(field: Mapping[str, Any], *, mapped: bool) -> Field:
    stated = field.get("metadata") or {}
    field_id = stated.get(_ID) if mapped else None
    kind, is_readable = _type(field.get("type"), mapped=mapped)
    return Field(
        name=field["name"],
        type=kind,
        field_id=field_id if isinstance(field_id, int) else None,
        names=(stated.get(_NAME, field["name"]) if mapped else field["name"],),
        is_readable=is_readable,
    )


def _type(type_: Any, *, mapped: bool) -> tuple[FieldType, bool]:
    """A type for reading, and whether its values are read."""
    if not isinstance(type_, Mapping):
        found = primitive(type_)
        return (pa.null(), False) if found is None else (found, True)
    match type_.get("type"):
        case "struct":
            return StructOf(tuple(_field(each, mapped=mapped) for each in type_["fields"])), True
        case "array":
            return ListOf(_item("element", type_.get("elementType"), mapped=mapped)), True
        case "map":
            key, value = type_.get("keyType"), type_.get("valueType")
            return MapOf(_item("key", key, mapped=mapped), _item("value", value, mapped=mapped)), True
    raise InvalidMetadata("metaData.schemaString", "type", f"{type_.get('type')!r} is no type")


def _item(name: str, type_: Any, *, mapped: bool) -> Field:
    kind, is_readable = _type(type_, mapped=mapped)
    return Field(name=name, type=kind, is_readable=is_readable)


def type_text(type_: Any) -> str:
    """A type as text, such as `array<struct<a: long>>`."""
    if not isinstance(type_, Mapping):
        return str(type_)
    match type_.get("type"):
        case "struct":
            inner = ", ".join(f"{each['name']}: {type_text(each['type'])}" for each in type_["fields"])
            return f"struct<{inner}>"
        case "array":
            return f"array<{type_text(type_.get('elementType'))}>"
        case _:
            return f"map<{type_text(type_.get('keyType'))}, {type_text(type_.get('valueType'))}>"


def _note(type_: Any) -> str:
    if not isinstance(type_, Mapping):
        return _NULL_NOTE if primitive(type_) is None else ""
    inner = [each.get("type") for each in type_.get("fields", ())]
    inner += [type_[name] for name in ("elementType", "keyType", "valueType") if name in type_]
    return next((note for note in map(_note, inner) if note), "")
