"""The storage and the local engine of a table that is opened, and what the operator answers for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import UsageError
from iceberg_cli.paths import scheme_of
from iceberg_cli.storage import Storage
from iceberg_cli.storage.routing import RoutedStorage

_LOCAL_THREADS = 4
_REMOTE_THREADS = 32
_MOST_LANES = 2  # each takes some 100 MB while it decodes


@dataclass(frozen=True, kw_only=True)
class Trusts:
    """What the operator answers for, of Iceberg tables; see `opening.open_table`."""

    allow_roots: tuple[str, ...]
    trust_lists: bool

    def refuse(self, name: str) -> None:
        """Refuse both for a Delta table.

        Of a shallow clone's files in another table's folder nobody can tell who else needs them.
        """
        for option, given in (
            ("--unsafe-trust-lists", self.trust_lists),
            ("--unsafe-allow-root", self.allow_roots),
        ):
            if given:
                raise UsageError(f"{option} is an option of Iceberg tables, and {name} is a Delta table")


def storage_of(opened: str, options: Mapping[str, str], trusts: Trusts) -> RoutedStorage:
    """The storage of the table at `opened`: links in and above local folders that the operator named are trusted."""
    trusted = tuple(path for path in (opened, *trusts.allow_roots) if scheme_of(path) == "file")
    return RoutedStorage(dict(options), trusted_folders=trusted)


def engine_of(storage: Storage, *, local: bool) -> LocalEngine:
    """Lanes for files of local disks only: other storages have threads, which do not survive a fork."""
    if not local:
        return LocalEngine(storage, threads=_REMOTE_THREADS)
    # On other systems their own libraries may not be used after a fork.
    lanes = min(len(os.sched_getaffinity(0)), _MOST_LANES) if sys.platform == "linux" else 1
    return LocalEngine(storage, threads=_LOCAL_THREADS, lanes=lanes)
