"""Finds out before a commit whether the storage lets this user delete where a plan deletes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from iceberg_cli.errors import AccessDenied
from iceberg_cli.paths import folder_column, scheme_of
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.removals import Removals

_MOST_FOLDERS: Final = 16  # in a bucket with versions each gets a delete marker


def check_deletable(
    plan: Plan, delete: Callable[[Sequence[str]], Mapping[str, str]], operation_id: str
) -> None:
    """Delete, in folders from which files will go, a name that no file has: object stores check the right to it first.

    Folders on local disks are looked at when a plan is made. A service may still refuse single files later.

    Args:
        plan: with its removals.
        delete: see `Workspace.delete`.
        operation_id: makes the name one of its own.

    Raises:
        AccessDenied: the storage refuses it.
    """
    assert plan.removals is not None
    folders = [folder for folder in _folders(plan.removals) if scheme_of(folder) != "file"]
    some = folders[:: -(-len(folders) // _MOST_FOLDERS) or 1]
    failures = delete([f"{folder}/{operation_id}-probe" for folder in some]) if some else {}
    if not failures:
        return
    path, reason = next(iter(failures.items()))
    raise AccessDenied(
        f"Cannot {plan.verb} {plan.table['name']}: the storage refuses deletions in {path.rpartition('/')[0]}, where "
        f"files would go after the commit: {reason}"
    )


def _folders(removals: Removals) -> Sequence[str]:
    """The folders of removals in order; of parts that are not in memory those of the least and the greatest path."""
    found = set[str]()
    for part in removals.parts:
        if part.rows is None:
            found |= {path.rpartition("/")[0] for path in part.paths}
        else:
            found |= set(folder_column(part.rows["path"]).unique().to_pylist())
    return sorted(found)
