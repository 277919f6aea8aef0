"""Opens Delta tables in folders, and tells what a scan of one reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from iceberg_cli.delta.log_commit import DeltaLogCommitter
from iceberg_cli.delta.spec.log import LOG, Segment
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.engines.local import engine_of
from iceberg_cli.errors import CorruptFile, Refused, UsageError
from iceberg_cli.paths import METADATA_SUFFIXES, scheme_of, whole_store
from iceberg_cli.table.table import OpenRequest

if TYPE_CHECKING:
    from iceberg_cli.delta.unreadable_table import UnreadableDeltaTable

_WORKERS_FROM_BYTES: Final = 32 << 20  # Arrow reads JSON as fast as workers return it


def open_in_folder(request: OpenRequest, choose_engine: Callable[[DeltaTable], None]) -> DeltaTable:
    """The table whose folder or log is named, loaded once.

    Args:
        request: of a folder that has a log.
        choose_engine: is called before the log is read.

    Raises:
        UsageError: the folder has Iceberg metadata too, or an option is not for Delta tables. Refused: it is a whole
            disk. CorruptFile, BackendUnavailable.
    """
    table = _table_of(request)
    choose_engine(table)
    table.load()
    return table


def open_unreadable(request: OpenRequest, damage: CorruptFile) -> UnreadableDeltaTable:
    """The table whose newest version `open_in_folder` could not read."""
    from iceberg_cli.delta.unreadable_table import UnreadableDeltaTable

    table = _table_of(request)
    return UnreadableDeltaTable(
        name=table.name,
        storage=table.storage,
        engine=table.engine,
        on_event=table.on_event,
        folder=table.root,
        damage=damage,
        log=table.log,
    )


def _table_of(request: OpenRequest) -> DeltaTable:
    """The table of a request, of which nothing is read yet."""
    assert request.location is not None
    folder, storage = request.folder, request.storage
    is_log = request.location != folder
    if not is_log and any(path.endswith(METADATA_SUFFIXES) for path in storage.paths(f"{folder}/metadata")):
        raise UsageError(
            f"Cannot tell which table is meant: {folder} has the log of a Delta table in {LOG}/ and the "
            "metadata of an Iceberg table in metadata/",
            next_step=f"Name {folder}/{LOG} for the Delta table, which is the one to maintain; to look at the "
            "Iceberg table, its name in a catalog or one of its metadata files.",
        )
    # Arrow's own allocator keeps freed memory: with a large log, half as much again as the system's.
    pa.set_memory_pool(pa.system_memory_pool())
    root = storage.canonical(folder).rstrip("/")
    local = scheme_of(root) == "file"
    if local:
        # One path, whatever links lead to it: a journal's files are found again, and are known as the table's own.
        root = os.path.realpath(root or "/")
        # The log may be a link: it is this table's wherever it is, and old versions go from there.
        storage = storage.trusting(root, f"{root}/{LOG}")
    if root == "/":
        raise Refused(
            f"Cannot open {folder}: a whole disk is no table's folder",
            next_step="Move the table to a folder of its own.",
        )
    _refuse_iceberg_options(request, root)
    return DeltaTable(
        name=f"{root}/{LOG}" if is_log else root,
        root=root,
        storage=storage,
        committer=DeltaLogCommitter(root, storage, request.overrides),
        iceberg_files=request.iceberg_files,
        engine=replace(
            engine_of(storage, local=local, forks=request.forks), workers_from_bytes=_WORKERS_FROM_BYTES
        ),
        on_event=request.on_event,
        allow_roots=request.overrides.allow_roots,
    )


def _refuse_iceberg_options(request: OpenRequest, root: str) -> None:
    """Refuse options of Iceberg tables; `root` may be named where it is a whole bucket.

    From which other tables a shallow clone's files in another table's folder are reachable cannot be known.
    """
    overrides = request.overrides
    for option, given in (
        ("--unsafe-trust-lists", overrides.trust_lists),
        ("--unsafe-single-writer", overrides.single_writer),
        ("--unsafe-forget-metadata", overrides.forget_metadata),
        ("--unsafe-allow-root", [each for each in overrides.allow_roots if whole_store(each) != root]),
    ):
        if given:
            raise UsageError(f"{option} is an option of Iceberg tables, and {request.name} is a Delta table")


@dataclass(kw_only=True)
class LogInput:
    """What the newest version is read from, by names and hints alone.

    Args:
        table: opened, with the local engine.
    """

    table: DeltaTable
    words: ClassVar[str] = "the newest version's log holds"

    @cached_property
    def _segment(self) -> Segment:
        return self.table.log.newest_segment()

    def size_bytes(self) -> int:
        """How much that is.

        Raises:
            CorruptFile: the log has no version.
        """
        segment, hint = self._segment, self.table.log.last_checkpoint()
        commits = sum(file.size_bytes for file in segment.commits)
        if segment.checkpoint is None:
            return commits
        top_level = sum(file.size_bytes for file in segment.checkpoint.files)
        if hint is None or hint.version != segment.checkpoint.version:
            return commits + top_level
        stated = hint.fields.get("sizeInBytes")  # with sidecars
        return commits + (max(stated, top_level) if type(stated) is int else top_level)

    def one_file(self) -> str:
        """A file that workers must be able to read."""
        segment = self._segment
        checkpoint = () if segment.checkpoint is None else segment.checkpoint.files
        return (*checkpoint, *segment.commits)[-1].path
