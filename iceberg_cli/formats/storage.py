"""The storage and the local engine of a table that is opened, and what the operator answers for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import UsageError
from iceberg_cli.paths import scheme_of, whole_store
from iceberg_cli.storage import Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import RoutedStorage

_LOCAL_THREADS = 4
_REMOTE_THREADS = 32
_MOST_LANES = 2  # each takes some 100 MB while it decodes


@dataclass(frozen=True, kw_only=True)
class Trusts:
    """What the operator answers for, of Iceberg tables; see `opening.open_table`."""

    allow_roots: tuple[str, ...]
    trust_lists: bool

    def local_folders(self, opened: str) -> tuple[str, ...]:
        """Those that the operator named, the table's among them: a folder or a file in one."""
        return tuple(path for path in (opened, *self.allow_roots) if scheme_of(path) == "file")

    def refuse(self, name: str, root: str) -> None:
        """Refuse both for a Delta table, but for its own root where that is a whole bucket.

        Of a shallow clone's files in another table's folder nobody can tell who else needs them.
        """
        for option, given in (
            ("--unsafe-trust-lists", self.trust_lists),
            ("--unsafe-allow-root", [each for each in self.allow_roots if whole_store(each) != root]),
        ):
            if given:
                raise UsageError(f"{option} is an option of Iceberg tables, and {name} is a Delta table")


def located(name: str) -> str:
    """A table's folder or metadata file as the system finds it.

    Args:
        name: as the operator typed it.

    Returns:
        A local path from `/` on, without `..`: what that means depends on the links before it. Any other name as it is.

    Raises:
        UsageError: it is empty, or names another host.
    """
    if scheme_of(name) != "file":
        return name.rstrip("/") or name
    path = LocalStorage().canonical(name)
    return os.path.realpath(path) if ".." in path.split("/") else path


def storage_of(opened: str, options: Mapping[str, str], trusts: Trusts) -> RoutedStorage:
    """The storage of the table at `opened`: links in and above local folders that the operator named are trusted.

    Links inside the table may lead to the folders that he allowed.
    """
    targets = tuple(path for path in trusts.allow_roots if scheme_of(path) == "file")
    return RoutedStorage(dict(options), trusted_folders=trusts.local_folders(opened), link_targets=targets)


def engine_of(storage: Storage, *, local: bool) -> LocalEngine:
    """Lanes for files of local disks only: other storages have threads, which do not survive a fork."""
    if not local:
        return LocalEngine(storage, threads=_REMOTE_THREADS)
    # On other systems their own libraries may not be used after a fork.
    lanes = min(len(os.sched_getaffinity(0)), _MOST_LANES) if sys.platform == "linux" else 1
    return LocalEngine(storage, threads=_LOCAL_THREADS, lanes=lanes)
