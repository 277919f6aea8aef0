"""When a request to S3 that failed is sent again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError

TRANSPORT_ERRORS: Final = (BotoCoreError, ClientError, aiohttp.ClientError, OSError)

_TRIES: Final = 5
_FIRST_WAIT_S: Final = 0.1
# A service that says that it has too many requests gets fewer: it makes room within a minute or so.
_THROTTLED_TRIES: Final = 9
_FIRST_THROTTLED_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 20.0
_LONGEST_RETRY_AFTER_S: Final = 60
_NEVER_TRANSIENT: Final = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "SigningRefused"}
)
# Of single keys in the answer to a batch, which is a success as a whole.
TRANSIENT_CODES: Final = frozenset({"InternalError", "OperationAborted", "ServiceUnavailable", "SlowDown"})
_THROTTLES: Final = frozenset({429, 503})
# 409: another conditional request for the key is under way, and this one wrote nothing.
_TRANSIENT: Final = frozenset({408, 409, 429})


def status_of(error: BaseException | None) -> int | None:
    """The HTTP status of a response, or None when there was none."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    return None


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed, or have succeeded, without anything being changed here."""
    status = status_of(error)
    if status is None:
        return not isinstance(error, ClientError) and type(error).__name__ not in _NEVER_TRANSIENT
    return (status >= 500 and status != 501) or status in _TRANSIENT  # 501: the service cannot do that


def next_wait_s(error: Exception, tries: int, *, share: float) -> float | None:
    """How long to wait before a failed request is sent again, or None: not again.

    What `Retry-After` asks for comes on top of the back-off; who asks for more than a minute is not waited for.

    Args:
        error: of the last try.
        tries: that were made, at least 1.
        share: at random, from 0 to 1.
    """
    retry_after_s = _retry_after_s(error)
    wait_s = backoff_s(tries, throttled=status_of(error) in _THROTTLES, share=share)
    if wait_s is None or retry_after_s > _LONGEST_RETRY_AFTER_S or not is_transient(error):
        return None
    return retry_after_s + wait_s


def backoff_s(tries: int, *, throttled: bool, share: float) -> float | None:
    """How long to wait after so many tries, or None: long enough.

    Waits double, and each is cut by up to half of it at random, so that requests which failed together do not come
    back together.

    Args:
        tries: that were made, at least 1.
        throttled: whether the service says that it has too many requests.
        share: at random, from 0 to 1.
    """
    if tries >= (_THROTTLED_TRIES if throttled else _TRIES):
        return None
    first_s = _FIRST_THROTTLED_WAIT_S if throttled else _FIRST_WAIT_S
    longest_s: float = min(first_s * 2.0 ** (tries - 1), _LONGEST_WAIT_S)
    return longest_s * (1 - share / 2)


def _retry_after_s(error: Exception) -> int:
    """The seconds that the answer asks for; 0 where it names none, or a date."""
    if not isinstance(error, ClientError):
        return 0
    headers: Mapping[str, str] = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    text = headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() else 0
