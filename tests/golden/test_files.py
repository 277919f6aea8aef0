"""The golden files are those of the tests, no more."""

from __future__ import annotations

import pytest

from tests.cli.command_names import COMMANDS
from tests.golden.commands import SESSIONS, TABLES_OF_OTHERS
from tests.golden.comparing import FOLDER, marked
from tests.golden.journal_cases import JOURNALLED
from tests.golden.screens import SCREENS, WIDTHS
from tests.golden.screens import SESSIONS as SCREEN_SESSIONS


def test_every_golden_file_is_compared_by_a_test() -> None:
    journals = {f"journals/{name}{end}" for name in JOURNALLED for end in (".txt", ".states.txt")}
    others = {f"commands/{name}.txt" for name in SESSIONS}
    screens = (*SCREEN_SESSIONS, *(f"of-{kind}" for kind in SCREENS))
    others |= {f"screens/{width}/{name}.txt" for width in WIDTHS for name in screens}
    others |= {f"help/{name}.txt" for name in ("iceberg-cli", *COMMANDS)}
    others |= {f"fixtures/{table.partition('/')[0]}.txt" for table in TABLES_OF_OTHERS}
    found = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert found == journals | others


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("data files   12   3.4 KiB", "data files     7   921 B"),
        ('{"digest": "' + "a1" * 32 + '"}', '{"digest": "' + "0b" * 32 + '"}'),
    ],
)
def test_sizes_and_digests_are_not_compared_where_libraries_differ(one: str, other: str) -> None:
    assert marked(one) == marked(other)


def test_words_and_their_order_are_compared_where_libraries_differ() -> None:
    assert marked('{"a": 1, "b": 2}') != marked('{"b": 2, "a": 1}')
    assert marked("2 files go") != marked("2 files stay")
