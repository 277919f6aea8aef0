"""Commands about many tables beside catalogs that cannot be used: the others are done, and these are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.lakes import newest_metadata
from tests.cli.running import iceberg_cli
from tests.fleet.test_listing import a_catalog
from tests.referee.iceberg import Table

BESIDE = """\
catalog:
  prod:
    type: sql
    uri: sqlite:///{database}
  mem:
    type: in-memory
  dyn:
    type: dynamodb
  uni:
    type: unity
    uri: http://localhost:1
  big:
    type: bigquery
  dead:
    type: rest
    uri: http://127.0.0.1:1/
  lost:
    type: sql
    uri: sqlite:////nowhere/at/all.db
"""
UNUSABLE = {"mem": 2, "dyn": 2, "uni": 2, "big": 2, "dead": 16, "lost": 16}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Catalogs of which one can be used, with the table `prod.shop.t`."""
    table = Table(tmp_path / "wh", version=2, seed=1, now_ms=1_700_000_000_000)
    for _ in range(3):
        table.append()
    database = tmp_path / "prod.db"
    a_catalog(database, [("prod", "shop", "t", str(newest_metadata(table.folder)))])
    path = tmp_path / "catalogs.yaml"
    path.write_text(BESIDE.format(database=database))
    return path


def test_a_list_of_every_catalog_has_the_tables_of_those_that_can_be_used(config: Path) -> None:
    ran = iceberg_cli("list", "--catalog-config", config, "--format", "json")
    assert [each["name"] for each in ran.json["tables"]] == ["prod.shop.t"]
    assert {each["name"]: each["exit_code"] for each in ran.json["failed"]} == UNUSABLE
    assert ran.code == 16


def test_they_are_named_at_the_end_with_what_to_do_and_no_word_of_changes(config: Path) -> None:
    ran = iceberg_cli("list", "--catalog-config", config)
    assert ran.out.splitlines()[1].startswith("prod.shop.t")
    lines = ran.err.splitlines()
    assert "error: Cannot open the catalog mem: its type in-memory is not supported" in lines
    assert "Types are glue, hive, rest and sql; an installed package may bring others." in lines
    refused = "error: Cannot reach the catalog dead: Connection refused (http://127.0.0.1:1/v1/config"
    assert any(line.startswith(refused) for line in lines)
    assert "error: Cannot open the catalog: there is no database file /nowhere/at/all.db" in lines
    assert lines[-1] == "6 places could not be listed whole: mem, dyn, uni, big, dead and lost"
    assert "Nothing was changed" not in ran.err
    assert "HTTPConnection" not in ran.err


@pytest.mark.parametrize("words", [("survey",), ("maintain", "--policy", "POLICY", "--yes")])
def test_the_others_are_looked_at_and_maintained(
    words: tuple[str, ...], config: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'version = 1\n[[tables]]\nmatch = ["prod.*", "mem.*", "dead.*"]\nrewrite-manifests = { when = "always" }\n'
    )
    options = [str(policy) if word == "POLICY" else word for word in words]
    ran = iceberg_cli(*options, "prod.*", "mem.*", "dead.*", "--catalog-config", config, "--format", "json")
    rows = ran.json["tables"] if words[0] == "survey" else ran.json["runs"]
    assert [row["table"]["name"] for row in rows] == ["prod.shop.t"]
    assert {each["name"]: each["exit_code"] for each in ran.json["failed"]} == {"mem": 2, "dead": 16}
    assert ran.code == 16


def test_one_that_alone_is_meant_is_a_usage_error(config: Path) -> None:
    ran = iceberg_cli("list", "mem.*", "--catalog-config", config)
    assert ran.code == 2
    assert (
        ran.err.splitlines()[0] == "error: Cannot open the catalog mem: its type in-memory is not supported"
    )
