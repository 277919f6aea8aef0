"""What the storage does where a plan deletes: whether it lets this user, and where it tags files instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.errors import AccessDenied
from iceberg_cli.paths import folder_column, scheme_of
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.removals import Removals
from iceberg_cli.storage import SoftDeletion, SoftStorage, Storage

_MOST_FOLDERS: Final = 16  # in a bucket with versions each gets a delete marker


def check_deletable(
    plan: Plan, delete: Callable[[Sequence[str]], Mapping[str, str]], operation_id: str
) -> None:
    """Delete, in folders from which files will go, a name that no file has: object stores check the right to it first.

    It ends like the name of a file that goes: some services know only the names that Iceberg's files have.
    Folders on local disks are looked at when a plan is made. A service may still refuse single files later.

    Args:
        plan: with its removals.
        delete: see `Workspace.delete`.
        operation_id: makes the name one of its own.

    Raises:
        AccessDenied: the storage refuses it, or had no time for it in all tries.
    """
    assert plan.removals is not None
    paths = [path for path in _one_of_each_folder(plan.removals) if scheme_of(path) != "file"]
    some = paths[:: -(-len(paths) // _MOST_FOLDERS) or 1]
    failures = delete([_name_beside(path, f"{operation_id}-probe") for path in some]) if some else {}
    if not failures:
        return
    path, reason = next(iter(failures.items()))
    raise AccessDenied(
        f"Cannot {plan.verb} {plan.table['name']}: the storage did not delete in {path.rpartition('/')[0]}, where "
        f"files would go after the commit: {reason}",
        # A batch has a reason for each file in words alone.
        next_step="Where it denies the right, give this user that: until then it fails alike. Where it was busy, run "
        "the same command again.",
    )


def soft_folders(storage: Storage, paths: pa.ChunkedArray) -> dict[str, SoftDeletion]:
    """The folders of n paths in which deletions are turned off, each with what is done in place of one."""
    if not isinstance(storage, SoftStorage) or not len(paths):
        return {}
    folders = pc.unique(folder_column(paths)).to_pylist()
    found = {folder: storage.soft_deletion(f"{folder}/") for folder in folders if not folder.startswith("/")}
    return {folder: deletion for folder, deletion in found.items() if deletion is not None}


def _name_beside(path: str, stem: str) -> str:
    """The path of a name with this stem, and the ending from the first dot on, in the folder of another path."""
    folder, _, name = path.rpartition("/")
    _, dot, ending = name.partition(".")
    return f"{folder}/{stem}{dot}{ending}"


def _one_of_each_folder(removals: Removals) -> Sequence[str]:
    """A path in each folder of removals, by folder; of parts that are not in memory the least and the greatest."""
    found: dict[str, str] = {}
    for part in removals.parts:
        paths: Iterable[str] = part.paths
        if part.rows is not None:
            by_folder = pa.table({"folder": folder_column(part.rows["path"]), "path": part.rows["path"]})
            paths = by_folder.group_by("folder").aggregate([("path", "min")])["path_min"].to_pylist()
        for path in paths:
            found.setdefault(path.rpartition("/")[0], path)
    return [found[folder] for folder in sorted(found)]
