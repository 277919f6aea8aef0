"""Which of the two a test is, recorded or live; the transcript that it has; what `--record` writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.recording.archives import ENDING, RECORDED
from tests.recording.folder_state import TableFolder
from tests.recording.transcript import NotOnRecord, Transcript

LIVE: Final = "live"
_RECORDER: Final = "recorder"
_PASSED: Final = pytest.StashKey[bool]()
_TESTS: Final = Path(__file__).resolve().parents[1]


@dataclass
class Recorder:
    """What stands between tests and an engine.

    Args:
        live: whether the engine is there.
        record: whether what is missing or differs is written.
    """

    live: bool
    record: bool = False
    transcript: Transcript | None = None
    _is_asking: bool = False

    @contextmanager
    def off(self) -> Iterator[None]:
        """The engine is asked, and nothing of it goes on record."""
        before, self._is_asking = self._is_asking, True
        try:
            yield
        finally:
            self._is_asking = before

    def answer(self, folder: TableFolder, text: str, ask: Callable[[], Any]) -> Any:
        """The engine's answer to a question of the test that runs; see `Transcript.answer`."""
        if self._is_asking or (self.live and self.transcript is None):
            return ask()
        if self.transcript is None:
            raise NotOnRecord(f"no test is running that has a record: {text}")
        with self.off():
            return self.transcript.answer(folder, text, ask)


@pytest.fixture(
    scope="session",
    params=["recorded", pytest.param(LIVE, marks=[pytest.mark.jvm, pytest.mark.deep])],
    ids=str,
)
def recorder(request: pytest.FixtureRequest) -> Recorder:
    """Between tests and Spark."""
    return Recorder(live=request.param == LIVE, record=request.config.getoption("--record"))


@pytest.fixture(autouse=True)
def transcript(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that can do without the engine has a transcript of its own."""
    if _RECORDER not in request.fixturenames or not has_record(request.node):
        yield
        return
    own: Recorder = request.getfixturevalue(_RECORDER)
    own.transcript = Transcript(path_of(request.node), live=own.live)
    yield
    finished, own.transcript = own.transcript, None
    if request.node.stash.get(_PASSED, False):
        finished.close(record=own.record)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="Write what engines say to tests/recorded where it differs."
    )


def note_outcome(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Only what a test that passed asked is worth a record."""
    if call.when == "call":
        item.stash[_PASSED] = call.excinfo is None


def chosen(items: list[pytest.Item], *, record: bool) -> list[pytest.Item]:
    """Tests that are deep themselves, or need the engine whatever is asked, are there once: live.

    Args:
        items: all tests.
        record: whether only those are wanted of which something goes on record.
    """
    if record:
        return [
            item
            for item in items
            if _RECORDER in _parameters(item) and not is_recorded(item) and has_record(item)
        ]
    return [item for item in items if not is_recorded(item) or has_record(item)]


def is_recorded(item: pytest.Item) -> bool:
    """Whether a test is answered from the record."""
    return _parameters(item).get(_RECORDER) == "recorded"


def has_record(item: pytest.Item) -> bool:
    """Whether what a test asks is on record: it bears no mark of its own that says otherwise."""
    own = 0 if is_recorded(item) else 1
    return all(len(list(item.iter_markers(name))) == own for name in ("deep", "jvm"))


def path_of(item: pytest.Item) -> Path:
    """Of the archive of a test."""
    assert isinstance(item, pytest.Function)
    parameters = [part for part in item.callspec.id.split("-") if part not in ("recorded", LIVE)]
    name = "-".join([item.originalname.removeprefix("test_")[:80], *parameters])
    return (
        RECORDED
        / item.path.relative_to(_TESTS).with_suffix("")
        / f"{re.sub(r'[^0-9A-Za-z_.-]+', '_', name)}{ENDING}"
    )


def _parameters(item: pytest.Item) -> dict[str, Any]:
    spec = getattr(item, "callspec", None)
    return spec.params if spec is not None else {}
