"""A group of data files whose rows are written anew together: what is to be done, and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from iceberg_cli.delta.rows.stored_rows import InputFile
from iceberg_cli.encoding.strict_json import check_shape
from iceberg_cli.errors import CorruptFile
from iceberg_cli.layout.position_map import PositionMap
from iceberg_cli.layout.rolling import Rolling
from iceberg_cli.layout.row_origins import RowOrigins
from iceberg_cli.layout.row_proof import RowProof

_OUTPUT: Final = {"path": str, "log_path": str, "size_bytes": int, "record_count": int, "stats": str}
_SHAPE: Final[Mapping[str, Any]] = {
    "outputs": [_OUTPUT],
    "input_rows": [int],
    "rows_deleted": int,
    "rows_written": int,
    "written_for": str,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTask:
    """A group that is to be written anew; a value that engines send to their workers.

    Args:
        number: of the group in its operation.
        folder: where its new files go, below the table's root, as the log spells it; empty, or with a slash last. One
            that is spelled otherwise is another one to others: Delta Spark's VACUUM would delete the files in it.
        inputs: in the order of their rows.
        expected_bytes: of all outputs, about.
        rolling: where outputs end.
        partition: the values of the partition columns that new files have, as the log spells them, by physical names.
    """

    number: int
    folder: str
    inputs: tuple[InputFile, ...]
    expected_bytes: int
    rolling: Rolling
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """A new data file: its storage path, and what its add says."""

    path: str
    log_path: str
    size_bytes: int
    record_count: int
    stats: str

    def to_json(self) -> dict[str, Any]:
        """As in the result of a group."""
        return {name: getattr(self, name) for name in _OUTPUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenGroup:
    """A group that was written anew.

    Args:
        outputs: in the order of their rows; none where all rows were deleted.
        input_rows: of each input, deleted ones included.
        rows_deleted: those that deletion vectors hid, and that are in no output.
        rows_written: in all outputs.
        written_for: the digest of what the table was that decides how files are written, see `written_for`.
        positions: where the rows went; files go by their places in `inputs` of the task and in `outputs`.
        proof: of the rows on both sides; None where they were counted alone.
    """

    outputs: tuple[OutputFile, ...]
    input_rows: tuple[int, ...]
    rows_deleted: int
    rows_written: int
    written_for: str
    positions: PositionMap | RowOrigins | None = None
    proof: RowProof | None = None

    def to_json(self) -> dict[str, Any]:
        """As the result of a group beside the journal, without positions and proof."""
        return {
            "outputs": [each.to_json() for each in self.outputs],
            "input_rows": list(self.input_rows),
            "rows_deleted": self.rows_deleted,
            "rows_written": self.rows_written,
            "written_for": self.written_for,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], path: str) -> Self:
        """Inverse of `to_json`; what that leaves out is None.

        Args:
            value: the JSON object.
            path: of the file that has it, for messages.

        Raises:
            CorruptFile: it is none.
        """
        try:
            check_shape(value, _SHAPE, "the result")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile(path, None, f"not the result of a group: {error}") from error
        found = cls(
            outputs=tuple(OutputFile(**{name: each[name] for name in _OUTPUT}) for each in value["outputs"]),
            input_rows=tuple(value["input_rows"]),
            rows_deleted=value["rows_deleted"],
            rows_written=value["rows_written"],
            written_for=value["written_for"],
        )
        written = sum(each.record_count for each in found.outputs)
        if not sum(found.input_rows) - found.rows_deleted == found.rows_written == written:
            raise CorruptFile(path, "rows_written", "the rows of inputs and outputs do not add up")
        return found
