"""Screens are what they were: every command on terminals of four widths."""

from __future__ import annotations

import pytest

from tests.golden.comparing import Hold
from tests.golden.screens import NUMBERS, SCREENS, SESSIONS, WIDTHS, screen_of, session

pytestmark = pytest.mark.xdist_group("golden")  # two workers would wait for each other: the folder is one


@pytest.mark.pairs
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SESSIONS)
def test_a_command_looks_as_it_did(name: str, width: int, hold: Hold) -> None:
    hold(f"screens/{width}/{name}.txt", session(name, width))


@pytest.mark.pairs
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", SCREENS)
def test_so_many_rows_look_as_they_did(kind: str, width: int, hold: Hold) -> None:
    hold(
        f"screens/{width}/of-{kind}.txt",
        "\n".join(f"########## {number:,} rows\n{screen_of(kind, number, width)}" for number in NUMBERS),
    )
