"""One suite for every committer: what `Committed`, `Conflict` and `Unknown` promise, and that no commit is lost."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_cli.errors import BackendUnavailable, CommitConflict, InvalidMetadata, TableNotFound
from iceberg_cli.iceberg.commit.update import AssertTableUuid
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.storage import open_storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.memory_catalog import MemoryCatalog
from tests.conformance.catalogs import Catalog, execute, make_table
from tests.conformance.faulty import Fault, FaultyCommitter, FaultyStorage, Killed
from tests.conformance.tables import CREATED_MS, an_attempt, load, properties_of, set_property

KINDS = ["filesystem", "sqlite V1", "sqlite V0", "postgresql", "memory"]
REPOSITORY = Path(__file__).resolve().parents[2]


def a_catalog(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Catalog:
    folder = f"{tmp_path}/wh/t"
    match kind.split():
        case ["filesystem"]:
            return Catalog(kind="filesystem", folder=folder)
        case ["memory"]:
            return Catalog(kind="memory", folder=folder, memory=MemoryCatalog())
        case ["postgresql"]:
            return Catalog(kind="sql", folder=folder, uri=request.getfixturevalue("postgres_database"))
        case _:
            (tmp_path / "catalog.db").touch()
            return Catalog(kind="sql", folder=folder, uri=f"sqlite:///{tmp_path}/catalog.db")


@pytest.fixture(params=KINDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    kind = request.param
    return make_table(a_catalog(kind, tmp_path, request), schema="V0" if kind.endswith("V0") else "V1")


STORAGE = open_storage()


# One writer


def test_a_commit_moves_the_table_to_the_location_that_was_prepared(catalog: Catalog) -> None:
    committer = catalog.open()
    base = committer.current()
    attempt = an_attempt(committer, STORAGE, colour="red")
    assert committer.current() == base
    with pytest.raises(FileNotFoundError):
        STORAGE.stat(attempt.target)
    assert committer.commit(attempt) == Committed(metadata_location=attempt.target)
    assert committer.current() == catalog.open().current() == attempt.target
    after = load(STORAGE, attempt.target)
    assert after.properties == {"colour": "red"}
    assert [(entry.metadata_file, entry.timestamp_ms) for entry in after.metadata_log] == [(base, CREATED_MS)]
    assert after.last_updated_ms == attempt.commit.timestamp_ms


def test_the_digest_is_the_files_and_the_bytes_do_not_depend_on_when_they_are_made(catalog: Catalog) -> None:
    committer = catalog.open()
    attempt = an_attempt(committer, STORAGE, colour="red")
    again = committer.prepare(attempt.commit, base_location=attempt.base)
    assert dataclasses.replace(again, fresh=True) == attempt
    committer.commit(attempt)
    written = Path(attempt.target).read_bytes()
    assert hashlib.sha256(written).hexdigest() == attempt.digest
    assert written == attempt.data


def test_versions_follow_each_other_in_names(catalog: Catalog) -> None:
    committer = catalog.open()
    for number in range(3):
        set_property(committer, STORAGE, f"p{number}")
    name = committer.current().rpartition("/")[2]
    assert name == "v4.metadata.json" if catalog.kind == "filesystem" else name.startswith("00003-")


def test_metadata_is_compressed_when_the_table_says_so(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for kind in ("filesystem", "sqlite V1"):
        folder = tmp_path / kind.split()[0]
        folder.mkdir()
        properties = {"write.metadata.compression-codec": "GZIP"}
        catalog = make_table(a_catalog(kind, folder, request), properties)
        committer = catalog.open()
        set_property(committer, STORAGE, "colour")
        assert committer.current().endswith(".gz.metadata.json")
        document = json.loads(gzip.decompress(Path(committer.current()).read_bytes()))
        assert document["properties"] == {**properties, "colour": "yes"}


def test_metadata_goes_where_the_table_says(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    catalog = make_table(
        a_catalog("sqlite V1", tmp_path, request), {"write.metadata.path": f"file://{tmp_path}/elsewhere/"}
    )
    committer = catalog.open()
    set_property(committer, STORAGE, "colour")
    assert committer.current().startswith(f"file://{tmp_path}/elsewhere/00001-")
    set_property(committer, STORAGE, "size")
    assert committer.current().startswith(f"file://{tmp_path}/elsewhere/00002-")


def test_an_unknown_compression_is_refused_before_anything_is_written(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = make_table(
        a_catalog("filesystem", tmp_path, request), {"write.metadata.compression-codec": "lzma"}
    )
    Path(f"{catalog.folder}/metadata/v1.gz.metadata.json").rename(
        f"{catalog.folder}/metadata/v1.metadata.json"
    )
    before = os.listdir(f"{catalog.folder}/metadata")
    with pytest.raises(InvalidMetadata, match="lzma"):
        an_attempt(catalog.open(), STORAGE, colour="red")
    assert os.listdir(f"{catalog.folder}/metadata") == before


def test_a_requirement_that_does_not_hold_is_a_conflict_before_anything_is_written(catalog: Catalog) -> None:
    committer = catalog.open()
    commit = an_attempt(committer, STORAGE, colour="red").commit
    impossible = dataclasses.replace(commit, requirements=(AssertTableUuid(uuid="another"),))
    with pytest.raises(CommitConflict):
        committer.prepare(impossible, base_location=committer.current())


def test_a_table_that_is_not_there_is_not_found(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        catalog = a_catalog(kind, folder, request)
        with pytest.raises(TableNotFound):
            catalog.open().current()
        if catalog.kind == "sql":
            make_table(catalog)
            execute(catalog.uri, "DELETE FROM iceberg_tables")
            with pytest.raises(TableNotFound):
                catalog.open().current()


# Conflicts


def test_a_commit_on_a_base_that_has_moved_is_a_conflict_and_stays_one(catalog: Catalog) -> None:
    ours, theirs = catalog.open(), catalog.open()
    attempt = an_attempt(ours, STORAGE, ours="yes")
    set_property(theirs, STORAGE, "theirs")
    for outcome in (
        ours.commit(attempt),
        ours.commit(attempt),
        ours.settle(attempt),
        catalog.open().settle(attempt),
    ):
        assert isinstance(outcome, Conflict)
    assert properties_of(STORAGE, ours) == {"theirs": "yes"}


@pytest.mark.parametrize("refusals", [1, 3])
def test_after_conflicts_a_new_attempt_on_the_new_base_succeeds(catalog: Catalog, refusals: int) -> None:
    committer = FaultyCommitter(catalog.open(), *["conflict"] * refusals)
    assert set_property(committer, STORAGE, "ours") == refusals
    assert properties_of(STORAGE, committer) == {"ours": "yes"}


@pytest.mark.parametrize("foreign", [2, 30])
def test_a_fresh_attempt_is_a_conflict_however_short_the_log_is(catalog: Catalog, foreign: int) -> None:
    ours, theirs = catalog.open(), catalog.open()
    set_property(ours, STORAGE, "write.metadata.previous-versions-max", "1")
    attempt = an_attempt(ours, STORAGE, ours="yes")
    for number in range(foreign):
        set_property(theirs, STORAGE, f"theirs{number}")
    assert isinstance(ours.commit(attempt), Conflict)


# Lost answers


def test_a_commit_whose_answer_was_lost_is_found_and_not_done_twice(catalog: Catalog) -> None:
    committer = FaultyCommitter(catalog.open(), "lost after")
    attempt = an_attempt(committer, STORAGE, ours="yes")
    assert isinstance(committer.commit(attempt), Unknown)
    found = Committed(metadata_location=attempt.target)
    resumed = dataclasses.replace(attempt, fresh=False)
    assert committer.settle(attempt) == found
    assert committer.commit(attempt) == found
    assert catalog.open().settle(resumed) == found
    assert catalog.open().commit(resumed) == found
    assert committer.current() == attempt.target


def test_a_commit_that_others_have_built_upon_is_still_ours(catalog: Catalog) -> None:
    committer = FaultyCommitter(catalog.open(), "lost after")
    attempt = an_attempt(committer, STORAGE, ours="yes")
    committer.commit(attempt)
    for number in range(3):
        set_property(catalog.open(), STORAGE, f"theirs{number}")
    found = Committed(metadata_location=attempt.target)
    resumed = dataclasses.replace(attempt, fresh=False)
    assert committer.settle(attempt) == catalog.open().settle(resumed) == found
    assert committer.commit(attempt) == catalog.open().commit(resumed) == found


def test_a_request_that_was_lost_stays_unknown_until_it_is_sent_again(catalog: Catalog) -> None:
    committer = FaultyCommitter(catalog.open(), "lost before")
    attempt = an_attempt(committer, STORAGE, ours="yes")
    assert isinstance(committer.commit(attempt), Unknown)
    assert isinstance(committer.settle(attempt), Unknown)
    assert isinstance(catalog.open().settle(attempt), Unknown)
    resumed = dataclasses.replace(attempt, fresh=False)
    assert catalog.open().commit(resumed) == Committed(metadata_location=attempt.target)
    assert properties_of(STORAGE, committer) == {"ours": "yes"}


def test_a_lost_request_is_a_conflict_once_the_base_has_moved(catalog: Catalog) -> None:
    committer = FaultyCommitter(catalog.open(), "lost before")
    attempt = an_attempt(committer, STORAGE, ours="yes")
    committer.commit(attempt)
    set_property(catalog.open(), STORAGE, "theirs")
    resumed = dataclasses.replace(attempt, fresh=False)
    assert isinstance(committer.settle(attempt), Conflict)
    assert isinstance(catalog.open().commit(resumed), Conflict)
    assert properties_of(STORAGE, committer) == {"theirs": "yes"}


@pytest.mark.parametrize("fault", ["lost before", "lost after"])
def test_an_outcome_that_history_no_longer_shows_stays_unknown(catalog: Catalog, fault: Fault) -> None:
    if catalog.kind == "filesystem":
        pytest.skip("the version's own file shows it")
    set_property(catalog.open(), STORAGE, "write.metadata.previous-versions-max", "2")
    committer = FaultyCommitter(catalog.open(), fault)
    attempt = dataclasses.replace(an_attempt(committer, STORAGE, ours="yes"), fresh=False)
    committer.commit(attempt)
    for number in range(4):
        set_property(catalog.open(), STORAGE, f"theirs{number}")
    assert isinstance(committer.settle(attempt), Unknown)
    assert isinstance(catalog.open().commit(attempt), Unknown)


@pytest.mark.parametrize("fault", ["lost before", "lost after"])
@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
def test_times_in_a_trimmed_log_say_nothing_for_clocks_may_differ(
    catalog: Catalog, fault: Fault, ahead_ms: int
) -> None:
    if catalog.kind == "filesystem":
        pytest.skip("the version's own file shows it")
    set_property(catalog.open(), STORAGE, "write.metadata.previous-versions-max", "2")
    committer = FaultyCommitter(catalog.open(), fault)
    base_ms = load(STORAGE, committer.current()).last_updated_ms
    attempt = an_attempt(committer, STORAGE, fresh=False, now_ms=base_ms + ahead_ms, ours="yes")
    committer.commit(attempt)
    for number in range(4):
        set_property(catalog.open(), STORAGE, f"theirs{number}")
    assert isinstance(committer.settle(attempt), Unknown)


def test_a_table_that_was_dropped_meanwhile_says_nothing_about_an_earlier_try(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = make_table(a_catalog("sqlite V1", tmp_path, request))
    committer = catalog.open()
    attempt = an_attempt(committer, STORAGE, ours="yes")
    execute(catalog.uri, "DELETE FROM iceberg_tables")
    assert isinstance(committer.settle(attempt), Unknown)
    assert isinstance(committer.commit(dataclasses.replace(attempt, fresh=False)), Unknown)
    with pytest.raises(TableNotFound):
        catalog.open().commit(attempt)


# Crashes and full disks


@pytest.mark.parametrize("when", ["killed before", "killed after"])
def test_a_kill_at_the_write_leaves_the_table_at_the_old_or_the_new_version(
    catalog: Catalog, when: str
) -> None:
    storage = FaultyStorage(LocalStorage(), put=when)  # type: ignore[arg-type]
    committer = catalog.open(storage)
    attempt = an_attempt(committer, STORAGE, ours="yes")
    with pytest.raises(Killed):
        committer.commit(attempt)
    resumed = dataclasses.replace(attempt, fresh=False)
    committed = when == "killed after" and catalog.kind == "filesystem"
    reopened = catalog.open()
    assert reopened.current() == (attempt.target if committed else attempt.base)
    assert isinstance(reopened.settle(resumed), Committed if committed else Unknown)
    assert reopened.commit(resumed) == Committed(metadata_location=attempt.target)
    assert properties_of(STORAGE, reopened) == {"ours": "yes"}


@pytest.mark.parametrize("when", ["failed before", "failed after"])
def test_a_write_that_fails_is_not_called_a_conflict(catalog: Catalog, when: str) -> None:
    committer = catalog.open(FaultyStorage(LocalStorage(), put=when))  # type: ignore[arg-type]
    attempt = an_attempt(committer, STORAGE, ours="yes")
    if catalog.kind == "filesystem" and when == "failed after":
        assert committer.commit(attempt) == Committed(metadata_location=attempt.target)
        return
    with pytest.raises(BackendUnavailable):
        committer.commit(attempt)
    assert catalog.open().current() == attempt.base
    assert isinstance(
        catalog.open(FaultyStorage(LocalStorage(), put="failed before")).commit(
            dataclasses.replace(attempt, fresh=False)
        ),
        Unknown,
    )


# Many writers


def race(catalog: Catalog, *, writers: int, commits: int) -> int:
    """Let processes commit; every acknowledged property must be there. Returns the conflicts they met."""
    targets = {**dataclasses.asdict(catalog), "writers": writers, "commits": commits}
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.racing", json.dumps(targets)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    expected = sorted(f"w{writer}.{number}" for writer in range(writers) for number in range(commits))
    assert result["acknowledged"] == expected
    assert sorted(properties_of(STORAGE, catalog.open())) == expected
    return int(result["conflicts"])


@pytest.mark.parametrize("kind", ["filesystem", "sqlite V1", "postgresql"])
def test_racing_writers_lose_no_commit(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    conflicts = race(make_table(a_catalog(kind, tmp_path, request)), writers=8, commits=5)
    assert conflicts > 0


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["filesystem", "sqlite V1", "postgresql"])
def test_many_racing_writers_lose_no_commit(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert race(make_table(a_catalog(kind, tmp_path, request)), writers=16, commits=40) > 0


def test_racing_threads_lose_no_commit_in_memory(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    from concurrent.futures import ThreadPoolExecutor

    catalog = make_table(a_catalog("memory", tmp_path, request))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: set_property(catalog.open(), STORAGE, f"p{n}"), range(40)))
    assert sorted(properties_of(STORAGE, catalog.open())) == sorted(f"p{n}" for n in range(40))
