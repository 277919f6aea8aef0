"""Checkpoints and their sidecars: bytes -> actions in columns.

Parquet goes to Arrow and stays there. Of `stats` and `stats_parsed` only one is read: the text, unless it is not there.

Spec: "Checkpoints", "Checkpoint Schema", "V2 Spec", "Sidecar File Information".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.actions import CHECKPOINT_ONLY, Actions, Int64s, Json, domain_key, transaction_key
from iceberg_cli.delta.spec.columns import (
    ADD,
    DELETION_VECTOR,
    REMOVE,
    check_files,
    noting_unknown,
    plain_values,
)
from iceberg_cli.delta.spec.commit_parsing import CommitBytes, parse_checkpoint
from iceberg_cli.delta.spec.paths import decode
from iceberg_cli.delta.spec.protocol import Metadata, Protocol
from iceberg_cli.delta.spec.text_values import stats_texts
from iceberg_cli.encoding.arrow import plain, plain_type
from iceberg_cli.errors import CorruptFile

_FILES: Final = {"add": ADD, "remove": REMOVE}
_KNOWN: Final = ("txn", "metaData", "protocol", "domainMetadata", "commitInfo", "cdc", *CHECKPOINT_ONLY)
_PARTITIONS: Final = "partitionValues_parsed"
_DERIVED: Final = ("stats_parsed", _PARTITIONS)
_BATCH_ROWS: Final = 1 << 13
_THREADS: Final = 2
_PARSED_PREFIX: Final = "add.stats_parsed."
_SIDECAR: Final = "sidecar"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """The content of one file of a checkpoint.

    Args:
        actions: their version is the checkpoint's, their line the row.
        sidecars: `sidecar` actions.
        checkpoint_metadata: the `checkpointMetadata` action of a V2 checkpoint.
    """

    actions: Actions
    sidecars: tuple[Json, ...] = ()
    checkpoint_metadata: Json | None = field(default=None)


def read_part(path: str, version: int, data: bytes) -> CheckpointPart:
    """The actions of a checkpoint's top-level file, a part of it or a sidecar; JSON or Parquet by its name.

    Args:
        path: of the file.
        version: of the checkpoint.
        data: the whole file.

    Raises:
        CorruptFile: it is damaged, or an action in it is not as the protocol has it.
    """
    if path.endswith(".json"):
        return _of_json(path, version, data)
    return _of_parquet(path, version, data)


def lost_partition_values(path: str, data: bytes) -> tuple[int, str]:
    """The adds of which `partitionValues_parsed` does not hold a partition value, though readers skip files by it.

    Args:
        path: of a Parquet file of a checkpoint, for messages.
        data: the whole file.

    Returns:
        How many there are, and the first of them in words.

    Raises:
        CorruptFile: it is damaged.
    """
    try:
        file = _parquet_file(data)
        kind = file.schema_arrow.field("add").type if "add" in file.schema_arrow.names else pa.struct([])
        if not pa.types.is_struct(kind) or kind.get_field_index(_PARTITIONS) < 0:
            return 0, ""
        structs, _ = _structs(data, file, "add", ["path", "partitionValues", _PARTITIONS])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(path, None, f"no readable Parquet: {error}") from None
    count, first = 0, ""
    for chunk in structs.chunks:
        values, parsed = chunk.field("partitionValues"), chunk.field(_PARTITIONS)
        for name in pc.unique(values.keys).to_pylist():
            texts = pc.map_lookup(values, name, "first")
            held = parsed.type.get_field_index(name) >= 0
            absent = pc.struct_field(parsed, name).is_null() if held else True
            lost = pc.and_(pc.fill_null(pc.not_equal(texts, ""), fill_value=False), absent)
            index = pc.index(lost, pa.scalar(value=True)).as_py()
            if index >= 0:
                first = first or f"{name}={texts[index].as_py()!r} of {chunk.field('path')[index].as_py()}"
                count += pc.sum(lost).as_py()
    return count, first


def sidecar_path(sidecar: Json, folder: str, checkpoint: str) -> tuple[str, int]:
    """Storage path and size of a sidecar.

    Args:
        sidecar: the action.
        folder: storage path of `_delta_log`.
        checkpoint: file that names it, for messages.

    Raises:
        CorruptFile: the action names no file in the folder of sidecars.
    """
    fields = sidecar if isinstance(sidecar, dict) else {}
    path, size = fields.get("path"), fields.get("sizeInBytes")
    if not isinstance(path, str) or type(size) is not int or size < 0:
        raise CorruptFile(checkpoint, "sidecar", "path and sizeInBytes are expected")
    name = decode(path).rsplit("/", 1)[-1]
    if name in {"", ".", ".."}:
        raise CorruptFile(checkpoint, "sidecar.path", f"{path!r} names no file")
    return f"{folder}/_sidecars/{name}", size


def _of_json(path: str, version: int, data: bytes) -> CheckpointPart:
    actions, special = parse_checkpoint(CommitBytes(path, version, data))
    metadata = [line["checkpointMetadata"] for line in special if line.get("checkpointMetadata") is not None]
    return CheckpointPart(
        actions=replace(actions, commit_infos=(), irregular=()),
        sidecars=tuple(line["sidecar"] for line in special if line.get("sidecar") is not None),
        checkpoint_metadata=metadata[-1] if metadata else None,
    )


def _parquet_file(data: bytes, metadata: Any = None) -> Any:
    """A `pyarrow.parquet.ParquetFile`.

    In nanoseconds, what INT96 holds of years before 1678 or after 2261 would become another time. Nothing but the
    checksums of pages tells that a path has become another one, and a file that nothing names is deleted.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        pa.BufferReader(data),
        metadata=metadata,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )


def _of_parquet(path: str, version: int, data: bytes) -> CheckpointPart:
    try:
        file = _parquet_file(data)
        schema = file.schema_arrow
        _check_names(schema, path)
        files = {kind: _rows(data, file, kind, path) for kind in _FILES if kind in schema.names}
        others = [each.name for each in schema if each.name not in _FILES and pa.types.is_struct(each.type)]
        table = _read(file, others)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise CorruptFile(path, None, f"no readable Parquet: {error}") from None
    small = {name: plain_values(_valid(table.column(name))) for name in others}
    tables = {
        kind: files[kind][0] if kind in files else schema.empty_table() for kind, schema in _FILES.items()
    }
    file_rows = {kind: files[kind][1] if kind in files else np.empty(0, np.int64) for kind in _FILES}

    def location(kind: str) -> Callable[[int], tuple[str, str]]:
        return lambda index: (path, f"row {file_rows[kind][index]}, {kind}")

    check_files(tables["add"], location("add"), sized=True)
    check_files(tables["remove"], location("remove"), sized=False)
    actions = Actions(
        adds=tables["add"],
        removes=tables["remove"],
        add_versions=np.full(tables["add"].num_rows, version, np.int64),
        add_lines=file_rows["add"],
        remove_versions=np.full(tables["remove"].num_rows, version, np.int64),
        remove_lines=file_rows["remove"],
        protocol=_last(small, "protocol", lambda value: Protocol.from_json(value, path=path)),
        metadata=_last(small, "metaData", lambda value: Metadata.from_json(value, path=path)),
        transactions={transaction_key(item, path, "txn"): item for item in small.get("txn", [])},
        domains={domain_key(item, path, "domainMetadata"): item for item in small.get("domainMetadata", [])},
        unknown=tuple({kind: item} for kind, items in small.items() if kind not in _KNOWN for item in items),
    )
    metadata = small.get("checkpointMetadata", [])
    return CheckpointPart(
        actions=actions,
        sidecars=tuple(small.get("sidecar", [])),
        checkpoint_metadata=metadata[-1] if metadata else None,
    )


def _check_names(schema: pa.Schema, path: str) -> None:
    """Refuse columns that look like file actions or deletion vectors and have other names.

    A Parquet footer has no checksum: one flipped bit in it makes another name, and then nothing names a live file.

    Raises:
        CorruptFile: it would be passed over as unknown.
    """
    for column in schema:
        if not pa.types.is_struct(column.type):
            continue
        names = {each.name for each in column.type}
        if column.name not in {*_FILES, "cdc", *CHECKPOINT_ONLY} and {"path", "partitionValues"} <= names:
            raise CorruptFile(path, column.name, "file actions under a name that is not known")
        for field_ in column.type if column.name in _FILES else ():
            parts = {part.name for part in field_.type} if pa.types.is_struct(field_.type) else set()
            if field_.name != "deletionVector" and {"storageType", "pathOrInlineDv"} & parts:
                raise CorruptFile(path, f"{column.name}.{field_.name}", "deletion vectors under another name")


def _read(file: Any, columns: Sequence[str]) -> pa.Table:
    table = file.read(columns=list(columns))
    table.validate(full=True)  # strings may be no UTF-8
    table = pa.table(
        {
            name: pa.chunked_array([plain(chunk) for chunk in column.chunks], plain_type(column.type))
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )
    # Some writers do not say of strings that they are text. One flipped bit in the footer does not say so either.
    types = [_as_text(each.type) if each.name in _KNOWN else each.type for each in table.schema]
    return table.cast(pa.schema(zip(table.column_names, types, strict=True)))


def _as_text(kind: pa.DataType) -> pa.DataType:
    """A type with strings in place of bytes."""
    if pa.types.is_map(kind):
        return pa.map_(_as_text(kind.key_type), _as_text(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _as_text(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    return pa.string() if pa.types.is_binary(kind) else kind


def _structs(data: bytes, file: Any, kind: str, names: Sequence[str]) -> tuple[pa.ChunkedArray, Int64s]:
    """Those structs of a column that are not null, with some of their fields, and their rows in the file.

    Arrow decodes what is below one column in one thread, so row groups are shared out.
    """
    lengths = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    ends = np.cumsum(lengths, dtype=np.int64)
    splits = [split for split in np.array_split(np.arange(len(lengths)), _THREADS) if len(split)]

    def read(split: Int64s) -> tuple[list[pa.Array], list[Int64s]]:
        first_row = int(ends[split[0]]) - lengths[split[0]]
        return _structs_of_groups(_parquet_file(data, file.metadata), kind, names, split.tolist(), first_row)

    with ThreadPoolExecutor(_THREADS - 1) as pool:
        others = pool.map(read, splits[1:])
        parts = [*map(read, splits[:1]), *others]  # here too: this thread has memory to use again
    chunks = [chunk for part, _ in parts for chunk in part]
    file_rows = [rows for _, part in parts for rows in part]
    kind_of_column = (
        chunks[0].type if chunks else plain_type(_narrowed(file.schema_arrow.field(kind).type, names))
    )
    return pa.chunked_array(chunks, kind_of_column), np.concatenate([np.empty(0, np.int64), *file_rows])


def _structs_of_groups(
    file: Any, kind: str, names: Sequence[str], groups: Sequence[int], first_row: int
) -> tuple[list[pa.Array], list[Int64s]]:
    """The structs of some row groups that follow one another, batch by batch, and their rows in the file.

    A file's rows are mostly of other kinds: so the whole column is never there beside its rows.
    """
    chunks, file_rows = [], []
    columns = [f"{kind}.{name}" for name in names]
    for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False):
        batch.validate(full=True)
        column = plain(batch.column(0))
        there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        if len(there):
            chunks.append(column.drop_null() if column.null_count else column)
            file_rows.append(there + first_row)
        first_row += len(column)
    return chunks, file_rows


def _narrowed(struct: pa.StructType, names: Sequence[str]) -> pa.StructType:
    return pa.struct([each for each in struct if each.name in names])


def _rows(data: bytes, file: Any, kind: str, path: str) -> tuple[pa.Table, Int64s]:
    """The adds or removes of a checkpoint in the columns that they have here, and their rows in the file."""
    struct = file.schema_arrow.field(kind).type
    if not pa.types.is_struct(struct):
        raise CorruptFile(path, kind, f"a struct is expected, not {struct}")
    # One column of it by itself: what is derived from others is not even decompressed.
    skipped = _DERIVED if struct.get_field_index("stats") >= 0 else _DERIVED[1:]
    structs, file_rows = _structs(
        data, file, kind, [each.name for each in struct if each.name not in skipped]
    )
    schema = _FILES[kind]
    names = [each.name for each in structs.type]
    columns = [
        _field(structs, field_.name, field_.type)
        if field_.name in names
        else pa.nulls(len(file_rows), field_.type)
        for field_ in schema
    ]
    fields = list(schema)
    for name in sorted(set(names) - set(schema.names) - set(_DERIVED)):
        column = _field(structs, name, None)
        if column.null_count < len(column):
            columns.append(column)
            fields.append(pa.field(name, column.type))
    rows = noting_unknown(
        pa.Table.from_arrays(columns, schema=pa.schema(fields)), _unknown_of_vectors(structs)
    )
    if kind == "add" and rows.column("stats").null_count and struct.get_field_index("stats_parsed") >= 0:
        return _with_stats(rows, data, file), file_rows
    return rows, file_rows


def _unknown_of_vectors(structs: pa.ChunkedArray) -> list[str]:
    """The fields of deletion vectors that the protocol does not name and that have a value."""
    index = structs.type.get_field_index("deletionVector")
    vector = structs.type.field(index).type if index >= 0 else None
    if vector is None or not pa.types.is_struct(vector):
        return []
    names = [each.name for each in vector if DELETION_VECTOR.get_field_index(each.name) < 0]
    values = {name: pc.struct_field(structs, ["deletionVector", name]) for name in names}
    return [name for name, column in values.items() if column.null_count < len(column)]


def _field(structs: pa.ChunkedArray, name: str, kind: pa.DataType | None) -> pa.ChunkedArray:
    """A field of structs of which none is null, as `kind` where that is given."""
    index = structs.type.get_field_index(name)
    target_type = structs.type.field(index).type if kind is None else kind
    chunks = []
    for chunk in structs.chunks:
        column = chunk.field(index)
        none = column.null_count == len(column)
        chunks.append(pa.nulls(len(column), target_type) if none else _cast(column, target_type))
    return pa.chunked_array(chunks, target_type)


def _with_stats(adds: pa.Table, data: bytes, file: Any) -> pa.Table:
    """`adds` with the JSON of their parsed statistics where they have no other."""
    structs, _ = _structs(data, file, "add", ["path", "stats_parsed"])
    parsed = _field(structs, "stats_parsed", None)
    stats = pc.coalesce(adds.column("stats"), stats_texts(parsed, instants=_int96(file)))
    return adds.set_column(adds.schema.get_field_index("stats"), ADD.field("stats"), stats)


def _int96(file: Any) -> frozenset[str]:
    """The statistics that Parquet has as INT96: Spark writes times in UTC so, and no others."""
    columns = (file.schema.column(index) for index in range(len(file.schema)))
    return frozenset(
        column.path.removeprefix(_PARSED_PREFIX) for column in columns if column.physical_type == "INT96"
    )


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """`column` as `kind`: structs by the names of their fields, the rest as Arrow casts."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        names = [child.name for child in column.type]
        children = [
            _cast(column.field(child.name), child.type)
            if child.name in names
            else pa.nulls(len(column), child.type)
            for child in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        # Only the names of the inner fields differ, or the width of their offsets.
        keys, items = column.keys.cast(kind.key_type), column.items.cast(kind.item_type)
        plain = column.offset == 0 and not column.null_count
        if plain:
            return pa.MapArray.from_arrays(column.offsets, keys, items)
    return column.cast(kind)


def _last(small: Mapping[str, Sequence[Any]], kind: str, read: Callable[[Any], Any]) -> Any:
    values = small.get(kind, [])
    return read(values[-1]) if values else None


def _valid(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.drop_null() if column.null_count else column


def sidecar_sizes(path: str, version: int, data: bytes, *, folder: str) -> dict[str, int]:
    """The storage paths of the sidecars that a top-level file names, and the bytes that it says of each.

    Args:
        path: of the file, which ends in `.json` or `.parquet`; a classic checkpoint may name sidecars too.
        version: of the checkpoint.
        data: the whole file.
        folder: storage path of `_delta_log`.

    Raises:
        CorruptFile: it cannot be read.
    """
    if path.endswith(".json"):
        actions = read_part(path, version, data).sidecars
    else:
        try:
            file = _parquet_file(data)
            there = _SIDECAR in file.schema_arrow.names
            rows = file.read(columns=[_SIDECAR])[_SIDECAR].to_pylist() if there else []
        except (pa.ArrowException, OSError) as error:
            raise CorruptFile(path, None, f"no readable Parquet: {error}") from None
        actions = tuple(row for row in rows if row is not None)
    return dict(sidecar_path(action, folder, path) for action in actions)
