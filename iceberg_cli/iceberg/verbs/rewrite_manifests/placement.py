"""The assignment of live entries of old manifests to new ones, and the Avro blocks that are made of them.

`Runs` counts the entries of each partition in each manifest, batch by batch, maybe in other processes; from that,
`place` cuts the sorted whole into the new manifests. `Regroup` makes the blocks of these, batch by batch as well:
sorted by partition inside each batch, so that all entries of a manifest lie between its first and its last partition,
and only compressed blocks are passed on.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.iceberg.avro.projection import Ints
from iceberg_cli.iceberg.avro.schema import parse_schema
from iceberg_cli.iceberg.branch.opened_manifests import Opened, by_schema, partition_type, record_type
from iceberg_cli.iceberg.spec.manifests.field_summaries import FieldSummary, sort_key, summary_of
from iceberg_cli.iceberg.spec.manifests.manifest import (
    DATA,
    DELETED,
    ENTRY_COLUMNS,
    ManifestSource,
    read_entries,
)
from iceberg_cli.iceberg.spec.manifests.splice import encoded, payload_of, recipe, spliced
from iceberg_cli.iceberg.spec.manifests.writer import entry_blocks, manifest_header

_ENCODED_BYTES = 1 << 20  # of new entries that are made at once, before they are compressed
_LENGTH_BYTES = 8

Encode = Callable[[Ints], pa.Array]  # the new encodings of some entries, by their rows

# The fields that must not change when an entry is written again, in another manifest.
IDENTITY: Final = (
    "file_path_hash",
    "content_offset",
    "content",
    "record_count",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "first_row_id",
)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_OTHER = np.uint64(0x94D049BB133111EB)
_BITS = (1 << 64) - 1


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

    def sources_between(self, first: int, last: int) -> list[int]:
        """The manifests with entries in the new manifests `first` to `last`."""
        low = self.cuts[first]
        high = self.cuts[last + 1] if last + 1 < len(self.cuts) else np.iinfo(np.int64).max
        return [n for n in self.ranks if ((self.ends[n] > low) & (self.ranks[n] < high)).any()]

    def entries_of(self, output: int) -> int:
        """The number of entries of a new manifest."""
        stop = (
            self.cuts[output + 1]
            if output + 1 < len(self.cuts)
            else max(ends.max() for ends in self.ends.values())
        )
        return int(stop - self.cuts[output])


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


def _live(entries: pa.Table) -> pa.Table:
    return entries.filter(array_of(entries["status"].to_numpy() != DELETED))


def sort_keys(entries: pa.Table, source: ManifestSource, target: Target) -> list[pa.Array]:
    """The sort keys of the partition fields, by the spec's order, whatever the writer calls them."""
    column = entries["partition"].combine_chunks()
    ids = [field.field_id for field in partition_type(record_type(source)).fields]
    keys = []
    for field, type_name in zip(target.spec["fields"], target.types, strict=True):
        values = (
            column.field(ids.index(field["field-id"]))
            if field["field-id"] in ids
            else pa.nulls(len(column), pa.int64())
        )
        keys.append(sort_key(values, type_name))
    return keys


def ranks_of(key: pa.Array) -> Ints:
    """Ranks in the order of the values; nulls first."""
    ranks = pc.rank(key, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    nulls_first: Ints = np.where(key.is_null().to_numpy(zero_copy_only=False), 0, ranks)
    return nulls_first


def runs_of(owners: Ints, keys: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """Entries by manifest and then by partition; and the start of each manifest's partition in this order."""
    columns = [ranks_of(key) for key in keys]
    order = np.lexsort((*reversed(columns), owners))
    changes = np.zeros(len(order), np.bool_)
    changes[:1] = True
    for column in (owners, *columns):
        changes[1:] |= np.diff(column[order]) != 0
    return order, np.flatnonzero(changes)


@dataclass(frozen=True, slots=True)
class Identities:
    """Number of entries, and two sums modulo 2^64 of 64-bit hashes of their identities."""

    count: int = 0
    one: int = 0
    other: int = 0

    @classmethod
    def of(cls, entries: pa.Table) -> Identities:
        """The identities of entries with the columns `IDENTITY`."""
        hashes: npt.NDArray[np.uint64] = np.full(entries.num_rows, _ODD)
        for name in IDENTITY:
            column = entries[name].combine_chunks()
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            values = column.fill_null(0).to_numpy()
            values = values.astype(np.int64).view(np.uint64) if values.dtype != np.uint64 else values
            hashes = (hashes ^ values) * _MULTIPLIER + valid.astype(np.uint64)
            hashes ^= hashes >> np.uint64(31)
        mixed = hashes * _OTHER
        mixed ^= mixed >> np.uint64(29)
        return cls(
            entries.num_rows, int(hashes.sum(dtype=np.uint64)), int((mixed * mixed).sum(dtype=np.uint64))
        )

    @classmethod
    def together(cls, parts: Iterable[Identities]) -> Identities:
        """The identities of all entries of disjoint sets."""
        found = list(parts)
        return cls(
            sum(part.count for part in found),
            sum(part.one for part in found) & _BITS,
            sum(part.other for part in found) & _BITS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPart:
    """Some blocks of a new manifest, and counts, summaries and identities of their entries."""

    output: int
    blocks: bytes | memoryview
    files: int
    rows: int
    min_sequence_number: int
    all_rows_have_ids: bool
    summaries: tuple[FieldSummary, ...]
    identities: Identities


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Makes parts of some of the new manifests from a batch of old ones.

    Args:
        target: schema, spec and codec of new manifests.
        placement: of all live entries.
        syncs: markers of all new manifests.
        outputs: indices of the new manifests to make.
    """

    target: Target
    placement: Placement
    syncs: Sequence[bytes]
    outputs: tuple[int, ...]

    def __call__(self, batch: Opened) -> dict[int, bytes]:
        """Of each new manifest its parts with their order, see `parts_in_order`."""
        first = batch[0][0]
        found: dict[int, list[tuple[tuple[int, int], ManifestPart]]] = {}
        parts = (part for numbers, sources in by_schema(batch) for part in self._parts(numbers, sources))
        for index, part in enumerate(parts):
            found.setdefault(part.output, []).append(((first, index), part))
        return {output: _packed(ordered) for output, ordered in found.items()}

    def _parts(self, numbers: Sequence[int], sources: Sequence[ManifestSource]) -> Iterator[ManifestPart]:
        text, _ = self.target.header()
        avro = record_type(sources[0])
        splice = recipe(avro, parse_schema(text.encode())[1])
        columns = (*IDENTITY, "status", "partition") if splice else (*ENTRY_COLUMNS, "file_path_hash")
        edges = splice.edges if splice else ()
        (batch,) = read_entries(sources, columns=columns, edges=edges)
        entries = batch.table
        if not self.target.with_row_ids:
            nulls = pa.nulls(entries.num_rows, pa.int64())
            entries = entries.set_column(entries.column_names.index("first_row_id"), "first_row_id", nulls)
        keys = sort_keys(entries, sources[0], self.target)
        rows, outputs = self._order(entries, keys, numbers)
        size = 0
        if splice:
            payload, starts = payload_of(sources)
            size = len(payload)
            added = array_of(starts[entries["manifest"].to_numpy()])
            for edge in splice.edges:
                moved = pc.add(entries[edge.name], added)
                entries = entries.set_column(entries.column_names.index(edge.name), edge.name, moved)
            encode: Encode = partial(spliced, splice, entries, payload)
        else:
            encode = partial(encoded, text, partition_type(avro), entries)
        at_once = max(_ENCODED_BYTES * entries.num_rows // max(size, 1), 1)
        for start, stop in _slices(outputs):
            yield self._part(int(outputs[start]), rows[start:stop], entries, keys, encode, at_once)

    def _order(
        self, entries: pa.Table, keys: Sequence[pa.Array], numbers: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """The live entries of the new manifests to make, by these and in their order; and each one's."""
        live = np.flatnonzero(entries["status"].to_numpy() != DELETED)
        owners = entries["manifest"].to_numpy()[live]
        chosen = [keys[index].take(array_of(live)) for index in self.target.sort_by]
        order, starts = runs_of(owners, chosen if self.placement.sorted_runs else [])
        lengths = np.diff(np.append(starts, len(order)))
        own = np.arange(len(order)) - np.repeat(starts, lengths)
        firsts = [
            self.placement.ranks[numbers[owner]] for owner in np.flatnonzero(np.bincount(owners)).tolist()
        ]
        ranks = np.empty(len(order), np.int64)
        ranks[order] = own + (np.repeat(np.concatenate(firsts), lengths) if firsts else 0)
        outputs = np.searchsorted(self.placement.cuts, ranks, side="right") - 1
        is_made = np.zeros(len(self.placement.cuts), np.bool_)
        is_made[list(self.outputs)] = True
        chosen_rows = np.flatnonzero(is_made[outputs])
        ordered = [] if self.placement.sorted_runs else [ranks_of(key)[chosen_rows] for key in chosen]
        chosen_rows = chosen_rows[np.lexsort((ranks[chosen_rows], *reversed(ordered), outputs[chosen_rows]))]
        return live[chosen_rows], outputs[chosen_rows]

    def _part(
        self,
        output: int,
        rows: Ints,
        entries: pa.Table,
        keys: Sequence[pa.Array],
        encode: Encode,
        at_once: int,
    ) -> ManifestPart:
        """The blocks of entries that go to one new manifest, encoded `at_once` entries at a time."""
        blocks: list[bytes] = []
        for first in range(0, len(rows), at_once):
            values = encode(rows[first : first + at_once])
            blocks += entry_blocks(values, codec=self.target.codec, sync=self.syncs[output])
        mine = array_of(rows)
        taken = entries.select(IDENTITY).take(mine)
        typed = zip(keys, self.target.types, strict=True)
        return ManifestPart(
            output=output,
            blocks=b"".join(blocks),
            files=len(rows),
            rows=int(pc.sum(taken["record_count"]).as_py()),
            min_sequence_number=int(pc.min(taken["sequence_number"]).as_py()),
            all_rows_have_ids=self.target.with_row_ids and taken["first_row_id"].null_count == 0,
            summaries=tuple(summary_of(key.take(mine), type_name) for key, type_name in typed),
            identities=Identities.of(taken),
        )


def _packed(ordered: Sequence[tuple[tuple[int, int], ManifestPart]]) -> bytes:
    """Parts with their order: the length of a pickle, that of all but the blocks, and the blocks."""
    parts = [(order, replace(part, blocks=b""), len(part.blocks)) for order, part in ordered]
    head = pickle.dumps(parts, 5)
    return b"".join([len(head).to_bytes(_LENGTH_BYTES), head, *(part.blocks for _, part in ordered)])


def parts_in_order(contents: Sequence[bytes]) -> list[ManifestPart]:
    """All parts of a new manifest, in the order in which the entries were read, of what came in any.

    Their blocks, which are most of it, are not copied.
    """
    parts: list[tuple[tuple[int, int], ManifestPart]] = []
    for content in contents:
        data = memoryview(content)
        stop = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
        for order, part, size_bytes in pickle.loads(data[_LENGTH_BYTES:stop]):  # noqa: S301 - our own code wrote it
            parts.append((order, replace(part, blocks=data[stop : stop + size_bytes])))
            stop += size_bytes
    return [part for _, part in sorted(parts, key=itemgetter(0))]


def _slices(outputs: Ints) -> list[tuple[int, int]]:
    """Start and end of each run of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(outputs)) + 1).tolist(), len(outputs)]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]
