"""What fits on a terminal: nothing is wider than it, and identifiers, times, sizes and numbers are never broken."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from iceberg_cli.cli.render.layout import NARROW, shortened
from iceberg_cli.cli.render.screen import Screen
from iceberg_cli.plan.inspection import (
    ID,
    NAME,
    NUMBER,
    PATH,
    SIZE,
    SPAN,
    STATE,
    TEXT,
    TIME,
    VERDICT,
    Column,
    Row,
)
from iceberg_cli.plan.text import age_span, count, size
from tests.builders import DAY_MS, HOUR_MS, NOW_MS
from tests.cli.printed import Terminal, on_a_terminal, piped

WORDS = st.sampled_from(
    [
        "kept",
        "older than the cut-off",
        "12.3 MiB",
        "9 d 4 h",
        "2026-11-17 01:00 UTC",
        "é",
        "注文の表",
        "الطلبات",
        "a\u0301",
    ]
)
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)
PATHS = st.text("abc/-_注é", min_size=1, max_size=160)
VALUES = {
    TEXT: SENTENCES,
    ID: st.integers(0, 2**63 - 1).map(str),
    NUMBER: st.integers(0, 10**12),
    TIME: st.integers(NOW_MS - 400 * DAY_MS, NOW_MS),
    SPAN: st.lists(st.integers(NOW_MS - 400 * DAY_MS, NOW_MS), max_size=3),
    SIZE: st.integers(0, 10**15),
    PATH: PATHS,
    NAME: PATHS,
    VERDICT: st.sampled_from(["go", "keep", "change"]),
}
UNBROKEN = (ID, NUMBER, SIZE)


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[Column], list[dict[str, Any]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=7))
    columns = [
        Column(
            draw(st.sampled_from(["", "age", "manifest list", "path"])), str(number), kind, leaves=number % 3
        )
        for number, kind in enumerate(kinds)
    ]
    rows = draw(
        st.lists(
            st.fixed_dictionaries({str(number): VALUES[kind] for number, kind in enumerate(kinds)}),
            max_size=5,
        )
    )
    return columns, rows


def stands_by_a_verdict(column: Column, columns: list[Column], row: dict[str, Any]) -> bool:
    """Whether a block of lines begins with it and a verdict, without titles: "keep main"."""
    shown = [each for each in columns if row[each.value] not in ("", [])]  # type: ignore[index]
    return shown[0].kind == VERDICT and column in shown[:2]


@given(grid=grids(), width=st.sampled_from([40, 60, 69, 70, 80, 100, 119, 120, 200]), verbose=st.booleans())
def test_no_line_is_wider_than_the_terminal_and_no_value_is_broken(
    grid: tuple[list[Column], list[dict[str, Any]]], width: int, verbose: bool
) -> None:
    columns, rows = grid
    out = on_a_terminal(width, lambda screen: screen.grid(columns, rows), verbose=verbose, as_of_ms=NOW_MS)
    has_paths = verbose and any(column.kind == PATH for column in columns)
    for line in out.splitlines():
        # A path is one line with --verbose, whatever its length: it is copied.
        assert cell_len(line) <= width or has_paths, line
    left_out = "(no room for: " in out
    for column in columns:
        # In a block of lines a row has only what is not empty.
        is_in_each = bool(rows) and all(row[column.value] for row in rows)  # type: ignore[index]
        if width >= NARROW and is_in_each and not (left_out and column.leaves):
            assert column.title in out or all(stands_by_a_verdict(column, columns, row) for row in rows)
    for row in rows:
        for column in columns:
            value = row[column.value]  # type: ignore[index]
            if column.kind in UNBROKEN and not (left_out and column.leaves):
                text = (
                    size(value) if column.kind == SIZE else f"{value:,}" if column.kind == NUMBER else value
                )
                assert text in out


@given(grid=grids())
def test_a_pipe_has_all_values_whole_and_each_row_on_one_line(
    grid: tuple[list[Column], list[dict[str, Any]]],
) -> None:
    columns, rows = grid
    lines = piped(lambda screen: screen.grid(columns, rows)).splitlines()
    assert len(lines) in (len(rows) + 1, len(rows))  # titles may all be empty
    for row, line in zip(rows, lines[-len(rows) :] if rows else [], strict=True):
        for column in columns:
            if column.kind in (PATH, NAME, ID, TEXT):
                assert str(row[column.value]) in line  # type: ignore[index]


@example(text=" ".join(["9 d 4 h"] * 5), width=40, indent=0)
@given(text=SENTENCES, width=st.sampled_from([40, 60, 80]), indent=st.sampled_from([0, 2, 8]))
def test_a_paragraph_is_wrapped_between_its_words(text: str, width: int, indent: int) -> None:
    out = on_a_terminal(width, lambda screen: screen.line(text, indent=indent))
    assert out.split() == text.split()
    for quantity in ("12.3 MiB", "9 d 4 h", "2026-11-17 01:00 UTC"):
        assert out.count(quantity) == text.count(quantity)
    assert all(cell_len(line) <= width for line in out.splitlines())


def test_states_have_colours_as_verdicts_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    states = ("broken", "overdue", "due", "ok", "done")
    Screen(stream).grid([Column("grade", "grade", STATE)], [{"grade": each} for each in states])
    codes = {"broken": "1;31", "overdue": "31", "due": "33", "ok": "32", "done": "32"}
    for state, code in codes.items():
        assert re.search(rf"\x1b\[{code}m{state} *\x1b\[0m", stream.getvalue())


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("length", [5, 62, 200])
def test_long_names_lose_their_middle_and_no_grid_becomes_blocks(length: int, width: int) -> None:
    name = ("ab" * length)[:length]
    columns = [
        Column("table", "name", NAME),
        Column("grade", "grade", ID),
        Column("frees", "bytes", SIZE),
        Column("why", "why", TEXT, leaves=1),
        Column(name, "bytes", NUMBER),
    ]
    rows: list[Row] = [{"name": name, "grade": "overdue", "bytes": 12_345_678, "why": "of age"}] * 60
    lines = on_a_terminal(width, lambda screen: screen.grid(columns, rows)).splitlines()
    head, *body = [line for line in lines if not line.startswith("(no room for: ")]
    assert head.split()[:2] == ["table", "grade"]
    assert len(body) == 60
    shown = body[0].split()[0]
    assert (
        shown == name
        if cell_len(shown) == length
        else shown[0] == "a" and shown[-1] == name[-1] and "…" in shown
    )
    assert all("11.8 MiB" in line and "12,345,678" in line for line in body)


@pytest.mark.parametrize("name", ["注文の表", "الطلبات", "שלום"])
def test_columns_stand_where_they_do_beside_names_in_ascii(name: str) -> None:
    columns = [Column("name", "name", ID), Column("files", "files", NUMBER)]
    rows: list[Row] = [{"name": name, "files": 7}, {"name": "orders_2026", "files": 12}]
    _, first, second = on_a_terminal(80, lambda screen: screen.grid(columns, rows)).splitlines()
    assert cell_len(first) == cell_len(second)
    # Isolated, so that a terminal which writes it from right to left leaves the number where it is.
    assert ("\u2068" in first) == ("\u2069" in first) == (name != "注文の表")
    assert "\u2068" not in piped(lambda screen: screen.grid(columns, rows))


@pytest.mark.parametrize("width", [20, 80])
def test_a_title_that_a_table_names_moves_no_cursor_and_takes_no_colour(width: int) -> None:
    columns = [Column("a\x1b[2J\x1b[31m", "name"), Column("b\nc", "name")]
    rows: list[Row] = [{"name": "x" * 12}]
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(width))
        Screen(stream, color=False).grid(columns, rows)
    assert "\x1b[2J" not in stream.getvalue()
    assert "\x1b[31m" not in stream.getvalue()
    assert r"b\u000ac" in stream.getvalue()
    assert "\x1b" not in piped(lambda screen: screen.grid(columns, rows))


def test_a_path_loses_its_middle() -> None:
    path = "metadata/snap-3959103411306114793-1-a7dc6ed0-050e-5a36-912d-e1438efe74df.avro"
    for width in (24, 40, 60):
        short = shortened(path, width)
        head, ellipsis, tail = short.partition("…")
        assert cell_len(short) == width
        assert ellipsis
        assert path.startswith(head)
        assert path.endswith(tail)
        assert len(tail) > len(head)
    assert shortened(path, 200) == path
    assert cell_len(shortened("注文" * 40, 31)) <= 31


def test_times_are_ages_where_there_is_little_room_and_dates_where_there_is_more() -> None:
    columns = [Column("committed", "at", TIME), Column("span", "span", SPAN)]
    row: Row = {"at": NOW_MS - 9 * DAY_MS, "span": [NOW_MS - 38 * DAY_MS, NOW_MS - 6 * DAY_MS - HOUR_MS]}
    narrow = on_a_terminal(119, lambda screen: screen.grid(columns, [row]), as_of_ms=NOW_MS)
    wide = on_a_terminal(120, lambda screen: screen.grid(columns, [row]), as_of_ms=NOW_MS)
    assert narrow.splitlines()[1].split() == ["9", "d", "ago", "6", "to", "38", "d"]
    # The builders' now is 2027-01-15T08:00:00Z.
    assert wide.splitlines()[1].split("  ") == ["2027-01-06T08:00:00Z", "2026-12-08 to 2027-01-09"]


@pytest.mark.parametrize(
    ("least_ms", "most_ms", "text"),
    [
        (6 * DAY_MS, 38 * DAY_MS, "6 to 38 d"),
        (9 * HOUR_MS, 38 * DAY_MS, "9 h to 38 d"),
        (6 * DAY_MS, 6 * DAY_MS + 5 * HOUR_MS, "6 d"),
        (300 * DAY_MS, 800 * DAY_MS, "300 d to 2 y"),
    ],
)
def test_ages_are_a_span(least_ms: int, most_ms: int, text: str) -> None:
    assert age_span(least_ms, most_ms) == text


def test_one_is_singular() -> None:
    assert [count(1, noun) for noun in ("files", "branches", "properties", "row ids")] == [
        "1 file", "1 branch", "1 property", "1 row id",
    ]  # fmt: skip
