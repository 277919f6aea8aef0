"""Manifests as Arrow tables: strict reading, checks against the manifest list, inheritance.

Spec: "Manifests", "Sequence Number Inheritance", "First Row ID Inheritance"; Appendix A, "Avro".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.columns import Executor, decode_records
from iceberg_cli.iceberg.avro.container import Container, read_container
from iceberg_cli.iceberg.avro.projection import Projection, compile_plan
from iceberg_cli.iceberg.avro.schema import record_of
from iceberg_cli.iceberg.spec.manifests.manifest_list import (
    MANIFEST_LIST_SCHEMA,
    cast_column,
    read_manifest_list,
    read_manifest_lists,
)
from iceberg_cli.iceberg.spec.manifests.nameless_ids import identified_manifest

_ADDED, _DELETED = 1, 2
_MAX_ROW_ID = 1 << 62  # no table comes near it, and sums below it are exact enough to compare


class InheritedFields(Protocol):
    """The fields of a manifest list's row that are inherited."""

    @property
    def path(self) -> str: ...
    @property
    def content(self) -> int: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def added_snapshot_id(self) -> int | None: ...
    @property
    def first_row_id(self) -> int | None: ...


def inherit(entries: pa.Table, sources: Sequence[InheritedFields]) -> pa.Table:
    """Fill in what is null and inherited, in those of the columns that `entries` has.

    Args:
        entries: `manifest` (int32, index into `sources`, ascending), `status`, `record_count`, and any of
            `snapshot_id`, `sequence_number`, `file_sequence_number`, `first_row_id`. A manifest's entries must all be
            there and in file order, because row ids are assigned by position.
        sources: the manifests.

    Raises:
        CorruptFile: an EXISTING or DELETED entry of a manifest that has a sequence number lacks its own data sequence
            number. Its file sequence number stays null where it is.
    """
    files = entries["manifest"].to_numpy()
    status = entries["status"].to_numpy()
    for name in entries.column_names:
        column = entries[name].combine_chunks() if name in _INHERITED else None
        if column is None:
            continue
        match name:
            case "snapshot_id":
                column = _fill(column, _of(sources, "added_snapshot_id").take(array_of(files)))
            case "first_row_id":
                column = _row_ids(column, files, status, entries["record_count"].to_numpy(), sources)
            case _:
                column = _sequence_numbers(column, name, files, status, sources)
        entries = entries.set_column(entries.column_names.index(name), name, column)
    return entries


_INHERITED = ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")


def _of(sources: Sequence[InheritedFields], name: str) -> pa.Array:
    return pa.array([getattr(source, name) for source in sources], pa.int64())


def _fill(column: pa.Array, values: pa.Array) -> pa.Array:
    return column.fill_null(values) if column.null_count else column


def _sequence_numbers(
    column: pa.Array,
    name: str,
    files: npt.NDArray[np.int32],
    status: npt.NDArray[np.int32],
    sources: Sequence[InheritedFields],
) -> pa.Array:
    if not column.null_count:
        return column
    inherited = np.array([source.sequence_number for source in sources], np.int64)[files]
    null = column.is_null().to_numpy(zero_copy_only=False)
    wrong = null & (status != _ADDED) & (inherited > 0)
    if name == "file_sequence_number":
        # Writers from before this field was added (early v2) keep it null in files that they list again.
        return _fill(column, array_of(inherited, ~wrong))
    if wrong.any():
        row = int(np.argmax(wrong))
        reason = f"null in an entry of status {status[row]}, which must have its own"
        raise CorruptFile(sources[files[row]].path, f"field {name}", reason)
    return _fill(column, array_of(inherited))


def _row_ids(
    column: pa.Array,
    files: npt.NDArray[np.int32],
    status: npt.NDArray[np.int32],
    records: npt.NDArray[np.int64],
    sources: Sequence[InheritedFields],
) -> pa.Array:
    """Explicit ids stay; live data files without one get consecutive ranges in file order."""
    firsts = np.array(
        [-1 if s.first_row_id is None or s.content else s.first_row_id for s in sources], np.int64
    )
    first = firsts[files]
    null = column.is_null().to_numpy(zero_copy_only=False)
    assigned = null & (status != _DELETED) & (first >= 0)
    consumed = np.where(assigned, records, 0)
    if consumed.sum(dtype=np.float64) + float(firsts.max(initial=0)) >= float(_MAX_ROW_ID):
        raise CorruptFile(sources[0].path, "field first_row_id", "record counts that add up beyond 64 bits")
    before = np.cumsum(consumed) - consumed
    starts = np.searchsorted(files, np.arange(len(sources)))
    base = np.append(before, 0)[starts][files] if len(files) else before
    values = np.where(assigned, first + before - base, column.fill_null(0).to_numpy())
    return array_of(values, ~((null & ~assigned) | (first < 0)))


__all__ = [
    "ADDED",
    "DELETED",
    "ENTRY_COLUMNS",
    "EXISTING",
    "MANIFEST_LIST_SCHEMA",
    "EntryBatch",
    "ManifestMetadata",
    "ManifestSource",
    "inherit",
    "manifest_metadata",
    "read_entries",
    "read_manifest_list",
    "read_manifest_lists",
]

EXISTING, ADDED, DELETED = 0, 1, 2  # status
# By their names in the counts of a manifest list.
STATUSES = {"added": ADDED, "existing": EXISTING, "deleted": DELETED}
DATA, DELETES = 0, 1  # content of a manifest

_BATCH_BYTES = 64 << 20  # of inflated blocks that are decoded at once; more would only cost memory
_COUNTS = pa.map_(pa.int32(), pa.int64())
_BOUNDS = pa.map_(pa.int32(), pa.binary())


@dataclass(frozen=True, slots=True)
class _Column:
    ids: tuple[int, ...]
    type: pa.DataType | None  # None: the writer's own (the partition struct)
    required: bool = False


_COLUMNS = {
    "status": _Column((0,), pa.int32(), required=True),
    "snapshot_id": _Column((1,), pa.int64()),
    "sequence_number": _Column((3,), pa.int64()),
    "file_sequence_number": _Column((4,), pa.int64()),
    "content": _Column((2, 134), pa.int32()),
    "file_path": _Column((2, 100), pa.string(), required=True),
    "file_format": _Column((2, 101), pa.string(), required=True),
    "partition": _Column((2, 102), None, required=True),
    "record_count": _Column((2, 103), pa.int64(), required=True),
    "file_size_in_bytes": _Column((2, 104), pa.int64(), required=True),
    "column_sizes": _Column((2, 108), _COUNTS),
    "value_counts": _Column((2, 109), _COUNTS),
    "null_value_counts": _Column((2, 110), _COUNTS),
    "nan_value_counts": _Column((2, 137), _COUNTS),
    "lower_bounds": _Column((2, 125), _BOUNDS),
    "upper_bounds": _Column((2, 128), _BOUNDS),
    "key_metadata": _Column((2, 131), pa.binary()),
    "split_offsets": _Column((2, 132), pa.list_(pa.int64())),
    "equality_ids": _Column((2, 135), pa.list_(pa.int32())),
    "sort_order_id": _Column((2, 140), pa.int32()),
    "first_row_id": _Column((2, 142), pa.int64()),
    "referenced_data_file": _Column((2, 143), pa.string()),
    "content_offset": _Column((2, 144), pa.int64()),
    "content_size_in_bytes": _Column((2, 145), pa.int64()),
    "file_path_hash": _Column((2, 100), pa.uint64(), required=True),
}
ENTRY_COLUMNS = tuple(name for name in _COLUMNS if name != "file_path_hash")
_CHECKED = ("status", "content", "record_count")  # decoded always


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSource:
    """A manifest's bytes and its row of the manifest list. None where the list does not say."""

    path: str
    data: bytes = b""
    container: Container | None = None  # once opened; `data` is not needed any more then
    length: int | None = None  # bytes
    content: int = DATA
    partition_spec_id: int | None = None
    sequence_number: int = 0
    added_snapshot_id: int | None = None
    first_row_id: int | None = None
    added_files_count: int | None = None
    existing_files_count: int | None = None
    deleted_files_count: int | None = None


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Entries of manifests of one writer schema.

    `table`: `manifest` (int32, index into the sources that were read) and the wanted columns, in the order of the
    sources and of each file. `sources`: indices of all sources of this schema, also of those without entries.
    `partition_ids`: field ids of the partition struct's fields, None where the schema has none.
    """

    table: pa.Table
    sources: tuple[int, ...]
    partition_ids: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestMetadata:
    """The table metadata in a manifest's header; None where a key is absent (Flink writes no header at all)."""

    schema: str | None  # JSON
    schema_id: int | None
    partition_spec: str | None  # JSON, an array of partition fields
    partition_spec_id: int | None
    format_version: int | None
    content: int | None


@dataclass(slots=True)
class _Group:
    """Containers of one writer schema that are decoded together, and the rows decoded so far."""

    indices: list[int] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    waiting_bytes: int = 0
    tables: list[pa.Table] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    partition_ids: tuple[int | None, ...] = ()


def manifest_metadata(container: Container) -> ManifestMetadata:
    """The Avro header's key-value metadata of a manifest.

    Raises:
        CorruptFile: a number is none, or the content is neither data nor deletes.
    """
    found = container.metadata

    def text(key: str) -> str | None:
        return found[key].decode("utf-8", "replace") if key in found else None

    def number(key: str) -> int | None:
        value = text(key)
        if value is not None and not (value.isascii() and value.isdigit() and len(value) < 12):
            raise CorruptFile(container.path, key, f"{value!r:.40} is no number")
        return None if value is None else int(value)

    contents = {None: None, "data": DATA, "deletes": DELETES}
    if text("content") not in contents:
        raise CorruptFile(container.path, "content", f"{text('content')!r:.40} is neither data nor deletes")
    return ManifestMetadata(
        schema=text("schema"),
        schema_id=number("schema-id"),
        partition_spec=text("partition-spec"),
        partition_spec_id=number("partition-spec-id"),
        format_version=number("format-version"),
        content=contents[text("content")],
    )


def open_manifest(source: ManifestSource, data: bytes) -> ManifestSource:
    """`source` with its file's container, read strictly and inflated; threads may do this side by side.

    Some writers copy a manifest to another place with other bytes and leave its length in the list as it was. Then
    `read_entries` proves by the list's three counts that no block is missing at the end.

    Returns:
        With the file's own length.

    Raises:
        CorruptFile: bad bytes, content other than the manifest list says, or another length and no counts.
    """
    if source.length not in {None, len(data)} and None in _listed(source):
        reason = (
            f"the file has {len(data)} bytes, its manifest list says {source.length} and has no counts that "
            "prove it whole"
        )
        raise CorruptFile(source.path, None, reason)
    container = identified_manifest(read_container(data, source.path))
    stated = manifest_metadata(container).content
    if stated is not None and stated != source.content:
        raise CorruptFile(source.path, "content", f"{stated}, but the manifest list says {source.content}")
    return replace(source, data=b"", container=container, length=len(data))


def stale_lengths(
    opened: Iterable[tuple[ManifestSource, ManifestSource | None]],
) -> dict[str, tuple[int, int]]:
    """The manifests whose lists say another length than their files have.

    Args:
        opened: what the list says of each, and the same opened; None where the file is gone.

    Returns:
        By path: bytes that the list says, bytes of the file.
    """
    return {
        source.path: (source.length, found.length)
        for source, found in opened
        if found is not None and found.length is not None and source.length not in {None, found.length}
    }


def _listed(source: ManifestSource) -> tuple[int | None, int | None, int | None]:
    """How many entries of status EXISTING, ADDED and DELETED the manifest list says."""
    return source.existing_files_count, source.added_files_count, source.deleted_files_count


def read_entries(
    sources: Sequence[ManifestSource],
    *,
    columns: Sequence[str],
    edges: Sequence[Projection] = (),
    live_only: bool = False,
    executor: Executor = "auto",
) -> list[EntryBatch]:
    """The entries of manifests, checked, with inherited values filled in.

    Args:
        sources: n manifests; each is read whole.
        columns: of `ENTRY_COLUMNS`, or `file_path_hash` (uint64, equal to `hash_column` of the paths).
        edges: more columns (int64), of positions in a manifest's inflated bytes; every schema has these fields.
        live_only: leave out entries with status DELETED, after every check.
        executor: see `decode_records`.

    Returns:
        One batch per writer schema. Fields that a schema lacks are null; `content` is then 0, and sequence
        numbers are inherited.

    Raises:
        CorruptFile: bad bytes, or a manifest that is not what its manifest list says it is.
    """
    if unknown := [name for name in columns if name not in _COLUMNS]:
        msg = f"no such columns: {unknown}"
        raise ValueError(msg)
    groups: dict[bytes, _Group] = {}
    for index, source in enumerate(sources):
        container = source.container or open_manifest(source, source.data).container
        assert container is not None
        group = groups.get(container.schema_text)
        if group is None:
            group = groups[container.schema_text] = _Group(partition_ids=_partition_ids(container))
        group.indices.append(index)
        group.containers.append(container)
        group.sources.append(index)
        group.waiting_bytes += sum(len(block.payload) for block in container.blocks)
        if group.waiting_bytes >= _BATCH_BYTES:
            _decode(group, sources, columns, edges, executor, live_only=live_only)
    for group in groups.values():
        if group.containers or not group.tables:
            _decode(group, sources, columns, edges, executor, live_only=live_only)
    return [
        EntryBatch(pa.concat_tables(group.tables), tuple(group.sources), group.partition_ids)
        for group in groups.values()
    ]


def _partition_ids(container: Container) -> tuple[int | None, ...]:
    at = record_of(container.type, container.path)
    for field_id in _COLUMNS["partition"].ids:
        at = next((field.type for field in at.fields if field.field_id == field_id), at)
    return tuple(field.field_id for field in at.fields)


def _decode(
    group: _Group,
    sources: Sequence[ManifestSource],
    columns: Sequence[str],
    edges: Sequence[Projection],
    executor: Executor,
    *,
    live_only: bool,
) -> None:
    """Decode the waiting containers of `group`, check their entries and append the table."""
    first = group.containers[0]
    needed = list(dict.fromkeys([*_CHECKED, *columns]))
    projections = [Projection(name, _COLUMNS[name].ids, hashed=name == "file_path_hash") for name in needed]
    plan = compile_plan(record_of(first.type, first.path), [*projections, *edges], path=first.path)
    for name in plan.missing:
        if _COLUMNS[name].required:
            raise CorruptFile(first.path, f"field {name}", "required, but not in the schema")
    raw = decode_records(plan, group.containers, executor=executor)
    mine = [sources[index] for index in group.indices]
    files = raw["file"].to_numpy()
    table = pa.table({"manifest": array_of(files)})
    for name in needed:
        table = table.append_column(name, _column(raw, name, mine, files))
    for edge in edges:
        table = table.append_column(edge.name, raw[edge.name])
    _check(table, mine)
    table = inherit(table, mine)
    if live_only:
        table = table.filter(table["status"].combine_chunks().to_numpy() != DELETED)
    indices = np.array(group.indices, np.int32)[table["manifest"].to_numpy()]
    table = table.select([*columns, *(edge.name for edge in edges)]).add_column(
        0, "manifest", array_of(indices)
    )
    group.tables.append(table)
    group.indices, group.containers, group.waiting_bytes = [], [], 0


def _column(
    raw: pa.Table, name: str, sources: Sequence[ManifestSource], files: npt.NDArray[np.int32]
) -> pa.Array:
    column = _COLUMNS[name]
    if name not in raw.column_names:
        if name == "content":
            return array_of(np.zeros(len(raw), np.int32))
        return pa.nulls(len(raw), column.type)
    values = raw[name].combine_chunks()
    if column.type is not None:
        values = cast_column(values, column.type, name, sources[0].path)
    if values.null_count and (column.required or name == "content"):
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise CorruptFile(sources[files[row]].path, f"field {name}", "required, but null")
    return values


def _check(table: pa.Table, sources: Sequence[ManifestSource]) -> None:
    """Refuse entries that contradict their manifest's row in the manifest list."""
    files = table["manifest"].to_numpy()
    status = table["status"].to_numpy()
    content = table["content"].to_numpy()
    deletes = np.array([source.content != DATA for source in sources], np.bool_)[files]
    _refuse((status < EXISTING) | (status > DELETED), status, "status", files, sources)
    wrong = np.where(deletes, (content < 1) | (content > 2), content != 0)
    _refuse(wrong, content, "content", files, sources)
    records = table["record_count"].to_numpy()
    _refuse(records < 0, records, "record_count", files, sources)
    counts = np.bincount(files.astype(np.int64) * 3 + status, minlength=3 * len(sources)).reshape(-1, 3)
    for source, (existing, added, deleted) in zip(sources, counts.tolist(), strict=True):
        for name, expected, found in zip(
            ("existing", "added", "deleted"), _listed(source), (existing, added, deleted), strict=True
        ):
            if expected is not None and expected != found:
                reason = f"{found} {name} entries, its manifest list says {expected}"
                raise CorruptFile(source.path, None, reason)


def _refuse(
    bad: Any, values: Any, name: str, files: npt.NDArray[np.int32], sources: Sequence[ManifestSource]
) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        source = sources[files[row]]
        reason = f"{values[row]} in a manifest of {'deletes' if source.content else 'data'}"
        raise CorruptFile(source.path, f"field {name}", reason)


Mask = npt.NDArray[np.bool_]


def waiting(rows: pa.Table) -> Mask:
    """Which of n rows of a manifest list are data manifests without a `first_row_id`."""
    without: Mask = rows["first_row_id"].is_null().to_numpy()
    return data_manifests(rows) & without


def with_ids(rows: pa.Table) -> Mask:
    """Which of n rows of a manifest list are data manifests with a `first_row_id`."""
    having: Mask = rows["first_row_id"].is_valid().to_numpy()
    return data_manifests(rows) & having


def data_manifests(rows: pa.Table) -> Mask:
    data: Mask = rows["content"].to_numpy() == DATA
    return data
