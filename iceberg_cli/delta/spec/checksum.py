"""Version checksum files: read and held against the log, and written.

Spec: "Version Checksum File", "State Validation".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.in_commit_timestamps import has_in_commit_timestamps
from iceberg_cli.delta.spec.protocol import TRANSACTIONS_PROPERTY, Metadata, Protocol
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import CorruptFile

_KIB, _MIB = 1 << 10, 1 << 20
_MAX_LONG: Final = (1 << 63) - 1
_BINS: Final = np.array(
    [
        0,
        *(8 * _KIB << power for power in range(10)),
        *range(8 * _MIB, 44 * _MIB, 4 * _MIB),
        *range(48 * _MIB, 124 * _MIB, 8 * _MIB),
        *range(124 * _MIB, 148 * _MIB, 4 * _MIB),
        *range(160 * _MIB, 592 * _MIB, 16 * _MIB),
        *range(640 * _MIB, 1_472 * _MIB, 64 * _MIB),
        *range(1_536 * _MIB, 2_176 * _MIB, 128 * _MIB),
        *range(2_304 * _MIB, 4_352 * _MIB, 256 * _MIB),
        *(8_192 * _MIB << power for power in range(6)),
    ],
    np.int64,
)
_DELETED_BINS: Final = np.array([0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2**31 - 1])


def may_write(snapshot: Snapshot) -> bool:
    """Whether all fields of a checksum are known: the snapshot has no actions of unknown kind."""
    return not snapshot.unknown


def version_checksum(snapshot: Snapshot, *, in_commit_ms: int | None) -> bytes | None:
    """The `.crc` file of a snapshot's version.

    Args:
        snapshot: of the newest version.
        in_commit_ms: the in-commit timestamp that its commit says; None where it says none.

    Returns:
        The file, or None where a field that it must have is not known.
    """
    timed = has_in_commit_timestamps(snapshot.protocol, snapshot.metadata)
    if not may_write(snapshot) or (timed and in_commit_ms is None):
        return None
    metadata, configuration = snapshot.metadata, snapshot.metadata.configuration
    sizes = snapshot.adds["size"].to_numpy()
    value: dict[str, Any] = {"tableSizeBytes": int(sizes.sum()), "numFiles": len(sizes)}
    wide = supports(snapshot.protocol, "deletionVectors") and metadata.property_bool(
        "delta.enableDeletionVectors", default=False, unreadable=False
    )
    deleted = _deleted(snapshot)
    if wide:
        value["numDeletedRecordsOpt"] = int(deleted.sum())
        value["numDeletionVectorsOpt"] = _vectors(snapshot)
    value |= {"numMetadata": 1, "numProtocol": 1}
    if timed:
        value["inCommitTimestampOpt"] = in_commit_ms
    # Which of them have expired depends on the clock of whoever looks.
    if TRANSACTIONS_PROPERTY not in configuration:
        value["setTransactions"] = [dict(each) for each in snapshot.transactions.values()]
    value["domainMetadata"] = [dict(each) for each in snapshot.domains.values()]
    value |= {"metadata": metadata.to_json(), "protocol": snapshot.protocol.to_json()}
    value["fileSizeHistogram"] = _size_histogram(_BINS, snapshot)
    if wide:
        value["deletedRecordCountsHistogramOpt"] = {"deletedRecordCounts": _counted(deleted, _DELETED_BINS)}
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def _counted(
    values: npt.NDArray[np.int64],
    bins: npt.NDArray[np.int64],
    *,
    weights: npt.NDArray[np.int64] | None = None,
) -> list[int]:
    """How many values fall into each bin, or the sum of their weights."""
    totals = np.zeros(len(bins), np.int64)
    np.add.at(totals, np.searchsorted(bins, values, side="right") - 1, 1 if weights is None else weights)
    return [int(total) for total in totals]


_REQUIRED: Final = ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "metadata", "protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field of a checksum that differs from the log."""

    field: str
    stated: Any
    found: Any


def read_checksum(data: bytes, path: str) -> Mapping[str, Any]:
    """The fields of a version checksum file.

    Raises:
        CorruptFile: it is no JSON object, or a field that must be there is not.
    """
    fields = loads(data, path)
    for name in _REQUIRED:
        if fields.get(name) is None:
            raise CorruptFile(path, name, "it is missing")
    return fields


def in_commit_timestamp_in(data: bytes, path: str) -> int | None:
    """The in-commit timestamp in ms that a version checksum file says, None where it says none or is damaged."""
    try:
        stated = read_checksum(data, path).get("inCommitTimestampOpt")
    except CorruptFile:
        return None
    return stated if type(stated) is int else None


def differences(fields: Mapping[str, Any], snapshot: Snapshot, path: str) -> tuple[Difference, ...]:
    """The fields of a checksum that disagree with the snapshot of its version; those that it leaves out do not.

    Args:
        fields: see `read_checksum`.
        snapshot: of the same version.
        path: of the checksum file, for messages.

    Raises:
        CorruptFile: protocol or metadata are not as the protocol has them.
    """
    compared: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
        "tableSizeBytes": (_same, lambda: pc.sum(snapshot.adds.column("size")).as_py() or 0),
        "numFiles": (_same, lambda: snapshot.adds.num_rows),
        "numMetadata": (_same, lambda: 1),
        "numProtocol": (_same, lambda: 1),
        "metadata": (
            lambda stated: Metadata.from_json(stated, path=path).with_plain_schema(),
            snapshot.metadata.with_plain_schema,
        ),
        "protocol": (lambda stated: Protocol.from_json(stated, path=path), lambda: snapshot.protocol),
        "inCommitTimestampOpt": (_same, lambda: snapshot.in_commit_timestamp_ms),
        "setTransactions": (_by("appId"), lambda: _by("appId")(snapshot.transactions.values())),
        "domainMetadata": (_by("domain"), lambda: _by("domain")(snapshot.domains.values())),
        "numDeletedRecordsOpt": (_same, lambda: int(_deleted(snapshot).sum())),
        "numDeletionVectorsOpt": (_same, lambda: _vectors(snapshot)),
        "fileSizeHistogram": (_same, lambda: _histogram_like(fields["fileSizeHistogram"], snapshot)),
        "allFiles": (_paths, lambda: sorted(snapshot.adds.column("path").to_pylist())),
    }
    found: list[Difference] = []
    for name, (read, compute) in compared.items():
        if fields.get(name) is None:
            continue
        stated, is_so = read(fields[name]), compute()
        if stated != is_so:
            found.append(Difference(field=name, stated=stated, found=is_so))
    return tuple(found)


def _same(stated: Any) -> Any:
    return stated


def _by(key: str) -> Callable[[Any], Any]:
    """Actions by their key, without fields that are null."""

    def by_key(actions: Iterable[Mapping[str, Any]]) -> Any:
        if not all(isinstance(action, Mapping) for action in actions):
            return actions
        return {
            action.get(key): {name: item for name, item in action.items() if item is not None}
            for action in actions
        }

    return by_key


def _paths(adds: Any) -> Any:
    if not isinstance(adds, Sequence) or not all(isinstance(add, Mapping) for add in adds):
        return adds
    return sorted(str(add.get("path")) for add in adds)


def _deleted(snapshot: Snapshot) -> npt.NDArray[np.int64]:
    """The deleted rows of each active file."""
    vectors = snapshot.adds.column("deletionVector")
    deleted: npt.NDArray[np.int64] = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0).to_numpy()
    return deleted


def _vectors(snapshot: Snapshot) -> int:
    vectors = snapshot.adds.column("deletionVector")
    return int(len(vectors) - vectors.null_count)


def _size_histogram(bounds: npt.NDArray[np.int64], snapshot: Snapshot) -> dict[str, Any]:
    """The histogram of file sizes in a checksum."""
    sizes = snapshot.adds.column("size").to_numpy()
    return {
        "sortedBinBoundaries": bounds.tolist(),
        "fileCounts": _counted(sizes, bounds),
        "totalBytes": _counted(sizes, bounds, weights=sizes),
    }


def _histogram_like(stated: Any, snapshot: Snapshot) -> Any:
    """The histogram of file sizes with the bins that a checksum has; None where those are none."""
    bounds = stated.get("sortedBinBoundaries") if isinstance(stated, Mapping) else None
    whole = isinstance(bounds, list) and all(type(bound) is int for bound in bounds)
    if not whole or not bounds or bounds[0] != 0 or bounds != sorted(bounds) or bounds[-1] > _MAX_LONG:
        return None
    return {**stated, **_size_histogram(np.array(bounds, np.int64), snapshot)}
