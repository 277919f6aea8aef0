"""What a checkpoint of a snapshot holds: the state without what has expired.

Spec: Delta protocol, "Checkpoints" ("Requirements for Writers"), "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import clash_of
from iceberg_cli.delta.spec.log import Checkpoint
from iceberg_cli.delta.spec.protocol import (
    FILES_DEFAULT_MS,
    FILES_PROPERTY,
    TRANSACTIONS_PROPERTY,
    Metadata,
    Protocol,
)
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.errors import InvalidMetadata, Refused

_PROPERTY: Final = "delta.checkpointInterval"
DEFAULT_INTERVAL: Final = 10


def known_interval(metadata: Metadata) -> int | None:
    """The number of commits, None where the table's property is no positive whole number."""
    try:
        found = metadata.property_int(_PROPERTY, DEFAULT_INTERVAL)
    except InvalidMetadata:
        return None
    return found if found > 0 else None


def is_due(since: int, interval: int | None) -> bool:
    """Whether a table asks for a checkpoint by now; at once after a commit where nothing says how long it may wait."""
    return since > (interval or 0)


def in_words(since: int, interval: int | None) -> str:
    """Whether a checkpoint is due by the commits since the last one, in words."""
    known = "no positive whole number" if interval is None else interval
    return f"commits since the last checkpoint: {since}, and {_PROPERTY} is {known}"


def commits_since(newest: Checkpoint | None, version: int) -> int:
    """How many commits a version is after a checkpoint, or after the first one."""
    return version if newest is None else version - newest.version


_FOREVER_MS: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The actions of a checkpoint."""

    version: int
    protocol: Protocol
    metadata: Metadata
    adds: pa.Table  # n columns of `columns.ADD` and unknown ones, dataChange false
    removes: pa.Table  # as `columns.REMOVE`, those that have not expired, dataChange false
    transactions: tuple[Mapping[str, Any], ...]
    domains: tuple[Mapping[str, Any], ...]  # none that was removed
    unknown: tuple[Mapping[str, Any], ...]  # whole actions, `{kind: {...}}`

    @property
    def file_actions(self) -> int:
        """How many adds and removes."""
        return int(self.adds.num_rows + self.removes.num_rows)

    @property
    def other_actions(self) -> tuple[Mapping[str, Any], ...]:
        """All others, in their JSON form."""
        return (
            {"protocol": self.protocol.to_json()},
            {"metaData": self.metadata.to_json()},
            *({"domainMetadata": dict(domain)} for domain in self.domains),
            *({"txn": dict(transaction)} for transaction in self.transactions),
            *self.unknown,
        )


def checkpoint_state(snapshot: Snapshot, *, as_of_ms: int) -> CheckpointState:
    """The content of a checkpoint of the snapshot at a time.

    Tombstones are there for VACUUM alone. One without a time is kept: nobody knows whether it has expired.

    Args:
        snapshot: of any version.
        as_of_ms: the "now" of every age.

    Raises:
        InvalidMetadata: a retention property is no interval.
        Refused: readers disagree about what the commits since the last checkpoint say.
    """
    if clash := clash_of(snapshot.irregular):
        raise Refused(f"Cannot write a checkpoint of version {snapshot.version}: {clash}")
    metadata = snapshot.metadata
    removed_until_ms = as_of_ms - metadata.property_interval_ms(FILES_PROPERTY, FILES_DEFAULT_MS)
    expired = pc.less_equal(snapshot.removes["deletionTimestamp"], removed_until_ms)
    removes = snapshot.removes.filter(pc.invert(pc.fill_null(expired, fill_value=False)))
    transactions = tuple(snapshot.transactions.values())
    if TRANSACTIONS_PROPERTY in metadata.configuration:
        # Without the property no transaction expires.
        seen_after_ms = as_of_ms - metadata.property_interval_ms(TRANSACTIONS_PROPERTY, _FOREVER_MS)
        transactions = tuple(each for each in transactions if _updated(each, seen_after_ms))
    return CheckpointState(
        version=snapshot.version,
        protocol=snapshot.protocol,
        metadata=metadata,
        adds=_without_change(snapshot.adds),
        removes=_without_change(removes),
        transactions=transactions,
        domains=tuple(domain for domain in snapshot.domains.values() if not domain.get("removed")),
        unknown=snapshot.unknown,
    )


def _updated(transaction: Mapping[str, Any], after_ms: int) -> bool:
    """Whether a transaction is younger than its retention, or nobody knows."""
    updated = transaction.get("lastUpdated")
    return type(updated) is not int or updated > after_ms


def _without_change(files: pa.Table) -> pa.Table:
    index = files.schema.get_field_index("dataChange")
    values = pa.repeat(pa.scalar(value=False), files.num_rows)
    return files.set_column(index, files.schema.field(index), values)
