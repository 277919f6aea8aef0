"""The policies of the verbs on Delta tables: plain values, in a plan as its `policy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from iceberg_cli.errors import UsageError

FULL, LITE = "full", "lite"
CLASSIC, V2 = "classic", "v2"


class _Policy:
    """JSON forms: the fields by name, tuples as arrays; a field that is absent has its default."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """As `Plan.policy` holds it."""
        values = asdict(self)  # type: ignore[call-overload]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`.

        Raises:
            UsageError: a field is unknown.
        """
        known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        if unknown := sorted(value.keys() - known):
            raise UsageError(f"the policy has {', '.join(unknown)}, which is not known here")
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in value.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirePolicy(_Policy):
    """VACUUM and log cleanup. None: what the table's property says, else the protocol's default."""

    retention_ms: int | None = None  # of files that no live version needs
    mode: str = FULL
    log_retention_ms: int | None = None  # of commits and checkpoints
    inventory: str | None = None  # a file that lists the table's files in place of the storage
    unsafe_short_retention: bool = False  # below what the table itself promises


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy(_Policy):
    """A checkpoint of the newest version, and log compaction."""

    checkpoint: str | None = None  # classic or v2; None: delta.checkpointPolicy
    part_size: int | None = None  # actions in one sidecar
    compact_log: tuple[int, int] | None = None  # first and last version, both included


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy(_Policy):
    """Few DV files in place of many. None: the default of `merge_dvs`."""

    target_size: int | None = None  # bytes of a new DV file
    min_files: int | None = None  # fewer small DV files than this stay
    dead_ratio: float | None = None  # a DV file is written anew from this part of dead bytes on


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePolicy(_Policy):
    """Table features, by the protocol's names; empty: the default set of `upgrade`."""

    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignPolicy(_Policy):
    """Row tracking's backfill. None: the default of `row_tracking`."""

    batch_size: int | None = None  # files in one commit
    count_rows: bool = False  # read footers where a file's statistics have no numRecords
