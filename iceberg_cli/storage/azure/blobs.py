"""Objects in Azure Blob Storage and Data Lake Storage, by Microsoft's own client of the blob service.

Both of an account's endpoints, `blob` and `dfs`, have the same objects; requests go to `blob`.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from io import BytesIO
from typing import Any, Final

import requests
from azure.core import MatchConditions
from azure.core.credentials import AccessToken, TokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
)
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobBlock, BlobPrefix, BlobServiceClient, ContainerClient, ExponentialRetry
from requests.adapters import HTTPAdapter

from iceberg_cli.errors import (
    AccessDenied,
    BackendUnavailable,
    BucketNotFound,
    IcebergCliError,
    NoCredentials,
    UsageError,
    how_to_install,
)
from iceberg_cli.paths import canonical
from iceberg_cli.storage import FileInfo, Renewal, Storage, Writer
from iceberg_cli.storage.azure.creation import BlockWriter
from iceberg_cli.storage.azure.options import AzureAccount, AzureOptions, ends_ms, is_credential
from iceberg_cli.storage.many_objects import (
    THREADS,
    delete_each,
    delete_in_batches,
    is_folder_marker,
    look_at_many,
)
from iceberg_cli.storage.redaction import redact, secrets_of_proxies
from iceberg_cli.storage.renewals import RenewedConnection

_LOCATION: Final = re.compile(r"abfss://([^/@]+)(?:@([^/@]+))?/(.*)", re.DOTALL)
_LOOKED_FOR: Final = (
    "Looked for: adls.account-key, adls.sas-token, adls.connection-string, a service principal of adls.client-id or "
    "AZURE_CLIENT_ID, AZURE_STORAGE_CONNECTION_STRING, a managed identity, the login of az. A public container is read "
    "with adls.anon=true."
)
_MARK: Final = "iceberg_cli_put"  # names of metadata are identifiers
_FOLDER: Final = "hdi_isfolder"  # the metadata of what stands for a folder
_PAGE: Final = 5_000  # the most that a page has
_BATCH: Final = 256  # requests in one batch, by the service
_RETRIES: Final = 4
_WAITS: Final[dict[str, Any]] = {
    "initial_backoff": 1,
    "increment_base": 2,
    "random_jitter_range": 1,
}  # seconds
_CONNECT_S: Final = 20
_ANSWER_S: Final = 60
_PART_BYTES: Final = 64 << 20  # of an object that takes several requests to read
_SLOWEST: Final = 64 * 1024  # bytes a second, of what is sent
_WHOLE_BYTES: Final = 5_000 << 20  # the most that one request writes, by the service
_EXISTS: Final = frozenset({"BlobAlreadyExists", "ConditionNotMet"})
_NO_BLOCKS: Final = "InvalidBlockList"  # the blocks are gone, as they are once an object is made of any
# Not `ResourceNotFound`, which is also what those who may not know get of a container that there is.
_ABSENT: Final = frozenset({"BlobNotFound", "PathNotFound"})
_NO_CONTAINER: Final = "ContainerNotFound"


class _StaticToken:
    """A token that somebody else renews."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken(self._token, 1 << 40)


class _NothingFound(ClientAuthenticationError):
    """There was nothing to ask for a token with."""


class _NoToken(Exception):
    """Whoever gives tokens gave none; not of the kind that retries of a request catch, which ask for half a minute."""

    def __init__(self, reason: ClientAuthenticationError) -> None:
        super().__init__(reason)
        self.reason = reason


class _Identity:
    """Credentials of azure-identity, which tries again by itself what may pass."""

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        try:
            return self._credential.get_token(*scopes, **options)
        except ClientAuthenticationError as error:
            # The chain ends at the first way that has something to ask with: where it tried the last one, none had.
            ways = getattr(self._credential, "credentials", ())
            if ways and f"\t{type(ways[-1]).__name__}" in error.message:
                raise _NoToken(_NothingFound("there are no credentials")) from None
            raise _NoToken(error) from None


class _Accounts:
    """The clients of accounts under some options, each made when its first path arrives."""

    def __init__(self, options: AzureOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._clients: dict[str, BlobServiceClient] = {}

    def client(self, host: str) -> BlobServiceClient:
        with self._lock:
            if host not in self._clients:
                self._clients[host] = _client_of(self._options.account(host))
            return self._clients[host]


class _Adapter(HTTPAdapter):
    """Connections whose time-outs are for parts of what is sent: without TLS they would be for the whole of it."""

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        if isinstance(request.body, bytes):
            request.body = BytesIO(request.body)
        return super().send(request, *args, **options)


def _client_of(account: AzureAccount) -> BlobServiceClient:
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, _Adapter(pool_maxsize=THREADS, max_retries=0))
    try:
        return _new_client(account, session)
    except ValueError as error:
        raise UsageError(f"Cannot use the account {account.name} on Azure: {error}") from None


def _new_client(account: AzureAccount, session: requests.Session) -> BlobServiceClient:
    return BlobServiceClient(
        account.url,
        credential=_credential_of(account),
        transport=RequestsTransport(session=session, connection_timeout=_CONNECT_S, read_timeout=_ANSWER_S),
        retry_policy=ExponentialRetry(retry_total=_RETRIES, **_WAITS),
        # Several requests would write blocks, which those of another writer of the object may be mixed with.
        max_single_put_size=_WHOLE_BYTES,
        max_single_get_size=_PART_BYTES,
        max_chunk_get_size=_PART_BYTES,
    )


def _credential_of(account: AzureAccount) -> Any:
    if account.is_anonymous:
        return None
    if account.sas:
        from azure.core.credentials import AzureSasCredential

        return AzureSasCredential(account.sas)
    if account.key:
        return {"account_name": account.name, "account_key": account.key}
    if account.token:
        return _StaticToken(account.token)
    try:
        from azure.identity import ClientSecretCredential, DefaultAzureCredential
    except ImportError as error:
        raise UsageError(
            f"Cannot use the account {account.name} on Azure: {error.name} is not installed.",
            next_step=how_to_install(error),
        ) from error
    # What it warns of on standard error, many lines for each way that it tries, the error of the request says.
    logging.getLogger("azure.identity").setLevel(logging.ERROR)
    found = ClientSecretCredential(*account.principal) if account.principal else DefaultAzureCredential()
    return _Identity(found)


class AzureStorage(Storage):
    """A storage of objects in Azure; canonical paths look like `abfss://container@account.dfs.core.windows.net/key`.

    In accounts with a hierarchical namespace, folders are objects of their own: here they are none. Requests name no
    version and no snapshot, so that none is read nor deleted; a blob that has snapshots stays, and `delete` says so.

    Args:
        options: see `AzureOptions`. Without any credential, they are those that `DefaultAzureCredential` finds, of a
            managed identity among others.
        renewal: gives the options with new credentials, where those in `options` end. It is asked five minutes before
            the end that `adls.sas-token-expires-at-ms` tells, and where the service refuses a request.
    """

    def __init__(self, options: Mapping[str, str], *, renewal: Renewal | None = None) -> None:
        self._secrets: tuple[str, ...] = (*secrets_of_proxies(),)
        self._connections = RenewedConnection[_Accounts](
            options,
            self._connect,
            ends_ms=ends_ms,
            has_credentials=lambda known: any(map(is_credential, known)),
            renewal=renewal,
        )

    def _connect(self, options: Mapping[str, str]) -> _Accounts:
        known = AzureOptions.of(options)
        # What is answered to an earlier request may have earlier ones.
        self._secrets = (*dict.fromkeys((*self._secrets, *known.secrets)),)
        return _Accounts(known)

    def canonical(self, path: str) -> str:
        """`abfss://container@host/key` for all schemes of Azure, with the `dfs` host of the two of an account.

        `abfss://container/key`, whose account the options name, is another spelling, and stays as it is.

        Raises:
            UsageError: the path names no container.
        """
        found = canonical(path)
        found = f"{found}/" if re.fullmatch(r"abfss://[^/]+", found) else found
        if not _LOCATION.fullmatch(found):
            raise UsageError(
                f"Cannot use {path}: it is not of the form abfss://container@account.dfs.core.windows.net/key."
            )
        return found

    def endpoint(self, path: str) -> str:
        """The URL of the blob service of the path's account."""
        _, host, _ = self._parts(path)
        client = self._connections.latest.client(host)
        return f"{client.scheme}://{client.primary_hostname}"

    def read(self, path: str, span: tuple[int, int] | None = None) -> bytes:
        """The whole object, or a part of it."""
        if span is not None and span[1] == 0:
            self.stat(path)
            return b""

        def download(container: ContainerClient, key: str) -> bytes:
            offset, length = span or (None, None)
            found = container.get_blob_client(key).download_blob(offset, length, decompress=False)
            if _is_folder(found.properties.metadata):
                raise _absent(path)
            return bytes(found.readall())

        try:
            data: bytes = self._call(path, download)
        except HttpResponseError as error:
            if error.status_code == 416:  # the offset is at or after the end
                return b""
            raise self._translated("read", path, error) from None
        except AzureError as error:
            raise self._translated("read", path, error) from None
        return data

    def stat_many(self, paths: Sequence[str], *, versions: bool = False) -> list[FileInfo | None]:
        """What is known of objects, by listing the folder that many share, and a request for each of the others.

        Versions are of endpoint, ETag and size.
        """

        def info(path: str, found: Any) -> FileInfo:
            version = f"{self.endpoint(path)} {found.etag.strip(chr(34))} {found.size}" if versions else None
            return FileInfo(path, found.size, _milliseconds(found.last_modified), version)

        def ask(path: str) -> FileInfo:
            try:
                found = self._call(
                    path, lambda container, key: container.get_blob_client(key).get_blob_properties()
                )
            except AzureError as error:
                raise self._translated("look at", path, error) from None
            if _is_folder(found.metadata):
                raise _absent(path)
            return info(path, found)

        return look_at_many(
            [self.canonical(path) for path in paths],
            ask,
            lambda folder: (info(path, found) for path, found in self._items(folder)),
        )

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Upload with `If-None-Match: *`, and a mark of this call in the object's metadata.

        A request whose answer was lost is sent again, unseen inside the client. An object that bears the mark is
        therefore ours, even when the last answer was that it exists already.
        """
        mark = str(uuid.uuid4())

        def upload(container: ContainerClient, key: str) -> None:
            container.get_blob_client(key).upload_blob(
                data,
                overwrite=False,
                metadata={_MARK: mark},
                match_condition=MatchConditions.IfMissing,
                read_timeout=_answer_s(data),
            )

        self._create(path, mark, upload)

    def create(self, path: str, on_upload: Callable[[str], None] | None = None) -> Writer:  # noqa: ARG002
        """Write in blocks, which are made the object with `If-None-Match: *`; one of a single block is uploaded."""
        mark = str(uuid.uuid4())

        def stage(block_id: str, data: bytes) -> None:
            def send(container: ContainerClient, key: str) -> None:
                container.get_blob_client(key).stage_block(block_id, data, read_timeout=_answer_s(data))

            try:
                self._call(path, send)
            except AzureError as error:
                raise self._translated("write", path, error, may_be_absent=False) from None

        def create(block_ids: Sequence[str]) -> None:
            def send(container: ContainerClient, key: str) -> None:
                container.get_blob_client(key).commit_block_list(
                    [BlobBlock(each) for each in block_ids],
                    metadata={_MARK: mark},
                    match_condition=MatchConditions.IfMissing,
                )

            self._create(path, mark, send)

        return BlockWriter(path, partial(self.put_if_absent, path), stage=stage, create=create)

    def _create(self, path: str, mark: str, request: Callable[[ContainerClient, str], object]) -> None:
        """Send a request that creates an object with a mark where there is none, and look what is there if it fails."""
        try:
            self._call(path, request)
        except AzureError as error:
            code = _code(error)
            there = self._mark_there(path) if code in {*_EXISTS, _NO_BLOCKS} else None
            if there == mark:
                return
            if code in _EXISTS or there is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
            raise self._translated("write", path, error, may_be_absent=False) from None

    def _mark_there(self, path: str) -> str | None:
        """The mark of the object that is there, or "": it has none; None: there is no object."""
        try:
            found = self._call(
                path, lambda container, key: container.get_blob_client(key).get_blob_properties()
            )
        except AzureError as error:
            translated = self._translated("look at", path, error)
            if isinstance(translated, FileNotFoundError):
                return None
            raise translated from None
        return str((found.metadata or {}).get(_MARK, ""))

    def replace(self, path: str, data: bytes) -> None:
        """Replace the object with one upload, which may safely be sent again."""

        def upload(container: ContainerClient, key: str) -> None:
            container.upload_blob(key, data, overwrite=True, read_timeout=_answer_s(data))

        try:
            self._call(path, upload)
        except AzureError as error:
            raise self._translated("write", path, error, may_be_absent=False) from None

    def list(self, folder: str) -> Iterator[FileInfo]:
        """Every object under the folder by key, page by page until a folder is seen that is an object of its own.

        From there on the rest is gathered first: among such folders the service has another order.
        """
        for path, found in self._items(folder):
            yield FileInfo(path, found.size, _milliseconds(found.last_modified))

    def _items(self, folder: str) -> Iterator[tuple[str, Any]]:
        """The path and the listing's entry of every object under the folder."""
        prefix = self._prefix(folder)
        base = self.canonical(folder).removesuffix(self._parts(folder)[2])
        gathered: list[Any] | None = None
        for found in self._listed(folder, include=["metadata"]):
            if _is_folder(found.metadata):
                gathered = [] if gathered is None else gathered
            elif found.name == prefix or is_folder_marker(found.name, found.size):
                continue  # the folder's own marker is not under the folder, whatever it holds
            elif gathered is None:
                yield f"{base}{found.name}", found
            else:
                gathered.append(found)
        for found in sorted(gathered or (), key=lambda each: str(each.name)):
            yield f"{base}{found.name}", found

    def holds_any(self, folder: str) -> bool:
        """Whether there is an object under the folder, by short pages."""
        prefix = self._prefix(folder)
        listed = self._listed(folder, include=["metadata"], results_per_page=10)
        return any(
            found.name != prefix
            and not _is_folder(found.metadata)
            and not is_folder_marker(found.name, found.size)
            for found in listed
        )

    def subfolders(self, folder: str) -> Iterator[str]:
        """The names of the folders directly in a folder, page by page."""
        prefix = self._prefix(folder)
        for found in self._listed(folder, delimiter="/"):
            name = found.name[len(prefix) : -1]
            if isinstance(found, BlobPrefix) and name:
                yield name

    def _listed(self, folder: str, **request: Any) -> Iterator[Any]:
        """What a listing of a folder names, page by page.

        Raises:
            BackendUnavailable: a page cannot be had.
        """
        prefix, token = self._prefix(folder), None

        def page(container: ContainerClient, _: str) -> tuple[list[Any], str | None]:
            method = container.walk_blobs if "delimiter" in request else container.list_blobs
            listing: Any = method(name_starts_with=prefix, **{"results_per_page": _PAGE, **request})
            pages = listing.by_page(token)
            return list(next(pages, ())), pages.continuation_token

        while True:
            try:
                entries, token = self._call(folder, page, is_object=False)
            except AzureError as error:
                raise self._translated("list", folder, error, may_be_absent=False) from None
            yield from entries
            if not token:
                return

    def subfolders_many(self, folders: Sequence[str], names: Sequence[str]) -> Sequence[frozenset[str]]:
        """Which of some names are folders in each of n folders: a request for each name in each, side by side."""
        places = [f"{folder}/{name}" for folder in folders for name in names]
        with ThreadPoolExecutor(THREADS) as pool:
            held = dict(zip(places, pool.map(self.holds_any, places), strict=True))
        return [frozenset(name for name in names if held[f"{folder}/{name}"]) for folder in folders]

    def delete(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Delete in batches; what is kept softly, versions and snapshots stay."""
        failures: dict[str, str] = {}
        containers: dict[tuple[str, str], dict[str, str]] = {}
        for path in paths:
            try:
                container, host, key = self._parts(path, is_object=True)
            except UsageError as error:
                failures[path] = error.message
                continue
            containers.setdefault((container, host), {})[key] = path
        for keys in containers.values():
            delete = partial(self._delete_batch, next(iter(keys.values())))
            reasons = delete_in_batches([*keys], most=_BATCH, delete=delete)
            failures |= {keys[key]: redact(reason, self._secrets) for key, reason in reasons.items()}
        return failures

    def _delete_batch(self, beside: str, keys: Sequence[str]) -> dict[str, str]:
        """The keys of at most `_BATCH` objects that are still there, each with the reason.

        Answers in a batch do not say which object they are about, so that where one is no success, all are asked for
        once more, each by a request of its own; and so where the account knows no batches.

        Args:
            beside: a path in their container.
            keys: of the objects.
        """

        def send(container: ContainerClient, _: str) -> list[tuple[int, str]]:
            answers = container.delete_blobs(*keys, raise_on_any_failure=False)
            return [(each.status_code, each.headers.get("x-ms-error-code", "")) for each in answers]

        if len(keys) > 1:
            try:
                answers = self._call(beside, send)
            except (AzureError, ValueError):
                answers = []
            except IcebergCliError as error:  # of the renewal
                return dict.fromkeys(keys, error.message)
            done = [status < 300 or (status == 404 and code in _ABSENT) for status, code in answers]
            if len(done) == len(keys) and all(done):
                return {}
        return self._delete_alone(beside, keys)

    def _delete_alone(self, beside: str, keys: Sequence[str]) -> dict[str, str]:
        """The keys of objects that are still there, each with the reason: by a request for each."""

        def reason(key: str) -> str | None:
            try:
                self._call(beside, lambda container, _: container.delete_blob(key))
            except AzureError as error:
                if _is_absent(error):
                    return None
                if _code(error) == "SnapshotsPresent":
                    return "it has snapshots, which are not deleted: SnapshotsPresent"
                return _reason(error)
            except IcebergCliError as error:  # of the renewal
                return error.message
            return None

        return delete_each(keys, reason)

    def _call(self, path: str, request: Any, *, is_object: bool = True) -> Any:
        """What a request gives: a function of a container's client and a key.

        Raises:
            AzureError.
        """
        container, host, key = self._parts(path, is_object=is_object)

        def send(accounts: _Accounts) -> Any:
            try:
                return request(accounts.client(host).get_container_client(container), key)
            except _NoToken as error:
                raise error.reason from None

        accounts = self._connections.current()
        try:
            return send(accounts)
        except AzureError as error:
            # Such an answer says that nothing was done. A request that is refused for good is refused once more.
            if not _is_denied(error) or (new := self._connections.renewed(accounts)) is accounts:
                raise
        return send(new)

    def _prefix(self, folder: str) -> str:
        """What the keys of all objects under a folder begin with."""
        key = self._parts(folder)[2]
        return f"{key.removesuffix('/')}/" if key else ""

    def _parts(self, path: str, *, is_object: bool = False) -> tuple[str, str, str]:
        """Container, host and key."""
        match = _LOCATION.fullmatch(self.canonical(path))
        assert match is not None
        if is_object and not match[3]:
            raise UsageError(f"Cannot use {path}: it names a container and no object.")
        return match[1], match[2] or "", match[3]

    def _translated(
        self, verb: str, path: str, error: AzureError, *, may_be_absent: bool = True
    ) -> Exception:
        if _is_absent(error) and may_be_absent:
            return _absent(path)
        if isinstance(error, _NothingFound):
            return NoCredentials(f"Cannot {verb} {path}: {error.message}", next_step=_LOOKED_FOR)
        kind = AccessDenied if _is_denied(error) else BackendUnavailable
        if isinstance(error, HttpResponseError) and _code(error) == _NO_CONTAINER:
            kind = BucketNotFound
        return kind(redact(f"Cannot {verb} {path}: {_reason(error)}", self._secrets))


def _is_folder(metadata: Mapping[str, str] | None) -> bool:
    return any(name.lower() == _FOLDER and text.lower() == "true" for name, text in (metadata or {}).items())


def _is_absent(error: AzureError) -> bool:
    """Whether there is no such object, in a container that there is."""
    is_answer = isinstance(error, HttpResponseError) and error.status_code == 404
    return is_answer and _code(error) in _ABSENT


def _answer_s(data: bytes) -> float:
    """How long an upload's answer may take: a proxy may have all of it before it sends the first part on."""
    return _ANSWER_S + len(data) / _SLOWEST


def _code(error: AzureError) -> str:
    """Azure's own word for an error, where the response had one."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _is_denied(error: AzureError) -> bool:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return status in (401, 403) or isinstance(error, ClientAuthenticationError)


def _absent(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _reason(error: AzureError) -> str:
    """One line, without the request's id and time."""
    text = str(getattr(error, "message", "") or error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    code = _code(error)
    return f"{code}: {first}" if code not in first else first


def _milliseconds(modified: datetime) -> int:
    return round(modified.timestamp() * 1000)
