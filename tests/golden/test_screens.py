"""Screens are what they were: every command on terminals of four widths."""

from __future__ import annotations

import pytest

from tests.golden.comparing import Hold
from tests.golden.screens import NUMBERS, SCREENS, SESSIONS, screen_of, session


@pytest.mark.parametrize("name", SESSIONS)
def test_a_command_looks_as_it_did(name: str, hold: Hold) -> None:
    hold(f"screens/{name}.txt", session(name))


@pytest.mark.parametrize("kind", SCREENS)
def test_so_many_rows_look_as_they_did(kind: str, hold: Hold) -> None:
    hold(
        f"screens/of-{kind}.txt",
        "\n".join(f"########## {number:,} rows\n{screen_of(kind, number)}" for number in NUMBERS),
    )
