"""The opening of a table by the name that the operator typed, with its storage, catalog and engine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from iceberg_cli.engines import OnEvent
from iceberg_cli.engines.local import engine_of
from iceberg_cli.errors import Refused, TableNotFound, UsageError
from iceberg_cli.paths import METADATA_SUFFIXES, scheme_of, whole_store
from iceberg_cli.storage.access import UnsafeOverrides, located, storage_of
from iceberg_cli.storage.relocated import RelocatedStorage
from iceberg_cli.storage.router import RoutedStorage

if TYPE_CHECKING:
    from iceberg_cli.delta.log_reader import DeltaLog
    from iceberg_cli.delta.table import DeltaTable
    from iceberg_cli.engines.selection import EngineChoice
    from iceberg_cli.iceberg.shared_folders import UniformFiles
    from iceberg_cli.iceberg.table import IcebergTable
    from iceberg_cli.operation.apply import Verb

_LOG_FOLDER = "_delta_log"
_LOG_WORKERS_FROM_BYTES = 32 << 20  # Arrow reads JSON as fast as workers return it
_FILE_ENDINGS = (".json", ".json.gz")  # of names that could be a catalog's too
_LEVELS = ("CATALOG", "NAMESPACE", "TABLE")
_CATALOG_NAME = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+){2,}")
_TOO_FEW_PARTS = re.compile(r"[A-Za-z_][\w-]*\.[\w-]+")


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
        catalog_config: a `.pyiceberg.yaml`, or None for PyIceberg's own locations of it.
        allow_roots: folders outside the table's own in which files may be deleted too.
        trust_lists: believe manifest lists that look cut short.
        engine: the operator's choice of an engine, or None for the local one.
        cache: folder and limit in bytes of the cache of immutable files, see `iceberg/reachability/cache.py`, or None.
        on_event: progress.

    Returns:
        The table, loaded once.

    Raises:
        UsageError, TableNotFound, Refused, CorruptFile, BackendUnavailable.
    """
    overrides = UnsafeOverrides(allow_roots=allow_roots, trust_lists=trust_lists)
    if _CATALOG_NAME.fullmatch(name) and not (name.endswith(_FILE_ENDINGS) and os.path.isfile(name)):
        from iceberg_cli.iceberg.open import open_in_catalog

        table = open_in_catalog(name, storage_options, catalog_config, overrides, on_event)
    else:
        _check_parts(name)
        opened = located(name)
        storage = storage_of(opened.removesuffix(f"/{_LOG_FOLDER}") or opened, storage_options, overrides)
        if not opened.endswith(METADATA_SUFFIXES):
            delta = _delta_table(opened, storage, on_event)
            if delta is not None:
                _refuse_iceberg_options(overrides, name, delta.root)
                delta.allow_roots = overrides.allow_roots
                _choose_engine(delta, engine)
                delta.load()
                return delta
        # A Delta table needs nothing of what comes with this.
        from iceberg_cli.iceberg.open import open_in_folder

        table = open_in_folder(opened, storage, overrides, on_event)
    # A copy's files may have other content than the files whose names they bear.
    if cache is not None and not isinstance(table.storage, RelocatedStorage):
        table.use_cache(cache[0], limit_bytes=cache[1])
    _choose_engine(table, engine)
    return table


def _check_parts(name: str) -> None:
    """Refuse a catalog table's name without all its parts, where no folder or file has that name."""
    if not _TOO_FEW_PARTS.fullmatch(name) or name.endswith(_FILE_ENDINGS) or os.path.lexists(name):
        return
    raise TableNotFound(
        f"Cannot find the table {name}: no folder here has that name, and as a name in a catalog it has too few parts.",
        next_step=f"Write {'.'.join(_LEVELS)}, or the path of the table's folder.",
    )


def verbs_of(table: IcebergTable | DeltaTable) -> Mapping[str, Verb]:
    """The verbs of the table's format."""
    if table.format == "iceberg":
        from iceberg_cli.iceberg.verbs import VERBS

        return VERBS
    from iceberg_cli.delta import verbs as delta_verbs

    return delta_verbs.VERBS


def _delta_table(opened: str, storage: RoutedStorage, on_event: OnEvent) -> DeltaTable | None:
    """The Delta table in the folder `opened`, or whose log that is, not loaded yet; None where there is none.

    Raises:
        UsageError: the folder has Iceberg metadata too. Refused: it is a whole disk.
    """
    meant = opened.endswith(f"/{_LOG_FOLDER}")
    opened = opened.removesuffix(f"/{_LOG_FOLDER}") or opened
    if not storage.holds_any(f"{opened}/{_LOG_FOLDER}"):
        return None
    if not meant and any(path.endswith(METADATA_SUFFIXES) for path in storage.paths(f"{opened}/metadata")):
        raise UsageError(
            f"Cannot tell which table is meant: {opened} has the log of a Delta table in {_LOG_FOLDER}/ and the "
            "metadata of an Iceberg table in metadata/",
            next_step=f"Name {opened}/{_LOG_FOLDER} for the Delta table, which is the one to maintain; to look at the "
            "Iceberg table, its name in a catalog or one of its metadata files.",
        )
    import pyarrow as pa

    from iceberg_cli.delta.log_commit import DeltaLogCommitter
    from iceberg_cli.delta.table import DeltaTable

    # Arrow's own allocator keeps freed memory: with a large log, half as much again as the system's.
    pa.set_memory_pool(pa.system_memory_pool())
    root = storage.canonical(opened).rstrip("/")
    local = scheme_of(root) == "file"
    if local:
        # One path, whatever links lead to it: a journal's files are found again, and are known as the table's own.
        root = os.path.realpath(root or "/")
        # The log may be a link: it is this table's wherever it is, and old versions go from there.
        storage = storage.trusting(root, f"{root}/{_LOG_FOLDER}")
    if root == "/":
        raise Refused(
            f"Cannot open {opened}: a whole disk is no table's folder",
            next_step="Move the table to a folder of its own.",
        )
    engine = engine_of(storage, local=local)
    return DeltaTable(
        name=f"{root}/{_LOG_FOLDER}" if meant else root,
        root=root,
        storage=storage,
        committer=DeltaLogCommitter(root, storage),
        iceberg_files=iceberg_files,
        engine=replace(engine, workers_from_bytes=_LOG_WORKERS_FROM_BYTES),
        on_event=on_event,
    )


def _refuse_iceberg_options(overrides: UnsafeOverrides, name: str, root: str) -> None:
    """Refuse options of Iceberg tables for a Delta table; `root` may be named where it is a whole bucket.

    From which other tables a shallow clone's files in another table's folder are reachable cannot be known.
    """
    for option, given in (
        ("--unsafe-trust-lists", overrides.trust_lists),
        ("--unsafe-allow-root", [each for each in overrides.allow_roots if whole_store(each) != root]),
    ):
        if given:
            raise UsageError(f"{option} is an option of Iceberg tables, and {name} is a Delta table")


def iceberg_files(log: DeltaLog) -> UniformFiles:
    """The files reachable from Iceberg metadata in a Delta table's folder, by the storage and engine of the log."""
    from iceberg_cli.iceberg.shared_folders import UniformFiles

    return UniformFiles(storage=log.storage, engine=log.engine, root=log.root, on_event=log.on_event)


def _choose_engine(table: IcebergTable | DeltaTable, engine: EngineChoice | None) -> None:
    """Set the Spark engine where the operator chose it, or where there is enough to read."""
    if engine is not None and engine.may_be_spark:
        from iceberg_cli.formats.engine import engine_for

        table.use(engine_for(table, engine))
