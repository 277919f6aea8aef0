"""Pickles of errors and tables that processes send each other."""

from __future__ import annotations

import io
import pickle
import traceback
from typing import Any

import pyarrow as pa

from iceberg_cli.errors import IcebergCliError


def pickled_error(error: BaseException, where: str) -> bytes:
    """A pickle of an error with its fields, and for a bug the text of its traceback, which cannot be pickled.

    Args:
        error: that was caught.
        where: a line above the traceback, such as "In a process that decodes files:".
    """
    trace = "".join(traceback.format_exception(error))
    if not isinstance(error, IcebergCliError):
        error.add_note(f"{where}\n{trace}")
    try:
        data = pickle.dumps(error, 5)
        if type(pickle.loads(data)) is type(error):  # noqa: S301 - written in the line above
            return data
    except Exception:  # noqa: BLE001 - an error of another library may say anything here
        return pickle.dumps(RuntimeError(trace), 5)
    return pickle.dumps(RuntimeError(trace), 5)


def pickled_data(value: Any) -> bytes:
    """A pickle in which each table has its own rows only: Arrow's pickle of a slice has those of the whole table."""
    data = io.BytesIO()
    _Pickler(data, 5).dump(value)
    return data.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Tables as `to_ipc` writes them, all else as usual."""
        return (from_ipc, (to_ipc(value),)) if isinstance(value, pa.Table) else NotImplemented


def to_ipc(table: pa.Table) -> bytes:
    """A table in Arrow's IPC format, its own rows only."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_ipc(data: bytes | pa.Buffer) -> pa.Table:
    """Inverse of `to_ipc`; of a buffer nothing is copied."""
    return pa.ipc.open_stream(data).read_all()
