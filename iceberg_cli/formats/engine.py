"""The choice of the local or the Spark engine, by the operator's options or by how much there is to read."""

from __future__ import annotations

from iceberg_cli.engines import Engine
from iceberg_cli.engines.selection import EngineChoice
from iceberg_cli.errors import CorruptFile
from iceberg_cli.formats import format_of
from iceberg_cli.operation.table import OpenTable

# An estimate: Spark takes some 10 s to start, one machine reads about 150 MB a second with two cores, and eight workers
# three times as much.
CROSSOVER_BYTES = 2 << 30
# On these cores of one machine `python -m benchmarks spark` finds no crossover: the local engine, which uses as many,
# is always ahead.
_SAME_CORES = 2


def engine_for(table: OpenTable, choice: EngineChoice) -> Engine:
    """The engine for a table that was opened with the local one; `choice.may_be_spark` holds.

    Raises:
        UsageError: pyspark is not installed. BackendUnavailable: Spark does not start, or its workers cannot work.
    """
    scanned = format_of(table.format).engine_input(table)
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
