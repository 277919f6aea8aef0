"""Conditional creates in object stores: services that are known to keep them, and a probe of others.

On S3 and Azure they are a `PUT` with `If-None-Match: *`, on Google Cloud Storage an upload with `ifGenerationMatch=0`.

Kept means: of many such requests for one key at once, one creates the object and all others are refused. A test in
order cannot show that. Services that check and then write pass it, and let two racing writers through.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from iceberg_cli.errors import BackendUnavailable, Refused
from iceberg_cli.paths import scheme_of
from iceberg_cli.storage import Storage
from iceberg_cli.storage.declarations import declaration_of


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
        scheme: of its paths.
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
    own = declaration_of(folder)
    if own is None or not own.services:
        return None
    bucket = folder.partition("://")[2].partition("/")[0]
    endpoint = storage.endpoint(folder) if isinstance(storage, EndpointStorage) else None
    scheme = scheme_of(folder)
    if endpoint is None:
        # An adapter of another package answers for the services that it knows.
        if not own.is_spoken_by_others:
            return None
        return ObjectService(scheme=scheme, name=f"{scheme}://{bucket}", is_known=False)
    parts = urlsplit(endpoint)
    return ObjectService(
        scheme=scheme,
        name=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}",
        is_known=is_known(parts.hostname or "", folder) and not bucket.endswith(own.other_services),
    )


def is_known(host: str, folder: str) -> bool:
    """Whether a host is that of a service which documents that it keeps conditional creates.

    Args:
        host: in any case.
        folder: whose scheme says by which protocol.
    """
    own = declaration_of(folder)
    return own is not None and any(service.hosts.fullmatch(host.lower()) for service in own.services)


def unwritable_reason(folder: str) -> str | None:
    """Why nothing can be created in a folder on condition that it is not there; None where it can.

    Args:
        folder: in canonical spelling.
    """
    own = declaration_of(folder)
    if own is None or not own.why_read_only:
        return None
    return f"{folder} is in {own.title}: nothing is written there from here, since {own.why_read_only}"


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
