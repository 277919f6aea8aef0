"""What a commit changes in the parameters of a table's entry in a Hive Metastore.

Java's HiveTableOperations repeats parts of the metadata there, which Hive and its optimizer read. What a writer put
there is kept in step, in Java's spelling; what no writer put there is not added.

Spec: Java, `HMSTablePropertyHelper.updateHmsTableForIcebergTable`; Hive, `StatsSetupConst`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_LOCATION: Final = "metadata_location"
_PREVIOUS: Final = "previous_metadata_location"
# Names in Hive, and in a snapshot's summary.
_TOTALS: Final = {
    "numFiles": "total-data-files",
    "numRows": "total-records",
    "totalSize": "total-files-size",
}
_ACCURATE: Final = "COLUMN_STATS_ACCURATE"
_LONGEST: Final = 32_672  # characters, of Java's `iceberg.hive.table-property-max-size`
_SHORTEST_COLUMN: Final = 4_000  # of the values of parameters
_NAMES_IN_HIVE: Final = {"gc.enabled": "external.table.purge"}
_OWNER: Final = "hive.metastore.table.owner"  # Java makes it the entry's owner when the table is made
# Java holds the metadata of encrypted tables against a hash that is kept here, over its own spelling of the JSON.
_OF_ENCRYPTED: Final = ("encryption.key-id", "metadata_hash")


def why_read_only(parameters: Mapping[str, str]) -> str | None:
    """Why an entry with these parameters cannot be changed from here, or None."""
    for name in _OF_ENCRYPTED:
        if name in parameters:
            return f"its entry has the parameter {name}: encrypted tables are read only"
    return None


def why_not_held(location: str, base: str) -> str | None:
    """Why a metastore may not keep a location as it is, or None.

    On MySQL its column has Latin-1, holds 4,000 characters in versions before 3, and what does not fit is cut off or
    replaced without a word. What the base's location shows, it can hold.
    """
    if len(location) > max(len(base), _SHORTEST_COLUMN):
        return f"it has {len(location):,} characters, and a metastore may hold {_SHORTEST_COLUMN:,}"
    if strange := sorted({each for each in location if not each.isascii()} - set(base)):
        return f"a metastore may not hold {' '.join(strange)}"
    return None


def parameters_after(
    parameters: Mapping[str, str],
    *,
    after: Mapping[str, Any],
    updates: Sequence[Mapping[str, Any]],
    base: str,
    location: str,
) -> dict[str, str]:
    """All parameters of the entry once the commit is in.

    Args:
        parameters: those before it.
        after: the metadata that is committed.
        updates: of the commit, as JSON.
        base: the metadata location before it.
        location: the metadata location that is committed.
    """
    result = _with_properties(parameters, updates)
    snapshot = _current(after)
    for name, value in _repeated(after, snapshot).items():
        if value is None:
            result.pop(name, None)
        elif name in result:
            result[name] = value
    summary = snapshot.get("summary") or {}
    for name in _TOTALS.keys() & result.keys():
        if (total := summary.get(_TOTALS[name])) is not None:
            result[name] = str(total)
        elif any(update.get("action") == "add-snapshot" for update in updates):
            # The rows are the same, but what is said of files would be of those before.
            del result[name]
            result.pop(_ACCURATE, None)
    return {**result, _LOCATION: location, _PREVIOUS: base}


def _with_properties(parameters: Mapping[str, str], updates: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The parameters with those properties of the table that a commit sets, and without those that it removes."""
    result = dict(parameters)
    for update in updates:
        match update.get("action"):
            case "set-properties":
                for name, value in update["updates"].items():
                    if name.lower() != _OWNER:
                        result[_NAMES_IN_HIVE.get(name, name)] = str(value)
            case "remove-properties":
                for name in update["removals"]:
                    result.pop(_NAMES_IN_HIVE.get(name, name), None)
            case _:
                pass
    return result


def _current(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The current snapshot; an empty one where there is none."""
    current = metadata.get("current-snapshot-id")
    snapshots = metadata.get("snapshots") or ()
    return next((each for each in snapshots if each.get("snapshot-id") == current), {})


def _repeated(metadata: Mapping[str, Any], snapshot: Mapping[str, Any]) -> dict[str, str | None]:
    """What the parameters repeat of metadata; None: nothing may stand there."""
    summary = {key: value for key, value in (snapshot.get("summary") or {}).items() if key != "operation"}
    shown = json.dumps(summary, ensure_ascii=False, separators=(",", ":"))
    uuid = metadata.get("table-uuid")
    return {
        **({"uuid": str(uuid)} if uuid else {}),
        "format-version": str(metadata.get("format-version")),
        "snapshot-count": str(len(metadata.get("snapshots") or ())),
        "current-snapshot-id": str(snapshot["snapshot-id"]) if snapshot else None,
        "current-snapshot-timestamp-ms": str(snapshot["timestamp-ms"]) if snapshot else None,
        "current-snapshot-summary": shown if snapshot and len(shown) <= _LONGEST else None,
    }
