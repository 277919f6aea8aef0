"""Rules about the files of the log: `inspect --check`.

Spec: "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Last Checkpoint File", "In-Commit Timestamps".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.inspect.files import one_array
from iceberg_cli.delta.inspect.summary import hint_problem
from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.columns import dv_ids
from iceberg_cli.delta.spec.in_commit_timestamps import SINCE_VERSION, in_commit_since
from iceberg_cli.delta.spec.last_checkpoint import CheckpointHint
from iceberg_cli.delta.spec.log import Listing, LogFile
from iceberg_cli.delta.spec.protocol import TRANSACTIONS_PROPERTY, Metadata
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.errors import InvalidMetadata
from iceberg_cli.plan.findings import Findings

_NUMBERS: Final = ("size", "modificationTime", "baseRowId", "defaultRowCommitVersion")
_EXAMPLES: Final = 3
_NO_NUMBER: Final = -(2**63)


def check_listing(listing: Listing, folder: str, findings: Findings) -> None:
    """Findings by names alone: gaps between commits, and checkpoints without one of their parts."""
    for before, after in zip(listing.commits, listing.commits[1:], strict=False):
        missing = after.version - before.version - 1
        if missing:
            first = f"{folder}/{before.version + 1:020}.json"
            more = f" and the {missing - 1} after it are" if missing > 1 else " is"
            reason = f"version {before.version + 1}{more} not there, and version {before.version} is"
            findings.add("commit-missing", first, reason, times=missing)
    for version in sorted({file.version for file in listing.incomplete}):
        parts = [file for file in listing.incomplete if file.version == version]
        message = f"{len(parts)} parts of a checkpoint are there, and others are not"
        findings.add("checkpoint-incomplete", parts[0].path, message)


def check_hint(listing: Listing, hint: CheckpointHint | None, path: str, findings: Findings) -> None:
    """Hold `_last_checkpoint` against the checkpoints that are there."""
    problem = hint_problem(listing, hint)
    if problem is None:
        return
    version = None if hint is None else hint.version
    there = any(each.version == version for each in listing.checkpoints)
    stale = hint is None or (there and version != listing.checkpoints[-1].version)
    findings.add("last-checkpoint-stale" if stale else "last-checkpoint-unsound", path, problem)


def check_times(actions: Actions, files: Sequence[LogFile], snapshot: Snapshot, findings: Findings) -> None:
    """In-commit timestamps grow from commit to commit.

    Args:
        actions: of `files`.
        files: commits, by version.
        snapshot: of the last one.
        findings: takes them.
    """
    try:
        since = in_commit_since(snapshot.protocol, snapshot.metadata)
    except InvalidMetadata as error:
        findings.add("property-unreadable", SINCE_VERSION, error.message)
        return
    if since is None:
        return
    infos = dict(actions.commit_infos)
    before: int | None = None
    for file in files:
        if file.version < since:
            continue
        time_ms = infos.get(file.version, {}).get("inCommitTimestamp")
        if type(time_ms) is not int:
            findings.add("in-commit-timestamp-missing", file.path, "its commitInfo has none")
            continue
        if before is not None and time_ms <= before:
            message = f"{time_ms} ms is not after {before} ms, that of the version before"
            findings.add("in-commit-timestamp-not-increasing", file.path, message)
        before = time_ms


def state_differences(stated: Snapshot, replayed: Snapshot, *, keeps_transactions: bool = True) -> list[str]:
    """The differences of a checkpoint from the commits that it stands for, in words.

    Tombstones are not compared: they expire.

    Args:
        stated: read from the checkpoint alone.
        replayed: the same version, read from what came before it.
        keeps_transactions: whether no `txn` action may have expired.
    """
    found = []
    if stated.protocol != replayed.protocol:
        found.append(
            f"its protocol is {stated.protocol.to_json()}, the commits say {replayed.protocol.to_json()}"
        )
    mine, theirs = stated.metadata.with_plain_schema(), replayed.metadata.with_plain_schema()
    if mine != theirs:
        found.append(_mapping_difference("metaData", mine.to_json(), theirs.to_json()))
    found += file_differences(stated.adds, replayed.adds)
    transactions = {key: item.get("version") for key, item in stated.transactions.items()}
    expected = {key: item.get("version") for key, item in replayed.transactions.items()}
    if not keeps_transactions or TRANSACTIONS_PROPERTY in replayed.metadata.configuration:
        expected = {key: item for key, item in expected.items() if key in transactions}
    if transactions != expected:
        found.append(_mapping_difference("txn", transactions, expected))
    domains = {key: item.get("configuration") for key, item in stated.domains.items()}
    expected = {key: item.get("configuration") for key, item in replayed.domains.items()}
    if domains != expected:
        found.append(_mapping_difference("domainMetadata", domains, expected))
    return found


def file_differences(stated: pa.Table, replayed: pa.Table) -> list[str]:
    """How two sets of adds differ, in words."""
    keys, expected = _keys(stated), _keys(replayed)
    found = []
    lost = expected.filter(pc.invert(pc.is_in(expected, value_set=keys)))
    extra = keys.filter(pc.invert(pc.is_in(keys, value_set=expected)))
    if len(lost):
        found.append(f"active files that it lacks: {_named(lost)}")
    if len(extra):
        found.append(f"files that it has and that are not active: {_named(extra)}")
    places = pc.index_in(keys, value_set=expected)
    both = pc.is_valid(places)
    ours, theirs = stated.filter(both), replayed.take(places.filter(both))
    names = keys.filter(both)
    for column in _NUMBERS:
        left, right = (pc.fill_null(one_array(table[column]), _NO_NUMBER) for table in (ours, theirs))
        wrong = names.filter(pc.not_equal(left, right))
        if len(wrong):
            found.append(f"another {column} is given for {_named(wrong)}")
    pairs = zip(ours["partitionValues"].to_pylist(), theirs["partitionValues"].to_pylist(), strict=True)
    other = names.filter(
        pa.array([dict(left or ()) != dict(right or ()) for left, right in pairs], pa.bool_())
    )
    if len(other):
        found.append(f"other partitionValues are given for {_named(other)}")
    return found


def compaction_differences(stated: Actions, replayed: Actions) -> list[str]:
    """The differences of a log compaction from its commits, in words. Tombstones may have expired.

    Args:
        stated: the actions of the compacted file.
        replayed: of the commits, reconciled.
    """
    found = file_differences(stated.adds, replayed.adds)
    keys, expected = _keys(stated.removes), _keys(replayed.removes)
    extra = keys.filter(pc.invert(pc.is_in(keys, value_set=expected)))
    if len(extra):
        found.append(f"files that it removes and the commits do not: {_named(extra)}")
    if stated.protocol != replayed.protocol:
        found.append("its protocol is another one")
    if _plain(stated.metadata) != _plain(replayed.metadata):
        found.append("its metaData is another one")
    if stated.transactions != replayed.transactions:
        found.append(_mapping_difference("txn", stated.transactions, replayed.transactions))
    if stated.domains != replayed.domains:
        found.append(_mapping_difference("domainMetadata", stated.domains, replayed.domains))
    return found


def _plain(metadata: Metadata | None) -> Metadata | None:
    return None if metadata is None else metadata.with_plain_schema()


def missing_tombstones(stated: pa.Table, replayed: pa.Table, *, since_ms: int) -> pa.Array:
    """The tombstones of `replayed` from a time on that `stated` does not have, as paths."""
    young = replayed.filter(pc.greater(pc.fill_null(replayed["deletionTimestamp"], 0), since_ms))
    expected = _keys(young)
    return expected.filter(pc.invert(pc.is_in(expected, value_set=_keys(stated))))


def _keys(files: pa.Table) -> pa.Array:
    """The keys of n logical files: path, and the vector's id behind a space."""
    vectors = pc.fill_null(dv_ids(files), "")
    return one_array(pc.binary_join_element_wise(one_array(files["path"]), one_array(vectors), " "))


def _named(keys: pa.Array) -> str:
    more = f" and {len(keys) - _EXAMPLES:,} more" if len(keys) > _EXAMPLES else ""
    return ", ".join(key.strip() for key in keys.slice(0, _EXAMPLES).to_pylist()) + more


def _mapping_difference(what: str, stated: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    names = [key for key in sorted({*stated, *expected}) if stated.get(key) != expected.get(key)]
    shown = ", ".join(
        f"{key} is {stated.get(key)!r:.60} and not {expected.get(key)!r:.60}" for key in names[:_EXAMPLES]
    )
    return f"its {what} differs: {shown}"
