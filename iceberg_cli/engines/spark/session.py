"""A Spark session, classic or Connect: jobs over rows of bytes, whose results come back in the order of the rows."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.storage import Storage
from iceberg_cli.storage.redaction import redact

if TYPE_CHECKING:
    from iceberg_cli.engines.spark.worker import Payload

_MOST_PARTITIONS = 1_000  # of results that are fetched one partition after the other
_INLINE_BYTES = 256 << 10  # of a payload; above, it is broadcast where the session can

_DRIVER_GONE = "Its driver may lack memory: --spark-conf spark.driver.memory=4g."
_EXECUTORS_GONE = "Its executors may lack memory: --spark-conf spark.executor.memory=4g."

_SPLITS = "array<struct<bucket:int,data:binary>>"

# Errors of an executor that ended: of the tasks it ran, and of those that read its shuffle data.
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure|MetadataFetchFailed|FetchFailed|OutOfMemoryError")
_RAISED = re.compile(r"[\w.]+(Error|Exception|Exit|Interrupt|Warning)\b")

OverColumn = Callable[[pa.Array], pa.Array]
OverColumns = Callable[[pa.Array, pa.Array], pa.Array]


@dataclass(frozen=True)
class Session:
    """A Spark session, which runs functions on its workers.

    Args:
        spark: the session.
        connect: whether it is one of Spark Connect, which has DataFrames and nothing else.
        ours: whether to stop it at the end.
    """

    spark: Any
    connect: bool
    ours: bool

    @cached_property
    def cores(self) -> int:
        """How many tasks run side by side, by the session's current settings."""
        from pyspark.sql import functions

        with translated("ask how many cores there are"):
            if not self.connect:
                return max(1, int(self.spark.sparkContext.defaultParallelism))
            # A range without a number of partitions has as many as Spark would run side by side.
            numbers = self.spark.range(1 << 20).select(functions.spark_partition_id().alias("place"))
            return max(1, int(numbers.agg(functions.max("place")).collect()[0][0]) + 1)

    @contextlib.contextmanager
    def payload(self, data: bytes, *, secret: bool = False) -> Iterator[Payload]:
        """A pickled value for functions that run on workers.

        A server of Spark Connect writes the functions of a query that it drops into its log, so what is secret goes
        there as a file of the session. A classic session shows no function to anybody; a broadcast is a file.

        Args:
            data: the pickle.
            secret: whether it must be hidden from others.
        """
        from iceberg_cli.engines.spark.worker import Broadcast, InlineBytes, Payload, SessionFile

        large = len(data) > _INLINE_BYTES
        if self.connect and (secret or large):
            yield Payload.of(data, lambda data: SessionFile(self._file(data)))
        elif large and not secret:
            with translated("send functions to the workers"):
                sent = self.spark.sparkContext.broadcast(data)
            try:
                yield Payload.of(data, lambda _: Broadcast(sent))
            finally:
                with contextlib.suppress(Exception):  # the context may be gone, and the broadcast with it
                    sent.destroy()
        else:
            yield Payload.of(data, InlineBytes)

    def _file(self, data: bytes) -> str:
        """Send bytes to the workers as a file of the session, once, and return its name."""
        name = f"iceberg-cli-{hashlib.sha256(data).hexdigest()}"
        if name not in self._files:
            with tempfile.TemporaryDirectory(prefix="iceberg-cli-") as folder:
                with open(f"{folder}/{name}", "wb") as file:
                    file.write(data)
                with translated("send files to the workers"):
                    self.spark.addArtifacts(f"{folder}/{name}", file=True)
            self._files.add(name)
        return name

    @cached_property
    def _files(self) -> set[str]:
        return set()

    def answers(
        self, rows: Sequence[bytes], function: OverColumn, *, description: str, gather: bool
    ) -> Generator[bytes, None, None]:
        """The result of `function` for each row, each in a task of its own.

        Args:
            rows: n values.
            function: over a column of rows; annotated, for Spark reads the annotations.
            description: for Spark's list of jobs.
            gather: all results are small enough for one job that returns them all.

        Raises:
            BackendUnavailable: Spark did not answer, or not for every row.
        """
        waiting: dict[int, bytes] = {}
        answered = 0
        with closing(self._rows_of(self._run(rows, function, gather=gather), description)) as found:
            for place, answer in found:
                waiting[place] = answer
                while answered in waiting:
                    yield waiting.pop(answered)
                    answered += 1
        if answered < len(rows):
            # A JVM that has no memory left closes the connection, and PySpark takes that for the end.
            raise BackendUnavailable(
                f"Cannot go on: Spark answered {answered} of {len(rows)} tasks ({description})",
                next_step=_DRIVER_GONE,
            )

    def answer(self, row: bytes, function: OverColumn, *, description: str) -> bytes:
        """The result of `function` for one row, by a job of its own; threads may call it side by side.

        Raises:
            BackendUnavailable: Spark did not answer.
        """
        with closing(self.answers([row], function, description=description, gather=True)) as found:
            return next(found)

    def shuffled(
        self,
        rows: Sequence[bytes],
        function: OverColumn,
        rounds: Sequence[tuple[int, OverColumns]],
        *,
        most_tasks: int,
        description: str,
    ) -> Generator[bytes, None, None]:
        """The combined value of each bucket that `function` fills, in no order.

        Args:
            rows: n values, each in a task of its own.
            function: over a column of rows; gives `worker.SPLITS_TYPE`.
            rounds: about how many buckets there are, and a function over a column of buckets and one of lists of
                their contents; each but the last gives `worker.SPLITS_TYPE` too, for the next one.
            most_tasks: so many at most split the buckets of a round, each taking neighbouring ones.
            description: for Spark's list of jobs.

        Raises:
            BackendUnavailable: Spark did not answer.
        """
        with closing(self._rows_of(self._shuffle(rows, function, rounds, most_tasks), description)) as found:
            for _, answer in found:
                yield answer

    def _rows_of(
        self, found: Iterator[tuple[int, bytes]], description: str
    ) -> Generator[tuple[int, bytes], None, None]:
        """The rows that jobs give; the jobs are cancelled where the caller leaves early."""
        tag = f"iceberg-cli-{uuid.uuid4()}"
        finished = False
        try:
            while not finished:
                with self._named(tag, description), translated(f"go on ({description})"):
                    row = next(found, None)
                finished = row is None
                if row is not None:
                    yield row
        finally:
            if not finished:
                with contextlib.suppress(Exception):  # the session may be gone, and its jobs with it
                    self.spark.interruptTag(tag)

    def _run(
        self, rows: Sequence[bytes], function: OverColumn, *, gather: bool
    ) -> Iterator[tuple[int, bytes]]:
        from pyspark.sql import functions

        run = functions.arrow_udf(function, "binary")  # type: ignore[attr-defined]
        frame = self._frame(rows).select("place", run("row").alias("answer"))
        if gather:
            yield from frame.collect()
            return
        yield from self._streamed(frame, functions.col("place"), len(rows), len(rows))

    def _shuffle(
        self,
        rows: Sequence[bytes],
        function: OverColumn,
        rounds: Sequence[tuple[int, OverColumns]],
        most_tasks: int,
    ) -> Iterator[tuple[int, bytes]]:
        from pyspark.sql import functions

        split = functions.arrow_udf(function, _SPLITS)  # type: ignore[attr-defined]
        frame = self._frame(rows).select(functions.inline(split("row")))
        for number, (buckets, combine) in enumerate(rounds, start=1):
            frame = frame.groupBy("bucket").agg(functions.collect_list("data").alias("content"))
            # All buckets of a task pass to Python at once, so large ones have a task each.
            tasks = min(buckets + 1, most_tasks)
            group = functions.floor((functions.col("bucket") + 1) * tasks / (buckets + 1)).cast("int")
            frame = frame.repartitionById(tasks, group)
            if number < len(rounds):
                split = functions.arrow_udf(combine, _SPLITS)  # type: ignore[attr-defined]
                frame = frame.select(functions.inline(split("bucket", "content")))
            else:
                join = functions.arrow_udf(combine, "binary")  # type: ignore[attr-defined]
                frame = frame.select("bucket", join("bucket", "content").alias("answer"))
        yield from self._streamed(frame, functions.col("bucket") + 1, rounds[-1][0] + 1, tasks)

    def _frame(self, rows: Sequence[bytes]) -> Any:
        """A frame of rows with their indices, each in a partition of its own."""
        places = pa.array(range(len(rows)), pa.int32())
        frame = self.spark.createDataFrame(pa.table({"place": places, "row": pa.array(rows, pa.binary())}))
        if len(rows) > self.cores:  # fewer are in partitions of their own
            frame = frame.repartitionById(len(rows), "place")
        return frame

    def _streamed(self, frame: Any, place: Any, places: int, tasks: int) -> Iterator[tuple[int, bytes]]:
        """Rows of a frame that `tasks` tasks make, in the order of `place` where each has a partition."""
        from pyspark.sql import functions

        if not self.connect:
            # One partition after the other is all that a classic session would run for an iterator.
            partitions = min(tasks, _MOST_PARTITIONS)
            group = functions.floor(place * partitions / places).cast("int")
            frame = frame.repartitionById(partitions, group)
        yield from frame.toLocalIterator(prefetchPartitions=True)

    @contextlib.contextmanager
    def _named(self, tag: str, description: str) -> Iterator[None]:
        """Describe the jobs started inside, for Spark's list of jobs, and tag them, to cancel them by the tag."""
        self.spark.addTag(tag)
        if not self.connect:
            self.spark.sparkContext.setJobDescription(f"iceberg-cli: {description}")
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the session may be gone
                if not self.connect:
                    self.spark.sparkContext.setJobDescription(None)
                self.spark.removeTag(tag)

    def close(self) -> None:
        """End the session if it was started here."""
        if self.ours:
            with contextlib.suppress(Exception):  # it is gone already
                self.spark.stop()


def pickled(value: Any) -> bytes:
    """A pickle of a value with functions of any module; those of modules that workers can import go by name.

    Raises:
        TypeError: a part of it belongs to this process.
    """
    from pyspark import cloudpickle

    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def pickled_without_storages(value: Any) -> tuple[bytes, list[Storage]]:
    """As `pickled`, and the storages in the value, which may hold secrets: the pickle has their places in the list."""
    from pyspark import cloudpickle

    storages: list[Storage] = []

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, part: Any) -> int | None:
            if not isinstance(part, Storage):
                return None
            known = (place for place, each in enumerate(storages) if each is part)
            place = next(known, len(storages))
            storages[place:] = storages[place:] or [part]
            return place

    data = io.BytesIO()
    Pickler(data).dump(value)  # type: ignore[no-untyped-call]
    return data.getvalue(), storages


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn errors of Spark into `BackendUnavailable`, with the cause in one line."""
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        cause, next_step = cause_of(error), ""
        if isinstance(error, ConnectionError | Py4JNetworkError):
            next_step = _DRIVER_GONE
        elif _EXECUTOR_LOST.search(cause):
            next_step = _EXECUTORS_GONE
        raise BackendUnavailable(f"Cannot {what}: Spark says: {cause}", next_step=next_step) from error


def cause_of(error: BaseException) -> str:
    """The most telling line of an error of Spark's."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is not None:
        with contextlib.suppress(Exception):  # the other side may be gone
            while (deeper := java.getCause()) is not None:
                java = deeper
            text = str(java.toString())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)] if "Traceback (most" in text else []
    line = (raised or lines or [type(error).__name__])[-1 if raised else 0]
    if line.endswith(":") and not raised:  # the reason stands below
        line = " ".join(lines[:2])
    return redact(line)
