"""Tables of catalogs whose names have dots, spaces and quotes: what `list` prints is taken back by every command."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from tests.cli.lakes import SCHEMA, rows
from tests.cli.running import iceberg_cli

Name = tuple[str, ...]


def a_table(catalog: Catalog, name: Name, folder: Path, *, appends: int = 0) -> Path:
    """A table that PyIceberg makes by the levels of its name, and its folder."""
    table = catalog.create_table(name, SCHEMA, location=f"file://{folder}/{uuid.uuid4().hex}")
    for number in range(appends):
        table.append(rows(number))
    return Path(table.location().removeprefix("file://"))


def a_sql_catalog(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    uri = f"sqlite:///{folder}/catalog.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
    return SqlCatalog("lake", uri=uri)


def listed(*patterns: str) -> list[tuple[str, str]]:
    """The names and namespaces that `list` prints."""
    ran = iceberg_cli("list", *patterns, "--format", "json")
    assert (ran.code, ran.json["failed"]) == (0, []), ran
    return [(table["name"], table["namespace"]) for table in ran.json["tables"]]


def snapshots(catalog: Catalog, name: Name) -> int:
    return len(catalog.load_table(name).metadata.snapshots)


def names_in_report(*arguments: object) -> Sequence[str]:
    ran = iceberg_cli(*arguments, "--format", "json")
    assert ran.code == 0, ran
    return [row["table"]["name"] for row in ran.json.get("tables") or ran.json["runs"]]


def test_every_command_takes_the_names_that_list_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = a_sql_catalog(tmp_path, monkeypatch)
    odd, plain = ("n", "x y, `z`.*/"), ("n", "x")
    catalog.create_namespace("n")
    folder = a_table(catalog, odd, tmp_path, appends=3)
    a_table(catalog, plain, tmp_path, appends=3)
    name = "lake.n.`x y, ``z``.*/`"
    assert listed("lake") == [("lake.n.x", "n"), (name, "n")]
    assert listed(name) == listed("lake.n.x*")[1:] == [(name, "n")]

    assert iceberg_cli("inspect", name, "--format", "json").json["table"] == {
        "name": name, "location": f"file://{folder}", "format": "iceberg"
    }  # fmt: skip
    assert iceberg_cli("plan", name, "--format", "json").json["table"]["name"] == name
    assert f"iceberg-cli rewrite-manifests '{name}'" in iceberg_cli("plan", name).out  # a shell reads it so
    assert names_in_report("survey", name) == [name]
    expired = iceberg_cli("expire-snapshots", name, "--older-than", "0s", "--retain-last", "2", "--yes")
    assert (expired.code, snapshots(catalog, odd), snapshots(catalog, plain)) == (0, 2, 3)
    assert iceberg_cli("resume", name, "--list", "--format", "json").json["operations"] == []

    policy = tmp_path / "policy.toml"
    policy.write_text(
        "version = 1\n[[tables]]\nmatch = ['lake.n.`x y, ``z``.*/`']\nunsafe = ['short-retention']\n"
        'expire-snapshots = { older-than = "0s", retain-last = 1, when = "always" }\n'
    )
    checked = iceberg_cli("policy", "check", policy, name, "--format", "json").json
    assert [table["table"]["name"] for table in checked["tables"]] == [name]
    assert name in names_in_report("maintain", "--policy", policy, "--yes")
    assert (snapshots(catalog, odd), snapshots(catalog, plain)) == (1, 3)


def test_a_name_without_its_backquotes_is_shown_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = iceberg_cli("inspect", "lake.n.two words")
    assert (ran.code, "Write 'lake.n.`two words`', or the path" in ran.err) == (10, True), ran
    (tmp_path / "lake.n.two words").mkdir()
    assert (
        f"Cannot find a table at {tmp_path}/lake.n.two words: "
        in iceberg_cli("inspect", "lake.n.two words").err
    )


def test_two_odd_names_of_one_table_are_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = a_sql_catalog(tmp_path, monkeypatch)
    catalog.create_namespace("n")
    a_table(catalog, ("n", "t"), tmp_path)
    catalog.register_table(("n", "a\nb/c"), catalog.load_table("n.t").metadata_location)
    [table] = iceberg_cli("list", "lake", "--format", "json").json["tables"]
    assert (table["name"], table["also"]) == ("lake.n.`a\nb/c`", ["lake.n.t"])


@pytest.mark.deep  # SQLite shows the same without a server
def test_a_table_of_a_rest_catalog_has_dots_and_spaces_in_its_levels(
    rest_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", rest_server)
    theirs, root = RestCatalog("theirs", uri=rest_server), f"n{uuid.uuid4().hex}"
    for levels in ((root,), (root, "two words"), (root, "a")):
        theirs.create_namespace(levels)
    odd = (root, "two words", "a.b`c")
    folder = a_table(theirs, odd, tmp_path, appends=2)
    a_table(theirs, (root, "a", "b"), tmp_path)
    a_table(theirs, (root, "a.b"), tmp_path)
    name = f"prod.{root}.`two words`.`a.b``c`"
    plain, dotted = (f"prod.{root}.a.b", f"{root}.a"), (f"prod.{root}.`a.b`", root)
    assert sorted(listed(f"prod.{root}")) == sorted([(name, f"{root}.`two words`"), plain, dotted])
    assert listed(f"prod.{root}.`two words`") == listed(name) == [(name, f"{root}.`two words`")]
    assert listed(f"prod.{root}.a.b") == [plain]
    assert listed(f"prod.{root}.`a.b`") == [dotted]
    assert iceberg_cli("inspect", name, "--format", "json").json["location"] == f"file://{folder}"
    ran = iceberg_cli("expire-snapshots", name, "--older-than", "0s", "--retain-last", "1", "--yes")
    assert (ran.code, snapshots(theirs, odd)) == (0, 1), ran
