"""Entries that a new manifest takes over from old ones, as EXISTING or as DELETED.

Spec: "Manifest Entry Fields", "Sequence Number Inheritance".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.engines import Scan, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.projection import Ints
from iceberg_cli.iceberg.avro.schema import parse_schema
from iceberg_cli.iceberg.branch.opened_manifests import Opened, by_schema, partition_type, record_type
from iceberg_cli.iceberg.reachability.keys import sources_of
from iceberg_cli.iceberg.spec.manifests.manifest import (
    DELETED,
    ENTRY_COLUMNS,
    EXISTING,
    ManifestSource,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.manifests.splice import encoded as encoded_slowly
from iceberg_cli.iceberg.spec.manifests.splice import payload_of, recipe, spliced
from iceberg_cli.iceberg.table import IcebergTable


def carried_values(
    table: IcebergTable,
    manifests: pa.Table,
    removed: Mapping[int, Ints],
    *,
    schema_text: str,
    phase: str,
    removed_by: int | None = None,
) -> list[pa.Array]:
    """The encodings of the live entries of manifests that are replaced, manifest by manifest.

    Args:
        table: as loaded.
        manifests: rows of its manifest list.
        removed: for each manifest that is replaced, by its row, the indices of the entries that go.
        schema_text: of the new manifest.
        phase: of progress.
        removed_by: the snapshot whose id entries that go have; None: they inherit it, which version 1 does not have.

    Raises:
        CorruptFile: a manifest cannot be read whole. Refused: it has fields that a new one would lose.
    """
    order = sorted(removed)
    sources = dict(zip(order, sources_of(manifests.take(pa.array(order, pa.int64()))), strict=True))
    found: dict[int, list[pa.Array]] = {row: [] for row in order}
    scan: Scan[int, ManifestSource, list[tuple[int, pa.Array]]] = Scan(
        lambda row: Source(sources[row].path, sources[row].length or 0),
        lambda row, data: open_manifest(sources[row], data),
        EntryBuilder(schema_text=schema_text, removed=removed, removed_by=removed_by),
        phase=phase,
    )
    for batch in table.engine.scan(scan, order, on_event=table.on_event):
        for row, values in batch:
            found[row].append(values)
    return [values for row in order for values in found[row]]


_SPLICED: Final = ("status", "snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryBuilder:
    """Encodes the entries that new manifests take over from old ones, maybe in another process.

    Args:
        schema_text: of the new manifests.
        removed: for each old manifest, by its row of the manifest list, the indices of the entries that go.
        removed_by: see `carried_values`.
    """

    schema_text: str
    removed: Mapping[int, Ints]
    removed_by: int | None = None

    def __call__(self, batch: Opened) -> list[tuple[int, pa.Array]]:
        """Of each manifest its row and the encodings of its live entries, as EXISTING or DELETED."""
        return [found for numbers, sources in by_schema(batch) for found in self._carried(numbers, sources)]

    def _carried(
        self, numbers: Sequence[int], sources: Sequence[ManifestSource]
    ) -> Iterator[tuple[int, pa.Array]]:
        avro = record_type(sources[0])
        found = recipe(avro, parse_schema(self.schema_text.encode())[1])
        edges = found.edges if found else ()
        (batch,) = read_entries(sources, columns=_SPLICED if found else ENTRY_COLUMNS, edges=edges)
        entries = batch.table
        starts = np.searchsorted(entries["manifest"].to_numpy(), np.arange(len(sources)))
        gone = np.zeros(len(entries), np.bool_)
        for number, start in zip(numbers, starts.tolist(), strict=True):
            gone[start + self.removed[number]] = True
        # Null inherits the id of the snapshot that deletes it.
        ids = pc.if_else(pa.array(gone), pa.scalar(self.removed_by, pa.int64()), entries["snapshot_id"])
        entries = entries.set_column(entries.column_names.index("snapshot_id"), "snapshot_id", ids)
        rows = np.flatnonzero(entries["status"].to_numpy() != DELETED)
        statuses = np.where(gone[rows], DELETED, EXISTING).astype(np.uint8)
        if found:
            payload, begins = payload_of(sources)
            moved = pa.array(begins[entries["manifest"].to_numpy()])
            for edge in edges:
                place = entries.column_names.index(edge.name)
                entries = entries.set_column(place, edge.name, pc.add(entries[edge.name], moved))
            values = spliced(found, entries, payload, rows, statuses=statuses)
        else:
            try:
                values = encoded_slowly(
                    self.schema_text, partition_type(avro), entries, rows, statuses=statuses
                )
            except ValueError as error:
                raise CorruptFile(sources[0].path, None, f"here or in one written alike: {error}") from error
        bounds = [*np.searchsorted(rows, starts).tolist(), len(rows)]
        for index, number in enumerate(numbers):
            yield number, values.slice(bounds[index], bounds[index + 1] - bounds[index])
