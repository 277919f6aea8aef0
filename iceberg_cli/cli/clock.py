"""The clock of the command line."""

from __future__ import annotations

import time


def now_ms() -> int:
    """The time by the system's clock, in ms since the epoch."""
    return time.time_ns() // 1_000_000  # noqa: TID251 - the one clock
