"""One suite for the lists of every catalog that can be had for a test alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_cli.iceberg.catalogs import Catalog
from iceberg_cli.iceberg.catalogs.registry import Catalogs
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.commits import first_metadata
from iceberg_cli.testing.conformance.listings import ListedCatalog, ListingConformance, Name
from tests.budget import deep_unless
from tests.cli.lakes import SCHEMA
from tests.glue_front import KEYS, client_of
from tests.rest_servers import rest_server_over
from tests.servers import MotoServer

NESTED = (("shop",), ("shop", "inner"), ("stock",))
FLAT = (("shop",), ("stock",))
REGION = "eu-west-3"  # where no other test has tables


@dataclass(frozen=True)
class Lake(ListedCatalog):
    """Tables that PyIceberg makes in a catalog: two in the first namespace, one in each of the others.

    Args:
        properties: of the configuration.
        theirs: PyIceberg's client.
    """

    folder: Path
    properties: Mapping[str, str]
    theirs: Any

    def make(self) -> Lake:
        names = ["events", "orders"]
        for levels in NESTED:
            self.theirs.create_namespace(levels)
            for table in names:
                location = f"file://{self.folder}/{'.'.join(levels)}.{table}"
                self.theirs.create_table((*levels, table), SCHEMA, location=location)
            names = names[:1]
        return self

    @property
    def tables(self) -> Mapping[Name, str]:
        names = [name for levels in NESTED for name in self.theirs.list_tables(levels)]
        return {(name[:-1], name[-1]): self.theirs.load_table(name).metadata_location for name in names}

    def open(self) -> Catalog:
        lines = [f"    {name}: {value}\n" for name, value in self.properties.items()]
        file = self.folder / "catalogs.yaml"
        file.write_text(f"catalog:\n  lake:\n{''.join(lines)}")
        return Catalogs(str(file)).catalog("lake")

    def drop(self, levels: tuple[str, ...], table: str) -> None:
        self.theirs.drop_table((*levels, table))


@dataclass(frozen=True)
class GlueLake(ListedCatalog):
    """Entries of Glue, in databases of one level."""

    folder: Path
    properties: Mapping[str, str]
    theirs: Any

    def make(self) -> GlueLake:
        for (database,) in FLAT:
            self.theirs.create_database(DatabaseInput={"Name": database})
            for table in ("events", "orders"):
                place = f"{self.folder}/{database}.{table}"
                location = f"{place}/metadata/00000-first.metadata.json"
                open_storage().put_if_absent(location, first_metadata(place))
                parameters = {"table_type": "ICEBERG", "metadata_location": location}
                self.theirs.create_table(
                    DatabaseName=database, TableInput={"Name": table, "Parameters": parameters}
                )
        return self

    @property
    def tables(self) -> Mapping[Name, str]:
        return {
            ((database,), entry["Name"]): entry["Parameters"]["metadata_location"]
            for (database,) in FLAT
            for entry in self.theirs.get_tables(DatabaseName=database)["TableList"]
        }

    def open(self) -> Catalog:
        return Lake.open(self)  # type: ignore[arg-type]

    def drop(self, levels: tuple[str, ...], table: str) -> None:
        self.theirs.delete_table(DatabaseName=levels[0], Name=table)


@pytest.fixture(scope="module")
def own_rest_server() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="ice-rest-") as folder,
        rest_server_over(f"jdbc:sqlite:{folder}/catalog.db") as uri,
    ):
        yield uri


KINDS = ["sqlite", "sqlalchemy", "python class", "rest", "glue"]


@pytest.fixture(params=deep_unless(KINDS[:3], KINDS))
def listed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ListedCatalog]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    match request.param:
        case "rest":
            server: str = request.getfixturevalue("own_rest_server")
            theirs: Any = RestCatalog("theirs", uri=server)
            lake = Lake(tmp_path, {"type": "rest", "uri": server}, theirs).make()
            yield lake
            for levels, table in lake.tables:
                theirs.drop_table((*levels, table))
            for levels in reversed(NESTED):
                theirs.drop_namespace(levels)
        case "glue":
            moto: MotoServer = request.getfixturevalue("moto_server")
            properties = {**KEYS, "type": "glue", "glue.endpoint": moto.endpoint, "glue.region": REGION}
            theirs = client_of(moto.endpoint, REGION)
            yield GlueLake(tmp_path, properties, theirs).make()
            for (database,) in FLAT:
                theirs.delete_database(Name=database)
        case kind:
            own = {
                "sqlite": {"type": "sql", "uri": uri},
                "sqlalchemy": {"type": "sql", "uri": f"{uri}?timeout=30"},
                "python class": {
                    "py-catalog-impl": "tests.iceberg.catalogs.python_catalogs.OwnCatalog",
                    "uri": uri,
                },
            }
            yield Lake(tmp_path, own[kind], SqlCatalog("lake", uri=uri)).make()


class TestListings(ListingConformance):
    """Every sentence about lists, on every catalog."""
