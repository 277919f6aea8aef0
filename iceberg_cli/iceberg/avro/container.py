"""The strict Avro container: bytes in, inflated blocks out; blocks in, bytes out.

A truncated container can read as a shorter valid one, so nothing is taken on trust: every block's count, size
and sync marker is checked, and the file ends exactly after a marker.

Spec: Avro 1.12, "Object Container Files"; Iceberg, Appendix A, "Avro".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from iceberg_cli.errors import CorruptFile, Refused
from iceberg_cli.iceberg.avro.codecs import BadBlockError, deflate, inflate, is_known
from iceberg_cli.iceberg.avro.schema import AvroType, BadSchemaError, parse_schema

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
STREAM_MAGIC: Final = b"AGS1"
"""The first bytes of an encrypted file. Spec: "AES GCM Stream"."""

_NEXT_STEP: Final = "Only an engine that is given the table's keys can read it."


def encrypted_file(path: str, sign: str) -> Refused:
    """The error of a file that is not opened.

    Args:
        path: of the file.
        sign: that shows that it is encrypted.
    """
    return Refused(
        f"Cannot read {path}: it is encrypted ({sign}), and iceberg-cli has no keys", next_step=_NEXT_STEP
    )


MAX_EMPTY_RECORDS = 1_000  # of a schema whose records take no bytes, per block
MAX_INFLATED_BYTES = 1 << 30  # of one file


class Block(NamedTuple):
    """One block: how many records, where it starts in the file, its inflated bytes."""

    records: int
    offset: int
    payload: bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of an Avro file. `schema` is parsed JSON and shared: do not change it."""

    path: str
    schema: Any
    schema_text: bytes
    type: AvroType
    metadata: dict[str, bytes]  # without avro.schema and avro.codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Container(Header):
    """A container that was read whole."""

    blocks: tuple[Block, ...]  # in file order; blocks without records are left out
    codec: str

    @property
    def count(self) -> int:
        """Records in all blocks."""
        return sum(block.records for block in self.blocks)


def read_container(data: bytes | memoryview, path: str) -> Container:
    """Check a whole Avro file and inflate its blocks.

    Args:
        data: the file, whole.
        path: for messages.

    Raises:
        CorruptFile: with the byte where it stops to make sense.
        Refused: it is encrypted.
    """
    view = memoryview(data).cast("B") if not isinstance(data, memoryview) else data
    _check_magic(bytes(view[:4]), path)
    metadata, position = _read_header(view, path)
    schema, tree, schema_text = _schema(metadata, path)
    codec = metadata.pop("avro.codec", b"null").decode("utf-8", "replace")
    if not is_known(codec):
        raise CorruptFile(path, "avro.codec", f"unknown codec {codec!r:.40}")
    sync = bytes(view[position : position + SYNC_BYTES])
    if len(sync) != SYNC_BYTES:
        raise CorruptFile(path, position, "the file ends inside the header's sync marker")
    blocks = _read_blocks(view, path, position + SYNC_BYTES, sync, codec, tree.min_bytes)
    return Container(
        path=path, schema=schema, schema_text=schema_text, type=tree, metadata=metadata,
        blocks=blocks, codec=codec,
    )  # fmt: skip


def read_header(start: bytes, path: str) -> Header:
    """The header of an Avro file.

    Args:
        start: the first bytes of an Avro file; its whole header must be among them.
        path: for messages.

    Raises:
        CorruptFile: with the byte where it stops to make sense.
        Refused: it is encrypted.
    """
    _check_magic(start[:4], path)
    metadata, _ = _read_header(memoryview(start), path)
    schema, tree, schema_text = _schema(metadata, path)
    metadata.pop("avro.codec", None)
    return Header(path=path, schema=schema, schema_text=schema_text, type=tree, metadata=metadata)


def _check_magic(magic: bytes, path: str) -> None:
    if magic == STREAM_MAGIC:
        raise encrypted_file(path, f"it starts with {magic!r}")
    if magic != MAGIC:
        raise CorruptFile(path, 0, f"no Avro container: starts with {magic!r}")


def _schema(metadata: dict[str, bytes], path: str) -> tuple[Any, AvroType, bytes]:
    """The schema as JSON, as a tree and as text, which leaves the header's entries."""
    text = metadata.pop("avro.schema", None)
    if text is None:
        raise CorruptFile(path, 4, "the header has no avro.schema")
    try:
        schema, tree = parse_schema(text)
    except BadSchemaError as error:
        raise CorruptFile(path, "avro.schema", str(error)) from None
    return schema, tree, text


def write_container(
    schema_json: str,
    metadata: Mapping[str, bytes],
    blocks: Iterable[tuple[int, bytes]],
    *,
    codec: str,
    sync: bytes,
) -> bytes:
    """An Avro file.

    Args:
        schema_json: the writer schema, stored as it is.
        metadata: more header entries, stored in this order after the schema and the codec.
        blocks: (number of records, their encoding), uncompressed.
        codec: null, deflate, snappy, zstandard, bzip2 or xz.
        sync: 16 bytes that the caller drew at random.
    """
    parts = [container_header(schema_json, metadata, codec=codec, sync=sync)]
    parts += [container_block(count, payload, codec=codec, sync=sync) for count, payload in blocks]
    return b"".join(parts)


def container_header(schema_json: str, metadata: Mapping[str, bytes], *, codec: str, sync: bytes) -> bytes:
    """The header of an Avro file as bytes; blocks follow. Arguments as for `write_container`."""
    if len(sync) != SYNC_BYTES:
        msg = f"sync marker of {len(sync)} bytes"
        raise ValueError(msg)
    header = {"avro.schema": schema_json.encode(), "avro.codec": codec.encode(), **metadata}
    parts = [MAGIC, encode_long(len(header))]
    for key, value in header.items():
        name = key.encode()
        parts += [encode_long(len(name)), name, encode_long(len(value)), value]
    return b"".join([*parts, b"\x00", sync])


def container_block(count: int, payload: bytes, *, codec: str, sync: bytes) -> bytes:
    """One block of an Avro file: `count` records, whose encoding is `payload`."""
    stored = deflate(codec, payload)
    return b"".join([encode_long(count), encode_long(len(stored)), stored, sync])


def encode_long(value: int) -> bytes:
    """Avro's zigzag variable-length encoding of a 64-bit integer."""
    rest = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_long(view: memoryview, position: int, path: str) -> tuple[int, int]:
    """A zigzag number at `position`, and the position after it."""
    value = shift = 0
    for index in range(position, min(position + 10, len(view))):
        byte = view[index]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), index + 1
    raise CorruptFile(path, position, "a number does not end, or is wider than 64 bits")


def _read_bytes(view: memoryview, position: int, path: str) -> tuple[bytes, int]:
    length, start = _read_long(view, position, path)
    if not 0 <= length <= len(view) - start:
        raise CorruptFile(
            path, position, f"length {length} does not fit into the {len(view)} bytes of the file"
        )
    return bytes(view[start : start + length]), start + length


def _read_header(view: memoryview, path: str) -> tuple[dict[str, bytes], int]:
    """The metadata map, and the position of the sync marker."""
    metadata: dict[str, bytes] = {}
    position = 4
    while True:
        start = position
        count, position = _read_long(view, position, path)
        if count == 0:
            return metadata, position
        if count < 0:
            size, position = _read_long(view, position, path)
            count = -count
            if not 0 <= size <= len(view) - position:
                raise CorruptFile(path, start, f"header map block of {size} bytes")
        if count > (len(view) - position) // 2:
            raise CorruptFile(path, start, f"header map of {count} entries in a file of {len(view)} bytes")
        for _ in range(count):
            at = position
            raw, position = _read_bytes(view, position, path)
            value, position = _read_bytes(view, position, path)
            try:
                key = raw.decode()
            except UnicodeDecodeError:
                raise CorruptFile(path, at, "a header key is not UTF-8") from None
            if key in metadata:
                raise CorruptFile(path, at, f"the header has {key!r:.60} twice")
            metadata[key] = value


def _read_blocks(
    view: memoryview, path: str, position: int, sync: bytes, codec: str, min_bytes: int
) -> tuple[Block, ...]:
    blocks: list[Block] = []
    total = 0
    while position < len(view):
        start = position
        count, position = _read_long(view, position, path)
        size, position = _read_long(view, position, path)
        if count < 0 or size < 0:
            raise CorruptFile(path, start, f"block of {count} records in {size} bytes")
        if size + SYNC_BYTES > len(view) - position:
            raise CorruptFile(path, start, f"block of {size} bytes reaches beyond the end of the file")
        if view[position + size : position + size + SYNC_BYTES] != sync:
            raise CorruptFile(path, position + size, "the sync marker differs from the header's")
        try:
            payload = inflate(codec, view[position : position + size])
        except BadBlockError as error:
            raise CorruptFile(path, start, str(error)) from None
        total += len(payload)
        fits = count * min_bytes <= len(payload) if min_bytes else count <= MAX_EMPTY_RECORDS
        if not fits or (count == 0 and len(payload)):
            raise CorruptFile(path, start, f"{count} records in {len(payload)} bytes")
        if total > MAX_INFLATED_BYTES:
            raise CorruptFile(path, start, f"the file inflates to more than {MAX_INFLATED_BYTES} bytes")
        if count:
            blocks.append(Block(count, start, payload))
        position += size + SYNC_BYTES
    return tuple(blocks)
