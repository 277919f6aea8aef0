"""Rules about the blobs of Puffin files, as the file's footer or table metadata has them.

Spec: "Table Statistics"; Puffin spec, "BlobMetadata"; "Reserved Field IDs".
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final, Protocol

from iceberg_cli.plan.findings import Findings

_FIRST_RESERVED_ID: Final = 2147483447 + 1
_REF: Final = "referenced-data-file"


class _Blob(Protocol):
    """The fields of a blob that manifest and footer share."""

    @property
    def type(self) -> str: ...
    @property
    def fields(self) -> tuple[int, ...]: ...
    @property
    def snapshot_id(self) -> int: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def properties(self) -> Mapping[str, str] | None: ...


def check_blobs(blobs: Iterable[_Blob], where: str, columns: Container[int], findings: Findings) -> None:
    """Each blob is there once, and is of columns that the table has or had.

    Args:
        blobs: in their order.
        where: for findings.
        columns: ids of all columns of all schemas.
        findings: to add to.
    """
    seen: set[tuple[object, ...]] = set()
    for place, blob in enumerate(blobs):
        for field_id in blob.fields:
            if field_id < _FIRST_RESERVED_ID and field_id not in columns:
                message = f"blob {place} is of field {field_id}, which no schema of the table has"
                findings.add("puffin-blob-unfit", where, message)
        # Deletion vectors of several data files differ by nothing else.
        ref = (blob.properties or {}).get(_REF)
        key = (blob.type, blob.fields, blob.snapshot_id, blob.sequence_number, ref)
        if key in seen:
            of = ref or ", ".join(map(str, blob.fields)) or "no field"
            findings.add("puffin-blob-unfit", where, f"blob {place} ({blob.type:.80} of {of}) is there twice")
        seen.add(key)
