"""Arrow tables as pandas' data frames."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iceberg_cli.errors import UsageError, how_to_install

if TYPE_CHECKING:
    import pyarrow as pa


def to_pandas(table: pa.Table) -> Any:
    """A table as a data frame.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import_module("pandas")  # pyarrow needs it, and says less of what is missing
    except ImportError as error:
        raise UsageError(
            f"to_pandas needs the Python package {error.name}, which is not installed",
            next_step=how_to_install(error),
        ) from error
    return table.to_pandas()
