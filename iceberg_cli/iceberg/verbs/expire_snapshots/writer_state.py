"""What streaming writers keep in snapshot summaries, and which of it an expiry takes from them.

Such a writer, once restored, walks from the head of its branch along the parents that are there, and takes the first
summary with its own state. Where it finds none, it commits again what it has committed before. So a state is found only
while every snapshot between it and the head is there.

Amoro's writers leave Flink's entry. RisingWave looks for a snapshot by an id that it keeps itself: nothing in the table
tells which one.

Source: Apache Iceberg, the Flink sink's `getMaxCommittedCheckpointId`, Spark's `SparkWrite.findLastCommittedEpochId`,
and the Kafka Connect sink's committed offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH

_FLINK_STATE: Final = "flink.max-committed-checkpoint-id"
_FLINK_JOB: Final = "flink.job-id"
_FLINK_OPERATOR: Final = "flink.operator-id"
_SPARK_STATE: Final = "spark.sql.streaming.epochId"
_SPARK_QUERY: Final = "spark.sql.streaming.queryId"
_KAFKA_OFFSETS: Final = "kafka.connect.offsets."


class WriterState(NamedTuple):
    """The newest state of one writer on a branch.

    Args:
        branch: its name.
        writer: the job or query, and what tells its sinks apart.
        state: the summary's entry.
        snapshot_id: whose summary has it.
        depth: its place in the chain.
        chain: the ids of the branch's snapshots from its head on; the same list for all writers.
    """

    branch: str
    writer: str
    state: str
    snapshot_id: int
    depth: int
    chain: Sequence[int]

    @property
    def path(self) -> Iterator[int]:
        """The ids of the snapshots from the branch's head to that with the state, both included."""
        return islice(self.chain, self.depth + 1)

    def is_found(self, kept: Collection[int]) -> bool:
        """Whether its writer still finds it where these snapshots stay."""
        return all(snapshot_id in kept for snapshot_id in self.path)


def has_state(summary: Mapping[str, str] | None) -> bool:
    """Whether a summary has the state of a writer."""
    return next(_states(summary or {}), None) is not None


def writer_states(metadata: TableMetadata) -> list[WriterState]:
    """The state that each writer finds on each branch."""
    found: list[WriterState] = []
    for name, ref in sorted(metadata.refs.items()):
        head = metadata.snapshot(ref.snapshot_id)
        if ref.type != BRANCH or head is None:
            continue
        chain = list(metadata.ancestors(head))
        ids = [snapshot.snapshot_id for snapshot in chain]
        newest: dict[str, WriterState] = {}
        for depth, snapshot in enumerate(chain):
            for writer, state in _states(snapshot.summary or {}):
                if writer not in newest:
                    newest[writer] = WriterState(name, writer, state, snapshot.snapshot_id, depth, ids)
        found += newest.values()
    return found


def _states(summary: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in summary.items():
        if key == _FLINK_STATE:
            sink = f", operator {operator}" if (operator := summary.get(_FLINK_OPERATOR)) else ""
            yield f"Flink job {summary.get(_FLINK_JOB, '?')}{sink}", f"{key}={value}"
        elif key == _SPARK_STATE:
            yield f"Spark query {summary.get(_SPARK_QUERY, '?')}", f"{key}={value}"
        elif key.startswith(_KAFKA_OFFSETS):
            yield f"Kafka Connect sink {key.removeprefix(_KAFKA_OFFSETS)}", f"{key}={value}"
