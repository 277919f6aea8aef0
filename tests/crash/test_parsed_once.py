"""A simulated world tells parsed files apart by all that a result depends on, and gives each caller its own copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from iceberg_cli.engines import Scan, Source
from iceberg_cli.testing.crash.parsed_once import ParsedOnce
from iceberg_cli.testing.crash.world import Script, SimStorage, World, unseen

PARSED: list[str] = []


def parsed(parse: Callable[[Any], Any], data: bytes = b"1", item: Any = "/f") -> Any:
    """What a scan of one file makes of it, in a process of its own."""
    storage = SimStorage(World(files={"/f": data}), Script())
    scan = Scan(lambda _: Source("/f", len(data)), lambda _, read: read, parse, phase="read")
    [found] = ParsedOnce(storage).scan(scan, [item], on_event=unseen)
    return found


def adds(number: int, seen: list[str]) -> Callable[[Any], Any]:
    """A parser that closes over what it adds, and notes that it was called in a list that nobody can compare."""

    def parse(files: Sequence[tuple[Any, bytes | None]]) -> list[int]:
        PARSED.append("")
        return [int(data or b"") + number for _, data in files]

    def parse_and_note(files: Sequence[tuple[Any, bytes | None]]) -> list[int]:
        seen.append("")
        return parse(files)

    return parse_and_note if seen else parse


def plus(number: int, files: Sequence[tuple[Any, bytes | None]]) -> list[int]:
    PARSED.append("")
    return [int(data or b"") + number for _, data in files]


@pytest.mark.parametrize("parser", [lambda number: adds(number, []), lambda number: partial(plus, number)])
def test_equal_contents_are_parsed_once_by_equal_functions(parser: Callable[[int], Any]) -> None:
    PARSED.clear()
    tag = id(parser)  # items that no other test has
    assert [parsed(parser(2), item=tag) for _ in range(3)] == [[3]] * 3
    assert len(PARSED) == 1
    assert parsed(parser(3), item=tag) == [4]
    assert parsed(parser(2), b"5", item=tag) == [7]
    assert parsed(parser(2), item=-tag) == [3]
    assert len(PARSED) == 4


def test_who_changes_a_result_changes_it_for_nobody_else() -> None:
    first = parsed(adds(10, []))
    first.append("mine")
    second = parsed(adds(10, []))
    second.append("mine too")
    assert parsed(adds(10, [])) == [11]


def test_what_cannot_be_compared_is_parsed_each_time() -> None:
    notes = ["one that is in it"]
    assert [parsed(adds(20, notes)) for _ in range(2)] == [[21]] * 2
    assert len(notes) == 3
    assert [parsed(adds(30, []), item=["no key"]) for _ in range(2)] == [[31]] * 2
