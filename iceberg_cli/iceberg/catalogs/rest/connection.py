"""Requests to a REST catalog: each is sent once, and each answer is checked before it is used.

PyIceberg finds the server's configuration and authenticates. Nothing here, in the client or below it sends a commit
again; what a server or an authentication says wrong is one error and no traceback, with no secret in it.

Spec: Iceberg REST catalog specification, `getConfig`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import pydantic
import requests
from pyiceberg.catalog.rest import Endpoint, Endpoints, RestCatalog
from pyiceberg.exceptions import RESTError
from urllib3.exceptions import InvalidHeader, NewConnectionError
from urllib3.util import Retry

from iceberg_cli.errors import AccessDenied, BackendUnavailable, UsageError, how_to_install
from iceberg_cli.storage.redaction import redact, secrets_of

_CONNECT_S: Final = 30
_ANSWER_S: Final = 300  # a server writes the metadata of a large table meanwhile
LONGEST_REQUEST_S: Final = _CONNECT_S + _ANSWER_S
_WAITS: Final = (_CONNECT_S, _ANSWER_S)
DENIED: Final = frozenset({401, 403, 407, 419})


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


class RestConnection:
    """A connection to a REST catalog, for one table or for several of one thread.

    Args:
        catalog_name: as it is configured.
        properties: the catalog's, as PyIceberg names them.

    Attributes:
        catalog: PyIceberg's client.
        secrets: what no message may show.

    Raises:
        UsageError: the configuration is incomplete or contradicts itself.
        AccessDenied: the server does not take the credentials.
        BackendUnavailable: the server did not answer, or not as the specification has it.
    """

    def __init__(self, catalog_name: str, properties: Mapping[str, Any]) -> None:
        self.secrets = list(secrets_of(properties))
        self.catalog = self._connect(catalog_name, properties)
        self.secrets += secrets_of(self.catalog.properties)

    def advertises(self, endpoint: Endpoint) -> bool:
        """Whether the server says that it has an endpoint."""
        return endpoint in self.catalog._supported_endpoints  # noqa: SLF001

    def reason(self, answer: requests.Response) -> str:
        """The message of an error answer; of one that is no JSON the beginning."""
        try:
            message = texts_of(object_of(answer).get("error")).get("message", "")
        except BackendUnavailable:
            message = answer.text[:200]
        secrets = [*self.secrets, *_sent_with(answer.request)]
        return redact(" ".join(message.split()), secrets) or answer.reason or "without a reason"

    def get(self, url: str, what: str, *, params: Mapping[str, str] | None = None) -> requests.Response:
        """The answer to a request that may be sent again: once more with a new token where the server refuses ours.

        Args:
            url: of the request.
            what: it asks, for errors.
            params: of the query.
        """
        try:
            answer = self.send("GET", url, params=params)
            if answer.status_code not in (401, 419):
                return answer
            try:
                self.catalog._refresh_token()  # noqa: SLF001 - OAuth2 tokens end
            except Exception as error:  # noqa: BLE001 - an authentication may raise anything
                raise AccessDenied(f"Cannot ask {what}: {self.message_of(error)}") from None
            return self.send("GET", url, params=params)
        except NoAnswer as error:
            raise BackendUnavailable(f"Cannot ask {what}: {error}") from None

    def send(
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
        session = session or self.catalog._session  # noqa: SLF001 - the session that PyIceberg authenticates
        try:
            request = session.prepare_request(
                requests.Request(method, url, data=data, params=params, headers=headers, auth=auth)
            )
            settings = session.merge_environment_settings(url, {}, None, None, None)
        except Exception as error:  # noqa: BLE001 - an authentication may raise anything
            raise NoAnswer(self.message_of(error), sent=False) from None
        try:
            return session.send(request, timeout=_WAITS, allow_redirects=method == "GET", **settings)
        except Exception as error:  # noqa: BLE001 - not all that goes wrong below requests is wrapped there
            raise NoAnswer(self.message_of(error), sent=not _was_not_sent(error)) from None

    def _connect(self, catalog_name: str, properties: Mapping[str, Any]) -> _Catalog:
        try:
            catalog = _Catalog(catalog_name, self.secrets, properties)
        except requests.RequestException as error:
            raise BackendUnavailable(
                f"Cannot reach the catalog {catalog_name}: {self.message_of(error)}"
            ) from None
        except (RESTError, pydantic.ValidationError) as error:
            raise BackendUnavailable(
                f"Cannot use the catalog {catalog_name}: {self.message_of(error)}"
            ) from None
        except ImportError as error:  # of what requests are authenticated with
            missing = error if error.name or not isinstance(error.__cause__, ImportError) else error.__cause__
            raise UsageError(
                f"Cannot open the catalog {catalog_name}: {self.message_of(error)}",
                next_step=how_to_install(missing) if missing.name else "",
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"Cannot open the catalog {catalog_name}: {self.message_of(error)}") from None
        for adapter in catalog._session.adapters.values():  # noqa: SLF001
            if isinstance(adapter, requests.adapters.HTTPAdapter):
                # With SigV4 the client's own would send a commit again.
                adapter.max_retries = Retry(0, read=False)
        return catalog

    def message_of(self, error: Exception) -> str:
        """What an error says, in one line and with no secret in it."""
        text = redact(" ".join(_words_of(error).split()), self.secrets)
        # The message of a mapping's error is the key alone.
        return f"{type(error).__name__}: {text}" if isinstance(error, KeyError) or not text else text


def _cause_of(error: Exception) -> object:
    """The error of urllib3 for which requests gave up; None: another kind of error."""
    return getattr(error.args[0] if error.args else None, "reason", None)


def _words_of(error: Exception) -> str:
    """What an error says: of a connection that was not made the address and the system's words alone."""
    cause = _cause_of(error)
    below = getattr(cause, "__cause__", None)
    if isinstance(cause, NewConnectionError) and isinstance(below, OSError) and below.strerror:
        request = getattr(error, "request", None)
        return f"{below.strerror}{'' if request is None else f' ({request.url})'}"
    return str(error)


def _sent_with(request: requests.PreparedRequest) -> Sequence[str]:
    """What a request is authenticated with."""
    header = request.headers.get("Authorization", "")
    text = header.decode(errors="replace") if isinstance(header, bytes) else header
    return text, text.rpartition(" ")[2]


def _was_not_sent(error: Exception) -> bool:
    """Whether no connection was made: nothing can have been sent."""
    return isinstance(error, requests.ConnectTimeout) or isinstance(_cause_of(error), NewConnectionError)


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
