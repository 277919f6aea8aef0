"""Compression of Avro blocks, each codec with a bound on what it may inflate to."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import cast

import pyarrow as pa
from isal import isal_zlib

MAX_BLOCK_BYTES = 64 << 20
MAX_RATIO = 1_000
FREE_BYTES = 1 << 20  # below this size no ratio is asked for
_DEFLATE_ERROR = cast("type[Exception]", isal_zlib.error)
_XZ_MEMORY_BYTES = 128 << 20


class BadBlockError(Exception):
    """A block that does not inflate; the container's reader adds path and offset."""


def limit_bytes(stored_bytes: int) -> int:
    """The most bytes that a block stored in `stored_bytes` may inflate to."""
    return min(MAX_BLOCK_BYTES, max(FREE_BYTES, MAX_RATIO * stored_bytes))


def inflate(codec: str, data: memoryview) -> bytes | memoryview:
    """The uncompressed bytes of one block; `data` is consumed whole.

    Raises:
        BadBlockError: bad bytes, trailing bytes, or more output than `limit_bytes`.
    """
    limit = limit_bytes(len(data))
    out = _INFLATE[codec](data, limit)
    if len(out) > limit:
        msg = f"{len(data)} bytes inflate to more than {limit}"
        raise BadBlockError(msg)
    return out


def deflate(codec: str, data: bytes) -> bytes:
    """One block, compressed with `codec`.

    Raises:
        ValueError: no such codec.
    """
    if codec not in _DEFLATE:
        msg = f"no Avro codec {codec!r}"
        raise ValueError(msg)
    return _DEFLATE[codec](data)


def is_known(codec: str) -> bool:
    """Whether blocks of `codec` can be read and written."""
    return codec in _INFLATE


def _inflate_null(data: memoryview, limit: int) -> memoryview:
    if len(data) > limit:
        msg = f"block of {len(data)} bytes, limit {limit}"
        raise BadBlockError(msg)
    return data


def _inflate_deflate(data: memoryview, limit: int) -> bytes:
    engine = isal_zlib.decompressobj(wbits=-15)
    try:
        out: bytes = engine.decompress(data, limit + 1)
    except _DEFLATE_ERROR as error:
        msg = f"deflate: {error}"
        raise BadBlockError(msg) from None
    rest = engine.unused_data
    if engine.eof and len(rest) == 3 and zlib.adler32(out).to_bytes(4, "big").startswith(rest):
        rest = b""  # PyIceberg and Avro's Python library cut a zlib stream one byte into its checksum
    _whole(ended=engine.eof, rest=rest, out=out, limit=limit)
    return out


def _inflate_bzip2(data: memoryview, limit: int) -> bytes:
    engine = bz2.BZ2Decompressor()
    try:
        out = engine.decompress(data, limit + 1)
    except (OSError, EOFError, ValueError) as error:
        msg = f"bzip2: {error}"
        raise BadBlockError(msg) from None
    _whole(ended=engine.eof, rest=engine.unused_data, out=out, limit=limit)
    return out


def _inflate_xz(data: memoryview, limit: int) -> bytes:
    engine = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
    try:
        out = engine.decompress(data, limit + 1)
    except (lzma.LZMAError, EOFError, MemoryError) as error:
        msg = f"xz: {error}"
        raise BadBlockError(msg) from None
    _whole(ended=engine.eof, rest=engine.unused_data, out=out, limit=limit)
    return out


def _inflate_snappy(data: memoryview, limit: int) -> bytes:
    if len(data) < 5:
        raise BadBlockError("snappy: shorter than its checksum")
    size, shift = 0, 0
    for index in range(5):
        size |= (data[index] & 0x7F) << shift
        shift += 7
        if data[index] < 0x80:
            break
    else:
        raise BadBlockError("snappy: length of more than 5 bytes")
    if size > limit:
        msg = f"{len(data)} bytes inflate to {size}, limit {limit}"
        raise BadBlockError(msg)
    try:
        out: bytes = pa.Codec("snappy").decompress(data[:-4], decompressed_size=size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        msg = f"snappy: {error}"
        raise BadBlockError(msg) from None
    if zlib.crc32(out) != int.from_bytes(data[-4:], "big"):
        raise BadBlockError("snappy: checksum differs")
    return out


def _inflate_zstandard(data: memoryview, limit: int) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd") as stream:
            out: bytes = stream.read(limit + 1)
    except (OSError, pa.ArrowException) as error:
        msg = f"zstandard: {error}"
        raise BadBlockError(msg) from None
    return out


def _whole(*, ended: bool, rest: bytes, out: bytes, limit: int) -> None:
    if len(out) > limit:
        return  # inflate() says so
    if not ended:
        raise BadBlockError("compressed data ends too early")
    if rest:
        msg = f"{len(rest)} bytes after the compressed data"
        raise BadBlockError(msg)


def _deflate_snappy(data: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def _deflate_zstandard(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


def _deflate_deflate(data: bytes) -> bytes:
    engine = isal_zlib.compressobj(level=2, wbits=-15)
    packed: bytes = engine.compress(data) + engine.flush()
    return packed


_INFLATE: Mapping[str, Callable[[memoryview, int], bytes | memoryview]] = {
    "null": _inflate_null,
    "deflate": _inflate_deflate,
    "snappy": _inflate_snappy,
    "zstandard": _inflate_zstandard,
    "bzip2": _inflate_bzip2,
    "xz": _inflate_xz,
}
_DEFLATE: Mapping[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate_deflate,
    "snappy": _deflate_snappy,
    "zstandard": _deflate_zstandard,
    "bzip2": bz2.compress,
    "xz": lambda data: lzma.compress(data, format=lzma.FORMAT_XZ),
}
