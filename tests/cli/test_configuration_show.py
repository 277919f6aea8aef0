"""`config show`: the value of every option, and where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_names import COMMANDS
from tests.cli.running import JSON, iceberg_cli

FILE = """
cache-size = "2GiB"
storage-option = ["s3.secret-access-key=env:KEY", "s3.region=x"]
limit-deletes = 100
[expire-snapshots]
older-than = "14d"
limit-deletes = 5
dry-run = false
snapshot-id = [7, 8]
cache-size = "3GiB"
[plan]
retain-last = 3
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a configuration file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iceberg-cli.toml").write_text(FILE)
    return tmp_path


def shown(*words: str) -> dict[str, tuple[object, str]]:
    """Value and source of each option, by its name."""
    options = iceberg_cli("config", "show", *words, *JSON).json["options"]
    return {name: (each["value"], each["source"]) for name, each in options.items()}


def test_every_option_has_one_row_and_one_for_each_command_that_differs(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEBERG_CLI_ENGINE", "local")
    monkeypatch.setenv("ICEBERG_CLI_EXIT_CODE", "on")
    assert {name: found for name, found in shown().items() if found[1] != "default"} == {
        "cache-size": ("2GiB", "iceberg-cli.toml: cache-size"),
        "storage-option": (
            ["s3.secret-access-key=env:KEY", "s3.region=x"], "iceberg-cli.toml: storage-option",
        ),
        "limit-deletes": (100, "iceberg-cli.toml: limit-deletes"),
        "engine": ("local", "variable ICEBERG_CLI_ENGINE"),
        "exit-code": (True, "variable ICEBERG_CLI_EXIT_CODE"),
        "expire-snapshots.older-than": ("14d", "iceberg-cli.toml: expire-snapshots.older-than"),
        "expire-snapshots.limit-deletes": (5, "iceberg-cli.toml: expire-snapshots.limit-deletes"),
        "expire-snapshots.dry-run": (False, "iceberg-cli.toml: expire-snapshots.dry-run"),
        "expire-snapshots.snapshot-id": (["7", "8"], "iceberg-cli.toml: expire-snapshots.snapshot-id"),
        "expire-snapshots.cache-size": ("3GiB", "iceberg-cli.toml: expire-snapshots.cache-size"),
        "plan.retain-last": (3, "iceberg-cli.toml: plan.retain-last"),
    }  # fmt: skip


def test_all_options_of_the_help_are_there(place: Path) -> None:
    for command in set(COMMANDS) - {"completion"}:
        text = iceberg_cli(command, "--help-all").out.partition("Examples:")[0]
        listed = {
            word.strip(",")
            for line in text.splitlines()
            if line.startswith("  -")
            for word in line.split()[:2]
        }
        flags = {word.removeprefix("--") for word in listed if word.startswith("--")} - {"help"}
        names = {name for name in shown(command) if "." not in name}
        assert names == flags, command
        assert names <= set(shown())


def test_a_key_that_is_one_value_here_and_several_there_is_one_row(place: Path) -> None:
    (place / "iceberg-cli.toml").write_text('ref = "main"')
    rows = {name: found for name, found in shown().items() if found[1] != "default"}
    assert rows == {"ref": ("main", "iceberg-cli.toml: ref")}
    assert shown("assign-row-ids")["ref"] == (["main"], "iceberg-cli.toml: ref")


def test_one_command_has_its_own_values(place: Path) -> None:
    expire = shown("expire-snapshots")
    assert expire["limit-deletes"] == (5, "iceberg-cli.toml: expire-snapshots.limit-deletes")
    assert expire["cache-size"] == ("3GiB", "iceberg-cli.toml: expire-snapshots.cache-size")
    assert expire["retain-last"] == (None, "default")
    assert shown("resume")["limit-deletes"] == (100, "iceberg-cli.toml: limit-deletes")


def test_a_plan_takes_a_verbs_own_options_from_its_table(place: Path) -> None:
    plan = shown("plan")
    assert plan["older-than"] == (None, "default")
    assert plan["expire-snapshots.older-than"] == ("14d", "iceberg-cli.toml: expire-snapshots.older-than")
    assert plan["retain-last"] == (3, "iceberg-cli.toml: plan.retain-last")
    assert plan["cache-size"] == ("2GiB", "iceberg-cli.toml: cache-size")
    assert {name for name in plan if "." in name} == {
        "expire-snapshots.older-than",
        "expire-snapshots.snapshot-id",
    }


def test_the_document_names_file_and_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = iceberg_cli("config", "show", "resume", *JSON).json
    assert (document["file"], document["command"]) == ("iceberg-cli.toml", "resume")
    (place / "iceberg-cli.toml").unlink()
    document = iceberg_cli("config", "show", *JSON).json
    assert (document["file"], document["command"]) == (None, None)
    assert {each["source"] for each in document["options"].values()} == {"default"}


def test_text_has_what_is_not_as_by_default(place: Path) -> None:
    ran = iceberg_cli("config", "show")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[0] == "Configuration file: iceberg-cli.toml"
    assert "expire-snapshots.snapshot-id 7, 8 iceberg-cli.toml: expire-snapshots.snapshot-id" in lines
    assert "expire-snapshots.dry-run no iceberg-cli.toml: expire-snapshots.dry-run" in lines
    assert not any("default" in line for line in lines[:-1])
    every = shown()
    as_by_default = sum(source == "default" for _, source in every.values())
    assert f"{as_by_default} options as by default; --verbose shows them." == lines[-1]
    verbose = iceberg_cli("config", "show", "--verbose").out
    assert "engine" in verbose
    assert len(verbose.splitlines()) == len(every) + 3
    (place / "iceberg-cli.toml").write_text("quiet = true")
    assert "quiet yes iceberg-cli.toml: quiet" in " ".join(iceberg_cli("config", "show").out.split())


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        (["config"], "Missing argument 'show'"),
        (["config", "shwo"], "'shwo' is nothing that config does"),
        (["config", "show", "expire-snapshot"], "Did you mean 'expire-snapshots'"),
        (["config", "show", "completion"], "'completion' is no command with options"),
    ],
)
def test_what_cannot_be_shown_is_named(words: list[str], stated: str, place: Path) -> None:
    ran = iceberg_cli(*words)
    assert (ran.code, ran.out) == (2, "")
    assert stated in ran.err


def test_a_file_that_cannot_be_used_is_an_error_here_too(place: Path) -> None:
    (place / "iceberg-cli.toml").write_text("[inspect]\nlimt = 3")
    ran = iceberg_cli("config", "show")
    assert ran.code == 2
    assert "inspect.limt is no option of inspect. Did you mean 'limit'" in ran.err
