"""Plans and their parts: plain values that can be printed, saved, compared and refused.

The JSON form is `plan/2` of the command line. Snapshot ids and other 64-bit ids are strings there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from iceberg_cli.plan.text import iso

if TYPE_CHECKING:
    from iceberg_cli.plan.groups import Groups
    from iceberg_cli.plan.removals import Removals

PLAN_SCHEMA = "iceberg-cli/plan/2"
PARTITION = "partition"  # the subject of verdicts on files that stay as they are
SNAPSHOT_IDS = (
    "snapshot-ids"  # of an update, as is the next; the only ids of snapshots that updates of a plan have
)
SNAPSHOT_ID = "snapshot-id"
REF_NAME = "ref-name"  # of an update


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The version of a table that a plan was made from.

    `version` is the metadata location (Iceberg) or the table version (Delta).
    """

    table_uuid: str
    version: str
    refs: Mapping[str, int] = field(default_factory=dict)
    last_sequence_number: int = 0
    next_row_id: int | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form; ids as strings."""
        return {
            "table_uuid": self.table_uuid,
            "version": self.version,
            "refs": {name: str(snapshot_id) for name, snapshot_id in sorted(self.refs.items())},
            "last_sequence_number": str(self.last_sequence_number),
            "next_row_id": None if self.next_row_id is None else str(self.next_row_id),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The value of an option, and where it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Voucher:
    """What the operator vouches for by an option, since it cannot be seen from here.

    Args:
        option: as on the command line.
        value: what it is about, such as an endpoint.
        sentence: what is vouched for.
    """

    option: str
    value: str
    sentence: str

    def __str__(self) -> str:
        """For the notes of a report."""
        return f"{self.option}: {self.sentence}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision to keep one candidate or not, and the reason.

    `gist` is the reason without what differs from one candidate to the next, such as its age: those that have it in
    common are shown together. Empty: the reason itself.
    """

    subject: str  # snapshot, branch, tag, schema, partition-spec
    id: str
    keep: bool
    reason: str
    timestamp_ms: int | None = None
    gist: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "subject": self.subject,
            "id": self.id,
            "keep": self.keep,
            "reason": self.reason,
            "timestamp_ms": self.timestamp_ms,
            "timestamp": iso(self.timestamp_ms),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A new file to build from old ones. Equal tasks build equal files."""

    name: str  # unique in the step; part of the new file's name
    kind: str
    inputs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {"name": self.name, "kind": self.kind, "inputs": list(self.inputs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file that was written for a task and that nothing references yet.

    `row` has what its parent must record of it, by the format's own field names; what exists only once the base is
    known is absent.
    """

    path: str
    row: Mapping[str, Any] = field(default_factory=dict)


class Draft(Protocol):
    """A snapshot without the numbers that exist only once the base is known; the format's own type."""

    def to_json(self) -> dict[str, Any]:
        """JSON form, for operators."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDraft:
    """The JSON form of a draft in a saved plan. To be carried out, the draft is made again."""

    document: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The JSON form as it was saved."""
        return dict(self.document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The content of a commit, in the wire form of the format: Iceberg's REST updates, Delta's draft actions.

    `draft` is the snapshot that the commit makes after its updates, if it makes one. Neither carries a number that
    exists only once the base is known. `counts` are the result columns that the commit adds to the report.
    """

    updates: tuple[Mapping[str, Any], ...] = ()
    draft: Draft | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "updates": [_with_text_ids(update) for update in self.updates],
            "draft": None if self.draft is None else self.draft.to_json(),
            "counts": dict(self.counts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a plan: stage, bind, commit and sweep, any part absent."""

    name: str
    requires: str | None = None  # what must hold when it starts, in words
    # Carried out as it was shown, without planning again, right after the commit of the step before it: it records
    # that step, as VACUUM END does. Where that step committed nothing, it is left out.
    unconditional: bool = False
    tasks: tuple[Task, ...] = ()
    change: Change | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "name": self.name,
            "requires": self.requires,
            "unconditional": self.unconditional,
            "tasks": [task.to_json() for task in self.tasks],
            "change": None if self.change is None else self.change.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedFiles:
    """The files among those that go that are tagged and not deleted: the owner of their storage turned deletions off.

    Args:
        count: of these files.
        size_bytes: of those whose size is known; nothing of it is freed by the plan.
        tags: that they get.
        option: of the storage, by which deletions are off.
    """

    count: int
    size_bytes: int
    tags: Mapping[str, str]
    option: str

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "count": self.count,
            "bytes": self.size_bytes,
            "tags": dict(self.tags),
            "option": self.option,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFiles:
    """What a plan was made from where files are looked for that nothing names.

    Args:
        files: that were found.
        size_bytes: of these.
        folders: that were looked through.
        inventory_ms: when the inventory was made that was taken in place of a listing, in ms since the epoch, or None.
    """

    files: int
    size_bytes: int
    folders: tuple[str, ...]
    inventory_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "files": self.files,
            "bytes": self.size_bytes,
            "folders": list(self.folders),
            "inventory_ms": self.inventory_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one verb for one table: what it would do, and why."""

    verb: str  # its name on the command line
    table: Mapping[str, Any]  # name as typed, location, format, format_version
    base: Base
    as_of_ms: int
    options: Mapping[str, Option]
    policy: Mapping[str, Any]  # the operator's; planning again starts from it
    verdicts: tuple[Verdict, ...] = ()
    warnings: tuple[str, ...] = ()
    lasting: tuple[
        str, ...
    ] = ()  # those warnings that are about files which stay for ever: --quiet prints them too
    blocked_by: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    grace_ms: int = 0
    removals: Removals | None = None  # None until it is found out which files go
    tagged: TaggedFiles | None = None  # those of `removals` that are not deleted
    listed: ListedFiles | None = None
    groups: Groups | None = None  # of files that its last step rewrites, by many commits
    reason: str | None = None  # what there is to do, in counts: 9 manifests where 1 would do
    early: str | None = None  # why it does not count as due yet, in words
    not_applicable: str | None = None  # why the verb has nothing to do on such a table at all, in words
    states: tuple[str, str] | None = (
        None  # where it changes which is current: what names those before and after it
    )
    difference: Mapping[str, Any] | None = None  # of these, as a document of `inspect` has it
    undoes: Mapping[str, str] | None = None  # the operation that it takes back: `operation_id`, `operation`

    def step(self, name: str) -> Step | None:
        """The step of a name, if it has one."""
        return next((step for step in self.steps if step.name == name), None)

    @property
    def due(self) -> bool:
        """Whether there is something to do."""
        return bool(self.steps)

    @property
    def deletes(self) -> tuple[int, int]:
        """Number and bytes of the files that it deletes, which are those that go but for the ones that are tagged."""
        if self.removals is None:
            return 0, 0
        count, size_bytes = (0, 0) if self.tagged is None else (self.tagged.count, self.tagged.size_bytes)
        return self.removals.count - count, self.removals.size_bytes - size_bytes

    @property
    def offer(self) -> str | None:
        """Why it does not count as due, though it can be carried out; None where it does."""
        return "a decision with no way back" if self.has_no_way_back else self.early

    @property
    def counts_as_due(self) -> bool:
        """Whether there is something to do that nobody has to ask for by name."""
        return self.due and self.offer is None

    @property
    def has_no_way_back(self) -> bool:
        """Whether it changes what a client must know of the format: no later commit undoes that."""
        return self.format_version is not None or self.new_protocol

    @property
    def updates(self) -> Iterator[Mapping[str, Any]]:
        """The updates of its commits, in order."""
        return (update for step in self.steps if step.change is not None for update in step.change.updates)

    @property
    def removed_snapshot_ids(self) -> frozenset[int]:
        """The snapshots that its commits remove (Iceberg)."""
        return frozenset(
            snapshot_id for update in self.updates for snapshot_id in update.get(SNAPSHOT_IDS, ())
        )

    @property
    def removed_snapshots(self) -> Sequence[int]:
        """The same, the oldest first."""
        removed = self.removed_snapshot_ids
        times = {
            verdict.id: verdict.timestamp_ms or 0
            for verdict in self.verdicts
            if verdict.subject == "snapshot"
        }
        return sorted(removed, key=lambda snapshot_id: (times.get(str(snapshot_id), 0), snapshot_id))

    def limited_to(self, snapshot_ids: Collection[int]) -> Plan:
        """The same plan where its commits remove no other snapshots than these (Iceberg)."""
        return replace(self, steps=tuple(_limited_to(step, frozenset(snapshot_ids)) for step in self.steps))

    @property
    def only_adds_snapshots(self) -> bool:
        """Whether its commits add a snapshot each and change nothing else, and no file goes after them (Iceberg)."""
        changes = [step.change for step in self.steps if step.change is not None]
        deletes = self.removals is not None and self.removals.count > 0
        return not deletes and all(change.draft is not None and not change.updates for change in changes)

    @property
    def format_version(self) -> int | None:
        """The format version that it upgrades the table to, if it does."""
        upgrades = (update for update in self.updates if update.get("action") == "upgrade-format-version")
        return next((upgrade["format-version"] for upgrade in upgrades), None)

    @property
    def new_protocol(self) -> bool:
        """Whether it changes what a client must know to read or write the table (Delta)."""
        return any("protocol" in update for update in self.updates)

    def to_json(self, *, removals_file: str | None = None, inputs_file: str | None = None) -> dict[str, Any]:
        """The `plan/2` document, the same for the same plan.

        Args:
            removals_file: the name of the file with its removals, beside the document.
            inputs_file: the name of the file with the inputs of its groups, likewise.
        """
        removals = self.removals
        return {
            "schema": PLAN_SCHEMA,
            "operation": self.verb,
            "table": dict(self.table),
            "base": self.base.to_json(),
            "as_of_ms": self.as_of_ms,
            "as_of": iso(self.as_of_ms),
            "options": {
                name: {"value": option.value, "source": option.source}
                for name, option in self.options.items()
            },
            "policy": dict(self.policy),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "warnings": list(self.warnings),
            "lasting": list(self.lasting),
            "blocked_by": list(self.blocked_by),
            "steps": [step.to_json() for step in self.steps],
            "grace_ms": self.grace_ms,
            "removals": None
            if removals is None
            else {
                "count": removals.count,
                "bytes": removals.size_bytes,
                "by_kind": dict(removals.by_kind),
                "digest": removals.digest,
                "file": removals_file,
            },
            **({} if self.tagged is None else {"tagged": self.tagged.to_json()}),
            **({} if self.listed is None else {"listed": self.listed.to_json()}),
            **({} if self.groups is None else {"rewrite": self._rewrite(self.groups, inputs_file)}),
            **({} if self.difference is None else {"difference": dict(self.difference)}),
            **({} if self.undoes is None else {"undoes": dict(self.undoes)}),
            "due": self.due,
            "reason": self.reason,
            "offer": self.offer,
            "not_applicable": self.not_applicable,
        }

    def _rewrite(self, groups: Groups, inputs_file: str | None) -> dict[str, Any]:
        passed_by = [
            {"partition": each.id, "reason": each.reason}
            for each in self.verdicts
            if each.subject == PARTITION
        ]
        return {**groups.to_json(inputs_file=inputs_file), "passed_by": passed_by}

    def with_removals(self, removals: Removals, *, lasting: Sequence[str] = ()) -> Plan:
        """The same plan with the files that go, and a warning for each kind of files that stay for ever."""
        return replace(
            self,
            removals=removals,
            warnings=(*self.warnings, *lasting),
            lasting=(*self.lasting, *lasting),
        )

    def with_vouchers(self, vouchers: Sequence[Voucher]) -> Plan:
        """The same plan, with what the operator vouches for among its options."""
        vouched = {
            each.option.removeprefix("--").replace("-", "_"): Option(value=each.value, source=each.option)
            for each in vouchers
        }
        return replace(self, options={**self.options, **vouched}) if vouched else self

    def additions_over(self, shown: Plan) -> tuple[str, ...]:
        """What this plan would remove or change that `shown` does not list, in words; empty if nothing.

        Rule: a replan that would remove more than was shown stops the run.
        """
        seen = {(verdict.subject, verdict.id) for verdict in shown.verdicts if not verdict.keep}
        more = [
            f"{verdict.subject} {verdict.id}: {verdict.reason}"
            for verdict in self.verdicts
            if not verdict.keep and (verdict.subject, verdict.id) not in seen
        ]
        more.extend(
            f"{verdict.subject} {verdict.id}, which points to another snapshot now"
            for verdict in self.verdicts
            if not verdict.keep
            and verdict.subject in _REFS
            and self.base.refs.get(verdict.id) != shown.base.refs.get(verdict.id)
        )
        if self.removals is not None and shown.removals is not None:
            more.extend(f"file {path}" for path in self.removals.paths_outside(shown.removals))
            if shown.tagged is not None and self.deletes[0] > shown.deletes[0]:
                more.append(f"files for good, which were to be tagged by {shown.tagged.option}")
        return tuple(more)


def _with_text_ids(update: Mapping[str, Any]) -> dict[str, Any]:
    """An update with its snapshot ids as strings: JSON readers lose digits of large numbers."""
    written = dict(update)
    if SNAPSHOT_IDS in update:
        written[SNAPSHOT_IDS] = [str(snapshot_id) for snapshot_id in update[SNAPSHOT_IDS]]
    if SNAPSHOT_ID in update:
        written[SNAPSHOT_ID] = str(update[SNAPSHOT_ID])
    return written


def _limited_to(step: Step, snapshot_ids: Collection[int]) -> Step:
    if step.change is None:
        return step
    updates = tuple(
        {**update, SNAPSHOT_IDS: [each for each in update[SNAPSHOT_IDS] if each in snapshot_ids]}
        if SNAPSHOT_IDS in update
        else update
        for update in step.change.updates
    )
    return replace(step, change=replace(step.change, updates=updates))


_REFS = ("branch", "tag")  # subjects whose verdict is on the ref itself


def encode(document: Mapping[str, Any], *, indent: int | None = 2) -> bytes:
    """A document as UTF-8 JSON, one newline at the end; non-ASCII is escaped.

    Args:
        document: what to write.
        indent: in spaces; None for one line, which costs a third of the time.
    """
    return (json.dumps(document, indent=indent) + "\n").encode()
