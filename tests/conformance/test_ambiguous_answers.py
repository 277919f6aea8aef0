"""Every signal that says nothing for sure, on every committer, whatever came of the commit: none is judged wrong.

`Committed` only where the commit is in the table, `Conflict` only where it is not and never will be, an error only
where nothing was sent; in any doubt `Unknown`. How many were judged how, pytest prints at its end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, get_args

import pytest

from iceberg_cli.operation.outcomes import Committed, Conflict, Outcome, Unknown
from tests.budget import FULL
from tests.conformance.troubles import (
    DeltaLogOnAzure,
    DeltaLogOnDisk,
    DeltaLogOnGcs,
    DeltaLogOnS3,
    FileNamesOnAzure,
    FileNamesOnDisk,
    FileNamesOnGcs,
    FileNamesOnS3,
    Glue,
    Hive,
    MariaDb,
    PostgreSql,
    Rest,
    Scene,
    Signal,
    Sqlite,
)
from tests.iceberg.catalogs.test_rest import lake

__all__ = ["lake"]

Truth = Literal["ours", "another's", "neither"]
"""What is the newest when we judge: our commit, one that another writer made meanwhile, or still the base."""

COMMITTERS: dict[str, type[Scene]] = {
    "REST": Rest,
    "Glue": Glue,
    "SQLite": Sqlite,
    "PostgreSQL": PostgreSql,
    "MariaDB": MariaDb,
    "Hive": Hive,
    "file names on a disk": FileNamesOnDisk,
    "file names on S3": FileNamesOnS3,
    "Delta log on a disk": DeltaLogOnDisk,
    "Delta log on S3": DeltaLogOnS3,
    "file names on GCS": FileNamesOnGcs,
    "Delta log on GCS": DeltaLogOnGcs,
    "file names on Azure": FileNamesOnAzure,
    "Delta log on Azure": DeltaLogOnAzure,
}
Cell = tuple[str, Signal, Truth]
# One of each committer but Hive's, whose server takes half a minute to start; of the signals that cost no waiting.
ALWAYS: tuple[Cell, ...] = (
    ("REST", "reset after", "another's"),
    ("Glue", "late", "another's"),
    ("SQLite", "error after", "ours"),
    ("PostgreSQL", "error after", "another's"),
    ("MariaDB", "reset before", "another's"),
    ("file names on a disk", "error after", "another's"),
    ("file names on S3", "late", "another's"),
    ("Delta log on a disk", "error after", "ours"),
    ("Delta log on S3", "late", "neither"),
    ("file names on GCS", "error after", "another's"),
    ("Delta log on GCS", "late", "another's"),
    ("file names on Azure", "late", "neither"),
    ("Delta log on Azure", "error after", "another's"),
)


def why_impossible(committer: str, signal: Signal, truth: Truth) -> str | None:
    """Why there is no such case, or None."""
    if signal.endswith("after") and truth == "neither":
        return "after its effect our commit is in the table"
    return COMMITTERS[committer].impossible.get(signal)


ALL: tuple[Cell, ...] = tuple(itertools.product(COMMITTERS, get_args(Signal), get_args(Truth)))
POSSIBLE = [cell for cell in ALL if why_impossible(*cell) is None]


# They meet the same signals in the same storage as file names do; all their cells only with FULL_SUITES=1.
ALIKE = ("Delta log on GCS", "Delta log on Azure")
CELLS = [
    pytest.param(*cell, id=", ".join(cell), marks=() if cell in ALWAYS else pytest.mark.deep)
    for cell in POSSIBLE
    if FULL or cell in ALWAYS or cell[0] not in ALIKE
]


def test_what_is_left_out_is_what_cannot_be() -> None:
    reasons = {(committer, signal): why_impossible(committer, signal, "ours") for committer, signal, _ in ALL}
    assert len(ALL) == 14 * 6 * 3
    assert len([cell for cell, reason in reasons.items() if reason is None]) == 11 * 6 + 3 * 2
    assert set(ALWAYS) <= set(POSSIBLE)


class Judgements:
    """What is concluded of one attempt, held against what others see of the table, then and at the end."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.is_refused = False

    def add(self, outcome: Outcome | None) -> str:
        """Check one; whether it is right or unknown."""
        shows = "ours" in self.scene.commits()
        match outcome:
            case Committed():
                assert shows, f"it is not in the table: {outcome}"
                assert not self.is_refused
            case Conflict():
                assert not shows, f"it is in the table: {outcome}"
                self.is_refused = True
            case None:
                assert not shows, "it is in the table, and was not sent"
            case Unknown():
                return "unknown"
        return "right"


@pytest.mark.parametrize(("committer", "signal", "truth"), CELLS)
def test_no_answer_is_judged_wrong(
    committer: str,
    signal: Signal,
    truth: Truth,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    with ExitStack() as stack:
        scene = COMMITTERS[committer](request, tmp_path, stack, signal)
        verdict = "wrong"
        try:
            verdict = judge(scene, signal, truth)
        finally:
            record_property("judged", verdict)


def judge(scene: Scene, signal: Signal, truth: Truth) -> str:
    """How the attempt is judged after a signal and once the truth is established; how, while that is still so."""
    judgements = Judgements(scene)
    judgements.add(scene.send())
    scene.end()
    others = establish(scene, signal, truth)
    assert scene.commits().count("theirs") == others
    shows = "ours" in scene.commits()
    assert shows == (truth == "ours" or signal.endswith("after"))
    verdicts = {
        judgements.add(committer.settle(scene.resumed)) for committer in (scene.troubled, scene.direct())
    }
    if signal == "late" and truth != "ours":
        scene.arrive()
        judgements.add(scene.direct().settle(scene.resumed))
        assert ("ours" in scene.commits()) == (truth == "neither")
    elif truth == "neither":
        # Sent again, it is in; and is found by whoever asks.
        judgements.add(scene.direct().commit(scene.resumed))
    judgements.add(scene.troubled.settle(scene.resumed))
    assert scene.commits().count("ours") <= 1
    assert scene.commits().count("theirs") == others
    return "unknown" if "unknown" in verdicts else "right"


def establish(scene: Scene, signal: Signal, truth: Truth) -> int:
    """Make it so; how many commits of others there are then."""
    match truth:
        case "ours" if signal == "late":
            scene.arrive()
        case "ours" if signal.endswith("before"):
            # The process that resumes the operation meanwhile sends it again.
            assert isinstance(scene.direct().commit(scene.resumed), Committed)
        case "another's":
            scene.add()
            return 1
        case _:
            pass
    return 0
