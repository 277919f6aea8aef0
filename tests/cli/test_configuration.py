"""Options from variables and the configuration file: every one of every command, and which place is the stronger."""

from __future__ import annotations

import functools
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from iceberg_cli.cli.app import make_app
from iceberg_cli.cli.options.arguments import Argument, Values, VerbOptions, values_of
from iceberg_cli.cli.options.configuration import Configuration, variable_of
from iceberg_cli.cli.options.plain_command import PlainCommand, PlainGroup
from tests.builders import DAY_MS
from tests.cli.lakes import AS_OF, AS_OF_MS, FolderTable, delta_with_removed_files, unchanged
from tests.cli.running import JSON, as_nobody, dry, going, iceberg_cli, process
from tests.paths import ROOT

CLASSES: Mapping[str, Any] = {
    info.name or "": info.callback
    for info in make_app().registered_commands
    if isinstance(info.callback, type) and issubclass(info.callback, Values)
}
PARAMETERS: Mapping[str, Mapping[str, Argument]] = {name: cls.parameters for name, cls in CLASSES.items()}
EVERY = [
    (command, each)
    for command, parameters in PARAMETERS.items()
    for each in parameters.values()
    if each.is_option
]
ALONE = [case for case in EVERY if case[1].flag == "--yes" or case[1].flag.startswith("--unsafe-")]
TAKEN = [case for case in EVERY if case not in ALONE]
EXAMPLES = {
    "TIME": "2026-01-02T03:04:05Z",
    "TIME|DURATION": "9d",
    "DURATION": "3h",
    "SIZE": "5MiB",
    "R": "0.25",
    "FROM..TO": "3..9",
    "K=V": "a=b",
    "EXPR": "day = '2026-11-01'",
    "FILE": "abc.prom",
    "URL": "spark://host:7077",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which there is no configuration file yet."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def deep_unless_first(cases: Sequence[tuple[str, Argument]]) -> list[Any]:
    """Parameters of a test: an option of several commands is a deep test but for the first of them."""
    first = {option.flag: command for command, option in reversed(cases)}
    return [
        pytest.param(
            (command, option),
            id=f"{command} {option.flag}",
            marks=() if first[option.flag] == command else pytest.mark.deep,
        )
        for command, option in cases
    ]


# -- every option --------------------------------------------------------------------------------------------------


def example(option: Argument) -> Any:
    """A value of an option that is not its default, as TOML has it."""
    if option.is_switch:
        return True
    words = [word for word in option.metavar.replace(",", "|").split("|") if word != option.default]
    value = EXAMPLES.get(option.metavar) or ("abc" if option.metavar.isupper() else words[-1])
    if option.parser is not None:
        value = 7
    is_one_elsewhere = any(each.flag == option.flag and not each.is_repeatable for _, each in EVERY)
    return [value, value] if option.is_repeatable and not is_one_elsewhere else value


def as_words(flag: str, value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [word for each in values for word in ([flag] if each is True else [flag, str(each)])]


def plain(value: Any) -> Any:
    """What a command is called with, as values that can be compared."""
    if isinstance(value, VerbOptions):
        return dict(value.given)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    return value


def called_with(command: str, *words: str, idle: Any = lambda _: ()) -> dict[str, Any]:
    """What a command line calls the function of its command with, in place of which nothing is done."""
    got: list[dict[str, Any]] = []
    own = CLASSES[command]

    @functools.wraps(own._function)
    def record(**values: Any) -> None:
        got.append(values)

    app = typer.Typer(cls=PlainGroup, add_completion=False)
    app.callback()(lambda: None)
    app.command(command, cls=PlainCommand)(values_of(record, own._groups, idle))
    needed = [each for each in own.parameters.values() if each.default is inspect.Parameter.empty]
    root = typer.main.get_command(app)
    with root.make_context(
        "c", [command, *("x" for _ in needed), *words], obj=Configuration(lambda: PARAMETERS)
    ) as context:
        root.invoke(context)
    return {name: plain(each) for name, each in got[0].items()}


@pytest.mark.parametrize("case", deep_unless_first(TAKEN))
def test_an_option_has_one_value_by_command_line_variable_and_file(
    case: tuple[str, Argument], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, option = case
    value, key = example(option), option.flag.removeprefix("--")
    typed = called_with(command, *as_words(option.flag, value))
    usual = called_with(command)
    assert typed != usual, "the example is not the default"

    listed = value if isinstance(value, list) else [value]
    text = "yes" if value is True else "\n".join(map(str, listed))
    of_all, of_command = f"{key} = {json.dumps(value)}", f"[{command}]\n{key} = {json.dumps(value)}"
    # A verb to which the option means something else takes none that speaks to all.
    shared = usual if option.own else without_own(typed, option.flag)
    for variable, expected in (
        (f"ICEBERG_CLI_{key.upper().replace('-', '_')}", shared),
        (f"ICEBERG_CLI_{command.upper().replace('-', '_')}_{key.upper().replace('-', '_')}", typed),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, text)
            assert called_with(command) == expected, variable

    for document, expected in ((of_all, shared), (of_command, typed)):
        (place / "iceberg-cli.toml").write_text(document)
        assert called_with(command) == expected, document


def without_own(typed: dict[str, Any], flag: str) -> dict[str, Any]:
    """What `plan` is called with, without what a flag gives the verbs to which it means something else."""
    owners = {verb for verb, each in EVERY if each.flag == flag and each.own}
    return {
        name: {verb: without(of_verb, flag) if verb in owners else of_verb for verb, of_verb in each.items()}
        if owners & ({*each} if isinstance(each, dict) else set())
        else each
        for name, each in typed.items()
    }


def without(given: dict[str, Any], flag: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != flag}


@pytest.mark.parametrize("case", deep_unless_first(ALONE))
def test_what_only_the_command_line_may_say_is_refused_elsewhere(
    case: tuple[str, Argument], place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, option = case
    key, variable = option.flag.removeprefix("--"), variable_of(option.flag)
    for value in (True, False, "x", ["x"]):
        for document, path in ((f"{key} = ", key), (f"[{command}]\n{key} = ", f"{command}.{key}")):
            (place / "iceberg-cli.toml").write_text(document + json.dumps(value))
            with unchanged(table.folder):
                ran = iceberg_cli("expire-snapshots", table.name, *AS_OF, "--yes")
            assert ran.code == 2
            assert f"iceberg-cli.toml: {path}: {option.flag} is taken from the command line alone" in ran.err
    (place / "iceberg-cli.toml").unlink()
    monkeypatch.setenv(variable, "1")
    with unchanged(table.folder):
        ran = iceberg_cli("expire-snapshots", table.name, *AS_OF, "--yes")
    assert ran.code == 2
    assert f"Variable {variable}: {option.flag} is taken from the command line alone" in ran.err


def test_some_options_are_taken_from_the_command_line_alone() -> None:
    assert {option.flag for _, option in ALONE} >= {"--yes", "--unsafe-allow-root", "--unsafe-drop-tags"}


# -- which is stronger -----------------------------------------------------------------------------------------------


def test_command_line_then_variable_then_the_commands_table_then_the_keys_before_all(
    place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut() -> tuple[float, str]:
        option = dry(table.name, *AS_OF)["options"]["older_than_ms"]
        return (AS_OF_MS - option["value"]) / DAY_MS, option["source"]

    assert cut() == (5, "default")
    (place / "iceberg-cli.toml").write_text('older-than = "6d"')
    assert cut() == (6, "iceberg-cli.toml: older-than")
    (place / "iceberg-cli.toml").write_text('older-than = "6d"\n[expire-snapshots]\nolder-than = "7d"')
    assert cut() == (7, "iceberg-cli.toml: expire-snapshots.older-than")
    monkeypatch.setenv("ICEBERG_CLI_OLDER_THAN", "8d")
    assert cut() == (8, "variable ICEBERG_CLI_OLDER_THAN")
    option = dry(table.name, *AS_OF, "--older-than", "9d")["options"]["older_than_ms"]
    assert option == {"value": AS_OF_MS - 9 * DAY_MS, "source": "--older-than"}


def test_the_value_of_a_file_decides_what_goes(place: Path, table: FolderTable) -> None:
    assert going(dry(table.name, *AS_OF)) == {"1", "2", "3"}
    (place / "iceberg-cli.toml").write_text('[expire-snapshots]\nolder-than = "7d"\nretain-last = 2')
    assert going(dry(table.name, *AS_OF)) == {"1", "2"}
    assert going(dry(table.name, *AS_OF, "--older-than", "8d")) == {"1"}


def test_a_verbs_table_means_the_same_in_a_plan(place: Path, table: FolderTable) -> None:
    (place / "iceberg-cli.toml").write_text(
        '[expire-snapshots]\nolder-than = "7d"\n[rewrite-manifests]\ntarget-size = "5MiB"\n'
        '[merge-dvs]\ntarget-size = "6MiB"'
    )
    alone = dry(table.name, *AS_OF)["options"]
    named_one = iceberg_cli("plan", table.name, "expire-snapshots", *AS_OF, "--format", "json").json
    every = iceberg_cli("plan", table.name, *AS_OF, "--format", "json").json["plans"]
    assert named_one["options"] == alone
    options = {each["operation"]: each["options"] for each in every}
    assert options["expire-snapshots"] == alone
    assert options["rewrite-manifests"]["target_size_bytes"] == {
        "value": 5 << 20, "source": "iceberg-cli.toml: rewrite-manifests.target-size",
    }  # fmt: skip
    assert options["merge-dvs"]["target_size_bytes"]["value"] == 6 << 20
    (place / "iceberg-cli.toml").write_text(
        '[expire-snapshots]\nolder-than = "7d"\n[plan]\nolder-than = "8d"'
    )
    assert dry(table.name, *AS_OF)["options"]["older_than_ms"]["value"] == AS_OF_MS - 7 * DAY_MS
    found = iceberg_cli("plan", table.name, "expire-snapshots", *AS_OF, "--format", "json").json
    assert found["options"]["older_than_ms"]["source"] == "iceberg-cli.toml: plan.older-than"


def test_a_switch_that_is_off_for_one_command_is_off(place: Path, table: FolderTable) -> None:
    (place / "iceberg-cli.toml").write_text("dry-run = true\n[resume]\n")
    with unchanged(table.folder):
        assert iceberg_cli("expire-snapshots", table.name, *AS_OF, "--yes").code == 0
    (place / "iceberg-cli.toml").write_text("dry-run = true\n[expire-snapshots]\ndry-run = false")
    assert ": Done; " in iceberg_cli("expire-snapshots", table.name, *AS_OF, "--yes").out


def test_a_default_that_is_typed_wins_over_a_file_and_is_spelled_again(
    place: Path, table: FolderTable
) -> None:
    (place / "iceberg-cli.toml").write_text('[expire-snapshots]\ncleanup = "metadata"')
    assert dry(table.name, *AS_OF)["options"]["cleanup"]["value"] == "metadata"
    found = dry(table.name, *AS_OF, "--cleanup", "all")["options"]["cleanup"]
    assert found == {"value": "all", "source": "--cleanup"}
    ran = iceberg_cli("plan", table.name, *AS_OF, "--cleanup", "all")
    assert f"iceberg-cli expire-snapshots {table.name} --cleanup all --as-of {AS_OF_MS}" in ran.out


def test_commands_that_are_shown_spell_what_was_typed_alone(
    place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "iceberg-cli.toml").write_text(f'as-of = "{AS_OF_MS}"\n[expire-snapshots]\nretain-last = 2')
    monkeypatch.setenv("ICEBERG_CLI_OLDER_THAN", "7d")
    ran = iceberg_cli("plan", table.name, "--grace", "1h")
    assert f"\n  iceberg-cli expire-snapshots {table.name} --grace 1h\n" in ran.out


def test_a_plan_that_is_applied_names_where_the_values_of_its_file_came_from(
    place: Path, table: FolderTable
) -> None:
    (place / "iceberg-cli.toml").write_text('[expire-snapshots]\nolder-than = "7d"')
    assert iceberg_cli("plan", table.name, "expire-snapshots", *AS_OF, "-o", "saved.plan").code == 0
    (place / "iceberg-cli.toml").write_text('[expire-snapshots]\nolder-than = "1d"')
    ran = iceberg_cli("apply", "saved.plan", "--dry-run")
    assert "7 d by iceberg-cli.toml: expire-snapshots.older-than\n" in ran.out
    assert "2 of 4 snapshots go" in ran.out


def test_a_variable_is_stronger_than_a_policy_file_and_one_of_a_verb_is_for_that_alone(
    place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = place / "policy.toml"
    verbs = 'expire-snapshots = { older-than = "7d" }\nmerge-dvs = {}\nrewrite-data-files = {}'
    policy.write_text(f'version = 1\n[[tables]]\nmatch = ["{table.folder}"]\n{verbs}')
    monkeypatch.setenv("ICEBERG_CLI_OLDER_THAN", "8d")
    monkeypatch.setenv("ICEBERG_CLI_TARGET_SIZE", "8MiB")
    monkeypatch.setenv("ICEBERG_CLI_REWRITE_DATA_FILES_TARGET_SIZE", "64MiB")
    ran = iceberg_cli("policy", "check", policy, table.folder, *JSON)
    (checked,) = ran.json["tables"]
    found = {name: (each["value"], each["source"]) for name, each in checked["options"].items()}
    assert found["expire-snapshots.older_than_ms"][1] == "variable ICEBERG_CLI_OLDER_THAN"
    assert found["merge-dvs.target_size_bytes"] == (8 << 20, "variable ICEBERG_CLI_TARGET_SIZE")
    assert found["rewrite-data-files.target_size_bytes"] == (
        64 << 20, "variable ICEBERG_CLI_REWRITE_DATA_FILES_TARGET_SIZE",
    )  # fmt: skip
    monkeypatch.delenv("ICEBERG_CLI_REWRITE_DATA_FILES_TARGET_SIZE")
    (place / "iceberg-cli.toml").write_text(
        'target-size = "16MiB"\n[rewrite-data-files]\ntarget-size = "32MiB"'
    )
    plan = iceberg_cli("plan", table.name, *JSON).json["plans"]
    (option,) = (
        each["options"]["target_size_bytes"] for each in plan if each["operation"] == "rewrite-data-files"
    )
    assert (option["value"], option["source"]) == (
        32 << 20,
        "iceberg-cli.toml: rewrite-data-files.target-size",
    )
    monkeypatch.setenv("ICEBERG_CLI_MERGE_DVS_YES", "1")
    ran = iceberg_cli("merge-dvs", table.name)
    assert (ran.code, "--yes is taken from the command line alone" in ran.err) == (2, True)


# -- what has no meaning here ------------------------------------------------------------------------------------------


def test_options_of_the_other_format_in_a_file_have_no_effect(
    place: Path, tmp_path: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = delta_with_removed_files(tmp_path / "d", "b")
    (place / "iceberg-cli.toml").write_text(
        '[expire-snapshots]\nolder-than = "7d"\nretention = "15d"\n'
        "[inspect]\nversion = 0\nrecount = true\nsnapshots = 3"
    )
    monkeypatch.setenv("ICEBERG_CLI_REF", "main")
    assert dry(table.name, *AS_OF)["options"]["older_than_ms"]["source"] != "default"
    options = dry(delta, *AS_OF)["options"]
    assert options["retention_ms"] == {
        "value": 15 * DAY_MS, "source": "iceberg-cli.toml: expire-snapshots.retention",
    }  # fmt: skip
    for name in (table.name, delta):
        for what in ("summary", "properties", "history"):
            ran = iceberg_cli("inspect", name, what)
            assert ran.code == 0, ran.err
        assert iceberg_cli("inspect", name, "--check").code != 2
        assert iceberg_cli("plan", name, *AS_OF).code == 0
    assert iceberg_cli("expire-snapshots", delta, "--older-than", "7d", "-n").code == 2
    assert iceberg_cli("plan", table.name, "merge-dvs", *AS_OF).code == 0
    ran = iceberg_cli("plan", table.name, "merge-dvs", "--cleanup", "all", *AS_OF)
    assert ran.code == 2
    assert "--cleanup is an option of expire-snapshots, not of merge-dvs" in ran.err


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("limit = 3\noutput = 'rows.jsonl'", ["inspect", "T"]),
        ("check = true", ["inspect", "T", "snapshots"]),
        ("check = true", ["inspect", "T", "--recount"]),
        ("check = true", ["inspect", "T", "snapshots", "--limit", "1"]),
        ("deep = true", ["inspect", "T"]),
        ("snapshots = 3", ["inspect", "T"]),
        ("recount = true", ["inspect", "T", "refs"]),
        ("limit = 3\nrecount = true", ["inspect", "T", "--check"]),
        ("snapshot = 1", ["inspect", "T", "files", "--ref", "main"]),
        ("output = 'p.plan'", ["plan", "T"]),
        ("deadline = '1h'", ["upgrade-v3", "T", "--check"]),
        ("check = true", ["upgrade-v3", "T", "--dry-run"]),
        ("spark-master = 'local[2]'", ["inspect", "T", "--engine", "local"]),
    ],
)
def test_a_command_line_is_not_refused_for_what_a_file_says(
    document: str, words: list[str], place: Path, table: FolderTable
) -> None:
    (place / "iceberg-cli.toml").write_text(document)
    ran = iceberg_cli(*(table.name if word == "T" else word for word in words))
    assert ran.code in (0, 15), ran.err


@pytest.mark.parametrize(
    "document",
    [
        "check = true\nlist = true\n[upgrade-v3]\nlimit-deletes = 5\n[resume]\nabandon = true",
        "[upgrade-v3]\ncheck = true\nlimit-deletes = 5\n[resume]\nlist = true\nabandon = true",
    ],
)
def test_where_a_file_says_to_look_and_more_it_is_looked_alone(
    document: str, place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert iceberg_cli("expire-snapshots", table.name, *AS_OF, "--yes", "--limit-deletes", "1").code == 0
    (place / "iceberg-cli.toml").write_text(document)
    monkeypatch.setenv("ICEBERG_CLI_DEADLINE", "1h")
    with unchanged(table.folder):
        assert "nothing blocks the upgrade" in iceberg_cli("upgrade-v3", table.name).out
        assert "expire-snapshots" in iceberg_cli("resume", table.name).out
    assert "abandoned" in iceberg_cli("resume", table.name, "--abandon").out.lower()


def test_a_look_gets_nothing_of_what_a_file_says_about_carrying_out(place: Path) -> None:
    (place / "iceberg-cli.toml").write_text("limit-deletes = 5\nno-resume = true\nno-progress = true")
    idle = CLASSES["upgrade-v3"]._idle
    usual, look = (called_with("upgrade-v3", *words, idle=idle) for words in ((), ("--check",)))
    assert (usual["carry"]["limit_deletes"], usual["carry"]["no_resume"]) == (5, True)
    assert look["carry"]["limit_deletes"] is None
    assert not look["carry"]["no_resume"]
    assert look["run"]["no_progress"]


def test_what_a_file_itself_contradicts_is_refused_with_its_place(place: Path, table: FolderTable) -> None:
    (place / "iceberg-cli.toml").write_text("engine = 'local'\nspark-conf = ['a=b']")
    ran = iceberg_cli("inspect", table.name)
    assert (ran.code, ran.out) == (2, "")
    assert (
        "--engine comes from iceberg-cli.toml: engine; --spark-conf comes from iceberg-cli.toml: spark"
        in ran.err
    )


def test_named_snapshots_stay_alone_whatever_ages_a_file_has(place: Path, table: FolderTable) -> None:
    (place / "iceberg-cli.toml").write_text('[expire-snapshots]\nolder-than = "1d"\nretain-last = 1')
    assert going(dry(table.name, "--snapshot-id", "2", *AS_OF)) == {"2"}
    assert going(dry(table.name, "--snapshot-id", "2", "--older-than", "8d", *AS_OF)) == {"1", "2"}


# -- where the file is -------------------------------------------------------------------------------------------------


def source_of_cache_size() -> str:
    found: str = iceberg_cli("config", "show", "--format", "json").json["options"]["cache-size"]["source"]
    return found


def test_the_first_file_that_is_there_is_the_one(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert source_of_cache_size() == "default"
    for folder in (tmp_path / "home/.config/iceberg-cli", tmp_path / "xdg/iceberg-cli"):
        folder.mkdir(parents=True)
        (folder / "iceberg-cli.toml").write_text('cache-size = "2GiB"')
    assert source_of_cache_size() == f"{tmp_path}/home/.config/iceberg-cli/iceberg-cli.toml: cache-size"
    monkeypatch.setenv("XDG_CONFIG_HOME", "not/absolute")
    assert source_of_cache_size() == f"{tmp_path}/home/.config/iceberg-cli/iceberg-cli.toml: cache-size"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert source_of_cache_size() == f"{tmp_path}/xdg/iceberg-cli/iceberg-cli.toml: cache-size"
    (place / "iceberg-cli.toml").write_text('cache-size = "3GiB"')
    assert source_of_cache_size() == "iceberg-cli.toml: cache-size"
    (tmp_path / "other.toml").write_text('cache-size = "4GiB"')
    monkeypatch.setenv("ICEBERG_CLI_CONFIG", str(tmp_path / "other.toml"))
    assert source_of_cache_size() == f"{tmp_path}/other.toml: cache-size"
    monkeypatch.setenv("ICEBERG_CLI_CONFIG", "")
    assert source_of_cache_size() == "iceberg-cli.toml: cache-size"


@pytest.mark.parametrize("named_file", ["nothing.toml", ".", "iceberg-cli.toml/x"])
def test_a_file_that_is_named_must_be_there(
    named_file: str, place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "iceberg-cli.toml").touch()
    monkeypatch.setenv("ICEBERG_CLI_CONFIG", named_file)
    ran = iceberg_cli("inspect", table.name)
    assert (ran.code, ran.out) == (2, "")
    assert f"Cannot read the configuration file {named_file}: " in ran.err


def test_a_folder_that_may_not_be_entered_has_no_file_and_one_that_may_not_be_read_is_an_error(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not below pytest's own folder, which nobody but its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        open_to_all = Path(folder)
        open_to_all.chmod(0o755)
        hidden = open_to_all / "xdg"
        (hidden / "iceberg-cli").mkdir(parents=True)
        (hidden / "iceberg-cli/iceberg-cli.toml").write_text("= broken")
        hidden.chmod(0)
        monkeypatch.chdir(open_to_all)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(hidden))
        with as_nobody():
            assert source_of_cache_size() == "default"
        (open_to_all / "iceberg-cli.toml").touch(mode=0)
        with as_nobody():
            ran = iceberg_cli("config", "show")
        hidden.chmod(0o700)
    assert ran.code == 2
    assert "Cannot read the configuration file iceberg-cli.toml: Permission denied" in ran.err


def test_help_version_and_completion_need_no_file(
    place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "iceberg-cli.toml").write_text("= broken")
    monkeypatch.setenv("ICEBERG_CLI_YES", "1")
    for words in (["--help"], ["--version"], ["plan", "--help"], ["completion", "bash"]):
        ran = iceberg_cli(*words)
        assert (ran.code, ran.err) == (0, ""), words
    completed = process("__complete", "refs", table.name, cwd=place)
    assert (completed.code, completed.out) == (0, "main\tbranch\n")


def test_without_a_file_nothing_is_loaded_that_reads_one(place: Path, table: FolderTable) -> None:
    script = (
        "import sys; from iceberg_cli.cli.app import run; code = run(sys.argv[1:]); "
        "print([name for name in sys.modules if name == 'tomllib' or 'configur' in name]); sys.exit(code)"
    )
    for words in (["inspect", table.name], ["expire-snapshots", table.name, "-n"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *words],
            cwd=place, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.endswith("['iceberg_cli.cli.options.configuration']\n")


# -- what cannot be used -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "stated"),
    [
        ("older_than = '7d'", "older_than is no option of any command. Did you mean 'older-than'"),
        ("[expire-snapshots]\nolder-then = '7d'", "expire-snapshots.older-then is no option of expire-snapshots. Did"),
        ("[resume]\nretain-last = 3", "resume.retain-last is no option of resume. It is one of plan, expire-snapshots"),
        ("[expire-snapshot]\ngrace = '1h'", "expire-snapshot is no command. Did you mean 'expire-snapshots'"),
        ("plan = 3", "plan is a command: write its options below [plan]"),
        ("[completion]\nx = 1", "completion is no command"),
        ("help = true", "help is no option of any command"),
        ("no-progress = 1", "no-progress: 1 is not true or false"),
        ("no-progress = 'yes'", "no-progress: 'yes' is not true or false"),
        ("older-than = true", "older-than: True is no text or number"),
        ("older-than = ['7d']", "older-than: ['7d'] is no text or number"),
        ("older-than = 7", "older-than: '7' is no time"),
        ("older-than = 2026-11-01T00:00:00", "older-than: '2026-11-01T00:00:00' has no zone"),
        ("as-of = 2999-11-01T00:00:00Z", "as-of: '2999-11-01T00:00:00+00:00' is in the future"),
        ("[expire-snapshots]\ngrace = '1y'", "expire-snapshots.grace: '1y' is no duration"),
        ("retain-last = 0", "retain-last must be at least 1, not 0"),
        ("retain-last = 2.5", "retain-last: '2.5' is no whole number"),
        ("retain-last = 'two'", "retain-last: 'two' is no whole number"),
        ("snapshot-id = true", "snapshot-id: True is no text or number"),
        ("snapshot-id = [3, 'x']", "snapshot-id: 'x' is no whole number"),
        ("cleanup = 'some'", "cleanup must be all, metadata or none, not 'some'"),
        ("engine = 'duckdb'", "engine: 'duckdb' is not auto, local or spark"),
        ("format = 'yaml'", "format: 'yaml' is not text or json"),
        ("cache-size = '3 parsecs'", "cache-size: '3 parsecs' is no size"),
        ("target-size = '8'", "target-size must be between 4KiB and 1TiB, not '8'"),
        ("dead-ratio = 1.5", "dead-ratio must be above 0 and at most 1, not 1.5"),
        ("with = 'merge'", "with takes repair-manifests, merge-dvs, assign-row-ids, not merge"),
        ("compact-log = '9..3'", "compact-log: '9..3' is no range"),
        ("storage-option = ['novalue']", "storage-option: 'novalue' is not KEY=VALUE"),
        ("\n\nolder-than = ", "(at line 3"),
        ("a = 1\na = 2", "Cannot overwrite a value"),
        ("x = " + "[" * 5_000, "Cannot read iceberg-cli.toml"),
        ("retain-last = " + "9" * 5_000, "Cannot read iceberg-cli.toml"),
    ],
)  # fmt: skip
def test_what_a_file_has_that_cannot_be_used_is_one_line_with_its_place(
    document: str, stated: str, place: Path, table: FolderTable
) -> None:
    (place / "iceberg-cli.toml").write_text(document)
    with unchanged(table.folder):
        ran = iceberg_cli("merge-dvs", table.name, "--yes")  # also what another command's table has
    assert (ran.code, ran.out) == (2, "")
    [line] = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert "iceberg-cli.toml" in line
    assert stated in line
    assert "Nothing was changed." in ran.err


def test_a_file_that_is_no_utf_8_is_named_with_its_line(place: Path, table: FolderTable) -> None:
    (place / "iceberg-cli.toml").write_bytes(b"no-progress = true\nref = 'caf\xe9'\n")
    ran = iceberg_cli("inspect", table.name)
    assert (ran.code, ran.out) == (2, "")
    assert "iceberg-cli.toml: line 2 is no UTF-8" in ran.err


@pytest.mark.parametrize(
    ("name", "text", "stated"),
    [
        ("OLDER_THAN", "7 fortnights", "OLDER_THAN: '7 fortnights' is no time"),
        ("RETAIN_LAST", "0", "RETAIN_LAST must be at least 1, not 0"),
        ("DRY_RUN", "maybe", "DRY_RUN: 'maybe' is none of 1, true, yes, on, 0, false, no, off"),
        ("SNAPSHOT_ID", "1 x", "SNAPSHOT_ID: 'x' is no whole number"),
        ("FORMAT", "yaml", "FORMAT: 'yaml' is not text or json"),
        ("CACHE_SIZE", "\udce9", "CACHE_SIZE is no UTF-8"),
        (
            "LIMIT_DELETES",
            "-1",
            "--limit-deletes must be at least 1, not -1 (--limit-deletes comes from variable ",
        ),
    ],
)
def test_a_variable_that_cannot_be_used_is_one_line_with_its_name(
    name: str, text: str, stated: str, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"ICEBERG_CLI_{name}", text)
    with unchanged(table.folder):
        ran = iceberg_cli("expire-snapshots", table.name, "--yes")
    assert (ran.code, ran.out) == (2, "")
    [line] = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert stated in line
    assert f"variable ICEBERG_CLI_{name}" in line


@pytest.mark.parametrize(
    ("text", "dry_run"),
    [("1", True), ("TRUE", True), ("yes", True), ("on", True), ("", False), ("0", False), ("off", False)],
)
def test_switches_take_words_from_variables(
    text: str, dry_run: bool, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEBERG_CLI_DRY_RUN", text)
    before = table.files()
    assert iceberg_cli("expire-snapshots", table.name, *AS_OF, "--yes").code == 0
    assert (table.files() == before) is dry_run


def test_several_values_of_a_variable_have_newlines_or_spaces_between_them(
    place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEBERG_CLI_SNAPSHOT_ID", " 1\t2 ")
    assert going(dry(table.name, *AS_OF)) == {"1", "2"}
    monkeypatch.setenv("ICEBERG_CLI_SPARK_CONF", "\na=b c\nd=e\n")
    assert called_with("plan")["run"]["spark_conf"] == ["a=b c", "d=e"]


def test_a_variable_that_no_option_has_is_a_warning(
    table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEBERG_CLI_OLDER_THEN", "7d")
    ran = iceberg_cli("inspect", table.name)
    assert ran.code == 0
    assert ran.err.startswith(
        "warning: variable ICEBERG_CLI_OLDER_THEN is no option of any command. Did you mean 'ICEBERG_CLI_OLDER_THAN'"
    )
    assert iceberg_cli("inspect", table.name, "--quiet").err == ""
    monkeypatch.setenv("ICEBERG_CLI_\x1b[31m", "red")
    assert "\x1b" not in iceberg_cli("inspect", table.name).err
    monkeypatch.delenv("ICEBERG_CLI_\x1b[31m")
    monkeypatch.setenv("ICEBERG_CLI_QUIET", "1")
    assert iceberg_cli("inspect", table.name).err == ""
    monkeypatch.delenv("ICEBERG_CLI_OLDER_THEN")
    monkeypatch.delenv("ICEBERG_CLI_QUIET")
    monkeypatch.setenv("ICEBERG_CLI_OLDER_THAN", "7d")
    assert iceberg_cli("inspect", table.name).err == "", "an option of another command"


@pytest.mark.parametrize("where", ["variable", "file"])
def test_errors_are_documents_where_a_variable_or_the_file_asks_for_json(
    where: str, place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "variable":
        monkeypatch.setenv("ICEBERG_CLI_FORMAT", "json")
    else:
        (place / "iceberg-cli.toml").write_text('format = "json"')
    assert iceberg_cli("inspect", place / "nothing").json["exit_code"] == 10
    assert iceberg_cli("inspect", table.name, "--nope").json["exit_code"] == 2
    assert iceberg_cli("inspect", table.name).json["what"] == "summary"
    ran = iceberg_cli("inspect", place / "nothing", "--format", "text")
    assert (ran.code, ran.out) == (10, "")


# -- secrets -----------------------------------------------------------------------------------------------------------

SECRETS = [
    ("storage-option", "s3.secret-access-key=hunter22"),
    ("storage-option", "s3.session-token=hunter22"),
    ("storage-option", "adls.account-key=hunter22"),
    ("storage-option", "header.authorization=hunter22"),
    ("storage-option", "s3.endpoint=https://user:hunter22@host"),
    ("spark-conf", "spark.hadoop.fs.s3a.secret.key=hunter22"),
    ("spark-conf", "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net=hunter22"),
    ("spark-conf", "spark.sql.catalog.prod.credential=hunter22"),
    ("spark-conf", "spark.sql.catalog.prod.token=@hunter22"),  # Spark knows no files
]


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(("key", "text"), SECRETS)
def test_a_secret_in_plain_text_is_refused_and_not_shown(
    key: str, text: str, output: str, place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("inspect", table.name, "--format", output)
    with monkeypatch.context() as patch:
        patch.setenv(variable_of(f"--{key}"), f"a=b\n{text}")
        refused = [iceberg_cli(*words)]
    for document in (
        f"{key} = {json.dumps([text])}",
        f"{key} = {json.dumps(text)}",
        f"{key} = [[{json.dumps(text)}]]",
    ):
        (place / "iceberg-cli.toml").write_text(document)
        refused.append(iceberg_cli(*words))
    for ran in refused:
        assert ran.code == 2
        assert key in ran.out + ran.err or variable_of(f"--{key}") in ran.out + ran.err
        assert "hunter22" not in ran.out + ran.err
    assert "in plain text" in (refused[0].out + refused[0].err)


def test_a_spark_remote_with_a_token_is_refused(place: Path, table: FolderTable) -> None:
    (place / "iceberg-cli.toml").write_text('spark-remote = "sc://host:15002/;token=hunter22"')
    ran = iceberg_cli("inspect", table.name)
    assert ran.code == 2
    assert "hunter22" not in ran.err


def test_secrets_by_reference_are_taken(
    place: Path, table: FolderTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "secret").write_text("hunter22")
    monkeypatch.setenv("LAKE_SECRET", "hunter22")
    (place / "iceberg-cli.toml").write_text(
        'storage-option = ["s3.secret-access-key=env:LAKE_SECRET", "s3.session-token=@secret", "s3.region=x"]'
    )
    ran = iceberg_cli("inspect", table.name)
    assert ran.code == 0, ran.err
    assert "hunter22" not in iceberg_cli("config", "show").out
