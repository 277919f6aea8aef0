"""The removal of secrets from text for operators, logs and journals.

Errors that other libraries raise are not kept as causes of ours where they may have secrets in them: a traceback would
show their text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

_NAMED = re.compile(
    r"""(?ix)
    ( [\w.\-]*
      (?:token|secret|password|passwd|credential|authorization|signature|sas|(?:access|account)[-_.]?key)
      [\w.\-]*
      \\*["']? \s* [=:] \s* (?:bearer\s+|basic\s+)? \\*["']? )  # JSON may be a text in JSON
    (?: [^\s"'&,;<>)\]}\\] | \\(?!["'\\]) )+
    """
)
_QUERY = re.compile(r"(?i)\b(x-amz-[\w-]+|sig|sv|AWSAccessKeyId)=[^\s\"'&<>]+")
# On Azure what stands there is a container.
_USER = re.compile(r"(?i)\b((?!abfss?:|wasbs?:)[a-z][a-z0-9+.-]*://)[^\s/@\"'<>]+@")

_SECRET_NAMES: Final = (
    "token", "credential", "secret", "password", "access-key", "account-key", "account.key",
    "connection-string", "api-key", "api_key", "header.",
)  # fmt: skip


def secrets_of(properties: Mapping[str, Any]) -> Sequence[str]:
    """The values of secret-looking names in a configuration or in options, of nested sections as well."""
    secrets: list[str] = []
    for name, value in properties.items():
        if isinstance(value, Mapping):
            secrets += secrets_of(value)
        elif isinstance(value, str) and any(word in name.lower() for word in _SECRET_NAMES):
            secrets += [value, *value.split(":", 1)]
    return secrets


def secrets_of_proxies() -> Sequence[str]:
    """The passwords of the proxies that the environment names, each also as a request to its proxy has it."""
    from urllib.request import getproxies  # takes as long to load as most of this program

    return [secret for url in getproxies().values() for secret in secrets_of_url(url)]


def secrets_of_url(url: str) -> Sequence[str]:
    """The password in a URL, also as a request has it; nothing where there is none."""
    parts = urlsplit(url)
    if not parts.password:
        return []
    user, password = unquote(parts.username or ""), unquote(parts.password)
    return [parts.password, password, b64encode(f"{user}:{password}".encode()).decode()]


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the given secrets, values of secret-looking names, signed query parts and URL users.

    Args:
        text: of a backend, a driver or a configuration file.
        secrets: values known to be secret; those under four characters are too short to be found safely.
    """
    for secret in sorted((value for value in secrets if len(value) >= 4), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = _USER.sub(r"\1***@", text)
    text = _QUERY.sub(r"\1=***", text)
    return _NAMED.sub(r"\1***", text)
