"""The retention that holds for a table: an operator's policy, the table's own properties, and documented defaults.

Spec: "Snapshot Retention Policy".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from iceberg_cli.errors import InvalidMetadata, UsageError
from iceberg_cli.iceberg.spec.table_metadata.history import AnyHistory
from iceberg_cli.iceberg.verbs.expire_snapshots.policy import ExpireSnapshots
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import (
    DEFAULT_MAX_SNAPSHOT_AGE_MS,
    DEFAULT_MIN_SNAPSHOTS_TO_KEEP,
    MAX_LONG,
    SnapshotRetention,
)
from iceberg_cli.plan.plan import Option, Plan
from iceberg_cli.plan.policy import DEFAULT, keeps_more

_AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
_COUNT_PROPERTY: Final = "history.expire.min-snapshots-to-keep"


def within_properties(history: AnyHistory, policy: ExpireSnapshots, *, as_of_ms: int) -> ExpireSnapshots:
    """The policy without what a file or variable for all tables must not decide for this one.

    It keeps no less than the table's own properties ask for, and where snapshots are named it adds no rule of age or
    count to them: only the command line does either.

    Raises:
        UsageError: a retention property is negative.
        InvalidMetadata: it is no number.
    """
    general = [
        name
        for name in ("older_than", "retain_last")
        if getattr(policy, name) is not None and not policy.is_explicit(name)
    ]
    if policy.snapshot_ids:
        return policy.without(general, {})
    weaker: dict[str, str] = {}
    if "older_than" in general and _AGE_PROPERTY in history.properties:
        max_age = _from_property(history, _AGE_PROPERTY, DEFAULT_MAX_SNAPSHOT_AGE_MS)
        assert policy.older_than_ms is not None
        if as_of_ms - policy.older_than_ms < max_age.value:
            weaker["older_than"] = keeps_more(max_age, policy.source_of("older_than"))
    if "retain_last" in general and _COUNT_PROPERTY in history.properties:
        minimum = _from_property(history, _COUNT_PROPERTY, DEFAULT_MIN_SNAPSHOTS_TO_KEEP)
        assert policy.retain_last is not None
        if policy.retain_last < minimum.value:
            weaker["retain_last"] = keeps_more(minimum, policy.source_of("retain_last"))
    return policy.without(weaker, weaker)


def retention_of(
    history: AnyHistory, policy: ExpireSnapshots, *, as_of_ms: int, within: Plan | None = None
) -> SnapshotRetention:
    """The policy with table properties and documented defaults for options that are not given.

    Args:
        history: of the table.
        policy: the options.
        as_of_ms: the "now" of every age, in ms since the epoch.
        within: a plan whose snapshots alone may expire; None: all may.

    Raises:
        UsageError: `retain_last` below 1, or a cut-off after `as_of_ms`.
        InvalidMetadata: a retention property is no number.
    """
    if policy.retain_last is not None and policy.retain_last < 1:
        raise UsageError(f"--retain-last must be at least 1, not {policy.retain_last}")
    if policy.older_than_ms is not None and policy.older_than_ms > as_of_ms:
        raise UsageError("--older-than is in the future: every snapshot would be older")
    if policy.older_than_ms is not None:
        cutoff = policy.chosen("older_than")
    else:
        max_age = _from_property(
            history, _AGE_PROPERTY, DEFAULT_MAX_SNAPSHOT_AGE_MS, policy.sources.get("older_than")
        )
        cutoff = Option(value=as_of_ms - int(max_age.value), source=max_age.source)
    if policy.retain_last is not None:
        minimum = policy.chosen("retain_last")
    else:
        minimum = _from_property(
            history, _COUNT_PROPERTY, DEFAULT_MIN_SNAPSHOTS_TO_KEEP, policy.sources.get("retain_last")
        )
    return SnapshotRetention(
        cutoff_ms=cutoff,
        min_snapshots_to_keep=minimum,
        max_ref_age_ms=_from_property(history, "history.expire.max-ref-age-ms", MAX_LONG),
        snapshot_ids=frozenset(policy.snapshot_ids),
        by_age=not policy.snapshot_ids or policy.older_than_ms is not None or policy.retain_last is not None,
        may_expire=None if within is None else frozenset(within.removed_snapshot_ids),
    )


class RefDefaults(NamedTuple):
    """What holds for a branch or tag that states nothing itself.

    Args:
        max_snapshot_age_ms: of a branch.
        min_snapshots_to_keep: of a branch.
        max_ref_age_ms: of a branch but main, or a tag; None: for ever.
    """

    max_snapshot_age_ms: int
    min_snapshots_to_keep: int
    max_ref_age_ms: int | None


def ref_defaults(history: AnyHistory) -> RefDefaults | None:
    """The table's own retention of refs; None where a property that says it has no meaning."""
    try:
        held = retention_of(history, ExpireSnapshots(), as_of_ms=0)
    except (UsageError, InvalidMetadata):
        return None
    ref_age = int(held.max_ref_age_ms.value)
    return RefDefaults(
        -int(held.cutoff_ms.value),
        int(held.min_snapshots_to_keep.value),
        None if ref_age == MAX_LONG else ref_age,
    )


def _from_property(history: AnyHistory, name: str, default: int, source: str | None = None) -> Option:
    if name in history.properties:
        value = history.property_int(name, default)
        if value < 0:
            raise UsageError(
                f"Cannot judge the snapshots' ages: table property {name}={value} is negative",
                next_step="Set the property to a positive number, or remove it.",
            )
        return Option(value=value, source=source or f"table property {name}")
    return Option(value=default, source=DEFAULT)
