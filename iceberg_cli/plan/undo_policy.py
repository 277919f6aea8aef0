"""What an operator may ask of `undo`, whatever the table's format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.policy import Policy, Text, option

UNDO: Final = "undo"  # the verb
AGAIN: Final = "what it took back is done again by its own verb"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UndoPolicy(Policy):
    """The operation that is taken back, by its id; None: the newest one."""

    verb: ClassVar[str] = UNDO

    operation: str | None = option(
        Text("OP_ID"),
        "The operation, as `history` and `resume --list` show it; without it the newest.",
        positional=True,
    )
