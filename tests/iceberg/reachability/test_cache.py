"""What runs learn of immutable files: it changes no answer, whatever happens to it, and spares the reading."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iceberg_cli.errors import CorruptFile
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.reachability.cache_folder import cache_folder
from iceberg_cli.iceberg.reachability.cache_format import CacheEntry, decode, encode, identity
from iceberg_cli.iceberg.reachability.question import ReachQuestion, snapshot_files
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.upgrade_v3.policy import UpgradeV3
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING
from tests.budget import deep_unless
from tests.cached_tables import ROOM, Counted, a_history, opened
from tests.cli.lakes import AS_OF_MS
from tests.cli.running import iceberg_cli
from tests.hazard_tables import Hazard, entry, expire, obstruct_an_upgrade
from tests.large_tables import Size, make_table


@pytest.fixture
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands of one test keep what they learn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "iceberg-cli" / "keys"


def reach(table: IcebergTable, kept: Sequence[int]) -> ReachQuestion:
    files = {snapshot.snapshot_id: snapshot_files(snapshot) for snapshot in table.metadata.snapshots}
    return ReachQuestion(
        expired=tuple(each for number, each in files.items() if number not in kept),
        kept=tuple(files[number] for number in kept),
    )


def going(table: IcebergTable, kept: Sequence[int]) -> tuple[list[dict[str, Any]], list[str]]:
    """What goes, and the warnings."""
    found = table.reachability.answer(reach(table, kept), step="expire")
    rows, warnings = found.rows, found.warnings
    return rows.to_pylist(), warnings


def names_of(rows: list[dict[str, Any]]) -> set[str]:
    return {row["path"].rsplit("/", 1)[1] for row in rows}


def answer(table: IcebergTable, kept: Sequence[int]) -> Answer:
    """What goes, the warnings, and the keys of everything that is live."""
    rows, warnings = going(table, kept)
    live = table.reachability.everything_live(
        [snapshot_files(s) for s in table.metadata.snapshots], ["named"]
    )
    return rows, warnings, live.whole().tolist()


Answer = tuple[list[dict[str, Any]], list[str], list[int]]


def learn(location: str, cache: Path, kept: Sequence[int], *, room: int = ROOM) -> tuple[Answer, Counted]:
    """Answer with what earlier runs learnt, and keep what this one does; the answer, and what was read for it."""
    table, storage = opened(location, cache, room=room)
    found = answer(table, kept)
    assert table.save_cache() is None
    return found, storage


def answer_without(location: str, kept: Sequence[int]) -> Answer:
    """The answer of a run that has no cache."""
    return answer(opened(location, None)[0], kept)


def part_paths(cache: Path) -> list[Path]:
    return sorted(cache.glob("*")) if cache.exists() else []


def a_random_table(location: str, rng: random.Random) -> Hazard:
    """Manifests of any of some files, twice, gone or there; snapshots of any of these manifests."""
    table = Hazard(location=location)
    files = table.data(*(f"f{number}" for number in range(rng.randrange(1, 60))))
    spelled = [f"file:{path}" if rng.random() < 0.1 else path for path in files]
    names = []
    for number in range(rng.randrange(1, 12)):
        entries = [
            entry(rng.choice((ADDED, EXISTING, EXISTING, DELETED)), path)
            for path in rng.choices(spelled, k=rng.randrange(0, 20))
        ]
        names.append(table.manifest(f"m{number}", *entries))
    for number in range(1, rng.randrange(3, 10)):
        table.snapshot(number, *rng.sample(names, rng.randrange(0, len(names) + 1)))
    table.publish(main=1)
    return table


# -- the same answers ------------------------------------------------------------------------------------------


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", deep_unless(range(0, 40, 3), range(40)))
def test_answers_about_random_tables_are_the_same_with_and_without_what_was_learnt(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    table = a_random_table(str(tmp_path / "t"), rng)
    ids = [snapshot["snapshot-id"] for snapshot in table.snapshots]
    for _ in range(6):
        kept = sorted(rng.sample(ids, rng.randrange(1, len(ids) + 1)))
        found, _ = learn(table.location, tmp_path / "cache", kept)
        assert found == answer_without(table.location, kept)


def test_plans_are_the_same_to_the_byte_with_and_without_what_was_learnt(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    command = ("plan", table.location, "expire-snapshots", "--format", "json", "--as-of", AS_OF_MS)
    without = iceberg_cli(*command, "--no-cache")
    assert without.code == 0
    assert without.json["removals"]["by_kind"]["data_file"]["count"] > 0
    for _ in range(3):
        assert iceberg_cli(*command) == without


def test_plans_of_a_table_of_version_1_without_counts_are_the_same(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "t"), format_version=1)
    obstruct_an_upgrade(table)
    table.publish(main=7, b={"snapshot-id": 6, "type": "branch"})
    for _ in range(3):
        found, _ = learn(table.location, tmp_path / "cache", [6, 7])
        assert found == answer_without(table.location, [6, 7])


@pytest.mark.parametrize("keeping", [3, 40, 55])
def test_answers_about_a_table_of_thousands_of_files_are_the_same(tmp_path: Path, keeping: int) -> None:
    made = make_table(str(tmp_path / "t"), Size(60, 40, 10))
    kept = range(61 - keeping, 61)
    for _ in range(2):
        found, _ = learn(made.location, tmp_path / "cache", kept)
        assert found == answer_without(made.location, kept)


# -- the reading that is spared --------------------------------------------------------------------------------


def test_the_second_run_reads_no_list_and_no_manifest(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    expected, storage = learn(table.location, tmp_path / "cache", range(4, 10))
    assert len(storage.names("m")) == 9
    again, storage = learn(table.location, tmp_path / "cache", range(4, 10))
    assert again == expected
    assert storage.names("snap") == storage.names("m") == []


def test_a_day_later_only_what_is_new_is_read(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    table.manifest("m10", entry(ADDED, *table.data("a10")))
    table.snapshot(10, *(f"m{number}" for number in range(6, 11)), parent=9)
    location = table.publish(main=10, name="v2.metadata.json")
    for new in ((["m10.avro"], ["snap-10.avro"]), ([], [])):
        (rows, _, _), storage = learn(location, cache, range(7, 11))
        # m1 and m2 go, and only they say with which files.
        assert storage.names("m") == [*new[0], "m2.avro", "m1.avro"]
        assert storage.names("snap") == new[1]
        expired = {f"snap-{number}.avro" for number in range(1, 7)}
        assert names_of(rows) == {*expired, "m1.avro", "m2.avro", "a1", "a2", "b1", "b2"}
    assert len(part_paths(cache)) == 2


def test_without_cache_nothing_is_written_and_nothing_used(tmp_path: Path, user_cache: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    assert expire(table, "--no-cache", "--dry-run").code == 0
    assert not (tmp_path / "cache").exists()
    assert expire(table, "--dry-run").code == 0
    [part] = part_paths(user_cache)
    before = part.stat()
    assert expire(table, "--no-cache").code == 0
    assert part.stat() == before
    assert part.stat().st_mode & 0o777 == 0o600
    assert part.parent.stat().st_mode & 0o777 == 0o700


def test_a_command_keeps_what_it_learnt_whatever_its_exit_code(tmp_path: Path, user_cache: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    assert expire(table, "--dry-run", "--exit-code").code == 3
    assert len(part_paths(user_cache)) == 1


@pytest.mark.usefixtures("user_cache")
def test_a_command_that_an_error_stops_keeps_nothing(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    Path(f"{table.location}/metadata/m9.avro").write_bytes(b"no manifest")
    assert expire(table, "--dry-run").code == 15
    assert not (tmp_path / "cache").exists()


def test_parts_are_made_one_before_they_are_many_and_forget_what_the_table_forgot(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    cache = tmp_path / "cache"
    most = 0
    for kept in range(1, 10):
        learning, _ = opened(table.location, cache)
        going(learning, [kept])
        assert learning.save_cache() is None
        most = max(most, len(part_paths(cache)))
    assert most <= 8
    table.snapshots = table.snapshots[6:]
    table.publish(main=9, name="v2.metadata.json")
    table.snapshot(11, "m9", parent=9)
    location = table.publish(main=11, name="v3.metadata.json")
    for _ in range(2):
        _, storage = learn(location, cache, [7, 8, 9, 11])
    assert storage.names("m") == storage.names("snap") == []


# -- files that are not what they were -------------------------------------------------------------------------


def learnt(tmp_path: Path) -> tuple[Hazard, Path]:
    """A table and the folder with all that can be learnt of it."""
    table = a_history(str(tmp_path / "t"))
    learn(table.location, tmp_path / "cache", range(1, 10))
    return table, tmp_path / "cache"


@pytest.mark.parametrize("name", ["m7.avro", "snap-7.avro"])
def test_a_kept_list_or_manifest_that_is_gone_stops_the_run_though_it_was_learnt(
    tmp_path: Path, name: str
) -> None:
    table, cache = learnt(tmp_path)
    (Path(table.location) / "metadata" / name).unlink()
    learning, _ = opened(table.location, cache)
    with pytest.raises(CorruptFile) as caught:
        answer(learning, range(5, 10))
    assert caught.value.path.endswith(name)


def test_an_expired_list_that_is_gone_is_told_as_ever_though_it_was_learnt(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    (Path(table.location) / "metadata" / "snap-2.avro").unlink()
    plain, learning = (going(opened(table.location, folder)[0], range(7, 10)) for folder in (None, cache))
    assert learning == plain
    assert plain[1] == [f"{table.location}/metadata/snap-2.avro of an expired snapshot is gone already"]


def test_a_manifest_of_another_length_under_the_same_path_is_read_and_refused(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    path = Path(table.location) / "metadata" / "m7.avro"
    path.write_bytes(path.read_bytes() + b"\0")
    learning, _ = opened(table.location, cache)
    with pytest.raises(CorruptFile, match=r"m7\.avro at byte"):
        answer(learning, range(5, 10))


def test_a_list_of_another_length_under_the_same_path_is_read_again(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    path = Path(table.location) / "metadata" / "snap-9.avro"
    path.unlink()
    table.snapshots.pop()
    table.snapshot(9, "m9", "m1", parent=8)
    location = table.publish(main=9, name="v2.metadata.json")
    found, _ = learn(location, cache, [9])
    assert found == answer_without(location, [9])
    names = names_of(found[0])
    assert {"a1", "b1", "a9", "b9"}.isdisjoint(names)
    assert {"a2", "b8"} <= names


def a_twin(location: str, live: str) -> Hazard:
    """A table whose kept snapshot reaches the two files of `live`; but for the names all is the same to the byte."""
    table = Hazard(location=location)
    table.manifest("m1", *(entry(ADDED, path) for path in table.data(*"abcd")))
    table.manifest("m2", *(entry(EXISTING, f"{location}/data/{name}") for name in live), codec="null")
    table.snapshot(9, "m1")
    table.snapshot(1, "m2", parent=9)
    table.publish(main=1)
    return table


def test_a_manifest_patched_in_place_to_the_same_length_is_read_again_and_its_live_files_stay(
    tmp_path: Path,
) -> None:
    table = a_twin(str(tmp_path / "t"), "ab")
    learning, _ = opened(table.location, tmp_path / "cache")
    assert {"c", "d"} <= names_of(going(learning, [1])[0])
    assert learning.save_cache() is None
    path = Path(table.location) / "metadata" / "m2.avro"
    before = path.stat()
    other = a_twin(str(tmp_path / "u"), "cd")
    patch = path.read_bytes().replace(b"/data/a", b"/data/c").replace(b"/data/b", b"/data/d")
    assert patch.replace(b"/t/data", b"/u/data") == Path(f"{other.location}/metadata/m2.avro").read_bytes()
    with path.open("r+b") as file:
        file.write(patch)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))  # two writes may be within one tick
    assert (path.stat().st_ino, path.stat().st_size) == (before.st_ino, before.st_size)
    for read in (["m2.avro"], []):
        learning, storage = opened(table.location, tmp_path / "cache")
        names = names_of(going(learning, [1])[0])
        assert {"a", "b"} <= names
        assert {"c", "d"}.isdisjoint(names)
        assert [name for name in storage.names("m") if name == "m2.avro"] == read
        assert learning.save_cache() is None


def test_a_list_patched_in_place_to_the_same_length_is_read_again(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    path = Path(table.location) / "metadata" / "snap-7.avro"
    with path.open("r+b") as file:
        file.write(path.read_bytes())
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    for read in (["snap-7.avro"], []):
        learning, storage = opened(table.location, cache)
        going(learning, range(1, 10))
        assert storage.names("snap") == read
        assert learning.save_cache() is None
        assert len(part_paths(cache)) == 1


def test_of_a_twin_at_the_same_place_nothing_is_believed(tmp_path: Path) -> None:
    place, cache = tmp_path / "t", tmp_path / "cache"
    first = a_twin(str(place), "ab")
    learning, _ = opened(first.location, cache)
    going(learning, [1])
    assert learning.save_cache() is None
    length = first.rows["m2"]["manifest_length"]
    place.rename(tmp_path / "unmounted")
    twin = a_twin(str(place), "cd")
    assert twin.rows["m2"]["manifest_length"] == length
    for name in ("snap-1.avro", "snap-9.avro", "m1.avro", "m2.avro"):
        times = (tmp_path / "unmounted" / "metadata" / name).stat()
        os.utime(place / "metadata" / name, ns=(times.st_atime_ns, times.st_mtime_ns))
    learning, storage = opened(twin.location, cache)
    names = names_of(going(learning, [1])[0])
    assert {"a", "b"} <= names
    assert {"c", "d"}.isdisjoint(names)
    assert {*storage.names("snap"), *storage.names("m2")} == {"snap-1.avro", "snap-9.avro", "m2.avro"}


def test_a_table_restored_as_hard_links_is_the_table_that_was_learnt(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    shutil.copytree(table.location, tmp_path / "copy", copy_function=os.link)
    shutil.rmtree(table.location)
    shutil.copytree(tmp_path / "copy", table.location, copy_function=os.link)
    _, storage = learn(table.location, cache, range(1, 10))
    assert storage.names("snap") == storage.names("m") == []


@pytest.mark.parametrize("beginning", ["snap", "m"])
def test_a_file_whose_storage_tells_no_version_is_read_in_each_run(tmp_path: Path, beginning: str) -> None:
    table = a_history(str(tmp_path / "t"))
    for _ in range(2):
        learning, storage = opened(table.location, tmp_path / "cache")
        storage.unversioned = beginning
        answer(learning, range(1, 10))
        assert len(set(storage.names(beginning))) == 9
        assert learning.save_cache() is None


def test_a_manifest_replaced_while_it_is_read_is_read_again_in_the_next_run(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    path = Path(table.location) / "metadata" / "m9.avro"
    learning, storage = opened(table.location, tmp_path / "cache")
    storage.on_read[str(path)] = lambda: os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    answer(learning, range(1, 10))
    assert learning.save_cache() is None
    _, storage = learn(table.location, tmp_path / "cache", range(1, 10))
    assert storage.names("m") == ["m9.avro"]


@pytest.mark.parametrize("field", ["timestamp-ms", "sequence-number", "summary"])
def test_a_list_of_which_the_metadata_says_something_else_is_read_again(tmp_path: Path, field: str) -> None:
    table, cache = learnt(tmp_path)
    changed = {**table.snapshots[8]}
    changed[field] = {"operation": "append"} if field == "summary" else changed[field] + 1
    table.snapshots[8] = changed
    table.fields["last-sequence-number"] = 99
    learning, storage = opened(table.publish(main=9, name="v2.metadata.json"), cache)
    going(learning, range(1, 10))
    assert storage.names("snap") == ["snap-9.avro"]


def test_a_manifest_that_another_list_tells_otherwise_of_is_read_and_refused(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    table.rows["m9"] = {**table.rows["m9"], "added_files_count": 1, "existing_files_count": 1}
    table.snapshot(10, "m9", parent=9)
    learning, _ = opened(table.publish(main=10, name="v2.metadata.json"), cache)
    with pytest.raises(CorruptFile, match="its manifest list says"):
        answer(learning, [10])


def test_a_list_that_denies_what_another_says_of_a_manifest_is_not_kept(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    table.rows["m9"] = {**table.rows["m9"], "added_files_count": 1, "existing_files_count": 1}
    table.snapshot(10, "m9", parent=9)
    location = table.publish(main=10, name="v2.metadata.json")
    for read in ([f"snap-{number}.avro" for number in range(1, 11)], ["snap-10.avro"]):
        learning, storage = opened(location, tmp_path / "cache")
        learning.reachability.kept_manifests(reach(learning, range(1, 11)).kept, phase="reading lists")
        assert storage.names("snap") == read
        assert learning.save_cache() is None


def test_what_a_run_that_trusted_a_list_saw_is_not_kept(tmp_path: Path) -> None:
    table = Hazard(location=str(tmp_path / "t"))
    table.snapshot(9, table.manifest("m9", entry(ADDED, *table.data("a"))))
    table.snapshot(1, "m9", summary={"total-data-files": "5"}, parent=9)
    table.publish(main=1)
    assert expire(table, "--unsafe-trust-lists", "--dry-run").code == 0
    assert expire(table, "--dry-run").code == 15


def test_a_link_to_a_folder_that_was_made_since_is_looked_through(tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    table = Hazard(location=str(tmp_path / "t"), properties={"write.data.path": str(cold)})
    live, _ = table.data("live", "gone")
    table.two_snapshots(expired=[f"{cold}/live", f"{cold}/gone"], kept=[live])
    learning, _ = opened(table.location, tmp_path / "cache")
    names = [row["path"] for row in going(learning, [1])[0]]
    assert f"{cold}/live" in names
    assert learning.save_cache() is None
    (tmp_path / "t" / "data").rename(cold)
    (tmp_path / "t" / "data").symlink_to(cold)
    learning, _ = opened(table.location, tmp_path / "cache")
    names = [row["path"] for row in going(learning, [1])[0]]
    assert f"{cold}/live" not in names
    assert f"{cold}/gone" in names


def test_a_copy_of_a_table_uses_nothing_that_was_learnt_of_the_original(tmp_path: Path) -> None:
    table, _ = learnt(tmp_path)
    shutil.copytree(table.location, tmp_path / "copy")
    copy = open_table(
        str(tmp_path / "copy"), storage_options={}, cache=(tmp_path / "cache", ROOM), on_event=lambda _: None
    )
    assert copy.reachability.cache is None


# -- what was learnt, damaged ----------------------------------------------------------------------------------

TABLE = identity("9c12d441-03fe-4693-9a96-a0705ddf69c1", "/t", links=True)


def a_part() -> CacheEntry:
    """Two lists of two manifests, one of them read."""
    return CacheEntry(
        manifest_paths=["/t/m1", "/t/m2"],
        manifest_facts=np.array(
            [[100, 0, 0, 1, 1, 2, 0, 0, 20, 0], [200, 0, 0, 2, 2, 1, 1, 0, 10, 10]], np.int64
        ),
        manifest_versions=np.array([0, -77], np.int64),
        key_counts=np.array([-1, 2], np.int64),
        keys=np.array([5, 9], np.uint64),
        folders=["/t/data"],
        list_paths=["/t/s1", "/t/s2"],
        list_facts=np.arange(14).reshape(2, 7),
        list_versions=np.array([1 << 62, -5], np.int64),
        list_counts=np.array([1, 2], np.int64),
        list_rows=np.array([0, 0, 1], np.int32),
    )


def test_a_part_is_read_as_it_was_written() -> None:
    part = decode(encode(a_part(), TABLE), TABLE)
    assert part is not None
    for name, value in dataclasses.asdict(a_part()).items():
        assert list(np.ravel(getattr(part, name))) == list(np.ravel(value))


def test_a_part_with_any_bit_turned_is_no_part() -> None:
    whole = encode(a_part(), TABLE)
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            assert decode(bytes(damaged), TABLE) is None


def test_a_part_cut_short_anywhere_or_made_longer_is_no_part() -> None:
    whole = encode(a_part(), TABLE)
    assert [length for length in range(len(whole)) if decode(whole[:length], TABLE) is not None] == []
    assert decode(whole + b"\0", TABLE) is None
    assert decode(b"", TABLE) is None


def test_a_part_whose_beginning_and_end_are_of_two_writes_is_no_part() -> None:
    one = encode(a_part(), TABLE)
    other = encode(dataclasses.replace(a_part(), keys=np.array([6, 9], np.uint64)), TABLE)
    assert len(one) == len(other)
    first = next(place for place in range(40, len(one)) if one[place] != other[place])
    for place in (8, 40, first):
        torn = one[:place] + other[place:]
        assert torn in (one, other) or decode(torn, TABLE) is None
        assert decode(one[:place] + bytes(len(one) - place), TABLE) is None


def test_a_part_with_two_keys_exchanged_is_no_part() -> None:
    whole = encode(a_part(), TABLE)
    keys = np.array([5, 9], np.uint64).tobytes()
    assert whole.count(keys) == 1
    assert decode(whole.replace(keys, keys[8:] + keys[:8]), TABLE) is None


@pytest.mark.parametrize(
    "other",
    [
        identity("9c12d441-03fe-4693-9a96-a0705ddf69c2", "/t", links=True),
        identity("9c12d441-03fe-4693-9a96-a0705ddf69c1", "/t2", links=True),
        identity("9c12d441-03fe-4693-9a96-a0705ddf69c1", "/t", links=False),
        (*TABLE[:-1], TABLE[-1][::-1]),
        ("ICEKEYS0", *TABLE[1:]),
        TABLE[:-1],
    ],
    ids=["uuid", "place", "links", "hash", "version", "shorter"],
)
def test_a_part_of_another_table_or_another_program_is_no_part_of_this_one(other: tuple[str, ...]) -> None:
    assert decode(encode(a_part(), other), TABLE) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"key_counts": np.array([-1, 1], np.int64)},
        {"key_counts": np.array([2, -1, 0], np.int64)},
        {"key_counts": np.array([0, 2], np.int64)},
        {"key_counts": np.array([-1, 3], np.int64), "keys": np.array([5, 9, 11], np.uint64)},
        {"list_rows": np.array([0, 0, 2], np.int32)},
        {"list_rows": np.array([0, -1, 1], np.int32)},
        {"list_counts": np.array([1, 1], np.int64)},
        {"list_counts": np.array([4, -1], np.int64)},
        {"list_paths": ["/t/s1"]},
        {"list_versions": np.array([1], np.int64)},
        {"manifest_versions": np.array([1, 2, 3], np.int64)},
        {"manifest_paths": ["/t/m1"]},
    ],
)
def test_a_part_whose_numbers_contradict_each_other_is_no_part_though_its_digest_is_right(
    wrong: dict[str, Any],
) -> None:
    assert decode(encode(dataclasses.replace(a_part(), **wrong), TABLE), TABLE) is None


@pytest.mark.few(4)
@pytest.mark.parametrize("share", range(12))
def test_a_table_with_a_damaged_part_is_answered_as_without_it_and_learnt_anew(
    tmp_path: Path, share: int
) -> None:
    table, cache = learnt(tmp_path)
    [path] = part_paths(cache)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) * share // 12] ^= 0x10
    path.write_bytes(damaged)
    found, storage = learn(table.location, cache, range(4, 10))
    assert found == answer_without(table.location, range(4, 10))
    assert len(set(storage.names("m"))) == 9
    assert part_paths(cache) != [path]
    _, storage = learn(table.location, cache, range(4, 10))
    assert storage.names("m") == []


def test_a_part_that_others_may_write_to_or_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    [path] = part_paths(cache)

    def read_again() -> bool:
        learning, storage = opened(table.location, cache)
        answer(learning, range(4, 10))
        return bool(storage.names("m"))

    assert not read_again()
    path.chmod(0o620)
    assert read_again()
    path.chmod(0o600)
    cache.chmod(0o777)
    assert read_again()
    cache.chmod(0o700)
    assert not read_again()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert read_again()


def test_parts_that_contradict_each_other_cost_a_reading_and_change_no_answer(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    [path] = part_paths(cache)
    whole = path.read_bytes()
    names = identity(opened(table.location, None)[0].metadata.table_uuid or "", table.location, links=True)
    part = decode(whole, names)
    assert part is not None
    facts = part.manifest_facts.copy()
    facts[:, 0] += 1
    path.with_name(f"{path.stem}0{path.suffix}").write_bytes(
        encode(dataclasses.replace(part, manifest_facts=facts), names)
    )
    for each in part_paths(cache):
        each.chmod(0o600)
    found, _ = learn(table.location, cache, range(4, 10))
    assert found == answer_without(table.location, range(4, 10))


# -- room ------------------------------------------------------------------------------------------------------


def test_parts_of_all_tables_stay_within_their_room_and_the_least_lately_used_goes(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    sizes = []
    for number in range(3):
        table = a_history(str(tmp_path / f"t{number}"))
        before = set(part_paths(cache))
        learn(table.location, cache, range(1, 10), room=sizes[0] * 5 // 2 if sizes else ROOM)
        [new] = set(part_paths(cache)) - before
        os.utime(new, (number, number))
        sizes.append(new.stat().st_size)
    assert len(part_paths(cache)) == 2
    assert min(path.stat().st_mtime for path in part_paths(cache)) == 1


def test_a_part_for_which_there_is_no_room_is_not_written(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    learn(table.location, tmp_path / "cache", range(1, 10), room=100)
    assert part_paths(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    table = a_history(str(tmp_path / "t"))
    ran = expire(table)
    assert ran.code == 0
    assert "what this run learnt is not kept" in ran.err
    assert json.loads(ran.out)["status"] == "done"


def test_the_folder_is_where_the_user_keeps_such_files() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/iceberg-cli/keys")
    assert cache_folder({"XDG_CACHE_HOME": "x", "HOME": "/h"}) == Path("/h/.cache/iceberg-cli/keys")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/iceberg-cli/keys")
    assert cache_folder({}) is None


def test_a_size_that_is_none_is_refused(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    assert expire(table, "--cache-size", "much").code == 2


# -- before a commit -------------------------------------------------------------------------------------------


def upgraded(table: IcebergTable) -> None:
    plan = VERBS["upgrade-v3"].plan(table, UpgradeV3(), as_of_ms=AS_OF_MS).plan
    assert plan.due
    assert not plan.blocked_by


def test_what_was_learnt_counts_as_read_before_an_upgrade(tmp_path: Path) -> None:
    table, cache = learnt(tmp_path)
    learning, storage = opened(table.location, cache)
    upgraded(learning)
    assert not storage.names("m")
    cold, storage = opened(table.location, None)
    upgraded(cold)
    assert sorted(storage.names("m")) == [f"m{number}.avro" for number in range(1, 10)]


def test_a_manifest_of_which_rows_are_counted_wrong_is_never_kept_as_read(tmp_path: Path) -> None:
    table = a_history(str(tmp_path / "t"))
    table.rows["m9"] |= {"added_rows_count": 3}
    table.snapshot(10, "m9", parent=9)
    table.publish(main=10, name="v2.metadata.json")
    for _ in range(2):
        learning, storage = opened(table.location, tmp_path / "cache")
        going(learning, [10])
        assert "m9.avro" in storage.names("m")
        assert learning.save_cache() is None
        with pytest.raises(CorruptFile, match="it has 2 rows, and its manifest list says 3"):
            upgraded(opened(table.location, tmp_path / "cache")[0])
