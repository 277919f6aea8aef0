"""The committer of a table that is opened by its folder."""

from __future__ import annotations

from iceberg_cli.iceberg.catalogs.files.committer import (
    FileNameCommitter,
    FilesystemCommitter,
    PinnedCommitter,
)
from iceberg_cli.iceberg.catalogs.object_store.committer import ObjectStoreCommitter
from iceberg_cli.paths import METADATA_SUFFIXES, scheme_of
from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import NO_OVERRIDES, UnsafeOverrides


def open_folder(
    path: str, storage: Storage, overrides: UnsafeOverrides = NO_OVERRIDES
) -> FileNameCommitter | PinnedCommitter:
    """The committer for a table's folder, or for one metadata file of a table.

    Args:
        path: of either, in any spelling.
        storage: that reads and writes it.
        overrides: what the operator vouches for.
    """
    if path.endswith(METADATA_SUFFIXES):
        return PinnedCommitter(path, storage)
    is_local = scheme_of(storage.canonical(path)) == "file"
    return (FilesystemCommitter if is_local else ObjectStoreCommitter)(path, storage, overrides)
