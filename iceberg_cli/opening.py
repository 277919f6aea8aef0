"""From what the operator typed to an open table: storage, committer and engine are picked here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from iceberg_cli.committers import Attempt, Committer, Outcome, Unknown
from iceberg_cli.committers.filesystem import open_folder
from iceberg_cli.engines import OnEvent
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.paths import canonical, scheme_of
from iceberg_cli.storage.relocated import RelocatedStorage
from iceberg_cli.storage.routing import RoutedStorage
from iceberg_cli.table import IcebergTable

if TYPE_CHECKING:
    from iceberg_cli.apply import Verb
    from iceberg_cli.delta_table import DeltaTable
    from iceberg_cli.engines.choice import EngineChoice
    from iceberg_cli.iceberg.update import Commit

_LOG_FOLDER = "_delta_log"
_CATALOG_NAME = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+){2,}")
_METADATA_SUFFIXES = (".metadata.json", ".metadata.json.gz")
_LOCAL_THREADS = 4
_REMOTE_THREADS = 32
_MOST_LANES = 2  # each takes some 100 MB while it decodes


def open_table(
    name: str,
    *,
    storage_options: Mapping[str, str],
    catalog_config: str | None = None,
    allow_roots: tuple[str, ...] = (),
    trust_lists: bool = False,
    engine: EngineChoice | None = None,
    cache: tuple[Path, int] | None = None,
    on_event: OnEvent,
) -> IcebergTable | DeltaTable:
    """Open the table that `name` means: a folder with `_delta_log/` is a Delta table, every other one of Iceberg.

    Args:
        name: a folder or URI, a metadata file, or `catalog.namespace.table`.
        storage_options: for the storage adapters.
        catalog_config: a `.pyiceberg.yaml`, or None for PyIceberg's own places.
        allow_roots: folders outside the table's own in which files may be deleted too.
        trust_lists: believe manifest lists that look cut short.
        engine: what the operator says about engines, or None for the local one.
        cache: folder and limit in bytes of what runs learn of immutable files, see `liveness_cache.py`, or None.
        on_event: progress.

    Returns:
        The table, loaded once.

    Raises:
        UsageError, TableNotFound, Refused, CorruptFile, BackendUnavailable.
    """
    trusts = _Trusts(allow_roots=allow_roots, trust_lists=trust_lists)
    if _CATALOG_NAME.fullmatch(name):
        table = _in_catalog(name, storage_options, catalog_config, trusts, on_event)
    else:
        opened = name.rstrip("/") or name
        storage = _storage(opened.removesuffix(f"/{_LOG_FOLDER}") or opened, storage_options, trusts)
        if not name.endswith(_METADATA_SUFFIXES):
            delta = _delta_table(opened, storage, on_event)
            if delta is not None:
                trusts.refuse(name)
                _choose_engine(delta, engine)
                delta.load()
                return delta
        table = _in_folder(opened, storage, trusts, on_event)
    # A copy's files may have other content than the files whose names they bear.
    if cache is not None and not isinstance(table.storage, RelocatedStorage):
        table.use_cache(cache[0], limit_bytes=cache[1])
    _choose_engine(table, engine)
    return table


def verbs_of(table: IcebergTable | DeltaTable) -> Mapping[str, Verb]:
    """The verbs of the table's format."""
    if isinstance(table, IcebergTable):
        from iceberg_cli.verbs import VERBS

        return VERBS
    from iceberg_cli import delta_verbs

    return delta_verbs.VERBS


@dataclass(frozen=True, kw_only=True)
class _Trusts:
    """What the operator answers for, of Iceberg tables; see `open_table`."""

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


def _delta_table(opened: str, storage: RoutedStorage, on_event: OnEvent) -> DeltaTable | None:
    """The Delta table in the folder `opened`, or whose log that is, not loaded yet; None where there is none.

    Raises:
        UsageError: the folder has Iceberg metadata too.
    """
    meant = opened.endswith(f"/{_LOG_FOLDER}")
    opened = opened.removesuffix(f"/{_LOG_FOLDER}") or opened
    if next(iter(storage.list(f"{opened}/{_LOG_FOLDER}")), None) is None:
        return None
    if not meant and any(
        info.path.endswith(_METADATA_SUFFIXES) for info in storage.list(f"{opened}/metadata")
    ):
        raise UsageError(
            f"Cannot tell which table is meant: {opened} has the log of a Delta table in {_LOG_FOLDER}/ and the "
            "metadata of an Iceberg table in metadata/",
            next_step=f"Name {opened}/{_LOG_FOLDER} for the Delta table; the Iceberg table by its name in a catalog, "
            "or one of its metadata files.",
        )
    import pyarrow as pa

    from iceberg_cli.committers.delta_log import DeltaLogCommitter
    from iceberg_cli.delta_table import DeltaTable

    # Arrow's own allocator keeps what it was given once: of a large log, half as much again as the system's.
    pa.set_memory_pool(pa.system_memory_pool())
    root = storage.canonical(opened)
    return DeltaTable(
        name=f"{root}/{_LOG_FOLDER}" if meant else root,
        root=root,
        storage=storage,
        committer=DeltaLogCommitter(root, storage),
        engine=_engine(storage, local=scheme_of(root) == "file"),
        on_event=on_event,
    )


def _choose_engine(table: IcebergTable | DeltaTable, engine: EngineChoice | None) -> None:
    """Take Spark where the operator asks for it, or where there is enough to read."""
    if engine is not None and engine.may_be_spark:
        from iceberg_cli.choosing import engine_for

        table.use(engine_for(table, engine))


def _in_catalog(
    name: str,
    storage_options: Mapping[str, str],
    catalog_config: str | None,
    trusts: _Trusts,
    on_event: OnEvent,
) -> IcebergTable:
    from iceberg_cli.committers.catalog import open_catalog_table

    committer, options = open_catalog_table(name, config_file=catalog_config, storage_options=storage_options)
    storage = _storage(_folder_of(committer.current()), options, trusts)
    return _loaded(name, storage, committer, trusts, on_event)


def _in_folder(opened: str, storage: RoutedStorage, trusts: _Trusts, on_event: OnEvent) -> IcebergTable:
    committer = open_folder(opened, storage)
    name = storage.canonical(opened)  # a saved plan is carried out from any folder
    table = _loaded(name, storage, committer, trusts, on_event)
    folder = _folder_of(opened) if opened.endswith(_METADATA_SUFFIXES) else opened
    if storage.canonical(folder) == canonical(table.location.rstrip("/")):
        return table
    moved = RelocatedStorage(storage, original=table.location, copy=folder)
    copy = _Copy(committer=committer, folder=folder, original=table.location)
    relocated = _table(name, moved, copy, trusts, on_event)
    relocated.load()
    return relocated


def _loaded(
    name: str, storage: RoutedStorage, committer: Committer, trusts: _Trusts, on_event: OnEvent
) -> IcebergTable:
    table = _table(name, storage, committer, trusts, on_event)
    table.load()
    if scheme_of(table.location) == "file":
        table.look_through_links()
    return table


def _table(
    name: str,
    storage: RoutedStorage | RelocatedStorage,
    committer: Committer,
    trusts: _Trusts,
    on_event: OnEvent,
) -> IcebergTable:
    local = scheme_of(committer.current()) == "file"
    return IcebergTable(
        name=name,
        storage=storage,
        committer=committer,
        engine=_engine(storage, local=local),
        on_event=on_event,
        allow_roots=trusts.allow_roots,
        trust_lists=trusts.trust_lists,
    )


def _storage(opened: str, options: Mapping[str, str], trusts: _Trusts) -> RoutedStorage:
    """For local folders that the operator named links in and above them are the operator's own."""
    trusted = tuple(path for path in (opened, *trusts.allow_roots) if scheme_of(path) == "file")
    return RoutedStorage(dict(options), trusted_folders=trusted)


def _engine(storage: RoutedStorage | RelocatedStorage, *, local: bool) -> LocalEngine:
    """Lanes for files of local disks only: other storages have threads, which do not survive a fork."""
    if not local:
        return LocalEngine(storage, threads=_REMOTE_THREADS)
    # On other systems their own libraries may not be used after a fork.
    lanes = min(len(os.sched_getaffinity(0)), _MOST_LANES) if sys.platform == "linux" else 1
    return LocalEngine(storage, threads=_LOCAL_THREADS, lanes=lanes)


def _folder_of(metadata_location: str) -> str:
    return metadata_location.rsplit("/", 2)[0]


@dataclass(frozen=True, kw_only=True)
class _Copy:
    """The committer of a table that was copied to another place: it shows the table and commits nothing."""

    committer: Committer
    folder: str
    original: str

    def read_only_reason(self) -> str:
        return f"{self.folder} is a copy: the table's own location is {self.original}"

    def current(self) -> str:
        return self.committer.current()

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:  # noqa: ARG002 - the port's signature
        raise Refused(f"Cannot commit to {self.folder}: {self.read_only_reason()}")

    def commit(self, attempt: Attempt) -> Outcome:
        raise Refused(f"Cannot commit {attempt.metadata_location}: {self.read_only_reason()}")

    def settle(self, attempt: Attempt) -> Outcome:
        return Unknown(cause=f"{attempt.metadata_location} cannot be looked up: {self.read_only_reason()}")
