"""A table's entry in a Hive Metastore, as it came over the wire: fields that this client does not know are kept.

PyIceberg's generated classes drop what their version of Hive's interface lacks, and an entry that is sent back without
a field loses it. So the entry is read by Thrift's own types, and only its parameters are understood.

Spec: Hive's `hive_metastore.thrift`, `struct Table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from thrift.Thrift import TType

METADATA_LOCATION: Final = "metadata_location"
PREVIOUS: Final = "previous_metadata_location"
ICEBERG: Final = "iceberg"  # of the parameter `table_type`, in any spelling
_DB_NAME: Final = 2
_TABLE_NAME: Final = 1
_PARAMETERS: Final = 9
_TABLE_TYPE: Final = 12

_READ: Final = {
    TType.BOOL: "readBool",
    TType.BYTE: "readByte",
    TType.I16: "readI16",
    TType.I32: "readI32",
    TType.I64: "readI64",
    TType.DOUBLE: "readDouble",
    TType.STRING: "readBinary",
}
_WRITE: Final = {kind: name.replace("read", "write") for kind, name in _READ.items()}


@dataclass(frozen=True, slots=True)
class RawStruct:
    """Any Thrift struct: each field's number, type and value, in the order of the wire; texts are bytes."""

    fields: tuple[tuple[int, int, Any], ...]

    @classmethod
    def read(cls, protocol: Any) -> RawStruct:
        """The struct that comes next."""
        fields = []
        protocol.readStructBegin()
        while True:
            _, kind, number = protocol.readFieldBegin()
            if kind == TType.STOP:
                break
            fields.append((number, kind, _read(protocol, kind)))
            protocol.readFieldEnd()
        protocol.readStructEnd()
        return cls(tuple(fields))

    def write(self, protocol: Any) -> None:
        """Write it as it was read; Thrift's generated classes take it for one of theirs."""
        protocol.writeStructBegin("")
        for number, kind, value in self.fields:
            protocol.writeFieldBegin("", kind, number)
            _write(protocol, kind, value)
            protocol.writeFieldEnd()
        protocol.writeFieldStop()
        protocol.writeStructEnd()

    def get(self, number: int) -> Any:
        """The value of a field, or None."""
        return next((value for own, _, value in self.fields if own == number), None)

    def put(self, number: int, kind: int, value: Any) -> RawStruct:
        """The same with another value of a field."""
        new = (number, kind, value)
        if self.get(number) is None:
            return RawStruct((*self.fields, new))
        return RawStruct(tuple(new if field[0] == number else field for field in self.fields))


@dataclass(frozen=True, slots=True)
class HiveEntry:
    """A table, view, or materialized view of a Hive Metastore."""

    raw: RawStruct

    @property
    def database(self) -> str:
        """Its database, as the metastore spells it."""
        return _text(self.raw.get(_DB_NAME) or b"")

    @property
    def table(self) -> str:
        """Its name, as the metastore spells it."""
        return _text(self.raw.get(_TABLE_NAME) or b"")

    @property
    def kind(self) -> str:
        """Hive's kind of table, such as EXTERNAL_TABLE or VIRTUAL_VIEW."""
        return _text(self.raw.get(_TABLE_TYPE) or b"")

    @property
    def parameters(self) -> dict[str, str]:
        """All its parameters."""
        found = self.raw.get(_PARAMETERS)
        return {} if found is None else {_text(key): _text(value) for key, value in found[2]}

    def why_no_iceberg_table(self) -> str | None:
        """What it is in place of an Iceberg table with a metadata location, in words, or None."""
        parameters = self.parameters
        kind = parameters.get("table_type", "")
        if kind.lower() != ICEBERG:
            shown = f"its table_type is {kind}" if kind else "it has no table_type"
            return f"it is a {self.kind or 'table'} of Hive and no Iceberg table: {shown}"
        if self.kind == "VIRTUAL_VIEW":
            return "it is a view"
        if not parameters.get(METADATA_LOCATION):
            return f"its entry has no {METADATA_LOCATION}"
        return None

    def with_parameters(self, parameters: Mapping[str, str]) -> HiveEntry:
        """The same entry with other parameters, in the order in which they were, new ones last."""
        order = [key for key in self.parameters if key in parameters]
        order += [key for key in parameters if key not in self.parameters]
        pairs = [(_bytes(key), _bytes(parameters[key])) for key in order]
        return HiveEntry(self.raw.put(_PARAMETERS, TType.MAP, (TType.STRING, TType.STRING, pairs)))


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")


def _bytes(value: str) -> bytes:
    return value.encode(errors="surrogateescape")


def _read(protocol: Any, kind: int) -> Any:
    if name := _READ.get(kind):
        return getattr(protocol, name)()
    match kind:
        case TType.STRUCT:
            return RawStruct.read(protocol)
        case TType.MAP:
            keys, values, size = protocol.readMapBegin()
            pairs = [(_read(protocol, keys), _read(protocol, values)) for _ in range(size)]
            protocol.readMapEnd()
            return (keys, values, pairs)
        case TType.LIST | TType.SET:
            is_list = kind == TType.LIST
            kinds, size = protocol.readListBegin() if is_list else protocol.readSetBegin()
            found = [_read(protocol, kinds) for _ in range(size)]
            (protocol.readListEnd if is_list else protocol.readSetEnd)()
            return (kinds, found)
        case _:
            raise ValueError(f"the answer has a field of the type {kind}, which Thrift does not know")


def _write(protocol: Any, kind: int, value: Any) -> None:
    if name := _WRITE.get(kind):
        getattr(protocol, name)(value)
        return
    match kind:
        case TType.STRUCT:
            value.write(protocol)
        case TType.MAP:
            keys, values, pairs = value
            protocol.writeMapBegin(keys, values, len(pairs))
            for one, other in pairs:
                _write(protocol, keys, one)
                _write(protocol, values, other)
            protocol.writeMapEnd()
        case _:
            kinds, found = value
            is_list = kind == TType.LIST
            (protocol.writeListBegin if is_list else protocol.writeSetBegin)(kinds, len(found))
            for each in found:
                _write(protocol, kinds, each)
            (protocol.writeListEnd if is_list else protocol.writeSetEnd)()
