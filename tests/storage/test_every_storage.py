"""The conformance suite of storages on every adapter; then what only one of them promises."""

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from iceberg_cli.errors import AccessDenied, BackendUnavailable, BucketNotFound, UsageError
from iceberg_cli.paths import Roots, is_suspicious
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.local.write import in_its_folder
from iceberg_cli.storage.redaction import redact
from iceberg_cli.storage.router import open_storage
from iceberg_cli.storage.s3.objects import S3Storage
from iceberg_cli.testing.conformance.storages import Sandbox, StorageConformance, versions
from iceberg_cli.testing.delta_writer import a_commit, a_metadata, a_protocol, an_add
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.budget import deep_unless, few_or_many
from tests.cli.running import iceberg_cli
from tests.emulators import ObjectStore
from tests.servers import S3Server

_TICK_S = 0.02  # of the clock that file systems take times from: at most 10 ms on Linux


def a_sandbox(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    local = {
        "local": partial(LocalStorage),
        "local, named temporaries": partial(LocalStorage, unnamed_temporaries=False),
        "routed to local": open_storage,
    }
    if make := local.get(kind):
        root = f"{tmp_path}/wh"
        return Sandbox(storage=make(), root=root, other_spelling=f"file:{root}", has_folders=True)
    if kind == "memory":
        return Sandbox(storage=MemoryStorage(), root="memory://wh")
    server: S3Server = request.getfixturevalue("versitygw")
    bucket = f"s3://{server.bucket}/"

    def create_empty(paths: Sequence[str]) -> None:
        server.fill({path.removeprefix(bucket): b"" for path in paths})

    storage = S3Storage(server.options) if kind == "s3" else open_storage(server.options)
    root = f"{bucket}{uuid.uuid4()}/wh"
    return Sandbox(
        storage=storage,
        root=root,
        other_spelling=root.replace("s3://", "s3a://"),
        has_folders=True,  # as this server keeps them; see `Versitygw`
        create_empty=create_empty,
    )


ADAPTERS = ["local", "local, named temporaries", "routed to local", "s3", "routed to s3", "memory"]


@pytest.mark.few(0.4)
class TestAdapters(StorageConformance):
    """Every sentence of the port, on every adapter."""

    @pytest.fixture(params=deep_unless(sorted({*ADAPTERS} - {"routed to local"}), ADAPTERS))
    def sandbox(self, request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
        return a_sandbox(request.param, request, tmp_path)


@pytest.mark.pairs
@few_or_many(6, all_of=50)
@pytest.mark.parametrize("kind", ["local", "local, named temporaries", "routed to local"])
@pytest.mark.parametrize("write", ["put_if_absent", "replace"])
def test_processes_that_remove_empty_folders_do_not_disturb_those_that_write_into_them(
    kind: str, write: str, budget: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    sandbox = a_sandbox(kind, request, tmp_path)

    def work(writer: int) -> None:
        for number in range(budget):
            path = f"{sandbox.root}/ops/{writer}-{number}/a/record"
            getattr(sandbox.storage, write)(path, b"content")
            assert sandbox.storage.read(path) == b"content"
            assert sandbox.storage.delete([path]) == {}
            sandbox.storage.prune(f"{sandbox.root}/ops")

    writers = [_forked(partial(work, writer)) for writer in range(8)]
    assert [os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) for writer in writers] == [0] * 8
    assert not os.path.exists(f"{sandbox.root}/ops")


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


_QUICK = ["local", "versitygw", "moto_server", "fake_gcs"]


def other_readings(key: str) -> set[str]:
    """The keys that somebody could take for `key` who decodes, folds or resolves what it has."""
    spelled = {key, unquote(key), unquote(unquote(key)), unicodedata.normalize("NFKC", key)}
    spelled |= {each.replace("\\", "/") for each in spelled}
    spelled |= {posixpath.normpath(f"/{each}").removeprefix("/") for each in spelled}
    return {each for each in spelled - {key} if each and "\0" not in each and each[-1] != "/"}


@pytest.mark.parametrize("kind", deep_unless(_QUICK, [*_QUICK, "azurite"]))
def test_a_key_that_is_not_suspicious_is_one_object_of_that_very_name(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    base, storage = str(tmp_path), open_storage()
    if kind != "local":
        server: S3Server | ObjectStore = request.getfixturevalue(kind)
        bucket = f"s3://{server.bucket}" if isinstance(server, S3Server) else server.root
        base, storage = f"{bucket}/{uuid.uuid4()}", open_storage(server.options)

    @settings(max_examples=10 if kind == "versitygw" else 15, derandomize=True)
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
        assume(kind != "moto_server" or "\n" not in key)  # it finds no place for such a request
        assume(kind != "versitygw" or "\x01" not in key)  # it lists such a key with another character
        assert Roots.of([root]).own(storage.canonical(path))
        others = [f"{root}/{other}" for other in other_readings(key) if not is_suspicious(f"{root}/{other}")]
        if kind == "versitygw":
            others = [other for other in others if "//" not in other.removeprefix("s3://")]
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
def test_one_object_has_one_spelling(path: str, expected: str, moto_server: S3Server) -> None:
    storage = open_storage(moto_server.options)
    assert storage.canonical(path) == expected
    assert storage.canonical(expected) == expected


def test_a_relative_path_starts_at_the_working_folder() -> None:
    assert LocalStorage().canonical("./iceberg/t") == f"{os.getcwd()}/iceberg/t"


@pytest.mark.parametrize(
    "path", ["", "file:", "file://", "file://host/a", "s3:/b/k", "s3://", "s3:///k", "oss://n/a"]
)
def test_what_names_no_object_is_refused(path: str, moto_server: S3Server) -> None:
    with pytest.raises(UsageError):
        open_storage(moto_server.options).canonical(path)


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(UsageError, match="scheme oss"):
        open_storage().read("oss://bucket/a")


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


def test_an_object_at_another_endpoint_has_another_version(versitygw: S3Server) -> None:
    path = f"s3://{versitygw.bucket}/{uuid.uuid4()}"
    here = S3Storage(versitygw.options)
    here.put_if_absent(path, b"same bytes")
    endpoint = versitygw.endpoint.replace("127.0.0.1", "localhost")
    assert endpoint != versitygw.endpoint
    there = open_storage({**versitygw.options, "endpoint_url": endpoint})
    assert there.read(path) == b"same bytes"
    [one], [other] = versions(here, path), versions(there, path)
    assert None not in (one, other)
    assert one != other


def test_keys_with_slashes_in_odd_places_are_kept_verbatim(moto_server: S3Server) -> None:
    storage = S3Storage(moto_server.options)
    root = f"s3://{moto_server.bucket}/{uuid.uuid4()}"
    names = ["a", "a/", "a//b", "/a", "./a", "x/./a"]
    for name in names:
        storage.put_if_absent(f"{root}/{name}", name.encode())
    assert [info.path.removeprefix(f"{root}/") for info in storage.list(root)] == sorted(names)
    for name in names:
        assert storage.read(f"{root}/{name}") == name.encode()
        assert storage.delete([f"{root}/{name}"]) == {}
    assert list(storage.list(root)) == []


def test_a_marker_of_a_folder_is_no_object(moto_server: S3Server) -> None:
    storage = S3Storage(moto_server.options)
    root = f"s3://{moto_server.bucket}/{uuid.uuid4()}"
    for name in ("folder/", "folder/inner/"):
        storage.put_if_absent(f"{root}/{name}", b"")
    assert list(storage.list(root)) == []
    assert not storage.holds_any(root)
    storage.put_if_absent(f"{root}/folder/file", b"")
    assert [info.path for info in storage.list(root)] == [f"{root}/folder/file"]
    assert list(storage.subfolders(f"{root}/folder")) in (["inner"], [])


def test_a_missing_bucket_is_not_a_missing_object(versitygw: S3Server) -> None:
    with pytest.raises(BucketNotFound, match="NoSuchBucket"):
        S3Storage(versitygw.options).read("s3://no-such-bucket/key")


def test_a_missing_bucket_is_no_table(versitygw: S3Server) -> None:
    options = [f"--storage-option={name}={value}" for name, value in versitygw.options.items()]
    for command in (("inspect",), ("survey",), ("list",), ("expire-snapshots", "--yes")):
        found = iceberg_cli(command[0], "s3://no-such-bucket/t", *command[1:], *options)
        assert (found.code, "Run the same command again" in found.err) == (10, False), command


def test_markers_of_folders_below_a_delta_table_are_not_told_of(moto_server: S3Server) -> None:
    storage = S3Storage(moto_server.options)
    root = f"s3://{moto_server.bucket}/{uuid.uuid4()}"
    founding = a_commit(a_protocol(), a_metadata(), an_add(path="live.parquet", size=4))
    storage.put_if_absent(f"{root}/_delta_log/{0:020}.json", founding)
    for name, data in (
        ("live.parquet", b"data"),
        ("orphan.parquet", b"data"),
        ("p=1/", b""),
        ("_delta_log/", b""),
    ):
        storage.put_if_absent(f"{root}/{name}", data)
    time.sleep(0.002)
    options = [f"--storage-option={name}={value}" for name, value in moto_server.options.items()]
    retention = ("--retention", "0s", "--unsafe-allow-short-retention", "--unsafe-conditional-writes")
    done = iceberg_cli("expire-snapshots", root, "--yes", "--quiet", *retention, *options)
    assert (done.code, done.out, done.err) == (0, "", "")
    left = {info.path.removeprefix(f"{root}/") for info in storage.list(root)}
    assert "orphan.parquet" not in left


def test_a_bucket_alone_is_never_deleted(versitygw: S3Server) -> None:
    storage = open_storage(versitygw.options)
    kept = storage.delete([f"s3://{versitygw.bucket}", f"s3://{versitygw.bucket}/"])
    assert set(kept) == {f"s3://{versitygw.bucket}", f"s3://{versitygw.bucket}/"}


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
def test_options_may_have_pyicebergs_names(names: dict[str, str], moto_server: S3Server) -> None:
    options = {name: moto_server.options[ours] for name, ours in names.items()}
    path = f"s3://{moto_server.bucket}/{uuid.uuid4()}"
    open_storage(options).put_if_absent(path, b"x")
    assert S3Storage(moto_server.options).read(path) == b"x"


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


@pytest.mark.pairs
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


def test_a_package_whose_s3_storage_knows_no_soft_deletion_writes_nothing_where_deletions_are_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would delete what Iceberg only tags."""
    storage = open_storage({"s3.delete-enabled": "false"})
    reason = storage.unwritable_reason  # type: ignore[attr-defined]
    assert reason("s3://b/t") is None
    monkeypatch.setattr(type(storage), "adapter", lambda *_: MemoryStorage())
    assert "the storage of a package that is installed for S3 does not know that" in (
        reason("s3://b/t") or ""
    )
    assert reason("gs://b/t") is None
