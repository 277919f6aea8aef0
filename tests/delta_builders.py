"""Small Delta logs for tests, valid unless a test says otherwise.

Actions are JSON documents: `an_add(path="a.parquet")` is `{"add": {...}}`. `a_log(folder, [...], [...])` writes one
commit for each list, the first with protocol and metadata before it where it has none of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.delta.log_reader import DeltaLog
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.storage import open_storage

TABLE_ID = "5fba94ed-9794-4965-ba6e-6ee3c0d22af9"
NOW_MS = 1_800_000_000_000
SCHEMA_STRING = json.dumps(
    {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]},
    separators=(",", ":"),
)
DV_FEATURES = ("deletionVectors",)

Action = dict[str, Any]


# -- actions ---------------------------------------------------------------------------------------------------


def an_add(
    *, path: str = "part-0.parquet", rows: int | None = 10, dv: Action | None = None, **others: Any
) -> Action:
    """An add.

    Args:
        path: as the log spells it.
        rows: `numRecords` of its statistics; None for no statistics.
        dv: its deletion vector, see `a_dv`.
        others: further fields, or other values of the usual ones; None leaves a field out.
    """
    fields = {
        "path": path,
        "partitionValues": {},
        "size": 100,
        "modificationTime": NOW_MS,
        "dataChange": True,
        "stats": None if rows is None else json.dumps({"numRecords": rows}, separators=(",", ":")),
        "deletionVector": dv,
    }
    return {"add": _given(fields | others)}


def a_remove(*, path: str = "part-0.parquet", dv: Action | None = None, **others: Any) -> Action:
    """A remove, made at `NOW_MS`."""
    fields = {"path": path, "deletionTimestamp": NOW_MS, "dataChange": True, "deletionVector": dv}
    return {"remove": _given(fields | others)}


def a_cdc(*, path: str = "_change_data/cdc-0.parquet", **others: Any) -> Action:
    """A change data file."""
    fields = {"path": path, "partitionValues": {}, "size": 50, "dataChange": False}
    return {"cdc": _given(fields | others)}


def a_dv(
    *, name: str = "vBn[lx{q8@P<9BNH/isA", offset: int | None = 1, cardinality: int = 1, **others: Any
) -> Action:
    """A deletion vector in a file of the table; `name` is prefix and UUID in Z85."""
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
    """A protocol."""
    fields = {
        "minReaderVersion": reader,
        "minWriterVersion": writer,
        "readerFeatures": None if reader_features is None else list(reader_features),
        "writerFeatures": None if writer_features is None else list(writer_features),
    }
    return {"protocol": _given(fields | others)}


def a_protocol_with(*features: str) -> Action:
    """A protocol of table features: those that readers must know are listed for them too."""
    from iceberg_cli.delta.spec.features import READER_FEATURES

    readers = [feature for feature in features if feature in READER_FEATURES]
    if not readers:
        return a_protocol(1, 7, writer_features=features)
    return a_protocol(3, 7, reader_features=readers, writer_features=features)


def a_metadata(*, configuration: Mapping[str, str] | None = None, **others: Any) -> Action:
    """A table with the column `n`."""
    fields = {
        "id": TABLE_ID,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA_STRING,
        "partitionColumns": [],
        "configuration": dict(configuration or {}),
        "createdTime": NOW_MS,
    }
    return {"metaData": _given(fields | others)}


def a_commit_info(*, operation: str = "WRITE", **others: Any) -> Action:
    """A commit info."""
    return {
        "commitInfo": _given(
            {"timestamp": NOW_MS, "operation": operation, "operationParameters": {}} | others
        )
    }


def a_txn(*, app_id: str = "loader", version: int = 1, **others: Any) -> Action:
    """A transaction identifier."""
    return {"txn": _given({"appId": app_id, "version": version} | others)}


def a_domain(
    *, domain: str = "user.notes", configuration: str = "{}", removed: bool = False, **others: Any
) -> Action:
    """A metadata domain."""
    return {
        "domainMetadata": _given(
            {"domain": domain, "configuration": configuration, "removed": removed} | others
        )
    }


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# -- logs on a disk --------------------------------------------------------------------------------------------


def a_commit(*actions: Action) -> bytes:
    """JSON lines, each ended by a newline."""
    return b"".join(
        json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for each in actions
    )


def a_log(root: Path, *commits: Sequence[Action] | bytes, first: int = 0, age_ms: int = 0) -> DeltaLog:
    """Write commits from version `first` on, one second apart, the last one `age_ms` before `NOW_MS`.

    Commit 0 gets protocol and metadata where it has neither; bytes are written as they are.
    """
    for number, commit in enumerate(commits):
        data = commit if isinstance(commit, bytes) else a_commit(*_founded(commit, number + first))
        write_commit(
            root, number + first, data, modified_ms=NOW_MS - age_ms - (len(commits) - 1 - number) * 1_000
        )
    return the_log(root)


def write_commit(root: Path, version: int, data: bytes, *, modified_ms: int = NOW_MS) -> Path:
    """Write `<version>.json`."""
    return write_log_file(root, f"{version:020}.json", data, modified_ms=modified_ms)


def write_log_file(root: Path, name: str, data: bytes, *, modified_ms: int = NOW_MS) -> Path:
    """Write a file of the log under its name."""
    path = root / "_delta_log" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
    return path


def a_checkpoint(*actions: Action) -> bytes:
    """A checkpoint in Parquet, with the columns of the actions that it holds, types as the protocol has them."""
    kinds = list(dict.fromkeys(kind for action in actions for kind in action))
    columns = [
        pa.array([_pairs(action.get(kind)) for action in actions], _type_of(kind, actions)) for kind in kinds
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, names=kinds), sink, store_schema=False)
    return sink.getvalue().to_pybytes()


def the_log(root: Path) -> DeltaLog:
    """The log of the table in a folder."""
    storage = open_storage()
    return DeltaLog(storage, LocalEngine(storage), str(root), lambda _: None)


def _founded(actions: Sequence[Action], version: int) -> list[Action]:
    if version or any("protocol" in action or "metaData" in action for action in actions):
        return list(actions)
    return [a_protocol(), a_metadata(), *actions]


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


def _type_of(kind: str, actions: Sequence[Action]) -> pa.DataType:
    return _struct_of([action[kind] for action in actions if kind in action])


def _struct_of(values: Sequence[Mapping[str, Any]]) -> pa.DataType:
    fields: dict[str, pa.DataType] = {}
    for value in values:
        for name, item in value.items():
            if isinstance(item, dict) and name not in _TYPES:
                fields[name] = _struct_of([each[name] for each in values if each.get(name) is not None])
            elif name not in fields:
                fields[name] = (
                    pa.string() if isinstance(item, str) else _TYPES.get(name) or pa.scalar(item).type
                )
    return pa.struct(list(fields.items()))


def _pairs(value: Any, name: str = "") -> Any:
    """`value` with maps as pairs."""
    if not isinstance(value, dict):
        return value
    if _TYPES.get(name) == _STRINGS:
        return list(value.items())
    return {key: _pairs(item, key) for key, item in value.items()}
