"""The opening of a table by the name that the operator typed, with its storage, catalog and engine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iceberg_cli.engines import Engine
from iceberg_cli.errors import BackendUnavailable, CorruptFile, TableNotFound
from iceberg_cli.formats import format_of, plugged_formats
from iceberg_cli.names import TABLE_LEVELS, levels_of, name_of
from iceberg_cli.plan.events import ENGINE, Listener, phase
from iceberg_cli.storage.router import UnsafeOverrides, located
from iceberg_cli.table.table import OpenRequest, OpenTable

if TYPE_CHECKING:
    from iceberg_cli.delta.log_reader import DeltaLog
    from iceberg_cli.engines.selection import EngineChoice
    from iceberg_cli.iceberg.catalogs.registry import Catalogs
    from iceberg_cli.iceberg.shared_folders import UniformFiles

_BY_DETECTION: Final = ("delta", "iceberg")  # what has no log is taken for Iceberg
_LOG_FOLDER: Final = "_delta_log"
_FILE_ENDINGS: Final = (".json", ".json.gz")  # of names that could be a catalog's too
_LEVELS: Final = ("CATALOG", "NAMESPACE", "TABLE")
# An estimate: Spark takes some 10 s to start, one machine reads about 150 MB a second with two cores, and eight workers
# three times as much.
CROSSOVER_BYTES = 2 << 30
# On these cores of one machine `python -m benchmarks spark` finds no crossover: the local engine, which uses as many,
# is always ahead.
_SAME_CORES = 2


def open_table(
    name: str,
    *,
    storage_options: Mapping[str, str],
    catalog_config: str | None = None,
    catalogs: Catalogs | None = None,
    seen: str | None = None,
    forks: bool = True,
    allow_roots: tuple[str, ...] = (),
    trust_lists: bool = False,
    conditional_writes: bool = False,
    single_writer: bool = False,
    forget_metadata: tuple[str, ...] = (),
    engine: EngineChoice | None = None,
    cache: tuple[Path, int] | None = None,
    even_unreadable: bool = False,
    on_event: Listener,
) -> OpenTable:
    """Open the table that `name` means: a folder with `_delta_log/` is a Delta table, every other one of Iceberg.

    A folder with files and without Iceberg metadata is a table of a format that a package brings, where one knows it.

    Args:
        name: a folder or URI, a metadata file, or `catalog.namespace.table`.
        storage_options: for the storage adapters.
        catalog_config: a `.pyiceberg.yaml`, or None for PyIceberg's own locations of it.
        catalogs: what is known of catalogs from tables that were opened before; in place of `catalog_config`.
        seen: where the table's catalog was just seen to point.
        forks: see `OpenRequest`.
        allow_roots: folders outside the table's own in which files may be deleted too.
        trust_lists: believe manifest lists that look cut short.
        conditional_writes: the operator vouches that the object store keeps conditional creates under races, and that
            no writer without them is at work on a Delta table on S3.
        single_writer: the operator vouches that nobody else commits to an Iceberg table by file names in an object
            store.
        forget_metadata: names of metadata files beside an Iceberg table's own that no table needs.
        engine: the operator's choice of an engine, or None for the local one.
        cache: folder and limit in bytes of the cache of immutable files, see `iceberg/reachability/cache.py`, or None.
        even_unreadable: where the table cannot be read, return what its operations can be closed by, and checked.
        on_event: progress.

    Returns:
        The table, loaded once; or an `UnreadableTable`.

    Raises:
        UsageError, TableNotFound, Refused, CorruptFile, BackendUnavailable.
    """

    def choose_engine(table: OpenTable) -> None:
        """Set the Spark engine where the operator chose it, or where there is enough to read."""
        if engine is not None and engine.may_be_spark:
            with phase(ENGINE, on_event, table=name):
                table.use(_engine_for(table, engine))

    location = None if _is_in_catalog(name) else _located(name)
    request = OpenRequest(
        name=name,
        location=location,
        folder="" if location is None else location.removesuffix(f"/{_LOG_FOLDER}") or location,
        storage_options=storage_options,
        catalog_config=catalog_config,
        catalogs=catalogs,
        seen=seen,
        forks=forks,
        overrides=UnsafeOverrides(
            allow_roots=allow_roots,
            trust_lists=trust_lists,
            conditional_writes=conditional_writes,
            single_writer=single_writer,
            forget_metadata=forget_metadata,
        ),
        cache=cache,
        iceberg_files=iceberg_files,
        on_event=on_event,
    )
    own = next(each for each in map(format_of, _BY_DETECTION) if each.opening.detect(request))
    try:
        return own.opening.open(request, choose_engine)
    except CorruptFile as damage:
        if not even_unreadable:
            raise
        return own.opening.open_unreadable(request, damage)
    except TableNotFound:
        # Packages are looked through where something is there, for that takes longer than all else.
        try:
            some = location is not None and request.storage.holds_any(location)
        except (
            BackendUnavailable
        ):  # a folder that may not be listed: what is told is still that there is no table
            some = False
        other = (
            next((each for each in plugged_formats() if each.opening.detect(request)), None) if some else None
        )
        if other is None:
            raise
        return other.opening.open(request, choose_engine)


def _is_in_catalog(name: str) -> bool:
    deep_enough = len(levels_of(name)) >= TABLE_LEVELS
    return deep_enough and not (name.endswith(_FILE_ENDINGS) and os.path.isfile(name))


def _located(name: str) -> str:
    """A folder or file; a name that is none is refused where it is one in a catalog, written as none is."""
    if name.endswith(_FILE_ENDINGS) or os.path.lexists(name):
        return located(name)
    if 1 < len(levels_of(name)) < TABLE_LEVELS:
        raise TableNotFound(
            f"Cannot find the table {name}: no folder here has that name, and as a name in a catalog it has too few "
            "parts.",
            next_step=f"Write {'.'.join(_LEVELS)}, or the path of the table's folder.",
        )
    levels = name.split(".")
    if len(levels) >= TABLE_LEVELS and all(levels) and not set("/:`") & set(name):
        raise TableNotFound(
            f"Cannot find the table {name}: no folder here has that name, and as a name in a catalog it has a part "
            "that belongs into backquotes.",
            next_step=f"Write {shlex.quote(name_of(*levels))}, or the path of the table's folder.",
        )
    return located(name)


def iceberg_files(log: DeltaLog) -> UniformFiles:
    """The files reachable from Iceberg metadata in a Delta table's folder, by the storage and engine of the log."""
    from iceberg_cli.iceberg.shared_folders import UniformFiles

    return UniformFiles(storage=log.storage, engine=log.engine, root=log.root, on_event=log.on_event)


def _engine_for(table: OpenTable, choice: EngineChoice) -> Engine:
    """The engine for a table that was opened with the local one; `choice.may_be_spark` holds.

    Raises:
        UsageError: pyspark is not installed. BackendUnavailable: Spark does not start, or its workers cannot work.
    """
    scanned = format_of(table.format).opening.scan_input(table)
    if choice.engine == "auto":
        try:
            size_bytes = scanned.size_bytes()
        except CorruptFile:
            # The command itself will report what is wrong, and may be the one that checks it.
            return table.engine
        large = size_bytes >= CROSSOVER_BYTES
        cores = choice.cores_here if large else None
        spark = large and (cores is None or cores > _SAME_CORES)
        limit = f"{'at least' if large else 'less than'} {CROSSOVER_BYTES:,}"
        but = f", but Spark has {cores} of this machine's cores and no others" if large and not spark else ""
        choice.say(
            f"engine: {'spark' if spark else 'local'}, for {scanned.words} {size_bytes:,} bytes ({limit}){but}"
        )
        if not spark:
            return table.engine
    from iceberg_cli.engines.spark.engine import SparkEngine
    from iceberg_cli.engines.spark.startup import open_session, prepare

    session = open_session(choice)
    prepare(session, table.storage, scanned.one_file())
    return SparkEngine(session, table.storage)
