"""REST catalogs on Iceberg's reference server: what is sent, and what is concluded from answers that get lost."""

from __future__ import annotations

import dataclasses
import json
import pickle
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import OAuthError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from iceberg_cli.errors import (
    AccessDenied,
    BackendUnavailable,
    Refused,
    TableNotFound,
    UsageError,
)
from iceberg_cli.iceberg.catalogs.registry import Catalogs, open_catalog_table
from iceberg_cli.iceberg.catalogs.rest import client as rest_client
from iceberg_cli.iceberg.catalogs.rest import connection as rest_connection
from iceberg_cli.iceberg.catalogs.rest.committer import RestCommitter
from iceberg_cli.iceberg.commit.update import (
    AddSnapshot,
    Commit,
    RemoveSnapshots,
    SetProperties,
    SetSnapshotRef,
    TableUpdate,
    requirements_for,
)
from iceberg_cli.operation.outcomes import Attempt, Committed, Conflict, Outcome, Unknown
from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.conformance.catalogs import CatalogConformance, CatalogUnderTest
from iceberg_cli.testing.conformance.commits import load
from iceberg_cli.testing.conformance.faults import Killed, PutFault
from iceberg_cli.testing.conformance.rewriting import RewritingConformance
from tests.budget import FULL
from tests.cli.running import iceberg_cli
from tests.database_proxy import jdbc_url_of_postgresql
from tests.paths import besides_history
from tests.rest_servers import (
    DRIVERS,
    Fate,
    Front,
    configuration_of,
    pyiceberg_options_of,
    rest_server_over,
    table_of_integers,
    warehouse_on,
)
from tests.servers import Versitygw

STORAGE = open_storage()
MARK = "iceberg-cli.operation-id"
KINDS = ("a snapshot", "an expiry")


@dataclasses.dataclass
class Lake:
    """A table of three snapshots behind a front of the server, and PyIceberg's client, which does not go through it."""

    front: Front
    theirs: RestCatalog
    namespace: str
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the storage
    properties: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # of the catalog, beside its `uri`

    def open(self) -> RestCommitter:
        properties = {"uri": self.front.uri, **self.properties}
        return RestCommitter("prod", (self.namespace, "inner"), "t", properties, self.options)

    @cached_property
    def storage(self) -> Storage:
        return open_storage(self.options)

    @property
    def table(self) -> Table:
        return self.theirs.load_table((self.namespace, "inner", "t"))

    def append(self) -> None:
        self.table.append(pa.table({"i": [1]}))

    def set_property(self, name: str) -> None:
        with self.table.transaction() as transaction:
            transaction.set_properties({name: "theirs"})

    def attempt(self, kind: str = "an expiry", *, fresh: bool = True) -> Attempt:
        """Of a commit that adds a snapshot, or that removes the oldest one."""
        return dataclasses.replace(attempt_of(self.open(), self.storage, kind), fresh=fresh)


def attempt_of(committer: RestCommitter, storage: Storage, kind: str, *, branch: str = "main") -> Attempt:
    """See `Lake.attempt`: by a committer of the table; a snapshot is one of this branch."""
    location = committer.current()
    base = load(storage, location)
    head = base.snapshot(base.refs[branch].snapshot_id)
    assert head is not None
    updates: tuple[TableUpdate, ...] = (RemoveSnapshots(snapshot_ids=(base.snapshots[0].snapshot_id,)),)
    if kind == "a snapshot":
        new = dataclasses.replace(
            head,
            snapshot_id=uuid.uuid4().int & (1 << 62) - 1,
            parent_snapshot_id=head.snapshot_id,
            sequence_number=base.last_sequence_number + 1,
            timestamp_ms=base.last_updated_ms + 1,
            first_row_id=base.next_row_id if base.format_version > 2 else None,
            added_rows=0 if base.format_version > 2 else None,
        )
        updates = (
            AddSnapshot(snapshot=new),
            SetSnapshotRef(ref_name=branch, type="branch", snapshot_id=new.snapshot_id),
        )
    commit = Commit(
        updates=updates,
        requirements=requirements_for(updates, base),
        base=base,
        timestamp_ms=int(time.time() * 1000),  # noqa: TID251  (a test is a shell)
        commit_uuid=str(uuid.uuid4()),
    )
    return dataclasses.replace(committer.prepare(commit, base_location=location), fresh=True)


@contextmanager
def a_lake(
    server: str, location: str | None, options: Mapping[str, str], properties: Mapping[str, str] | None = None
) -> Iterator[Lake]:
    """A table that PyIceberg makes.

    Args:
        server: its URI.
        location: of the table, or None: the catalog decides.
        options: of its storage.
        properties: more of the catalog's.
    """
    namespace, properties = f"n{uuid.uuid4().hex}", properties or {}
    theirs = table_of_integers(server, (namespace, "inner"), location, range(3), {**options, **properties})
    with Front(server) as front:
        yield Lake(front, theirs, namespace, options, properties)


@pytest.fixture
def lake(rest_server: str, tmp_path: Path) -> Iterator[Lake]:
    with a_lake(rest_server, f"file://{tmp_path}/t", {}) as made:
        yield made


@pytest.fixture
def lake_on_s3(postgres_database: str, versitygw: Versitygw) -> Iterator[Lake]:
    """The same on S3, in a catalog over PostgreSQL."""
    with (
        jdbc_url_of_postgresql(postgres_database) as database,
        rest_server_over(database, DRIVERS, s3=versitygw) as uri,
        a_lake(uri, f"{warehouse_on(versitygw)}/{uuid.uuid4()}", pyiceberg_options_of(versitygw)) as made,
    ):
        yield made


@pytest.fixture(params=["lake", pytest.param("lake_on_s3", marks=pytest.mark.deep)])
def either_lake(request: pytest.FixtureRequest) -> Lake:
    made: Lake = request.getfixturevalue(request.param)
    return made


def shows(lake: Lake, attempt: Attempt) -> bool:
    """Whether the table as PyIceberg reads it has what a commit does."""
    (update, *_) = attempt.commit.updates
    ids = {each.snapshot_id for each in lake.table.metadata.snapshots}
    if isinstance(update, AddSnapshot):
        return update.snapshot.snapshot_id in ids
    assert isinstance(update, RemoveSnapshots)
    return not ids & set(update.snapshot_ids)


# What is sent


def test_a_commit_is_one_request_of_updates_and_requirements_for_every_ref(lake: Lake) -> None:
    lake.table.manage_snapshots().create_tag(lake.table.metadata.snapshots[1].snapshot_id, "kept").commit()
    metadata = lake.table.metadata
    attempt, committer = lake.attempt(), lake.open()
    lake.front.requests.clear()
    outcome = committer.commit(attempt)
    assert outcome == Committed(metadata_location=lake.table.metadata_location)
    assert [method for method, _ in lake.front.requests] == ["GET", "POST"]
    (sent,) = map(json.loads, lake.front.bodies)
    sent["requirements"].sort(key=lambda each: str(each.get("ref", "")))
    assert sent == {
        "identifier": {"namespace": [lake.namespace, "inner"], "name": "t"},
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
            {
                "type": "assert-ref-snapshot-id",
                "ref": "kept",
                "snapshot-id": metadata.snapshots[1].snapshot_id,
            },
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": metadata.current_snapshot_id},
        ],
        "updates": [
            {"action": "remove-snapshots", "snapshot-ids": [metadata.snapshots[0].snapshot_id]},
            {"action": "set-properties", "updates": {MARK: attempt.commit.commit_uuid}},
        ],
    }
    assert shows(lake, attempt)
    assert lake.table.properties[MARK] == attempt.commit.commit_uuid


def test_a_table_without_main_asserts_that_there_is_none(lake: Lake, tmp_path: Path) -> None:
    name = (lake.namespace, "inner", "empty")
    lake.theirs.create_table(name, pa.schema([("i", pa.int64())]), location=f"file://{tmp_path}/empty")
    committer = RestCommitter("prod", name[:2], "empty", {"uri": lake.front.uri}, {})
    base = load(STORAGE, committer.current())
    commit = Commit(
        updates=(SetProperties(updates={"colour": "red"}),),
        requirements=requirements_for((), base),
        base=base,
        timestamp_ms=1,
        commit_uuid=str(uuid.uuid4()),
    )
    attempt = committer.prepare(commit, base_location=committer.current())
    assert {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None} in json.loads(attempt.data)[
        "requirements"
    ]
    lake.theirs.load_table(name).append(pa.table({"i": [1]}))
    assert isinstance(committer.commit(dataclasses.replace(attempt, fresh=True)), Conflict)


def test_every_snapshot_is_asked_for(lake: Lake) -> None:
    lake.open()
    (path,) = {path for method, path in lake.front.requests if "/tables/" in path}
    assert path.endswith("/tables/t?snapshots=all")


def test_the_request_does_not_depend_on_when_it_is_made(lake: Lake) -> None:
    attempt = lake.attempt()
    assert isinstance(attempt.commit, Commit)
    again = lake.open().prepare(attempt.commit, base_location=attempt.base)
    assert dataclasses.replace(again, fresh=True) == attempt
    assert attempt.target is None


# What is concluded


LOST = ("lost before", "lost after", "reset before", "reset after", "slow before", "slow after", "500 after")
# Where an answer is slow, a client waits for it: so always with one kind of commit, with the other as a deep test.
LOST_OF_EACH_KIND = [
    pytest.param(kind, fate, marks=pytest.mark.deep if fate.startswith("slow") and kind != KINDS[-1] else ())
    for kind in KINDS
    for fate in LOST
]


@pytest.mark.pairs
@pytest.mark.parametrize(("kind", "fate"), LOST_OF_EACH_KIND)
@pytest.mark.parametrize("others", ["nothing", "a property", "a snapshot"])
def test_an_answer_that_is_lost_is_judged_by_what_the_table_shows(
    lake: Lake, kind: str, fate: Fate, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, committer = lake.attempt(kind), lake.open()
    if fate.startswith("slow"):
        monkeypatch.setattr(rest_connection, "_WAITS", (5, 1))
    lake.front.fates.append(fate)
    first = committer.commit(attempt)
    happened = fate.endswith("after")
    assert isinstance(first, Committed if happened else Unknown)
    assert shows(lake, attempt) is happened
    if others == "a property":
        lake.set_property("colour")
    if others == "a snapshot":
        lake.append()
    settled = [committer.settle(attempt), lake.open().settle(dataclasses.replace(attempt, fresh=False))]
    expected: type[Outcome] = Committed if happened else Conflict if others == "a snapshot" else Unknown
    assert [type(each) for each in settled] == [expected] * 2
    if happened:
        assert settled == [first, first]
    assert len(lake.front.bodies) == 1


@pytest.mark.pairs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", ["nothing", "a property", "a snapshot"])
def test_a_request_that_comes_in_late_is_never_called_a_conflict_before(
    lake: Lake, kind: str, others: str
) -> None:
    attempt, committer = lake.attempt(kind), lake.open()
    lake.front.fates.append("late")
    assert isinstance(committer.commit(attempt), Unknown)
    if others == "a property":
        lake.set_property("colour")
    if others == "a snapshot":
        lake.append()
    before = committer.settle(attempt)
    (status,) = lake.front.release()
    after = committer.settle(attempt)
    if others == "a snapshot":
        assert isinstance(before, Conflict)
        assert before.may_arrive
        assert (status, type(after)) == (409, Conflict)
    else:
        assert (type(before), status, type(after)) == (Unknown, 200, Committed)
    assert shows(lake, attempt) is (others != "a snapshot")


def test_a_mark_that_the_next_operation_replaced_is_found_in_the_log(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.fates.append("lost after")
    first = committer.commit(attempt)
    second = lake.attempt()
    assert isinstance(lake.open().commit(second), Committed)
    assert lake.table.properties[MARK] == second.commit.commit_uuid
    assert committer.settle(attempt) == first


def test_a_log_that_does_not_reach_the_base_proves_nothing(lake: Lake) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "1"})
    attempt, committer = lake.attempt(), lake.open()
    lake.front.fates.append("lost before")
    committer.commit(attempt)
    for _ in range(3):
        lake.append()
    assert isinstance(committer.settle(attempt), Unknown)


def test_a_commit_that_shows_in_a_log_that_was_cut_off_forbids_every_deletion(lake: Lake) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "1"})
    attempt, committer = lake.attempt(), lake.open()
    lake.front.fates.append("lost after")
    committer.commit(attempt)
    for _ in range(3):
        lake.append()
    outcome = committer.settle(attempt)
    assert isinstance(outcome, Committed)
    assert f"does not reach back to {attempt.base}" in (outcome.withheld or "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_is_a_conflict_and_nothing_is_sent_where_the_table_has_moved(lake: Lake, kind: str) -> None:
    attempt, committer = lake.attempt(kind), lake.open()
    lake.append()
    assert isinstance(committer.commit(attempt), Conflict)
    assert lake.front.bodies == []
    assert not shows(lake, attempt)


def test_a_ref_that_moves_after_the_last_look_is_refused_by_the_server(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, committer = lake.attempt(), lake.open()
    stale = dataclasses.replace(attempt, why_stale=lambda _: lake.append())
    outcome = committer.commit(stale)
    assert isinstance(outcome, Conflict)
    assert len(lake.front.bodies) == 1
    assert not shows(lake, attempt)


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, AccessDenied), (403, AccessDenied), (404, TableNotFound), (429, BackendUnavailable)],
)
def test_an_answer_that_it_was_not_done_is_an_error_of_its_own(
    lake: Lake, status: int, error: type[Exception]
) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.answers.append(status)
    with pytest.raises(error, match=f"{status}: as the test wants it"):
        committer.commit(attempt)
    assert len(lake.front.bodies) == 1


@pytest.mark.parametrize("status", [400, 422])
def test_a_request_that_the_server_does_not_take_is_not_tried_again(
    lake: Lake, status: int, tmp_path: Path
) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.answers += [status, status]
    reason = f"the catalog refuses it, {status}: as the test wants it"
    assert committer.commit(attempt) == Conflict(reason=reason, for_good=True)
    lake.front.bodies.clear()
    before = files_of(lake)
    assert reason in " ".join(run(lake, tmp_path, "rewrite-manifests", "--yes", exit_code=11).split())
    assert len(lake.front.bodies) == 1
    assert files_of(lake) == before
    assert "No open operation" in run(lake, tmp_path, "resume", "--list")


@pytest.mark.parametrize("status", [202, 302, 408, 500, 502, 503, 504])
def test_any_other_answer_proves_nothing(lake: Lake, status: int) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.answers.append(status)
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Unknown)
    assert f"the catalog answered {status}: as the test wants it" in outcome.cause
    assert len(lake.front.bodies) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429])
def test_a_refusal_of_a_second_try_says_nothing_of_the_first(lake: Lake, status: int) -> None:
    attempt, committer = lake.attempt(fresh=False), lake.open()
    lake.front.answers.append(status)
    assert isinstance(committer.commit(attempt), Unknown)


def test_a_token_that_cannot_be_renewed_before_the_request_is_no_traceback(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, committer = lake.attempt(), lake.open()
    calls: list[str] = []

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        calls.append(str(request.method))
        if request.method == "POST":
            raise OAuthError("invalid_client")
        return request

    monkeypatch.setattr(committer._client._connection.catalog._session, "auth", sign)
    with pytest.raises(BackendUnavailable, match=r"Cannot send the commit of .* invalid_client"):
        committer.commit(attempt)
    assert lake.front.bodies == []
    assert calls == ["GET", "POST"]
    # Whether an earlier try was sent, this one does not tell.
    assert isinstance(committer.commit(attempt), Unknown)


@pytest.mark.pairs
@pytest.mark.parametrize(
    "answer", [b"", b"no JSON", b"[]", b'{"token_type": "bearer"}', b'{"access_token": 7, "expires_in": "x"}']
)
@pytest.mark.parametrize("manager", ["legacy", "oauth2"])
def test_what_a_token_server_says_wrong_is_one_error(lake: Lake, answer: bytes, manager: str) -> None:
    """At the opening, and where a token has to be renewed later."""
    with Front(lake.front.uri) as tokens:
        tokens.contents = {"/tokens": answer}
        uri = f"{tokens.uri}/tokens"
        oauth = {"client_id": "i", "client_secret": "a-secret", "token_url": uri}
        settings: dict[str, Any] = {"uri": lake.front.uri}
        settings |= (
            {"credential": "i:a-secret", "oauth2-server-uri": uri}
            if manager == "legacy"
            else {"auth": {"type": "oauth2", "oauth2": oauth}}
        )

        def open_it() -> RestCommitter:
            return RestCommitter("prod", (lake.namespace, "inner"), "t", settings, {})

        with pytest.raises((BackendUnavailable, UsageError, AccessDenied)) as caught:
            open_it()
        assert "a-secret" not in str(caught.value)
        tokens.contents = {"/tokens": b'{"access_token": "x", "token_type": "bearer", "expires_in": 61}'}
        committer = open_it()
        tokens.contents = {"/tokens": answer}
        manager_of = committer._client._connection.catalog._session.auth.auth_manager  # type: ignore[union-attr]
        if manager == "oauth2":
            manager_of.token_provider._expires_at = 0
        else:
            lake.front.answers_to_gets += [401]
        with pytest.raises((BackendUnavailable, AccessDenied)) as again:
            committer._client.load()
        assert "a-secret" not in str(again.value)


def test_a_version_that_this_release_cannot_read_proves_nothing(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.fates.append("lost before")
    committer.commit(attempt)
    location = Path(lake.table.metadata_location.removeprefix("file:"))
    later = location.with_name(f"later-{location.name}")
    later.write_text(json.dumps({**json.loads(location.read_text()), "format-version": 9}))
    # The server itself would try for a minute and a half to read it.
    (path,) = {path for method, path in lake.front.requests if method == "GET" and "/tables/" in path}
    lake.front.contents[path] = json.dumps({"metadata-location": str(later)}).encode()
    outcome = committer.settle(attempt)
    assert isinstance(outcome, Unknown)
    assert "could not be read back" in outcome.cause


# What others change between our look and the commit


def test_a_tag_that_went_with_a_snapshot_forbids_every_deletion(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    oldest = lake.table.metadata.snapshots[0].snapshot_id

    def tag(_: Any) -> None:
        lake.table.manage_snapshots().create_tag(oldest, "audit").commit()

    outcome = committer.commit(dataclasses.replace(attempt, why_stale=tag))
    assert isinstance(outcome, Committed)
    assert shows(lake, attempt)
    assert "audit" not in lake.table.metadata.refs  # the server dropped it
    before = lake.table.metadata.metadata_log[-1].metadata_file
    assert outcome.withheld == f"audit, made meanwhile, went with it: see {before}, the version before"
    assert outcome.former == before
    assert "audit" in load(STORAGE, before).refs
    assert lake.open().settle(dataclasses.replace(attempt, fresh=False)) == outcome


@pytest.mark.parametrize(
    ("name", "forbids"),
    [("gc.enabled", True), ("history.expire.max-snapshot-age-ms", True), ("colour", False)],
)
def test_retention_that_was_changed_meanwhile_forbids_every_deletion(
    lake: Lake, name: str, forbids: bool
) -> None:
    attempt, committer = lake.attempt(), lake.open()
    outcome = committer.commit(dataclasses.replace(attempt, why_stale=lambda _: lake.set_property(name)))
    assert isinstance(outcome, Committed)
    assert (outcome.withheld is not None) is forbids


def test_a_commit_that_removes_no_snapshot_loses_nothing_of_what_others_did(lake: Lake) -> None:
    attempt, committer = lake.attempt("a snapshot"), lake.open()
    change = dataclasses.replace(attempt, why_stale=lambda _: lake.set_property("gc.enabled"))
    assert committer.commit(change) == Committed(metadata_location=lake.table.metadata_location)


def test_a_tag_on_a_snapshot_that_stays_forbids_nothing(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    newest = lake.table.metadata.snapshots[-1].snapshot_id

    def tag(_: Any) -> None:
        lake.table.manage_snapshots().create_tag(newest, "audit").commit()

    outcome = committer.commit(dataclasses.replace(attempt, why_stale=tag))
    assert outcome == Committed(metadata_location=lake.table.metadata_location)
    assert "audit" in lake.table.metadata.refs


def test_a_request_that_came_in_late_and_again_forbids_what_the_first_one_lost(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    oldest = lake.table.metadata.snapshots[0].snapshot_id
    lake.front.fates.append("late")
    committer.commit(attempt)

    def tag_and_arrive() -> None:
        lake.table.manage_snapshots().create_tag(oldest, "audit").commit()
        assert lake.front.release() == [200]

    lake.front.meanwhile.append(tag_and_arrive)
    outcome = lake.open().commit(dataclasses.replace(attempt, fresh=False))
    assert isinstance(outcome, Committed)
    assert "audit, made meanwhile, went with it" in (outcome.withheld or "")


def test_an_answer_that_names_a_later_version_is_judged_by_the_commit_s_own(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    oldest = lake.table.metadata.snapshots[0].snapshot_id
    lake.front.meanwhile.append(lambda: lake.table.manage_snapshots().create_tag(oldest, "audit").commit())
    lake.front.later = lake.append
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Committed)
    assert "audit, made meanwhile, went with it" in (outcome.withheld or "")


def test_a_refusal_whose_read_back_does_not_reach_the_base_is_unknown(lake: Lake) -> None:
    lake.set_property("colour")
    with lake.table.transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "1"})
    attempt, committer = lake.attempt(), lake.open()
    lake.front.answers.append(409)
    lake.front.meanwhile.append(lambda: [lake.append() for _ in range(3)])
    assert isinstance(committer.commit(attempt), Unknown)


def test_sigv4_does_not_send_a_commit_again(lake: Lake) -> None:
    settings = {"rest.sigv4-enabled": "true", "rest.signing-region": "mars", "client.access-key-id": "AK",
                "client.secret-access-key": "SK", "uri": lake.front.uri}  # fmt: skip
    committer = RestCommitter("prod", (lake.namespace, "inner"), "t", settings, {})
    assert {
        adapter.max_retries.total
        for adapter in committer._client._connection.catalog._session.adapters.values()
    } == {0}


# What every catalog promises


@dataclasses.dataclass
class OfTests(CatalogUnderTest):
    """A table without snapshots of a server."""

    properties: Mapping[str, str]  # the catalog's
    theirs: RestCatalog
    identifier: tuple[str, str]
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the storage
    commits_at_once: bool = True
    may_arrive: bool = True

    @cached_property
    def storage(self) -> Storage:  # type: ignore[override]
        return open_storage(self.options)

    def open(self, storage: Storage | None = None) -> RestCommitter:  # noqa: ARG002 - the server writes
        namespace, table = self.identifier
        return RestCommitter("prod", (namespace,), table, self.properties, self.options)

    def open_failing(self, put: PutFault) -> RestCommitter:
        committer = self.open()
        client = committer._client
        send = client.post

        def post(*arguments: Any, **more: Any) -> requests.Response:
            if put.endswith("after"):
                send(*arguments, **more)
            raise Killed if put.startswith("killed") else rest_connection.NoAnswer("reset", sent=True)

        client.post = post  # type: ignore[method-assign]
        return committer

    def commit_of_others(self, name: str) -> None:
        """It moves `main` as well."""
        with self.theirs.load_table(self.identifier).transaction() as transaction:
            transaction.append(pa.table({"i": [1]}))
            transaction.set_properties({name: "yes"})


@pytest.fixture
def catalog(rest_server: str, tmp_path: Path) -> OfTests:
    """A table of one version."""
    theirs = RestCatalog("theirs", uri=rest_server)
    identifier = (f"n{uuid.uuid4().hex}", "t")
    theirs.create_namespace(identifier[:1])
    theirs.create_table(identifier, pa.schema([("i", pa.int64())]), location=f"file://{tmp_path}/t")
    return OfTests({"uri": rest_server}, theirs, identifier)


class TestRestCatalog(CatalogConformance):
    """Every sentence about catalogs, on the reference server."""


@pytest.mark.few(1)
class TestRewriting(RewritingConformance):
    """Every sentence about rows that are rewritten, on the reference server."""


# Many writers


def race(lake: Lake, *, writers: int, commits: int) -> int:
    """Let threads add snapshots; every acknowledged one must be in the history of main. Returns the conflicts."""
    acknowledged: list[int] = []
    conflicts: list[str] = []

    def write() -> None:
        committer, done = lake.open(), 0
        while done < commits:
            attempt = lake.attempt("a snapshot")
            (added, *_) = attempt.commit.updates
            try:
                outcome = committer.commit(attempt)
            except BackendUnavailable:  # the server's database is busy; nothing was sent
                continue
            match outcome:
                case Committed():
                    assert isinstance(added, AddSnapshot)
                    acknowledged.append(added.snapshot.snapshot_id)
                    done += 1
                case Conflict(reason=reason):
                    conflicts.append(reason)
                case Unknown():
                    pass  # it may be in the history, and nobody says that it is

    with ThreadPoolExecutor(writers) as pool:
        for each in [pool.submit(write) for _ in range(writers)]:
            each.result()
    table = lake.table
    history = {snapshot.snapshot_id for snapshot in ancestors_of(table.current_snapshot(), table.metadata)}
    assert len(acknowledged) == len(set(acknowledged)) == writers * commits
    assert history >= set(acknowledged)
    return len(conflicts)


def test_racing_writers_lose_no_commit(lake: Lake) -> None:
    assert race(lake, writers=4, commits=3) > 0


@pytest.mark.deep
def test_many_racing_writers_lose_no_commit(lake: Lake) -> None:
    assert race(lake, writers=16, commits=40 if FULL else 10) > 0


@pytest.mark.deep
def test_racing_writers_lose_no_commit_on_s3(lake_on_s3: Lake) -> None:
    assert race(lake_on_s3, **({"writers": 16, "commits": 40} if FULL else {"writers": 8, "commits": 5})) > 0


# Opening


def test_a_name_that_is_not_there_is_not_found_and_a_near_one_is_named(lake: Lake) -> None:
    with pytest.raises(TableNotFound, match=r"inner\.tt in its catalog\. Did you mean 't'"):
        RestCommitter("prod", (lake.namespace, "inner"), "tt", {"uri": lake.front.uri}, {})


def test_a_table_of_a_namespace_that_is_not_there_is_not_found(lake: Lake) -> None:
    with pytest.raises(TableNotFound, match=r"prod\.nowhere\.t in its catalog\.$"):
        RestCommitter("prod", ("nowhere",), "t", {"uri": lake.front.uri}, {})


def test_a_view_is_called_one(lake: Lake) -> None:
    view = {
        "name": "v",
        "schema": {"type": "struct", "schema-id": 0, "fields": []},
        "view-version": {
            "version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": [],
            "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
        },
        "properties": {},
    }  # fmt: skip
    separator = (
        requests.get(f"{lake.front.uri}/v1/config", timeout=9).json()["overrides"].get("namespace-separator")
    )
    path = f"{lake.front.uri}/v1/namespaces/{lake.namespace}{separator}inner/views"
    requests.post(path, json=view, timeout=9).raise_for_status()
    with pytest.raises(TableNotFound, match=r"inner\.v in its catalog\. It is a view"):
        RestCommitter("prod", (lake.namespace, "inner"), "v", {"uri": lake.front.uri}, {})


def test_a_catalog_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(BackendUnavailable, match="Cannot reach the catalog prod"):
        RestCommitter("prod", ("a",), "t", {"uri": "http://127.0.0.1:1"}, {})


def test_a_catalog_that_is_gone_before_the_request_left_the_table_as_it_was(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.__exit__()
    with pytest.raises(BackendUnavailable):
        committer.commit(attempt)


def test_the_configuration_names_the_catalog(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"catalog:\n  prod:\n    uri: {lake.front.uri}\n    s3.region: mars\n")
    name = f"prod.{lake.namespace}.inner.t"
    committer, options = open_catalog_table(
        name, catalogs=Catalogs(f"{tmp_path}/c.yaml"), storage_options={"s3.endpoint": "x"}
    )
    assert committer.current() == lake.table.metadata_location
    assert (options["s3.region"], options["s3.endpoint"]) == ("mars", "x")
    (tmp_path / "c.yaml").write_text("catalog:\n  prod:\n    type: rest\n")
    with pytest.raises(UsageError, match="has no uri"):
        open_catalog_table(name, catalogs=Catalogs(f"{tmp_path}/c.yaml"))
    (tmp_path / "c.yaml").write_text(
        f"catalog:\n  prod:\n    uri: {lake.front.uri}\n    auth:\n      type: no\n"
    )
    with pytest.raises(UsageError, match="Cannot open the catalog prod"):
        open_catalog_table(name, catalogs=Catalogs(f"{tmp_path}/c.yaml"))


def test_nessie_is_known_by_its_configuration(lake: Lake) -> None:
    settings = {"uri": lake.front.uri, "nessie.is-nessie-catalog": "true"}
    committer = RestCommitter("prod", (lake.namespace, "inner"), "t", settings, {})
    assert "Nessie" in (committer.hidden_snapshots_reason() or "")
    assert lake.open().hidden_snapshots_reason() is None


def test_an_expiry_on_nessie_is_refused_though_nothing_shows_that_could_expire(
    lake: Lake, tmp_path: Path
) -> None:
    shown_by_nessie = dataclasses.replace(lake, options={"nessie.is-nessie-catalog": "true"})
    output = run(shown_by_nessie, tmp_path, "expire-snapshots", "--retain-last", "9", "--yes", exit_code=11)
    assert "Nessie, which shows only the current snapshot" in " ".join(output.split())
    assert lake.front.bodies == []


def test_a_metadata_location_that_is_no_file_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rest_client, "object_of", lambda _: {"metadata-location": "http://catalog/tree/main", "metadata": {}}
    )
    with pytest.raises(Refused, match="names no metadata file"):
        lake.open()


# Sent again


@pytest.fixture
def keyed(lake: Lake) -> Lake:
    """The server says for how long it knows a request again; that it does, it does not say by itself."""
    configuration = requests.get(f"{lake.front.behind}/v1/config", timeout=60).json()
    configuration["idempotency-key-lifetime"] = "PT30M"
    lake.front.contents["/v1/config"] = json.dumps(configuration).encode()
    return lake


def check_keys(front: Front, number: int) -> None:
    """As many requests with one key, a UUID of version 7, and one body."""
    assert len(front.keys) == number
    (key,) = {*front.keys}
    assert key is not None
    assert uuid.UUID(key).version == 7
    assert len({*front.bodies}) == 1


@pytest.mark.pairs
@pytest.mark.parametrize("verb", ["expire-snapshots", "rewrite-manifests"])
@pytest.mark.parametrize(
    ("fate", "number"), [("", 1), ("lost after", 1), ("500 after", 1), ("lost before", 2), ("late", 2)]
)
def test_a_request_with_a_key_is_sent_again_where_nothing_shows(
    keyed: Lake, tmp_path: Path, verb: str, fate: Fate, number: int
) -> None:
    keyed.front.fates.append(fate)
    run(keyed, tmp_path, *(expiry(keyed) if verb == "expire-snapshots" else (verb, "--yes")))
    check_keys(keyed.front, number)
    location = keyed.table.metadata_location
    if fate == "late":
        assert keyed.front.release() == [200]  # it is the first answer once more
        assert keyed.table.metadata_location == location
    assert keyed.table.scan().to_arrow()["i"].sort().to_pylist() == [0, 1, 2]
    assert "No open operation" in run(keyed, tmp_path, "resume", "--list")


def test_a_key_is_tried_twice_and_not_by_another_process(keyed: Lake, tmp_path: Path) -> None:
    keyed.front.fates += ["lost before", "lost before"]
    run(keyed, tmp_path, *expiry(keyed), exit_code=13)
    check_keys(keyed.front, 2)
    run(keyed, tmp_path, "resume")
    assert keyed.front.keys[2:] == [None]
    assert len({*keyed.front.bodies}) == 1
    assert len(keyed.table.metadata.snapshots) == 1


@pytest.mark.parametrize("lifetime", ["PT1M", "soon", 7, None])
def test_a_key_that_does_not_hold_for_long_enough_is_not_used(keyed: Lake, lifetime: object) -> None:
    configuration = json.loads(keyed.front.contents["/v1/config"])
    configuration["idempotency-key-lifetime"] = lifetime
    keyed.front.contents["/v1/config"] = json.dumps(configuration).encode()
    attempt, committer = keyed.attempt(), keyed.open()
    keyed.front.fates.append("lost before")
    assert isinstance(committer.commit(attempt), Unknown)
    assert keyed.front.keys == [None]


def test_a_busy_server_is_asked_again_when_it_says_so(lake: Lake) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.answers, lake.front.retry_after = [503], "0"
    assert isinstance(committer.commit(attempt), Committed)
    assert len(lake.front.bodies) == 2
    assert shows(lake, attempt)


@pytest.mark.parametrize("retry_after", [None, "86400", "when it suits"])
def test_a_busy_server_that_names_no_near_time_is_not_asked_again(
    lake: Lake, retry_after: str | None
) -> None:
    attempt, committer = lake.attempt(), lake.open()
    lake.front.answers, lake.front.retry_after = [503], retry_after
    assert isinstance(committer.commit(attempt), Unknown)
    assert len(lake.front.bodies) == 1


@pytest.mark.parametrize("status", [400, 500])
def test_a_server_that_removes_one_snapshot_an_update_gets_one_request_of_many(
    lake: Lake, tmp_path: Path, status: int
) -> None:
    lake.front.one_expected = status
    ids = [snapshot.snapshot_id for snapshot in lake.table.metadata.snapshots]
    lake.front.fates += ["", "lost before"]
    run(lake, tmp_path, *expiry(lake), exit_code=13)
    first, second = map(json.loads, lake.front.bodies)
    removed = [each["snapshot-ids"] for each in second["updates"] if each["action"] == "remove-snapshots"]
    assert sorted(removed) == sorted([each] for each in ids[:2])
    assert first["requirements"] == second["requirements"]
    # Another process, which has not asked yet what the server takes, sends the same bytes again.
    run(lake, tmp_path, "resume")
    assert lake.front.bodies[1] == lake.front.bodies[2]
    assert [each.snapshot_id for each in lake.table.metadata.snapshots] == ids[2:]


def test_a_catalog_that_takes_no_commits_is_not_asked_for_one(lake: Lake, tmp_path: Path) -> None:
    configuration = requests.get(f"{lake.front.behind}/v1/config", timeout=60).json()
    commit = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"
    assert commit in configuration["endpoints"]
    configuration["endpoints"].remove(commit)
    lake.front.contents["/v1/config"] = json.dumps(configuration).encode()
    before, ids = files_of(lake), [each.snapshot_id for each in lake.table.metadata.snapshots]
    old = ("--older-than", "0s", "--retain-last", "1")
    printed = run(lake, tmp_path, "expire-snapshots", *old, "--yes", exit_code=11)
    assert "updateTable is not among its endpoints" in printed
    assert (files_of(lake), [each.snapshot_id for each in lake.table.metadata.snapshots]) == (before, ids)
    assert not [path for method, path in lake.front.requests if method == "POST"]


# Credentials of the storage


@pytest.mark.parametrize("advertised", [True, False])
def test_new_credentials_come_from_their_endpoint_or_from_loading_the_table(
    lake: Lake, advertised: bool
) -> None:
    configuration = requests.get(f"{lake.front.behind}/v1/config", timeout=60).json()
    endpoint = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
    others = [each for each in configuration["endpoints"] if each != endpoint]
    configuration["endpoints"] = [*others, *([endpoint] if advertised else [])]
    lake.front.contents["/v1/config"] = json.dumps(configuration).encode()
    lake.open()
    (path,) = {path.partition("?")[0] for method, path in lake.front.requests if "/tables/" in path}

    def key(name: str) -> dict[str, str]:
        return {"s3.access-key-id": name, "s3.secret-access-key": f"hidden {name}"}

    def answer(when: str) -> bytes:
        first = {**key(f"{when} config"), "s3.session-token": "of config", "own": "theirs", "token": "T"}
        given = [
            {"prefix": "s3://b/t", "config": {**key(f"{when} short"), "own": "theirs"}},
            {"prefix": "s3://b/t/data/", "config": key(f"{when} long")},
            {"prefix": "s3://b/t/data/", "config": key("of the same prefix")},
            {"prefix": "s3://c", "config": {"s3.session-token": "of c"}},
            "no credential",
        ]
        location = lake.table.metadata_location
        return json.dumps(
            {"metadata-location": location, "config": first, "storage-credentials": given}
        ).encode()

    lake.front.contents[f"{path}?snapshots=all"] = answer("first")
    properties = {"uri": lake.front.uri, "s3.region": "mars", "key": "OURS", "token": "OURS"}
    committer = RestCommitter("prod", (lake.namespace, "inner"), "t", properties, {"own": "first"})
    region = {"s3.region": "mars", "own": "first"}

    def options_of(credential: Mapping[str, str]) -> dict[str, str]:
        return {name: text for name, text in credential.items() if name != "namespace-separator"}

    # A key is not mixed with the token of another one, and the table's token is no storage's.
    found = {each.prefix: options_of(each.options) for each in committer.credentials}
    assert found == {
        "": {**region, **key("first config"), "s3.session-token": "of config"},
        "s3://b/t": {**region, **key("first short")},
        "s3://b/t/data/": {**region, **key("first long")},
        "s3://c": {**region, **key("first config"), "s3.session-token": "of c"},
    }
    lake.front.contents[f"{path}?snapshots=all"] = answer("loaded")
    lake.front.contents[f"{path}/credentials"] = answer("new")
    renewals = {each.prefix: each.renewal for each in committer.credentials}
    when = "new" if advertised else "loaded"
    for prefix, name in [
        ("s3://b/t", f"{when} short"),
        ("s3://b/t/data/", f"{when} long"),
        ("", "loaded config"),
    ]:
        # A worker gets a copy, which asks for itself.
        renewal = renewals[prefix]
        assert renewal is not None
        for each in (renewal, pickle.loads(pickle.dumps(renewal))):
            assert key(name).items() <= each().items()
            assert region.items() <= each().items()
            assert "hidden" not in repr(each)
    assert "hidden" not in repr(committer.credentials)


# Whole runs


def run(lake: Lake, folder: Path, *arguments: str, exit_code: int = 0) -> str:
    """Run a command on the table, from its configuration on; what it prints. The requests are counted anew."""
    config = folder / "pyiceberg.yaml"
    config.write_text(configuration_of("prod", {"uri": lake.front.uri, **lake.options, **lake.properties}))
    command, *others = arguments
    lake.front.requests.clear()
    name = f"prod.{lake.namespace}.inner.t"
    ran = iceberg_cli(command, name, *others, "--catalog-config", config, "--no-cache")
    output = f"{ran.out}{ran.err}"
    assert ran.code == exit_code, output
    return output


def test_inspect_asks_the_catalog_twice(lake: Lake, tmp_path: Path) -> None:
    assert "3 snapshots" in run(lake, tmp_path, "inspect")
    assert [path.partition("?")[0].rpartition("/")[2] for _, path in lake.front.requests] == ["config", "t"]


VERBS = [
    ("rewrite-manifests",),
    ("expire-snapshots", "--older-than", "1s", "--retain-last", "1"),
    ("upgrade-v3",),
    ("assign-row-ids",),
]


def test_every_verb_maintains_a_table_that_others_read(either_lake: Lake, tmp_path: Path) -> None:
    lake = either_lake
    time.sleep(1.1)  # an expiry by age takes nothing that is younger than a second
    ids = {snapshot.snapshot_id for snapshot in lake.table.metadata.snapshots}
    for arguments in VERBS:
        run(lake, tmp_path, *arguments, "--yes")
        posts = [path for method, path in lake.front.requests if method == "POST"]
        assert len(posts) == 1
        assert len(lake.front.requests) <= 5, arguments
        assert lake.table.scan().to_arrow()["i"].sort().to_pylist() == [0, 1, 2]
    table = lake.table
    assert (table.format_version, table.metadata.next_row_id) == (3, 3)
    assert not ids & {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    assert "No fault was found" in run(lake, tmp_path, "inspect", "--check")


def expiry(lake: Lake) -> tuple[str, ...]:
    """The command that leaves the newest snapshot."""
    *older, _ = [snapshot.snapshot_id for snapshot in lake.table.metadata.snapshots]
    return ("expire-snapshots", *(f"--snapshot-id={each}" for each in older), "--yes")


def files_of(lake: Lake) -> set[str]:
    found = Path(lake.table.location().removeprefix("file://")).rglob("*")
    return {Path(path).name for path in besides_history(str(each) for each in found if each.is_file())}


def test_a_tag_that_the_catalog_dropped_keeps_every_file_until_the_operation_is_abandoned(
    lake: Lake, tmp_path: Path
) -> None:
    oldest = lake.table.metadata.snapshots[0]
    lake.front.meanwhile.append(
        lambda: lake.table.manage_snapshots().create_tag(oldest.snapshot_id, "audit").commit()
    )
    before = files_of(lake)
    output = run(lake, tmp_path, *expiry(lake), exit_code=14)
    assert "audit, made meanwhile, went with it" in " ".join(output.split())
    assert files_of(lake) >= before
    assert "audit" not in lake.table.metadata.refs
    for _ in range(2):
        run(lake, tmp_path, "resume", exit_code=14)
        lake.append()
        for more in ((), ("--no-resume",)):
            output = run(lake, tmp_path, *expiry(lake), *more, exit_code=11)
            assert "keeps all of them: audit" in " ".join(output.split())
        run(
            lake, tmp_path, "rewrite-manifests", "--yes", exit_code=14
        )  # it deletes nothing, and says what is open
        assert files_of(lake) >= before
    (operation_id,) = {
        line.split()[0] for line in run(lake, tmp_path, "resume", "--list").splitlines() if "abandon" in line
    }
    run(lake, tmp_path, "resume", operation_id, "--abandon")
    assert files_of(lake) >= before
    run(lake, tmp_path, *expiry(lake))


@pytest.mark.parametrize("kept", [1, 2])  # with 1 the log does not reach back to what we saw
def test_what_has_the_dropped_tag_is_copied_for_the_catalog_deletes_metadata_files(
    lake: Lake, tmp_path: Path, kept: int
) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties(
            {
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": str(kept),
            }
        )
    former: dict[Path, bytes] = {}

    def tag() -> None:
        oldest = lake.table.metadata.snapshots[0].snapshot_id
        lake.table.manage_snapshots().create_tag(oldest, "audit").commit()
        path = Path(urlsplit(lake.table.metadata_location).path)
        former[path] = path.read_bytes()

    lake.front.meanwhile.append(tag)
    output = run(lake, tmp_path, *expiry(lake), exit_code=14)
    [(path, content)] = former.items()
    for _ in range(kept + 1):
        lake.append()
    assert not path.exists()
    [copy] = Path(urlsplit(lake.table.location()).path).rglob(f"version-before-{path.name}")
    assert copy.read_bytes() == content
    assert str(copy) in "".join(output.split())
    run(lake, tmp_path, "resume", copy.parent.name, "--abandon")
    assert not copy.exists()


@pytest.mark.pairs
@pytest.mark.parametrize(
    "fate", ["lost before", "lost after", "reset before", "reset after", "500 after", "late"]
)
@pytest.mark.parametrize("verb", ["expire-snapshots", "rewrite-manifests"])
def test_a_run_whose_answer_is_lost_ends_unknown_or_done_and_resume_settles_it(
    lake: Lake, tmp_path: Path, fate: Fate, verb: str
) -> None:
    before, rows = files_of(lake), [0, 1, 2]
    command = expiry(lake) if verb == "expire-snapshots" else (verb, "--yes")
    lake.front.fates.append(fate)
    happened = fate.endswith("after")
    run(lake, tmp_path, *command, exit_code=0 if happened else 13)
    assert lake.table.scan().to_arrow()["i"].sort().to_pylist() == rows
    if not happened:
        assert files_of(lake) >= before
        if fate == "late":
            assert lake.front.release() == [200]
        run(lake, tmp_path, "resume")
    assert lake.table.scan().to_arrow()["i"].sort().to_pylist() == rows
    shown = lake.table.metadata.snapshots
    assert len(shown) == (1 if verb == "expire-snapshots" else 4)
    assert "No fault was found" in run(lake, tmp_path, "inspect", "--check")


def test_while_the_outcome_of_one_commit_is_unknown_no_other_operation_deletes(
    lake: Lake, tmp_path: Path
) -> None:
    """The request may still arrive, and drop a tag of which nobody here knows."""
    run(lake, tmp_path, *expiry(lake)[:2], "--yes", "--grace", "1s")
    lake.append()
    lake.front.fates.append("late")
    lake.set_property("colour")
    time.sleep(1.1)
    before = files_of(lake)
    output = run(lake, tmp_path, *expiry(lake), "--no-resume", exit_code=13)
    for command in (
        ("resume",),
        (*expiry(lake), "--no-resume"),
        expiry(lake),
        ("rewrite-manifests", "--yes"),
    ):
        lake.set_property("colour")  # so that what is unknown is not sent again
        code = 11 if "--no-resume" in command else 13
        version = lake.table.metadata_location
        output = run(lake, tmp_path, *command, exit_code=code)
        assert "what became of the commit of operation" in " ".join(output.split()), output
        assert ("Nothing new was begun" in " ".join(output.split())) == (
            command[0] != "resume" and code == 13
        )
        assert lake.table.metadata_location == version
        assert files_of(lake) >= before
    lake.append()
    run(lake, tmp_path, "resume")
    assert not files_of(lake) >= before
