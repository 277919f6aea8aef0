"""How long a table keeps what it no longer uses: as the operator asks, else by its own properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from iceberg_cli.delta.spec.log_cleanup import cut_off_ms
from iceberg_cli.delta.spec.protocol import (
    FILES_DEFAULT_MS,
    FILES_PROPERTY,
    LOG_DEFAULT_MS,
    LOG_PROPERTY,
    Metadata,
)
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.verbs.expire_snapshots.policy import FULL, LITE, ExpireSnapshots
from iceberg_cli.errors import UsageError
from iceberg_cli.plan.plan import Option
from iceberg_cli.plan.policy import DEFAULT, keeps_more
from iceberg_cli.plan.text import iso

CLEANUP_PROPERTY: Final = "delta.enableExpiredLogCleanup"
UNSAFE_OPTION: Final = "--unsafe-allow-short-retention"
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRetention:
    """The cut-offs of one run and why they may not be used.

    Args:
        retention_ms: of removed and untracked files.
        table_retention_ms: what the table promises of them.
        cut_ms: files removed or written at or after it stay.
        log_retention_ms: of commits.
        log_cut_ms: the midnight at or before which the oldest commit to keep lies; None: the log is not cleaned up.
        blocked_by: interlocks, in words.
    """

    retention_ms: Option
    table_retention_ms: int
    cut_ms: int
    log_retention_ms: Option
    log_cut_ms: int | None
    blocked_by: tuple[str, ...] = ()


def dated_ahead(snapshot: Snapshot, *, as_of_ms: int) -> tuple[str, ...]:
    """A warning where tombstones, or the version itself, are dated later than ages are counted from."""
    times = pc.fill_null(snapshot.removes["deletionTimestamp"], 0)
    ahead = pc.sum(pc.greater(times, as_of_ms)).as_py() or 0
    if ahead:
        what = f"{ahead:,} tombstone{' is' if ahead == 1 else 's are'} dated {iso(pc.max(times).as_py())}"
        what += "" if ahead == 1 else " or earlier"
    elif snapshot.timestamp_ms > as_of_ms:
        what = f"version {snapshot.version} is dated {iso(snapshot.timestamp_ms)}"
    else:
        return ()
    warning = (
        f"{what}, and ages are counted from {iso(as_of_ms)}: one of the clocks is wrong, or --as-of names the past; "
        "what is dated ahead counts as new"
    )
    return (warning,)


def within_properties(metadata: Metadata, policy: ExpireSnapshots) -> ExpireSnapshots:
    """The policy without what a file or variable for all tables must not decide for this one.

    It keeps no less than the table's own properties ask for: only the command line does.

    Raises:
        InvalidMetadata: a property cannot be read.
    """
    weaker: dict[str, str] = {}
    for name, given_ms, property_name, default_ms in (
        ("retention", policy.retention_ms, FILES_PROPERTY, FILES_DEFAULT_MS),
        ("log_retention", policy.log_retention_ms, LOG_PROPERTY, LOG_DEFAULT_MS),
    ):
        if given_ms is None or policy.is_explicit(name) or property_name not in metadata.configuration:
            continue
        own = _from_property(metadata, property_name, default_ms, None)
        if given_ms < own.value:
            weaker[name] = keeps_more(own, policy.source_of(name))
    policy = policy.without(weaker, weaker)
    if policy.log_retention_ms is None or policy.is_explicit("log_retention"):
        return policy
    if not _cleans_log(metadata):
        return policy.without(["log_retention"], {})
    files = _chosen(metadata, policy, "retention", FILES_PROPERTY, FILES_DEFAULT_MS)
    if policy.log_retention_ms < files.value:
        # Versions would go whose files are still there, which is an interlock for who asks for it.
        source = keeps_more(files, policy.source_of("log_retention"))
        policy = policy.but(log_retention=files.value).with_sources(
            {**policy.sources, "log_retention": source}
        )
    return policy


def _cleans_log(metadata: Metadata) -> bool:
    return bool(metadata.property_bool(CLEANUP_PROPERTY, default=True, unreadable=False))


def retention_of(metadata: Metadata, policy: ExpireSnapshots, *, as_of_ms: int) -> VacuumRetention:
    """The policy with its gaps filled from table properties and the protocol's defaults.

    Raises:
        UsageError: the mode is unknown.
        InvalidMetadata: a property cannot be read.
    """
    if policy.mode not in (FULL, LITE):
        raise UsageError(f"--mode must be {FULL} or {LITE}, not {policy.mode!r}")
    if policy.mode == LITE and policy.inventory is not None:
        raise UsageError("--inventory lists files for --mode full; --mode lite looks at the log alone")
    files = _chosen(metadata, policy, "retention", FILES_PROPERTY, FILES_DEFAULT_MS)
    log = _chosen(metadata, policy, "log_retention", LOG_PROPERTY, LOG_DEFAULT_MS)
    promised_ms = metadata.property_interval_ms(FILES_PROPERTY, FILES_DEFAULT_MS)
    blocked = []
    if files.value < promised_ms and not policy.unsafe_short_retention:
        blocked.append(
            f"{files.source} {_hours(files.value)} is less than the {_hours(promised_ms)} that the table promises "
            f"({FILES_PROPERTY}): readers and writers may still use the files; {UNSAFE_OPTION} allows it"
        )
    explicit = policy.log_retention_ms is not None
    if explicit and log.value < files.value and not policy.unsafe_short_retention:
        blocked.append(
            f"{log.source} {_hours(log.value)} is less than the {_hours(files.value)} for which removed files "
            f"are kept, so versions would go whose files are still there; {UNSAFE_OPTION} allows it"
        )
    cleaned = explicit or _cleans_log(metadata)
    return VacuumRetention(
        retention_ms=files,
        table_retention_ms=promised_ms,
        cut_ms=as_of_ms - files.value,
        log_retention_ms=log,
        log_cut_ms=cut_off_ms(as_of_ms, log.value) if cleaned else None,
        blocked_by=tuple(blocked),
    )


def _chosen(
    metadata: Metadata, policy: ExpireSnapshots, name: str, property_name: str, default_ms: int
) -> Option:
    if getattr(policy, name) is not None:
        return policy.chosen(name)
    return _from_property(metadata, property_name, default_ms, policy.sources.get(name))


def _from_property(metadata: Metadata, name: str, default_ms: int, source: str | None) -> Option:
    if name in metadata.configuration:
        value = metadata.property_interval_ms(name, default_ms)
        return Option(value=value, source=source or f"table property {name}")
    return Option(value=default_ms, source=DEFAULT)


def _hours(length_ms: int) -> str:
    return f"{length_ms / _HOUR_MS:g} h"


def options_of(retention: VacuumRetention, policy: ExpireSnapshots) -> dict[str, Option]:
    """What decided, and where it came from, as a plan shows it."""
    found = {
        "retention_ms": retention.retention_ms,
        "older_than_ms": Option(value=retention.cut_ms, source=retention.retention_ms.source),
        "mode": policy.chosen("mode"),
        "log_retention_ms": retention.log_retention_ms,
        "log_older_than": Option(value=iso(retention.log_cut_ms), source=retention.log_retention_ms.source),
    }
    if policy.inventory is not None:
        found["inventory"] = policy.chosen("inventory")
    if policy.unsafe_short_retention:
        found["unsafe_short_retention"] = policy.chosen("unsafe_short_retention")
    return {**found, **policy.chosen_of_all()}
