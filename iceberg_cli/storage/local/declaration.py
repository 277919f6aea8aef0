"""What others must know of local disks."""

from __future__ import annotations

from typing import Final

from iceberg_cli.storage.declarations import StorageDeclaration

DECLARATION: Final = StorageDeclaration(
    title="local disks",
    schemes=("file",),
    spellings=("file",),
    adapter=("iceberg_cli.storage.local", "LocalStorage"),
)
