"""Metadata files: strict JSON, plain or compressed.

What inflates beyond a bound is refused with `CorruptFile` naming path and place; nothing else is raised.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final

from iceberg_cli.encoding.strict_json import MAX_BYTES, loads
from iceberg_cli.errors import CorruptFile

_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_NAME: Final = re.compile(r"\.zstd?\.metadata\.json$|\.metadata\.json\.zstd?$")
_GZIP_NAME: Final = re.compile(r"\.gz\.metadata\.json$|\.metadata\.json\.gz$")
_MAX_RATIO: Final = 1000
_RATIO_FLOOR_BYTES: Final = 2**20
_CHUNK_BYTES: Final = 4 * 2**20
_SHARED_FROM_BYTES: Final = 2**20  # below, it takes longer to find equal objects than their memory is worth


def decode_metadata_file(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object of a metadata file that is plain, gzip or zstd; its first bytes decide, not its name.

    Raises:
        CorruptFile: see `loads`; also a compressed stream that is cut short, followed by something, damaged,
            or that inflates beyond 256 MiB or (above 1 MiB) a thousandfold.

    Spec: Appendix F, "Naming for GZIP compressed Metadata JSON files".
    """
    content: bytes | bytearray = data
    if data.startswith(_GZIP_MAGIC):
        content = _gunzip(data, path)
    elif data.startswith(_ZSTD_MAGIC):
        content = _unzstd(data, path)
    return loads(content, path, sharing=len(content) >= _SHARED_FROM_BYTES)


def encode_metadata_file(data: bytes, name: str) -> bytes:
    """`data` compressed as the name says: `.gz.metadata.json` and `.metadata.json.gz` gzip, `.zst` zstd.

    The same bytes and name always give the same file: gzip carries no time.
    """
    if _GZIP_NAME.search(name):
        compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        return compressor.compress(data) + compressor.flush()
    if _ZSTD_NAME.search(name):
        import pyarrow as pa

        return bytes(pa.compress(data, codec="zstd", asbytes=True))
    return data


def _inflated_limit(data: bytes) -> int:
    return min(MAX_BYTES, max(_RATIO_FLOOR_BYTES, _MAX_RATIO * len(data)))


def _gunzip(data: bytes, path: str) -> bytearray:
    limit = _inflated_limit(data)
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    inflated = bytearray()
    rest = data
    try:
        while not inflater.eof:
            chunk = inflater.decompress(rest, _CHUNK_BYTES)
            if not chunk and not inflater.eof:
                raise CorruptFile(path, len(data), "the gzip stream is cut short")
            inflated += chunk
            if len(inflated) > limit:
                raise CorruptFile(path, None, f"gzip of {len(data)} bytes inflates beyond {limit} bytes")
            rest = inflater.unconsumed_tail
    except zlib.error as error:
        raise CorruptFile(path, None, f"damaged gzip: {error}") from None
    if inflater.unused_data:
        raise CorruptFile(
            path, len(data) - len(inflater.unused_data), "bytes follow the end of the gzip stream"
        )
    return inflated


def _unzstd(data: bytes, path: str) -> bytearray:
    import pyarrow as pa

    limit = _inflated_limit(data)
    inflated = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                inflated += chunk
                if len(inflated) > limit:
                    raise CorruptFile(path, None, f"zstd of {len(data)} bytes inflates beyond {limit} bytes")
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(path, None, f"damaged zstd: {error}") from None
    return inflated
