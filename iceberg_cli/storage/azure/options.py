"""The options of storages on Azure, by the names that Iceberg, PyIceberg and REST catalogs give them.

Options whose names end in `.<account>` or `.<host>` are for that account alone, and come before the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from iceberg_cli.errors import UsageError
from iceberg_cli.storage.declarations import StorageOptions
from iceberg_cli.storage.redaction import secrets_of

_SAS: Final = "adls.sas-token"
_SAS_ENDS: Final = "adls.sas-token-expires-at-ms"
_CONNECTION: Final = "adls.connection-string"
_KEYS: Final = ("adls.account-key", "adls.auth.shared-key.account.key")
_NAMES: Final = ("adls.account-name", "adls.auth.shared-key.account.name")
_PRINCIPAL: Final = ("adls.tenant-id", "adls.client-id", "adls.client-secret")
_TOKEN: Final = "adls.token"  # noqa: S105 - the option's name
_CREDENTIAL: Final = "adls.credential"  # a key, or a way to find a credential
_DEFAULT_CREDENTIAL: Final = ("default", "DefaultAzureCredential")
_ANONYMOUS: Final = "adls.anon"
_HOST: Final = "adls.account-host"
_AUTHORITIES: Final = ("adls.blob-storage-authority", "adls.dfs-storage-authority")
_SCHEMES: Final = ("adls.blob-storage-scheme", "adls.dfs-storage-scheme")
_CREDENTIALS: Final = (
    _SAS,
    _SAS_ENDS,
    _CONNECTION,
    *_KEYS,
    *_PRINCIPAL,
    _TOKEN,
    _ANONYMOUS,
    _CREDENTIAL,
)
_DEFAULT_SUFFIX: Final = ".blob.core.windows.net"
# The first label of the host, the others, and the first folder.
_ENDPOINT: Final = re.compile(r"(?:https?://)?([^/:?#.]+)([^/:?#]*)[^/?#]*/*([^/?#]*)", re.IGNORECASE)
# Variables of Azure's own tools, where no option has a credential.
_VARIABLES: Final = {
    "AZURE_STORAGE_CONNECTION_STRING": _CONNECTION,
    "AZURE_STORAGE_ACCOUNT_KEY": _KEYS[0],
    "AZURE_STORAGE_ACCOUNT_NAME": _NAMES[0],
    "AZURE_STORAGE_SAS_TOKEN": _SAS,
}
_DEVELOPMENT: Final = ("devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureAccount:
    """How one storage account is reached.

    Args:
        name: of the account.
        url: of its blob service, without a container.
        key: its own key, or None.
        sas: the query string of a shared access signature, or None.
        principal: tenant, client and secret of a service principal, or None.
        token: for requests, or None.
        is_anonymous: whether requests have no credentials.
    """

    name: str
    url: str
    key: str | None = None
    sas: str | None = None
    principal: tuple[str, str, str] | None = None
    token: str | None = None
    is_anonymous: bool = False


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """The options of a storage, those of other services among them."""

    options: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> AzureOptions:
        """The options, completed from the environment where they have no credential."""
        if any(is_credential(name) for name in options):
            return cls(options)
        found = {option: environment[name] for name, option in _VARIABLES.items() if environment.get(name)}
        return cls({**found, **options})

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may show."""
        values = [text for name, text in self.options.items() if _is_secret(name)]
        found = [*secrets_of(self.options), *values]
        for fields in [_fields(text) for text in values]:
            values += [fields[name] for name in ("ACCOUNTKEY", "SHAREDACCESSSIGNATURE") if name in fields]
        for text in values:
            signature = re.search(r"\bsig=([^&\s]+)", text)
            found += [text, *((signature[1], unquote(signature[1])) if signature else ())]
        return tuple(dict.fromkeys(found))

    def account(self, host: str) -> AzureAccount:
        """The account whose host a path names.

        Args:
            host: `account.dfs.core.windows.net` or the like; empty where the path names a container alone.

        Raises:
            UsageError: it names none, and neither do the options; or a value is none that the option has.
        """
        name = host.partition(".")[0] or self._default_name()
        own = self._own(name, host)
        known = {**self.options, **own}
        fields = _connection_for(name, known.get(_CONNECTION), is_own=_CONNECTION in own)
        # One for this account alone comes before all others, whatever its kind.
        found = _credentials(name, own, fields if _CONNECTION in own else {})
        if not found and own.get(_CREDENTIAL) not in _DEFAULT_CREDENTIAL:
            found = _credentials(name, known, fields)
        if not found and known.get(_CREDENTIAL) not in _DEFAULT_CREDENTIAL:
            self._check_that_none_is_given(name)
        return AzureAccount(name=name, url=_url(name, host, known, fields).rstrip("/"), **found)

    def _default_name(self) -> str:
        name = (
            _name(self.options)
            or _account_of(_fields_or_url(self.options.get(_CONNECTION, "")))
            or self.options.get(_HOST, "")
        )
        if not name:
            raise UsageError(
                "Cannot use a path on Azure that names no account, such as abfss://container/key.",
                next_step="Write abfss://container@account.dfs.core.windows.net/key, or name the account by the storage"
                " option adls.account-name.",
            )
        return name.partition(".")[0]

    def _own(self, name: str, host: str) -> dict[str, str]:
        """The options for one account alone, by its host on either endpoint or else its name, without that."""
        full = host if "." in host else f"{name}{_DEFAULT_SUFFIX.replace('.blob.', '.dfs.')}"
        found: dict[str, str] = {}
        for each in (name, full.replace(".dfs.", ".blob.", 1), full):
            behind = f".{each}"
            found |= {
                option.removesuffix(behind): text
                for option, text in self.options.items()
                if option.endswith(behind)
            }
        return found

    def _check_that_none_is_given(self, name: str) -> None:
        """Refuse where there are credentials and none is for the account: others, with wider rights, were not meant."""
        given = sorted(option for option, text in self.options.items() if _holds_credential(option, text))
        if given:
            raise UsageError(
                f"Cannot use the account {name} on Azure: no credential is for it among the storage options"
                f" {', '.join(given)}.",
                next_step=f"Name one for it, as by adls.sas-token.{name} (a service principal takes adls.tenant-id,"
                " adls.client-id and adls.client-secret), or write adls.credential=default for what"
                " DefaultAzureCredential finds. Options may come from variables, such as"
                " AZURE_STORAGE_CONNECTION_STRING.",
            )


def _connection_for(name: str, text: str | None, *, is_own: bool) -> Mapping[str, str]:
    """The fields of a connection string for an account; none where that is for another one.

    Args:
        name: of the account.
        text: the string, or None.
        is_own: whether its option names the account; what its endpoint is called counts only without that.

    Raises:
        UsageError: it is none.
    """
    if text is None:
        return {}
    fields = _fields_or_url(text)
    if not fields:
        raise UsageError(f"Cannot use the storage option {_CONNECTION}: it is no list of NAME=VALUE;.")
    account = fields.get("ACCOUNTNAME", "") if is_own else _account_of(fields)
    return fields if account in ("", name) else {}


def _account_of(fields: Mapping[str, str]) -> str:
    """The account that a connection string is for; empty where it does not tell."""
    match = _ENDPOINT.match(fields.get("BLOBENDPOINT", ""))
    if fields.get("ACCOUNTNAME") or not match:
        return fields.get("ACCOUNTNAME", "")
    label, others, folder = (each.lower() for each in match.groups())
    # The service's own hosts begin with the account; behind others, such as an emulator's address, it is a folder.
    return folder if folder and not re.search(r"\.(?:blob|dfs)\.", others) else label


def _credentials(name: str, known: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, Any]:
    """The credentials for an account, by the names that `AzureAccount` gives them.

    Args:
        name: of the account.
        known: the options to look in.
        fields: of its connection string.
    """
    anonymous = known.get(_ANONYMOUS, "false").lower()
    if anonymous not in ("true", "false"):
        raise UsageError(
            f"Cannot use the storage option {_ANONYMOUS}={known[_ANONYMOUS]}: it is true or false."
        )
    sas = known.get(_SAS) or fields.get("SHAREDACCESSSIGNATURE", "")
    principal = tuple(known.get(each, "") for each in _PRINCIPAL)
    found = {
        "is_anonymous": anonymous == "true",
        "sas": sas.removeprefix("?"),
        "key": "" if sas else fields.get("ACCOUNTKEY") or _key(name, known),
        "principal": principal if all(principal) else (),
        "token": known.get(_TOKEN, ""),
    }
    return {each: value for each, value in found.items() if value}


def _key(name: str, known: Mapping[str, str]) -> str:
    """The key of an account; empty where the options' key is another one's."""
    if _name(known) not in ("", name):
        return ""
    credential = known.get(_CREDENTIAL, "")
    found = next((known[each] for each in _KEYS if known.get(each)), "")
    return found or ("" if credential in _DEFAULT_CREDENTIAL else credential)


def _name(known: Mapping[str, str]) -> str:
    return next((known[each] for each in _NAMES if known.get(each)), "")


def _url(name: str, host: str, known: Mapping[str, str], fields: Mapping[str, str]) -> str:
    """The URL of an account's blob service."""
    if endpoint := fields.get("BLOBENDPOINT"):
        return endpoint
    scheme = next((known[each] for each in _SCHEMES if known.get(each)), "https")
    if scheme not in ("https", "http"):
        raise UsageError(f"Cannot use the storage option {_SCHEMES[0]}={scheme}: it is one of https, http.")
    scheme = fields.get("DEFAULTENDPOINTSPROTOCOL", scheme)
    if suffix := fields.get("ENDPOINTSUFFIX"):
        return f"{scheme}://{name}.blob.{suffix}"
    own = known.get(_HOST, "")
    if own.partition(".")[0] == name:
        return f"{scheme}://{own.replace('.dfs.', '.blob.', 1)}"
    authority = next((known[each] for each in _AUTHORITIES if known.get(each)), "")
    if authority:
        suffixed = authority.replace(".dfs.", ".blob.", 1)
        return f"{scheme}://{name}{suffixed}" if authority[0] == "." else f"{scheme}://{authority}/{name}"
    return f"{scheme}://{host.replace('.dfs.', '.blob.', 1) if '.' in host else name + _DEFAULT_SUFFIX}"


class AzureStorageOptions(StorageOptions):
    """See `StorageOptions`."""

    def from_environment(self, options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
        """See `StorageOptions`."""
        return dict(AzureOptions.of(options, environment).options)

    def replaced_by(self, options: Collection[str], over: Collection[str]) -> Collection[str]:
        """See `StorageOptions`."""
        return {name for name in options if is_credential(name)} if any(map(is_credential, over)) else ()

    def unwritable_reason(
        self,
        options: Mapping[str, str],  # noqa: ARG002 - the port's signature
        *,
        takes_soft_deletions: Callable[[], bool],  # noqa: ARG002
    ) -> str | None:
        """None: no option forbids it."""
        return None


OPTIONS: Final = AzureStorageOptions()


def ends_ms(options: Mapping[str, str]) -> str:
    """When the first of the signatures ends, in milliseconds since 1970; empty where that is not known."""
    ends = [text for name, text in options.items() if name == _SAS_ENDS or name.startswith(f"{_SAS_ENDS}.")]
    known = [text for text in ends if text.isdecimal()]
    return min(known, key=int, default="")


def is_credential(name: str) -> bool:
    """Whether an option is, or belongs to, a credential of Azure."""
    return any(name == each or name.startswith(f"{each}.") for each in _CREDENTIALS)


def _is_secret(name: str) -> bool:
    named = (_SAS, _CONNECTION, *_KEYS, _PRINCIPAL[2], _TOKEN, _CREDENTIAL)
    return any(name == each or name.startswith(f"{each}.") for each in named)


def _holds_credential(option: str, text: str) -> bool:
    """Whether an option's value is a credential: a connection string may name an endpoint alone."""
    if option == _CONNECTION or option.startswith(f"{_CONNECTION}."):
        return bool({"ACCOUNTKEY", "SHAREDACCESSSIGNATURE"} & _fields(text).keys())
    return _is_secret(option) and bool(text)


def _fields_or_url(text: str) -> dict[str, str]:
    """The fields of a connection string, which may be a URL alone, as Java's client reads it."""
    return {"BLOBENDPOINT": text} if text.startswith(("https://", "http://")) else _fields(text)


def _fields(text: str) -> dict[str, str]:
    """The fields of a connection string, by their names in upper case."""
    pairs = [each.split("=", 1) for each in text.strip().strip(";").split(";")]
    fields = {pair[0].strip().upper(): pair[1] for pair in pairs if len(pair) == 2}
    if fields.get("USEDEVELOPMENTSTORAGE", "").lower() == "true":
        name, url = _DEVELOPMENT
        return {"ACCOUNTNAME": name, "BLOBENDPOINT": url, **fields}
    return fields
