"""A new Puffin file of deletion vectors, checked against what was planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.spec.dv_blobs import positions_in, puffin_file, vectors_in
from iceberg_cli.iceberg.spec.puffin import MAGIC
from iceberg_cli.iceberg.verbs.merge_dvs.columns import Ints
from iceberg_cli.iceberg.verbs.merge_dvs.rules import NEW

BUILT_COLUMNS: Final = ("origin", "ref", "cardinality", "size", "crc", "sum", "last_row")


def puffin_of(outputs: pa.Table, blobs: Sequence[bytes], path: str) -> bytes:
    """The file of n deletion vectors.

    Args:
        outputs: n rows of `OUTPUTS_SCHEMA`, of which `BUILT_COLUMNS` are needed.
        blobs: of each its vector.
        path: for messages.

    Raises:
        CorruptFile: a vector that was copied has other bytes than planned, or one that was merged other positions.
    """
    data = puffin_file(outputs["ref"].to_pylist(), outputs["cardinality"].to_pylist(), iter(blobs))
    _check(data, path, outputs)
    return data


def offsets_of(sizes: Ints) -> Ints:
    """Where each blob begins in a file of blobs of these sizes."""
    offsets: Ints = len(MAGIC) + np.cumsum(sizes) - sizes
    return offsets


def _check(data: bytes, path: str, outputs: pa.Table) -> None:
    sizes = outputs["size"].to_numpy()
    offsets = offsets_of(sizes)
    ends = (offsets + sizes).tolist()
    if [data[end - 4 : end] for end in ends] != outputs["crc"].to_pylist():
        raise CorruptFile(path, None, "a deletion vector is not the one that was planned")
    new = outputs["origin"].to_numpy() == NEW
    # Copied vectors were checked when they were read; the footer is checked once.
    places = np.flatnonzero(new) if new.any() else np.zeros(1, np.int64)
    targets = outputs.select(["ref", "size", "last_row"]).append_column(
        "record_count", outputs["cardinality"]
    )
    targets = targets.append_column("file_size", pa.array(np.full(len(outputs), len(data))))
    targets = targets.append_column("offset", pa.array(offsets)).take(pa.array(places))
    sums, cardinalities = outputs["sum"].to_numpy(), outputs["cardinality"].to_numpy()
    for blob, place in zip(vectors_in(data, path, targets), places.tolist(), strict=True):
        if new[place]:
            _check_vector(blob, int(cardinalities[place]), int(sums[place]), path)


def _check_vector(blob: bytes, cardinality: int, total: int, path: str) -> None:
    """Compare a new deletion vector with the planned count and sum of its positions."""
    positions = positions_in(blob)
    found = len(positions), int(positions.sum(dtype=np.uint64))
    if found != (cardinality, total):
        raise CorruptFile(
            path,
            None,
            f"a deletion vector has positions {found} (count and sum) instead of {cardinality, total}",
        )
