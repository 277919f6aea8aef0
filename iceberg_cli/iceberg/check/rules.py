"""The rules that `inspect --check` holds a table against, by id.

The sections are the specification's headings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iceberg_cli.plan.findings import LEFTOVER, UNANSWERED, Rule, error, info, warning

_OLDER_METADATA = (
    "Compare with the previous metadata file (`inspect TABLE metadata-log`) and repair this one or go back."
)
_WRITER = (
    "Find the writer by the snapshot's summary (`inspect TABLE snapshots`) and stop it; "
    "roll back to a sound snapshot."
)
_HEADER = "`rewrite-manifests --all-manifests` writes manifests of main anew, with what the table says."
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
_PARENT = (
    "Tag the parent before it expires, stop the program that the finding names, and compare the two by "
    "`inspect TABLE diff`. Set the branch back to the parent and do again what was committed since, where that is "
    "little."
)

# Of a table of which nothing else can be said.
METADATA_UNREADABLE: Final = error(
    "Table Metadata",
    "Restore the file from a backup or an earlier object version. Else go back to the older file that can be read, and "
    "lose what was committed since: register it in the catalog, or, of a table in a folder, move the newer files away.",
)
_REFS: Final = {
    "main-is-no-branch": error(
        "Snapshot References", "Create main as a branch again, at the current snapshot."
    ),
    "ref-snapshot-missing": error(
        "Snapshot References", "Drop the ref, or point it to a snapshot that is there."
    ),
    "ref-retention-without-effect": warning(
        "Snapshot References",
        "Take the field off the ref: only branches keep snapshots, and main never expires.",
    ),
}

_COLUMNS: Final = {
    "column-id-above-last": error("Table Metadata Fields", _OLDER_METADATA),
    "column-id-repeated": error("Schemas and Data Types", _OLDER_METADATA),
    "identifier-field-unfit": error(
        "Identifier Field IDs", "Set identifier fields that are required columns."
    ),
    "type-of-newer-format": error("Version 3", "`upgrade-v3`, or drop the column."),
    "type-unknown": warning("Primitive Types", "Read the table with an engine that knows the type."),
    "partition-field-id-above-last": error("Table Metadata Fields", _OLDER_METADATA),
    "partition-field-repeated": error("Partitioning", _OLDER_METADATA),
    "partition-name-clashes": error(
        "Partitioning",
        "The Java library cannot load the table: rename the column with an engine that can, or add it by another name.",
    ),
    "partition-field-id-reused": warning(
        "Partition Evolution",
        "Usual in tables that were v1. Metadata tables that join partition specs may fail; readers do not.",
    ),
    "partition-source-missing": error(
        "Partitioning", "Change the default spec to columns of the current schema."
    ),
    "sort-order-zero-with-fields": error(
        "Sorting",
        "The Java library cannot load the table: give the sort order another id and make that the default.",
    ),
    "sort-source-missing": warning(
        "Sorting", "Change the default sort order to columns of the current schema."
    ),
}

_SNAPSHOTS: Final = {
    "snapshot-schema-missing": error("Snapshots", _OLDER_METADATA),
    "snapshot-sequence-number-repeated": error("Sequence Numbers", _WRITER),
    "snapshot-not-newer-than-parent": error("Sequence Numbers", _WRITER),
    "snapshot-earlier-than-parent": warning(
        "Snapshots", "Set the clocks of the writers: ages and time travel go by these times."
    ),
    "parent-cycle": error("Snapshots", _OLDER_METADATA),
    "snapshot-operation-missing": warning(
        "Snapshots", "Tell the writer's maintainers; expiry does not rely on it."
    ),
    "snapshot-manifests-inline": warning(
        "Snapshots",
        "`upgrade-v3 --with repair-manifests`, or expire the snapshot: Java cannot append on top of it.",
    ),
    "snapshot-manifests-twice": warning(
        "Snapshots", "Readers take the manifest list. Expire the snapshot in time."
    ),
    "snapshot-key-missing": error("Encryption Keys", _OLDER_METADATA),
    "snapshot-row-ids-missing": error(
        "Snapshot Row IDs",
        "Stop the writer that leaves them out (`inspect TABLE snapshots`). Once the snapshot is not current any more, "
        "`expire-snapshots --snapshot-id ID` removes it.",
    ),
    "snapshot-row-ids-overlap": error("Snapshot Row IDs", _ROW_IDS_CLASH),
    "snapshot-row-ids-above-next": error("Table Metadata Fields", _ROW_IDS_CLASH),
}

_LOGS: Final = {
    "snapshot-log-unordered": error("Table Metadata Fields", _OLDER_METADATA),
    "snapshot-log-gap": warning(
        "Table Metadata Fields",
        "Time travel by time may give another snapshot than was current. "
        "An expiry that removes snapshots cuts the log.",
    ),
    "snapshot-log-end": warning(
        "Table Metadata Fields",
        "Time travel by time ends at another snapshot. The next commit to main mends it.",
    ),
    "metadata-log-unordered": error("Table Metadata Fields", _OLDER_METADATA),
    "last-updated-too-early": error("Table Metadata Fields", _OLDER_METADATA),
    "statistics-without-snapshot": warning("Table Statistics", _STATISTICS),
    "statistics-repeated": warning("Partition Statistics", _STATISTICS),
    "puffin-blob-unfit": warning(
        "Table Statistics",
        "Readers go by the blobs that they know. Compute the statistics again with an engine.",
    ),
}

_LISTS: Final = {
    "manifest-list-missing": error("Manifest Lists", _RESTORE),
    "manifest-list-unreadable": error("Manifest Lists", _RESTORE),
    "manifest-list-incomplete": error("Manifest Lists", _RELIST),
    "manifest-list-cut-short": error(
        "Manifest Lists",
        "Restore the list. If the summary is wrong: --unsafe-trust-lists lets the verbs go on.",
    ),
    "manifest-listed-twice": error("Scan Planning", _WRITER),
    "manifest-counts-unknown": warning(
        "Manifest Lists",
        "`rewrite-manifests` counts them on main, and `upgrade-v3 --with repair-manifests` on every branch.",
    ),
    "manifest-spec-missing": error("Manifest Lists", _OLDER_METADATA),
    "manifest-sequence-number-too-high": error("Manifest Lists", _WRITER),
    "manifest-min-sequence-number-too-high": error("Manifest Lists", _RELIST),
    "manifest-first-row-id-missing": error("First Row ID Assignment", _ROW_IDS),
    "manifest-first-row-id-too-low": error("First Row ID Assignment", _ROW_IDS_CLASH),
    "delete-manifest-has-first-row-id": error("First Row ID Assignment", _RELIST),
    "partition-summary-unfit": error("Manifest Lists", _RELIST),
    "partition-summary-too-narrow": error("Manifest Lists", _RELIST),
}

_MANIFESTS: Final = {
    "manifest-missing": error("Manifests", _RESTORE),
    "manifest-unreadable": error("Manifests", _RESTORE),
    "manifest-length-differs": error("Manifest Lists", _RESTORE),
    "manifest-length-stale": warning(
        "Manifest Lists",
        "`rewrite-manifests` writes the true length; `upgrade-v3 --with repair-manifests` does on every branch.",
    ),
    "manifest-header-differs": error("Manifests", _WRITER),
    "manifest-schema-contradicts": warning("Manifests", _HEADER),
    "manifest-spec-contradicts": warning("Manifests", _HEADER),
    "manifest-file-counts-differ": error("Manifest Lists", _RECOUNT),
    "manifest-row-counts-differ": error("Manifest Lists", _RELIST),
    "entry-sequence-number-wrong": error("Sequence Number Inheritance", _WRITER),
    "file-format-unfit": error("Data File Fields", _REMOVE_FILE),
    "partition-tuple-unfit": error("Data File Fields", _WRITER),
    "partition-value-unfit": error("Partition Transforms", _REMOVE_FILE),
    "equality-ids-unfit": error("Equality Delete Files", _REMOVE_FILE),
    "deletes-before-v2": error("Delete Formats", _WRITER),
    "deletion-vector-before-v3": error("Delete Formats", "`upgrade-v3`, or roll back."),
    "deletion-vector-incomplete": error("Deletion Vectors", _WRITER),
    "position-deletes-added-in-v3": warning(
        "Position Delete Files", "`merge-dvs` makes deletion vectors of them."
    ),
}

_FILES: Final = {
    "file-listed-twice": error("Scan Planning", _WRITER),
    "deletion-vectors-of-one-file": error("Deletion Vectors", _WRITER),
    "deletion-vector-out-of-scope": error("Scan Planning", _WRITER),
    "deletion-vector-too-large": error("Deletion Vectors", _WRITER),
    "deletion-vector-spelling": warning(
        "Scan Planning",
        "Readers that compare paths as text do not apply it: delete the rows again with an engine.",
    ),
    "deletion-vector-dangling": warning(
        "Deletion Vectors", "`merge-dvs` removes deletion vectors that no data file needs."
    ),
    "deletes-dangling": warning("Scan Planning", _MERGE),
    "every-row-deleted": info(
        "Deletion Vectors",
        "Drop the file: DELETE of its rows by partition, or compaction.",
    ),
    "row-id-negative": error("Row Lineage", _WRITER),
    "row-ids-overlap": error("Row Lineage", _ROW_IDS_CLASH),
    "row-ids-above-next": error("Table Metadata Fields", _ROW_IDS_CLASH),
    "total-differs": warning("Metrics", _SUMMARY),
    "file-missing": error("File System Operations", _RESTORE),
    "file-size-differs": error("Data File Fields", _RESTORE),
    "file-out-of-reach": warning(
        "File System Operations", "Install or name a storage for this scheme and check again."
    ),
    UNANSWERED: warning(
        "File System Operations", "Let its storage answer, with the credentials it asks for, and check again."
    ),
    "leftover-temporary-file": info("File System Tables", LEFTOVER),
    "statistics-file-missing": warning("Table Statistics", _STATISTICS),
    "statistics-file-size-differs": warning("Table Statistics", _STATISTICS),
}

_DEEP: Final = {
    "puffin-unreadable": error("Deletion Vectors", _RESTORE),
    "deletion-vector-place-differs": error("Data File Fields", _RESTORE),
    "deletion-vector-unreadable": error("Deletion Vectors", _RESTORE),
    "deletion-vector-cardinality-differs": error("Data File Fields", _RESTORE),
    "deletion-vector-position-too-high": error("Deletion Vectors", _WRITER),
    "parquet-unreadable": error("Data File Fields", _RESTORE),
    "parquet-cannot-be-read-here": warning(
        "Data File Fields", "Nothing is known of it: read the file with the engine that wrote it."
    ),
    "position-deletes-unfit": error("Position Delete Files", _REMOVE_FILE),
    "record-count-differs": error("Data File Fields", _REMOVE_FILE),
    "statistics-file-unreadable": warning("Table Statistics", _STATISTICS),
}
_COMPACTIONS: Final = {
    "compaction-rows-came-back": error(
        "Snapshots",
        f"{_PARENT} Rows that are there again can be deleted with an engine, by what the parent has not.",
    ),
    "compaction-rows-missing": error(
        "Snapshots", f"{_PARENT} Rows that are missing can be inserted from the parent with an engine."
    ),
    "compaction-row-ids-lost": error(
        "Row Lineage", f"{_PARENT} Let consumers of changes begin anew after it."
    ),
    "delete-lost": error(
        "Scan Planning",
        "Delete these rows again with an engine; the positions are those of the old file, which older snapshots have. "
        "Until then keep the delete listed, for it is all that tells of them. Its writer does not look whether a file "
        "is still live: stop it, or compact at other times.",
    ),
    "compaction-summary-differs": warning(
        "Metrics", "Readers count for themselves. Tell the maintainers of the program that wrote the summary."
    ),
}

RULES: Final[Mapping[str, Rule]] = (
    _REFS | _COLUMNS | _SNAPSHOTS | _LOGS | _LISTS | _MANIFESTS | _FILES | _DEEP | _COMPACTIONS
)
