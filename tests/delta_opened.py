"""Delta tables on a disk, opened, and the shell in which verbs are carried out on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.formats.open import open_table
from iceberg_cli.operation.runtime import Runtime, system_runtime


def unseen(_: object) -> None:
    """Progress that nobody looks at."""


def opened(root: Path | str) -> DeltaTable:
    table = open_table(str(root), storage_options={}, on_event=unseen)
    assert isinstance(table, DeltaTable)
    return table


def a_shell(**others: Any) -> Runtime:
    return system_runtime(on_event=unseen, host="here", process_id=1, **others)
