"""A writer of Delta tables, file by file: actions, commits, checkpoints, deletion vectors.

Actions are JSON documents in the protocol's spelling: `an_add(path="a.parquet")` is `{"add": {...}}`. They are valid
unless a caller says otherwise, and whatever a caller gives is written as it is, so that damage can be written too.
`a_commit` and `a_checkpoint` make files of actions, wherever these are to go; `write_log(folder, [...], [...])` and
the other `write_` functions put files into a folder of this machine, with the modification times that readers go by.
Nothing here encodes by code of the package, so that what it reads wrongly it cannot have written wrongly as well.

Spec: Delta protocol, "Actions", "Delta Log Entries", "Checkpoints", "Schema Serialization Format", "Deletion Vectors".
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.testing.delta_vectors import a_vector_file

Json = dict[str, Any]
Action = Json  # of one member: the kind, and its fields

TABLE_ID = "5fba94ed-9794-4965-ba6e-6ee3c0d22af9"
NOW_MS = 1_800_000_000_000  # when everything happened whose time is not given
# Valid for readers and writers: "Valid Feature Names in Table Features", and what Delta Lake writes beside these.
READER_FEATURES = frozenset(
    {
        "catalogManaged", "catalogOwned-preview", "columnMapping", "deletionVectors", "timestampNtz",
        "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding",
        "variantShredding-preview", "variantType", "variantType-preview",
    }
)  # fmt: skip


def _given(fields: Mapping[str, Any]) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# -- actions: `others` are further fields, or other values of the usual ones; None leaves a field out ---------------


def an_add(
    *, path: str = "part-0.parquet", rows: int | None = 10, dv: Json | None = None, **others: Any
) -> Action:
    """An add of a file of 100 bytes, written at `NOW_MS`.

    Args:
        path: as the log spells it.
        rows: `numRecords` of its statistics; None for no statistics.
        dv: its deletion vector, see `a_dv` and `write_vectors`.
        others: see above.
    """
    fields = {
        "path": path,
        "partitionValues": {},
        "size": 100,
        "modificationTime": NOW_MS,
        "dataChange": True,
        "stats": None if rows is None else _as_json({"numRecords": rows}),
        "deletionVector": dv,
    }
    return {"add": _given(fields | others)}


def a_remove(*, path: str = "part-0.parquet", dv: Json | None = None, **others: Any) -> Action:
    """A remove, made at `NOW_MS`."""
    fields = {"path": path, "deletionTimestamp": NOW_MS, "dataChange": True, "deletionVector": dv}
    return {"remove": _given(fields | others)}


def a_cdc(*, path: str = "_change_data/cdc-0.parquet", **others: Any) -> Action:
    """A change data file."""
    fields = {"path": path, "partitionValues": {}, "size": 50, "dataChange": False}
    return {"cdc": _given(fields | others)}


def a_dv(
    *, name: str = "vBn[lx{q8@P<9BNH/isA", offset: int | None = 1, cardinality: int = 1, **others: Any
) -> Json:
    """The descriptor of a deletion vector in a file of the table; `name` is prefix and UUID in Z85."""
    fields = {
        "storageType": "u",
        "pathOrInlineDv": name,
        "offset": offset,
        "sizeInBytes": 36,
        "cardinality": cardinality,
    }
    return _given(fields | others)


def a_protocol(
    reader: int = 1,
    writer: int = 2,
    *,
    reader_features: Iterable[str] | None = None,
    writer_features: Iterable[str] | None = None,
    **others: Any,
) -> Action:
    """A protocol of these versions."""
    fields = {
        "minReaderVersion": reader,
        "minWriterVersion": writer,
        "readerFeatures": None if reader_features is None else list(reader_features),
        "writerFeatures": None if writer_features is None else list(writer_features),
    }
    return {"protocol": _given(fields | others)}


def a_protocol_with(*features: str) -> Action:
    """A protocol of table features: those that readers must know are listed for them too."""
    readers = [feature for feature in features if feature in READER_FEATURES]
    if not readers:
        return a_protocol(1, 7, writer_features=features)
    return a_protocol(3, 7, reader_features=readers, writer_features=features)


def a_field(name: str, kind: Any, **metadata: Any) -> Json:
    """A nullable column; `kind` is the name of a primitive type, or the document of another one."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def a_schema(*fields: Mapping[str, Any]) -> Json:
    """The document of a schema, or of a column that is a struct."""
    return {"type": "struct", "fields": list(fields)}


def a_metadata(*columns: Json, configuration: Mapping[str, str] | None = None, **others: Any) -> Action:
    """The metadata of a table without partitions; `columns` are those of `a_field`, else there is one, `n`."""
    fields = {
        "id": TABLE_ID,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _as_json(a_schema(*(columns or [a_field("n", "long")]))),
        "partitionColumns": [],
        "configuration": dict(configuration or {}),
        "createdTime": NOW_MS,
    }
    return {"metaData": _given(fields | others)}


def a_commit_info(*, operation: str = "WRITE", **others: Any) -> Action:
    """A commit info of `NOW_MS`."""
    fields = {"timestamp": NOW_MS, "operation": operation, "operationParameters": {}}
    return {"commitInfo": _given(fields | others)}


def a_txn(*, app_id: str = "loader", version: int = 1, **others: Any) -> Action:
    """A transaction identifier."""
    return {"txn": _given({"appId": app_id, "version": version} | others)}


def a_domain(
    *, domain: str = "user.notes", configuration: str = "{}", removed: bool = False, **others: Any
) -> Action:
    """A metadata domain."""
    fields = {"domain": domain, "configuration": configuration, "removed": removed}
    return {"domainMetadata": _given(fields | others)}


def a_row_id_mark(last: int) -> Action:
    """The domain with the highest row id that is assigned. Spec: "Row Tracking"."""
    return a_domain(domain="delta.rowTracking", configuration=_as_json({"rowIdHighWaterMark": last}))


# -- files of actions ----------------------------------------------------------------------------------------------


def a_commit(*actions: Action) -> bytes:
    """JSON lines, each ended by a newline."""
    return "".join(f"{_as_json(each)}\n" for each in actions).encode()


def a_checkpoint(*actions: Action) -> bytes:
    """A checkpoint in Parquet, with the columns of the actions that it holds, types as the protocol has them."""
    kinds = dict.fromkeys(kind for action in actions for kind in action)
    types = [(kind, _type_of([action[kind] for action in actions if kind in action])) for kind in kinds]
    sink = io.BytesIO()
    write_row_groups(sink, pa.schema(types), [actions])
    return sink.getvalue()


def write_row_groups(sink: str | IO[bytes], schema: pa.Schema, groups: Iterable[Sequence[Action]]) -> int:
    """Write a checkpoint in Parquet, of any length.

    Args:
        sink: a file, or its path.
        schema: a column for each kind of action.
        groups: the actions of each row group.

    Returns:
        How many actions it has, which is `size` in `_last_checkpoint`.
    """
    rows = 0
    with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
        for actions in groups:
            columns = [pa.array([each.get(kind.name) for each in actions], kind.type) for kind in schema]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            rows += len(actions)
    return rows


_STRINGS = pa.map_(pa.string(), pa.string())
_TYPES: dict[str, pa.DataType] = {
    "partitionValues": _STRINGS,
    "tags": _STRINGS,
    "configuration": _STRINGS,
    "options": _STRINGS,
    "offset": pa.int32(),
    "sizeInBytes": pa.int32(),
    "minReaderVersion": pa.int32(),
    "minWriterVersion": pa.int32(),
    "partitionColumns": pa.list_(pa.string()),
    "readerFeatures": pa.list_(pa.string()),
    "writerFeatures": pa.list_(pa.string()),
}


def _type_of(values: Sequence[Mapping[str, Any]]) -> pa.DataType:
    """A struct with every field that any of some objects has."""
    fields: dict[str, pa.DataType] = {}
    for value in values:
        for name, item in value.items():
            if isinstance(item, dict) and name not in _TYPES:
                fields[name] = _type_of([each[name] for each in values if each.get(name) is not None])
            elif name not in fields:
                # The configuration of a domain is text, that of a table a map.
                kind = pa.string() if isinstance(item, str) else _TYPES.get(name)
                fields[name] = kind or pa.scalar(item).type
    return pa.struct(list(fields.items()))


# -- files in a folder of this machine -----------------------------------------------------------------------------


def write_file(root: Path, name: str, data: bytes, *, modified_ms: int | None = None) -> Path:
    """Write any file of a table; its folder is made.

    Args:
        root: of the table.
        name: below it.
        data: its bytes.
        modified_ms: its modification time; None for that of the clock.
    """
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if modified_ms is not None:
        set_modified(path, modified_ms)
    return path


def set_modified(path: Path, modified_ms: int) -> None:
    """Give a file a modification time."""
    os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def write_log_file(root: Path, name: str, data: bytes, *, modified_ms: int = NOW_MS) -> Path:
    """Write a file of the log under its name."""
    return write_file(root, f"_delta_log/{name}", data, modified_ms=modified_ms)


def commit_path(root: Path, version: int) -> Path:
    """Where `<version>.json` is."""
    return root / "_delta_log" / f"{version:020}.json"


def write_commit(root: Path, version: int, data: bytes, *, modified_ms: int = NOW_MS) -> Path:
    """Write `<version>.json`."""
    return write_log_file(root, commit_path(root, version).name, data, modified_ms=modified_ms)


def write_checkpoint(root: Path, version: int, *actions: Action, modified_ms: int = NOW_MS) -> Path:
    """Write a classic checkpoint of these actions."""
    name = f"{version:020}.checkpoint.parquet"
    return write_log_file(root, name, a_checkpoint(*actions), modified_ms=modified_ms)


def write_log(
    root: Path, *commits: Sequence[Action] | bytes, first: int = 0, age_ms: int | Sequence[int] = 0
) -> None:
    """Write commits.

    Args:
        root: of the table.
        commits: the actions of each, or its bytes. Commit 0 gets protocol and metadata where it has neither.
        first: version of the first one.
        age_ms: how long before `NOW_MS` each was made, or only the last one: then they are one second apart.
    """
    if isinstance(age_ms, int):
        age_ms = [age_ms + 1_000 * seconds for seconds in reversed(range(len(commits)))]
    for version, (commit, commit_age_ms) in enumerate(zip(commits, age_ms, strict=True), first):
        data = commit if isinstance(commit, bytes) else a_commit(*_founded(commit, version))
        write_commit(root, version, data, modified_ms=NOW_MS - commit_age_ms)


def _founded(actions: Sequence[Action], version: int) -> Sequence[Action]:
    if version or any("protocol" in action or "metaData" in action for action in actions):
        return actions
    return [a_protocol(), a_metadata(), *actions]


def write_vectors(root: Path, number: int, *vectors: Iterable[int], dead: int = 0) -> list[Json]:
    """Write a file of deletion vectors.

    Args:
        root: of the table.
        number: makes its name, see `delta_vectors.vector_file_name`.
        vectors: the positions of each.
        dead: bytes behind them that nothing needs.

    Returns:
        Their descriptors.
    """
    name, data, descriptors = a_vector_file(number, *vectors)
    write_file(root, name, data + bytes(dead))
    return descriptors
