"""Credentials of a table's storage that a REST catalog gives for a while, asked for anew before they end.

Spec: Iceberg REST catalog specification, `loadTable`, `loadCredentials`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iceberg_cli.iceberg.catalogs.rest.client import ConnectedTable
from iceberg_cli.storage.credential_options import with_options


@dataclass(kw_only=True)
class CredentialsRenewal(ConnectedTable):
    """Asks a catalog for new credentials of one table's paths.

    Args:
        prefix: of the paths; empty for those without credentials of their own.
        options: that come before what the catalog gives.
    """

    prefix: str
    options: Mapping[str, str] = field(repr=False)

    def __call__(self) -> Mapping[str, str]:
        """The options of the storage with new credentials.

        Raises:
            AccessDenied, BackendUnavailable, TableNotFound.
        """
        client = self.connected()
        options = client.storage_options()
        if not self.prefix:
            given = client.load().options
        else:
            fitting = {
                prefix: each
                for prefix, each in client.credentials().items()
                if self.prefix.startswith(prefix)
            }
            given = fitting[max(fitting, key=len)] if fitting else {}
        return with_options(with_options(options, given), self.options)
