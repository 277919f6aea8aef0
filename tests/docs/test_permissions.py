"""The table of permissions.md is what commands need, by their requests, and its policies are enough and no more."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from iceberg_cli.errors import AccessDenied
from iceberg_cli.storage import Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.storage.router import open_storage
from tests.cli.command_names import COMMANDS
from tests.cli.running import iceberg_cli
from tests.conformance.catalogs import V0, V1_COLUMN
from tests.docs.pages import blocks
from tests.docs.permissions import (
    DELTA,
    DRY_RUN,
    ICEBERG,
    PAGE,
    Kind,
    Needs,
    Recorder,
    cells,
    listed,
    of_azure,
    of_gcs,
    of_s3,
    with_column,
    write_delta,
    write_iceberg,
    write_rows,
)
from tests.emulators import ObjectStore
from tests.glue_front import GlueFront
from tests.rest_servers import configuration_of
from tests.s3_front import Request, s3_front
from tests.s3_users import GuardedS3
from tests.servers import Versitygw

IN_STORES = {"Google Cloud Storage": ("fake_gcs", of_gcs), "Azure": ("azurite", of_azure)}
ELSEWHERE = {"demo", "policy", "config", "completion"}  # what they need is of this machine
# Named as catalogs name it.
METADATA = "00001-0d8b4a3f-2d5c-4a6e-9a55-0e6d2a1c7b90.metadata.json"


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@contextmanager
def recording(
    endpoint: str,
    options_at: Callable[[str], Mapping[str, str]],
    action: Callable[[Request], frozenset[str]],
    folder: Path,
) -> Iterator[Recorder]:
    """A recorder of requests to a service.

    Args:
        endpoint: of the service.
        options_at: the options of a storage whose requests go to a URL.
        action: what a request needs.
        folder: for the recorder.
    """
    with s3_front(endpoint, {}) as front:

        @contextmanager
        def watch() -> Iterator[set[str]]:
            front.requests.clear()
            needed = set[str]()
            yield needed
            needed.update(*map(action, front.requests))

        yield Recorder(watch=watch, options=words_of(options_at(front.endpoint)), folder=folder)


def words_of(options: Mapping[str, str]) -> list[str]:
    """The options of a storage on the command line."""
    return [f"--storage-option={name}={value}" for name, value in options.items()]


def new_table(
    storage: Storage, root: str, write: Callable[[Storage, str], object]
) -> Callable[[], tuple[str, str]]:
    """Makes tables, each alone in a folder; gives its name and a pattern."""

    def make() -> tuple[str, str]:
        folder = f"{root}/{uuid.uuid4()}"
        write(storage, f"{folder}/t")
        time.sleep(0.002)  # a file of the millisecond from which a command counts ages is too young to go
        return f"{folder}/t", f"{folder}/*"

    return make


def compare(request: pytest.FixtureRequest, column: str, needs: Needs, *, kind: Kind = ICEBERG) -> None:
    """Hold a column of the page against what was recorded of tables of a format, or write it anew."""
    if request.config.getoption("--regenerate"):
        PAGE.write_text(with_column(page(), column, needs), encoding="utf-8")
    lacking = {*ICEBERG.verbs, *ICEBERG.of_rows} - {*kind.verbs, *kind.of_rows}
    assert {row: actions for row, actions in listed(column).items() if row not in lacking} == needs


def test_every_command_that_opens_tables_has_a_row() -> None:
    rows = {name for name in COMMANDS if name not in ELSEWHERE} | {DRY_RUN.strip("`")}
    for column in cells(page()).values():
        assert column.keys() - {DRY_RUN} == rows - {DRY_RUN.strip("`")}


@pytest.mark.deep
@pytest.mark.parametrize("kind", [ICEBERG, DELTA], ids=lambda kind: kind.name)
@pytest.mark.parametrize("column", ["S3", *IN_STORES])
def test_page_lists_what_commands_need_of_a_store(
    column: str, kind: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if column == "S3":
        s3: Versitygw = request.getfixturevalue("versitygw")
        service, storage, root, action = s3.endpoint, s3.storage, f"s3://{s3.bucket}/{tmp_path.name}", of_s3

        def options_at(endpoint: str) -> Mapping[str, str]:
            return {**s3.options, "endpoint_url": endpoint}
    else:
        fixture, action = IN_STORES[column]
        store: ObjectStore = request.getfixturevalue(fixture)
        service, storage, root, options_at = (
            store.endpoint,
            store.storage,
            store.new_folder(),
            store.options_at,
        )
    with recording(service, options_at, action, tmp_path) as recorder:
        recorder.record(
            kind,
            new_table(storage, root, write_iceberg if kind is ICEBERG else write_delta),
            new_table(storage, root, write_rows),
        )
    compare(request, column, recorder.needs, kind=kind)


@pytest.mark.deep
def test_page_lists_what_commands_need_of_glue(
    glue: GlueFront, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = tmp_path / "catalogs.yaml"
    config.write_text(configuration_of("lake", glue.properties()), encoding="utf-8")

    @contextmanager
    def watch() -> Iterator[set[str]]:
        glue.calls.clear()
        needed = set[str]()
        yield needed
        needed.update(operation for operation, _ in glue.calls)

    def make(write: Callable[..., str]) -> tuple[str, str]:
        database = f"db_{uuid.uuid4().hex}"
        location = write(LocalStorage(), f"{tmp_path}/{database}/t", name=METADATA)
        client = glue.client()
        client.create_database(DatabaseInput={"Name": database})
        parameters = {"table_type": "ICEBERG", "metadata_location": location}
        client.create_table(DatabaseName=database, TableInput={"Name": "t", "Parameters": parameters})
        return f"lake.{database}.t", f"lake.{database}"

    @contextmanager
    def lose() -> Iterator[int]:
        glue.answers["UpdateTable"] = None
        yield 13
        del glue.answers["UpdateTable"]

    recorder = Recorder(watch=watch, options=["--catalog-config", str(config)], folder=tmp_path, lose=lose)
    recorder.record(ICEBERG, partial(make, write_iceberg), partial(make, write_rows))
    compare(request, "Glue", recorder.needs)


@pytest.mark.deep
@pytest.mark.parametrize("schema", ["V0", "V1"])
def test_page_lists_what_commands_need_of_postgresql(
    schema: str, postgres_database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri = sa.make_url(postgres_database).set(username="maintainer").render_as_string(hide_password=False)
    config = tmp_path / "catalogs.yaml"
    config.write_text(configuration_of("lake", {"type": "sql", "uri": uri}), encoding="utf-8")
    owner = sa.create_engine(postgres_database, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    [grants] = [block.text for block in blocks(page(), "sql")]

    def make(write: Callable[..., str]) -> tuple[str, str]:
        namespace = f"n{uuid.uuid4().hex}"
        location = write(LocalStorage(), f"{tmp_path}/{namespace}/t", name=METADATA)
        columns = "catalog_name, table_namespace, table_name, metadata_location"
        row = f"INSERT INTO iceberg_tables ({columns}) VALUES ('lake', '{namespace}', 't', '{location}')"
        execute(owner, row)
        return f"lake.{namespace}.t", f"lake.{namespace}"

    @contextmanager
    def lose() -> Iterator[int]:
        execute(
            owner,
            "REVOKE ALL ON iceberg_tables FROM maintainer",
            "GRANT SELECT ON iceberg_tables TO maintainer",
        )
        yield 16
        execute(owner, grants)

    execute(owner, V0, *([V1_COLUMN] if schema == "V1" else []), "CREATE ROLE maintainer LOGIN", grants)
    try:
        options = ["--catalog-config", str(config)]
        recorder = Recorder(watch=statements_of("maintainer"), options=options, folder=tmp_path, lose=lose)
        recorder.record(ICEBERG, partial(make, write_iceberg), partial(make, write_rows))
    finally:
        execute(owner, "DROP OWNED BY maintainer", "DROP ROLE maintainer")
    compare(request, "PostgreSQL", recorder.needs)


def execute(engine: sa.Engine, *statements: str) -> None:
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def statements_of(user: str) -> Callable[[], AbstractContextManager[set[str]]]:
    """What collects the privileges that a user's statements need on the catalog's table."""

    @contextmanager
    def watch() -> Iterator[set[str]]:
        needed = set[str]()

        def note(connection: sa.Connection, _cursor: Any, statement: str, *_: Any) -> None:
            if connection.engine.url.username == user and "iceberg_tables" in statement:
                needed.add(statement.split(maxsplit=1)[0])
                needed.update({"UPDATE"} if "FOR UPDATE" in statement else ())

        sa.event.listen(sa.Engine, "before_cursor_execute", note)
        try:
            yield needed
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", note)

    return watch


@pytest.mark.deep
def test_policies_of_the_page_let_a_user_do_what_it_says_and_no_more(guarded_s3: GuardedS3) -> None:
    looking, writing, everything = (block.text for block in blocks(page(), "json"))
    bucket = guarded_s3.new_bucket("two")
    options = words_of(guarded_s3.options_of("one"))
    storage = open_storage(guarded_s3.options)
    table, among = new_table(storage, f"s3://{bucket}/warehouse", write_iceberg)()
    elsewhere, _ = new_table(storage, f"s3://{bucket}/other", write_iceberg)()

    def allow(policy: str) -> None:
        document = json.loads(policy.replace("my-bucket", bucket))
        for statement in document["Statement"]:
            statement["Principal"] = {"AWS": ["one"]}
        guarded_s3.client().put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))

    def run(verb: str, of: str = table, words: Sequence[str] = options) -> int:
        own = {**ICEBERG.verbs, **ICEBERG.of_rows}[verb]
        return iceberg_cli(verb, of, *own, *ICEBERG.vouched, "--yes", *words).code

    allow(looking)
    for words in (("list", among), ("survey", among), ("inspect", table), ("plan", table)):
        assert iceberg_cli(*words, *options).code == 0, words
    before = set(storage.paths(table))
    assert (run("expire-snapshots"), run("rewrite-manifests")) == (16, 16)
    assert set(storage.paths(table)) == before
    assert iceberg_cli("inspect", elsewhere, *options).code == 16
    allow(writing)
    assert (run("rewrite-manifests"), run("expire-snapshots")) == (0, 16)
    after = set(storage.paths(table))
    assert after > before
    assert not [path for path in after if "_iceberg_cli/ops" in path]
    of_rows, _ = new_table(storage, f"s3://{bucket}/warehouse", write_rows)()
    before = set(storage.paths(of_rows))
    with s3_front(guarded_s3.endpoint, {}) as front:
        through = words_of({**guarded_s3.options_of("one"), "s3.endpoint": front.endpoint})
        assert run("rewrite-data-files", of_rows, through) == 0
        assert any("partNumber=" in each.path for each in front.requests)
    assert set(storage.paths(of_rows)) > before
    assert not [path for path in storage.paths(of_rows) if "_iceberg_cli/ops" in path]
    allow(everything)
    assert run("expire-snapshots") == 0
    gone = after - set(storage.paths(table))
    assert f"{table}/data/c.parquet" in gone
    assert not [path for path in storage.paths(table) if "_iceberg_cli/ops" in path]
    assert run("expire-snapshots", elsewhere) == 16


@pytest.mark.deep
def test_to_remove_what_was_uploaded_in_parts_takes_what_the_last_policy_has(guarded_s3: GuardedS3) -> None:
    _, writing, everything = (block.text for block in blocks(page(), "json"))
    bucket, data = guarded_s3.new_bucket("two"), bytes(9 << 20)
    for policy, may_abort in ((writing, False), (everything, True)):
        document = json.loads(policy.replace("my-bucket", bucket))
        for statement in document["Statement"]:
            statement["Principal"] = {"AWS": ["one"]}
        guarded_s3.client().put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))
        with s3_front(guarded_s3.endpoint, {}) as front:
            storage = open_storage({**guarded_s3.options_of("one"), "s3.endpoint": front.endpoint})
            path = f"s3://{bucket}/warehouse/{may_abort}"
            with storage.create(path) as writer:
                writer.write(data)
                writer.commit()
            assert storage.stat(path).size_bytes == len(data)
            assert {action for each in front.requests for action in of_s3(each)} == {"PutObject", "GetObject"}
            writer = storage.create(f"{path}-2")
            writer.write(data)
            with nullcontext() if may_abort else pytest.raises(AccessDenied):
                writer.abort()
            assert of_s3(front.requests[-1]) == {"AbortMultipartUpload"}
