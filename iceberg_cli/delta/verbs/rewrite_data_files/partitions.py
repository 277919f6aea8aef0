"""The partitions of a Delta table's files: which files are of one, and how new files of it spell its values.

Spec: Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.spec.protocol import Metadata, schema_fields
from iceberg_cli.delta.spec.statistics_columns import partition_texts, physical_name, primitive
from iceberg_cli.delta.spec.text_values import partition_values
from iceberg_cli.layout.rolling import Ints

_ZONE: Final = r"(?:[Zz]|[+-][0-9:]+)$"


def partitions_of(adds: pa.Table, metadata: Metadata) -> tuple[Ints, list[str]]:
    """A code for the partition of each file, and the name of each: files of one have equal values.

    The empty text is null, as the protocol has it. A value that readers understand in different ways is another one for
    each of its spellings: nothing that is not equal for all of them becomes one.
    """
    codes = np.zeros(len(adds), np.int64)
    texts = []
    kinds = {field["name"]: primitive(field.get("type")) for field in schema_fields(metadata)}
    for name, as_written in partition_texts(adds, metadata).items():
        own = pc.if_else(pc.equal(as_written, ""), pa.scalar(None, pa.string()), as_written)
        encoded = _spelled_alike(own, kinds.get(name)).dictionary_encode(null_encoding="encode")
        width = len(encoded.dictionary) + 1
        codes = np.unique(codes * width + encoded.indices.to_numpy(), return_inverse=True)[1]
        texts.append((name, own))
    first = np.unique(codes, return_index=True)[1] if len(codes) else codes
    names = ["/".join(f"{name}={_shown(own[int(row)].as_py())}" for name, own in texts) for row in first]
    return codes, names


def one_spelling(values: Sequence[Mapping[str, str | None]], metadata: Metadata) -> dict[str, str | None]:
    """The partition values of a new file, by those of files of one partition.

    They are spelled as they are, if that is in one way; else as the protocol spells them. Null is no empty text.

    Args:
        values: of files, by physical names.
        metadata: of the table.
    """
    names = dict.fromkeys(name for each in values for name in each)
    texts = {name: {each.get(name) or None for each in values} for name in names}
    found = {name: next(iter(own)) for name, own in texts.items()}
    if all(len(own) == 1 for own in texts.values()):
        return found
    kinds = {physical_name(field): primitive(field.get("type")) for field in schema_fields(metadata)}
    for name, own in texts.items():
        if len(own) > 1:
            alike = _spelled_alike(pa.array(sorted(own, key=str), pa.string()), kinds.get(name))
            found[name] = alike[0].as_py()
    return found


def _spelled_alike(texts: pa.Array, kind: pa.DataType | None) -> pa.Array:
    """Texts of a partition column, those of one value in one spelling.

    Numbers that are rounded keep theirs, for -0.0 is another value than 0.0. So do times with a zone beside those
    without: what these are depends on the reader.
    """
    if kind is None or not _has_one_spelling(kind):
        return texts
    values, _ = partition_values(texts, kind)
    if pa.types.is_timestamp(kind):
        zoned = is_zoned(texts)
        alike = pc.strftime(values.cast(pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")
        alike = pc.if_else(
            zoned, pc.binary_join_element_wise(pc.replace_substring(alike, " ", "T"), "Z", ""), alike
        )
        alike = pc.if_else(pc.match_substring_regex(texts, r"^[0-9]{4}-"), alike, texts)
    else:
        alike = values.cast(pa.string())
    return pc.if_else(values.is_valid(), alike, texts)


def is_zoned(texts: pa.Array) -> pa.Array:
    """Which of n texts of times say in what zone they are; what the others are depends on the reader."""
    return pc.match_substring_regex(texts, _ZONE)


def _has_one_spelling(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_decimal(kind)
        or types.is_boolean(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
    )


def _shown(text: str | None) -> str:
    return "null" if text is None else text
