"""An engine with workers in this process: what a shuffle may do to an exchange, without Spark."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle

from iceberg_cli.engines import BuiltFile, OnEvent, Source
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.storage.verified_put import put_checked

Combine = Callable[[int, Sequence[bytes]], Any]


@dataclass(frozen=True)
class HereExchanging(LocalEngine):
    """Everything is pickled on its way, each file is a batch, contents come in any order, and each task runs twice.

    Args:
        seed: of the order.
        lost: how many of the first parts never arrive.
    """

    seed: int = 0
    lost: int = 0

    def shuffle(
        self,
        items: Sequence[Any],
        source: Callable[[Any], Source],
        load: Callable[[Any, bytes], Any],
        parse: Callable[[Sequence[tuple[Any, Any]]], Mapping[int, bytes]],
        combine: Combine,
        *,
        then: Combine | None = None,
        buckets: int,
        then_buckets: int = 0,
        phase: str,
        on_event: OnEvent,
    ) -> Iterator[Any]:
        """See `Exchanging.shuffle`."""
        source, load, parse, combine, then = pickle.loads(
            cloudpickle.dumps((source, load, parse, combine, then))
        )
        shares = self.scan(
            items, source, load, parse, phase=phase, missing_ok=True, batch_bytes=1, on_event=on_event
        )
        parts = [part for share in shares for part in share.items()][self.lost :]
        order = random.Random(self.seed)
        if then is None:
            yield from self._combined(parts, combine, buckets, order)
            return
        again = [part for share in self._combined(parts, combine, buckets, order) for part in share.items()]
        yield from self._combined(again, then, then_buckets, order)

    def _combined(
        self, parts: list[tuple[int, bytes]], combine: Combine, buckets: int, order: random.Random
    ) -> Iterator[Any]:
        assert {bucket for bucket, _ in parts} <= set(range(buckets))
        for bucket in order.sample(range(buckets), buckets):
            mine = [data for at, data in parts if at == bucket]
            for run in range(2 if mine else 0):
                order.shuffle(mine)
                found = combine(bucket, mine)
                if isinstance(found, BuiltFile):
                    put_checked(self.storage, found.path, found.data)
                    found = found.result
                if run:
                    yield pickle.loads(pickle.dumps(found))
