"""The options of storages on Azure, by the names that Iceberg, PyIceberg and REST catalogs give them.

Options whose names end in `.<account>` or `.<host>` are for that account alone, and come before the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from iceberg_cli.errors import UsageError
from iceberg_cli.storage.redaction import secrets_of

_SAS: Final = "adls.sas-token"
_SAS_ENDS: Final = "adls.sas-token-expires-at-ms"
_CONNECTION: Final = "adls.connection-string"
_KEYS: Final = ("adls.account-key", "adls.auth.shared-key.account.key")
_NAMES: Final = ("adls.account-name", "adls.auth.shared-key.account.name")
_PRINCIPAL: Final = ("adls.tenant-id", "adls.client-id", "adls.client-secret")
_TOKEN: Final = "adls.token"  # noqa: S105 - the option's name
_ANONYMOUS: Final = "adls.anon"
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
    "adls.credential",
)
_DEFAULT_SUFFIX: Final = ".blob.core.windows.net"
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
        fields = self._connection_fields(name, host)
        url = fields.get("BLOBENDPOINT") or self._url(name, host, fields)
        sas = self._of_account(_SAS, name, host) or fields.get("SHAREDACCESSSIGNATURE")
        key = fields.get("ACCOUNTKEY") or self._key(name)
        principal = [self.options.get(each, "") for each in _PRINCIPAL]
        return AzureAccount(
            name=name,
            url=url.rstrip("/"),
            key=None if sas else key,
            sas=sas.removeprefix("?") if sas else None,
            principal=(principal[0], principal[1], principal[2]) if all(principal) else None,
            token=self.options.get(_TOKEN),
            is_anonymous=self._is_anonymous(),
        )

    def _default_name(self) -> str:
        connection = _fields(self.options.get(_CONNECTION, ""))
        name = self._name() or connection.get("ACCOUNTNAME") or self.options.get("adls.account-host", "")
        if not name:
            raise UsageError(
                "Cannot use a path on Azure that names no account, such as abfss://container/key.",
                next_step="Write abfss://container@account.dfs.core.windows.net/key, or name the account by the storage"
                " option adls.account-name.",
            )
        return name.partition(".")[0]

    def _name(self) -> str:
        return next((self.options[name] for name in _NAMES if self.options.get(name)), "")

    def _of_account(self, option: str, name: str, host: str) -> str | None:
        """An option's value for one account: by its host on either endpoint, by its name, else that for all."""
        hosts = (host, host.replace(".dfs.", ".blob.", 1), name)
        return next(
            (text for each in hosts if each and (text := self.options.get(f"{option}.{each}")) is not None),
            self.options.get(option),
        )

    def _connection_fields(self, name: str, host: str) -> Mapping[str, str]:
        """The fields of the connection string for an account; none where that is for another one."""
        text = self._of_account(_CONNECTION, name, host)
        if text is None:
            return {}
        if text.startswith(("https://", "http://")):  # as Java's client reads it
            return {"BLOBENDPOINT": text}
        fields = _fields(text)
        if not fields:
            raise UsageError(f"Cannot use the storage option {_CONNECTION}: it is no list of NAME=VALUE;.")
        return fields if fields.get("ACCOUNTNAME", name) == name else {}

    def _key(self, name: str) -> str | None:
        """The key of an account; None where the options' key is another one's."""
        if self._name() not in ("", name):
            return None
        return next((self.options[each] for each in _KEYS if self.options.get(each)), None) or _plain(
            self.options.get("adls.credential")
        )

    def _url(self, name: str, host: str, fields: Mapping[str, str]) -> str:
        scheme = next((self.options[each] for each in _SCHEMES if self.options.get(each)), "https")
        if scheme not in ("https", "http"):
            raise UsageError(
                f"Cannot use the storage option {_SCHEMES[0]}={scheme}: it is one of https, http."
            )
        own = self.options.get("adls.account-host", "")
        if own.partition(".")[0] == name:
            return f"{scheme}://{own.replace('.dfs.', '.blob.', 1)}"
        authority = next((self.options[each] for each in _AUTHORITIES if self.options.get(each)), "")
        if authority:
            suffixed = authority.replace(".dfs.", ".blob.", 1)
            return f"{scheme}://{name}{suffixed}" if authority[0] == "." else f"{scheme}://{authority}/{name}"
        if "ENDPOINTSUFFIX" in fields:
            return f"{scheme}://{name}.blob.{fields['ENDPOINTSUFFIX']}"
        return f"{scheme}://{host.replace('.dfs.', '.blob.', 1) if '.' in host else name + _DEFAULT_SUFFIX}"

    def _is_anonymous(self) -> bool:
        value = self.options.get(_ANONYMOUS, "false").lower()
        if value not in ("true", "false"):
            raise UsageError(f"Cannot use the storage option {_ANONYMOUS}={value}: it is true or false.")
        return value == "true"


def ends_ms(options: Mapping[str, str]) -> str:
    """When the first of the signatures ends, in milliseconds since 1970; empty where that is not known."""
    ends = [text for name, text in options.items() if name == _SAS_ENDS or name.startswith(f"{_SAS_ENDS}.")]
    known = [text for text in ends if text.isdecimal()]
    return min(known, key=int, default="")


def is_credential(name: str) -> bool:
    """Whether an option is, or belongs to, a credential of Azure."""
    return any(name == each or name.startswith(f"{each}.") for each in _CREDENTIALS)


def _is_secret(name: str) -> bool:
    named = (_SAS, _CONNECTION, *_KEYS, _PRINCIPAL[2], _TOKEN, "adls.credential")
    return any(name == each or name.startswith(f"{each}.") for each in named)


def _fields(text: str) -> dict[str, str]:
    """The fields of a connection string, by their names in upper case."""
    pairs = [each.split("=", 1) for each in text.strip().strip(";").split(";")]
    fields = {pair[0].strip().upper(): pair[1] for pair in pairs if len(pair) == 2}
    if fields.get("USEDEVELOPMENTSTORAGE", "").lower() == "true":
        name, url = _DEVELOPMENT
        return {"ACCOUNTNAME": name, "BLOBENDPOINT": url, **fields}
    protocol = fields.get("DEFAULTENDPOINTSPROTOCOL", "https")
    if fields.get("ACCOUNTNAME") and "BLOBENDPOINT" not in fields:
        suffix = fields.get("ENDPOINTSUFFIX", _DEFAULT_SUFFIX.removeprefix(".blob."))
        fields["BLOBENDPOINT"] = f"{protocol}://{fields['ACCOUNTNAME']}.blob.{suffix}"
    return fields


def _plain(credential: str | None) -> str | None:
    """A credential that is a key; other words are names of ways to find one."""
    return credential if credential and credential not in ("default", "DefaultAzureCredential") else None
