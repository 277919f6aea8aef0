"""A group of data files whose rows are written anew together: what is to be done, and what was done.

A group has one partition spec and one partition, unless its files are moved to another spec. It is written whole or not
at all.

Spec: "Data File Fields", "Row Lineage".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.transport import from_ipc, to_ipc
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.rows.data_files import DataFile
from iceberg_cli.iceberg.rows.file_metrics import FileMetrics
from iceberg_cli.iceberg.rows.row_partitions import RowPartitioner, StoredPartition
from iceberg_cli.iceberg.spec.json_fields import Fields
from iceberg_cli.layout.position_map import PositionMap
from iceberg_cli.layout.rolling import Rolling
from iceberg_cli.layout.row_origins import RowOrigins
from iceberg_cli.layout.row_proof import RowProof

_HASH: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_FIELD_ID: Final = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_EXACT_BELOW: Final = 1 << 53  # not every reader of JSON has more than doubles
_LARGE: Final = re.compile(r"[1-9]\d{15,18}", re.ASCII)
_COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS: Final = ("lower_bounds", "upper_bounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """How the rows of a group come to partitions of another spec than that of their files.

    Args:
        partitioner: tells the partitions of rows.
        identities: of each input the identity fields of its own spec and their values: where a row has another value
            readers do not agree what it is.
        most_files: that may come of the group; None: any number.
    """

    partitioner: RowPartitioner
    identities: tuple[tuple[RowPartitioner, StoredPartition], ...]
    most_files: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTask:
    """A group that is to be written anew; a value that engines send to their workers.

    Args:
        number: of the group in its operation.
        spec_id: of its partition spec.
        partition: a value for each field of the spec, as `single_value` has them.
        inputs: in the order of their rows: by sequence number, then by path, or as they follow each other by key.
        expected_bytes: of all outputs, about.
        rolling: where outputs end.
        sort_order_id: of the order that outputs are of whose rows are seen to be in it; 0: none.
        move: how its rows come to partitions of another spec, which `spec_id` is; None: they stay in `partition`.
    """

    number: int
    spec_id: int
    partition: tuple[Any, ...]
    inputs: tuple[DataFile, ...]
    expected_bytes: int
    rolling: Rolling
    sort_order_id: int = 0
    move: Move | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """A new data file.

    Args:
        path: of the file.
        size_bytes: as the storage says.
        metrics: of its rows.
        sort_order_id: of the order in which they are; 0: none.
        partition: where its group was moved to another spec; None: it has that of its inputs.
    """

    path: str
    size_bytes: int
    metrics: FileMetrics
    sort_order_id: int = 0
    partition: StoredPartition | None = None

    def to_json(self) -> dict[str, Any]:
        """Maps go by the field id as text, bounds are in base64, and counts that a double does not have are text."""
        metrics = self.metrics
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "sort_order_id": self.sort_order_id,
            "record_count": metrics.record_count,
            **{
                name: {str(i): _wire(count) for i, count in getattr(metrics, name).items()}
                for name in _COUNTS
            },
            **{
                name: {
                    str(i): base64.b64encode(bound).decode() for i, bound in getattr(metrics, name).items()
                }
                for name in _BOUNDS
            },
            "split_offsets": list(metrics.split_offsets),
            **({} if self.partition is None else {"partition": _texts(self.partition)}),
        }

    @classmethod
    def from_json(cls, value: object, path: str, where: str) -> Self:
        """Inverse of `to_json`.

        Args:
            value: the JSON object.
            path: of the file that has it.
            where: in that file, for messages.

        Raises:
            CorruptFile: it is none.
        """
        fields = Fields(value, path, where)
        metrics: dict[str, Any] = {name: _map(fields, name, _count) for name in _COUNTS}
        metrics |= {name: _map(fields, name, _bound) for name in _BOUNDS}
        offsets = fields.integers("split_offsets")
        if list(offsets) != sorted(set(offsets)) or any(each < 0 for each in offsets):
            raise fields.wrong("split_offsets", "the offsets do not ascend")
        return cls(
            path=fields.string("path"),
            size_bytes=_natural(fields, "size_bytes"),
            metrics=FileMetrics(
                record_count=_natural(fields, "record_count"), split_offsets=offsets, **metrics
            ),
            sort_order_id=_natural(fields, "sort_order_id"),
            partition=_stored(fields),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenGroup:
    """A group that was written anew.

    Args:
        number: of the group in its operation.
        outputs: in the order of their rows; none where all rows were deleted.
        positions: where the rows went; files go by their places in `inputs` of the task and in `outputs`.
        rows_read: all that the inputs have.
        rows_deleted: those that deletes hid, and that are in no output.
        rows_written: in all outputs.
        input_bytes: as the storage says.
        output_bytes: likewise.
        proof: of the rows on both sides; None where they were counted alone.
    """

    number: int
    outputs: tuple[OutputFile, ...]
    positions: PositionMap | RowOrigins
    rows_read: int
    rows_deleted: int
    rows_written: int
    input_bytes: int
    output_bytes: int
    proof: RowProof | None

    def to_json(self) -> dict[str, Any]:
        """All but the positions; hashes are in hexadecimal."""
        sums = None if self.proof is None else [f"{each:016x}" for each in self.proof.sums]
        return {
            "number": self.number,
            "outputs": [each.to_json() for each in self.outputs],
            "rows_read": self.rows_read,
            "rows_deleted": self.rows_deleted,
            "rows_written": self.rows_written,
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "row_hashes": sums,
        }

    def position_data(self) -> bytes:
        """The positions as the bytes of a file, in Arrow's IPC format."""
        return to_ipc(self.positions.to_table())

    @classmethod
    def from_json(cls, value: object, position_data: bytes, path: str, *, position_path: str) -> Self:
        """Inverse of `to_json` and `position_data`.

        Args:
            value: the JSON object.
            position_data: see there.
            path: of the file that has the object, for messages.
            position_path: of the file that has the positions, for messages.

        Raises:
            CorruptFile: one of them is none, or they do not belong together.
        """
        fields = Fields(value, path)
        outputs = tuple(
            OutputFile.from_json(each, path, f"outputs[{place}]")
            for place, each in enumerate(fields.array("outputs"))
        )
        read, deleted, written = (
            _natural(fields, name) for name in ("rows_read", "rows_deleted", "rows_written")
        )
        if read - deleted != written:
            raise fields.wrong("rows_written", f"{written} of {read} rows, of which {deleted} were deleted")
        output_bytes = _natural(fields, "output_bytes")
        if output_bytes != sum(each.size_bytes for each in outputs):
            raise fields.wrong("output_bytes", f"{output_bytes}, and the outputs have other sizes")
        positions = _positions(position_data, position_path)
        counts = [each.metrics.record_count for each in outputs]
        if sum(counts) != written or rows_by_output(positions, len(outputs)) != counts:
            raise CorruptFile(position_path, "runs", "they do not have the rows of the outputs")
        return cls(
            number=_natural(fields, "number"),
            outputs=outputs,
            positions=positions,
            rows_read=read,
            rows_deleted=deleted,
            rows_written=written,
            input_bytes=_natural(fields, "input_bytes"),
            output_bytes=output_bytes,
            proof=_proof(fields, written),
        )


def rows_by_output(positions: PositionMap, outputs: int) -> list[int]:
    """How many rows went into each of the outputs, and last into others, if any did."""
    found = np.zeros(max(outputs, int(positions.outputs.max(initial=-1)) + 1), np.int64)
    np.add.at(found, positions.outputs, positions.lengths)
    return [int(each) for each in found]


def _positions(data: bytes, path: str) -> PositionMap:
    try:
        table = from_ipc(data)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(path, None, f"no readable Arrow file: {str(error)[:200]}") from error
    return PositionMap.from_table(table, path)


def _proof(fields: Fields, count: int) -> RowProof | None:
    if fields.value.get("row_hashes", 0) is None:
        return None
    texts = fields.strings("row_hashes")
    if len(texts) != 2 or not all(map(_HASH.fullmatch, texts)):
        raise fields.wrong("row_hashes", f"two numbers of 16 digits are expected, not {texts!r:.80}")
    return RowProof(count, (int(texts[0], 16), int(texts[1], 16)))


def _texts(partition: StoredPartition) -> list[str | None]:
    return [None if value is None else base64.b64encode(value).decode() for value in partition]


def _stored(fields: Fields) -> StoredPartition | None:
    if "partition" not in fields.value:
        return None
    inner = {str(place): value for place, value in enumerate(fields.array("partition"))}
    texts = Fields(inner, fields.path, fields.name("partition"))
    return tuple(None if value is None else _bound(texts, place) for place, value in inner.items())


def _natural(fields: Fields, key: str) -> int:
    found = fields.integer(key)
    if found < 0:
        raise fields.wrong(key, f"{found} is negative")
    return found


def _wire(count: int) -> int | str:
    return count if count < _EXACT_BELOW else str(count)


def _count(fields: Fields, key: str) -> int:
    text = fields.value.get(key)
    if not isinstance(text, str):
        return _natural(fields, key)
    if not _LARGE.fullmatch(text) or int(text) < _EXACT_BELOW:
        raise fields.wrong(key, f"{text!r:.40} is no number that is written as text")
    return int(text)


def _map(fields: Fields, key: str, parse: Callable[[Fields, str], Any]) -> dict[int, Any]:
    """An object whose names are field ids."""
    inner = Fields(fields.value.get(key), fields.path, fields.name(key))
    for name in inner.value:
        if not _FIELD_ID.fullmatch(name):
            raise inner.wrong(name, "no field id")
    return {int(name): parse(inner, name) for name in inner.value}


def _bound(fields: Fields, key: str) -> bytes:
    try:
        return base64.b64decode(fields.string(key), validate=True)
    except (binascii.Error, ValueError) as error:
        raise fields.wrong(key, f"no base64: {error}") from error
