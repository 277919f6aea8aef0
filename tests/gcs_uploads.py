"""Resumable uploads as Google documents them, before fake-gcs-server, which knows no conditions of these.

It also takes bytes twice that are sent again, and ends an upload where it is asked how much it has. Here a session
keeps what it was sent, and its end is one upload to the emulator, whose conditions hold.

Source: https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.emulators import FakeGcs
from tests.s3_front import PassingOn, Request, Response, serving

GRAIN = 256 << 10  # bytes: every part but the last is a multiple of that


@dataclass
class Session:
    """An upload: what it was begun with, the bytes that are stored, and its answer once it is done."""

    begin: Request
    data: bytearray = field(default_factory=bytearray)
    answer: Response | None = None


@dataclass
class Uploads:
    """The sessions of a front, by their ids.

    Args:
        behind: the emulator's endpoint.
        fates: of the next requests that begin an upload or are about one: `lost` is carried out and has no answer, a
            number is an answer to what is not carried out, `half` stores half of what is sent.
        requests: all that came.
    """

    behind: str
    fates: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)

    def ranges(self) -> list[str]:
        """The parts that requests about sessions were about."""
        return [each.headers["Content-Range"] for each in self.requests if each.method == "PUT"]

    def answer(self, request: Request) -> Response | None:
        self.requests.append(request)
        query = parse_qs(urlsplit(request.path).query)
        if not request.path.startswith("/upload/") or query.get("uploadType") != ["resumable"]:
            return request.forward(self.behind)
        fate = self.fates.pop(0) if self.fates else ""
        if fate.isdigit():
            return Response(int(fate), [], b'{"error": {"code": %s, "message": "why"}}' % fate.encode())
        if "upload_id" in query:
            answer = self._about(query["upload_id"][0], request, half=fate == "half")
        else:
            answer = self._begun(request)
        return None if fate == "lost" else answer

    def _begun(self, request: Request) -> Response:
        url, session = urlsplit(request.path), uuid.uuid4().hex
        name = json.loads(request.body)["name"]
        if parse_qs(url.query).get("ifGenerationMatch") == ["0"]:
            seen = Request(
                "GET", f"{url.path}?{urlencode({'prefix': name})}".removeprefix("/upload"), {}, b""
            )
            listed = json.loads(seen.forward(self.behind).body).get("items", ())
            if any(item["name"] == name for item in listed):
                return Response(412, [], b'{"error": {"code": 412, "message": "conditionNotMet"}}')
        self.sessions[session] = Session(request)
        place = f"https://elsewhere.invalid{url.path}?uploadType=resumable&upload_id={session}"
        return Response(200, [("Location", place)], b"")

    def _about(self, session_id: str, request: Request, *, half: bool) -> Response:
        session = self.sessions.get(session_id)
        if session is None:
            return Response(404, [], b"Not Found")
        if request.method == "DELETE":
            del self.sessions[session_id]
            return Response(499, [], b"")
        if session.answer is not None:
            return session.answer
        match = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", request.headers["Content-Range"])
        assert match is not None
        if match[1]:
            first, last = int(match[1]), int(match[2])
            assert len(request.body) == last + 1 - first
            assert match[3] != "*" or len(request.body) % GRAIN == 0
            assert first <= len(session.data), "bytes between are missing"
            body = request.body[: len(request.body) // 2 // GRAIN * GRAIN] if half else request.body
            session.data += body[len(session.data) - first :]
        else:
            assert request.body == b""
        if match[3] != "*" and int(match[3]) == len(session.data):
            session.answer = self._end(session)
            return session.answer
        stored = [("Range", f"bytes=0-{len(session.data) - 1}")] if session.data else []
        return Response(308, stored, b"")

    def _end(self, session: Session) -> Response:
        url, boundary = urlsplit(session.begin.path), uuid.uuid4().hex
        query = {**parse_qs(url.query), "uploadType": ["multipart"]}
        parts = [
            ("application/json", session.begin.body),
            ("application/octet-stream", bytes(session.data)),
        ]
        body = b"".join(
            b"--%s\r\nContent-Type: %s\r\n\r\n%s\r\n" % (boundary.encode(), kind.encode(), part)
            for kind, part in parts
        )
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        path = f"{url.path}?{urlencode(query, doseq=True)}"
        return Request("POST", path, headers, body + b"--%s--\r\n" % boundary.encode()).forward(self.behind)


class _Handler(PassingOn):
    uploads: ClassVar[Uploads]

    def response(self, request: Request) -> Response | None:
        return self.uploads.answer(request)


@contextmanager
def with_resumable_uploads(store: FakeGcs) -> Iterator[tuple[FakeGcs, Uploads]]:
    """The same store by an endpoint that knows resumable uploads, and these."""
    uploads = Uploads(store.endpoint)
    with serving(_Handler, uploads=uploads) as endpoint:
        yield FakeGcs(endpoint, store.root), uploads
