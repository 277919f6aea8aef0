"""Which sidecars a checkpoint's top level names, without reading the rest of it.

Spec: Delta, "Sidecar File Information", "V2 Spec".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.delta.spec.checkpoint import read_part, sidecar_path
from iceberg_cli.errors import CorruptFile

_COLUMN = "sidecar"


def named_sidecars(path: str, version: int, data: bytes, *, folder: str) -> frozenset[str]:
    """The storage paths of the sidecars that a top-level file names; see `sidecar_sizes`."""
    return frozenset(sidecar_sizes(path, version, data, folder=folder))


def sidecar_sizes(path: str, version: int, data: bytes, *, folder: str) -> dict[str, int]:
    """The storage paths of the sidecars that a top-level file names, and the bytes that it says of each.

    Args:
        path: of the file, which ends in `.json` or `.parquet`; a classic checkpoint may name sidecars too.
        version: of the checkpoint.
        data: the whole file.
        folder: storage path of `_delta_log`.

    Raises:
        CorruptFile: it cannot be read.
    """
    if path.endswith(".json"):
        actions = read_part(path, version, data).sidecars
    else:
        try:
            file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
            there = _COLUMN in file.schema_arrow.names
            rows = file.read(columns=[_COLUMN])[_COLUMN].to_pylist() if there else []
        except (pa.ArrowException, OSError) as error:
            raise CorruptFile(path, None, f"no readable Parquet: {error}") from None
        actions = tuple(row for row in rows if row is not None)
    return dict(sidecar_path(action, folder, path) for action in actions)
