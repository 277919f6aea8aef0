"""Chromium as the system has it, driven over its DevTools, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str:
    """Where it is; without it the test is skipped, but fails where `CI` is set."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        if os.environ.get("CI", "").lower() not in {"", "0", "false"}:
            pytest.fail("Chromium is not installed")
        pytest.skip("Chromium is not installed")
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window."""
    found = program()
    from playwright.sync_api import sync_playwright

    # In a container there is neither a sandbox for root nor room in /dev/shm.
    options = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=options)
        yield started
        started.close()


@dataclass
class Shown:
    """A page as a browser shows it, and what it had to say.

    Args:
        page: of playwright.
        messages: of its console, its errors, and its dialogs.
        requests: for anything but the page itself.
    """

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        page = self.page
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

        def dialog(shown: Any) -> None:
            self.messages.append(f"dialog: {shown.message}")
            shown.dismiss()

        page.on("dialog", dialog)

    def open(self, file: Path) -> Any:
        """Show a file."""
        self.page.goto(file.as_uri())
        return self.page

    def check(self, file: Path) -> None:
        """Nothing was complained of, and nothing but the file, and the icon in it, was asked for."""
        assert self.messages == []
        assert set(self.requests) <= {file.as_uri(), "data:,"}


def shown(started: Any, **options: Any) -> Shown:
    """A page of a browser; options are those of playwright's `new_page`."""
    return Shown(started.new_page(**{"viewport": {"width": 1280, "height": 900}, **options}))
