"""The code that runs on Spark's workers: the local engine on a split of the items, and the shuffle of what it parsed.

A worker makes its own storage from the same options. What a worker raises is returned as a value: Spark would pass on
a traceback as text, and retry what cannot succeed. In a shuffle errors go through the same buckets as the data, for the
caller to raise.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zipimport import zipimporter

import pyarrow as pa

from iceberg_cli.encoding.transport import pickled_data, pickled_error
from iceberg_cli.engines.local import LocalEngine, result_of
from iceberg_cli.engines.machine import keep_freed_memory
from iceberg_cli.storage import Storage

WHERE = "On a worker of Spark:"
_MOST_VALUES = 4  # unpickled values that a worker process holds for its next tasks
_NO_BUCKET = -1  # holds errors
SPLITS_TYPE = pa.list_(pa.struct([("bucket", pa.int32()), ("data", pa.binary())]))

Splits = list[tuple[int, bytes]]  # buckets, and what goes to each
_values: OrderedDict[tuple[str, str | None], Any] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Payload:
    """A pickled value that is unpickled once in each worker process.

    Args:
        digest: of the pickle.
        data: gives the pickle; called only where the value is not there yet.
        storages: a list of those in the value, which the pickle names by their places; None: there are none.
    """

    digest: str
    data: Callable[[], bytes]
    storages: Payload | None = None

    @classmethod
    def of(cls, data: bytes, send: Callable[[bytes], Callable[[], bytes]]) -> Payload:
        """A payload of the pickle `data`; `send` takes it to the workers and returns what reads it there."""
        return cls(hashlib.sha256(data).hexdigest(), send(data))

    def value(self) -> Any:
        """The value."""
        key = (self.digest, None if self.storages is None else self.storages.digest)
        if key not in _values:
            storages = () if self.storages is None else self.storages.value()
            _values[key] = _Unpickler(self.data(), storages).load()
            while len(_values) > _MOST_VALUES:
                _values.popitem(last=False)
        _values.move_to_end(key)
        return _values[key]


class _Unpickler(pickle.Unpickler):  # of what our own driver wrote
    def __init__(self, data: bytes, storages: Sequence[Storage]) -> None:
        super().__init__(io.BytesIO(data))
        self._storages = storages

    def persistent_load(self, place: int) -> Storage:
        """The storage at a place."""
        return self._storages[place]


@dataclass(frozen=True, slots=True)
class InlineBytes:
    """Bytes that are pickled inside the function."""

    data: bytes

    def __call__(self) -> bytes:
        """The bytes."""
        return self.data


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Bytes that were broadcast."""

    broadcast: Any

    def __call__(self) -> bytes:
        """The bytes."""
        data: bytes = self.broadcast.value
        return data


@dataclass(frozen=True, slots=True)
class SessionFile:
    """Bytes that are a file of the session."""

    name: str

    def __call__(self) -> bytes:
        """The bytes."""
        from pyspark import SparkFiles

        with open(SparkFiles.get(self.name), "rb") as file:
            return file.read()


def scanner(storage: Payload, scan: Payload, threads: int) -> Callable[[pa.Array], pa.Array]:
    """A UDF over a column of pickled items: the result of `scanned` for each."""

    def one(split: pa.Buffer) -> bytes:
        return scanned(storage, scan, threads, split)

    return _over(one, pa.binary())


def scanned(storage: Payload, scan: Payload, threads: int, items: pa.Buffer) -> bytes:
    """Read and parse a split of the items.

    Returns:
        A pickle of: what `parse` returned for each batch, with the number of its files; and the pickled error that
        ended it, or None.
    """
    parsed: list[Any] = []
    done: list[int] = []  # files, before the first batch and after each
    try:
        batches = LocalEngine(storage.value(), threads=threads).scan(
            scan.value(),
            pickle.loads(items),  # noqa: S301 - our own driver wrote it
            on_event=lambda event: done.append(event.done),
        )
        for each in batches:
            parsed.append(each)  # noqa: PERF402 - list.extend promises nothing about errors
        return pickled_data((_counted(parsed, done), None))
    except BaseException as error:  # noqa: BLE001 - every one of them reaches the driver
        return _with_error(_counted(parsed, done), error)


def _counted(parsed: Sequence[Any], done: Sequence[int]) -> list[tuple[int, Any]]:
    return [(after - before, each) for each, before, after in zip(parsed, done, done[1:], strict=False)]


def _with_error(found: list[tuple[int, Any]], error: BaseException) -> bytes:
    data = pickled_error(error, WHERE)
    try:
        return pickled_data((found, data))
    except Exception:  # noqa: BLE001 - the error is that what was parsed cannot be pickled
        return pickle.dumps(([], data), 5)


def runner(task: Payload) -> Callable[[pa.Array], pa.Array]:
    """A UDF over a column of pickled items: what a task gives for each and the error, pickled."""

    def one(item: pa.Buffer) -> bytes:
        try:
            keep_freed_memory()
            return pickled_data((task.value()(pickle.loads(item)), None))  # noqa: S301 - our own driver wrote it
        except BaseException as error:  # noqa: BLE001 - every one of them reaches the driver
            return pickle.dumps((None, pickled_error(error, WHERE)), 5)

    return _over(one, pa.binary())


def prober(storage: Payload, path: str) -> Callable[[pa.Array], pa.Array]:
    """A UDF over any column that checks for each row whether a worker sees a file: the error, or nothing."""

    def one(_: pa.Buffer) -> bytes:
        try:
            storage.value().stat(path)
        except BaseException as error:  # noqa: BLE001 - every one of them reaches the driver
            return pickled_error(error, WHERE)
        return b""

    return _over(one, pa.binary())


def _over(one: Callable[[pa.Buffer], Any], type_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """`one` as a UDF over a column; the annotations tell Spark which kind."""

    def over(column: pa.Array) -> pa.Array:
        try:
            return pa.array([one(value.as_buffer()) for value in column], type_)
        finally:
            forget_archives()

    return over


def sharer(storage: Payload, scan: Payload, threads: int) -> Callable[[pa.Array], pa.Array]:
    """A UDF over a column of pickled items: the contents of each bucket that they fill."""

    def one(items: pa.Buffer) -> Splits:
        parsed, error = pickle.loads(scanned(storage, scan, threads, items))  # noqa: S301 - made in this process
        if error is not None:
            return [(_NO_BUCKET, error)]
        return [split for _, buckets in parsed for split in buckets.items()]

    return _over(one, SPLITS_TYPE)


def resharer(combine: Payload) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """A UDF over buckets and their contents: the contents of each bucket of the next shuffle that they fill."""

    def one(bucket: int, content: pa.Array) -> Splits:
        if bucket == _NO_BUCKET:
            return [(_NO_BUCKET, content[0].as_py())]
        try:
            buckets: Mapping[int, bytes] = _of(combine, bucket, content)
            return list(buckets.items())
        except BaseException as error:  # noqa: BLE001 - every one of them reaches the driver
            return [(_NO_BUCKET, pickled_error(error, WHERE))]

    return _over_buckets(one, SPLITS_TYPE)


def combiner(storage: Payload, combine: Payload) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """A UDF over buckets and their contents: the result of `combine` for each and the error, pickled.

    A new file is written here.
    """

    def one(bucket: int, content: pa.Array) -> bytes:
        if bucket == _NO_BUCKET:
            return pickle.dumps((None, content[0].as_py()), 5)
        try:
            return pickle.dumps((result_of(_of(combine, bucket, content), storage.value()), None), 5)
        except BaseException as error:  # noqa: BLE001 - every one of them reaches the driver
            return pickle.dumps((None, pickled_error(error, WHERE)), 5)

    return _over_buckets(one, pa.binary())


def _of(combine: Payload, bucket: int, content: pa.Array) -> Any:
    function: Callable[[int, Sequence[pa.Buffer]], Any] = combine.value()
    return function(bucket, [each.as_buffer() for each in content])


def _over_buckets(
    one: Callable[[int, pa.Array], Any], type_: pa.DataType
) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """`one` as a UDF over two columns; the annotations tell Spark which kind."""

    def over(buckets: pa.Array, contents: pa.Array) -> pa.Array:
        try:
            pairs = zip(buckets.to_pylist(), contents, strict=True)
            return pa.array([one(bucket, content.values) for bucket, content in pairs], type_)
        finally:
            forget_archives()

    return over


def forget_archives() -> None:
    """Drop the importers of archives: before each task Spark drops the caches of imports, and Python reads each anew.

    PySpark is an archive of thousands of files, so this takes longer than a small task. What is forgotten here is found
    again when something is imported.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)
