"""An S3 service whose failures tell what it was sent, and one that keeps objects besides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.storage.test_s3_requests import Answer, Recorder, Request, usual

StorageFailure = Callable[[str], Answer]
"""An answer that tells a text."""


def in_xml(status: int, code: str) -> StorageFailure:
    return lambda told: (
        status,
        {},
        f"<Error><Code>{code}</Code><Message>why: {escape(told)}</Message></Error>".encode(),
    )


def no_xml(told: str) -> Answer:
    return 200, {}, f"<ListBucketResult>{told}".encode()


STORAGE_FAILURES: Final = (
    in_xml(400, "ExpiredToken"), in_xml(403, "AccessDenied"), in_xml(403, "SignatureDoesNotMatch"),
    in_xml(404, "NoSuchBucket"), in_xml(500, "InternalError"), in_xml(503, "SlowDown"), no_xml,
)  # fmt: skip


def fail(
    storage: Recorder,
    failing: Callable[[Request], bool],
    failure: StorageFailure,
    *,
    otherwise: Callable[[Request], Answer] = usual,
    also: Callable[[], list[str]] = list,
) -> None:
    """Let the storage answer with the headers and the address of the requests that it was sent.

    Args:
        storage: to which requests go.
        failing: whether a request fails.
        failure: how.
        otherwise: what is answered to one that does not.
        also: what is told besides.
    """

    def answer(request: Request) -> Answer:
        storage.answers.append(answer)
        if not failing(request):
            return otherwise(request)
        return failure(" ".join([request.path, *request.headers.values(), *also()]))

    storage.answers[:] = [answer]


def is_listing(request: Request) -> bool:
    return request.method == "GET"


def is_deletion(request: Request) -> bool:
    return request.method in ("POST", "DELETE")


def is_later_deletion(request: Request) -> bool:
    """Of the files, and not of the names by which the right to delete is found out."""
    return is_deletion(request) and b"-probe" not in request.body


@dataclass
class Objects:
    """A service that keeps objects, for one client: conditional creates, ranges, listings and deletions."""

    kept: dict[str, bytes] = field(default_factory=dict)  # by `/bucket/key`
    headers: dict[str, dict[str, str]] = field(default_factory=dict)  # of each, by the same

    def put(self, name: str, data: bytes, headers: Mapping[str, str]) -> Answer:
        """Keep an object, unless the request is for one that is not there yet."""
        if name in self.kept and headers.get("if-none-match") == "*":
            return _an_error(412, "PreconditionFailed")
        own = {key: value for key, value in headers.items() if key.startswith("x-amz-meta-")}
        self.kept[name] = data
        self.headers[name] = {"ETag": f'"{len(data)}"', "Last-Modified": formatdate(usegmt=True), **own}
        return 200, {"ETag": f'"{len(data)}"'}, b""

    def answer(self, request: Request) -> Answer:
        """What the service answers."""
        parts = urlsplit(request.path)
        name, query = unquote(parts.path), parse_qs(parts.query, keep_blank_values=True)
        match request.method:
            case "PUT":
                return self.put(name, request.body, request.headers)
            case "POST":
                for key in re.findall("<Key>(.*?)</Key>", request.body.decode()):
                    self.kept.pop(f"{name.rstrip('/')}/{key}", None)
                return 200, {}, b"<DeleteResult/>"
            case "DELETE":
                self.kept.pop(name, None)
                return 204, {}, b""
        if "list-type" in query:
            return self._page(name.rstrip("/"), query)
        if name not in self.kept:
            return _an_error(404, "NoSuchKey")
        return self._object(name, request.headers.get("range", ""))

    def _object(self, name: str, span: str) -> Answer:
        data, headers = self.kept[name], self.headers[name]
        if not (match := re.fullmatch(r"bytes=(\d+)-(\d*)", span)):
            return 200, headers, data
        first, last = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
        if first >= len(data):
            return _an_error(416, "InvalidRange")
        return 206, {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1]

    def _page(self, bucket: str, query: Mapping[str, list[str]]) -> Answer:
        """All that a listing is for, as one page."""
        prefix, delimiter, after = (query.get(key, [""])[0] for key in ("prefix", "delimiter", "start-after"))
        entries, folders = [], set()
        for name, data in sorted(self.kept.items()):
            key = name.removeprefix(f"{bucket}/")
            if name == key or not key.startswith(prefix) or key <= after:
                continue
            if delimiter and delimiter in key[len(prefix) :]:
                folders.add(prefix + key[len(prefix) :].partition(delimiter)[0] + delimiter)
                continue
            modified = parsedate_to_datetime(self.headers[name]["Last-Modified"]).isoformat()
            entries.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
                f"<LastModified>{modified}</LastModified></Contents>"
            )
        entries += [f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in sorted(folders)]
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(entries)}</ListBucketResult>"
        return 200, {}, body.encode()


def _an_error(status: int, code: str) -> Answer:
    return in_xml(status, code)("")
