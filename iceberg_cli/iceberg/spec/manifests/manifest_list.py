"""Manifest lists as Arrow tables, with the specification's names; field ids decide, whatever a writer calls a field.

Spec: "Manifest Lists"; Appendix A, "Avro".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.avro.columns import Executor, decode_records
from iceberg_cli.iceberg.avro.container import Container, read_container
from iceberg_cli.iceberg.avro.projection import DecodePlan, Node, Projection, compile_plan
from iceberg_cli.iceberg.avro.schema import AvroType, record_of
from iceberg_cli.iceberg.spec.manifests.nameless_ids import identified_list

_I32, _I64 = pa.int32(), pa.int64()
_FIELD_SUMMARY = pa.struct(
    [
        pa.field("contains_null", pa.bool_()),
        pa.field("contains_nan", pa.bool_()),
        pa.field("lower_bound", pa.binary()),
        pa.field("upper_bound", pa.binary()),
    ]
)
_FIELD_SUMMARY_IDS = (509, 518, 510, 511)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    field_id: int
    type: pa.DataType
    required_from: int | None = None  # first format version in which it is required
    default: int | None = None  # in lists of an older version
    most: int | None = None


_FIELDS = (
    _Field("manifest_path", 500, pa.string(), 1),
    _Field("manifest_length", 501, _I64, 1),
    _Field("partition_spec_id", 502, _I32, 1),
    _Field("content", 517, _I32, 2, 0, most=1),
    _Field("sequence_number", 515, _I64, 2, 0),
    _Field("min_sequence_number", 516, _I64, 2, 0),
    _Field("added_snapshot_id", 503, _I64, 2),
    _Field("added_files_count", 504, _I32, 2),
    _Field("existing_files_count", 505, _I32, 2),
    _Field("deleted_files_count", 506, _I32, 2),
    _Field("added_rows_count", 512, _I64, 2),
    _Field("existing_rows_count", 513, _I64, 2),
    _Field("deleted_rows_count", 514, _I64, 2),
    _Field("partitions", 507, pa.list_(_FIELD_SUMMARY)),
    _Field("key_metadata", 519, pa.binary()),
    _Field("first_row_id", 520, _I64),
)
MANIFEST_LIST_SCHEMA = pa.schema([pa.field(f.name, f.type) for f in _FIELDS])
_MAY_BE_NEGATIVE = ("added_snapshot_id",)  # snapshot ids are any long


def read_manifest_list(data: bytes, path: str, *, format_version: int) -> pa.Table:
    """The rows of one manifest list, in file order.

    Args:
        data: the file, whole.
        path: for messages.
        format_version: of the table; the list may be older.

    Returns:
        Columns of `MANIFEST_LIST_SCHEMA`. Counts and `added_snapshot_id` are null where a v1 list lacks them.

    Raises:
        CorruptFile: bad bytes, a required field that is missing or null, a negative length or count.
    """
    table = read_manifest_lists([(path, data)], format_version=format_version)
    return table.drop_columns(["list"])


def read_manifest_lists(
    items: Sequence[tuple[str, bytes]], *, format_version: int, executor: Executor = "auto"
) -> pa.Table:
    """The rows of many manifest lists, decoded side by side.

    Args:
        items: n pairs of path and content.
        format_version: of the table; a list may be older.
        executor: see `decode_records`.

    Returns:
        `list` (int32, index into `items`) and the columns of `MANIFEST_LIST_SCHEMA`, by list and in file order.

    Raises:
        CorruptFile: see `read_manifest_list`.
    """
    groups: dict[tuple[bytes, int], list[tuple[int, Container]]] = {}
    for index, (path, data) in enumerate(items):
        container = identified_list(read_container(data, path))
        version = _version(container, format_version)
        groups.setdefault((container.schema_text, version), []).append((index, container))
    tables = [_read_group(group, version, executor) for (_, version), group in groups.items()]
    if not tables:
        return pa.schema([pa.field("list", _I32), *MANIFEST_LIST_SCHEMA]).empty_table()
    table = pa.concat_tables(tables).combine_chunks()
    return table if len(tables) == 1 else table.take(pc.sort_indices(table["list"]))


def _version(container: Container, format_version: int) -> int:
    """The format version of a manifest list: by its header, or else by fields that only version 2 has."""
    written = container.metadata.get("format-version", b"")
    if written in {b"1", b"2", b"3"}:
        return min(int(written), format_version)
    fields = record_of(container.type, container.path).fields
    return min(2 if any(f.field_id == 515 for f in fields) else 1, format_version)


def _read_group(group: Sequence[tuple[int, Container]], version: int, executor: Executor) -> pa.Table:
    first = group[0][1]
    plan = compile_plan(
        record_of(first.type, first.path),
        [Projection(f.name, (f.field_id,)) for f in _FIELDS],
        path=first.path,
    )
    raw = decode_records(plan, [container for _, container in group], executor=executor)
    paths = [container.path for _, container in group]
    files = raw["file"].to_numpy()
    columns = [_column(plan, raw, field, version, paths, files) for field in _FIELDS]
    lists = np.array([index for index, _ in group], np.int32)[files]
    return pa.table(
        [array_of(lists), *columns], schema=pa.schema([pa.field("list", _I32), *MANIFEST_LIST_SCHEMA])
    )


def _column(
    plan: DecodePlan, raw: pa.Table, field: _Field, version: int, paths: Sequence[str], files: np.ndarray
) -> pa.Array:
    required = field.required_from is not None and field.required_from <= version
    if field.name in plan.missing:
        if required:
            raise CorruptFile(
                paths[0], f"field {field.name}", f"required in format version {version}, but not there"
            )
        return pa.repeat(pa.scalar(field.default, field.type), len(raw))
    column = raw[field.name].combine_chunks()
    if field.name == "partitions":
        column = _summaries(column, next(c.node for c in plan.columns if c.name == "partitions"), paths[0])
    column = cast_column(column, field.type, field.name, paths[0])
    if column.null_count and required:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise CorruptFile(
            paths[files[row]], f"field {field.name}", f"required in format version {version}, but null"
        )
    if field.default is not None:
        column = column.fill_null(field.default)
    if pa.types.is_integer(field.type) and field.name not in _MAY_BE_NEGATIVE:
        _check_range(column, field, paths, files)
    return column


def _check_range(column: pa.Array, field: _Field, paths: Sequence[str], files: np.ndarray) -> None:
    values = column.fill_null(0).to_numpy()
    bad = values < 0 if field.most is None else (values < 0) | (values > field.most)
    if bad.any():
        row = int(np.argmax(bad))
        raise CorruptFile(paths[files[row]], f"field {field.name}", f"{values[row]} is out of range")


def cast_column(column: pa.Array, target_type: pa.DataType, name: str, path: str) -> pa.Array:
    """`column` as the specification's type; writers may use a wider or narrower integer.

    Raises:
        CorruptFile: the values do not fit, or the type is another one.
    """
    if column.type == target_type:
        return column
    if not pa.types.is_null(column.type) and pa.types.is_nested(column.type) != pa.types.is_nested(
        target_type
    ):
        raise CorruptFile(path, f"field {name}", f"type is {column.type}, not {target_type}")
    try:
        return column.cast(target_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise CorruptFile(path, f"field {name}", f"type is {column.type}, not {target_type}") from None


def _summaries(column: pa.Array, node: Node, path: str) -> pa.Array:
    """The list of field summaries, its fields by id and in the specification's order."""
    avro: AvroType = node.type
    while avro.kind in {"union", "array"}:
        avro = next((child for child in avro.children if child.kind != "null"), avro.children[0])
    if not pa.types.is_list(column.type) or avro.kind != "record":
        raise CorruptFile(path, "field partitions", f"type is {column.type}, not a list of structs")
    ids = [f.field_id for f in avro.fields]
    items = column.values
    if items.null_count:
        raise CorruptFile(path, "field partitions", "a null in the list")
    children = []
    for field_id, field in zip(_FIELD_SUMMARY_IDS, _FIELD_SUMMARY, strict=True):
        found = items.field(ids.index(field_id)) if field_id in ids else pa.nulls(len(items), field.type)
        children.append(cast_column(found, field.type, field.name, path))
    child = pa.Array.from_buffers(_FIELD_SUMMARY, len(items), [None], children=children)
    return pa.Array.from_buffers(
        pa.list_(_FIELD_SUMMARY), len(column), column.buffers()[:2], children=[child]
    )
