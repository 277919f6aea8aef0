"""Whether an earlier try of a commit was ours, by what the table says now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from iceberg_cli.errors import BackendUnavailable, CorruptFile, TableNotFound, UsageError
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.storage import Storage


def settle_pointer(attempt: Attempt, current: Callable[[], str], storage: Storage) -> Outcome:
    """Look for a metadata location that only this attempt can have written: `name_is_unique` is true.

    Args:
        attempt: what was, or may have been, sent.
        current: asks the catalog for the current metadata location.
        storage: where metadata files are.

    Returns:
        Committed: the location is current or in the current metadata's log. Conflict: the base has moved, and
        the log reaches back to it without naming ours. Unknown: the base is still current, the log was
        trimmed, or somebody did not answer.
    """
    try:
        now = current()
        if _same(storage, now, attempt.file):
            return Committed(metadata_location=attempt.file)
        if _same(storage, now, attempt.base):
            return Unknown(cause=f"the table is still at {attempt.base}")
        metadata = decode_metadata_file(storage.read(now), now)
    except (BackendUnavailable, CorruptFile, FileNotFoundError, TableNotFound) as error:
        return Unknown(cause=f"the table could not be read back: {error}")
    return _settle_from_log(attempt, now, metadata, storage)


def _settle_from_log(attempt: Attempt, now: str, metadata: Mapping[str, Any], storage: Storage) -> Outcome:
    entries = [entry for entry in metadata.get("metadata-log") or () if isinstance(entry, Mapping)]
    files = {_canonical(storage, str(entry.get("metadata-file"))) for entry in entries}
    if _canonical(storage, attempt.file) in files:
        return Committed(metadata_location=attempt.file)
    reason = f"the table has moved from {attempt.base} to {now}"
    if _canonical(storage, attempt.base) in files:
        return Conflict(reason=reason)
    # A log that does not reach back to the base was trimmed, and ours may have been in what was cut off. Times are no
    # proof: of two writers one may have a clock that is far behind.
    return Unknown(cause=f"{reason}, and its metadata log does not reach back to the base")


def _same(storage: Storage, one: str, other: str) -> bool:
    return _canonical(storage, one) == _canonical(storage, other)


def _canonical(storage: Storage, path: str) -> str:
    """The canonical path; as it is written where its scheme is not known here."""
    try:
        return storage.canonical(path)
    except UsageError:
        return path
