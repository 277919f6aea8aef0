"""Servers before an S3 service that pass requests on, and what some of them do besides."""

from __future__ import annotations

import http.client
import itertools
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from requests.structures import CaseInsensitiveDict


class Request(NamedTuple):
    """As it came: the host among its headers is the front's own, which is signed."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def forward(self, behind: str) -> Response:
        """What the service at this endpoint answers to it."""
        connection = http.client.HTTPConnection(urlsplit(behind).netloc, timeout=60)
        connection.request(self.method, self.path, self.body or None, dict(self.headers))
        answer = connection.getresponse()
        found = Response(answer.status, answer.getheaders(), answer.read())
        connection.close()
        return found


class Response(NamedTuple):
    """An answer to a request."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class PassingOn(BaseHTTPRequestHandler):
    """Answers each request by `response`: by nothing, where that is None."""

    protocol_version = "HTTP/1.1"

    def response(self, request: Request) -> Response | None:
        """What is answered."""
        raise NotImplementedError

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = CaseInsensitiveDict(self.headers.items())
        response = self.response(Request(self.command, self.path, headers, body))
        if response is None:
            self.close_connection = True
            return
        length = str(len(response.body))
        self.send_response_only(response.status)
        for name, value in response.headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(response.body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A connection that was cut is what some tests are about."""


@dataclass(frozen=True)
class Certificate:
    """The files of a server's certificate and of its key."""

    file: Path
    key: Path


@contextmanager
def serving(
    handler: type[PassingOn], *, certificate: Certificate | None = None, **members: Any
) -> Iterator[str]:
    """The endpoint of a server whose handlers have these members; with a certificate it speaks TLS."""
    server = _Server(("127.0.0.1", 0), type("Handler", (handler,), members))
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.file, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@dataclass
class S3Front:
    """Counts requests, and does something before some of them.

    Args:
        behind: the endpoint of the service.
        before: what is done before the request of a number, which counts from 1.
    """

    behind: str
    before: Mapping[int, Callable[[], object]] = field(default_factory=dict)
    signed_by: list[str] = field(default_factory=list)  # access keys
    requests: list[Request] = field(default_factory=list)  # without bodies but of POSTs, which delete batches
    endpoint: str = ""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, request: Request) -> None:
        """A request has come; no other goes on until what is due is done."""
        with self._lock:
            self.requests.append(request if request.method == "POST" else request._replace(body=b""))
            signature = request.headers.get("Authorization", "")
            self.signed_by.append(signature.partition("Credential=")[2].partition("/")[0])
            self.before.get(next(self._numbers), lambda: None)()


@contextmanager
def s3_front(behind: str, before: Mapping[int, Callable[[], object]]) -> Iterator[S3Front]:
    """See `S3Front`."""
    front = S3Front(behind, before)
    with serving(_Counting, front=front) as front.endpoint:
        yield front


class _Counting(PassingOn):
    front: ClassVar[S3Front]

    def response(self, request: Request) -> Response:
        self.front.count(request)
        return request.forward(self.front.behind)
