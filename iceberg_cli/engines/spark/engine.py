"""The Spark engine: splits of the items go to workers, results come back in the order of the items.

Each split runs the local engine on a worker, so both engines read and parse by the same code. Only DataFrames are used,
for a Spark Connect session has nothing else. A split is one row, its items pickled, and its results come back as one
binary value of an Arrow UDF; `mapInArrow` would do the same, but needs pandas on the driver, and pyarrow imports
pandas wherever it is installed, which costs every command half a second.

Results of a large scan are first shuffled, which leaves them on the workers' disks, and are then fetched one partition
after the other: the driver neither holds all of them nor waits while partitions are computed one by one. Small scans
come back in one job.

Functions are pickled inside the UDF, with what they close over; a large one is broadcast. Storage options, which may be
secrets, are in no SQL, configuration, description or log: see `Session.payload`.

A task that runs again, or twice side by side, puts the same bytes under the same name, and workers never delete: they
cannot know whether a commit names the file. A task of `run` creates files under names of its own each time, and those
of which the driver is told nothing go with the operation. Names of new files are in the journal, or beside it, before
they are written, so `resume` removes what workers wrote for a driver that died. Spark ends executors that lose their
driver. One that cannot notice yet, on a machine that stands still, may write a file after `resume` has removed those of
its operation: no table references it, and as the journal stays for a day, `resume` and the first run after that day
look for it again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from iceberg_cli.encoding.transport import pickled_data
from iceberg_cli.engines import (
    Event,
    Item,
    Loaded,
    OnEvent,
    Parsed,
    Scan,
    ShuffleStage,
    Source,
    TaskEnd,
)
from iceberg_cli.engines.spark.session import Session, pickled, pickled_without_storages
from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.storage import Storage

_LEAST_SPLIT_BYTES = 1 << 20
_LEAST_EXCHANGED_BYTES = (
    2 << 20
)  # of files, for a task that combines: starting one takes as long as much of the work
_SPLIT_FILES = 1_024
_TASK = "rewriting a group of files"  # in Spark's list of jobs
_SPLITS_PER_CORE = 3  # so that one that takes longer does not hold up the rest
_UNKNOWN_BYTES = 64 << 10  # of a file whose size nothing records, such as a manifest list
_GATHERED_BYTES = (
    8 << 20
)  # of files whose results come back in one job: the driver's JVM holds them several times


@dataclass(frozen=True)
class SparkEngine:
    """The engine that runs on the workers of a Spark session.

    Args:
        session: open, and its workers checked.
        storage: of the files; workers make their own like it.
        threads: that read side by side on each worker.
    """

    session: Session
    storage: Storage
    threads: int = 8
    name: str = field(default="spark", init=False)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: an engine stays on the driver; functions for workers may close over values only."""
        raise TypeError("a function that workers are to run holds the engine")

    @property
    def is_distributed(self) -> bool:
        """True: its workers are processes of a cluster."""
        return True

    def scan(
        self, scan: Scan[Item, Loaded, Parsed], items: Sequence[Item], *, on_event: OnEvent
    ) -> Iterator[Parsed]:
        """See `Engine.scan`."""
        on_event(Event(phase=scan.phase, done=0, total=len(items)))
        if not len(items):
            return
        from iceberg_cli.engines.spark.worker import scanner

        sizes = _sizes(items, scan.source)
        rows = self._rows(items, sizes, scan.batch_bytes)
        done = 0
        with (
            self.session.payload(pickle.dumps(self.storage, 5), secret=True) as storage,
            self.session.payload(pickled(scan)) as work,
            closing(
                self.session.answers(
                    rows,
                    scanner(storage, work, self.threads),
                    description=scan.phase,
                    gather=sum(sizes) <= _GATHERED_BYTES,
                )
            ) as answers,
        ):
            for answer in answers:
                batches, error = pickle.loads(answer)  # noqa: S301 - our own worker wrote it
                for files, parsed in batches:
                    yield parsed
                    done += files
                    on_event(Event(phase=scan.phase, done=done, total=len(items)))
                if error is not None:
                    raise pickle.loads(error)  # noqa: S301 - our own worker wrote it
        if done != len(items):
            raise BackendUnavailable(
                f"Cannot go on: Spark answered for {done} of {len(items)} files ({scan.phase})"
            )

    def shuffle(
        self,
        scan: Scan[Item, Loaded, Mapping[int, bytes]],
        stages: Sequence[ShuffleStage],
        items: Sequence[Item],
        *,
        on_event: OnEvent,
    ) -> Iterator[Any]:
        """See `Engine.shuffle`."""
        on_event(Event(phase=scan.phase, done=0, total=len(items)))
        if not len(items):
            return
        from iceberg_cli.engines.spark.worker import combiner, resharer, sharer

        sizes = _sizes(items, scan.source)
        rows = self._rows(items, sizes, scan.batch_bytes)
        most_tasks = max(self.session.cores * _SPLITS_PER_CORE, sum(sizes) // _LEAST_EXCHANGED_BYTES)
        with ExitStack() as stack:
            storage = stack.enter_context(self.session.payload(pickle.dumps(self.storage, 5), secret=True))
            work = stack.enter_context(self.session.payload(pickled(scan)))
            *before, last = (
                stack.enter_context(self.session.payload(pickled(stage.combine))) for stage in stages
            )
            functions = [*map(resharer, before), combiner(storage, last)]
            results = self.session.shuffled(
                rows,
                sharer(storage, work, self.threads),
                [(stage.buckets, function) for stage, function in zip(stages, functions, strict=True)],
                most_tasks=most_tasks,
                description=scan.phase,
            )
            answers = stack.enter_context(closing(results))
            for answer in answers:
                combined, error = pickle.loads(answer)  # noqa: S301 - our own worker wrote it
                if error is not None:
                    raise pickle.loads(error)  # noqa: S301 - our own worker wrote it
                yield combined
        on_event(Event(phase=scan.phase, done=len(items), total=len(items)))

    def run(
        self,
        task: Callable[[Item], Parsed],
        items: Sequence[Item],
        *,
        may_begin: Callable[[], bool],
        processes: int,  # noqa: ARG002 - of this machine
    ) -> Generator[TaskEnd[Parsed] | None, None, None]:
        """See `Engine.run`. Each task is a job, for which a thread waits here."""
        if not len(items):
            return
        from iceberg_cli.engines.spark.worker import runner
        from iceberg_cli.engines.task_pool import run_in_threads

        data, storages = pickled_without_storages(task)
        with (
            self.session.payload(pickle.dumps(storages, 5), secret=True) as sent,
            self.session.payload(data) as work,
        ):
            on_worker = runner(replace(work, storages=sent))

            def waited_for(item: Item) -> Parsed:
                answer = self.session.answer(pickled_data(item), on_worker, description=_TASK)
                result, error = pickle.loads(answer)  # noqa: S301 - our own worker wrote it
                if error is not None:
                    raise pickle.loads(error)  # noqa: S301 - our own worker wrote it
                found: Parsed = result
                return found

            workers = min(self.session.cores, len(items))
            with closing(run_in_threads(waited_for, items, may_begin=may_begin, workers=workers)) as ends:
                yield from ends

    def _rows(self, items: Sequence[Item], sizes: Sequence[int], batch_bytes: int) -> list[bytes]:
        """Items in their order, pickled in splits as even as their bytes allow, at most a batch each."""
        even = sum(sizes) // (self.session.cores * _SPLITS_PER_CORE)
        splits = _cut(sizes, min(max(even, _LEAST_SPLIT_BYTES), batch_bytes))
        return [pickled_data([items[place] for place in split]) for split in splits]


def _sizes(items: Sequence[Item], source: Callable[[Item], Source]) -> list[int]:
    return [source(item).size_bytes or _UNKNOWN_BYTES for item in items]


def _cut(sizes: Sequence[int], split_bytes: int) -> list[range]:
    """Ranges of item indices, about `split_bytes` each."""
    splits: list[range] = []
    start = size_bytes = 0
    for place, size in enumerate(sizes):
        size_bytes += size
        if size_bytes >= split_bytes or place + 1 - start >= _SPLIT_FILES or place + 1 == len(sizes):
            splits.append(range(start, place + 1))
            start, size_bytes = place + 1, 0
    return splits
