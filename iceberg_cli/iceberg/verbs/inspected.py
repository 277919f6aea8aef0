"""What `inspect` has read of a table when verbs say whether they are due on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from iceberg_cli.iceberg.table import IcebergTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """The metadata, and of the head of main its manifest list and delete manifests.

    Args:
        table: as loaded last.
        manifests: rows of `MANIFEST_LIST_SCHEMA`.
        position_delete_files: live ones.
        equality_delete_files: live ones.
        puffin_files: with live deletion vectors.
        as_of_ms: the "now" of ages, in ms since the epoch.
    """

    table: IcebergTable
    manifests: pa.Table
    position_delete_files: int
    equality_delete_files: int
    puffin_files: int
    as_of_ms: int
