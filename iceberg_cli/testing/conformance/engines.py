"""What every engine promises, as tests: `class TestMine(EngineConformance)` with a fixture `engine`.

Workers need what this process has, pytest too: the functions that they run are this module's.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.engines import (
    TICK_S,
    BuiltFile,
    Engine,
    Event,
    FileParts,
    OnEvent,
    Parsed,
    Scan,
    ShuffleStage,
    Source,
)
from iceberg_cli.errors import BackendUnavailable, CorruptFile, InvalidMetadata, UsageError

FILE_BYTES = 600_000
FILES = 24  # together enough that processes are worth their start
SHORT_FILES = 12
_BATCH_BYTES = 2 * FILE_BYTES

Batch = Sequence[tuple[str, bytes | None]]


def make_files(folder: Path, *, count: int, size_bytes: int) -> list[str]:
    """The paths of new files, each of its own bytes: of the first all are 0, of the next all are 1."""
    paths = [folder / f"{number:02d}" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * size_bytes)
    return [str(path) for path in paths]


def child_processes() -> set[int]:
    """The ids of this process's children, running or waiting to be reaped; none where there is no /proc."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            _, parent, *_ = path.read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.add(int(path.parent.name))
    return found


@contextlib.contextmanager
def no_process_left_behind() -> Iterator[None]:
    """Nothing that was started inside is there at the end, neither running nor waiting to be reaped."""
    before = child_processes()
    yield
    assert child_processes() == before


def unseen(_: Event) -> None:
    """Progress that nobody looks at."""


def as_it_is(_: str, data: bytes) -> bytes:
    """A file that needs no preparation."""
    return data


def scan(
    engine: Engine,
    paths: Sequence[str],
    parse: Callable[[Batch], Parsed],
    *,
    missing_ok: bool = False,
    on_event: OnEvent = unseen,
    load: Callable[[str, bytes], bytes] = as_it_is,
) -> Iterator[Parsed]:
    """Scan files of `FILE_BYTES` in batches of two."""
    return engine.scan(
        Scan(
            lambda path: Source(path, FILE_BYTES),
            load,
            parse,
            phase="reading",
            missing_ok=missing_ok,
            batch_bytes=_BATCH_BYTES,
        ),
        paths,
        on_event=on_event,
    )


def gather(results: Iterable[Parsed], into: list[Parsed]) -> None:
    """Put results into a list, those too that come before an error."""
    for result in results:
        into.append(result)  # noqa: PERF402 - list.extend promises nothing about errors


def first_bytes(batch: Batch) -> list[tuple[str, int | None]]:
    """The first byte of each file, None where it is gone."""
    return [(path, None if data is None else data[0]) for path, data in batch]


class ScanConformance:
    """The sentences of `Engine.scan`. A subclass defines a fixture `engine: Engine`, which reads local files."""

    @pytest.fixture
    def paths(self, tmp_path: Path) -> list[str]:
        return make_files(tmp_path, count=FILES, size_bytes=FILE_BYTES)

    def test_results_come_in_the_order_of_the_items_each_item_once(
        self, engine: Engine, paths: list[str]
    ) -> None:
        found = [pair for batch in scan(engine, paths, first_bytes) for pair in batch]
        assert found == [(path, number) for number, path in enumerate(paths)]

    def test_a_batch_that_takes_longer_does_not_change_the_order(
        self, engine: Engine, paths: list[str]
    ) -> None:
        def slow_at_first(batch: Batch) -> str:
            time.sleep(0.3 if batch[0][0] == paths[0] else 0)
            return batch[0][0]

        assert list(scan(engine, paths, slow_at_first)) == paths[::2]

    def test_a_batch_holds_about_as_many_bytes_as_it_may(self, engine: Engine, paths: list[str]) -> None:
        assert list(scan(engine, paths, len)) == [2] * (FILES // 2)

    def test_results_larger_than_any_pipe_arrive_whole(self, engine: Engine, paths: list[str]) -> None:
        def large(batch: Batch) -> tuple[Any, Any, bytes]:
            data = b"".join(data or b"" for _, data in batch)
            assert len(data) > 1 << 20  # what a pipe holds at most
            array = np.frombuffer(data, np.uint8)
            return pa.table({"bytes": pa.array(array), "text": pa.array(["é"] * len(array))}), array, data

        for number, (rows, array, data) in enumerate(scan(engine, paths[:12], large)):
            expected = bytes([2 * number]) * FILE_BYTES + bytes([2 * number + 1]) * FILE_BYTES
            assert data == expected
            assert array.tobytes() == expected
            assert rows["bytes"].to_numpy().tobytes() == expected
            assert rows["text"].unique().to_pylist() == ["é"]

    def test_progress_names_the_phase_and_ends_with_all_files(self, engine: Engine, paths: list[str]) -> None:
        events: list[Event] = []
        list(scan(engine, paths, len, on_event=events.append))
        assert {(event.phase, event.total) for event in events} == {("reading", FILES)}
        done = [event.done for event in events]
        assert done == sorted(done)
        assert done[-1] == FILES

    def test_nothing_to_read_gives_no_result(self, engine: Engine) -> None:
        assert list(scan(engine, [], len)) == []

    def test_a_missing_file_stops_and_is_named(self, engine: Engine, paths: list[str]) -> None:
        os.remove(paths[9])
        with pytest.raises(CorruptFile) as caught:
            list(scan(engine, paths, len))
        assert caught.value.path == paths[9]

    def test_a_missing_file_is_handed_on_as_none_where_the_scan_allows_it(
        self, engine: Engine, paths: list[str]
    ) -> None:
        os.remove(paths[9])
        found = [pair for batch in scan(engine, paths, first_bytes, missing_ok=True) for pair in batch]
        assert found == [(path, None if number == 9 else number) for number, path in enumerate(paths)]

    def test_parts_of_files_are_read_where_a_scan_asks_for_these(
        self, engine: Engine, paths: list[str]
    ) -> None:
        def load(path: str, file: FileParts) -> tuple[str, int, bytes, bytes, int]:
            ends = file.read(0, 2), file.read(file.size_bytes - 1, 5)
            return path, file.size_bytes, *ends, file.bytes_read

        scan_of_parts: Scan[str, tuple[str, int, bytes, bytes, int], list[Any]] = Scan(
            Source,
            load,
            lambda batch: [each for _, each in batch],
            phase="",
            in_parts=True,
        )
        found = [each for some in engine.scan(scan_of_parts, paths, on_event=unseen) for each in some]
        assert found == [
            (path, FILE_BYTES, bytes([number]) * 2, bytes([number]), 3) for number, path in enumerate(paths)
        ]

    def test_a_missing_file_of_which_a_scan_reads_parts_stops_and_is_named(
        self, engine: Engine, paths: list[str]
    ) -> None:
        Path(paths[3]).unlink()
        scan_of_parts: Scan[str, bytes, int] = Scan(
            lambda path: Source(path, FILE_BYTES),
            lambda _, file: file.read(0, 1),
            len,
            phase="",
            in_parts=True,
        )
        with pytest.raises(CorruptFile) as caught:
            gather(engine.scan(scan_of_parts, paths, on_event=unseen), [])
        assert caught.value.path == paths[3]

    def test_a_corrupt_file_found_by_parse_keeps_its_fields_and_what_came_before(
        self, engine: Engine, paths: list[str]
    ) -> None:
        def parse(batch: Batch) -> str:
            for path, _ in batch:
                if path == paths[14]:
                    raise CorruptFile(path, 17, "no sync marker")
            return batch[0][0]

        got: list[str] = []
        results = scan(engine, paths, parse)
        with pytest.raises(CorruptFile) as caught:
            gather(results, got)
        assert got == paths[:14:2]
        error = caught.value
        assert (error.path, error.offset, error.reason, error.exit_code) == (
            paths[14],
            17,
            "no sync marker",
            15,
        )
        assert str(error) == f"Cannot read {paths[14]} at byte 17: no sync marker"

    def test_of_two_errors_the_one_of_the_earlier_batch_is_raised(
        self, engine: Engine, paths: list[str]
    ) -> None:
        def parse(batch: Batch) -> None:
            if batch[0][0] in (paths[6], paths[8]):
                time.sleep(0.3 if batch[0][0] == paths[6] else 0)
                raise CorruptFile(batch[0][0], None, "bad")

        with pytest.raises(CorruptFile) as caught:
            list(scan(engine, paths, parse))
        assert caught.value.path == paths[6]

    @pytest.mark.parametrize(
        "error",
        [
            BackendUnavailable("Cannot read x: gone", state="Half is done.", next_step="Wait."),
            InvalidMetadata("x", "field", "no number"),
            UsageError("Cannot"),
            PermissionError(13, "Permission denied", "/x"),
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
            pa.ArrowInvalid("no array"),
            KeyError("name"),
            MemoryError(),
            KeyboardInterrupt(),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_an_error_of_load_arrives_as_it_was_raised(
        self, engine: Engine, paths: list[str], error: BaseException
    ) -> None:
        def load(path: str, data: bytes) -> bytes:
            if path == paths[11]:
                raise error
            return data

        with pytest.raises(type(error)) as caught:
            list(scan(engine, paths, len, load=load))
        assert type(caught.value) is type(error)
        assert str(caught.value) == str(error)
        own = {name: value for name, value in vars(caught.value).items() if name != "__notes__"}
        assert own == {name: value for name, value in vars(error).items() if name != "__notes__"}

    def test_a_scan_that_is_closed_early_leaves_nothing_behind(
        self, engine: Engine, paths: list[str]
    ) -> None:
        with no_process_left_behind():
            results: Any = scan(engine, paths, len)
            assert next(results) == 2
            results.close()

    def test_a_consumer_that_fails_leaves_nothing_behind(self, engine: Engine, paths: list[str]) -> None:
        def divide(results: Iterator[int]) -> None:
            for count in results:
                _ = count / 0

        with no_process_left_behind(), pytest.raises(ZeroDivisionError):
            divide(scan(engine, paths, len))


def by_parity(batch: Batch) -> dict[int, bytes]:
    """Even first bytes go to bucket 0 and odd ones to bucket 3."""
    firsts = [data[0] for _, data in batch if data is not None]
    return {index: bytes(each for each in firsts if each % 2 == odd) for odd, index in ((0, 0), (1, 3))}


def digits(_: int, contents: Sequence[bytes]) -> dict[int, bytes]:
    """The numbers of a bucket to those of their last digits."""
    found = numbers_in(contents)
    return {digit: bytes(each for each in found if each % 10 == digit) for digit in {n % 10 for n in found}}


def sorted_numbers(bucket: int, contents: Sequence[bytes]) -> tuple[int, list[int]]:
    """A bucket's index and all numbers in it."""
    return bucket, numbers_in(contents)


def numbers_in(contents: Sequence[bytes]) -> list[int]:
    """The numbers of a bucket, whose contents are in no order."""
    return sorted(b"".join(map(bytes, contents)))


def shuffle(
    engine: Engine,
    paths: Sequence[str],
    parse: Callable[[Batch], Mapping[int, bytes]],
    combine: Callable[[int, Sequence[bytes]], Any],
    *then: ShuffleStage,
) -> list[Any]:
    """Shuffle what is parsed of files into 4 buckets, and what `combine` makes of these on to the next stages."""
    found = engine.shuffle(
        Scan(
            lambda path: Source(path, 1 << 20),
            as_it_is,
            parse,
            phase="shuffling",
            missing_ok=True,
        ),
        [ShuffleStage(combine, 4), *then],
        paths,
        on_event=unseen,
    )
    return list(found)


def build_files(
    engine: Engine, paths: Sequence[str], folder: Path, *, twice: bool = False
) -> list[tuple[int, int, int]]:
    """Build a file of each bucket of one shuffle, or of two.

    Returns:
        Of each file in `folder/new` the bucket's index, the size in bytes, and the process that built it.
    """
    root = str(folder)

    def file(bucket: int, contents: Sequence[bytes]) -> BuiltFile:
        data = bytes(numbers_in(contents))
        return BuiltFile(f"{root}/new/{bucket}", data, (bucket, len(data), os.getpid()))

    if twice:
        return sorted(shuffle(engine, paths, by_parity, digits, ShuffleStage(file, 10)))
    return sorted(shuffle(engine, paths, by_parity, file))


class ShuffleConformance:
    """The sentences of `Engine.shuffle`.

    A subclass defines a fixture `engine: Engine`, which reads and writes local files.
    """

    @pytest.fixture
    def short_paths(self, tmp_path: Path) -> list[str]:
        return make_files(tmp_path, count=SHORT_FILES, size_bytes=1_000)

    def test_each_bucket_is_combined_once_with_all_that_is_in_it(
        self, engine: Engine, short_paths: list[str]
    ) -> None:
        os.remove(short_paths[5])
        found = shuffle(engine, short_paths, by_parity, sorted_numbers)
        assert sorted(found) == [(0, [0, 2, 4, 6, 8, 10]), (3, [1, 3, 7, 9, 11])]

    def test_errors_of_either_side_of_a_shuffle_arrive_as_they_were_raised(
        self, engine: Engine, short_paths: list[str]
    ) -> None:
        def corrupt(batch: Batch) -> dict[int, bytes]:
            if short_paths[7] in [path for path, _ in batch]:
                raise CorruptFile(short_paths[7], 17, "no sync marker")
            return by_parity(batch)

        def broken(bucket: int, contents: Sequence[bytes]) -> int:
            return len(contents) // bucket

        with pytest.raises(CorruptFile) as caught:
            shuffle(engine, short_paths, corrupt, sorted_numbers)
        assert (caught.value.path, caught.value.offset) == (short_paths[7], 17)
        with pytest.raises(ZeroDivisionError):
            shuffle(engine, short_paths, by_parity, broken)

    def test_what_was_combined_is_shuffled_and_combined_once_more(
        self, engine: Engine, short_paths: list[str]
    ) -> None:
        found = shuffle(engine, short_paths, by_parity, digits, ShuffleStage(sorted_numbers, 10))
        assert sorted(found) == [(digit, [digit, 10 + digit][: 2 if digit < 2 else 1]) for digit in range(10)]

    def test_errors_of_every_stage_arrive_as_they_were_raised(
        self, engine: Engine, short_paths: list[str]
    ) -> None:
        def corrupt(batch: Batch) -> dict[int, bytes]:
            raise CorruptFile(batch[0][0], 17, "no sync marker")

        def broken(bucket: int, _: Sequence[bytes]) -> dict[int, bytes]:
            raise KeyError(bucket)

        last = ShuffleStage(sorted_numbers, 10)
        with pytest.raises(CorruptFile, match="no sync marker"):
            shuffle(engine, short_paths, corrupt, digits, last)
        with pytest.raises(KeyError):
            shuffle(engine, short_paths, by_parity, broken, last)
        with pytest.raises(KeyError):
            shuffle(engine, short_paths, by_parity, digits, ShuffleStage(broken, 10))

    @pytest.mark.parametrize("twice", [False, True], ids=["one round", "two rounds"])
    def test_workers_write_new_files_and_a_task_that_runs_again_finds_its_own(
        self, engine: Engine, short_paths: list[str], tmp_path: Path, *, twice: bool
    ) -> None:
        expected: Mapping[int, Sequence[int]] = (
            {digit: [n for n in range(12) if n % 10 == digit] for digit in range(10)}
            if twice
            else {0: range(0, 12, 2), 3: range(1, 12, 2)}
        )
        for _ in range(2):
            found = build_files(engine, short_paths, tmp_path, twice=twice)
            assert [each[:2] for each in found] == [
                (bucket, len(numbers)) for bucket, numbers in expected.items()
            ]
            if engine.is_distributed:
                assert os.getpid() not in {process_id for _, _, process_id in found}
            written = {int(path.name): path.read_bytes() for path in (tmp_path / "new").iterdir()}
            assert written == {bucket: bytes(numbers) for bucket, numbers in expected.items()}

    @pytest.mark.parametrize("theirs", [b"", b"theirs", bytes(range(0, 12, 2)) + b"and more"])
    def test_a_file_of_others_is_an_error_and_stays_as_it_is(
        self, engine: Engine, short_paths: list[str], tmp_path: Path, theirs: bytes
    ) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new/0").write_bytes(theirs)
        with pytest.raises(FileExistsError):
            build_files(engine, short_paths, tmp_path)
        assert (tmp_path / "new/0").read_bytes() == theirs


def tenfold(number: int) -> int:
    """The result of a short task."""
    return 10 * number


@pytest.mark.parametrize("processes", [1, 2])
class RunConformance:
    """The sentences of `Engine.run`. A subclass defines a fixture `engine: Engine`."""

    def test_the_task_of_each_item_ends_once_with_its_result(self, engine: Engine, processes: int) -> None:
        items = [*range(7)]
        ends = engine.run(tenfold, items, may_begin=lambda: True, processes=processes)
        found = sorted((end.index, end.result, end.error) for end in ends if end is not None)
        assert found == [(number, 10 * number, None) for number in items]

    def test_nothing_to_do_has_no_end(self, engine: Engine, processes: int) -> None:
        assert list(engine.run(tenfold, [], may_begin=lambda: True, processes=processes)) == []

    def test_once_no_task_may_begin_those_that_run_are_waited_for_and_the_others_left_out(
        self, engine: Engine, processes: int
    ) -> None:
        answers = iter([True, True, True])
        ends = engine.run(tenfold, [*range(9)], may_begin=lambda: next(answers, False), processes=processes)
        assert sorted(end.index for end in ends if end is not None) == [0, 1, 2]

    def test_an_error_of_this_program_is_the_end_of_its_task_and_of_no_other_one(
        self, engine: Engine, processes: int
    ) -> None:
        def task(number: int) -> int:
            if number == 2:
                raise CorruptFile("x", 17, "no sync marker")
            return number

        ends = [
            end
            for end in engine.run(task, [*range(5)], may_begin=lambda: True, processes=processes)
            if end is not None
        ]
        (error,) = (end.error for end in ends if end.error is not None)
        assert isinstance(error, CorruptFile)
        assert (error.path, error.offset, error.reason) == ("x", 17, "no sync marker")
        assert sorted((end.index, end.result) for end in ends if end.error is None) == [
            (number, number) for number in (0, 1, 3, 4)
        ]

    def test_any_other_error_of_a_task_is_raised(self, engine: Engine, processes: int) -> None:
        def task(number: int) -> int:
            return 1 // number

        with pytest.raises(ZeroDivisionError):
            list(engine.run(task, [3, 2, 1, 0], may_begin=lambda: True, processes=processes))

    def test_while_tasks_run_the_caller_is_not_kept_waiting(self, engine: Engine, processes: int) -> None:
        def task(number: int) -> int:
            time.sleep(1.5 * TICK_S)
            return number

        ends = list(engine.run(task, [*range(processes)], may_begin=lambda: True, processes=processes))
        assert ends[0] is None
        assert sorted(end.index for end in ends if end is not None) == [*range(processes)]

    def test_large_results_arrive_whole(self, engine: Engine, processes: int) -> None:
        def large(number: int) -> bytes:
            return bytes([number]) * 5_000_000

        ends = engine.run(large, [*range(4)], may_begin=lambda: True, processes=processes)
        results = {end.index: end.result for end in ends if end is not None}
        assert results == {number: large(number) for number in range(4)}

    def test_closed_before_the_end_it_begins_no_task_and_none_is_at_work(
        self, engine: Engine, processes: int, tmp_path: Path
    ) -> None:
        folder = str(tmp_path)

        def task(number: int) -> None:
            Path(folder, f"{number} begun").touch()
            time.sleep(0.05)
            Path(folder, f"{number} done").touch()

        begun: list[bool] = []

        def may_begin() -> bool:
            begun.append(True)
            return True

        ends = engine.run(task, [*range(20)], may_begin=may_begin, processes=processes)
        while next(ends) is None:
            pass
        ends.close()
        names = sorted(os.listdir(folder))
        time.sleep(0.2)
        assert sorted(os.listdir(folder)) == names
        assert len([name for name in names if "begun" in name]) <= len(begun) < 20


class EngineConformance(ScanConformance, ShuffleConformance, RunConformance):
    """The sentences of the port `Engine`.

    A subclass defines a fixture `engine: Engine`, which reads and writes local files.
    """

    def test_a_process_reads_with_at_least_one_thread(self, engine: Engine) -> None:
        assert engine.threads >= 1
