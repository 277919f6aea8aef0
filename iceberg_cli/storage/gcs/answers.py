"""Requests to Google Cloud Storage, its answers, and what an answer that is no success means."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_cli.storage.backoff import is_transient_status

NO_BUCKET: Final = "bucket does not exist"


class GcsError(Exception):
    """An answer that is no success, or none at all.

    Args:
        status: of the HTTP answer; None where there was none.
        reason: in words.
        retry_after: that header, or "".
        is_final: without an answer: whether the same request would fail again.
        code: that a document of the service gives as the status; None where the answer is no such document.
    """

    def __init__(
        self,
        status: int | None,
        reason: str,
        *,
        retry_after: str = "",
        is_final: bool = False,
        code: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after, self.is_final = status, reason, retry_after, is_final
        self.code = code

    @classmethod
    def of(cls, status: int, text: str, *, retry_after: str = "") -> GcsError:
        """The error that an answer with this body is."""
        try:
            error = json.loads(text)["error"]
            reason = error if isinstance(error, str) else error["message"]
        except (ValueError, KeyError, TypeError):
            error, reason = None, text.strip()
        code = error.get("code") if isinstance(error, dict) else None
        return cls(status, str(reason)[:500] or f"HTTP {status}", retry_after=retry_after, code=code)

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed, or have succeeded, without anything being changed here."""
        return not self.is_final if self.status is None else is_transient_status(self.status)

    @property
    def is_absent(self) -> bool:
        """Whether there is no such object, in a bucket that there is: by the service's word, not by a proxy's page."""
        return self.status == self.code == 404 and NO_BUCKET not in self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Args:
        method: of HTTP.
        path: below the endpoint, percent-encoded; from the slash on, below the endpoint's host.
        query: its parameters.
        headers: besides those of the credentials.
        body: None: none.
        answers: which statuses from 300 on are no errors of it.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    answers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that is no error."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self, *names: str) -> dict[str, Any]:
        """The JSON object that it is.

        Args:
            names: of members that it must have.

        Raises:
            GcsError: it is something else, as by a proxy: nothing is known of what the service did.
        """
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not found.keys() >= {*names}:
            described = f"with {' and '.join(names)}" if names else "of the service"
            raise GcsError(None, f"the answer, HTTP {self.status}, is no document {described}")
        return found

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing to tell, as of a deletion; a document may say so too."""
        return self.body.strip() in (b"", b"null")

    def part(self, span: tuple[int, int] | None) -> bytes:
        """An object's bytes, or those of a part of it, by what the answer says that it has.

        Raises:
            GcsError: it has something else.
        """
        body = self.body
        coded = self.headers.get("Content-Encoding", "")
        if coded == "gzip" and self.headers.get("X-Goog-Stored-Content-Encoding", coded) != coded:
            try:
                body = zlib.decompress(body, zlib.MAX_WBITS | 16)  # compressed on the way
            except zlib.error as error:
                raise GcsError(None, f"the answer is no gzip, which it says: {error}") from None
        if self.status == 200:
            return body if span is None else body[span[0] : sum(span)]
        has = re.match(r"bytes (\d+)-(\d+)/(\d+)$", self.headers.get("Content-Range", ""))
        first, last, size = (int(each) for each in has.groups()) if has else (0, -1, 0)
        if (
            self.status != 206
            or span is None
            or (first, last + 1) != (span[0], min(sum(span), size))
            or len(body) != last + 1 - first
        ):
            raise GcsError(None, f"the answer, HTTP {self.status}, has other bytes than were asked for")
        return body
