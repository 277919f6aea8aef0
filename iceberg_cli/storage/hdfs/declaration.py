"""What others must know of HDFS."""

from __future__ import annotations

from typing import Final

from iceberg_cli.storage.declarations import StorageDeclaration

READ_ONLY: Final = (
    "nothing is written there from here, since pyarrow, by which it is read, cannot create a file without replacing "
    "another writer's"
)
DECLARATION: Final = StorageDeclaration(
    schemes=("hdfs", "viewfs"),
    spellings=("hdfs",),
    adapter=("iceberg_cli.storage.hdfs.files", "HdfsStorage"),
    why_read_only=f"HDFS: {READ_ONLY}",
)
