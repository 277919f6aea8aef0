"""A process that runs tests gives back what they need no more.

Servers that run in it, and what they were sent, are in circles, which a collection of all objects rarely reached;
Arrow's own allocator keeps most of what threads of its had once allocated; each client of S3 that fsspec keeps has a
description of the service of its own; and pytest keeps a report of each phase of each test, with what was printed, and
the tests that are for another run, beside the process that shows them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

_STATM: Final = Path("/proc/self/statm")
_GROWTH_BYTES: Final = 64 << 20  # a look through all objects takes a tenth of a second


class WorkerMemory:
    """Collects garbage when the process has grown, and never looks through what the collected tests are."""

    _after_bytes = 0  # what was resident after the last collection

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_configure(self) -> None:
        """Programs that tests start have the allocator that users have."""
        pa.set_memory_pool(pa.system_memory_pool())

    def pytest_collection_finish(self) -> None:
        """Ten thousand tests stay until the end."""
        self._give_back()
        gc.freeze()

    def pytest_runtest_logfinish(self) -> None:
        """Called after each test."""
        if _resident_bytes() - self._after_bytes > _GROWTH_BYTES:
            self._give_back()

    def _give_back(self) -> None:
        if hasattr(self._config, "workerinput"):  # what a worker starts inherits its variables
            self._config.pluginmanager.get_plugin("terminalreporter").stats.clear()
        if s3fs := sys.modules.get("s3fs"):
            s3fs.S3FileSystem.clear_instance_cache()
        gc.collect()
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        self._after_bytes = _resident_bytes()


def _resident_bytes() -> int:
    """Of this process; 0 where the system does not say."""
    if not _STATM.exists():
        return 0
    return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
