"""An engine that calls back while it works, so that what has to be done in time is done meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_cli.engines import Engine, Item, Loaded, OnEvent, Parsed, Scan, ShuffleStage, TaskEnd
from iceberg_cli.plan.events import Event


@dataclass(frozen=True, slots=True)
class WatchedEngine:
    """Another engine, with a call before each event of its scans.

    Args:
        engine: does the work.
        tick: is called; what it raises ends the scan.
    """

    engine: Engine
    tick: Callable[[], object]

    @property
    def name(self) -> str:
        """See `Engine`."""
        return self.engine.name

    @property
    def is_distributed(self) -> bool:
        """See `Engine`."""
        return self.engine.is_distributed

    @property
    def threads(self) -> int:
        """See `Engine`."""
        return self.engine.threads

    def scan(
        self, scan: Scan[Item, Loaded, Parsed], items: Sequence[Item], *, on_event: OnEvent
    ) -> Iterator[Parsed]:
        """See `Engine`."""
        return self.engine.scan(scan, items, on_event=self._heard(on_event))

    def shuffle(
        self,
        scan: Scan[Item, Loaded, Mapping[int, bytes]],
        stages: Sequence[ShuffleStage],
        items: Sequence[Item],
        *,
        on_event: OnEvent,
    ) -> Iterator[Any]:
        """See `Engine`."""
        return self.engine.shuffle(scan, stages, items, on_event=self._heard(on_event))

    def run(
        self,
        task: Callable[[Item], Parsed],
        items: Sequence[Item],
        *,
        may_begin: Callable[[], bool],
        processes: int,
    ) -> Generator[TaskEnd[Parsed] | None, None, None]:
        """See `Engine`, whose caller is called back there anyhow."""
        return self.engine.run(task, items, may_begin=may_begin, processes=processes)

    def _heard(self, on_event: OnEvent) -> OnEvent:
        def heard(event: Event) -> None:
            self.tick()
            on_event(event)

        return heard
