"""What every storage promises, as tests: `class TestMine(StorageConformance)` with a fixture `sandbox`."""

from __future__ import annotations

import io
import os
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.storage import Storage, Writer

_TICK_S = 0.02  # of the clock that storages take times from: at most 10 ms on Linux
_PIECE_BYTES = 777_777
_LARGE = 20_000_003  # bytes: several parts, the last of which is a short one
_SPECIAL_NAMES = [
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


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """A storage and an empty folder in it.

    Args:
        storage: that is tested.
        root: the folder, in its canonical spelling.
        other_spelling: the same folder spelled in another way, where there is one.
        has_folders: whether a file and a folder cannot have one name.
        reads_backslash_as_slash: whether a name with one is the name with the other.
        create_empty: makes many empty objects, where the service has a quicker way than one put for each.
    """

    storage: Storage
    root: str
    other_spelling: str = ""
    has_folders: bool = False
    reads_backslash_as_slash: bool = False
    create_empty: Callable[[Sequence[str]], None] | None = None

    def has(self, name: str) -> bool:
        """Whether there is an object of this name in the folder."""
        return self.storage.stat_many([f"{self.root}/{name}"]) != [None]

    def names(self, folder: str = "") -> list[str]:
        """The names of all objects in the folder, or below one in it."""
        listed = [info.path for info in self.storage.list(f"{self.root}{folder}")]
        assert list(self.storage.paths(f"{self.root}{folder}")) == listed
        return [path.removeprefix(f"{self.root}/") for path in listed]

    def visible_names(self) -> list[str]:
        """The same without those of hidden objects, which every engine ignores: a storage may have some of its own."""
        return [name for name in self.names() if not name.rpartition("/")[2].startswith(".")]

    def fill(self, paths: Sequence[str]) -> None:
        """Make empty objects."""
        if self.create_empty is not None:
            self.create_empty(paths)
            return
        for path in paths:
            self.storage.put_if_absent(path, b"")


def versions(storage: Storage, *paths: str) -> list[str | None]:
    """The versions of n objects, None where there is none."""
    return [info and info.version for info in storage.stat_many(paths, versions=True)]


def write_in_pieces(writer: Writer, data: bytes) -> None:
    """Write an object's bytes piece by piece."""
    for start in range(0, len(data), _PIECE_BYTES):
        piece = data[start : start + _PIECE_BYTES]
        assert writer.write(piece) == len(piece)
        assert writer.size_bytes == start + len(piece)


class StorageConformance:
    """The sentences of the port `Storage`. A subclass defines a fixture `sandbox: Sandbox`, empty for each test."""

    @pytest.mark.parametrize("data", [b"", b"x", os.urandom(3_000_000)], ids=["empty", "one byte", "3 MB"])
    def test_what_was_put_is_read_back(self, sandbox: Sandbox, data: bytes, tmp_path: Path) -> None:
        path = f"{sandbox.root}/a/b/object"
        os.utime(tmp_path)
        before_ms = tmp_path.stat().st_mtime_ns // 1_000_000
        sandbox.storage.put_if_absent(path, data)
        assert sandbox.storage.read(path) == data
        info = sandbox.storage.stat(path)
        assert (info.path, info.size_bytes) == (path, len(data))
        assert abs(info.modified_ms - before_ms) < 10_000

    @pytest.mark.parametrize("count", [3, 250], ids=["few", "many"])
    def test_sizes_of_many_objects_come_in_the_order_of_their_paths(
        self, sandbox: Sandbox, count: int
    ) -> None:
        names = [f"a/{number}" for number in range(count)]
        for number in range(0, count, 100):
            sandbox.storage.put_if_absent(f"{sandbox.root}/{names[number]}", bytes(number))
        sandbox.storage.put_if_absent(f"{sandbox.root}/elsewhere", b"seven b")
        paths = [
            f"{sandbox.root}/{name}" for name in ["gone", *reversed(names), "elsewhere", "a", "a/0", "a/0/b"]
        ]
        expected = [number if number % 100 == 0 else None for number in reversed(range(count))]
        infos = sandbox.storage.stat_many(paths)
        assert [info and info.size_bytes for info in infos] == [None, *expected, 7, None, 0, None]
        assert sandbox.storage.stat_many([]) == []
        listed = {info.path: info for info in sandbox.storage.list(sandbox.root)}
        assert infos == [listed.get(sandbox.storage.canonical(path)) for path in paths]
        assert all(info is None or info.version is None for info in infos)

    @pytest.mark.parametrize("count", [3, 250], ids=["few", "many"])
    def test_versions_stay_until_other_bytes_are_stored(self, sandbox: Sandbox, count: int) -> None:
        paths = [f"{sandbox.root}/a/{number}" for number in range(count)]
        written = paths[1:60:20]
        for path in written:
            sandbox.storage.put_if_absent(path, b"first")
        before = versions(sandbox.storage, *paths)
        assert [path for path, version in zip(paths, before, strict=True) if version is not None] == written
        sandbox.storage.put_if_absent(f"{sandbox.root}/a/other", b"first")
        assert [sandbox.storage.read(path) for path in written] == [b"first"] * len(written)
        assert versions(sandbox.storage, *paths) == before
        time.sleep(_TICK_S)
        sandbox.storage.delete(written)
        for path in written:
            sandbox.storage.put_if_absent(path, b"other")
        after = versions(sandbox.storage, *paths)
        assert [path for path, version in zip(paths, after, strict=True) if version is not None] == written
        assert set(before) & set(after) <= {None}
        assert versions(sandbox.storage, paths[0], f"{sandbox.root}/a", f"{paths[1]}/b") == [None] * 3
        assert versions(sandbox.storage) == []
        assert sandbox.storage.stat_many(paths, versions=True) == [
            info and info._replace(version=version)
            for info, version in zip(sandbox.storage.stat_many(paths), after, strict=True)
        ]

    @pytest.mark.parametrize("second", [b"", b"second"], ids=["empty", "not empty"])
    def test_put_leaves_what_is_there_as_it_is(self, sandbox: Sandbox, second: bytes) -> None:
        path = f"{sandbox.root}/object"
        sandbox.storage.put_if_absent(path, b"first")
        with pytest.raises(FileExistsError):
            sandbox.storage.put_if_absent(path, second)
        with pytest.raises(FileExistsError):
            sandbox.storage.put_if_absent(path, b"first")
        assert sandbox.storage.read(path) == b"first"
        assert sandbox.names() == ["object"]

    @pytest.mark.parametrize("size_bytes", [0, 1, _LARGE], ids=["empty", "one byte", "several parts"])
    def test_what_was_written_in_pieces_is_seen_when_it_is_committed_and_read_back_whole(
        self, sandbox: Sandbox, size_bytes: int
    ) -> None:
        path, data = f"{sandbox.root}/a/b/object", os.urandom(size_bytes)
        with sandbox.storage.create(path) as writer:
            write_in_pieces(writer, data)
            assert (writer.size_bytes, writer.closed) == (size_bytes, False)
            assert sandbox.visible_names() == []
            assert not sandbox.has("a/b/object")
            writer.commit()
            assert sandbox.names() == ["a/b/object"]
        assert writer.closed
        assert sandbox.storage.stat(path).size_bytes == size_bytes
        assert sandbox.storage.read(path) == data
        writer.abort()
        with pytest.raises(ValueError, match="committed"):
            writer.write(b"x")
        with pytest.raises(ValueError, match="committed"):
            writer.commit()
        assert sandbox.storage.read(path) == data

    def test_any_buffer_can_be_written_and_used_again(self, sandbox: Sandbox) -> None:
        path, data = f"{sandbox.root}/object", os.urandom(_LARGE)
        buffer = bytearray(data)
        with sandbox.storage.create(path) as writer:
            assert writer.write(memoryview(buffer)) == _LARGE
            buffer[:] = bytes(_LARGE)
            assert writer.write(array("H", [1, 2])) == 4  # type: ignore[arg-type]
            assert writer.write(b"") == 0
            writer.commit()
        assert sandbox.storage.read(path) == data + array("H", [1, 2]).tobytes()

    @pytest.mark.parametrize("size_bytes", [0, 1, _LARGE], ids=["empty", "one byte", "several parts"])
    def test_of_what_is_aborted_nothing_stays(self, sandbox: Sandbox, size_bytes: int) -> None:
        path, uploads = f"{sandbox.root}/object", list[str]()
        writer = sandbox.storage.create(path, uploads.append)
        write_in_pieces(writer, os.urandom(size_bytes))
        for _ in range(2):
            writer.abort()
            assert writer.closed
            assert sandbox.names() == []
        with pytest.raises(ValueError, match="aborted"):
            writer.write(b"x")
        with pytest.raises(ValueError, match="aborted"):
            writer.commit()
        for upload_id in uploads:
            sandbox.storage.abort_upload(path, upload_id)
        data = os.urandom(size_bytes)
        with sandbox.storage.create(path) as another:
            write_in_pieces(another, data)
            another.commit()
        assert sandbox.storage.read(path) == data

    @pytest.mark.parametrize("size_bytes", [1, _LARGE], ids=["one byte", "several parts"])
    def test_who_leaves_without_a_commit_aborts(self, sandbox: Sandbox, size_bytes: int) -> None:
        path, data = f"{sandbox.root}/object", os.urandom(size_bytes)
        with sandbox.storage.create(path) as writer:
            write_in_pieces(writer, data)
        assert writer.closed
        left = sandbox.storage.create(path)

        def fail() -> None:
            with left:
                write_in_pieces(left, data)
                raise LookupError

        with pytest.raises(LookupError):
            fail()
        assert left.closed
        assert sandbox.names() == []

    @pytest.mark.parametrize("size_bytes", [0, 1, _LARGE], ids=["empty", "one byte", "several parts"])
    @pytest.mark.parametrize("came", ["before", "meanwhile"])
    def test_a_commit_leaves_what_is_there_as_it_is(
        self, sandbox: Sandbox, size_bytes: int, came: str
    ) -> None:
        path, data = f"{sandbox.root}/object", os.urandom(size_bytes)
        if came == "before":
            sandbox.storage.put_if_absent(path, b"another's")
        writer = sandbox.storage.create(path)

        def create() -> None:
            with writer:
                write_in_pieces(writer, data)
                if came == "meanwhile":
                    sandbox.storage.replace(path, b"another's")
                writer.commit()

        for _ in range(2):
            with pytest.raises(FileExistsError):
                create()
        assert sandbox.storage.read(path) == b"another's"
        assert sandbox.names() == ["object"]

    @pytest.mark.parametrize("size_bytes", [1_000, 9_000_000], ids=["1 kB", "several parts"])
    def test_of_many_that_create_one_object_piece_by_piece_one_wins(
        self, sandbox: Sandbox, size_bytes: int
    ) -> None:
        def create(number: int) -> int | None:
            with sandbox.storage.create(f"{sandbox.root}/object") as writer:
                try:
                    write_in_pieces(writer, b"%d" % number * size_bytes)
                    writer.commit()
                except FileExistsError:
                    return None
            return number

        with ThreadPoolExecutor(6) as pool:
            winners = [number for number in pool.map(create, range(6)) if number is not None]
        assert len(winners) == 1
        assert sandbox.storage.read(f"{sandbox.root}/object") == b"%d" % winners[0] * size_bytes
        assert sandbox.names() == ["object"]

    def test_what_a_process_that_died_had_written_is_removed_by_the_id_of_its_upload(
        self, sandbox: Sandbox
    ) -> None:
        path, uploads = f"{sandbox.root}/a/object", list[str]()
        left = sandbox.storage.create(path, uploads.append)
        write_in_pieces(left, os.urandom(_LARGE))
        assert len(uploads) <= 1
        for upload_id in uploads * 2:
            sandbox.storage.abort_upload(path, upload_id)
        assert sandbox.names() == []
        if uploads:
            with pytest.raises(BackendUnavailable):
                left.commit()
            assert sandbox.names() == []
        left.abort()

    @pytest.mark.parametrize("size_bytes", [1, _LARGE], ids=["one byte", "several parts"])
    def test_an_upload_that_is_committed_is_not_removed(self, sandbox: Sandbox, size_bytes: int) -> None:
        path, uploads, data = f"{sandbox.root}/object", list[str](), os.urandom(size_bytes)
        with sandbox.storage.create(path, uploads.append) as writer:
            write_in_pieces(writer, data)
            writer.commit()
        for upload_id in uploads:
            sandbox.storage.abort_upload(path, upload_id)
        assert sandbox.storage.read(path) == data

    def test_who_gets_the_id_of_an_upload_and_fails_leaves_nothing(self, sandbox: Sandbox) -> None:
        seen = list[list[str]]()

        def on_upload(_: str) -> None:
            seen.append(sandbox.names())
            raise LookupError

        path, data = f"{sandbox.root}/object", os.urandom(_LARGE)
        with sandbox.storage.create(path, on_upload) as writer:
            try:
                write_in_pieces(writer, data)
            except LookupError:
                with pytest.raises(LookupError):
                    writer.commit()
        assert seen in ([], [[]])
        assert sandbox.names() == []

    def test_a_parquet_file_is_written_to_it(self, sandbox: Sandbox) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path, rows = f"{sandbox.root}/rows.parquet", pa.table({"noise": [os.urandom(900_000)] * 10})
        with sandbox.storage.create(path) as sink:
            with pq.ParquetWriter(sink, rows.schema, use_dictionary=False) as writer:
                for _ in range(2):
                    writer.write_table(rows)
                    assert sink.tell() == sink.size_bytes > 0
            assert not sink.closed
            sink.commit()
        data = sandbox.storage.read(path)
        assert len(data) == sink.size_bytes
        assert pq.read_table(io.BytesIO(data)).equals(pa.concat_tables([rows, rows]))

    @pytest.mark.parametrize("data", [b"", b"new", os.urandom(3_000_000)], ids=["empty", "short", "3 MB"])
    def test_replacing_puts_other_bytes_in_an_objects_place_or_creates_it(
        self, sandbox: Sandbox, data: bytes
    ) -> None:
        path = f"{sandbox.root}/a/object"
        sandbox.storage.replace(path, b"the first one, which is created")
        assert sandbox.storage.read(path) == b"the first one, which is created"
        sandbox.storage.replace(path, data)
        assert sandbox.storage.read(path) == data
        assert sandbox.storage.stat(path).size_bytes == len(data)
        assert sandbox.names() == ["a/object"]

    def test_a_reader_of_what_is_being_replaced_sees_one_or_the_other_whole(self, sandbox: Sandbox) -> None:
        path = f"{sandbox.root}/object"
        contents = [b"%d" % writer * 50_000 for writer in range(8)]
        sandbox.storage.replace(path, contents[0])
        with ThreadPoolExecutor(8) as pool:
            writing = [pool.submit(sandbox.storage.replace, path, data) for data in contents[1:]]
            seen = {sandbox.storage.read(path) for _ in range(30)}
            for each in writing:
                each.result()
        assert seen <= set(contents)
        assert sandbox.storage.read(path) in contents[1:]
        assert sandbox.names() == ["object"]

    def test_of_many_that_put_one_name_one_wins(self, sandbox: Sandbox) -> None:
        def put(writer: int) -> int | None:
            try:
                sandbox.storage.put_if_absent(f"{sandbox.root}/object", b"%d" % writer * 1000)
            except FileExistsError:
                return None
            return writer

        with ThreadPoolExecutor(16) as pool:
            winners = [writer for writer in pool.map(put, range(16)) if writer is not None]
        assert len(winners) == 1
        assert sandbox.storage.read(f"{sandbox.root}/object") == b"%d" % winners[0] * 1000
        assert sandbox.names() == ["object"]

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
    def test_a_range_is_exact_except_at_the_end(
        self, sandbox: Sandbox, offset: int, length: int, expected: bytes
    ) -> None:
        path = f"{sandbox.root}/object"
        sandbox.storage.put_if_absent(path, b"0123456789")
        assert sandbox.storage.read(path, (offset, length)) == expected

    def test_a_range_of_an_empty_object_is_empty(self, sandbox: Sandbox) -> None:
        sandbox.storage.put_if_absent(f"{sandbox.root}/object", b"")
        assert sandbox.storage.read(f"{sandbox.root}/object", (0, 8)) == b""

    @pytest.mark.parametrize("name", ["absent", "no/such/folder/object", "folder", "object/below"])
    def test_what_is_no_object_is_not_found(self, sandbox: Sandbox, name: str) -> None:
        sandbox.storage.put_if_absent(f"{sandbox.root}/folder/object", b"x")
        sandbox.storage.put_if_absent(f"{sandbox.root}/object", b"x")
        path = f"{sandbox.root}/{name}"
        with pytest.raises(FileNotFoundError):
            sandbox.storage.read(path)
        with pytest.raises(FileNotFoundError):
            sandbox.storage.read(path, (0, 0))
        with pytest.raises(FileNotFoundError):
            sandbox.storage.read(path, (0, 9))
        with pytest.raises(FileNotFoundError):
            sandbox.storage.stat(path)

    def test_names_are_literal(self, sandbox: Sandbox) -> None:
        names = [name for name in _SPECIAL_NAMES if not ("\\" in name and sandbox.reads_backslash_as_slash)]
        for name in names:
            sandbox.storage.put_if_absent(f"{sandbox.root}/{name}", name.encode())
        for name in names:
            assert sandbox.storage.read(f"{sandbox.root}/{name}") == name.encode()
        assert sandbox.names() == sorted(names)
        kept = names[0]
        assert sandbox.storage.delete([f"{sandbox.root}/{name}" for name in names[1:]]) == {}
        assert sandbox.names() == [kept]

    def test_a_listing_has_every_object_below_by_path_and_none_of_a_sibling(self, sandbox: Sandbox) -> None:
        for name in ("t/b", "t/a/z", "t/a.b", "t/a", "t2/x", "t", "t-1/x", "s/x"):
            if name in ("t", "t/a") and sandbox.has_folders:
                continue  # a file and a folder of one name do not go together there
            sandbox.storage.put_if_absent(f"{sandbox.root}/{name}", name.encode())
        below = [name for name in ("t/a", "t/a.b", "t/a/z", "t/b") if sandbox.has(name)]
        assert sandbox.names("/t") == below
        assert sandbox.names("/t/") == below
        assert [info.size_bytes for info in sandbox.storage.list(f"{sandbox.root}/t")] == [
            len(name) for name in below
        ]

    def test_a_listing_of_nothing_is_empty(self, sandbox: Sandbox) -> None:
        assert sandbox.names() == []
        assert sandbox.names("/absent") == []

    def test_a_listing_goes_on_after_the_first_page(self, sandbox: Sandbox) -> None:
        names = [f"d{number:05}" for number in range(1100)]
        paths = [f"{sandbox.root}/{name}" for name in names]
        sandbox.fill(paths)
        assert sandbox.names() == names
        folders = ("_delta_log", "metadata", "metadata2")
        assert sandbox.storage.subfolders_many([sandbox.root], folders) == [frozenset()]
        sandbox.storage.put_if_absent(f"{sandbox.root}/metadata/object", b"")
        assert sandbox.storage.subfolders_many([sandbox.root], folders) == [frozenset({"metadata"})]
        assert sandbox.storage.delete([*paths[1:], f"{sandbox.root}/metadata/object"]) == {}
        assert sandbox.names() == ["d00000"]

    def test_deleting_what_is_gone_succeeds(self, sandbox: Sandbox) -> None:
        sandbox.storage.put_if_absent(f"{sandbox.root}/object", b"x")
        paths = [f"{sandbox.root}/object", f"{sandbox.root}/absent", f"{sandbox.root}/no/such/folder"]
        assert sandbox.storage.delete(paths) == {}
        assert sandbox.storage.delete(paths) == {}
        assert not sandbox.has("object")

    def test_deleting_a_folder_leaves_what_is_in_it(self, sandbox: Sandbox) -> None:
        sandbox.storage.put_if_absent(f"{sandbox.root}/folder/object", b"x")
        sandbox.storage.delete([f"{sandbox.root}/folder", f"{sandbox.root}/folder/", sandbox.root])
        assert sandbox.has("folder/object")

    def test_objects_are_deleted_under_any_spelling_and_failures_bear_the_callers(
        self, sandbox: Sandbox
    ) -> None:
        sandbox.storage.put_if_absent(f"{sandbox.root}/object", b"x")
        assert sandbox.storage.delete([f"{sandbox.other_spelling or sandbox.root}/object"]) == {}
        assert not sandbox.has("object")

    def test_a_folder_holds_what_is_at_any_depth_and_nothing_of_a_sibling(self, sandbox: Sandbox) -> None:
        sandbox.storage.put_if_absent(f"{sandbox.root}/a/b/c/object", b"x")
        sandbox.storage.put_if_absent(f"{sandbox.root}/ab", b"x")
        held = [
            sandbox.storage.holds_any(f"{sandbox.root}/{folder}")
            for folder in ("a", "a/b/", "a/b/c", "a/object")
        ]
        assert held == [True, True, True, False]
        sandbox.storage.delete([f"{sandbox.root}/a/b/c/object"])
        assert not sandbox.storage.holds_any(f"{sandbox.root}/a")
        assert not sandbox.storage.holds_any(f"{sandbox.root}/nowhere")
        assert sandbox.storage.holds_any(sandbox.root)

    def test_subfolders_come_by_their_names_and_files_and_siblings_are_none(self, sandbox: Sandbox) -> None:
        for name in (
            "a/_delta_log/0",
            "a/metadata-old/0",
            "a/metadata.x",
            "b/metadata/d/0",
            "c/metadata",
            "d/x/metadata/0",
        ):
            sandbox.storage.put_if_absent(f"{sandbox.root}/{name}", b"x")
        folders = [
            f"{sandbox.root}/{name}" for name in ("nowhere", "c", "b", "a", "b/metadata", "a/metadata.x")
        ]
        none = frozenset[str]()
        names = ("metadata", "_delta_log")
        stated = [none, none, {"metadata"}, {"_delta_log"}, none, none]
        assert sandbox.storage.subfolders_many(folders, names) == stated
        listed = {folder: list(sandbox.storage.subfolders(folder)) for folder in folders}
        assert listed == dict(
            zip(folders, ([], [], ["metadata"], ["_delta_log", "metadata-old"], ["d"], []), strict=True)
        )
        assert list(sandbox.storage.subfolders(sandbox.root)) == ["a", "b", "c", "d"]
        assert sandbox.storage.subfolders_many([folders[2]] * 70, names) == [frozenset({"metadata"})] * 70
        assert sandbox.storage.subfolders_many([], names) == []

    def test_pruning_removes_empty_folders_and_no_object(self, sandbox: Sandbox) -> None:
        sandbox.storage.put_if_absent(f"{sandbox.root}/a/b/c/object", b"x")
        sandbox.storage.put_if_absent(f"{sandbox.root}/a/d/object", b"x")
        sandbox.storage.delete([f"{sandbox.root}/a/b/c/object"])
        sandbox.storage.prune(f"{sandbox.root}/a")
        assert sandbox.names() == ["a/d/object"]
        sandbox.storage.delete([f"{sandbox.root}/a/d/object"])
        sandbox.storage.prune(f"{sandbox.root}/a")
        sandbox.storage.prune(f"{sandbox.root}/a")
        assert sandbox.names() == []
        assert not os.path.exists(f"{sandbox.root}/a")
