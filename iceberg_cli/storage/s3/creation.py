"""Creation of objects in S3 on the condition that there is none: by one request, or by an upload in parts.

A request whose answer was lost is sent again, here and unseen inside the HTTP client. Each object gets a mark of the
call that creates it in its metadata: one that bears it is ours, even when the last answer was that it exists already,
or that its upload does not exist any more.
"""

from __future__ import annotations

import errno
import itertools
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import random
from typing import Any, Final

from botocore.exceptions import BotoCoreError

from iceberg_cli.errors import BackendUnavailable, Refused
from iceberg_cli.storage.parts import PartWriter
from iceberg_cli.storage.s3.retries import (
    TRANSPORT_ERRORS,
    code_of,
    next_wait_s,
    reason_of,
    status_of,
)

MARK: Final = "iceberg-cli-put"
_IF_ABSENT: Final[Mapping[str, Any]] = {"IfNoneMatch": "*", "again": False}
_NO_UPLOAD: Final = "NoSuchUpload"
_CHECKSUM: Final = "ChecksumCRC32"  # by which botocore, unless it is told otherwise, has a part checked


class _NoAnswer(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """A proxy's page in place of an answer: it is not known what the service did."""

    fmt = "the answer is none to the completion of an upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObject:
    """An object that is created once.

    Args:
        path: of the object.
        call: sends a request about it: a method of botocore's client, whether it is sent again where it failed, and
            parameters.
        translated: the error for callers, of what was done ("write") and an error of a request.
        redacted: a text without secrets.
        sleep: waits for so many seconds.
        mark: that no other object has.
    """

    path: str
    call: Callable[..., Mapping[str, Any]]
    translated: Callable[[str, Exception], Exception]
    redacted: Callable[[str], str]
    sleep: Callable[[float], object]
    mark: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the object is marked by."""
        return {MARK: self.mark}

    def put(self, data: bytes) -> None:
        """PUT with `If-None-Match: *`; see `Storage.put_if_absent`."""
        self.create(partial(self.call, "put_object", Body=data, Metadata=self.metadata, **_IF_ABSENT))

    def create(self, request: Callable[[], object]) -> None:
        """Send a request that creates the object if there is none, until its outcome is known.

        Args:
            request: sends it once.

        Raises:
            FileExistsError: another one is there.
            Refused: the service has no such condition.
            BackendUnavailable.
        """
        for tries in itertools.count(1):
            try:
                request()
            except TRANSPORT_ERRORS as error:
                # An error in an answer that began as a success has no status of its own.
                exists = status_of(error) == 412 or code_of(error) == "PreconditionFailed"
                gone = code_of(error) == _NO_UPLOAD
                # 409: another conditional request is under way, and that may be an earlier one of ours.
                if exists or gone or status_of(error) == 409:
                    there = self._mark_there()
                    if there == self.mark:
                        return
                    if exists or (gone and there is not None):
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.path) from None
                if status_of(error) == 501:
                    reason = f"the service has no conditional creates: {reason_of(error)}"
                    raise Refused(
                        self.redacted(f"Cannot write {self.path}: {reason}"),
                        next_step="Keep the table in a service that has them.",
                    ) from None
                wait_s = next_wait_s(error, tries, share=random())  # noqa: S311 - it spreads requests over time
                if wait_s is None:
                    raise self.translated("write", error) from None
                self.sleep(wait_s)
            else:
                return

    def _mark_there(self) -> str | None:
        """The mark of the object that is there, or "": it has none; None: there is no object."""
        try:
            head = self.call("head_object")
        except TRANSPORT_ERRORS as error:
            translated = self.translated("look at", error)
            if isinstance(translated, FileNotFoundError):
                return None
            raise translated from None
        return str(head.get("Metadata", {}).get(MARK, ""))

    def send(self, method: str, **request: Any) -> Mapping[str, Any]:
        """The answer to a request that may safely be sent again.

        Raises:
            BackendUnavailable.
        """
        try:
            return self.call(method, **request)
        except TRANSPORT_ERRORS as error:
            raise self.translated("write", error) from None

    def abort(self, upload_id: str) -> None:
        """Remove what was sent by an upload; of one that is completed or gone, nothing.

        Raises:
            BackendUnavailable: it may still be there.
        """
        try:
            self.call("abort_multipart_upload", UploadId=upload_id)
        except TRANSPORT_ERRORS as error:
            if code_of(error) != _NO_UPLOAD:
                raise self.translated("remove what was uploaded of", error) from None


class S3Writer(PartWriter):
    """A new object that is uploaded in parts.

    Args:
        new: the object.
        on_upload: see `Storage.create`. Where the answer to the request that begins an upload is lost, another one is
            begun, and one stays of which no id is known; it has no parts.
    """

    def __init__(self, new: NewObject, on_upload: Callable[[str], None] | None) -> None:
        super().__init__(new.path, new.put)
        self._new = new
        self._on_upload = on_upload
        self._upload_id: str | None = None
        self._parts: list[Mapping[str, Any]] = []

    def _send(self, part: bytes) -> None:
        if self._upload_id is None:
            answer = self._new.send("create_multipart_upload", Metadata=self._new.metadata)
            self._upload_id = str(self._of(answer, "UploadId"))
            if self._on_upload is not None:
                self._on_upload(self._upload_id)
        number = len(self._parts) + 1
        answer = self._new.send("upload_part", UploadId=self._upload_id, PartNumber=number, Body=part)
        # Where a part was checked, the service wants to be told by what.
        checksum = {_CHECKSUM: answer[_CHECKSUM]} if _CHECKSUM in answer else {}
        self._parts.append({"PartNumber": number, "ETag": self._of(answer, "ETag"), **checksum})

    def _of(self, answer: Mapping[str, Any], name: str) -> Any:
        if not answer.get(name):
            raise BackendUnavailable(f"Cannot write {self._path}: an answer of the service has no {name}.")
        return answer[name]

    def _complete(self, part: bytes) -> None:
        self._send(part)
        self._new.create(self._complete_once)

    def _complete_once(self) -> None:
        answer = self._new.call(
            "complete_multipart_upload",
            UploadId=self._upload_id,
            MultipartUpload={"Parts": self._parts},
            **_IF_ABSENT,
        )
        if not answer.get("ETag"):
            raise _NoAnswer

    def _discard(self) -> None:
        if self._upload_id is not None:
            self._new.abort(self._upload_id)
