"""What README.md and the pages of `docs/` say is what the program does: options, codes, settings, examples, links."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import iceberg_cli as ic
from iceberg_cli.cli.app import EXIT_CODES, make_app
from iceberg_cli.cli.options.configuration import Configuration
from iceberg_cli.fleet.policy_file import load_policy
from tests.cli.command_names import COMMANDS
from tests.cli.running import iceberg_cli
from tests.docs.pages import PAGES, blocks, command_lines, pages_with, written_pages
from tests.paths import ROOT

REFERENCE = PAGES / "reference"
README = ROOT / "README.md"
MOST_LINES = 200  # of README.md: the rest is in the pages


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def command_words() -> Iterator[tuple[str, list[str]]]:
    """The page and the words after `iceberg-cli` of every command line in a block."""
    for path in [*written_pages(), *sorted(REFERENCE.glob("*.md"))]:
        text = text_of(path)
        lines = [line for block in blocks(text, "console") for line in command_lines(block.text)]
        for block in blocks(text, "sh"):
            lines += block.text.replace("\\\n", " ").splitlines()
        for line in lines:
            for step in re.split(r"&&|;|>", line.replace("\\\n", " ")):
                words = shlex.split(step, comments=True)
                names = [word.rpartition("/")[2] for word in words]
                if "iceberg-cli" in names:
                    yield path.name, words[names.index("iceberg-cli") + 1 :]


def rows(text: str) -> list[list[str]]:
    """The cells of the first Markdown table in a text, without its two lines of head."""
    table = re.search(r"^\|(?:.*\n\|)*.*$", text, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.group().splitlines()[2:]]


def test_readme_is_short() -> None:
    assert len(text_of(README).splitlines()) < MOST_LINES


def test_exit_codes_are_those_of_the_program() -> None:
    stated = rows(text_of(PAGES / "exit-codes.md"))
    assert {int(code): meaning for code, meaning in stated} == EXIT_CODES


def test_every_command_line_in_a_block_can_be_parsed() -> None:
    root: Any = typer.main.get_command(make_app())
    found = list(command_words())
    assert {words[0] for _, words in found} == set(COMMANDS)
    for page, (name, *words) in found:
        context = root.make_context("iceberg-cli", [name], obj=Configuration(dict))
        try:
            root.get_command(context, name).make_context(name, [*words], parent=context)
        except typer.TyperException as error:
            pytest.fail(f"{page}: iceberg-cli {name} {shlex.join(words)}: {error.format_message()}")


def test_every_option_that_a_page_names_exists() -> None:
    known = "".join(
        iceberg_cli(*command, "--help-all" if command else "--help").out
        for command in ([], *([name] for name in COMMANDS))
    )
    of_other_programs = {"--dist", "--full", "--record", "--regenerate", "--size", "--spark", "--target"}
    for path in written_pages():
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text_of(path)))
        assert {option for option in named if option not in known} <= of_other_programs, path.name


@pytest.mark.parametrize("page", pages_with("toml"), ids=lambda path: path.stem)
def test_settings_are_those_of_a_configuration_file_or_a_policy(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", "secret")
    for block in blocks(text_of(page), "toml"):
        if "entry-points" in block.text or block.text.startswith("--8<--"):
            continue  # of a package, or a file that tests/schedulers runs
        if "[[tables]]" in block.text:
            load_policy(str(_written(tmp_path / "policy.toml", block.text)))
            continue
        file = _written(tmp_path / "iceberg-cli.toml", block.text)
        monkeypatch.setenv("ICEBERG_CLI_CONFIG", str(file))
        shown = iceberg_cli("config", "show", "--format", "json")
        assert shown.code == 0, shown.err
        assert any(str(file) in each["source"] for each in shown.json["options"].values())


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_python_example_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert iceberg_cli("demo", "demo", "--quiet").code == 0
    page = text_of(PAGES / "python.md")
    one_table, many_tables = blocks(page, "python")
    (policy,) = blocks(page, "toml")
    _written(tmp_path / "policy.toml", policy.text)
    names: dict[str, Any] = {}
    capsys.readouterr()
    exec(one_table.text, names)
    planned, done = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[1-9]\d* files, \d+ bytes \(\)", planned)
    assert done.startswith("done {")
    assert names["files"].num_rows
    assert (names["checked"].errors, names["open_operations"]) == (0, [])
    exec(many_tables.text, names)
    *survey, events, orders = capsys.readouterr().out.splitlines()
    assert survey[1].startswith("What is due in 3 tables frees ")
    for line in (events, orders):
        assert re.fullmatch(r"expire-snapshots done [1-9]\d*", line)


def test_airflow_example_expires_and_tells_what_a_retry_can_mend(tmp_path: Path) -> None:
    assert iceberg_cli("demo", tmp_path / "demo", "--quiet").code == 0
    (block,) = blocks(text_of(PAGES / "cron-and-airflow.md"), "python")
    names: dict[str, Any] = {}
    exec(block.text, names)
    assert names["expire"](str(tmp_path / "demo/db/events"))["deleted_manifest_lists_count"] > 0
    assert names["retry"](ic.errors.CommitConflict("conflict"))
    assert not names["retry"](ic.errors.Refused("refused"))


@pytest.mark.parametrize("name", ["airflow_dag.py", "dagster_job.py"])
def test_examples_for_schedulers_use_public_names_alone(name: str) -> None:
    tree = ast.parse(text_of(PAGES / "examples" / name))
    nodes = list(ast.walk(tree))
    imported = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    sources = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {each for each in imported | sources if "iceberg_cli" in each} == {"iceberg_cli"}
    used = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ic"
    }
    assert {"ListedTable", "Policy", "list_tables", "maintain"} <= used <= set(ic.__all__)


def test_example_of_a_conformance_suite_can_be_run(tmp_path: Path) -> None:
    (block,) = blocks(text_of(PAGES / "plug-ins.md"), "python")
    names: dict[str, Any] = {}
    exec(block.text, names)
    suite = names["TestMine"]()
    sandbox = type(suite).sandbox.__wrapped__(suite, tmp_path)
    suite.test_what_was_put_is_read_back(sandbox, b"x", tmp_path)


def test_words_of_screens_stand_for_the_fields_of_documents_that_the_page_names(tmp_path: Path) -> None:
    words = dict(rows(text_of(REFERENCE / "documents.md")))
    assert iceberg_cli("demo", tmp_path / "demo", "-q").code == 0
    tables = tmp_path / "demo" / "db"
    assert iceberg_cli("expire-snapshots", tables / "events", "--older-than", "1d", "--yes", "-q").code == 0
    shown = [("history", tables / "events", "-v"), ("survey", tables, "-v")]
    heads = {word for words in shown for word in iceberg_cli(*words).out.replace("\n", " ").split()}
    documents = "".join(iceberg_cli(*words, "--format", "json").out for words in shown)
    for word, fields in words.items():
        assert word.split()[0] in heads, word
        for field in re.findall(r"`([a-z_]+)`", fields):
            assert f'"{field}":' in documents, field


def test_python_page_has_every_public_name() -> None:
    page = text_of(PAGES / "python.md")
    shown = set(re.findall(r"^::: iceberg_cli\.(\S+)$", page, re.MULTILINE))
    modules = {"delta": ic.delta.__all__, "iceberg": ic.iceberg.__all__}
    public = set(ic.__all__) - {"__version__", *modules}
    assert shown == public
    policies = text_of(REFERENCE / "policies.md")
    named = set(re.findall(r"^### `(\S+)`$", policies, re.MULTILINE))
    assert named == {f"{module}.{name}" for module, names in modules.items() for name in names}


def test_site_has_every_page_and_no_other() -> None:
    navigation = text_of(ROOT / "docs" / "mkdocs.yml").partition("\nnav:\n")[2].partition("\n\n")[0]
    listed = re.findall(r"\S+\.md$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md"))


@pytest.mark.parametrize("page", written_pages(), ids=lambda path: path.stem)
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", text_of(page)):
        (link,) = filter(None, target)
        assert link.startswith("https://") or (page.parent / link).exists(), link
