"""Requests to S3 that another service signs: they are made as if unsigned, and get their signature just before."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import aiobotocore.session
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError

from iceberg_cli.errors import AccessDenied, IcebergCliError, TableNotFound
from iceberg_cli.storage import RequestToSign, Signer
from iceberg_cli.storage.s3.session import new_session

_THREADS: Final = 32  # of the signer, which waits for its answers


class SigningRefused(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """The signer does not sign this request; nothing was sent to S3."""

    fmt = "{reason}"


class SigningUnavailable(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """The signer gave no answer, or none that can be used; nothing was sent to S3."""

    fmt = "{reason}"


def session_of(signer: Signer) -> aiobotocore.session.AioSession:
    """A session whose clients have every request to S3 signed by `signer`; they must be told not to sign themselves."""
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="signing")

    async def sign(request: AWSRequest, **_: object) -> None:
        try:
            signed = await asyncio.get_running_loop().run_in_executor(pool, signer, _to_sign(request))
        except (AccessDenied, TableNotFound) as error:
            raise SigningRefused(reason=error.message) from error
        except IcebergCliError as error:
            raise SigningUnavailable(reason=error.message) from error
        if not _is_same(request.url, signed.url):
            raise SigningUnavailable(reason="the catalog signed another request than this one")
        request.url = signed.url
        for name, value in signed.headers.items():
            # What the request means was decided here: no answer changes a condition or a range.
            if name not in request.headers:
                request.headers[name] = value

    session = new_session()
    session.register("before-sign.s3", sign)
    return session


def _to_sign(request: AWSRequest) -> RequestToSign:
    is_bulk_deletion = request.method == "POST" and "?delete" in request.url
    return RequestToSign(
        method=request.method,
        url=request.url,
        region=str(request.context["client_region"]),
        headers={name: _text(value) for name, value in request.headers.items()},
        # The keys are nowhere else.
        body=_text(request.data) if is_bulk_deletion else None,
    )


def _is_same(url: str, signed: str) -> bool:
    """Whether a signed URL is about the same object: a deletion must not reach another one."""
    before, after = urlsplit(url), urlsplit(signed)
    parameters = parse_qsl(before.query, keep_blank_values=True)
    return unquote(before.path) == unquote(after.path) and not set(parameters) - set(
        parse_qsl(after.query, keep_blank_values=True)
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
