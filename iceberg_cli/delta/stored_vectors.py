"""Deletion vectors of a commit's adds, written to a new file.

Spec: Delta protocol, "Deletion Vector File Storage Format", "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.ownership import DELETION_VECTOR as DELETION_VECTOR_FILE
from iceberg_cli.delta.spec.columns import ADD, DELETION_VECTOR, without_data_change
from iceberg_cli.delta.spec.vectors import (
    Vector,
    VectorFile,
    name_in_log,
    read_vectors,
    vector_file,
)
from iceberg_cli.errors import CorruptFile
from iceberg_cli.plan.plan import StagedFile, Task
from iceberg_cli.storage import Storage, put_checked


def vectors_task(adds: pa.Table, *, inputs: Sequence[str] = ()) -> Task:
    """The task of a file with the vectors of some adds: another name for any other field of any of them.

    The same adds may get two names where they were read in two ways; then the work is done once more.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, adds.schema) as writer:
        writer.write_table(adds.combine_chunks())
    digest = hashlib.sha256(sink.getvalue()).hexdigest()[:16]
    return Task(name=f"vectors-{digest}", kind=DELETION_VECTOR_FILE, inputs=tuple(inputs))


def write_vectors(
    storage: Storage, path: str, adds: pa.Table, frames: Sequence[bytes], vectors: Sequence[Vector]
) -> StagedFile:
    """Write a file of vectors, and say of each data file where its vector is.

    Args:
        storage: that takes it.
        path: of the file.
        adds: n, whose vectors have all but the place where they are.
        frames: n, checked.
        vectors: n, whatever their offsets.

    Raises:
        CorruptFile: the file does not hold them. BackendUnavailable.
    """
    data, offsets = vector_file(frames)
    placed = [each._replace(offset=offset) for each, offset in zip(vectors, offsets, strict=True)]
    if read_vectors([VectorFile(path, data, placed)]) != [list(frames)]:
        raise CorruptFile(path, None, "the new file does not hold the vectors that were read")
    put_checked(storage, path, data)
    return StagedFile(path=path, row={"adds": _with_places(adds, name_in_log(path), offsets)})


def _with_places(adds: pa.Table, name: str, offsets: Sequence[int]) -> pa.Table:
    """Adds with vectors at other places, everything else as it was.

    Args:
        adds: n, of files with vectors.
        name: `pathOrInlineDv` of the file that holds the vectors.
        offsets: n.
    """
    old = adds.column("deletionVector").combine_chunks()
    fields: dict[str, Any] = {field.name: pc.struct_field(old, field.name) for field in DELETION_VECTOR}
    fields["storageType"] = pa.array(["u"] * len(offsets))
    fields["pathOrInlineDv"] = pa.array([name] * len(offsets))
    fields["offset"] = pa.array(offsets, pa.int32())
    columns = [fields[field.name] for field in DELETION_VECTOR]
    vectors = pa.StructArray.from_arrays(columns, fields=list(DELETION_VECTOR))
    return without_data_change(
        adds.set_column(ADD.get_field_index("deletionVector"), ADD.field("deletionVector"), vectors), ADD
    )
