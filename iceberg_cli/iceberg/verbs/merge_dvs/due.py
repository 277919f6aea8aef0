"""merge-dvs: whether it is due.

Puffin files are chosen by their number and by the part of their bytes that is dead. Position delete files become
deletion vectors, and equality deletes that apply to nothing go, where they are many: a table that is written to has
some new ones each day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from iceberg_cli.iceberg.verbs.inspected import Inspected
from iceberg_cli.iceberg.verbs.merge_dvs.policy import VERB_NAME
from iceberg_cli.plan.plan import Verdict
from iceberg_cli.plan.text import count, listed

_PUFFIN: Final = "puffin-file"  # the subject of a verdict
LEAST_FILES: Final = 20  # other than Puffin files


def reason_of(verdicts: Sequence[Verdict]) -> str:
    """What a merge rewrites and removes, in counts."""
    return listed(
        [count(files, f"{subject.replace('-', ' ')}s") for subject, files in _going(verdicts).items()]
    )


def early(verdicts: Sequence[Verdict]) -> str | None:
    """Why a merge does not count as due yet, or None."""
    going = _going(verdicts)
    if going[_PUFFIN] or going.total() >= LEAST_FILES:
        return None
    return f"{reason_of(verdicts)}, fewer than {LEAST_FILES}"


def _going(verdicts: Sequence[Verdict]) -> Counter[str]:
    return Counter(verdict.subject for verdict in verdicts if not verdict.keep)


def suggestion(inspected: Inspected) -> dict[str, Any] | None:
    """What `inspect` says of it: it does not look at what a delete applies to, or which bytes of a file are dead."""
    others = inspected.position_delete_files + inspected.equality_delete_files
    if others < LEAST_FILES and not inspected.puffin_files:
        return None
    reason = count(others + inspected.puffin_files, "delete files")
    return {"operation": VERB_NAME, "reason": reason, "certain": False, "blocked_by": []}
