"""How much of this machine a process may use, also in a container that has less than the machine."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

# Of the groups of processes that Linux bounds, in version 2 and version 1; a number of bytes, or "max".
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


_MOST_FOR_ROWS: Final = 2 << 30
_SHARE_FOR_ROWS: Final = 4
_KEPT_BYTES: Final = 24 << 20


def rows_by_default() -> int:
    """The bytes that rows which are rewritten may take together, where nobody says how many."""
    return min(_MOST_FOR_ROWS, memory_bytes() // _SHARE_FOR_ROWS)


def processors() -> int:
    """The processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what is freed in this process for what is asked for next.

    It returns freed memory to the system at once, only to ask for it again for the next batch, and the system clears
    each page anew. It stops doing so once a block of this size was freed; the block itself is never touched.
    """
    bytearray(_KEPT_BYTES)


def memory_bytes() -> int:
    """The memory of the machine, or of the container where that has less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text.isdecimal():
            found.append(int(text))
    return min(found)
