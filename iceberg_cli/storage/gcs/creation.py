"""Creation of objects in Google Cloud Storage on the condition that there is none, by one upload or by one in parts.

Each object gets a mark of the call that creates it in its metadata: one that bears it is ours, even when the last
answer was that it exists already, or that its upload does not exist any more.

Source: https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import random
from typing import Final
from urllib.parse import urlsplit

from iceberg_cli.storage.backoff import wait_s_after
from iceberg_cli.storage.gcs.answers import Answer, GcsError, Request
from iceberg_cli.storage.parts import PartWriter

JSON: Final = {"Accept-Encoding": "identity"}
MARK: Final = "iceberg-cli-put"
_IF_ABSENT: Final = {"ifGenerationMatch": "0"}
_INCOMPLETE: Final = 308
_CANCELLED: Final = 499
_GONE: Final = frozenset({404, 410})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObject:
    """An object that is created.

    Args:
        path: of the object.
        uploads: the path below the endpoint that uploads into its bucket go to.
        key: of the object.
        call: sends a request; see `GcsStorage`.
        mark_there: the mark of the object that is there, or "": it has none; None: there is no object.
        translated: the error for callers.
        sleep: waits for so many seconds.
        mark: that no other object has.
    """

    path: str
    uploads: str
    key: str
    call: Callable[..., Answer]
    mark_there: Callable[[], str | None]
    translated: Callable[[GcsError], Exception]
    sleep: Callable[[float], None]
    mark: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the object is marked by."""
        return {MARK: self.mark}

    def put(self, data: bytes) -> None:
        """Upload with `ifGenerationMatch=0`; see `Storage.put_if_absent`."""
        request = self.upload(data, metadata=self.metadata, query=_IF_ABSENT)
        for tries in itertools.count(1):
            try:
                self.call(request, again=False).document("generation")
            except GcsError as error:
                if self.is_ours(error):
                    return
                self.wait(error, tries)
            else:
                return

    def upload(
        self,
        data: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Request:
        """The request that uploads all of the object."""
        boundary = uuid.uuid4().hex
        described = json.dumps({"name": self.key, **({"metadata": metadata} if metadata else {})})
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{described}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        return Request(
            method="POST",
            path=self.uploads,
            query={"uploadType": "multipart", "fields": "generation", **(query or {})},
            headers={**JSON, "Content-Type": f"multipart/related; boundary={boundary}"},
            body=b"".join((head.encode(), data, f"\r\n--{boundary}--\r\n".encode())),
        )

    def is_ours(self, error: GcsError, *, gone: bool = False) -> bool:
        """Whether an answer that the object exists, or that its upload is `gone`, is about the one that is ours.

        Raises:
            FileExistsError: it is about another one.
        """
        # 409: another upload is under way, and that may be an earlier one of ours.
        if not gone and error.status not in {409, 412}:
            return False
        there = self.mark_there()
        if there == self.mark:
            return True
        if error.status == 412 or (gone and there is not None):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path) from None
        return False

    def wait(self, error: GcsError, tries: int) -> None:
        """Wait before a request that failed is sent again.

        Raises:
            BackendUnavailable: it is not sent again.
        """
        wait_s = next_wait_s(error, tries)
        if wait_s is None:
            raise self.translated(error) from None
        self.sleep(wait_s)


class GcsWriter(PartWriter):
    """A new object that is uploaded in parts: a resumable upload.

    The URI of its session lets whoever knows it write the object, so that it is told to nobody.

    Args:
        new: the object.
    """

    def __init__(self, new: NewObject) -> None:
        super().__init__(new.path, new.put)
        self._new = new
        self._session = ""  # its path and query; of the host, that of the endpoint is used
        self._stored_bytes = 0

    def _begin(self) -> str:
        request = Request(
            method="POST",
            path=self._new.uploads,
            query={"uploadType": "resumable", "fields": "generation", **_IF_ABSENT},
            headers={**JSON, "Content-Type": "application/json; charset=UTF-8"},
            body=json.dumps({"name": self._new.key, "metadata": self._new.metadata}).encode(),
        )
        for tries in itertools.count(1):
            try:
                return _session_of(self._new.call(request, again=False))
            except GcsError as error:
                self._new.is_ours(error)
                self._new.wait(error, tries)
        raise AssertionError

    def _send(self, part: bytes) -> None:
        self._session = self._session or self._begin()
        self._store(part, is_last=False)

    def _complete(self, part: bytes) -> None:
        self._store(part, is_last=True)

    def _store(self, part: bytes, *, is_last: bool) -> None:
        """Send bytes until the service says that it has them all; where it gave no answer, it is asked how many."""
        first, end = self._stored_bytes, self._stored_bytes + len(part)
        size = str(end) if is_last else "*"
        failures, is_known = 0, True
        while is_last or self._stored_bytes < end:
            rest = part[self._stored_bytes - first :] if is_known else b""
            try:
                answer = self._answer(
                    f"bytes {f'{self._stored_bytes}-{end - 1}' if rest else '*'}/{size}", rest
                )
                if answer.status != _INCOMPLETE and is_last:
                    answer.document("generation")
                    return
                self._stored_bytes = self._stored(answer, first, end, may_stay=not is_known)
                is_known = True
            except GcsError as error:
                if self._new.is_ours(error, gone=error.status in _GONE):
                    return
                failures += 1
                self._new.wait(error, failures)
                is_known = False

    def _answer(self, part: str, data: bytes = b"") -> Answer:
        headers = {**JSON, "Content-Range": part}
        request = Request(
            method="PUT",
            path=self._session,
            headers=headers,
            body=data,
            answers=frozenset({_INCOMPLETE}),
        )
        return self._new.call(request, again=False, shared=False)

    def _stored(self, answer: Answer, first: int, end: int, *, may_stay: bool) -> int:
        """How many bytes the service has by an answer.

        Raises:
            GcsError: less than it said that it has, or more than were sent; or it takes no more.
        """
        has = answer.headers.get("Range", "")
        found = re.fullmatch(r"bytes=0-(\d+)", has)
        stored = int(found[1]) + 1 if found else 0
        if answer.status != _INCOMPLETE or (has and not found) or not first <= stored <= end:
            raise GcsError(None, f"the service has other bytes than were sent: {has}", is_final=True)
        if stored == self._stored_bytes and not may_stay:
            raise GcsError(None, "the service keeps nothing of what is sent")
        return stored

    def _discard(self) -> None:
        if self._session:
            request = Request(
                method="DELETE", path=self._session, headers=JSON, answers=frozenset({_CANCELLED})
            )
            # A session of which no more comes ends by itself, after a week, and nothing of it is seen before.
            with suppress(GcsError):
                self._new.call(request, again=False, shared=False)


def _session_of(answer: Answer) -> str:
    """The path and the query of an upload's session.

    Raises:
        GcsError: the answer names none.
    """
    place = urlsplit(answer.headers.get("Location", ""))
    if not place.query:
        raise GcsError(None, f"the answer, HTTP {answer.status}, names no session of an upload")
    return f"{place.path}?{place.query}"


def next_wait_s(error: GcsError, tries: int) -> float | None:
    """How long to wait before a request that failed is sent again, or None: not again."""
    if not error.is_transient:
        return None
    return wait_s_after(error.status, error.retry_after, tries, share=random())  # noqa: S311 - it spreads requests
