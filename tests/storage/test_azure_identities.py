"""Storages on Azure whose requests bear a token: of a managed identity, of a service principal, or one that is given.

Azurite holds the times, the issuer and the audience of a token to what they must be, and not its signature. What gives
tokens is a server of this module that answers as App Service and AD FS do: the services themselves are not run.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from iceberg_cli.errors import AccessDenied
from iceberg_cli.storage.router import open_storage
from tests.emulators import ACCOUNT, Azurite, running_azurite
from tests.s3_front import Certificate, PassingOn, Request, Response, serving

HEADER = "the-header-of-app-service"
SECRET = "the-secret-of-the-principal"


def now_s() -> int:
    return int(time.time())  # noqa: TID251 - tokens end by the clock


def token(*, audience: str = "https://storage.azure.com/", ends_s: float = 3600) -> str:
    """A token of Entra's form: header, claims and signature."""
    claims = {
        "iss": "https://sts.windows.net/11111111-2222-3333-4444-555555555555/",
        "aud": audience,
        "iat": now_s() - 60,
        "nbf": now_s() - 60,
        "exp": now_s() + int(ends_s),
    }
    parts = [json.dumps(each).encode() for each in ({"alg": "RS256", "typ": "JWT"}, claims)]
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in (*parts, b"signature"))


@dataclass
class Tokens:
    """A service that gives tokens.

    Args:
        endpoint: its URL.
        given: to whom, for each token.
        refused: the same, of those who got none.
    """

    endpoint: str = ""
    given: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class _Giving(PassingOn):
    tokens: ClassVar[Tokens]

    def response(self, request: Request) -> Response:
        place = urlsplit(request.path)
        asked = {name: text for name, (text, *_) in parse_qs(place.query or request.body.decode()).items()}
        match request.method, place.path:
            case "GET", "/msi/token":
                is_known = request.headers.get("X-IDENTITY-HEADER") == HEADER
                return self._give("a managed identity", asked.get("resource", ""), is_known=is_known)
            case "GET", "/adfs/.well-known/openid-configuration":
                root = f"{self.tokens.endpoint}/adfs"
                return _json(200, {name: f"{root}/{name}" for name in _OF_AUTHORITY})
            case "POST", "/adfs/token_endpoint":
                is_known = (asked.get("client_id"), asked.get("client_secret")) == ("client", SECRET)
                return self._give("a principal", asked.get("scope", ""), is_known=is_known)
            case _:
                return _json(404, {})

    def _give(self, to: str, what: str, *, is_known: bool) -> Response:
        if not is_known or "https://storage.azure.com" not in what:
            self.tokens.refused.append(to)
            return _json(401, {"error": "invalid_client", "error_description": f"{to} is not known"})
        self.tokens.given.append(to)
        ends_s = 3600
        found = {"access_token": token(ends_s=ends_s), "token_type": "Bearer", "expires_in": ends_s}
        return _json(200, {**found, "expires_on": str(now_s() + ends_s), "resource": what})


_OF_AUTHORITY = ("issuer", "authorization_endpoint", "token_endpoint", "device_authorization_endpoint")


def _json(status: int, document: Mapping[str, object]) -> Response:
    return Response(status, [("Content-Type", "application/json")], json.dumps(document).encode())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certificate]:
    """A certificate of this machine that clients trust: no token is sent without TLS."""
    folder = tmp_path_factory.mktemp("certificate")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    found = Certificate(folder / "certificate.pem", folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(str(found.file))
    issued.private_key_pem.write_to_path(str(found.key))
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REQUESTS_CA_BUNDLE", str(folder / "authority.pem"))
        yield found


@pytest.fixture(scope="module")
def azurite_with_tokens(certificate: Certificate) -> Iterator[Azurite]:
    """Azurite with TLS, which takes tokens."""
    with running_azurite(certificate) as found:
        yield found


@pytest.fixture
def tokens(certificate: Certificate) -> Iterator[Tokens]:
    """A service that gives tokens, with TLS."""
    found = Tokens()
    with serving(_Giving, certificate=certificate, tokens=found) as found.endpoint:
        yield found


def options(azurite: Azurite, **more: str) -> dict[str, str]:
    """Options that name the account's URL and no key; `adls.` is before the names of `more`."""
    own = {f"adls.{name.replace('_', '-')}": text for name, text in more.items()}
    return {f"adls.connection-string.{ACCOUNT}": f"{azurite.endpoint}/{ACCOUNT}", **own}


def check_all_requests(azurite: Azurite, given: Mapping[str, str]) -> None:
    """Write, look, read, list and delete."""
    storage, folder = open_storage(given), azurite.new_folder()
    paths = [f"{folder}/a", f"{folder}/b"]
    for path in paths:
        storage.put_if_absent(path, b"bytes")
    with pytest.raises(FileExistsError):
        storage.put_if_absent(paths[0], b"others")
    assert storage.read(paths[1]) == b"bytes"
    assert list(storage.paths(folder)) == paths
    assert storage.delete(paths) == {}
    assert list(storage.paths(folder)) == []


def test_a_managed_identity_is_used_where_nothing_else_is_named(
    azurite_with_tokens: Azurite, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{tokens.endpoint}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", HEADER)
    check_all_requests(azurite_with_tokens, options(azurite_with_tokens))
    assert tokens.given == ["a managed identity"]


def test_a_service_principal_signs_in_once(
    azurite_with_tokens: Azurite, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenant is `adfs`: of all others Microsoft's client asks a public service first who signs them in."""
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", tokens.endpoint)
    principal = {"tenant_id": "adfs", "client_id": "client", "client_secret": SECRET}
    check_all_requests(azurite_with_tokens, options(azurite_with_tokens, **principal))
    assert tokens.given == ["a principal"]


def test_a_principal_that_is_refused_is_access_denied_at_once_and_its_secret_is_not_told(
    azurite_with_tokens: Azurite, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", tokens.endpoint)
    principal = {"tenant_id": "adfs", "client_id": "client", "client_secret": "another-secret"}
    storage = open_storage(options(azurite_with_tokens, **principal))
    with pytest.raises(AccessDenied, match="a principal is not known") as denied:
        storage.read(f"{azurite_with_tokens.new_folder()}/a")
    assert "another-secret" not in denied.value.message
    assert tokens.refused == ["a principal"]


def test_a_token_that_is_given_is_used(azurite_with_tokens: Azurite) -> None:
    check_all_requests(azurite_with_tokens, options(azurite_with_tokens, token=token()))


@pytest.mark.parametrize("claims", [{"ends_s": -30}, {"audience": "https://vault.azure.net"}])
def test_a_token_that_is_refused_is_access_denied_and_not_told(
    azurite_with_tokens: Azurite, claims: dict[str, Any]
) -> None:
    refused = token(**claims)
    storage = open_storage(options(azurite_with_tokens, token=refused))
    with pytest.raises(AccessDenied, match=r"AuthenticationFailed|InvalidAuthenticationInfo") as denied:
        storage.read(f"{azurite_with_tokens.new_folder()}/a")
    assert refused not in denied.value.message
