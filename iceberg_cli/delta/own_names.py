"""UUIDs in the names of new files that prove which operation made them.

The name of a deletion vector file can hold nothing but a UUID. Ours is a UUID of version 8, whose content is free: its
first half says which file of which attempt it is, its second half is made from the operation's id and the first half.
Whoever knows the operation's id can tell that a file is that operation's.

Spec: RFC 9562, "UUID Version 8"; Delta, "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import hashlib
import uuid

_HALF = 8  # bytes


def marked_uuid(operation_id: str, *salt: str) -> str:
    """A UUID of an operation; another one for each salt.

    Args:
        operation_id: whose file it will name.
        salt: what tells the file from every other one of the operation, those of earlier attempts included.
    """
    first = _digest("file", operation_id, *salt)
    return str(_version_8(first, operation_id))


def is_marked(text: str, operation_id: str) -> bool:
    """Whether `marked_uuid` made this UUID for the operation."""
    try:
        found = uuid.UUID(text)
    except ValueError:
        return False
    return found == _version_8(found.bytes[:_HALF], operation_id)


def _version_8(first: bytes, operation_id: str) -> uuid.UUID:
    half = bytearray(first)
    half[6] = half[6] & 0x0F | 0x80
    rest = bytearray(_digest("proof", operation_id, half.hex()))
    rest[0] = rest[0] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(half + rest))


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(("iceberg-cli", *parts)).encode()).digest()[:_HALF]
