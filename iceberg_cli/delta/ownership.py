"""Which files are a Delta table's own to delete, where its new ones go, and which of those an operation made."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.log import LOG
from iceberg_cli.paths import OPERATIONS_FOLDER, Roots
from iceberg_cli.plan.plan import Task
from iceberg_cli.storage import Storage

_HALF = 8  # bytes


def marked_uuid(operation_id: str, *salt: str) -> str:
    """A UUID of an operation; another one for each salt.

    Args:
        operation_id: whose file it will name.
        salt: what tells the file from every other one of the operation, those of earlier attempts included.
    """
    first = _digest("file", operation_id, *salt)
    return str(_version_8(first, operation_id))


def is_marked(text: str, operation_id: str) -> bool:
    """Whether `marked_uuid` made this UUID for the operation."""
    try:
        found = uuid.UUID(text)
    except ValueError:
        return False
    return found == _version_8(found.bytes[:_HALF], operation_id)


def _version_8(first: bytes, operation_id: str) -> uuid.UUID:
    half = bytearray(first)
    half[6] = half[6] & 0x0F | 0x80
    rest = bytearray(_digest("proof", operation_id, half.hex()))
    rest[0] = rest[0] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(half + rest))


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(("iceberg-cli", *parts)).encode()).digest()[:_HALF]


CHECKPOINT = "checkpoint"  # kind of a task whose file is a checkpoint, or its top-level part
DELETION_VECTOR = "deletion-vector"  # kind of a task whose file is one of deletion vectors
LOG_KINDS = ("compacted_file", "checksum_file", "commit_file", "checkpoint_file", "sidecar_file")
_DV_NAME = "deletion_vector_{uuid}.bin"
DATA_SUFFIX = ".parquet"
_DATA_NAME = re.compile(r"part-\d{5}-(?P<operation>.+)-\d+-\d+x[0-9a-f]{8}\.parquet")


def own_removals(rows: pa.Table, *, root: str, roots: Roots) -> pa.Array:
    """Which of n removals are the table's to delete: files of the log by their kinds, all others outside of the log.

    Args:
        rows: columns of `removal_rows.SCHEMA`.
        root: the table's folder.
        roots: where the table's files may be deleted.
    """
    log_folder = f"{root}/{LOG}/"
    parts = [pa.array([], pa.bool_())]
    for batch in rows.to_batches():
        in_log = pc.starts_with(batch["path"], log_folder)
        log_kind = pc.is_in(batch["kind"].cast(pa.string()), value_set=pa.array(LOG_KINDS))
        parts.append(pc.and_(roots.own_column(batch["path"]), pc.equal(in_log, log_kind)))
    return pa.concat_arrays(parts)


def kept_commit(root: str, *, operation_id: str, mark: str, commit_uuid: str) -> str:
    """Where an attempt's bytes are kept beside the operation's journal."""
    return f"{root}/{OPERATIONS_FOLDER}/{operation_id}/{mark}-{commit_uuid}.json"


def staging_path(root: str, mark: str, task: Task) -> str:
    """Where a task's new file goes.

    Deletion vectors go beside the data, under a name that proves whose they are. All others go into the log, under the
    task's name, in which `{uuid}` stands for such a UUID.

    Args:
        root: the table's folder.
        mark: the operation's id, a hyphen, and a number that is used once.
        task: what is built.
    """
    own_uuid = marked_uuid(mark.rpartition("-")[0], mark, task.name)
    if task.kind == DELETION_VECTOR:
        return f"{root}/{_DV_NAME.format(uuid=own_uuid)}"
    return f"{root}/{LOG}/{task.name.replace('{uuid}', own_uuid)}"


def discardable(path: str, root: str, *, marks: Sequence[str]) -> bool:
    """Whether a file is an operation's own and may be unreferenced: a kept commit, data, or deletion vectors.

    Kept commits and data go by a mark in their name, deletion vectors by the proof in their UUID. Files of the log
    never do: a checkpoint is sound once it is there, and a log cleanup takes sidecars that no checkpoint names.

    Args:
        path: canonical.
        root: the table's folder.
        marks: operation id or commit UUIDs.
    """
    folder, _, name = path.rpartition("/")
    if folder.startswith(f"{root}/{OPERATIONS_FOLDER}/"):
        return any(mark in name for mark in marks)
    if (data := _DATA_NAME.fullmatch(name)) is not None:
        return data["operation"] in marks and f"{folder}/".startswith(f"{root}/")
    before, _, after = _DV_NAME.partition("{uuid}")
    text = name.removeprefix(before).removesuffix(after)
    ours = any(is_marked(text, mark) for mark in marks)
    return ours and folder == root and name == _DV_NAME.format(uuid=text)


def remove_empty_folders(storage: Storage, root: str, paths: Sequence[str]) -> None:
    """Remove the folders that deleted files left without any file below them; never the table's own or the log's.

    Args:
        storage: of the table, with folders.
        root: the table's folder.
        paths: of the deleted files.
    """
    inside, log_folder = f"{root}/", f"{root}/{LOG}/"
    waiting = {path.rpartition("/")[0] for path in paths if not path.startswith(log_folder)}
    while waiting := {folder for folder in waiting if folder.startswith(inside)}:
        empty = {folder for folder in waiting if not storage.holds_any(folder)}
        for folder in empty:
            storage.prune(folder)
        waiting = {folder.rpartition("/")[0] for folder in empty}
