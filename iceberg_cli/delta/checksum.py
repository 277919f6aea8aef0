"""Reading version checksum files: what a writer says a version adds up to, held against what was read.

Spec: "Version Checksum File", "State Validation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from iceberg_cli.delta.protocol import Metadata, Protocol
from iceberg_cli.delta.snapshot import Snapshot
from iceberg_cli.errors import CorruptFile
from iceberg_cli.strict_json import loads

_REQUIRED: Final = ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "metadata", "protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field of a checksum that is not what the log adds up to."""

    field: str
    said: Any
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
        said = read_checksum(data, path).get("inCommitTimestampOpt")
    except CorruptFile:
        return None
    return said if type(said) is int else None


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
            lambda said: Metadata.from_json(said, path=path).with_plain_schema(),
            snapshot.metadata.with_plain_schema,
        ),
        "protocol": (lambda said: Protocol.from_json(said, path=path), lambda: snapshot.protocol),
        "inCommitTimestampOpt": (_same, lambda: snapshot.in_commit_timestamp_ms),
        "setTransactions": (_by("appId"), lambda: _by("appId")(snapshot.transactions.values())),
        "domainMetadata": (_by("domain"), lambda: _by("domain")(snapshot.domains.values())),
        "numDeletedRecordsOpt": (_same, lambda: int(_deleted(snapshot).sum())),
        "numDeletionVectorsOpt": (_same, lambda: _vectors(snapshot)),
        "fileSizeHistogram": (_same, lambda: _size_histogram(fields["fileSizeHistogram"], snapshot)),
        "allFiles": (_paths, lambda: sorted(snapshot.adds.column("path").to_pylist())),
    }
    found: list[Difference] = []
    for name, (read, compute) in compared.items():
        if fields.get(name) is None:
            continue
        said, is_so = read(fields[name]), compute()
        if said != is_so:
            found.append(Difference(field=name, said=said, found=is_so))
    return tuple(found)


def _same(said: Any) -> Any:
    return said


def _by(key: str) -> Callable[[Any], Any]:
    """Actions by their key, without fields that are null."""

    def keyed(actions: Iterable[Mapping[str, Any]]) -> Any:
        if not all(isinstance(action, Mapping) for action in actions):
            return actions
        return {
            action.get(key): {name: item for name, item in action.items() if item is not None}
            for action in actions
        }

    return keyed


def _paths(adds: Any) -> Any:
    if not isinstance(adds, Sequence) or not all(isinstance(add, Mapping) for add in adds):
        return adds
    return sorted(str(add.get("path")) for add in adds)


def _deleted(snapshot: Snapshot) -> Any:
    vectors = snapshot.adds.column("deletionVector")
    return pc.fill_null(pc.struct_field(vectors, "cardinality"), 0).to_numpy()


def _vectors(snapshot: Snapshot) -> int:
    vectors = snapshot.adds.column("deletionVector")
    return int(len(vectors) - vectors.null_count)


def _size_histogram(said: Any, snapshot: Snapshot) -> Any:
    """The histogram of file sizes with the bins that a checksum has; None where those are none."""
    bounds = said.get("sortedBinBoundaries") if isinstance(said, Mapping) else None
    whole = isinstance(bounds, list) and all(type(bound) is int for bound in bounds)
    if not whole or not bounds or bounds[0] != 0 or bounds != sorted(bounds):
        return None
    sizes = snapshot.adds.column("size").to_numpy()
    bins = np.searchsorted(np.array(bounds, np.int64), sizes, side="right") - 1
    totals = np.zeros(len(bounds), np.int64)
    np.add.at(totals, bins, sizes)
    return {
        **said,
        "fileCounts": np.bincount(bins, minlength=len(bounds)).tolist(),
        "totalBytes": totals.tolist(),
    }
