"""The two actions that say what a table is: `protocol` and `metaData`. Fields that are not known here survive.

The properties that say how long a table keeps what it no longer uses are left to writers by the protocol; their
defaults are Delta Spark's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import CorruptFile, InvalidMetadata

DAY_MS: Final = 86_400_000
FILES_PROPERTY: Final = "delta.deletedFileRetentionDuration"
FILES_DEFAULT_MS: Final = 7 * DAY_MS
LOG_PROPERTY: Final = "delta.logRetentionDuration"
LOG_DEFAULT_MS: Final = 30 * DAY_MS
TRANSACTIONS_PROPERTY: Final = "delta.setTransactionRetentionDuration"

_DAY: Final = 86_400_000_000
_MICROSECONDS: Final = {
    "week": 7 * _DAY,
    "day": _DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_LONGEST: Final = {"year": 366 * _DAY, "month": 31 * _DAY}
_PART: Final = re.compile(r"\s*([+-]?)\s*(\d{1,18})(?:\.(\d{1,9}))?\s+([a-z]+?)s?(?=\s|$)")


class Interval(NamedTuple):
    """A length of time.

    Args:
        length_ms: in milliseconds, microseconds beyond them cut off.
        problem: why Delta Spark does not read it, or None.
    """

    length_ms: int
    problem: str | None = None


def interval_ms(text: str) -> int:
    """The length in milliseconds of what Delta Spark reads as one.

    Raises:
        ValueError: it does not read it, for the reason in the message, or it is negative.
    """
    found = interval(text)
    if found.problem is not None:
        raise ValueError(found.problem)
    return found.length_ms


def interval(text: str) -> Interval:
    """The length of time that a property spells.

    Raises:
        ValueError: no interval, or a negative one.
    """
    quoted = "'" in text
    rest = re.sub(r"^\s*interval(?=\s)", "", text.lower().replace("'", " ")).rstrip()
    total = position = 0
    varies = False
    while position < len(rest) or not position:
        part = _PART.match(rest, position)
        unit = part[4] if part else ""
        if part is None or unit not in _MICROSECONDS | _LONGEST or (part[3] and unit != "second"):
            raise ValueError("no interval of weeks, days, hours, minutes, seconds or parts of these")
        length = int(part[2]) * (_MICROSECONDS | _LONGEST)[unit] + int((part[3] or "").ljust(6, "0")[:6])
        total += -length if part[1] == "-" else length
        varies = varies or (unit in _LONGEST and length != 0)
        position = part.end()
    if total < 0:
        raise ValueError("a negative interval")
    problem = "an interval with quotes" if quoted else None
    return Interval(
        total // 1_000, "an interval of months or years, whose length varies" if varies else problem
    )


_PROTOCOL: Final = ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures")
_METADATA: Final = (
    "id",
    "name",
    "description",
    "format",
    "schemaString",
    "partitionColumns",
    "configuration",
    "createdTime",
)
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The features that a client must know to read and to write the table.

    `reader_features` and `writer_features` are None where the action has no such list.

    Spec: "Protocol Evolution".
    """

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: object, *, path: str = "protocol", where: str = "protocol") -> Self:
        """Read the action's object.

        Raises:
            CorruptFile: a field is missing or of another type; version 3 or 7 without its list of features.
        """
        fields = fields_of(value, path, where)
        protocol = cls(
            min_reader_version=_integer(fields, "minReaderVersion", path, where, _INT32_MAX),
            min_writer_version=_integer(fields, "minWriterVersion", path, where, _INT32_MAX),
            reader_features=_features(fields, "readerFeatures", path, where),
            writer_features=_features(fields, "writerFeatures", path, where),
            unknown={key: item for key, item in fields.items() if key not in _PROTOCOL},
        )
        if protocol.min_reader_version == 3 and protocol.reader_features is None:
            raise CorruptFile(path, f"{where}.readerFeatures", "reader version 3 without it")
        if protocol.min_writer_version == 7 and protocol.writer_features is None:
            raise CorruptFile(path, f"{where}.writerFeatures", "writer version 7 without it")
        return protocol

    def to_json(self) -> dict[str, Any]:
        """The action's object; features by name."""
        value: dict[str, Any] = {
            "minReaderVersion": self.min_reader_version,
            "minWriterVersion": self.min_writer_version,
        }
        if self.reader_features is not None:
            value["readerFeatures"] = sorted(self.reader_features)
        if self.writer_features is not None:
            value["writerFeatures"] = sorted(self.writer_features)
        return value | dict(self.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Schema, partitioning and properties of the table; `schema_string` is empty where the log has none.

    `configuration` has no properties whose value is null: as for Delta Spark they are not set. Their names survive.

    Spec: "Change Metadata".
    """

    id: str
    schema_string: str
    name: str | None = None
    description: str | None = None
    format: Mapping[str, Any] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    created_time_ms: int | None = None
    null_properties: frozenset[str] = frozenset()
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: object, *, path: str = "metaData", where: str = "metaData") -> Self:
        """Read the action's object.

        Raises:
            CorruptFile: a field is missing or of another type.
        """
        fields = fields_of(value, path, where)
        columns = fields.get("partitionColumns") or []
        if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
            raise CorruptFile(path, f"{where}.partitionColumns", "an array of strings is expected")
        configuration = fields_of(fields.get("configuration") or {}, path, f"{where}.configuration")
        if not all(
            isinstance(key, str) and isinstance(text, str | None) for key, text in configuration.items()
        ):
            raise CorruptFile(path, f"{where}.configuration", "an object of strings is expected")
        created = fields.get("createdTime")
        return cls(
            id=string_of(fields, "id", path, where),
            schema_string=_optional_string(fields, "schemaString", path, where) or "",
            name=_optional_string(fields, "name", path, where),
            description=_optional_string(fields, "description", path, where),
            format=fields_of(fields.get("format") or {}, path, f"{where}.format"),
            partition_columns=tuple(columns),
            configuration={key: text for key, text in configuration.items() if text is not None},
            null_properties=frozenset(key for key, text in configuration.items() if text is None),
            created_time_ms=None
            if created is None
            else _integer(fields, "createdTime", path, where, _INT64_MAX),
            unknown={key: item for key, item in fields.items() if key not in _METADATA},
        )

    def to_json(self) -> dict[str, Any]:
        """The action's object, fields in the protocol's order; those that are None are left out."""
        value = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "format": dict(self.format),
            "schemaString": self.schema_string or None,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict.fromkeys(sorted(self.null_properties)) | dict(self.configuration),
            "createdTime": self.created_time_ms,
        }
        return {key: item for key, item in value.items() if item is not None} | dict(self.unknown)

    def with_plain_schema(self) -> Self:
        """The same with a schema in one spelling, by which metadata can be compared; one that is no JSON stays."""
        try:
            value = json.loads(self.schema_string)
        except (ValueError, RecursionError):
            return self
        return replace(self, schema_string=json.dumps(value, sort_keys=True))

    def property_bool(
        self,
        name: str,
        default: bool,  # noqa: FBT001 - the default of a flag is one
        *,
        unreadable: bool | None = None,
    ) -> bool:
        """A property that is `true` or `false` in any case.

        Args:
            name: of the property.
            default: what holds where it is not set.
            unreadable: what holds where it is neither; None: that is an error.

        Raises:
            InvalidMetadata: it is neither.
        """
        text = self.configuration.get(name)
        if text is None:
            return default
        if text.strip().lower() in {"true", "false"}:
            return text.strip().lower() == "true"
        if unreadable is None:
            raise self._wrong(name, "neither true nor false")
        return unreadable

    def property_int(self, name: str, default: int) -> int:
        """A property that is a whole number."""
        text = self.configuration.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise self._wrong(name, "not a whole number") from None

    def property_interval_ms(self, name: str, default: int) -> int:
        """A property such as `interval 7 days`, in milliseconds.

        What Delta Spark does not read, `interval 1 month`, is no less than the default, which holds for delta-kernel.

        Raises:
            InvalidMetadata: it is no interval.
        """
        text = self.configuration.get(name)
        if text is None:
            return default
        try:
            found = interval(text)
        except ValueError as error:
            raise self._wrong(name, str(error)) from None
        return found.length_ms if found.problem is None else max(found.length_ms, default)

    def interval_problem(self, name: str) -> str | None:
        """Why Delta Spark does not read a property as a length of time, None where it does or there is none."""
        text = self.configuration.get(name)
        if text is None:
            return None
        try:
            interval_ms(text)
        except ValueError as error:
            return f"{text!r} is {error}: Delta Spark does not read it"
        return None

    def _wrong(self, name: str, reason: str) -> InvalidMetadata:
        return InvalidMetadata(
            "the table's metaData action",
            f"configuration.{name}",
            f"{self.configuration[name]!r} is {reason}",
        )


def fields_of(value: object, path: str, where: str) -> dict[str, Any]:
    """The fields of an action, or of an object in one.

    Raises:
        CorruptFile: it is no object.
    """
    if not isinstance(value, dict):
        raise CorruptFile(path, where, "an object is expected")
    return value


def _integer(fields: Mapping[str, Any], name: str, path: str, where: str, highest: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= highest:
        raise CorruptFile(
            path, f"{where}.{name}", f"a whole number up to {highest} is expected, not {value!r:.40}"
        )
    return value


def string_of(fields: Mapping[str, Any], name: str, path: str, where: str) -> str:
    """A field that must be a string.

    Raises:
        CorruptFile: it is none.
    """
    value = fields.get(name)
    if not isinstance(value, str):
        raise CorruptFile(path, f"{where}.{name}", f"a string is expected, not {value!r:.40}")
    return value


def _optional_string(fields: Mapping[str, Any], name: str, path: str, where: str) -> str | None:
    return None if fields.get(name) is None else string_of(fields, name, path, where)


def _features(fields: Mapping[str, Any], name: str, path: str, where: str) -> frozenset[str] | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CorruptFile(path, f"{where}.{name}", "an array of strings is expected")
    return frozenset(value)


def schema_fields(metadata: Metadata) -> list[dict[str, Any]]:
    """The top-level fields of a table's schema.

    Raises:
        CorruptFile: the schema is no struct of named fields.

    Spec: "Schema Serialization Format".
    """
    where = "metaData.schemaString"
    if not metadata.schema_string:
        return []
    fields = loads(metadata.schema_string.encode(), where).get("fields")
    if not isinstance(fields, list) or not all(
        isinstance(field, dict) and isinstance(field.get("name"), str) for field in fields
    ):
        raise CorruptFile(where, None, "a struct of named fields is expected")
    return fields
