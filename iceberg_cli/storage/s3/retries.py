"""What failures of requests to S3 say, and which may pass; see `backoff` for when they are sent again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError

from iceberg_cli.storage.backoff import is_transient_status, wait_s_after

TRANSPORT_ERRORS: Final = (BotoCoreError, ClientError, aiohttp.ClientError, OSError)

_NEVER_TRANSIENT: Final = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "SigningRefused"}
)
# Of single keys in the answer to a batch, which is a success as a whole.
TRANSIENT_CODES: Final = frozenset({"InternalError", "OperationAborted", "ServiceUnavailable", "SlowDown"})


def status_of(error: BaseException | None) -> int | None:
    """The HTTP status of a response, or None when there was none."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    return None


def code_of(error: Exception) -> str | None:
    """S3's own word for an error, where the response had one."""
    return error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else None


def reason_of(error: Exception) -> str:
    """An error in words."""
    if isinstance(error, ClientError):
        return words_of({"Code": status_of(error), **error.response.get("Error", {})})
    return str(error) or type(error).__name__


def words_of(details: Mapping[str, Any]) -> str:
    """What an answer says of an error: its code and its message."""
    return f"{details.get('Code', 'error')}: {details.get('Message', '')}".strip(": ")


def may_have_ended(error: ClientError) -> bool:
    """Whether the service refuses the credentials, perhaps because they have ended."""
    ended = {"ExpiredToken", "ExpiredTokenException", "InvalidToken"}
    return status_of(error) in (401, 403) or code_of(error) in ended


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed, or have succeeded, without anything being changed here."""
    status = status_of(error)
    if status is None:
        return not isinstance(error, ClientError) and type(error).__name__ not in _NEVER_TRANSIENT
    return is_transient_status(status)


def next_wait_s(error: Exception, tries: int, *, share: float) -> float | None:
    """How long to wait before a failed request is sent again, or None: not again.

    Args:
        error: of the last try.
        tries: that were made, at least 1.
        share: at random, from 0 to 1.
    """
    if not is_transient(error):
        return None
    return wait_s_after(status_of(error), _retry_after(error), tries, share=share)


def _retry_after(error: Exception) -> str:
    if not isinstance(error, ClientError):
        return ""
    headers: Mapping[str, str] = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers.get("retry-after", "")
