"""What README.md, CHANGELOG.md, the completions and the manual pages say is what the program does; see `tests/docs`."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_cli import __version__
from iceberg_cli.cli.app import EXIT_CODES
from iceberg_cli.cli.options.help_texts import examples_of
from tests.cli.command_names import COMMANDS
from tests.cli.running import iceberg_cli
from tests.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
MANUAL = sorted((ROOT / "man").glob("*.1"))


def section(title: str) -> str:
    """The text of README.md below a heading."""
    parts = re.split(r"^## (.+)$", README, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table, without its two lines of head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_table_of_verbs_has_every_command_and_says_of_the_others_that_they_do_not_work() -> None:
    verbs = {verb.strip("`"): works for verb, works in rows(section("What works today"))}
    assert {verb for verb, works in verbs.items() if works != "not yet"} == set(COMMANDS)
    for verb in verbs.keys() - set(COMMANDS):
        assert iceberg_cli(verb, "t").code == 2


def test_readme_runs_the_main_job_on_the_demo_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = [line for line in README.splitlines() if "bin/iceberg-cli demo" in line]
    steps = [shlex.split(step) for step in line.split("&&") if "bin/iceberg-cli" in step]
    assert [words[1] for words in steps] == ["demo", "plan", "expire-snapshots"]
    assert [iceberg_cli(*words[1:]).code for words in steps] == [0, 0, 0]


def test_ci_finds_the_test_command_of_the_readme() -> None:
    (line,) = [line for line in README.splitlines() if "bin/pytest" in line]
    assert line.startswith("python3 -m venv .venv && ")


def test_changelog_begins_with_the_version_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+) ", changelog, re.MULTILINE)[0] == __version__


def test_generated_files_are_those_that_the_commands_give() -> None:
    done = subprocess.run(
        [sys.executable, ".ci/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr


def test_there_is_a_manual_page_for_each_command_with_every_exit_code() -> None:
    assert {page.stem for page in MANUAL} == {"iceberg-cli", *(f"iceberg-cli-{name}" for name in COMMANDS)}
    for page in MANUAL:
        status = page.read_text(encoding="utf-8").partition(".SH EXIT STATUS")[2].partition(".SH ")[0]
        assert [int(code) for code in re.findall(r"^\.B (\d+)$", status, re.MULTILINE)] == list(EXIT_CODES)


def test_manual_pages_have_files_and_the_examples_of_the_help() -> None:
    for page in MANUAL:
        text = page.read_text(encoding="utf-8").replace("\\-", "-")
        assert ".SH FILES\n.TP\n" in text, page.name
        examples = text.partition(".SH EXAMPLES")[2].partition(".SH ")[0]
        command = page.stem.removeprefix("iceberg-cli").removeprefix("-")
        stated = [f"iceberg-cli {words}" for _, words in examples_of(command)]
        assert re.findall(r"^iceberg-cli .*$", examples, re.MULTILINE) == stated


@pytest.mark.parametrize(
    ("program", "arguments", "file"),
    [
        ("bash", ["-n"], "completions/iceberg-cli.bash"),
        ("zsh", ["-n"], "completions/_iceberg-cli"),
        ("fish", ["--no-execute"], "completions/iceberg-cli.fish"),
        *(("mandoc", ["-T", "lint", "-W", "warning"], f"man/{page.name}") for page in MANUAL),
    ],
)
def test_shells_and_mandoc_accept_the_generated_file(program: str, arguments: list[str], file: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *arguments, file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
