"""The version that a word of the command line names. Nothing is read here."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import time_ms

TO: Final = "--to"
_VERSION: Final = re.compile(r"[0-9]{1,10}")
_LISTED: Final = "`inspect TABLE history` lists its versions"


class Target(NamedTuple):
    """A version as it was named: by its number, or by a time."""

    version: int | None = None
    at_ms: int | None = None


def target_of(text: str, *, newest: int, now_ms: int) -> Target:
    """What a word names: a version by its number, or a time.

    Args:
        text: the word.
        newest: the newest version of the table.
        now_ms: the time from which durations count back, in ms since the epoch.

    Raises:
        UsageError: it names none.
    """
    if _VERSION.fullmatch(text):
        version = int(text)
        if version > newest:
            raise UsageError(
                f"{TO}: the table has no version {version}: its newest one is {newest}",
                next_step=f"{_LISTED}.",
            )
        return Target(version=version)
    try:
        return Target(at_ms=time_ms(text, TO, now_ms=now_ms))
    except UsageError as error:
        if "future" in error.message:
            raise
        raise UsageError(
            f"{TO}: {text!r} is no version or time of this table: its newest version is {newest}",
            next_step=f"{_LISTED}; a time is ISO 8601 with a zone, epoch milliseconds, or a duration ago such as 2h.",
        ) from None
