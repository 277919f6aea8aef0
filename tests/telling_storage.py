"""An S3 service whose failures tell what it was sent, and one that keeps objects besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from xml.sax.saxutils import escape

from tests.storage.test_s3_requests import Answer, Recorder, Request, usual

StorageFailure = Callable[[str], Answer]
"""An answer that tells a text."""


def in_xml(status: int, code: str) -> StorageFailure:
    return lambda told: (
        status,
        {},
        f"<Error><Code>{code}</Code><Message>why: {escape(told)}</Message></Error>".encode(),
    )


def no_xml(told: str) -> Answer:
    return 200, {}, f"<ListBucketResult>{told}".encode()


STORAGE_FAILURES: Final = (
    in_xml(400, "ExpiredToken"), in_xml(403, "AccessDenied"), in_xml(403, "SignatureDoesNotMatch"),
    in_xml(404, "NoSuchBucket"), in_xml(500, "InternalError"), in_xml(503, "SlowDown"), no_xml,
)  # fmt: skip


def fail(
    storage: Recorder,
    failing: Callable[[Request], bool],
    failure: StorageFailure,
    *,
    otherwise: Callable[[Request], Answer] = usual,
    also: Callable[[], list[str]] = list,
) -> None:
    """Let the storage answer with the headers and the address of the requests that it was sent.

    Args:
        storage: to which requests go.
        failing: whether a request fails.
        failure: how.
        otherwise: what is answered to one that does not.
        also: what is told besides.
    """

    def answer(request: Request) -> Answer:
        storage.answers.append(answer)
        if not failing(request):
            return otherwise(request)
        return failure(" ".join([request.path, *request.headers.values(), *also()]))

    storage.answers[:] = [answer]


def is_listing(request: Request) -> bool:
    return request.method == "GET"


def is_deletion(request: Request) -> bool:
    return request.method in ("POST", "DELETE")


def is_later_deletion(request: Request) -> bool:
    """Of the files, and not of the names by which the right to delete is found out."""
    return is_deletion(request) and b"-probe" not in request.body
