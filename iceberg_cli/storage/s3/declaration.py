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
DECLARATION: Final = StorageDeclaration(
    title="S3",
    schemes=("s3",),
    spellings=("s3",),
    adapter=("iceberg_cli.storage.s3.objects", "S3Storage"),
    options="iceberg_cli.storage.s3.options",
    requirements=(("s3fs", "s3fs>=2025.3"),),
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
