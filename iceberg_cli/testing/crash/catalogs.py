"""Catalogs of Iceberg tables in a simulated world, whose answers can get lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

from iceberg_cli.errors import BackendUnavailable, Refused, TableNotFound
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.catalogs.compare_and_swap import SwapCommitter
from iceberg_cli.iceberg.commit.update import Commit, check, effects_visible, why_outrun, with_updates
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
from iceberg_cli.paths import canonical
from iceberg_cli.testing.crash.world import SimStorage, World


class SimCommitter(SwapCommitter):
    """A catalog with compare and swap, as a SQL one is."""

    def __init__(self, storage: SimStorage) -> None:
        super().__init__(storage)
        self._world_storage = storage
        self._swaps = list(storage.script.swaps)

    def takes_late_requests(self) -> bool:
        """Whether one may replace what was committed meanwhile: each names the pointer that it replaces."""
        return False

    def hidden_snapshots_reason(self) -> str | None:
        """None: the metadata file has all of them."""
        return None

    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        """Nothing: a world keeps its word."""

    def current(self) -> str:
        """The pointer."""
        if self._world_storage.world.pointer is None:
            raise TableNotFound("Cannot find the table in the simulated catalog.")
        return self._world_storage.world.pointer

    def _swap(self, attempt: Attempt) -> bool | Unknown:
        world = self._world_storage.world
        fate = self._swaps.pop(0) if self._swaps else ""
        done: list[bool] = []

        def swap() -> None:
            done.append(fate != "lost" and world.pointer == attempt.base)
            if done[-1]:
                world.pointer = attempt.target

        if fate == "refused":
            return False
        if fate == "down":
            raise BackendUnavailable("Cannot reach the catalog: connection refused")
        self._world_storage.effect(f"swap {attempt.target}", swap)
        if fate in ("lost", "lost after"):
            return Unknown(cause="no answer")
        return done[-1]


class ServingCommitter(Committer):
    """A catalog that gets updates and requirements and writes the metadata itself, as a REST catalog does."""

    def __init__(self, storage: SimStorage) -> None:
        self._storage = storage
        self._sent = SentAttempts()
        self._fates = list(storage.script.swaps)

    def read_only_reason(self) -> str | None:
        """None: anybody may commit."""
        return None

    def takes_late_requests(self) -> bool:
        """Whether one may replace what was committed meanwhile: each asserts refs, by which `settle` answers."""
        return False

    def hidden_snapshots_reason(self) -> str | None:
        """None: it shows all of them."""
        return None

    def lost_fields_reason(self, metadata: TableMetadata, location: str) -> str | None:  # noqa: ARG002 - the port's
        """None: it knows every field."""
        return None

    def prove(self, path: str, properties: Mapping[str, str]) -> None:
        """Nothing: a world keeps its word."""

    def current(self) -> str:
        """The pointer."""
        assert self._storage.world.pointer is not None
        return self._storage.world.pointer

    def prepare(self, commit: Commit, *, base_location: str) -> Attempt:
        """The request; where the metadata will be is the catalog's business."""
        request = json.dumps([update.to_json() for update in commit.updates]).encode()
        return Attempt(
            commit=commit,
            base=base_location,
            target=None,
            data=request,
            digest=digest_of(request),
            name_is_unique=False,
        )

    def commit(self, attempt: Attempt) -> Outcome:
        """Send it, with what the script has for it."""
        first = self._sent.first(attempt)
        if stale := attempt.why_stale([]):
            return Conflict(reason=stale) if first else Unknown(cause=stale)
        fate = self._fates.pop(0) if self._fates else ""
        if fate == "down":
            raise BackendUnavailable("Cannot reach the catalog: connection refused")
        request = partial(_serve, commit=_commit_of(attempt))
        answers: list[str | Conflict] = [Conflict(reason="refused")] if fate == "refused" else []

        def send() -> None:
            if fate == "late":
                self._storage.world.late.append(request)
            elif fate != "lost":
                answers.append(request(self._storage.world))

        if not answers:
            self._storage.effect("swap by the catalog", send)
        if fate in ("lost", "lost after", "late"):
            return self.settle(attempt)
        (answer,) = answers
        if not first:
            # One that was sent before may have come in before this one, and be what moved the table or dropped a ref.
            return self.settle(attempt)
        return self._committed(attempt, answer) if isinstance(answer, str) else answer

    def settle(self, attempt: Attempt) -> Outcome:
        """By the attempt's own marks in every version since its base: its snapshot or, without one, its effects.

        Where there is none, only a requirement that does not hold any more, or numbers that the table has passed, prove
        that it can never come in.
        """
        commit, now = _commit_of(attempt), self.current()
        try:
            metadata = self._read(now)
            versions = [*(entry.metadata_file for entry in metadata.metadata_log), now]
            trimmed = attempt.base not in versions
            for location in versions if trimmed else versions[versions.index(attempt.base) + 1 :]:
                if effects_visible(commit.updates, self._read(location)):
                    return self._committed(attempt, location)
        except FileNotFoundError as error:
            return Unknown(cause=f"a version since {attempt.base} is not there any more: {error}")
        if trimmed:
            return Unknown(cause=f"the log of {now} does not reach back to {attempt.base}")
        if reason := check(commit.requirements, metadata) or why_outrun(commit.updates, metadata):
            return Conflict(reason=reason, may_arrive=True)
        return Unknown(cause=f"no effect of it shows at {now}, and it may still arrive")

    def _committed(self, attempt: Attempt, location: str) -> Committed:
        """Nothing may be deleted where the catalog dropped a ref that was made between our look and the commit."""
        metadata, seen = self._read(location), _commit_of(attempt).base.refs
        before = metadata.metadata_log[-1].metadata_file
        dropped = sorted(self._read(before).refs.keys() - seen.keys() - metadata.refs.keys())
        withheld = f"{', '.join(dropped)} went with it, see the version before, {before}" if dropped else None
        return Committed(metadata_location=location, withheld=withheld, former=before if dropped else None)

    def _read(self, location: str) -> TableMetadata:
        return TableMetadata.from_json(json.loads(self._storage.read(location)), path=location)


def _commit_of(attempt: Attempt) -> Commit:
    assert isinstance(attempt.commit, Commit)
    return attempt.commit


def _serve(world: World, commit: Commit) -> str | Conflict:
    """The new metadata location of a catalog that holds requirements and numbers against what is current by then."""
    now = world.pointer
    assert now is not None
    metadata = TableMetadata.from_json(json.loads(world.files[canonical(now)]), path=now)
    if reason := check(commit.requirements, metadata):
        return Conflict(reason=reason)
    try:
        after = with_updates(
            metadata, commit.updates, base_location=now, timestamp_ms=commit.timestamp_ms
        ).to_json()
    except Refused as error:
        return Conflict(reason=error.message)
    version = int(now.rpartition("/")[2].partition("-")[0]) + 1
    world.pointer = f"{metadata.location}/metadata/{version:05d}-served.metadata.json"
    world.write(canonical(world.pointer), json.dumps(after).encode())
    return world.pointer
