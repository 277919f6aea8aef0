"""Version checksum files: what a state adds up to, so that a later reader can tell whether it reads the same.

A checksum that is wrong makes Delta Spark's next checkpoint fail, so a field that is not known for certain is left out.

Spec: Delta protocol, "Version Checksum File".
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from iceberg_cli.delta.features import supports
from iceberg_cli.delta.retention_properties import TRANSACTIONS_PROPERTY
from iceberg_cli.delta.snapshot import Snapshot, has_in_commit_timestamps

_KIB, _MIB = 1 << 10, 1 << 20
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
    """Whether all that a checksum must say of the snapshot is known: it holds no actions of unknown kind."""
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
    vectors = snapshot.adds["deletionVector"]
    wide = supports(snapshot.protocol, "deletionVectors") and metadata.property_bool(
        "delta.enableDeletionVectors", default=False, unreadable=False
    )
    deleted = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0).to_numpy()
    if wide:
        value["numDeletedRecordsOpt"] = int(deleted.sum())
        value["numDeletionVectorsOpt"] = len(vectors) - vectors.null_count
    value |= {"numMetadata": 1, "numProtocol": 1}
    if timed:
        value["inCommitTimestampOpt"] = in_commit_ms
    # Which of them have expired depends on the clock of whoever looks.
    if TRANSACTIONS_PROPERTY not in configuration:
        value["setTransactions"] = [dict(each) for each in snapshot.transactions.values()]
    value["domainMetadata"] = [dict(each) for each in snapshot.domains.values()]
    value |= {"metadata": metadata.to_json(), "protocol": snapshot.protocol.to_json()}
    value["fileSizeHistogram"] = {
        "sortedBinBoundaries": _BINS.tolist(),
        "fileCounts": _counted(sizes, _BINS),
        "totalBytes": _counted(sizes, _BINS, weights=sizes),
    }
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
