"""inspect: one screen about a table, from its metadata, the rows of one manifest list and what was read of manifests.

Counts of files come from the manifest list and from delete manifests. Rows and bytes of data files come from the
data manifests where those were read, and otherwise from the snapshot's summary, which other writers let drift;
`sources` says which, and `disagreements` shows both where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.inspect.metadata_rows import Row, id_text, ref_rows
from iceberg_cli.iceberg.reachability.keys import Keys, key_set, keys_of, live
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.plan.text import iso

RECOUNT_BYTES: Final = 16 << 20  # of manifests that are read without being asked
DATA_COLUMNS: Final = ("status", "record_count", "file_size_in_bytes")
DELETE_COLUMNS: Final = (
    "status", "content", "file_path", "file_format", "record_count", "file_size_in_bytes", "content_size_in_bytes",
)  # fmt: skip
_DEFAULT_TARGET_FILE_BYTES: Final = 512 << 20
_DEFAULT_TARGET_MANIFEST_BYTES: Final = 8 << 20
_SMALL: Final = 0.75  # of the target size: what rewrite_data_files takes for small
_IN_SUMMARY: Final = {
    "data_files": "total-data-files",
    "records": "total-records",
    "delete_files": "total-delete-files",
    "deleted_records": "total-position-deletes",
    "equality_delete_records": "total-equality-deletes",
    "files_bytes": "total-files-size",
}


@dataclass(slots=True)
class Tally:
    """Sums over live entries, batch by batch. Bytes of a deletion vector are its blob's, not its Puffin file's.

    Args:
        small_bytes: a data file below this is small.
    """

    small_bytes: int
    data_files: int = 0
    records: int = 0
    data_bytes: int = 0
    small_files: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    deletion_vectors: int = 0
    deleted_records: int = 0
    equality_delete_records: int = 0
    delete_bytes: int = 0
    deletion_vector_bytes: int = 0
    puffin_bytes: int = 0
    _puffins: Keys = field(default_factory=lambda: np.empty(0, np.uint64))

    @property
    def puffin_files(self) -> int:
        """The Puffin files, each once, however many deletion vectors it has."""
        return len(self._puffins)

    def add_data(self, entries: pa.Table) -> None:
        """Take entries of data manifests into account: the columns `DATA_COLUMNS`."""
        rows = live(entries)
        sizes = rows["file_size_in_bytes"].to_numpy()
        self.data_files += rows.num_rows
        self.records += int(rows["record_count"].to_numpy().sum())
        self.data_bytes += int(sizes.sum())
        self.small_files += int((sizes < self.small_bytes).sum())

    def add_deletes(self, entries: pa.Table) -> None:
        """Take entries of delete manifests into account: the columns `DELETE_COLUMNS`."""
        rows = live(entries)
        equality = rows["content"].to_numpy() == 2
        blobs = np.asarray(pc.fill_null(rows["content_size_in_bytes"].combine_chunks(), -1))
        puffin = np.asarray(pc.equal(pc.utf8_lower(rows["file_format"].combine_chunks()), "puffin"))
        vectors = ~equality & puffin
        records = rows["record_count"].to_numpy()
        sizes = rows["file_size_in_bytes"].to_numpy()
        own = np.where(vectors & (blobs >= 0), blobs, sizes)
        self.deletion_vectors += int(vectors.sum())
        self.equality_delete_files += int(equality.sum())
        self.position_delete_files += int((~equality & ~vectors).sum())
        self.deleted_records += int(records[~equality].sum())
        self.equality_delete_records += int(records[equality].sum())
        self.delete_bytes += int(own.sum())
        self.deletion_vector_bytes += int(own[vectors].sum())
        keys, first = np.unique(keys_of(rows["file_path"].filter(pa.array(vectors))), return_index=True)
        fresh = ~np.isin(keys, self._puffins)
        self.puffin_bytes += int(sizes[vectors][first][fresh].sum())
        self._puffins = key_set([self._puffins, keys])


def fleet_columns(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `fleet/1` about a table's size and shape, from the document of its summary."""
    totals, manifests, sizes = summary["totals"], summary["manifests"], summary["data_file_sizes"]
    count = totals["data_manifests"] + totals["delete_manifests"]
    # As many as there would be if all but the last were as large as the table asks for.
    fewest = -(-(totals["manifest_bytes"] or 0) // manifests["target_size_bytes"])
    return {
        "snapshots": summary["snapshot_count"],
        "oldest_snapshot_ms": summary["oldest_snapshot_ms"],
        "files": totals["data_files"],
        "small_files": sizes["small_files"],
        "data_bytes": totals["data_bytes"],
        "delete_ratio": summary["delete_ratio"],
        "manifests": count,
        "manifest_target_ratio": round(count / fewest, 2) if fewest else None,
        "metadata_bytes": summary["metadata_file"]["size_bytes"],
        "log_versions_since_checkpoint": None,
    }


def small_bytes(metadata: TableMetadata) -> int:
    """Below which size a data file is small.

    Raises:
        InvalidMetadata: a property is no number.
    """
    return int(metadata.property_int("write.target-file-size-bytes", _DEFAULT_TARGET_FILE_BYTES) * _SMALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFacts:
    """The input of a summary.

    `manifests` are rows of the manifest list; `recounted` whether the tally has the data manifests too;
    `metadata_bytes` the size of the metadata file as stored; `suggestions` what `plan` would do, `open_operations`
    elements of `operations/2`.
    """

    manifests: pa.Table
    tally: Tally
    recounted: bool
    metadata_bytes: int | None
    read_only: str | None
    suggestions: tuple[Row, ...]
    open_operations: tuple[Row, ...]


def summarize(
    metadata: TableMetadata, snapshot: Snapshot | None, facts: SummaryFacts, *, as_of_ms: int
) -> dict[str, Any]:
    """The fields of a summary after the header.

    Args:
        metadata: the table.
        snapshot: the one that is shown; None for a table without data.
        facts: what was read.
        as_of_ms: the "now" of ages, in ms since the epoch.
    """
    times = [s.timestamp_ms for s in metadata.snapshots]
    totals, sources = _totals(snapshot, facts)
    return {
        "read_only": facts.read_only,
        "last_updated_ms": metadata.last_updated_ms,
        "last_updated": iso(metadata.last_updated_ms),
        "snapshot": None if snapshot is None else _snapshot(snapshot, as_of_ms=as_of_ms),
        "snapshot_count": len(metadata.snapshots),
        "oldest_snapshot_ms": min(times, default=None),
        "oldest_snapshot": iso(min(times, default=None)),
        "newest_snapshot_ms": max(times, default=None),
        "newest_snapshot": iso(max(times, default=None)),
        "refs": ref_rows(metadata),
        "dangling_refs": list(metadata.dangling_refs()),
        "schema_count": len(metadata.schemas),
        "partition_spec_count": len(metadata.partition_specs),
        "statistics_files": len(metadata.statistics),
        "partition_statistics_files": len(metadata.partition_statistics),
        "totals": totals,
        "recounted": facts.recounted,
        "sources": sources,
        "disagreements": _disagreements(snapshot, totals, sources),
        "data_file_sizes": _sizes(metadata, totals, facts),
        "delete_ratio": _ratio(totals["deleted_records"], totals["records"]),
        "manifests": _manifests(metadata, facts),
        "metadata_file": {
            "size_bytes": facts.metadata_bytes,
            "log_length": len(metadata.metadata_log),
            "previous_versions_max": metadata.property_int("write.metadata.previous-versions-max", 100),
        },
        "row_lineage": _row_lineage(metadata, snapshot, facts.manifests),
        "suggestions": list(facts.suggestions),
        "open_operations": [each["operation_id"] for each in facts.open_operations],
        "operations": list(facts.open_operations),
    }


def _snapshot(snapshot: Snapshot, *, as_of_ms: int) -> Row:
    return {
        "snapshot_id": id_text(snapshot.snapshot_id),
        "parent_id": id_text(snapshot.parent_snapshot_id),
        "sequence_number": id_text(snapshot.sequence_number),
        "timestamp_ms": snapshot.timestamp_ms,
        "timestamp": iso(snapshot.timestamp_ms),
        "age_ms": as_of_ms - snapshot.timestamp_ms,
        "operation": snapshot.operation,
        "schema_id": snapshot.schema_id,
        "summary": dict(snapshot.summary or {}),
    }


def _totals(snapshot: Snapshot | None, facts: SummaryFacts) -> tuple[Row, dict[str, str]]:
    """Totals by name, and where those that may come from elsewhere came from."""
    tally, rows = facts.tally, facts.manifests
    contents = rows["content"].to_numpy()
    totals: Row = {
        "data_files": tally.data_files,
        "data_bytes": tally.data_bytes,
        "records": tally.records,
        "position_delete_files": tally.position_delete_files,
        "equality_delete_files": tally.equality_delete_files,
        "deletion_vectors": tally.deletion_vectors,
        "delete_bytes": tally.delete_bytes,
        "deleted_records": tally.deleted_records,
        "equality_delete_records": tally.equality_delete_records,
        "deletion_vector_bytes": tally.deletion_vector_bytes,
        "puffin_files": tally.puffin_files,
        "puffin_bytes": tally.puffin_bytes,
        "data_manifests": int((contents == 0).sum()),
        "delete_manifests": int((contents == 1).sum()),
        "manifest_bytes": pc.sum(rows["manifest_length"]).as_py() or 0,
    }
    names = ("data_files", "records", "data_bytes")
    if facts.recounted:
        return totals, dict.fromkeys(names, "manifests")
    summary = _summary_numbers(snapshot)
    sources = dict.fromkeys(names, "summary")
    counted = _live_data_files(rows)
    totals["data_files"] = summary.get("data_files") if counted is None else counted
    if counted is not None:
        sources["data_files"] = "manifest list"
    totals["records"] = summary.get("records")
    files_bytes = summary.get("files_bytes")
    totals["data_bytes"] = None if files_bytes is None else max(0, files_bytes - tally.delete_bytes)
    return totals, sources


def _summary_numbers(snapshot: Snapshot | None) -> dict[str, int]:
    """The totals that a snapshot's summary has as numbers."""
    summary: Mapping[str, str] = {} if snapshot is None else snapshot.summary or {}
    texts = {name: summary.get(key, "") for name, key in _IN_SUMMARY.items()}
    return {
        name: int(text)
        for name, text in texts.items()
        if text.isascii() and text.isdigit() and len(text) < 20
    }


def _disagreements(snapshot: Snapshot | None, totals: Row, sources: Mapping[str, str]) -> list[Row]:
    """Totals that were counted and differ from the snapshot's summary."""
    counted = {
        **{name: totals[name] for name, source in sources.items() if source != "summary"},
        "delete_files": totals["position_delete_files"]
        + totals["equality_delete_files"]
        + totals["deletion_vectors"],
        "deleted_records": totals["deleted_records"],
        "equality_delete_records": totals["equality_delete_records"],
    }
    if sources["data_bytes"] != "summary":
        counted["files_bytes"] = totals["data_bytes"] + totals["delete_bytes"]
    return [
        {"name": name, "counted": counted[name], "summary": stated, "summary_key": _IN_SUMMARY[name]}
        for name, stated in _summary_numbers(snapshot).items()
        if name in counted and counted[name] != stated
    ]


def _sizes(metadata: TableMetadata, totals: Row, facts: SummaryFacts) -> Row:
    files, size_bytes = totals["data_files"], totals["data_bytes"]
    return {
        "target_size_bytes": metadata.property_int(
            "write.target-file-size-bytes", _DEFAULT_TARGET_FILE_BYTES
        ),
        "average_size_bytes": size_bytes // files if files and size_bytes is not None else None,
        "small_below_bytes": facts.tally.small_bytes,
        "small_files": facts.tally.small_files if facts.recounted else None,
        "small_ratio": _ratio(facts.tally.small_files, files) if facts.recounted else None,
    }


def _manifests(metadata: TableMetadata, facts: SummaryFacts) -> Row:
    target = metadata.property_int("commit.manifest.target-size-bytes", _DEFAULT_TARGET_MANIFEST_BYTES)
    lengths = pc.drop_null(facts.manifests["manifest_length"]).to_numpy()
    return {
        "target_size_bytes": target,
        "average_size_bytes": int(lengths.mean()) if len(lengths) else None,
        "average_fill": round(float(lengths.mean()) / target, 4) if len(lengths) and target > 0 else None,
    }


def _row_lineage(metadata: TableMetadata, snapshot: Snapshot | None, rows: pa.Table) -> Row | None:
    """None before v3. Spec: "Row Lineage"."""
    if metadata.format_version < 3:
        return None
    without = rows.filter(pc.and_(pc.equal(rows["content"], 0), pc.is_null(rows["first_row_id"])))
    return {
        "next_row_id": id_text(metadata.next_row_id),
        "first_row_id": None if snapshot is None else id_text(snapshot.first_row_id),
        "added_rows": None if snapshot is None else snapshot.added_rows,
        "data_manifests_without_first_row_id": without.num_rows,
        "data_files_without_first_row_id": _live_data_files(without),
    }


def _live_data_files(rows: pa.Table) -> int | None:
    """By the counts of a manifest list; None where a manifest has none (v1)."""
    data = rows.filter(pc.equal(rows["content"], 0))
    counts = [data[name] for name in ("added_files_count", "existing_files_count")]
    if any(count.null_count for count in counts):
        return None
    return sum(pc.sum(count).as_py() or 0 for count in counts)


def _ratio(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else round(part / whole, 4)
