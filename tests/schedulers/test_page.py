"""The pages of the examples show all of them, and say what they do about exit codes."""

from __future__ import annotations

import re

from iceberg_cli.cli.app import EXIT_CODES
from tests.paths import ROOT
from tests.schedulers.machine import EXAMPLES, FOR_PEOPLE, RETRIED

PAGE = (ROOT / "docs" / "pages" / "schedulers.md").read_text(encoding="utf-8")
WATCHING = (ROOT / "docs" / "pages" / "watching.md").read_text(encoding="utf-8")
LINKED_ONLY = {"iceberg-cli-dashboard.json"}  # too long for a page


def test_pages_show_every_example_from_its_file_and_link_to_it() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    shown = [re.findall(r'^--8<-- "(\S+)"$', page, re.MULTILINE) for page in (PAGE, WATCHING)]
    linked = [re.findall(r"\]\(examples/([^\s)]+)\)", page) for page in (PAGE, WATCHING)]
    assert sorted(shown[0] + shown[1]) == sorted(files - LINKED_ONLY)
    assert {*linked[0]} == {*shown[0]}
    assert {*linked[1]} == {*shown[1]} | LINKED_ONLY


def test_table_of_exit_codes_is_what_the_examples_do() -> None:
    stated = re.findall(r"^\| ([\d, ]+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    done = {int(code): does for codes, does in stated for code in codes.split(",")}
    assert {code for code, does in done.items() if does.startswith("the same command again")} == RETRIED
    assert {
        code for code, does in done.items() if does.startswith(("stop", "the same"))
    } - RETRIED == FOR_PEOPLE
    assert set(done) == set(EXIT_CODES) - {3, 4}, "3 comes with --exit-code, 4 from somebody who was asked"


def test_order_of_exit_codes_is_that_of_the_program() -> None:
    from iceberg_cli.errors import WORST_FIRST

    [order] = re.findall(r"in the order ([\d, ]+);", PAGE)
    assert [int(code) for code in order.split(",")] == [*WORST_FIRST, 0]
