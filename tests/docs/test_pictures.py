"""The pictures of README.md show what the program shows, with its colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.printed import plain, run_on_a_terminal
from tests.cli.running import Ran
from tests.docs.pages import FOLDER, MADE_WITH, PICTURES, WIDTH, prepared, same
from tests.golden.comparing import record_versions
from tests.golden.pictures import GROUNDS, draw

COMMANDS = {
    "inspect": f"iceberg-cli inspect {FOLDER}/db/events",
    "plan": f"iceberg-cli expire-snapshots {FOLDER}/db/orders \\\n    --older-than 14d --retain-last 5 --dry-run",
}


def in_colour(command: str) -> Ran:
    """The program on a terminal with colours."""
    return run_on_a_terminal(WIDTH, *command.replace("\\\n", "").split()[1:], color=True)


def drawn() -> dict[str, str]:
    """The pictures by their names: of each command line and what comes of it, on a dark and on a light ground."""
    pictures = {}
    with prepared():
        assert in_colour(f"iceberg-cli demo {FOLDER}").code == 0
        for name, command in COMMANDS.items():
            ran = in_colour(command)
            assert (ran.code, ran.err) == (0, "")
            # A line without a place to break is as long as it is.
            width = max(WIDTH, *map(len, plain(ran.out).splitlines()))
            for ground, theme in GROUNDS.items():
                pictures[f"{name}-{ground}.svg"] = draw(
                    f"$ {command}\n{ran.out}", width=width, title="iceberg-cli", theme=theme
                )
    return pictures


def test_pictures_are_drawn_from_the_output(request: pytest.FixtureRequest) -> None:
    today = drawn()
    if request.config.getoption("--regenerate"):
        for name, picture in today.items():
            (PICTURES / name).write_text(picture, encoding="utf-8")
        record_versions(MADE_WITH)
    assert {path.name for path in PICTURES.iterdir()} == today.keys()
    stale = [name for name, picture in today.items() if not same((PICTURES / name).read_text(), picture)]
    assert stale == [], "`pytest tests/docs --regenerate` draws them anew"


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_picture_fetches_nothing(path: Path) -> None:
    addresses = set(re.findall(r"https?://[^\s\"')]+", path.read_text(encoding="utf-8")))
    assert addresses <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
