"""What others must know of HDFS."""

from __future__ import annotations

from typing import Final

from iceberg_cli.storage.declarations import StorageDeclaration

WHY_READ_ONLY: Final = "pyarrow, by which it is read, cannot create a file without replacing another writer's"
DECLARATION: Final = StorageDeclaration(
    title="HDFS",
    schemes=("hdfs", "viewfs"),
    spellings=("hdfs",),
    adapter=("iceberg_cli.storage.hdfs.files", "HdfsStorage"),
    option_names=("hdfs.host", "hdfs.kerberos_ticket", "hdfs.port", "hdfs.user"),
    why_read_only=WHY_READ_ONLY,
)
