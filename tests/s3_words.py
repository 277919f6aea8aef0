"""S3 services by what they do with `If-None-Match: *`: one that keeps it under races, and one that ignores it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import open_storage
from tests.s3_front import PassingOn, Request, Response, serving
from tests.servers import S3Server

WORD = "--unsafe-conditional-writes"


@cache
def storage_of(server: S3Server) -> Storage:
    """The storage of a service that runs for the whole session."""
    return open_storage(server.options)


def options_of(server: S3Server) -> list[str]:
    """The options by which a command reaches a service."""
    return [part for item in server.options.items() for part in ("--storage-option", "=".join(item))]


def delta_rs_options_of(server: S3Server) -> dict[str, str]:
    """The options by which delta-rs reaches a service."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": server.options["key"],
        "AWS_SECRET_ACCESS_KEY": server.options["secret"],
        "AWS_REGION": server.options["region"],
    }


class _Unconditional(PassingOn):
    """Passes each request on without its `If-None-Match`; moto looks at no signature.

    Where `has_conditions` is false, requests with that header are answered as services do that have no such thing.
    """

    behind = ""
    has_conditions = True

    def response(self, request: Request) -> Response:
        if not self.has_conditions and "If-None-Match" in self.headers:
            return Response(
                501, [], b"<Error><Code>NotImplemented</Code><Message>If-None-Match</Message></Error>"
            )
        kept = {name: value for name, value in request.headers.items() if name.lower() != "if-none-match"}
        return request._replace(headers=kept).forward(self.behind)


@pytest.fixture(scope="session")
def unconditional(moto_server: S3Server) -> Iterator[S3Server]:
    """A service that carries out every conditional create: moto's bucket, behind a proxy that strips the condition."""
    with _front(moto_server, has_conditions=True) as server:
        yield server


@pytest.fixture(scope="session")
def without_conditions(moto_server: S3Server) -> Iterator[S3Server]:
    """A service that has no conditional creates, and says so."""
    with _front(moto_server, has_conditions=False) as server:
        yield server


@contextmanager
def _front(behind: S3Server, *, has_conditions: bool) -> Iterator[S3Server]:
    with serving(_Unconditional, behind=behind.endpoint, has_conditions=has_conditions) as endpoint:
        yield S3Server(endpoint=endpoint, bucket=behind.bucket)
