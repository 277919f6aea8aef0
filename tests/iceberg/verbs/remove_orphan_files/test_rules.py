"""The rules that keep files, held against what they say, word by word, over drawn folders; and bad input."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

from iceberg_cli.encoding.string_hash import among, hash_column
from iceberg_cli.errors import UsageError
from iceberg_cli.iceberg.verbs.remove_orphan_files import rules
from iceberg_cli.iceberg.verbs.remove_orphan_files.policy import RemoveOrphanFiles
from iceberg_cli.iceberg.verbs.remove_orphan_files.rules import OrphanSearch, Reached
from iceberg_cli.plan.listed_files import STORED_FILES
from tests.budget import few_or_many
from tests.builders import DAY_MS, HOUR_MS, NOW_MS
from tests.cli.running import iceberg_cli
from tests.iceberg.verbs.remove_orphan_files.tables import (
    LIVE,
    ORPHAN,
    SUBJECT,
    VERB,
    DiskTable,
    name_of,
    uuid_of,
)

# -- the rules, read literally ---------------------------------------------------------------------------------------

ENDINGS = (".parquet", ".orc", ".avro", ".puffin", ".stats")
HEX = "[0-9a-f]"
UUIDS = re.compile(rf"(?={HEX}{{8}}-?{HEX}{{4}}-?{HEX}{{4}}-?{HEX}{{4}}-?{HEX}{{12}})")
QUERIES = re.compile(r"(?=(\d{8}_\d{6}_\d{5}_[0-9a-z]{5}))", re.ASCII)


def folded(path: str) -> str:
    """The last segment of a path, percent-decoded once, in form NFC and lower case, without dots at its end."""
    name = unicodedata.normalize("NFC", unquote(path.rpartition("/")[2]))
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in name).rstrip(".")


def writers_in(name: str) -> set[str]:
    """Every UUID and query id that begins anywhere in a name."""
    found = set()
    for match in UUIDS.finditer(name):
        text = name[match.start() :]
        found.add(re.sub("-", "", text)[:32])
    return found | {match.group(1) for match in QUERIES.finditer(name)}


class File(NamedTuple):
    """A listed file."""

    path: str
    modified_ms: int


class State(NamedTuple):
    """What a search knows: folders, hidden partition columns, live paths, marks, links, old metadata files."""

    folders: tuple[str, ...]
    shown: tuple[str, ...]
    live: tuple[str, ...]
    marks: tuple[str, ...]
    waiting: tuple[str, ...]
    links: tuple[str, ...]
    superseded: tuple[str, ...]
    metadata_files: bool
    cut_ms: int


def is_hidden(path: str, state: State) -> bool:
    """Whether a segment below the folder begins with a dot or an underscore, unless it is of a partition."""
    below = next((path[len(each) + 1 :] for each in state.folders if path.startswith(f"{each}/")), None)
    if below is None:
        return True
    segments = below.split("/")
    return any(
        each.startswith((".", "_")) and not each.startswith(state.shown or ("\0",)) for each in segments
    )


def stays(file: File, files: Sequence[File], state: State) -> bool:
    """Whether any rule keeps a file."""
    name = folded(file.path)
    old_metadata = file.path in state.superseded
    young = {each for each in files if each.modified_ms >= state.cut_ms or each.modified_ms <= 0}
    return (
        name in {folded(each) for each in (*state.live, *state.waiting)}
        or file.path in state.links
        or is_hidden(file.path, state)
        or (not state.metadata_files if old_metadata else not name.endswith(ENDINGS))
        or any(mark.lower() in name for mark in state.marks)
        or file in young
        or bool(writers_in(name) & {writer for each in young for writer in writers_in(folded(each.path))})
    )


# -- drawn folders ---------------------------------------------------------------------------------------------------

FOLDERS = ("/lake/t/data", "/lake/t/metadata")
PIECES = ["k=1", "_x=1", "_X=1", "_temporary", ".tmp", "a b", "caf\u00e9", "0101", "_x", "x=_1"]
WORDS = [
    "part",
    "Part",
    "k\u00e9y",
    unicodedata.normalize("NFD", "k\u00e9y"),
    "K\u00c9Y",
    "a%20b",
    "a b",
    "50%25",
    "50%",
    "_h",
]
AGES = [0, 1, DAY_MS, 3 * DAY_MS - 1, 3 * DAY_MS, 3 * DAY_MS + 1, 30 * DAY_MS, -HOUR_MS, NOW_MS, NOW_MS + 1]


def a_writer(draw: random.Random) -> str:
    """A UUID or query id of a few jobs, as some engine spells it."""
    text = uuid_of(draw.randrange(4))
    query = f"2026010{draw.randrange(3)}_010203_00042_abcd{draw.randrange(3)}"
    return draw.choice([text, text.upper(), text.replace("-", ""), query, f"{query}-{text}"])


def a_name(draw: random.Random) -> str:
    ending = draw.choice(
        [*ENDINGS, ".parquet", ".parquet", ".PARQUET", ".crc", "", ".parquet.", ".metadata.json"]
    )
    parts = [draw.choice(WORDS), *(a_writer(draw) for _ in range(draw.choice([0, 0, 1, 1, 2, 3])))]
    draw.shuffle(parts)
    name = draw.choice(["", "", "00001-7-", "00001_"]) + "-".join(parts) + ending
    spellings = [name, name, name, name.replace("a", "%61"), name.upper()]
    return draw.choice(spellings)


def a_path(draw: random.Random) -> str:
    middle = [draw.choice(PIECES) for _ in range(draw.choice([0, 0, 1, 2]))]
    folder = draw.choice([*FOLDERS, *FOLDERS, *FOLDERS, "/lake/t2/data"])
    return "/".join([folder, *middle, a_name(draw)])


def some_of(draw: random.Random, paths: Sequence[str], most: int) -> tuple[str, ...]:
    return tuple(draw.sample(paths, draw.randrange(min(most, len(paths)) + 1)))


def a_case(draw: random.Random) -> tuple[list[File], State]:
    paths = list({a_path(draw) for _ in range(draw.randrange(1, 25))})
    files = [File(path, NOW_MS - draw.choice(AGES)) for path in sorted(paths)]
    metadata = [path for path in paths if path.lower().endswith(".metadata.json")]
    state = State(
        folders=FOLDERS,
        shown=draw.choice([(), ("_x=",)]),
        live=(*some_of(draw, paths, 3), *(f"hdfs:/else//{a_name(draw)}" for _ in range(draw.randrange(2)))),
        marks=(uuid_of(0),) if draw.random() < 0.2 else (),
        waiting=some_of(draw, paths, 1),
        links=some_of(draw, paths, 1),
        superseded=some_of(draw, metadata, 3),
        metadata_files=draw.random() < 0.5,
        cut_ms=NOW_MS - 3 * DAY_MS,
    )
    return files, state


def keys_of(texts: Sequence[str]) -> Any:
    return np.unique(hash_column(pa.array(texts, pa.string()))) if texts else np.empty(0, np.uint64)


def known(texts: Sequence[str]) -> Callable[[Any], Any]:
    keys = keys_of(texts)
    return lambda some: among(some, keys)


def table_of(files: Sequence[File]) -> pa.Table:
    rows = [{"path": each.path, "size_bytes": 10, "modified_ms": each.modified_ms} for each in files]
    return pa.Table.from_pylist(rows, schema=STORED_FILES)


@few_or_many(300, many=3_000)
def test_the_files_that_no_rule_keeps_go_and_no_others(budget: int) -> None:
    draw = random.Random(17)
    total = 0
    for _ in range(budget):
        files, state = a_case(draw)
        rows = table_of(files)
        search = OrphanSearch(
            folders=state.folders,
            shown=state.shown,
            cut_ms=state.cut_ms,
            reached=Reached(
                names=known([folded(each) for each in state.live]),
                paths=known(state.live),
                operations=state.marks,
                waiting=keys_of([folded(each) for each in state.waiting]),
                links=keys_of(state.links),
                superseded=keys_of(state.superseded),
            ),
            writers=rules.writers_of(rows, cut_ms=state.cut_ms),
            metadata_files=state.metadata_files,
        )
        found = search.orphans(rows)
        expected = {each.path for each in files if not stays(each, files, state)}
        assert {*found["path"].to_pylist()} == expected
        kinds = {path: "metadata_file" if path in state.superseded else "orphan_file" for path in expected}
        assert dict(zip(found["path"].to_pylist(), found["kind"].to_pylist(), strict=True)) == kinds
        counted = sum(count for numbers in search.kept.values() for count, _ in numbers)
        assert counted + len(found) == len(files)
        total += len(found)
    assert total > budget // 4, "nothing goes: this proves nothing"


@pytest.mark.parametrize(
    ("old", "young", "same"),
    [
        ("00000-1-{u}-00001.parquet", "00007-9-{u}-00002.parquet", True),  # Spark
        ("{u}-m0.avro", "snap-8745438249199332230-1-{u}.avro", True),  # Iceberg's commits
        ("{U}.parquet", "00000-0-{u}.parquet", True),
        ("{c}.parquet", "x_{u}_y.orc", True),  # without hyphens
        ("20260101_010203_00042_abcde-{v}.parquet", "20260101_010203_00042_abcde_{u}.orc", True),  # Trino
        ("20260101_010203_00042_abcde.parquet", "20260101_010203_00042_abcdf.parquet", False),
        ("{v}-{w}-{u}.parquet", "{x}-{u}-{y}.parquet", True),  # the last and one between
        ("{v}-{u}-{w}.parquet", "{u}.parquet", True),
        ("{q}1-{q}2-{q}3.parquet", "{q}2.parquet", True),
        ("{v}.parquet", "{u}.parquet", False),
        ("part-00000.parquet", "part-00001.parquet", False),
        ("00000-1-{u}.parquet", "00000-1-{v}.parquet", False),
    ],
)
def test_files_of_one_job_or_query_are_known_by_their_names(old: str, young: str, same: bool) -> None:
    ids = {each: uuid_of(each) for each in "uvwxy"} | {
        "q": "20260101_010203_00042_abcd",
        "U": uuid_of("u").upper(),
        "c": uuid_of("u").replace("-", ""),
    }
    writers = rules.writers_of(table_of([File(f"/t/{young.format(**ids)}", NOW_MS)]), cut_ms=NOW_MS)
    names = pa.array([old.format(**ids).lower()])
    assert rules.written_by(names, writers).tolist() == [same]


@pytest.mark.parametrize(
    ("modified_ms", "is_young"), [(NOW_MS, True), (NOW_MS - 1, False), (0, True), (-1, True), (1, False)]
)
def test_a_writer_is_one_that_wrote_at_the_cut_off_or_nobody_knows_when(
    modified_ms: int, is_young: bool
) -> None:
    assert (
        bool(len(rules.writers_of(table_of([File(f"/t/{SUBJECT}", modified_ms)]), cut_ms=NOW_MS))) == is_young
    )


# -- where, and since when -------------------------------------------------------------------------------------------

PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


def folders_of(
    location: str, properties: dict[str, str], *more: str, allowed: Sequence[str] = ()
) -> tuple[str, ...]:
    return rules.looked_through(location, properties, more, allowed=allowed).folders


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    ("value", "inside"),
    [
        ("s3://b/t/x", "s3://b/t/x"),
        ("s3a://b/t/x/", "s3://b/t/x"),
        ("s3://b/t/data/x", None),  # in data
        ("s3://b/t", None),
        ("s3://b/t/", None),
        ("s3://b", None),
        ("s3://b/t2", None),
        ("s3://b/t/../t2", None),
        ("s3://b/t/x/../../t2", None),
        ("s3://other/t/x", None),
    ],
)
def test_properties_widen_the_search_only_below_the_location(
    name: str, value: str, inside: str | None
) -> None:
    own = {"s3://b/t/data", "s3://b/t/metadata"}
    found = rules.looked_through("s3://b/t", {name: value}, (), allowed=())
    assert {*found.folders} == own | ({inside} if inside else set())
    below = value.startswith(("s3://b/t/x", "s3a://b/t/x", "s3://b/t/data")) and ".." not in value
    assert found.elsewhere == (() if below else ((name, value),))


@pytest.mark.parametrize(
    ("more", "allowed", "folders"),
    [
        (["s3://b/t/x"], [], {"s3://b/t/x"}),
        (["s3a://b/t/x/"], [], {"s3://b/t/x"}),
        (["s3://b/t/data/x"], [], set()),
        (["s3://b/old/t"], ["s3://b/old/t"], {"s3://b/old/t"}),
        (["s3://b/old/t/data"], ["s3://b/old"], {"s3://b/old/t/data"}),
    ],
)
def test_the_operator_widens_the_search(more: list[str], allowed: list[str], folders: set[str]) -> None:
    assert {*folders_of("s3://b/t", {}, *more, allowed=allowed)} == folders | {
        "s3://b/t/data",
        "s3://b/t/metadata",
    }


def test_the_whole_location_takes_the_place_of_the_folders_in_it() -> None:
    assert folders_of("/lake/t", {"write.data.path": "/lake/t/x"}, "file:/lake//t/") == ("/lake/t",)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["s3://b/other"], "--unsafe-allow-root s3://b/other"),
        (["s3://b/t2"], "--unsafe-allow-root"),
        (["s3://c/t/x"], "--unsafe-allow-root"),
        (["s3://b"], "whole bucket"),
        (["s3://b/"], "whole bucket"),
        (["s3://b/t/../t2"], "dot segments"),
        (["s3://b/t/./x"], "dot segments"),
        (["s3://b/t/x", "s3://b/t/x/"], "twice"),
        (["s3://b/t/x", "s3a://b/t/x"], "twice"),
        (["s3://b/t/x", "s3://b/t/x/y"], "inside the other"),
        (["s3://b/t/x/y", "s3://b/t/x"], "inside the other"),
        (["s3://b/t"] * 2, "twice"),
    ],
)
def test_folders_that_make_no_sense(more: list[str], words: str) -> None:
    with pytest.raises(UsageError) as error:
        folders_of("s3://b/t", {}, *more)
    assert words in f"{error.value.message} {error.value.next_step}"


def test_a_whole_bucket_is_not_looked_through_though_it_is_allowed() -> None:
    with pytest.raises(UsageError, match="whole bucket"):
        folders_of("s3://b/t", {}, "s3://c", allowed=["s3://c"])
    with pytest.raises(UsageError, match="whole bucket or disk"):
        folders_of("/lake/t", {}, "/", allowed=["/"])


@pytest.mark.parametrize(
    ("older_than_ms", "young", "cut_ms"),
    [
        (None, False, NOW_MS - 3 * DAY_MS),
        (NOW_MS - DAY_MS, False, NOW_MS - DAY_MS),
        (NOW_MS - DAY_MS + 1, False, None),
        (NOW_MS - DAY_MS + 1, True, NOW_MS - DAY_MS + 1),
        (NOW_MS, True, NOW_MS),
        (NOW_MS + 1, True, None),
        (NOW_MS + DAY_MS, False, None),
    ],
)
def test_the_cut_off(older_than_ms: int | None, young: bool, cut_ms: int | None) -> None:
    policy = RemoveOrphanFiles(older_than=older_than_ms, unsafe_young=young)
    if cut_ms is None:
        with pytest.raises(UsageError, match="--older-than"):
            rules.cut_off(policy, as_of_ms=NOW_MS)
    else:
        assert rules.cut_off(policy, as_of_ms=NOW_MS).value == cut_ms


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--older-than", "23h"], "--unsafe-allow-young"),
        (["--older-than", "0s"], "--unsafe-allow-young"),
        (["--older-than", "2099-01-01"], "future"),
        (["--older-than", "2099-01-01", "--unsafe-allow-young"], "future"),
        (["--as-of", "2099-01-01"], "future"),
        (["--location", "{0}2"], "--unsafe-allow-root"),
        (["--location", "{0}/.."], "dot segments"),
        (["--location", "/"], "whole"),
        (["--location", "{0}/x", "--location", "{0}/x/"], "twice"),
        (["--location", "{0}/x", "--location", "{0}/x/y"], "inside the other"),
        (["--inventory", "{0}/no-such-file"], "no file is there"),
    ],
)
@pytest.mark.parametrize("verb", [[VERB, "--yes"], ["plan", VERB]], ids=["run", "plan"])
def test_bad_input_ends_with_2_and_nothing_goes(
    tmp_path: Path, verb: list[str], arguments: list[str], words: str
) -> None:
    table = DiskTable(location=str(tmp_path / "t")).with_live()
    given = [each.format(table.location) for each in arguments]
    ran = iceberg_cli(verb[0], table.location, *verb[1:], *given)
    assert (ran.code, words in ran.err) == (2, True), ran.out + ran.err
    assert {path.name for path in (table.folder / "data").iterdir()} == {LIVE, ORPHAN}


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("same_uuid", [False, True])
def test_another_table_at_a_folder_that_the_operator_allows_stays(
    tmp_path: Path, same_uuid: bool, logged: bool
) -> None:
    """Also where this table was there once, as its log says, and where the other one is a copy of it."""
    other = DiskTable(location=str(tmp_path / "other"))
    other.with_live(*other.data(SUBJECT))
    other.put(f"data/{name_of('another orphan')}")
    document = other.document() | ({} if same_uuid else {"table-uuid": uuid_of("other")})
    document["last-updated-ms"] += 1  # than that of this table's version of the same name
    for name, each in (("v0", other.document()), ("v1", document)):
        other.put(f"metadata/{name}.metadata.json", data=json.dumps(each).encode())
    table = DiskTable(location=str(tmp_path / "t"))
    logs = [{"timestamp-ms": 1, "metadata-file": f"{other.location}/metadata/v0.metadata.json"}]
    table.with_live(**{"metadata-log": logs if logged else []})
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / name_of("loose")).write_bytes(b"ten bytes.")
    options = [
        word for each in (other.location, loose) for word in ("--location", each, "--unsafe-allow-root", each)
    ]
    young = ["--older-than", "0s", "--unsafe-allow-young"]
    plan = tmp_path / "plan"
    assert iceberg_cli("plan", table.location, VERB, *options, *young, "-o", plan).code == 0
    assert table.removed(*options, *young) == {f"data/{ORPHAN}"}
    assert (other.folder / "data" / SUBJECT).exists()
    assert not [*loose.iterdir()]
    if not (
        same_uuid and logged
    ):  # else it is the table's own folder, but for what that metadata file reaches
        assert (other.folder / "data" / name_of("another orphan")).exists()
