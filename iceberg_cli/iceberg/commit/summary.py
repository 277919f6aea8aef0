"""Summaries of the snapshots that this tool makes.

Spec: Appendix F, "Optional Snapshot Summary Fields".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TOTALS: Final = (
    "total-records",
    "total-files-size",
    "total-data-files",
    "total-delete-files",
    "total-position-deletes",
    "total-equality-deletes",
)


def carried_totals(
    parent: Mapping[str, str] | None, differences: Mapping[str, int] | None = None
) -> dict[str, str]:
    """The parent's totals with what a commit adds to them.

    Args:
        parent: summary of the parent snapshot.
        differences: by key of `TOTALS`; what is absent does not change.

    Returns:
        A total that the parent lacks, that is no number, or that would become negative is left out: it drifted.
    """
    changed = {}
    for key in TOTALS:
        text = (parent or {}).get(key, "")
        if text.isascii() and text.isdigit():
            total = int(text) + (differences or {}).get(key, 0)
            if total >= 0:
                changed[key] = str(total)
    return changed
