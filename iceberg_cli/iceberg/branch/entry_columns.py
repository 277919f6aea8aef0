"""Manifest entries of a branch as columns: its live data files and deletes, with their partitions' keys.

Spec: "Manifest Entry Fields", "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import among
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.branch.file_filter import FileFilter
from iceberg_cli.iceberg.reachability.keys import Keys, keys_of, live
from iceberg_cli.iceberg.spec.deletes.position_deletes import FILE_PATH_ID
from iceberg_cli.iceberg.spec.manifests.manifest import EntryBatch, ManifestSource
from iceberg_cli.iceberg.spec.manifests.unfit_entries import VECTOR_FIELDS
from iceberg_cli.iceberg.spec.types.partition_keys import in_spec_order, partition_keys
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Type
from iceberg_cli.iceberg.spec.types.transforms import result_types
from iceberg_cli.paths import path_key_column

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
PathKeys = Callable[[pa.Array], pa.Array]

BOUNDS: Final = ("lower_bounds", "upper_bounds")
METRICS: Final = (*BOUNDS, "null_value_counts", "nan_value_counts")
_KEPT_METRICS: Final = (*BOUNDS, "null_counts", "nan_counts")
POSITIONS, VECTOR, EQUALITY, UNREADABLE = range(4)  # kind
DELETE_COLUMNS: Final = (
    "status", "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes",
    "sequence_number", "referenced_data_file", "content_offset", "content_size_in_bytes", "key_metadata",
    "equality_ids", *BOUNDS,
)  # fmt: skip
FILE_COLUMNS: Final = (
    "status", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "sequence_number",
    "first_row_id", "sort_order_id", "key_metadata",
)  # fmt: skip
DATA_COLUMNS: Final = (
    "status",
    "file_path",
    "partition",
    "record_count",
    "sequence_number",
)
DELETES_SCHEMA: Final = pa.schema(
    {
        "manifest": pa.int32(),  # row of the manifest list
        "entry": pa.int64(),  # index in the manifest
        "spec_id": pa.int32(),
        "key": pa.binary(),  # of spec and partition
        "chosen": pa.bool_(),  # by --where
        "kind": pa.int8(),
        "path": pa.string(),
        "record_count": pa.int64(),
        "file_size": pa.int64(),
        "sequence_number": pa.int64(),
        "ref": pa.string(),
        "only": pa.binary(),  # the one data file that a position delete file names, by its entry; null: not known
        "offset": pa.int64(),
        "size": pa.int64(),
        "equality_ids": pa.list_(pa.int32()),
    }
)
"""Of live delete files and deletion vectors."""
FILES_SCHEMA: Final = pa.schema(
    {
        "manifest": pa.int32(),  # row of the manifest list
        "entry": pa.int64(),  # index in the manifest
        "spec_id": pa.int32(),
        "key": pa.binary(),  # of spec and partition
        "chosen": pa.bool_(),  # by --where
        "path": pa.string(),
        "file_format": pa.string(),  # in lower case
        "record_count": pa.int64(),
        "size_bytes": pa.int64(),
        "sequence_number": pa.int64(),
        "first_row_id": pa.int64(),
        "sort_order_id": pa.int32(),
        "encrypted": pa.bool_(),
        "lower_bounds": pa.list_(pa.binary()),  # of the columns that are asked for, as they are stored
        "upper_bounds": pa.list_(pa.binary()),
        "null_counts": pa.list_(pa.int64()),  # likewise
        "nan_counts": pa.list_(pa.int64()),
    }
)
"""Of live data files."""
_DATA_SCHEMA: Final = pa.schema(
    {"path": pa.string(), "key": pa.binary(), "record_count": pa.int64(), "sequence_number": pa.int64()}
)
_OLDEST_SCHEMA: Final = pa.schema({"key": pa.binary(), "sequence_number": pa.int64()})


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReader:
    """Reads manifest entries as columns, where they are decoded.

    Args:
        specs: by id.
        types: of columns by field id.
        places: manifest path -> row of the manifest list.
        where: which are chosen.
        bounds_of: the columns whose bounds and numbers of nulls and NaN are kept, by their ids.
        path_keys: gives n paths keys that are equal wherever two paths mean one file.
    """

    specs: Mapping[int, PartitionSpec]
    types: Mapping[int, Type]
    places: Mapping[str, int]
    where: FileFilter = field(default_factory=FileFilter)
    bounds_of: Sequence[int] = ()
    path_keys: PathKeys = path_key_column

    def deletes(
        self, sources: Sequence[ManifestSource], batch: EntryBatch
    ) -> tuple[pa.Table, dict[bytes, tuple[Any, ...]]]:
        """Live entries of delete manifests, and the partition tuple of each key, in Avro's representation.

        Raises:
            CorruptFile: a deletion vector's entry lacks what it must have, or see `partitions`.
        """
        table = batch.table
        owners = table["manifest"].to_numpy()
        entry = np.arange(len(owners)) - np.searchsorted(owners, owners)
        rows = live(table.append_column("entry", pa.array(entry, pa.int64()))).combine_chunks()
        owners = rows["manifest"].to_numpy()
        spec_ids = spec_ids_of(sources, owners)
        keys, chosen, tuples = self.partitions(sources, batch, rows)
        kinds = _kinds(rows)
        _check_vectors(rows, kinds, sources)
        places = np.array([self.places[source.path] for source in sources], np.int32)
        columns = {
            "manifest": pa.array(places[owners] if len(owners) else np.empty(0, np.int32)),
            "entry": rows["entry"],
            "spec_id": pa.array(spec_ids),
            "key": keys,
            "chosen": pa.array(chosen),
            "kind": pa.array(kinds),
            "path": rows["file_path"],
            "record_count": rows["record_count"],
            "file_size": rows["file_size_in_bytes"],
            "sequence_number": rows["sequence_number"],
            "ref": rows["referenced_data_file"],
            "only": _only(rows, kinds),
            "offset": rows["content_offset"],
            "size": rows["content_size_in_bytes"],
            "equality_ids": rows["equality_ids"],
        }
        return pa.table(columns, schema=DELETES_SCHEMA), tuples

    def data(
        self, sources: Sequence[ManifestSource], batch: EntryBatch, targets: Keys, *, oldest: bool
    ) -> tuple[pa.Table, pa.Table]:
        """Live data files whose path, in this spelling or another, may be among the targets.

        Args:
            sources: see `Reachability.entries`.
            batch: with `DATA_COLUMNS`.
            targets: hashes of `path_keys`, sorted.
            oldest: also find the lowest sequence number of each partition.

        Returns:
            `path`, `key`, `record_count` and `sequence_number` of these files; and of partitions, `key` and
            `sequence_number`.
        """
        status = batch.table["status"].to_numpy()
        alive = status < 2
        named = among(keys_of(self.path_keys(batch.table["file_path"].combine_chunks())), targets)
        rows = batch.table.filter(pa.array(alive & named)).combine_chunks()
        keys = self.partitions(sources, batch, rows, only_keys=True)[0]
        found = pa.table(
            [rows["file_path"], keys, rows["record_count"], rows["sequence_number"]], schema=_DATA_SCHEMA
        )
        if not oldest:
            return found, _OLDEST_SCHEMA.empty_table()
        every = batch.table.filter(pa.array(alive)).combine_chunks()
        keys = self.partitions(sources, batch, every, only_keys=True)[0]
        lowest = pa.table([keys, every["sequence_number"]], schema=_OLDEST_SCHEMA)
        return found, lowest_of([lowest])

    def files(
        self, sources: Sequence[ManifestSource], batch: EntryBatch
    ) -> tuple[pa.Table, dict[bytes, tuple[Any, ...]]]:
        """Live data files, all of them, and the partition tuple of each key, in Avro's representation.

        Args:
            sources: see `Reachability.entries`.
            batch: with `FILE_COLUMNS`, those that `where` reads, and `METRICS` where bounds are kept.

        Raises:
            CorruptFile: see `partitions`.
        """
        owners = batch.table["manifest"].to_numpy()
        entry = np.arange(len(owners)) - np.searchsorted(owners, owners)
        rows = live(batch.table.append_column("entry", pa.array(entry, pa.int64()))).combine_chunks()
        owners = rows["manifest"].to_numpy()
        keys, chosen, tuples = self.partitions(sources, batch, rows)
        chosen &= self.where.of_files(rows, sources)
        places = np.array([self.places[source.path] for source in sources], np.int32)
        columns = {
            "manifest": pa.array(places[owners] if len(owners) else np.empty(0, np.int32)),
            "entry": rows["entry"],
            "spec_id": pa.array(spec_ids_of(sources, owners)),
            "key": keys,
            "chosen": pa.array(chosen),
            "path": rows["file_path"],
            "file_format": pc.utf8_lower(rows["file_format"]),
            "record_count": rows["record_count"],
            "size_bytes": rows["file_size_in_bytes"],
            "sequence_number": rows["sequence_number"],
            "first_row_id": rows["first_row_id"],
            "sort_order_id": rows["sort_order_id"],
            "encrypted": pc.is_valid(rows["key_metadata"]),
            **{
                kept: self._metrics(rows, name, FILES_SCHEMA.field(kept).type)
                for kept, name in zip(_KEPT_METRICS, METRICS, strict=True)
            },
        }
        return pa.table(columns, schema=FILES_SCHEMA), tuples

    def _metrics(self, rows: pa.Table, name: str, kind: pa.ListType) -> pa.Array:
        """Of n files lists of what their entries say of the columns that are asked for."""
        if not self.bounds_of:
            return pa.nulls(len(rows), kind)
        whole = rows[name].combine_chunks()
        columns = [
            pc.map_lookup(whole, pa.scalar(field_id, pa.int32()), "first") for field_id in self.bounds_of
        ]
        number = len(columns)
        by_file = np.arange(number * len(rows)).reshape(number, len(rows)).T.ravel()
        offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * number)
        return pa.ListArray.from_arrays(offsets, pa.concat_arrays(columns).take(pa.array(by_file)))

    def partitions(
        self,
        sources: Sequence[ManifestSource],
        batch: EntryBatch,
        entries: pa.Table,
        *,
        only_keys: bool = False,
    ) -> tuple[pa.Array, Bools, dict[bytes, tuple[Any, ...]]]:
        """Key of each tuple, whether --where selects it, and the tuple of each key, in the order of the spec's fields.

        Args:
            sources: see `Reachability.entries`.
            batch: from which the entries are.
            entries: one chunk of some of its rows.
            only_keys: leave out the rest.

        Raises:
            CorruptFile: a partition struct without field ids that does not fit its spec, or a spec that is not there.
        """
        owners = entries["manifest"].to_numpy()
        spec_ids = spec_ids_of(sources, owners)
        whole = entries["partition"].combine_chunks()
        parts: list[pa.Array] = []
        order: list[Ints] = []
        chosen = np.ones(len(spec_ids), np.bool_)
        tuples: dict[bytes, tuple[Any, ...]] = {}
        for spec_id in np.unique(spec_ids).tolist():
            rows = np.flatnonzero(spec_ids == spec_id)
            path = sources[owners[rows[0]]].path
            if spec_id not in self.specs:
                raise CorruptFile(
                    path, None, f"its manifest list says partition spec {spec_id}, which is not there"
                )
            spec = self.specs[spec_id]
            try:
                mine = in_spec_order(whole.take(pa.array(rows)), batch.partition_ids, spec)
            except ValueError as error:
                raise CorruptFile(path, "field partition", str(error)) from error
            keys = partition_keys(spec_id, mine, result_types(spec, self.types))
            order.append(rows)
            parts.append(keys)
            if only_keys:
                continue
            chosen[rows] = self.where.of_partitions(spec, self.types, mine)
            encoded = keys.dictionary_encode()
            _, first = np.unique(encoded.indices.to_numpy(), return_index=True)
            values = [tuple(value.values()) for value in mine.take(pa.array(first)).to_pylist()]
            tuples.update(zip(encoded.dictionary.to_pylist(), values, strict=True))
        if not parts:
            return pa.array([], pa.binary()), chosen, tuples
        places = np.argsort(np.concatenate(order), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(places)), chosen, tuples


def lowest_of(tables: Sequence[pa.Table]) -> pa.Table:
    """`key` and the lowest `sequence_number` of each."""
    whole = pa.concat_tables([_OLDEST_SCHEMA.empty_table(), *tables])
    if not len(whole):  # grouping loads Arrow's query engine
        return whole
    return (
        whole.group_by("key")
        .aggregate([("sequence_number", "min")])
        .rename_columns(["key", "sequence_number"])
    )


def all_deletes(tables: Sequence[pa.Table]) -> pa.Table:
    """The batches of `EntryReader.deletes` as one; a position delete file that is listed twice counts as unreadable."""
    table = pa.concat_tables([DELETES_SCHEMA.empty_table(), *tables]).combine_chunks()
    kinds = table["kind"].to_numpy().copy()
    files = np.flatnonzero((kinds == POSITIONS) | (kinds == UNREADABLE))
    codes = table["path"].take(pa.array(files)).combine_chunks().dictionary_encode().indices.to_numpy()
    kinds[files[np.bincount(codes, minlength=len(codes))[codes] > 1]] = UNREADABLE
    return table.set_column(table.column_names.index("kind"), "kind", pa.array(kinds))


def all_data(tables: Sequence[pa.Table]) -> pa.Table:
    """The batches of `EntryReader.data` as one."""
    return pa.concat_tables([_DATA_SCHEMA.empty_table(), *tables])


def _kinds(rows: pa.Table) -> npt.NDArray[np.int8]:
    formats = pc.utf8_lower(rows["file_format"])
    puffin = pc.equal(formats, "puffin").to_numpy()
    parquet = pc.equal(formats, "parquet").to_numpy()
    kinds = np.where(puffin, VECTOR, np.where(parquet, POSITIONS, UNREADABLE))
    kinds = np.where(rows["key_metadata"].is_null().to_numpy(), kinds, UNREADABLE)
    return np.where(rows["content"].to_numpy() == 2, EQUALITY, kinds).astype(np.int8)


def _only(rows: pa.Table, kinds: npt.NDArray[np.int8]) -> pa.Array:
    """`referenced_data_file`, or else equal bounds of `file_path`, as in Java, where bounds were read.

    Spec: "Scan Planning": such a file applies to no other data file, whatever its rows name.
    """
    bounds = None
    if set(BOUNDS) <= set(rows.column_names):
        key = pa.scalar(FILE_PATH_ID, pa.int32())
        lower, upper = (pc.map_lookup(rows[name], key, "first") for name in BOUNDS)
        bounds = lower, upper
    return only_data_file(kinds, rows["referenced_data_file"], bounds)


def only_data_file(
    kinds: npt.NDArray[np.int8],
    referenced: pa.ChunkedArray,
    bounds: tuple[pa.ChunkedArray, pa.ChunkedArray] | None,
) -> pa.ChunkedArray:
    """The one data file that each position delete file can be about, as bytes; null of others, or where not known.

    Args:
        kinds: of n deletes.
        referenced: `referenced_data_file` of each.
        bounds: lower and upper ones of `file_path`; None where they were not read.
    """
    none = pa.scalar(None, pa.binary())
    stated = referenced.cast(pa.binary())
    if bounds is not None:
        lower, upper = bounds
        stated = pc.coalesce(stated, pc.if_else(pc.equal(lower, upper), lower, none))
    return pc.if_else(pa.array(kinds == POSITIONS), stated, none)


def _check_vectors(rows: pa.Table, kinds: npt.NDArray[np.int8], sources: Sequence[ManifestSource]) -> None:
    """Refuse deletion vectors without a field that "Data File Fields", notes 4 and 5, requires."""
    for name in VECTOR_FIELDS:
        missing = np.flatnonzero((kinds == VECTOR) & rows[name].is_null().to_numpy())
        if len(missing):
            source = sources[rows["manifest"][int(missing[0])].as_py()]
            raise CorruptFile(source.path, f"field {name}", "required of a deletion vector, but null")


def spec_ids_of(sources: Sequence[ManifestSource], owners: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The partition spec of each of n entries, by the index of its manifest among the sources."""
    ids = np.array([source.partition_spec_id or 0 for source in sources], np.int32)
    return ids[owners] if len(owners) else np.empty(0, np.int32)
