"""Where a verb stands among the others of its format, as its policy declares it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.plan.text import count
from iceberg_cli.plan.way_back import NO_WAY_BACK, WayBack

Overdue = Callable[[Mapping[str, Any]], str | None]
"""Why a verb that is due on the table of a row of `fleet/1` is overdue, in words; None where it is not."""
_DELETE_RATIO: Final = 0.3
_TIMES_AS_MANY_MANIFESTS: Final = 10
_MANY_MANIFESTS: Final = 100
_VERSIONS: Final = 100  # ten intervals of checkpoints, where the table does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbPlace:
    """Where a verb stands among others.

    Args:
        order: of the verbs that are due on a table, those with a lower one run first. Each leaves less to do for those
            behind it: the format comes before what it makes possible, row ids before rows are written anew, which drops
            deletes; the others are merged before their manifests are regrouped, and what all of them replaced goes
            last.
        removes: whether what it does not keep goes, and is not written anew.
        by_age: whether an age decides what goes: old snapshots and files, expired tombstones. It must not be carried
            out by a clock that is ahead.
        only_by_name: whether it runs on many tables only where an entry of a policy file names it: no later commit
            undoes it.
        only_by_policy: whether it runs on many tables only where a policy file names it, be it for all of them, and is
            not due otherwise: it reads and writes every row.
        planned_by_name: whether a plan of a table is one of it only where it is named, and a survey says no more than
            whether it rests: it lists all files there.
        usual_every_ms: where a policy file does not say, it is not looked at on one of many tables before so long has
            passed since it last began there; None: it is each time.
        looks_count: whether a run that finds nothing to do is in the table's history as one that did it.
        only_alone: whether it is never part of maintenance, of one table or of many: it acts on what an operator names.
        after: the verb without whose end it cannot begin, or "".
        overdue: beside the age of snapshots, which goes for all verbs.
        names_elsewhere: what other tools call it, in lower case with hyphens.
        undo: whether and how its operations are taken back.
    """

    order: int
    removes: bool = False
    by_age: bool = False
    only_by_name: bool = False
    only_by_policy: bool = False
    planned_by_name: bool = False
    usual_every_ms: int | None = None
    looks_count: bool = False
    only_alone: bool = False
    after: str = ""
    overdue: Overdue = lambda _: None
    names_elsewhere: tuple[str, ...] = ()
    undo: WayBack = NO_WAY_BACK


def with_many_deletes(row: Mapping[str, Any]) -> str | None:
    """By the part of rows that are deleted; see `Overdue`."""
    ratio = row["delete_ratio"]
    if ratio is None or ratio <= _DELETE_RATIO:
        return None
    return f"{ratio:.0%} of its rows are deleted, more than {_DELETE_RATIO:.0%}"


def with_many_manifests(row: Mapping[str, Any]) -> str | None:
    """By the number of manifests and of those that would do; see `Overdue`."""
    ratio = row["manifest_target_ratio"]
    if ratio is None or ratio <= _TIMES_AS_MANY_MANIFESTS or row["manifests"] < _MANY_MANIFESTS:
        return None
    return f"it has {ratio:.0f} times as many manifests as would do, more than {_TIMES_AS_MANY_MANIFESTS}"


def long_after_its_checkpoint(row: Mapping[str, Any]) -> str | None:
    """By the number of versions since then; see `Overdue`."""
    versions = row["log_versions_since_checkpoint"]
    if versions is None or versions <= _VERSIONS:
        return None
    return f"{count(versions, 'versions')} since its last checkpoint, more than {_VERSIONS}"
