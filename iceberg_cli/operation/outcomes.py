"""What became of a commit: three outcomes, which are matched, all of them.

`Conflict` is a proof that our commit did not and will not happen; whatever is less than a proof is `Unknown`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Update(Protocol):
    """One change of a commit."""

    def to_json(self) -> dict[str, Any]:
        """For the journal: the whole change, or what names it where its bytes are kept elsewhere."""
        ...


class AnyCommit(Protocol):
    """What the journal records of a commit, whatever the format."""

    @property
    def updates(self) -> Sequence[Update]:
        """The changes."""
        ...

    @property
    def timestamp_ms(self) -> int:
        """The commit's own time."""
        ...

    @property
    def commit_uuid(self) -> str:
        """Drawn for this attempt alone."""
        ...


def _never_stale(_written: Sequence[str]) -> None:
    """Nothing can have happened to the files of a commit since it was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one commit, decided before any byte is written, so that it can be journalled first."""

    commit: AnyCommit
    base: str  # metadata location that the swap expects to find; Delta: the table's version
    # Metadata location that the swap puts in its place; Delta: the commit's file. None where the catalog writes the
    # metadata itself: then only the outcome has it.
    target: str | None
    data: bytes  # content of the file at `target`, encoded as its name says, or of the request
    digest: str  # SHA-256 of data, hexadecimal
    name_is_unique: bool  # the metadata location carries a UUID of ours: nobody else can have written it
    temporary_files: tuple[
        str, ...
    ] = ()  # files that may stay behind after a crash and that nobody ever references
    # True only where `commit_uuid` was drawn just now, so that nobody can have sent it before. A refusal is
    # then a proof without any reading back. A resumed attempt leaves it False.
    fresh: bool = False
    # Path to bytes: what the commit references. The caller writes them before it commits; a committer never does.
    files: Mapping[str, bytes] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)  # result columns that only this attempt knows
    # Why the swap must not happen any more, or None; asked right before it with the files that the committer wrote for
    # it. A process that stood still for days may come back to files that a cleanup took meanwhile.
    why_stale: Callable[[Sequence[str]], str | None] = field(default=_never_stale, compare=False)

    @property
    def file(self) -> str:
        """`target`, for committers that write it themselves."""
        assert self.target is not None
        return self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The table is now at `metadata_location`.

    `withheld`: why no file may be deleted although it is, or None. `former`: the metadata file that has what went and
    is to be saved, or None. `oversight`: what the catalog let pass and should have refused, for the report, or None.
    """

    metadata_location: str
    withheld: str | None = None
    former: str | None = None
    oversight: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The swap was refused and cannot happen: the base has moved.

    `for_good`: it would be refused again however often it is tried. `too_large`: a smaller one might not be.
    `may_arrive`: a request of it may still be under way, which a catalog would take if what it is held against came
    back; what it names must stay. `seen`: where the table was found to be when that was found out, or None.
    """

    reason: str
    for_good: bool = False
    too_large: bool = False
    may_arrive: bool = False
    seen: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The swap may have happened, or may happen later.

    `may_be_replaced`: it was seen to have happened, or that the table went elsewhere, and a request that the catalog
    may not refuse may still put another version in that one's place: only the committer can tell when that is over.
    """

    cause: str
    may_be_replaced: bool = False


Outcome = Committed | Conflict | Unknown


def digest_of(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class SentAttempts:
    """The attempts that this object's owner has sent."""

    def __init__(self) -> None:
        self._commits: set[str] = set()

    def first(self, attempt: Attempt) -> bool:
        """Is it certain that nobody sent this attempt before? From now on it is not."""
        commit_uuid = attempt.commit.commit_uuid
        first = attempt.fresh and commit_uuid not in self._commits
        self._commits.add(commit_uuid)
        return first
