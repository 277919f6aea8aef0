"""An engine that does in this process whatever a cluster may do to a shuffle; a fixture that has Spark beside it."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyspark import cloudpickle

from iceberg_cli.engines import Engine, OnEvent, Scan, ShuffleStage
from iceberg_cli.engines.local import LocalEngine, result_of
from iceberg_cli.engines.spark.engine import SparkEngine
from iceberg_cli.storage.local import LocalStorage


@dataclass(frozen=True)
class AdversarialEngine(LocalEngine):
    """Everything is pickled on its way, each file is a batch, contents come in any order, and each task runs twice.

    Args:
        seed: of the order.
        lost: how many of the first parts never arrive.
    """

    seed: int = 0
    lost: int = 0

    @property
    def is_distributed(self) -> bool:
        return True

    def shuffle(
        self,
        scan: Scan[Any, Any, Any],
        stages: Sequence[ShuffleStage],
        items: Sequence[Any],
        *,
        on_event: OnEvent,
    ) -> Iterator[Any]:
        """See `Engine.shuffle`."""
        scan, stages = pickle.loads(cloudpickle.dumps((replace(scan, batch_bytes=1), stages)))
        shares = self.scan(scan, items, on_event=on_event)
        parts = [part for share in shares for part in share.items()][self.lost :]
        order = random.Random(self.seed)
        *before, last = stages
        for stage in before:
            combined = list(self._combined(parts, stage, order))
            parts = [part for share in combined for part in share.items()]
        yield from self._combined(parts, last, order)

    def _combined(
        self, parts: list[tuple[int, bytes]], stage: ShuffleStage, order: random.Random
    ) -> Iterator[Any]:
        assert {bucket for bucket, _ in parts} <= set(range(stage.buckets))
        for bucket in order.sample(range(stage.buckets), stage.buckets):
            mine = [data for at, data in parts if at == bucket]
            for run in range(2 if mine else 0):
                order.shuffle(mine)
                found = result_of(stage.combine(bucket, mine), self.storage)
                if run:
                    yield pickle.loads(pickle.dumps(found))


Engines = Callable[[], Engine]


@pytest.fixture(params=["here", pytest.param("spark", marks=[pytest.mark.jvm, pytest.mark.deep])])
def workers(request: pytest.FixtureRequest) -> Engines:
    """An engine that exchanges."""
    if request.param == "here":
        return lambda: AdversarialEngine(LocalStorage())
    session = request.getfixturevalue("spark_session")
    return lambda: SparkEngine(session, LocalStorage())
