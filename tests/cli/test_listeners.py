"""Listeners that fail: the run that they listen to goes on, and its exit code is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_cli.cli.listening import listeners
from iceberg_cli.plan.events import AnyEvent, CommitEnded, FilesDeleted, PhaseBegun
from tests.cli.lakes import AS_OF, GONE, four_snapshots
from tests.cli.running import iceberg_cli


class Broken:
    """A listener that raises an error at one kind of event, or at the end."""

    def __init__(self, at: type | None) -> None:
        self.at = at

    def __call__(self, event: AnyEvent) -> None:
        if self.at is not None and isinstance(event, self.at):
            raise RuntimeError("no room in the listener")

    def warned(self, text: str) -> None:
        """Nothing."""

    def end(self, exit_code: int, error: BaseException | None) -> None:  # noqa: ARG002 - the port's signature
        if self.at is None:
            raise RuntimeError("no room in the listener")


@pytest.mark.parametrize("at", [PhaseBegun, CommitEnded, FilesDeleted, None])
def test_an_error_of_a_listener_is_one_warning_and_the_run_ends_as_without_it(
    tmp_path: Path, at: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = four_snapshots(tmp_path / "t")
    table.publish()
    begin = listeners.begin

    def begin_with_a_broken_one(words: list[str]) -> None:
        begin(words)
        listeners.add(Broken(at))

    monkeypatch.setattr(listeners, "begin", begin_with_a_broken_one)
    log = tmp_path / "log"
    with table.loses(GONE):
        ran = iceberg_cli("expire-snapshots", table.name, *AS_OF, "--yes", "--log-file", log)
    assert ran.code == 0
    assert ran.err.count("no room in the listener") == 1
    assert ran.err.startswith("warning: ")
    assert '"exit_code": 0' in log.read_text().splitlines()[-1]
