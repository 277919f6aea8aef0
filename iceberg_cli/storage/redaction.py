"""The removal of secrets from text for operators, logs and journals."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAMED = re.compile(
    r"""(?ix)
    ( [\w.\-]*
      (?:token|secret|password|passwd|credential|authorization|signature|sas|access[-_.]?key)
      [\w.\-]*
      ["']? \s* [=:] \s* (?:bearer\s+|basic\s+)? ["']? )
    [^\s"'&,;<>)\]}]+
    """
)
_QUERY = re.compile(r"(?i)\b(x-amz-[\w-]+|sig|sv|AWSAccessKeyId)=[^\s\"'&<>]+")
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@\"'<>]+@")


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
