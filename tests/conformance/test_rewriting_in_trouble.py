"""A rewrite of data files whose commit meets trouble on the way to the real catalog, on every committer of Iceberg.

Whatever the run made of it: once the connection is well again, what is late has come in or not, and the operation was
resumed, each row is there once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.errors import BackendUnavailable, CommitConflict, CommitStateUnknown
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.operation.outcomes import Attempt, Outcome
from iceberg_cli.storage import Storage
from iceberg_cli.testing.conformance.catalogs import CatalogUnderTest
from iceberg_cli.testing.conformance.faults import FaultyCommitter
from iceberg_cli.testing.conformance.rewriting import Rewritten
from tests.budget import FULL
from tests.conformance.test_ambiguous_answers import COMMITTERS, POSSIBLE
from tests.conformance.troubles import FileNames, Rest, Scene, Signal
from tests.iceberg.catalogs.test_rest import lake

__all__ = ["lake"]

pytestmark = pytest.mark.deep
OFTEN: tuple[Signal, ...] = ("reset after", "error after", "late")
CASES = list(
    dict.fromkeys(
        (committer, signal)
        for committer, signal, _ in POSSIBLE
        if not committer.startswith("Delta") and (FULL or signal in OFTEN)
    )
)


@dataclasses.dataclass
class OfScene(CatalogUnderTest):
    """The table of a scene, for those whose connection is well."""

    scene: Any

    @property
    def storage(self) -> Storage:
        match self.scene:
            case Rest(lake=lake):
                return lake.storage
            case FileNames(storage=storage):
                return storage
            case _:
                found: Storage = self.scene.catalog.storage
                return found

    def open(self, storage: Storage | None = None) -> Committer:  # noqa: ARG002 - the scene's own
        found: Committer = self.scene.direct()
        return found


class InTrouble(FaultyCommitter):
    """The troubled committer of a scene, for which trouble begins with its first commit."""

    def __init__(self, scene: Scene) -> None:
        committer: Any = scene.troubled
        committer.current()  # what it knows since it was opened is told once
        super().__init__(committer)
        self.scene = scene

    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        committer: Any = self.scene.direct()
        committer.prove(path, properties)

    def commit(self, attempt: Attempt) -> Outcome:
        def why_stale(written: Sequence[str]) -> str | None:
            self.scene.attempt.why_stale(written)  # where that is how a scene begins
            return attempt.why_stale(written)

        return super().commit(dataclasses.replace(attempt, why_stale=why_stale))


@pytest.mark.parametrize(("committer", "signal"), CASES)
def test_each_row_is_there_once_whatever_became_of_a_commit(
    committer: str, signal: Signal, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        scene = COMMITTERS[committer](request, tmp_path, stack, signal)
        version = 2 + len(committer) % 2
        signals: list[Signal] = getattr(scene, "signals", [])  # of Hive, where it meets whoever commits first
        held = [*signals]
        signals.clear()
        table = Rewritten.of(OfScene(scene), version)
        before = table.contents()
        opened = table.open(InTrouble(scene))
        planned = table.plan(opened)
        signals += held
        with suppress(BackendUnavailable, CommitConflict, CommitStateUnknown):
            table.apply(planned, opened)
        scene.end()
        assert table.contents() == before
        if signal == "late":
            scene.arrive()
            assert table.contents() == before
        reports = table.resume()
        assert table.contents() == before
        own = table.check()
        assert own >= 1
        assert [each.status for each in reports] in ([], ["done"])
