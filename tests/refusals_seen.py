"""What refuses in a run of tests, and in which test: written to a folder for `.ci/refusals.py`.

Seen is what happens in the process of the tests: where a `Refused` is made, and the texts of those and of what blocks
plans.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.errors import IcebergCliError, Refused
from iceberg_cli.plan.plan import Plan
from tests.paths import ROOT

FOLDER = "REFUSALS_SEEN"  # the variable of the environment that names the folder
_PACKAGE = f"{ROOT}{os.sep}iceberg_cli{os.sep}"


@dataclass(kw_only=True, eq=False)
class RefusalsSeen:
    """A plugin of pytest that notes refusals, the first test for each.

    Args:
        folder: where it writes what it saw.
    """

    folder: Path
    test: str = ""
    raised: dict[str, str] = field(default_factory=dict)  # by "path:line"
    texts: dict[str, str] = field(default_factory=dict)

    def pytest_sessionstart(self) -> None:
        _after(IcebergCliError, self._note_raised)
        _after(Plan, self._note_blocked)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.test = item.nodeid.partition("@")[0]

    def pytest_sessionfinish(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        document = {"raised": self.raised, "texts": self.texts}
        (self.folder / f"{uuid.uuid4()}.json").write_text(json.dumps(document))

    def _note_raised(self, made: Any) -> None:
        if not isinstance(made, Refused):
            return
        self.texts.setdefault(made.message, self.test)
        depth = 2
        while (frame := sys._getframe(depth)).f_code.co_name == "__init__":
            depth += 1
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE):
            self.raised.setdefault(f"{os.path.relpath(name, ROOT)}:{frame.f_lineno}", self.test)

    def _note_blocked(self, made: Any) -> None:
        for text in made.blocked_by:
            self.texts.setdefault(text, self.test)


def _after(kind: type, note: Callable[[Any], None]) -> None:
    """Have each new object of a class noted."""
    made = kind.__init__

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:  # noqa: N807 - it is what it is called
        made(self, *arguments, **named)
        note(self)

    kind.__init__ = __init__  # type: ignore[misc]
