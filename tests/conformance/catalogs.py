"""Catalogs that the committer suite runs on, each described by values that another process can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.folders import open_folder
from iceberg_cli.iceberg.catalogs.glue.committer import GlueCommitter
from iceberg_cli.iceberg.catalogs.glue.connection import GlueConnection
from iceberg_cli.iceberg.catalogs.sql.committer import SqlCommitter
from iceberg_cli.iceberg.catalogs.sql.database import SqlDatabase
from iceberg_cli.operation.outcomes import digest_of
from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import UnsafeOverrides, open_storage
from iceberg_cli.testing.conformance.catalogs import CatalogUnderTest
from iceberg_cli.testing.conformance.commits import first_metadata
from iceberg_cli.testing.memory_catalog import MemoryCatalog, MemoryCommitter
from tests.glue_front import KEYS, client_of
from tests.hive_server import HiveMetastore, make_entry

# Means nothing on a local disk.
VOUCHED = UnsafeOverrides(single_writer=True, conditional_writes=True)
# The statements of Java's JdbcCatalog: JdbcUtil.V0_CREATE_CATALOG_SQL, and the column that V1 adds.
V0 = """CREATE TABLE iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000),
    PRIMARY KEY (catalog_name, table_namespace, table_name))"""
V1_COLUMN = "ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)"


@dataclass(frozen=True)
class Catalog(CatalogUnderTest):
    """Where one table is: everything but `memory` can be opened in another process."""

    kind: Literal["filesystem", "sql", "glue", "hive", "memory"]
    folder: str
    uri: str = ""  # of a database, or the endpoint of Glue
    options: Mapping[str, str] | None = None  # of the storage
    database: str = ""  # of Hive
    properties: Mapping[str, str] | None = None  # of the connection to Hive
    memory: MemoryCatalog | None = None

    @property
    def storage(self) -> Storage:
        return _storage(frozenset((self.options or {}).items()))

    @property
    def namespace(self) -> str:
        """Of Glue one of the table's own, for all tests have one service."""
        return f"db_{digest_of(self.folder.encode())[:20]}" if self.kind == "glue" else "a.b"

    @property
    def commits_by_file(self) -> bool:  # type: ignore[override]
        return self.kind == "filesystem"

    @property
    def commits_at_once(self) -> bool:  # type: ignore[override]
        return self.commits_by_file

    @property
    def may_arrive(self) -> bool:  # type: ignore[override]
        return self.commits_by_file and self.options is not None

    def open(self, storage: Storage | None = None, **more: Any) -> Committer:
        storage = storage or self.storage
        match self.kind:
            case "filesystem":
                return open_folder(self.folder, storage, VOUCHED)
            case "sql":
                return SqlCommitter(
                    SqlDatabase(self.uri, **more),
                    catalog_name="cat",
                    namespace=self.namespace,
                    table="t",
                    storage=storage,
                )
            case "glue":
                connection = GlueConnection("cat", {**KEYS, "glue.endpoint": self.uri, **more})
                return GlueCommitter(connection, namespace=self.namespace, table="t", storage=storage)
            case "hive":
                # Not at the top: no other kind takes the time to load it.
                from iceberg_cli.iceberg.catalogs.hive.client import HiveConnection
                from iceberg_cli.iceberg.catalogs.hive.committer import HiveCommitter

                properties = {"uri": self.uri, **(self.properties or {})}
                return HiveCommitter(
                    HiveConnection("cat", properties, **more),
                    database=self.database,
                    table="t",
                    storage=storage,
                )
            case "memory":
                assert self.memory is not None
                return MemoryCommitter(self.memory, "a.b.t", storage)


@cache  # the first request of each to S3 takes half a second
def _storage(options: frozenset[tuple[str, str]]) -> Storage:
    return open_storage(dict(options))


def make_table(catalog: Catalog, properties: dict[str, str] | None = None, *, schema: str = "V1") -> Catalog:
    """Make the table's first version."""
    ending = (
        ".gz.metadata.json"
        if (properties or {}).get("write.metadata.compression-codec")
        else ".metadata.json"
    )
    name = f"v1{ending}" if catalog.kind == "filesystem" else f"00000-first{ending}"
    location = f"{catalog.folder}/metadata/{name}"
    catalog.storage.put_if_absent(location, first_metadata(catalog.folder, properties))
    if catalog.kind == "memory":
        assert catalog.memory is not None
        catalog.memory.locations["a.b.t"] = location
    if catalog.kind == "glue":
        client = client_of(catalog.uri)
        client.create_database(DatabaseInput={"Name": catalog.namespace})
        parameters = {"table_type": "ICEBERG", "metadata_location": location}
        client.create_table(
            DatabaseName=catalog.namespace, TableInput={"Name": "t", "Parameters": parameters}
        )
    if catalog.kind == "hive":
        make_entry(
            HiveMetastore(catalog.uri, Path(catalog.folder).parents[1]), catalog.database, "t", location
        )
    if catalog.kind == "sql":
        execute(catalog.uri, V0, *([V1_COLUMN] if schema == "V1" else []))
        insert_row(catalog.uri, location, iceberg_type="TABLE" if schema == "V1" else None)
    return catalog


def execute(uri: str, *statements: str, **parameters: str | None) -> list[Any]:
    """Run statements in one transaction; the rows of the last."""
    engine = sa.create_engine(uri, poolclass=NullPool)
    with engine.begin() as connection:
        results = [connection.execute(sa.text(statement), parameters) for statement in statements]
        return list(results[-1]) if results[-1].returns_rows else []


def insert_row(uri: str, location: str, *, table: str = "t", iceberg_type: str | None = None) -> None:
    columns = "catalog_name, table_namespace, table_name, metadata_location"
    values = "'cat', 'a.b', :table, :location"
    if iceberg_type is not None:
        columns, values = f"{columns}, iceberg_type", f"{values}, :iceberg_type"
    parameters = {"table": table, "location": location}
    if iceberg_type is not None:
        parameters["iceberg_type"] = iceberg_type
    execute(uri, f"INSERT INTO iceberg_tables ({columns}) VALUES ({values})", **parameters)
