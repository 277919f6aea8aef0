"""The headers of the pages of a Parquet file: read by the Thrift library, without the format's own definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

KINDS: Final = ("data v1", "index", "dictionary", "data v2")
_HEADERS: Final = {5: "data v1", 7: "dictionary", 8: "data v2"}  # places of their headers in `PageHeader`


@dataclass(frozen=True)
class Page:
    """A page: its kind, the values in it, and its bytes before compression."""

    kind: str
    values: int
    size_bytes: int

    @property
    def is_data(self) -> bool:
        """Whether there are rows in it."""
        return self.kind.startswith("data")


def pages_of(data: bytes, chunk: Any) -> list[Page]:
    """The pages of a column chunk, in order.

    Args:
        data: the file.
        chunk: as `pyarrow.parquet` has it.
    """
    at = min(offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset)
    end = at + chunk.total_compressed_size
    found = []
    while at < end:
        transport = TMemoryBuffer(data[at:end])
        header = _struct(TCompactProtocol(transport))
        kind = KINDS[header[1]]
        (place,) = (place for place, name in _HEADERS.items() if name == kind)
        found.append(Page(kind, header[place][1], header[2]))
        at += transport.cstringio_buf.tell() + header[3]
    return found


def _struct(protocol: Any) -> dict[int, Any]:
    """The numbers and structs in a struct, by their places."""
    found: dict[int, Any] = {}
    protocol.readStructBegin()
    while True:
        _, kind, place = protocol.readFieldBegin()
        if kind == TType.STOP:
            break
        if kind == TType.STRUCT:
            found[place] = _struct(protocol)
        elif kind == TType.I32:
            found[place] = protocol.readI32()
        else:
            protocol.skip(kind)
        protocol.readFieldEnd()
    protocol.readStructEnd()
    return found
