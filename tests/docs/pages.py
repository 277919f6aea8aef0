"""README.md and the pages of `docs/`: their blocks of code, and what comes of those that are commands.

A `console` block has command lines, each after `$ `, and what a terminal of 80 columns shows of each. Those of one page
are carried out in their order, on tables in a folder that nobody else uses meanwhile, with a fixed clock and fixed ids.
Whatever was in that folder before is removed: it is one of `iceberg-cli demo`.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.printed import plain, run_on_a_terminal
from tests.cli.running import Ran
from tests.golden.commands import alone, fixed, settle_times
from tests.golden.comparing import as_made, marked
from tests.paths import ROOT

FOLDER = Path("/tmp/iceberg-cli-demo")
PAGES = ROOT / "docs" / "pages"
PICTURES = PAGES / "pictures"
MADE_WITH = Path(__file__).parent / "made_with.json"
WIDTH = 80

_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, and where that begins and ends in the page."""

    language: str
    text: str
    start: int
    end: int


def written_pages() -> list[Path]:
    """README.md and every page that a person wrote."""
    return [ROOT / "README.md", *sorted(PAGES.glob("*.md"))]


def blocks(page: str, language: str) -> list[Block]:
    """The blocks of a language in a page's text."""
    found = (Block(match[1], match[2], *match.span(2)) for match in _BLOCK.finditer(page))
    return [block for block in found if block.language == language]


def pages_with(language: str) -> list[Path]:
    """The pages that have blocks of a language."""
    return [path for path in written_pages() if blocks(path.read_text(encoding="utf-8"), language)]


def command_lines(block: str) -> Iterator[str]:
    """The command lines of a `console` block, with those that a backslash goes on with."""
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            yield command


@contextmanager
def prepared() -> Iterator[None]:
    """The folder in which pages make their tables by `iceberg-cli demo`: not there yet."""
    with alone(FOLDER), fixed(FOLDER), pytest.MonkeyPatch.context() as patched:
        shutil.rmtree(FOLDER, ignore_errors=True)
        patched.chdir(FOLDER.parent)
        yield


def shown(command: str, earlier: int, run: Callable[..., Ran]) -> Ran:
    """Carry one command line out.

    Args:
        command: of the program, or of the shell; `echo $?` after one that does not end with 0.
        earlier: the exit code of the command before.
        run: runs the program.
    """
    if command == "echo $?":
        return Ran(0, f"{earlier}\n", "")
    assert earlier == 0, f"`$ echo $?` has to follow what ends with {earlier}; not: {command}"
    words = shlex.split(command.replace("\\\n", " "))
    variables = list(itertools.takewhile(re.compile(r"[A-Z_]+=").match, words))
    if words[len(variables)] == "iceberg-cli":
        with pytest.MonkeyPatch.context() as patched:
            for name, _, value in (word.partition("=") for word in variables):
                patched.setenv(name, value)
            ran = run(*words[len(variables) + 1 :])
        settle_times(FOLDER)
        return ran
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    if words[-2:-1] == ["cd"] and done.returncode == 0:
        os.chdir(words[-1])
    return Ran(done.returncode, done.stdout, done.stderr)


def run_plain(*words: str) -> Ran:
    """The program on a terminal as wide as the pages are, without colours."""
    ran = run_on_a_terminal(WIDTH, *words)
    return Ran(ran.code, plain(ran.out), plain(ran.err))


def made_anew(path: Path, run: Callable[..., Ran] = run_plain) -> str:
    """The text of a page with what its commands show today."""
    text = path.read_text(encoding="utf-8")
    parts, end, code = [], 0, 0
    with prepared():
        for block in blocks(text, "console"):
            entries = []
            for command in command_lines(block.text):
                ran = shown(command, code, run)
                code = ran.code
                entries.append(f"$ {command}\n{(ran.out + ran.err).rstrip()}".rstrip() + "\n")
            parts += [text[end : block.start], "\n".join(entries)]
            end = block.end
    assert code == 0, f"{path.name} ends with exit code {code}, and does not show it"
    return "".join(parts) + text[end:]


def same(text: str, today: str) -> bool:
    """Whether a text is today's, but for what other versions of the libraries change."""
    return text == today if as_made(MADE_WITH) else marked(text) == marked(today)
