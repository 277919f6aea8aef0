"""merge-dvs on a storage that gives back something else than was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CorruptFile
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.verbs.merge_dvs.plan import VERB
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.storage.local import LocalStorage
from tests.delete_tables import a_table


class SpoilingStorage(LocalStorage):
    """Local files, but what is read of a part of a file was changed meanwhile."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self.change = change

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """See `Storage.read`."""
        data = super().read(path, span)
        return data if span is None else self.change(data)


def build(folder: Path, change: Callable[[bytes], bytes]) -> None:
    """Plan a merge of six small Puffin files, and build its files."""
    made = a_table(folder, {f"f{number}": 100 for number in range(6)})
    for number in range(6):
        made.vectors(f"v{number}", {f"f{number}": {1, 2, 3 + number}})
        made.commit(2 + number)
    table = open_table(made.publish(), storage_options={}, on_event=lambda _: None)
    table.use(LocalEngine(SpoilingStorage(change)))  # it writes Puffin files, and reads them back
    planned = VERB.plan(table, MergeDvs(), as_of_ms=0)
    (step,) = planned.plan.steps
    table.storage = SpoilingStorage(change)
    planned.build(step, {task: table.workspace.staging_path("m", task) for task in step.tasks})


def test_a_new_puffin_file_that_reads_back_as_written_is_accepted(tmp_path: Path) -> None:
    build(tmp_path / "t", lambda data: data)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:0],
        lambda data: data + b"\0",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 128]) + data[1:],
        lambda data: bytes(len(data)),
    ],
    ids=["shorter", "nothing", "longer", "last bit", "first bit", "zeros"],
)
def test_a_new_puffin_file_that_reads_back_differently_is_refused_by_name(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(CorruptFile, match="read back: other bytes than were written") as refused:
        build(tmp_path / "t", change)
    assert refused.value.path.endswith(".puffin")
