"""A sound Delta table of real files, and for each rule of `inspect --check` a change that breaks it and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.testing.delta_vectors import vector_file_name
from iceberg_cli.testing.delta_writer import (
    Action,
    a_checkpoint,
    a_commit,
    a_commit_info,
    a_metadata,
    a_protocol,
    a_protocol_with,
    a_remove,
    a_row_id_mark,
    a_txn,
    an_add,
    write_log,
    write_log_file,
    write_vectors,
)

T_MS = 1_700_000_000_000  # of version 3 and of all files of the log
ROWS = 10  # of each data file
DELETED = (2, 7)  # positions in a.parquet
FEATURES = ("deletionVectors", "v2Checkpoint", "domainMetadata", "rowTracking", "inCommitTimestamp")
PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}
VECTOR = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61").int  # as in the protocol's example of a descriptor
VECTOR_FILE = vector_file_name(VECTOR)
UNIQUE = "80a083e8-7026-4e79-81be-64bd76c43a11"


def name(version: int, ending: str) -> str:
    """Of a file of the log."""
    return f"{version:020}.{ending}"


@dataclass
class Table:
    """Commits that can still be changed, then files that can.

    Version 1 adds `a` and `b`, version 2 gives `a` a deletion vector, version 3 adds `c`.
    """

    root: Path
    commits: list[list[Action]] = field(default_factory=list)
    positions: tuple[int, ...] = DELETED

    @property
    def log(self) -> Path:
        return self.root / "_delta_log"

    def action(self, kind: str, version: int, place: int = 0) -> dict[str, Any]:
        """The fields of an action of a commit."""
        found: dict[str, Any] = [action[kind] for action in self.commits[version] if kind in action][place]
        return found

    def put(self, ending: str, data: bytes, *, version: int = 2) -> Path:
        """Write a file of the log."""
        return write_log_file(self.root, name(version, ending), data, modified_ms=T_MS)

    def state(self) -> list[Action]:
        """The actions of version 2."""
        first, second, third = self.commits[:3]
        removed = [action for action in third if "remove" in action]
        added = [action for action in third if "add" in action]
        gone = {action["remove"]["path"] for action in removed}
        kept = [action for action in second if "add" in action and action["add"]["path"] not in gone]
        others = [action for action in (*first, *second) if not {"add", "commitInfo"} & action.keys()]
        return [*others, *kept, *added, *removed]

    def checkpoint(self, *left_out: str) -> Path:
        """A classic checkpoint of version 2, without the actions that name some paths."""
        state = self.state()
        kept = [action for action in state if not any(_names(action, path) for path in left_out)]
        return self.put("checkpoint.parquet", a_checkpoint(*kept))

    def publish(self) -> None:
        """Write the commits."""
        write_log(self.root, *self.commits)


def _names(action: Action, kind_and_path: str) -> bool:
    kind, path = kind_and_path.split(" ")
    return bool(action.get(kind, {}).get("path") == path)


def a_sound_table(root: Path, *, positions: tuple[int, ...] = DELETED) -> Table:
    """Files on the disk, and the commits that name them."""
    root.mkdir(parents=True)
    for letter in "abc":
        pq.write_table(pa.table({"n": list(range(ROWS))}), root / f"{letter}.parquet")
    (dv,) = write_vectors(root, VECTOR, positions)

    def add(letter: str, base: int, version: int, **others: Any) -> Action:
        size = (root / f"{letter}.parquet").stat().st_size
        return an_add(
            path=f"{letter}.parquet",
            rows=ROWS,
            size=size,
            baseRowId=base,
            defaultRowCommitVersion=version,
            **others,
        )

    def info(version: int) -> Action:
        return a_commit_info(inCommitTimestamp=T_MS - 3_000 + 1_000 * version)

    return Table(
        root,
        [
            [info(0), a_protocol_with(*FEATURES), a_metadata(configuration=PROPERTIES), a_txn()],
            [info(1), add("a", 0, 1), add("b", 10, 1), a_row_id_mark(19)],
            [info(2), add("a", 0, 1, dv=dv), a_remove(path="a.parquet", deletionTimestamp=T_MS)],
            [info(3), add("c", 20, 3), a_row_id_mark(29)],
        ],
        positions,
    )


def protocol(table: Table, action: Action) -> None:
    """Put another protocol in the place of the first one."""
    table.commits[0][1] = action


def configuration(table: Table) -> dict[str, str]:
    found: dict[str, str] = table.action("metaData", 0)["configuration"]
    return found


# -- before the commits are written ----------------------------------------------------------------------------


def _info(version: int, **changed: Any) -> Callable[[Table], None]:
    return lambda table: _change(table.action("commitInfo", version), **changed)


def _c(**changed: Any) -> Callable[[Table], None]:
    return lambda table: _change(table.action("add", 3), **changed)


def _vector(**changed: Any) -> Callable[[Table], None]:
    return lambda table: _change(table.action("add", 2), **changed)


def _metadata(**changed: Any) -> Callable[[Table], None]:
    return lambda table: _change(table.action("metaData", 0), **changed)


def _property(key: str, value: str | None) -> Callable[[Table], None]:
    return lambda table: _change(configuration(table), **{key: value})


def _change(fields: dict[str, Any], **changed: Any) -> None:
    for key, value in changed.items():
        if value is None:
            fields.pop(key)
        else:
            fields[key] = value


def _without_feature(feature: str, *properties: str) -> Callable[[Table], None]:
    def change(table: Table) -> None:
        protocol(table, a_protocol_with(*(each for each in FEATURES if each != feature)))
        for key in properties:
            configuration(table).pop(key)

    return change


def _with_feature(feature: str) -> Callable[[Table], None]:
    return lambda table: protocol(table, a_protocol_with(*FEATURES, feature))


def _features(reader_version: int, *more: str) -> Callable[[Table], None]:
    """Reader features that are listed for readers alone, or beside a reader version that has no list."""

    def change(table: Table) -> None:
        readers = ("deletionVectors", "v2Checkpoint", *more)
        protocol(table, a_protocol(reader_version, 7, reader_features=readers, writer_features=FEATURES))

    return change


def _for_writers_only(table: Table) -> None:
    """A version 2 checkpoint is listed for writers, not for readers."""
    protocol(table, a_protocol(3, 7, reader_features=["deletionVectors"], writer_features=FEATURES))


def _partitioned_by_nothing(table: Table) -> None:
    table.action("metaData", 0)["partitionColumns"] = ["p"]
    for commit in table.commits:
        for action in commit:
            if "add" in action:
                action["add"]["partitionValues"] = {"p": "1"}


def _added_again(table: Table) -> None:
    again = {**table.action("add", 1), "baseRowId": 30, "defaultRowCommitVersion": 3}
    table.commits[3] = [*table.commits[3][:-1], {"add": again}, a_row_id_mark(39)]


def _compacted_again(table: Table) -> None:
    """Version 2 writes `b` anew as `d`; the writer of version 3 did not look, and adds `b` again."""
    before = table.action("add", 1, 1)
    (table.root / "d.parquet").write_bytes((table.root / "b.parquet").read_bytes())
    anew = {**before, "path": "d.parquet", "dataChange": False, "baseRowId": 30, "defaultRowCommitVersion": 2}
    gone = a_remove(path="b.parquet", dataChange=False, deletionTimestamp=T_MS)
    table.commits[2] += [gone, {"add": anew}]
    table.commits[3] = [*table.commits[3][:-1], {"add": {**before}}, a_row_id_mark(39)]


def _mark(configuration: str) -> Callable[[Table], None]:
    return lambda table: _change(table.action("domainMetadata", 3), configuration=configuration)


def _seen_twice(table: Table) -> None:
    table.commits[3] += [a_txn(app_id="other", version=1), a_txn(app_id="other", version=2)]


def _nothing_committed(table: Table) -> None:
    """The newest commit is empty, of a table whose commits need not tell their time."""
    _without_feature("inCommitTimestamp", "delta.enableInCommitTimestamps")(table)
    table.commits[3] = []


LOG_CHANGES: dict[str, Callable[[Table], None]] = {
    "commit-empty": _nothing_committed,
    "commit-actions-clash": _seen_twice,
    "commit-number-with-fraction": _c(modificationTime=float(T_MS)),
    "in-commit-timestamp-missing": _info(1, inCommitTimestamp=None),
    "in-commit-timestamp-not-increasing": _info(1, inCommitTimestamp=T_MS - 3_000),
    "property-needs-feature": _property("delta.enableChangeDataFeed", "true"),
    "property-unreadable": _property("delta.logRetentionDuration", "for a while"),
    "feature-needs-feature": _without_feature("domainMetadata"),
    "feature-for-readers-only": _features(3, "timestampNtz"),
    "feature-for-writers-only": _for_writers_only,
    "feature-list-unexpected": _features(2),
    "feature-unknown": _with_feature("fromTheFuture"),
    "schema-unreadable": _metadata(schemaString='{"type":"struct"}'),
    "partition-column-missing": _partitioned_by_nothing,
    "deletion-vector-path-unreadable": lambda table: _change(
        table.action("add", 2)["deletionVector"], pathOrInlineDv="~" * 20
    ),
    "file-added-twice": _added_again,
    "compacted-file-added-again": _compacted_again,
    "partition-values-differ": _c(partitionValues={"p": "1"}),
    "statistics-unreadable": _c(stats='{"numRecords":"ten"}'),
    "tombstone-without-time": lambda table: _change(table.action("remove", 2), deletionTimestamp=None),
    "deletion-vector-without-feature": _without_feature("deletionVectors", "delta.enableDeletionVectors"),
    "deletion-vector-without-record-count": _vector(stats=None),
    "deletion-vector-too-large": _vector(stats='{"numRecords":1}'),
    "row-tracking-columns-missing": _property("delta.rowTracking.materializedRowIdColumnName", None),
    "row-id-missing": _c(baseRowId=None),
    "high-water-mark-unreadable": _mark('{"rowIdHighWaterMark":"29"}'),
    "row-ids-above-mark": _mark('{"rowIdHighWaterMark":28}'),
    "row-ids-overlap": _c(baseRowId=19),
    "row-commit-version-too-high": _c(defaultRowCommitVersion=4),
    "file-out-of-reach": _c(path="gopher://host/c.parquet"),
    "file-not-looked-at": _c(path=f"{'x' * 300}.parquet"),  # no system takes such a name
    "record-count-differs": _c(stats='{"numRecords":9}'),
}

# -- after -----------------------------------------------------------------------------------------------------


def _commit_missing(table: Table) -> None:
    table.checkpoint()
    (table.log / name(1, "json")).unlink()


def _commit_unreadable(table: Table) -> None:
    table.checkpoint()
    (table.log / name(1, "json")).write_bytes(b'{"add":')


def _key_repeated(table: Table) -> None:
    table.checkpoint()
    commit = (table.log / name(3, "json")).read_bytes()
    table.put("json", commit.replace(b'"operation":', b'"operation":"DELETE","operation":', 1), version=3)


def _old_checkpoint_unreadable(table: Table) -> None:
    table.checkpoint()
    table.put("checkpoint.parquet", b"PAR1", version=1)


def _sidecar_missing(table: Table) -> None:
    table.checkpoint()
    sidecar = {"sidecar": {"path": "gone.parquet", "sizeInBytes": 10, "modificationTime": T_MS}}
    lines = a_commit({"checkpointMetadata": {"version": 1}}, *table.commits[0][1:3], sidecar)
    table.put(f"checkpoint.{UNIQUE}.json", lines, version=1)


def _sidecar_of_another_size(table: Table) -> None:
    table.checkpoint()
    data = a_checkpoint(*(action for action in table.commits[1] if "add" in action))
    write_log_file(table.root, "_sidecars/own.parquet", data)
    sidecar = {"sidecar": {"path": "own.parquet", "sizeInBytes": len(data) + 1, "modificationTime": T_MS}}
    others = [
        action
        for action in (*table.commits[0], *table.commits[1])
        if not {"add", "commitInfo"} & action.keys()
    ]
    lines = a_commit({"checkpointMetadata": {"version": 1}}, *others, sidecar)
    table.put(f"checkpoint.{UNIQUE}.json", lines, version=1)


def _compaction(*actions: Action) -> Callable[[Table], None]:
    def put(table: Table) -> None:
        table.checkpoint()
        data = a_commit(*actions) if actions else b"{"
        table.put(f"{2:020}.compacted.json", data, version=1)

    return put


def _compaction_without_a_file(table: Table) -> None:
    kept = [action for action in table.state() if action.get("add", {}).get("path") != "b.parquet"]
    kept = [action for action in kept if not {"protocol", "metaData", "txn"} & action.keys()]
    _compaction(*kept)(table)


def _hint(content: str) -> Callable[[Table], None]:
    def put(table: Table) -> None:
        table.checkpoint()
        write_log_file(table.root, "_last_checkpoint", content.encode())

    return put


def _stale_hint(table: Table) -> None:
    old = [*table.commits[0][1:], *(action for action in table.commits[1] if "commitInfo" not in action)]
    table.put("checkpoint.parquet", a_checkpoint(*old), version=1)
    _hint('{"version":1,"size":6}')(table)


def a_checksum(table: Table, **changed: Any) -> bytes:
    """The version checksum of version 3."""
    files = [*table.root.glob("*.parquet")]
    fields = {
        "tableSizeBytes": sum(file.stat().st_size for file in files),
        "numFiles": len(files),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": table.action("metaData", 0),
        "protocol": table.action("protocol", 0),
        "inCommitTimestampOpt": T_MS,
        "numDeletedRecordsOpt": len(table.positions),
        "numDeletionVectorsOpt": 1,
        "setTransactions": [table.action("txn", 0)],
    }
    return json.dumps(fields | changed).encode()


def _flipped(file: str, place: int) -> Callable[[Table], None]:
    def flip(table: Table) -> None:
        data = bytearray((table.root / file).read_bytes())
        data[place] ^= 0xFF
        (table.root / file).write_bytes(data)

    return flip


def _unopenable(table: Table) -> None:
    """A footer that begins and ends as it must, and says what no reader here knows."""
    path = table.root / "c.parquet"
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -8 - length] + b"\x7f" * length + data[-8:])


def _partition_value_lost(table: Table) -> None:
    """The typed value of `a` is null in the checkpoint, that of `b` is there."""
    table.action("metaData", 0)["partitionColumns"] = ["n"]
    for commit in table.commits:
        for action in commit:
            if "add" in action:
                action["add"]["partitionValues"] = {"n": "7"}
    table.publish()
    typed = {"a.parquet": None, "b.parquet": 7}
    state = [
        {"add": {**action["add"], "partitionValues_parsed": {"n": typed[action["add"]["path"]]}}}
        if "add" in action
        else action
        for action in table.state()
    ]
    table.put("checkpoint.parquet", a_checkpoint(*state))


def _dangling(table: Table) -> None:
    (table.root / f"deletion_vector_{UNIQUE}.bin").write_bytes(b"\x01")


def _longer(table: Table) -> None:
    with (table.root / "c.parquet").open("ab") as file:
        file.write(b"!")


FILE_CHANGES: dict[str, Callable[[Table], object]] = {
    "commit-missing": _commit_missing,
    "commit-unreadable": _commit_unreadable,
    "commit-key-repeated": _key_repeated,
    "checkpoint-unreadable": _old_checkpoint_unreadable,
    "checkpoint-differs": lambda table: table.checkpoint("add b.parquet"),
    "checkpoint-partition-value-lost": _partition_value_lost,
    "checkpoint-tombstone-missing": lambda table: table.checkpoint("remove a.parquet"),
    "checkpoint-incomplete": lambda table: table.put("checkpoint.0000000001.0000000002.parquet", b"PAR1"),
    "sidecar-missing": _sidecar_missing,
    "sidecar-size-differs": _sidecar_of_another_size,
    "sidecar-dangling": lambda table: write_log_file(table.root, "_sidecars/nobody.parquet", b"PAR1"),
    "leftover-temporary-file": lambda table: write_log_file(
        table.root, f".iceberg-cli-{UUID(int=7)}.tmp", b"half of", modified_ms=T_MS
    ),
    "compaction-differs": _compaction_without_a_file,
    "compaction-unreadable": _compaction(),
    "last-checkpoint-unsound": _hint('{"version":7,"size":6}'),
    "last-checkpoint-stale": _stale_hint,
    "checksum-unreadable": lambda table: table.put("crc", b"{}", version=3),
    "checksum-differs": lambda table: table.put("crc", a_checksum(table, numFiles=4), version=3),
    "file-missing": lambda table: (table.root / "c.parquet").unlink(),
    "file-size-differs": _longer,
    "deletion-vector-file-missing": lambda table: (table.root / VECTOR_FILE).unlink(),
    "deletion-vector-unsound": _flipped(VECTOR_FILE, -1),
    "deletion-vector-file-dangling": _dangling,
    "parquet-unreadable": _flipped("c.parquet", -1),
    "parquet-cannot-be-read-here": _unopenable,
}

TOO_HIGH = "deletion-vector-position-too-high"
DEEP = {
    TOO_HIGH,
    "sidecar-size-differs",
    "parquet-unreadable",
    "parquet-cannot-be-read-here",
    "record-count-differs",
}
BREAKABLE = [*LOG_CHANGES, *FILE_CHANGES, TOO_HIGH]


def a_table_that_breaks(rule: str, root: Path) -> Table:
    """A table on the disk that is sound but for one rule."""
    table = a_sound_table(root, positions=(2, ROWS) if rule == TOO_HIGH else DELETED)
    if rule in LOG_CHANGES:
        LOG_CHANGES[rule](table)
    table.publish()
    if rule not in FILE_CHANGES:
        table.put("checkpoint.parquet", a_checkpoint(*table.state()))
    if rule in FILE_CHANGES:
        FILE_CHANGES[rule](table)
    hint = table.log / "_last_checkpoint"
    if (
        rule != "last-checkpoint-unsound"
        and not hint.exists()
        and any(table.log.glob("*.checkpoint.parquet"))
    ):
        write_log_file(table.root, "_last_checkpoint", b'{"version":2,"size":8}')
    return table
