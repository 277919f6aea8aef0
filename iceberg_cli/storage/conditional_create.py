"""Conditional creates in S3 services, `PUT` with `If-None-Match: *`: services that keep them, and a probe of others.

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
from iceberg_cli.storage import Storage

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
# Each with the page that says so.
KNOWN_HOSTS: Final = {
    "Amazon S3": (
        "https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html",
        re.compile(_AWS, re.VERBOSE),
    ),
    "Cloudflare R2": (
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
class S3Service:
    """The S3 service that a folder is in.

    Args:
        name: its endpoint's URL, without user and password; the bucket's where the storage tells no endpoint.
        is_known: whether it is known to keep conditional creates.
    """

    name: str
    is_known: bool


def service_of(folder: str, storage: Storage) -> S3Service | None:
    """The S3 service that a folder is in, or None where it is in none.

    Args:
        folder: in canonical spelling.
        storage: of the folder.
    """
    if not folder.startswith("s3://"):
        return None
    bucket = folder.partition("://")[2].partition("/")[0]
    endpoint = storage.endpoint(folder) if isinstance(storage, EndpointStorage) else None
    if endpoint is None:
        return S3Service(name=f"s3://{bucket}", is_known=False)
    parts = urlsplit(endpoint)
    return S3Service(
        name=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}",
        is_known=is_known(parts.hostname or "") and not bucket.endswith(_OTHER_SERVICES),
    )


def is_known(host: str) -> bool:
    """Whether a host is that of a service which documents that it keeps conditional creates."""
    return any(pattern.fullmatch(host.lower()) for _, pattern in KNOWN_HOSTS.values())


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
        storage.delete([path])  # one that cannot be deleted goes with the journal in whose folder it is
    if not is_kept:
        raise Refused(
            f"Cannot commit in {service}: it does not keep conditional creates: a second PUT of one key with "
            "If-None-Match: * was not refused, so that a commit could replace another writer's",
            next_step="Keep the table in a service that does, or commit through a catalog. No option overrides this.",
        )
