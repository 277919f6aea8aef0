"""One suite for every committer: what `Committed`, `Conflict` and `Unknown` promise, and that no commit is lost."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from iceberg_cli.errors import InvalidMetadata, TableNotFound
from iceberg_cli.operation.outcomes import Unknown
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.catalogs import CatalogConformance
from iceberg_cli.testing.conformance.commits import an_attempt, properties_of, set_property
from iceberg_cli.testing.conformance.rewriting import RewritingConformance
from iceberg_cli.testing.memory_catalog import MemoryCatalog
from tests.budget import FULL, deep_unless
from tests.conformance.catalogs import Catalog, execute, make_table
from tests.conformance.racing import race
from tests.emulators import ObjectStore
from tests.glue_front import GlueFront
from tests.hive_server import HiveMetastore
from tests.servers import S3Server

KINDS = ["filesystem", "sqlite V1", "sqlite V0", "sqlite on S3", "postgresql", "mariadb", "glue", "memory"]
ON_S3 = ["sqlite on S3", "file names on S3"]
IN_STORES = ["file names on GCS", "file names on Azure"]
DATABASES = {"postgresql": "postgres_database", "mariadb": "mariadb_database"}
SERVERS = [*DATABASES]
# Of the first, what opens them takes long; of Hive the server takes half a minute to start.
SLOW = ["glue", "hive", "hive without locks"]
# Without locks answers are judged by the same code: the races have both, the conformance tests with FULL_SUITES=1.
OF_HIVE = SLOW[1:] if FULL else SLOW[1:2]
RACED = ["filesystem", "sqlite V1", *ON_S3, *IN_STORES, *SERVERS, *SLOW]
STORAGE = open_storage()


def a_catalog(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Catalog:
    folder = f"{tmp_path}/wh/t"
    match kind.split():
        case ["filesystem"]:
            return Catalog(kind="filesystem", folder=folder)
        case ["memory"]:
            return Catalog(kind="memory", folder=folder, memory=MemoryCatalog())
        case ["glue"]:
            front: GlueFront = request.getfixturevalue("glue_service")
            return Catalog(kind="glue", folder=folder, uri=front.endpoint)
        case [("postgresql" | "mariadb") as server]:
            return Catalog(kind="sql", folder=folder, uri=request.getfixturevalue(DATABASES[server]))
        case ["hive", *unlocked]:
            hive: HiveMetastore = request.getfixturevalue("hive")
            database = hive.database()
            properties = {"iceberg.engine.hive.lock-enabled": "false"} if unlocked else None
            return Catalog(kind="hive", folder=folder, uri=hive.uri, database=database, properties=properties)
        case ["file", "names", "on", "S3"]:
            service: S3Server = request.getfixturevalue("versitygw")
            folder = f"s3://{service.bucket}/{uuid.uuid4()}/t"
            return Catalog(kind="filesystem", folder=folder, options=service.options)
        case ["file", "names", "on", where]:
            store: ObjectStore = request.getfixturevalue({"GCS": "fake_gcs", "Azure": "azurite"}[where])
            return Catalog(kind="filesystem", folder=f"{store.new_folder()}/t", options=store.options)
        case ["sqlite", "on", "S3"]:
            (tmp_path / "catalog.db").touch()
            server: S3Server = request.getfixturevalue("versitygw")
            return Catalog(
                kind="sql",
                folder=f"s3://{server.bucket}/{uuid.uuid4()}/t",
                uri=f"sqlite:///{tmp_path}/catalog.db",
                options=server.options,
            )
        case _:
            (tmp_path / "catalog.db").touch()
            return Catalog(kind="sql", folder=folder, uri=f"sqlite:///{tmp_path}/catalog.db")


@pytest.fixture(
    params=deep_unless([kind for kind in KINDS if kind not in SLOW], [*KINDS, *OF_HIVE, *IN_STORES])
)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    kind = request.param
    return make_table(a_catalog(kind, tmp_path, request), schema="V0" if kind.endswith("V0") else "V1")


@pytest.mark.few(0.4)
class TestCatalogs(CatalogConformance):
    """Every sentence about catalogs, on every catalog."""


@pytest.mark.few(2)
class TestRewriting(RewritingConformance):
    """Every sentence about rows that are rewritten, on every catalog."""


# One writer


def test_versions_follow_each_other_in_names(catalog: Catalog) -> None:
    committer = catalog.open()
    for number in range(3):
        set_property(committer, catalog.storage, f"p{number}")
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
        an_attempt(catalog.open(), STORAGE, {"colour": "red"})
    assert os.listdir(f"{catalog.folder}/metadata") == before


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


# Lost answers


def test_a_table_that_was_dropped_meanwhile_says_nothing_about_an_earlier_try(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = make_table(a_catalog("sqlite V1", tmp_path, request))
    committer = catalog.open()
    attempt = an_attempt(committer, STORAGE, {"ours": "yes"})
    execute(catalog.uri, "DELETE FROM iceberg_tables")
    assert isinstance(committer.settle(attempt), Unknown)
    assert isinstance(committer.commit(dataclasses.replace(attempt, fresh=False)), Unknown)
    with pytest.raises(TableNotFound):
        catalog.open().commit(attempt)


# Many writers


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [kind for kind in RACED if kind not in (*ON_S3, *IN_STORES, *SLOW)])
def test_racing_writers_lose_no_commit(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    conflicts = race(make_table(a_catalog(kind, tmp_path, request)), writers=8, commits=5)
    assert conflicts > 0


@pytest.mark.deep
@pytest.mark.parametrize("kind", RACED)
def test_many_racing_writers_lose_no_commit(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    some = 2 if kind in (*IN_STORES, *SLOW) else 10 if kind in (*ON_S3, *SERVERS) else 40
    commits = 40 if FULL else some
    assert race(make_table(a_catalog(kind, tmp_path, request)), writers=16, commits=commits) > 0


@pytest.mark.parametrize(("writers", "commits"), [(8, 5), pytest.param(16, 40, marks=pytest.mark.deep)])
def test_racing_threads_lose_no_commit_in_memory(
    writers: int, commits: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = make_table(a_catalog("memory", tmp_path, request))

    def write(writer: int) -> list[str]:
        committer, names = catalog.open(), [f"w{writer}.{number}" for number in range(commits)]
        for name in names:
            set_property(committer, STORAGE, name)
        return names

    with ThreadPoolExecutor(writers) as pool:
        acknowledged = [name for names in pool.map(write, range(writers)) for name in names]
    assert len(acknowledged) == writers * commits
    assert sorted(properties_of(STORAGE, catalog.open())) == sorted(acknowledged)
