"""The removal of secrets from text for operators, logs and journals.

Errors that other libraries raise are not kept as causes of ours where they may have secrets in them: a traceback would
show their text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from iceberg_cli.storage.declarations import StorageDeclaration, declarations

_WORDS: Final = (
    "token", "secret", "password", "passwd", "credential", "authorization", "signature", "sas",
    "(?:access|account)[-_.]?key",
)  # fmt: skip
# In names of options. Each storage declares its own beside these.
_SECRET_NAMES: Final = (
    "token", "credential", "secret", "password", "connection-string", "api-key", "api_key", "header.",
)  # fmt: skip


class _Patterns(NamedTuple):
    """What is looked for in a text.

    Args:
        named: values behind names with a secret word.
        signed: parameters that sign a URL.
        user: of a URL.
    """

    named: re.Pattern[str]
    signed: re.Pattern[str]
    user: re.Pattern[str]


@cache
def _patterns(known: tuple[StorageDeclaration, ...]) -> _Patterns:
    words = "|".join((*_WORDS, *(re.escape(word) for each in known for word in each.secret_words)))
    signed = "|".join(name for each in known for name in each.signed_parameters)
    containers = "|".join(f"{scheme}:" for each in known for scheme in each.container_schemes)
    return _Patterns(
        named=re.compile(
            rf"""(?ix)
            ( [\w.\-]*
              (?:{words})
              [\w.\-]*
              \\*["']? \s* [=:] \s* (?:bearer\s+|basic\s+)? \\*["']? )  # JSON may be a text in JSON
            (?: [^\s"'&,;<>)\]}}\\] | \\(?!["'\\]) )+
            """
        ),
        signed=re.compile(rf"(?i)\b({signed})=[^\s\"'&<>]+"),
        user=re.compile(rf"(?i)\b((?!{containers})[a-z][a-z0-9+.-]*://)[^\s/@\"'<>]+@"),
    )


def secrets_of(properties: Mapping[str, Any]) -> Sequence[str]:
    """The values of secret-looking names in a configuration or in options, of nested sections as well."""
    secrets: list[str] = []
    words = (*_SECRET_NAMES, *(word for each in declarations() for word in each.secret_words))
    for name, value in properties.items():
        if isinstance(value, Mapping):
            secrets += secrets_of(value)
        elif isinstance(value, str) and any(word in name.lower() for word in words):
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
    patterns = _patterns(declarations())
    text = patterns.user.sub(r"\1***@", text)
    text = patterns.signed.sub(r"\1=***", text)
    return patterns.named.sub(r"\1***", text)
