"""Objects in S3 and services that speak its protocol, over the connection that s3fs keeps.

Requests go to the client inside s3fs, not through its file functions: those strip slashes from keys and cut
keys at `?versionId=`, and their exclusive `open` overwrites an object when nothing was written. Keys here are
the literal strings that tables record.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import random
from typing import Any

import s3fs
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ClientError, NoCredentialsError, PartialCredentialsError, ReadTimeoutError
from fsspec.asyn import sync

from iceberg_cli.errors import (
    AccessDenied,
    BackendUnavailable,
    BucketNotFound,
    IcebergCliError,
    NoCredentials,
    UsageError,
)
from iceberg_cli.storage import FileInfo, Renewal, Signer, SoftDeletion, Storage, Writer
from iceberg_cli.storage.backoff import backoff_s
from iceberg_cli.storage.many_objects import (
    THREADS,
    delete_each,
    delete_in_batches,
    is_folder_marker,
    look_at_many,
)
from iceberg_cli.storage.redaction import redact, secrets_of_proxies
from iceberg_cli.storage.renewals import RenewedConnection
from iceberg_cli.storage.s3.creation import NewObject, S3Writer
from iceberg_cli.storage.s3.listing import Listing
from iceberg_cli.storage.s3.options import DELETES_OFF, EXPIRES_AT_MS, S3Options
from iceberg_cli.storage.s3.reads import ObjectReads
from iceberg_cli.storage.s3.retries import (
    TRANSIENT_CODES,
    TRANSPORT_ERRORS,
    code_of,
    may_have_ended,
    next_wait_s,
    reason_of,
    status_of,
    words_of,
)
from iceberg_cli.storage.s3.session import new_session
from iceberg_cli.storage.s3.signing import SigningRefused, session_of

SCHEMES = ("s3", "s3a", "s3n")

_LOCATION = re.compile(rf"(?:{'|'.join(SCHEMES)})://([^/]+)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\r")
_LOOKED_FOR = (
    "Looked for: s3.access-key-id, AWS_ACCESS_KEY_ID, the profile of AWS_PROFILE in ~/.aws, a role of this machine. A "
    "public bucket is read with s3.anonymous=true."
)
# The connection bounds its waits for answers, and not those before it may send a body.
_ANSWER_S = 60
_SLOWEST = 64 * 1024  # bytes a second
_COMPLETION_S = 600  # the service may need minutes to put parts together
_WRITES = frozenset({"put_object", "create_multipart_upload"})
# Answers of services that know no batches, or cannot read this one.
_NO_BATCH = frozenset({"KeyTooLongError", "MalformedXML", "MethodNotAllowed", "NotImplemented"})


@dataclass(frozen=True, slots=True)
class _Connection:
    files: s3fs.S3FileSystem
    reads: ObjectReads | None
    options: S3Options


class S3Storage(Storage):
    """A storage of objects in S3; canonical paths look like `s3://bucket/key`.

    Args:
        options: see `S3Options`. What is absent comes from the environment, as botocore finds it.
        renewal: gives the options with new credentials, where those in `options` end. It is asked five minutes before
            the end that `s3.session-token-expires-at-ms` tells, and where the service refuses a request.
        signer: signs the requests where `s3.remote-signing-enabled` says so.

    Raises:
        UsageError: an option has a value that it cannot have.
    """

    def __init__(
        self, options: Mapping[str, str], *, renewal: Renewal | None = None, signer: Signer | None = None
    ) -> None:
        self._signer = signer
        self._known_secrets: tuple[str, ...] = (*secrets_of_proxies(),)
        self._sent_tokens = set[str]()
        self._connections = RenewedConnection[_Connection](
            options,
            self._connect,
            ends_ms=lambda known: known.get(EXPIRES_AT_MS, ""),
            has_credentials=lambda known: S3Options.of(known).key is not None,
            renewal=renewal,
        )

    def _connect(self, options: Mapping[str, str]) -> _Connection:
        known = S3Options.of(options)
        session = {"anon": known.anon, "session": new_session()}
        if known.is_signed_remotely:
            if self._signer is None:
                raise UsageError(
                    "Cannot use the storage option s3.remote-signing-enabled=true: no REST catalog is there to sign."
                )
            session = {"anon": True, "session": session_of(self._signer)}
        # s3fs keeps a client until its file system is gone: what a client's events hold must not hold that.
        session["session"].register("before-send.s3", partial(_remember_token, self._sent_tokens))
        # What is answered to an earlier request may have earlier ones.
        self._known_secrets = (*dict.fromkeys((*self._known_secrets, *known.secrets)),)
        files = s3fs.S3FileSystem(
            **session,
            key=known.key,
            secret=known.secret,
            token=known.token,
            endpoint_url=known.endpoint_url,
            client_kwargs={"region_name": known.region} if known.region else {},
            # `_ask` sends requests again, where that is safe.
            config_kwargs={
                "retries": {"total_max_attempts": 1},
                "max_pool_connections": THREADS,
                "s3": {"addressing_style": known.addressing_style},
                # A checksum at the end of a body puts that into chunks, which a signer does not know of.
                **({"request_checksum_calculation": "when_required"} if known.is_signed_remotely else {}),
            },
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        reads = ObjectReads(known, files) if ObjectReads.can_serve(known) else None
        return _Connection(files, reads, known)

    @property
    def _files(self) -> s3fs.S3FileSystem:
        return self._connections.latest.files

    @property
    def _secrets(self) -> tuple[str, ...]:
        """What no message may show."""
        return (*self._known_secrets, *self._sent_tokens.copy())

    def canonical(self, path: str) -> str:
        """`s3://bucket/key` for the schemes s3, s3a and s3n; the key stays as it is, character for character.

        Raises:
            UsageError: the path names no bucket.
        """
        if not (match := _LOCATION.fullmatch(path)):
            raise UsageError(f"Cannot use {path}: it is not of the form s3://bucket/key.")
        if match[1].startswith("arn:") and match[1].endswith((":accesspoint", ":outpost")):
            raise UsageError(
                f"Cannot use {path}: in a path the ARN of an access point has no slash.",
                next_step="Write it with a colon before the access point's name: ...:accesspoint:NAME.",
            )
        return f"s3://{match[1]}/{match[2] or ''}"

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole object, or a part of it."""
        if span is not None and span[1] == 0:
            self.stat(path)
            return b""
        reads = self._connections.current().reads
        data = reads.read(*self._split(path), span) if reads else None
        if data is not None:
            return data
        if span is None:
            return self._get(path)
        offset, length = span
        return self._get(path, Range=f"bytes={offset}-{offset + length - 1}")

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """What is known of objects, by listing the folder that many share, and a request for each of the others.

        Versions are of endpoint, ETag and size.
        """
        if not paths:
            return []
        endpoint = self.endpoint(paths[0]) if versions else None

        def info(path: str, size_bytes: int, answer: Mapping[str, Any]) -> FileInfo:
            etag = answer.get("ETag")
            version = f"{endpoint} {etag} {size_bytes}" if versions and etag else None
            return FileInfo(path, size_bytes, _milliseconds(answer["LastModified"]), version)

        def ask(path: str) -> FileInfo:
            head = self._head(path)
            return info(path, head["ContentLength"], head)

        return look_at_many(
            [self.canonical(path) for path in paths],
            ask,
            lambda folder: (info(path, item["Size"], item) for path, item in self._items(folder)),
        )

    def _head(self, path: str) -> dict[str, Any]:
        bucket, key = self._split(path)
        try:
            return self._call("head_object", Bucket=bucket, Key=key)
        except TRANSPORT_ERRORS as error:
            raise self._translated("look at", path, error) from None

    def endpoint(self, path: str) -> str:  # noqa: ARG002 - one for all buckets
        """The URL that requests go to, without the bucket."""
        return str(sync(self._files.loop, self._files.set_session).meta.endpoint_url)

    def put_if_absent(self, path: str, data: bytes) -> None:
        """PUT with `If-None-Match: *`, and a mark of this call in the object's metadata, see `creation.py`."""
        self._new_object(path).put(data)

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:
        """Upload in parts, completed with `If-None-Match: *`; an object of a single part is put."""
        return S3Writer(self._new_object(path), on_upload)

    def abort_upload(self, path: str, upload_id: str) -> None:
        """AbortMultipartUpload."""
        self._new_object(path).abort(upload_id)

    def _new_object(self, path: str) -> NewObject:
        bucket, key = self._split(path)
        return NewObject(
            path=path,
            call=partial(self._call, Bucket=bucket, Key=key),
            translated=lambda verb, error: self._translated(
                verb, path, error, may_be_absent=verb == "look at"
            ),
            redacted=lambda text: redact(text, self._secrets),
            sleep=partial(sync, self._files.loop, asyncio.sleep),
        )

    def replace(self, path: str, data: bytes) -> None:
        """Replace the object with one PUT, which may safely be sent again."""
        bucket, key = self._split(path)
        try:
            self._call("put_object", Bucket=bucket, Key=key, Body=data)
        except TRANSPORT_ERRORS as error:
            raise self._translated("write", path, error) from None

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every object under the folder by key, page by page."""
        for path, item in self._items(folder):
            yield FileInfo(path, item["Size"], _milliseconds(item["LastModified"]))

    def subfolders(self, folder: str) -> Iterator[str]:
        """The names of the folders directly in a folder, page by page."""
        bucket, key = self._split(folder, may_be_bucket=True)
        prefix = f"{key.removesuffix('/')}/" if key else ""
        request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}
        while True:
            page = self._page(folder, request)
            names = (each["Prefix"][len(prefix) : -1] for each in page.get("CommonPrefixes", ()))
            yield from (name for name in names if name)
            if not page["IsTruncated"]:
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def subfolders_many(self, folders: Sequence[str], names: Sequence[str]) -> Sequence[frozenset[str]]:
        """Which of some names are folders in each of n folders: most often one request for each, side by side."""
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(lambda folder: self._subfolders(folder, names), folders))

    def _subfolders(self, folder: str, names: Sequence[str]) -> frozenset[str]:
        """The names that are folders: by the page that begins at the first one; a name behind its end has its own."""
        bucket, key = self._split(folder, may_be_bucket=True)
        prefix = f"{key}/" if key else ""
        request = {
            "Bucket": bucket,
            "Prefix": prefix,
            "Delimiter": "/",
            "StartAfter": f"{prefix}{min(names)}",
        }
        page = self._page(folder, request)
        folders = {each["Prefix"] for each in page.get("CommonPrefixes", ())}
        last = max([prefix, *folders, *(item["Key"] for item in page.get("Contents", ()))])
        present = {name for name in names if f"{prefix}{name}/" in folders}
        behind = {name for name in names if page["IsTruncated"] and f"{prefix}{name}/" > last}
        for name in behind:
            one = {"Bucket": bucket, "Prefix": f"{prefix}{name}/", "MaxKeys": 1}
            if self._page(folder, one).get("Contents"):
                present.add(name)
        return frozenset(present)

    def _items(self, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The path and the listing's entry of every object under the folder."""
        bucket, key = self._split(folder, may_be_bucket=True)
        prefix = f"{key.removesuffix('/')}/" if key else ""
        listing = Listing(lambda request: self._page(folder, {"Bucket": bucket, **request}))
        for entry in listing.entries(prefix):
            # The folder's own marker is not under the folder, whatever it holds.
            if entry["Key"] != prefix and not is_folder_marker(entry["Key"], entry["Size"]):
                yield f"s3://{bucket}/{entry['Key']}", entry

    def _page(self, folder: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """One page of a listing.

        Raises:
            BackendUnavailable: it cannot be had, or it says that more follow and not where.
        """
        try:
            page = self._call("list_objects_v2", **request)
        except TRANSPORT_ERRORS as error:
            raise self._translated("list", folder, error) from None
        if page["IsTruncated"] and not page.get("NextContinuationToken"):
            raise BackendUnavailable(f"Cannot list {folder}: a page says that more follow, but not where.")
        return page

    def soft_deletion(self, path: str) -> SoftDeletion | None:  # noqa: ARG002 - one for all buckets
        """What `s3.delete-enabled=false` puts in place of deletions, or None."""
        known = self._connections.latest.options
        return None if known.deletes else SoftDeletion(tags=known.delete_tags, option=DELETES_OFF)

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete in batches; in a bucket with versions this adds delete markers and removes no version.

        By `s3.delete.tags.` objects are tagged before, by `s3.delete-enabled=false` in place of that. One that cannot
        be tagged is not deleted either: what becomes of it goes by its tags.
        """
        known = self._connections.latest.options
        if not known.delete_tags:
            return (
                self.erase(paths) if known.deletes else dict.fromkeys(paths, f"{DELETES_OFF}, without tags")
            )
        failures = self._of_buckets(paths, partial(self._tag_each, known))
        if not known.deletes:
            return failures
        return {**failures, **self.erase([path for path in paths if path not in failures])}

    def erase(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete in batches, whatever the options put in place of that."""
        return self._of_buckets(paths, self._delete_keys)

    def _of_buckets(
        self, paths: Sequence[str], delete: Callable[[str, Sequence[str]], Mapping[str, str]]
    ) -> dict[str, str]:
        """Those of n objects for which `delete`, of a bucket and keys, gives a reason."""
        failures: dict[str, str] = {}
        buckets: dict[str, dict[str, str]] = {}
        for path in paths:
            try:
                bucket, key = self._split(path)
            except UsageError as error:
                failures[path] = error.message
                continue
            buckets.setdefault(bucket, {})[key] = path
        for bucket, keys in buckets.items():
            reasons = delete(bucket, list(keys))
            failures |= {keys[key]: redact(reason, self._secrets) for key, reason in reasons.items()}
        return failures

    def _tag_each(self, known: S3Options, bucket: str, keys: Sequence[str]) -> dict[str, str]:
        """The keys of objects that did not get the tags of deletion beside their own, each with the reason."""

        def reason(key: str) -> str | None:
            where: dict[str, Any] = {"Bucket": bucket, "Key": key}
            try:
                try:
                    present = {
                        each["Key"]: each["Value"]
                        for each in self._call("get_object_tagging", **where)["TagSet"]
                    }
                except ClientError as error:
                    if code_of(error) != "NoSuchKey":
                        raise
                    present = {}  # whether tags may be written is told all the same
                tags = {**present, **known.delete_tags}
                if tags != present:
                    tag_set = [{"Key": name, "Value": value} for name, value in tags.items()]
                    self._call("put_object_tagging", **where, Tagging={"TagSet": tag_set})
            except (*TRANSPORT_ERRORS, ValueError) as error:
                return None if code_of(error) == "NoSuchKey" else f"it cannot be tagged: {reason_of(error)}"
            except IcebergCliError as error:  # of the renewal
                return error.message
            return None

        return delete_each(keys, reason, threads=known.tag_threads or THREADS)

    def _delete_keys(self, bucket: str, keys: Sequence[str]) -> dict[str, str]:
        """The keys of objects that are still there, each with the reason."""
        # The request is XML, which cannot have some characters.
        alone = [key for key in keys if _NOT_IN_XML.search(key)]
        together = [key for key in keys if not _NOT_IN_XML.search(key)]
        most = self._connections.latest.options.delete_batch
        return self._delete_alone(bucket, alone) | delete_in_batches(
            together, most=most, delete=partial(self._delete_batch, bucket)
        )

    def _delete_batch(self, bucket: str, keys: Sequence[str]) -> dict[str, str]:
        """The keys of one batch of objects that are still there, each with the reason.

        Keys that the service had no time for are sent again.
        """
        reasons: dict[str, str] = {}
        for tries in itertools.count(1):
            request = {"Quiet": True, "Objects": [{"Key": key} for key in keys]}
            try:
                answer = self._call("delete_objects", Bucket=bucket, Delete=request)
            except TRANSPORT_ERRORS as error:
                if code_of(error) in _NO_BATCH or isinstance(error, SigningRefused):
                    return reasons | self._delete_alone(bucket, keys)
                return reasons | dict.fromkeys(keys, reason_of(error))
            except IcebergCliError as error:  # of the renewal
                return reasons | dict.fromkeys(keys, error.message)
            failures = [each for each in answer.get("Errors", ()) if each.get("Code") != "NoSuchKey"]
            named = {each.get("Key", ""): words_of(each) for each in failures}
            if not named.keys() <= set(keys):
                # It names a key that is none of these, so any of them may be meant.
                return reasons | dict.fromkeys(keys, next(iter(named.values())))
            later = {each["Key"] for each in failures if each.get("Code") in TRANSIENT_CODES}
            reasons |= {key: reason for key, reason in named.items() if key not in later}
            wait_s = backoff_s(tries, throttled=True, share=_share()) if later else None
            if wait_s is None:
                return reasons | {key: named[key] for key in later}
            sync(self._files.loop, asyncio.sleep, wait_s)
            keys = [key for key in keys if key in later]
        raise AssertionError

    def _delete_alone(self, bucket: str, keys: Sequence[str]) -> dict[str, str]:
        """The keys of objects that are still there, each with the reason: by a request for each."""

        def reason(key: str) -> str | None:
            try:
                self._call("delete_object", Bucket=bucket, Key=key)
            except (*TRANSPORT_ERRORS, ValueError) as error:
                return None if code_of(error) == "NoSuchKey" else reason_of(error)
            except IcebergCliError as error:  # of the renewal
                return error.message
            return None

        return delete_each(keys, reason)

    def _get(self, path: str, **request: Any) -> bytes:
        bucket, key = self._split(path)
        try:
            answer: bytes = self._call("get_object", Bucket=bucket, Key=key, **request)["Body"]
        except TRANSPORT_ERRORS as error:
            if status_of(error) == 416:  # the offset is at or after the end
                return b""
            raise self._translated("read", path, error) from None
        return answer

    def _call(self, method: str, *, again: bool = True, **request: Any) -> dict[str, Any]:
        """One request and its whole response; `again`: sent again after a while when the failure may pass."""
        connection = self._connections.current()
        loop = connection.files.loop
        try:
            answer: dict[str, Any] = sync(loop, self._ask, connection, method, request, again=again)
        except ClientError as error:
            # Such an answer says that nothing was done. A request that is refused for good is refused once more.
            if not may_have_ended(error) or (new := self._connections.renewed(connection)) is connection:
                raise
            answer = sync(new.files.loop, self._ask, new, method, request, again=again)
        return answer

    async def _ask(
        self, connection: _Connection, method: str, request: Mapping[str, Any], *, again: bool
    ) -> dict[str, Any]:
        for tries in itertools.count(1):
            try:
                return await _ask_once(connection, method, request)
            except TRANSPORT_ERRORS as error:
                wait_s = next_wait_s(error, tries, share=_share()) if again else None
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError

    def _split(self, path: str, *, may_be_bucket: bool = False) -> tuple[str, str]:
        bucket, _, key = self.canonical(path).removeprefix("s3://").partition("/")
        if not key and not may_be_bucket:
            raise UsageError(f"Cannot use {path}: it names a bucket and no object.")
        return bucket, key

    def _translated(self, verb: str, path: str, error: Exception, *, may_be_absent: bool = True) -> Exception:
        if may_be_absent and code_of(error) in {"NoSuchKey", "404", "NotFound"}:
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            are = "part of the credentials is missing"
            if isinstance(error, NoCredentialsError):
                are = "there are no credentials"
            return NoCredentials(f"Cannot {verb} {path}: {are}", next_step=_LOOKED_FOR)
        reason = redact(reason_of(error), self._secrets)
        denied = status_of(error) in (401, 403) or isinstance(error, SigningRefused)
        kind = AccessDenied if denied else BackendUnavailable
        if code_of(error) == "NoSuchBucket":
            kind = BucketNotFound
        return kind(redact(f"Cannot {verb} {path}: {reason}", self._secrets))


async def _ask_once(connection: _Connection, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
    client = await connection.files.set_session()
    operation = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method])
    known = operation.input_shape.members
    options = connection.options
    shared: dict[str, Any] = {name: value for name, value in options.parameters.items() if name in known}
    if method in _WRITES:
        shared |= options.written
    if method == "create_multipart_upload" and (
        client.meta.config.request_checksum_calculation == "when_supported"
    ):
        shared["ChecksumAlgorithm"] = "CRC32"  # which the parts get
    bucket = options.access_points.get(request["Bucket"], request["Bucket"])
    sent = getattr(client, method)(**{**shared, **request, "Bucket": bucket})
    bound_s = _ANSWER_S + len(request.get("Body", b"")) / _SLOWEST
    if method == "complete_multipart_upload":
        bound_s = _COMPLETION_S
    try:
        answer: dict[str, Any] = await asyncio.wait_for(sent, bound_s)
    except TimeoutError as error:
        raise ReadTimeoutError(endpoint_url=client.meta.endpoint_url) from error
    if method == "get_object":
        async with answer["Body"] as body:
            answer["Body"] = await body.read()
    return answer


def _remember_token(sent: set[str], request: AWSPreparedRequest, **_: object) -> None:
    """Keep a session's token for a secret: it may be from where only botocore looks, and answers may have it."""
    token = request.headers.get("X-Amz-Security-Token", "")
    sent.add(token.decode() if isinstance(token, bytes) else token)


def _share() -> float:
    return random()  # noqa: S311 - it spreads requests over time


def _milliseconds(modified: datetime) -> int:
    return round(modified.timestamp() * 1000)
