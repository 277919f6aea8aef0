"""Tables by file names: which version is current, and what must not be committed to.

Spec: Iceberg, "File System Tables".
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import uuid
from pathlib import Path

import pytest

from iceberg_cli.errors import Refused, TableNotFound
from iceberg_cli.iceberg.catalogs.files.committer import FilesystemCommitter
from iceberg_cli.iceberg.catalogs.folders import open_folder
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.commits import an_attempt, first_metadata, properties_of, set_property
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.paths import FIXTURES, needs_fixtures
from tests.servers import S3Server

STORAGE = open_storage()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table's metadata folder with versions 1 to 3 and no hint."""
    for version in (1, 2, 3):
        STORAGE.put_if_absent(
            f"{tmp_path}/t/metadata/v{version}.metadata.json", first_metadata(f"{tmp_path}/t")
        )
    return tmp_path / "t" / "metadata"


class Overtaken(MemoryStorage):
    """A storage in which another process deletes a file while the next one is made."""

    goes = ""

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, data)
        self.delete([self.goes])


def committer_of(folder: Path) -> FilesystemCommitter:
    return FilesystemCommitter(str(folder.parent), STORAGE)


@pytest.mark.parametrize(
    "hint",
    [
        None,
        b"",
        b"1",
        b"3\n",
        b" 2 ",
        b"9",
        b"-1",
        b"0",
        b"v3",
        b"3.0",
        b"\xff\xfe",
        b"\xc2\xb2",
        b"9" * 5000,
        b"1\n2",
    ],
    ids=repr,
)
def test_whatever_the_hint_says_the_newest_version_is_found_and_the_hint_repaired(
    folder: Path, hint: bytes | None
) -> None:
    if hint is not None:
        (folder / "version-hint.text").write_bytes(hint)
    committer = committer_of(folder)
    assert committer.current() == f"{folder}/v3.metadata.json"
    set_property(committer, STORAGE, "colour")
    assert committer.current() == f"{folder}/v4.metadata.json"
    assert (folder / "version-hint.text").read_bytes() == b"4"
    assert set(os.listdir(folder)) == {"version-hint.text", *(f"v{n}.metadata.json" for n in (1, 2, 3, 4))}


def test_versions_are_numbers_and_not_texts(folder: Path) -> None:
    for version in (9, 10):
        (folder / f"v{version}.metadata.json").write_bytes(first_metadata(str(folder.parent)))
    assert committer_of(folder).current() == f"{folder}/v10.metadata.json"


@pytest.mark.parametrize("ending", [".gz.metadata.json", ".metadata.json.gz"])
@pytest.mark.parametrize("hint", [None, b"1", b"4"])
def test_both_spellings_of_compressed_metadata_are_versions(
    folder: Path, ending: str, hint: bytes | None
) -> None:
    shutil.copy(folder / "v3.metadata.json", folder / f"v4{ending}")
    if hint is not None:
        (folder / "version-hint.text").write_bytes(hint)
    assert committer_of(folder).current() == f"{folder}/v4{ending}"
    set_property(committer_of(folder), STORAGE, "colour")
    assert committer_of(folder).current() == f"{folder}/v5.metadata.json"


def test_checksums_that_hadoop_left_do_not_fit_a_new_file_and_go(folder: Path) -> None:
    for name in (".v4.metadata.json.crc", ".version-hint.text.crc", ".v3.metadata.json.crc"):
        (folder / name).write_bytes(b"crc")
    set_property(committer_of(folder), STORAGE, "colour")
    assert [name for name in os.listdir(folder) if name.endswith(".crc")] == [".v3.metadata.json.crc"]


@pytest.mark.parametrize("temporary", ["none", "left behind"])
def test_settling_a_commit_of_a_killed_process_writes_the_hint(folder: Path, temporary: str) -> None:
    attempt = an_attempt(committer_of(folder), STORAGE, {"ours": "yes"})
    assert isinstance(committer_of(folder).commit(attempt), Committed)
    (folder / "version-hint.text").write_bytes(b"3")
    if temporary != "none":
        Path(attempt.temporary_files[0]).write_bytes(b"")
    assert isinstance(committer_of(folder).settle(attempt), Committed)
    assert (folder / "version-hint.text").read_bytes() == b"4"
    assert not Path(attempt.temporary_files[0]).exists()


def test_settling_leaves_the_hint_of_a_later_version(folder: Path) -> None:
    attempt = an_attempt(committer_of(folder), STORAGE, {"ours": "yes"})
    assert isinstance(committer_of(folder).commit(attempt), Committed)
    set_property(committer_of(folder), STORAGE, "theirs")
    assert isinstance(committer_of(folder).settle(attempt), Committed)
    assert (folder / "version-hint.text").read_bytes() == b"5"


def test_a_hint_that_cannot_be_written_does_not_matter(folder: Path) -> None:
    (folder / "version-hint.text").mkdir()
    (folder / "version-hint.text" / "in the way").touch()
    attempt = an_attempt(committer_of(folder), STORAGE, {"colour": "red"})
    assert committer_of(folder).commit(attempt) == Committed(metadata_location=f"{folder}/v4.metadata.json")
    assert sorted(name for name in os.listdir(folder) if name.startswith(".")) == []


def test_the_same_table_under_two_spellings_is_one_table(folder: Path) -> None:
    plain, uri = committer_of(folder), FilesystemCommitter(f"file://{folder.parent}//./", STORAGE)
    attempt = an_attempt(uri, STORAGE, {"ours": "yes"})
    set_property(plain, STORAGE, "theirs")
    assert isinstance(uri.commit(attempt), Conflict)
    set_property(uri, STORAGE, "ours")
    assert properties_of(STORAGE, plain) == {"theirs": "yes", "ours": "yes"}


def test_where_old_versions_were_deleted_a_free_name_is_not_the_next_version(folder: Path) -> None:
    committer = committer_of(folder)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    for number in range(3):
        set_property(committer_of(folder), STORAGE, f"theirs{number}")
    (folder / "v4.metadata.json").unlink()
    assert isinstance(committer_of(folder).commit(dataclasses.replace(attempt, fresh=False)), Unknown)
    assert isinstance(committer.commit(attempt), Conflict)
    assert not (folder / "v4.metadata.json").exists()
    assert committer.current() == f"{folder}/v6.metadata.json"


def test_the_next_version_under_another_spelling_is_a_conflict(folder: Path) -> None:
    committer = committer_of(folder)
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"}, fresh=False)
    shutil.copy(folder / "v3.metadata.json", folder / "v4.gz.metadata.json")
    assert isinstance(committer.commit(attempt), Conflict)
    assert not (folder / "v4.metadata.json").exists()


def test_a_folder_with_a_catalogs_files_is_shown_and_not_committed_to(tmp_path: Path) -> None:
    metadata = tmp_path / "t" / "metadata"
    metadata.mkdir(parents=True)
    for number in (0, 9, 10):
        (metadata / f"{number:05}-{uuid.uuid4()}.metadata.json").write_bytes(first_metadata(f"{tmp_path}/t"))
    committer = FilesystemCommitter(f"{tmp_path}/t", STORAGE)
    assert committer.current().removeprefix(f"{metadata}/").startswith("00010-")
    assert "catalog" in str(committer.read_only_reason())
    with pytest.raises(Refused, match="catalog"):
        an_attempt(committer, STORAGE, {"colour": "red"})


def test_of_two_catalog_files_with_one_number_the_later_is_shown(tmp_path: Path) -> None:
    metadata = tmp_path / "t" / "metadata"
    metadata.mkdir(parents=True)
    names = [f"00003-{uuid.uuid4()}.gz.metadata.json" for _ in range(4)]
    for age, name in enumerate(names):
        (metadata / name).write_bytes(first_metadata(f"{tmp_path}/t"))
        os.utime(metadata / name, (1_700_000_000 - age, 1_700_000_000 - age))
    assert FilesystemCommitter(f"{tmp_path}/t", STORAGE).current() == f"{metadata}/{names[0]}"


def test_versions_beside_a_catalogs_files_are_not_committed_to(folder: Path) -> None:
    name = f"00004-{uuid.uuid4()}.metadata.json"
    (folder / name).write_bytes(first_metadata(str(folder.parent)))
    assert name in str(committer_of(folder).read_only_reason())


def test_an_operation_is_closed_unfinished_where_no_catalog_decides(folder: Path) -> None:
    committer = committer_of(folder)
    assert committer.closing_refusal() is None
    name = f"00004-{uuid.uuid4()}.metadata.json"
    (folder / name).write_bytes(first_metadata(str(folder.parent)))
    assert name in str(committer.closing_refusal())
    for version in (1, 2, 3):
        (folder / f"v{version}.metadata.json").unlink()
    assert "belongs to a catalog" in str(committer.closing_refusal())


def test_a_version_whose_base_went_while_it_was_made_has_no_known_outcome() -> None:
    storage = Overtaken()
    storage.put_if_absent("/t/metadata/v1.metadata.json", first_metadata("/t"))
    committer = FilesystemCommitter("/t", storage)
    attempt = an_attempt(committer, storage, {"ours": "yes"})
    storage.goes = attempt.base
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Unknown)
    assert "went while the version after it was made" in outcome.cause


def test_no_request_is_late_where_the_versions_file_is_there(folder: Path) -> None:
    assert not committer_of(folder).takes_late_requests()
    assert not open_folder("s3://bucket/t", MemoryStorage()).takes_late_requests()


def test_file_names_alone_tell_what_is_current(folder: Path) -> None:
    for path in (folder.parent, folder / "v2.metadata.json"):
        assert open_folder(str(path), STORAGE).by_file_names


def test_a_temporary_file_of_javas_is_no_version_and_no_catalogs(folder: Path) -> None:
    (folder / "12345678-1234-1234-1234-123456789012.metadata.json").write_bytes(b"half")
    committer = committer_of(folder)
    assert committer.read_only_reason() is None
    assert committer.current() == f"{folder}/v3.metadata.json"


@pytest.mark.parametrize(
    "content", ["nothing", "an empty metadata folder", "a manifest", "a file in the folder's place"]
)
def test_what_has_no_metadata_file_is_not_found(tmp_path: Path, content: str) -> None:
    match content:
        case "an empty metadata folder":
            (tmp_path / "t" / "metadata").mkdir(parents=True)
        case "a manifest":
            STORAGE.put_if_absent(f"{tmp_path}/t/metadata/x-m0.avro", b"")
            STORAGE.put_if_absent(f"{tmp_path}/t/metadata/deeper/v1.metadata.json", b"")
        case "a file in the folder's place":
            (tmp_path / "t").touch()
    with pytest.raises(TableNotFound):
        open_folder(f"{tmp_path}/t", STORAGE).current()


def test_one_metadata_file_can_be_read_and_not_followed(folder: Path) -> None:
    pinned = open_folder(f"file:{folder}/v2.metadata.json", STORAGE)
    assert pinned.current() == f"{folder}/v2.metadata.json"
    assert "one metadata file" in str(pinned.read_only_reason())
    with pytest.raises(Refused):
        an_attempt(pinned, STORAGE, {"colour": "red"})
    with pytest.raises(TableNotFound):
        open_folder(f"{folder}/v9.metadata.json", STORAGE).current()


def test_a_folder_in_an_object_store_is_shown_and_not_committed_to(moto_server: S3Server) -> None:
    storage = open_storage(moto_server.options)
    location = f"s3a://{moto_server.bucket}/{uuid.uuid4()}/t"
    for version in (1, 2):
        storage.put_if_absent(f"{location}/metadata/v{version}.metadata.json", first_metadata(location))
    storage.put_if_absent(f"{location}/metadata/version-hint.text", b"1")
    with pytest.raises(ValueError, match="in no local folder"):
        FilesystemCommitter(f"{location}/", storage)
    committer = open_folder(f"{location}/", storage)
    assert committer.current() == f"{location.replace('s3a', 's3')}/metadata/v2.metadata.json"
    assert "object store" in str(committer.read_only_reason())
    with pytest.raises(Refused, match="catalog"):
        an_attempt(committer, storage, {"colour": "red"})


@needs_fixtures
@pytest.mark.parametrize(
    ("table", "name", "read_only"),
    [
        ("03-iceberg-v3-deletion-vectors", "v3.metadata.json", False),  # its hint is empty
        ("04-iceberg-v3-default-values", "v4.metadata.json", False),
        ("05-iceberg-v2-equality-deletes", "v5.metadata.json", False),
        ("07-iceberg-v1-v2-lineitem-versioned/tables-v1/lineitem_versioned", "v2.metadata.json", False),
        (
            "16-iceberg-v3-java-row-lineage/orders",
            "00010-8af5b660-2b0e-4876-832c-64341aced511.metadata.json",
            True,
        ),
        (
            "21-iceberg-java-statistics-and-gzip-metadata/stock",
            "00011-667f81fe-7d72-4876-a695-78f3628e266d.gz.metadata.json",
            True,
        ),
    ],
)
def test_tables_of_other_engines_are_opened_at_their_newest_version(
    table: str, name: str, read_only: bool
) -> None:
    committer = FilesystemCommitter(str(FIXTURES / table), STORAGE)
    assert committer.current().rpartition("/")[2] == name
    assert (committer.read_only_reason() is not None) == read_only
