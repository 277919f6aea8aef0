"""Options that take several values: with commas between them and by giving the option again, wherever they are set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.cli.app import make_app
from iceberg_cli.cli.options.arguments import Values, verb_group
from iceberg_cli.cli.options.settings import all_typed
from iceberg_cli.fleet.policy_schema import read_options
from iceberg_cli.formats import policies_of
from iceberg_cli.plan.text import as_one_value, comma_separated
from iceberg_cli.testing.delta_writer import a_field, a_metadata, a_protocol, an_add, write_log
from tests.cli.lakes import AS_OF, four_snapshots
from tests.cli.running import dry, going, iceberg_cli


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (" a , b,", ["a", "b"]),
        (r"a\,b", ["a,b"]),
        (r"a\,b,c", ["a,b", "c"]),
        (r"a\b", [r"a\b"]),
        (" a", [" a"]),
        ("", [""]),
        (",", [""]),
    ],
)
def test_commas_stand_between_values_unless_a_backslash_is_before_them(text: str, values: list[str]) -> None:
    assert comma_separated(text) == values


@pytest.mark.parametrize("value", ["a", "a,b", ",", r"a\,b", " a ", "a, b", ""])
def test_every_value_can_be_written_as_one(value: str) -> None:
    assert comma_separated(as_one_value(value)) == [value]


def test_what_may_be_repeated_takes_commas_but_for_paths_pairs_and_names_that_programs_have() -> None:
    of_commands = [
        info.callback.parameters.values()
        for info in make_app().registered_commands
        if isinstance(info.callback, type) and issubclass(info.callback, Values)
    ]
    several = {
        each.flag: each for every in of_commands for each in every if each.is_option and each.is_repeatable
    }
    by_commas = {flag for flag, each in several.items() if each.is_comma_separated}
    assert by_commas == {
        "--columns",
        "--curve-by",
        "--only",
        "--with",
        "--ref",
        "--feature",
        "--snapshot-id",
        "--spec-id",
        "--sort-by",
        "--unsafe-ignore-property",
    }
    assert several.keys() - by_commas == {
        "--spark-conf", "--storage-option", "--unsafe-allow-root", "--unsafe-forget-metadata", "--allow-writer-loss",
        "--location",
    }  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configured(*words: str) -> dict[str, Any]:
    ran = iceberg_cli("config", "show", *words, "--format", "json")
    assert ran.code == 0, ran.err
    options: dict[str, Any] = ran.json["options"]
    return options


@pytest.mark.parametrize("text", ["7,-8", "7, -8", "7 -8", "7\n-8"])
def test_a_variable_takes_commas_too(text: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEBERG_CLI_SNAPSHOT_ID", text)
    assert configured("expire-snapshots")["snapshot-id"]["value"] == ["7", "-8"]


@pytest.mark.parametrize(
    ("toml", "values"),
    [
        ('"a,b"', ["a", "b"]), ('["a", "b"]', ["a", "b"]), ('["a,b"]', ["a,b"]), (r"'a\,b'", ["a,b"]),
    ],
)  # fmt: skip
def test_the_configuration_file_takes_commas_in_a_text_and_none_in_an_array(
    toml: str, values: list[str], here: Path
) -> None:
    (here / "iceberg-cli.toml").write_text(f"[rewrite-manifests]\nsort-by = {toml}\n")
    assert configured("rewrite-manifests")["sort-by"]["value"] == values


def test_a_path_or_pair_is_one_value_whatever_is_in_it(here: Path) -> None:
    (here / "iceberg-cli.toml").write_text('spark-conf = "spark.jars=a.jar,b.jar"\n')
    assert configured("plan")["spark-conf"]["value"] == ["spark.jars=a.jar,b.jar"]


@pytest.mark.parametrize(
    ("verb", "key", "value", "read"),
    [
        ("rewrite-manifests", "sort-by", "day,kind", ["day", "kind"]),
        ("rewrite-manifests", "sort-by", ["day,kind"], ["day,kind"]),
        ("expire-snapshots", "snapshot-id", "7,-8", [7, -8]),
        ("upgrade-v3", "with", "merge-dvs,assign-row-ids", ["merge-dvs", "assign-row-ids"]),
        ("upgrade-v3", "allow-writer-loss", "Spark 3,5", ["Spark 3,5"]),
    ],
)
def test_a_policy_file_takes_commas_in_a_text(verb: str, key: str, value: Any, read: Any) -> None:
    assert read_options(verb, {key: value}, "p.toml") == {key: read}


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        (["--columns", "n,k"], ["n", "k"]),
        (["--columns", "n", "--columns", "k"], ["n", "k"]),
        (["--columns", r"n\,k"], ["n,k"]),
    ],
)
def test_columns_are_taken_either_way_and_one_may_have_a_comma_in_its_name(
    words: list[str], columns: list[str], tmp_path: Path
) -> None:
    names = ("k", "n", "n,k")
    data = tmp_path / "part-0.parquet"
    pq.write_table(pa.table({name: pa.array([7], pa.int64()) for name in names}), data)
    metadata = a_metadata(*(a_field(name, "long") for name in names))
    add = an_add(path=data.name, rows=1, size=data.stat().st_size)
    write_log(tmp_path, [a_protocol(), metadata, add])
    ran = iceberg_cli("inspect", tmp_path, "sample", *words, "--format", "json")
    assert ran.code == 0, ran.out
    assert [each["name"] for each in ran.json["columns"]] == columns


@pytest.mark.parametrize("words", [["--snapshot-id", "1,2"], ["--snapshot-id", "1", "--snapshot-id", "2"]])
def test_snapshots_are_taken_either_way(words: list[str], tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t")
    table.publish()
    assert going(dry(table.name, *words, *AS_OF)) == {"1", "2"}


def test_a_number_among_several_that_is_none_is_named_alone(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t")
    table.publish()
    ran = iceberg_cli("expire-snapshots", table.name, "--snapshot-id", "1,two", "--dry-run")
    assert ran.code == 2
    assert "Invalid value for '--snapshot-id': 'two' is no whole number" in ran.err


def test_steps_are_taken_either_way_and_named_in_their_own_order(tmp_path: Path) -> None:
    table = four_snapshots(tmp_path / "t")
    table.publish()
    for words in (
        ["--with", "assign-row-ids,merge-dvs"], ["--with", "assign-row-ids", "--with", "merge-dvs"],
    ):  # fmt: skip
        ran = iceberg_cli("upgrade-v3", table.name, *words, "--dry-run", "--format", "json")
        assert ran.code == 0, ran.out
        assert ran.json["options"]["with"] == {"value": ["merge-dvs", "assign-row-ids"], "source": "--with"}
    ran = iceberg_cli("upgrade-v3", table.name, "--with", "", "--dry-run")
    assert (
        ran.code,
        "--with takes repair-manifests, merge-dvs, assign-row-ids; it names none" in ran.err,
    ) == (2, True)


def test_verbs_are_taken_by_commas(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        f"version = 1\n[[tables]]\nmatch = ['{tmp_path}/t']\n"
        + "".join(f"{verb} = {{}}\n" for verb in ("expire-snapshots", "rewrite-manifests", "merge-dvs"))
    )
    four_snapshots(tmp_path / "t").publish()
    words = ["--policy", tmp_path / "p.toml", "--dry-run", "--format", "json"]
    ran = iceberg_cli("maintain", *words, "--only", "expire-snapshots,merge-dvs")
    assert ran.code == 0, ran.out
    assert {each["operation"] for each in ran.json["runs"]} == {"expire-snapshots", "merge-dvs"}


def test_a_command_line_that_is_suggested_has_a_name_with_a_comma_as_one() -> None:
    typed = all_typed({"ref": ["a,b", "c"]}, ["--ref"])
    assert verb_group(policies_of("assign-row-ids")).make(typed).words == ["--ref", r"a\,b", "--ref", "c"]
