"""Deletes of new files, written: deletion vectors in one Puffin file, or a file of position deletes for each data file.

Each is read back. Sequence numbers are those of the commit.

Spec: "Deletion Vectors", "Position Delete Files"; "Puffin Spec".
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.deletion_vector import encode
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.spec.deletes.dv_blobs import puffin_file
from iceberg_cli.iceberg.spec.deletes.position_deletes import FILE_PATH_ID, POS_ID
from iceberg_cli.iceberg.spec.deletes.puffin import read_footer
from iceberg_cli.iceberg.spec.manifests.manifest import ADDED
from iceberg_cli.layout.position_map import Positions
from iceberg_cli.storage import Storage, put_checked

_POSITION_DELETES: Final = 1  # content of an entry
_CODEC: Final = "zstd"
_SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POS_ID)}),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDeletes:
    """Positions that are deleted of a new file.

    Args:
        data_file: its path.
        key: of its partition.
        positions: ascending, at least one.
    """

    data_file: str
    key: bytes
    positions: Positions

    def vector(self) -> bytes:
        """A deletion vector."""
        return encode(self.positions.astype(np.uint64))

    def position_file(self) -> bytes:
        """A file of position deletes: the same bytes each time."""
        import pyarrow.parquet as pq

        paths = pa.array([self.data_file] * len(self.positions), pa.string())
        sink = io.BytesIO()
        pq.write_table(
            pa.table([paths, pa.array(self.positions)], schema=_SCHEMA),
            sink,
            compression=_CODEC,
            store_schema=False,
        )
        return sink.getvalue()


def vector_entries(
    storage: Storage, path: str, deletes: Sequence[NewDeletes], blobs: Sequence[bytes]
) -> list[dict[str, Any]]:
    """Write a Puffin file of deletion vectors; its entries, without partitions.

    Args:
        storage: that takes it.
        path: of the file.
        deletes: that it has.
        blobs: their vectors.

    Raises:
        CorruptFile: what was read back is not what was written.
    """
    names = [each.data_file for each in deletes]
    data = puffin_file(names, [len(each.positions) for each in deletes], iter(blobs))
    put_checked(storage, path, data)
    footer = read_footer(data, len(data), path)
    if len(footer.blobs) != len(blobs):
        raise CorruptFile(path, "footer", f"{len(footer.blobs)} blobs instead of {len(blobs)}")
    entries = []
    for blob, found, each in zip(blobs, footer.blobs, deletes, strict=True):
        if data[found.offset : found.offset + found.length] != blob:
            raise CorruptFile(path, found.offset, "another deletion vector than was written")
        entries.append(
            _entry(path, "PUFFIN", len(data), each)
            | {"content_offset": found.offset, "content_size_in_bytes": found.length}
        )
    return entries


def position_entry(path: str, size_bytes: int, deletes: NewDeletes) -> dict[str, Any]:
    """The entry of a file of position deletes of one data file, without the partition.

    Its bounds are the whole path, so that readers which look for nothing else know that it names one file.
    """
    count = len(deletes.positions)
    name = deletes.data_file.encode()
    first, last = (struct.pack("<q", int(deletes.positions[place])) for place in (0, -1))
    counts = {FILE_PATH_ID: count, POS_ID: count}
    return _entry(path, "PARQUET", size_bytes, deletes) | {
        "value_counts": counts,
        "null_value_counts": dict.fromkeys(counts, 0),
        "lower_bounds": {FILE_PATH_ID: name, POS_ID: first},
        "upper_bounds": {FILE_PATH_ID: name, POS_ID: last},
    }


def _entry(path: str, file_format: str, size_bytes: int, deletes: NewDeletes) -> dict[str, Any]:
    return {
        "status": ADDED,
        "snapshot_id": None,
        "sequence_number": None,
        "file_sequence_number": None,
        "content": _POSITION_DELETES,
        "file_path": path,
        "file_format": file_format,
        "record_count": len(deletes.positions),
        "file_size_in_bytes": size_bytes,
        "referenced_data_file": deletes.data_file,
    }
