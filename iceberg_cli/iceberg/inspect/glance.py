"""What the metadata file of a table tells by itself: its snapshots and refs, and by these what may expire.

It is read for surveys of many tables, which only look: nothing is planned on it. Fields that it does not need are not
looked at, so that a file in which one of those is wrong is read here and refused by `spec/table_metadata/metadata.py`.

Spec: "Table Metadata Fields", "Snapshots", "Snapshot References", "Optional Snapshot Summary Fields".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iceberg_cli.errors import CorruptFile, IcebergCliError, InvalidMetadata
from iceberg_cli.iceberg.spec.table_metadata.history import SnapshotHistory, derived_refs, interlock_of
from iceberg_cli.iceberg.spec.table_metadata.snapshot import SnapshotRef
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import VERB_NAME, ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import (
    KeptSnapshots,
    SnapshotRetention,
    kept_by,
    reason_of,
)
from iceberg_cli.iceberg.verbs.expire_snapshots.table_retention import (
    retention_of,
    within_properties,
)
from iceberg_cli.iceberg.verbs.expire_snapshots.writer_state import has_state
from iceberg_cli.plan.decision import Decision

if TYPE_CHECKING:
    from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
    from iceberg_cli.plan.policy import Policy

_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_DECIDING: Final = ("history.expire.", "iceberg-cli.")  # what the properties that decide begin with
_GC: Final = "gc.enabled"
_SUMMARY: Final = ("total-data-files", "total-files-size", "total-records", "total-position-deletes")


class _Snapshot(NamedTuple):
    """A snapshot as a glance has it."""

    snapshot_id: int
    parent_snapshot_id: int | None
    timestamp_ms: int
    sequence_number: int


def read_glance(data: bytes, path: str) -> dict[str, Any]:
    """The glance of a metadata file.

    Args:
        data: the whole file, plain or compressed.
        path: of it.

    Raises:
        CorruptFile: it is no JSON object.
    """
    if data.startswith(_COMPRESSED):
        from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file

        document: Any = decode_metadata_file(data, path)
    else:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CorruptFile(path, None, f"no JSON: {error}") from error
    return glance_of(document, path, size_bytes=len(data))


def glance_of(document: Any, path: str, *, size_bytes: int | None) -> dict[str, Any]:
    """What is kept of a metadata document: small, and JSON itself.

    Args:
        document: as the file or a REST catalog has it.
        path: of the file.
        size_bytes: of the file as stored, where that is known.

    Raises:
        InvalidMetadata: a field that is needed is missing.
    """
    try:
        snapshots = document.get("snapshots") or ()
        current = document.get("current-snapshot-id")
        by_id = {each["snapshot-id"]: each for each in snapshots}
        summary = (by_id.get(current) or {}).get("summary") or {}
        properties = document.get("properties") or {}
        return {
            "format_version": document["format-version"],
            "table_uuid": document.get("table-uuid"),
            "location": document["location"],
            "metadata_bytes": size_bytes,
            "current_snapshot_id": None if current == -1 else current,
            "snapshots": [
                (
                    each["snapshot-id"],
                    each.get("parent-snapshot-id"),
                    each["timestamp-ms"],
                    each.get("sequence-number") or 0,
                )
                for each in snapshots
            ],
            "refs": {
                name: (
                    each["snapshot-id"],
                    each["type"],
                    each.get("min-snapshots-to-keep"),
                    each.get("max-snapshot-age-ms"),
                    each.get("max-ref-age-ms"),
                )
                for name, each in (document.get("refs") or {}).items()
            },
            "properties": _kept_properties(properties),
            "summary": {name: summary[name] for name in _SUMMARY if name in summary},
            "has_writer_state": any(has_state(each.get("summary")) for each in snapshots),
        }
    except (KeyError, TypeError, AttributeError) as error:
        field = error.args[0] if isinstance(error, KeyError) else "the document"
        raise InvalidMetadata(path, str(field), "it is missing or of another type") from error


def glance_of_metadata(metadata: TableMetadata) -> dict[str, Any]:
    """The glance of metadata that was read whole; how large its file is a summary tells."""
    current = metadata.current_snapshot()
    summary = {} if current is None else current.summary or {}
    return {
        "format_version": metadata.format_version,
        "table_uuid": metadata.table_uuid,
        "location": metadata.location,
        "metadata_bytes": None,
        "current_snapshot_id": metadata.current_snapshot_id,
        "snapshots": [
            (each.snapshot_id, each.parent_snapshot_id, each.timestamp_ms, each.sequence_number)
            for each in metadata.snapshots
        ],
        "refs": {
            name: (
                each.snapshot_id,
                each.type,
                each.min_snapshots_to_keep,
                each.max_snapshot_age_ms,
                each.max_ref_age_ms,
            )
            for name, each in metadata.refs.items()
        },
        "properties": _kept_properties(metadata.properties),
        "summary": {name: summary[name] for name in _SUMMARY if name in summary},
        "has_writer_state": any(has_state(each.summary) for each in metadata.snapshots),
    }


def _kept_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name.startswith(_DECIDING) or name == _GC}


def columns_of(glance: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `fleet/1` that a glance tells; those that manifests tell are null.

    Files and bytes are those of the snapshot's summary, which other writers let drift, bytes with those of deletes.
    """
    summary, times = glance["summary"], [each[2] for each in glance["snapshots"]]
    records, deleted = (_count(summary, f"total-{name}") for name in ("records", "position-deletes"))
    return {
        "snapshots": len(times),
        "oldest_snapshot_ms": min(times, default=None),
        "files": _count(summary, "total-data-files") if glance["current_snapshot_id"] is not None else 0,
        "small_files": None,
        "data_bytes": _count(summary, "total-files-size"),
        "delete_ratio": round(deleted / records, 4) if deleted is not None and records else None,
        "manifests": None,
        "manifest_target_ratio": None,
        "metadata_bytes": glance["metadata_bytes"],
        "log_versions_since_checkpoint": None,
    }


def _count(summary: Mapping[str, Any], key: str) -> int | None:
    text = summary.get(key)
    return (
        int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19 else None
    )


def _expiry_of(
    history: SnapshotHistory[_Snapshot], policy: ExpireSnapshots, path: str, *, as_of_ms: int
) -> tuple[KeptSnapshots, SnapshotRetention]:
    """What expires by a policy, by the rules that `expire-snapshots` goes by.

    Raises:
        InvalidMetadata: the snapshots contradict themselves.
        UsageError: the policy has no meaning for the table.
    """
    try:
        policy = within_properties(history, policy, as_of_ms=as_of_ms)
        retention = retention_of(history, policy, as_of_ms=as_of_ms)
        return kept_by(history, retention, as_of_ms=as_of_ms), retention
    except IcebergCliError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidMetadata(path, "snapshots", f"they cannot be read: {error!r}") from error


def _history(glance: Mapping[str, Any]) -> SnapshotHistory[_Snapshot]:
    """Its snapshots and refs, and the properties about retention."""
    current = glance["current_snapshot_id"]
    refs = {
        name: SnapshotRef(
            snapshot_id=snapshot_id,
            type=kind,
            min_snapshots_to_keep=least,
            max_snapshot_age_ms=age_ms,
            max_ref_age_ms=ref_age_ms,
        )
        for name, (snapshot_id, kind, least, age_ms, ref_age_ms) in glance["refs"].items()
    }
    return SnapshotHistory(
        location=glance["location"],
        properties=glance["properties"],
        current_snapshot_id=current,
        snapshots=tuple(map(_Snapshot._make, glance["snapshots"])),
        refs={**derived_refs(current), **refs},
    )


class MetadataGlances:
    """What metadata files tell; see `plan.decision.Glances`."""

    decides: Final = (VERB_NAME,)
    read = staticmethod(read_glance)
    columns = staticmethod(columns_of)

    @staticmethod
    def properties(glance: Mapping[str, Any]) -> Mapping[str, str]:
        """Those that decide."""
        found: Mapping[str, str] = glance["properties"]
        return found

    @staticmethod
    def of_document(document: Any, path: str) -> dict[str, Any]:
        """The glance of a metadata document as a REST catalog gives it."""
        return glance_of(document, path, size_bytes=None)

    @staticmethod
    def decide(glance: Mapping[str, Any], policy: Policy, path: str, *, as_of_ms: int) -> Decision:
        """What a verb would do; manifests decide about all but expiries, and time about none of those.

        Nor is it decided here what stays for the state of a writer.
        """
        if not isinstance(policy, ExpireSnapshots) or (
            policy.keep_writer_state and glance["has_writer_state"]
        ):
            return Decision(decided=policy.to_json(), is_due=None)
        history = _history(glance)
        kept, retention = _expiry_of(history, policy, path, as_of_ms=as_of_ms)
        going, dropped = kept.expired(history), kept.dropped_refs(history)
        cutoff_ms = retention.cutoff_ms.value
        blocked = interlock_of(history)
        by_age = retention.by_age and cutoff_ms is not None
        return Decision(
            decided=[
                sorted(str(each.snapshot_id) for each in going),
                list(dropped),
                policy.cleanup,
                policy.clean_metadata,
            ],
            is_due=bool(going),
            reason=reason_of(len(going), len(dropped)),
            blocked_by=(*([] if blocked is None else [blocked]), *kept.problems),
            oldest_ms=going[-1].timestamp_ms if going and by_age else None,
            allowed_ms=as_of_ms - int(cutoff_ms) if by_age else None,
        )
