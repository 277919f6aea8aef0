"""inspect: one screen about a snapshot: what is active, what the log has, and what is due.

Spec: "Add File and Remove File", "Row Tracking", "Checkpoints", "Last Checkpoint File".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.inspect.files import cardinalities, num_records, with_vectors
from iceberg_cli.delta.inspect.rows import Row, is_enabled, last_row_id, protocol_summary
from iceberg_cli.delta.spec.checkpoints.last_checkpoint import CheckpointHint
from iceberg_cli.delta.spec.checkpoints.state import commits_since, in_words, is_due, known_interval
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.log import Checkpoint, Listing, newest_checkpoint
from iceberg_cli.delta.spec.paths import dv_path_column
from iceberg_cli.delta.spec.protocol import (
    FILES_DEFAULT_MS,
    FILES_PROPERTY,
    LOG_DEFAULT_MS,
    LOG_PROPERTY,
    Metadata,
)
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.vectors import FIRST_OFFSET, FRAME_BYTES
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import CorruptFile, InvalidMetadata
from iceberg_cli.plan.text import iso

_SMALL_BYTES: Final = 64 << 20  # what Delta's auto compaction takes for small by default
_RETENTIONS: Final[Mapping[str, tuple[str, int]]] = {
    "deleted_file_retention": (FILES_PROPERTY, FILES_DEFAULT_MS),
    "log_retention": (LOG_PROPERTY, LOG_DEFAULT_MS),
}


@dataclass(frozen=True, kw_only=True)
class SummaryFacts:
    """The input of a summary beside the snapshot.

    Args:
        listing: of the log.
        hint: what `_last_checkpoint` says; None where there is none.
        vector_files: sizes in bytes of the files of `vector_file_names`, in that order, None for one that is not
            there; None where they were not looked at.
        operation: of the commit, None where it is not there or does not say.
        read_only: why no verb writes, or None.
        open_operations: elements of `operations/2`.
    """

    listing: Listing
    hint: CheckpointHint | None
    vector_files: Sequence[int | None] | None
    operation: str | None
    read_only: str | None
    open_operations: tuple[Row, ...]


def fleet_columns(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `fleet/1` about a table's size and shape, from the document of its summary."""
    totals, log = summary["totals"], summary["log"]
    records = totals["records"]
    return {
        "snapshots": log["commits"],
        "oldest_snapshot_ms": log["oldest_commit_ms"],
        "files": totals["data_files"],
        "small_files": totals["small_files"],
        "data_bytes": totals["data_bytes"],
        "delete_ratio": round(totals["deleted_records"] / records, 4) if records else None,
        "manifests": None,
        "manifest_target_ratio": None,
        "metadata_bytes": log["commit_bytes"],
        "log_versions_since_checkpoint": log["commits_since_checkpoint"],
    }


def vector_file_names(snapshot: Snapshot, root: str) -> list[str]:
    """Storage paths of the files that hold active deletion vectors, each once.

    Raises:
        CorruptFile: a descriptor names no file.
    """
    names: list[str] = pc.unique(dv_path_column(snapshot.adds, root)).drop_null().to_pylist()
    return names


def summarize(snapshot: Snapshot, facts: SummaryFacts, *, as_of_ms: int) -> dict[str, Any]:
    """The document of a summary after its header."""
    metadata = snapshot.metadata
    retention = {name: _retention(metadata, *stated) for name, stated in _RETENTIONS.items()}
    totals = _totals(snapshot, facts)
    tombstones = _tombstones(snapshot, retention["deleted_file_retention"]["value_ms"], as_of_ms=as_of_ms)
    log = _log(snapshot, facts)
    tracking = _row_tracking(snapshot)
    return {
        "read_only": facts.read_only,
        "timestamp_ms": snapshot.timestamp_ms,
        "timestamp": iso(snapshot.timestamp_ms),
        "age_ms": as_of_ms - snapshot.timestamp_ms,
        "operation": facts.operation,
        "name": metadata.name,
        "description": metadata.description,
        "created_ms": metadata.created_time_ms,
        "created": iso(metadata.created_time_ms),
        "partition_columns": list(metadata.partition_columns),
        "protocol": protocol_summary(snapshot.protocol),
        "totals": totals,
        "tombstones": tombstones,
        "log": log,
        "row_tracking": tracking,
        "retention": retention,
        "transactions": len(snapshot.transactions),
        "domains": sorted(snapshot.domains),
        "suggestions": _due(tombstones, log, tracking, facts.read_only),
        "open_operations": [each["operation_id"] for each in facts.open_operations],
        "operations": list(facts.open_operations),
    }


def _totals(snapshot: Snapshot, facts: SummaryFacts) -> Row:
    adds = snapshot.adds
    records = num_records(adds)
    vectors = with_vectors(adds)
    named = pc.struct_field(one_array(vectors["deletionVector"]), "sizeInBytes")
    inline = pc.equal(pc.struct_field(one_array(vectors["deletionVector"]), "storageType"), "i")
    files, file_bytes, dead = _vector_files(vectors, facts.vector_files)
    bytes_ = pc.sum(adds["size"]).as_py() or 0
    return {
        "data_files": adds.num_rows,
        "data_bytes": bytes_,
        "average_size_bytes": bytes_ // adds.num_rows if adds.num_rows else None,
        "small_files": pc.sum(pc.less(one_array(adds["size"]), _SMALL_BYTES)).as_py() or 0,
        "records": None if records.null_count else pc.sum(records).as_py() or 0,
        "files_without_record_count": records.null_count,
        "tombstones": snapshot.removes.num_rows,
        "deletion_vectors": vectors.num_rows,
        "deleted_records": pc.sum(cardinalities(vectors)).as_py() or 0,
        "deletion_vector_bytes": pc.sum(named).as_py() or 0,
        "inline_deletion_vectors": pc.sum(inline).as_py() or 0,
        "deletion_vector_files": files,
        "deletion_vector_file_bytes": file_bytes,
        "dead_deletion_vector_bytes": dead,
    }


def _vector_files(
    vectors: pa.Table, sizes: Sequence[int | None] | None
) -> tuple[int, int | None, int | None]:
    """Files with active vectors, their bytes, and how many of these no active file uses; None for not known.

    Files that share one vector name it more than once, which makes it none the larger.
    """
    each = pa.table(
        {
            "file": dv_path_column(vectors, ""),
            "offset": pc.struct_field(one_array(vectors["deletionVector"]), "offset"),
            "size": pc.struct_field(one_array(vectors["deletionVector"]), "sizeInBytes"),
        }
    )
    each = each.filter(pc.is_valid(each["file"]))
    count = len(pc.unique(each["file"]))
    if sizes is None or any(size is None for size in sizes):
        return count, None, None
    if not count:  # grouping would load Arrow's query engine
        return 0, 0, 0
    total = sum(size for size in sizes if size is not None)
    once = each.group_by(["file", "offset"]).aggregate([("size", "max")])
    used = (pc.sum(once["size_max"]).as_py() or 0) + FRAME_BYTES * once.num_rows + FIRST_OFFSET * count
    return count, total, max(0, total - used)


def _retention(metadata: Metadata, name: str, default_ms: int) -> Row:
    """How long, and where that comes from; `value_ms` is null where the property is no interval."""
    stated = name in metadata.configuration
    source = f"table property {name}" if stated else "default"
    try:
        return {
            "value_ms": metadata.property_interval_ms(name, default_ms),
            "source": source,
            "problem": metadata.interval_problem(name),
        }
    except InvalidMetadata as error:
        return {"value_ms": None, "source": source, "problem": error.message}


def _tombstones(snapshot: Snapshot, retention_ms: int | None, *, as_of_ms: int) -> Row:
    """Tombstones that are past the table's retention; one without a time counts as past it, as for VACUUM."""
    times = pc.fill_null(one_array(snapshot.removes["deletionTimestamp"]), 0)
    past = None if retention_ms is None else pc.less(times, as_of_ms - retention_ms)
    sizes = one_array(snapshot.removes["size"])
    oldest_ms = pc.min(snapshot.removes["deletionTimestamp"]).as_py()
    return {
        "count": len(times),
        "past_retention": None if past is None else pc.sum(past).as_py() or 0,
        "past_retention_bytes": None if past is None else pc.sum(sizes.filter(past)).as_py() or 0,
        "oldest_ms": oldest_ms,
        "oldest": iso(oldest_ms),
    }


def _log(snapshot: Snapshot, facts: SummaryFacts) -> Row:
    listing = facts.listing
    newest = newest_checkpoint(listing, snapshot.version)
    return {
        "latest_version": listing.latest,
        "oldest_commit": listing.commits[0].version if listing.commits else None,
        "oldest_commit_ms": listing.commits[0].modified_ms if listing.commits else None,
        "commits": len(listing.commits),
        "commit_bytes": sum(file.size_bytes for file in listing.commits),
        "checkpoints": len(listing.checkpoints),
        "newest_checkpoint": None if newest is None else _checkpoint(newest),
        "commits_since_checkpoint": commits_since(newest, snapshot.version),
        "checkpoint_interval": known_interval(snapshot.metadata),
        "incomplete_checkpoint_files": len(listing.incomplete),
        "last_checkpoint": {
            "version": None if facts.hint is None else facts.hint.version,
            "problem": hint_problem(listing, facts.hint),
        },
        "sidecars": len(listing.sidecars),
        "compactions": len(listing.compactions),
        "checksum": any(file.version == snapshot.version for file in listing.checksums),
        "staged_commits": len(listing.staged),
    }


def hint_problem(listing: Listing, hint: CheckpointHint | None) -> str | None:
    """Why `_last_checkpoint` is of no use, or None."""
    if hint is None:
        return "it is not there" if listing.checkpoints else None
    if hint.problem is not None:
        return hint.problem
    checkpoints = [each for each in listing.checkpoints if each.version == hint.version]
    if not checkpoints:
        return f"it names version {hint.version}, of which there is no checkpoint"
    newest = listing.checkpoints[-1].version
    if hint.version != newest:
        return f"it names version {hint.version}, and the newest checkpoint is that of version {newest}"
    parts = hint.fields.get("parts")
    if type(parts) is int and all(len(each.files) != parts for each in checkpoints):
        return (
            f"it says {parts} parts, and the checkpoint of version {newest} has {len(checkpoints[-1].files)}"
        )
    return None


def _checkpoint(checkpoint: Checkpoint) -> Row:
    return {
        "version": checkpoint.version,
        "kind": checkpoint.kind,
        "files": len(checkpoint.files),
        "bytes": sum(file.size_bytes for file in checkpoint.files),
    }


def _row_tracking(snapshot: Snapshot) -> Row:
    """Row tracking: whether rows have ids, the high-water mark, and the number of files without ids."""
    try:
        mark = last_row_id(snapshot)
    except CorruptFile:
        mark = None
    return {
        "supported": supports(snapshot.protocol, "rowTracking"),
        "enabled": bool(is_enabled("rowTracking", snapshot.metadata)),
        "high_water_mark": None if mark is None else str(mark),
        "files_without_base_row_id": snapshot.adds["baseRowId"].null_count,
    }


def _due(tombstones: Row, log: Row, tracking: Row, read_only: str | None) -> list[Row]:
    """The verbs that are due, or may be, as far as the log alone shows."""
    suggestions = []

    def suggest(verb: str, reason: str, *, certain: bool = True) -> None:
        blocked = [] if read_only is None else [read_only]
        suggestions.append({"operation": verb, "reason": reason, "certain": certain, "blocked_by": blocked})

    if tombstones["past_retention"]:
        reason = f"tombstones older than the retention of removed files: {tombstones['past_retention']}"
        suggest("expire-snapshots", reason, certain=False)  # their files may be gone
    interval, since = log["checkpoint_interval"], log["commits_since_checkpoint"]
    if is_due(since, interval):
        suggest("rewrite-manifests", in_words(since, interval))
    if tracking["supported"] and tracking["files_without_base_row_id"]:
        suggest("assign-row-ids", f"files without a base row id: {tracking['files_without_base_row_id']}")
    return suggestions
