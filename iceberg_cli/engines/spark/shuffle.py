"""The shuffle of Spark's workers: assign parsed data to buckets, combine each bucket, and write the files built.

Errors go through the same buckets, as values, for the caller to raise.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from iceberg_cli.encoding.transport import pickled_error
from iceberg_cli.engines.local import result_of
from iceberg_cli.engines.spark.worker import WHERE, Payload, forget_archives, scanned

_NO_BUCKET = -1  # holds errors
SPLITS_TYPE = pa.list_(pa.struct([("bucket", pa.int32()), ("data", pa.binary())]))

Shares = list[tuple[int, bytes]]


def sharer(storage: Payload, scan: Payload, threads: int) -> Callable[[pa.Array], pa.Array]:
    """A UDF over a column of pickled items: the contents of each bucket that they fill."""

    def over(column: pa.Array) -> pa.Array:
        try:
            return pa.array(
                [_shared(storage, scan, threads, split.as_buffer()) for split in column], SPLITS_TYPE
            )
        finally:
            forget_archives()

    return over


def _shared(storage: Payload, scan: Payload, threads: int, items: pa.Buffer) -> Shares:
    found, error = pickle.loads(scanned(storage, scan, threads, items))  # noqa: S301 - made in this process
    if error is not None:
        return [(_NO_BUCKET, error)]
    return [split for _, buckets in found for split in buckets.items()]


def resharer(combine: Payload) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """A UDF over buckets and their contents: the contents of each bucket of the next shuffle that they fill."""

    def one(bucket: int, content: pa.Array) -> Shares:
        if bucket == _NO_BUCKET:
            return [(_NO_BUCKET, content[0].as_py())]
        try:
            found: Mapping[int, bytes] = _of(combine, bucket, content)
            return list(found.items())
        except BaseException as error:  # noqa: BLE001 - every one of them reaches the driver
            return [(_NO_BUCKET, pickled_error(error, WHERE))]

    return _over(one, SPLITS_TYPE)


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

    return _over(one, pa.binary())


def _of(combine: Payload, bucket: int, content: pa.Array) -> Any:
    function: Callable[[int, Sequence[pa.Buffer]], Any] = combine.value()
    return function(bucket, [each.as_buffer() for each in content])


def _over(
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
