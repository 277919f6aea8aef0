"""Arrow arrays over numpy's memory, and columns in one piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]


def array_of(values: npt.NDArray[Any], valid: Bools | None = None) -> pa.Array:
    """The numbers or booleans of `values`, null where they are not `valid`; numbers are not copied.

    `pa.array` would do the same, but for an array of numpy's it imports `numpy.ma` first, which takes longer than
    all the work on a small table.
    """
    data = (
        np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    )
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bitmap_of(valid), pa.py_buffer(data)])


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def bitmap_of(valid: Bools | None) -> pa.Buffer | None:
    """Arrow's validity bitmap of n booleans; None where all is valid."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
