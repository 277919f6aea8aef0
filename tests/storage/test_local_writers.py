"""Local files that are written piece by piece: what is left on the disk, whatever the file system offers."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_cli.errors import BackendUnavailable, Refused
from iceberg_cli.storage import Writer
from iceberg_cli.storage.local import LocalStorage, writer
from iceberg_cli.storage.local.write import temporary_name

UNNAMED, NAMED = LocalStorage(), LocalStorage(unnamed_temporaries=False)

KILLED_WRITER = """
import sys, time
from iceberg_cli.storage.local import LocalStorage
storage = LocalStorage(unnamed_temporaries=sys.argv[2] == "unnamed")
writer = storage.create(f"{sys.argv[1]}/file", lambda upload_id: print(upload_id, flush=True))
writer.write(b"x" * 1_000_000)
print("written", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["unnamed", "named"])
def test_a_killed_writer_leaves_nothing_or_a_temporary_file_whose_name_was_told_before(
    how: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", KILLED_WRITER, str(tmp_path), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = list(iter(lambda: process.stdout.readline().strip(), "written"))  # type: ignore[union-attr]
        process.kill()
    assert os.listdir(tmp_path) == told
    assert len(told) == (how == "named")
    for name in told * 2:
        UNNAMED.abort_upload(f"{tmp_path}/file", name)
    assert os.listdir(tmp_path) == []


TEMPORARY = ".iceberg-cli-00000000-0000-4000-8000-000000000000.tmp"


@pytest.mark.parametrize(
    "upload_id",
    ["", ".", "..", "file", ".hidden", "../.iceberg-cli-x.tmp", f"../{TEMPORARY}", f"{TEMPORARY}/a",
     f"a/{TEMPORARY}", f"{TEMPORARY}\n"],
)  # fmt: skip
def test_nothing_but_a_temporary_file_beside_the_path_is_removed(upload_id: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("file", ".hidden", "a/file"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(Refused, match="no name of a temporary file"):
        UNNAMED.abort_upload(f"{tmp_path}/a/file", upload_id)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "a", "file"]


def test_a_temporary_file_that_cannot_be_removed_is_told(tmp_path: Path) -> None:
    name = temporary_name()
    (tmp_path / name).mkdir()
    with pytest.raises(BackendUnavailable, match="it is a folder"):
        UNNAMED.abort_upload(f"{tmp_path}/file", name)


def test_where_a_file_without_a_name_cannot_get_one_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "link_descriptor", lambda *_: False)
    data, names = os.urandom(20_000_003), list[str]()
    with UNNAMED.create(f"{tmp_path}/file", names.append) as new:
        new.write(data)
        assert (os.listdir(tmp_path), names) == ([], [])
        new.commit()
    assert os.listdir(tmp_path) == ["file"]
    assert len(names) == 1
    assert (tmp_path / "file").read_bytes() == data


@pytest.mark.parametrize("storage", [UNNAMED, NAMED], ids=["unnamed", "named"])
def test_a_link_that_was_made_without_an_answer_is_ours(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network file system, whose server may also say that the folder went stale."""
    lost = [OSError(errno.ESTALE, "Stale file handle"), FileExistsError(errno.EEXIST, "it was sent twice")]
    link_descriptor, link_temporary = writer.link_descriptor, writer.link_temporary

    def link_unnamed(descriptor: int, parent: int, name: str) -> bool:
        link_descriptor(descriptor, parent, name)
        raise lost[-1]

    def link_named(temporary: str, parent: int, name: str) -> None:
        link_temporary(temporary, parent, name)
        raise lost[-1]

    monkeypatch.setattr(writer, "link_descriptor", link_unnamed)
    monkeypatch.setattr(writer, "link_temporary", link_named)
    while lost:
        path = tmp_path / str(len(lost))
        write(storage.create(str(path)))
        assert path.read_bytes() == b"x"
        lost.pop()
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]


@pytest.mark.parametrize("storage", [UNNAMED, NAMED], ids=["unnamed", "named"])
def test_a_folder_that_another_process_removes_meanwhile_is_made_again(
    storage: LocalStorage, tmp_path: Path
) -> None:
    path = f"{tmp_path}/a/b/file"
    with storage.create(path) as new:
        new.write(b"x")
        storage.prune(f"{tmp_path}/a")
        new.commit()
    assert Path(path).read_bytes() == b"x"
    assert os.listdir(f"{tmp_path}/a/b") == ["file"]


def write(new: Writer) -> None:
    with new:
        new.write(b"x")
        new.commit()


@pytest.mark.parametrize("storage", [UNNAMED, NAMED], ids=["unnamed", "named"])
def test_what_cannot_be_written_leaves_nothing(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"")
    for name in ("there/below", "long" * 100, "nul\0"):
        new = storage.create(f"{tmp_path}/{name}")
        with pytest.raises(BackendUnavailable):
            write(new)
        assert new.closed
    assert os.listdir(tmp_path) == ["there"]


@pytest.mark.parametrize("storage", [UNNAMED, NAMED], ids=["unnamed", "named"])
def test_a_disk_that_is_full_is_told_and_nothing_stays(storage: LocalStorage, tmp_path: Path) -> None:
    before, limit = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (100_000, limit[1])
    )  # of a file, which fails as a full disk does
    try:
        with storage.create(f"{tmp_path}/file") as new:
            with pytest.raises(BackendUnavailable, match="File too large"):
                new.write(bytes(200_000))
            with pytest.raises(BackendUnavailable, match="File too large"):
                new.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert os.listdir(tmp_path) == []


def test_the_checksum_of_another_writers_file_stays_with_it(tmp_path: Path) -> None:
    for name in ("file", ".file.crc"):
        (tmp_path / name).write_bytes(b"another's")
    with pytest.raises(FileExistsError):
        write(UNNAMED.create(f"{tmp_path}/file"))
    assert sorted(os.listdir(tmp_path)) == [".file.crc", "file"]


def test_a_file_has_the_mode_that_other_engines_can_read_and_the_checksum_of_an_older_one_goes(
    tmp_path: Path,
) -> None:
    before = os.umask(0o022)
    try:
        for name, storage in (("a", UNNAMED), ("b", NAMED)):
            (tmp_path / f".{name}.crc").write_bytes(b"of an older file")
            write(storage.create(f"{tmp_path}/{name}"))
    finally:
        os.umask(before)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert {oct((tmp_path / name).stat().st_mode & 0o777) for name in "ab"} == {"0o644"}
