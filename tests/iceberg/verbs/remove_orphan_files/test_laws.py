"""Laws: nothing that a table reaches is taken, all that nobody names is, and whatever is added takes nothing more."""

from __future__ import annotations

import gzip
import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from iceberg_cli.errors import CorruptFile, IcebergCliError, Refused
from iceberg_cli.storage import Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.crash.world import World, crash
from iceberg_cli.testing.iceberg_files import ADDED, DELETED, EXISTING, records
from tests.budget import few_or_many
from tests.builders import DAY_MS, NOW_MS, a_statistics_file, a_tag
from tests.cli.lakes import catalog_table, four_snapshots, listing, rows
from tests.cli.running import iceberg_cli
from tests.crash.lakes import CASES, Lake
from tests.crash.scenes import Expiry, a_scene
from tests.hazard_tables import Hazard, entry, obstruct_an_upgrade
from tests.iceberg.verbs.remove_orphan_files.tables import (
    LIVE,
    OLD_MS,
    ORPHAN,
    VERB,
    DiskTable,
    LooseStorage,
    OrphanProcess,
    StoreTable,
    make_old,
    name_of,
    uuid_of,
)
from tests.paths import FIXTURES, needs_fixtures, tables_below

YOUNG = ("--older-than", "0s", "--unsafe-allow-young")
EVERYTHING = {"older_than_ms": NOW_MS, "unsafe_young": True}


# -- nothing to take -------------------------------------------------------------------------------------------------


def document_of(data: bytes) -> dict[str, Any]:
    """Of a metadata file, which may be compressed."""
    plain = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    found: dict[str, Any] = json.loads(plain)
    return found


def reached(storage: Storage, location: str) -> set[str]:
    """The names of all files that a table needs, read by fastavro; of snapshots whose lists are gone, the lists."""
    document = document_of(storage.read(location))
    found = {location} | {each["metadata-file"] for each in document.get("metadata-log", ())}
    for kind in ("statistics", "partition-statistics"):
        found |= {each["statistics-path"] for each in document.get(kind, ())}
    for snapshot in document.get("snapshots", ()):
        manifests = [*snapshot.get("manifests", ())]
        if "manifest-list" in snapshot:
            found.add(snapshot["manifest-list"])
            with suppress(FileNotFoundError):
                rows = records(storage.read(snapshot["manifest-list"]))
                manifests += [row["manifest_path"] for row in rows]
        for path in manifests:
            found.add(path)
            with suppress(FileNotFoundError):
                for each in records(storage.read(path)):
                    if each["status"] != DELETED:
                        found.add(each["data_file"]["file_path"])
    return {path.rpartition("/")[2] for path in found}


def newest_of(folder: Path) -> Path | None:
    files = [*folder.glob("metadata/*.metadata.json"), *folder.glob("metadata/*.metadata.json.gz")]
    return max(
        files,
        key=lambda path: (document_of(path.read_bytes())["last-updated-ms"], path.name),
        default=None,
    )


def fixture_tables() -> Iterator[Path]:
    for case in sorted(FIXTURES.glob("*-iceberg-*")):
        yield from (folder for folder in tables_below(case) if (folder / "metadata").is_dir())


@needs_fixtures
def test_of_tables_that_other_engines_wrote_no_reachable_file_is_taken() -> None:
    """Each is at its own location in a store, beside an orphan; those that lack files are refused."""
    planned = 0
    for folder in fixture_tables():
        newest = newest_of(folder)
        if newest is None:
            continue
        location = document_of(newest.read_bytes())["location"].rstrip("/")
        storage = LooseStorage(World())
        for path in folder.rglob("*"):
            if path.is_file():
                key = storage.canonical(f"{location}/{path.relative_to(folder)}")
                storage.world.files[key] = path.read_bytes()
        orphan = storage.canonical(f"{location}/data/{ORPHAN}")
        storage.world.files[orphan] = b"ten bytes."
        storage.world.written_ms = dict.fromkeys(storage.world.files, NOW_MS - 1)
        storage.world.pointer = f"{location}/metadata/{newest.name}"
        needed = reached(storage, storage.world.pointer)
        process = OrphanProcess(world=storage.world, store=storage, policy=EVERYTHING)
        try:
            plan = process.plan().plan
        except (CorruptFile, Refused) as error:
            print(f"{folder.relative_to(FIXTURES)}: {error.exit_code} {error.message}")
            continue
        assert plan.removals is not None
        going = plan.removals.rows["path"].to_pylist()
        print(f"{folder.relative_to(FIXTURES)}: {len(going)} of {len(storage.world.files)}")
        assert orphan in going or plan.blocked_by, folder
        assert not {path.rpartition("/")[2] for path in going} & needed, folder
        planned += 1
    assert planned >= 10, planned


def hazard_tables() -> list[Callable[[Hazard], object]]:
    """Tables as the suites of hazards build them."""

    def two_snapshots(table: Hazard) -> None:
        table.two_snapshots(expired=table.data("a", "b"), kept=table.data("c"))

    def statistics(table: Hazard) -> None:
        names = table.data("s.stats", "p.stats")
        table.snapshot(1, table.manifest("m1", entry(ADDED, *table.data("a"))))
        table.fields["statistics"] = [a_statistics_file(1, names[0])]
        table.fields["partition-statistics"] = [a_statistics_file(1, names[1])]
        table.publish(main=1)

    def upgrade(table: Hazard) -> None:
        table.format_version = 1
        obstruct_an_upgrade(table)
        table.publish(main=7, b={"snapshot-id": 6, "type": "branch"})

    def again(table: Hazard) -> None:
        [path] = table.data("f.parquet")
        table.snapshot(9, table.manifest("m9", entry(ADDED, path)))
        table.snapshot(8, table.manifest("m8", entry(DELETED, path)), parent=9)
        table.snapshot(1, table.manifest("m1", entry(EXISTING, path)), parent=8)
        table.publish(main=1)

    return [two_snapshots, statistics, upgrade, again]


@pytest.mark.parametrize("build", hazard_tables(), ids=lambda build: str(build.__name__))
def test_of_tables_of_the_hazard_suites_no_reachable_file_is_taken(
    tmp_path: Path, build: Callable[[Hazard], object]
) -> None:
    table = DiskTable(location=str(tmp_path / "t"))
    build(table)
    table.put(f"data/{ORPHAN}", age_ms=1_000)
    needed = reached(LocalStorage(), f"{table.location}/metadata/v1.metadata.json")
    before = {path.name for path in table.folder.rglob("*") if path.is_file()}
    gone = {path.rpartition("/")[2] for path in table.removed(*YOUNG)}
    assert gone == {each for each in before - needed if each.endswith((".parquet", ".avro", ".stats"))}
    assert ORPHAN in gone
    assert table.removed(*YOUNG) == set()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_of_a_table_with_four_snapshots_no_file_is_taken(tmp_path: Path, version: int) -> None:
    table = four_snapshots(tmp_path / "t", format_version=version)
    table.publish()
    with table.loses(set()):
        assert iceberg_cli(VERB, table.name, *YOUNG, "--yes").code == 0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_of_a_table_with_vectors_and_branches_no_file_is_taken(case: Any) -> None:
    lake = Lake.of(case)
    lake.world.written_ms = dict.fromkeys(lake.world.files, NOW_MS - 1)
    before = set(lake.world.files)
    assert OrphanProcess(world=lake.world, policy=EVERYTHING).run().status == "nothing_to_do"
    # That it looked is in the history.
    assert {name for name in lake.world.files if "/_iceberg_cli/history/" not in name} == {
        name for name in before if "/_iceberg_cli/history/" not in name
    }


def test_no_file_is_taken_that_pyiceberg_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = catalog_table(tmp_path, monkeypatch, appends=4)
    table.open().delete("id = 1")
    opened = table.open()
    opened.manage_snapshots().create_tag(table.snapshot_ids()[1], "eom").commit()
    opened.manage_snapshots().create_branch(table.snapshot_ids()[2], "audit").commit()
    table.open().append(rows(100), branch="audit")
    table.open().overwrite(rows(7))
    opened = table.open()
    files = opened.inspect.all_files()["file_path"].to_pylist()
    manifests = opened.inspect.all_manifests()["path"].to_pylist()
    lists = [each.manifest_list for each in opened.metadata.snapshots]
    log = [opened.metadata_location, *(each.metadata_file for each in opened.metadata.metadata_log)]
    needed = {path.removeprefix(f"file://{table.folder}/") for path in (*files, *manifests, *lists, *log)}
    (table.folder / "data" / ORPHAN).write_bytes(b"ten bytes.")
    for path in table.folder.rglob("*"):
        make_old(path)
    before = set(listing(table.folder))
    assert iceberg_cli(VERB, table.name, *YOUNG, "--yes", "--metadata-files").code == 0
    assert before - set(listing(table.folder)) == before - needed == {f"data/{ORPHAN}"}
    assert len(needed) > 20


# -- all and only ----------------------------------------------------------------------------------------------------


def test_all_planted_orphans_are_found_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog_table(tmp_path, monkeypatch, appends=3)
    folders = ["data", "data/k=1", "data/k=1/l=a b", "data/0110/1001", "metadata", "metadata/deep/er"]
    endings = [".parquet", ".orc", ".avro", ".puffin", ".stats", ".PARQUET", ".gz.parquet"]
    planted, others = set(), set()
    for number, (folder, ending) in enumerate((f, e) for f in folders for e in endings):
        planted.add(f"{folder}/{name_of(number, ending=ending)}")
        others.add(f"{folder}/{name_of(number, ending=ending)}.crc2")
        others.add(f"other/{folder}/{name_of(number, ending=ending)}")
    for name in planted | others:
        (table.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (table.folder / name).write_bytes(b"ten bytes.")
    for path in table.folder.rglob("*"):
        make_old(path)
    before = set(listing(table.folder))
    ran = iceberg_cli(VERB, table.name, "--yes")
    assert ran.code == 0, ran.err
    assert before - set(listing(table.folder)) == planted
    assert table.ids() == [0, 1, 2]


# -- monotone --------------------------------------------------------------------------------------------------------

Files = set[str]


@dataclass
class Drawn:
    """A table of a few files, some of which snapshots reach; as often as it is built it is the same.

    Args:
        seed: of what is drawn.
        reach: further files that a snapshot reaches.
        respell: what a manifest makes of a path.
        store: what the store makes of a path.
    """

    seed: int
    reach: set[str] = field(default_factory=set)
    respell: Callable[[str], str] = str
    store: Callable[[str], str] = str

    def build(self) -> StoreTable:
        draw = random.Random(self.seed)
        table = StoreTable(location="s3://b/lake/t")
        names = [f"data/k={draw.randrange(2)}/{self.name(draw, number)}" for number in range(12)]
        ages = [draw.choice([OLD_MS, OLD_MS, OLD_MS, DAY_MS]) for _ in names]
        for name, age_ms in zip(names, ages, strict=True):
            table.put(self.store(f"s3://b/lake/t/{name}"), age_ms=age_ms)
        live = {*draw.sample(names, draw.randrange(1, 6)), *self.reach}
        paths = [self.respell(f"s3://b/lake/t/{name}") for name in sorted(live)]
        half = len(paths) // 2
        table.snapshot(1, table.manifest("m1", *(entry(ADDED, path) for path in paths[:half])))
        table.snapshot(
            2, "m1", table.manifest("m2", *(entry(ADDED, path) for path in paths[half:])), parent=1
        )
        table.commit()
        return table

    @staticmethod
    def name(draw: random.Random, number: int) -> str:
        ending = draw.choice([".parquet", ".parquet", ".orc", ".avro"])
        stem = draw.choice(["part", "k\u00e9y a", "50%", "b+c"])
        return f"{stem}-{number}-{uuid_of(draw.randrange(9))}{ending}"


def candidates(table: StoreTable) -> Files:
    """The names of the files that would go; none where the plan is refused."""
    try:
        plan = table.process().plan().plan
    except IcebergCliError:
        return set()
    assert plan.removals is not None
    paths = [] if plan.blocked_by else plan.removals.rows["path"].to_pylist()
    return {path.rpartition("/")[2] for path in paths}


def add_a_snapshot(table: StoreTable, draw: random.Random) -> None:
    stored = [path for path in table.world.files if "/data/" in path]
    adds = [entry(ADDED, path) for path in draw.sample(sorted(stored), 3)]
    table.snapshot(3, "m1", table.manifest("m3", *adds), parent=2)
    table.commit()


def add_a_tag(table: StoreTable, draw: random.Random) -> None:
    table.fields["refs"] = {"main": {"snapshot-id": 2, "type": "branch"}, "t": a_tag(draw.choice([1, 2]))}
    table.commit()


def add_metadata_beside(table: StoreTable, draw: random.Random) -> None:
    pointer = table.world.pointer
    add_a_snapshot(table, draw)
    table.world.pointer = pointer


def add_a_table_of_another_uuid(table: StoreTable, _: random.Random) -> None:
    document = json.loads(table.world.files[table.world.pointer or ""]) | {"table-uuid": uuid_of("other")}
    table.put(f"metadata/{uuid_of(3)}.metadata.json", data=json.dumps(document).encode())


def add_a_nested_table(table: StoreTable, draw: random.Random) -> None:
    name = draw.choice(["metadata/v1.metadata.json", "metadata/version-hint.text", "_delta_log/0.json"])
    table.put(f"data/k={draw.randrange(2)}/{name}", data=b"{}")


def add_a_young_file(table: StoreTable, draw: random.Random) -> None:
    table.put(f"data/{name_of(draw.randrange(9))}", age_ms=1)


def add_statistics(table: StoreTable, draw: random.Random) -> None:
    stored = [path for path in table.world.files if "/data/" in path]
    table.fields["statistics"] = [a_statistics_file(2, draw.choice(sorted(stored)))]
    table.commit()


ADDITIONS = [
    add_a_snapshot, add_a_tag, add_metadata_beside, add_a_table_of_another_uuid, add_a_nested_table,
    add_a_young_file, add_statistics,
]  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("add", ADDITIONS, ids=lambda add: str(add.__name__))
@few_or_many(15, many=50)
def test_what_is_added_to_a_table_takes_no_further_file(
    add: Callable[[StoreTable, random.Random], None], budget: int
) -> None:
    fewer = total = 0
    for seed in range(budget):
        before = candidates(Drawn(seed).build())
        table = Drawn(seed).build()
        add(table, random.Random(seed))
        after = candidates(table)
        assert after <= before, seed
        fewer, total = fewer + (after < before), total + len(before)
    assert total > budget
    assert fewer or add is add_a_tag


@few_or_many(4, many=20)
def test_an_operation_that_was_stopped_takes_no_further_file(budget: int) -> None:
    """An expiry whose files wait, and one that died at any moment."""
    scene = a_scene()
    effects = scene.undisturbed()
    for number in random.Random(3).sample(range(len(effects)), budget):
        here = scene.copy()
        here.world.files[f"{here.writer.location}/data/{ORPHAN}"] = b"ten bytes."
        here.world.written_ms = dict.fromkeys(here.world.files, NOW_MS - OLD_MS)
        going = paths_of(here.world)
        assert going
        dying = Expiry(world=here.world, script=here.process(before={number: crash}).script)
        assert dying.dies(dying.run)
        here.world.written_ms = dict.fromkeys(here.world.files, NOW_MS - OLD_MS)
        assert paths_of(here.world) <= going, effects[number]


def paths_of(world: World) -> Files:
    """What would go from a simulated world's table."""
    plan = OrphanProcess(world=world).plan().plan
    assert plan.removals is not None
    return {*plan.removals.rows["path"].to_pylist()}


def below(path: str, change: Callable[[str], str]) -> str:
    """A path whose last segment is changed."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{change(name)}"


RESPELLINGS: dict[str, Callable[[str], str]] = {
    "scheme": lambda path: path.replace("s3:", "S3A:"),
    "host": lambda path: path.replace("s3://b/", "hdfs://nn:8020/"),
    "no host": lambda path: path.replace("s3://b/", "hdfs:/"),
    "another place": lambda path: path.replace("s3://b/lake/t/", "/mnt/old/"),
    "slashes": lambda path: path.replace("/data/", "//data///"),
    "dots": lambda path: path.replace("/data/", "/./data/./"),
    "folder": lambda path: path.replace("/k=", "/K%3D"),
    "percent": lambda path: below(path, lambda name: quote(name, safe="%+")) if "%" not in path else path,
    "more percent": lambda path: (
        below(path, lambda name: name.replace("-", "%2D")) if "%" not in path else path
    ),
    "upper case": lambda path: below(path, str.upper),
    "title case": lambda path: below(path, str.title),
    "NFD": lambda path: unicodedata.normalize("NFD", path),
    "dot at the end": lambda path: f"{path}.",
}


@pytest.mark.few(8)
@pytest.mark.parametrize("side", ["respell", "store"])
@pytest.mark.parametrize("how", RESPELLINGS)
@few_or_many(6, many=20)
def test_another_spelling_on_either_side_takes_no_further_file(how: str, side: str, budget: int) -> None:
    """The store has its files by such names, or manifests say so; of the store's, names alone are changed."""
    if side == "store" and how in ("scheme", "host", "no host", "another place"):
        side = "respell"  # such a file is none of the folder's
    for seed in range(budget):
        before = {plain(name) for name in candidates(Drawn(seed).build())}
        drawn = Drawn(seed)
        setattr(drawn, side, RESPELLINGS[how])
        table = drawn.build()
        after = {plain(name) for name in candidates(table)}
        assert after <= before, seed


def plain(name: str) -> str:
    """What is the same in every spelling of a name: the number and the UUID."""
    found = re.search(r"-(\d+)-([0-9a-f-]{36})", name.lower().replace("%2d", "-"))
    assert found is not None, name
    return found.group(0)


def test_a_link_takes_no_further_file(tmp_path: Path) -> None:
    """A live file by the name of a link to it, and by that of a linked folder."""
    for number, written in enumerate(["link/{1}", "data/{0}", "linked/{1}"]):
        table = DiskTable(location=str(tmp_path / str(number) / "t"))
        table.put(f"data/{name_of('target')}")
        (table.folder / "data" / name_of("link")).symlink_to(name_of("target"))
        (table.folder / "linked").symlink_to(table.folder / "data")
        (table.folder / "link").symlink_to("data")
        path = written.format(name_of("link"), name_of("target"))
        table.with_live(f"{table.location}/{path}")
        assert table.removed() == {f"data/{ORPHAN}"}
        assert {LIVE, name_of("target"), name_of("link")} == {
            each.name for each in (table.folder / "data").iterdir()
        }
