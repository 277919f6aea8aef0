"""A table whose current state cannot be read: its operations can be closed, and a check tells what is damaged.

Nothing that an operation left is deleted then: what the table reaches is not known.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from iceberg_cli.errors import CorruptFile
from iceberg_cli.operation.workspace import Workspace
from iceberg_cli.paths import Roots
from iceberg_cli.plan.findings import CheckResult
from iceberg_cli.plan.plan import Base, Task
from iceberg_cli.table.table import OpenTable


@dataclass(kw_only=True)
class UnreadableWorkspace(Workspace):
    """The journals of a table's operations; no other file of theirs is touched.

    Args:
        storage: see `Workspace`.
        folder: the table's.
    """

    folder: str

    @property
    def location(self) -> str:
        """The table's folder."""
        return self.folder

    @property
    def table_uuid(self) -> str:
        """Empty: it is not known."""
        return ""

    def staging_path(self, prefix: str, task: Task) -> str:
        """Not asked for: nothing is written."""
        raise NotImplementedError

    def written_folders(self) -> Sequence[str]:
        """None: leftovers stay."""
        return ()

    def discard(self, paths: Sequence[str], *, marks: Sequence[str]) -> None:
        """Delete nothing."""


@dataclass(kw_only=True)
class UnreadableTable(OpenTable):
    """One table whose pointer can be read, and not what it names.

    Args:
        name, storage, engine, on_event: see `OpenTable`.
        folder: the table's.
        damage: what was found in reading it.
    """

    folder: str
    damage: CorruptFile
    _workspace: UnreadableWorkspace = field(init=False)

    def __post_init__(self) -> None:
        """Its journals are below its folder."""
        self._workspace = UnreadableWorkspace(storage=self.storage, folder=self.folder)

    @property
    def workspace(self) -> UnreadableWorkspace:
        """The journals of its operations."""
        return self._workspace

    @abstractmethod
    def pointer(self) -> str:
        """What the table's pointer names now, as `Base.version` has it."""

    @abstractmethod
    def header(self, *, as_of_ms: int) -> dict[str, Any]:
        """The first fields of the document of a check; what is not known is null."""

    @abstractmethod
    def check(self) -> CheckResult:
        """What is damaged, and which older state can be read."""

    def load(self, seen: str | None = None) -> Base:
        """Where the pointer is; of which table is not known."""
        return Base(table_uuid="", version=self.pointer() if seen is None else seen)

    def base(self) -> Base:
        """As `load`."""
        return self.load()

    def read_only_reason(self) -> str:
        """That it cannot be read."""
        return f"it cannot be read: {self.damage.message}"

    def closing_refusal(self) -> None:
        """None: a journal is closed, and what it names stays."""

    def roots(self) -> Roots:
        """None: no file goes."""
        return Roots.of(())

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Nothing is asked of it that needs its state."""
        raise self.damage

    use = retries = bind = commit = settle = effects_visible = rebind = unreachable = _refuse


def newest_readable_message(damage: str, older: str | None) -> str:
    """The message of the finding: what is wrong, and which older state would do."""
    return f"{damage}; " + (
        "no older state of the table can be read" if older is None else f"{older} can be read"
    )
