"""Rules about manifests, batch by batch, and about their partition tuples.

Spec: "Manifests"; "Data File Fields", `partition`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.check.entries import LIVE_SCHEMA, CheckedManifests, Entries, live_entries
from iceberg_cli.iceberg.check.lists import COUNTS
from iceberg_cli.iceberg.check.partitions import (
    CheckedPartitionField,
    check_summaries,
    parts_of,
    wrong_values,
)
from iceberg_cli.iceberg.spec.columns import column_types
from iceberg_cli.iceberg.spec.manifest import (
    DELETED,
    EntryBatch,
    ManifestSource,
    manifest_metadata,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.metadata import PartitionSpec, TableMetadata
from iceberg_cli.iceberg.spec.partition_keys import partition_keys
from iceberg_cli.iceberg.spec.schema import Type
from iceberg_cli.plan.findings import Bools, Example, Findings, Ints, reason_of


@dataclass(slots=True, kw_only=True)
class EntryRules:
    """Checks manifests where they are decoded, and collects what the rules about whole snapshots compare.

    Args:
        metadata: the table.
        rows: n manifests, each once; rows of manifest lists.
        inline: for each of them, whether only a v1 snapshot names it, so that nothing is said of it.
        with_partitions: whether anybody asks for the partitions of data files.
    """

    metadata: TableMetadata
    rows: pa.Table
    inline: Bools
    with_partitions: bool
    specs: dict[int, PartitionSpec] = field(init=False)
    types: dict[int, Type] = field(init=False)
    listed: CheckedManifests = field(init=False)

    def __post_init__(self) -> None:
        """Derive what every batch uses."""
        self.specs = {spec.spec_id: spec for spec in self.metadata.partition_specs}
        self.types = column_types(self.metadata)
        names = ("manifest_length", "partition_spec_id", "sequence_number", "min_sequence_number", *COUNTS)
        lineage = [each.snapshot_id for each in self.metadata.snapshots if each.first_row_id is not None]
        made = pc.is_in(self.rows["added_snapshot_id"], value_set=pa.array(lineage, pa.int64()))
        self.listed = CheckedManifests(
            paths=self.rows["manifest_path"].to_pylist(),
            numbers={name: pc.fill_null(self.rows[name].cast(pa.int64()), -1).to_numpy() for name in names},
            made_in_v3=made.to_numpy(),
            columns=frozenset(self.types),
            format_version=self.metadata.format_version,
        )

    def check_header(self, place: int, source: ManifestSource, size: int, findings: Findings) -> int:
        """Compare a manifest's file and header with its row in the manifest list.

        Args:
            place: row of the manifest.
            source: opened.
            size: of the file in bytes.
            findings: to add to.

        Returns:
            The partition spec id that its entries go by.
        """
        path = self.listed.paths[place]
        stated = int(self.listed.numbers["manifest_length"][place])
        if stated not in {-1, size}:
            message = f"the file has {size} bytes, its manifest list says {stated}"
            # Equal counts prove it whole, and that they are equal is a rule of its own.
            counted = all(self.listed.numbers[name][place] >= 0 for name in COUNTS if "_files_" in name)
            rule = "manifest-length-stale" if counted else "manifest-length-differs"
            findings.add(rule, path, message)
        assert source.container is not None
        header = manifest_metadata(source.container)
        spec_id = int(self.listed.numbers["partition_spec_id"][place])
        if self.inline[place]:
            return header.partition_spec_id or 0
        if header.partition_spec_id not in {None, spec_id}:
            message = (
                f"written with partition spec {header.partition_spec_id}, its manifest list says {spec_id}"
            )
            findings.add("manifest-header-differs", path, message)
        if (header.format_version or 1) > self.metadata.format_version:
            version = self.metadata.format_version
            message = f"written in version {header.format_version}, the table is of version {version}"
            findings.add("manifest-header-differs", path, message)
        return spec_id

    def check_entries(
        self,
        places: Sequence[int],
        spec_ids: Sequence[int],
        sources: Sequence[ManifestSource],
        batch: EntryBatch,
        findings: Findings,
    ) -> pa.Table:
        """Hold the entries of manifests against the rules about them.

        Args:
            places: rows of the manifests in `sources`.
            spec_ids: of their entries.
            sources: opened.
            batch: their entries, with `DATA_COLUMNS` or `DELETE_COLUMNS`.
            findings: to add to.

        Returns:
            The live ones, `LIVE_SCHEMA`.
        """
        entries = batch.table
        own = np.array(places, np.int64)[entries["manifest"].to_numpy()] if len(entries) else _NONE
        checked = Entries(self.listed, entries, own, findings)
        checked.counts(np.array([places[index] for index in batch.sources], np.int64))
        checked.numbers()
        checked.formats()
        alive = entries["status"].to_numpy() != DELETED
        live, mine = entries.filter(pa.array(alive)), own[alive]
        hashes: npt.NDArray[np.uint64] = np.zeros(len(live), np.uint64)
        in_batch = np.array(spec_ids, np.int64)[live["manifest"].to_numpy()] if len(live) else _NONE
        for spec_id in sorted({spec_ids[index] for index in batch.sources}):
            chosen = in_batch == spec_id
            writer = sources[next(i for i in batch.sources if spec_ids[i] == spec_id)]
            hashes[chosen] = self._partitions(
                spec_id, writer, live.filter(pa.array(chosen)), mine[chosen], findings
            )
        return live_entries(live, mine, hashes)

    def _partitions(
        self, spec_id: int, writer: ManifestSource, entries: pa.Table, own: Ints, findings: Findings
    ) -> npt.NDArray[np.uint64]:
        """Check the tuples of one spec and schema; a hash of each."""
        none = np.zeros(len(entries), np.uint64)
        spec = self.specs.get(spec_id)
        if spec is None or writer.container is None:
            return none
        parts, reason = parts_of(spec, writer.container.type, self.types)
        if reason:
            findings.add("partition-tuple-unfit", writer.path, reason)
            return none
        partitions = entries["partition"].combine_chunks()
        if parts and len(entries):
            self._values(parts, partitions, entries, own, findings)
        deletes = "ref" in entries.column_names or "referenced_data_file" in entries.column_names
        if not len(entries) or not (self.with_partitions or deletes):
            return none
        return hash_column(
            partition_keys(spec_id, _in_order(partitions, parts), [part.type for part in parts])
        )

    def _values(
        self,
        parts: Sequence[CheckedPartitionField],
        partitions: pa.Array,
        entries: pa.Table,
        own: Ints,
        findings: Findings,
    ) -> None:
        children = partitions.flatten()
        paths = entries["file_path"]
        for part in parts:
            values = children[part.child]
            bad = wrong_values(part, values)
            if bad is not None:
                findings.add_rows("partition-value-unfit", bad, _tell_value(part, values, paths))
        starts = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
        stops = np.append(starts[1:], len(own))
        listed = [
            (self.listed.paths[place], self.rows["partitions"][place].as_py())
            for place in own[starts].tolist()
        ]
        bounds = list(zip(starts.tolist(), stops.tolist(), strict=True))
        check_summaries(parts, partitions, bounds, listed, findings)


_NONE: Final[Ints] = np.empty(0, np.int64)


def _tell_value(part: CheckedPartitionField, values: pa.Array, paths: pa.ChunkedArray) -> Any:
    def tell(row: int) -> Example:
        value = values[row].as_py()
        text = f"{part.field.name} is {value!r:.60}, which {part.transform.text} never gives"
        return paths[row].as_py(), text

    return tell


def _in_order(partitions: pa.Array, parts: Sequence[CheckedPartitionField]) -> pa.Array:
    """The tuples with their fields in the order of the spec, which keys of partitions go by."""
    if [part.child for part in parts] == list(range(partitions.type.num_fields)):
        return partitions
    children = partitions.flatten()
    return pa.StructArray.from_arrays(
        [children[part.child] for part in parts], names=[part.field.name for part in parts]
    )


def unchecked(source: ManifestSource) -> ManifestSource:
    """A source without the list's facts on the file: the check reports differences itself, and goes on."""
    return replace(
        source, length=None, added_files_count=None, existing_files_count=None, deleted_files_count=None
    )


Opened = tuple[ManifestSource, int]


def open_checked(source: ManifestSource, data: bytes) -> Opened | CorruptFile:
    """The manifest, opened, and its size in bytes; or why it cannot be opened."""
    try:
        return open_manifest(source, data), len(data)
    except CorruptFile as error:
        return error


def check_batch(
    batch: Sequence[tuple[tuple[int, ManifestSource], Opened | CorruptFile | None]],
    rules: EntryRules,
    columns: Sequence[str],
) -> tuple[Findings, pa.Table, list[int]]:
    """Check the manifests of a batch: findings, their live files, and the manifests that could not be read."""
    findings = Findings()
    unread: list[int] = []
    places: list[int] = []
    spec_ids: list[int] = []
    sources: list[ManifestSource] = []
    for (place, source), opened in batch:
        if opened is None:
            findings.add("manifest-missing", source.path, "its snapshot needs it, and it is not there")
        elif isinstance(opened, CorruptFile):
            findings.add("manifest-unreadable", source.path, reason_of(opened))
        else:
            places.append(place)
            sources.append(opened[0])
            spec_ids.append(rules.check_header(place, *opened, findings))
            continue
        unread.append(place)
    try:
        decoded = read_entries(sources, columns=columns)
    except CorruptFile:
        bad = _unreadable(sources, columns)
        for index, error in bad.items():
            findings.add("manifest-unreadable", sources[index].path, reason_of(error))
        unread += [places[index] for index in bad]
        good = [index for index in range(len(sources)) if index not in bad]
        places, spec_ids = [places[index] for index in good], [spec_ids[index] for index in good]
        sources = [sources[index] for index in good]
        decoded = read_entries(sources, columns=columns)
    files = [rules.check_entries(places, spec_ids, sources, entries, findings) for entries in decoded]
    return findings, pa.concat_tables([LIVE_SCHEMA.empty_table(), *files]).combine_chunks(), unread


def _unreadable(sources: Sequence[ManifestSource], columns: Sequence[str]) -> dict[int, CorruptFile]:
    """Which manifests cannot be decoded, each with the reason."""
    bad = {}
    for index, source in enumerate(sources):
        try:
            read_entries([source], columns=columns)
        except CorruptFile as error:
            bad[index] = error
    return bad
