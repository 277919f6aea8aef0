"""Clocks that are wrong: ours, the storage's, another writer's. The program runs with a clock that is shifted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.cli.render.plan import option_text
from iceberg_cli.iceberg.verbs.expire_snapshots.retention import MAX_LONG
from iceberg_cli.plan.text import age, iso, old
from iceberg_cli.storage.s3.objects import S3Storage
from iceberg_cli.testing.delta_writer import a_commit, a_metadata, a_protocol, a_remove, an_add
from tests.builders import DAY_MS, NOW_MS
from tests.cli.lakes import AS_OF_MS, FolderTable, four_snapshots, listing_of_table
from tests.cli.running import iceberg_cli, process
from tests.delta_opened import a_log
from tests.paths import ROOT, besides_history
from tests.servers import S3Server

YEARS_MS = 10 * 365 * DAY_MS + 60_000
SHIFT = """
import os, time
real = time.time_ns
time.time_ns = lambda: real() + int(os.environ["CLOCK_AHEAD_MS"]) * 1_000_000
"""


@dataclass(frozen=True)
class Shifted:
    """The program on a machine whose clock is wrong; what it writes gets the storage's own time."""

    folder: Path
    ahead_ms: int

    def run(self, *arguments: object) -> tuple[int, dict[str, Any]]:
        """Exit code and document of one command line."""
        path = os.pathsep.join([str(self.folder), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "CLOCK_AHEAD_MS": str(self.ahead_ms)}
        ran = process(*arguments, "--format", "json", env=environment)
        return ran.code, ran.json


@pytest.fixture
def ahead(tmp_path: Path) -> Shifted:
    """Ten years ahead."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SHIFT)
    return Shifted(folder, YEARS_MS)


def check_refused(ran: tuple[int, dict[str, Any]]) -> None:
    code, document = ran
    assert (code, document["error"], document["state"]) == (11, "Refused", "Nothing was changed.")
    assert "this machine's clock shows 203" in document["message"]
    assert "Ours is 10 y ahead" in document["message"]
    assert "Set the clock, or name the time" in document["next"]


def test_our_clock_ten_years_ahead_expires_nothing(tmp_path: Path, ahead: Shifted) -> None:
    table = four_snapshots(tmp_path / "t")
    name, before = table.publish(), listing_of_table(tmp_path / "t")
    check_refused(ahead.run("expire-snapshots", name, "--older-than", "7d", "--yes"))
    assert listing_of_table(tmp_path / "t") == before
    assert iceberg_cli("resume", name, "--list").out == "No open operation.\n"
    # What no age decides goes on, and so does a time that somebody names.
    assert ahead.run("rewrite-manifests", name, "--yes")[0] == 0
    assert ahead.run("expire-snapshots", name, "--as-of", AS_OF_MS, "--yes")[1]["status"] == "done"


def test_a_clock_less_than_a_day_ahead_is_none_of_our_business(tmp_path: Path, ahead: Shifted) -> None:
    name = four_snapshots(tmp_path / "t").publish()
    near = Shifted(ahead.folder, DAY_MS - 60_000)
    assert near.run("expire-snapshots", name, "--older-than", "7d", "--yes")[1]["status"] == "done"


def test_our_clock_ahead_of_s3_expires_nothing(versitygw: S3Server, ahead: Shifted) -> None:
    storage, location = S3Storage(versitygw.options), f"s3://{versitygw.bucket}/clocks/t"
    actions = ([a_protocol(), a_metadata(), an_add(path="a"), an_add(path="b")], [a_remove(path="b")])
    for version, commit in enumerate(actions):
        storage.put_if_absent(f"{location}/_delta_log/{version:020}.json", a_commit(*commit))
    for name in "ab":
        storage.put_if_absent(f"{location}/{name}", b"1234")
    before = besides_history(storage.paths(location))
    options = [word for pair in versitygw.options.items() for word in ("--storage-option", "=".join(pair))]
    options.append("--unsafe-conditional-writes")
    check_refused(ahead.run("expire-snapshots", location, "--yes", *options))
    assert besides_history(storage.paths(location)) == before


def a_delta_table(folder: Path, *, removed_ms: int) -> str:
    a_log(
        folder,
        [an_add(path="a.parquet"), an_add(path="b.parquet")],
        [a_remove(path="b.parquet", deletionTimestamp=removed_ms)],
        age_ms=NOW_MS - AS_OF_MS,
    )
    for name in ("a", "b"):
        (folder / f"{name}.parquet").write_bytes(b"1234")
    return str(folder)


@pytest.mark.parametrize("verb", ["expire-snapshots", "rewrite-manifests"])
def test_our_clock_ahead_forgets_no_tombstone_of_a_delta_table(
    tmp_path: Path, ahead: Shifted, verb: str
) -> None:
    name = a_delta_table(tmp_path / "t", removed_ms=AS_OF_MS)
    before = listing_of_table(tmp_path / "t")
    check_refused(ahead.run(verb, name, "--yes"))
    assert listing_of_table(tmp_path / "t") == before


def test_a_grace_is_not_over_because_our_clock_says_so(tmp_path: Path, ahead: Shifted) -> None:
    table = four_snapshots(tmp_path / "t")
    name = table.publish()
    arguments = ("expire-snapshots", name, "--as-of", AS_OF_MS, "--grace", "7d", "--yes")
    assert Shifted(ahead.folder, 0).run(*arguments)[1]["status"] == "waiting"
    files = set(listing_of_table(tmp_path / "t"))
    code, document = ahead.run("resume", name)
    assert code == 11
    assert "Ours is 10 y ahead" in " ".join(document["reports"][0]["notes"])
    assert set(listing_of_table(tmp_path / "t")) == files
    assert iceberg_cli("resume", name, "--format", "json").json["reports"][0]["status"] == "waiting"


def test_a_plan_of_a_machine_whose_clock_was_ahead_is_not_carried_out(tmp_path: Path, ahead: Shifted) -> None:
    name, file = four_snapshots(tmp_path / "t").publish(), tmp_path / "plan.json"
    assert ahead.run("plan", name, "expire-snapshots", "--output", file)[0] == 0
    ran = iceberg_cli("apply", file, "--yes")
    assert ran.code == 11
    assert "it counts ages from 203" in ran.err


# -- others' clocks ------------------------------------------------------------------------------------------------


def test_a_snapshot_dated_ahead_is_a_warning_with_both_times(tmp_path: Path) -> None:
    table = FolderTable(folder=tmp_path / "t")
    table.commit(1, age_ms=9 * DAY_MS, add=["a"])
    table.commit(2, age_ms=-3 * DAY_MS, add=["b"])
    table.commit(3, age_ms=-2 * DAY_MS, add=["c"])
    ran = iceberg_cli(
        "expire-snapshots", table.publish(), "--as-of", AS_OF_MS, "--dry-run", "--retain-last", "2"
    )
    assert f"snapshot 2 and 1 more is dated {iso(AS_OF_MS + 3 * DAY_MS)}" in ran.out
    assert f"ages are counted from {iso(AS_OF_MS)}" in ran.out
    assert "-3 d" not in ran.out
    assert "-2 d" not in ran.out


@pytest.mark.parametrize("verb", ["expire-snapshots", "rewrite-manifests"])
def test_a_tombstone_dated_ahead_is_a_warning_with_both_times(tmp_path: Path, verb: str) -> None:
    name = a_delta_table(tmp_path / "t", removed_ms=AS_OF_MS + 5 * DAY_MS)
    ran = iceberg_cli(verb, name, "--as-of", AS_OF_MS, "--dry-run", "--format", "json")
    (warning,) = ran.json["warnings"]
    assert warning.startswith(
        f"1 tombstone is dated {iso(AS_OF_MS + 5 * DAY_MS)}, and ages are counted from {iso(AS_OF_MS)}"
    )


def test_ages_have_no_sign_and_what_has_no_bound_is_for_ever() -> None:
    assert old(3 * DAY_MS) == "3 d old"
    assert old(-3 * DAY_MS) == "dated 3 d ahead"
    assert age(-1) == "1 ms"
    assert age(MAX_LONG) == "for ever"
    assert option_text("max_ref_age_ms", MAX_LONG) == "for ever"


def test_the_default_of_the_age_of_refs_is_for_ever(tmp_path: Path) -> None:
    name = four_snapshots(tmp_path / "t").publish()
    out = iceberg_cli("expire-snapshots", name, "--as-of", AS_OF_MS, "--dry-run", "--verbose").out
    assert "max-ref-age for ever" in out
    assert "292471208" not in out
