"""Tables of a REST catalog: requests of updates and requirements, from which the server writes the metadata.

PyIceberg finds the server's configuration and signs requests. What is sent is our own JSON, once: nothing here, in the
client or below it sends a commit again.

A request that was sent and has no clear answer may come in at any later time. It cannot any more only once a ref that
it asserts has moved; a metadata location that moved proves nothing.

Spec: Iceberg REST catalog specification, `loadTable`, `updateTable`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pydantic
import requests
from pyiceberg.catalog.rest import Capability, Endpoints, IdentifierKind, RestCatalog
from pyiceberg.exceptions import RESTError
from urllib3.util import Retry

from iceberg_cli.encoding.strict_json import dumps
from iceberg_cli.errors import (
    AccessDenied,
    BackendUnavailable,
    CommitConflict,
    IcebergCliError,
    Refused,
    TableNotFound,
    UsageError,
)
from iceberg_cli.iceberg.commit.draft import OPERATION_ID
from iceberg_cli.iceberg.spec.metadata import TableMetadata
from iceberg_cli.iceberg.spec.metadata_file import decode_metadata_file
from iceberg_cli.operation.outcomes import (
    Attempt,
    Committed,
    Conflict,
    Outcome,
    SentAttempts,
    Unknown,
    digest_of,
)
from iceberg_cli.plan.text import did_you_mean
from iceberg_cli.storage.redaction import redact
from iceberg_cli.storage.router import open_storage

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.storage import Storage

_CONNECT_S: Final = 30
_ANSWER_S: Final = 300  # a server writes the metadata of a large table meanwhile
_WAITS: Final = (_CONNECT_S, _ANSWER_S)
_DENIED: Final = frozenset({401, 403, 407, 419})
_REFUSED: Final = frozenset({400, 409, 422})
_NOT_DONE: Final = _DENIED | {404, 429}  # the specification's answers to what was not carried out
_SECRET: Final = (
    "token", "credential", "secret", "password", "access-key", "account-key", "connection-string", "api-key", "api_key",
    "header.",
)  # fmt: skip
_CATALOGS_OWN: Final = ("token", "credential", "oauth2-", "header.", "auth", "uri")  # and no storage's
_NESSIE: Final = "nessie."
# What decides about later deletions and is asserted by no requirement.
_RETENTION: Final = ("gc.enabled", "history.expire.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What the server says of a table now: its metadata location, the options of its storage, its own token."""

    location: str
    options: Mapping[str, str]
    token: str | None


class RestCommitter:
    """One table of a REST catalog.

    Args:
        catalog_name: as it is configured.
        namespace: its levels, from the outermost.
        table: its name.
        properties: the catalog's, as PyIceberg names them.
        storage_options: come before what the server gives for the table's storage.

    Raises:
        UsageError: the configuration is incomplete or contradicts itself.
        TableNotFound: there is no such table.
        BackendUnavailable: the server did not answer, or not as the specification has it.
    """

    def __init__(
        self,
        catalog_name: str,
        namespace: tuple[str, ...],
        table: str,
        properties: Mapping[str, Any],
        storage_options: Mapping[str, str],
    ) -> None:
        self._levels, self._table = namespace, table
        self._identifier = (*namespace, table)
        self._name = f"{catalog_name}.{'.'.join(self._identifier)}"
        self._secrets = list(_secrets_of(properties))
        self._catalog = self._connect(catalog_name, properties)
        self._secrets += _secrets_of(self._catalog.properties)
        self._sent = SentAttempts()
        opened = self._load()
        self._opened: str | None = opened.location
        properties = self._catalog.properties
        options = {key: text for key, text in _texts(properties).items() if not key.startswith(_CATALOGS_OWN)}
        self.storage_options: Mapping[str, str] = {**options, **opened.options, **storage_options}
        self._storage: Storage = open_storage(self.storage_options)

    def read_only_reason(self) -> str | None:
        """Why the server takes no commit that maintains a table, or None."""
        if any(key.startswith(_NESSIE) for key in self._catalog.properties):
            return "its catalog is Nessie, which shows only the current snapshot and refuses the removal of snapshots"
        if Capability.V1_UPDATE_TABLE not in self._catalog._supported_endpoints:  # noqa: SLF001
            return "its catalog does not take commits: updateTable is not among its endpoints"
        return None

    def current(self) -> str:
        """The metadata location that the server names; the first answer is what opening the table brought.

        Raises:
            TableNotFound, BackendUnavailable.
        """
        opened, self._opened = self._opened, None
        return opened or self._load().location

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """The request. A commit without a snapshot gets a property by which it is known again.

        Raises:
            CommitConflict: a requirement does not hold.
        """
        from iceberg_cli.iceberg.commit.update import SetProperties, check

        if reason := check(commit.requirements, commit.base):
            raise CommitConflict(f"Cannot commit on top of {base_location}: {reason}")
        updates = list(commit.updates)
        if _snapshot_of(commit) is None:
            updates.append(SetProperties(updates={OPERATION_ID: commit.commit_uuid}))
        request = {
            "identifier": {"namespace": list(self._levels), "name": self._table},
            "requirements": [requirement.to_json() for requirement in commit.requirements],
            "updates": [update.to_json() for update in updates],
        }
        data = dumps(request)
        return Attempt(
            commit=commit,
            base=base_location,
            target=None,
            data=data,
            digest=digest_of(data),
            name_is_unique=False,
        )

    def commit(self, attempt: Attempt) -> Outcome:
        """Look at the table once more, then send the request, once."""
        first = self._sent.first(attempt)
        try:
            loaded = self._load()
        except (BackendUnavailable, TableNotFound) as error:
            if first:
                raise
            return Unknown(cause=error.message)
        if loaded.location != attempt.base:
            reason = f"the table has moved from {attempt.base} to {loaded.location}"
            return Conflict(reason=reason) if first else self.settle(attempt)
        if stale := attempt.why_stale([]):
            return Conflict(reason=stale) if first else Unknown(cause=stale)
        try:
            answer = self._catalog._session.post(  # noqa: SLF001 - the session that PyIceberg authenticates
                self._url(),
                data=attempt.data,
                auth=_Bearer(loaded.token) if loaded.token else None,
                allow_redirects=False,
                timeout=_WAITS,
            )
        except (requests.RequestException, RESTError) as error:
            reason = self._message_of(error)
            if first and _was_not_sent(error):
                raise BackendUnavailable(f"Cannot reach the catalog of {self._name}: {reason}") from error
            return self._doubtful(attempt, f"the catalog gave no answer: {reason}")
        return self._outcome(attempt, answer, first=first)

    def settle(self, attempt: Attempt) -> Outcome:
        """Look for the commit's mark in every version since its base.

        Committed: it is there. Conflict: it is not, and a ref that the request asserts has moved, so that it can only
        fail. Unknown: neither, or the metadata log does not reach back to the base.
        """
        return self._settled(attempt)[0]

    def _settled(self, attempt: Attempt) -> tuple[Outcome, bool]:
        """See `settle`; and whether every version since the base was looked at."""
        from iceberg_cli.iceberg.commit.update import check

        commit = attempt.commit
        try:
            now = self._load().location
            metadata = self._read(now)
            versions = list(self._versions_since(attempt.base, now, metadata))
        except (IcebergCliError, FileNotFoundError) as error:
            return Unknown(cause=f"the table could not be read back: {error}"), False
        trimmed = now != attempt.base and attempt.base not in _log_of(metadata)
        cut_off = f"the metadata log of {now} does not reach back to {attempt.base}"
        ours = [version for version in versions if _is_marked(version[1], commit)]
        if ours:
            location, version = ours[-1]
            # The version that the commit made may be one of those that were cut off.
            lost = cut_off if trimmed and _removes_snapshots(commit) else None
            withheld = lost or self._changed_between(attempt, location, version)
            return Committed(metadata_location=location, withheld=withheld), not trimmed
        if trimmed:
            return Unknown(cause=f"the table has moved, and {cut_off}"), False
        if reason := check(commit.requirements, metadata):  # type: ignore[attr-defined]
            return Conflict(reason=reason), True
        return Unknown(cause=f"no effect of it shows at {now}, and it may still arrive"), True

    def _outcome(self, attempt: Attempt, answer: requests.Response, *, first: bool) -> Outcome:
        """By the status of an answer, see the specification's responses of `updateTable`."""
        code, reason = answer.status_code, self._reason(answer)
        if code == requests.codes.ok:
            try:
                location = _text_of(_object_of(answer), "metadata-location")
                metadata = self._read(location)
                if _is_marked(metadata, attempt.commit) and _log_of(metadata)[-1:] == [attempt.base]:
                    return Committed(metadata_location=location)
                # It names a later version than ours, or ours follows one that others made meanwhile, or an earlier try.
                return self.settle(attempt)
            except (IcebergCliError, FileNotFoundError) as error:
                return self._doubtful(attempt, f"the catalog's answer cannot be used: {error}")
        if code in _REFUSED:
            # Where something between us and the server sent it twice, the first of the two may have come in.
            settled, whole = self._settled(attempt)
            refused = first and whole and isinstance(settled, Unknown)
            return Conflict(reason=f"the catalog refuses it, {code}: {reason}") if refused else settled
        if code not in _NOT_DONE or not first:
            return self._doubtful(attempt, f"the catalog answered {code}: {reason}")
        words = f"Cannot commit to {self._name}: the catalog answered {code}: {reason}"
        if code in _DENIED:
            raise AccessDenied(words)
        if code == requests.codes.not_found:
            raise TableNotFound(words)
        raise BackendUnavailable(words)

    def _doubtful(self, attempt: Attempt, cause: str) -> Outcome:
        settled = self.settle(attempt)
        return Unknown(cause=f"{cause}; {settled.cause}") if isinstance(settled, Unknown) else settled

    def _changed_between(self, attempt: Attempt, location: str, metadata: TableMetadata) -> str | None:
        """Why nothing may be deleted after a commit: what it was built upon is not what we saw, and this was lost."""
        commit = attempt.commit
        log = _log_of(metadata)
        before = log[-1] if log else None
        if before == attempt.base or not _removes_snapshots(commit):
            return None
        if before is None:
            return f"{location} does not say which version came before it"
        try:
            former = self._read(before)
        except (IcebergCliError, FileNotFoundError) as error:
            return f"the version before, which others made meanwhile, cannot be read: {error}"
        base: TableMetadata = commit.base  # type: ignore[attr-defined]
        kept = "its metadata file is kept"
        new = {name: ref for name, ref in former.refs.items() if name not in base.refs}
        if gone := sorted(
            name
            for name, ref in new.items()
            if name not in metadata.refs or metadata.snapshot(ref.snapshot_id) is None
        ):
            return (
                f"{', '.join(gone)}, made meanwhile, went with it: see {before}, the version before; {kept}"
            )
        keeps_more = any(ref.min_snapshots_to_keep or ref.max_snapshot_age_ms for ref in new.values())
        if keeps_more or _retention_of(former, base) != _retention_of(base, base):
            return f"retention was changed meanwhile by {before}, the version before; {kept}"
        return None

    def _versions_since(
        self, base: str, now: str, metadata: TableMetadata
    ) -> Iterator[tuple[str, TableMetadata]]:
        """Location and content of the versions after `base`, the newest first, as far back as the log goes."""
        if now == base:
            return
        yield now, metadata
        for location in reversed(_log_of(metadata)):
            if location == base:
                return
            yield location, self._read(location)

    def _read(self, location: str) -> TableMetadata:
        return TableMetadata.from_json(
            decode_metadata_file(self._storage.read(location), location), path=location
        )

    # -- requests ----------------------------------------------------------------------------------------------

    def _connect(self, catalog_name: str, properties: Mapping[str, Any]) -> RestCatalog:
        try:
            catalog = RestCatalog(catalog_name, **properties)
        except requests.RequestException as error:
            raise BackendUnavailable(
                f"Cannot reach the catalog {catalog_name}: {self._message_of(error)}"
            ) from error
        except (RESTError, pydantic.ValidationError) as error:
            raise BackendUnavailable(
                f"Cannot use the catalog {catalog_name}: {self._message_of(error)}"
            ) from error
        except (ValueError, KeyError, ImportError) as error:
            raise UsageError(f"Cannot open the catalog {catalog_name}: {self._message_of(error)}") from error
        for adapter in catalog._session.adapters.values():  # noqa: SLF001
            if isinstance(adapter, requests.adapters.HTTPAdapter):
                # With SigV4 the client's own would send a commit again.
                adapter.max_retries = Retry(0, read=False)
        return catalog

    def _load(self) -> _Loaded:
        """Ask for the table, with every snapshot: by default a server may leave out those without a ref."""
        answer = self._ask()
        if answer.status_code in (401, 419):
            try:
                self._catalog._refresh_token()  # noqa: SLF001 - OAuth2 tokens end
            except (requests.RequestException, RESTError) as error:
                raise AccessDenied(
                    f"Cannot ask the catalog for {self._name}: {self._message_of(error)}"
                ) from error
            answer = self._ask()
        code = answer.status_code
        if code == requests.codes.not_found:
            raise TableNotFound(f"Cannot find the table {self._name} in its catalog.{self._near()}")
        if code != requests.codes.ok:
            kind = AccessDenied if code in _DENIED else BackendUnavailable
            raise kind(f"Cannot ask the catalog for {self._name}: it answered {code}: {self._reason(answer)}")
        document = _object_of(answer)
        location = _text_of(document, "metadata-location")
        if location.startswith(("http://", "https://")):
            raise Refused(
                f"Cannot open {self._name}: its catalog names no metadata file, only {redact(location)}",
                next_step="Open the table by its folder; it is read-only there.",
            )
        config = _texts(document.get("config"))
        self._secrets += _secrets_of(config)
        options = {**config, **self._credentials(document, location)}
        return _Loaded(location=location, options=options, token=options.pop("token", None))

    def _credentials(self, document: Mapping[str, Any], location: str) -> Mapping[str, str]:
        """The storage credentials with the longest prefix of a location."""
        given = document.get("storage-credentials") or ()
        fitting = [
            (len(str(each.get("prefix", ""))), _texts(each.get("config")))
            for each in given
            if isinstance(each, Mapping) and location.startswith(str(each.get("prefix", "")))
        ]
        longest: Mapping[str, str] = max(fitting, key=lambda pair: pair[0], default=(0, {}))[1]
        self._secrets += _secrets_of(longest)
        return longest

    def _ask(self) -> requests.Response:
        try:
            return self._catalog._session.get(  # noqa: SLF001
                self._url(), params={"snapshots": "all"}, timeout=_WAITS
            )
        except (requests.RequestException, RESTError) as error:
            raise BackendUnavailable(
                f"Cannot ask the catalog for {self._name}: {self._message_of(error)}"
            ) from error

    def _url(self) -> str:
        path = self._catalog._split_identifier_for_path(self._identifier)  # noqa: SLF001
        return self._catalog.url(Endpoints.load_table, **path)

    def _near(self) -> str:
        """What else there is by this name or nearly so, in words."""
        try:
            path = self._catalog._split_identifier_for_path(self._identifier, IdentifierKind.VIEW)  # noqa: SLF001
            if Capability.V1_LOAD_VIEW in self._catalog._supported_endpoints:  # noqa: SLF001
                view = self._catalog._session.get(  # noqa: SLF001
                    self._catalog.url(Endpoints.load_view, **path), timeout=_WAITS
                )
                if view.status_code == requests.codes.ok:
                    return " It is a view."
            names = [identifier[-1] for identifier in self._catalog.list_tables(self._levels)]
        except (requests.RequestException, RESTError, pydantic.ValidationError, NotImplementedError):
            return ""  # a hint, beside an answer that was clear
        return did_you_mean(self._table, names)

    def _message_of(self, error: Exception) -> str:
        return redact(" ".join(str(error).split()), self._secrets)

    def _reason(self, answer: requests.Response) -> str:
        """The message of an error answer; of one that is no JSON the beginning."""
        try:
            message = _texts(_object_of(answer).get("error")).get("message", "")
        except BackendUnavailable:
            message = answer.text[:200]
        sent = str(answer.request.headers.get("Authorization", ""))
        secrets = [*self._secrets, sent, sent.rpartition(" ")[2]]
        return redact(" ".join(message.split()), secrets) or answer.reason or "without a reason"


class _Bearer(requests.auth.AuthBase):
    """A token for one request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _snapshot_of(commit: Any) -> int | None:
    """The id of the snapshot that a commit adds, which was drawn for it alone, or None."""
    from iceberg_cli.iceberg.commit.update import AddSnapshot

    added = [update.snapshot.snapshot_id for update in commit.updates if isinstance(update, AddSnapshot)]
    return added[0] if added else None


def _removes_snapshots(commit: Any) -> bool:
    """Whether refs may go with a commit, and files after it."""
    from iceberg_cli.iceberg.commit.update import RemoveSnapshots

    return any(isinstance(update, RemoveSnapshots) for update in commit.updates)


def _is_marked(metadata: TableMetadata, commit: Any) -> bool:
    """Whether a version has a commit's own mark: its snapshot or, without one, its property."""
    snapshot_id = _snapshot_of(commit)
    if snapshot_id is not None:
        return metadata.snapshot(snapshot_id) is not None
    return bool(metadata.properties.get(OPERATION_ID) == commit.commit_uuid)


def _log_of(metadata: TableMetadata) -> list[str]:
    return [entry.metadata_file for entry in metadata.metadata_log]


def _retention_of(metadata: TableMetadata, base: TableMetadata) -> tuple[Any, ...]:
    """What decides about deletions: properties, and the refs of `base`, which a request asserts by snapshot alone."""
    properties = {key: value for key, value in metadata.properties.items() if key.startswith(_RETENTION)}
    return properties, {name: metadata.refs.get(name) for name in base.refs}


def _was_not_sent(error: Exception) -> bool:
    """Whether no connection was made: nothing can have been sent."""
    from urllib3.exceptions import NewConnectionError

    cause = getattr(error.args[0] if error.args else None, "reason", None)
    return isinstance(error, requests.ConnectTimeout) or isinstance(cause, NewConnectionError)


def _object_of(answer: requests.Response) -> Mapping[str, Any]:
    try:
        content = json.loads(answer.content)
    except ValueError as error:
        raise BackendUnavailable(f"Cannot use the catalog's answer: it is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise BackendUnavailable("Cannot use the catalog's answer: it is no JSON object")
    return content


def _text_of(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise BackendUnavailable(f"Cannot use the catalog's answer: it has no {name}")
    return value


def _texts(value: object) -> dict[str, str]:
    """The texts of a JSON object; of anything else none."""
    items = value.items() if isinstance(value, Mapping) else ()
    return {str(key): text for key, text in items if isinstance(text, str)}


def _secrets_of(properties: Mapping[str, Any]) -> list[str]:
    """The values that must not be shown, of nested sections as well."""
    secrets: list[str] = []
    for key, value in properties.items():
        if isinstance(value, Mapping):
            secrets += _secrets_of(value)
        elif isinstance(value, str) and any(word in key.lower() for word in _SECRET):
            secrets += [value, *value.split(":", 1)]
    return secrets
