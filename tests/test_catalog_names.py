"""How names of tables in catalogs are spelled, and that Spark reads the same levels in them."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iceberg_cli.engines.spark.session import Session
from iceberg_cli.names import levels_of, name_of, namespace_of

# Levels, and the name by the rule of Spark's `quoteIfNeeded`, but that a hyphen and a number need no quotes here.
SPELLED = [
    (("prod", "sales", "orders"), "prod.sales.orders"),
    (("prod", "2024", "my-table", "größe_1"), "prod.2024.my-table.größe_1"),
    (("prod", "a.b", "t"), "prod.`a.b`.t"),
    (("prod", "n", "two words"), "prod.n.`two words`"),
    (("prod", "n", "a,b"), "prod.n.`a,b`"),
    (("prod", "n", "a/b:c"), "prod.n.`a/b:c`"),
    (("prod", "n", "odd`name"), "prod.n.`odd``name`"),
    (("prod", "n", "`"), "prod.n.````"),
    (("prod", "`.`", "t"), "prod.```.```.t"),
    (("prod", "n", "*"), "prod.n.`*`"),
    (("my.catalog", "n", "t"), "`my.catalog`.n.t"),
    (("1st", "n", "t"), "`1st`.n.t"),
    (("prod", "", "t"), "prod.``.t"),
]
IN_SPARK = [(levels, name) for levels, name in SPELLED if all(levels) and "-" not in name]


@pytest.mark.parametrize(("levels", "name"), SPELLED)
def test_a_level_that_is_no_plain_word_is_in_backquotes(levels: tuple[str, ...], name: str) -> None:
    assert name_of(*levels) == name
    assert levels_of(name) == levels


def test_a_namespace_is_spelled_as_in_the_names_of_its_tables() -> None:
    assert namespace_of(("1st", "a.b")) == "1st.`a.b`"


def test_needless_backquotes_are_taken() -> None:
    assert levels_of("`prod`.`sales`.`orders`") == ("prod", "sales", "orders")


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "prod..t", "prod.n.", ".n.t", "prod.n.two words", "prod.n.`a", "prod.n.a`b", "prod.n.`a`b`",
     "prod.n.`a`b", "/wh/n.t", "./prod.n.t", "s3://lake/n/t", "1st.n.t", "prod.n.a*", "file:/a.b.c"],
)  # fmt: skip
def test_what_is_no_name_in_a_catalog_has_no_levels(text: str) -> None:
    assert levels_of(text) == ()


@settings(max_examples=50)
@given(
    st.lists(
        st.text(st.sampled_from("a1-.`*/ \n:é"), max_size=4) | st.text(max_size=5), min_size=1, max_size=4
    )
)
@example(["`", "``", ".`"])
def test_every_name_is_read_as_it_is_spelled(levels: list[str]) -> None:
    assert levels_of(name_of(*levels)) == tuple(levels)


@pytest.mark.jvm
@pytest.mark.parametrize(("levels", "name"), IN_SPARK)
def test_spark_reads_the_same_levels(spark_session: Session, levels: tuple[str, ...], name: str) -> None:
    parser = spark_session.spark._jsparkSession.sessionState().sqlParser()
    found = parser.parseMultipartIdentifier(name)
    assert tuple(found.apply(index) for index in range(found.size())) == levels
