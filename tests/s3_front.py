"""A front before an S3 service that counts requests, and does something before one of them."""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urlsplit


@dataclass
class S3Front:
    """What is done before which request, and who signed those that came.

    Args:
        behind: the endpoint of the service.
        before: what is done before the request of a number, which counts from 1.
    """

    behind: str
    before: Mapping[int, Callable[[], object]] = field(default_factory=dict)
    signed_by: list[str] = field(default_factory=list)  # access keys
    requests: list[tuple[str, str, bytes]] = field(
        default_factory=list
    )  # methods, paths, and what deletes batches
    endpoint: str = ""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, method: str, path: str, body: bytes | None, signature: str) -> None:
        """A request with this `Authorization` has come; no other goes on until what is due is done."""
        with self._lock:
            self.requests.append((method, path, (body or b"") if method == "POST" else b""))
            self.signed_by.append(signature.partition("Credential=")[2].partition("/")[0])
            self.before.get(next(self._numbers), lambda: None)()


@contextmanager
def s3_front(behind: str, before: Mapping[int, Callable[[], object]]) -> Iterator[S3Front]:
    """See `S3Front`."""
    front = S3Front(behind, before)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"front": front}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    front.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    yield front
    server.shutdown()
    server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    front: ClassVar[S3Front]

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length) if length else None
        self.front.count(self.command, self.path, body, self.headers.get("Authorization", ""))
        connection = http.client.HTTPConnection(urlsplit(self.front.behind).netloc, timeout=60)
        # The host is the front's own: it is signed.
        connection.request(self.command, self.path, body=body, headers=dict(self.headers.items()))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        kept = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", kept or str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Nothing."""
