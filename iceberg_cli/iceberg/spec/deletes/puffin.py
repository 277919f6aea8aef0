"""Puffin files: blobs, and a footer that says where they are.

Layout: magic `PFA1`, blobs, then the footer: magic, payload (JSON, or one LZ4 frame of it), payload size
as 4-byte little-endian, 4 bytes of flags (bit 0 of the first byte: payload is compressed), magic.

Spec: Iceberg "Puffin spec"; v3 "Deletion Vectors", "Table Statistics".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa

from iceberg_cli.encoding import strict_json
from iceberg_cli.errors import CorruptFile

_MAX_BYTES: Final = 8 << 20  # some 30,000 vectors; every one of their texts is in memory at once
_TEXT: Final = r'"([^"\\\x00-\x1f]*)"'
_NUMBER: Final = r"(-?(?:0|[1-9][0-9]{0,17}))"
_AND: Final = ", ?"
_ROW: Final = re.compile(
    r"\{"
    + _AND.join(
        (
            f'"type": ?{_TEXT}',
            rf'"fields": ?\[{_NUMBER}\]',
            *(f'"{key}": ?{_NUMBER}' for key in ("snapshot-id", "sequence-number", "offset", "length")),
            rf'"properties": ?\{{"referenced-data-file": ?{_TEXT}{_AND}"cardinality": ?{_TEXT}\}}',
        )
    )
    + r"\}"
)
_HEAD: Final = re.compile(r'\{"blobs": ?\[')
_TAIL: Final = re.compile(rf'\](?:{_AND}"properties": ?\{{"created-by": ?{_TEXT}\}})?\}}')
_GROUPS: Final = 8
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class VectorsFooter(NamedTuple):
    """A footer's rows, each with the fields of `BlobMetadata`, and its own properties."""

    rows: Iterator[tuple[Any, ...]]
    properties: Mapping[str, str]


def read_vectors_footer(payload: bytes) -> VectorsFooter | None:
    """The deletion vectors of the footer's JSON; None if it is written in another way, or not sound at all."""
    if len(payload) > _MAX_BYTES:
        return None
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        return None
    # What is between matches comes along, so nothing of the text is overlooked.
    parts = _ROW.split(text)
    tail = _TAIL.fullmatch(parts[-1])
    stride = _GROUPS + 1
    if tail is None or _HEAD.fullmatch(parts[0]) is None or not {*parts[stride:-1:stride]} <= {",", ", "}:
        return None
    types, fields, *numbers, refs, cardinalities = (parts[group::stride] for group in range(1, stride))
    known = {text: (int(text),) for text in set(fields)}
    rows = zip(
        types,
        map(known.__getitem__, fields),
        *(map(int, column) for column in numbers),
        repeat(None),
        [
            {"referenced-data-file": ref, "cardinality": cardinality}
            for ref, cardinality in zip(refs, cardinalities, strict=True)
        ],
        repeat(_NOTHING),
        strict=False,  # two of these never end
    )
    return VectorsFooter(rows, {} if tail[1] is None else {"created-by": tail[1]})


MAGIC = b"PFA1"
TRAILER_BYTES = 12  # payload size, flags, magic
MAX_FOOTER_BYTES = 64 << 20

DELETION_VECTOR = "deletion-vector-v1"
_POSITION_FIELD_ID = 2147483645  # reserved field `_pos`
_FLAG_COMPRESSED = 1
_CHUNK_BYTES = 1 << 20
_NUMBERS = ("snapshot-id", "sequence-number", "offset", "length")
_BLOB_KEYS = {"type", "fields", *_NUMBERS, "compression-codec", "properties"}


class BlobMetadata(NamedTuple):
    """The metadata of one blob in a footer."""

    type: str
    fields: tuple[int, ...]
    snapshot_id: int  # -1: inherited when the snapshot is committed
    sequence_number: int  # -1: inherited when the snapshot is committed
    offset: int  # in bytes from the start of the file
    length: int  # in bytes as stored
    compression_codec: str | None = None
    properties: Mapping[str, str] = MappingProxyType({})
    extra: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """All blobs of a file, in the footer's order."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str]
    offset: int  # where the footer starts: blobs end at or before it
    extra: Mapping[str, Any] = field(default_factory=dict)


class Blob(NamedTuple):
    """A blob to write; `data` is stored as it is."""

    type: str
    fields: Sequence[int]
    data: bytes | memoryview
    snapshot_id: int = -1
    sequence_number: int = -1
    compression_codec: str | None = None  # what `data` is already compressed with
    properties: Mapping[str, str] = MappingProxyType({})
    extra: Mapping[str, Any] = MappingProxyType({})


def footer_bytes(tail: bytes, file_size: int, path: str) -> int:
    """The number of bytes at the end of a file that `read_footer` reads.

    Args:
        tail: at least the last 12 bytes of the file.
        file_size: in bytes.
        path: for the message.

    Raises:
        CorruptFile: the trailer is none, or says a footer larger than the file.
    """
    if len(tail) < TRAILER_BYTES or file_size < 2 * len(MAGIC) + TRAILER_BYTES:
        raise CorruptFile(path, 0, f"{file_size} bytes are too few for a Puffin file")
    if tail[-4:] != MAGIC:
        raise CorruptFile(path, file_size - 4, f"magic {tail[-4:].hex()} instead of {MAGIC.hex()}")
    size: int = struct.unpack("<i", tail[-12:-8])[0]
    if not 0 <= size <= min(MAX_FOOTER_BYTES, file_size - 2 * len(MAGIC) - TRAILER_BYTES):
        raise CorruptFile(path, file_size - 12, f"the footer says {size} bytes in a file of {file_size}")
    return len(MAGIC) + size + TRAILER_BYTES


def read_footer(data: bytes, file_size: int, path: str) -> Footer:
    """Read the footer from the whole file, or from its last `footer_bytes` or more.

    Args:
        data: the last `len(data)` bytes of the file.
        file_size: in bytes.
        path: for the message.

    Raises:
        CorruptFile: a magic, size, flag or field is wrong, or blobs overlap or leave the file. The
            magic at the start of the file is checked when `data` has it.
    """
    if len(data) > file_size:
        raise CorruptFile(path, None, f"{len(data)} bytes of a file that has {file_size}")
    if len(data) == file_size and data[:4] != MAGIC:
        raise CorruptFile(path, 0, f"magic {data[:4].hex()} instead of {MAGIC.hex()}")
    needed = footer_bytes(data, file_size, path)
    if len(data) < needed:
        raise CorruptFile(
            path, file_size - len(data), f"the footer has {needed} bytes, {len(data)} were read"
        )
    footer = data[len(data) - needed :]
    start = file_size - needed
    if footer[:4] != MAGIC:
        raise CorruptFile(path, start, f"footer magic {footer[:4].hex()} instead of {MAGIC.hex()}")
    payload = _payload(footer[4:-12], footer[-8:-4], path, start)
    if vectors := read_vectors_footer(payload):
        blobs = tuple(map(BlobMetadata._make, vectors.rows))
        _check_places(blobs, start, path)
        return Footer(blobs=blobs, properties=vectors.properties, offset=start)
    document = strict_json.loads(payload, path, sharing=False)
    rows = document.get("blobs")
    if not isinstance(rows, list):
        raise CorruptFile(path, "blobs", "a list is required")
    blobs = tuple(_blob_metadata(row, i, path) for i, row in enumerate(rows))
    _check_places(blobs, start, path)
    properties = _strings(document.get("properties"), "properties", path)
    extra = {key: value for key, value in document.items() if key not in {"blobs", "properties"}}
    return Footer(blobs=blobs, properties=properties, offset=start, extra=extra)


def write(
    blobs: Sequence[Blob], properties: Mapping[str, str], *, extra: Mapping[str, Any] | None = None
) -> bytes:
    """Write a file of `blobs` in their order, with the JSON keys in the order of Java's writer.

    `read_footer` of the result tells offsets and lengths.
    """
    parts: list[bytes | memoryview] = [MAGIC]
    rows, at = [], len(MAGIC)
    for blob in blobs:
        row: dict[str, Any] = {
            "type": blob.type,
            "fields": list(blob.fields),
            "snapshot-id": blob.snapshot_id,
            "sequence-number": blob.sequence_number,
            "offset": at,
            "length": len(blob.data),
        }
        if blob.compression_codec is not None:
            row["compression-codec"] = blob.compression_codec
        if blob.properties:
            row["properties"] = dict(blob.properties)
        if blob.extra:
            row |= blob.extra
        rows.append(row)
        parts.append(blob.data)
        at += len(blob.data)
    document: dict[str, Any] = {"blobs": rows}
    if properties:
        document["properties"] = dict(properties)
    payload = strict_json.dumps(document | dict(extra or {}))
    return b"".join([*parts, MAGIC, payload, struct.pack("<i", len(payload)), bytes(4), MAGIC])


def deletion_vector_blob(data: bytes | memoryview, *, referenced_data_file: str, cardinality: int) -> Blob:
    """Describe an encoded deletion vector as Java's writer does.

    Args:
        data: what `deletion_vector.encode` gave.
        referenced_data_file: path of the data file, exactly as its manifest entry spells it.
        cardinality: number of deleted positions.
    """
    return Blob(
        type=DELETION_VECTOR,
        fields=(_POSITION_FIELD_ID,),
        data=data,
        properties={"referenced-data-file": referenced_data_file, "cardinality": str(cardinality)},
    )


def _payload(stored: bytes, flags: bytes, path: str, start: int) -> bytes:
    """The footer's JSON."""
    (bits,) = struct.unpack("<I", flags)
    if bits & ~_FLAG_COMPRESSED:
        raise CorruptFile(path, start + 8 + len(stored), f"flags {flags.hex()} are not known")
    return _inflate(stored, path, start + 4) if bits else stored


def _inflate(stored: bytes, path: str, offset: int) -> bytes:
    parts, total = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), "lz4") as stream:
            while part := stream.read(min(_CHUNK_BYTES, MAX_FOOTER_BYTES + 1 - total)):
                parts.append(part)
                total += len(part)
                if total > MAX_FOOTER_BYTES:
                    raise CorruptFile(path, offset, f"more than {MAX_FOOTER_BYTES} bytes after decompression")
    except OSError as error:
        raise CorruptFile(path, offset, f"damaged lz4 frame: {error}") from error
    return b"".join(parts)


def _blob_metadata(row: object, index: int, path: str) -> BlobMetadata:
    where = f"blobs[{index}]"
    if not isinstance(row, dict):
        raise CorruptFile(path, where, "an object is required")
    kind, fields, codec = row.get("type"), row.get("fields"), row.get("compression-codec")
    if not isinstance(kind, str):
        raise CorruptFile(path, f"{where}.type", "a string is required")
    if not isinstance(fields, list) or not all(type(i) is int for i in fields):
        raise CorruptFile(path, f"{where}.fields", "a list of integers is required")
    if codec is not None and not isinstance(codec, str):
        raise CorruptFile(path, f"{where}.compression-codec", "a string is required")
    snapshot_id, sequence_number, offset, length = (_integer(row, key, where, path) for key in _NUMBERS)
    return BlobMetadata(
        type=kind,
        fields=tuple(fields),
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        offset=offset,
        length=length,
        compression_codec=codec,
        properties=_strings(row.get("properties"), f"{where}.properties", path),
        extra={} if row.keys() <= _BLOB_KEYS else {k: v for k, v in row.items() if k not in _BLOB_KEYS},
    )


def _integer(row: Mapping[str, Any], key: str, where: str, path: str) -> int:
    value = row.get(key)
    if type(value) is not int:  # a bool is no integer
        raise CorruptFile(path, f"{where}.{key}", "an integer is required")
    return value


def _strings(value: object, where: str, path: str) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise CorruptFile(path, where, "an object of strings is required")
    return value


def _check_places(blobs: Sequence[BlobMetadata], footer_offset: int, path: str) -> None:
    """Blobs lie between the first magic and the footer, and none on another."""
    end = len(MAGIC)
    for blob in sorted(blobs, key=lambda b: (b.offset, b.length)):
        if blob.length < 0 or blob.offset < end or blob.offset + blob.length > footer_offset:
            reason = (
                f"{blob.length} bytes overlap another blob or leave bytes {len(MAGIC)} to {footer_offset}"
            )
            raise CorruptFile(path, blob.offset, f"a blob's {reason}")
        end = blob.offset + blob.length
