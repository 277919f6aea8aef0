"""Objects in Google Cloud Storage by its JSON API, over the connection and with the credentials of gcsfs.

Requests do not go through gcsfs' own functions: those cut keys at `#`, send a request that creates an object again
unseen, and say of a refusal no more than its kind. Keys here are the literal strings that tables record.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email import message_from_bytes
from functools import partial
from random import random
from typing import Any, Final
from urllib.parse import quote, urlencode

from fsspec.asyn import sync

from iceberg_cli.errors import (
    AccessDenied,
    BackendUnavailable,
    BucketNotFound,
    IcebergCliError,
    NoCredentials,
    UsageError,
)
from iceberg_cli.storage import FileInfo, Renewal, Storage, Writer
from iceberg_cli.storage.backoff import backoff_s
from iceberg_cli.storage.gcs.answers import NO_BUCKET, Answer, GcsError, Request
from iceberg_cli.storage.gcs.creation import JSON, MARK, GcsWriter, NewObject, next_wait_s
from iceberg_cli.storage.gcs.options import EXPIRES_AT_MS, TOKEN, GcsOptions
from iceberg_cli.storage.many_objects import (
    THREADS,
    delete_each,
    delete_in_batches,
    is_folder_marker,
    look_at_many,
)
from iceberg_cli.storage.redaction import redact, secrets_of_proxies
from iceberg_cli.storage.renewals import RenewedConnection

_EXPERIMENTS: Final = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
_before = os.environ.get(_EXPERIMENTS)
# With it, gcsfs asks each bucket by gRPC what kind it is, loads what that takes, and stands still where nobody answers.
os.environ[_EXPERIMENTS] = "false"
try:
    import aiohttp
    from gcsfs.core import GCSFileSystem
    from gcsfs.retry import HttpError, NonRetryableError
    from google.auth.exceptions import GoogleAuthError
    from google.oauth2.credentials import Credentials
    from requests import RequestException  # of google-auth
    from yarl import URL
finally:
    if _before is None:
        del os.environ[_EXPERIMENTS]
    else:
        os.environ[_EXPERIMENTS] = _before

_LOCATION: Final = re.compile(r"gs://([^/]+)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_LOOKED_FOR: Final = (
    "Looked for: gcs.oauth2.token, GOOGLE_APPLICATION_CREDENTIALS, gcloud's login, a service account of this machine. "
    "A public bucket is read with gcs.no-auth=true."
)
_BATCH: Final = 100  # requests in one batch, by the service
_PAGE: Final = 1_000
_CONNECT_S: Final = 20
# The connection bounds its waits for parts of an answer, and not those before it may send a body.
_ANSWER_S: Final = 60
_SLOWEST: Final = 64 * 1024  # bytes a second
_NO_BATCH: Final = frozenset({400, 404, 405, 501})  # answers of services that know no batches
# Objects that are stored compressed come as they are stored.
_MEDIA: Final = {"Accept-Encoding": "gzip"}
_TRANSPORT_ERRORS: Final = (aiohttp.ClientError, OSError, RequestException)


class GcsStorage(Storage):
    """A storage of objects in Google Cloud Storage; canonical paths look like `gs://bucket/key`.

    Requests name no generation: they are about the live object. What a bucket keeps besides, noncurrent versions and
    objects that were deleted softly, is never read nor deleted.

    Args:
        options: see `GcsOptions`. Without a token, credentials are those that google-auth finds.
        renewal: gives the options with a new token, where that in `options` ends. It is asked five minutes before the
            end that `gcs.oauth2.token-expires-at` tells, and where the service refuses a request.

    Raises:
        UsageError: an option has a value that it cannot have.
    """

    def __init__(self, options: Mapping[str, str], *, renewal: Renewal | None = None) -> None:
        self._secrets: tuple[str, ...] = (*secrets_of_proxies(),)
        self._connections = RenewedConnection[GCSFileSystem](
            options,
            self._connect,
            ends_ms=lambda known: known.get(EXPIRES_AT_MS, ""),
            has_credentials=lambda known: TOKEN in known,
            renewal=renewal,
        )

    def _connect(self, options: Mapping[str, str]) -> GCSFileSystem:
        known = GcsOptions.of(options)
        # What is answered to an earlier request may have earlier ones.
        self._secrets = (*dict.fromkeys((*self._secrets, *known.secrets)),)
        # Given as text, a token would be shown to another service first, which tells when it ends.
        token: Any = known.token
        if known.is_access_token:
            token = Credentials(known.token)  # type: ignore[no-untyped-call]
        elif token is not None and token.startswith("{"):
            token = _key_of(token)
        try:
            return GCSFileSystem(
                # Where the credentials that are found have another one, gcsfs would go on without any.
                project=(known.project or "") if known.token else "",
                access=known.access,
                consistency=known.consistency,
                token=token,
                requester_pays=known.user_project or False,
                endpoint_url=known.endpoint_url,
                session_kwargs={"trust_env": True, **known.session, "auto_decompress": False},
                use_listings_cache=False,
                skip_instance_cache=True,
            )
        except (GoogleAuthError, KeyError, TypeError, ValueError, *_TRANSPORT_ERRORS) as error:
            raise NoCredentials(
                f"Cannot use Google Cloud Storage: no credentials: {redact(str(error), self._secrets)}",
                next_step=_LOOKED_FOR,
            ) from None

    def canonical(self, path: str) -> str:
        """`gs://bucket/key`; the key stays as it is, character for character.

        Raises:
            UsageError: the path names no bucket.
        """
        if not (match := _LOCATION.fullmatch(path)):
            raise UsageError(f"Cannot use {path}: it is not of the form gs://bucket/key.")
        return f"gs://{match[1]}/{match[2] or ''}"

    def endpoint(self, path: str) -> str:  # noqa: ARG002 - one for all buckets
        """The URL that requests go to, without the bucket."""
        return str(self._connections.latest._location)  # noqa: SLF001

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole object, or a part of it."""
        if span is not None and span[1] == 0:
            self.stat(path)
            return b""
        headers = dict(_MEDIA)
        if span is not None:
            headers["Range"] = f"bytes={span[0]}-{span[0] + span[1] - 1}"
        request = Request(method="GET", path=self._object(path), query={"alt": "media"}, headers=headers)
        for tries in itertools.count(1):
            try:
                return self._call(request).part(span)
            except GcsError as error:
                if error.status == 416:  # the offset is at or after the end
                    return b""
                if error.status != 404 or error.is_absent or tries > 1:
                    raise self._translated("read", path, error) from None
            # Of an object that is not there, the service says so in a document where its metadata is asked for, and
            # in plain text where its bytes are. One that is there may just have been created.
            self.stat(path)
        raise AssertionError

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """What is known of objects, by listing the folder that many share, and a request for each of the others.

        Versions are of endpoint, generation and size.
        """
        if not paths:
            return []
        endpoint = self.endpoint(paths[0]) if versions else None

        def info(path: str, item: Mapping[str, Any]) -> FileInfo:
            version = f"{endpoint} {item.get('generation')} {item['size']}" if versions else None
            return FileInfo(path, int(item["size"]), _milliseconds(item["updated"]), version)

        def ask(path: str) -> FileInfo:
            query = {"fields": "size,updated,generation"}
            request = Request(method="GET", path=self._object(path), query=query, headers=JSON)
            try:
                return info(path, self._call(request).document("size", "updated", "generation"))
            except GcsError as error:
                raise self._translated("look at", path, error) from None

        return look_at_many(
            [self.canonical(path) for path in paths],
            ask,
            lambda folder: (info(path, item) for path, item in self._items(folder)),
        )

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Upload with `ifGenerationMatch=0`, and a mark of this call in the object's metadata, see `creation.py`."""
        self._new_object(path).put(data)

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:  # noqa: ARG002
        """Upload in parts with `ifGenerationMatch=0`; one that is neither completed nor cancelled ends after a week."""
        return GcsWriter(self._new_object(path))

    def _new_object(self, path: str) -> NewObject:
        bucket, key = self._split(path)
        return NewObject(
            path=path,
            uploads=f"upload/storage/v1/b/{quote(bucket, safe='')}/o",
            key=key,
            call=self._call,
            mark_there=lambda: self._mark_there(path),
            translated=partial(self._translated, "write", path, may_be_absent=False),
            sleep=self._sleep,
        )

    def replace(self, path: str, data: bytes) -> None:
        """Replace the object with one upload, which may safely be sent again."""
        try:
            self._call(self._new_object(path).upload(data)).document("generation")
        except GcsError as error:
            raise self._translated("write", path, error) from None

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every object under the folder by key, page by page."""
        for path, item in self._items(folder):
            yield FileInfo(path, int(item["size"]), _milliseconds(item["updated"]))

    def subfolders(self, folder: str) -> Iterator[str]:
        """The names of the folders directly in a folder, page by page."""
        bucket, prefix = self._prefix(folder)
        for page in self._pages(folder, bucket, {"prefix": prefix, "delimiter": "/"}):
            names = (each[len(prefix) : -1] for each in page.get("prefixes", ()))
            yield from (name for name in names if name)

    def subfolders_many(self, folders: Sequence[str], names: Sequence[str]) -> Sequence[frozenset[str]]:
        """Which of some names are folders in each of n folders: most often one request for each, side by side."""
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(lambda folder: self._subfolders(folder, names), folders))

    def _subfolders(self, folder: str, names: Sequence[str]) -> frozenset[str]:
        """The names that are folders: by the page that begins at the first one; a name behind its end has its own."""
        bucket, prefix = self._prefix(folder)
        query = {"prefix": prefix, "delimiter": "/", "startOffset": f"{prefix}{min(names)}"}
        page = next(self._pages(folder, bucket, query))
        folders = {*page.get("prefixes", ())}
        last = max([prefix, *folders, *(item["name"] for item in page.get("items", ()))])
        present = {name for name in names if f"{prefix}{name}/" in folders}
        behind = {name for name in names if page.get("nextPageToken") and f"{prefix}{name}/" > last}
        return frozenset({*present, *(name for name in behind if self.holds_any(f"{folder}/{name}"))})

    def holds_any(self, folder: str) -> bool:
        """Whether there is an object under the folder, by one short page."""
        bucket, prefix = self._prefix(folder)
        pages = self._pages(folder, bucket, {"prefix": prefix, "maxResults": "2"})
        items = (item for page in pages for item in page.get("items", ()))
        return any(
            item["name"] != prefix and not is_folder_marker(item["name"], int(item["size"])) for item in items
        )

    def _items(self, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The path and the listing's entry of every object under the folder."""
        bucket, prefix = self._prefix(folder)
        fields = "items(name,size,updated,generation),nextPageToken"
        for page in self._pages(folder, bucket, {"prefix": prefix, "fields": fields}):
            for item in page.get("items", ()):
                # The folder's own marker is not under the folder, whatever it holds.
                if item["name"] != prefix and not is_folder_marker(item["name"], int(item["size"])):
                    yield f"gs://{bucket}/{item['name']}", item

    def _pages(self, folder: str, bucket: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The pages of a listing, each when it is used.

        Raises:
            BackendUnavailable: one cannot be had.
        """
        path = f"storage/v1/b/{quote(bucket, safe='')}/o"
        query = {"maxResults": str(_PAGE), **query}
        while True:
            try:
                page = self._call(Request(method="GET", path=path, query=query, headers=JSON)).document()
            except GcsError as error:
                raise self._translated("list", folder, error, may_be_absent=False) from None
            yield page
            if not page.get("nextPageToken"):
                return
            query = {**query, "pageToken": page["nextPageToken"]}

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete in batches; in a bucket with versions live objects become noncurrent, and no version is removed."""
        failures: dict[str, str] = {}
        keys: dict[str, str] = {}  # the path below the endpoint
        for path in paths:
            try:
                keys[self._object(path)] = path
            except UsageError as error:
                failures[path] = error.message
        reasons = delete_in_batches([*keys], most=_BATCH, delete=self._delete_batch)
        return failures | {keys[name]: redact(reason, self._secrets) for name, reason in reasons.items()}

    def _delete_batch(self, names: Sequence[str]) -> dict[str, str]:
        """Those of at most `_BATCH` objects that are still there, each with the reason.

        Objects that the service had no time for are asked for again.
        """
        if len(names) == 1:
            return self._delete_alone(names)
        reasons: dict[str, str] = {}
        for tries in itertools.count(1):
            try:
                found = self._deletions(names)
            except GcsError as error:
                if error.status in _NO_BATCH:
                    return reasons | self._delete_alone(names)
                return reasons | dict.fromkeys(names, _words(error))
            except IcebergCliError as error:  # of the renewal
                return reasons | dict.fromkeys(names, error.message)
            failed = {name: each for name, each in found.items() if each is not None and not each.is_absent}
            # Credentials may have ended, which is seen, and made good, where each is asked for.
            if denied := [name for name, each in failed.items() if each.status in (401, 403)]:
                reasons |= self._delete_alone(denied)
                failed = {name: each for name, each in failed.items() if name not in denied}
            later = [name for name, each in failed.items() if each.is_transient]
            reasons |= {name: _words(each) for name, each in failed.items() if name not in later}
            wait_s = backoff_s(tries, throttled=True, share=_share()) if later else None
            if wait_s is None:
                return reasons | {name: _words(failed[name]) for name in later}
            self._sleep(wait_s)
            names = later
        raise AssertionError

    def _deletions(self, names: Sequence[str]) -> dict[str, GcsError | None]:
        """What a batch of deletions answers for each object; None is a success."""
        boundary = uuid.uuid4().hex
        query = self._shared_query()
        parts = "".join(
            f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n"
            f"DELETE /{name}{f'?{urlencode(query)}' if query else ''} HTTP/1.1\r\n\r\n\r\n"
            for number, name in enumerate(names)
        )
        headers = {**JSON, "Content-Type": f"multipart/mixed; boundary={boundary}"}
        body = f"{parts}--{boundary}--\r\n".encode()
        answer = self._call(
            Request(method="POST", path="batch/storage/v1", headers=headers, body=body), shared=False
        )
        found: dict[str, GcsError | None] = dict.fromkeys(
            names, GcsError(None, "the answer to a batch of deletions says nothing of it", is_final=True)
        )
        head = f"Content-Type: {answer.headers.get('Content-Type', '')}\r\n\r\n".encode()
        for place, part in enumerate(message_from_bytes(head + answer.body).walk()):
            if part.is_multipart():
                continue
            # `<response-7>` answers `<7>`; where a service gives none, answers are in order.
            match = re.search(r"(\d+)>?\s*$", part.get("Content-ID", ""))
            number = int(match[1]) if match else place - 1
            text = bytes(part.get_payload(decode=True) or b"").decode(errors="replace")
            status = re.match(r"\s*HTTP/[0-9.]+ (\d{3})", text)
            if number < len(names) and status:
                code = int(status[1])
                found[names[number]] = (
                    None if code < 300 else GcsError.of(code, text[max(text.find("{"), 0) :])
                )
        return found

    def _delete_alone(self, names: Sequence[str]) -> dict[str, str]:
        """The objects that are still there, each with the reason: by a request for each."""

        def reason(name: str) -> str | None:
            try:
                answer = self._call(Request(method="DELETE", path=name, headers=JSON))
            except GcsError as error:
                return None if error.is_absent else _words(error)
            except IcebergCliError as error:  # of the renewal
                return error.message
            return None if answer.is_empty else f"the answer, HTTP {answer.status}, is none to a deletion"

        return delete_each(names, reason)

    def _mark_there(self, path: str) -> str | None:
        """The mark of the object that is there, or "": it has none; None: there is no object."""
        request = Request(method="GET", path=self._object(path), query={"fields": "metadata"}, headers=JSON)
        try:
            document = self._call(request).document()
        except GcsError as error:
            if error.is_absent:
                return None
            raise self._translated("look at", path, error) from None
        return str(document.get("metadata", {}).get(MARK, ""))

    def _call(self, request: Request, *, again: bool = True, shared: bool = True) -> Answer:
        """One request and its whole answer.

        Args:
            request: to be sent.
            again: whether it is sent again after a while when the failure may pass.
            shared: whether it says who pays.

        Raises:
            GcsError.
        """
        files = self._connections.current()
        try:
            return self._sent(files, request, again=again, shared=shared)
        except GcsError as error:
            # Such an answer says that nothing was done. A request that is refused for good is refused once more.
            if error.status not in (401, 403) or (new := self._connections.renewed(files)) is files:
                raise
        return self._sent(new, request, again=again, shared=shared)

    def _sent(self, files: GCSFileSystem, request: Request, *, again: bool, shared: bool) -> Answer:
        if shared and (query := self._shared_query()):
            request = Request(
                method=request.method,
                path=request.path,
                query={**request.query, **query},
                headers=request.headers,
                body=request.body,
                answers=request.answers,
            )
        for tries in itertools.count(1):
            try:
                answer: Answer = sync(files.loop, partial(_ask, files, request))
            except GcsError as error:
                wait_s = next_wait_s(error, tries) if again else None
                if wait_s is None:
                    raise
                self._sleep(wait_s)
            else:
                return answer
        raise AssertionError

    def _shared_query(self) -> Mapping[str, str]:
        """Who pays for requests."""
        payer = self._connections.latest.requester_pays
        return {"userProject": payer} if payer else {}

    def _sleep(self, wait_s: float) -> None:
        sync(self._connections.latest.loop, asyncio.sleep, wait_s)

    def _split(self, path: str) -> tuple[str, str]:
        bucket, _, key = self.canonical(path).removeprefix("gs://").partition("/")
        if not key:
            raise UsageError(f"Cannot use {path}: it names a bucket and no object.")
        return bucket, key

    def _prefix(self, folder: str) -> tuple[str, str]:
        """The bucket, and what the keys of all objects under a folder begin with."""
        bucket, _, key = self.canonical(folder).removeprefix("gs://").partition("/")
        return bucket, f"{key.removesuffix('/')}/" if key else ""

    def _object(self, path: str) -> str:
        """Where an object is below the endpoint."""
        bucket, key = self._split(path)
        return f"storage/v1/b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"

    def _translated(self, verb: str, path: str, error: GcsError, *, may_be_absent: bool = True) -> Exception:
        if error.is_absent and may_be_absent:
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        kind = AccessDenied if error.status in (401, 403) else BackendUnavailable
        if error.status == 404 and NO_BUCKET in error.reason:
            kind = BucketNotFound
        return kind(redact(f"Cannot {verb} {path}: {_words(error)}", self._secrets))


async def _ask(files: GCSFileSystem, request: Request) -> Answer:
    """Send a request once, as it is.

    Raises:
        GcsError.
    """
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    base = f"{files._location}/"  # noqa: SLF001
    if request.path.startswith("/"):
        base = str(URL(base).origin()).rstrip("/")
    url = URL(f"{base}{request.path}{query}", encoded=True)
    bound_s = _ANSWER_S + len(request.body or b"") / _SLOWEST
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=bound_s)
    try:
        # Credentials that have ended are asked for anew, which blocks.
        headers = await asyncio.to_thread(files._get_headers, dict(request.headers))  # noqa: SLF001
        session = await files._set_session()  # noqa: SLF001
        sent = session.request(
            request.method, url, headers=headers, data=request.body, timeout=timeout, allow_redirects=False
        )
        response = await asyncio.wait_for(sent, bound_s)
        async with response:
            body = await response.read()
    except TimeoutError:
        raise GcsError(None, f"no answer within {round(bound_s)} s") from None
    except NonRetryableError as error:
        raise GcsError(401, str(error) or "the credentials have ended") from None
    except HttpError as error:  # of the credentials
        raise GcsError(error.code if isinstance(error.code, int) else None, str(error.message)) from None
    except GoogleAuthError as error:
        raise GcsError(401, str(error)) from None
    except _TRANSPORT_ERRORS as error:
        raise GcsError(None, str(error) or type(error).__name__) from None
    if response.status >= 300 and response.status not in request.answers:
        retry_after = response.headers.get("Retry-After", "")
        raise GcsError.of(response.status, body.decode(errors="replace"), retry_after=retry_after)
    return Answer(response.status, response.headers, body)


def _key_of(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"Cannot use the storage option {TOKEN}: it begins like a key in JSON, and is none.")
    return found


def _words(error: GcsError) -> str:
    return error.reason if error.status is None else f"{error.status}: {error.reason}"


def _share() -> float:
    return random()  # noqa: S311 - it spreads requests over time


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
