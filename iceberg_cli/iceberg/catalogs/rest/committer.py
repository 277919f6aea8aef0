"""Tables of a REST catalog: requests of updates and requirements, from which the server writes the metadata.

A request that was sent and has no clear answer may come in at any later time. It cannot any more only once a ref that
it asserts has moved, or the table's numbers have passed those of the snapshot that it adds; a metadata location that
moved proves nothing.

Spec: Iceberg REST catalog specification, `loadTable`, `updateTable`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import requests

from iceberg_cli.encoding.strict_json import dumps
from iceberg_cli.errors import (
    AccessDenied,
    BackendUnavailable,
    CommitConflict,
    IcebergCliError,
    TableNotFound,
)
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.rest.client import Loaded, RestClient
from iceberg_cli.iceberg.catalogs.rest.commit_marks import (
    has_moved_on,
    is_marked,
    log_of,
    mark_of,
    removes_snapshots,
    retention_of,
    snapshot_of,
    with_single_removals,
    wrong_numbers,
)
from iceberg_cli.iceberg.catalogs.rest.connection import (
    DENIED,
    NoAnswer,
    RestConnection,
    object_of,
    text_of,
    wait_of,
)
from iceberg_cli.iceberg.catalogs.rest.lost_fields import lost_fields
from iceberg_cli.iceberg.catalogs.rest.renewal import CredentialsRenewal
from iceberg_cli.iceberg.catalogs.rest.signing import RemoteSigner
from iceberg_cli.iceberg.commit.draft import OPERATION_ID
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.operation.outcomes import (
    Attempt,
    Committed,
    Conflict,
    Outcome,
    SentAttempts,
    Unknown,
    digest_of,
)
from iceberg_cli.storage import StorageCredential
from iceberg_cli.storage.credential_options import with_options
from iceberg_cli.storage.router import open_storage

if TYPE_CHECKING:
    from iceberg_cli.iceberg.commit.update import Commit
    from iceberg_cli.storage import Storage

_TOO_LARGE: Final = 413
_REFUSED: Final = frozenset({400, 409, 422, _TOO_LARGE})
_NOT_DONE: Final = DENIED | {404, 429}  # the specification's answers to what was not carried out
# Servers that are built on Iceberg up to 1.8 say this of a removal of several snapshots in one update.
_NOT_PARSED: Final = frozenset({400, 500})
_ONE_EXPECTED: Final = "Expected one value but received"
# Servers that let no client set properties, or not this one, name the one or the other.
_REFUSING_MARKS: Final = frozenset({400, 403, 422})
_MARK_NAMED: Final = re.compile(rf"{re.escape(OPERATION_ID)}|set.?propert|table propert", re.IGNORECASE)
_LONGEST_WAIT_S: Final = 60  # for a server that is busy
_NESSIE: Final = "nessie."


class RestCommitter(Committer):
    """One table of a REST catalog.

    Args:
        catalog_name: as it is configured.
        namespace: its levels, from the outermost.
        table: its name.
        properties: the catalog's, as PyIceberg names them.
        storage_options: come before what the server gives for the table's storage.
        connection: to the catalog; None: one of its own.

    Raises:
        UsageError: the configuration is incomplete or contradicts itself.
        TableNotFound: there is no such table.
        BackendUnavailable: the server did not answer, or not as the specification has it.
    """

    writes_metadata = False

    def __init__(
        self,
        catalog_name: str,
        namespace: tuple[str, ...],
        table: str,
        properties: Mapping[str, Any],
        storage_options: Mapping[str, str],
        connection: RestConnection | None = None,
    ) -> None:
        self._levels, self._table = namespace, table
        self._client = RestClient(catalog_name, namespace, table, properties, connection)
        self._sent = SentAttempts()
        self._one_by_one = False  # whether the server removes one snapshot an update
        # Whether it lets nobody set the property by which a commit is known again.
        self._refuses_marks = False
        # Whether it was seen to add a snapshot without holding its numbers against the table's.
        self._overlooks_numbers = False
        # Of metadata by its location, as the server shows it.
        self._fields: dict[str, frozenset[str] | None] = {}
        opened = self._load()
        self._opened: str | None = opened.location
        which: dict[str, Any] = {
            "catalog_name": catalog_name,
            "namespace": namespace,
            "table": table,
            "properties": properties,
            "client": self._client,
        }
        general = with_options(self._client.storage_options(), opened.options)
        signer = RemoteSigner(**which, loaded=opened)
        self.storage_options: Mapping[str, str] = with_options(general, storage_options)
        self.credentials: Sequence[StorageCredential] = tuple(
            StorageCredential(
                prefix=prefix,
                options=with_options(with_options(general, options), storage_options),
                renewal=CredentialsRenewal(**which, prefix=prefix, options=storage_options),
                signer=signer,
            )
            for prefix, options in {"": {}, **opened.credentials}.items()
        )
        self._storage: Storage = open_storage(self.storage_options, credentials=self.credentials)

    def read_only_reason(self) -> str | None:
        """Why the server takes no commit that maintains a table, or None."""
        if not self._client.takes_commits:
            return "its catalog does not take commits: updateTable is not among its endpoints"
        return None

    def takes_late_requests(self) -> bool:
        """Whether one may replace what was committed meanwhile: each asserts refs, by which `settle` answers."""
        return False

    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        """Nothing: the specification has the server hold requirements."""

    def hidden_snapshots_reason(self) -> str | None:
        """Why there may be snapshots that the server does not show, or None."""
        if any(key.startswith(_NESSIE) for key in self._client.properties):
            return (
                "its catalog is Nessie, which shows only the current snapshot, refuses the removal of snapshots, and "
                "keeps no metadata log in which a commit could be found again"
            )
        return None

    def lost_fields_reason(self, metadata: TableMetadata, location: str) -> str | None:
        """Why a commit would lose some of the table, or None: the server shows it without what it does not know.

        Args:
            metadata: as the table's file has it.
            location: of that file, to which the table was seen to point.
        """
        shown = self._fields.get(location)
        lost = [] if shown is None else lost_fields(metadata, shown)
        if not lost:
            return None
        return f"its catalog does not know fields that the table has, and each commit loses them: {', '.join(lost)}"

    def current(self) -> str:
        """The metadata location that the server names; the first answer is what opening the table brought.

        Raises:
            TableNotFound, BackendUnavailable.
        """
        opened, self._opened = self._opened, None
        return opened or self._load().location

    def _load(self) -> Loaded:
        loaded = self._client.load()
        self._fields[loaded.location] = loaded.fields
        return loaded

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """The request. A commit without a snapshot gets a property by which it is known again, if the server lets it.

        Raises:
            CommitConflict: a requirement does not hold.
        """
        from iceberg_cli.iceberg.commit.update import check

        if reason := check(commit.requirements, commit.base):
            raise CommitConflict(f"Cannot commit on top of {base_location}: {reason}")
        if not commit.recorded:
            commit = self._as_the_server_takes_it(commit)
        request = {
            "identifier": {"namespace": list(self._levels), "name": self._table},
            "requirements": [requirement.to_json() for requirement in commit.requirements],
            "updates": [update.to_json() for update in commit.updates],
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

    def _as_the_server_takes_it(self, commit: Commit) -> Commit:
        from iceberg_cli.iceberg.commit.update import SetProperties, requirements_for

        updates = tuple(with_single_removals(commit)) if self._one_by_one else commit.updates
        if self._overlooks_numbers:
            every = requirements_for(commit.updates, commit.base, every_ref=True)
            commit = replace(commit, requirements=every)
        if snapshot_of(commit) is None and not self._refuses_marks:
            updates = (*updates, SetProperties(updates={OPERATION_ID: commit.commit_uuid}))
        return replace(commit, updates=updates, recorded=True)

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
            return Conflict(reason=reason, seen=loaded.location) if first else self.settle(attempt)
        if stale := attempt.why_stale([]):
            return Conflict(reason=stale) if first else Unknown(cause=stale)
        # A key belongs to the first try: how old that is, a later one cannot tell.
        key = attempt.commit.commit_uuid if first and self._client.takes_keys else None
        outcome, wait_s = self._send(attempt, loaded.token, key, first=first)
        if isinstance(outcome, Unknown) and wait_s is not None:
            time.sleep(wait_s)
            outcome, _ = self._send(attempt, loaded.token, key, first=False)
        return outcome

    def _send(
        self, attempt: Attempt, token: str | None, key: str | None, *, first: bool
    ) -> tuple[Outcome, float | None]:
        """Send the request once; and after how many seconds it may be sent again if nothing is known then, or None."""
        # The server knows a request with a key again, and has told what came of it or carries it out once.
        wait_s = 0.0 if key else None
        try:
            answer = self._client.post(attempt.data, token=token, key=key)
        except NoAnswer as error:
            if first and not error.sent:
                raise BackendUnavailable(
                    f"Cannot send the commit of {self._client.name} to its catalog: {error}"
                ) from error
            return self._doubtful(attempt, f"the catalog gave no answer: {error}"), wait_s
        if answer.status_code == requests.codes.unavailable:
            requested_s = wait_of(answer)
            too_long = requested_s is not None and requested_s > _LONGEST_WAIT_S
            wait_s = None if too_long else requested_s
        return self._outcome(attempt, answer, first=first), wait_s

    def settle(self, attempt: Attempt) -> Outcome:
        """Look for the commit's mark in every version since its base.

        Committed: it is there. Conflict: it is not, and a ref that the request asserts has moved, or the numbers of the
        table have passed those of its snapshot, so that it can only fail. Unknown: neither, or the metadata log does
        not reach back to the base.
        """
        return self._settled(attempt).outcome

    def _settled(self, attempt: Attempt) -> _Settlement:
        """See `settle`."""
        from iceberg_cli.iceberg.commit.update import check, why_outrun

        commit = attempt.commit
        try:
            now = self._load().location
            metadata = self._read(now)
            versions = list(self._versions_since(attempt.base, now, metadata))
        except (IcebergCliError, FileNotFoundError) as error:
            return _Settlement(Unknown(cause=f"the table could not be read back: {error}"))
        trimmed = now != attempt.base and attempt.base not in log_of(metadata)
        cut_off = f"the metadata log of {now} does not reach back to {attempt.base}"
        ours = [version for version in versions if is_marked(version[1], commit)]
        if ours:
            location, version = ours[-1]
            # The version that the commit made may be one of those that were cut off.
            withheld: str | None = cut_off
            if trimmed and removes_snapshots(commit):
                former = next(reversed(log_of(version)), None)
            else:
                withheld, former = self._changed_between(attempt, location, version)
            outcome = Committed(
                metadata_location=location,
                withheld=withheld,
                former=former,
                oversight=None if trimmed else self._oversight(commit, version),
            )
            return _Settlement(outcome, is_whole=not trimmed)
        reason = check(commit.requirements, metadata)  # type: ignore[attr-defined]
        if not self._overlooks_numbers:
            reason = reason or why_outrun(commit.updates, metadata)  # type: ignore[arg-type]
        # Where there never is a log, what only adds a snapshot may be planned again: its files stay in any case.
        has_no_log = self.hidden_snapshots_reason() is not None and not removes_snapshots(commit)
        if trimmed and not (reason and has_no_log):
            return _Settlement(Unknown(cause=f"the table has moved, and {cut_off}"))
        if reason:
            return _Settlement(Conflict(reason=reason, may_arrive=True, seen=now), is_whole=not trimmed)
        unknown = Unknown(cause=f"no effect of it shows at {now}, and it may still arrive")
        return _Settlement(unknown, is_whole=True, has_moved_on=has_moved_on(metadata, commit))

    def _outcome(self, attempt: Attempt, answer: requests.Response, *, first: bool) -> Outcome:
        """By the status of an answer, see the specification's responses of `updateTable`."""
        code, reason = answer.status_code, self._client.reason(answer)
        if code == requests.codes.ok:
            try:
                location = text_of(object_of(answer), "metadata-location")
                metadata = self._read(location)
                if is_marked(metadata, attempt.commit) and log_of(metadata)[-1:] == [attempt.base]:
                    oversight = self._oversight(attempt.commit, metadata)
                    return Committed(metadata_location=location, oversight=oversight)
                # It names a later version than ours, or ours follows one that others made meanwhile, or an earlier try.
                outcome = self.settle(attempt)
            except (IcebergCliError, FileNotFoundError) as error:
                outcome = self._doubtful(attempt, f"the catalog's answer cannot be used: {error}")
            # Of a table without a log only the answer tells of a commit that another one followed at once.
            if (
                isinstance(outcome, Conflict)
                and outcome.seen
                and _adds_shown_snapshot(attempt.commit, answer)
            ):
                return Committed(metadata_location=outcome.seen)
            return outcome
        one_by_one = code in _NOT_PARSED and _ONE_EXPECTED in reason and not self._one_by_one
        marked = mark_of(attempt.commit) is not None and not self._refuses_marks
        refuses_mark = code in _REFUSING_MARKS and marked and _MARK_NAMED.search(reason) is not None
        if code in _REFUSED or one_by_one or refuses_mark:
            # Where something between us and the server sent it twice, the first of the two may have come in.
            settlement = self._settled(attempt)
            settled = settlement.outcome
            if not (first and settlement.is_whole) or isinstance(settled, Committed):
                return settled
            if isinstance(settled, Conflict):
                return replace(settled, may_arrive=False)
            self._one_by_one |= one_by_one
            self._refuses_marks |= refuses_mark
            # Where another writer was faster, whatever it says may be about what the table is by now.
            for_good = code == _TOO_LARGE or not (
                code == requests.codes.conflict or one_by_one or refuses_mark or settlement.has_moved_on
            )
            return Conflict(
                reason=f"the catalog refuses it, {code}: {reason}",
                for_good=for_good,
                too_large=code == _TOO_LARGE,
            )
        if code not in _NOT_DONE or not first:
            return self._doubtful(attempt, f"the catalog answered {code}: {reason}")
        words = f"Cannot commit to {self._client.name}: the catalog answered {code}: {reason}"
        if code in DENIED:
            raise AccessDenied(words)
        if code == requests.codes.not_found:
            raise TableNotFound(words)
        raise BackendUnavailable(words)

    def _oversight(self, commit: Any, metadata: TableMetadata) -> str | None:
        """What the server let pass when it made a version by a commit, or None. From then on it is to hold every ref.

        Two branches may have moved at once, and then the second snapshot's numbers were those of the first.
        """
        oversight = wrong_numbers(commit, metadata)
        if oversight is None:
            return None
        self._overlooks_numbers = True
        return (
            f"The catalog of {self._client.name} let a commit pass that it should have refused: {oversight}. Let no "
            "two writers commit to branches of this table at once"
        )

    def _doubtful(self, attempt: Attempt, cause: str) -> Outcome:
        settled = self.settle(attempt)
        return Unknown(cause=f"{cause}; {settled.cause}") if isinstance(settled, Unknown) else settled

    def _changed_between(
        self, attempt: Attempt, location: str, metadata: TableMetadata
    ) -> tuple[str | None, str | None]:
        """Why nothing may be deleted after a commit, and the metadata file that has what went; see `Committed`.

        What it was built upon is not what we saw, and this was lost.
        """
        commit = attempt.commit
        log = log_of(metadata)
        before = log[-1] if log else None
        if before == attempt.base or not removes_snapshots(commit):
            return None, None
        if before is None:
            return f"{location} does not say which version came before it", None
        try:
            former = self._read(before)
        except (IcebergCliError, FileNotFoundError) as error:
            return f"the version before, which others made meanwhile, cannot be read: {error}", None
        base: TableMetadata = commit.base  # type: ignore[attr-defined]
        new = {name: ref for name, ref in former.refs.items() if name not in base.refs}
        if gone := sorted(
            name
            for name, ref in new.items()
            if name not in metadata.refs or metadata.snapshot(ref.snapshot_id) is None
        ):
            return (
                f"{', '.join(gone)}, made meanwhile, went with it: see {before}, the version before",
                before,
            )
        keeps_more = any(ref.min_snapshots_to_keep or ref.max_snapshot_age_ms for ref in new.values())
        if keeps_more or retention_of(former, base) != retention_of(base, base):
            return f"retention was changed meanwhile by {before}, the version before", before
        return None, None

    def _versions_since(
        self, base: str, now: str, metadata: TableMetadata
    ) -> Iterator[tuple[str, TableMetadata]]:
        """Location and content of the versions after `base`, the newest first, as far back as the log goes."""
        if now == base:
            return
        yield now, metadata
        for location in reversed(log_of(metadata)):
            if location == base:
                return
            yield location, self._read(location)

    def _read(self, location: str) -> TableMetadata:
        return TableMetadata.from_json(
            decode_metadata_file(self._storage.read(location), location), path=location
        )


class _Settlement(NamedTuple):
    """What the table shows of a commit.

    Args:
        outcome: see `RestCommitter.settle`.
        is_whole: whether every version since the base was looked at.
        has_moved_on: whether others have added snapshots since.
    """

    outcome: Outcome
    is_whole: bool = False
    has_moved_on: bool = False


def _adds_shown_snapshot(commit: Any, answer: requests.Response) -> bool:
    """Whether an answer shows the table with the snapshot that a commit adds, and no ref may have gone with it."""
    if removes_snapshots(commit):
        return False
    try:
        shown = object_of(answer)["metadata"]["snapshots"]
        return any(each["snapshot-id"] == snapshot_of(commit) for each in shown)
    except (BackendUnavailable, KeyError, TypeError):
        return False
