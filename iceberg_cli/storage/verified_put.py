"""The creation of new files, once under their unique names, with a check that reads them back."""

from __future__ import annotations

from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.storage import Storage

_RANGE_BYTES = 8 << 20


def put_checked(storage: Storage, path: str, data: bytes) -> None:
    """Create a file and read it back, or find that it has these bytes already.

    A task that runs twice, because a worker died or another was faster, puts the same bytes twice under one name.
    Other bytes there are another's file, which stays.

    Raises:
        FileExistsError: it has other bytes.
        CorruptFile: it was created, and other bytes are read.
        BackendUnavailable: it was created, and was gone when it was read back.
    """
    try:
        storage.put_if_absent(path, data)
    except FileExistsError:
        if _other_from(storage, path, data) is not None:
            raise
        return
    try:
        at = _other_from(storage, path, data)
    except FileNotFoundError as error:
        raise BackendUnavailable(
            f"Cannot write {path}: it was written, and was gone when it was read back"
        ) from error
    if at is not None:
        raise CorruptFile(path, at, "read back: other bytes than were written")


def _other_from(storage: Storage, path: str, data: bytes) -> int | None:
    """The first offset at which the file differs from `data`, None where it is equal."""
    at = 0
    while True:
        found = storage.read(path, (at, _RANGE_BYTES))
        # Compared in place: a copy of this much memory takes longer than reading the file.
        if len(found) != min(_RANGE_BYTES, len(data) - at) or not data.startswith(found, at):
            return at
        at += len(found)
        if len(found) < _RANGE_BYTES:
            return None
