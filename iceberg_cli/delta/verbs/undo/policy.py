"""undo on a Delta table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from iceberg_cli.plan.undo_policy import UndoPolicy


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Undo(UndoPolicy):
    """The options of undo."""


POLICY: Final = Undo
