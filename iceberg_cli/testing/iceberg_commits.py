"""The manifests, row ids and summary of one commit of a demo table, from its parent's manifests.

Spec: Iceberg v3, "Manifests", "Row Lineage", "Optional Snapshot Summary Fields".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Entry = dict[str, Any]  # a flat manifest entry
Key = tuple[str, int | None]  # identifies a live file: path, and offset of a deletion vector

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, DELETES = 0, 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """A row of a manifest list, and the manifest's entries with inherited values filled in."""

    row: Mapping[str, Any]
    entries: tuple[Entry, ...]


def key_of(entry: Entry) -> Key:
    """The key of a live file: its path, and a deletion vector's offset, since vectors may be in one Puffin file."""
    return entry["file_path"], entry.get("content_offset")


def plan_manifests(
    before: Sequence[Manifest], added: list[Entry], removed: set[Key], snapshot_id: int, sequence_number: int
) -> tuple[list[list[Entry]], list[Manifest]]:
    """Decide which manifests to write, as lists of entries, and which of the parent's to keep.

    Args:
        before: the parent's manifests.
        added: entries of new files.
        removed: keys of live files.
        snapshot_id: of the new snapshot.
        sequence_number: of the new snapshot.

    Raises:
        ValueError: a removed file is not live.
    """
    numbers = {"sequence_number": sequence_number, "file_sequence_number": sequence_number}
    new = [entry | numbers | {"status": ADDED, "snapshot_id": snapshot_id} for entry in added]
    drafts = [
        some for some in ([e for e in new if not e["content"]], [e for e in new if e["content"]]) if some
    ]
    kept, missing = [], set(removed)
    for manifest in before:
        live = [entry for entry in manifest.entries if entry["status"] != DELETED]
        gone = {key_of(entry) for entry in live} & removed
        missing -= gone
        if gone:
            drafts.append(
                [
                    entry
                    | (
                        {"status": DELETED, "snapshot_id": snapshot_id}
                        if key_of(entry) in gone
                        else {"status": EXISTING}
                    )
                    for entry in live
                ]
            )
        elif live:
            kept.append(manifest)
    if missing:
        raise ValueError(f"Cannot remove {sorted(path for path, _ in missing)}: not live.")
    return drafts, kept


def assign_row_ids(manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
    """Give each data manifest without `first_row_id` the next range, and its entries theirs.

    Returns:
        The manifests in the same order, and the table's new `next-row-id`.

    Spec: "First Row ID Assignment", "First Row ID Inheritance".
    """
    result = []
    for manifest in manifests:
        row = manifest.row
        if row["content"] == DELETES or row.get("first_row_id") is not None:
            result.append(manifest)
            continue
        entries, free = [], next_row_id
        for entry in manifest.entries:
            if entry["status"] != DELETED and entry.get("first_row_id") is None:
                entries.append(entry | {"first_row_id": free})
                free += entry["record_count"]
            else:
                entries.append(entry)
        result.append(Manifest({**row, "first_row_id": next_row_id}, tuple(entries)))
        # As Java counts: rows of existing files too, though theirs are known.
        next_row_id += row["added_rows_count"] + row["existing_rows_count"]
    return result, next_row_id


def _size(entry: Entry) -> int:
    """The file size for summaries in bytes: of a deletion vector its blob, not the whole Puffin file."""
    return int(entry.get("content_size_in_bytes") or entry["file_size_in_bytes"])


def summarise(manifests: Sequence[Manifest], snapshot_id: int, counts: Mapping[str, int]) -> dict[str, str]:
    """The metrics of a snapshot's summary; those that are 0 are left out except totals.

    Args:
        manifests: all of the snapshot.
        snapshot_id: of the snapshot.
        counts: metrics about manifests.

    Spec: Appendix F, "Metrics".
    """
    entries = [
        e for m in manifests for e in m.entries if e["snapshot_id"] == snapshot_id or e["status"] != DELETED
    ]
    added = [e for e in entries if e["status"] == ADDED and e["snapshot_id"] == snapshot_id]
    gone = [e for e in entries if e["status"] == DELETED]
    live = [e for e in entries if e["status"] != DELETED]
    totals: dict[str, int] = {}
    for prefix, other, some in (
        ("added", "added", added),
        ("deleted", "removed", gone),
        ("total", "total", live),
    ):
        deletes = [e for e in some if e["content"]]
        totals |= {
            f"{prefix}-data-files": len(some) - len(deletes),
            f"{other}-delete-files": len(deletes),
            f"{prefix}-records": sum(e["record_count"] for e in some if not e["content"]),
            f"{other}-files-size": sum(_size(e) for e in some),
            f"{other}-position-deletes": sum(e["record_count"] for e in deletes),
            f"{other}-equality-deletes": 0,
        }
        if prefix != "total":
            vectors = sum(e["file_format"] == "PUFFIN" for e in deletes)
            totals |= {f"{other}-dvs": vectors, f"{other}-position-delete-files": len(deletes) - vectors}
    partitions = len({tuple(e["partition"].values()) for e in added + gone})
    totals |= {**counts, "changed-partition-count": partitions}
    return {name: str(n) for name, n in totals.items() if n or name.startswith(("total-", "manifests-"))}
