"""What others must know of Azure's storages."""

from __future__ import annotations

import re
from typing import Final

from iceberg_cli.storage.declarations import KnownService, StorageDeclaration

_HOSTS: Final = r"""
    [a-z0-9-]+(?:\.z[0-9]+)?\.(?:privatelink\.)?(?:blob|dfs)
    \.(?:core\.(?:windows\.net | chinacloudapi\.cn | usgovcloudapi\.net) | storage\.azure\.net)
"""
_OF_ACCOUNTS: Final = (
    "account-host", "account-key", "account-name", "anon", "auth.shared-key.account.key",
    "auth.shared-key.account.name", "blob-storage-authority", "blob-storage-scheme", "client-id", "client-secret",
    "connection-string", "credential", "dfs-storage-authority", "dfs-storage-scheme", "sas-token",
    "sas-token-expires-at-ms", "tenant-id", "token",
)  # fmt: skip
_NAMES: Final = tuple(
    f"adls.{name}" for name in (
        *_OF_ACCOUNTS, *(f"{name}." for name in _OF_ACCOUNTS),
        "read.block-size-bytes", "refresh-credentials-enabled", "refresh-credentials-endpoint",
        "token-credential-provider", "token-credential-provider.", "write.block-size-bytes",
    )
)  # fmt: skip
DECLARATION: Final = StorageDeclaration(
    title="Azure",
    schemes=("abfss",),
    spellings=("abfss", "wasbs"),
    adapter=("iceberg_cli.storage.azure.blobs", "AzureStorage"),
    options="iceberg_cli.storage.azure.options",
    option_names=_NAMES,
    extra="azure",
    workers_need=frozenset({"azure.storage.blob", "azure.identity"}),
    secret_words=("account-key", "account.key"),
    signed_parameters=("sig", "sv"),
    container_schemes=("abfs", "abfss", "wasb", "wasbs"),
    has_one_spelling=True,
    services=(
        KnownService(
            name="Azure Blob Storage",
            source="https://learn.microsoft.com/en-us/rest/api/storageservices/"
            "specifying-conditional-headers-for-blob-service-operations",
            hosts=re.compile(_HOSTS, re.VERBOSE),
        ),
    ),
)
