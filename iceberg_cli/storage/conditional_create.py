"""Conditional creates in object stores: services that are known to keep them, and a probe of others.

On S3 and Azure they are a `PUT` with `If-None-Match: *`, on Google Cloud Storage an upload with `ifGenerationMatch=0`.

Kept means: of many such requests for one key at once, one creates the object and all others are refused. A test in
order cannot show that. Services that check and then write pass it, and let two racing writers through.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable
from urllib.parse import urlsplit

from iceberg_cli.errors import BackendUnavailable, Refused
from iceberg_cli.paths import scheme_of
from iceberg_cli.storage import Storage

READ_ONLY: Final = (
    "nothing is written there from here, since pyarrow, by which it is read, cannot create a file without replacing "
    "another writer's"
)

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
_AZURE: Final = r"""
    [a-z0-9-]+(?:\.z[0-9]+)?\.(?:privatelink\.)?(?:blob|dfs)
    \.(?:core\.(?:windows\.net | chinacloudapi\.cn | usgovcloudapi\.net) | storage\.azure\.net)
"""
_GOOGLE: Final = r"""
    (?:www | storage(?:\.mtls)? | storage-[a-z0-9-]+\.p)\.googleapis\.com
    | storage\.[a-z]+(?:-[a-z]+)*[0-9]*\.rep\.googleapis\.com
"""
# Each with the scheme of its paths and the page that says so.
KNOWN_HOSTS: Final = {
    "Google Cloud Storage": (
        "gs",
        "https://cloud.google.com/storage/docs/request-preconditions",
        re.compile(_GOOGLE, re.VERBOSE),
    ),
    "Azure Blob Storage": (
        "abfss",
        "https://learn.microsoft.com/en-us/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations",
        re.compile(_AZURE, re.VERBOSE),
    ),
    "Amazon S3": (
        "s3",
        "https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html",
        re.compile(_AWS, re.VERBOSE),
    ),
    "Cloudflare R2": (
        "s3",
        "https://developers.cloudflare.com/r2/api/s3/conditional-operations/",
        re.compile(r"(?:[a-z0-9-]+\.)+r2\.cloudflarestorage\.com"),
    ),
}
# Aliases of access points that lead to S3 on Outposts and to Object Lambda, whatever the endpoint.
_OTHER_SERVICES: Final = ("--op-s3", "--ol-s3")


@runtime_checkable
class EndpointStorage(Protocol):
    """A storage that tells where its requests go."""

    def endpoint(self, path: str) -> str | None:
        """The URL of the service that has the object at `path`; None where the storage does not tell."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectService:
    """The object store that a folder is in.

    Args:
        scheme: of its paths: `s3`, `gs` or `abfss`.
        name: its endpoint's URL, without user and password; the bucket's where the storage tells no endpoint.
        is_known: whether it is known to keep conditional creates.
    """

    scheme: str
    name: str
    is_known: bool


def service_of(folder: str, storage: Storage) -> ObjectService | None:
    """The object store that a folder is in, or None where it is in none, or in one whose adapter tells no endpoint.

    Args:
        folder: in canonical spelling.
        storage: of the folder.
    """
    scheme = scheme_of(folder)
    if scheme not in {each for each, _, _ in KNOWN_HOSTS.values()}:
        return None
    bucket = folder.partition("://")[2].partition("/")[0]
    endpoint = storage.endpoint(folder) if isinstance(storage, EndpointStorage) else None
    if endpoint is None:
        # An adapter of another package answers for the services that it knows; S3's protocol is spoken by many.
        return ObjectService(scheme=scheme, name=f"s3://{bucket}", is_known=False) if scheme == "s3" else None
    parts = urlsplit(endpoint)
    return ObjectService(
        scheme=scheme,
        name=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}",
        is_known=is_known(parts.hostname or "", scheme) and not bucket.endswith(_OTHER_SERVICES),
    )


def is_known(host: str, scheme: str = "s3") -> bool:
    """Whether a host is that of a service which documents that it keeps conditional creates.

    Args:
        host: in any case.
        scheme: of the service's paths.
    """
    return any(
        of == scheme and pattern.fullmatch(host.lower()) is not None
        for of, _, pattern in KNOWN_HOSTS.values()
    )


def unwritable_reason(folder: str) -> str | None:
    """Why nothing can be created in a folder on condition that it is not there; None where it can.

    Args:
        folder: in canonical spelling.
    """
    return f"{folder} is in HDFS: {READ_ONLY}" if scheme_of(folder) in ("hdfs", "viewfs") else None


def probe(storage: Storage, path: str, *, service: str) -> None:
    """Create an object twice, and refuse a service that does not refuse the second time. A success proves nothing.

    Args:
        storage: of the object.
        path: where nothing is yet; nothing is there afterwards.
        service: its name, for the error.

    Raises:
        Refused: the second create was carried out, or changed the object. BackendUnavailable.
    """
    first, second = b"first", b"second"
    with suppress(FileExistsError):  # our own, where the answer to it got lost
        storage.put_if_absent(path, first)
    try:
        try:
            storage.put_if_absent(path, second)
        except FileExistsError:
            is_kept = storage.read(path) == first
        else:
            is_kept = False
    except FileNotFoundError as error:
        raise BackendUnavailable(f"Cannot read {path}: it was written, and is gone") from error
    finally:
        storage.erase([path])  # one that cannot be deleted goes with the journal in whose folder it is
    if not is_kept:
        raise Refused(
            f"Cannot commit in {service}: it does not keep conditional creates: a second one of the same key was "
            "not refused, so that a commit could replace another writer's",
            next_step="Keep the table in a service that does, or commit through a catalog. No option overrides this.",
        )
