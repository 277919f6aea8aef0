"""A slow, literal reader of the rows of a Delta table, which replays the JSON commits of its log and no checkpoint.

Each sentence of the protocol is a line of it, and it shares nothing with what reads tables in the package: what both
say of a table, the protocol says of it.

Spec: Delta protocol, "Action Reconciliation", "Deletion Vectors", "Column Mapping", "Row Tracking", "Type Widening",
"Partition Value Serialization".
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.testing.delta_vectors import data_of, positions_in, vector_file, z85_decode

Json = dict[str, Any]


@dataclass(slots=True)
class LiteralState:
    """A version of a table, by the commits that its log has: without those before the first one."""

    protocol: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    adds: dict[tuple[str, str], Json] = field(default_factory=dict)  # by path and vector
    domains: dict[str, Json] = field(default_factory=dict)

    @property
    def configuration(self) -> Json:
        """Of the table: none where the commit that says it is gone."""
        found: Json = self.metadata.get("configuration", {})
        return found

    @property
    def fields(self) -> list[Json]:
        """Of its schema."""
        found: list[Json] = json.loads(self.metadata["schemaString"])["fields"]
        return found


def commits_of(root: Path) -> list[Path]:
    """The commits in a log, in their order."""
    return sorted(path for path in (root / "_delta_log").glob("*.json") if path.stem.isdigit())


def state_of(root: Path, version: int | None = None) -> LiteralState:
    """The table as of a version, None: the newest."""
    state = LiteralState()
    for path in commits_of(root):
        if version is not None and int(path.stem) > version:
            break
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            ((kind, body),) = action.items()
            match kind:
                case "protocol":
                    state.protocol = body
                case "metaData":
                    state.metadata = body
                case "domainMetadata":
                    state.domains[body["domain"]] = body
                case "remove":
                    state.adds.pop((body["path"], _vector_id(body)), None)
        for action in actions:
            if (add := action.get("add")) is not None:
                state.adds[add["path"], _vector_id(add)] = add
    return state


def _vector_id(action: Mapping[str, Any]) -> str:
    vector = action.get("deletionVector")
    if vector is None:
        return ""
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def rows_of(root: Path, version: int | None = None) -> list[str]:
    """The live rows, each as text, sorted: values of its columns, and its id and commit version where it has these."""
    state = state_of(root, version)
    return sorted(repr(row) for add in state.adds.values() for row in _rows_in(root, state, add))


def _rows_in(root: Path, state: LiteralState, add: Json) -> Iterator[Any]:
    data = (root / unquote(add["path"])).read_bytes()
    table = pq.ParquetFile(io.BytesIO(data)).read()
    assert len(data) == add["size"]
    gone = deleted_positions(root, add)
    mode = state.configuration.get("delta.columnMapping.mode", "none")
    tracked = state.configuration.get("delta.enableRowTracking") == "true"
    names = [
        state.configuration.get(f"delta.rowTracking.materialized{each}ColumnName", "")
        for each in ("RowId", "RowCommitVersion")
    ]
    stored = table.to_pylist()
    columns = [_column(table.schema, each, mode) for each in state.fields]
    for position, row in enumerate(stored):
        if position in gone:
            continue
        values = []
        for each, column in zip(state.fields, columns, strict=True):
            if each["name"] in state.metadata["partitionColumns"]:
                text = add["partitionValues"].get(_physical(each, mode))
                values.append((each["name"], None if text in (None, "") else _of_text(text, each["type"])))
            else:
                own = None if column is None else row[column]
                field_ = None if column is None else table.schema.field(column)
                values.append((each["name"], _value(own, each["type"], field_, mode)))
        ids: tuple[Any, ...] = ()
        if tracked:
            own_id, own_version = (row.get(name) for name in names)
            ids = (
                add["baseRowId"] + position if own_id is None else own_id,
                add["defaultRowCommitVersion"] if own_version is None else own_version,
            )
        yield tuple(values), ids


def deleted_positions(root: Path, add: Mapping[str, Any]) -> set[int]:
    """The positions that the deletion vector of an add deletes."""
    vector = add.get("deletionVector")
    if vector is None:
        return set()
    path = vector_file(vector, str(root))
    if path is not None:
        return set(positions_in(Path(path).read_bytes(), vector))
    data = z85_decode(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
    from pyroaring import BitMap64

    assert data[:4] == data_of([])[:4]
    return set(BitMap64.deserialize(data[4:]))


def _physical(field_: Mapping[str, Any], mode: str) -> str:
    metadata = field_.get("metadata", {})
    return str(field_["name"] if mode == "none" else metadata["delta.columnMapping.physicalName"])


def _column(own: Any, field_: Mapping[str, Any], mode: str) -> str | None:
    """The name in a file of a column of the table; None where the file does not have it."""
    if mode != "id":
        name = _physical(field_, mode)
        return name if own.get_field_index(name) >= 0 else None
    field_id = str(field_["metadata"]["delta.columnMapping.id"]).encode()
    for each in own:
        if (each.metadata or {}).get(b"PARQUET:field_id") == field_id:
            return str(each.name)
    return None


def _value(value: Any, kind: Any, own: pa.Field | None, mode: str) -> Any:
    """A value as the table has it now."""
    if value is None:
        return None
    if isinstance(kind, dict):
        match kind["type"]:
            case "struct":
                assert own is not None
                inner = pa.schema([own.type.field(i) for i in range(own.type.num_fields)])
                found = []
                for each in kind["fields"]:
                    name = _column(inner, each, mode)
                    stored = (None, None) if name is None else (value[name], inner.field(name))
                    found.append((each["name"], _value(stored[0], each["type"], stored[1], mode)))
                return tuple(found)
            case "array":
                assert own is not None
                return [_value(each, kind["elementType"], own.type.value_field, mode) for each in value]
            case _:
                assert own is not None
                return [
                    (
                        _value(key, kind["keyType"], own.type.key_field, mode),
                        _value(each, kind["valueType"], own.type.item_field, mode),
                    )
                    for key, each in value
                ]
    if kind == "timestamp_ntz" and isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time.min)
    if kind == "timestamp":
        return value.timestamp()
    if kind in ("float", "double"):
        return "nan" if math.isnan(value) else (float(value), math.copysign(1, value))
    if str(kind).startswith("decimal"):
        return Decimal(value).normalize()
    return value


def _of_text(text: str, kind: str) -> Any:
    """A partition value, by its text."""
    if kind in ("long", "integer", "short", "byte"):
        return int(text)
    if kind == "date":
        return date.fromisoformat(text)
    return text
