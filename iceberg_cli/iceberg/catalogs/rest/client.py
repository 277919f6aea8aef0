"""Requests to a REST catalog about one table; see `connection.py` for how they are sent.

Spec: Iceberg REST catalog specification, `loadTable`, `updateTable`, `loadCredentials`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from pyiceberg.catalog.rest import Capability, Endpoint, Endpoints, HttpMethod, IdentifierKind
from pyiceberg.exceptions import NoSuchNamespaceError, RESTError

from iceberg_cli.errors import AccessDenied, BackendUnavailable, Refused, TableNotFound
from iceberg_cli.iceberg.catalogs.rest.connection import (
    DENIED,
    LONGEST_REQUEST_S,
    NoAnswer,
    RestConnection,
    object_of,
    text_of,
    texts_of,
)
from iceberg_cli.iceberg.catalogs.rest.lost_fields import fields_of
from iceberg_cli.names import name_of
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.storage.redaction import redact, secrets_of

_LOAD_CREDENTIALS: Final = Endpoint(
    http_method=HttpMethod.GET, path="/v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
)
_SIGN: Final = Endpoint(
    http_method=HttpMethod.POST, path="/v1/{prefix}/namespaces/{namespace}/tables/{table}/sign"
)
_SIGNER_URIS: Final = ("signer.uri", "s3.signer.uri")
_SIGNER_ENDPOINTS: Final = ("signer.endpoint", "s3.signer.endpoint")
_OLD_SIGN: Final = "v1/aws/s3/sign"  # of servers that name no endpoint of the table's own
_KEY_HOLDS_S: Final = 2 * LONGEST_REQUEST_S + 60
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


class RestClient:
    """The requests about one table.

    Args:
        catalog_name: as it is configured.
        namespace: its levels, from the outermost.
        table: its name.
        properties: the catalog's, as PyIceberg names them.
        connection: to the catalog; None: one of its own.

    Raises:
        As `RestConnection`.
    """

    def __init__(
        self,
        catalog_name: str,
        namespace: tuple[str, ...],
        table: str,
        properties: Mapping[str, Any],
        connection: RestConnection | None = None,
    ) -> None:
        self._levels, self._table = namespace, table
        self._own = properties
        self._elsewhere: requests.Session | None = None
        self._identifier = (*namespace, table)
        self.name = name_of(catalog_name, *self._identifier)
        self._connection = connection or RestConnection(catalog_name, properties)

    @property
    def properties(self) -> Mapping[str, Any]:
        """The catalog's properties, with what the server adds and overrides."""
        return self._connection.catalog.properties

    @property
    def takes_commits(self) -> bool:
        """Whether `updateTable` is among the server's endpoints."""
        return self._connection.advertises(Capability.V1_UPDATE_TABLE)

    def storage_options(self) -> dict[str, str]:
        """The catalog's properties that may be a storage's, none of its own secrets among them."""
        texts = texts_of(self._connection.catalog.properties)
        return {key: text for key, text in texts.items() if not key.startswith(_CATALOGS_OWN)}

    def load(self) -> Loaded:
        """Ask for the table, with every snapshot.

        Raises:
            TableNotFound, AccessDenied, BackendUnavailable. Refused: its metadata is no file.
        """
        what = f"the catalog for {self.name}"
        # By default a server may leave out snapshots without a ref.
        answer = self._connection.get(self._url(), what, params={"snapshots": "all"})
        code = answer.status_code
        if code == requests.codes.not_found:
            raise TableNotFound(f"Cannot find the table {self.name} in its catalog.{self._near()}")
        if code != requests.codes.ok:
            kind = AccessDenied if code in DENIED else BackendUnavailable
            raise kind(f"Cannot ask {what}: it answered {code}: {self._connection.reason(answer)}")
        document = object_of(answer)
        location = text_of(document, "metadata-location")
        if location.startswith(("http://", "https://")):
            raise Refused(
                f"Cannot open {self.name}: its catalog names no metadata file, only {redact(location)}",
                next_step="Open the table by its folder; it is read-only there.",
            )
        config = texts_of(document.get("config"))
        self._connection.secrets += secrets_of(config)
        token = config.pop("token", None)
        signing = _signing_config(document.get("remote-signing-config"))
        metadata = document.get("metadata")
        self._connection.secrets += signing.headers.values()
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
        if not self._connection.advertises(_LOAD_CREDENTIALS):
            return self.load().credentials
        what = f"for credentials of {self.name}"
        answer = self._connection.get(f"{self._url()}/credentials", what)
        if answer.status_code != requests.codes.ok:
            kind = AccessDenied if answer.status_code in DENIED else BackendUnavailable
            raise kind(
                f"Cannot ask {what}: the catalog answered {answer.status_code}: {self._connection.reason(answer)}"
            )
        return self._credentials(object_of(answer))

    def reason(self, answer: requests.Response) -> str:
        """See `RestConnection.reason`."""
        return self._connection.reason(answer)

    @property
    def takes_keys(self) -> bool:
        """Whether a request that gets no answer may be sent again with its key: the server tells the second from new.

        The key must hold for as long as the two may take.
        """
        return self._connection.catalog.key_lifetime_s >= _KEY_HOLDS_S

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
        return self._connection.send(
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
        own = (
            self._connection.catalog.uri,
            *(str(self._own.get(name, "")) for name in ("uri", *_SIGNER_URIS)),
        )
        auth = _Bearer(loaded.token) if loaded.token else None
        headers = {"Content-Type": "application/json", **loaded.signing.headers}
        if _origin(url) in map(_origin, own):
            return self._connection.send("POST", url, data=data, headers=headers, auth=auth)
        if not url.startswith("https://") and self._connection.catalog.uri.startswith("https://"):
            raise AccessDenied(
                f"the catalog names a signer without TLS, {redact(url)}",
                next_step="Where that is right, set s3.signer.uri in the catalog's configuration.",
            )
        if self._elsewhere is None:
            catalog = self._connection.catalog._session  # noqa: SLF001
            self._elsewhere = requests.Session()
            self._elsewhere.verify, self._elsewhere.cert = catalog.verify, catalog.cert
        return self._connection.send(
            "POST", url, data=data, headers=headers, auth=auth or _NoAuth(), session=self._elsewhere
        )

    def _signer_url(self, loaded: Loaded) -> str:
        """See the specification's `LoadTableResult`; properties of old servers have `s3.` before their names."""
        given = {**texts_of(self._connection.catalog.properties), **loaded.options}
        base = next((given[name] for name in _SIGNER_URIS if name in given), None)
        path = next((given[name] for name in _SIGNER_ENDPOINTS if name in given), None)
        if base is None and path is None and (loaded.signing.is_given or self._connection.advertises(_SIGN)):
            return f"{self._url()}/sign"
        return urljoin(
            f"{(base or self._connection.catalog.uri).rstrip('/')}/", (path or _OLD_SIGN).strip().lstrip("/")
        )

    def _credentials(self, document: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
        """The storage credentials of an answer, by prefix."""
        given = document.get("storage-credentials")
        found: dict[str, Mapping[str, str]] = {}
        for each in given if isinstance(given, list) else ():
            if not isinstance(each, Mapping):
                continue
            config = texts_of(each.get("config"))
            self._connection.secrets += secrets_of(config)
            found.setdefault(str(each.get("prefix", "")), config)
        return found

    def _url(self) -> str:
        path = self._connection.catalog._split_identifier_for_path(self._identifier)  # noqa: SLF001
        return self._connection.catalog.url(Endpoints.load_table, **path)

    def _near(self) -> str:
        """What else there is by this name or nearly so, in words."""
        try:
            path = self._connection.catalog._split_identifier_for_path(self._identifier, IdentifierKind.VIEW)  # noqa: SLF001
            if self._connection.advertises(Capability.V1_LOAD_VIEW):
                view = self._connection.send("GET", self._connection.catalog.url(Endpoints.load_view, **path))
                if view.status_code == requests.codes.ok:
                    return " It is a view."
            names = [identifier[-1] for identifier in self._connection.catalog.list_tables(self._levels)]
        except (
            NoAnswer, requests.RequestException, RESTError, NoSuchNamespaceError, ValueError, NotImplementedError,
        ):  # fmt: skip
            return ""  # a hint, beside an answer that was clear
        return did_you_mean(self._table, names)


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
