"""What calls about many tables give back: rows by number, as a document, as columns, as text and as a page."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from iceberg_cli.errors import worst_of
from iceberg_cli.fleet.listing import Failures
from iceberg_cli.plan.display import Shown

if TYPE_CHECKING:
    import pyarrow as pa

_Row_co = TypeVar("_Row_co", covariant=True)


class FleetResult(Shown, Sequence[_Row_co]):
    """Rows of many tables.

    Args:
        rows: in their order.
        failed: places that could not be listed whole and patterns that mean no table, each with its error.
        views: how many views were among the tables, and were left out.
    """

    def __init__(self, rows: Iterable[_Row_co], *, failed: Failures, views: int = 0) -> None:
        self._rows = tuple(rows)
        self.failed = failed
        self.views = views

    @overload
    def __getitem__(self, index: int) -> _Row_co: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[_Row_co]: ...

    def __getitem__(self, index: int | slice) -> _Row_co | Sequence[_Row_co]:
        """A row, or several."""
        return self._rows[index]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    @property
    def exit_code(self) -> int:
        """The one with which the command would leave: the worst of all; 0: nothing is left to worry about."""
        return worst_of([*self._codes(), *self.failed.codes])

    def _codes(self) -> Iterable[int]:
        return ()

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The document of the command."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The rows as columns, always of the same types."""

    def to_pandas(self) -> Any:
        """The same as a data frame.

        Raises:
            UsageError: pandas is not installed.
        """
        from iceberg_cli.encoding.data_frames import to_pandas

        return to_pandas(self.to_arrow())


def columns_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The fields of a document's rows as columns, those of `table` among them.

    Args:
        rows: of `fleet/1` or `maintenance/1`.
        schema: of the columns; others are left out.
    """
    import pyarrow as pa

    found = [{**row["table"], **row} for row in rows]
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in found], schema=schema)
