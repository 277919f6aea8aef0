"""undo on a Delta table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.undo_policy import UndoPolicy


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Undo(UndoPolicy):
    """The options of undo."""

    examples: ClassVar = (
        ("Take back the VACUUM of a Delta table that still waits:", "undo /lake/db/clicks --yes"),
    )


POLICY: Final = Undo
