"""What streaming writers keep in snapshot summaries, and which of it an expiry takes from them.

Such a writer, once restored, walks from the head of its branch along the parents that are there, and takes the first
summary with its own state. Where it finds none, it commits again what it has committed before.

Source: Apache Iceberg, the Flink sink's `getMaxCommittedCheckpointId` and the Kafka Connect sink's committed offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Final, NamedTuple

from iceberg_cli.iceberg.spec.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.snapshot import BRANCH

_FLINK_STATE: Final = "flink.max-committed-checkpoint-id"
_FLINK_JOB: Final = "flink.job-id"
_FLINK_OPERATOR: Final = "flink.operator-id"
_KAFKA_OFFSETS: Final = "kafka.connect.offsets."


class WriterState(NamedTuple):
    """The newest state of one writer on a branch.

    Args:
        branch: its name.
        writer: the job, and what tells its sinks apart.
        state: the summary's entry.
        snapshot_id: whose summary has it.
    """

    branch: str
    writer: str
    state: str
    snapshot_id: int


def lost_states(metadata: TableMetadata, kept: Collection[int]) -> list[WriterState]:
    """The states that writers find now, and not any more once the other snapshots are gone.

    Args:
        metadata: the table.
        kept: the ids of the snapshots that stay.
    """
    lost = []
    for name, ref in sorted(metadata.refs.items()):
        head = metadata.snapshot(ref.snapshot_id)
        if ref.type != BRANCH or head is None:
            continue
        chain = list(metadata.ancestors(head))
        left = _newest(takewhile(lambda snapshot: snapshot.snapshot_id in kept, chain))
        lost += [
            WriterState(name, writer, state, snapshot_id)
            for writer, (state, snapshot_id) in _newest(chain).items()
            if writer not in left
        ]
    return lost


def _newest(chain: Iterable[Snapshot]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for snapshot in chain:
        for writer, state in _states(snapshot.summary or {}):
            found.setdefault(writer, (state, snapshot.snapshot_id))
    return found


def _states(summary: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in summary.items():
        if key == _FLINK_STATE:
            sink = f", operator {operator}" if (operator := summary.get(_FLINK_OPERATOR)) else ""
            yield f"Flink job {summary.get(_FLINK_JOB, '?')}{sink}", f"{key}={value}"
        elif key.startswith(_KAFKA_OFFSETS):
            yield f"Kafka Connect sink {key.removeprefix(_KAFKA_OFFSETS)}", f"{key}={value}"
