"""What many tables cost a REST catalog: pages of names to list them, one request for one that did not change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.running import iceberg_cli
from tests.fleet.builder import Fleet, build_fleet
from tests.rest_servers import Front, configuration_of

TABLES = 25
PAGE = 10


@pytest.fixture
def fleet(tmp_path: Path, rest_server: str) -> Fleet:
    """Tables of a REST catalog that is listed in pages."""
    return build_fleet(tmp_path, {("rest", "iceberg"): TABLES}, rest_uri=rest_server)


def behind(front: Front, fleet: Fleet) -> tuple[str, str]:
    """The options of a command that reaches the fleet through the front, page by page."""
    file = fleet.root / "behind.yaml"
    file.write_text(configuration_of("rest", {"uri": front.uri, "rest-page-size": str(PAGE)}))
    return "--catalog-config", str(file)


def test_a_catalog_is_listed_page_by_page_and_no_table_is_opened(fleet: Fleet) -> None:
    with Front(fleet.rest_uri) as front:
        ran = iceberg_cli("list", f"rest.{fleet.namespace}", *behind(front, fleet), "--format", "json")
    assert ran.code == 0, ran.err
    assert [each["name"] for each in ran.json["tables"]] == [table.name for table in fleet.tables]
    requests = [urlsplit(path) for _, path in front.requests]
    tables = f"/v1/namespaces/{fleet.namespace}/tables"
    pages = [parse_qs(url.query, keep_blank_values=True) for url in requests if url.path == tables]
    assert [page["pageSize"] for page in pages] == [[str(PAGE)]] * 3
    tokens = [page["pageToken"][0] for page in pages]
    assert tokens[0] == ""
    assert len({*tokens}) == 3
    assert not [url.path for url in requests if url.path.startswith(f"{tables}/")]


def test_a_table_that_did_not_change_costs_a_survey_one_request(fleet: Fleet) -> None:
    with Front(fleet.rest_uri) as front:
        options = [f"rest.{fleet.namespace}", *behind(front, fleet), "--format", "json"]
        first = iceberg_cli("survey", *options)
        front.requests.clear()
        again = iceberg_cli("survey", *options)
        requests = Counter(urlsplit(path).path for _, path in front.requests)
        changed = fleet.tables[7]
        expiring = ("--older-than", "7d", "--retain-last", "1", "--yes")
        assert iceberg_cli("expire-snapshots", changed.name, *fleet.options, *expiring).code == 0
        later = iceberg_cli("survey", *options)
    assert (first.code, again.code, later.code) == (0, 0, 0), again.err
    tables = f"/v1/namespaces/{fleet.namespace}/tables"
    assert {path: n for path, n in requests.items() if path.startswith(f"{tables}/")} == {
        f"{tables}/{table.name.rpartition('.')[2]}": 1 for table in fleet.tables
    }
    known = {each["table"]["name"]: each["from_cache"] for each in again.json["tables"]}
    assert known == {table.name: True for table in fleet.tables}
    assert [found_in(each) for each in again.json["tables"]] == [
        found_in(each) for each in first.json["tables"]
    ]
    fresh = [each["table"]["name"] for each in later.json["tables"] if not each["from_cache"]]
    assert fresh == [changed.name]


def found_in(table: dict[str, Any]) -> dict[str, Any]:
    """What a survey says of a table but for where it has it from, and what only reading tells."""
    return {name: value for name, value in table.items() if name not in ("from_cache", "open_operations")}
