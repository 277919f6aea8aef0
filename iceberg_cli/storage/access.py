"""The storage of a table that is opened, and the safety checks that the operator overrides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_cli.paths import scheme_of
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import RoutedStorage


@dataclass(frozen=True, kw_only=True)
class UnsafeOverrides:
    """The safety checks of Iceberg tables that the operator overrides; see `formats/open.py`."""

    allow_roots: tuple[str, ...]
    trust_lists: bool

    def local_folders(self, opened: str) -> tuple[str, ...]:
        """The local folders that the operator named, the table's among them: a folder or a file in one."""
        return tuple(path for path in (opened, *self.allow_roots) if scheme_of(path) == "file")


def located(name: str) -> str:
    """A table's folder or metadata file as an absolute path.

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


def storage_of(opened: str, options: Mapping[str, str], overrides: UnsafeOverrides) -> RoutedStorage:
    """The storage of the table at `opened`: links in and above local folders that the operator named are trusted.

    Links inside the table may lead to the folders that he allowed.
    """
    targets = tuple(path for path in overrides.allow_roots if scheme_of(path) == "file")
    return RoutedStorage(dict(options), trusted_folders=overrides.local_folders(opened), link_targets=targets)
