"""Which third of the deep tests a run has: `SUITE_NUMBER` chooses it, else the count of commits, else the day.

With FULL_SUITES=1, `-k`, `--record` and where a test is asked for by its id there are no shards: all of them run.
"""

from __future__ import annotations

import os
import subprocess
import time
import zlib
from pathlib import Path
from typing import Final

import pytest

from tests import budget

SHARDS: Final = 3
VARIABLE: Final = "SUITE_NUMBER"
_ROOT: Final = Path(__file__).resolve().parents[1]
_DAY_SECONDS: Final = 86_400


class Shards:
    """A pytest plugin that leaves out the deep tests of other shards, and says which one it runs.

    Args:
        number: of the suite: its remainder is the shard.
        whole: whether all shards run.
    """

    def __init__(self, *, number: int, whole: bool) -> None:
        self._number = number
        self._whole = whole

    @pytest.hookimpl(trylast=True)  # what marks leave out is out then
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._whole:
            return
        others = [item for item in items if _is_deep(item) and shard_of(item) != self._number % SHARDS]
        if others:
            config.hook.pytest_deselected(items=others)
            left_out = set(others)
            items[:] = [item for item in items if item not in left_out]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The README command draws the same samples each time, deep tests others in each run."""
        number = self._number if _is_deep(item) else budget.ALWAYS
        budget.draw_by(number, item.nodeid.partition("@")[0])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        command = f"{VARIABLE}={self._number} .venv/bin/pytest -n 2 --dist loadgroup -m deep"
        if "not deep" not in terminalreporter.config.option.markexpr and not self._whole:
            shard = self._number % SHARDS
            terminalreporter.write_line(
                f"Deep tests of shard {shard} (of 0 to {SHARDS - 1}); again: {command}"
            )


def plugin(config: pytest.Config) -> Shards:
    """For a run. Its workers and what they start have the number in their environment: nobody looks again."""
    number = suite_number()
    by_id = any("::" in argument for argument in config.args)
    whole = budget.FULL or by_id or bool(config.option.keyword) or config.option.record
    return Shards(number=number, whole=whole)


def shard_of(item: pytest.Item) -> int:
    """The shard of a deep test. Those that share a fixture stay together: it is made once."""
    own = item.nodeid.partition("::")[0] if _shares(item) else item.nodeid
    return zlib.crc32(own.partition("@")[0].encode()) % SHARDS


def _shares(item: pytest.Item) -> bool:
    """Whether a test of a module uses what others of it use too."""
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009 - pytest has no public name for it
    wide = {
        definition.argname for found in fixtures for definition in found if definition.scope != "function"
    }
    return bool(wide - {"own_folders", "short_waits", "tmp_path_factory", "request"})


def _is_deep(item: pytest.Item) -> bool:
    return item.get_closest_marker("deep") is not None


def suite_number() -> int:
    """The number of this run; what it starts from now on has the same."""
    return int(os.environ.get(VARIABLE) or os.environ.setdefault(VARIABLE, str(newest_number())))


def newest_number() -> int:
    """The count of commits; in a copy that does not have them all, the day."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(_ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("rev-parse", "--is-shallow-repository") == "false":
            return int(git("rev-list", "--count", "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        pass
    return int(time.time()) // _DAY_SECONDS  # noqa: TID251 - the day, whatever a test does to the clock


if __name__ == "__main__":
    print(suite_number())
