"""From how much on a verb that removes is due: thresholds of a policy file, beside those that the verb has itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.plan.option_kinds import Kind, Size, Whole
from iceberg_cli.plan.text import count, size

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Plan

MIN_SNAPSHOTS, MIN_FILES, MIN_BYTES = "min-snapshots", "min-files", "min-bytes"
THRESHOLDS: Final[Mapping[str, tuple[Kind, str]]] = {
    MIN_SNAPSHOTS: (Whole(), "Due from so many snapshots on that go."),
    MIN_FILES: (Whole(), "Due from so many files on that go."),
    MIN_BYTES: (Size(), "Due from so many bytes on that are freed."),
}


def not_reached(plan: Plan, thresholds: Mapping[str, Any]) -> str | None:
    """Why a plan is not due by thresholds, all of which must be reached; None where it is.

    Args:
        plan: made.
        thresholds: as numbers, by name.
    """
    files, size_bytes = plan.deletes
    snapshots = sum(each.subject == "snapshot" and not each.keep for each in plan.verdicts)
    found = {MIN_SNAPSHOTS: snapshots, MIN_FILES: files, MIN_BYTES: size_bytes}
    for name, least in thresholds.items():
        if found[name] >= least:
            continue
        if name == MIN_BYTES:
            return f"{size(size_bytes)}, less than {size(least)} ({name})"
        return f"{count(found[name], name.removeprefix('min-'))}, fewer than {least:,} ({name})"
    return None
