"""The suite of engines notices what an engine does wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.engines import Engine, ended
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CorruptFile
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.conformance.engines import (
    FILE_BYTES,
    FILES,
    SHORT_FILES,
    EngineConformance,
    ScanConformance,
    make_files,
)
from tests.shuffling import AdversarialEngine

SUITE = EngineConformance()


@dataclass(frozen=True)
class ForgetfulEngine(LocalEngine):
    """The last item is not read."""

    def scan(self, scan: Any, items: Any, *, on_event: Any) -> Iterator[Any]:
        yield from super().scan(scan, items[:-1], on_event=on_event)


@dataclass(frozen=True)
class HastyEngine(LocalEngine):
    """What comes later is answered first."""

    def scan(self, scan: Any, items: Any, *, on_event: Any) -> Iterator[Any]:
        yield from reversed([*super().scan(scan, items, on_event=on_event)])


@dataclass(frozen=True)
class CarelessEngine(LocalEngine):
    """An error of one kind is the end, and nobody hears of it."""

    hides: type[Exception] = CorruptFile

    def scan(self, scan: Any, items: Any, *, on_event: Any) -> Iterator[Any]:
        with suppress(self.hides):
            yield from super().scan(scan, items, on_event=on_event)

    def shuffle(self, scan: Any, stages: Any, items: Any, *, on_event: Any) -> Iterator[Any]:
        with suppress(self.hides):
            yield from super().shuffle(scan, stages, items, on_event=on_event)


@dataclass(frozen=True)
class DoublingEngine(LocalEngine):
    """Every batch is answered for twice."""

    def scan(self, scan: Any, items: Any, *, on_event: Any) -> Iterator[Any]:
        for parsed in super().scan(scan, items, on_event=on_event):
            yield parsed
            yield parsed


@dataclass(frozen=True)
class RunningEngine(LocalEngine):
    """Runs tasks in turn, here, and does `wrong`: what is its name."""

    wrong: str = "silent"

    def run(self, task: Any, items: Any, *, may_begin: Any, processes: int) -> Any:  # noqa: ARG002 - in turn
        for index, item in enumerate(items[:-1] if self.wrong == "forgetful" else items):
            if self.wrong != "deaf" and not may_begin():
                return
            end = ended(index, task, item)
            if self.wrong == "stopping" and end.error is not None:
                raise end.error
            yield end
            if self.wrong == "doubling":
                yield end


STORAGE = LocalStorage()
FORGETFUL, HASTY, DOUBLING = ForgetfulEngine(STORAGE), HastyEngine(STORAGE), DoublingEngine(STORAGE)
LOSING = AdversarialEngine(STORAGE, lost=1)
CARELESS, DEAF = CarelessEngine(STORAGE), CarelessEngine(STORAGE, hides=KeyError)


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (FORGETFUL, SUITE.test_results_come_in_the_order_of_the_items_each_item_once),
        (FORGETFUL, SUITE.test_progress_names_the_phase_and_ends_with_all_files),
        (FORGETFUL, SUITE.test_each_bucket_is_combined_once_with_all_that_is_in_it),
        (DOUBLING, SUITE.test_results_come_in_the_order_of_the_items_each_item_once),
        (DOUBLING, SUITE.test_each_bucket_is_combined_once_with_all_that_is_in_it),
        (HASTY, SUITE.test_results_come_in_the_order_of_the_items_each_item_once),
        (HASTY, SUITE.test_a_batch_that_takes_longer_does_not_change_the_order),
        (CARELESS, SUITE.test_a_missing_file_stops_and_is_named),
        (CARELESS, SUITE.test_a_corrupt_file_found_by_parse_keeps_its_fields_and_what_came_before),
        (CARELESS, SUITE.test_errors_of_either_side_of_a_shuffle_arrive_as_they_were_raised),
        (DEAF, SUITE.test_errors_of_every_stage_arrive_as_they_were_raised),
        (LOSING, SUITE.test_each_bucket_is_combined_once_with_all_that_is_in_it),
        (LOSING, SUITE.test_what_was_combined_is_shuffled_and_combined_once_more),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_the_suite_notices(engine: Engine, sentence: Any, tmp_path: Path) -> None:
    scans = hasattr(ScanConformance, sentence.__name__)
    count, size_bytes = (FILES, FILE_BYTES) if scans else (SHORT_FILES, 1_000)
    paths = make_files(tmp_path, count=count, size_bytes=size_bytes)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        sentence(engine, paths)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("forgetful", SUITE.test_the_task_of_each_item_ends_once_with_its_result),
        ("doubling", SUITE.test_the_task_of_each_item_ends_once_with_its_result),
        ("deaf", SUITE.test_once_no_task_may_begin_those_that_run_are_waited_for_and_the_others_left_out),
        ("stopping", SUITE.test_an_error_of_this_program_is_the_end_of_its_task_and_of_no_other_one),
        ("silent", SUITE.test_while_tasks_run_the_caller_is_not_kept_waiting),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_suite_notices_what_is_wrong_with_tasks(wrong: str, sentence: Any) -> None:
    with pytest.raises((AssertionError, CorruptFile)):
        sentence(RunningEngine(STORAGE, wrong=wrong), 1)
