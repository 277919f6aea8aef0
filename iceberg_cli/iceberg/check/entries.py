"""Rules about the rows of manifest lists, and about the entries of manifests.

Spec: "Manifest Lists", "First Row ID Assignment", "Sequence Number Inheritance", "Data File Fields", "Delete Formats",
"Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.reachability.keys import keys_of
from iceberg_cli.iceberg.spec.manifests.manifest import ADDED, DELETED
from iceberg_cli.iceberg.spec.manifests.unfit_entries import VECTOR_FIELDS, UnfitEntries, unfit_entries
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.paths import canonical
from iceberg_cli.plan.findings import Bools, Findings, Ints

COUNTS: Final = tuple(
    f"{status}_{what}_count" for what in ("files", "rows") for status in ("existing", "added", "deleted")
)


def check_list(
    rows: pa.Table, snapshot: Snapshot, metadata: TableMetadata, label: str, findings: Findings
) -> None:
    """Hold the rows of a snapshot's manifest list against the rules about them.

    Args:
        rows: columns of `MANIFEST_LIST_SCHEMA`.
        snapshot: whose list it is.
        metadata: the table.
        label: how findings name the snapshot.
        findings: to add to.
    """
    paths = rows["manifest_path"].to_pylist()

    def tell(message: Any) -> Any:
        return lambda row: (paths[row], f"listed in {label}: {message(row)}")

    _check_repeats(paths, label, findings)
    content = rows["content"].to_numpy()
    numbers, lowest = rows["sequence_number"].to_numpy(), rows["min_sequence_number"].to_numpy()
    findings.add_rows(
        "manifest-sequence-number-too-high",
        numbers > snapshot.sequence_number,
        tell(lambda i: f"sequence number {numbers[i]}, the snapshot has {snapshot.sequence_number}"),
    )
    findings.add_rows(
        "manifest-min-sequence-number-too-high",
        (lowest > numbers) & (numbers <= snapshot.sequence_number),
        tell(lambda i: f"min_sequence_number {lowest[i]} is above its sequence number {numbers[i]}"),
    )
    if metadata.format_version == 1:
        findings.add_rows(
            "deletes-before-v2", content == 1, tell(lambda _: "a delete manifest in a table of version 1")
        )
    if snapshot.manifest_list is not None:
        _check_written_list(rows, metadata, label, findings, tell)
    if metadata.format_version > 2:
        _check_row_ids(rows, snapshot, findings, tell)


def _check_repeats(paths: Sequence[str], label: str, findings: Findings) -> None:
    seen: set[str] = set()
    for path in paths:
        if (key := canonical(path)) in seen:
            message = f"listed more than once in {label}, and all its files with it"
            findings.add("manifest-listed-twice", path, message)
        seen.add(key)


def _check_written_list(
    rows: pa.Table, metadata: TableMetadata, label: str, findings: Findings, tell: Any
) -> None:
    """Check the fields that only a manifest list has, not a version 1 snapshot that names its manifests itself."""
    spec_ids = rows["partition_spec_id"].to_numpy()
    fields = {spec.spec_id: len(spec.fields) for spec in metadata.partition_specs}
    findings.add_rows(
        "manifest-spec-missing",
        ~np.isin(spec_ids, list(fields)),
        tell(lambda i: f"partition spec {spec_ids[i]} is not in the table"),
    )
    expected = np.array([fields.get(spec_id, -1) for spec_id in spec_ids.tolist()], np.int64)
    listed = pc.fill_null(pc.list_value_length(rows["partitions"]), -1).to_numpy()
    findings.add_rows(
        "partition-summary-unfit",
        (listed >= 0) & (expected >= 0) & (listed != expected),
        tell(lambda i: f"{listed[i]} field summaries, partition spec {spec_ids[i]} has {expected[i]} fields"),
    )
    unknown = np.zeros(len(rows), np.bool_)
    for name in COUNTS:
        unknown |= rows[name].is_null().to_numpy()
    if metadata.format_version > 1 and unknown.any():
        message = f"{int(unknown.sum())} of {len(rows)} manifests have no counts, as version 1 wrote them"
        findings.add("manifest-counts-unknown", label, message)


def _check_row_ids(rows: pa.Table, snapshot: Snapshot, findings: Findings, tell: Any) -> None:
    if snapshot.first_row_id is None:
        return  # of before the upgrade
    data = rows["content"].to_numpy() == 0
    none = rows["first_row_id"].is_null().to_numpy()
    first = pc.fill_null(rows["first_row_id"], 0).to_numpy()
    own = pc.fill_null(rows["added_snapshot_id"], -1).to_numpy() == snapshot.snapshot_id
    findings.add_rows(
        "manifest-first-row-id-missing",
        data & none,
        tell(lambda _: "a data manifest without first_row_id: the rows of its files have no ids"),
    )
    findings.add_rows(
        "delete-manifest-has-first-row-id", ~data & ~none, tell(lambda i: f"it has first_row_id {first[i]}")
    )
    findings.add_rows(
        "manifest-first-row-id-too-low",
        data & ~none & own & (first < snapshot.first_row_id),
        tell(lambda i: f"first_row_id {first[i]} is below the snapshot's {snapshot.first_row_id}"),
    )


DATA_COLUMNS: Final = (
    "status", "content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes",
    "sequence_number", "file_sequence_number", "first_row_id", "key_metadata",
)  # fmt: skip
DELETE_COLUMNS: Final = (
    *DATA_COLUMNS, "equality_ids", *VECTOR_FIELDS,
)  # fmt: skip
POSITIONS, VECTOR, EQUALITY = 1, 2, 3  # kind of a delete; data files are 0
LIVE_SCHEMA: Final = pa.schema(
    {
        "manifest": pa.int32(),  # row of the manifests that were checked
        "kind": pa.int8(),
        "path": pa.string(),
        "key": pa.uint64(),  # of the path, whatever its scheme
        "parquet": pa.bool_(),
        "partition": pa.uint64(),  # a hash of spec and tuple; 0 where nobody asks
        "record_count": pa.int64(),
        "size": pa.int64(),
        "sequence_number": pa.int64(),
        "first_row_id": pa.int64(),
        "ref": pa.string(),
        "offset": pa.int64(),
        "blob_size": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedManifests:
    """The facts on n manifests and on the table before entries are read."""

    paths: Sequence[str]
    numbers: Mapping[str, Ints]  # of the manifest list by the specification's names; -1 where it says nothing
    made_in_v3: Bools  # whether the snapshot that added it has row lineage
    columns: frozenset[int]  # ids of all columns that the table ever had
    format_version: int


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of one batch; `own` are the rows of their manifests."""

    listed: CheckedManifests
    entries: pa.Table
    own: Ints
    findings: Findings

    def path(self, row: int) -> str:
        """Of an entry's file."""
        text: str = self.entries["file_path"][row].as_py()
        return text

    def counts(self, places: Ints) -> None:
        """Entries and rows by status against the manifest list, and the lowest live sequence number."""
        status = self.entries["status"].to_numpy()
        records = self.entries["record_count"].to_numpy()
        numbers = self.entries["sequence_number"].to_numpy()
        index = np.searchsorted(np.sort(places), self.own)
        places = np.sort(places)
        files = np.bincount(index * 3 + status, minlength=3 * len(places)).reshape(-1, 3)
        rows: Ints = np.zeros(3 * len(places), np.int64)
        np.add.at(rows, index * 3 + status, records)
        lowest: Ints = np.full(len(places), np.iinfo(np.int64).max)
        alive = status != DELETED
        np.minimum.at(lowest, index[alive], numbers[alive])
        found = {"files": files, "rows": rows.reshape(-1, 3)}
        stated_numbers = self.listed.numbers
        for name in COUNTS:
            kind, what, _ = name.split("_")
            mine = found[what][:, ("existing", "added", "deleted").index(kind)]
            stated = stated_numbers[name][places]
            self._differ(f"manifest-{what[:-1]}-counts-differ", name, places, mine, stated)
        stated, own = stated_numbers["min_sequence_number"][places], stated_numbers["sequence_number"][places]
        self.findings.add_rows(
            "manifest-min-sequence-number-too-high",
            (stated > lowest) & (stated <= own),
            lambda i: (
                self.listed.paths[places[i]],
                f"min_sequence_number {stated[i]} is above {lowest[i]} of a live file",
            ),
        )

    def _differ(self, rule: str, name: str, places: Ints, found: Ints, stated: Ints) -> None:
        self.findings.add_rows(
            rule,
            (stated >= 0) & (stated != found),
            lambda i: (self.listed.paths[places[i]], f"{name} is {stated[i]}, its entries have {found[i]}"),
        )

    def numbers(self) -> None:
        """Data and file sequence numbers: neither above the manifest's, the data's not above the file's."""
        data = self.entries["sequence_number"].to_numpy()
        file = pc.coalesce(self.entries["file_sequence_number"], self.entries["sequence_number"]).to_numpy()
        listed = self.listed.numbers["sequence_number"][self.own] if len(self.own) else self.own
        high = (np.maximum(data, file) > listed) | (np.minimum(data, file) < 0) | (data > file)
        self.findings.add_rows(
            "entry-sequence-number-wrong",
            high,
            lambda i: (
                self.path(i),
                f"data sequence number {data[i]}, file sequence number {file[i]}, its manifest's is {listed[i]}",
            ),
        )

    def formats(self) -> None:
        """Check file formats, and the fields that each kind of delete must have."""
        entries = self.entries
        alive = entries["status"].to_numpy() != DELETED
        for unfit in unfit_entries(
            entries, format_version=self.listed.format_version, column_ids=self.listed.columns
        ):
            self._add_unfit(unfit, alive)
        if set(DELETE_COLUMNS) <= set(entries.column_names):
            self._positions()

    def _add_unfit(self, unfit: UnfitEntries, alive: Bools) -> None:
        self.findings.add_rows(unfit.rule, alive & unfit.rows, lambda i: (self.path(i), unfit.reason(i)))

    def _positions(self) -> None:
        v3 = self.listed.made_in_v3[self.own] if len(self.own) else np.zeros(0, np.bool_)
        content = self.entries["content"].to_numpy()
        puffin = pc.equal(pc.utf8_lower(self.entries["file_format"]), "puffin").to_numpy()
        added = self.entries["status"].to_numpy() == ADDED
        self.findings.add_rows(
            "position-deletes-added-in-v3",
            added & v3 & (content == 1) & ~puffin,
            lambda i: (self.path(i), "a position delete file that was added in version 3"),
        )


def live_entries(live: pa.Table, own: Ints, hashes: npt.NDArray[np.uint64]) -> pa.Table:
    """The live entries as `LIVE_SCHEMA`."""
    formats = pc.utf8_lower(live["file_format"].combine_chunks())
    content = live["content"].to_numpy()
    vector = pc.equal(formats, "puffin").to_numpy(zero_copy_only=False) & (content == 1)
    paths = live["file_path"].combine_chunks()
    plain = live["key_metadata"].combine_chunks().is_null()
    columns: dict[str, Any] = {
        "manifest": pa.array(own, pa.int32()),
        "kind": pa.array(np.where(vector, VECTOR, np.where(content == 2, EQUALITY, content)), pa.int8()),
        "path": paths,
        "key": pa.array(keys_of(paths), pa.uint64()),
        "parquet": pc.and_(pc.equal(formats, "parquet"), plain),
        "partition": pa.array(hashes),
        "record_count": live["record_count"],
        "size": live["file_size_in_bytes"],
        "sequence_number": live["sequence_number"],
        "first_row_id": live["first_row_id"],
    }
    for name, source in (
        ("ref", "referenced_data_file"),
        ("offset", "content_offset"),
        ("blob_size", "content_size_in_bytes"),
    ):
        there = source in live.column_names
        columns[name] = live[source] if there else pa.nulls(len(live), LIVE_SCHEMA.field(name).type)
    # What nothing says the place of is not looked for in an encrypted file.
    columns["offset"] = pc.if_else(plain, columns["offset"], pa.scalar(None, pa.int64()))
    return pa.table(columns, schema=LIVE_SCHEMA)
