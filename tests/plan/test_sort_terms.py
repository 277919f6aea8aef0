"""Columns to sort by, as the command line has them."""

from __future__ import annotations

import pytest

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.sort_terms import SortTerm, sort_terms


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a", SortTerm("a", descending=False, nulls_first=True)),
        ("a:asc", SortTerm("a", descending=False, nulls_first=True)),
        ("a:desc", SortTerm("a", descending=True, nulls_first=False)),
        ("a:desc:nulls-first", SortTerm("a", descending=True, nulls_first=True)),
        ("a:nulls-last", SortTerm("a", descending=False, nulls_first=False)),
        ("a:b:asc:nulls-last", SortTerm("a:b", descending=False, nulls_first=False)),
        ("desc", SortTerm("desc", descending=False, nulls_first=True)),
    ],
)
def test_a_term_has_a_direction_and_a_place_for_nulls(text: str, term: SortTerm) -> None:
    """Where nothing is said nulls come first in what ascends, as in Iceberg and Spark."""
    assert sort_terms([text]) == (term,)


@pytest.mark.parametrize(("texts", "words"), [(["a", "b", "a:desc"], "a twice"), ([""], "names no column")])
def test_what_names_no_column_or_one_twice_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sort_terms(texts)
