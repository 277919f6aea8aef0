"""Help, usage errors, and how little is loaded for them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from iceberg_cli import __version__
from iceberg_cli.cli.app import make_app
from iceberg_cli.cli.commands.completion import SCRIPTS
from iceberg_cli.cli.options import help_texts
from iceberg_cli.errors import IcebergCliError
from tests.cli.command_names import COMMANDS
from tests.cli.running import iceberg_cli, process
from tests.paths import ROOT

HEAVY = (
    "pyarrow",
    "numpy",
    "pydantic",
    "click",
    "fsspec",
    "s3fs",
    "sqlalchemy",
    "rich",
    "asyncio",
    "fastavro",
)
# What neither help nor a look at a table needs.
ONLY_FOR_SOME = (
    "pydantic",
    "importlib.metadata",
    "fastavro",
    "iceberg_cli.iceberg.spec.table_metadata.updates",
)


def exit_codes_of_errors() -> set[int]:
    """The exit code of every class of errors."""
    classes = [IcebergCliError]
    for one in classes:
        classes += one.__subclasses__()
    return {one.exit_code for one in classes}


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_command_and_every_exit_code(option: str) -> None:
    shown = iceberg_cli(option)
    assert shown.code == 0
    assert all(re.search(rf"^  {name} ", shown.out, re.MULTILINE) for name in COMMANDS)
    listed = {int(code) for code in re.findall(r"^    (\d+) ", shown.out, re.MULTILINE)}
    assert listed >= exit_codes_of_errors() | {0, 3}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_one_screen_and_counts_the_options_that_it_leaves_out(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    brief, whole = (iceberg_cli(command, option) for option in ("--help", "--help-all"))
    assert (brief.code, whole.code) == (0, 0)
    assert len(brief.out.splitlines()) <= 40
    own, every = (
        set(re.findall(r"^  (?:-., )?(--[a-z0-9-]+)", each.out.partition("Examples:")[0], re.MULTILINE))
        for each in (brief, whole)
    )
    assert own <= every
    left = len(every) - len(own)
    assert (f"\n  {left} more options: --help-all" in brief.out) is bool(left)
    if command.partition("-")[0] in ("expire", "rewrite", "merge", "upgrade", "assign"):
        assert {"--dry-run", "--yes", "--help"} <= own
        assert not own & {"--as-of", "--engine", "--format", "--quiet", "--unsafe-trust-lists"}


def test_help_of_one_verb_has_its_options_in_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = iceberg_cli("expire-snapshots", "-h").out.splitlines()
    assert "  --older-than TIME|DURATION   Expire what is older" in lines
    assert "  -n, --dry-run                Show the plan, write nothing" in lines


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_says_what_each_option_and_argument_does(command: str) -> None:
    shown = iceberg_cli(command, "--help-all")
    assert shown.code == 0
    assert shown.err == ""
    options = "\n".join(groups(shown.out).values())
    bare = re.findall(r"^  -\S+(?:, --\S+)?(?: [A-Z=|]+)?$(?!\n {10,})", options, re.MULTILINE)
    assert bare == []


def groups(text: str) -> dict[str, str]:
    """The lines below each heading of a help text."""
    parts = re.split(r"^ {0,2}([A-Z][a-z ]+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_help_puts_options_in_groups() -> None:
    shown = groups(iceberg_cli("expire-snapshots", "--help-all").out)
    options = {
        title: set(re.findall(r"(?:^  |, )(--[a-z-]+)", part, re.MULTILINE)) for title, part in shown.items()
    }
    assert {"--older-than", "--retain-last", "--as-of"} <= options["What to do"]
    assert {
        "--dry-run",
        "--yes",
        "--grace",
        "--unsafe-allow-root",
        "--unsafe-allow-short-retention",
    } <= options["Safety"]
    assert {"--engine", "--spark-master", "--storage-option", "--no-cache"} <= options["Where it runs"]
    assert {"--format", "--quiet", "--help", "--exit-code"} <= options["Output"]
    assert "Options" not in shown


def test_every_option_that_has_a_group_exists() -> None:
    every = "".join(iceberg_cli(command, "--help-all").out for command in COMMANDS)
    assert [name for name in help_texts._GROUP_OF if not re.search(rf"{name}\b", every)] == []


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_two_examples_that_the_command_line_reads(command: str) -> None:
    examples = groups(iceberg_cli(*[command] * bool(command), "--help").out)["Examples"]
    lines = re.findall(r"^ +iceberg-cli (.+)$", examples, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])
        assert words[0] == (command or words[0])
        with typer.main.get_command(make_app()).make_context("iceberg-cli", words) as context:
            found = context.command.get_command(context, words[0])
            found.make_context(words[0], words[1:])  # raises what is wrong with an option


def test_help_names_both_formats() -> None:
    assert "Apache Iceberg and Delta tables" in iceberg_cli("--help").out


def test_demo_offers_no_option_that_means_nothing_to_it() -> None:
    options = set(re.findall(r"--[a-z-]+", iceberg_cli("demo", "--help-all").out.partition("Examples:")[0]))
    assert options == {"--as-of", "--format", "--quiet", "--help", "--help-all"}
    refused = iceberg_cli("demo", "t", "--engine", "spark")
    assert (refused.code, "No such option: --engine" in refused.err) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_the_shell(shell: str) -> None:
    shown = iceberg_cli("completion", shell)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == (ROOT / "completions" / SCRIPTS[shell]).read_text()
    assert shell in shown.out or shell == "zsh"


def test_completion_for_another_shell_names_those_that_there_are() -> None:
    shown = iceberg_cli("completion", "ksh")
    assert (shown.code, shown.out) == (2, "")
    assert "bash, zsh, fish" in shown.err


def test_without_arguments_the_help_goes_to_standard_error_and_the_exit_code_is_2() -> None:
    shown = iceberg_cli()
    assert (shown.code, shown.out) == (2, "")
    assert "Usage: iceberg-cli" in shown.err


def test_the_list_of_commands_cuts_no_sentence() -> None:
    listed = iceberg_cli("--help").out.partition("Commands:")[2]
    assert "..." not in listed


def test_an_option_of_two_verbs_says_in_plan_what_it_does_in_each() -> None:
    shown = " ".join(iceberg_cli("plan", "--help-all").out.split())
    about = shown.partition("--target-size SIZE")[2].partition("--min-files")[0]
    assert "rewrite-manifests" in about
    assert "merge-dvs" in about
    assert "64MiB" in about


def test_version_is_the_packages_version() -> None:
    shown = iceberg_cli("--version")
    assert (shown.code, shown.out) == (0, f"iceberg-cli {__version__} (iceberg-table-maintenance)\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--nope"], "--nope"),
        (["vacuum", "t"], "vacuum"),
        (["expire-snapshots"], "TABLE"),
        (["expire-snapshots", "t", "--nope"], "--nope"),
        (["expire-snapshots", "t", "--retain-last", "many"], "--retain-last"),
        (["inspect", "t", "--limit"], "--limit"),
        (["inspect", "t", "files", "surplus"], "surplus"),
    ],
)
def test_command_line_that_cannot_be_read_exits_2_and_names_what_was_read(
    arguments: list[str], named: str
) -> None:
    shown = iceberg_cli(*arguments)
    assert (shown.code, shown.out) == (2, "")
    first = shown.err.splitlines()[0]
    assert first.startswith("error: ")
    assert named in first
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("spelling", [["--format", "json"], ["--format=json"]])
def test_unknown_option_with_json_prints_one_error_document(spelling: list[str]) -> None:
    shown = iceberg_cli("expire-snapshots", "t", "--nope", *spelling)
    assert shown.code == 2
    assert shown.json["schema"] == "iceberg-cli/error/2"
    assert shown.json["exit_code"] == 2
    assert "--nope" in shown.json["message"]


@pytest.mark.parametrize(
    ("words", "code", "names"),
    [
        pytest.param(["--help"], 0, HEAVY, id="help needs none that does the work"),
        pytest.param(["inspect", "FOLDER", "--limit", "3", "files", "-q"], 10, ONLY_FOR_SOME, id="a command"),
    ],
)
def test_no_library_is_loaded_that_is_not_needed(
    tmp_path: Path, words: list[str], code: int, names: tuple[str, ...]
) -> None:
    program = (
        "import sys, json\n"
        "from iceberg_cli.cli.app import run\n"
        f"assert run({[str(tmp_path) if word == 'FOLDER' else word for word in words]}) == {code}\n"
        f"print('\\n' + json.dumps([name for name in {names!r} if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_reader_that_leaves_is_neither_success_nor_a_bug(tmp_path: Path) -> None:
    assert iceberg_cli("demo", tmp_path / "demo", "-q").code == 0
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "iceberg_cli", "inspect", str(tmp_path / "demo/db/events"), "snapshots"],
            cwd=ROOT,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 141
    assert "Traceback" not in done.stderr


def test_module_and_script_are_the_same_program() -> None:
    assert process("--version").out == f"iceberg-cli {__version__} (iceberg-table-maintenance)\n"
    assert process("expire-snapshots").code == 2
