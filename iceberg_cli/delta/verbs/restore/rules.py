"""restore on Delta: what a version brings back, what is taken back for it, and what that means. Nothing is read here.

Spec: "Add File and Remove File", "Change Metadata", "Protocol Evolution", "Row Tracking"; the commit is that of Delta
Spark's RESTORE, in its operation, parameters and metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.commit import CommitDraft
from iceberg_cli.delta.spec.actions import clash_of
from iceberg_cli.delta.spec.clustering import DOMAIN as CLUSTERING
from iceberg_cli.delta.spec.columns import ADD, concat
from iceberg_cli.delta.spec.features import supports
from iceberg_cli.delta.spec.iceberg_compat import UNIFORM, uniform_formats
from iceberg_cli.delta.spec.in_commit_timestamps import has_in_commit_timestamps
from iceberg_cli.delta.spec.protocol import (
    FILES_DEFAULT_MS,
    FILES_PROPERTY,
    LOG_DEFAULT_MS,
    LOG_PROPERTY,
    Metadata,
    Protocol,
)
from iceberg_cli.delta.spec.row_ids import DOMAIN as ROW_TRACKING_DOMAIN
from iceberg_cli.delta.spec.row_ids import FEATURE as ROW_TRACKING
from iceberg_cli.delta.spec.row_ids import SUSPENDED, domain_action, high_water_mark
from iceberg_cli.delta.spec.snapshot import Snapshot, repeated_add
from iceberg_cli.delta.verbs.restore.files import FileChanges, file_changes
from iceberg_cli.delta.verbs.restore.metadata import (
    domain_changes,
    kept_domains,
    merged_protocol,
    metadata_obstacles,
    restored_metadata,
)
from iceberg_cli.delta.verbs.restore.policy import VERB_NAME, Restore
from iceberg_cli.errors import CommitConflict
from iceberg_cli.plan.plan import Base, Change, Plan, Step, Verdict
from iceberg_cli.plan.text import age, count, iso, listed

COMMITTED_AS: Final = "RESTORE"
RESTORED, REMOVED = "restored_files_count", "removed_files_count"
RESTORED_BYTES, REMOVED_BYTES = "restored_bytes_count", "removed_bytes_count"
TAKEN_BACK: Final = "taken_back_versions_count"
COLUMNS: Final = (TAKEN_BACK, RESTORED, RESTORED_BYTES, REMOVED, REMOVED_BYTES)
_VERSION, _LATER, _OLD = "version", "later-version", "old-version"  # subjects of verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """A table and a version of it that is restored.

    Args:
        current: the table.
        target: the version.
        at_ms: the time by which it was named, in ms since the epoch, or None.
        files: that come back and leave.
        metadata: of the table then.
        protocol: of the table then.
        domains: actions of domains, but for row tracking's.
    """

    current: Snapshot
    target: Snapshot
    at_ms: int | None
    files: FileChanges
    metadata: Metadata
    protocol: Protocol
    domains: tuple[Mapping[str, Any], ...]

    @property
    def is_done(self) -> bool:
        """Whether the table is as it was."""
        same = self.metadata.with_plain_schema() == self.current.metadata.with_plain_schema()
        return self.files.is_empty and same and self.protocol == self.current.protocol and not self.domains

    def change(self, *, taken_back: int) -> Change:
        """The one commit; `taken_back` is the number of versions after the target."""
        files, target = self.files, self.target
        restored, removed = (_bytes_of(each) for each in (files.adds, files.removes))
        info = {
            "operation": COMMITTED_AS,
            "operationParameters": {"version": target.version, "timestamp": _timestamp(self.at_ms)},
            "operationMetrics": {
                "numRestoredFiles": files.adds.num_rows,
                "restoredFilesSize": restored,
                "numRemovedFiles": files.removes.num_rows,
                "removedFilesSize": removed,
                "numOfFilesAfterRestore": target.adds.num_rows,
                "tableSizeAfterRestore": _bytes_of(target.adds),
            },
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
        }
        changed = self.protocol != self.current.protocol
        updates = (
            {"commitInfo": info},
            {"metaData": self.metadata.to_json()},
            *([{"protocol": self.protocol.to_json()}] if changed else []),
            *self.domains,
            *self._mark(),
        )
        draft = CommitDraft(
            adds=concat([files.adds, files.numbered], ADD), removes=files.removes, repairs=True
        )
        counts = {
            TAKEN_BACK: taken_back,
            RESTORED: files.adds.num_rows,
            RESTORED_BYTES: restored,
            REMOVED: files.removes.num_rows,
            REMOVED_BYTES: removed,
        }
        return Change(updates=updates, draft=draft, counts=counts)

    def _mark(self) -> tuple[Mapping[str, Any], ...]:
        """The action of the high-water mark, where row ids are above it."""
        if not supports(self.protocol, ROW_TRACKING) or self.files.mark <= high_water_mark(self.current):
            return ()
        return (domain_action(self.current, self.files.mark),)


def _bytes_of(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)


def _timestamp(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def restoration(current: Snapshot, target: Snapshot, *, at_ms: int | None) -> Restoration:
    """What restoring a version changes.

    Args:
        current: the table.
        target: the version.
        at_ms: the time by which it was named, or None.

    Raises:
        CorruptFile: statistics, a schema or the mark of row ids cannot be read.
        InvalidMetadata: a property makes no sense.
    """
    protocol = merged_protocol(current.protocol, target.protocol)
    metadata = restored_metadata(current.metadata, target.metadata, before=current.protocol, after=protocol)
    tracks = supports(protocol, ROW_TRACKING)
    marks = [high_water_mark(each) for each in (current, target)] if tracks else [-1]
    files = file_changes(
        current.adds,
        target.adds,
        tracks=tracks,
        suspended=metadata.property_bool(SUSPENDED, default=False),
        mark=max(marks),
    )
    return Restoration(
        current=current,
        target=target,
        at_ms=at_ms,
        files=files,
        metadata=metadata,
        protocol=protocol,
        domains=domain_changes(current, target),
    )


def version_of(plan: Plan | None) -> int | None:
    """The version that a plan restores; None where it does nothing, or there is none."""
    infos = (
        update["commitInfo"] for update in (() if plan is None else plan.updates) if "commitInfo" in update
    )
    return next((int(info["operationParameters"]["version"]) for info in infos), None)


def check_unmoved(current: Snapshot, within: Plan | None) -> None:
    """Refuse to go on with a plan where others have committed since it was made.

    What they wrote was not shown, and would be taken back.

    Raises:
        CommitConflict: the table has another version than the plan was made from.
    """
    if within is None or within.base.version == str(current.version):
        return
    raise CommitConflict(
        f"Cannot restore {within.table['name']}: it was at version {within.base.version} when this was planned, and is "
        f"at version {current.version} now",
        state="The table was not changed.",
        next_step="Look at what others have committed, and plan again.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterVersion:
    """A version that is taken back: its commitInfo, and when it was made, in ms since the epoch, if that is known."""

    version: int
    info: Mapping[str, Any]
    timestamp_ms: int | None

    @property
    def text(self) -> str:
        """What it did and who made it, as its commitInfo says."""
        engine = self.info.get("engineInfo") or self.info.get("clientVersion")
        by = engine if isinstance(engine, str) else "an unnamed writer"
        operation = self.info.get("operation")
        return (
            f"{operation if isinstance(operation, str) else 'a commit that does not say what it did'} by {by}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What was found of the files that the target needs.

    Args:
        needed: how many files.
        gone: the first of those that are not there, and how many these are.
        other: the first of those that have another size, and how many these are.
        whole: versions between the target and the table's whose files are all there; None: not looked for.
    """

    needed: int
    gone: tuple[str, int] = ("", 0)
    other: tuple[str, int] = ("", 0)
    whole: Sequence[int] | None = None


def plan(
    change: Restoration,
    policy: Restore,
    *,
    base: Base,
    table: Mapping[str, Any],
    root: str,
    as_of_ms: int,
    lookup: Lookup | None = None,
    later: Sequence[LaterVersion] = (),
    warnings: Sequence[str] = (),
) -> Plan:
    """The plan of a restore.

    Args:
        change: what is restored.
        policy: the options.
        base: the version that the plan is made from.
        table: how the plan names the table.
        root: the table's storage path.
        as_of_ms: the "now" of every age, in ms since the epoch.
        lookup: what was found of the target's files; None where nothing is to be done.
        later: the versions after the target, newest first.
        warnings: of what was read.

    Returns:
        A plan of no step where the table is as it was at the target, else of one.
    """
    now, then = change.current, change.target
    about: dict[str, Any] = {
        "verb": VERB_NAME,
        "table": table,
        "base": base,
        "as_of_ms": as_of_ms,
        "options": {"to": policy.chosen("to"), **policy.chosen_or_none("allow_writer_loss")},
        "policy": policy.to_json(),
    }
    if change.is_done:
        newest = now.version == then.version
        same = "is the newest version" if newest else f"and version {now.version} are the same"
        reason = f"version {then.version} {same}"
        return Plan(**about, not_applicable=reason)
    named = f"version {then.version} of {iso(then.timestamp_ms)}"
    if change.at_ms is not None:
        named += f", the newest at {iso(change.at_ms)}"
    return Plan(
        **about,
        verdicts=tuple(_verdicts(change, later, named, as_of_ms=as_of_ms)),
        warnings=(*_warnings(change, later, as_of_ms=as_of_ms), *warnings),
        blocked_by=tuple(_obstacles(change, lookup, root=root)),
        steps=(Step(name=VERB_NAME, change=change.change(taken_back=now.version - then.version)),),
        reason=f"the table goes from version {now.version} to {named}",
        states=(str(now.version), str(then.version)),
    )


def _verdicts(
    change: Restoration, later: Sequence[LaterVersion], named: str, *, as_of_ms: int
) -> Iterator[Verdict]:
    now, then = change.current, change.target
    yield Verdict(
        subject=_VERSION,
        id=str(then.version),
        keep=False,
        reason=f"from version {now.version} to {named}",
        timestamp_ms=then.timestamp_ms,
        gist=f"from version {now.version}",
    )
    for each in later:
        yield Verdict(
            subject=_LATER,
            id=str(each.version),
            keep=False,
            reason=f"taken back: {each.text}",
            timestamp_ms=each.timestamp_ms,
            gist=each.text,
        )
    yield _way_back(change, as_of_ms=as_of_ms)


def _way_back(change: Restoration, *, as_of_ms: int) -> Verdict:
    """How long another restore takes this one back.

    Delta Spark's log cleanup takes a commit as soon as the log's retention has passed since it was made, and a
    checkpoint after it is there.
    """
    now, metadata = change.current, change.metadata
    files_ms = metadata.property_interval_ms(FILES_PROPERTY, FILES_DEFAULT_MS)
    log_ms = metadata.property_interval_ms(LOG_PROPERTY, LOG_DEFAULT_MS)
    until_ms = min(as_of_ms + files_ms, now.timestamp_ms + log_ms)
    surely, sign = f"surely until {iso(until_ms)}", ","
    if until_ms <= as_of_ms:
        surely, sign = "its commit is older than the log is kept, and may go with the next checkpoint", ";"
    leaving = count(change.files.removes.num_rows, "files")
    return Verdict(
        subject=_OLD,
        id=str(now.version),
        keep=True,
        reason=f"`restore TABLE --to {now.version}` takes this back, until VACUUM takes the {leaving} that leave, "
        f"{age(files_ms)} after this ({FILES_PROPERTY}), or log cleanup the commit of that version, {age(log_ms)} "
        f"after it was made ({LOG_PROPERTY}): {surely}",
        timestamp_ms=now.timestamp_ms,
        gist=f"a restore to it takes this back{sign} {surely}",
    )


# -- why it is not carried out ---------------------------------------------------------------------------------


def _obstacles(change: Restoration, lookup: Lookup | None, *, root: str) -> Iterator[str]:
    files, then = change.files, change.target
    if lookup is not None:
        yield from _of_files(lookup, then.version)
    yield from metadata_obstacles(
        change.current.metadata, change.metadata, change.protocol, removes_rows=files.removes.num_rows > 0
    )
    if (clash := clash_of(then.irregular)) is not None:
        yield clash
    if (again := repeated_add(then.adds, root)) is not None:
        yield f"of version {then.version}: {again}"
    if files.uncounted is not None:
        yield (
            f"{files.uncounted} gets row ids with this commit, and its statistics do not tell how many rows it has"
        )
    if files.overlapping is not None:
        yield f"{files.overlapping} would have row ids that are another file's too: they cannot be kept as they were"


def _of_files(lookup: Lookup, version: int) -> Iterator[str]:
    (gone, gone_count), (other, other_count) = lookup.gone, lookup.other
    found = []
    if gone_count:
        are = "is" if gone_count == 1 else "are"
        found.append(
            f"{count(gone_count, 'files')} of version {version} {are} not there, the first is {gone}"
        )
    if other_count:
        have = "has" if other_count == 1 else "have"
        found.append(
            f"{count(other_count, 'files')} of version {version} {have} another size, the first is {other}"
        )
    if not found:
        return
    if lookup.whole is None:
        yield "; ".join(found)
        return
    if not lookup.whole:
        way_out = "no version between it and the newest one can be restored"
    else:
        way_out = f"the newest version that can be restored is {lookup.whole[-1]}"
        if len(lookup.whole) > 1:
            way_out += f", and the oldest after {version} is {lookup.whole[0]}"
    yield "; ".join([*found, way_out])


# -- what it means for others ----------------------------------------------------------------------------------


def _warnings(change: Restoration, later: Sequence[LaterVersion], *, as_of_ms: int) -> Iterator[str]:
    now, then = change.current, change.target
    yield from _of_writers(now, then)
    yield from _of_age(now, later, then.version, as_of_ms=as_of_ms)
    timed = has_in_commit_timestamps(now.protocol, now.metadata)
    if timed and not has_in_commit_timestamps(change.protocol, change.metadata):
        yield (
            "in-commit timestamps were off then, and are off again: from now on versions have the times of files"
        )
    columns = [each.metadata.partition_columns for each in (now, then)]
    if columns[0] != columns[1]:
        by = [f"by {listed(each)}" if each else "not partitioned" for each in columns]
        yield f"the table is {by[0]}, and was {by[1]}"
    own = frozenset({CLUSTERING, ROW_TRACKING_DOMAIN})
    if names := kept_domains(now, then, besides=own):
        yield f"domain metadata stays as it is now, also where it was other: {', '.join(names)}"
    if change.files.numbered.num_rows:
        kept = count(change.files.numbered.num_rows, "files")
        yield f"row ids are again those of version {then.version} in {kept} that the table has kept"
    if uniform_formats(change.metadata.configuration):
        yield (
            f"what UniForm tells readers of {change.metadata.configuration[UNIFORM]} stays at the version before this "
            "until Delta Spark commits to the table again"
        )


def _of_writers(now: Snapshot, then: Snapshot) -> Iterator[str]:
    """That a streaming writer takes what leaves for written, and does not write it again."""
    for name, action in sorted(now.transactions.items()):
        before = then.transactions.get(name, {}).get("version")
        if before != action.get("version"):
            since = "nothing" if before is None else f"version {before}"
            yield (
                f"streaming writer {name} is at its version {action.get('version')}, and was at {since} then: that "
                "stays, so it does not write again what leaves"
            )


def _of_age(now: Snapshot, later: Sequence[LaterVersion], version: int, *, as_of_ms: int) -> Iterator[str]:
    """That a VACUUM which runs now may take files that come back."""
    left_ms = next((each.timestamp_ms for each in later if each.version == version + 1), None)
    kept_ms = now.metadata.property_interval_ms(FILES_PROPERTY, FILES_DEFAULT_MS)
    if left_ms is not None and as_of_ms - left_ms > kept_ms:
        yield (
            f"the table left version {version} {age(as_of_ms - left_ms)} ago, and files are kept for {age(kept_ms)} "
            f"({FILES_PROPERTY}): a VACUUM that runs now may take those that come back, so let none run"
        )
