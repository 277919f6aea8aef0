"""Pages in Chromium: in light, dark and on paper, on a narrow screen, by keyboard alone, and held to axe's rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.cli.page import write_page
from tests.cli.page.chromium import Shown, browser, shown
from tests.cli.page.fleets import (
    a_fleet,
    a_large_fleet,
    a_maintenance,
    a_run,
    a_table,
    an_error,
    an_unreadable_table,
    of,
)
from tests.cli.page.pages import AS_OF_MS, HOSTILE, poisoned
from tests.cli.page.test_pages import DELTA, kept_keys
from tests.cli.running import iceberg_cli

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("chromium")]
DUE = {
    "operation": "merge-dvs",
    "reason": "3 snapshots",
    "bytes": 0,
    "files": 1,
    "exact": True,
    "blocked_by": [],
}
NAMES = ("inspect", "check", "plan", "expire", "delta", "hostile", "survey", "maintain", "poisoned")


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def files(demo: Path, hostile_table: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page, by its name."""
    folder = tmp_path_factory.mktemp("pages")
    commands: dict[str, tuple[object, ...]] = {
        "inspect": ("inspect", demo / "events"),
        "check": ("inspect", demo / "orders", "--check"),
        "plan": ("plan", demo / "orders"),
        "expire": ("plan", demo / "events", "expire-snapshots"),
        "delta": ("plan", DELTA),
        "hostile": ("plan", hostile_table),
    }
    for name, command in commands.items():
        ran = iceberg_cli(*command, "--as-of", AS_OF_MS, "--report", folder / f"{name}.html")
        assert ran.code == 0, ran.err
    runs = [
        a_run("prod.a", "merge-dvs"),
        a_run("prod.b", "merge-dvs", "failed", error=an_error("Cannot read snap-1.avro")),
        a_run("prod.c", "expire-snapshots", "waiting"),
    ]
    left = [{"table": of("prod.z"), "operation": "merge-dvs", "reason": "--deadline"}]
    documents = {
        "survey": a_large_fleet(1_000),
        "maintain": a_maintenance(*runs, left=left),
        "poisoned": a_fleet(
            *(
                table
                for text in HOSTILE
                for table in poisoned(
                    [a_table("a"), a_table("b", "broken"), an_unreadable_table("c")], text, spare=kept_keys
                )
            )
        ),
    }
    for name, document in documents.items():
        write_page(document, str(folder / f"{name}.html"))
    return {name: folder / f"{name}.html" for name in NAMES}


def is_wider(page: Any) -> bool:
    """Whether one has to scroll sideways to see all of it."""
    found: bool = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_page_shows_without_complaint_request_or_scrolling_sideways(
    started: Any, files: dict[str, Path], name: str
) -> None:
    for scheme in ("light", "dark"):
        for width in (1280, 400):
            seen = shown(started, color_scheme=scheme, viewport={"width": width, "height": 800})
            page = seen.open(files[name])
            assert not is_wider(page), (scheme, width)
            seen.check(files[name])
            page.close()


@pytest.mark.parametrize("name", NAMES)
def test_paper_has_all_of_the_page(started: Any, files: dict[str, Path], name: str) -> None:
    """A4 without its margins: upright, or across where the page asks for that, as those of many tables do."""
    page = shown(started).open(files[name])
    page.emulate_media(media="print")
    is_across = page.locator("section.wide").count() > 0
    page.set_viewport_size({"width": 1046 if is_across else 687, "height": 900})
    assert not is_wider(page)
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_page_keeps_the_rules_of_accessibility(
    started: Any, files: dict[str, Path], name: str, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    seen = shown(started, color_scheme=scheme)
    page = seen.open(files[name])
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    if name == "survey":  # axe takes minutes for all of a thousand rows
        page.evaluate(
            "document.querySelectorAll('table.rows tbody tr:nth-child(n+40)').forEach((row) => row.remove())"
        )
    found = Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found] == []
    page.close()


def test_colours_are_those_of_the_scheme_in_charts_too(started: Any, files: dict[str, Path]) -> None:
    found = {}
    for scheme in ("light", "dark"):
        page = shown(started, color_scheme=scheme).open(files["inspect"])
        found[scheme] = page.evaluate(
            """() => [
                getComputedStyle(document.body).backgroundColor,
                getComputedStyle(document.querySelector('svg.chart text')).fill,
                getComputedStyle([...document.querySelectorAll('svg.chart path')].find(
                    (each) => each.getAttribute('fill') === 'var(--bar)')).fill]"""
        )
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.close()
    assert found["light"][0] == "rgb(255, 255, 255)"
    for light, dark in zip(found["light"], found["dark"], strict=True):
        assert light != dark


def test_page_is_whole_without_scripts(started: Any, files: dict[str, Path]) -> None:
    context = started.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(files["survey"].as_uri())
    assert page.locator("table.rows tbody tr").count() == 1_000
    assert page.locator("form").is_hidden()
    assert page.locator("svg.chart").is_visible()
    context.close()


def test_scripts_that_are_not_its_own_do_not_run(
    started: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    text = files["inspect"].read_text()
    broken = tmp_path / "broken.html"
    broken.write_text(
        text.replace(
            "</main>",
            "<script>window.ran = 1</script><img src='https://example.com/x.png' onerror='window.ran = 2'>"
            "<p id='styled' style='color: red'>x</p></main>",
        )
    )
    seen, answered = shown(started), []
    seen.page.on("response", lambda response: answered.append(response.url))
    seen.page.on("requestfailed", lambda request: answered.append(request.failure))
    page = seen.open(broken)
    assert page.evaluate("window.ran") is None
    assert page.evaluate("getComputedStyle(document.getElementById('styled')).color") != "rgb(255, 0, 0)"
    assert set(answered) == {broken.as_uri(), "csp"}
    assert any("Content Security Policy" in each for each in seen.messages)
    page.close()


# -- the table that sorts and filters ---------------------------------------------------------------------------------


def press_until(page: Any, key: str, reached: str) -> None:
    """Press a key until the focus is on what a selector names."""
    for _ in range(60):
        page.keyboard.press(key)
        if page.evaluate("(selector) => document.activeElement.matches(selector)", reached):
            return
    raise AssertionError(f"{reached} has no focus after 60 times {key}")


def column(page: Any, number: int) -> list[str]:
    """The texts of a column of the rows that are shown."""
    found: list[str] = page.evaluate(
        "(n) => [...document.querySelectorAll('table.rows tbody tr')].filter((row) => !row.hidden)"
        ".map((row) => row.cells[n].textContent.trim())",
        number,
    )
    return found


def a_sortable(started: Any, tmp_path: Path) -> tuple[Any, Shown]:
    file = tmp_path / "fleet.html"
    sizes = {"prod.b": 5 << 20, "prod.a": 7 << 30, "prod.c": 12}
    tables = [a_table(name, due=[{**DUE, "bytes": size}]) for name, size in sizes.items()]
    write_page(a_fleet(*tables, a_table("test.d", "ok"), an_unreadable_table("prod.e")), str(file))
    seen = shown(started)
    return seen.open(file), seen


def test_rows_are_sorted_by_keyboard_alone(started: Any, tmp_path: Path) -> None:
    page, seen = a_sortable(started, tmp_path)
    titles = page.evaluate(
        "[...document.querySelectorAll('table.rows thead th')].map((each) => each.textContent)"
    )
    assert column(page, 0) == ["prod.b", "prod.a", "prod.c", "test.d", "prod.e"]
    press_until(page, "Tab", "table.rows thead th:nth-child(1) button")
    page.keyboard.press("Enter")
    assert column(page, 0) == ["prod.a", "prod.b", "prod.c", "prod.e", "test.d"]
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("table")
    page.keyboard.press("Space")
    assert column(page, 0) == ["test.d", "prod.e", "prod.c", "prod.b", "prod.a"]
    freed = titles.index("freed") + 1
    press_until(page, "Tab", f"table.rows thead th:nth-child({freed}) button")
    page.keyboard.press("Enter")
    # The largest first; what is not known comes last either way.
    assert column(page, 0)[:3] == ["prod.a", "prod.b", "prod.c"]
    page.keyboard.press("Enter")
    assert column(page, 0)[:3] == ["prod.c", "prod.b", "prod.a"]
    assert page.locator("th[aria-sort]").count() == 1
    assert seen.messages == []
    page.close()


def test_rows_are_filtered_by_keyboard_alone(started: Any, tmp_path: Path) -> None:
    page, seen = a_sortable(started, tmp_path)
    press_until(page, "Tab", "#filters input")
    page.keyboard.type("PROD merge")
    assert column(page, 0) == ["prod.b", "prod.a", "prod.c"]
    assert page.locator("#filters output").inner_text() == "3 of 5 shown"
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    press_until(page, "Tab", "#filters select[name=grade]")
    page.keyboard.type("unr")
    assert column(page, 0) == ["prod.e"]
    page.keyboard.press("Home")
    assert page.locator("#filters output").inner_text() == "5 of 5 shown"
    assert seen.messages == []
    page.close()


def test_focus_is_seen_on_all_that_takes_it(started: Any, files: dict[str, Path]) -> None:
    for name in ("plan", "maintain"):
        page = shown(started).open(files[name])
        visited = set()
        for _ in range(200):
            page.keyboard.press("Tab")
            label, outline = page.evaluate(
                """() => {
                    const style = getComputedStyle(document.activeElement);
                    const all = [...document.querySelectorAll('*')];
                    return [all.indexOf(document.activeElement),
                            document.activeElement === document.body ? 'body'
                            : `${style.outlineStyle} ${style.outlineWidth}`];
                }"""
            )
            if outline == "body" or label in visited:
                break
            visited.add(label)
            assert re.fullmatch(r"(solid|auto) [1-9].*", outline), (label, outline)
        assert len(visited) > 5
        page.close()


def test_a_thousand_rows_sort_and_filter_as_they_are_asked_to(started: Any, files: dict[str, Path]) -> None:
    page = shown(started).open(files["survey"])
    took_ms = page.evaluate(
        """() => {
            const start = performance.now();
            document.querySelectorAll('table.rows thead button').forEach((each) => each.click());
            const input = document.querySelector('#filters input');
            for (const text of ['o', 'or', 'orders_01']) {
                input.value = text;
                input.dispatchEvent(new Event('input', {bubbles: true}));
                document.body.offsetHeight;
            }
            return performance.now() - start;
        }"""
    )
    print(f"17 sorts and 3 filters of 1,000 rows: {took_ms:.0f} ms")
    assert sorted(column(page, 0)) == [f"prod.sales.orders_{n:04}" for n in range(100, 200)]
    page.close()
