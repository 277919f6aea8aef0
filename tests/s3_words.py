"""S3 services by what they do with `If-None-Match: *`: one that keeps it under races, and one that ignores it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from iceberg_cli.storage import Storage
from iceberg_cli.storage.router import open_storage
from tests.servers import S3Server

WORD = "--unsafe-conditional-writes"


@cache
def storage_of(server: S3Server) -> Storage:
    """The storage of a service that runs for the whole session."""
    return open_storage(server.options)


def options_of(server: S3Server) -> list[str]:
    """The options by which a command reaches a service."""
    return [part for item in server.options.items() for part in ("--storage-option", "=".join(item))]


class _Unconditional(BaseHTTPRequestHandler):
    """Passes each request on without its `If-None-Match`; moto looks at no signature.

    Where `has_conditions` is false, requests with that header are answered as services do that have no such thing.
    """

    protocol_version = "HTTP/1.1"
    behind = ""
    has_conditions = True

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length) if length else None
        if not self.has_conditions and "If-None-Match" in self.headers:
            self._answer(501, b"<Error><Code>NotImplemented</Code><Message>If-None-Match</Message></Error>")
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() != "if-none-match"}
        connection = http.client.HTTPConnection(self.behind, timeout=60)
        connection.request(self.command, self.path, body=body, headers=headers)
        answer = connection.getresponse()
        data = answer.read()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        kept = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", kept or str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        connection.close()

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="session")
def unconditional(moto_server: S3Server) -> Iterator[S3Server]:
    """A service that carries out every conditional create: moto's bucket, behind a proxy that strips the condition."""
    with _front(moto_server, has_conditions=True) as server:
        yield server


@pytest.fixture(scope="session")
def without_conditions(moto_server: S3Server) -> Iterator[S3Server]:
    """A service that has no conditional creates, and says so."""
    with _front(moto_server, has_conditions=False) as server:
        yield server


@contextmanager
def _front(behind: S3Server, *, has_conditions: bool) -> Iterator[S3Server]:
    members = {"behind": urlsplit(behind.endpoint).netloc, "has_conditions": has_conditions}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Unconditional,), members))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield S3Server(endpoint=f"http://127.0.0.1:{server.server_address[1]}", bucket=behind.bucket)
    server.shutdown()
    server.server_close()
