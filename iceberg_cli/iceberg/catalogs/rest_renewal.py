"""Credentials of a table's storage that a REST catalog gives for a while, asked for anew before they end.

Spec: Iceberg REST catalog specification, `loadTable`, `loadCredentials`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_cli.iceberg.catalogs.rest_client import RestClient
from iceberg_cli.storage.s3_options import with_options


@dataclass(kw_only=True)
class CredentialsRenewal:
    """Asks a catalog for new credentials of one table's paths, in this process or in workers to which it is sent.

    What is sent has the catalog's configuration in it, secrets included.

    Args:
        catalog_name: see `RestClient`.
        namespace: see `RestClient`.
        table: see `RestClient`.
        properties: see `RestClient`.
        prefix: of the paths; empty for those without credentials of their own.
        options: that come before what the catalog gives.
    """

    catalog_name: str
    namespace: tuple[str, ...]
    table: str
    properties: Mapping[str, Any] = field(repr=False)
    prefix: str
    options: Mapping[str, str] = field(repr=False)
    client: RestClient | None = field(default=None, repr=False)

    def __call__(self) -> Mapping[str, str]:
        """The options of the storage with new credentials.

        Raises:
            AccessDenied, BackendUnavailable, TableNotFound.
        """
        if self.client is None:
            self.client = RestClient(self.catalog_name, self.namespace, self.table, self.properties)
        options = self.client.storage_options()
        if not self.prefix:
            given = self.client.load().options
        else:
            fitting = {
                prefix: each
                for prefix, each in self.client.credentials().items()
                if self.prefix.startswith(prefix)
            }
            given = fitting[max(fitting, key=len)] if fitting else {}
        return with_options(with_options(options, given), self.options)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the connection, which each process has of its own."""
        return {**self.__dict__, "client": None}
