"""undo on a Delta table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.undo_policy import AGAIN, UndoPolicy
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Undo(UndoPolicy):
    """The operation that is taken back, by its id; None: the newest one."""

    examples: ClassVar = (("Take back a VACUUM of a Delta table that waits:", "undo /lake/db/clicks --yes"),)
    place: ClassVar = VerbPlace(order=8, only_alone=True, undo=WayBack(why_not=AGAIN))


POLICY: Final = Undo
