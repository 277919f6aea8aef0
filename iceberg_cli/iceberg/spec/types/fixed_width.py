"""Binary single values of the types whose values have one width, many at once.

Spec: Appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "int": np.dtype("<i4"),
    "date": np.dtype("<i4"),
    "float": np.dtype("<f4"),
    "double": np.dtype("<f8"),
    **dict.fromkeys(
        ("long", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), np.dtype("<i8")
    ),
}


def numbers_of(type_: str, values: pa.Array) -> pa.Array | None:
    """Values as numbers of the type's unit, null where they are null.

    Args:
        type_: of the column.
        values: n binary single values.

    Returns:
        None where the type has no such numbers, or a value is of another width, as before a promotion.
    """
    dtype, valid = _TYPES.get(type_), values.drop_null()
    if dtype is None or not pc.all(pc.equal(pc.binary_length(valid), dtype.itemsize)).as_py():
        return None
    _, offsets, data = valid.buffers()
    numbers = np.zeros(len(values), dtype)
    if len(valid):
        start = int(np.frombuffer(offsets, np.int32)[valid.offset])
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        numbers[is_valid] = np.frombuffer(data, dtype, count=len(valid), offset=start)
    return pa.array(numbers, mask=values.is_null().to_numpy(zero_copy_only=False))
