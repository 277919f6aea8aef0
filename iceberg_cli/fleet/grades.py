"""The grade of a table in a survey, and the rule that gave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.errors import CorruptFile, IcebergCliError
from iceberg_cli.formats import place_of
from iceberg_cli.plan.text import age

OK, DUE, OVERDUE, BROKEN, UNREADABLE = "ok", "due", "overdue", "broken", "unreadable"
GRADES: Final = (OK, DUE, OVERDUE, BROKEN, UNREADABLE)  # the worse the later
_ERROR: Final = "error"  # the severity of a finding
# Beyond these something is overdue and not only due.
_OVERDUE_AGES: Final = 2  # times the age that a policy lets a snapshot get


@dataclass(frozen=True, slots=True, kw_only=True)
class DueVerb:
    """A verb that is due in a table.

    Args:
        verb: its name.
        size_bytes: what it frees; None where that was not looked for.
        files: likewise.
        blocked_by: why it would not be carried out.
        oldest_ms: when the oldest snapshot was made that it lets go, or None.
        allowed_ms: how old a snapshot may get by the policy, or None.
        reason: what there is to do, in counts; "" where that is not known.
    """

    verb: str
    size_bytes: int | None
    files: int | None
    blocked_by: tuple[str, ...] = ()
    oldest_ms: int | None = None
    allowed_ms: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        """As a rule names it."""
        return f"{self.verb}: {self.reason}" if self.reason else f"{self.verb} is due"

    def to_json(self) -> dict[str, Any]:
        """As an element of `due` in `fleet/1`."""
        return {
            "operation": self.verb,
            "reason": self.reason,
            "bytes": self.size_bytes,
            "files": self.files,
            "exact": self.size_bytes is not None,
            "blocked_by": list(self.blocked_by),
        }


def grade_of_error(error: IcebergCliError) -> str:
    """The grade of a table that could not be read to its end: broken where a file of it is."""
    return BROKEN if isinstance(error, CorruptFile) else UNREADABLE


def grade_of(
    row: Mapping[str, Any], due: Sequence[DueVerb], failed: Sequence[IcebergCliError], *, as_of_ms: int
) -> tuple[str, str, int]:
    """The grade of a table that could be opened, the rule that gave it, and its exit code.

    Args:
        row: of `fleet/1`.
        due: in the order in which they run.
        failed: why verbs cannot be planned.
        as_of_ms: the "now" of every age.
    """
    if other := next((each for each in failed if not isinstance(each, CorruptFile)), None):
        return UNREADABLE, other.message, other.exit_code
    errors = [each for each in row["findings"] if each["severity"] == _ERROR]
    if errors:
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        return BROKEN, f"{errors[0]['message']}{more}", CorruptFile.exit_code
    free = [each for each in due if not each.blocked_by]
    if not free:
        if due:
            return DUE, f"{due[0]}, blocked by {due[0].blocked_by[0]}", 0
        return OK, "nothing is due", 0
    for each in free:
        if rule := _overdue(each, row, as_of_ms=as_of_ms):
            return OVERDUE, f"{each.verb}: {rule}", 0
    return DUE, "; ".join(map(str, free)), 0


def _overdue(due: DueVerb, row: Mapping[str, Any], *, as_of_ms: int) -> str | None:
    """Why a verb that is due is overdue, or None."""
    if due.oldest_ms is not None and due.allowed_ms is not None:
        oldest_ms = as_of_ms - due.oldest_ms
        if oldest_ms > _OVERDUE_AGES * due.allowed_ms:
            return (
                f"its oldest snapshot is {age(oldest_ms)} old, more than {_OVERDUE_AGES} times the"
                f" {age(due.allowed_ms)} that it may get"
            )
    return place_of(row["table"]["format"], due.verb).overdue(row)
