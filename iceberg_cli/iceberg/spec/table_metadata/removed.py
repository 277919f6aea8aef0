"""What a commit took out of table metadata, kept so that it can be put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from iceberg_cli.iceberg.spec.json_fields import Fields
from iceberg_cli.iceberg.spec.table_metadata.snapshot import Snapshot, SnapshotLogEntry, SnapshotRef
from iceberg_cli.iceberg.spec.table_metadata.statistics_files import PartitionStatisticsFile, StatisticsFile
from iceberg_cli.iceberg.spec.types.partition_spec import PartitionSpec
from iceberg_cli.iceberg.spec.types.schema import Schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedMetadata:
    """What one version of a table has and the next one does not, and in which order it was.

    Args:
        snapshots: that went.
        refs: by name, those that went.
        schemas: that went.
        partition_specs: that went.
        statistics: that went.
        partition_statistics: that went.
        snapshot_log: whole, as it was before.
        snapshot_order: ids of all snapshots, as they were before.
    """

    snapshots: tuple[Snapshot, ...] = ()
    refs: Mapping[str, SnapshotRef] = field(default_factory=dict)
    schemas: tuple[Schema, ...] = ()
    partition_specs: tuple[PartitionSpec, ...] = ()
    statistics: tuple[StatisticsFile, ...] = ()
    partition_statistics: tuple[PartitionStatisticsFile, ...] = ()
    snapshot_log: tuple[SnapshotLogEntry, ...] = ()
    snapshot_order: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The parts as metadata files have them."""
        return {
            "snapshots": _all_to_json(self.snapshots),
            "refs": {name: ref.to_json() for name, ref in self.refs.items()},
            "schemas": _all_to_json(self.schemas),
            "partition-specs": _all_to_json(self.partition_specs),
            "statistics": _all_to_json(self.statistics),
            "partition-statistics": _all_to_json(self.partition_statistics),
            "snapshot-log": _all_to_json(self.snapshot_log),
            "snapshot-order": list(self.snapshot_order),
        }

    @classmethod
    def from_json(cls, value: object, *, path: str, where: str = "removed") -> RemovedMetadata:
        """Inverse of `to_json`.

        Raises:
            InvalidMetadata: naming the field.
        """
        obj = Fields(value, path, where)

        def each(key: str, read: Callable[..., T]) -> tuple[T, ...]:
            items = enumerate(obj.array(key))
            return tuple(read(item, path=path, where=f"{where}.{key}[{place}]") for place, item in items)

        refs = Fields(obj.value.get("refs"), path, f"{where}.refs")
        return cls(
            snapshots=each("snapshots", Snapshot.from_json),
            refs={
                name: SnapshotRef.from_json(item, path=path, where=f"{where}.refs.{name}")
                for name, item in refs.value.items()
            },
            schemas=each("schemas", Schema.from_json),
            partition_specs=each("partition-specs", PartitionSpec.from_json),
            statistics=each("statistics", StatisticsFile.from_json),
            partition_statistics=each("partition-statistics", PartitionStatisticsFile.from_json),
            snapshot_log=each("snapshot-log", SnapshotLogEntry.from_json),
            snapshot_order=obj.integers("snapshot-order"),
        )


def _all_to_json(items: Iterable[Any]) -> list[dict[str, Any]]:
    return [item.to_json() for item in items]
