"""The assignment of live entries of old manifests to new ones.

`Runs` counts the entries of each partition in each manifest, batch by batch, maybe in other processes; from that,
`place` cuts the sorted whole into the new manifests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.errors import Refused
from iceberg_cli.iceberg.avro.projection import Ints
from iceberg_cli.iceberg.avro.schema import AvroType, record_of
from iceberg_cli.iceberg.spec.field_summaries import sort_key
from iceberg_cli.iceberg.spec.manifest import DATA, DELETED, ManifestSource, read_entries
from iceberg_cli.iceberg.spec.manifest_writer import manifest_header
from iceberg_cli.iceberg.spec.unknown_fields import unknown_entry_fields, unknown_fields_reason

_BATCH_BYTES = 16 << 20  # of inflated blocks that are decoded at once
_PARTITION_ID = 102
_DATA_FILE_ID = 2

Opened = Sequence[tuple[int, ManifestSource | None]]  # manifests with their indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Schema, partition spec and encoding of new manifests.

    Args:
        schema: the table's, as JSON, with every source column of the spec.
        spec: as JSON.
        format_version: of the table.
        content: of the manifests.
        codec: of the blocks.
        types: of the partition fields, as the specification names them.
        sort_by: indices of the partition fields that entries are sorted by, the most significant first.
    """

    schema: Mapping[str, Any]
    spec: Mapping[str, Any]
    format_version: int
    content: int
    codec: str
    types: tuple[str, ...]
    sort_by: tuple[int, ...]

    def header(self) -> tuple[str, dict[str, bytes]]:
        """Avro schema and key-value metadata.

        Raises:
            ValueError: the partition fields cannot be written with the schema.
        """
        return manifest_header(
            schema=self.schema,
            partition_spec=self.spec,
            format_version=self.format_version,
            content=self.content,
        )

    @property
    def with_row_ids(self) -> bool:
        """Whether entries carry a `first_row_id`."""
        return self.format_version > 2 and self.content == DATA


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The new manifest of each live entry, by rank: the entry's index among all of them in their order.

    Args:
        ranks: by manifest: the rank of the first entry of each of its runs.
        ends: by manifest: the rank after the last entry of each of its runs.
        cuts: the rank that each new manifest begins with.
        sorted_runs: whether a manifest's runs are its partitions, in order; otherwise it is one run.
    """

    ranks: Mapping[int, Ints]
    ends: Mapping[int, Ints]
    cuts: Ints
    sorted_runs: bool

    def sources_of_outputs(self, first: int, last: int) -> list[int]:
        """The manifests with entries in the new manifests `first` to `last`."""
        low = self.cuts[first]
        high = self.cuts[last + 1] if last + 1 < len(self.cuts) else np.iinfo(np.int64).max
        return [n for n in self.ranks if ((self.ends[n] > low) & (self.ranks[n] < high)).any()]


@dataclass(frozen=True, slots=True)
class Runs:
    """Counts the live entries of each partition in manifests: columns `manifest`, `count`, and the sort keys."""

    target: Target

    def __call__(self, batch: Opened) -> pa.Table:
        """One row for each manifest and partition, by manifest and then in the order of the partitions."""
        tables = []
        for numbers, sources in by_schema(batch):
            (found,) = read_entries(sources, columns=("status", "partition"))
            entries = _live(found.table)
            keys = [sort_keys(entries, sources[0], self.target)[index] for index in self.target.sort_by]
            owners = entries["manifest"].to_numpy()
            order, starts = runs_of(owners, keys)
            counts = np.diff(np.append(starts, len(order)))
            first = array_of(order[starts])
            columns = {"manifest": np.array(numbers, np.int64)[owners[order[starts]]], "count": counts}
            columns |= {f"key {index}": key.take(first) for index, key in enumerate(keys)}
            tables.append(pa.table(columns))
        return pa.concat_tables(tables)


def place(runs: pa.Table, weights: npt.NDArray[np.float64], outputs: int, *, sorted_runs: bool) -> Placement:
    """Cut the entries, sorted, into about equally large manifests, none of them empty.

    Args:
        runs: rows of `Runs`, all of them.
        weights: by manifest, the mean size of an entry in bytes.
        outputs: how many manifests; not more than entries.
        sorted_runs: see `Placement`.
    """
    manifests, counts = runs["manifest"].to_numpy(), runs["count"].to_numpy()
    keys = [ranks_of(runs[name].combine_chunks()) for name in runs.column_names[2:]]
    order = np.lexsort((manifests, *reversed(keys)))
    ends = np.cumsum(counts[order])
    starts = ends - counts[order]
    worth = np.cumsum(counts[order] * weights[manifests[order]])
    cuts = np.zeros(outputs, np.int64)
    for index in range(1, outputs):
        goal = worth[-1] * index / outputs
        row = min(int(np.searchsorted(worth, goal)), len(worth) - 1)
        into = ends[row] - int((worth[row] - goal) / weights[manifests[order[row]]])
        least, most = cuts[index - 1] + 1, ends[-1] - (outputs - index)
        cuts[index] = min(max(into, least), most)
    ranks, stops = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    ranks[order], stops[order] = starts, ends
    by_manifest = np.argsort(manifests, kind="stable")
    edges = np.flatnonzero(np.diff(manifests[by_manifest])) + 1
    groups = [group for group in np.split(by_manifest, edges) if len(group)]
    return Placement(
        ranks={int(manifests[group[0]]): ranks[group] for group in groups},
        ends={int(manifests[group[0]]): stops[group] for group in groups},
        cuts=cuts,
        sorted_runs=sorted_runs,
    )


def by_schema(batch: Opened) -> Iterator[tuple[list[int], list[ManifestSource]]]:
    """Manifests of one writer schema, a bounded number of bytes at a time, in their order.

    Raises:
        Refused: a manifest has fields that a new one would lose.
    """
    groups: dict[bytes, tuple[list[int], list[ManifestSource]]] = {}
    sizes: dict[bytes, int] = {}
    for number, source in batch:
        assert source is not None
        assert source.container is not None
        schema = source.container.schema_text
        if schema not in groups:
            refuse_unknown_fields(source)
        numbers, sources = groups.setdefault(schema, ([], []))
        numbers.append(number)
        sources.append(source)
        sizes[schema] = sizes.get(schema, 0) + sum(len(block.payload) for block in source.container.blocks)
        if sizes[schema] >= _BATCH_BYTES:
            yield groups.pop(schema)
            del sizes[schema]
    yield from groups.values()


def _live(entries: pa.Table) -> pa.Table:
    return entries.filter(array_of(entries["status"].to_numpy() != DELETED))


def record_type(source: ManifestSource) -> AvroType:
    """The writer's type of an entry."""
    assert source.container is not None
    return record_of(source.container.type, source.path)


def refuse_unknown_fields(source: ManifestSource) -> None:
    """Raises Refused where a manifest has fields that a new one would lose."""
    if unknown := unknown_entry_fields(record_type(source), None):
        raise Refused(f"Cannot write entries anew: {unknown_fields_reason(source.path, unknown)}")


def partition_type(record: AvroType) -> AvroType:
    """The partition struct's type; `read_entries` has found it to be a record, or the field to be missing."""
    data_file = next(field.type for field in record.fields if field.field_id == _DATA_FILE_ID)
    return next(field.type for field in data_file.fields if field.field_id == _PARTITION_ID)


def sort_keys(entries: pa.Table, source: ManifestSource, target: Target) -> list[pa.Array]:
    """The sort keys of the partition fields, by the spec's order, whatever the writer calls them."""
    column = entries["partition"].combine_chunks()
    ids = [field.field_id for field in partition_type(record_type(source)).fields]
    keys = []
    for field, type_name in zip(target.spec["fields"], target.types, strict=True):
        found = (
            column.field(ids.index(field["field-id"]))
            if field["field-id"] in ids
            else pa.nulls(len(column), pa.int64())
        )
        keys.append(sort_key(found, type_name))
    return keys


def ranks_of(key: pa.Array) -> Ints:
    """Ranks in the order of the values; nulls first."""
    ranks = pc.rank(key, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    found: Ints = np.where(key.is_null().to_numpy(zero_copy_only=False), 0, ranks)
    return found


def runs_of(owners: Ints, keys: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """Entries by manifest and then by partition; and the start of each manifest's partition in this order."""
    columns = [ranks_of(key) for key in keys]
    order = np.lexsort((*reversed(columns), owners))
    changes = np.zeros(len(order), np.bool_)
    changes[:1] = True
    for column in (owners, *columns):
        changes[1:] |= np.diff(column[order]) != 0
    return order, np.flatnonzero(changes)
