"""Partition tuples as binary keys: two files are in one partition exactly where their keys are equal.

Spec: "Scan Planning", note 3: floating point values are equal where their bits are, NaNs normalised; "Schema
Evolution": after a type promotion a value is the same in the narrower type and in the wider one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.single_value import decimal_parts


def in_spec_order(
    partitions: pa.StructArray, ids: Sequence[int | None], spec: PartitionSpec
) -> pa.StructArray:
    """Tuples with their fields in the order of the spec, found by field id; a field that a file lacks is null.

    Args:
        partitions: n tuples as a manifest has them.
        ids: of the fields of that manifest's partition struct.
        spec: of the manifest.

    Returns:
        n tuples whose fields are called by their ids.

    Raises:
        ValueError: the struct has no ids, and not as many fields as the spec.
    """
    own: list[int | None] = [field.field_id for field in spec.fields]
    if set(ids) <= {None} and len(ids) == len(own):
        ids = own  # writers of v1 left the ids out
    if None in ids:
        raise ValueError(f"it has {len(ids)} fields, some without an id; spec {spec.spec_id} has {len(own)}")
    if not own:
        return pa.array([{}] * len(partitions), pa.struct([]))
    # A slice's children still have all its rows until they are flattened.
    children = partitions.flatten()
    columns = [
        children[ids.index(field_id)] if field_id in ids else pa.nulls(len(partitions)) for field_id in own
    ]
    return pa.StructArray.from_arrays(columns, names=[str(field_id) for field_id in own])


def partition_keys(spec_id: int, partitions: pa.StructArray, types: Sequence[str]) -> pa.Array:
    """A key for each of n partition tuples of one spec.

    Args:
        spec_id: of the partition spec, which is part of the key.
        partitions: in the order of the spec's fields, in Avro's representation. Widths may differ between calls: an
            int and a long of one value, a float and a double, or decimals of two precisions, give one key.
        types: of the fields, as the specification names them.

    Returns:
        n binary values.
    """
    keys = pa.repeat(pa.scalar(str(spec_id).encode()), len(partitions))
    for field, type_ in zip(partitions.flatten(), types, strict=True):
        values = _unscaled(field) if decimal_parts(type_) is not None else field
        keys = pc.binary_join_element_wise(keys, spelled(values), b"/")
    return keys


def _unscaled(values: pa.Array) -> pa.Array:
    """Decimals, in two's complement of any length, in the fewest bytes."""
    if not (pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type)):
        return values
    encoded = values.dictionary_encode()
    numbers = [int.from_bytes(value, "big", signed=True) for value in encoded.dictionary.to_pylist()]
    shortest = [number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True) for number in numbers]
    return pa.array(shortest, pa.binary()).take(encoded.indices)


def spelled(values: pa.Array) -> pa.Array:
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
    joined = pc.binary_join_element_wise(lengths, pc.fill_null(texts, b""), b":")
    return pc.if_else(nulls, pa.scalar(b"n"), joined)
