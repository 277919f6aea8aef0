"""Writing checkpoints: a snapshot's state to the bytes of classic and of V2 checkpoints.

A classic checkpoint is one Parquet file. A V2 checkpoint is a top level, JSON or Parquet, and sidecars, Parquet files
of adds and removes that it names; they are written before it, so that whoever sees the top level can read all of it.
Multi-part checkpoints cannot be written whole and are never written.

Spec: Delta protocol, "Checkpoints", "V2 Spec", "Checkpoint Naming Scheme", "Checkpoint Schema".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_cli.delta.spec.checkpoints.columns import (
    ACTIONS,
    CLASSIC,
    ROWS_AT_ONCE,
    TOP_LEVEL,
    FileColumns,
    file_columns,
    other_rows,
    spark_schema,
)
from iceberg_cli.delta.spec.checkpoints.last_checkpoint import LastCheckpoint, V2Hint
from iceberg_cli.delta.spec.checkpoints.state import CheckpointState
from iceberg_cli.delta.spec.columns import ADD, REMOVE
from iceberg_cli.errors import UsageError

PART_SIZE: Final = 50_000  # actions in one sidecar, as Delta Spark has it
V2_FEATURE: Final = "v2Checkpoint"
JSON, PARQUET = "json", "parquet"
_LONGEST_SCHEMA: Final = 20_000  # characters that a hint or a tag holds; Delta leaves out what is longer
_GROUP_ROWS: Final = 2 * ROWS_AT_ONCE  # of a row group, or up to half as many more
_SIDECARS: Final = ("add", "remove")
_REMOVE_WHOLE: Final = [*(field for field in REMOVE if field.name != "stats"), REMOVE.field("stats")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFile:
    """A file that was written."""

    name: str  # bare
    size_bytes: int
    modified_ms: int

    def sidecar(self) -> dict[str, Any]:
        """The action that names it."""
        return {"path": self.name, "sizeInBytes": self.size_bytes, "modificationTime": self.modified_ms}


def classic_name(version: int) -> str:
    """The name of a classic checkpoint."""
    return f"{version:020}.checkpoint.parquet"


def top_level_name(version: int, unique: str, form: str = JSON) -> str:
    """The name of a V2 checkpoint's top level; `unique` is a UUID."""
    return f"{version:020}.checkpoint.{unique}.{form}"


def sidecar_name(version: int, part: int, parts: int, unique: str) -> str:
    """The name of sidecar `part`, counted from 0, of `parts`."""
    return f"{version:020}.checkpoint.{part + 1:010}.{parts:010}.{unique}.parquet"


def sidecar_count(state: CheckpointState, part_size: int) -> int:
    """How many sidecars a V2 checkpoint has; always one.

    Raises:
        UsageError: the size is none.
    """
    if part_size < 1:
        raise UsageError(f"Cannot write sidecars of {part_size} actions: 1 is the least")
    return max(1, -(-state.file_actions // part_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWriter:
    """One checkpoint, file by file."""

    state: CheckpointState
    columns: FileColumns
    part_size: int = PART_SIZE

    def classic(self) -> tuple[bytes, LastCheckpoint]:
        """The one file of a classic checkpoint, and its hint.

        Raises:
            Refused: a field that Delta does not name has no type that Parquet can hold.
        """
        others = other_rows(self.state.other_actions)
        schema = self._schema(CLASSIC, others)
        rows = (*others.items(), *self.columns.rows(0, self.state.file_actions))
        data = _parquet(schema, _batches(schema, rows))
        hint = LastCheckpoint(
            version=self.state.version,
            actions=self.state.file_actions + sum(map(len, others.values())),
            size_bytes=len(data),
            adds=self.state.adds.num_rows,
            schema=_short(schema),
        )
        return data, hint

    def sidecar(self, part: int) -> bytes:
        """Sidecar `part`, counted from 0: adds and removes alone."""
        schema = self._schema(_SIDECARS, {})
        start = part * self.part_size
        stop = min(start + self.part_size, self.state.file_actions)
        return _parquet(schema, _batches(schema, self.columns.rows(start, stop)))

    def top_level(self, sidecars: Sequence[CheckpointFile], *, form: str = JSON) -> bytes:
        """The top level of a V2 checkpoint.

        Args:
            sidecars: all of them, as they were written.
            form: JSON or PARQUET.

        Raises:
            Refused: as `classic`, of a Parquet one.
        """
        actions: list[Mapping[str, Any]] = [{"checkpointMetadata": self._checkpoint_metadata(sidecars)}]
        actions += [{"sidecar": sidecar.sidecar()} for sidecar in sidecars]
        actions += self.state.other_actions
        if form == JSON:
            return "".join(f"{_text(action)}\n" for action in actions).encode()
        rows = other_rows(actions)
        fields = {"add": pa.struct(list(ADD)), "remove": pa.struct(_REMOVE_WHOLE), **ACTIONS}
        fields |= {kind: column.type for kind, column in rows.items()}
        schema = pa.schema([(kind, fields.pop(kind)) for kind in TOP_LEVEL] + list(fields.items()))
        return _parquet(schema, _batches(schema, rows.items()))

    def hint(self, top_level: CheckpointFile, sidecars: Sequence[CheckpointFile]) -> LastCheckpoint:
        """The hint that names a V2 checkpoint."""
        others = self.state.other_actions
        metadata = {"checkpointMetadata": self._checkpoint_metadata(sidecars)}
        return LastCheckpoint(
            version=self.state.version,
            actions=self.state.file_actions + len(others) + len(sidecars) + 1,
            size_bytes=top_level.size_bytes + sum(sidecar.size_bytes for sidecar in sidecars),
            adds=self.state.adds.num_rows,
            v2=V2Hint(
                path=top_level.name,
                size_bytes=top_level.size_bytes,
                modified_ms=top_level.modified_ms,
                # Whoever trusts the list does not look for actions that it does not know.
                actions=None if self.state.unknown else [*others, metadata],
                sidecars=[sidecar.sidecar() for sidecar in sidecars],
            ),
        )

    def _checkpoint_metadata(self, sidecars: Sequence[CheckpointFile]) -> dict[str, Any]:
        tags = {
            "sidecarNumActions": str(self.state.file_actions),
            "sidecarSizeInBytes": str(sum(sidecar.size_bytes for sidecar in sidecars)),
            "numOfAddFiles": str(self.state.adds.num_rows),
        }
        schema = _short(self._schema(_SIDECARS, {}))
        if schema is not None:
            tags["sidecarFileSchema"] = _text(schema)
        return {"version": self.state.version, "tags": tags}

    def _schema(self, kinds: Sequence[str], others: Mapping[str, pa.StructArray]) -> pa.Schema:
        """The columns of a file: those of `kinds`, then those of actions of unknown kind."""
        fields = {"add": self.columns.add_type, "remove": self.columns.remove_type, **ACTIONS}
        fields |= {kind: column.type for kind, column in others.items()}
        return pa.schema([(kind, fields[kind]) for kind in dict.fromkeys((*kinds, *others))])


def checkpoint_writer(state: CheckpointState, *, part_size: int = PART_SIZE) -> CheckpointWriter:
    """How a checkpoint of the state is written.

    Raises:
        InvalidMetadata: the schema cannot be read, or a property is wrong.
        Refused: a field of an add or a remove has no type that Parquet can hold.
    """
    return CheckpointWriter(state=state, columns=file_columns(state), part_size=part_size)


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _short(schema: pa.Schema) -> Mapping[str, Any] | None:
    """A schema as Spark writes it, unless that is long."""
    found = spark_schema(schema)
    return found if found is not None and len(_text(found)) <= _LONGEST_SCHEMA else None


def _batches(schema: pa.Schema, rows: Iterable[tuple[str, pa.StructArray]]) -> Iterator[pa.RecordBatch]:
    """Rows that have one action each."""
    for kind, structs in rows:
        columns = [structs if field.name == kind else pa.nulls(len(structs), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    # Every path and nearly every document of statistics is there once, so a dictionary of them gains nothing.
    with pq.ParquetWriter(
        sink,
        schema,
        compression="snappy",
        store_schema=False,
        write_statistics=_bounded(schema),
        use_dictionary=False,
        write_page_checksum=True,
    ) as writer:
        for group in _groups(batches):
            writer.write_table(pa.Table.from_batches(group, schema), row_group_size=2 * _GROUP_ROWS)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _bounded(schema: pa.Schema) -> list[str]:
    """The columns with the smallest and the largest value in a footer: all but floating point numbers.

    Parquet leaves NaN out of such bounds, and readers that skip row groups by them would miss the files that hold one.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, store_schema=False)
    leaves = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    columns = (leaves.column(index) for index in range(len(leaves.names)))
    return [column.path for column in columns if column.physical_type not in ("FLOAT", "DOUBLE")]


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches of enough rows for a row group."""
    group: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        if rows >= _GROUP_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group
