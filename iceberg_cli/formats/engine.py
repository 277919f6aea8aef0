"""The choice of the local or the Spark engine, by the operator's options or by how much there is to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from iceberg_cli.engines import Engine
from iceberg_cli.engines.selection import EngineChoice
from iceberg_cli.errors import CorruptFile

if TYPE_CHECKING:
    from iceberg_cli.delta.spec.last_checkpoint import CheckpointHint
    from iceberg_cli.delta.spec.log import Segment
    from iceberg_cli.delta.table import DeltaTable
    from iceberg_cli.iceberg.table import IcebergTable

# An estimate: Spark takes some 10 s to start, one machine reads about 150 MB a second with two cores, and eight workers
# three times as much.
CROSSOVER_BYTES = 2 << 30
# On these cores of one machine `python -m benchmarks spark` finds no crossover: the local engine, which uses as many,
# is always ahead.
_SAME_CORES = 2


def engine_for(table: IcebergTable | DeltaTable, choice: EngineChoice) -> Engine:
    """The engine for a table that was opened with the local one; `choice.may_be_spark` holds.

    Raises:
        UsageError: pyspark is not installed. BackendUnavailable: Spark does not start, or its workers cannot work.
    """
    segment = None
    if choice.engine == "auto":
        try:
            if table.format == "iceberg":
                read = "the current manifests hold"
                size_bytes = manifest_bytes(table)
            else:
                segment = table.log.newest_segment()
                read = "the newest version's log holds"
                size_bytes = log_bytes(segment, table.log.last_checkpoint())
        except CorruptFile:
            # The command itself will report what is wrong, and may be the one that checks it.
            return table.engine
        large = size_bytes >= CROSSOVER_BYTES
        cores = choice.cores_here if large else None
        spark = large and (cores is None or cores > _SAME_CORES)
        limit = f"{'at least' if large else 'less than'} {CROSSOVER_BYTES:,}"
        but = f", but Spark has {cores} of this machine's cores and no others" if large and not spark else ""
        choice.say(f"engine: {'spark' if spark else 'local'}, for {read} {size_bytes:,} bytes ({limit}){but}")
        if not spark:
            return table.engine
    from iceberg_cli.engines.spark.engine import SparkEngine
    from iceberg_cli.engines.spark.startup import open_session, prepare

    session = open_session(choice)
    if table.format == "iceberg":
        one_file = table.metadata_location
    else:
        one_file = _newest_file(segment or table.log.newest_segment())
    prepare(session, table.storage, one_file)
    return SparkEngine(session, table.storage)


def log_bytes(segment: Segment, hint: CheckpointHint | None) -> int:
    """The size in bytes of the files that a version of a Delta table is read from, by names and hints alone."""
    commits = sum(file.size_bytes for file in segment.commits)
    if segment.checkpoint is None:
        return commits
    top_level = sum(file.size_bytes for file in segment.checkpoint.files)
    if hint is None or hint.version != segment.checkpoint.version:
        return commits + top_level
    stated = hint.fields.get("sizeInBytes")  # with sidecars
    return commits + (max(stated, top_level) if type(stated) is int else top_level)


def _newest_file(segment: Segment) -> str:
    checkpoint = () if segment.checkpoint is None else segment.checkpoint.files
    return (*checkpoint, *segment.commits)[-1].path


def manifest_bytes(table: IcebergTable) -> int:
    """The size in bytes of the current snapshot's manifests: about what a scan of the whole table reads."""
    from iceberg_cli.iceberg.reachability.question import snapshot_files

    snapshot = table.metadata.current_snapshot()
    if snapshot is None:
        return 0
    rows = table.reachability.manifests(
        [snapshot_files(snapshot)], phase="reading the current manifest list", required=False
    ).rows
    return int(pc.sum(rows["manifest_length"]).as_py() or 0)
