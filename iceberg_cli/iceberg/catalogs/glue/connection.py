"""The connection to AWS Glue, by PyIceberg's properties, and what the errors of its calls mean.

Calls that read are sent again by the SDK. The one that commits is not: what was sent twice can be refused the second
time because the first one had its effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoAuthTokenError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from iceberg_cli.errors import AccessDenied, BackendUnavailable, UsageError
from iceberg_cli.storage.redaction import redact

METADATA: Final = "metadata_location"
TRANSPORT_ERRORS: Final = (BotoCoreError, ClientError, OSError)
NOT_FOUND: Final = "EntityNotFoundException"
_MOST_TRIES: Final = 10  # as PyIceberg
_MODES: Final = ("standard", "adaptive", "legacy")
_WAITS_S: Final = (10, 60)  # to connect, for an answer
# A request is signed before it is sent, expired keys are asked for anew. Only newer releases have `aws login`.
_NO_CREDENTIALS: Final = (
    NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, TokenRetrievalError, SSOError,
    NoAuthTokenError, getattr(exceptions, "LoginError", SSOError),
)  # fmt: skip
# No byte of a request was sent.
_NOT_SENT: Final = (
    ConnectTimeoutError, EndpointConnectionError, ParamValidationError, *_NO_CREDENTIALS,
)  # fmt: skip
_COMMIT: Final = "UpdateTable"
# Answers by which a request was refused before anything was done, all of status 4xx.
_REFUSED: Final = frozenset(
    {
        NOT_FOUND, "AccessDeniedException", "InvalidInputException", "ResourceNumberLimitExceededException",
        "ResourceNotReadyException", "GlueEncryptionException", "ThrottlingException", "Throttling",
        "RequestLimitExceeded", "ValidationException", "UnrecognizedClientException", "InvalidSignatureException",
        "IncompleteSignature", "ExpiredTokenException", "MissingAuthenticationTokenException",
        "InvalidClientTokenId", "OptInRequired", "NotAuthorized",
    }
)  # fmt: skip
_DENIED: Final = frozenset(
    {
        "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException",
        "MissingAuthenticationTokenException", "IncompleteSignature", "InvalidClientTokenId", "OptInRequired",
        "NotAuthorized",
    }
)  # fmt: skip
_LAKE_FORMATION: Final = "Lake Formation"


class GlueConnection:
    """A connection to the Glue Data Catalog of an account and region.

    Args:
        name: of the catalog, for messages.
        properties: PyIceberg's: `glue.endpoint`, `glue.id`, `glue.region`, `glue.profile-name`, `glue.access-key-id`,
            `glue.secret-access-key`, `glue.session-token`, `glue.max-retries`, `glue.retry-mode`,
            `glue.skip-archive`; for most of them also those that begin with `client.`.

    Raises:
        UsageError: a property has a value that it cannot have, or there is no region.
        AccessDenied: what gives the keys did not.
    """

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties = properties
        self.skip_archive = _boolean(name, properties, "glue.skip-archive", default=True)
        keys = [_first(properties, f"glue.{key}", f"client.{key}") for key in _KEYS]
        self._secrets = tuple(key for key in keys if key)
        self._catalog_id = {"CatalogId": properties["glue.id"]} if properties.get("glue.id") else {}
        self._raw: Any = None  # the last answer to a question for a table, as it came
        try:
            self._session = boto3.Session(
                profile_name=_first(properties, "glue.profile-name", "client.profile-name"),
                region_name=_first(properties, "glue.region", "client.region"),
                aws_access_key_id=keys[0],
                aws_secret_access_key=keys[1],
                aws_session_token=keys[2],
            )
            mode = properties.get("glue.retry-mode", "")
            tries = _whole(name, properties, "glue.max-retries", _MOST_TRIES)
            self._reads = self._client({"max_attempts": tries, "mode": mode if mode in _MODES else _MODES[0]})
        except NoRegionError as error:
            raise UsageError(
                f"Cannot open the catalog {name}: no region is configured.",
                next_step="Set its glue.region, or AWS_REGION.",
            ) from error
        except (ProfileNotFound, ValueError, NoCredentialsError, PartialCredentialsError) as error:
            raise UsageError(f"Cannot open the catalog {name}: {self.reason(error)}") from None
        except _NO_CREDENTIALS as error:
            raise self.failed(f"Cannot open the catalog {name}", error) from None
        self._reads.meta.events.register("before-parse.glue.GetTable", self._remember)

    def _client(self, retries: Mapping[str, Any]) -> Any:
        connect_s, read_s = _WAITS_S
        return self._session.client(
            "glue",
            endpoint_url=self.properties.get("glue.endpoint"),
            config=Config(retries=dict(retries), connect_timeout=connect_s, read_timeout=read_s),
        )

    @cached_property
    def _writes(self) -> Any:
        return self._client({"total_max_attempts": 1, "mode": "standard"})

    def _remember(self, response_dict: Mapping[str, Any], **_: object) -> None:
        try:
            self._raw = json.loads(response_dict["body"])
        except ValueError:
            self._raw = None

    # -- calls -------------------------------------------------------------------------------------------------

    def table(self, database: str, table: str) -> tuple[dict[str, Any], list[str]] | None:
        """The entry of a table as `GetTable` has it, and the fields of it that are not known here; None: there is none.

        Raises:
            AccessDenied, BackendUnavailable: it was not told.
        """
        try:
            answer = self._reads.get_table(DatabaseName=database, Name=table, **self._catalog_id)
        except TRANSPORT_ERRORS as error:
            if code_of(error) == NOT_FOUND:
                return None
            raise self.failed(f"Cannot ask the catalog for {self.name}.{database}.{table}", error) from None
        entry: dict[str, Any] = answer["Table"]
        raw = self._raw.get("Table") if isinstance(self._raw, Mapping) else None
        return entry, sorted(_unknown(raw, entry, ""))

    def update(self, database: str, table_input: Mapping[str, Any], version: str) -> None:
        """One `UpdateTable`, which is sent once.

        Raises:
            One of `TRANSPORT_ERRORS`; `is_refused` says of which it is certain that nothing was changed.
        """
        self._writes.update_table(
            DatabaseName=database,
            TableInput=dict(table_input),
            VersionId=version,
            SkipArchive=self.skip_archive,
            **self._catalog_id,
        )

    @cached_property
    def input_fields(self) -> frozenset[str]:
        """The fields of an entry that `UpdateTable` takes; the service itself keeps the others."""
        return frozenset(self._reads.meta.service_model.shape_for("TableInput").members)

    def pages(self, operation: str, field: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The elements of a list, page by page; nothing of what is gone.

        Raises:
            AccessDenied, BackendUnavailable: it was not told.
        """
        try:
            for page in self._reads.get_paginator(operation).paginate(**arguments, **self._catalog_id):
                yield from page[field]
        except TRANSPORT_ERRORS as error:
            if code_of(error) != NOT_FOUND:
                raise self.failed(f"Cannot list the catalog {self.name}", error) from None

    def tables(self, database: str) -> Iterator[dict[str, Any]]:
        """The entries of a database.

        Raises:
            AccessDenied, BackendUnavailable: see `pages`.
        """
        return self.pages("get_tables", "TableList", DatabaseName=database)

    # -- errors ------------------------------------------------------------------------------------------------

    def failed(self, what: str, error: Exception) -> BackendUnavailable:
        """The error of a call.

        Args:
            what: cannot be done.
            error: one of `TRANSPORT_ERRORS`.
        """
        reason = self.reason(error)
        if isinstance(error, _NO_CREDENTIALS) or code_of(error) in _DENIED:
            next_step = ""
            if _LAKE_FORMATION in reason:
                next_step = (
                    "Have Lake Formation grant this user DESCRIBE and ALTER on the table and access to its location's "
                    "data, or read and write where IAM alone decides: until then it fails alike."
                )
            return AccessDenied(f"{what}: {reason}", next_step=next_step)
        return BackendUnavailable(f"{what}: {reason}")

    def reason(self, error: Exception) -> str:
        """An error in one line, without secrets."""
        text = str(error)
        if isinstance(error, ClientError):
            of = error.response.get("Error", {})
            text = f"{of.get('Code', 'error')}: {of.get('Message', '')}"
        return redact(" ".join(text.split()), self._secrets)


_KEYS: Final = ("access-key-id", "secret-access-key", "session-token")


def code_of(error: Exception) -> str | None:
    """The code of an answer that is an error; None where there was no answer."""
    if not isinstance(error, ClientError):
        return None
    code = error.response.get("Error", {}).get("Code")
    return None if code is None else str(code)


def is_refused(error: Exception) -> bool:
    """Whether it is certain that an `UpdateTable` which ended so changed nothing, and never will."""
    if isinstance(error, ClientError):
        if error.operation_name != _COMMIT:  # such as STS's, which was asked for keys to sign with
            return True
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return code_of(error) in _REFUSED and isinstance(status, int) and 400 <= status < 500
    return isinstance(error, _NOT_SENT)


def _unknown(raw: Any, parsed: Any, where: str) -> Iterator[str]:
    """The fields of an answer that the SDK's model of it has not."""
    if isinstance(raw, Mapping) and isinstance(parsed, Mapping):
        for name, value in raw.items():
            if value is None:
                continue
            if name not in parsed:
                yield f"{where}{name}"
            else:
                yield from _unknown(value, parsed[name], f"{where}{name}.")
    elif isinstance(raw, list) and isinstance(parsed, list):
        for each, own in zip(raw, parsed, strict=False):
            yield from _unknown(each, own, where)


def _first(properties: Mapping[str, str], *names: str) -> str | None:
    return next((properties[name] for name in names if properties.get(name)), None)


def _boolean(catalog: str, properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = properties.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"Cannot open the catalog {catalog}: {name} is true or false, not {text!r}.")
    return text == "true"


def _whole(catalog: str, properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"Cannot open the catalog {catalog}: {name} is a whole number, not {text!r}.")
    return int(text)


def is_iceberg(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is that of an Iceberg table."""
    return str((entry.get("Parameters") or {}).get("table_type", "")).lower() == "iceberg"
