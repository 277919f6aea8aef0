"""Objects in S3 and services that speak its protocol, over the connection that s3fs keeps.

Requests go to the client inside s3fs, not through its file functions: those strip slashes from keys and cut
keys at `?versionId=`, and their exclusive `open` overwrites an object when nothing was written. Keys here are
the literal strings that tables record.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import takewhile
from typing import Any

import aiohttp
import s3fs
from botocore.exceptions import BotoCoreError, ClientError
from fsspec.asyn import sync

from iceberg_cli.errors import AccessDenied, BackendUnavailable, Refused, UsageError
from iceberg_cli.storage import FileInfo, Renewal, Storage
from iceberg_cli.storage.redaction import redact

THREADS = 32
_LIST_FROM = 200  # paths: a listing names a thousand objects in one answer
_LISTED_FOR_EACH = 20  # a listing ends where it names so many more objects than are requested


def look_at_many(
    keys: Sequence[str],
    ask: Callable[[str], FileInfo],
    listing: Callable[[str], Iterable[FileInfo]],
) -> list[FileInfo | None]:
    """What is known of n objects; None where there is none.

    Args:
        keys: canonical.
        ask: for the object with a key; `FileNotFoundError` where there is none.
        listing: the objects under a folder.
    """
    infos = _listed(keys, listing) if len(keys) >= _LIST_FROM else {}

    def look(key: str) -> FileInfo | None:
        if key in infos:
            return infos[key]
        try:
            return ask(key)
        except FileNotFoundError:
            return None

    if len(keys) - len(infos) <= 1:
        return [look(key) for key in keys]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(look, keys))


def _listed(keys: Sequence[str], listing: Callable[[str], Iterable[FileInfo]]) -> dict[str, FileInfo]:
    """Those of n keys that a listing of their common folder has; nothing where they have none."""
    first, last = min(keys).split("/")[:-1], max(keys).split("/")[:-1]
    shared = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))]
    folder = "/".join(shared)
    if len(shared) < 4:  # scheme://bucket: all that is in a bucket is too much
        return {}
    names = set(keys)
    infos: dict[str, FileInfo] = {}
    for seen, info in enumerate(listing(folder)):
        if info.path in names:
            infos[info.path] = info
        if len(infos) == len(names) or seen > _LISTED_FOR_EACH * len(names):
            break
    return infos


SCHEMES = ("s3", "s3a", "s3n")

_LOCATION = re.compile(rf"(?:{'|'.join(SCHEMES)})://([^/]+)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_TRANSPORT_ERRORS = (BotoCoreError, ClientError, aiohttp.ClientError, OSError)
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\r")
_MARK = "iceberg-cli-put"
_BATCH = 1_000  # objects in one DeleteObjects request, by the protocol
_BEFORE_THE_END_S = 300
_YOUNG_S = 30  # credentials that were given so short a time ago have not ended
_WAITS_S = (0.1, 0.2, 0.4, 0.8)  # before the second try and so on

# PyIceberg's names of options, and what s3fs calls them.
_OPTION_NAMES = {
    "s3.endpoint": "endpoint_url",
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
    "s3.session-token": "token",
    "s3.region": "region",
    "s3.anonymous": "anon",
    "client.access-key-id": "key",
    "client.secret-access-key": "secret",
    "client.session-token": "token",
    "client.region": "region",
}
_OPTIONS = ("endpoint_url", "key", "secret", "token", "region", "anon")


class S3Storage(Storage):
    """A storage of objects in S3; canonical paths look like `s3://bucket/key`.

    Args:
        options: `endpoint_url`, `key`, `secret`, `token`, `region`, `anon`, or PyIceberg's names of these
            (`s3.endpoint`, `s3.access-key-id`, `s3.secret-access-key`, `s3.session-token`, `s3.region`).
            Others are ignored. What is absent comes from the environment, as botocore finds it.
        renewal: gives the options with new credentials, where those in `options` end. It is asked five minutes before
            the end that `s3.session-token-expires-at-ms` tells, and where the service refuses a request.
    """

    def __init__(self, options: Mapping[str, str], *, renewal: Renewal | None = None) -> None:
        self._renewal = renewal
        self._renewing = threading.Lock()
        self._connect(options)

    def _connect(self, options: Mapping[str, str]) -> None:
        """Use these options from now on."""
        self._connected_s = time.monotonic()
        self._renew_s = _renew_after_s(options)
        known = {_OPTION_NAMES[name]: value for name, value in options.items() if name in _OPTION_NAMES}
        known |= {name: options[name] for name in _OPTIONS if name in options}
        self._secrets = [known[name] for name in ("secret", "token") if name in known]
        region = known.get("region")
        self._files = s3fs.S3FileSystem(
            anon=known.get("anon", "").lower() in {"1", "true", "yes"},
            key=known.get("key"),
            secret=known.get("secret"),
            token=known.get("token"),
            endpoint_url=known.get("endpoint_url"),
            client_kwargs={"region_name": region} if region else {},
            # `_ask` sends requests again, where that is safe.
            config_kwargs={"retries": {"total_max_attempts": 1}},
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def canonical(self, path: str) -> str:
        """`s3://bucket/key` for the schemes s3, s3a and s3n; the key stays as it is, character for character.

        Raises:
            UsageError: the path names no bucket.
        """
        if not (match := _LOCATION.fullmatch(path)):
            raise UsageError(f"Cannot use {path}: it is not of the form s3://bucket/key.")
        return f"s3://{match[1]}/{match[2] or ''}"

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole object, or a part of it."""
        if span is None:
            return self._get(path)
        offset, length = span
        if length == 0:
            self.stat(path)
            return b""
        try:
            return self._get(path, Range=f"bytes={offset}-{offset + length - 1}")
        except BackendUnavailable as error:
            if _status(error.__cause__) == 416:  # the offset is at or after the end
                return b""
            raise

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
        except _TRANSPORT_ERRORS as error:
            raise self._translated("look at", path, error) from error

    def endpoint(self, path: str) -> str:  # noqa: ARG002 - one for all buckets
        """The URL that requests go to, without the bucket."""
        return str(sync(self._files.loop, self._files.set_session).meta.endpoint_url)

    def put_if_absent(self, path: str, data: bytes) -> None:
        """PUT with `If-None-Match: *`, and a mark of this call in the object's metadata.

        A request whose answer was lost is sent again, here and unseen inside the HTTP client. An object that
        bears the mark is therefore ours, even when the last answer was that it exists already.
        """
        mark = str(uuid.uuid4())
        for wait_s in (*_WAITS_S, None):
            try:
                self._put(path, data, mark)
            except _TRANSPORT_ERRORS as error:
                if _status(error) == 412:
                    if self._bears(path, mark):
                        return
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
                if _status(error) == 501:
                    raise Refused(
                        redact(
                            f"Cannot write {path}: the service has no conditional creates: {_reason(error)}",
                            self._secrets,
                        ),
                        next_step="Keep the table in a service that has them.",
                    ) from error
                # 409: another conditional request is under way, and ours wrote nothing.
                if wait_s is None or not (_transient(error) or _status(error) == 409):
                    raise self._translated("write", path, error) from error
                sync(self._files.loop, asyncio.sleep, wait_s)
            else:
                return

    def replace(self, path: str, data: bytes) -> None:
        """Replace the object with one PUT, which may safely be sent again."""
        bucket, key = self._split(path)
        try:
            self._call("put_object", Bucket=bucket, Key=key, Body=data)
        except _TRANSPORT_ERRORS as error:
            raise self._translated("write", path, error) from error

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every object under the folder by key, page by page."""
        for path, item in self._items(folder):
            yield FileInfo(path, item["Size"], _milliseconds(item["LastModified"]))

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

    def _items(self, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The path and the listing's entry of every object under the folder."""
        bucket, key = self._split(folder, may_be_bucket=True)
        prefix = f"{key.removesuffix('/')}/" if key else ""
        request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix}
        while True:
            page = self._page(folder, request)
            for item in page.get("Contents", ()):
                if item["Key"] != prefix:  # the folder's own marker is not under the folder
                    yield f"s3://{bucket}/{item['Key']}", item
            if not page["IsTruncated"]:
                return
            if not page.get("NextContinuationToken"):
                raise BackendUnavailable(
                    f"Cannot list {folder}: a page says that more follow, but not where."
                )
            request["ContinuationToken"] = page["NextContinuationToken"]

    def _page(self, folder: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """One page of a listing."""
        try:
            return self._call("list_objects_v2", **request)
        except _TRANSPORT_ERRORS as error:
            raise self._translated("list", folder, error) from error

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete in batches; in a bucket with versions this adds delete markers and removes no version."""
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
            # The request is XML, which cannot have some characters.
            alone = [key for key in keys if _NOT_IN_XML.search(key)]
            together = [key for key in keys if not _NOT_IN_XML.search(key)]
            reasons = self._delete_alone(bucket, alone)
            for start in range(0, len(together), _BATCH):
                reasons |= self._delete_batch(bucket, together[start : start + _BATCH])
            failures |= {keys[key]: redact(reason, self._secrets) for key, reason in reasons.items()}
        return failures

    def _delete_batch(self, bucket: str, keys: Sequence[str]) -> dict[str, str]:
        request = {"Quiet": True, "Objects": [{"Key": key} for key in keys]}
        try:
            answer = self._call("delete_objects", Bucket=bucket, Delete=request)
        except _TRANSPORT_ERRORS as error:
            return dict.fromkeys(keys, _reason(error))
        return {
            failure["Key"]: f"{failure.get('Code', 'error')}: {failure.get('Message', '')}"
            for failure in answer.get("Errors", ())
            if failure.get("Code") != "NoSuchKey"
        }

    def _delete_alone(self, bucket: str, keys: Iterable[str]) -> dict[str, str]:
        reasons = {}
        for key in keys:
            try:
                self._call("delete_object", Bucket=bucket, Key=key)
            except (*_TRANSPORT_ERRORS, ValueError) as error:
                reasons[key] = _reason(error)
        return reasons

    def _put(self, path: str, data: bytes, mark: str) -> None:
        bucket, key = self._split(path)
        self._call(
            "put_object",
            waits_s=(),
            Bucket=bucket,
            Key=key,
            Body=data,
            IfNoneMatch="*",
            Metadata={_MARK: mark},
        )

    def _bears(self, path: str, mark: str) -> bool:
        bucket, key = self._split(path)
        try:
            head = self._call("head_object", Bucket=bucket, Key=key)
        except _TRANSPORT_ERRORS as error:
            translated = self._translated("look at", path, error)
            if isinstance(translated, FileNotFoundError):
                return False
            raise translated from error
        return bool(head.get("Metadata", {}).get(_MARK) == mark)

    def _get(self, path: str, **request: Any) -> bytes:
        bucket, key = self._split(path)
        try:
            answer: bytes = self._call("get_object", Bucket=bucket, Key=key, **request)["Body"]
        except _TRANSPORT_ERRORS as error:
            raise self._translated("read", path, error) from error
        return answer

    def _call(self, method: str, *, waits_s: Sequence[float] = _WAITS_S, **request: Any) -> dict[str, Any]:
        """One request and its whole response, sent again after each wait when the failure may pass."""
        files = self._files
        if self._renew_s is not None and time.monotonic() - self._connected_s >= self._renew_s:
            files = self._renewed(files)
        try:
            answer: dict[str, Any] = sync(files.loop, self._ask, files, method, waits_s, request)
        except ClientError as error:
            # Such an answer says that nothing was done. A request that is refused for good is refused once more.
            if not _may_have_ended(error) or (new := self._renewed(files, refused=True)) is files:
                raise
            answer = sync(new.loop, self._ask, new, method, waits_s, request)
        return answer

    def _renewed(self, files: s3fs.S3FileSystem, *, refused: bool = False) -> s3fs.S3FileSystem:
        """The connection with new credentials, or the same one: there are none, or they have just been renewed.

        Args:
            files: the connection that was used.
            refused: whether its credentials were refused; where they are young, others would be as well.
        """
        with self._renewing:
            young = refused and time.monotonic() - self._connected_s < _YOUNG_S
            if self._files is files and self._renewal is not None and not young:
                self._connect(self._renewal())
            return self._files

    async def _ask(
        self, files: s3fs.S3FileSystem, method: str, waits_s: Sequence[float], request: Mapping[str, Any]
    ) -> dict[str, Any]:
        for wait_s in waits_s:
            try:
                return await self._ask_once(files, method, request)
            except _TRANSPORT_ERRORS as error:
                if not _transient(error):
                    raise
            await asyncio.sleep(wait_s)
        return await self._ask_once(files, method, request)

    async def _ask_once(
        self, files: s3fs.S3FileSystem, method: str, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        client = await files.set_session()
        answer: dict[str, Any] = await getattr(client, method)(**request)
        if method == "get_object":
            async with answer["Body"] as body:
                answer["Body"] = await body.read()
        return answer

    def _split(self, path: str, *, may_be_bucket: bool = False) -> tuple[str, str]:
        bucket, _, key = self.canonical(path).removeprefix("s3://").partition("/")
        if not key and not may_be_bucket:
            raise UsageError(f"Cannot use {path}: it names a bucket and no object.")
        return bucket, key

    def _translated(self, verb: str, path: str, error: Exception) -> Exception:
        code = error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else None
        if code in {"NoSuchKey", "404", "NotFound"}:
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        reason = redact(_reason(error), self._secrets)
        kind = AccessDenied if _status(error) in (401, 403) else BackendUnavailable
        return kind(redact(f"Cannot {verb} {path}: {reason}", self._secrets))


def _renew_after_s(options: Mapping[str, str]) -> float | None:
    """In how many seconds credentials have to be renewed, None where their end is not known."""
    ends_ms = options.get("s3.session-token-expires-at-ms", "")
    if not ends_ms.isdecimal():
        return None
    left_s = int(ends_ms) / 1_000 - time.time()  # noqa: TID251 - the end is a point in time
    return max(left_s - _BEFORE_THE_END_S, left_s / 2, 1.0)


def _may_have_ended(error: ClientError) -> bool:
    """Whether the service refuses the credentials, perhaps because they have ended."""
    code = error.response.get("Error", {}).get("Code")
    return _status(error) in (401, 403) or code in {"ExpiredToken", "ExpiredTokenException", "InvalidToken"}


def _status(error: BaseException | None) -> int | None:
    """The HTTP status of a response, or None when there was none."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    return None


def _transient(error: Exception) -> bool:
    """Whether the same request may succeed, or have succeeded, without anything being changed here."""
    status = _status(error)
    if status is None:
        return not isinstance(error, ClientError) and type(error).__name__ not in {
            "NoCredentialsError",
            "PartialCredentialsError",
            "ParamValidationError",
        }
    return status >= 500 or status in {408, 429}


def _reason(error: Exception) -> str:
    if isinstance(error, ClientError):
        details = error.response.get("Error", {})
        return f"{details.get('Code', _status(error))}: {details.get('Message', '')}".strip(": ")
    return str(error) or type(error).__name__


def _milliseconds(modified: datetime) -> int:
    return round(modified.timestamp() * 1000)
