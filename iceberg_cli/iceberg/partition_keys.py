"""Partition tuples as binary keys: two files are in one partition exactly where their keys are equal.

Spec: "Scan Planning", note 3: floating point values are equal where their bits are, NaNs normalised.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def partition_keys(spec_id: int, partitions: pa.StructArray) -> pa.Array:
    """A key for each of n partition tuples of one spec.

    Args:
        spec_id: of the partition spec, which is part of the key.
        partitions: in the order of the spec's fields, in Avro's representation. Widths may differ between calls: an
            int and a long of one value, or a float and a double, give one key.

    Returns:
        n binary values.
    """
    # A slice's children still have all its rows until they are flattened.
    fields = partitions.flatten()
    keys = pa.repeat(pa.scalar(str(spec_id).encode()), len(partitions))
    for field in fields:
        keys = pc.binary_join_element_wise(keys, _spelled(field), b"/")
    return keys


def _spelled(values: pa.Array) -> pa.Array:
    """Each value with its length before it, so that no value can look like a separator; null as `n`."""
    if pa.types.is_null(values.type):
        return pa.repeat(pa.scalar(b"n"), len(values))
    nulls = values.is_null()
    if pa.types.is_floating(values.type):
        doubles = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        normal = np.where(np.isnan(doubles), np.nan, doubles)
        values = pa.array(normal.view(np.int64))
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.int64()).cast(pa.string())
    texts = values.cast(pa.binary())
    lengths = pc.fill_null(pc.binary_length(texts), 0).cast(pa.string()).cast(pa.binary())
    spelled = pc.binary_join_element_wise(lengths, pc.fill_null(texts, b""), b":")
    return pc.if_else(nulls, pa.scalar(b"n"), spelled)
