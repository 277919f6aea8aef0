"""Delta tables on a disk, opened, their logs, and the shell in which verbs are carried out on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.formats.open import open_table
from iceberg_cli.operation.runtime import Runtime, system_runtime
from iceberg_cli.storage import open_storage
from iceberg_cli.testing.delta_writer import Action, write_log


def unseen(_: object) -> None:
    """Progress that nobody looks at."""


def opened(root: Path | str) -> DeltaTable:
    table = open_table(str(root), storage_options={}, on_event=unseen)
    assert isinstance(table, DeltaTable)
    return table


def the_log(root: Path) -> DeltaLog:
    """The log of the table in a folder."""
    storage = open_storage()
    return DeltaLog(storage, LocalEngine(storage), str(root), unseen)


def a_log(root: Path, *commits: Sequence[Action] | bytes, **others: Any) -> DeltaLog:
    """The log of a folder after `write_log`."""
    write_log(root, *commits, **others)
    return the_log(root)


def a_shell(**others: Any) -> Runtime:
    return system_runtime(on_event=unseen, host="here", process_id=1, **others)
