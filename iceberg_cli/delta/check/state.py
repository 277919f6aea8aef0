"""Rules about the log, and about protocol, metadata and active files of the version that it adds up to.

Spec: "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Last Checkpoint File", "In-Commit Timestamps", "Table
Features", "Change Metadata", "Add File and Remove File", "Deletion Vectors", "Row Tracking".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.inspect.files import cardinalities, num_records
from iceberg_cli.delta.inspect.rows import is_enabled, last_row_id, logical_names
from iceberg_cli.delta.inspect.summary import hint_problem
from iceberg_cli.delta.spec.actions import Actions
from iceberg_cli.delta.spec.checkpoints.columns import STATS_AS_JSON, STATS_AS_STRUCT
from iceberg_cli.delta.spec.checkpoints.last_checkpoint import CheckpointHint
from iceberg_cli.delta.spec.columns import dv_ids
from iceberg_cli.delta.spec.features import (
    READER_VERSION,
    WRITER_VERSION,
    supports,
    unread_features,
    unwritable,
)
from iceberg_cli.delta.spec.in_commit_timestamps import IN_COMMIT_TIMESTAMPS, SINCE_VERSION, in_commit_since
from iceberg_cli.delta.spec.log import Listing, LogFile
from iceberg_cli.delta.spec.paths import dv_path_column
from iceberg_cli.delta.spec.protocol import (
    FILES_PROPERTY,
    LOG_PROPERTY,
    TRANSACTIONS_PROPERTY,
    Metadata,
    Protocol,
    schema_fields,
)
from iceberg_cli.delta.spec.row_ids import MATERIALIZED, record_counts
from iceberg_cli.delta.spec.snapshot import Snapshot, added_again
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import CorruptFile, InvalidMetadata
from iceberg_cli.plan.findings import Bools, Findings, Ints, reason_of

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
    for checkpoint in listing.damaged:
        message = f"the checkpoint of version {checkpoint.version} cannot be read"
        findings.add("checkpoint-unreadable", checkpoint.files[0].path, message)
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
    differences = []
    if stated.protocol != replayed.protocol:
        differences.append(
            f"its protocol is {stated.protocol.to_json()}, the commits say {replayed.protocol.to_json()}"
        )
    mine, theirs = stated.metadata.with_plain_schema(), replayed.metadata.with_plain_schema()
    if mine != theirs:
        differences.append(_mapping_difference("metaData", mine.to_json(), theirs.to_json()))
    differences += file_differences(stated.adds, replayed.adds)
    transactions = {key: item.get("version") for key, item in stated.transactions.items()}
    expected = {key: item.get("version") for key, item in replayed.transactions.items()}
    if not keeps_transactions or TRANSACTIONS_PROPERTY in replayed.metadata.configuration:
        expected = {key: item for key, item in expected.items() if key in transactions}
    if transactions != expected:
        differences.append(_mapping_difference("txn", transactions, expected))
    domains = {key: item.get("configuration") for key, item in stated.domains.items()}
    expected = {key: item.get("configuration") for key, item in replayed.domains.items()}
    if domains != expected:
        differences.append(_mapping_difference("domainMetadata", domains, expected))
    return differences


def file_differences(stated: pa.Table, replayed: pa.Table) -> list[str]:
    """How two sets of adds differ, in words."""
    keys, expected = _keys(stated), _keys(replayed)
    differences = []
    lost = expected.filter(pc.invert(pc.is_in(expected, value_set=keys)))
    extra = keys.filter(pc.invert(pc.is_in(keys, value_set=expected)))
    if len(lost):
        differences.append(f"active files that it lacks: {_named(lost)}")
    if len(extra):
        differences.append(f"files that it has and that are not active: {_named(extra)}")
    places = pc.index_in(keys, value_set=expected)
    both = pc.is_valid(places)
    ours, theirs = stated.filter(both), replayed.take(places.filter(both))
    names = keys.filter(both)
    for column in _NUMBERS:
        left, right = (pc.fill_null(one_array(table[column]), _NO_NUMBER) for table in (ours, theirs))
        wrong = names.filter(pc.not_equal(left, right))
        if len(wrong):
            differences.append(f"another {column} is given for {_named(wrong)}")
    pairs = zip(ours["partitionValues"].to_pylist(), theirs["partitionValues"].to_pylist(), strict=True)
    other = names.filter(
        pa.array([dict(left or ()) != dict(right or ()) for left, right in pairs], pa.bool_())
    )
    if len(other):
        differences.append(f"other partitionValues are given for {_named(other)}")
    return differences


def log_compaction_differences(stated: Actions, replayed: Actions) -> list[str]:
    """The differences of a log compaction from its commits, in words. Tombstones may have expired.

    Args:
        stated: the actions of the compacted file.
        replayed: of the commits, reconciled.
    """
    differences = file_differences(stated.adds, replayed.adds)
    keys, expected = _keys(stated.removes), _keys(replayed.removes)
    extra = keys.filter(pc.invert(pc.is_in(keys, value_set=expected)))
    if len(extra):
        differences.append(f"files that it removes and the commits do not: {_named(extra)}")
    if stated.protocol != replayed.protocol:
        differences.append("its protocol is another one")
    if _plain(stated.metadata) != _plain(replayed.metadata):
        differences.append("its metaData is another one")
    if stated.transactions != replayed.transactions:
        differences.append(_mapping_difference("txn", stated.transactions, replayed.transactions))
    if stated.domains != replayed.domains:
        differences.append(_mapping_difference("domainMetadata", stated.domains, replayed.domains))
    return differences


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


_NEEDED_WHEN_ENABLED: Final[Mapping[str, tuple[str, ...]]] = {
    "appendOnly": ("appendOnly",),
    "changeDataFeed": ("changeDataFeed",),
    "checkConstraints": ("checkConstraints",),
    "columnMapping": ("columnMapping",),
    "deletionVectors": ("deletionVectors",),
    "icebergCompatV1": ("icebergCompatV1",),
    "icebergCompatV2": ("icebergCompatV2",),
    "inCommitTimestamp": ("inCommitTimestamp",),
    "rowTracking": ("rowTracking",),
    "typeWidening": ("typeWidening", "typeWidening-preview"),
    "v2Checkpoint": ("v2Checkpoint",),
}
_NEEDED_BY_FEATURE: Final[Mapping[str, str]] = {
    "rowTracking": "domainMetadata",
    "clustering": "domainMetadata",
    "icebergCompatV1": "columnMapping",
    "icebergCompatV2": "columnMapping",
}
_INTERVALS: Final = (FILES_PROPERTY, LOG_PROPERTY, TRANSACTIONS_PROPERTY)
_BOOLEANS: Final = (
    "delta.enableExpiredLogCleanup",
    "delta.enableRowTracking",
    "delta.enableDeletionVectors",
    IN_COMMIT_TIMESTAMPS,
    STATS_AS_JSON,
    STATS_AS_STRUCT,
)
_UNKNOWN: Final = -1


def check_protocol(protocol: Protocol, metadata: Metadata, findings: Findings) -> None:
    """Check features against versions, each other, and the properties that require them."""
    listed, writers = protocol.reader_features, protocol.writer_features
    if listed is not None and protocol.min_reader_version != READER_VERSION:
        message = f"readerFeatures is there with minReaderVersion {protocol.min_reader_version}"
        findings.add("feature-list-unexpected", "protocol", message)
    if writers is not None and protocol.min_writer_version != WRITER_VERSION:
        message = f"writerFeatures is there with minWriterVersion {protocol.min_writer_version}"
        findings.add("feature-list-unexpected", "protocol", message)
    for name in sorted((listed or frozenset()) - (writers or frozenset())):
        findings.add(
            "feature-for-readers-only", "protocol", f"{name} is in readerFeatures, not in writerFeatures"
        )
    for name in sorted(unread_features(protocol)):
        message = f"{name} is in writerFeatures, and readerFeatures {'is not there' if listed is None else 'lacks it'}"
        findings.add("feature-for-writers-only", "protocol", message)
    for name, needed in _NEEDED_BY_FEATURE.items():
        if supports(protocol, name) and not supports(protocol, needed):
            findings.add("feature-needs-feature", "protocol", f"{name} needs {needed}, which is not there")
    for name, any_of in _NEEDED_WHEN_ENABLED.items():
        if is_enabled(name, metadata) and not any(supports(protocol, feature) for feature in any_of):
            message = f"properties switch {name} on, and the protocol does not have it"
            findings.add("property-needs-feature", "metaData.configuration", message)
    for reason in unwritable(protocol):
        findings.add("feature-unknown", "protocol", reason)


def check_metadata(metadata: Metadata, findings: Findings) -> None:
    """Properties that are read here, and partition columns."""
    where = "metaData.configuration."
    for name in sorted(metadata.null_properties):
        message = "its value is null, as if it were not set, and delta-kernel reads no such metadata"
        findings.add("property-unreadable", f"{where}{name}", message)
    for name in _INTERVALS:
        if problem := metadata.interval_problem(name):
            findings.add("property-unreadable", f"{where}{name}", problem)
    for name in _BOOLEANS:
        try:
            metadata.property_bool(name, default=False)
        except InvalidMetadata as error:
            findings.add("property-unreadable", f"{where}{name}", error.message)
    try:
        names = {field["name"] for field in schema_fields(metadata)}
    except CorruptFile as error:
        findings.add("schema-unreadable", "metaData.schemaString", reason_of(error))
        return
    for column in metadata.partition_columns:
        if column not in names:
            message = f"the table is partitioned by {column!r}, which the schema does not have"
            findings.add("partition-column-missing", "metaData.partitionColumns", message)


def check_files(snapshot: Snapshot, root: str, findings: Findings) -> None:
    """Check active files and tombstones by the log alone."""
    adds = snapshot.adds
    paths = one_array(adds["path"])

    def tell(message: str) -> Any:
        return lambda row: (paths[row].as_py(), message)

    try:
        again = added_again(adds, root)
        dv_path_column(adds, root)
    except CorruptFile as error:
        findings.add("deletion-vector-path-unreadable", error.path, reason_of(error))
        return
    findings.add_rows("file-added-twice", again, tell("another active add names the same file"))
    _check_partition_values(snapshot, findings)
    try:
        record_counts(adds)
    except CorruptFile as error:
        findings.add("statistics-unreadable", error.path, reason_of(error))
    findings.add_rows(
        "statistics-unreadable",
        _bools(
            pc.fill_null(
                pc.equal(pc.utf8_trim_whitespace(one_array(adds["stats"])), "null"), fill_value=False
            )
        ),
        tell("its statistics are the text null: it has none here, and delta-kernel may fail on the text"),
    )
    _check_vectors(snapshot, findings)
    removed = one_array(snapshot.removes["path"])
    findings.add_rows(
        "tombstone-without-time",
        _bools(snapshot.removes["deletionTimestamp"].is_null()),
        lambda row: (removed[row].as_py(), "its remove action has no deletionTimestamp"),
    )


def _check_partition_values(snapshot: Snapshot, findings: Findings) -> None:
    adds = snapshot.adds
    try:
        expected = sorted(logical_names(snapshot.metadata))
    except CorruptFile:
        return  # told of the schema already
    values = one_array(adds["partitionValues"])
    whole = pa.concat_arrays([values, values.slice(0, 0)])  # in buffers of its own
    offsets: Ints = whole.offsets.to_numpy().astype(np.int64)
    known = pc.is_in(whole.keys, value_set=pa.array(expected, pa.string())).to_numpy(zero_copy_only=False)
    upto = np.concatenate([np.zeros(1, np.int64), np.cumsum(known, dtype=np.int64)])
    wrong = (np.diff(offsets) != len(expected)) | (np.diff(upto[offsets]) != len(expected))
    findings.add_rows(
        "partition-values-differ",
        wrong,
        lambda row: (
            adds["path"][row].as_py(),
            f"partitionValues has {sorted(dict(values[row].as_py() or ()))}, the table is partitioned by {expected}",
        ),
    )


def _check_vectors(snapshot: Snapshot, findings: Findings) -> None:
    adds = snapshot.adds
    has: Bools = _bools(pc.is_valid(adds["deletionVector"]))
    if not has.any():
        return
    paths = adds["path"]
    if not supports(snapshot.protocol, "deletionVectors"):
        findings.add_rows(
            "deletion-vector-without-feature",
            has,
            lambda row: (
                paths[row].as_py(),
                "it has a deletion vector, and the protocol lacks deletionVectors",
            ),
        )
    rows: Ints = pc.fill_null(num_records(adds), _UNKNOWN).to_numpy()
    deleted: Ints = cardinalities(adds).to_numpy()
    findings.add_rows(
        "deletion-vector-without-record-count",
        has & (rows == _UNKNOWN),
        lambda row: (paths[row].as_py(), "it has a deletion vector, and its statistics have no numRecords"),
    )
    findings.add_rows(
        "deletion-vector-too-large",
        has & (rows != _UNKNOWN) & (deleted > rows),
        lambda row: (
            paths[row].as_py(),
            f"its deletion vector deletes {deleted[row]} rows, and numRecords is {rows[row]}",
        ),
    )


def check_row_ids(snapshot: Snapshot, findings: Findings) -> None:
    """Row ids of active files: there where row tracking is enabled, used once, and not above the mark.

    A file whose rows nobody counted has at least the id that it begins with.
    """
    if not supports(snapshot.protocol, "rowTracking"):
        return
    adds, paths = snapshot.adds, snapshot.adds["path"]
    enabled = bool(is_enabled("rowTracking", snapshot.metadata))
    if enabled:
        _check_enabled(snapshot, findings)
    versions: Ints = pc.fill_null(adds["defaultRowCommitVersion"], 0).to_numpy()
    findings.add_rows(
        "row-commit-version-too-high",
        versions > snapshot.version,
        lambda row: (
            paths[row].as_py(),
            f"defaultRowCommitVersion {versions[row]} is after version {snapshot.version}",
        ),
    )
    first: Ints = pc.fill_null(adds["baseRowId"], _UNKNOWN).to_numpy()
    has = _bools(pc.is_valid(adds["baseRowId"]))
    if not has.any():
        return
    counts = pc.fill_null(num_records(adds), 1).to_numpy()
    last: Ints = first + counts - 1
    _check_mark(snapshot, has, first, last, findings)
    order = np.flatnonzero(has & (counts > 0))
    order = order[np.argsort(first[order], kind="stable")]
    reached = np.maximum.accumulate(last[order])
    clash = np.zeros(len(first), np.bool_)
    clash[order[1:]] = first[order[1:]] <= reached[:-1]
    findings.add_rows(
        "row-ids-overlap",
        clash,
        lambda row: (
            paths[row].as_py(),
            f"its row ids {first[row]} to {last[row]} are, at least in part, another file's too",
        ),
    )


def _check_enabled(snapshot: Snapshot, findings: Findings) -> None:
    for name, _ in MATERIALIZED:
        if not snapshot.metadata.configuration.get(name):
            message = "row tracking is enabled, and this property is not set"
            findings.add("row-tracking-columns-missing", f"metaData.configuration.{name}", message)
    adds = snapshot.adds
    missing = _bools(pc.or_(adds["baseRowId"].is_null(), adds["defaultRowCommitVersion"].is_null()))
    findings.add_rows(
        "row-id-missing",
        missing,
        lambda row: (
            adds["path"][row].as_py(),
            "row tracking is enabled, and it has no baseRowId or no defaultRowCommitVersion",
        ),
    )


def _check_mark(snapshot: Snapshot, has: Bools, first: Ints, last: Ints, findings: Findings) -> None:
    try:
        mark = last_row_id(snapshot)
    except CorruptFile as error:
        findings.add("high-water-mark-unreadable", "domainMetadata delta.rowTracking", reason_of(error))
        return
    limit = _UNKNOWN if mark is None else mark
    shown = "there is no high-water mark" if mark is None else f"the high-water mark is {mark}"
    findings.add_rows(
        "row-ids-above-mark",
        has & (np.maximum(first, last) > limit),
        lambda row: (snapshot.adds["path"][row].as_py(), f"its row ids go up to {last[row]}, and {shown}"),
    )


def _bools(column: pa.Array | pa.ChunkedArray) -> Bools:
    found: Bools = (
        np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)
        if isinstance(column, pa.Array)
        else np.asarray(column.to_numpy(), np.bool_)
    )
    return found
