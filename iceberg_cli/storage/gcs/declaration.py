"""What others must know of Google Cloud Storage."""

from __future__ import annotations

import re
from typing import Final

from iceberg_cli.storage.declarations import KnownService, StorageDeclaration

_HOSTS: Final = r"""
    (?:www | storage(?:\.mtls)? | storage-[a-z0-9-]+\.p)\.googleapis\.com
    | storage\.[a-z]+(?:-[a-z]+)*[0-9]*\.rep\.googleapis\.com
"""
_NAMES: Final = tuple(
    f"gcs.{name}" for name in (
        "access", "analytics-core.", "cache-timeout", "channel.", "client-lib-token", "consistency", "decryption-key",
        "default-bucket-location", "delete.batch-size", "encryption-key", "endpoint", "impersonate.", "no-auth",
        "oauth2.refresh-credentials-enabled", "oauth2.refresh-credentials-endpoint", "oauth2.token",
        "oauth2.token-expires-at", "project-id", "requester-pays", "service.host", "session-kwargs", "user-project",
        "version-aware",
    )
)  # fmt: skip
DECLARATION: Final = StorageDeclaration(
    title="Google Cloud Storage",
    schemes=("gs",),
    spellings=("gs",),
    adapter=("iceberg_cli.storage.gcs.objects", "GcsStorage"),
    options="iceberg_cli.storage.gcs.options",
    option_names=_NAMES,
    extra="gcs",
    workers_need=frozenset({"gcsfs"}),
    signed_parameters=("upload_id",),
    services=(
        KnownService(
            name="Google Cloud Storage",
            source="https://cloud.google.com/storage/docs/request-preconditions",
            hosts=re.compile(_HOSTS, re.VERBOSE),
        ),
    ),
)
