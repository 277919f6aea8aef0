"""Tables of a REST catalog on S3 that Spark writes by Iceberg's own `S3FileIO`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.rest_servers import configuration_of, java_options_of, pyiceberg_options_of, warehouse_on
from tests.servers import S3Server, Versitygw
from tests.spark_tables.lake import JOURNAL, Lake, Rows, in_order


@dataclass(frozen=True, kw_only=True)
class RestLake(Lake):
    """A REST catalog; its `warehouse` is the folder in which the service keeps the bucket's objects."""

    uri: str
    s3: S3Server
    properties: Mapping[str, str]  # of the catalog and the storage, for PyIceberg and our program

    def argument(self, table: str) -> str:
        return self.name(table)

    def options(self) -> list[str]:
        return ["--format", "json", "--no-progress", "--catalog-config", str(self.config)]

    def metadata_location(self, table: str) -> str:
        return self.kept_at(super().metadata_location(table))

    def reachable(self, table: str) -> set[str]:
        return {self.kept_at(path) for path in super().reachable(table)}

    def rows_of_pyiceberg(self, table: str, snapshot_id: int | None = None, **scan: Any) -> Rows:
        """A snapshot's rows, or main's, as PyIceberg reads them through the catalog.

        Args:
            table: its name.
            snapshot_id: of the snapshot, or None.
            scan: more arguments of PyIceberg's `Table.scan`.
        """
        arrow = self.of_pyiceberg(table).scan(snapshot_id=snapshot_id, **scan).to_arrow()
        return in_order(tuple(row.values()) for row in arrow.to_pylist())

    def files_of_pyiceberg(self, table: str, **scan: Any) -> set[str]:
        """The data files that PyIceberg would read for a scan of main."""
        return {task.file.file_path for task in self.of_pyiceberg(table).scan(**scan).plan_files()}

    def of_pyiceberg(self, table: str) -> Table:
        """PyIceberg's own `Table`, loaded now."""
        theirs = RestCatalog("theirs", uri=self.uri, **self.properties)
        return theirs.load_table(f"db.{table}")

    def kept_at(self, location: str) -> str:
        """The file in which the service keeps an object."""
        return location.replace(warehouse_on(self.s3), str(self.warehouse), 1)

    def journals(self, table: str) -> list[str]:
        """The files of operations of ours."""
        return [str(path) for path in self.folder(table).rglob(f"{JOURNAL}/ops/*")]


def rest_lake(lakes: Mapping[str, Lake], name: str, uri: str, s3: Versitygw, folder: Path) -> RestLake:
    """The catalog as Spark, PyIceberg and our program have it configured, with the namespace `db`.

    Args:
        lakes: of the session, whose Spark gets one catalog more.
        name: of the catalog, which the session has not yet.
        uri: of the server.
        s3: where its warehouse is.
        folder: for the configuration.
    """
    warehouse = s3.folder / warehouse_on(s3).removeprefix(f"s3://{s3.bucket}/")
    return RestLake(
        warehouse=warehouse, uri=uri, s3=s3, **configured(lakes, name, uri, s3, folder, {}), database=None
    )


def configured(
    lakes: Mapping[str, Lake], name: str, uri: str, s3: S3Server, folder: Path, properties: Mapping[str, str]
) -> dict[str, Any]:
    """Configure the catalog for all; what a `RestLake` knows of that.

    Args:
        lakes, name, uri, s3, folder: see `rest_lake`.
        properties: more of the catalog's, such as its credential.
    """
    spark = lakes["hadoop"].spark
    settings = {"type": "rest", "uri": uri, "cache-enabled": "false", **java_options_of(s3), **properties}
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.db")
    config, both = folder / f"{name}.yaml", {**pyiceberg_options_of(s3), **properties}
    config.write_text(configuration_of(name, {"uri": uri, **both}))
    return {"spark": spark, "catalog": name, "config": config, "properties": both}


@pytest.fixture(scope="session")
def rest_s3_lake(
    lakes: dict[str, Lake], rest_on_s3: str, versitygw: Versitygw, tmp_path_factory: pytest.TempPathFactory
) -> RestLake:
    """Iceberg's reference server over SQLite, with its warehouse on versitygw."""
    return rest_lake(lakes, "rest", rest_on_s3, versitygw, tmp_path_factory.mktemp("rest"))
