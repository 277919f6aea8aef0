"""Patterns of tables' names."""

import os

import pytest

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.patterns import parse_pattern
from iceberg_cli.names import levels_of, name_of

MEANT = [
    ("prod", ["prod.sales.orders", "prod.sales.eu.orders"], ["dev.sales.orders", "prodx.sales.orders", "/prod/a/b"]),
    ("prod.sales", ["prod.sales.orders", "prod.sales.eu.orders"], ["prod.sales_eu.orders", "prod.hr.orders"]),
    ("prod.sales.eu", ["prod.sales.eu", "prod.sales.eu.orders"], ["prod.sales.europe"]),
    ("prod.*", ["prod.sales.orders", "prod.sales.eu.orders"], ["dev.sales.orders"]),
    ("prod.*.orders_*", ["prod.sales.orders_1", "prod.hr.orders_"],
     ["prod.sales.orders", "prod.sales.orders_1.x", "prod.a.b.orders_1", "prod.sales.my_orders_1"]),
    ("prod.sales.*", ["prod.sales.orders"], ["prod.sales.eu.orders", "prod.sales"]),
    ("/wh/**", ["/wh/t", "/wh/db/t", "/wh/a/b/c/t"], ["/wh", "/whx/t", "/w/wh/t"]),
    ("/wh/*", ["/wh/t"], ["/wh/db/t", "/wh"]),
    ("/wh/*/t_*", ["/wh/db/t_1"], ["/wh/t_1", "/wh/a/b/t_1", "/wh/db/t_1/x"]),
    ("/wh/**/t", ["/wh/t", "/wh/a/t", "/wh/a/b/t"], ["/wh/a/tt", "/wh/at"]),
    ("/wh/db/t", ["/wh/db/t"], ["/wh/db/t/nested", "/wh/db/t2"]),
    ("/wh//db/./t/", ["/wh/db/t"], []),
    ("file:///wh/*", ["/wh/t"], []),
    ("s3://lake/db/*", ["s3://lake/db/t"], ["s3://lake/db/a/t", "s3://lake2/db/t"]),
    ("s3a://lake/**", ["s3://lake/t", "s3://lake/db/t"], ["s3://lak/t"]),
    ("/wh/a.b/*", ["/wh/a.b/t.x"], ["/wh/axb/t"]),
    ("/wh/[a]/*", ["/wh/[a]/t"], ["/wh/a/t"]),
    ("prod.`a.b`", ["prod.`a.b`.t", "prod.`a.b`.c.t"], ["prod.a.b", "prod.a.b.t", "prod.`a.bc`.t"]),
    ("prod.sales.*", ["prod.sales.`a.b`", "prod.sales.`x, ``y`` /z`"], ["prod.sales.`a.b`.t"]),
    ("prod.*.t*y", ["prod.`a b`.`t.y`", "prod.n.`t\ny`"], ["prod.n.`t.x`", "prod.n.t.y"]),
    ("prod.n.`a*`", ["prod.n.`a*`", "prod.n.`a*`.t"], ["prod.n.ab", "prod.n.a"]),
    ("prod.n.`a/b:c`", ["prod.n.`a/b:c`"], ["prod.n.`a/b`", "/prod/n"]),
    ("prod.n.`t`", ["prod.n.t"], ["prod.n.`t `"]),
    ("`my.lake`.n", ["`my.lake`.n.t"], ["my.lake.n", "my.n.t"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant", "others"), MEANT)
def test_names_that_a_pattern_means(text: str, meant: list[str], others: list[str]) -> None:
    pattern = parse_pattern(text)
    assert [name for name in meant + others if pattern.matches(name)] == meant


@pytest.mark.parametrize(("text", "meant", "others"), MEANT)
def test_what_is_above_a_matching_name_may_have_matches_below(
    text: str, meant: list[str], others: list[str]
) -> None:
    pattern = parse_pattern(text)
    for name in meant:
        if pattern.catalog is None:
            parts = name.split("/")
            every_above = ["/".join(parts[:end]) for end in range(1, len(parts))]
        else:
            levels = levels_of(name)
            every_above = [name_of(*levels[:end]) for end in range(1, len(levels))]
        for above in every_above:
            assert above in ("", "s3:", "s3:/") or pattern.may_match_below(above), above


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/wh/*", "/wh/t"),
        ("/wh/*", "/other"),
        ("/wh/a*/t", "/wh/b"),
        ("s3://lake/db/*", "s3://lake/other"),
        ("prod.sales.*", "prod.hr"),
        ("prod.*.t", "prod.a.b"),
        ("prod.a.*", "prod.`a.b`"),
        ("prod.a.*", "/prod/a"),
    ],
)
def test_nothing_is_looked_for_where_no_name_can_match(text: str, name: str) -> None:
    assert not parse_pattern(text).may_match_below(name)


def test_a_relative_pattern_is_of_the_working_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = os.path.realpath(tmp_path)
    assert parse_pattern("./*").matches(f"{here}/t")
    assert parse_pattern("sub/**").matches(f"{here}/sub/a/t")


def test_the_catalog_of_a_pattern() -> None:
    assert parse_pattern("prod.*.t").catalog == "prod"
    assert parse_pattern("/prod/*").catalog is None


@pytest.mark.parametrize(
    "text",
    ["", " ", "*", "*.sales.t", "prod..t", "prod.**", "/wh/a**", "pr od", ".t.", "prod.`a", "prod.a`b`"],
)
def test_texts_that_are_no_pattern(text: str) -> None:
    with pytest.raises(UsageError):
        parse_pattern(text)
