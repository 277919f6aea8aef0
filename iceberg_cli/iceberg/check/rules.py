"""The rules that `inspect --check` holds a table against, by id.

The sections are the specification's headings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.findings import (
    ERROR,
    EXAMPLES,
    INFO,
    LEFTOVER,
    UNANSWERED,
    WARNING,
    Bools,
    Example,
    Ints,
    Rule,
    RuleFindings,
    reason_of,
)

_OLDER_METADATA = (
    "Compare with the previous metadata file (`inspect TABLE metadata-log`) and repair this one or go back."
)
_WRITER = (
    "Find the writer by the snapshot's summary (`inspect TABLE snapshots`) and stop it; "
    "roll back to a sound snapshot."
)
_RESTORE = (
    "Restore the file from a backup or an earlier object version, or roll back to a snapshot without it."
)
_REMOVE_FILE = "Delete the file from the table with an engine, or roll back to a snapshot that is sound."
_MERGE = "`merge-dvs` removes position deletes that no data file needs, from version 3 on equality deletes as well."
_RELIST = "`rewrite-manifests --all-manifests` writes every manifest anew, and what the list says of it."
_RECOUNT = (
    "Rows may be lost, so no verb commits on top of it. Restore the manifest or the list from a backup; where the "
    "manifest is whole, have an engine write the manifests anew, or roll back to a sound snapshot."
)
_SUMMARY = "Nothing has to be done: readers count for themselves. `inspect --recount` shows both numbers."
_STATISTICS = "Readers do without. Compute the statistics again with an engine, or drop the entry."
_ROW_IDS = "`assign-row-ids` gives row ids to what has none."
_ROW_IDS_CLASH = "Roll back to a snapshot before the clash; ids that were read meanwhile name two rows."


def _error(section: str, remedy: str) -> Rule:
    return Rule(severity=ERROR, section=section, remedy=remedy)


def _warning(section: str, remedy: str) -> Rule:
    return Rule(severity=WARNING, section=section, remedy=remedy)


_REFS: Final = {
    "main-is-no-branch": _error(
        "Snapshot References", "Create main as a branch again, at the current snapshot."
    ),
    "ref-snapshot-missing": _error(
        "Snapshot References", "Drop the ref, or point it to a snapshot that is there."
    ),
    "ref-retention-without-effect": _warning(
        "Snapshot References",
        "Take the field off the ref: only branches keep snapshots, and main never expires.",
    ),
}

_COLUMNS: Final = {
    "column-id-above-last": _error("Table Metadata Fields", _OLDER_METADATA),
    "column-id-repeated": _error("Schemas and Data Types", _OLDER_METADATA),
    "identifier-field-unfit": _error(
        "Identifier Field IDs", "Set identifier fields that are required columns."
    ),
    "type-of-newer-format": _error("Version 3", "`upgrade-v3`, or drop the column."),
    "type-unknown": _warning("Primitive Types", "Read the table with an engine that knows the type."),
    "partition-field-id-above-last": _error("Table Metadata Fields", _OLDER_METADATA),
    "partition-field-repeated": _error("Partitioning", _OLDER_METADATA),
    "partition-name-clashes": _error(
        "Partitioning",
        "The Java library cannot load the table: rename the column with an engine that can, or add it by another name.",
    ),
    "partition-field-id-reused": _warning(
        "Partition Evolution",
        "Usual in tables that were v1. Metadata tables that join partition specs may fail; readers do not.",
    ),
    "partition-source-missing": _error(
        "Partitioning", "Change the default spec to columns of the current schema."
    ),
    "sort-order-zero-with-fields": _error(
        "Sorting",
        "The Java library cannot load the table: give the sort order another id and make that the default.",
    ),
    "sort-source-missing": _warning(
        "Sorting", "Change the default sort order to columns of the current schema."
    ),
}

_SNAPSHOTS: Final = {
    "snapshot-schema-missing": _error("Snapshots", _OLDER_METADATA),
    "snapshot-sequence-number-repeated": _error("Sequence Numbers", _WRITER),
    "snapshot-not-newer-than-parent": _error("Sequence Numbers", _WRITER),
    "snapshot-earlier-than-parent": _warning(
        "Snapshots", "Set the clocks of the writers: ages and time travel go by these times."
    ),
    "parent-cycle": _error("Snapshots", _OLDER_METADATA),
    "snapshot-operation-missing": _warning(
        "Snapshots", "Tell the writer's maintainers; expiry does not rely on it."
    ),
    "snapshot-manifests-inline": _warning(
        "Snapshots",
        "`upgrade-v3 --with repair-manifests`, or expire the snapshot: Java cannot append on top of it.",
    ),
    "snapshot-manifests-twice": _warning(
        "Snapshots", "Readers take the manifest list. Expire the snapshot in time."
    ),
    "snapshot-key-missing": _error("Encryption Keys", _OLDER_METADATA),
    "snapshot-row-ids-missing": _error(
        "Snapshot Row IDs",
        "Stop the writer that leaves them out (`inspect TABLE snapshots`). Once the snapshot is not current any more, "
        "`expire-snapshots --snapshot-id ID` removes it.",
    ),
    "snapshot-row-ids-overlap": _error("Snapshot Row IDs", _ROW_IDS_CLASH),
    "snapshot-row-ids-above-next": _error("Table Metadata Fields", _ROW_IDS_CLASH),
}

_LOGS: Final = {
    "snapshot-log-unordered": _error("Table Metadata Fields", _OLDER_METADATA),
    "snapshot-log-gap": _warning(
        "Table Metadata Fields",
        "Time travel by time may give another snapshot than was current. "
        "An expiry that removes snapshots cuts the log.",
    ),
    "snapshot-log-end": _warning(
        "Table Metadata Fields",
        "Time travel by time ends at another snapshot. The next commit to main mends it.",
    ),
    "metadata-log-unordered": _error("Table Metadata Fields", _OLDER_METADATA),
    "last-updated-too-early": _error("Table Metadata Fields", _OLDER_METADATA),
    "statistics-without-snapshot": _warning("Table Statistics", _STATISTICS),
    "statistics-repeated": _warning("Partition Statistics", _STATISTICS),
    "puffin-blob-unfit": _warning(
        "Table Statistics",
        "Readers go by the blobs that they know. Compute the statistics again with an engine.",
    ),
}

_LISTS: Final = {
    "manifest-list-missing": _error("Manifest Lists", _RESTORE),
    "manifest-list-unreadable": _error("Manifest Lists", _RESTORE),
    "manifest-list-incomplete": _error("Manifest Lists", _RELIST),
    "manifest-list-cut-short": _error(
        "Manifest Lists",
        "Restore the list. If the summary is wrong: --unsafe-trust-lists lets the verbs go on.",
    ),
    "manifest-listed-twice": _error("Scan Planning", _WRITER),
    "manifest-counts-unknown": _warning(
        "Manifest Lists",
        "`rewrite-manifests` counts them on main, and `upgrade-v3 --with repair-manifests` on every branch.",
    ),
    "manifest-spec-missing": _error("Manifest Lists", _OLDER_METADATA),
    "manifest-sequence-number-too-high": _error("Manifest Lists", _WRITER),
    "manifest-min-sequence-number-too-high": _error("Manifest Lists", _RELIST),
    "manifest-first-row-id-missing": _error("First Row ID Assignment", _ROW_IDS),
    "manifest-first-row-id-too-low": _error("First Row ID Assignment", _ROW_IDS_CLASH),
    "delete-manifest-has-first-row-id": _error("First Row ID Assignment", _RELIST),
    "partition-summary-unfit": _error("Manifest Lists", _RELIST),
    "partition-summary-too-narrow": _error("Manifest Lists", _RELIST),
}

_MANIFESTS: Final = {
    "manifest-missing": _error("Manifests", _RESTORE),
    "manifest-unreadable": _error("Manifests", _RESTORE),
    "manifest-length-differs": _error("Manifest Lists", _RESTORE),
    "manifest-length-stale": _warning(
        "Manifest Lists",
        "`rewrite-manifests` writes the true length; `upgrade-v3 --with repair-manifests` does on every branch.",
    ),
    "manifest-header-differs": _error("Manifests", _WRITER),
    "manifest-file-counts-differ": _error("Manifest Lists", _RECOUNT),
    "manifest-row-counts-differ": _error("Manifest Lists", _RELIST),
    "entry-sequence-number-wrong": _error("Sequence Number Inheritance", _WRITER),
    "file-format-unfit": _error("Data File Fields", _REMOVE_FILE),
    "partition-tuple-unfit": _error("Data File Fields", _WRITER),
    "partition-value-unfit": _error("Partition Transforms", _REMOVE_FILE),
    "equality-ids-unfit": _error("Equality Delete Files", _REMOVE_FILE),
    "deletes-before-v2": _error("Delete Formats", _WRITER),
    "deletion-vector-before-v3": _error("Delete Formats", "`upgrade-v3`, or roll back."),
    "deletion-vector-incomplete": _error("Deletion Vectors", _WRITER),
    "position-deletes-added-in-v3": _warning(
        "Position Delete Files", "`merge-dvs` makes deletion vectors of them."
    ),
}

_FILES: Final = {
    "file-listed-twice": _error("Scan Planning", _WRITER),
    "deletion-vectors-of-one-file": _error("Deletion Vectors", _WRITER),
    "deletion-vector-out-of-scope": _error("Scan Planning", _WRITER),
    "deletion-vector-too-large": _error("Deletion Vectors", _WRITER),
    "deletion-vector-spelling": _warning(
        "Scan Planning",
        "Readers that compare paths as text do not apply it: delete the rows again with an engine.",
    ),
    "deletion-vector-dangling": _warning(
        "Deletion Vectors", "`merge-dvs` removes deletion vectors that no data file needs."
    ),
    "deletes-dangling": _warning("Scan Planning", _MERGE),
    "every-row-deleted": Rule(
        severity=INFO,
        section="Deletion Vectors",
        remedy="Drop the file: DELETE of its rows by partition, or compaction.",
    ),
    "row-id-negative": _error("Row Lineage", _WRITER),
    "row-ids-overlap": _error("Row Lineage", _ROW_IDS_CLASH),
    "row-ids-above-next": _error("Table Metadata Fields", _ROW_IDS_CLASH),
    "total-differs": _warning("Metrics", _SUMMARY),
    "file-missing": _error("File System Operations", _RESTORE),
    "file-size-differs": _error("Data File Fields", _RESTORE),
    "file-out-of-reach": _warning(
        "File System Operations", "Install or name a storage for this scheme and check again."
    ),
    UNANSWERED: _warning(
        "File System Operations", "Let its storage answer, with the credentials it asks for, and check again."
    ),
    "leftover-temporary-file": Rule(severity=INFO, section="File System Tables", remedy=LEFTOVER),
    "statistics-file-missing": _warning("Table Statistics", _STATISTICS),
    "statistics-file-size-differs": _warning("Table Statistics", _STATISTICS),
}

_DEEP: Final = {
    "puffin-unreadable": _error("Deletion Vectors", _RESTORE),
    "deletion-vector-place-differs": _error("Data File Fields", _RESTORE),
    "deletion-vector-unreadable": _error("Deletion Vectors", _RESTORE),
    "deletion-vector-cardinality-differs": _error("Data File Fields", _RESTORE),
    "deletion-vector-position-too-high": _error("Deletion Vectors", _WRITER),
    "parquet-unreadable": _error("Data File Fields", _RESTORE),
    "parquet-cannot-be-read-here": _warning(
        "Data File Fields", "Nothing is known of it: read the file with the engine that wrote it."
    ),
    "position-deletes-unfit": _error("Position Delete Files", _REMOVE_FILE),
    "record-count-differs": _error("Data File Fields", _REMOVE_FILE),
    "statistics-file-unreadable": _warning("Table Statistics", _STATISTICS),
}

RULES: Final[Mapping[str, Rule]] = (
    _REFS | _COLUMNS | _SNAPSHOTS | _LOGS | _LISTS | _MANIFESTS | _FILES | _DEEP
)


__all__ = ["EXAMPLES", "Bools", "Example", "Findings", "Ints", "reason_of"]


@dataclass(slots=True)
class Findings(RuleFindings):
    """By the rules of the Iceberg table specification."""

    RULES: ClassVar[Mapping[str, Rule]] = RULES
