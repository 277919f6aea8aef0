"""The conformance suite of storages on Google Cloud Storage and Azure; then what only they promise."""

from __future__ import annotations

import gzip
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from iceberg_cli.errors import AccessDenied, BackendUnavailable, Refused, UsageError
from iceberg_cli.storage import Storage, StorageCredential, backoff
from iceberg_cli.storage.azure.options import AzureOptions
from iceberg_cli.storage.conditional_create import is_known, service_of
from iceberg_cli.storage.credential_options import with_environment, with_options
from iceberg_cli.storage.router import RoutedStorage, open_storage
from iceberg_cli.testing.conformance.storages import Sandbox, StorageConformance
from tests.budget import deep_unless
from tests.emulators import ACCOUNT, KEY, Azurite, FakeGcs, ObjectStore
from tests.gcs_uploads import with_resumable_uploads
from tests.s3_front import PassingOn, Request, Response, serving

STORES = ["fake_gcs", "azurite"]
HOST = "account.dfs.core.windows.net"


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> ObjectStore:
    found: ObjectStore = request.getfixturevalue(request.param)
    return found


class Stores(StorageConformance):
    """The suite; what makes many objects in a server of this machine is for the deep run."""

    @pytest.mark.deep
    def test_a_listing_goes_on_after_the_first_page(self, sandbox: Sandbox) -> None:
        super().test_a_listing_goes_on_after_the_first_page(sandbox)

    @pytest.mark.parametrize("count", deep_unless([3], [3, 250]))
    def test_versions_stay_until_other_bytes_are_stored(self, sandbox: Sandbox, count: int) -> None:
        super().test_versions_stay_until_other_bytes_are_stored(sandbox, count)

    @pytest.mark.parametrize("count", deep_unless([3], [3, 250]))
    def test_sizes_of_many_objects_come_in_the_order_of_their_paths(
        self, sandbox: Sandbox, count: int
    ) -> None:
        super().test_sizes_of_many_objects_come_in_the_order_of_their_paths(sandbox, count)


class TestGcs(Stores):
    """Every sentence of the port on Google Cloud Storage."""

    @pytest.fixture
    def sandbox(self, fake_gcs: FakeGcs) -> Iterator[Sandbox]:
        root = f"{fake_gcs.new_folder()}/wh"
        with with_resumable_uploads(fake_gcs) as (store, _):
            yield Sandbox(
                storage=store.storage,
                root=root,
                other_spelling=root.replace("gs:", "GS:"),
                create_empty=fake_gcs.create_empty,
            )


class TestAzure(Stores):
    """Every sentence of the port on Azure."""

    @pytest.fixture
    def sandbox(self, azurite: Azurite) -> Sandbox:
        root = f"{azurite.new_folder()}/wh"
        return Sandbox(
            storage=azurite.storage,
            root=root,
            other_spelling=root.replace("abfss:", "wasbs:").replace(".dfs.", ".blob."),
            reads_backslash_as_slash=True,
            create_empty=azurite.create_empty,
        )


@pytest.mark.parametrize(
    ("store", "module"), [("fake_gcs", "gcs.objects"), ("azurite", "azure.blobs")], indirect=["store"]
)
def test_objects_are_listed_page_by_page(
    store: ObjectStore, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.new_folder()
    paths = [f"{folder}/{number:03}/object" for number in range(25)]
    store.create_empty(paths)
    monkeypatch.setattr(pytest.importorskip(f"iceberg_cli.storage.{module}"), "_PAGE", 10)
    front = Front(store.endpoint)
    with serving(_Handler, front=front) as endpoint:
        storage = open_storage(store.options_at(endpoint))
        assert list(storage.paths(folder)) == paths
        assert len(front.requests) == 3
        assert list(storage.subfolders(folder)) == [f"{number:03}" for number in range(25)]
        assert (
            store.scheme == "gs" or len(front.requests) == 6
        )  # fake-gcs-server counts no prefixes for a page
        assert storage.subfolders_many([folder], ["024", "001", "025"]) == [frozenset({"001", "024"})]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gs://b/k", "gs://b/k"),
        ("GS://b/k", "gs://b/k"),
        ("gs://b//k/./../%2e/ +?generation=1#2\n", "gs://b//k/./../%2e/ +?generation=1#2\n"),
        ("gs://b", "gs://b/"),
        (f"abfss://c@{HOST}/k", f"abfss://c@{HOST}/k"),
        (f"abfs://c@{HOST}/k", f"abfss://c@{HOST}/k"),
        ("wasbs://c@account.blob.core.windows.net/k//%2F", f"abfss://c@{HOST}/k//%2F"),
        ("WASB://c@Account.Blob.Core.Windows.NET/K", f"abfss://c@{HOST}/K"),
        ("wasb://c@a.z01.blob.storage.azure.net/k", "abfss://c@a.z01.dfs.storage.azure.net/k"),
        ("wasb://c@blob.core.windows.net/k", "abfss://c@blob.core.windows.net/k"),
        ("abfs://c/k", "abfss://c/k"),
        ("abfss://c", "abfss://c/"),
    ],
)
def test_one_object_has_one_spelling(path: str, expected: str) -> None:
    storage = open_storage({"gcs.no-auth": "true"})
    assert storage.canonical(path) == expected
    assert storage.canonical(expected) == expected


@pytest.mark.parametrize("path", ["gs:/b/k", "gs:///k", "abfss:///k", "abfss://@account/k", "abfss:/c/k"])
def test_what_names_no_object_is_refused(path: str) -> None:
    with pytest.raises(UsageError):
        open_storage({"gcs.no-auth": "true"}).canonical(path)


# Answers that get lost


@dataclass
class Front:
    """A server before the emulator; `fates` are those of the next requests that write.

    Args:
        behind: the emulator.
        fates: `lost` is carried out and has no answer, `500` is carried out and has that one, a number is an answer to
            what is not carried out.
    """

    behind: str
    fates: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)


class _Handler(PassingOn):
    front: ClassVar[Front]

    def response(self, request: Request) -> Response | None:
        front = self.front
        front.requests.append(request)
        writes = request.method == "PUT" or request.path.startswith("/upload/")
        fate = front.fates.pop(0) if writes and front.fates else ""
        if fate.isdigit():
            return Response(int(fate), [], b"")
        answer = request.forward(front.behind)
        if fate == "lost":
            return None
        return Response(500, [], b"") if fate == "500 after" else answer


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(backoff, "_FIRST_THROTTLED_WAIT_S", 0.001)
    azure = pytest.importorskip("iceberg_cli.storage.azure.blobs")
    monkeypatch.setattr(azure, "_WAITS", dict.fromkeys(azure._WAITS, 0))


@pytest.mark.parametrize("fate", ["lost", "500 after", "503"])
def test_a_create_whose_answer_got_lost_is_ours(store: ObjectStore, fate: str, no_waits: None) -> None:
    front = Front(store.endpoint, [fate])
    with serving(_Handler, front=front) as endpoint:
        storage = open_storage(store.options_at(endpoint))
        path = f"{store.new_folder()}/v1.json"
        storage.put_if_absent(path, b"ours")
        assert store.storage.read(path) == b"ours"
        front.fates = [fate]
        with pytest.raises(FileExistsError):
            storage.put_if_absent(path, b"later")
        assert store.storage.read(path) == b"ours"


def test_a_service_that_stays_down_is_unavailable_after_a_bounded_number_of_tries(
    store: ObjectStore, no_waits: None
) -> None:
    front = Front(store.endpoint, ["503"] * 30)
    with serving(_Handler, front=front) as endpoint:
        storage = open_storage(store.options_at(endpoint))
        path = f"{store.new_folder()}/v1.json"
        with pytest.raises(BackendUnavailable, match=re.escape(path)):
            storage.put_if_absent(path, b"ours")
    assert 3 <= 30 - len(front.fates) <= 10
    assert store.storage.stat_many([path]) == [None]


def test_a_bucket_that_is_not_there_is_no_empty_folder(store: ObjectStore) -> None:
    scheme, _, rest = store.root.partition("://")
    elsewhere = f"{scheme}://nowhere{rest.removeprefix('warehouse')}/t"
    with pytest.raises(BackendUnavailable):
        list(store.storage.list(elsewhere))


class _Nothing(PassingOn):
    """A proxy that knows no such host; or a service that says no more than that to those who may not know."""

    headers_: ClassVar[list[tuple[str, str]]]
    body: ClassVar[bytes]

    def response(self, request: Request) -> Response:
        return Response(404, self.headers_, b"" if request.method == "HEAD" else self.body)


HTML = ([("Content-Type", "text/html")], b"<html><body>404 Not Found</body></html>")
NOT_TOLD = (
    [("Content-Type", "application/xml"), ("x-ms-error-code", "ResourceNotFound")],
    b"<Error><Code>ResourceNotFound</Code><Message>The specified resource does not exist.</Message></Error>",
)


@pytest.mark.parametrize(
    ("store", "answer"),
    [("azurite", HTML), ("azurite", NOT_TOLD), ("fake_gcs", HTML)],
    indirect=["store"],
)
def test_an_answer_of_404_that_is_about_no_object_is_no_absence(
    store: ObjectStore, answer: tuple[list[tuple[str, str]], bytes]
) -> None:
    path = f"{store.new_folder()}/object"
    with serving(_Nothing, headers_=answer[0], body=answer[1]) as endpoint:
        storage = open_storage(store.options_at(endpoint))
        for look in (storage.stat, storage.read, lambda each: storage.stat_many([each])):
            with pytest.raises(BackendUnavailable):
                look(path)
        assert storage.delete([path]).keys() == {path}
        assert storage.delete([path, f"{path}2"]).keys() == {path, f"{path}2"}


# Google Cloud Storage


BATCH_ANSWER = "\r\n".join(
    f"--b\r\nContent-Type: application/http\r\nContent-ID: <response-{number}>\r\n\r\n"
    f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n\r\n{body}"
    for number, status, body in [
        (3, 403, '{"error": {"code": 403, "message": "Object is under active Temporary hold"}}'),
        (0, 204, ""),
        (2, 503, '{"error": {"message": "Backend Error"}}'),
        (1, 404, '{"error": {"code": 404, "message": "No such object: warehouse/b"}}'),
    ]
)


class _Batches(PassingOn):
    """A service that answers the first batch of deletions as above, and then to each object 204."""

    bodies: ClassVar[list[str]]

    def response(self, request: Request) -> Response | None:
        if request.method == "DELETE":
            assert request.path == "/storage/v1/b/warehouse/o/d?userProject=me"
            return Response(
                403, [], b'{"error": {"code": 403, "message": "Object is under active Temporary hold"}}'
            )
        assert request.path == "/batch/storage/v1"
        self.bodies.append(request.body.decode())
        answer = f"{BATCH_ANSWER}\r\n--b--\r\n"
        if len(self.bodies) > 1:
            answer = answer.replace("503 X", "204 X").replace("<response-2>", "<response-0>")
            answer = f"--b{answer.split('--b')[3]}--b--\r\n"
        return Response(200, [("Content-Type", "multipart/mixed; boundary=b")], answer.encode())


def test_a_batch_tells_of_each_object_whether_it_is_gone(no_waits: None) -> None:
    bodies: list[str] = []
    with serving(_Batches, bodies=bodies) as endpoint:
        storage = open_storage(
            {"gcs.service.host": endpoint, "gcs.no-auth": "true", "gcs.user-project": "me"}
        )
        failures = storage.delete([f"gs://warehouse/{key}" for key in ("a/x y#1", "b", "c", "d")])
    assert failures == {"gs://warehouse/d": "403: Object is under active Temporary hold"}
    first = [line.rstrip() for line in bodies[0].splitlines() if line.startswith("DELETE")]
    names = ["a%2Fx%20y%231", "b", "c", "d"]
    assert first == [f"DELETE /storage/v1/b/warehouse/o/{name}?userProject=me HTTP/1.1" for name in names]


def test_the_hundred_objects_of_a_batch_go_in_one_request(no_waits: None) -> None:
    sizes: list[int] = []

    class Counting(PassingOn):
        def response(self, request: Request) -> Response | None:
            ids = re.findall(r"Content-ID: <(\d+)>", request.body.decode())
            sizes.append(len(ids))
            parts = "".join(
                f"--b\r\nContent-Type: application/http\r\nContent-ID: <response-{number}>\r\n\r\n"
                "HTTP/1.1 204 No Content\r\n\r\n\r\n"
                for number in ids
            )
            headers = [("Content-Type", 'multipart/mixed; boundary="b"')]
            return Response(200, headers, f"{parts}--b--".encode())

    with serving(Counting) as endpoint:
        storage = open_storage({"gcs.service.host": endpoint, "gcs.no-auth": "true"})
        assert storage.delete([f"gs://warehouse/{number}" for number in range(250)]) == {}
    assert sorted(sizes) == [50, 100, 100]


class _Answering(PassingOn):
    """A server that answers each request by a function, and passes it on where that gives none."""

    behind: ClassVar[str]
    answers: ClassVar[list[Callable[[Request], Response | None]]]
    requests: ClassVar[list[Request]]

    def response(self, request: Request) -> Response:
        self.requests.append(request)
        return self.answers[0](request) or request.forward(self.behind)


@contextmanager
def answering(
    store: ObjectStore, answer: Callable[[Request], Response | None]
) -> Iterator[tuple[Storage, list[Request]]]:
    """A storage whose requests go to such a server before the emulator, and what came there."""
    requests: list[Request] = []
    with serving(_Answering, behind=store.endpoint, answers=[answer], requests=requests) as endpoint:
        yield open_storage(store.options_at(endpoint)), requests


PAGE = Response(200, [("Content-Type", "text/html")], b"<html><body>Sign in</body></html>")


@pytest.mark.parametrize("is_carried_out", [False, True])
def test_an_upload_is_done_when_the_answer_names_its_generation(
    fake_gcs: FakeGcs, no_waits: None, *, is_carried_out: bool
) -> None:
    pages = [PAGE, PAGE]

    def answer(request: Request) -> Response | None:
        if not request.path.startswith("/upload/") or not pages:
            return None
        if is_carried_out:
            request.forward(fake_gcs.endpoint)
        return pages.pop()

    path = f"{fake_gcs.new_folder()}/v1.json"
    with answering(fake_gcs, answer) as (storage, _):
        storage.put_if_absent(path, b"ours")
        assert not pages
        assert fake_gcs.storage.read(path) == b"ours"
        pages.append(PAGE)
        with pytest.raises(BackendUnavailable, match="no document with generation"):
            storage.replace(path, b"others")


@pytest.mark.parametrize("page", [PAGE, PAGE._replace(body=b""), PAGE._replace(body=b"[]")])
def test_a_page_in_place_of_an_answer_is_neither_a_folder_nor_an_object(
    fake_gcs: FakeGcs, page: Response
) -> None:
    folder = fake_gcs.new_folder()
    with answering(fake_gcs, lambda _: page) as (storage, _):
        for look in (
            storage.stat,
            lambda path: [*storage.list(path)],
            lambda path: [*storage.subfolders(path)],
        ):
            with pytest.raises(BackendUnavailable, match="no document"):
                look(f"{folder}/a")
        assert storage.delete([f"{folder}/a", f"{folder}/b"]).keys() == {f"{folder}/a", f"{folder}/b"}
        assert page.body == b"" or storage.delete([f"{folder}/a"]).keys() == {f"{folder}/a"}


def test_what_says_that_it_is_compressed_and_is_not_is_no_object(fake_gcs: FakeGcs) -> None:
    headers = [("Content-Encoding", "gzip"), ("X-Goog-Stored-Content-Encoding", "identity")]
    compressed = gzip.compress(b"0123456789")
    answers = [compressed[:-4], compressed]
    with answering(fake_gcs, lambda _: Response(200, headers, answers.pop(0))) as (storage, _):
        with pytest.raises(BackendUnavailable, match="no gzip"):
            storage.read("gs://warehouse/a")
        assert storage.read("gs://warehouse/a") == b"0123456789"


def test_no_redirect_is_followed(fake_gcs: FakeGcs) -> None:
    path, there = f"{fake_gcs.new_folder()}/object", list[Request]()
    fake_gcs.storage.put_if_absent(path, b"x")
    with serving(_Answering, behind=fake_gcs.endpoint, answers=[lambda _: None], requests=there) as elsewhere:

        def answer(request: Request) -> Response:
            return Response(307, [("Location", f"{elsewhere}{request.path}")], b"")

        with answering(fake_gcs, answer) as (storage, _):
            for act in (
                lambda: storage.put_if_absent(f"{path}2", b"x"),
                lambda: storage.replace(path, b"y"),
                lambda: storage.read(path),
                lambda: storage.stat(path),
            ):
                with pytest.raises(BackendUnavailable, match="307"):
                    act()
            assert storage.delete([path]) == {path: "307: HTTP 307"}
    assert there == []
    assert fake_gcs.storage.read(path) == b"x"


@pytest.mark.parametrize("span", [(3, 4), (3, 100), (0, 10), (10, 5), (40, 5)])
def test_a_part_of_an_object_is_cut_out_of_the_whole_where_the_answer_has_that(
    fake_gcs: FakeGcs, span: tuple[int, int]
) -> None:
    path = f"{fake_gcs.new_folder()}/object"
    fake_gcs.storage.put_if_absent(path, b"0123456789")

    def whole(request: Request) -> Response:
        kept = {name: text for name, text in request.headers.items() if name != "Range"}
        return request._replace(headers=kept).forward(fake_gcs.endpoint)

    with answering(fake_gcs, whole) as (storage, _):
        assert storage.read(path, span) == b"0123456789"[span[0] : sum(span)]


@pytest.mark.parametrize(
    ("status", "has", "body"),
    [
        (206, "bytes 2-5/10", b"2345"),
        (206, "bytes 3-5/10", b"345"),
        (206, "bytes 3-6/10", b"345"),
        (206, "", b"3456"),
        (204, "", b""),
    ],
)
def test_other_bytes_than_were_asked_for_are_no_part_of_an_object(
    fake_gcs: FakeGcs, status: int, has: str, body: bytes
) -> None:
    headers = [("Content-Range", has)] if has else []
    with (
        answering(fake_gcs, lambda _: Response(status, headers, body)) as (storage, _),
        pytest.raises(BackendUnavailable, match=f"HTTP {status}, has other bytes"),
    ):
        storage.read("gs://warehouse/object", (3, 4))


def test_an_object_that_is_created_while_it_is_read_is_read(fake_gcs: FakeGcs) -> None:
    """A download's answer of 404 is text, which a page may be as well: the object's metadata tells."""
    path = f"{fake_gcs.new_folder()}/object"

    def answer(request: Request) -> Response | None:
        if [each.path for each in requests] == [request.path]:
            fake_gcs.storage.put_if_absent(path, b"x")
            return Response(404, [("Content-Type", "text/html")], b"No such object: warehouse/object")
        return None

    with answering(fake_gcs, answer) as (storage, requests):
        assert storage.read(path) == b"x"
    assert len(requests) == 3


class _Guard(PassingOn):
    """A service that lets one token in, and tells it to nobody else."""

    behind: ClassVar[str]
    tokens: ClassVar[list[str]]  # the last one is good
    refused: ClassVar[list[str]]

    def response(self, request: Request) -> Response | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token == self.tokens[-1]:
            return request.forward(self.behind)
        self.refused.append(token)
        body = {"error": {"code": 401, "message": f"Invalid Credentials: {token}"}}
        return Response(401, [], json.dumps(body).encode())


def ends_ms(in_s: float) -> str:
    """A moment as an option has it."""
    return str(round((time.time() + in_s) * 1000))  # noqa: TID251 - credentials end by the clock


def test_a_token_that_is_refused_or_ends_is_renewed_and_no_message_has_it(fake_gcs: FakeGcs) -> None:
    tokens, refused, given = ["ya29.first-token"], list[str](), list[str]()

    with serving(_Guard, behind=fake_gcs.endpoint, tokens=tokens, refused=refused) as endpoint:

        def options(token: str, ends_s: float = 3600) -> dict[str, str]:
            return {
                "gcs.service.host": endpoint,
                "gcs.oauth2.token": token,
                "gcs.oauth2.token-expires-at": ends_ms(ends_s),
            }

        def renewal() -> Mapping[str, str]:
            given.append(tokens[-1])
            return options(tokens[-1])

        def storage_by(first: Mapping[str, str], *, renews: bool = True) -> Storage:
            return RoutedStorage(
                {},
                credentials=[
                    StorageCredential(prefix="", options=first, renewal=renewal if renews else None)
                ],
            )

        path = f"{fake_gcs.new_folder()}/object"
        storage = storage_by(options(tokens[0]))
        storage.put_if_absent(path, b"x")
        assert (given, refused) == ([], [])
        tokens.append("ya29.second-token")
        assert storage.read(path) == b"x"
        assert (given, refused) == (["ya29.second-token"], ["ya29.first-token"])
        with pytest.raises(AccessDenied) as raised:
            storage_by(options("ya29.of-nobody"), renews=False).read(path)
        assert "ya29.of-nobody" not in str(raised.value)
        refused.clear()
        ending = storage_by(options("ya29.first-token", ends_s=2))
        ending.canonical(path)  # it connects
        time.sleep(1.1)
        assert ending.read(path) == b"x"
        assert refused == []


def test_credentials_that_end_within_a_batch_are_renewed(fake_gcs: FakeGcs) -> None:
    """The service may take the batch and refuse what is in it."""
    folder = fake_gcs.new_folder()
    paths = [f"{folder}/{number}" for number in range(3)]
    fake_gcs.create_empty(paths)
    refused = '{"error": {"code": 401, "message": "Invalid Credentials"}}'

    def answer(request: Request) -> Response | None:
        if request.path == "/batch/storage/v1":
            parts = "".join(
                f"--b\r\nContent-Type: application/http\r\nContent-ID: <response-{number}>\r\n\r\n"
                f"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n\r\n{refused}\r\n"
                for number in range(3)
            )
            return Response(200, [("Content-Type", "multipart/mixed; boundary=b")], f"{parts}--b--".encode())
        is_new = request.headers.get("Authorization") == "Bearer ya29.new"
        return None if is_new else Response(401, [], refused.encode())

    with serving(_Answering, behind=fake_gcs.endpoint, answers=[answer], requests=[]) as endpoint:
        old, new = (
            {"gcs.service.host": endpoint, "gcs.oauth2.token": f"ya29.{each}"} for each in ("old", "new")
        )
        credential = StorageCredential(prefix="", options=old, renewal=lambda: new)
        assert RoutedStorage({}, credentials=[credential]).delete(paths) == {}
    assert list(fake_gcs.storage.paths(folder)) == []


def test_objects_that_are_stored_compressed_come_as_they_are_stored(fake_gcs: FakeGcs) -> None:
    storage = fake_gcs.storage
    path = f"{fake_gcs.new_folder()}/v1.metadata.json.gz"
    storage.put_if_absent(path, b"\x1f\x8b not really")
    assert storage.read(path) == b"\x1f\x8b not really"


# Azure


def test_a_blob_with_snapshots_stays_and_its_deletion_says_so(azurite: Azurite) -> None:
    folder, container = azurite.new_folder(), azurite.container()
    paths = [f"{folder}/{name}" for name in ("one", "two", "three")]
    for path in paths:
        azurite.storage.put_if_absent(path, b"x")
    snapshot = container.get_blob_client(azurite.key_of(paths[1])).create_snapshot()
    failures = azurite.storage.delete([*paths, f"{folder}/absent"])
    assert failures.keys() == {paths[1]}
    assert "snapshots" in failures[paths[1]]
    assert azurite.storage.read(paths[1]) == b"x"
    assert list(azurite.storage.paths(folder)) == [paths[1]]
    kept = container.list_blobs(name_starts_with=azurite.key_of(folder), include=["snapshots"])
    assert snapshot["snapshot"] in [each.snapshot for each in kept]


def test_real_folders_are_no_files_and_what_is_in_them_comes_by_path(azurite: Azurite) -> None:
    folder, container = azurite.new_folder(), azurite.container()
    for name in ("t", "t/a", "t/empty"):
        key = azurite.key_of(f"{folder}/{name}")
        container.upload_blob(key, b"", metadata={"hdi_isfolder": "true"})
    for name in ("t/a/z", "t/a.b", "t/b"):
        azurite.storage.put_if_absent(f"{folder}/{name}", b"x")
    names = [path.removeprefix(f"{folder}/") for path in azurite.storage.paths(folder)]
    assert names == ["t/a.b", "t/a/z", "t/b"]
    assert azurite.storage.stat_many([f"{folder}/t/a", f"{folder}/t/b"])[0] is None
    with pytest.raises(FileNotFoundError):
        azurite.storage.read(f"{folder}/t/a")
    assert not azurite.storage.holds_any(f"{folder}/t/empty")


def test_many_blobs_are_deleted_in_batches(azurite: Azurite) -> None:
    folder = azurite.new_folder()
    paths = [f"{folder}/{number} %20+#?" for number in range(300)]
    azurite.create_empty(paths[:20])
    front = Front(azurite.endpoint)
    with serving(_Handler, front=front) as endpoint:
        assert open_storage(azurite.options_at(endpoint)).delete(paths) == {}
    assert [request.method for request in front.requests] == ["POST", "POST"]
    assert list(azurite.storage.paths(folder)) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("write", ["put_if_absent", "replace"])
def test_a_blob_of_more_than_64_mib_is_written_by_one_request(azurite: Azurite, write: str) -> None:
    front, path, data = (
        Front(azurite.endpoint),
        f"{azurite.new_folder()}/large",
        b"0123456789abcdef" * (65 << 16),
    )
    with serving(_Handler, front=front) as endpoint:
        getattr(open_storage(azurite.options_at(endpoint)), write)(path, data)
    sent = [(each.method, urlsplit(each.path).query, len(each.body)) for each in front.requests]
    assert sent == [("PUT", "", 65 << 20)]
    assert azurite.storage.read(path) == data


class _Slow(_Handler):
    """A server that takes a body in parts, and needs longer for all of it, and then for its answer, than for one."""

    def setup(self) -> None:
        super().setup()
        reads = self.rfile

        class Slow(io.RawIOBase):
            def readline(self, size: int | None = -1, /) -> bytes:
                return reads.readline(size)

            def read(self, size: int = -1, /) -> bytes:
                parts = []
                for part in range(16 if size else 0):
                    time.sleep(0.05)
                    parts.append(reads.read(size * (part + 1) // 16 - size * part // 16))
                time.sleep(0.5 if size else 0)
                return b"".join(parts)

        self.rfile = Slow()  # type: ignore[assignment]


def test_time_outs_of_a_large_upload_are_for_its_parts(
    azurite: Azurite, no_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    azure = pytest.importorskip("iceberg_cli.storage.azure.blobs")
    for name, value in {"_CONNECT_S": 0.4, "_ANSWER_S": 0.4, "_SLOWEST": 1 << 20}.items():
        monkeypatch.setattr(azure, name, value)
    path, data = f"{azurite.new_folder()}/large", b"0123456789abcdef" * (2 << 20)
    with serving(_Slow, front=Front(azurite.endpoint)) as endpoint:
        open_storage(azurite.options_at(endpoint)).put_if_absent(path, data)
    assert azurite.storage.read(path) == data


@pytest.mark.parametrize("suffix", ["", f".{ACCOUNT}", f".{ACCOUNT}.dfs.core.windows.net"])
def test_a_shared_access_signature_that_a_catalog_gives_is_used_and_renewed(
    azurite: Azurite, suffix: str
) -> None:
    from datetime import UTC, datetime

    from azure.storage.blob import generate_container_sas

    def signature(permission: str) -> str:
        return str(
            generate_container_sas(
                ACCOUNT,
                "warehouse",
                account_key=KEY,
                permission=permission,
                expiry=datetime.fromtimestamp(int(ends_ms(3600)) / 1000, UTC),
            )
        )

    def options(sas: str) -> dict[str, str]:
        return {
            "adls.blob-storage-authority": urlsplit(azurite.endpoint).netloc,
            "adls.blob-storage-scheme": "http",
            f"adls.sas-token{suffix}": sas,
            f"adls.sas-token-expires-at-ms{suffix}": ends_ms(3600),
        }

    folder = azurite.new_folder()
    given = list[str]()

    def renewal() -> Mapping[str, str]:
        given.append("renewed")
        return options(signature("rwdl"))

    credential = StorageCredential(prefix=azurite.root, options=options(signature("r")), renewal=renewal)
    storage = RoutedStorage({}, credentials=[credential])
    path = f"{folder}/object"
    with pytest.raises(FileNotFoundError):
        storage.read(path)
    storage.put_if_absent(path.replace("abfss:", "abfs:"), b"x")
    assert given == ["renewed"]
    assert storage.read(path) == b"x"
    assert [info.path for info in storage.list(folder)] == [path]
    assert storage.delete([path, f"{path}2"]) == {}
    only_reads = signature("r")
    refused = RoutedStorage({}, credentials=[StorageCredential(prefix="", options=options(only_reads))])
    with pytest.raises(AccessDenied) as raised:
        refused.put_if_absent(path, b"x")
    text = str(raised.value)
    assert parse_qs(only_reads)["sig"][0] not in unquote(text)
    assert path in text


# As the portal writes it, without the account's name
PORTAL = (
    "BlobEndpoint=https://account.blob.core.windows.net/;QueueEndpoint=https://account.queue.core.windows.net/;"
    "SharedAccessSignature=sv=1&sig=s"
)


@pytest.mark.parametrize(
    ("options", "host", "url", "how"),
    [
        ({}, HOST, "https://account.blob.core.windows.net", {}),
        ({"adls.account-name": "account"}, "", "https://account.blob.core.windows.net", {}),
        ({"adls.account-key": "k"}, HOST, "https://account.blob.core.windows.net", {"key": "k"}),
        ({"adls.account-name": "other", f"adls.account-key.{HOST}": "k"}, HOST, None, {"key": "k"}),
        ({"adls.account-name": "account", "adls.account-key.account": "k"}, "", None, {"key": "k"}),
        (
            {"adls.auth.shared-key.account.name": "account", "adls.auth.shared-key.account.key": "k"},
            HOST,
            None,
            {"key": "k"},
        ),
        ({"adls.sas-token": "?sv=1&sig=s"}, HOST, None, {"sas": "sv=1&sig=s"}),
        ({f"adls.sas-token.{HOST}": "own", "adls.sas-token": "all"}, HOST, None, {"sas": "own"}),
        ({f"adls.sas-token.{HOST}": "s", "adls.account-name": "account"}, "", None, {"sas": "s"}),
        ({"adls.sas-token.other": "s", "adls.credential": "default"}, HOST, None, {"sas": None}),
        ({"adls.sas-token.other": "s", "adls.credential.account": "default"}, HOST, None, {"sas": None}),
        ({"adls.token.account": "t"}, HOST, None, {"token": "t"}),
        ({"adls.token.account": "t", "adls.sas-token": "all"}, HOST, None, {"token": "t", "sas": None}),
        ({"adls.anon.account": "true", "adls.anon": "false"}, HOST, None, {"is_anonymous": True}),
        ({"adls.anon.other": "true"}, HOST, None, {"is_anonymous": False}),
        (
            {"adls.connection-string": "AccountName=account;AccountKey=a==;EndpointSuffix=core.chinacloudapi.cn"},
            "",
            "https://account.blob.core.chinacloudapi.cn",
            {"key": "a=="},
        ),
        (
            {"adls.connection-string": "AccountName=account;AccountKey=a=="},
            "account.dfs.core.chinacloudapi.cn",
            "https://account.blob.core.chinacloudapi.cn",
            {"key": "a=="},
        ),
        (
            {"adls.connection-string": "DefaultEndpointsProtocol=http;AccountName=account;AccountKey=a=="},
            "",
            "http://account.blob.core.windows.net",
            {"key": "a=="},
        ),
        ({"adls.connection-string": PORTAL}, HOST, "https://account.blob.core.windows.net", {"sas": "sv=1&sig=s"}),
        ({"adls.connection-string": PORTAL}, "", "https://account.blob.core.windows.net", {"sas": "sv=1&sig=s"}),
        (
            {f"adls.connection-string.{HOST}": PORTAL.replace("//account", "//of-dr")},
            HOST,
            "https://of-dr.blob.core.windows.net",
            {"sas": "sv=1&sig=s"},
        ),
        (
            {"adls.connection-string": "BlobEndpoint=http://127.0.0.1:10000/account;SharedAccessSignature=s"},
            HOST,
            "http://127.0.0.1:10000/account",
            {"sas": "s"},
        ),
        (
            {"adls.connection-string": "https://of-dr.blob.core.windows.net/"},
            HOST,
            "https://account.blob.core.windows.net",
            {},
        ),
        (
            {f"adls.connection-string.{HOST}": "http://127.0.0.1:10000/account"},
            HOST,
            "http://127.0.0.1:10000/account",
            {},
        ),
        ({"adls.account-host": "account.z1.blob.a.net"}, "", "https://account.z1.blob.a.net", {}),
        ({"adls.blob-storage-authority": ".blob.local"}, HOST, "https://account.blob.local", {}),
        (
            {"adls.tenant-id": "t", "adls.client-id": "c", "adls.client-secret": "s"},
            HOST,
            None,
            {"principal": ("t", "c", "s")},
        ),
        (
            {"adls.tenant-id": "t", "adls.client-id.account": "c", f"adls.client-secret.{HOST}": "s"},
            HOST,
            None,
            {"principal": ("t", "c", "s")},
        ),
    ],
)  # fmt: skip
def test_options_name_the_account_and_its_credential(
    options: dict[str, str], host: str, url: str | None, how: dict[str, Any]
) -> None:
    account = AzureOptions.of(options, {}).account(host)
    assert account.name == "account"
    assert url in (None, account.url)
    assert {name: getattr(account, name) for name in how} == how


@pytest.mark.parametrize(
    "options",
    [
        {"adls.account-name": "other", "adls.account-key": "hidden"},
        {"adls.sas-token.other.dfs.core.windows.net": "hidden"},
        {"adls.token.other": "hidden"},
        {"adls.tenant-id": "t", "adls.client-id": "c", "adls.client-secret.other": "hidden"},
        {"adls.connection-string": "AccountName=other;AccountKey=hidden"},
        {"adls.connection-string": PORTAL.replace("//account", "//of-dr").replace("sig=s", "sig=hidden")},
        {"adls.connection-string": "BlobEndpoint=http://127.0.0.1:1/other;SharedAccessSignature=hidden"},
    ],
)
def test_a_credential_for_another_account_is_not_replaced_by_one_that_is_found(
    options: dict[str, str],
) -> None:
    *_, name = options
    with pytest.raises(UsageError, match="the account account on Azure: no credential is for it") as no:
        AzureOptions.of(options, {}).account(HOST)
    assert f" {name}." in no.value.message
    assert "hidden" not in f"{no.value.message}{no.value.next_step}"


def test_a_variable_for_another_account_is_not_replaced_either() -> None:
    variables = {"AZURE_STORAGE_CONNECTION_STRING": PORTAL.replace("//account", "//of-dr")}
    with pytest.raises(UsageError) as refused:
        AzureOptions.of({}, variables).account(HOST)
    assert "AZURE_STORAGE_CONNECTION_STRING" in refused.value.next_step
    found = AzureOptions.of({"adls.credential": "default"}, variables).account(HOST)
    assert (found.url, found.sas) == ("https://account.blob.core.windows.net", None)


def test_a_container_alone_needs_an_account_by_the_options() -> None:
    with pytest.raises(UsageError, match="names no account"):
        AzureOptions.of({}, {}).account("")


def test_no_message_has_a_key_or_a_signature() -> None:
    given = {
        "adls.connection-string": "AccountName=account;AccountKey=c2VjcmV0LWtleQ==;BlobEndpoint=http://h/account",
        "adls.sas-token.account": "sv=2024&sig=abc%2Bdef%3D&se=2026",
    }
    secrets = AzureOptions.of(given, {}).secrets
    assert {"c2VjcmV0LWtleQ==", "abc%2Bdef%3D", "abc+def="} <= set(secrets)
    assert not {"account", "http://h/account", "AccountName"} & set(secrets)


# Both


@pytest.mark.parametrize(
    ("options", "over", "expected"),
    [
        (
            {"gcs.oauth2.token": "old", "gcs.oauth2.token-expires-at": "1", "gcs.project-id": "p"},
            {"gcs.oauth2.token": "new"},
            {"gcs.oauth2.token": "new", "gcs.project-id": "p"},
        ),
        (
            {"adls.sas-token.a": "old", "adls.sas-token-expires-at-ms.a": "1", "s3.region": "r"},
            {"adls.account-key": "k"},
            {"adls.account-key": "k", "s3.region": "r"},
        ),
        ({"adls.sas-token": "s"}, {"adls.account-host": "h"}, {"adls.sas-token": "s", "adls.account-host": "h"}),
    ],
)  # fmt: skip
def test_credentials_are_taken_together(
    options: dict[str, str], over: dict[str, str], expected: dict[str, str]
) -> None:
    assert with_options(options, over) == expected


@pytest.mark.parametrize(
    ("host", "scheme", "known"),
    [
        ("storage.googleapis.com", "gs", True),
        ("www.googleapis.com", "gs", True),
        ("storage-xyz.p.googleapis.com", "gs", True),
        ("storage.europe-west3.rep.googleapis.com", "gs", True),
        ("storage.googleapis.com.example.org", "gs", False),
        ("127.0.0.1", "gs", False),
        ("storage.googleapis.com", "s3", False),
        ("account.blob.core.windows.net", "abfss", True),
        ("account.z01.blob.storage.azure.net", "abfss", True),
        ("account.blob.core.usgovcloudapi.net", "abfss", True),
        ("account.blob.core.windows.net.example.org", "abfss", False),
        ("azurite", "abfss", False),
    ],
)
def test_hosts_that_keep_conditional_creates_are_known(host: str, scheme: str, known: bool) -> None:
    assert is_known(host, f"{scheme}://b") is known


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("gs://b/t", "https://storage.googleapis.com"),
        (f"abfss://c@{HOST}/t", "https://account.blob.core.windows.net"),
    ],
)
def test_without_an_endpoint_the_service_is_the_real_one(
    folder: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    storage = open_storage({"gcs.no-auth": "true", "adls.anon": "true"})
    service = service_of(folder, storage)
    assert service is not None
    assert (service.name, service.is_known) == (name, True)


def test_an_emulator_is_not_known(store: ObjectStore) -> None:
    service = service_of(store.root, store.storage)
    assert service is not None
    assert not service.is_known


def test_other_processes_get_the_settings_of_the_environment() -> None:
    environment = {"STORAGE_EMULATOR_HOST": "http://localhost:4443", "AZURE_STORAGE_SAS_TOKEN": "s"}
    assert with_environment({}, environment) == {
        "gcs.service.host": "http://localhost:4443",
        "adls.sas-token": "s",
    }
    own = {"gcs.endpoint": "http://h", "adls.account-key": "k"}
    assert with_environment(own, environment) == own


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gcs.no-auth", "maybe"),
        ("gcs.access", "all"),
        ("gcs.session-kwargs", "[]"),
        ("gcs.oauth2.token", "{"),
        ("gcs.oauth2.token", "/no/such/key.json"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(option: str, value: str) -> None:
    with pytest.raises(UsageError, match=re.escape(option)):
        open_storage({option: value}).read("gs://b/k")


@pytest.mark.parametrize("option", ["gcs.encryption-key", "gcs.decryption-key"])
def test_files_under_a_key_of_ones_own_are_refused(option: str) -> None:
    with pytest.raises(Refused, match=re.escape(option)):
        open_storage({option: "k"}).read("gs://b/k")
