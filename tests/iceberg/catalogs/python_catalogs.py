"""Classes that `py-catalog-impl` names in tests."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServerError
from pyiceberg.table import Table


class OwnCatalog(SqlCatalog):
    """A catalog of somebody's own, whose tables bring the options of their storage."""

    def load_table(self, identifier: Any) -> Table:
        table = super().load_table(identifier)
        table.io.properties = {
            **table.io.properties,
            "s3.region": "of the table",
            "s3.endpoint": "of the table",
        }
        return table


class OneThatDoesNotStart(SqlCatalog):
    """It tells what it was given."""

    def __init__(self, name: str, **properties: str) -> None:
        raise RuntimeError(f"cannot use {properties}\nof {name}")


class OneThatDoesNotAnswer(SqlCatalog):
    """It tells at each question what it was given."""

    def load_table(self, identifier: Any) -> Table:
        raise ServerError(f"no answer to {self.properties['pin']} about {identifier}")


class OneThatAnswersOnce(SqlCatalog):
    """What it tells then has to do with what it gave the table."""

    def load_table(self, identifier: Any) -> Table:
        if "gave" in self.properties:
            raise ServerError(f"{self.properties['gave']} has ended")
        self.properties["gave"] = "fifth-secret"
        table = super().load_table(identifier)
        table.io.properties = {**table.io.properties, "s3.session-token": "fifth-secret"}
        return table


class NoCatalog:
    """Something else, which takes the same."""

    def __init__(self, name: str, **properties: str) -> None:
        self.given = (name, properties)
