"""The engine interface: pure functions run over many files. Engines never commit and never delete."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.plan.events import Event as Event
from iceberg_cli.plan.events import OnProgress

OnEvent = OnProgress

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")
Parsed = TypeVar("Parsed")
Element = TypeVar("Element")


# Wide enough that the columnar decoder has many blocks to work on, small enough for 400 MB of memory.
BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read, or None where the item has all that `load` needs.

    `load` gets no bytes for None and for an empty path. `size_bytes` is 0 where nothing records it.
    """

    path: str | None
    size_bytes: int = 0


@dataclass(slots=True)
class FileParts:
    """A file of which parts are read.

    Args:
        path: of the file.
        size_bytes: of the file.
        read_span: reads `(offset, length)` of it, shorter only at its end.
        bytes_read: so far.
    """

    path: str
    size_bytes: int
    read_span: Callable[[int, int], bytes]
    bytes_read: int = 0

    def read(self, offset: int, length: int) -> bytes:
        """A part of the file, shorter only at its end.

        Raises:
            FileNotFoundError: it is gone. BackendUnavailable.
        """
        data = self.read_span(offset, length)
        self.bytes_read += len(data)
        return data


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """A new file that a task built.

    Args:
        path: unique; it is created there once, and read back.
        data: its bytes, which stay where they were made; equal runs of a task make equal bytes.
        result: returned to the caller once the file is written; picklable, the smaller the better.
    """

    path: str
    data: bytes
    result: Any


@dataclass(frozen=True, slots=True)
class Scan(Generic[Item, Loaded, Parsed]):
    """How files are read and parsed: pure functions, which may run in other processes and on other machines.

    What they change is lost, they may close over values only, the items that they get are copies, and what `parse`
    returns must be picklable, the smaller the better.

    Args:
        source: the file of an item.
        load: prepares one file's bytes for `parse`, for example inflates them; with `in_parts` it gets a `FileParts`
            in their place.
        parse: gets items with what `load` made of them, in the order of the items.
        phase: name for progress.
        missing_ok: give a file that is gone to `parse` as None instead of stopping.
        batch_bytes: about so many bytes of files are parsed at once, or fewer.
        in_parts: do not read files whole, but what `load` reads of them; nothing for an empty path.
    """

    source: Callable[[Item], Source]
    load: Callable[[Item, Any], Loaded]
    parse: Callable[[Sequence[tuple[Item, Loaded | None]]], Parsed]
    _: KW_ONLY
    phase: str
    missing_ok: bool = False
    batch_bytes: int = BATCH_BYTES
    in_parts: bool = False


def chained(some: Sequence[tuple[Any, Sequence[Element] | None]]) -> list[Element]:
    """What `load` made of the items of a batch, one after the other; see `parse` of `Scan`."""
    return [each for _, found in some for each in found or ()]


@dataclass(frozen=True, slots=True)
class ShuffleStage:
    """What is done with the buckets of one shuffle.

    Args:
        combine: pure, as the functions of a scan are; gets a bucket's index and all its contents, in no order. Of the
            last stage it returns the bucket's result, or a `BuiltFile`, which is written where it was made; of any
            other the contents of some buckets of the next stage.
        buckets: how many there are: their indices are below.
    """

    combine: Callable[[int, Sequence[bytes]], Any]
    buckets: int


TICK_S: Final = 1.0
"""How long `Engine.run` may be silent while tasks run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd(Generic[Parsed]):
    """The end of one task.

    Args:
        index: of its item.
        result: what it returned; None where it failed.
        error: why it failed.
    """

    index: int
    result: Parsed | None = None
    error: IcebergCliError | None = None


def ended(index: int, task: Callable[[Item], Parsed], item: Item) -> TaskEnd[Parsed]:
    """Run one task here."""
    try:
        return TaskEnd(index=index, result=task(item))
    except IcebergCliError as error:
        return TaskEnd(index=index, error=error)


class Engine(Protocol):
    """An engine, which runs pure functions over many files.

    Every sentence below is a test of `iceberg_cli.testing.conformance.engines`.
    """

    @property
    def name(self) -> str:
        """The engine's name, as in `--engine`."""
        ...

    @property
    def is_distributed(self) -> bool:
        """Whether its workers are on other machines, so that what they make had better not pass through this one."""
        ...

    @property
    def threads(self) -> int:
        """How many threads of a process read files side by side; at least 1."""
        ...

    def scan(
        self, scan: Scan[Item, Loaded, Parsed], items: Sequence[Item], *, on_event: OnEvent
    ) -> Iterator[Parsed]:
        """Read each file once, whole unless its parts are asked for, and parse them in batches of bounded size.

        Args:
            scan: how.
            items: one per file.
            on_event: progress.

        Returns:
            What `parse` returned, batch by batch, in the order of `items`.

        Raises:
            CorruptFile: a file is gone and `missing_ok` is not set.
            BackendUnavailable: the storage did not answer, or a process that parsed was killed.
        """
        ...

    def shuffle(
        self,
        scan: Scan[Item, Loaded, Mapping[int, bytes]],
        stages: Sequence[ShuffleStage],
        items: Sequence[Item],
        *,
        on_event: OnEvent,
    ) -> Iterator[Any]:
        """Read each file once, assign what is parsed to buckets, and combine each bucket in one task, stage by stage.

        A task may run twice, side by side even.

        Args:
            scan: how files are read; `parse` gives the contents of some buckets of the first stage.
            stages: at least one.
            items: one per file.
            on_event: progress.

        Returns:
            What the last stage gives for each bucket that is not empty, in no order; of a `BuiltFile` its result.

        Raises:
            What the functions raise, and BackendUnavailable; whatever came before must not be used.
            FileExistsError: where a new file was to be, there is one of other bytes. CorruptFile: a new file reads
            back differently.
        """
        ...

    def run(
        self,
        task: Callable[[Item], Parsed],
        items: Sequence[Item],
        *,
        may_begin: Callable[[], bool],
        processes: int,
    ) -> Generator[TaskEnd[Parsed] | None, None, None]:
        """Run a task for each item: it reads and creates files under names of its own, and does nothing else.

        A task may run twice, side by side even; it may close over values only, and what it returns must be picklable,
        the smaller the better.

        Args:
            task: what is done with an item.
            items: of the tasks.
            may_begin: whether another task may begin; asked before each. Once it is not so, those that run are waited
                for, and the others are left out.
            processes: at most so many run side by side on this machine; on others as many as an engine has there.

        Returns:
            The ends of tasks as they come, in any order; and None each `TICK_S` seconds without one, so that the caller
            does what is to be done in time. An error of this program is the end of its task alone; what else a task
            raises is raised. Closed before the end, it ends all tasks, or waits for those that it cannot end.

        Raises:
            What a task raises that is no `IcebergCliError`. A worker that was killed is an end: BackendUnavailable.
        """
        ...
