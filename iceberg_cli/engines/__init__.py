"""The engine interface: pure functions run over many files. Engines never commit and never delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")
Parsed = TypeVar("Parsed")


# Wide enough that the columnar decoder has many blocks to work on, small enough for 400 MB of memory.
BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read; `size_bytes` is 0 where nothing records it."""

    path: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The progress of a phase. `total` is None where it is not known yet."""

    phase: str
    done: int
    total: int | None


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


OnEvent = Callable[[Event], None]


class Engine(Protocol):
    """An engine, which runs pure functions over many files."""

    @property
    def name(self) -> str:
        """The engine's name, as in `--engine`."""
        ...

    def scan(
        self,
        items: Sequence[Item],
        source: Callable[[Item], Source],
        load: Callable[[Item, bytes], Loaded],
        parse: Callable[[Sequence[tuple[Item, Loaded | None]]], Parsed],
        *,
        phase: str,
        missing_ok: bool = False,
        batch_bytes: int = BATCH_BYTES,
        on_event: OnEvent,
    ) -> Iterator[Parsed]:
        """Read each file once, whole, and parse them in batches of a bounded number of bytes.

        `load` and `parse` may run in other processes, and on other machines: what they change is lost, they may close
        over values only, the items that they get are copies, and what `parse` returns must be picklable, the smaller
        the better.

        Args:
            items: one per file.
            source: the file of an item.
            load: pure; prepares one file's bytes for `parse`, for example inflates them.
            parse: pure; gets items with what `load` made of them, in the order of `items`.
            phase: name for progress.
            missing_ok: give a file that is gone to `parse` as None instead of stopping.
            batch_bytes: about so many bytes of files are parsed at once, or fewer.
            on_event: progress.

        Returns:
            What `parse` returned, batch by batch, in the order of `items`.

        Raises:
            CorruptFile: a file is gone and `missing_ok` is not set.
            BackendUnavailable: the storage did not answer, or a process that parsed was killed.
        """
        ...


@runtime_checkable
class ShuffleEngine(Engine, Protocol):
    """An engine whose workers shuffle what they read among each other, so that it need not pass through the driver."""

    def shuffle(
        self,
        items: Sequence[Item],
        source: Callable[[Item], Source],
        load: Callable[[Item, bytes], Loaded],
        parse: Callable[[Sequence[tuple[Item, Loaded | None]]], Mapping[int, bytes]],
        combine: Callable[[int, Sequence[bytes]], Any],
        *,
        then: Callable[[int, Sequence[bytes]], Any] | None = None,
        buckets: int,
        then_buckets: int = 0,
        phase: str,
        on_event: OnEvent,
    ) -> Iterator[Any]:
        """Read each file once, assign what is parsed to buckets, and combine each bucket in one task.

        `combine` and `then` run in other processes, as `load` and `parse` do. A file that the last of them gives as
        `BuiltFile` is written there. A task may run twice, side by side even.

        Args:
            items: one per file.
            source: the file of an item.
            load: see `scan`.
            parse: see `scan`; a file that is gone is None; gives what goes into some buckets.
            combine: gets a bucket's index and all its contents, in no order.
            then: combines once more: `combine` gives what goes into some buckets of a second shuffle, as `parse`
                does, and this one gets each of those.
            buckets: how many there are: their indices are below.
            then_buckets: how many the second shuffle has.
            phase: name for progress.
            on_event: progress.

        Returns:
            What the last function returned for each bucket that is not empty, in no order; of a `BuiltFile` its
            result.

        Raises:
            What the functions raise, and BackendUnavailable; whatever came before must not be used.
            FileExistsError: where a new file was to be, there is one of other bytes. CorruptFile: a new file reads
            back differently.
        """
        ...
