"""Which rows of data files deletes hide: deletion vectors, position deletes and equality deletes, read as needed.

Spec: "Scan Planning", "Deletion Vectors", "Position Delete Files", "Equality Delete Files".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.deletion_vector import decode, encode
from iceberg_cli.encoding.projection import Field, joined_rows
from iceberg_cli.engines import FileParts, Scan, Source, chained
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.rows.data_files import (
    DataFile,
    EqualityColumns,
    batches,
    columns_for,
    keys_of,
)
from iceberg_cli.iceberg.rows.data_files import rows_of as projected
from iceberg_cli.iceberg.rows.live_entries import ENTRY_COLUMNS, LiveEntryReader
from iceberg_cli.iceberg.rows.table_columns import columns_of
from iceberg_cli.iceberg.spec.deletes.position_deletes import FILE_PATH_ID, POS_ID, read_position_deletes
from iceberg_cli.iceberg.spec.manifests.unfit_entries import VECTOR_FIELDS, unfit_entries
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.table.stored_files import true_sizes

if TYPE_CHECKING:
    from iceberg_cli.iceberg.reachability.scan import Reachability
    from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
    from iceberg_cli.iceberg.table import IcebergTable

DELETE_COLUMNS: Final = (
    *ENTRY_COLUMNS, "equality_ids", *VECTOR_FIELDS, "lower_bounds", "upper_bounds",
)  # fmt: skip
_PHASE: Final = "reading delete files"
_POSITION_FIELDS: Final = (
    Field(name="file_path", type=pa.string(), field_id=FILE_PATH_ID, names=("file_path",)),
    Field(name="pos", type=pa.int64(), field_id=POS_ID, names=("pos",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRows:
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
class RowDeletes:
    """The delete entries of a snapshot, and what they hide of data files, read as it is needed.

    Args:
        entries: None where there are none.
        schemas: columns of the table's schemas, the current one first.
        table: whose storage has the files.
        notes: gets what is noticed in reading them.
    """

    entries: pa.Table | None
    schemas: Sequence[Sequence[Field]]
    table: IcebergTable
    notes: list[str]
    _keys: dict[str, pa.Array] = field(default_factory=dict)

    def of(self, files: pa.Table) -> HiddenRows:
        """What is hidden of some data files.

        Args:
            files: their entries.

        Raises:
            CorruptFile: a delete file cannot be read, or there are two deletion vectors for a data file.
        """
        if self.entries is None:
            return HiddenRows(vectors={}, equality=[()] * files.num_rows, columns={}, keys={})
        own = self.entries.filter(pc.equal(self.entries["content"], 2))
        equality, columns, keys = self._equality(files, own)
        return HiddenRows(vectors=self.positions_of(files), equality=equality, columns=columns, keys=keys)

    def positions_of(self, files: pa.Table) -> dict[str, tuple[bytes, ...]]:
        """As `HiddenRows.vectors`: no equality delete is read.

        Raises:
            CorruptFile: see `of`.
        """
        if self.entries is None:
            return {}
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
        return vectors | others

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
            seen.add(ref)
            by_file.setdefault(path, []).append(_Vector(path, size, offset, length, records, ref))
        scan: Scan[list[_Vector], list[tuple[str, bytes]], list[tuple[str, bytes]]] = Scan(
            lambda vectors: Source(vectors[0].path, vectors[0].size_bytes),
            _read_vectors,
            chained,
            phase=_PHASE,
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
            joined_rows,
            phase=_PHASE,
            in_parts=True,
        )
        columns = _columns(entries, "file_path", "file_format", "file_size_in_bytes", "record_count")
        items = self._sized(
            [_DeleteFile(path, kind.lower(), size, records) for path, kind, size, records in columns]
        )
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
        unread = [
            (_DeleteFile(path, kind.lower(), size, records), columns[own])
            for (path, kind, size, records), own in zip(_columns(entries, *names), ids, strict=True)
            if path in used and path not in self._keys
        ]
        files = self._sized([file for file, _ in unread])
        items = [(file, own) for file, (_, own) in zip(files, unread, strict=True)]
        scan: Scan[tuple[_DeleteFile, EqualityColumns], tuple[str, pa.Array], list[tuple[str, pa.Array]]] = (
            Scan(
                lambda item: Source(item[0].path, item[0].size_bytes),
                _read_equality,
                _listed,
                phase=_PHASE,
                in_parts=True,
            )
        )
        for pairs in self.table.engine.scan(scan, items, on_event=self.table.on_event):
            self._keys |= dict(pairs)

    def _sized(self, files: Sequence[_DeleteFile]) -> list[_DeleteFile]:
        """The files as large as they are, whatever their entries say, so that each is read to its end."""
        sizes, notes = true_sizes(
            self.table, [file.path for file in files], [file.size_bytes for file in files]
        )
        self.notes += [note for note in notes if note not in self.notes]
        return [file._replace(size_bytes=size) for file, size in zip(files, sizes, strict=True)]


def row_deletes(
    table: IcebergTable, reachability: Reachability, manifests: pa.Table, notes: list[str]
) -> RowDeletes:
    """The deletes that delete manifests list.

    Args:
        table: as loaded.
        reachability: reads manifests.
        manifests: rows of a manifest list; those of data are left out.
        notes: see `RowDeletes`.

    Raises:
        CorruptFile: one cannot be read whole, or has an entry that cannot be applied.
    """
    metadata = table.metadata
    reader = LiveEntryReader(
        specs={spec.spec_id: spec for spec in metadata.partition_specs}, types=column_types(metadata)
    )
    parts = reachability.from_entries(
        manifests.filter(pc.equal(manifests["content"], 1)),
        DELETE_COLUMNS,
        reader,
        phase="reading delete manifests",
    )
    tables = [with_path_bounds(each.table) for part in parts for each in part]
    for each in tables:
        refuse_unfit(each, metadata)
    return deletes_of(table, tables, notes)


def deletes_of(table: IcebergTable, tables: Sequence[pa.Table], notes: list[str]) -> RowDeletes:
    """The deletes of some entries.

    Args:
        table: as loaded.
        tables: live entries, see `LiveEntries`, with `DELETE_COLUMNS`, and bounds as of `with_path_bounds`.
        notes: see `RowDeletes`.
    """
    metadata, path = table.metadata, table.metadata_location
    return RowDeletes(
        entries=pa.concat_tables(tables).combine_chunks() if tables else None,
        schemas=[
            [field for field, _, _ in columns_of(each, metadata.properties, path=path)]
            for each in (metadata.current_schema(), *reversed(metadata.schemas))
        ],
        table=table,
        notes=notes,
    )


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


def _listed(some: Sequence[tuple[Any, tuple[str, pa.Array] | None]]) -> list[tuple[str, pa.Array]]:
    return [pair for _, pair in some if pair is not None]


def _columns(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def refuse_unfit(entries: pa.Table, metadata: TableMetadata) -> None:
    """Let no row be shown that deletes hide which cannot be applied, whatever data files they are of.

    Raises:
        CorruptFile: see `unfit_entries`.
    """
    for unfit in unfit_entries(
        entries, format_version=metadata.format_version, column_ids=frozenset(column_types(metadata))
    ):
        for row in np.flatnonzero(unfit.rows)[:1].tolist():
            raise CorruptFile(entries["file_path"][row].as_py(), f"field {unfit.field}", unfit.reason(row))


def with_path_bounds(entries: pa.Table) -> pa.Table:
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
