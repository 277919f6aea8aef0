"""Opens Iceberg tables: in a catalog, in their own folder, or a copy of one in another place.

It tells as well what a scan of one reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow.compute as pc

from iceberg_cli.engines.local import engine_of
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.folders import open_folder
from iceberg_cli.iceberg.catalogs.metadata_swap import metadata_folder
from iceberg_cli.iceberg.catalogs.read_only import ReadOnlyCommitter
from iceberg_cli.iceberg.reachability.question import snapshot_files
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.paths import METADATA_SUFFIXES, canonical, scheme_of, without_end_noise
from iceberg_cli.plan.events import Listener
from iceberg_cli.storage.relocated import RelocatedStorage
from iceberg_cli.storage.router import RoutedStorage, UnsafeOverrides, storage_of
from iceberg_cli.table.table import OpenRequest

if TYPE_CHECKING:
    from iceberg_cli.errors import CorruptFile
    from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
    from iceberg_cli.iceberg.unreadable_table import UnreadableIcebergTable


def open_named(request: OpenRequest, choose_engine: Callable[[IcebergTable], None]) -> IcebergTable:
    """The table of a catalog or in a folder, loaded once.

    Args:
        request: of it.
        choose_engine: is called before manifests are read.
    """
    if request.location is None:
        table = _open_in_catalog(request)
    else:
        table = open_in_folder(
            request.location, request.storage, request.overrides, request.on_event, forks=request.forks
        )
    # A copy's files may have other content than the files whose names they bear.
    if request.cache is not None and not isinstance(table.storage, RelocatedStorage):
        table.use_cache(request.cache[0], limit_bytes=request.cache[1])
    choose_engine(table)
    return table


def open_unreadable(request: OpenRequest, damage: CorruptFile) -> UnreadableIcebergTable:
    """The table whose current metadata file `open_named` could not read.

    Its folder is the one above that of its metadata files, as of most tables: where it is another, no journal is found.
    """
    from iceberg_cli.iceberg.unreadable_table import UnreadableIcebergTable

    if request.location is None:
        committer, storage, location = _in_catalog(request)
        name, folder = request.name, _folder_of(location)
    else:
        storage = request.storage
        committer = open_folder(request.location, storage, request.overrides)
        name = storage.canonical(request.location)
        folder = _folder_of(name) if name.endswith(METADATA_SUFFIXES) else name
    return UnreadableIcebergTable(
        name=name,
        storage=storage,
        engine=engine_of(storage, local=scheme_of(folder) == "file", forks=request.forks),
        on_event=request.on_event,
        folder=folder,
        damage=damage,
        committer=committer,
    )


def _in_catalog(request: OpenRequest) -> tuple[Committer, RoutedStorage, str]:
    """How the pointer of a catalog's table moves, where its files are, and its current metadata file."""
    from iceberg_cli.iceberg.catalogs.registry import Catalogs, open_catalog_table

    committer, options = open_catalog_table(
        request.name,
        catalogs=request.catalogs or Catalogs(request.catalog_config),
        storage_options=request.storage_options,
    )
    location = request.seen or committer.current()
    storage = storage_of(_folder_of(location), options, request.overrides, credentials=committer.credentials)
    return committer, storage, location


def _open_in_catalog(request: OpenRequest) -> IcebergTable:
    committer, storage, location = _in_catalog(request)
    return _loaded(
        request.name,
        storage,
        committer,
        request.overrides,
        request.on_event,
        location=location,
        forks=request.forks,
    )


@dataclass(frozen=True, kw_only=True)
class ManifestInput:
    """The current snapshot's manifests: about what a scan of the whole table reads.

    Args:
        table: opened, with the local engine.
    """

    table: IcebergTable
    words: ClassVar[str] = "the current manifests hold"

    def size_bytes(self) -> int:
        """How much that is.

        Raises:
            CorruptFile: the manifest list cannot be read.
        """
        snapshot = self.table.metadata.current_snapshot()
        if snapshot is None:
            return 0
        rows = self.table.reachability.manifests(
            [snapshot_files(snapshot)], phase="reading the current manifest list", required=False
        ).rows
        return int(pc.sum(rows["manifest_length"]).as_py() or 0)

    def one_file(self) -> str:
        """A file that workers must be able to read."""
        return self.table.metadata_location


def open_in_folder(
    opened: str,
    storage: RoutedStorage,
    overrides: UnsafeOverrides,
    on_event: Listener,
    *,
    forks: bool = True,
) -> IcebergTable:
    """The table in a folder, or of one metadata file, loaded once.

    A folder that links lead to is opened by the table's own name for it. A copy is found by its location.

    Args:
        opened: from `located`.
        storage: trusts `opened`.
        overrides: see `formats/open.py`.
        on_event: progress.
        forks: see `OpenRequest`.
    """
    committer = open_folder(opened, storage, overrides)
    name = storage.canonical(opened)  # a saved plan is carried out from any folder
    table = _loaded(name, storage, committer, overrides, on_event, location=committer.current(), forks=forks)
    folder = _table_folder(name, table.metadata) if name.endswith(METADATA_SUFFIXES) else name
    own = without_end_noise(canonical(table.location))
    if folder == own:
        return table
    if _is_one_folder(folder, own):
        storage = storage.trusting(*overrides.local_folders(own))
        return open_in_folder(own + name[len(folder) :], storage, overrides, on_event, forks=forks)
    moved = RelocatedStorage(storage, original=table.location, copy=folder)
    copy = _Copy(committer=committer, folder=folder, original=table.location)
    relocated = _table(name, moved, copy, overrides, on_event, local=scheme_of(folder) == "file", forks=forks)
    relocated.load()
    return relocated


def _is_one_folder(folder: str, own: str) -> bool:
    """Whether links make two names of one local folder; `own` is a name by which files can be deleted."""
    if not own.startswith("/") or ".." in own.split("/") or scheme_of(folder) != "file":
        return False
    try:
        return os.path.samefile(folder, own)
    except (OSError, ValueError):
        return False


def _table_folder(metadata_location: str, metadata: TableMetadata) -> str:
    """The folder that a metadata file's place shows as the table's: above `metadata`, or where the file itself is.

    The latter where the table's location ends in `/metadata` and holds the metadata files without one more folder. A
    file where the table's properties put its metadata files shows no other folder than the table's location.
    """
    location = metadata.location.rstrip("/")
    if metadata_location.rpartition("/")[0] == canonical(metadata_folder(metadata)):
        return canonical(location)
    lists = [snapshot.manifest_list for snapshot in metadata.snapshots if snapshot.manifest_list is not None]
    if location.endswith("/metadata") and not any(path.startswith(f"{location}/metadata/") for path in lists):
        return metadata_location.rpartition("/")[0]
    return _folder_of(metadata_location)


def _loaded(
    name: str,
    storage: RoutedStorage,
    committer: Committer,
    overrides: UnsafeOverrides,
    on_event: Listener,
    *,
    location: str,
    forks: bool,
) -> IcebergTable:
    table = _table(
        name, storage, committer, overrides, on_event, local=scheme_of(location) == "file", forks=forks
    )
    table.load_from(location)
    if scheme_of(table.location) == "file":
        table.look_through_links()
    return table


def _table(
    name: str,
    storage: RoutedStorage | RelocatedStorage,
    committer: Committer,
    overrides: UnsafeOverrides,
    on_event: Listener,
    *,
    local: bool,
    forks: bool,
) -> IcebergTable:
    return IcebergTable(
        name=name,
        storage=storage,
        committer=committer,
        engine=engine_of(storage, local=local, forks=forks),
        on_event=on_event,
        allow_roots=overrides.allow_roots,
        trust_lists=overrides.trust_lists,
        forget_metadata=frozenset(overrides.forget_metadata),
    )


def _folder_of(metadata_location: str) -> str:
    return metadata_location.rsplit("/", 2)[0]


@dataclass(frozen=True, kw_only=True)
class _Copy(ReadOnlyCommitter):
    """The committer of a table that was copied to another place: it shows the table and commits nothing."""

    committer: Committer
    folder: str
    original: str

    def read_only_reason(self) -> str:
        return f"{self.folder} is a copy: the table's own location is {self.original}"

    def current(self) -> str:
        return self.committer.current()
