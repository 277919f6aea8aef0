"""The options of storages on Google Cloud Storage, by the names that Iceberg and PyIceberg give them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.storage.declarations import StorageOptions
from iceberg_cli.storage.redaction import secrets_of, secrets_of_url

TOKEN: Final = "gcs.oauth2.token"  # noqa: S105 - the option's name
EXPIRES_AT_MS: Final = "gcs.oauth2.token-expires-at"
_NO_AUTH: Final = "gcs.no-auth"
CREDENTIAL_OPTIONS: Final = frozenset({TOKEN, EXPIRES_AT_MS, _NO_AUTH})
_ENDPOINTS: Final = ("gcs.service.host", "gcs.endpoint")
_ENDPOINT_VARIABLE: Final = "STORAGE_EMULATOR_HOST"
_ACCESS: Final = ("read_only", "read_write", "full_control")
_CONSISTENCY: Final = ("none", "size", "md5")
# Objects that the customer's own key encrypts are not read, and others would be written beside them.
_OWN_KEYS: Final = ("gcs.encryption-key", "gcs.decryption-key")
# Ways to find credentials that gcsfs knows by these names; other tokens are tokens, files, or keys in JSON.
_METHODS: Final = frozenset({"google_default", "cache", "cloud", "anon"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions:
    """What the options say; None where they say nothing and gcsfs looks in the environment.

    Args:
        endpoint_url: of the service.
        project: that requests belong to.
        user_project: that pays for requests, where that is not the bucket's own.
        access: what a token may be used for: `read_only`, `read_write` or `full_control`.
        consistency: how gcsfs compares what it wrote.
        token: an access token, the path of a file with a key, the key itself in JSON, or a way that gcsfs knows.
        session: further arguments of the HTTP session.
        secrets: that no message may show.
    """

    endpoint_url: str | None
    project: str | None
    user_project: str | None
    access: str
    consistency: str
    token: str | None
    session: Mapping[str, Any]
    secrets: tuple[str, ...]

    @property
    def is_access_token(self) -> bool:
        """Whether the token is sent as it is."""
        token = self.token
        return token is not None and not (token in _METHODS or token.startswith("{") or os.path.exists(token))

    @classmethod
    def of(cls, options: Mapping[str, str]) -> GcsOptions:
        """Read the options; those of other names are ignored.

        Raises:
            UsageError: a value is none that the option has. Refused: it is a key of one's own.
        """
        for name in _OWN_KEYS:
            if options.get(name):
                raise Refused(
                    f"Cannot use the storage option {name}: files under a key of one's own are not read here, and"
                    " others would be written without it.",
                    next_step="Maintain the table with an engine that has the key.",
                )
        anonymous = options.get(_NO_AUTH, "false").lower()
        if anonymous not in ("true", "false"):
            raise UsageError(
                f"Cannot use the storage option {_NO_AUTH}={options[_NO_AUTH]}: it is true or false."
            )
        return cls(
            endpoint_url=next((options[name].rstrip("/") for name in _ENDPOINTS if options.get(name)), None),
            project=options.get("gcs.project-id"),
            user_project=options.get("gcs.user-project"),
            access=_one_of(options, "gcs.access", _ACCESS, default="full_control"),
            consistency=_one_of(options, "gcs.consistency", _CONSISTENCY, default="none"),
            token="anon" if anonymous == "true" else _token(options.get(TOKEN)),
            session=_session(options.get("gcs.session-kwargs", "{}")),
            secrets=(
                *secrets_of(options),  # those of other services too, whatever they are doing here
                *(secret for name in _ENDPOINTS for secret in secrets_of_url(options.get(name, ""))),
            ),
        )


class GcsStorageOptions(StorageOptions):
    """See `StorageOptions`."""

    def from_environment(self, options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
        """See `StorageOptions`."""
        endpoint = environment.get(_ENDPOINT_VARIABLE)
        if not endpoint or options.keys() & set(_ENDPOINTS):
            return dict(options)
        return {**options, _ENDPOINTS[0]: endpoint}

    def replaced_by(self, options: Collection[str], over: Collection[str]) -> Collection[str]:  # noqa: ARG002
        """See `StorageOptions`."""
        return CREDENTIAL_OPTIONS if CREDENTIAL_OPTIONS.intersection(over) else ()

    def unwritable_reason(
        self,
        options: Mapping[str, str],  # noqa: ARG002 - the port's signature
        *,
        takes_soft_deletions: Callable[[], bool],  # noqa: ARG002
    ) -> str | None:
        """None: no option forbids it."""
        return None


OPTIONS: Final = GcsStorageOptions()


def _one_of(options: Mapping[str, str], name: str, known: tuple[str, ...], *, default: str) -> str:
    value = options.get(name, default)
    if value not in known:
        raise UsageError(f"Cannot use the storage option {name}={value}: it is one of {', '.join(known)}.")
    return value


def _token(text: str | None) -> str | None:
    """A token; where it is the path of a file, with the home folder in place of `~`."""
    if text is None or not text.startswith(("/", "~/", "./", "../")):
        return text
    path = os.path.expanduser(text)
    if not os.path.exists(path):
        raise UsageError(f"Cannot use the storage option {TOKEN}: there is no file {path}.")
    return path


def _session(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("Cannot use the storage option gcs.session-kwargs: it is a JSON object.")
    return found
