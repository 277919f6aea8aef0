"""Rules about manifests, batch by batch, and about their partition tuples and what a manifest list says of these.

Spec: "Manifests"; "Data File Fields", `partition`; "Partition Transforms"; "Manifest Lists", `field_summary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import hash_column
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.schema import AvroField, AvroType
from iceberg_cli.iceberg.check.entries import COUNTS, LIVE_SCHEMA, CheckedManifests, Entries, live_entries
from iceberg_cli.iceberg.check.headers import schema_contradiction, spec_contradiction
from iceberg_cli.iceberg.spec.manifests.field_summaries import FieldSummary, sort_key, summary_of
from iceberg_cli.iceberg.spec.manifests.manifest import (
    DELETED,
    EntryBatch,
    ManifestMetadata,
    ManifestSource,
    manifest_metadata,
    open_manifest,
    read_entries,
)
from iceberg_cli.iceberg.spec.table_metadata.columns import column_types
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.types.partition_keys import partition_keys
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionField, PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Type
from iceberg_cli.iceberg.spec.types.single_value import decimal_parts, fixed_length
from iceberg_cli.iceberg.spec.types.transforms import Transform, parse, result_type
from iceberg_cli.plan.findings import Bools, Example, Findings, Ints, reason_of

_DATA_FILE_ID: Final = 2
_PARTITION_ID: Final = 102
_INTEGERS: Final = (
    "int",
    "long",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
)


@dataclass(frozen=True, slots=True)
class CheckedPartitionField:
    """One partition field of a manifest: `child` is its index in the struct."""

    field: PartitionField
    transform: Transform
    type: str  # of the values; "unknown" where no schema knows the source column any more
    child: int


def parts_of(
    spec: PartitionSpec, writer: AvroType, types: Mapping[int, Type]
) -> tuple[tuple[CheckedPartitionField, ...], str]:
    """The fields of a spec in a manifest's partition struct.

    Args:
        spec: that the manifest list names.
        writer: the manifest's schema.
        types: of columns by field id, over all schemas.

    Returns:
        The fields; and what does not fit, empty where all does.
    """
    written = _partition_fields(writer)
    ids: list[int | None] = [field.field_id for field in written]
    own: list[int | None] = [field.field_id for field in spec.fields]
    if all(field_id is None for field_id in ids) and len(ids) == len(own):
        ids = own  # writers of v1 left the ids out
    if sorted(ids, key=str) != sorted(own, key=str):
        return (), f"the partition struct has fields {_listed(ids)}, spec {spec.spec_id} has {_listed(own)}"
    parts = []
    for each in spec.fields:
        child = ids.index(each.field_id)
        transform, source = parse(each.transform), types.get(each.source_id, "unknown")
        type_ = result_type(transform, source)
        avro = _plain(written[child].type)
        if transform.kind != "void" and not _fits(avro, type_):
            return (
                (),
                f"field {each.name} is of Avro's {avro.kind}, {transform.text} of a {source} gives {type_}",
            )
        parts.append(CheckedPartitionField(each, transform, type_, child))
    return tuple(parts), ""


def _partition_fields(writer: AvroType) -> Sequence[AvroField]:
    at = writer
    for field_id in (_DATA_FILE_ID, _PARTITION_ID):
        at = next((_plain(field.type) for field in at.fields if field.field_id == field_id), at)
    return at.fields


def _plain(avro: AvroType) -> AvroType:
    """Without the union that makes it optional."""
    if avro.kind != "union":
        return avro
    return next((child for child in avro.children if child.kind != "null"), avro.children[0])


def _listed(ids: Sequence[int | None]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _fits(avro: AvroType, type_: str) -> bool:
    """Whether Avro's type can hold the values; widths may be those of before a promotion."""
    if type_ == "unknown" or avro.kind == "null":
        return True
    if type_ in _INTEGERS:
        return avro.kind in {"int", "long"}
    if type_ in {"float", "double"}:
        return avro.kind in {"float", "double"}
    if decimal_parts(type_) is not None:
        return avro.kind in {"fixed", "bytes"}
    if type_ == "uuid" or fixed_length(type_) is not None:
        return avro.kind in {"fixed", "bytes", "string"}
    return avro.kind == {"boolean": "boolean", "string": "string"}.get(type_, "bytes")


def wrong_values(part: CheckedPartitionField, values: pa.Array) -> Bools | None:
    """Which of n values the field's transform cannot give; None where every value is possible."""
    kind, width = part.transform.kind, part.transform.parameter
    if kind == "void":
        return np.asarray(values.is_valid())
    if kind == "bucket" and pa.types.is_integer(values.type):
        numbers = values.fill_null(0).to_numpy()
        return np.asarray((numbers < 0) | (numbers >= width))
    if kind != "truncate":
        return None
    if pa.types.is_integer(values.type):
        return np.asarray(values.fill_null(0).to_numpy() % width != 0)
    if part.type in {"string", "binary"}:
        length = pc.utf8_length if pa.types.is_string(values.type) else pc.binary_length
        return np.asarray(pc.fill_null(length(values), 0)) > width
    return None


def check_summaries(
    parts: Sequence[CheckedPartitionField],
    partitions: pa.Array,
    bounds: Sequence[tuple[int, int]],
    listed: Sequence[tuple[str, Sequence[Mapping[str, Any]] | None]],
    findings: Findings,
) -> None:
    """Compare the field summaries of a manifest list with the manifests' partition values.

    Args:
        parts: the partition fields.
        partitions: live tuples of n manifests, one manifest after the other.
        bounds: of each manifest, its first tuple and the one after its last.
        listed: of each manifest, its path and its field summaries, None where there are none.
        findings: to add to.
    """
    children = partitions.flatten()
    for part in parts:
        if part.type == "unknown" or part.transform.kind == "void":
            continue
        keys = sort_key(children[part.child], part.type)
        place = _place(parts, part)
        for (first, stop), (path, summaries) in zip(bounds, listed, strict=True):
            if summaries is None or place >= len(summaries) or first == stop:
                continue
            try:
                stated = FieldSummary.from_row(summaries[place], part.type, path=path)
            except CorruptFile as error:
                findings.add("partition-summary-unfit", path, f"{part.field.name}: {error.reason}")
                continue
            found = summary_of(keys.slice(first, stop - first), part.type)
            reason = _too_narrow(stated, found, nan_stated=summaries[place]["contains_nan"] is not None)
            if reason:
                findings.add("partition-summary-too-narrow", path, f"{part.field.name}: {reason}")


def _place(parts: Sequence[CheckedPartitionField], part: CheckedPartitionField) -> int:
    """Summaries are in the order of the spec's fields, as `parts` are."""
    return next(place for place, each in enumerate(parts) if each is part)


def _too_narrow(stated: FieldSummary, found: FieldSummary, *, nan_stated: bool) -> str:
    if found.contains_null and not stated.contains_null:
        return "a null is there, and the manifest list says there is none"
    if found.contains_nan and nan_stated and not stated.contains_nan:
        return "a NaN is there, and the manifest list says there is none"
    if found.lower is not None and (stated.lower is None or stated.lower > found.lower):
        return "a value is below the lower bound in the manifest list"
    if found.upper is not None and (stated.upper is None or stated.upper < found.upper):
        return "a value is above the upper bound in the manifest list"
    return ""


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
    compared: dict[tuple[str | None, int | None, str | None, int], tuple[str, str]] = field(
        init=False, default_factory=dict
    )

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
        self._contradictions(header, spec_id, source, findings)
        return spec_id

    def _contradictions(
        self, header: ManifestMetadata, spec_id: int, source: ManifestSource, findings: Findings
    ) -> None:
        """Tell of a schema or spec in a header that is not the table's; what one writer says is compared once."""
        assert source.container is not None
        key = header.schema, header.schema_id, header.partition_spec, spec_id
        if key not in self.compared:
            spec = self.specs.get(spec_id)
            if spec is not None and parts_of(spec, source.container.type, self.types)[1]:
                spec = None  # the entries contradict it too, and that is a rule of its own
            self.compared[key] = schema_contradiction(header, self.metadata), spec_contradiction(header, spec)
        rules = ("manifest-schema-contradicts", "manifest-spec-contradicts")
        for rule, reason in zip(rules, self.compared[key], strict=True):
            if reason:
                findings.add(rule, source.path, reason)

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
