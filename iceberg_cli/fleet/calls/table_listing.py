"""The tables that patterns mean, as `list` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from iceberg_cli.fleet.calls.result import FleetResult
from iceberg_cli.fleet.listing import ListedTable
from iceberg_cli.plan.text import count

if TYPE_CHECKING:
    import pyarrow as pa

LIST_SCHEMA: Final = "iceberg-cli/list/1"


class TableListing(FleetResult[ListedTable]):
    """The tables that patterns mean; none of them was opened."""

    shown_as: ClassVar[str] = "table_listing"

    def __repr__(self) -> str:
        """Numbers alone."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"TableListing({count(len(self), 'tables')}{failed})"

    def to_json(self) -> dict[str, Any]:
        """The `list/1` document."""
        return {
            "schema": LIST_SCHEMA,
            "tables": [{**each.to_json(), "open_operations": None} for each in self],
            "failed": self.failed.to_json(),
            "totals": {"tables": len(self)},
        }

    def to_arrow(self) -> pa.Table:
        """A row for each table."""
        import pyarrow as pa

        texts = ("catalog", "namespace", "format", "location", "metadata_location")
        schema = pa.schema(
            [("name", pa.string()), ("also", pa.list_(pa.string())), *((name, pa.string()) for name in texts)]
        )
        return pa.Table.from_pylist([each.to_json() for each in self], schema=schema)
