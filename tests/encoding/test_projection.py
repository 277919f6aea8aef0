"""Rows of a file as rows of its table: which column of the file is which of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from iceberg_cli.encoding.projection import Field, places_of


class Counted(list[pa.Field]):
    """Columns of a file, and how many of them were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[pa.Field]:
        for each in super().__iter__():
            self.looks += 1
            yield each


def column(name: str, field_id: int | None = None) -> pa.Field:
    metadata = None if field_id is None else {"PARQUET:field_id": str(field_id)}
    return pa.field(name, pa.int64(), metadata=metadata)


@pytest.mark.parametrize("by_ids", [True, False])
def test_each_column_of_a_wide_file_is_looked_at_once(by_ids: bool) -> None:
    own = Counted(column(f"c{i}", i) for i in range(5_000))
    fields = [
        Field(name=f"c{i}", type=pa.int64(), field_id=i, names=(f"c{i}",)) for i in reversed(range(5_000))
    ]
    assert places_of(fields, own, by_ids=by_ids) == list(reversed(range(5_000)))
    assert own.looks == 5_000


def test_the_first_column_that_could_be_it_is_it() -> None:
    own = [column("other"), column("b", 2), column("a", 1), column("a", 1)]
    fields = [
        Field(name="x", type=pa.int64(), field_id=1, names=("a", "b")),
        Field(name="y", type=pa.int64(), names=("z",)),
    ]
    assert places_of(fields, own, by_ids=True) == [2, None]
    assert places_of(fields, own, by_ids=False) == [1, None]
