"""Inventories: files that list what is in a bucket or folder, taken in place of a listing; read some rows at a time.

Two forms: a Parquet file, or one of JSON lines, with the fields `path`, `length`, `isDir` and `modificationTime`, as
Delta's VACUUM takes it; and the `manifest.json` of an S3 Inventory, which names parts in CSV, Parquet or ORC.

Source: Delta's VACUUM, "USING INVENTORY"; Amazon S3 User Guide, "Locating your inventory list".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.row_batches import stream_of
from iceberg_cli.encoding.strict_json import check_shape, loads, loads_lines
from iceberg_cli.engines import FileParts
from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.plan.listed_files import STORED_FILES
from iceberg_cli.storage import Storage

_FIELDS: Final = ("path", "length", "isDir", "modificationTime")
_PARQUET: Final = b"PAR1"
_PART_BYTES: Final = 4 << 20  # of JSON, which takes ten times as much memory as objects
_SPAN_BYTES: Final = 8 << 20
_ROWS: Final = 1 << 16
_INSTANT: Final = pa.timestamp("us", "UTC")
_MILLISECONDS: Final = pa.timestamp("ms", "UTC")
_MANIFEST: Final = "manifest.json"
_ARN: Final = "arn:aws:s3:::"
_MANIFEST_SHAPE: Final[Mapping[str, Any]] = {
    "sourceBucket": str,
    "destinationBucket": str,
    "creationTimestamp": str,
    "fileFormat": str,
    "fileSchema": str,
    "files": [{"key": str, "size": int, "MD5checksum": str}],
}
# As the columns are called in CSV and in the other formats; the last three may be left out of an inventory of S3.
_KEY, _SIZE, _MODIFIED = "key", "size", "lastmodifieddate"
_LATEST, _MARKER = "islatest", "isdeletemarker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """An inventory whose files are still to be read.

    Args:
        files: some at a time, columns of `STORED_FILES`; a path may come twice, in any order. Raises UsageError where a
            part is not of its form.
        made_ms: when it was made, in ms since the epoch; None: it does not say.
    """

    files: Iterator[pa.Table]
    made_ms: int | None


def open_inventory(storage: Storage, path: str) -> Inventory:
    """The files of an inventory; folders, versions before the newest, and deleted objects are left out.

    Args:
        storage: where the inventory is, and the files.
        path: a Parquet file, one of JSON lines, or the manifest of an S3 Inventory.

    Raises:
        UsageError: the file is not there, or not of this form.
    """
    with _saying(path):
        info = storage.stat_many([path])[0]
        if info is None:
            raise UsageError(f"Cannot read the inventory {path}: no file is there")
        parts = FileParts(path, info.size_bytes, partial(_span, storage, path))
        if path.rpartition("/")[2].endswith(_MANIFEST):
            return _of_manifest(storage, path, parts)
    return Inventory(files=_plain_files(storage, parts), made_ms=None)


@contextmanager
def _saying(path: str) -> Iterator[None]:
    """Have whatever cannot be read of an inventory be an error of usage that names it."""
    try:
        yield
    except CorruptFile as corrupt:
        raise UsageError(f"Cannot use the inventory {path}: {corrupt.reason}") from corrupt
    except FileNotFoundError as error:
        raise UsageError(f"Cannot use the inventory {path}: {error.filename or path} is not there") from error
    except (pa.ArrowException, OSError, OverflowError, KeyError) as error:
        raise UsageError(f"Cannot use the inventory {path}: {error}") from error


def _span(storage: Storage, path: str, offset: int, length: int) -> bytes:
    return storage.read(path, (offset, length))


# -- paths, lengths and times ------------------------------------------------------------------------------------------


def _plain_files(storage: Storage, parts: FileParts) -> Iterator[pa.Table]:
    with _saying(parts.path):
        for rows in _plain_rows(parts):
            yield _stored(storage, parts.path, rows)


def _plain_rows(parts: FileParts) -> Iterator[pa.Table]:
    """Rows of a Parquet file, or some lines of JSON at a time."""
    if parts.read(0, len(_PARQUET)) != _PARQUET:
        yield from map(_of_lines, _whole_lines(parts))
        return
    yield from _parquet_rows(parts, _FIELDS)


def _parquet_rows(parts: FileParts, names: Sequence[str]) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(stream_of(parts))
    schema = opened.schema_arrow
    columns = [name for name in schema.names if name in names]
    yield pa.table({name: pa.nulls(0, schema.field(name).type) for name in columns})
    for batch in opened.iter_batches(_ROWS, columns=columns, use_threads=False):
        yield pa.Table.from_batches([batch])


def _whole_lines(parts: FileParts) -> Iterable[bytes]:
    """Whole lines, a few MB at a time."""
    offset, rest = 0, b""
    while offset < parts.size_bytes:
        data = parts.read(offset, _PART_BYTES)
        if not data:
            break
        offset += len(data)
        whole, newline, after = (rest + data).rpartition(b"\n")
        rest = after
        if newline:
            yield whole + newline
    yield rest


def _of_lines(lines: bytes) -> pa.Table:
    """The columns of an inventory, null where a line lacks one; not by Arrow, which dies of a line `null`."""
    rows = loads_lines(lines, "").values
    columns = [[row.get(name) for row in rows] for name in _FIELDS]
    path, size, is_dir = (
        pa.array(column, kind)
        for column, kind in zip(columns, (pa.string(), pa.int64(), pa.bool_()), strict=False)
    )
    return pa.table([path, size, is_dir, _milliseconds(columns[-1])], names=list(_FIELDS))


def _stored(storage: Storage, path: str, rows: pa.Table) -> pa.Table:
    missing = [name for name in _FIELDS if name not in rows.column_names]
    if missing:
        raise UsageError(
            f"Cannot use the inventory {path}: it has no {', '.join(missing)}",
            next_step=f"It needs the fields {', '.join(_FIELDS)}.",
        )
    columns = {
        "path": rows["path"],
        "size_bytes": rows["length"],
        "modified_ms": _as_milliseconds(rows["modificationTime"]),
    }
    files, folders = pa.table(columns).cast(STORED_FILES), rows["isDir"].cast(pa.bool_())
    if any(column.null_count for column in (*files.columns, folders)):
        raise UsageError(f"Cannot use the inventory {path}: a field of it is null")
    files = files.filter(pc.invert(folders))
    keys = pa.array([storage.canonical(name) for name in files["path"].to_pylist()], pa.string())
    return files.set_column(0, "path", keys)


def _as_milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_timestamp(times.type):
        return times
    return times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())


def _milliseconds(values: Sequence[Any]) -> pa.Array:
    """Times as numbers; those that are texts are in UTC where they say no zone."""
    if not any(isinstance(value, str) for value in values):
        return pa.array(values, pa.int64())
    texts = pa.array(values, pa.string())
    # Arrow wants a zone in all texts of a zoned type, or in none of a local one.
    for read_as in (_INSTANT, pa.timestamp("us")):
        try:
            return texts.cast(read_as).cast(_INSTANT).cast(_MILLISECONDS, safe=False).cast(pa.int64())
        except pa.ArrowInvalid:
            pass
    return pa.array([None if text is None else _instant_ms(text) for text in values], pa.int64())


def _instant_ms(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise pa.ArrowInvalid(f"{text!r} is no time") from error
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1_000)


# -- S3 Inventory ------------------------------------------------------------------------------------------------------


def _of_manifest(storage: Storage, path: str, parts: FileParts) -> Inventory:
    manifest = loads(parts.read(0, parts.size_bytes), path)
    try:
        check_shape(manifest, _MANIFEST_SHAPE, "the manifest")
        made_ms = int(manifest["creationTimestamp"])
        reader = _READERS[manifest["fileFormat"].upper()]
    except (KeyError, TypeError, ValueError) as error:
        reason = f"no manifest of an S3 Inventory in CSV, Parquet or ORC: {error}"
        raise CorruptFile(path, None, reason) from error
    return Inventory(files=_s3_files(storage, path, manifest, reader), made_ms=made_ms)


def _s3_files(storage: Storage, path: str, manifest: Mapping[str, Any], reader: Any) -> Iterator[pa.Table]:
    store = f"s3://{manifest['destinationBucket'].removeprefix(_ARN)}"
    bucket, is_csv = manifest["sourceBucket"], manifest["fileFormat"].upper() == "CSV"
    with _saying(path):
        for each in manifest["files"]:
            part = _whole_part(storage, f"{store}/{each['key']}", each)
            for rows in reader(part, manifest["fileSchema"]):
                yield _newest(path, bucket, rows, is_csv=is_csv)


def _whole_part(storage: Storage, path: str, stated: Mapping[str, Any]) -> FileParts:
    """A part, once it is seen to be what the manifest says of it."""
    size_bytes = storage.stat(path).size_bytes
    if size_bytes != stated["size"]:
        reason = f"{path} has {size_bytes} bytes, and the manifest says {stated['size']}"
        raise CorruptFile(path, None, reason)
    digest = hashlib.md5(usedforsecurity=False)
    for offset in range(0, size_bytes, _SPAN_BYTES):
        digest.update(_span(storage, path, offset, _SPAN_BYTES))
    if digest.hexdigest() != stated["MD5checksum"].lower():
        reason = f"{path} has MD5 {digest.hexdigest()}, and the manifest says {stated['MD5checksum']}"
        raise CorruptFile(path, None, reason)
    return FileParts(path, size_bytes, partial(_span, storage, path))


def _named(schema: str) -> list[str]:
    """The columns of a CSV part, as they are called here."""
    return [name.strip().lower() for name in schema.split(",")]


def _csv_rows(part: FileParts, schema: str) -> Iterator[pa.Table]:
    import pyarrow.csv

    names = _named(schema)
    stream = pa.CompressedInputStream(pa.PythonFile(stream_of(part), mode="r"), "gzip")
    opened = pyarrow.csv.open_csv(
        stream,
        read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    )
    for batch in opened:
        yield pa.Table.from_batches([batch])


def _columns(rows: pa.Table) -> pa.Table:
    return rows.rename_columns([name.replace("_", "").lower() for name in rows.column_names])


def _inventory_parquet(part: FileParts, schema: str) -> Iterator[pa.Table]:  # noqa: ARG001 - the files have their own
    names = ("key", "size", "last_modified_date", "is_latest", "is_delete_marker")
    yield from map(_columns, _parquet_rows(part, names))


def _inventory_orc(part: FileParts, schema: str) -> Iterator[pa.Table]:  # noqa: ARG001 - the files have their own
    import pyarrow.orc

    opened = pyarrow.orc.ORCFile(stream_of(part))
    for index in range(opened.nstripes):
        yield _columns(pa.Table.from_batches([opened.read_stripe(index)]))


_READERS: Final = {"CSV": _csv_rows, "PARQUET": _inventory_parquet, "ORC": _inventory_orc}


def _newest(path: str, bucket: str, rows: pa.Table, *, is_csv: bool) -> pa.Table:
    """The objects of n rows that are there: their newest versions, without delete markers."""
    missing = [name for name in (_KEY, _SIZE, _MODIFIED) if name not in rows.column_names]
    if missing:
        raise UsageError(
            f"Cannot use the inventory {path}: it has no {', '.join(missing)}",
            next_step="Configure it with the optional fields Size and Last modified date.",
        )
    for name, is_kept in ((_LATEST, True), (_MARKER, False)):
        if name in rows.column_names:
            flag = rows[name] if pa.types.is_boolean(rows[name].type) else pc.equal(rows[name], "true")
            rows = rows.filter(pc.equal(pc.fill_null(flag, is_kept), is_kept))
    keys, modified = rows[_KEY], rows[_MODIFIED]
    if pa.types.is_binary(keys.type):
        keys = keys.cast(pa.string())
    if is_csv:
        decoded = [unquote_plus(key, errors="strict") for key in keys.to_pylist()]
        keys, modified = (
            pa.chunked_array([pa.array(decoded, pa.string())]),
            _milliseconds(modified.to_pylist()),
        )
    paths = pc.binary_join_element_wise(f"s3://{bucket}", keys.cast(pa.string()), "/")
    is_object = pc.invert(pc.ends_with(paths, "/"))  # else a marker of a folder
    times = _as_milliseconds(pa.chunked_array([modified]) if isinstance(modified, pa.Array) else modified)
    files = pa.table({"path": paths, "size_bytes": rows[_SIZE].cast(pa.int64()), "modified_ms": times})
    if any(column.null_count for column in files.columns):
        raise UsageError(f"Cannot use the inventory {path}: a key, size or time of it is missing")
    return files.filter(is_object).cast(STORED_FILES)


def read_inventory(storage: Storage, path: str) -> pa.Table:
    """All files of an inventory, columns of `STORED_FILES`, each once; raises as `open_inventory`."""
    files = pa.concat_tables([STORED_FILES.empty_table(), *open_inventory(storage, path).files])
    return newest_each(files)


def newest_each(files: pa.Table) -> pa.Table:
    """Files each once, as they were written last."""
    if len(pc.unique(files["path"])) == files.num_rows:
        return files
    newest = files.group_by("path").aggregate([("size_bytes", "max"), ("modified_ms", "max")])
    return newest.rename_columns(["path", "size_bytes", "modified_ms"]).cast(STORED_FILES)
