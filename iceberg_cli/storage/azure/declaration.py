"""What others must know of Azure's storages."""

from __future__ import annotations

import re
from typing import Final

from iceberg_cli.storage.declarations import KnownService, StorageDeclaration

_HOSTS: Final = r"""
    [a-z0-9-]+(?:\.z[0-9]+)?\.(?:privatelink\.)?(?:blob|dfs)
    \.(?:core\.(?:windows\.net | chinacloudapi\.cn | usgovcloudapi\.net) | storage\.azure\.net)
"""
DECLARATION: Final = StorageDeclaration(
    title="Azure",
    schemes=("abfss",),
    spellings=("abfss", "wasbs"),
    adapter=("iceberg_cli.storage.azure.blobs", "AzureStorage"),
    options="iceberg_cli.storage.azure.options",
    requirements=(("azure", "azure-storage-blob>=12.19' 'azure-identity>=1.15"),),
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
