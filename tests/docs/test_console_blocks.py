"""Every console block of README.md and `docs/` is what the program shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import MADE_WITH, command_lines, made_anew, pages_with, same
from tests.golden.comparing import record_versions


@pytest.mark.parametrize("page", pages_with("console"), ids=lambda path: path.stem)
def test_console_blocks_show_what_the_commands_do(page: Path, request: pytest.FixtureRequest) -> None:
    today = made_anew(page)
    if request.config.getoption("--regenerate"):
        page.write_text(today, encoding="utf-8")
        record_versions(MADE_WITH)
        return
    text = page.read_text(encoding="utf-8")
    if not same(text, today):
        assert text.splitlines() == today.splitlines(), f"{page.name}: `pytest tests/docs --regenerate`"


def test_a_line_that_ends_with_a_backslash_goes_on() -> None:
    assert list(command_lines("$ a \\\n    b\nout\n$ echo $?\n3\n")) == ["a \\\n    b", "echo $?"]
