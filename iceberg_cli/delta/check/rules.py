"""The rules that `inspect --check` holds a Delta table against, by id.

The sections are the headings of the transaction log protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.delta.spec.actions import CLASH, FRACTION, REPEATED_KEY
from iceberg_cli.plan.findings import ERROR, INFO, LEFTOVER, UNANSWERED, WARNING, Rule, RuleFindings

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


def _error(section: str, remedy: str) -> Rule:
    return Rule(severity=ERROR, section=section, remedy=remedy)


def _warning(section: str, remedy: str) -> Rule:
    return Rule(severity=WARNING, section=section, remedy=remedy)


def _info(section: str, remedy: str) -> Rule:
    return Rule(severity=INFO, section=section, remedy=remedy)


_LOG: Final = {
    "commit-missing": _error("Delta Log Entries", _RESTORE),
    "commit-unreadable": _error("Delta Log Entries", _RESTORE),
    CLASH: _error("Delta Log Entries", _ONE_READING),
    FRACTION: _error("Delta Log Entries", _WHOLE),
    REPEATED_KEY: _warning(
        "Commit Provenance Information",
        "Correct the writer: other readers may let another of the values count.",
    ),
    "in-commit-timestamp-missing": _error("Writer Requirements for In-Commit Timestamps", _WRITER),
    "in-commit-timestamp-not-increasing": _error("Writer Requirements for In-Commit Timestamps", _WRITER),
    "checkpoint-unreadable": _error("Checkpoints", _CHECKPOINT),
    "checkpoint-differs": _error("Checkpoints", _CHECKPOINT),
    "checkpoint-partition-value-lost": _error(
        "Checkpoint Schema",
        "Readers that filter by partition miss rows. Once a newer version is committed, `rewrite-manifests` writes a "
        "checkpoint of it without the fault, and readers begin with that.",
    ),
    "checkpoint-tombstone-missing": _warning(
        "Checkpoints",
        "Keep VACUUM away until the retention of removed files is over: it would delete them early.",
    ),
    "checkpoint-incomplete": _warning(
        "Multi-part checkpoint", "Nothing has to be done: readers pass it over. Log cleanup deletes it."
    ),
    "sidecar-missing": _error("Sidecar Files", _CHECKPOINT),
    "sidecar-size-differs": _error("Sidecar File Information", _CHECKPOINT),
    "sidecar-dangling": _info(
        "Metadata Cleanup",
        "Log cleanup, which needs a checkpoint in the log, deletes it: `expire-snapshots`.",
    ),
    "compaction-differs": _error(
        "Log Compaction Files", "Delete the compacted file: readers then read the commits themselves."
    ),
    "compaction-unreadable": _error(
        "Log Compaction Files", "Delete the compacted file: readers then read the commits themselves."
    ),
    "last-checkpoint-unsound": _warning("Last Checkpoint File", _REWRITE),
    "last-checkpoint-stale": _info("Last Checkpoint File", _REWRITE),
    "checksum-unreadable": _warning("Version Checksum File", _CHECKSUM),
    "checksum-differs": _error("State Validation", _CHECKSUM),
}

_PROTOCOL: Final = {
    "property-needs-feature": _error("Active Features", _METADATA),
    "property-unreadable": _error("Change Metadata", _METADATA),
    "feature-needs-feature": _error("Supported Features", _METADATA),
    "feature-for-readers-only": _error("Supported Features", _METADATA),
    "feature-for-writers-only": _warning("Supported Features", _READERS),
    "feature-list-unexpected": _error("Protocol Evolution", _METADATA),
    "feature-unknown": _info(
        "Valid Feature Names in Table Features",
        "Write with an engine that knows it; no verb of this tool does.",
    ),
    "schema-unreadable": _error("Schema Serialization Format", _WRITER),
    "partition-column-missing": _error("Change Metadata", _WRITER),
}

_FILES: Final = {
    "deletion-vector-path-unreadable": _error("Derived Fields", _WRITER),
    "file-added-twice": _error("Add File and Remove File", _WRITER),
    "partition-values-differ": _error("Add File and Remove File", _WRITER),
    "statistics-unreadable": _warning(
        "Per-file Statistics",
        "Readers that skip files by statistics may fail: compute them again with an engine.",
    ),
    "tombstone-without-time": _warning(
        "Add File and Remove File",
        "VACUUM takes it for old and deletes its file: wait for readers before it.",
    ),
    "deletion-vector-without-feature": _error("Deletion Vectors", _METADATA),
    "deletion-vector-without-record-count": _warning(
        "Writer Requirement for Deletion Vectors", "Rewrite the file with an engine (OPTIMIZE or REORG)."
    ),
    "deletion-vector-too-large": _error("Deletion Vector Descriptor Schema", _WRITER),
    "row-tracking-columns-missing": _error(
        "Writer Requirements for Row Tracking", "`assign-row-ids` sets the properties that are missing."
    ),
    "row-id-missing": _error("Row IDs", "`assign-row-ids` gives row ids to what has none."),
    "high-water-mark-unreadable": _error("Writer Requirements for Row Tracking", _WRITER),
    "row-ids-above-mark": _error("Writer Requirements for Row Tracking", _ROW_IDS),
    "row-ids-overlap": _error("Writer Requirements for Row Tracking", _ROW_IDS),
    "row-commit-version-too-high": _error("Row Commit Versions", _WRITER),
}

_STORAGE: Final = {
    "file-missing": _error("Data Files", _RESTORE),
    "file-size-differs": _error("Add File and Remove File", _RESTORE),
    "file-out-of-reach": _warning("Data Files", "Install or name a storage for this scheme and check again."),
    UNANSWERED: _warning(
        "Data Files", "Let its storage answer, with the credentials it asks for, and check again."
    ),
    "deletion-vector-file-missing": _error("Deletion Vector Files", _RESTORE),
    "deletion-vector-unsound": _error("Deletion Vector Format", _RESTORE),
    "deletion-vector-position-too-high": _error("Deletion Vector Format", _WRITER),
    "deletion-vector-file-dangling": _info("Deletion Vector Files", "VACUUM deletes it: `expire-snapshots`."),
    "leftover-temporary-file": _info("Delta Log Entries", LEFTOVER),
    "parquet-unreadable": _error("Data Files", _RESTORE),
    "parquet-cannot-be-read-here": _warning(
        "Data Files", "Nothing is known of it: read the file with the engine that wrote it."
    ),
    "record-count-differs": _error("Per-file Statistics", "Rewrite the file with an engine."),
}

RULES: Final[Mapping[str, Rule]] = _LOG | _PROTOCOL | _FILES | _STORAGE


@dataclass(slots=True)
class Findings(RuleFindings):
    """By the rules of the Delta transaction log protocol."""

    RULES: ClassVar[Mapping[str, Rule]] = RULES
