"""Every sentence of the storage port, on every adapter; then what only one of them promises."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import posixpath
import subprocess
import sys
import threading
import time
import traceback
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from iceberg_cli.errors import AccessDenied, BackendUnavailable, UsageError
from iceberg_cli.paths import Roots, is_suspicious
from iceberg_cli.storage import Storage, open_storage
from iceberg_cli.storage.local import LocalStorage, in_its_folder
from iceberg_cli.storage.redaction import redact
from iceberg_cli.storage.s3 import S3Storage
from tests.crash.budget import few_or_many
from tests.servers import S3Server

_TICK_S = 0.02  # of the clock that file systems take times from: at most 10 ms on Linux


@dataclass(frozen=True)
class Place:
    """A storage and an empty folder in it."""

    storage: Storage
    root: str

    def has(self, name: str) -> bool:
        try:
            self.storage.stat(f"{self.root}/{name}")
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str = "") -> list[str]:
        listed = [info.path for info in self.storage.list(f"{self.root}{folder}")]
        assert list(self.storage.paths(f"{self.root}{folder}")) == listed
        return [path.removeprefix(f"{self.root}/") for path in listed]


@pytest.fixture(params=["local", "local, named temporaries", "routed to local", "s3", "routed to s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "local":
            return Place(LocalStorage(), f"{tmp_path}/wh")
        case "local, named temporaries":
            return Place(LocalStorage(unnamed_temporaries=False), f"{tmp_path}/wh")
        case "routed to local":
            return Place(open_storage(), f"{tmp_path}/wh")
    server: S3Server = request.getfixturevalue("s3_server")
    storage = S3Storage(server.options) if request.param == "s3" else open_storage(server.options)
    return Place(storage, f"s3://{server.bucket}/{uuid.uuid4()}/wh")


# The port


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(3_000_000)], ids=["empty", "one byte", "3 MB"])
def test_what_was_put_is_read_back(place: Place, data: bytes, tmp_path: Path) -> None:
    path = f"{place.root}/a/b/object"
    os.utime(tmp_path)
    before_ms = tmp_path.stat().st_mtime_ns // 1_000_000
    place.storage.put_if_absent(path, data)
    assert place.storage.read(path) == data
    info = place.storage.stat(path)
    assert (info.path, info.size_bytes) == (path, len(data))
    assert abs(info.modified_ms - before_ms) < 10_000


@pytest.mark.parametrize("count", [3, 250], ids=["few", "many"])
def test_sizes_of_many_objects_come_in_the_order_of_their_paths(place: Place, count: int) -> None:
    names = [f"a/{number}" for number in range(count)]
    for number in range(0, count, 100):
        place.storage.put_if_absent(f"{place.root}/{names[number]}", bytes(number))
    place.storage.put_if_absent(f"{place.root}/elsewhere", b"seven b")
    paths = [f"{place.root}/{name}" for name in ["gone", *reversed(names), "elsewhere", "a", "a/0", "a/0/b"]]
    expected = [number if number % 100 == 0 else None for number in reversed(range(count))]
    infos = place.storage.stat_many(paths)
    assert [info and info.size_bytes for info in infos] == [None, *expected, 7, None, 0, None]
    assert place.storage.stat_many([]) == []
    listed = {info.path: info for info in place.storage.list(place.root)}
    assert infos == [listed.get(place.storage.canonical(path)) for path in paths]
    assert all(info is None or info.version is None for info in infos)


def versions(storage: Storage, *paths: str) -> list[str | None]:
    return [info and info.version for info in storage.stat_many(paths, versions=True)]


@pytest.mark.parametrize("count", [3, 250], ids=["few", "many"])
def test_versions_stay_until_other_bytes_are_stored(place: Place, count: int) -> None:
    paths = [f"{place.root}/a/{number}" for number in range(count)]
    written = paths[1:60:20]
    for path in written:
        place.storage.put_if_absent(path, b"first")
    before = versions(place.storage, *paths)
    assert [path for path, version in zip(paths, before, strict=True) if version is not None] == written
    place.storage.put_if_absent(f"{place.root}/a/other", b"first")
    assert [place.storage.read(path) for path in written] == [b"first"] * len(written)
    assert versions(place.storage, *paths) == before
    time.sleep(_TICK_S)
    place.storage.delete(written)
    for path in written:
        place.storage.put_if_absent(path, b"other")
    after = versions(place.storage, *paths)
    assert [path for path, version in zip(paths, after, strict=True) if version is not None] == written
    assert set(before) & set(after) <= {None}
    assert versions(place.storage, paths[0], f"{place.root}/a", f"{paths[1]}/b") == [None] * 3
    assert versions(place.storage) == []
    assert place.storage.stat_many(paths, versions=True) == [
        info and info._replace(version=version)
        for info, version in zip(place.storage.stat_many(paths), after, strict=True)
    ]


@pytest.mark.parametrize("second", [b"", b"second"], ids=["empty", "not empty"])
def test_put_leaves_what_is_there_as_it_is(place: Place, second: bytes) -> None:
    path = f"{place.root}/object"
    place.storage.put_if_absent(path, b"first")
    with pytest.raises(FileExistsError):
        place.storage.put_if_absent(path, second)
    with pytest.raises(FileExistsError):
        place.storage.put_if_absent(path, b"first")
    assert place.storage.read(path) == b"first"
    assert place.names() == ["object"]


@pytest.mark.parametrize("data", [b"", b"new", os.urandom(3_000_000)], ids=["empty", "short", "3 MB"])
def test_replacing_puts_other_bytes_in_an_objects_place_or_creates_it(place: Place, data: bytes) -> None:
    path = f"{place.root}/a/object"
    place.storage.replace(path, b"the first one, which is created")
    assert place.storage.read(path) == b"the first one, which is created"
    place.storage.replace(path, data)
    assert place.storage.read(path) == data
    assert place.storage.stat(path).size_bytes == len(data)
    assert place.names() == ["a/object"]


def test_a_reader_of_what_is_being_replaced_sees_one_or_the_other_whole(place: Place) -> None:
    path = f"{place.root}/object"
    contents = [b"%d" % writer * 50_000 for writer in range(8)]
    place.storage.replace(path, contents[0])
    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(place.storage.replace, path, data) for data in contents[1:]]
        seen = {place.storage.read(path) for _ in range(30)}
        for each in writing:
            each.result()
    assert seen <= set(contents)
    assert place.storage.read(path) in contents[1:]
    assert place.names() == ["object"]


def test_of_many_that_put_one_name_one_wins(place: Place) -> None:
    def put(writer: int) -> int | None:
        try:
            place.storage.put_if_absent(f"{place.root}/object", b"%d" % writer * 1000)
        except FileExistsError:
            return None
        return writer

    with ThreadPoolExecutor(16) as pool:
        winners = [writer for writer in pool.map(put, range(16)) if writer is not None]
    assert len(winners) == 1
    assert place.storage.read(f"{place.root}/object") == b"%d" % winners[0] * 1000
    assert place.names() == ["object"]


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, 4, b"0123"),
        (3, 4, b"3456"),
        (8, 2, b"89"),
        (8, 50, b"89"),
        (0, 0, b""),
        (10, 5, b""),
        (99, 5, b""),
        (10, 0, b""),
    ],
)
def test_a_range_is_exact_except_at_the_end(place: Place, offset: int, length: int, expected: bytes) -> None:
    path = f"{place.root}/object"
    place.storage.put_if_absent(path, b"0123456789")
    assert place.storage.read(path, (offset, length)) == expected


def test_a_range_of_an_empty_object_is_empty(place: Place) -> None:
    place.storage.put_if_absent(f"{place.root}/object", b"")
    assert place.storage.read(f"{place.root}/object", (0, 8)) == b""


@pytest.mark.parametrize("name", ["absent", "no/such/folder/object", "folder", "object/below"])
def test_what_is_no_object_is_not_found(place: Place, name: str) -> None:
    place.storage.put_if_absent(f"{place.root}/folder/object", b"x")
    place.storage.put_if_absent(f"{place.root}/object", b"x")
    path = f"{place.root}/{name}"
    with pytest.raises(FileNotFoundError):
        place.storage.read(path)
    with pytest.raises(FileNotFoundError):
        place.storage.read(path, (0, 0))
    with pytest.raises(FileNotFoundError):
        place.storage.read(path, (0, 9))
    with pytest.raises(FileNotFoundError):
        place.storage.stat(path)


SPECIAL_NAMES = [
    "k=50%25/a b+c",
    "k=%252F/x",
    "k=%2F/x",
    "k=__HIVE__/x",
    "spaced+col=/x",
    "name?versionId=1",
    "a&b=c;d#e",
    "trailing.",
    "~tilde(1)'!*",
    "\u00e9-composed",
    "e\u0301-decomposed",
    "\U0001f9ca",
    "back\\slash",
    'quo"te',
    "<&>",
]


def test_names_are_literal(place: Place) -> None:
    for name in SPECIAL_NAMES:
        place.storage.put_if_absent(f"{place.root}/{name}", name.encode())
    for name in SPECIAL_NAMES:
        assert place.storage.read(f"{place.root}/{name}") == name.encode()
    assert place.names() == sorted(SPECIAL_NAMES)
    kept = SPECIAL_NAMES[0]
    assert place.storage.delete([f"{place.root}/{name}" for name in SPECIAL_NAMES[1:]]) == {}
    assert place.names() == [kept]


def test_a_listing_has_every_object_below_by_path_and_none_of_a_sibling(place: Place) -> None:
    for name in ("t/b", "t/a/z", "t/a.b", "t/a", "t2/x", "t", "t-1/x", "s/x"):
        if name in ("t", "t/a") and place.root.startswith("/"):
            continue  # a file and a folder of one name do not go together there
        place.storage.put_if_absent(f"{place.root}/{name}", name.encode())
    below = [name for name in ("t/a", "t/a.b", "t/a/z", "t/b") if place.has(name)]
    assert place.names("/t") == below
    assert place.names("/t/") == below
    assert [info.size_bytes for info in place.storage.list(f"{place.root}/t")] == [
        len(name) for name in below
    ]


def test_a_listing_of_nothing_is_empty(place: Place) -> None:
    assert place.names() == []
    assert place.names("/absent") == []


def test_a_listing_goes_on_after_the_first_page(place: Place, request: pytest.FixtureRequest) -> None:
    names = [f"d{number:05}" for number in range(1100)]
    paths = [f"{place.root}/{name}" for name in names]
    if place.root.startswith("s3://"):
        server: S3Server = request.getfixturevalue("s3_server")
        server.fill({path.removeprefix(f"s3://{server.bucket}/"): b"" for path in paths})
    else:
        for path in paths:
            place.storage.put_if_absent(path, b"")
    assert place.names() == names
    asked = ("_delta_log", "metadata", "metadata2")
    assert place.storage.subfolders_many([place.root], asked) == [frozenset()]
    place.storage.put_if_absent(f"{place.root}/metadata/object", b"")
    assert place.storage.subfolders_many([place.root], asked) == [{"metadata"}]
    assert place.storage.delete([*paths[1:], f"{place.root}/metadata/object"]) == {}
    assert place.names() == ["d00000"]


def test_deleting_what_is_gone_succeeds(place: Place) -> None:
    place.storage.put_if_absent(f"{place.root}/object", b"x")
    paths = [f"{place.root}/object", f"{place.root}/absent", f"{place.root}/no/such/folder"]
    assert place.storage.delete(paths) == {}
    assert place.storage.delete(paths) == {}
    assert not place.has("object")


def test_deleting_a_folder_leaves_what_is_in_it(place: Place) -> None:
    place.storage.put_if_absent(f"{place.root}/folder/object", b"x")
    place.storage.delete([f"{place.root}/folder", f"{place.root}/folder/", place.root])
    assert place.has("folder/object")


def test_objects_are_deleted_under_any_spelling_and_failures_bear_the_callers(place: Place) -> None:
    place.storage.put_if_absent(f"{place.root}/object", b"x")
    other = place.root.replace("s3://", "s3a://") if "://" in place.root else f"file:{place.root}"
    assert place.storage.delete([f"{other}/object"]) == {}
    assert not place.has("object")


def test_a_folder_holds_what_is_at_any_depth_and_nothing_of_a_sibling(place: Place) -> None:
    place.storage.put_if_absent(f"{place.root}/a/b/c/object", b"x")
    place.storage.put_if_absent(f"{place.root}/ab", b"x")
    held = [
        place.storage.holds_any(f"{place.root}/{folder}") for folder in ("a", "a/b/", "a/b/c", "a/object")
    ]
    assert held == [True, True, True, False]
    place.storage.delete([f"{place.root}/a/b/c/object"])
    assert not place.storage.holds_any(f"{place.root}/a")
    assert not place.storage.holds_any(f"{place.root}/nowhere")
    assert place.storage.holds_any(place.root)


def test_subfolders_are_told_by_their_names_and_files_and_siblings_are_none(place: Place) -> None:
    for name in (
        "a/_delta_log/0",
        "a/metadata-old/0",
        "a/metadata.x",
        "b/metadata/d/0",
        "c/metadata",
        "d/x/metadata/0",
    ):
        place.storage.put_if_absent(f"{place.root}/{name}", b"x")
    folders = [f"{place.root}/{name}" for name in ("nowhere", "c", "b", "a", "b/metadata", "a/metadata.x")]
    none = frozenset[str]()
    names = ("metadata", "_delta_log")
    stated = [none, none, {"metadata"}, {"_delta_log"}, none, none]
    assert place.storage.subfolders_many(folders, names) == stated
    assert place.storage.subfolders_many([folders[2]] * 70, names) == [{"metadata"}] * 70
    assert place.storage.subfolders_many([], names) == []


def test_pruning_removes_empty_folders_and_no_object(place: Place) -> None:
    place.storage.put_if_absent(f"{place.root}/a/b/c/object", b"x")
    place.storage.put_if_absent(f"{place.root}/a/d/object", b"x")
    place.storage.delete([f"{place.root}/a/b/c/object"])
    place.storage.prune(f"{place.root}/a")
    assert place.names() == ["a/d/object"]
    place.storage.delete([f"{place.root}/a/d/object"])
    place.storage.prune(f"{place.root}/a")
    place.storage.prune(f"{place.root}/a")
    assert place.names() == []
    assert not os.path.exists(f"{place.root}/a")


@few_or_many(6, all_of=50)
@pytest.mark.parametrize("place", ["local", "local, named temporaries", "routed to local"], indirect=True)
@pytest.mark.parametrize("write", ["put_if_absent", "replace"])
def test_processes_that_remove_empty_folders_do_not_disturb_those_that_write_into_them(
    place: Place, write: str, budget: int
) -> None:
    def work(writer: int) -> None:
        for number in range(budget):
            path = f"{place.root}/ops/{writer}-{number}/a/record"
            getattr(place.storage, write)(path, b"content")
            assert place.storage.read(path) == b"content"
            assert place.storage.delete([path]) == {}
            place.storage.prune(f"{place.root}/ops")

    writers = [_forked(partial(work, writer)) for writer in range(8)]
    assert [os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) for writer in writers] == [0] * 8
    assert not os.path.exists(f"{place.root}/ops")


def test_a_folder_that_goes_stale_on_another_machine_s_disk_is_made_again(tmp_path: Path) -> None:
    # NFS says so of a folder that another client removed while it was open here.
    errors = [OSError(errno.ESTALE, "Stale file handle"), FileNotFoundError(errno.ENOENT, "gone")]
    folders = []

    def write() -> None:
        folders.append((tmp_path / "a" / "b").is_dir())
        (tmp_path / "a" / "b").rmdir()
        if errors:
            raise errors.pop()

    in_its_folder(f"{tmp_path}/a/b/file", write)
    assert folders == [True] * 3


def _forked(work: Callable[[], None]) -> int:
    """The id of a process that does this, and says 0 at its end."""
    process_id = os.fork()
    if process_id:
        return process_id
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - every one of them is told
        traceback.print_exc()
    finally:
        os._exit(code)


ODD = st.sampled_from(
    [
        *("ab.%\\ ~;:?#+&=_\n\r\t\x01\x7f\u00e9\u2044\u2215\u29f8\uff0f\uff0e\u2025\u2024"),
        *("..", "%2F", "%2e", "%5C", "%252F", "e\u0301", "k="),
    ]
)
KEYS = st.lists(st.lists(ODD, min_size=1, max_size=4).map("".join), min_size=1, max_size=3).map("/".join)


def other_readings(key: str) -> set[str]:
    """The keys that somebody could take for `key` who decodes, folds or resolves what it has."""
    spelled = {key, unquote(key), unquote(unquote(key)), unicodedata.normalize("NFKC", key)}
    spelled |= {each.replace("\\", "/") for each in spelled}
    spelled |= {posixpath.normpath(f"/{each}").removeprefix("/") for each in spelled}
    return {each for each in spelled - {key} if each and "\0" not in each and each[-1] != "/"}


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_key_that_is_not_suspicious_is_one_object_of_that_very_name(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    base, storage = str(tmp_path), open_storage()
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        base, storage = f"s3://{server.bucket}/{uuid.uuid4()}", open_storage(server.options)

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(KEYS)
    @example("k=東京\uff0f大阪")
    @example("k=1\u20442/x")
    @example("k=a\\b")
    @example("k=a%2F.%2Fb/x")
    @example("a\\..\\b")
    @example("%2e%2e/x")
    def each_key(key: str) -> None:
        root = f"{base}/{uuid.uuid4()}/t"
        path = f"{root}/{key}"
        assume(not is_suspicious(path))
        assume(kind == "local" or "\n" not in key)  # moto finds no place for such a request
        assert Roots.of([root]).own(storage.canonical(path))
        others = [f"{root}/{other}" for other in other_readings(key) if not is_suspicious(f"{root}/{other}")]
        storage.put_if_absent(path, b"it")
        there = set()
        for other in others:
            # On a disk a file cannot be a folder too, and a doubled slash is one.
            with contextlib.suppress(BackendUnavailable, FileExistsError):
                storage.put_if_absent(other, b"another")
                there.add(storage.canonical(other))
        assert set(storage.paths(root)) == {path, *there}
        assert storage.read(path) == b"it"
        assert storage.stat(path).size_bytes == 2
        assert storage.delete([path]) == {}
        assert set(storage.paths(root)) == there

    each_key()


# Canonical paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("/a//b/./c/.", "/a/b/c"),
        ("/a/b/", "/a/b"),
        ("file:////a/b", "/a/b"),
        ("/a/../b", "/a/../b"),
        ("/a/k=50%25/%2e%2e/b", "/a/k=50%25/%2e%2e/b"),
        ("/a/.hidden/..b", "/a/.hidden/..b"),
        ("/", "/"),
        ("s3://b/k", "s3://b/k"),
        ("s3a://b/k", "s3://b/k"),
        ("s3n://b/k", "s3://b/k"),
        ("S3A://b/k", "s3://b/k"),
        ("s3://b/k//./../%2e/ +", "s3://b/k//./../%2e/ +"),
        ("s3://b/k/", "s3://b/k/"),
        ("s3://b//k", "s3://b//k"),
        ("s3://b/k?versionId=1#x\n", "s3://b/k?versionId=1#x\n"),
    ],
)
def test_one_object_has_one_spelling(path: str, expected: str, s3_server: S3Server) -> None:
    storage = open_storage(s3_server.options)
    assert storage.canonical(path) == expected
    assert storage.canonical(expected) == expected


def test_a_relative_path_starts_at_the_working_folder() -> None:
    assert LocalStorage().canonical("./iceberg/t") == f"{os.getcwd()}/iceberg/t"


@pytest.mark.parametrize(
    "path", ["", "file:", "file://", "file://host/a", "s3:/b/k", "s3://", "s3:///k", "hdfs://n/a"]
)
def test_what_names_no_object_is_refused(path: str, s3_server: S3Server) -> None:
    with pytest.raises(UsageError):
        open_storage(s3_server.options).canonical(path)


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(UsageError, match="scheme hdfs"):
        open_storage().read("hdfs://namenode/a")


# Local files


def test_a_put_leaves_no_temporary_file_even_when_it_fails(tmp_path: Path) -> None:
    for storage in (LocalStorage(), LocalStorage(unnamed_temporaries=False)):
        (tmp_path / "there").write_bytes(b"")
        with pytest.raises(FileExistsError):
            storage.put_if_absent(f"{tmp_path}/there", b"x")
        with pytest.raises(BackendUnavailable):
            storage.put_if_absent(f"{tmp_path}/there/below", b"x")
        with pytest.raises(BackendUnavailable):
            storage.put_if_absent(f"{tmp_path}/{'long' * 100}", b"x")
        assert os.listdir(tmp_path) == ["there"]


def test_files_get_the_mode_that_other_engines_can_read(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        LocalStorage().put_if_absent(f"{tmp_path}/a", b"x")
        LocalStorage(unnamed_temporaries=False).put_if_absent(f"{tmp_path}/b", b"x")
    finally:
        os.umask(before)
    assert {oct((tmp_path / name).stat().st_mode & 0o777) for name in "ab"} == {"0o644"}


def test_a_local_file_overwritten_in_place_has_another_version_and_a_hard_link_to_it_the_same(
    tmp_path: Path,
) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"first")
    [before] = versions(LocalStorage(), str(path))
    link.hardlink_to(path)
    assert versions(LocalStorage(), f"file:{path}", str(link)) == [before, before]
    time.sleep(_TICK_S)
    with path.open("r+b") as file:
        file.write(b"other")
    [after] = versions(LocalStorage(), str(path))
    assert None not in (before, after)
    assert before != after


KILLED_WRITER = """
import sys
from iceberg_cli.storage.local import LocalStorage
storage = LocalStorage(unnamed_temporaries=sys.argv[2] == "unnamed")
for number in range(1_000_000):
    storage.put_if_absent(f"{sys.argv[1]}/{number}", b"whole" * 200_000)
    print(number, flush=True)
"""


@pytest.mark.parametrize("how", ["unnamed", "named"])
def test_a_killed_writer_leaves_whole_files_or_none(how: str, tmp_path: Path) -> None:
    for delay_s in (0.002, 0.005, 0.013):
        folder = tmp_path / str(delay_s)
        command = [sys.executable, "-c", KILLED_WRITER, str(folder), how]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay_s)
            writer.kill()
            acknowledged = writer.stdout.read().split()
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert {name.decode() for name in acknowledged} <= set(found)
        visible = {name: data for name, data in found.items() if not name.startswith(".")}
        assert set(visible.values()) == {b"whole" * 200_000}
        assert how == "named" or visible == found


def test_the_checksum_that_hadoop_keeps_beside_a_file_goes_with_it(tmp_path: Path) -> None:
    storage = LocalStorage()
    (tmp_path / ".new.crc").write_bytes(b"of an older file")
    storage.put_if_absent(f"{tmp_path}/new", b"x")
    assert os.listdir(tmp_path) == ["new"]
    (tmp_path / ".new.crc").write_bytes(b"its own")
    with pytest.raises(FileExistsError):
        storage.put_if_absent(f"{tmp_path}/new", b"x")
    assert sorted(os.listdir(tmp_path)) == [".new.crc", "new"]
    assert storage.delete([f"{tmp_path}/new"]) == {}
    assert os.listdir(tmp_path) == []


def test_the_checksum_that_hadoop_keeps_of_what_is_replaced_goes(tmp_path: Path) -> None:
    storage = LocalStorage()
    for name in ("_last_checkpoint", "._last_checkpoint.crc", "._last_vacuum_info.crc"):
        (tmp_path / name).write_bytes(b"old")
    storage.replace(f"{tmp_path}/_last_checkpoint", b"new")
    assert sorted(os.listdir(tmp_path)) == ["._last_vacuum_info.crc", "_last_checkpoint"]
    assert (tmp_path / "_last_checkpoint").read_bytes() == b"new"


def test_what_cannot_be_replaced_stays_and_no_temporary_file_is_left(tmp_path: Path) -> None:
    (tmp_path / "object" / "in the way").mkdir(parents=True)
    with pytest.raises(BackendUnavailable):
        LocalStorage().replace(f"{tmp_path}/object", b"new")
    assert os.listdir(tmp_path) == ["object"]


@pytest.mark.parametrize("staying", [0, 3_000, 5_000])
@pytest.mark.parametrize("with_checksum", [(), (0,), (199,), tuple(range(200))])
def test_checksums_go_with_their_files_however_full_the_folder_is(
    staying: int, with_checksum: tuple[int, ...], tmp_path: Path
) -> None:
    stay = [f"stay-{number}" for number in range(staying)]
    go = [f"go-{number}" for number in range(200)]
    checksums = [f".go-{number}.crc" for number in with_checksum]
    for name in [*stay, *go, *checksums, ".stay.crc"]:
        (tmp_path / name).write_bytes(b"")
    if not with_checksum:
        (tmp_path / ".stay.crc").unlink()
    storage = LocalStorage()
    for some in (go[:40], go[40:150], go[150:]):
        assert storage.delete([f"{tmp_path}/{name}" for name in some]) == {}
    kept = [*stay, ".stay.crc"] if with_checksum else stay
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


@pytest.mark.parametrize("count", [1, 5_000], ids=["alone", "among many"])
def test_sizes_are_those_of_what_names_lead_to_that_are_no_folders(count: int, tmp_path: Path) -> None:
    plain = [tmp_path / str(number) for number in range(count)]
    for path in plain:
        path.write_bytes(b"12")
        os.utime(path, ns=(0, 1_999_999))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(plain[0])
    (tmp_path / "link to a folder").symlink_to(tmp_path / "folder")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe")
    os.utime(tmp_path / "pipe", ns=(0, 7_000_000))
    no_text = os.fsdecode(b"no \xff text")
    (tmp_path / no_text).write_bytes(b"123")
    os.utime(tmp_path / no_text, ns=(0, 3_000_000))
    odd = {
        "folder": None, "gone": None, "0/below a file": None, "0/": (2, 1), ".//0": (2, 1), "link": (2, 1),
        "link to a folder": None, "dangling": None, "pipe": (0, 7), "0\0": None, no_text: (3, 3),
    }  # fmt: skip
    for name, expected in odd.items():
        paths = [*map(str, plain), f"{tmp_path}/{name}"]
        found = [info and info[1:3] for info in LocalStorage().stat_many(paths)]
        assert found == [*[(2, 1)] * count, expected], name


@pytest.mark.parametrize("count", [1, 5_000], ids=["alone", "among many"])
def test_a_link_that_leads_round_is_not_taken_for_nothing(count: int, tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(BackendUnavailable, match=r"Cannot look at .*/round: .*symbolic links"):
        LocalStorage().stat_many([f"{tmp_path}/gone"] * count + [f"{tmp_path}/round"])


def test_a_file_that_cannot_be_deleted_is_reported_and_the_others_go(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "z").write_bytes(b"")
    kept = LocalStorage().delete([f"{tmp_path}/a", f"{tmp_path}/folder", f"{tmp_path}/z"])
    assert kept == {f"{tmp_path}/folder": "it is a folder"}
    assert os.listdir(tmp_path) == ["folder"]


def test_of_many_files_in_many_folders_all_go_but_those_that_cannot(tmp_path: Path) -> None:
    folders = [tmp_path / f"k={number}" for number in range(41)]
    for folder in folders:
        folder.mkdir()
        for number in range(50):
            (folder / f"{number}").write_bytes(b"")
        (folder / ".7.crc").write_bytes(b"")
        (folder / "stays").write_bytes(b"")
        (folder / "no file").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0").write_bytes(b"")
    (tmp_path / "link").symlink_to("elsewhere")
    asked = [f"{folder}/{name}" for folder in folders for name in (*range(50), "no file", "gone")]
    kept = LocalStorage(trusted_folders=[str(tmp_path)]).delete(
        [*asked, f"{tmp_path}/link/0", f"{tmp_path}/x/y"]
    )
    assert kept == {
        f"{tmp_path}/link/0": "it is reached through the symbolic link link",
        **{f"{folder}/no file": "it is a folder" for folder in folders},
    }
    assert [sorted(os.listdir(folder)) for folder in folders] == [["no file", "stays"]] * 41
    assert os.listdir(tmp_path / "elsewhere") == ["0"]


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BackendUnavailable, match="not a regular file"):
        LocalStorage().read(f"{tmp_path}/pipe")


def test_a_link_to_a_file_goes_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert LocalStorage().delete([f"{tmp_path}/link"]) == {}
    assert os.listdir(tmp_path) == ["target"]


def test_a_listing_does_not_enter_links_to_folders(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "t" / "broken").symlink_to(tmp_path / "nowhere")
    assert list(LocalStorage().list(f"{tmp_path}/t")) == []


def test_nothing_is_deleted_through_a_link_below_the_trusted_folder(tmp_path: Path) -> None:
    real = tmp_path / "disk" / "t"
    (real / "data").mkdir(parents=True)
    (real / "data" / "file").write_bytes(b"")
    (tmp_path / "canary").mkdir()
    (tmp_path / "canary" / "file").write_bytes(b"")
    (real / "link").symlink_to(tmp_path / "canary")
    (tmp_path / "mount").symlink_to(tmp_path / "disk")
    table = f"{tmp_path}/mount/t"
    paths = [f"{table}/link/file", f"{table}/data/file"]
    assert LocalStorage().delete(paths) == dict.fromkeys(
        paths, "it is reached through the symbolic link mount"
    )
    kept = open_storage(trusted_folders=[table]).delete(paths)
    assert kept == {paths[0]: "it is reached through the symbolic link link"}
    assert (tmp_path / "canary" / "file").exists()
    assert not (real / "data" / "file").exists()


def test_a_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "file").write_bytes(b"")
    folder, aside = tmp_path / "t" / "data", tmp_path / "t" / "aside"
    folder.mkdir(parents=True)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(folder, aside)
            os.symlink(canary, folder)
            os.unlink(folder)
            os.rename(aside, folder)

    swapper = threading.Thread(target=swap)
    swapper.start()
    storage = LocalStorage(trusted_folders=[str(tmp_path / "t")])
    try:
        for _ in range(10_000):
            storage.delete([f"{folder}/file"])
    finally:
        stop.set()
        swapper.join()
    assert (canary / "file").exists()


def hostile_paths(inside: str, outside: str) -> Iterator[str]:
    """Spellings that try to get from a table's folder to the file `outside`."""
    steps = [
        "..",
        "%2e%2e",
        "..%2f",
        "%2e%2e%2f",
        "..\\",
        "..;",
        ". .",
        "...",
        "\u2025",
        "..\u2215",
        "..\0",
        " ..",
        "..\t",
    ]
    folders = [
        inside,
        f"{inside}/data",
        f"{inside}/link",
        f"{inside}/data/absent",
        f"{inside}//",
        f"{inside}/.",
    ]
    for folder, step, deep in itertools.product(folders, steps, range(1, 4)):
        yield f"{folder}{('/' + step) * deep}/{outside.rpartition('/')[2]}"
        yield f"file://{folder}{('/' + step) * deep}{outside}"
    yield from (
        f"{inside}/link/canary",
        f"{inside}/data/link/canary",
        f"file:{inside}/link/canary",
        f"//{inside}/link/canary",
        f"{inside}/link/./canary",
        f"{inside}/link//canary",
        f"{inside}/link/",
        f"{inside}/link",
        f"{inside}2",
        f"{inside}2/..",
        f"{inside}",
        f"{inside}/",
        "/",
        "",
        ".",
        "..",
        "~",
        "file:",
        "file://",
        f"file://evil{outside}",
        f"file://localhost:1{outside}",
        "http://127.0.0.1/x",
        "s3:/x",
        "\0",
        "\udcff",
        "\ud800",
        f"{inside}/\ud800",
        f"{inside}/data/file\0",
        f"{inside}\n/link/canary",
        f"{inside}/{'x' * 300}",
        f"{inside}/{'x/' * 3000}",
    )


def test_no_hostile_path_deletes_anything_outside_the_table(tmp_path: Path) -> None:
    table = tmp_path / "wh" / "t"
    (table / "data").mkdir(parents=True)
    canaries = [
        tmp_path / "canary",
        tmp_path / "wh" / "canary",
        tmp_path / "wh" / "t2" / "canary",
        tmp_path / "far" / "canary",
    ]
    for canary in canaries:
        canary.parent.mkdir(exist_ok=True)
        canary.write_bytes(b"")
    (table / "link").symlink_to(tmp_path / "far")
    (table / "data" / "link").symlink_to(tmp_path / "far")
    paths = [path for canary in canaries for path in hostile_paths(str(table), str(canary))]
    assert len(set(paths)) >= 300
    storage = open_storage(trusted_folders=[str(table)])
    for path in paths:
        kept = storage.delete([path])
        assert set(kept) <= {path}
    storage.delete(paths)
    assert all(canary.exists() for canary in canaries)
    assert (table / "data").is_dir()


def test_six_thousand_files_go_within_half_a_second_of_work(tmp_path: Path) -> None:
    paths = []
    for folder in range(6):
        (tmp_path / str(folder)).mkdir()
        for number in range(1000):
            path = f"{tmp_path}/{folder}/{number}"
            os.close(os.open(path, os.O_CREAT))
            paths.append(path)
    started = time.process_time()
    assert LocalStorage().delete(paths) == {}
    assert time.process_time() - started < 0.5
    assert list(LocalStorage().list(str(tmp_path))) == []


# Object stores


def test_an_object_at_another_endpoint_has_another_version(s3_server: S3Server) -> None:
    path = f"s3://{s3_server.bucket}/{uuid.uuid4()}"
    here = S3Storage(s3_server.options)
    here.put_if_absent(path, b"same bytes")
    endpoint = s3_server.endpoint.replace("127.0.0.1", "localhost")
    assert endpoint != s3_server.endpoint
    there = open_storage({**s3_server.options, "endpoint_url": endpoint})
    assert there.read(path) == b"same bytes"
    [one], [other] = versions(here, path), versions(there, path)
    assert None not in (one, other)
    assert one != other


def test_keys_with_slashes_in_odd_places_are_kept_verbatim(s3_server: S3Server) -> None:
    storage = S3Storage(s3_server.options)
    root = f"s3://{s3_server.bucket}/{uuid.uuid4()}"
    names = ["a", "a/", "a//b", "/a", "./a", "x/./a"]
    for name in names:
        storage.put_if_absent(f"{root}/{name}", name.encode())
    assert {info.path.removeprefix(f"{root}/") for info in storage.list(root)} == set(names)
    for name in names:
        assert storage.read(f"{root}/{name}") == name.encode()
        assert storage.delete([f"{root}/{name}"]) == {}
    assert list(storage.list(root)) == []


def test_a_missing_bucket_is_not_a_missing_object(s3_server: S3Server) -> None:
    with pytest.raises(BackendUnavailable, match="NoSuchBucket"):
        S3Storage(s3_server.options).read("s3://no-such-bucket/key")


def test_a_bucket_alone_is_never_deleted(s3_server: S3Server) -> None:
    storage = open_storage(s3_server.options)
    kept = storage.delete([f"s3://{s3_server.bucket}", f"s3://{s3_server.bucket}/"])
    assert set(kept) == {f"s3://{s3_server.bucket}", f"s3://{s3_server.bucket}/"}


@pytest.mark.parametrize(
    "names",
    [
        {
            "s3.endpoint": "endpoint_url",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "region",
        },
        {
            "endpoint_url": "endpoint_url",
            "client.access-key-id": "key",
            "client.secret-access-key": "secret",
            "client.region": "region",
        },
    ],
    ids=["s3.*", "client.*"],
)
def test_options_may_have_pyicebergs_names(names: dict[str, str], s3_server: S3Server) -> None:
    options = {name: s3_server.options[ours] for name, ours in names.items()}
    path = f"s3://{s3_server.bucket}/{uuid.uuid4()}"
    open_storage(options).put_if_absent(path, b"x")
    assert S3Storage(s3_server.options).read(path) == b"x"


class Flaky(BaseHTTPRequestHandler):
    """Stores one object; `script` says for each PUT whether it takes effect and what is answered."""

    protocol_version = "HTTP/1.1"
    script: list[tuple[bool, int | None]]
    stored: dict[str, bytes]
    marks: dict[str, str]

    def do_HEAD(self) -> None:
        self.send_response(200 if self.path in self.stored else 404)
        self.send_header("x-amz-meta-iceberg-cli-put", self.marks.get(self.path, "another"))
        self.send_header("Content-Length", str(len(self.stored.get(self.path, b""))))
        self.end_headers()

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        assert self.headers["If-None-Match"] == "*"
        applied, status = self.script.pop(0) if self.script else (True, 200)
        if self.path in self.stored:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        if applied:
            self.stored[self.path] = data
            self.marks[self.path] = self.headers["x-amz-meta-iceberg-cli-put"]
        if status is None:
            self.close_connection = True
            return
        self._answer(status, b"<Error><Code>Any</Code><Message>secret=a-secret-key</Message></Error>")

    def do_GET(self) -> None:
        if self.path in self.stored:
            self._answer(200, self.stored[self.path])
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(
            200,
            b"<DeleteResult><Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
            b"<Error><Key>c</Key><Code>NoSuchKey</Code></Error></DeleteResult>",
        )

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name in the base class)
        pass


@dataclass(frozen=True)
class FlakyServer:
    script: list[tuple[bool, int | None]]
    stored: dict[str, bytes]
    storage: S3Storage


@pytest.fixture
def flaky() -> Iterator[FlakyServer]:
    handler = type("Handler", (Flaky,), {"script": [], "stored": {}, "marks": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    options = {"endpoint_url": endpoint, "key": "AK", "secret": "a-secret-key", "region": "us-east-1"}
    yield FlakyServer(script=handler.script, stored=handler.stored, storage=S3Storage(options))  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("answer", [None, 500, 503], ids=["lost answer", "500", "503"])
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_put_without_an_answer_is_sent_again_and_recognises_its_own_object(
    flaky: FlakyServer, answer: int | None, applied: bool
) -> None:
    flaky.script.append((applied, answer))
    flaky.storage.put_if_absent("s3://bucket/key", b"ours")
    assert list(flaky.stored.values()) == [b"ours"]


def test_after_a_lost_answer_anothers_object_is_not_taken_for_ours(flaky: FlakyServer) -> None:
    # Even with the same bytes in it.
    flaky.stored["/bucket/key"] = flaky.stored["/key"] = b"ours"
    with pytest.raises(FileExistsError):
        flaky.storage.put_if_absent("s3://bucket/key", b"ours")


def test_a_409_means_that_another_request_is_under_way_and_ours_goes_again(flaky: FlakyServer) -> None:
    flaky.script.append((False, 409))
    flaky.storage.put_if_absent("s3://bucket/key", b"ours")
    assert list(flaky.stored.values()) == [b"ours"]


def test_a_service_that_stays_down_is_unavailable_and_no_secret_is_said(flaky: FlakyServer) -> None:
    flaky.script.extend([(False, 500)] * 5)
    with pytest.raises(BackendUnavailable) as caught:
        flaky.storage.put_if_absent("s3://bucket/key", b"ours")
    assert "a-secret-key" not in str(caught.value)
    flaky.script.append((False, 403))
    with pytest.raises(AccessDenied):
        flaky.storage.put_if_absent("s3://bucket/key", b"ours")
    assert flaky.script == []


def test_of_a_batch_only_the_refused_keys_are_reported(flaky: FlakyServer) -> None:
    kept = flaky.storage.delete(["s3://bucket/a", "s3a://bucket/b", "s3://bucket/c"])
    assert kept == {"s3a://bucket/b": "AccessDenied: no"}


def test_nobody_there_is_unavailable() -> None:
    options = {
        "endpoint_url": "http://127.0.0.1:9",
        "key": "AK",
        "secret": "a-secret-key",
        "region": "us-east-1",
    }
    storage = S3Storage(options)
    with pytest.raises(BackendUnavailable):
        storage.read("s3://bucket/key")
    assert set(storage.delete(["s3://bucket/key"])) == {"s3://bucket/key"}


# Secrets


@pytest.mark.parametrize(
    "text",
    [
        "s3.secret-access-key=MARK",
        "{'s3.session-token': 'MARK', 'x': 1}",
        '{"credential": "MARK"}',
        "Authorization: Bearer MARK",
        "token: MARK",
        "postgresql://user:MARK@host/db",
        "https://h/x?X-Amz-Signature=MARK&a=b",
        "https://h/x?sig=MARK",
        "password=MARK host=h",
        "aws_secret_access_key = MARK",
        "PYICEBERG_CATALOG__PROD__TOKEN=MARK",
    ],
)
def test_what_looks_like_a_secret_is_not_said(text: str) -> None:
    assert "MARK" not in redact(text)


def test_known_secrets_are_not_said_wherever_they_are() -> None:
    assert redact("unexpected hunter22 in reply", ["hunter22"]) == "unexpected *** in reply"
    assert redact("Cannot read s3://bucket/a/b: NoSuchKey") == "Cannot read s3://bucket/a/b: NoSuchKey"


def test_errors_carry_a_number_that_callers_can_check(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        LocalStorage().read(f"{tmp_path}/absent")
    assert caught.value.errno == errno.ENOENT
