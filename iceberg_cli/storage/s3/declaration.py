"""What others must know of S3."""

from __future__ import annotations

import re
from typing import Final

from iceberg_cli.storage.declarations import KnownService, StorageDeclaration

_REGION: Final = r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]+"
# A bucket, an access point or a VPC endpoint may stand before these names. Other hosts under amazonaws.com, such as
# those of virtual machines and load balancers, are whatever their owners run there.
_AWS: Final = rf"""
    (?:[a-z0-9.-]+\.)?
    (?:
        s3 | s3-external-1 | s3(?:-fips)?-{_REGION}
        | s3-accelerate(?:\.dualstack)?
        | accesspoint\.s3-global
        | s3(?:-accesspoint)?(?:-fips)?(?:\.dualstack)?\.{_REGION}(?:\.vpce)?
        | s3express(?:-fips)?-[a-z0-9]+-az[0-9]+(?:\.dualstack)?\.{_REGION}
    )
    \.amazonaws\.com(?:\.cn)?
"""
_NAMES: Final = (
    # As s3fs has them.
    "anon", "endpoint_url", "key", "region", "requester_pays", "secret", "token",
    "client.access-key-id", "client.assume-role.", "client.credentials-provider", "client.credentials-provider.",
    "client.factory", "client.profile-name", "client.refresh-credentials-enabled",
    "client.refresh-credentials-endpoint", "client.region", "client.role-arn", "client.role-session-name",
    "client.secret-access-key", "client.session-token", "http-client.",
    *(
        f"s3.{name}" for name in (
            "acceleration-enabled", "access-grants.", "access-key-id", "access-points.", "acl",
            "analytics-accelerator.", "anonymous", "checksum-enabled", "chunked-encoding-enabled",
            "client-factory-impl", "connect-timeout", "cross-region-access-enabled", "crt.", "delete-enabled",
            "delete.batch-size", "delete.num-threads", "delete.tags.", "directory-bucket.", "dualstack-enabled",
            "endpoint", "expected-bucket-owner", "force-virtual-addressing", "multipart.", "path-style-access",
            "preload-client-enabled", "profile-name", "proxy-uri", "region", "remote-signing-enabled",
            "request-timeout", "requester-pays", "resolve-region", "retry-strategy-impl", "retry.", "role-arn",
            "role-session-name", "secret-access-key", "server-side-encryption", "session-token",
            "session-token-expires-at-ms", "signer", "signer.", "sse-kms-key-id", "sse.key", "sse.md5", "sse.type",
            "staging-dir", "use-arn-region-enabled", "write.namespace-tag-enabled", "write.storage-class",
            "write.table-tag-enabled", "write.tags.",
        )
    ),
)  # fmt: skip
DECLARATION: Final = StorageDeclaration(
    title="S3",
    schemes=("s3",),
    spellings=("s3",),
    adapter=("iceberg_cli.storage.s3.objects", "S3Storage"),
    options="iceberg_cli.storage.s3.options",
    option_names=_NAMES,
    extra="s3",
    workers_need=frozenset({"s3fs"}),
    secret_words=("access-key",),
    signed_parameters=(r"x-amz-[\w-]+", "AWSAccessKeyId"),
    has_one_spelling=True,
    takes_signer=True,
    services=(
        KnownService(
            name="Amazon S3",
            source="https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html",
            hosts=re.compile(_AWS, re.VERBOSE),
        ),
        KnownService(
            name="Cloudflare R2",
            source="https://developers.cloudflare.com/r2/api/s3/conditional-operations/",
            hosts=re.compile(r"(?:[a-z0-9-]+\.)+r2\.cloudflarestorage\.com"),
        ),
    ),
    is_spoken_by_others=True,
    # Aliases of access points that lead to S3 on Outposts and to Object Lambda.
    other_services=("--op-s3", "--ol-s3"),
)
