"""Tables of a REST or SQL catalog or a Hive Metastore on S3 that Spark writes by Iceberg's own `S3FileIO`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from tests.glue_front import KEYS, GlueFront
from tests.hive_server import java_over, running_hive
from tests.rest_servers import configuration_of, java_options_of, pyiceberg_options_of
from tests.servers import S3Server, Versitygw
from tests.spark_tables.lake import JOURNAL, Lake, Rows, in_order


@dataclass(frozen=True, kw_only=True)
class S3Lake(Lake):
    """A catalog by PyIceberg's `properties`; its `warehouse` is the folder in which the service keeps the objects."""

    properties: Mapping[str, str]
    s3: S3Server

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
        return load_catalog(self.catalog, **self.properties).load_table(f"db.{table}")

    def kept_at(self, location: str) -> str:
        """The file in which the service keeps an object."""
        return location.replace(f"s3://{self.s3.bucket}/{self.catalog}", str(self.warehouse), 1)

    def journals(self, table: str) -> list[str]:
        """The files of operations of ours."""
        return [str(path) for path in self.folder(table).rglob(f"{JOURNAL}/ops/*")]


def configured(
    live_lakes: Mapping[str, Lake],
    name: str,
    s3: S3Server,
    folder: Path,
    *,
    java: Mapping[str, str],
    pyiceberg: Mapping[str, str],
) -> dict[str, Any]:
    """Configure a catalog for Spark, PyIceberg and our program, with the namespace `db`; what a lake knows of that.

    Args:
        live_lakes: of the session, whose Spark gets one catalog more.
        name: of the catalog, which the session has not yet.
        s3: where its warehouse is.
        folder: for the configuration.
        java: properties of the catalog for Iceberg Java, without those of the service.
        pyiceberg: the same for PyIceberg.
    """
    spark = live_lakes["hadoop"].spark
    settings = {
        "cache-enabled": "false",
        "warehouse": f"s3://{s3.bucket}/{name}",
        **java_options_of(s3),
        **java,
    }
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.db")
    config, properties = folder / f"{name}.yaml", {**pyiceberg_options_of(s3), **pyiceberg}
    config.write_text(configuration_of(name, properties))
    return {
        "spark": spark,
        "catalog": name,
        "database": None,
        "config": config,
        "properties": properties,
        "s3": s3,
    }


@pytest.fixture(scope="session")
def rest_s3_lake(
    live_lakes: dict[str, Lake],
    rest_on_s3: str,
    versitygw: Versitygw,
    tmp_path_factory: pytest.TempPathFactory,
) -> S3Lake:
    """Iceberg's reference server over SQLite, with its warehouse on versitygw."""
    both = {"type": "rest", "uri": rest_on_s3}
    known = configured(
        live_lakes, "rest", versitygw, tmp_path_factory.mktemp("rest"), java=both, pyiceberg=both
    )
    return S3Lake(warehouse=versitygw.folder / "rest", **known)


@pytest.fixture(scope="session")
def sql_s3_lake(
    live_lakes: dict[str, Lake], versitygw: Versitygw, tmp_path_factory: pytest.TempPathFactory
) -> S3Lake:
    """Iceberg Java's JDBC catalog on SQLite, which is PyIceberg's SQL catalog, with its warehouse on versitygw."""
    folder = tmp_path_factory.mktemp("sql")
    java = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "jdbc.schema-version": "V1",
        "jdbc.busy_timeout": "30000",
    }
    pyiceberg = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    known = configured(live_lakes, "sql", versitygw, folder, java=java, pyiceberg=pyiceberg)
    return S3Lake(warehouse=versitygw.folder / "sql", **known)


@pytest.fixture(scope="session")
def glue_s3_lake(
    live_lakes: dict[str, Lake],
    glue_service: GlueFront,
    versitygw: Versitygw,
    tmp_path_factory: pytest.TempPathFactory,
) -> S3Lake:
    """Iceberg Java's catalog of Glue, which commits by the version of the entry, with its warehouse on versitygw."""
    # Iceberg Java has no property for the keys of Glue.
    system = live_lakes["hadoop"].spark.sparkContext._jvm.java.lang.System
    for name, key in (("aws.accessKeyId", "access-key-id"), ("aws.secretAccessKey", "secret-access-key")):
        system.setProperty(name, KEYS[f"glue.{key}"])
    java = {"type": "glue", "glue.endpoint": glue_service.endpoint}
    database = {"Name": "db", "LocationUri": f"s3://{versitygw.bucket}/glue/db"}
    glue_service.client().create_database(DatabaseInput=database)
    folder = tmp_path_factory.mktemp("glue")
    known = configured(live_lakes, "glue", versitygw, folder, java=java, pyiceberg=glue_service.properties())
    return S3Lake(warehouse=versitygw.folder / "glue", **known)


@pytest.fixture(scope="session")
def hive_s3_lake(
    live_lakes: dict[str, Lake],
    versitygw: Versitygw,
    mariadb_server: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[S3Lake]:
    """A Hive Metastore with its warehouse on versitygw. Spark and PyIceberg reach it by Java's HiveCatalog."""
    from hive_metastore.ttypes import Database

    with running_hive(mariadb_server, s3=versitygw) as hive, java_over(hive, versitygw) as uri:
        with hive.connection().session() as session:
            location = f"s3://{versitygw.bucket}/hive/db"
            session.client.create_database(Database(name="db", locationUri=location))
        both = {"type": "rest", "uri": uri}
        folder = tmp_path_factory.mktemp("hive")
        known = configured(live_lakes, "hive", versitygw, folder, java=both, pyiceberg=both)
        ours = {**pyiceberg_options_of(versitygw), "type": "hive", "uri": hive.uri}
        known["config"].write_text(configuration_of("hive", ours))
        yield S3Lake(warehouse=versitygw.folder / "hive", **known)
