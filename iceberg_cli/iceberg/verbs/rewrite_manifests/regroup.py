"""The Avro blocks of new manifests, made of the live entries of many old ones.

`placement.py` assigns each entry to a new manifest. `Regroup` runs over batches of manifests, maybe in other processes,
and makes blocks of the new ones. The blocks of one new manifest come batch by batch: sorted by partition inside each,
so that all entries of a manifest lie between its first and its last partition, and only compressed blocks stay in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.iceberg.avro.projection import Ints
from iceberg_cli.iceberg.avro.schema import parse_schema
from iceberg_cli.iceberg.spec.field_summaries import FieldSummary, summary_of
from iceberg_cli.iceberg.spec.manifest import DELETED, ENTRY_COLUMNS, ManifestSource, read_entries
from iceberg_cli.iceberg.spec.manifest_splice import encoded, payload_of, recipe, spliced
from iceberg_cli.iceberg.spec.manifest_writer import entry_blocks
from iceberg_cli.iceberg.verbs.rewrite_manifests.identities import IDENTITY, Identities
from iceberg_cli.iceberg.verbs.rewrite_manifests.placement import (
    Opened,
    Placement,
    Target,
    by_schema,
    partition_type,
    ranks_of,
    record_type,
    runs_of,
    sort_keys,
)

_ENCODED_BYTES = 1 << 20  # of new entries that are made at once, before they are compressed

Encode = Callable[[Ints], pa.Array]  # the new encodings of some entries, by their rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPart:
    """Some blocks of a new manifest, and counts, summaries and identities of their entries."""

    output: int
    blocks: bytes
    files: int
    rows: int
    min_sequence_number: int
    all_rows_have_ids: bool
    summaries: tuple[FieldSummary, ...]
    identities: Identities


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Makes the blocks of the new manifests `first` to `last`."""

    target: Target
    placement: Placement
    syncs: Sequence[bytes]  # of all new manifests
    first: int
    last: int

    def __call__(self, batch: Opened) -> list[ManifestPart]:
        """The parts of new manifests that the entries of a batch make."""
        return [part for numbers, sources in by_schema(batch) for part in self._parts(numbers, sources)]

    def _parts(self, numbers: Sequence[int], sources: Sequence[ManifestSource]) -> Iterator[ManifestPart]:
        text, _ = self.target.header()
        avro = record_type(sources[0])
        found = recipe(avro, parse_schema(text.encode())[1])
        columns = (*IDENTITY, "status", "partition") if found else (*ENTRY_COLUMNS, "file_path_hash")
        edges = found.edges if found else ()
        (batch,) = read_entries(sources, columns=columns, edges=edges)
        entries = batch.table
        if not self.target.with_row_ids:
            nulls = pa.nulls(entries.num_rows, pa.int64())
            entries = entries.set_column(entries.column_names.index("first_row_id"), "first_row_id", nulls)
        keys = sort_keys(entries, sources[0], self.target)
        rows, outputs = self._order(entries, keys, numbers)
        size = 0
        if found:
            payload, starts = payload_of(sources)
            size = len(payload)
            added = array_of(starts[entries["manifest"].to_numpy()])
            for edge in found.edges:
                moved = pc.add(entries[edge.name], added)
                entries = entries.set_column(entries.column_names.index(edge.name), edge.name, moved)
            encode: Encode = partial(spliced, found, entries, payload)
        else:
            encode = partial(encoded, text, partition_type(avro), entries)
        at_once = max(_ENCODED_BYTES * entries.num_rows // max(size, 1), 1)
        for start, stop in _slices(outputs):
            yield self._part(int(outputs[start]), rows[start:stop], entries, keys, encode, at_once)

    def _order(
        self, entries: pa.Table, keys: Sequence[pa.Array], numbers: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """The live entries of the new manifests `first` to `last`, by these and in their order; and each one's."""
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
        chosen_rows = np.flatnonzero((outputs >= self.first) & (outputs <= self.last))
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


def _slices(outputs: Ints) -> list[tuple[int, int]]:
    """Start and end of each run of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(outputs)) + 1).tolist(), len(outputs)]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]
