"""Requests to a REST catalog about one table: each is sent once, and each answer is checked before it is used.

PyIceberg finds the server's configuration and authenticates. Nothing here, in the client or below it sends a commit
again; what a server or an authentication says wrong is one error and no traceback, with no secret in it.

Spec: Iceberg REST catalog specification, `getConfig`, `loadTable`, `updateTable`, `loadCredentials`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import pydantic
import requests
from pyiceberg.catalog.rest import Capability, Endpoint, Endpoints, HttpMethod, IdentifierKind, RestCatalog
from pyiceberg.exceptions import RESTError
from urllib3.exceptions import InvalidHeader, NewConnectionError
from urllib3.util import Retry

from iceberg_cli.errors import AccessDenied, BackendUnavailable, Refused, TableNotFound, UsageError
from iceberg_cli.iceberg.catalogs.lost_fields import fields_of
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.storage.redaction import redact, secrets_of

_CONNECT_S: Final = 30
_ANSWER_S: Final = 300  # a server writes the metadata of a large table meanwhile
_WAITS: Final = (_CONNECT_S, _ANSWER_S)
_LOAD_CREDENTIALS: Final = Endpoint(
    http_method=HttpMethod.GET, path="/v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
)
_SIGN: Final = Endpoint(
    http_method=HttpMethod.POST, path="/v1/{prefix}/namespaces/{namespace}/tables/{table}/sign"
)
_SIGNER_URIS: Final = ("signer.uri", "s3.signer.uri")
_SIGNER_ENDPOINTS: Final = ("signer.endpoint", "s3.signer.endpoint")
_OLD_SIGN: Final = "v1/aws/s3/sign"  # of servers that name no endpoint of the table's own
_KEY_HOLDS_S: Final = 2 * (_CONNECT_S + _ANSWER_S) + 60
DENIED: Final = frozenset({401, 403, 407, 419})
# The catalog's own, and no storage's.
_CATALOGS_OWN: Final = (
    "token",
    "credential",
    "oauth2-",
    "header.",
    "auth",
    "uri",
    "rest.",
    "urn:ietf:params:oauth:",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningConfig:
    """What a server wants to see in each request for a signature.

    Args:
        is_given: whether the server said anything of it.
        properties: in its document.
        headers: of its own.
    """

    is_given: bool
    properties: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the server says of a table now.

    Args:
        location: of its metadata.
        fields: of the metadata as the server has it, see `lost_fields.fields_of`; None where it says nothing of it.
        options: of its storage, for paths without credentials of their own.
        credentials: options by the prefix of the paths that they are for.
        token: the table's own, or None.
        signing: see `SigningConfig`.
    """

    location: str
    fields: frozenset[str] | None = field(repr=False)
    options: Mapping[str, str] = field(repr=False)
    credentials: Mapping[str, Mapping[str, str]] = field(repr=False)
    token: str | None = field(repr=False)
    signing: SigningConfig = field(repr=False)


class NoAnswer(Exception):
    """A request that got no answer; `sent`: it may have reached the server."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class _Catalog(RestCatalog):
    """PyIceberg's client, none of whose requests waits for ever; it remembers for how long keys of requests hold.

    Args:
        name: as it is configured.
        secrets: gets what requests are authenticated with.
        properties: as PyIceberg names them.
    """

    key_lifetime_s: float = 0.0

    def __init__(self, name: str, secrets: list[str], properties: Mapping[str, Any]) -> None:
        self._sent_secrets = secrets
        super().__init__(name, **properties)

    def _config_headers(self, session: requests.Session) -> None:
        # A server gives what it can of these; the configuration may name others.
        session.headers["X-Iceberg-Access-Delegation"] = "vended-credentials,remote-signing"
        super()._config_headers(session)
        # The first of what is done with each new session: its requests for configuration and tokens set no time-out.
        session.request = partial(session.request, timeout=_WAITS)  # type: ignore[method-assign]
        session.hooks["response"].append(self._look_at)

    def _look_at(self, answer: requests.Response, **_: object) -> None:
        secrets = _sent_with(answer.request)
        self._sent_secrets += [each for each in secrets if each not in self._sent_secrets]
        if urlsplit(answer.url).path.endswith("/" + Endpoints.get_config) and answer.ok:
            self.key_lifetime_s = _key_lifetime_s(answer)


class RestClient:
    """The requests about one table.

    Args:
        catalog_name: as it is configured.
        namespace: its levels, from the outermost.
        table: its name.
        properties: the catalog's, as PyIceberg names them.

    Raises:
        UsageError: the configuration is incomplete or contradicts itself.
        AccessDenied: the server does not take the credentials.
        BackendUnavailable: the server did not answer, or not as the specification has it.
    """

    def __init__(
        self, catalog_name: str, namespace: tuple[str, ...], table: str, properties: Mapping[str, Any]
    ) -> None:
        self._levels, self._table = namespace, table
        self._own = properties
        self._elsewhere: requests.Session | None = None
        self._identifier = (*namespace, table)
        self.name = f"{catalog_name}.{'.'.join(self._identifier)}"
        self._secrets = list(secrets_of(properties))
        self._catalog = self._connect(catalog_name, properties)
        self._secrets += secrets_of(self._catalog.properties)

    @property
    def properties(self) -> Mapping[str, Any]:
        """The catalog's properties, with what the server adds and overrides."""
        return self._catalog.properties

    @property
    def takes_commits(self) -> bool:
        """Whether `updateTable` is among the server's endpoints."""
        return self._advertises(Capability.V1_UPDATE_TABLE)

    def storage_options(self) -> dict[str, str]:
        """The catalog's properties that may be a storage's, none of its own secrets among them."""
        texts = texts_of(self._catalog.properties)
        return {key: text for key, text in texts.items() if not key.startswith(_CATALOGS_OWN)}

    def load(self) -> Loaded:
        """Ask for the table, with every snapshot.

        Raises:
            TableNotFound, AccessDenied, BackendUnavailable. Refused: its metadata is no file.
        """
        what = f"the catalog for {self.name}"
        # By default a server may leave out snapshots without a ref.
        answer = self._get(self._url(), what, params={"snapshots": "all"})
        code = answer.status_code
        if code == requests.codes.not_found:
            raise TableNotFound(f"Cannot find the table {self.name} in its catalog.{self._near()}")
        if code != requests.codes.ok:
            kind = AccessDenied if code in DENIED else BackendUnavailable
            raise kind(f"Cannot ask {what}: it answered {code}: {self.reason(answer)}")
        document = object_of(answer)
        location = text_of(document, "metadata-location")
        if location.startswith(("http://", "https://")):
            raise Refused(
                f"Cannot open {self.name}: its catalog names no metadata file, only {redact(location)}",
                next_step="Open the table by its folder; it is read-only there.",
            )
        config = texts_of(document.get("config"))
        self._secrets += secrets_of(config)
        token = config.pop("token", None)
        signing = _signing_config(document.get("remote-signing-config"))
        metadata = document.get("metadata")
        self._secrets += signing.headers.values()
        return Loaded(
            location=location,
            fields=fields_of(metadata) if isinstance(metadata, Mapping) else None,
            options=config,
            credentials=self._credentials(document),
            token=token,
            signing=signing,
        )

    def credentials(self) -> Mapping[str, Mapping[str, str]]:
        """New credentials for the table's storage: options by the prefix of the paths that they are for.

        Raises:
            As `load`.
        """
        if not self._advertises(_LOAD_CREDENTIALS):
            return self.load().credentials
        what = f"for credentials of {self.name}"
        answer = self._get(f"{self._url()}/credentials", what)
        if answer.status_code != requests.codes.ok:
            kind = AccessDenied if answer.status_code in DENIED else BackendUnavailable
            raise kind(f"Cannot ask {what}: the catalog answered {answer.status_code}: {self.reason(answer)}")
        return self._credentials(object_of(answer))

    @property
    def takes_keys(self) -> bool:
        """Whether a request that gets no answer may be sent again with its key: the server tells the second from new.

        The key must hold for as long as the two may take.
        """
        return self._catalog.key_lifetime_s >= _KEY_HOLDS_S

    def post(self, data: bytes, *, token: str | None, key: str | None) -> requests.Response:
        """Send a commit, once.

        Args:
            data: the request of updates and requirements.
            token: the table's own, for this request alone.
            key: a UUID of version 7 that goes with these bytes and no others, or None.

        Raises:
            NoAnswer.
        """
        headers = {"Idempotency-Key": key} if key else {}
        return self._send(
            "POST", self._url(), data=data, headers=headers, auth=_Bearer(token) if token else None
        )

    def sign(self, data: bytes, loaded: Loaded) -> requests.Response:
        """Ask for the signature of a request to the storage.

        The catalog's own authentication goes to the catalog, and where its configuration says that the signer is. To
        another address that a server names, only the table's token goes.

        Args:
            data: the request, as the specification's `RemoteSignRequest`.
            loaded: says where the signer is.

        Raises:
            NoAnswer. AccessDenied: the signer is at another address without TLS.
        """
        url = self._signer_url(loaded)
        own = (self._catalog.uri, *(str(self._own.get(name, "")) for name in ("uri", *_SIGNER_URIS)))
        auth = _Bearer(loaded.token) if loaded.token else None
        headers = {"Content-Type": "application/json", **loaded.signing.headers}
        if _origin(url) in map(_origin, own):
            return self._send("POST", url, data=data, headers=headers, auth=auth)
        if not url.startswith("https://") and self._catalog.uri.startswith("https://"):
            raise AccessDenied(
                f"the catalog names a signer without TLS, {redact(url)}",
                next_step="Where that is right, set s3.signer.uri in the catalog's configuration.",
            )
        if self._elsewhere is None:
            catalog = self._catalog._session  # noqa: SLF001
            self._elsewhere = requests.Session()
            self._elsewhere.verify, self._elsewhere.cert = catalog.verify, catalog.cert
        return self._send(
            "POST", url, data=data, headers=headers, auth=auth or _NoAuth(), session=self._elsewhere
        )

    def _signer_url(self, loaded: Loaded) -> str:
        """See the specification's `LoadTableResult`; properties of old servers have `s3.` before their names."""
        given = {**texts_of(self._catalog.properties), **loaded.options}
        base = next((given[name] for name in _SIGNER_URIS if name in given), None)
        path = next((given[name] for name in _SIGNER_ENDPOINTS if name in given), None)
        if base is None and path is None and (loaded.signing.is_given or self._advertises(_SIGN)):
            return f"{self._url()}/sign"
        return urljoin(f"{(base or self._catalog.uri).rstrip('/')}/", (path or _OLD_SIGN).strip().lstrip("/"))

    def _advertises(self, endpoint: Endpoint) -> bool:
        return endpoint in self._catalog._supported_endpoints  # noqa: SLF001

    def reason(self, answer: requests.Response) -> str:
        """The message of an error answer; of one that is no JSON the beginning."""
        try:
            message = texts_of(object_of(answer).get("error")).get("message", "")
        except BackendUnavailable:
            message = answer.text[:200]
        secrets = [*self._secrets, *_sent_with(answer.request)]
        return redact(" ".join(message.split()), secrets) or answer.reason or "without a reason"

    def _connect(self, catalog_name: str, properties: Mapping[str, Any]) -> _Catalog:
        try:
            catalog = _Catalog(catalog_name, self._secrets, properties)
        except requests.RequestException as error:
            raise BackendUnavailable(
                f"Cannot reach the catalog {catalog_name}: {self._message_of(error)}"
            ) from None
        except (RESTError, pydantic.ValidationError) as error:
            raise BackendUnavailable(
                f"Cannot use the catalog {catalog_name}: {self._message_of(error)}"
            ) from None
        except (ValueError, KeyError, TypeError, ImportError) as error:
            raise UsageError(f"Cannot open the catalog {catalog_name}: {self._message_of(error)}") from None
        for adapter in catalog._session.adapters.values():  # noqa: SLF001
            if isinstance(adapter, requests.adapters.HTTPAdapter):
                # With SigV4 the client's own would send a commit again.
                adapter.max_retries = Retry(0, read=False)
        return catalog

    def _credentials(self, document: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
        """The storage credentials of an answer, by prefix."""
        given = document.get("storage-credentials")
        found: dict[str, Mapping[str, str]] = {}
        for each in given if isinstance(given, list) else ():
            if not isinstance(each, Mapping):
                continue
            config = texts_of(each.get("config"))
            self._secrets += secrets_of(config)
            found.setdefault(str(each.get("prefix", "")), config)
        return found

    def _get(self, url: str, what: str, *, params: Mapping[str, str] | None = None) -> requests.Response:
        """The answer to a request that may be sent again: once more with a new token where the server refuses ours.

        Args:
            url: of the request.
            what: it asks, for errors.
            params: of the query.
        """
        try:
            answer = self._send("GET", url, params=params)
            if answer.status_code not in (401, 419):
                return answer
            try:
                self._catalog._refresh_token()  # noqa: SLF001 - OAuth2 tokens end
            except Exception as error:  # noqa: BLE001 - an authentication may raise anything
                raise AccessDenied(f"Cannot ask {what}: {self._message_of(error)}") from None
            return self._send("GET", url, params=params)
        except NoAnswer as error:
            raise BackendUnavailable(f"Cannot ask {what}: {error}") from None

    def _send(
        self,
        method: str,
        url: str,
        *,
        data: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: requests.auth.AuthBase | None = None,
        session: requests.Session | None = None,
    ) -> requests.Response:
        """One request; a commit goes to no other address: a redirect is its answer.

        Raises:
            NoAnswer: authenticating it failed, and nothing was sent; or whatever went wrong from then on.
        """
        session = session or self._catalog._session  # noqa: SLF001 - the session that PyIceberg authenticates
        try:
            request = session.prepare_request(
                requests.Request(method, url, data=data, params=params, headers=headers, auth=auth)
            )
            settings = session.merge_environment_settings(url, {}, None, None, None)
        except Exception as error:  # noqa: BLE001 - an authentication may raise anything
            raise NoAnswer(self._message_of(error), sent=False) from None
        try:
            return session.send(request, timeout=_WAITS, allow_redirects=method == "GET", **settings)
        except Exception as error:  # noqa: BLE001 - not all that goes wrong below requests is wrapped there
            raise NoAnswer(self._message_of(error), sent=not _was_not_sent(error)) from None

    def _url(self) -> str:
        path = self._catalog._split_identifier_for_path(self._identifier)  # noqa: SLF001
        return self._catalog.url(Endpoints.load_table, **path)

    def _near(self) -> str:
        """What else there is by this name or nearly so, in words."""
        try:
            path = self._catalog._split_identifier_for_path(self._identifier, IdentifierKind.VIEW)  # noqa: SLF001
            if self._advertises(Capability.V1_LOAD_VIEW):
                view = self._send("GET", self._catalog.url(Endpoints.load_view, **path))
                if view.status_code == requests.codes.ok:
                    return " It is a view."
            names = [identifier[-1] for identifier in self._catalog.list_tables(self._levels)]
        except (NoAnswer, requests.RequestException, RESTError, ValueError, NotImplementedError):
            return ""  # a hint, beside an answer that was clear
        return did_you_mean(self._table, names)

    def _message_of(self, error: Exception) -> str:
        text = redact(" ".join(str(error).split()), self._secrets)
        # The message of a mapping's error is the key alone.
        return f"{type(error).__name__}: {text}" if isinstance(error, KeyError) or not text else text


class _Bearer(requests.auth.AuthBase):
    """A token for one request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _NoAuth(requests.auth.AuthBase):
    """Nothing, in place of what a file of passwords may have for the host."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _signing_config(value: object) -> SigningConfig:
    """The `RemoteSigningConfig` of an answer."""
    config = value if isinstance(value, Mapping) else {}
    headers = config.get("headers")
    return SigningConfig(
        is_given=isinstance(value, Mapping),
        properties=texts_of(config.get("properties")),
        headers={
            str(name): ", ".join(map(str, values))
            for name, values in (headers.items() if isinstance(headers, Mapping) else ())
            if isinstance(values, list)
        },
    )


def _sent_with(request: requests.PreparedRequest) -> Sequence[str]:
    """What a request is authenticated with."""
    header = request.headers.get("Authorization", "")
    text = header.decode(errors="replace") if isinstance(header, bytes) else header
    return text, text.rpartition(" ")[2]


def _was_not_sent(error: Exception) -> bool:
    """Whether no connection was made: nothing can have been sent."""
    cause = getattr(error.args[0] if error.args else None, "reason", None)
    return isinstance(error, requests.ConnectTimeout) or isinstance(cause, NewConnectionError)


def _key_lifetime_s(answer: requests.Response) -> float:
    """For how long the server knows a request again by its key, in seconds; 0 where it does not say so."""
    try:
        lifetime = texts_of(object_of(answer)).get("idempotency-key-lifetime", "")
        return pydantic.TypeAdapter(timedelta).validate_python(lifetime).total_seconds()
    except (BackendUnavailable, pydantic.ValidationError):
        return 0.0


def wait_of(answer: requests.Response) -> float | None:
    """After how many seconds a server that is busy wants to be asked again; None where it does not say so.

    Spec: RFC 9110, section 10.2.3.
    """
    value = answer.headers.get("Retry-After")
    try:
        return None if value is None else max(Retry().parse_retry_after(value), 0.0)
    except InvalidHeader:
        return None


def object_of(answer: requests.Response) -> Mapping[str, Any]:
    """The JSON object of an answer.

    Raises:
        BackendUnavailable: it has none.
    """
    try:
        content = json.loads(answer.content)
    except ValueError as error:
        raise BackendUnavailable(f"Cannot use the catalog's answer: it is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise BackendUnavailable("Cannot use the catalog's answer: it is no JSON object")
    return content


def text_of(document: Mapping[str, Any], name: str) -> str:
    """A text of an answer that must be there.

    Raises:
        BackendUnavailable: it is not.
    """
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise BackendUnavailable(f"Cannot use the catalog's answer: it has no {name}")
    return value


def texts_of(value: object) -> dict[str, str]:
    """The texts of a JSON object; of anything else none."""
    items = value.items() if isinstance(value, Mapping) else ()
    return {str(key): text for key, text in items if isinstance(text, str)}


@dataclass(kw_only=True)
class ConnectedTable:
    """A table of a REST catalog, in this process or in workers to which it is sent: each has a connection of its own.

    What is sent has the catalog's configuration in it, secrets included.

    Args:
        catalog_name: see `RestClient`.
        namespace: see `RestClient`.
        table: see `RestClient`.
        properties: see `RestClient`.
        client: of this process, where it has one.
    """

    catalog_name: str
    namespace: tuple[str, ...]
    table: str
    properties: Mapping[str, Any] = field(repr=False)
    client: RestClient | None = field(default=None, repr=False)

    def connected(self) -> RestClient:
        """The connection of this process.

        Raises:
            UsageError, AccessDenied, BackendUnavailable.
        """
        if self.client is None:
            self.client = RestClient(self.catalog_name, self.namespace, self.table, self.properties)
        return self.client

    def __getstate__(self) -> dict[str, Any]:
        """The state without the connection."""
        return {**self.__dict__, "client": None}
