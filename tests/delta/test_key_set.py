"""Sets of strings, against Python's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.delta import reachability as key_set
from iceberg_cli.delta.reachability import KeySet
from iceberg_cli.encoding.string_hash import hash_column

_KEYS = st.text("ab/", max_size=3)


def _few_hashes(column: Any) -> Any:
    """Two strings in three share theirs."""
    return hash_column(column) % np.uint64(3)


@pytest.mark.parametrize("hashes", [hash_column, _few_hashes], ids=["apart", "shared"])
@given(chunks=st.lists(st.lists(_KEYS, max_size=8), max_size=3), asked=st.lists(_KEYS, max_size=8))
def test_a_set_holds_what_it_was_made_of(
    hashes: Callable[[Any], Any], chunks: Sequence[Sequence[str]], asked: Sequence[str]
) -> None:
    with patch.object(key_set, "hash_column", hashes):
        made = KeySet(pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string()))
        found = made.contains(pa.array(asked, pa.string()))
    everything = {key for chunk in chunks for key in chunk}
    assert found.to_pylist() == [key in everything for key in asked]
