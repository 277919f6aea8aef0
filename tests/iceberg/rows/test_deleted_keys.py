"""Which rows equality delete files hide, against a look into each file's keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.iceberg.rows import deleted_keys
from iceberg_cli.iceberg.rows.deleted_keys import NO_KEYS, DeletedKeys

FILES = ("a", "b", "c")
KEYS = st.sampled_from(
    [b"", b"/", b"1/", b"12/", b"a key of more than eight bytes/", b"another of as many bytes/"]
)


def expected(files: Mapping[str, Sequence[bytes]], keys: Sequence[bytes], paths: Sequence[str]) -> list[bool]:
    return [any(key in files[path] for path in paths) for key in keys]


def found(files: Mapping[str, Sequence[bytes]], keys: Sequence[bytes], paths: Sequence[str]) -> list[bool]:
    arrays = {path: pa.array(some, pa.binary()) for path, some in files.items()}
    marks: list[bool] = DeletedKeys.of(arrays).marks(pa.array(keys, pa.binary()), paths).tolist()
    return marks


SEVERAL = st.lists(KEYS, max_size=6)


@pytest.mark.parametrize("weak", [False, True], ids=["hashes", "hashes that collide"])
def test_a_row_is_hidden_where_one_of_its_files_has_its_key(
    monkeypatch: pytest.MonkeyPatch, weak: bool
) -> None:
    if weak:

        def lengths(keys: pa.Array) -> object:
            return np.array([len(key.as_py()) % 2 for key in keys], np.uint64)

        monkeypatch.setattr(deleted_keys, "hash_column", lengths)

    @given(st.fixed_dictionaries(dict.fromkeys(FILES, SEVERAL)), SEVERAL, st.sets(st.sampled_from(FILES)))
    def check(files: dict[str, list[bytes]], keys: list[bytes], paths: set[str]) -> None:
        assert found(files, keys, sorted(paths)) == expected(files, keys, sorted(paths))

    check()


def test_where_there_are_no_files_nothing_is_hidden() -> None:
    assert NO_KEYS.marks(pa.array([b"1/"]), []).tolist() == [False]


def test_many_keys_of_many_files() -> None:
    drawn = np.random.default_rng(5)
    files = {f"f{number}": [b"%d/" % each for each in drawn.integers(0, 900, 40)] for number in range(30)}
    keys = [b"%d/" % each for each in range(1000)]
    paths = [f"f{number}" for number in range(0, 30, 3)]
    assert found(files, keys, paths) == expected(files, keys, paths)
    assert 0 < sum(found(files, keys, paths)) < 900
