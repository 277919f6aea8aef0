"""Properties of a table that say how its Parquet files are written: what they ask for, and which are not obeyed.

Their names, defaults and meaning are Iceberg Java's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from iceberg_cli.iceberg.rows.leaf_columns import LeafColumn
from iceberg_cli.layout.files.parquet_writer import BloomFilter

_PREFIX: Final = "write.parquet."
_INTEGER: Final = re.compile(r"-?\d{1,9}")
_CODEC: Final = f"{_PREFIX}compression-codec"
_LEVEL: Final = f"{_PREFIX}compression-level"
_PAGE_VERSION: Final = f"{_PREFIX}page-version"
_CODECS: Final = ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw")
_JAVA_LEVELS: Final = {"gzip": 6, "zstd": 3}
"""Where no level is given. Arrow's own differ, and cost eight times as long for nothing that a reader gains."""
_GZIP_LEVELS: Final = {
    "BEST_SPEED": "1", "TWO": "2", "THREE": "3", "FOUR": "4", "FIVE": "5", "SIX": "6", "SEVEN": "7", "EIGHT": "8",
    "BEST_COMPRESSION": "9", "DEFAULT_COMPRESSION": "6",
}  # fmt: skip
"""Hadoop's names, by which alone Iceberg Java takes a level of gzip."""
_PAGE_VERSIONS: Final = {"v1": "1.0", "v2": "2.0"}
_COLUMN_PREFIXES: Final = {
    "dictionary": f"{_PREFIX}dict-encoding-enabled.column.",
    "statistics": f"{_PREFIX}stats-enabled.column.",
    "bloom": f"{_PREFIX}bloom-filter-enabled.column.",
    "fpp": f"{_PREFIX}bloom-filter-fpp.column.",
    "ndv": f"{_PREFIX}bloom-filter-ndv.column.",
}
_SIZES: Final = {
    "row_group_bytes": ("row-group-size-bytes", 128 << 20),
    "page_bytes": ("page-size-bytes", 1 << 20),
    "page_rows": ("page-row-limit", 20_000),
    "dictionary_bytes": ("dict-size-bytes", 2 << 20),
    "bloom_bytes": ("bloom-filter-max-bytes", 1 << 20),
}
WITHOUT_EFFECT: Final = (
    "row-group-check-min-record-count",
    "row-group-check-max-record-count",
    "row-group-size-track-uncompressed",
    "bloom-filter-adaptive-enabled",
    "shred-variants",
    "variant-inference-buffer-size",
)
"""How other writers find out when a row group is full, and what belongs to variants alone, which are not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetProperties:
    """How Parquet files are written.

    Args:
        codec: in lower case, as the property has it.
        level: of the codec; None: it has none, or its own default.
        row_group_bytes: of a row group, encoded.
        page_bytes: of a page before compression.
        page_rows: at most, of a page.
        page_version: Arrow's text for it.
        dictionary_bytes: at most, of a dictionary.
        bloom_bytes: at most, of a Bloom filter.
        without_dictionary: field ids of columns that are never encoded by one.
        without_statistics: field ids of columns whose footers have no minimum, maximum and count of nulls.
        bloom_filters: by field id.
        without_effect: properties that are set and change nothing of the files.
        refused: properties that are not obeyed, with the reason.
    """

    codec: str = "gzip"
    level: int | None = _JAVA_LEVELS["gzip"]
    row_group_bytes: int = _SIZES["row_group_bytes"][1]
    page_bytes: int = _SIZES["page_bytes"][1]
    page_rows: int = _SIZES["page_rows"][1]
    page_version: str = _PAGE_VERSIONS["v1"]
    dictionary_bytes: int = _SIZES["dictionary_bytes"][1]
    bloom_bytes: int = _SIZES["bloom_bytes"][1]
    without_dictionary: frozenset[int] = frozenset()
    without_statistics: frozenset[int] = frozenset()
    bloom_filters: Mapping[int, BloomFilter] = field(default_factory=dict)
    without_effect: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def parquet_properties(leaves: Sequence[LeafColumn], properties: Mapping[str, str]) -> ParquetProperties:
    """What the properties of a table ask for.

    Args:
        leaves: columns of the files that are written.
        properties: of the table.
    """
    reader = _Reader(
        {name: text for name, text in properties.items() if name.startswith(_PREFIX)},
        {leaf.name: leaf for leaf in leaves},
    )
    codec = reader.text(_CODEC, "gzip", _codec)
    found: dict[str, Any] = {
        "codec": codec,
        "level": reader.level(codec),
        "page_version": reader.text(_PAGE_VERSION, _PAGE_VERSIONS["v1"], _page_version),
        "without_dictionary": frozenset(reader.off("dictionary")),
        "without_statistics": frozenset(reader.off("statistics")),
        "bloom_filters": reader.bloom_filters(),
    }
    for key, (name, default) in _SIZES.items():
        found[key] = reader.text(_PREFIX + name, default, _positive)
    reader.close()
    return ParquetProperties(
        **found, without_effect=tuple(sorted(reader.without_effect)), refused=reader.refused
    )


class _Reader:
    """Takes properties one by one; what nobody took is refused in the end."""

    def __init__(self, properties: Mapping[str, str], columns: Mapping[str, LeafColumn]) -> None:
        self._properties = properties
        self._columns = columns
        self._taken: set[str] = set()
        self.without_effect: list[str] = []
        self.refused: dict[str, str] = {}

    def text(self, name: str, default: Any, parse: Callable[[str], Any]) -> Any:
        """The value of a property; the default where it is not set, or is refused."""
        self._taken.add(name)
        if name not in self._properties:
            return default
        try:
            return parse(self._properties[name].strip())
        except ValueError as error:
            self.refused[name] = str(error)
            return default

    def level(self, codec: str) -> int | None:
        """The level of a codec that has levels."""
        default = _JAVA_LEVELS.get(codec)
        if not _has_levels(codec):
            self._taken.add(_LEVEL)
            self.without_effect += [_LEVEL] if _LEVEL in self._properties else []
            return None

        def parse(text: str) -> int:
            least, greatest = (
                pa.Codec.minimum_compression_level(codec),
                pa.Codec.maximum_compression_level(codec),
            )
            number = _GZIP_LEVELS.get(text.upper(), text) if codec == "gzip" else text
            if not _INTEGER.fullmatch(number) or not least <= int(number) <= greatest:
                raise ValueError(f"{text!r} is no level of {codec}")
            return int(number)

        found: int | None = self.text(_LEVEL, default, parse)
        return found

    def _of_columns(self, kind: str, parse: Callable[[str], Any]) -> dict[int, Any]:
        """By field id, what properties of columns say; those of columns that are not there have no effect."""
        prefix = _COLUMN_PREFIXES[kind]
        found = {}
        for name in self._properties:
            if name.startswith(prefix):
                leaf = self._columns.get(name.removeprefix(prefix))
                value = self.text(name, None, parse)
                if leaf is None:
                    self.without_effect.append(name)
                elif name not in self.refused:
                    found[leaf.field_id] = value
        return found

    def off(self, kind: str) -> list[int]:
        """Field ids of columns for which something is switched off."""
        return [field_id for field_id, on in self._of_columns(kind, _boolean).items() if not on]

    def bloom_filters(self) -> dict[int, BloomFilter]:
        """Those that are switched on."""
        rates, counts = self._of_columns("fpp", _rate), self._of_columns("ndv", _positive)
        leaves = {leaf.field_id: leaf for leaf in self._columns.values()}
        found = {}
        for field_id, on in self._of_columns("bloom", _boolean).items():
            if on and leaves[field_id].type == "boolean":
                self.without_effect.append(_COLUMN_PREFIXES["bloom"] + leaves[field_id].name)
            elif on:
                found[field_id] = BloomFilter(fpp=rates.get(field_id, 0.01), ndv=counts.get(field_id))
        return found

    def close(self) -> None:
        """Say of each property that nobody took what becomes of it."""
        for name in sorted(self._properties.keys() - self._taken):
            if name.removeprefix(_PREFIX) in WITHOUT_EFFECT:
                self.without_effect.append(name)
            else:
                self.refused[name] = "iceberg-cli does not know it"


def _has_levels(codec: str) -> bool:
    return codec in ("gzip", "brotli", "zstd")


def _codec(text: str) -> str:
    lower = text.lower()
    if lower == "lz4":
        raise ValueError("'lz4' is Hadoop's framing, which is not written here; lz4_raw is")
    if lower not in _CODECS:
        raise ValueError(f"{text!r} is no codec of Parquet files")
    if lower != "uncompressed" and not pa.Codec.is_available(lower.removesuffix("_raw")):
        raise ValueError(f"this build of pyarrow does not write {text!r}")
    return lower


def _page_version(text: str) -> str:
    try:
        return _PAGE_VERSIONS[text.lower()]
    except KeyError:
        raise ValueError(f"{text!r} is neither v1 nor v2") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise ValueError(f"{text!r} is no number from 1 to {2**31 - 1}")
    return int(text)


def _boolean(text: str) -> bool:
    """As Java reads it: everything but `true` is false."""
    return text.lower() == "true"


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1:
        raise ValueError(f"{text!r} is no rate between 0 and 1")
    return rate
