"""The rules that `inspect --check` holds a Delta table against, by id.

The sections are the headings of the transaction log protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iceberg_cli.delta.spec.actions import CLASH, EMPTY, FRACTION, REPEATED_KEY
from iceberg_cli.plan.findings import LEFTOVER, UNANSWERED, Rule, error, info, warning

_RESTORE = (
    "Restore the file from a backup or an earlier object version, or RESTORE the table to a sound version."
)
_WRITER = (
    "Find the writer by `inspect TABLE history` and stop it; RESTORE the table to a version that is sound."
)
_CHECKPOINT = (
    "Keep log cleanup away from the commits before it; delete the checkpoint and `_last_checkpoint`, then "
    "`rewrite-manifests`."
)
_UNREADABLE = (
    "It is passed over while the commits before it are there: keep log cleanup by other engines away, and "
    "`rewrite-manifests` writes a checkpoint that can be read. Where they are gone, restore it from a backup or an "
    "earlier object version."
)
_REWRITE = "`rewrite-manifests` writes a new checkpoint and `_last_checkpoint`."
_CHECKSUM = "Delete the checksum file: readers do without, and the next commit of a writer makes its own."
_METADATA = "Set the property or the feature with an engine (ALTER TABLE), so that both agree."
_READERS = (
    "List it for readers too with an engine (ALTER TABLE), or by an `upgrade-v3` that adds a feature; then "
    "`rewrite-manifests`, for some readers judge every protocol since the last checkpoint."
)
_ONE_READING = (
    "Stop the writer, and let the engine whose reading is right write a checkpoint of that version or a later one; "
    "until then no verb writes a checkpoint or repeats the state in a commit."
)
_WHOLE = "Correct the writer; `rewrite-manifests` writes a checkpoint with whole numbers, and readers begin with that."
_ROW_IDS = "RESTORE the table to a version before the clash; ids that were read meanwhile name two rows."

_LOG: Final = {
    "commit-missing": error("Delta Log Entries", _RESTORE),
    "commit-unreadable": error("Delta Log Entries", _RESTORE),
    CLASH: error("Delta Log Entries", _ONE_READING),
    EMPTY: warning(
        "Delta Log Entries",
        "Nothing has to be done if its writer was cut off: readers take it for a version in which nothing changed. If "
        "it held something, restore the file from a backup or an earlier object version.",
    ),
    FRACTION: error("Delta Log Entries", _WHOLE),
    REPEATED_KEY: warning(
        "Commit Provenance Information",
        "Correct the writer: other readers may let another of the values count.",
    ),
    "in-commit-timestamp-missing": error("Writer Requirements for In-Commit Timestamps", _WRITER),
    "in-commit-timestamp-not-increasing": error("Writer Requirements for In-Commit Timestamps", _WRITER),
    "checkpoint-unreadable": error("Checkpoints", _UNREADABLE),
    "checkpoint-differs": error("Checkpoints", _CHECKPOINT),
    "checkpoint-partition-value-lost": error(
        "Checkpoint Schema",
        "Readers that filter by partition miss rows. Once a newer version is committed, `rewrite-manifests` writes a "
        "checkpoint of it without the fault, and readers begin with that.",
    ),
    "checkpoint-tombstone-missing": warning(
        "Checkpoints",
        "Keep VACUUM away until the retention of removed files is over: it would delete them early.",
    ),
    "checkpoint-incomplete": warning(
        "Multi-part checkpoint", "Nothing has to be done: readers pass it over. Log cleanup deletes it."
    ),
    "sidecar-missing": error("Sidecar Files", _CHECKPOINT),
    "sidecar-size-differs": error("Sidecar File Information", _CHECKPOINT),
    "sidecar-dangling": info(
        "Metadata Cleanup",
        "Log cleanup, which needs a checkpoint in the log, deletes it: `expire-snapshots`.",
    ),
    "compaction-differs": error(
        "Log Compaction Files", "Delete the compacted file: readers then read the commits themselves."
    ),
    "compaction-unreadable": error(
        "Log Compaction Files", "Delete the compacted file: readers then read the commits themselves."
    ),
    "last-checkpoint-unsound": warning("Last Checkpoint File", _REWRITE),
    "last-checkpoint-stale": info("Last Checkpoint File", _REWRITE),
    "checksum-unreadable": warning("Version Checksum File", _CHECKSUM),
    "checksum-differs": error("State Validation", _CHECKSUM),
}

_PROTOCOL: Final = {
    "property-needs-feature": error("Active Features", _METADATA),
    "property-unreadable": error("Change Metadata", _METADATA),
    "feature-needs-feature": error("Supported Features", _METADATA),
    "feature-for-readers-only": error("Supported Features", _METADATA),
    "feature-for-writers-only": warning("Supported Features", _READERS),
    "feature-list-unexpected": error("Protocol Evolution", _METADATA),
    "feature-unknown": info(
        "Valid Feature Names in Table Features",
        "Write with an engine that knows it; no verb of this tool does.",
    ),
    "schema-unreadable": error("Schema Serialization Format", _WRITER),
    "partition-column-missing": error("Change Metadata", _WRITER),
}

_FILES: Final = {
    "deletion-vector-path-unreadable": error("Derived Fields", _WRITER),
    "file-added-twice": error("Add File and Remove File", _WRITER),
    "compacted-file-added-again": error(
        "Add File and Remove File",
        "Its rows are read twice. RESTORE the version before that, and repeat what was done since.",
    ),
    "partition-values-differ": error("Add File and Remove File", _WRITER),
    "statistics-unreadable": warning(
        "Per-file Statistics",
        "Readers that skip files by statistics may fail: compute them again with an engine.",
    ),
    "tombstone-without-time": warning(
        "Add File and Remove File",
        "VACUUM takes it for old and deletes its file: wait for readers before it.",
    ),
    "deletion-vector-without-feature": error("Deletion Vectors", _METADATA),
    "deletion-vector-without-record-count": warning(
        "Writer Requirement for Deletion Vectors", "Rewrite the file with an engine (OPTIMIZE or REORG)."
    ),
    "deletion-vector-too-large": error("Deletion Vector Descriptor Schema", _WRITER),
    "row-tracking-columns-missing": error(
        "Writer Requirements for Row Tracking", "`assign-row-ids` sets the properties that are missing."
    ),
    "row-id-missing": error("Row IDs", "`assign-row-ids` gives row ids to what has none."),
    "high-water-mark-unreadable": error("Writer Requirements for Row Tracking", _WRITER),
    "row-ids-above-mark": error("Writer Requirements for Row Tracking", _ROW_IDS),
    "row-ids-overlap": error("Writer Requirements for Row Tracking", _ROW_IDS),
    "row-commit-version-too-high": error("Row Commit Versions", _WRITER),
}

_STORAGE: Final = {
    "file-missing": error("Data Files", _RESTORE),
    "file-size-differs": error("Add File and Remove File", _RESTORE),
    "file-out-of-reach": warning("Data Files", "Install or name a storage for this scheme and check again."),
    UNANSWERED: warning(
        "Data Files", "Let its storage answer, with the credentials it asks for, and check again."
    ),
    "deletion-vector-file-missing": error("Deletion Vector Files", _RESTORE),
    "deletion-vector-unsound": error("Deletion Vector Format", _RESTORE),
    "deletion-vector-position-too-high": error("Deletion Vector Format", _WRITER),
    "deletion-vector-file-dangling": info("Deletion Vector Files", "VACUUM deletes it: `expire-snapshots`."),
    "leftover-temporary-file": info("Delta Log Entries", LEFTOVER),
    "parquet-unreadable": error("Data Files", _RESTORE),
    "parquet-cannot-be-read-here": warning(
        "Data Files", "Nothing is known of it: read the file with the engine that wrote it."
    ),
    "record-count-differs": error("Per-file Statistics", "Rewrite the file with an engine."),
}

RULES: Final[Mapping[str, Rule]] = _LOG | _PROTOCOL | _FILES | _STORAGE
