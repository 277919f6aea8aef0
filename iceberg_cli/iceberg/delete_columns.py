"""Delete entries and the data files that they name, as columns.

Spec: "Manifest Entry Fields", "Data File Fields".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.manifest import EntryBatch, ManifestSource
from iceberg_cli.iceberg.partition_filter import Condition, matching
from iceberg_cli.iceberg.partition_keys import partition_keys
from iceberg_cli.iceberg.reachability import Keys, among, live
from iceberg_cli.iceberg.schema import Type
from iceberg_cli.iceberg.specs import PartitionSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

POSITIONS, VECTOR, EQUALITY, UNREADABLE = range(4)  # kind
DELETE_COLUMNS: Final = (
    "status", "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes",
    "sequence_number", "referenced_data_file", "content_offset", "content_size_in_bytes", "key_metadata",
)  # fmt: skip
DATA_COLUMNS: Final = (
    "status",
    "file_path",
    "file_path_hash",
    "partition",
    "record_count",
    "sequence_number",
)
_DELETES_SCHEMA: Final = pa.schema(
    {
        "manifest": pa.int32(),  # row of the manifest list
        "entry": pa.int64(),  # place in the manifest
        "spec_id": pa.int32(),
        "key": pa.binary(),  # of spec and partition
        "chosen": pa.bool_(),  # by --where
        "kind": pa.int8(),
        "path": pa.string(),
        "record_count": pa.int64(),
        "file_size": pa.int64(),
        "sequence_number": pa.int64(),
        "ref": pa.string(),
        "offset": pa.int64(),
        "size": pa.int64(),
    }
)
_DATA_SCHEMA: Final = pa.schema(
    {"path": pa.string(), "key": pa.binary(), "record_count": pa.int64(), "sequence_number": pa.int64()}
)
_OLDEST_SCHEMA: Final = pa.schema({"key": pa.binary(), "sequence_number": pa.int64()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is needed to read entries as columns; goes to where they are decoded.

    Args:
        specs: by id.
        types: of columns by field id.
        places: manifest path -> row of the manifest list.
        conditions: of --where.
    """

    specs: Mapping[int, PartitionSpec]
    types: Mapping[int, Type]
    places: Mapping[str, int]
    conditions: tuple[Condition, ...] = ()

    def deletes(
        self, sources: Sequence[ManifestSource], batch: EntryBatch
    ) -> tuple[pa.Table, dict[bytes, tuple[Any, ...]]]:
        """Live entries of delete manifests, and the partition tuple of each key, in Avro's representation.

        Raises:
            CorruptFile: a deletion vector's entry lacks what it must have.
        """
        table = batch.table
        owners = table["manifest"].to_numpy()
        entry = np.arange(len(owners)) - np.searchsorted(owners, owners)
        rows = live(table.append_column("entry", pa.array(entry, pa.int64()))).combine_chunks()
        owners = rows["manifest"].to_numpy()
        spec_ids = _spec_ids(sources, owners)
        keys, chosen, tuples = self._partitions(spec_ids, rows["partition"])
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
            "offset": rows["content_offset"],
            "size": rows["content_size_in_bytes"],
        }
        return pa.table(columns, schema=_DELETES_SCHEMA), tuples

    def data(
        self, sources: Sequence[ManifestSource], batch: EntryBatch, wanted: Keys, *, oldest: bool
    ) -> tuple[pa.Table, pa.Table]:
        """Live data files whose path may be among those wanted.

        Args:
            sources: see `Liveness.entries`.
            batch: with `DATA_COLUMNS`.
            wanted: sorted hashes of paths.
            oldest: also find the lowest sequence number of each partition.

        Returns:
            `path`, `key`, `record_count` and `sequence_number` of these files; and of partitions, `key` and
            `sequence_number`.
        """
        status = batch.table["status"].to_numpy()
        hashes = batch.table["file_path_hash"].to_numpy()
        alive = status < 2
        rows = batch.table.filter(pa.array(alive & among(hashes, wanted))).combine_chunks()
        keys = self._keys(_spec_ids(sources, rows["manifest"].to_numpy()), rows["partition"])
        found = pa.table(
            [rows["file_path"], keys, rows["record_count"], rows["sequence_number"]], schema=_DATA_SCHEMA
        )
        if not oldest:
            return found, _OLDEST_SCHEMA.empty_table()
        every = batch.table.filter(pa.array(alive)).combine_chunks()
        keys = self._keys(_spec_ids(sources, every["manifest"].to_numpy()), every["partition"])
        lowest = pa.table([keys, every["sequence_number"]], schema=_OLDEST_SCHEMA)
        return found, lowest_of([lowest])

    def _keys(self, spec_ids: npt.NDArray[np.int32], partitions: pa.ChunkedArray) -> pa.Array:
        return self._partitions(spec_ids, partitions, only_keys=True)[0]

    def _partitions(
        self, spec_ids: npt.NDArray[np.int32], partitions: pa.ChunkedArray, *, only_keys: bool = False
    ) -> tuple[pa.Array, Bools, dict[bytes, tuple[Any, ...]]]:
        """Key of each tuple, whether --where means it, and the tuple of each key."""
        whole = partitions.combine_chunks() if isinstance(partitions, pa.ChunkedArray) else partitions
        parts: list[pa.Array] = []
        order: list[Ints] = []
        chosen = np.ones(len(spec_ids), np.bool_)
        tuples: dict[bytes, tuple[Any, ...]] = {}
        for spec_id in np.unique(spec_ids).tolist():
            rows = np.flatnonzero(spec_ids == spec_id)
            mine = whole.take(pa.array(rows))
            keys = partition_keys(spec_id, mine)
            order.append(rows)
            parts.append(keys)
            if only_keys:
                continue
            if self.conditions:
                chosen[rows] = matching(self.conditions, self.specs[spec_id], self.types, mine)
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
    return (
        whole.group_by("key")
        .aggregate([("sequence_number", "min")])
        .rename_columns(["key", "sequence_number"])
    )


def all_deletes(tables: Sequence[pa.Table]) -> pa.Table:
    """The parts of `Reading.deletes` as one table; a position delete file that is listed twice is not touched."""
    table = pa.concat_tables([_DELETES_SCHEMA.empty_table(), *tables]).combine_chunks()
    kinds = table["kind"].to_numpy().copy()
    files = np.flatnonzero((kinds == POSITIONS) | (kinds == UNREADABLE))
    codes = table["path"].take(pa.array(files)).combine_chunks().dictionary_encode().indices.to_numpy()
    kinds[files[np.bincount(codes, minlength=len(codes))[codes] > 1]] = UNREADABLE
    return table.set_column(table.column_names.index("kind"), "kind", pa.array(kinds))


def all_data(tables: Sequence[pa.Table]) -> pa.Table:
    """The parts of `Reading.data` as one table."""
    return pa.concat_tables([_DATA_SCHEMA.empty_table(), *tables])


def _kinds(rows: pa.Table) -> npt.NDArray[np.int8]:
    formats = pc.utf8_lower(rows["file_format"])
    puffin = pc.equal(formats, "puffin").to_numpy()
    readable = pc.equal(formats, "parquet").to_numpy() & rows["key_metadata"].is_null().to_numpy()
    kinds = np.where(puffin, VECTOR, np.where(readable, POSITIONS, UNREADABLE))
    return np.where(rows["content"].to_numpy() == 2, EQUALITY, kinds).astype(np.int8)


def _check_vectors(rows: pa.Table, kinds: npt.NDArray[np.int8], sources: Sequence[ManifestSource]) -> None:
    """Spec: "Data File Fields", notes 4 and 5: these are required of a deletion vector."""
    for name in ("referenced_data_file", "content_offset", "content_size_in_bytes"):
        missing = np.flatnonzero((kinds == VECTOR) & rows[name].is_null().to_numpy())
        if len(missing):
            source = sources[rows["manifest"][int(missing[0])].as_py()]
            raise CorruptFile(source.path, f"field {name}", "required of a deletion vector, but null")


def _spec_ids(sources: Sequence[ManifestSource], owners: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    ids = np.array([source.partition_spec_id or 0 for source in sources], np.int32)
    return ids[owners] if len(owners) else np.empty(0, np.int32)
