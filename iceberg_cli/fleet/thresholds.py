"""From how much on a verb is due, and how often: thresholds of a policy file, beside those that the verb has itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.formats import usual_every_ms
from iceberg_cli.plan.option_kinds import Duration, Kind, Size, Whole
from iceberg_cli.plan.text import age, count, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from iceberg_cli.plan.plan import Plan

MIN_SNAPSHOTS, MIN_FILES, MIN_BYTES = "min-snapshots", "min-files", "min-bytes"
EVERY: Final = "every"
OF_REMOVALS: Final[Mapping[str, tuple[Kind, str]]] = {
    MIN_SNAPSHOTS: (Whole(), "Due from so many snapshots on that go."),
    MIN_FILES: (Whole(), "Due from so many files on that go."),
    MIN_BYTES: (Size(), "Due from so many bytes on that are freed."),
}
OF_EVERY_VERB: Final[Mapping[str, tuple[Kind, str]]] = {
    EVERY: (Duration(), "Not before so long has passed since it last began here and did what it was to do."),
}
_EARLIER: Final = 20  # a run may begin by a twentieth too early: that of a night is some seconds off


def field_of(name: str) -> str:
    """A threshold's name in documents, with the unit of its value."""
    kind, _ = {**OF_REMOVALS, **OF_EVERY_VERB}[name]
    return f"{name}{kind.suffix}"


def usual_thresholds(verb: str) -> dict[str, Any]:
    """The thresholds of a verb where a policy file has none, as numbers, by name."""
    every_ms = usual_every_ms(verb)
    return {} if every_ms is None else {EVERY: every_ms}


def why_resting(
    thresholds: Mapping[str, Any], last_run_ms: Callable[[], int | None], *, as_of_ms: int
) -> str | None:
    """Why a verb is not looked at: it ran not long ago. None where it is.

    Args:
        thresholds: as `not_reached`.
        last_run_ms: asked where that matters: when it last began here and did what it was to do; None: never.
        as_of_ms: the "now" of every age.
    """
    every_ms = thresholds.get(EVERY)
    began_ms = None if every_ms is None else last_run_ms()
    if every_ms is None or began_ms is None or as_of_ms - began_ms >= every_ms - every_ms // _EARLIER:
        return None
    return f"it ran {age(as_of_ms - began_ms)} ago, and runs every {age(every_ms)} (every)"


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
        if name not in found or found[name] >= least:
            continue
        if name == MIN_BYTES:
            return f"{size(size_bytes)}, less than {size(least)} ({name})"
        return f"{count(found[name], name.removeprefix('min-'))}, fewer than {least:,} ({name})"
    return None
