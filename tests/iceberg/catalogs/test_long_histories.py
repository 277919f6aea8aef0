"""A commit whose outcome is looked up after so many others that no log names it any more."""

from __future__ import annotations

import pytest

from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.iceberg.verbs.rewrite_manifests.policy import RewriteManifests
from iceberg_cli.testing.crash.process import Process
from iceberg_cli.testing.crash.world import crash
from tests.builders import NOW_MS
from tests.crash.lakes import Case, Lake, fragmented

REWRITE = Case("rewrite-manifests", RewriteManifests(target_size=600_000).to_json(), fragmented)


@pytest.fixture(scope="module")
def lake() -> Lake:
    return Lake.of(REWRITE)


def a_hundred_commits_later(lake: Lake) -> None:
    """The metadata log has its 100 entries of `write.metadata.previous-versions-max`, all of them foreign."""
    for _ in range(101):
        lake.engine.change({"metadata-log": lake.engine.document["metadata-log"][-99:]})


def by_a_clock_that_is_a_quarter_of_an_hour_behind(lake: Lake) -> None:
    """What other writers commit from now on is older than our commit, and younger than its base."""
    behind_ms = NOW_MS - 900_000
    assert lake.engine.document["last-updated-ms"] > behind_ms
    lake.engine.change({"last-updated-ms": behind_ms})


def our_snapshot_expires(lake: Lake) -> None:
    """Another writer appends, and then expires what stands before."""
    lake.engine.append("later")
    lake.note_rows()
    document = lake.engine.document
    heads = {ref["snapshot-id"] for ref in document["refs"].values()}
    snapshots = [each for each in document["snapshots"] if each["snapshot-id"] in heads]
    lake.engine.change({"snapshots": snapshots, "snapshot-log": []})


def dies_after_its_swap(lake: Lake) -> str:
    """The metadata file that the table is at."""
    here = lake.copy()
    trial = here.process()
    trial.run()
    (swap,) = [number for number, effect in enumerate(trial.effects) if effect.startswith("swap ")]
    process = lake.process(after={swap: crash})
    assert process.dies(process.run)
    assert lake.world.pointer is not None
    return lake.world.pointer


@pytest.mark.parametrize("base", ["kept", "deleted"])
def test_metadata_of_a_commit_that_the_log_forgot_stays_however_often_it_is_resumed(
    lake: Lake, base: str
) -> None:
    here = lake.copy()
    before = here.engine.current
    ours = dies_after_its_swap(here)
    our_snapshot_expires(here)
    a_hundred_commits_later(here)
    if base == "deleted":  # write.metadata.delete-after-commit.enabled
        del here.world.files[before]
    trial = here.copy().process()
    trial.resume()
    for number, _ in enumerate(trial.effects):
        again = here.copy()
        first: Process = again.process(before={number: crash})
        assert first.dies(first.resume)
        again.process().resume()
        again.check()
        assert ours in again.world.files
        assert again.process().table.workspace.open_operations() == []


@pytest.mark.parametrize("expires", [False, True])
def test_what_a_commit_that_the_log_forgot_added_stays_whatever_other_clocks_say(
    lake: Lake, *, expires: bool
) -> None:
    here = lake.copy()
    dies_after_its_swap(here)
    ours = set(here.world.files) - set(lake.world.files)
    if expires:
        our_snapshot_expires(here)
    by_a_clock_that_is_a_quarter_of_an_hour_behind(here)
    a_hundred_commits_later(here)
    here.process().resume()
    here.check()
    assert {path for path in ours if "/_iceberg_cli/" not in path} <= set(here.world.files)


def test_files_of_a_commit_that_was_refused_go(lake: Lake) -> None:
    here = lake.copy()
    process = here.process(swaps=["lost"])
    with pytest.raises(CommitStateUnknown):
        process.run()
    (ours,) = [effect.removeprefix("swap ") for effect in process.effects if effect.startswith("swap ")]
    here.engine.append("later")
    here.note_rows()
    here.process().resume()
    assert ours not in here.world.files
    here.finish()
