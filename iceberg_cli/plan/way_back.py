"""Whether `undo` takes an operation back: by what its verb declares, and as it stands for one operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.plan.text import iso


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """How an operation of a verb is taken back.

    Args:
        while_waiting: as long as its files wait for their grace: what its commit took from the table comes back, and
            what it was to delete stays.
        while_at_head: as long as its own snapshots are the newest of the branch: that goes back to the one before.
        why_not: else, why it is not, and what does it instead, as the end of a sentence.
    """

    while_waiting: bool = False
    while_at_head: bool = False
    why_not: str = "its verb has no way back"


NO_WAY_BACK: Final = WayBack()


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoState:
    """Whether an operation can be taken back, as far as is known without reading the table's files.

    Args:
        possible: whether it can be now.
        until_ms: until when, in ms since the epoch; None: it cannot, or what ends it is no time.
        reason: what it depends on, or why it cannot be.
    """

    possible: bool
    until_ms: int | None = None
    reason: str

    def to_json(self) -> dict[str, Any]:
        """As the field `undo` of documents."""
        return {
            "possible": self.possible,
            "until_ms": self.until_ms,
            "until": iso(self.until_ms),
            "reason": self.reason,
        }


NOTHING_TO_UNDO: Final = UndoState(possible=False, reason="it changed nothing")
WAITS: Final = "its files wait for their grace"
AT_HEAD: Final = (
    "as long as nobody commits to the branch after it and the snapshot before it is there with all its files"
)
