"""`--report`: what a page says is what the command prints, nothing in it breaks out, and it is whole or not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli import api
from iceberg_cli.cli.page import page_of, write_page
from iceberg_cli.cli.page.table_content import read_content
from iceberg_cli.errors import UsageError
from tests.budget import deep_unless
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
from tests.cli.page.pages import AS_OF_MS, HOSTILE, Element, check_closed, parsed, poisoned, rows_of
from tests.cli.running import iceberg_cli, validate
from tests.fixtures import iceberg_tables
from tests.fleet.builder import CHECKPOINT, VERSIONS, build_fleet
from tests.paths import FIXTURES, ROOT

AS_OF = ("--as-of", AS_OF_MS)
DELTA = FIXTURES / "31-delta-spark-many-dvs" / "table"
needs_fixtures = pytest.mark.skipif(not FIXTURES.exists(), reason="no shared fixtures here")


def page(folder: Path, *arguments: object, code: int = 0) -> Element:
    """The page that a command writes."""
    file = folder / "page.html"
    ran = iceberg_cli(*arguments, *AS_OF, "--report", file)
    assert ran.code == code, ran.err
    text = file.read_text(encoding="utf-8")
    check_closed(text)
    return parsed(text)


def section(page: Element, title: str) -> Element:
    """The section below a heading."""
    (found,) = [each for each in page.all("section") if any(h.words == title for h in each.all("h2"))]
    return found


# -- what is on it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    deep_unless(
        [("inspect",)], [("inspect",), ("inspect", "--check"), ("plan",), ("plan", "expire-snapshots")]
    ),
)
def test_page_begins_with_what_the_command_prints_first(
    demo: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    command, *rest = arguments
    printed = iceberg_cli(command, demo / "orders", *rest, *AS_OF)
    shown = page(tmp_path, command, demo / "orders", *rest).all(class_="verdict")
    first = printed.out.splitlines()[0]
    assert first in shown[0].words


def test_page_of_a_plan_has_each_snapshot_with_its_verdict_and_reason(demo: Path, tmp_path: Path) -> None:
    plan = iceberg_cli("plan", demo / "orders", "expire-snapshots", *AS_OF, "--format", "json").json
    verdicts = {each["id"]: each for each in plan["verdicts"] if each["subject"] == "snapshot"}
    states = section(page(tmp_path, "plan", demo / "orders", "expire-snapshots"), "Snapshots")
    rows = rows_of(states.one("table"))
    found = {row[1].split()[0]: row for row in rows}
    assert found.keys() == verdicts.keys()
    for snapshot_id, verdict in verdicts.items():
        *_, chip, why = found[snapshot_id]
        assert chip == ("= keep" if verdict["keep"] else "- go")
        assert verdict["reason"].endswith(why)
    refs = {tuple(chip.words.split()) for chip in states.all("span", class_="chip")}
    assert {("branch", "main"), ("tag", "closed"), ("current",)} <= refs


@pytest.mark.deep
def test_page_of_all_verbs_has_the_bytes_that_each_frees(demo: Path, tmp_path: Path) -> None:
    plans = iceberg_cli("plan", demo / "orders", *AS_OF, "--format", "json").json["plans"]
    rows = rows_of(section(page(tmp_path, "plan", demo / "orders"), "Bytes freed by verb").all("table")[0])
    assert [(row[0], row[1]) for row in rows] == [
        (each["operation"], f"{each['removals']['count']:,}") for each in plans
    ]
    assert plans[0]["removals"]["bytes"] > 0


def test_page_has_sizes_of_files_and_growth_as_charts_with_their_numbers(demo: Path, tmp_path: Path) -> None:
    shown = page(tmp_path, "inspect", demo / "orders")
    files = [
        json.loads(line)
        for line in iceberg_cli("inspect", demo / "orders", "files", "--jsonl").out.splitlines()
    ]
    charts = {
        figure.one("figcaption").words: figure
        for name in ("Sizes", "Growth over time")
        for figure in section(shown, name).all("figure")
    }
    assert list(charts) == [
        *("Data files by size", "Deletes by size", "Manifests by size"),
        *("Data files", "Bytes of data and delete files", "Records"),
    ]
    for title, content in (("Data files by size", 0), ("Deletes by size", 1)):
        numbers = [int(row[2].replace(",", "")) for row in rows_of(charts[title].one("table"))]
        assert sum(numbers) == sum(each["content"] == content for each in files)
    last = rows_of(charts["Records"].one("table"))[-1]
    assert int(last[1]) == sum(each["record_count"] for each in files if each["content"] == 0)
    for figure in charts.values():
        svg = figure.one("svg", class_="chart")
        assert svg.attributes["role"] == "img"
        titles = [svg.one("title"), svg.one("desc")]
        assert svg.attributes["aria-labelledby"] == " ".join(str(each.attributes["id"]) for each in titles)
        assert all(each.words for each in titles)


def test_page_has_deletes_by_partition_with_their_share_of_the_rows(demo: Path, tmp_path: Path) -> None:
    ((whole, files, records, deleted, share, _, vectors, keys),) = rows_of(
        section(page(tmp_path, "inspect", demo / "orders"), "Deletes by partition").one("table")
    )
    assert (whole, files, records, deleted, vectors, keys) == ("the whole table", "15", "598", "50", "7", "0")
    assert share == "8.4%"


@pytest.mark.deep
def test_page_counts_the_partitions_that_have_deletes(demo: Path, tmp_path: Path) -> None:
    lines = iceberg_cli("inspect", demo / "events", "partitions", "--jsonl").out.splitlines()
    deleted = [json.loads(line)["position_delete_record_count"] for line in lines]
    shown = section(page(tmp_path, "inspect", demo / "events"), "Deletes by partition")
    assert f"{sum(map(bool, deleted))} of {len(deleted)} partitions have deletes." in shown.words
    assert [int(row[3]) for row in rows_of(shown.one("table"))] == [each for each in deleted if each]


def test_page_of_a_check_has_its_findings_first(demo: Path, tmp_path: Path) -> None:
    broken = tmp_path / "t"
    shutil.copytree(demo / "orders", broken)
    list_name = next(iter(sorted((broken / "metadata").glob("snap-*"))))
    list_name.unlink()
    for file in (broken / "metadata").glob("*.json"):
        file.write_text(file.read_text().replace(str(demo / "orders"), str(broken)))
    shown = page(tmp_path, "inspect", broken, "--check", code=15)
    verdict = shown.all(class_="verdict")[0]
    assert "manifest-list-missing" in verdict.words
    assert list_name.name in verdict.words


@pytest.mark.deep
def test_page_of_a_check_names_what_could_not_be_read_for_it(demo: Path, tmp_path: Path) -> None:
    broken = tmp_path / "t"
    shutil.copytree(demo / "orders", broken)
    for file in (broken / "metadata").glob("*.json"):
        file.write_text(file.read_text().replace(str(demo / "orders"), str(broken)))
    snapshots = iceberg_cli("inspect", broken, "snapshots", "--jsonl").out.splitlines()
    Path(json.loads(snapshots[-1])["manifest_list"]).unlink()
    shown = page(tmp_path, "inspect", broken, "--check", code=15)
    warnings = [each.words for each in shown.one("main").children if each.tag == "p"]
    assert [text.partition(".")[0] for text in warnings] == [
        *("Not on this page: the summary", "Not on this page: sizes of files"),
        *("Not on this page: sizes of manifests", "Not on this page: deletes"),
        "Not on this page: reads by column",
    ]
    assert "manifest-list-missing" in shown.all(class_="verdict")[0].words


@needs_fixtures
def test_page_of_a_delta_table_has_versions_checkpoint_tombstones_and_vectors(tmp_path: Path) -> None:
    shown = page(tmp_path, "inspect", DELTA)
    states = section(shown, "Versions")
    assert [row[1].split()[0] for row in rows_of(states.one("table"))] == [str(n) for n in range(13, -1, -1)]
    assert "7 tombstones, 7 past their retention (6.5 KiB); 1 commit since checkpoint 12." in states.words
    (row,) = [row for row in rows_of(states.one("table")) if "checkpoint" in row[1]]
    assert row[1] == "12 checkpoint classic"
    growth = rows_of(section(shown, "Growth over time").one("table"))
    assert [int(row[1]) for row in growth] == _files_by_version()
    sizes = {each.one("figcaption").words: each for each in section(shown, "Sizes").all("figure")}
    assert [int(row[2]) for row in rows_of(sizes["Data files by size"].one("table"))] == [3]
    assert [row[2:] for row in rows_of(sizes["Deletes by size"].one("table"))] == [["2", "92 B"]]
    ((_, files, records, deleted, *_, vectors, _),) = rows_of(
        section(shown, "Deletes by partition").one("table")
    )
    assert (files, records, deleted, vectors) == ("3", "61", "14", "2")


def test_page_of_a_delta_plan_has_each_version_with_what_a_log_cleanup_does_to_it(tmp_path: Path) -> None:
    fleet = build_fleet(tmp_path, {("folder", "delta"): 3})
    table = fleet.tables[2].name  # a checkpoint of version 10, and all older than 30 days
    states = section(page(tmp_path, "plan", table, "expire-snapshots"), "Versions")
    rows = rows_of(states.one("table"))
    assert {int(row[1].split()[0]): row[-2] for row in rows} == {
        version: "- go" if version < CHECKPOINT else "= keep" for version in range(VERSIONS)
    }
    assert {row[-1] for row in rows if row[-2] == "- go"} == {"before checkpoint 10, which stands for it"}
    assert "checkpoint 10 is the newest at or before version 12" in states.words


def _files_by_version() -> list[int]:
    """How many files each version of the table has, as its log says."""
    counts, active = [], set()
    for file in sorted((DELTA / "_delta_log").glob("*.json")):
        for action in map(json.loads, file.read_text().splitlines()):
            active |= {action["add"]["path"]} if "add" in action else set()
            gone = action.get("remove", {}).get("path")
            if gone is not None and not _is_added(file, gone):
                active.discard(gone)
        counts.append(len(active))
    return counts


def _is_added(commit: Path, path: str) -> bool:
    actions = map(json.loads, commit.read_text().splitlines())
    return any(action.get("add", {}).get("path") == path for action in actions)


@needs_fixtures
@pytest.mark.parametrize(
    "case",
    [
        "17-iceberg-v2-java-branches-tags-retention",
        pytest.param("05-iceberg-v2-equality-deletes", marks=pytest.mark.deep),
        pytest.param("19-iceberg-v1-java-spec-evolution", marks=pytest.mark.deep),
        pytest.param("20-iceberg-v3-java-many-puffins", marks=pytest.mark.deep),
    ],
)
def test_tables_of_other_engines_have_pages(case: str, tmp_path: Path) -> None:
    shown = page(tmp_path, "inspect", iceberg_tables.folder(case))
    refs = iceberg_cli("inspect", iceberg_tables.folder(case), *AS_OF, "--format", "json").json["refs"]
    chips = section(shown, "Snapshots").one("table").all("bdi")
    assert sorted(chip.words for chip in chips) == sorted(ref["name"] for ref in refs)


@pytest.mark.deep
def test_same_document_gives_the_same_page(demo: Path, tmp_path: Path) -> None:
    texts = []
    for name in ("a.html", "b.html"):
        assert iceberg_cli("plan", demo / "orders", *AS_OF, "--report", tmp_path / name).code == 0
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]


@pytest.mark.deep
def test_command_prints_the_same_with_a_page_as_without(demo: Path, tmp_path: Path) -> None:
    command = ("plan", demo / "orders", *AS_OF, "--format", "json")
    assert iceberg_cli(*command, "--report", tmp_path / "p.html") == iceberg_cli(*command)


# -- many tables -------------------------------------------------------------------------------------------------


def page_of_many(document: dict[str, Any]) -> Element:
    """The page of a document that is as its schema says."""
    validate(document)
    text = page_of(document)
    check_closed(text)
    return parsed(text)


def test_page_of_a_survey_has_every_table_its_totals_and_those_that_failed() -> None:
    tables = (
        a_table("prod.a"),
        a_table("prod.b", "ok", offers=[{"operation": "rewrite-data-files", "reason": "9 data files"}]),
        a_table("prod.c", "broken"),
        an_unreadable_table("prod.d"),
    )
    shown = page_of_many(
        a_fleet(*tables, failed=[{"name": "prod.x", "exit_code": 16, "message": "no answer"}])
    )
    assert shown.one(class_="verdict").one("p").words == (
        "4 tables: 1 broken, 1 unreadable, 1 due and 1 ok; 1.0 MiB can be freed"
    )
    names = [row[0] for row in rows_of(section(shown, "Tables").one("table"))]
    assert names == ["prod.a", "prod.b", "prod.c", "prod.d"]
    failed = rows_of(section(shown, "Tables that need somebody").one("table"))
    assert [row[:2] for row in failed] == [
        ["prod.c", "broken"],
        ["prod.d", "unreadable"],
        ["prod.x", "exit code 16"],
    ]
    assert "Cannot read v3.metadata.json at byte 17" in failed[1][2]
    totals = [li.all("b")[0].words for li in shown.one("ul", class_="totals").all("li")]
    assert totals == ["4", "1.0 MiB", "60", "300", "120", "15.0 GiB", "1", "4.50 EUR"]


def test_blocked_verbs_free_nothing_on_a_page() -> None:
    due = {
        "operation": "expire-snapshots",
        "reason": "3 snapshots",
        "bytes": 1 << 30,
        "files": 1,
        "exact": True,
        "blocked_by": ["a hold"],
    }
    shown = page_of_many(a_fleet(a_table("t", due=[due])))
    assert shown.one(class_="verdict").one("p").words == "1 table: 1 due; 0 B can be freed"
    (row,) = rows_of(section(shown, "Tables").one("table"))
    assert "0 B" in row
    assert "expire-snapshots (blocked)" in row


def test_page_of_maintenance_has_every_run_what_was_left_and_what_failed() -> None:
    error = an_error("Cannot read snap-1.avro")
    document = a_maintenance(
        a_run("prod.a", "merge-dvs"),
        a_run("prod.a", "expire-snapshots", "failed", exit_code=15, error=error),
        a_run("prod.b", "expire-snapshots", "skipped", reason="outside its window"),
        left=[{"table": of("prod.z"), "operation": "merge-dvs", "reason": "--deadline"}],
    )
    shown = page_of_many(document)
    assert shown.one(class_="verdict").one("p").words == (
        "2 tables: 1 failed, 1 done and 1 skipped; 3.0 MiB freed"
    )
    assert rows_of(section(shown, "What failed").one("table")) == [
        ["prod.a, expire-snapshots", "failed", "Cannot read snap-1.avro"]
    ]
    assert section(shown, "Left undone by a bound").one("li").words == "prod.z, merge-dvs, --deadline"
    assert [row[2] for row in rows_of(section(shown, "Runs").one("table"))] == ["done", "failed", "skipped"]


def test_page_of_nothing_is_a_page() -> None:
    for document in (a_fleet(), a_maintenance()):
        page_of_many(document)


@pytest.mark.deep
def test_page_of_a_thousand_tables_is_small_and_more_than_it_holds_are_counted() -> None:
    assert len(page_of(a_large_fleet(1_000))) < 750_000
    text = page_of(a_fleet(*(a_table(f"t{number}", "ok") for number in range(5_003))))
    assert "3 more are in the document alone" in text
    assert '<p class="strong">5,003 tables: 5,003 ok; 0 B can be freed</p>' in text


def test_survey_and_maintain_write_the_page_of_all_that_they_find(demo: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        f'version = 1\n[defaults]\nexpire-snapshots = {{}}\nmerge-dvs = {{}}\n[[tables]]\nmatch = ["{demo}/*"]\n'
    )
    shown = page(tmp_path, "survey", f"{demo}/*", "--limit", 1)
    tables = {row[0] for row in rows_of(section(shown, "Tables").one("table"))}
    assert tables == {str(demo / name) for name in ("events", "orders", "visits")}
    maintained = page(tmp_path, "maintain", "--policy", policy, "--dry-run")
    assert maintained.one("h1").words == "Maintenance, dry run"
    runs = [row[:3] for row in rows_of(section(maintained, "Runs").one("table"))]
    assert [str(demo / "events"), "merge-dvs", "not due"] in runs
    assert [str(demo / "orders"), "expire-snapshots", "due"] in runs


# -- what breaks out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", deep_unless([("plan",)], [("inspect",), ("plan",)]))
def test_names_of_a_table_stay_texts(hostile_table: str, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    shown = page(tmp_path, *arguments, hostile_table)
    chips = {chip.text for chip in section(shown, "Snapshots").all("bdi")}
    assert chips == {"main", *HOSTILE[:-1]}
    partitions = {row[0] for row in rows_of(section(shown, "Deletes by partition").one("table"))}
    assert {f"{HOSTILE[1]}={value}" for value in HOSTILE[:-1]} <= {
        text.replace("  ", " ") for text in partitions
    }
    assert HOSTILE[1] in shown.one("h1").words


def kept_keys(key: str) -> bool:
    """Fields that a page reads as words of ours, or as times."""
    return key in ("schema", "format", "what", "grade", "status", "severity", "source")


@pytest.mark.parametrize("text", deep_unless(HOSTILE[:2], HOSTILE))
def test_no_text_of_a_document_changes_the_shape_of_a_page(text: str) -> None:
    for document in (
        a_fleet(a_table("a"), a_table("b", "broken"), an_unreadable_table("c")),
        a_maintenance(
            a_run("a", "merge-dvs", "failed", error=an_error("x"), reason="y"),
            a_run("b", "expire-snapshots"),
            left=[{"table": of("z"), "operation": "merge-dvs", "reason": "--deadline"}],
            failed=[{"name": "/x", "exit_code": 10, "message": "y"}],
        ),
    ):
        plain, hostile = (page_of(poisoned(document, each, spare=kept_keys)) for each in ("x", text))
        check_closed(hostile)
        assert parsed(hostile).shape == parsed(plain).shape


@pytest.mark.parametrize("text", deep_unless(HOSTILE[:1], HOSTILE))
def test_no_reason_warning_or_finding_changes_the_shape_of_a_page(demo: Path, text: str) -> None:
    from iceberg_cli import iceberg

    table = api.open_table(str(demo / "orders"))
    plan = table.plan(iceberg.ExpireSnapshots(), as_of=AS_OF_MS)
    content = read_content(table, as_of_ms=AS_OF_MS, plans=[plan])
    checked = dict(table.check(as_of=AS_OF_MS).document)

    def pages(word: str) -> list[str]:
        verdicts = [replace(each, reason=f"kept: {word}", gist="") for each in plan.content.verdicts]
        changed = replace(
            plan,
            content=replace(
                plan.content,
                table={**plan.table, "name": word, "location": word},
                verdicts=tuple(verdicts),
                warnings=(word,),
                blocked_by=(word,),
            ),
        )
        poison = replace(content, expiry=changed, warnings=[word])
        finding = dict.fromkeys(("id", "where", "message", "section", "remedy"), word) | {"severity": "error"}
        check = {**checked, "findings": [finding], "counts": {"error": 1, "warning": 0, "info": 0}}
        return [
            page_of(changed.content.to_json(), content=poison, plans=[changed]),
            page_of({**check, "table": {**check["table"], "name": word}}, content=poison),
        ]

    for hostile, plain in zip(pages(text), pages("x"), strict=True):
        check_closed(hostile)
        assert parsed(hostile).shape == parsed(plain).shape


def test_control_characters_are_spelled_out() -> None:
    text = page_of(a_fleet(a_table("a\u202eb\x00c\x1b[31m\ud800")))
    assert "a\\u202eb\\u0000c\\u001b[31m\\ud800" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]", text)


def test_secrets_in_locations_are_not_on_a_page() -> None:
    location = "https://user:hunter22@host/t?X-Amz-Signature=abcdef&sig=ghijkl&token=mnopqr"
    table = a_table("t", table={**of(location), "also": [location]}, rule=location)
    run = a_run(location, "merge-dvs", "failed", error=an_error(f"Cannot read {location}"), reason=location)
    left = {"table": of(location), "operation": "merge-dvs", "reason": location}
    for document in (a_fleet(table), a_maintenance(run, left=[left])):
        text = page_of(document)
        assert not re.search("hunter22|abcdef|ghijkl|mnopqr", text)
        assert "https://***@host/t" in text


@pytest.mark.deep
def test_storage_options_are_not_on_a_page(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_A_TEST", "zqkeyofatest")
    options = (
        "--storage-option=s3.session-token=zqtoken",
        "--storage-option=adls.account-key=env:KEY_OF_A_TEST",
    )
    for command in ("inspect", "plan"):
        shown = page(tmp_path, command, demo / "orders", *options)
        assert "zq" not in shown.words
        assert "zq" not in (tmp_path / "page.html").read_text()


# -- the file ----------------------------------------------------------------------------------------------------


def test_page_replaces_a_file_whole_and_leaves_no_other(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("before")
    link = tmp_path / "link.html"
    link.symlink_to(file)
    write_page(a_fleet(), str(link))
    assert link.is_symlink()
    assert file.read_text().startswith("<!DOCTYPE html>")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.html", "page.html"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or not Path("/dev/full").exists(), reason="no full device here"
)
def test_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    import resource

    file = tmp_path / "page.html"
    file.write_text("before")
    command = ["-c", _TOO_LARGE, str(file)]
    ran = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        # What it would compile would be cut short, too, and be read by the next test.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert "Cannot write the page to" in ran.stdout, ran.stderr
    assert file.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


_TOO_LARGE = """
import signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from iceberg_cli.cli.page import write_page
from iceberg_cli.errors import UsageError
from tests.cli.page.fleets import a_fleet
try:
    write_page(a_fleet(), sys.argv[1])
except UsageError as error:
    print(error.message)
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("page.txt", "must end in .html"),
        ("nowhere/page.html", "the folder"),
        ("folder.html", "is a folder"),
    ],
)
def test_page_of_another_name_or_place_is_refused_before_the_table_is_looked_at(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    for command in ("inspect", "plan"):
        ran = iceberg_cli(command, tmp_path / "no table", "--report", tmp_path / name)
        assert ran.code == 2
        assert message in ran.err


def test_rows_have_no_page(demo: Path, tmp_path: Path) -> None:
    ran = iceberg_cli("inspect", demo / "orders", "files", "--report", tmp_path / "p.html")
    assert ran.code == 2
    assert "--report is about the summary and --check, not files" in ran.err


def test_documents_without_a_page_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no page is known for 'iceberg-cli/report/1'"):
        write_page({"schema": "iceberg-cli/report/1"}, str(tmp_path / "p.html"))


@pytest.mark.parametrize("module", deep_unless(["jinja2"], ["jinja2", "matplotlib"]))
def test_missing_library_is_named_with_how_to_install_it(demo: Path, tmp_path: Path, module: str) -> None:
    ran = _without(module, "plan", demo / "orders", "--report", tmp_path / "p.html")
    assert ran.returncode == 2
    assert f"--report needs the Python package {module}, which is not installed" in ran.stderr
    assert "pip install 'iceberg-table-maintenance[report]'" in ran.stderr


@pytest.mark.deep
def test_commands_without_a_page_need_none_of_its_libraries(demo: Path) -> None:
    for module in ("jinja2", "matplotlib"):
        assert _without(module, "plan", demo / "orders").returncode == 0


def _without(module: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process where a module cannot be imported."""
    code = f"import sys; sys.modules[{module!r}] = None\n"
    code += "from iceberg_cli.cli.app import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
