"""Where the files are that a log names.

A path in the log is a URI: percent-encoded once on top of whatever the folder names hold, relative to the table's root
or absolute. A storage path is the decoded one. `+` is a plus.

Spec: "Add File and Remove File", "Deletion Vectors", Z85 (ZeroMQ RFC 32).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.errors import CorruptFile
from iceberg_cli.paths import canonical, may_have

_ABSOLUTE: Final = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?/")
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE: Final = {character: value for value, character in enumerate(_Z85)}
_UUID_CHARACTERS: Final = 20
_FILE_SCHEME: Final = "file:/"


def physical(path: str, root: str) -> str:
    """The storage path of a file.

    Args:
        path: as the log has it.
        root: the table's storage path.

    Raises:
        CorruptFile: the path's escapes are no UTF-8.
    """
    return located(decode(path), path, root)


def located(name: str, path: str, root: str) -> str:
    """The storage path of a file of this name, below the table's root unless `path`, as the log has it, is absolute."""
    return canonical(name) if _ABSOLUTE.match(path) else f"{root.rstrip('/')}/{name}"


def physical_column(paths: pa.Array | pa.ChunkedArray, root: str) -> pa.Array:
    """`physical` over n strings; null stays null."""
    whole = one_array(paths)
    below = pc.binary_join_element_wise(pa.scalar(root.rstrip("/")), whole, "/")
    odd = pc.starts_with(whole, "/")
    if may_have(whole, b"%:"):  # an escape, a scheme
        odd = pc.or_(odd, pc.or_(pc.match_substring(whole, "%"), pc.match_substring(whole, ":")))
    if not pc.any(odd).as_py():  # null where there are no paths at all
        return below
    elsewhere = pa.array([physical(path, root) for path in whole.filter(odd).to_pylist()], whole.type)
    return pc.replace_with_mask(below, pc.fill_null(odd, fill_value=False), elsewhere)


def decode(path: str) -> str:
    """A path without its percent escapes.

    Raises:
        CorruptFile: they are no UTF-8.
    """
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise CorruptFile(path, None, "the escapes in this path of the log are no UTF-8") from None


def path_keys(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The keys of the files of n actions: their paths as they are spelled, of local absolute ones without scheme.

    Other readers compare spellings: to Delta Spark and to delta-rs `k=é` and `k=%C3%A9` are two files, and a remove of
    one leaves the other active. Delta Spark gives absolute paths their scheme before it compares them.
    """
    if not pc.any(pc.starts_with(paths, _FILE_SCHEME)).as_py():
        return paths
    return pc.replace_substring_regex(paths, f"^{_FILE_SCHEME}/*", "/")


def dv_path(storage_type: str, path_or_inline: str, root: str) -> str | None:
    """The storage path of a deletion vector's file; None for a vector in the log itself.

    Raises:
        CorruptFile: the descriptor names no file.

    Spec: "Derived Fields", `absolutePath`.
    """
    match storage_type:
        case "i":
            return None
        case "p":
            return physical(path_or_inline, root)
        case "u":
            prefix, encoded = path_or_inline[:-_UUID_CHARACTERS], path_or_inline[-_UUID_CHARACTERS:]
            folder = f"{root.rstrip('/')}/{prefix}" if prefix else root.rstrip("/")
            try:
                return f"{folder}/deletion_vector_{UUID(bytes=z85_decode(encoded))}.bin"
            except ValueError as error:
                raise CorruptFile(path_or_inline, "deletionVector.pathOrInlineDv", str(error)) from None
    raise CorruptFile(path_or_inline, "deletionVector.storageType", f"{storage_type!r} is none of u, i and p")


def dv_path_column(table: pa.Table, root: str) -> pa.Array:
    """The file of the deletion vector of each of n adds or removes; null where there is none, or it is in the log."""
    vectors = table.column("deletionVector")
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), pa.string())
    vectors = one_array(vectors)
    names = pc.binary_join_element_wise(
        pc.struct_field(vectors, "storageType"), pc.struct_field(vectors, "pathOrInlineDv"), ""
    )
    encoded = names.dictionary_encode()
    files = [dv_path(name[:1], name[1:], root) for name in encoded.dictionary.to_pylist()]
    return pa.array(files, pa.string()).take(encoded.indices)


def z85_decode(text: str) -> bytes:
    """The bytes that `text` spells, four for each five characters.

    Raises:
        ValueError: it is no Z85.
    """
    if len(text) % 5:
        raise ValueError(f"Z85 has a multiple of 5 characters, not {len(text)}")
    decoded = bytearray()
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            digit = _Z85_VALUE.get(ord(character))
            if digit is None:
                raise ValueError(f"{character!r} is no character of Z85")
            value = value * 85 + digit
        if value >= 2**32:
            raise ValueError(f"{text[start : start + 5]!r} is beyond four bytes")
        decoded += value.to_bytes(4, "big")
    return bytes(decoded)


def z85_encode(data: bytes) -> str:
    """Z85 of bytes, a multiple of four of them.

    Raises:
        ValueError: it is no multiple of four.
    """
    if len(data) % 4:
        raise ValueError(f"Z85 takes a multiple of 4 bytes, not {len(data)}")
    text = bytearray()
    for start in range(0, len(data), 4):
        value = int.from_bytes(data[start : start + 4], "big")
        text += bytes(_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text.decode("ascii")
