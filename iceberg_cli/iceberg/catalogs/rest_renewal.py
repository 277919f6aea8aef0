"""Credentials of a table's storage that a REST catalog gives for a while, asked for anew before they end.

Spec: Iceberg REST catalog specification, `loadTable`, `loadCredentials`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_cli.iceberg.catalogs.rest_client import RestClient


@dataclass(kw_only=True)
class CredentialsRenewal:
    """Asks a catalog for new credentials of one table's storage, in this process or in workers to which it is sent.

    What is sent has the catalog's configuration in it, secrets included.

    Args:
        catalog_name: see `RestClient`.
        namespace: see `RestClient`.
        table: see `RestClient`.
        properties: see `RestClient`.
        location: a file of the table.
        options: that come before what the catalog gives.
    """

    catalog_name: str
    namespace: tuple[str, ...]
    table: str
    properties: Mapping[str, Any] = field(repr=False)
    location: str
    options: Mapping[str, str] = field(repr=False)
    client: RestClient | None = field(default=None, repr=False)

    def __call__(self) -> Mapping[str, str]:
        """The options of the storage with new credentials.

        Raises:
            AccessDenied, BackendUnavailable, TableNotFound.
        """
        if self.client is None:
            self.client = RestClient(self.catalog_name, self.namespace, self.table, self.properties)
        given = self.client.credentials(self.location)
        return {**self.client.storage_options(), **given, **self.options}

    def __getstate__(self) -> dict[str, Any]:
        """The state without the connection, which each process has of its own."""
        return {**self.__dict__, "client": None}
