"""Footers as the writers of deletion vectors write them, read by one regular expression.

Every other footer goes through the strict parser. What is read here is a subset of what that accepts, with the same
values: compact JSON, all keys in one order, no escapes, numbers of at most 18 digits.

Spec: Iceberg "Puffin spec", "Footer Payload", "deletion-vector-v1 blob type".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, NamedTuple

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
    """What the footer's JSON says; None if it is written in another way, or not sound at all."""
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
