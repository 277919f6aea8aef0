"""When a request to an object store that failed is sent again."""

from __future__ import annotations

from typing import Final

_TRIES: Final = 5
_FIRST_WAIT_S: Final = 0.1
# A service that says that it has too many requests gets fewer: it makes room within a minute or so.
_THROTTLED_TRIES: Final = 9
_FIRST_THROTTLED_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 20.0
_LONGEST_RETRY_AFTER_S: Final = 60
_THROTTLES: Final = frozenset({429, 503})
# 409: another conditional request for the key is under way, and this one wrote nothing.
_TRANSIENT: Final = frozenset({408, 409, 429})


def is_transient_status(status: int) -> bool:
    """Whether the same request may succeed, or have succeeded, without anything being changed here."""
    return (status >= 500 and status != 501) or status in _TRANSIENT  # 501: the service cannot do that


def wait_s_after(status: int | None, retry_after: str, tries: int, *, share: float) -> float | None:
    """How long to wait before a request is sent again whose failure may pass, or None: not again.

    What `Retry-After` asks for comes on top of the back-off; who asks for more than a minute is not waited for.

    Args:
        status: of the answer; None where there was none.
        retry_after: that header of the answer, empty where it has none. A date counts as nothing.
        tries: that were made, at least 1.
        share: at random, from 0 to 1.
    """
    named_s = int(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0
    wait_s = backoff_s(tries, throttled=status in _THROTTLES, share=share)
    if wait_s is None or named_s > _LONGEST_RETRY_AFTER_S:
        return None
    return named_s + wait_s


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
