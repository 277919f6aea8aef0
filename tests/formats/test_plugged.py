"""A package brings a format of tables: its tables are found, inspected and checked by the same commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import iceberg_cli as ic
from iceberg_cli.errors import TableNotFound, UsageError
from iceberg_cli.formats import format_of
from iceberg_cli.storage import plugins
from tests.cli.lakes import four_snapshots
from tests.cli.running import iceberg_cli
from tests.installed import install

PLUG_IN = """
from dataclasses import dataclass

from typing import ClassVar

from iceberg_cli.errors import Refused
from iceberg_cli.operation.verbs import FormatVerbs
from iceberg_cli.plan.events import unheard
from iceberg_cli.plan.findings import CheckResult, Findings, error
from iceberg_cli.plan.inspection import Column, Lines, NUMBER
from iceberg_cli.plan.policy import Policy, Whole, option
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.table.format import Format


@dataclass(kw_only=True)
class Table:
    name: str
    format: str = "lines"
    on_event: object = unheard

    @property
    def location(self):
        return self.name

    @property
    def identity(self):
        return {"name": self.name, "location": self.name, "format": self.format}

    def base(self):
        return "two lines"

    def notices(self):
        return []

    def save_cache(self):
        return None


@dataclass(kw_only=True)
class Inspector:
    table: Table
    warnings: tuple = ()

    @property
    def location(self):
        return self.table.location

    def header(self, what):
        return {"schema": "iceberg-cli/inspection/2", "what": what, "table": self.table.identity, "format": "lines"}

    def summary(self, *, recount):
        return {**self.header("summary"), "lines": 2}

    def summary_text(self, document):
        yield Lines([f"a table of {document['lines']} lines"])

    def streams(self, what):
        return False

    def newest_last(self, what):
        return False

    def rows(self, what, *, limit):
        return [{"line": 1, "text": "one"}, {"line": 2, "text": "two"}][:limit]

    def text_of(self, what, rows):
        return (Column("line", "line", NUMBER), Column("text", "text")), rows


class Checker:
    def run(self):
        found = Findings()
        found.add("line-too-short", "line 1", "it has 3 characters")
        rules = {"line-too-short": error("Lines", "Write longer ones.")}
        return CheckResult(rules=rules, found=found, deep=False, checked={"lines": 2})


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SortLines(Policy):
    verb: ClassVar[str] = "sort-lines"
    place: ClassVar = VerbPlace(order=1)
    about: ClassVar[str] = "Sort the lines of a table."
    column: int = option(Whole(), "The first column that counts.", default=1)


class SortLinesVerb:
    def plan(self, table, policy, **_):
        raise Refused(f"the lines of {table.name} cannot be sorted from column {policy.column}")


class Opening:
    def detect(self, request):
        return request.storage.holds_any(f"{request.folder}/_lines")

    def open(self, request, choose_engine):
        return Table(name=request.folder)


class LinesVerbs(FormatVerbs):
    def __getitem__(self, name):
        return {"sort-lines": SortLinesVerb()}[name]

    def __iter__(self):
        return iter(["sort-lines"])

    def __len__(self):
        return 1

    def policy(self, name):
        return {"sort-lines": SortLines}[name]

    def instead(self, name):
        return "Use sort-lines." if name == "rewrite-manifests" else None


class Looking:
    inspected = ("summary", "files")
    elsewhere = {"refs": "the summary"}
    state = "line"
    state_options = {"--version": "N"}
    stateless = ()
    recounts = False
    compares = False
    deep_reads = "counts words too"

    def inspector(self, table, state, *, as_of_ms):
        return Inspector(table=table)

    def checker(self, inspector, *, one_state, deep, now_ms, compared):
        return Checker()


FORMAT = Format(
    name="lines",
    title=("a", "Lines"),
    opening=Opening(),
    verbs=LinesVerbs(),
    looking=Looking(),
    surveying=None,
)
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is a table by the mark of a format of an installed package."""
    entry = "lines = lines_format:FORMAT"
    install(
        tmp_path / "site",
        monkeypatch,
        "lines_format",
        group="iceberg_cli.formats",
        entry=entry,
        source=PLUG_IN,
    )
    folder = tmp_path / "t"
    (folder / "_lines").mkdir(parents=True)
    (folder / "_lines" / "1").write_text("one")
    return folder


def test_its_tables_have_no_page(table: Path, tmp_path: Path) -> None:
    ran = iceberg_cli("inspect", table, "--report", tmp_path / "page.html")
    assert ran.code == 2
    assert "--report shows Iceberg and Delta tables, and" in ran.err
    assert not (tmp_path / "page.html").exists()


def test_its_tables_are_inspected_and_checked_as_all_others(table: Path) -> None:
    opened = ic.open_table(str(table))
    assert opened.format == "lines"
    assert opened.inspect().to_json()["lines"] == 2
    assert opened.inspect("files", limit=1).to_json()["rows"] == [{"line": 1, "text": "one"}]
    checked = opened.check()
    assert checked.errors == 1
    assert checked.document["counts"] == {"error": 1, "warning": 0, "info": 0}


def test_its_findings_are_printed_with_the_sections_and_remedies_of_its_rules(table: Path) -> None:
    ran = iceberg_cli("inspect", table, "--check")
    assert ran.code == 15
    assert ran.out.splitlines() == [
        "1 error found",
        "",
        "error: line-too-short (1)",
        "  line 1: it has 3 characters",
        "  specification: Lines",
        "  to do: Write longer ones.",
        "",
        f"{table}: checked 2 lines; --deep counts words too.",
    ]


def test_commands_of_verbs_refuse_its_tables(table: Path) -> None:
    ran = iceberg_cli("merge-dvs", table, "--dry-run")
    assert ran.code == 2
    assert "merge-dvs is no verb of Lines tables" in ran.err
    assert "It is for Iceberg and Delta tables alone." in ran.err
    assert "Use sort-lines." in iceberg_cli("rewrite-manifests", table, "--dry-run").err


def test_a_verb_that_only_it_has_is_a_command(table: Path, tmp_path: Path) -> None:
    assert re.search(r"^  sort-lines +Sort the lines of a table\.$", iceberg_cli("--help").out, re.MULTILINE)
    assert "The first column that counts." in iceberg_cli("sort-lines", "--help-all").out
    ran = iceberg_cli("sort-lines", table, "--column", 3, "--dry-run")
    assert (ran.code, f"the lines of {table} cannot be sorted from column 3" in ran.err) == (11, True)
    other = four_snapshots(tmp_path / "iceberg").publish()
    ran = iceberg_cli("sort-lines", other, "--dry-run")
    assert ran.code == 2
    assert "sort-lines is no verb of Iceberg tables" in ran.err
    assert "It is for Lines tables alone." in ran.err
    assert iceberg_cli("history", other, "--operation", "sort-lines").code == 0
    assert "sort-lines, not 'sort'" in iceberg_cli("history", other, "--operation", "sort").err


def test_a_package_that_cannot_be_loaded_takes_no_command_from_others(table: Path) -> None:
    (table.parent / "site" / "lines_format" / "__init__.py").write_text("raise ImportError('too old')")
    ran = iceberg_cli("--help")
    assert ran.code == 0
    assert "  expire-snapshots" in ran.out
    assert ran.err.startswith("warning: Cannot look for tables of the format 'lines'")


def test_its_rows_and_summaries_are_printed_by_what_it_says_of_them(table: Path) -> None:
    assert iceberg_cli("inspect", table).out == "a table of 2 lines\n"
    lines = iceberg_cli("inspect", table, "files").out.splitlines()
    assert [line.split() for line in lines if "o" in line] == [["1", "one"], ["2", "two"], ["(2", "rows)"]]


def test_what_it_does_not_have_is_refused_with_where_to_look(table: Path) -> None:
    opened = ic.open_table(str(table))
    with pytest.raises(UsageError, match="this is a Lines table") as refused:
        opened.inspect("refs")
    assert refused.value.next_step == "Look at the summary."
    with pytest.raises(UsageError, match=r"^ref is about Iceberg tables") as refused:
        opened.inspect(ref="main")
    assert refused.value.next_step == "For a Lines table: version N."


def test_a_folder_that_no_format_knows_is_no_table(table: Path) -> None:
    with pytest.raises(TableNotFound):
        ic.open_table(str(table / "_lines"))
    with pytest.raises(UsageError, match="No format 'rows' is known here"):
        format_of("rows")


def test_a_package_that_does_not_have_what_it_names_is_one_clear_error(table: Path) -> None:
    plugins._entry_points.cache_clear()
    (table.parent / "site/lines_format-1.dist-info/entry_points.txt").write_text(
        "[iceberg_cli.formats]\nlines = lines_format:OTHER\n"
    )
    with pytest.raises(UsageError, match="its entry point lines_format:OTHER cannot be loaded"):
        ic.open_table(str(table))


def test_nothing_asks_which_of_the_formats_it_knows_a_table_has() -> None:
    package = Path(ic.__file__).parent
    compared = re.compile(r"\.format (==|!=|in|not in) [\"'({]")
    assert [str(path) for path in package.rglob("*.py") if compared.search(path.read_text())] == []
