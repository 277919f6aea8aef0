"""Which tables patterns mean, in folders and SQL catalogs, each once."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from pathlib import Path

import pytest

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.listing import ListedTable, TableList, list_tables
from iceberg_cli.fleet.patterns import parse_pattern
from iceberg_cli.iceberg.catalogs.registry import Catalogs
from iceberg_cli.iceberg.catalogs.sql.database import SqlDatabase
from iceberg_cli.iceberg.catalogs.sql.listing import duplicates_in_sql, list_sql
from iceberg_cli.iceberg.catalogs.sql.sqlite_listing import duplicates_in_sqlite, list_sqlite
from tests.cli.running import as_nobody


def a_catalog(path: Path, rows: list[tuple[str, str, str, str | None]], *, typed: bool = True) -> str:
    """A SQLite file with rows of catalog, namespace, table and metadata location, in Java's schema V1 or V0."""
    with sqlite3.connect(path) as database:
        columns = ["catalog_name", "table_namespace", "table_name", "metadata_location"]
        others = ["previous_metadata_location", *(["iceberg_type"] if typed else [])]
        key = ", ".join(columns[:3])
        database.execute(f"CREATE TABLE iceberg_tables ({', '.join(columns + others)}, PRIMARY KEY ({key}))")
        database.executemany(f"INSERT INTO iceberg_tables ({', '.join(columns)}) VALUES (?, ?, ?, ?)", rows)
        if typed:
            database.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW' WHERE table_name LIKE 'view%'")
            database.execute("UPDATE iceberg_tables SET iceberg_type = 'TABLE' WHERE table_name LIKE 't%'")
    return f"sqlite:///{path}"


def configured(folder: Path, **uris: str) -> Catalogs:
    lines = ["catalog:"]
    for name, uri in uris.items():
        lines += [f"  {name}:", "    type: sql", f"    uri: {uri}"]
    path = folder / "catalogs.yaml"
    path.write_text("\n".join(lines) + "\n")
    return Catalogs(str(path))


def listed(catalogs: Catalogs, *patterns: str) -> TableList:
    return list_tables([parse_pattern(text) for text in patterns], catalogs=catalogs)


def names(tables: TableList) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.name, each.also) for each in tables]


def a_delta_table(folder: Path) -> Path:
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / f"{0:020}.json").write_text("{}")
    return folder


def an_iceberg_table(folder: Path) -> Path:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "v1.metadata.json").write_text("{}")
    return folder


def at(place: str) -> str:
    return f"{place}/metadata/00001-x.metadata.json"


def test_tables_below_a_folder_are_found_at_any_depth_and_inside_tables(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    delta = a_delta_table(root / "db/clicks")
    iceberg = an_iceberg_table(root / "db/events")
    inside = a_delta_table(root / "db/events/data/inner")
    (root / "db/nothing/metadata").mkdir(parents=True)  # a folder of that name alone is no table
    found = list(listed(Catalogs(), f"{root}/**"))
    assert [(each.name, each.format) for each in found] == [
        (str(delta), "delta"),
        (str(iceberg), "iceberg"),
        (str(inside), "delta"),
    ]
    assert [each.name for each in listed(Catalogs(), f"{root}/db/*")] == [str(delta), str(iceberg)]
    assert [each.name for each in listed(Catalogs(), f"{root}/*")] == []


def test_a_folder_with_a_log_and_metadata_is_the_delta_table_by_its_log(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    both = an_iceberg_table(a_delta_table(root / "uniform"))
    [found] = listed(Catalogs(), f"{root}/*")
    assert (found.name, found.format, found.location) == (f"{both}/_delta_log", "delta", str(both))


def test_a_link_to_a_table_is_the_same_table_and_what_is_below_it_is_not_looked_at(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    table = a_delta_table(root / "lake/db/t")
    other = root / "other"
    other.mkdir()
    (other / "link").symlink_to(table)
    (other / "loop").symlink_to(other)
    found = listed(Catalogs(), f"{root}/lake/**", f"{other}/**")
    assert names(found) == [(str(table), (str(other / "link"),))]


def test_a_folder_that_may_not_be_looked_into_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    first, last = a_delta_table(root / "a"), a_delta_table(root / "z")
    (root / "locked").mkdir(mode=0)
    for folder in (root, *itertools.takewhile(lambda each: str(each) != "/tmp", root.parents)):
        folder.chmod(0o755)  # for whoever is not root
    with as_nobody():
        found = listed(Catalogs(), f"{root}/**")
        assert names(found) == [(str(first), ()), (str(last), ())]
        below = listed(Catalogs(), f"{root}/*/db/*", f"{root}/other/*")
        assert names(below) == []
    for each in (found, below):
        assert [(place.name, place.error.exit_code) for place in each.failed] == [(f"{root}/locked", 16)]
    # Some of it may be in the folder that nobody looked into.
    assert [pattern.text for pattern in below.unmatched_patterns()] == [f"{root}/other/*"]


def test_a_link_beside_the_table_that_it_leads_to_is_no_row_of_its_own(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    table = a_delta_table(root / "wh/t")
    (root / "wh/same").symlink_to(table)
    (root / "wh/elsewhere").symlink_to(a_delta_table(root / "other/u"))
    assert names(listed(Catalogs(), f"{root}/wh/*")) == [(f"{root}/wh/elsewhere", ()), (str(table), ())]


def test_a_folder_that_is_named_may_be_a_link_itself(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    a_delta_table(root / "lake/db/t")
    (root / "link").symlink_to(root / "lake")
    found = [f"{root}/link/db/t"]
    assert [each.name for each in listed(Catalogs(), f"{root}/link/**")] == found
    assert [each.name for each in listed(Catalogs(), f"{root}/link/db/*")] == found


@pytest.mark.parametrize("typed", [True, False])
def test_a_sql_catalog_is_listed_alike_by_sqlalchemy_and_without(tmp_path: Path, typed: bool) -> None:
    rows = [
        *(("lake", "a.b", f"t{number:05}", at(f"/wh/{number}")) for number in range(2_345)),
        ("lake", "a.b", "view1", at("/wh/view")),
        ("lake", "c", "t1", at("/wh/0")),
        ("lake", "c", "t2", None),
        ("other", "c", "t1", at("/elsewhere")),
    ]
    uri = a_catalog(tmp_path / "c.db", rows, typed=typed)
    path = uri.removeprefix("sqlite:///")
    by_library = list(list_sql(SqlDatabase(uri), "lake", lambda _: True))
    assert list(list_sqlite(path, "lake", lambda _: True)) == by_library
    assert [each.table for each in by_library] == [
        *(f"t{number:05}" for number in range(2_345)),
        *([] if typed else ["view1"]),
        "t1",
    ]
    assert duplicates_in_sqlite(path, "lake") == duplicates_in_sql(SqlDatabase(uri), "lake")
    assert {
        place: [each.table for each in found] for place, found in duplicates_in_sqlite(path, "lake").items()
    } == {at("/wh/0"): ["t00000", "t1"]}


def test_a_table_with_two_names_in_a_catalog_is_one_row(tmp_path: Path) -> None:
    uri = a_catalog(
        tmp_path / "c.db",
        [
            ("lake", "a", "t1", at("/wh/1")),
            ("lake", "b", "t1", at("/wh/1")),
            ("lake", "b", "t2", at("/wh/2")),
        ],
    )
    catalogs = configured(tmp_path, lake=uri)
    assert names(listed(catalogs, "lake")) == [("lake.a.t1", ("lake.b.t1",)), ("lake.b.t2", ())]
    assert names(listed(catalogs)) == names(listed(catalogs, "lake"))
    # The name that the pattern means is the row, whichever comes first in the catalog.
    assert names(listed(catalogs, "lake.b")) == [("lake.b.t1", ("lake.a.t1",)), ("lake.b.t2", ())]


def test_a_table_of_two_catalogs_and_a_folder_is_one_row(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    table = an_iceberg_table(root / "wh/t")
    one = a_catalog(root / "one.db", [("one", "a", "t", at(f"file://{table}"))])
    two = a_catalog(root / "two.db", [("two", "b", "u", at(str(table))), ("two", "b", "v", at("/elsewhere"))])
    catalogs = configured(root, one=one, two=two)
    assert names(listed(catalogs, "one", "two", f"{root}/wh/*")) == [
        ("one.a.t", ("two.b.u", str(table))),
        ("two.b.v", ()),
    ]


def test_tables_whose_metadata_files_share_a_folder_are_not_one(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    one = a_catalog(
        root / "one.db",
        [
            ("one", "a", "t", "/meta/a/00001-x.metadata.json"),
            ("one", "a", "u", "/meta/a/00001-y.metadata.json"),
        ],
    )
    two = a_catalog(
        root / "two.db",
        [
            ("two", "b", "v", "/meta/b/00001-x.metadata.json"),
            ("two", "b", "w", "file:/meta//a/00001-y.metadata.json"),
        ],
    )
    assert names(listed(configured(root, one=one, two=two), "one", "two")) == [
        ("one.a.t", ()),
        ("one.a.u", ("two.b.w",)),
        ("two.b.v", ()),
    ]


def test_a_level_without_a_letter_is_listed_and_found_by_its_pattern(tmp_path: Path) -> None:
    uri = a_catalog(
        tmp_path / "c.db", [("lake", "a..b", "odd.name", at("/wh/1")), ("lake", "a", "t", at("/wh/2"))]
    )
    catalogs = configured(tmp_path, lake=uri)
    assert names(listed(catalogs, "lake")) == [("lake.a.t", ()), ("lake.a.``.b.`odd.name`", ())]
    assert names(listed(catalogs, "lake.a.``")) == [("lake.a.``.b.`odd.name`", ())]


def test_a_place_that_cannot_be_listed_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    uri = a_catalog(tmp_path / "c.db", [("lake", "a", "t", at("/wh/2"))])
    catalogs = configured(tmp_path, lake=uri, gone=f"sqlite:///{tmp_path}/no.db")
    found = listed(catalogs, "gone", "lake")
    assert names(found) == [("lake.a.t", ())]
    assert [(each.name, each.error.exit_code) for each in found.failed] == [("gone", 16)]
    assert found.unmatched() == []


def test_a_pattern_that_means_nothing_has_the_nearest_names(tmp_path: Path) -> None:
    uri = a_catalog(tmp_path / "c.db", [("lake", "sales", "orders", at("/wh/2"))])
    found = listed(configured(tmp_path, lake=uri), "lake.sales", "lake.sale", "lake.sales.order")
    assert names(found) == [("lake.sales.orders", ())]
    unmatched = {pattern.text: error for pattern, error in found.unmatched()}
    assert unmatched.keys() == {"lake.sale", "lake.sales.order"}
    assert all(error.exit_code == 10 for error in unmatched.values())
    assert "'lake.sales'" in unmatched["lake.sale"].message
    assert "'lake.sales.orders'" in unmatched["lake.sales.order"].message


def test_a_catalog_that_is_not_configured_is_a_usage_error_with_the_nearest(tmp_path: Path) -> None:
    uri = a_catalog(tmp_path / "c.db", [])
    with pytest.raises(UsageError) as caught:
        list(listed(configured(tmp_path, lake=uri), "lakes"))
    assert "'lake'" in caught.value.message


def test_the_row_of_a_table_has_what_its_place_tells(tmp_path: Path) -> None:
    uri = a_catalog(tmp_path / "c.db", [("lake", "a.b", "t", at("s3://lake/wh/t"))])
    [found] = listed(configured(tmp_path, lake=uri), "lake")
    assert found == ListedTable(
        name="lake.a.b.t",
        catalog="lake",
        namespace="a.b",
        metadata_location=at("s3://lake/wh/t"),
    )


def test_table_that_is_listed_is_the_same_in_another_process() -> None:
    table = ListedTable(
        name="prod.a.b.t",
        also=("prod.a.b.u", "/wh/t"),
        catalog="prod",
        namespace="a.b",
        location="/wh/t",
        metadata_location="/wh/t/metadata/v1.metadata.json",
    )
    assert ListedTable.from_json(json.loads(json.dumps(table.to_json()))) == table
