"""A front before moto's Glue, which refuses versions as AWS documents it: moto itself takes every `VersionId`.

Source: AWS Glue Web API Reference, `UpdateTable`, whose `VersionId` is "the version ID at which to update the table
contents", and its error `ConcurrentModificationException`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import boto3
import pytest

from tests.s3_front import PassingOn, Request, Response, serving
from tests.servers import MotoServer

REGION = "us-east-1"
KEYS = {
    "glue.access-key-id": "AKIAEXAMPLE",
    "glue.secret-access-key": "a-secret-of-glue",
    "glue.region": REGION,
}
Fate = str
"""`500 after`, `cut after`, `twice` (it comes in twice, and the second answer is what the sender gets), or `late`."""


def refusal(kind: str, message: str, status: int = 400) -> Response:
    """An answer of Glue that is an error."""
    body = json.dumps({"__type": kind, "Message": message}).encode()
    return Response(
        status, [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", kind)], body
    )


def client_of(endpoint: str, region: str = REGION) -> Any:
    """The SDK's own client of a service."""
    return boto3.client(
        "glue",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=KEYS["glue.access-key-id"],
        aws_secret_access_key=KEYS["glue.secret-access-key"],
    )


@dataclass
class GlueFront:
    """Passes requests on to moto, one `UpdateTable` at a time.

    Args:
        behind: moto's endpoint.
        fates: of the next updates.
        answers: by operation, what is answered instead of passing it on.
        changed: by operation, a change of moto's answer.
        meanwhile: is done once, after an update had its effect and before it is answered.
        calls: the operation and the arguments of each request.
    """

    behind: str
    fates: list[Fate] = field(default_factory=list)
    answers: dict[str, Response] = field(default_factory=dict)
    changed: dict[str, Callable[[dict[str, Any]], object]] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    meanwhile: Callable[[], object] | None = None
    late: list[Request] = field(default_factory=list)
    endpoint: str = ""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, request: Request) -> Response | None:
        """What is answered to a request; None: the connection is cut."""
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        self.calls.append((operation, json.loads(request.body or b"{}")))
        if operation in self.answers:
            return self.answers[operation]
        if operation != "UpdateTable":
            response = request.forward(self.behind)
            if operation in self.changed and response.status == 200:
                document = json.loads(response.body)
                self.changed[operation](document)
                return response._replace(body=json.dumps(document).encode())
            return response
        fate = self.fates.pop(0) if self.fates else ""
        if fate == "late":
            self.late.append(request)
            return None
        response = self._update(request)
        if fate == "twice":
            response = self._update(request)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        if fate == "500 after":
            return refusal("InternalServiceException", "An internal service error occurred.", 500)
        return None if fate == "cut after" else response

    def release(self) -> None:
        """Let what is late take its effect, or be refused."""
        late, self.late = self.late, []
        for request in late:
            self._update(request)

    def _update(self, request: Request) -> Response:
        asked = json.loads(request.body)
        with self._lock:
            named = {"DatabaseName": asked["DatabaseName"], "Name": asked["TableInput"]["Name"]}
            found = self._call(request, "GetTable", named)
            if found.status != 200:
                return found
            current = json.loads(found.body)["Table"]["VersionId"]
            if asked.get("VersionId", current) != current:
                return refusal(
                    "ConcurrentModificationException", "Update table failed due to concurrent modifications."
                )
            return request.forward(self.behind)

    def _call(self, request: Request, operation: str, arguments: Mapping[str, Any]) -> Response:
        headers = {**request.headers, "X-Amz-Target": f"AWSGlue.{operation}"}
        headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
        return request._replace(headers=headers, body=json.dumps(arguments).encode()).forward(self.behind)

    # -- for tests ---------------------------------------------------------------------------------------------

    def client(self) -> Any:
        """The SDK's own client."""
        return client_of(self.endpoint)

    def properties(self) -> dict[str, str]:
        """Of a catalog in PyIceberg's configuration."""
        return {"type": "glue", "glue.endpoint": self.endpoint, **KEYS}

    def updates(self) -> int:
        """How many requests to commit came in."""
        return sum(operation == "UpdateTable" for operation, _ in self.calls)


class _Handler(PassingOn):
    front: ClassVar[GlueFront]

    def response(self, request: Request) -> Response | None:
        return self.front.answer(request)


@contextmanager
def glue_before(behind: str) -> Iterator[GlueFront]:
    """A front of its own."""
    front = GlueFront(behind)
    with serving(_Handler, front=front) as front.endpoint:
        yield front


@pytest.fixture(scope="session")
def glue_service(moto_server: MotoServer) -> Iterator[GlueFront]:
    """One for tables that Spark writes."""
    with glue_before(moto_server.endpoint) as front:
        yield front


@pytest.fixture
def glue(moto_server: MotoServer) -> Iterator[GlueFront]:
    """One for a single test."""
    with glue_before(moto_server.endpoint) as front:
        yield front
