"""Commits on several branches of a table of a REST catalog at once: they are no conflict by refs, and lose no work.

What only adds a snapshot asserts its branch alone. Another branch's commit takes the numbers that it was built with: a
server refuses it for these, by 400, 409 or 422, or lets it pass where it holds no numbers against the table's.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests

from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.iceberg.catalogs.rest.committer import RestCommitter
from iceberg_cli.iceberg.commit.update import AddSnapshot
from iceberg_cli.operation.outcomes import Committed, Conflict, Unknown
from iceberg_cli.testing.iceberg_rows import read_rows
from tests.cli.running import iceberg_cli
from tests.iceberg.catalogs.test_rest import STORAGE, Lake, attempt_of, files_of, lake, run, shows
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable, multiset
from tests.rest_servers import configuration_of
from tests.s3_front import PassingOn, Request, Response, serving

__all__ = ["lake"]

REFUSALS = [400, 409, 422]
METADATA = "00001-0d8b4a3f-2d5c-4a6e-9a55-0e6d2a1c7b90.metadata.json"


def commit_on_another_branch(url: str, *, upgraded: bool = False) -> None:
    """Another writer's snapshot, which adds nothing, on the branch `audit`, which is made by that."""
    metadata = requests.get(url, timeout=60).json()["metadata"]
    oldest = min(
        metadata["snapshots"], key=lambda each: each["timestamp-ms"]
    )  # so that main is not behind it
    snapshot_id = uuid.uuid4().int & (1 << 62) - 1
    new = {
        **oldest,
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": oldest["snapshot-id"],
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": metadata["last-updated-ms"] + 1,
    }
    if metadata["format-version"] > 2 or upgraded:
        new |= {"first-row-id": metadata.get("next-row-id", 0), "added-rows": 0}
    ref = {"ref-name": "audit", "type": "branch", "snapshot-id": snapshot_id}
    updates = [{"action": "add-snapshot", "snapshot": new}, {"action": "set-snapshot-ref", **ref}]
    if upgraded:
        updates.insert(0, {"action": "upgrade-format-version", "format-version": 3})
    answer = requests.post(url, json={"requirements": [], "updates": updates}, timeout=60)
    assert answer.ok, answer.text


def url_of(lake: Lake) -> str:
    return f"{lake.front.behind}/v1/namespaces/{lake.namespace}%2Einner/tables/t"


def others(lake: Lake) -> Callable[[], None]:
    return lambda: commit_on_another_branch(url_of(lake))


def refs_asserted(body: bytes) -> list[str]:
    sent = json.loads(body)["requirements"]
    return sorted(each["ref"] for each in sent if each["type"] == "assert-ref-snapshot-id")


# What is asserted, and what the reference server says


def test_what_only_adds_a_snapshot_asserts_the_table_and_its_branch_alone(lake: Lake) -> None:
    commit_on_another_branch(url_of(lake))
    lake.table.manage_snapshots().create_tag(lake.table.metadata.snapshots[1].snapshot_id, "kept").commit()
    attempt = lake.attempt("a snapshot")
    assert json.loads(attempt.data)["requirements"] == [
        {"type": "assert-table-uuid", "uuid": str(lake.table.metadata.table_uuid)},
        {
            "type": "assert-ref-snapshot-id",
            "ref": "main",
            "snapshot-id": lake.table.metadata.current_snapshot_id,
        },
    ]
    assert refs_asserted(lake.attempt("an expiry").data) == ["audit", "kept", "main"]


def test_a_tag_that_others_move_meanwhile_refuses_no_snapshot(lake: Lake) -> None:
    ids = [each.snapshot_id for each in lake.table.metadata.snapshots]
    lake.table.manage_snapshots().create_tag(ids[0], "kept").commit()
    attempt, committer = lake.attempt("a snapshot"), lake.open()
    lake.front.meanwhile.append(lambda: lake.table.manage_snapshots().create_tag(ids[1], "kept").commit())
    assert isinstance(committer.commit(attempt), Committed)
    assert lake.table.metadata.refs["kept"].snapshot_id == ids[1]


@pytest.mark.parametrize("upgraded", [False, True], ids=["", "upgraded"])
def test_stale_numbers_are_refused_by_the_reference_server_and_it_is_tried_again(
    lake: Lake, upgraded: bool
) -> None:
    attempt, committer = lake.attempt("a snapshot"), lake.open()
    lake.front.meanwhile.append(lambda: commit_on_another_branch(url_of(lake), upgraded=upgraded))
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Conflict)
    assert (outcome.for_good, outcome.may_arrive) == (False, False)
    assert "is not above the table's" in outcome.reason
    assert len(lake.front.bodies) == 1
    assert not shows(lake, attempt)
    if not upgraded:
        assert isinstance(lake.open().commit(lake.attempt("a snapshot")), Committed)


@pytest.mark.pairs
@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("kind", ["a snapshot", "an expiry"])
def test_a_refusal_after_another_branch_moved_is_never_final(lake: Lake, kind: str, status: int) -> None:
    attempt, committer = lake.attempt(kind), lake.open()
    lake.front.answers.append(status)
    lake.front.meanwhile.append(others(lake))
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Conflict)
    assert (outcome.for_good, outcome.may_arrive) == (False, False)


@pytest.mark.parametrize(("status", "for_good"), [(400, True), (409, False), (422, True)])
def test_a_refusal_is_final_as_before_where_nobody_added_a_snapshot(
    lake: Lake, status: int, for_good: bool
) -> None:
    attempt, committer = lake.attempt("a snapshot"), lake.open()
    lake.front.answers.append(status)
    lake.front.meanwhile.append(lambda: lake.set_property("colour"))
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Conflict)
    assert outcome.for_good is for_good


def test_a_request_that_is_too_large_stays_so_whoever_moved_another_branch(lake: Lake) -> None:
    attempt, committer = lake.attempt("an expiry"), lake.open()
    lake.front.answers.append(413)
    lake.front.meanwhile.append(others(lake))
    outcome = committer.commit(attempt)
    assert isinstance(outcome, Conflict)
    assert (outcome.for_good, outcome.too_large) == (True, True)


@pytest.mark.deep
def test_two_branches_that_race_share_no_number_and_lose_no_commit(lake: Lake) -> None:
    commit_on_another_branch(url_of(lake))
    conflicts: list[Conflict] = []

    def write(branch: str) -> list[int]:
        committer, added = lake.open(), list[int]()
        while len(added) < 5:
            attempt = attempt_of(committer, STORAGE, "a snapshot", branch=branch)
            try:
                outcome = committer.commit(attempt)
            except BackendUnavailable:  # the server's database is busy; nothing was sent
                continue
            match outcome:
                case Committed():
                    assert outcome.oversight is None
                    (new, *_) = attempt.commit.updates
                    assert isinstance(new, AddSnapshot)
                    added.append(new.snapshot.snapshot_id)
                case Conflict():
                    conflicts.append(outcome)
                case Unknown():
                    pass  # it may be in the history, and nobody says that it is
        return added

    with ThreadPoolExecutor(4) as pool:
        acknowledged = [*pool.map(write, ["main", "audit", "main", "audit"])]
    assert conflicts
    assert not [each for each in conflicts if each.for_good or each.may_arrive]
    snapshots = lake.table.metadata.snapshots
    assert {each.snapshot_id for each in snapshots} >= {number for some in acknowledged for number in some}
    numbers = [each.sequence_number for each in snapshots]
    assert len(numbers) == len({*numbers}) >= 3 + 1 + 4 * 5


# Without an answer


@pytest.mark.parametrize("kind", ["a snapshot", "an expiry"])
def test_a_request_without_an_answer_is_dead_once_its_numbers_are_taken(lake: Lake, kind: str) -> None:
    attempt, committer = lake.attempt(kind), lake.open()
    lake.front.fates.append("late")
    assert isinstance(committer.commit(attempt), Unknown)
    commit_on_another_branch(url_of(lake))
    before = [each.settle(attempt) for each in (committer, lake.open())]
    (status,) = lake.front.release()
    if kind == "a snapshot":
        # What it names stays: where a server holds no numbers it would come in.
        assert all(isinstance(each, Conflict) and each.may_arrive for each in before)
        assert status in REFUSALS
    else:  # it has no numbers, and asserts no ref that was not there
        assert (*map(type, before), status) == (Unknown, Unknown, 200)
    assert shows(lake, attempt) is (kind == "an expiry")


# Whole runs


def test_a_verb_keeps_what_it_staged_where_another_branch_was_faster(lake: Lake, tmp_path: Path) -> None:
    lake.front.meanwhile.append(others(lake))
    lake.front.answers.append(400)
    before = files_of(lake)
    run(lake, tmp_path, "rewrite-manifests", "--yes")
    assert len(lake.front.bodies) == 2
    added = [
        update["snapshot"]["manifest-list"].rpartition("/")[2]
        for body in lake.front.bodies
        for update in json.loads(body)["updates"]
        if update["action"] == "add-snapshot"
    ]
    new = files_of(lake) - before
    # One manifest for both attempts, and the list of the second one.
    lists, manifests = (
        {name for name in new if name.endswith(".avro") and name.startswith("snap-") is is_list}
        for is_list in (True, False)
    )
    assert lists == {added[1]}
    assert len(manifests) == 1
    assert lake.table.scan().to_arrow()["i"].sort().to_pylist() == [0, 1, 2]


def test_a_commit_that_asserted_every_ref_is_settled_by_what_was_sent(lake: Lake, tmp_path: Path) -> None:
    commit_on_another_branch(url_of(lake))
    with as_before():
        lake.front.fates.append("lost before")
        run(lake, tmp_path, "rewrite-manifests", "--yes", exit_code=13)
    run(lake, tmp_path, "resume")
    assert [refs_asserted(body) for body in lake.front.bodies] == [["audit", "main"]] * 2
    assert len(set(lake.front.bodies)) == 1


@contextmanager
def as_before() -> Iterator[None]:
    """Commits assert every ref, as those of earlier versions did."""
    with pytest.MonkeyPatch.context() as patched:
        prepare = RestCommitter.prepare

        def prepare_as_before(committer: RestCommitter, *arguments: Any, **named: Any) -> Any:
            committer._overlooks_numbers = True
            return prepare(committer, *arguments, **named)

        patched.setattr(RestCommitter, "prepare", prepare_as_before)
        yield


# A server that checks nothing


@dataclasses.dataclass
class Careless:
    """A server with one table, that holds refs against requirements and takes the numbers of snapshots as they come.

    `meanwhile` is done before a commit is carried out.
    """

    location: str
    endpoint: str = ""
    meanwhile: list[Callable[[], object]] = dataclasses.field(default_factory=list)
    bodies: list[bytes] = dataclasses.field(default_factory=list)
    lock: Any = dataclasses.field(default_factory=threading.RLock)

    @property
    def url(self) -> str:
        return f"{self.endpoint}/v1/namespaces/n/tables/t"

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(STORAGE.read(self.location))
        return found

    def open(self) -> RestCommitter:
        return RestCommitter("prod", ("n",), "t", {"uri": self.endpoint}, {})

    def answer(self, request: Request) -> tuple[int, Mapping[str, Any]]:
        if request.path.startswith("/v1/config"):
            return 200, {"defaults": {}, "overrides": {}}
        if request.method == "POST":
            meanwhile, self.meanwhile = self.meanwhile[:1], self.meanwhile[1:]
            for act in meanwhile:
                act()
            with self.lock:
                if reason := self.commit(json.loads(request.body)):
                    return 409, {"error": {"message": reason, "code": 409}}
        return 200, {"metadata-location": self.location, "metadata": self.document, "config": {}}

    def commit(self, body: Mapping[str, Any]) -> str | None:
        """Carry out updates as they come; why not, or None."""
        document = self.document
        for each in body["requirements"]:
            if each["type"] == "assert-ref-snapshot-id":
                found = document["refs"].get(each["ref"], {}).get("snapshot-id")
                if found != each["snapshot-id"]:
                    return f"ref {each['ref']} is at {found}"
        for update in body["updates"]:
            if update["action"] == "add-snapshot":
                snapshot = update["snapshot"]
                document["snapshots"].append(snapshot)
                document["last-sequence-number"] = snapshot["sequence-number"]
                document["next-row-id"] += snapshot["added-rows"]
            else:
                ref = {key: value for key, value in update.items() if key not in ("action", "ref-name")}
                document["refs"][update["ref-name"]] = ref
                if update["ref-name"] == "main":
                    document["current-snapshot-id"] = ref["snapshot-id"]
        entry = {"timestamp-ms": document["last-updated-ms"], "metadata-file": self.location}
        document["metadata-log"].append(entry)
        folder = self.location.rpartition("/")[0]
        self.location = f"{folder}/{len(document['metadata-log']) + 1:05d}-{uuid.uuid4()}.metadata.json"
        STORAGE.put_if_absent(self.location, json.dumps(document).encode())
        return None


class _Handler(PassingOn):
    careless: ClassVar[Careless]

    def response(self, request: Request) -> Response:
        if request.method == "POST":
            self.careless.bodies.append(request.body)
        status, document = self.careless.answer(request)
        return Response(status, [("Content-Type", "application/json")], json.dumps(document).encode())


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[Careless]:
    table = RowsTable(storage=STORAGE, location=f"{tmp_path}/t", format_version=3)
    for number, k in enumerate("xxyy"):
        table.rows(f"f{number}", [(N, [3 * number, 3 * number + 1]), (K, [k] * 2)], k=k)
    table.commit(1)
    table.vectors("v", {"f0": [1]}, k="x")
    table.commit(2)
    found = Careless(table.publish(METADATA))
    with serving(_Handler, careless=found) as found.endpoint:
        commit_on_another_branch(found.url)
        found.bodies.clear()
        yield found


def test_numbers_that_a_server_lets_pass_are_told_and_every_ref_is_asserted_from_then_on(
    careless: Careless, tmp_path: Path
) -> None:
    careless.meanwhile.append(lambda: commit_on_another_branch(careless.url))
    document = careless.document
    before = read_rows(STORAGE, document, document["current-snapshot-id"])
    config = tmp_path / "catalogs.yaml"
    config.write_text(configuration_of("prod", {"uri": careless.endpoint}), encoding="utf-8")
    words = ("prod.n.t", "--rewrite-all", "--commit-every", "1B", "--processes", "1", "--max-commits", "9")
    ran = iceberg_cli("rewrite-data-files", *words, "--yes", "--catalog-config", config, "--format", "json")
    assert (ran.code, ran.json["status"]) == (0, "done"), ran.out + ran.err
    (note,) = [each for each in ran.json["notes"] if "should have refused" in each]
    assert "both have sequence number" in note
    ours = [body for body in careless.bodies if b"iceberg-cli.operation-id" in body]
    assert [refs_asserted(body) for body in ours] == [["main"], ["audit", "main"]]
    document = careless.document
    assert multiset(read_rows(STORAGE, document, document["current-snapshot-id"]), 3) == multiset(before, 3)


def test_where_numbers_are_let_pass_another_branch_that_moves_is_a_conflict_by_its_ref(
    careless: Careless,
) -> None:
    committer = careless.open()
    careless.meanwhile.append(lambda: commit_on_another_branch(careless.url))
    first = committer.commit(attempt_of(committer, STORAGE, "a snapshot"))
    assert isinstance(first, Committed)
    assert "both have sequence number" in (first.oversight or "")
    second = attempt_of(committer, STORAGE, "a snapshot")
    assert refs_asserted(second.data) == ["audit", "main"]
    careless.meanwhile.append(lambda: commit_on_another_branch(careless.url))
    assert isinstance(committer.commit(second), Conflict)
    assert refs_asserted(attempt_of(careless.open(), STORAGE, "a snapshot").data) == ["main"]
