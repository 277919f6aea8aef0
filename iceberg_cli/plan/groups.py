"""The groups of files that an operation of many commits rewrites, and the files that are in them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.strict_json import check_shape
from iceberg_cli.errors import CorruptFile
from iceberg_cli.plan.column_reads import ReadsBeforeAndAfter

GROUPS_SCHEMA: Final = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("expected_files", pa.int64(), nullable=False),
        pa.field("expected_bytes", pa.int64(), nullable=False),
        pa.field("leaves_rest", pa.bool_(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("inputs_digest", pa.string(), nullable=False),
    ]
)
"""Of each group: its number from 0, its partition in words, what it has, what is expected of it, whether its last file
may be small, why it is one, and a digest of the paths of its files."""

_PREFIX, _SUFFIX = "inputs-", ".arrow"
_FORECAST_SHAPE: Final[Mapping[str, Any]] = {
    "deletes_applied": int,
    "delete_files_that_go": int,
    "comes_back": [{"bytes": int, "after": str, "held_by": [str]}],
    "broken": [{"partition": str, "reason": str}],
}
_READS_SHAPE: Final[Mapping[str, Any]] = {
    "column": str,
    "opened_before": float,
    "opened_after": float,
    "files_before": float,
    "files_after": float,
}


class FreedLater(NamedTuple):
    """Bytes of replaced files that can be freed once nothing needs these any more.

    Args:
        size_bytes: of the files.
        after: what has to come first, in words.
        held_by: refs that need them, or may.
    """

    size_bytes: int
    after: str
    held_by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As an element of `comes_back`."""
        return {"bytes": self.size_bytes, "after": self.after, "held_by": list(self.held_by)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Groups of files, each rewritten whole or not at all.

    Args:
        rows: n groups by number: `GROUPS_SCHEMA`.
        inputs: their files: `group`, `path`, `size_bytes`; the other columns are the format's.
        base: which state of the table they were planned on, in the format's own words.
        deletes_applied: delete files that apply to their files, each counted once a data file.
        delete_files_that_go: delete files that apply to nothing once all groups are rewritten.
        comes_back: when the bytes of their files can be freed.
        broken: partitions with files that are in no group because the table contradicts itself there, with the reason.
        expected_duration_ms: of rewriting all of them, as fast as the last runs here; None: none was measured.
        reads: where rows come into an order, what that does for each of its columns.
        spill_bytes: about how much of them is in the folder for temporary files at a time while they are sorted.
    """

    rows: pa.Table
    inputs: pa.Table
    base: Mapping[str, str]
    deletes_applied: int = 0
    delete_files_that_go: int = 0
    comes_back: tuple[FreedLater, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    expected_duration_ms: int | None = None
    reads: tuple[ReadsBeforeAndAfter, ...] = ()
    spill_bytes: int = 0

    def __len__(self) -> int:
        """The number of groups."""
        return int(self.rows.num_rows)

    def sum_of(self, column: str) -> int:
        """The sum of a column of `GROUPS_SCHEMA` over all groups."""
        return int(pc.sum(self.rows[column]).as_py() or 0)

    @property
    def size_bytes(self) -> int:
        """Of all their files."""
        return self.sum_of("bytes")

    def broken_files(self) -> tuple[dict[str, str | None], ...]:
        """`broken` as `Report.failed_groups` has them."""
        return tuple(
            {"group": None, "partition": partition, "reason": reason} for partition, reason in self.broken
        )

    @property
    def peak_extra_bytes(self) -> int:
        """The room that new files are expected to take beside the old ones, of which none is deleted."""
        return self.sum_of("expected_bytes")

    def sizes_of(self, numbers: Sequence[int]) -> int:
        """Bytes of the files of some groups."""
        return int(pc.sum(self.rows["bytes"].take(pa.array(numbers, pa.int64()))).as_py() or 0)

    def rows_of(self, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Some groups by their numbers: the values of `GROUPS_SCHEMA`."""
        found = self.rows.take(pa.array(numbers, pa.int64())).to_pylist()
        return dict(zip(numbers, found, strict=True))

    def inputs_of(self, numbers: Sequence[int]) -> pa.Table:
        """The files of some groups."""
        mask = pc.is_in(self.inputs["group"], value_set=pa.array(numbers, pa.int64()))
        return self.inputs.filter(mask).combine_chunks()

    @cached_property
    def data(self) -> bytes:
        """The file that holds `inputs`."""
        sink = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(sink, self.inputs.schema, options=options) as writer:
            writer.write_table(self.inputs)
        return sink.getvalue()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of that file."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def file(self) -> str:
        """The name of that file in a journal."""
        return f"{_PREFIX}{self.digest}{_SUFFIX}"

    def to_json(self, *, inputs_file: str | None = None) -> dict[str, Any]:
        """As `rewrite` in the `plan/2` document.

        Args:
            inputs_file: the name of the file that holds `inputs`; None: there is none beside the document.
        """
        return {
            "groups": self.rows.to_pylist(),
            "input_files": len(self.inputs),
            "input_bytes": self.size_bytes,
            "rows": self.sum_of("rows"),
            "output_files": self.sum_of("expected_files"),
            "output_bytes": self.sum_of("expected_bytes"),
            "deletes_applied": self.deletes_applied,
            "delete_files_that_go": self.delete_files_that_go,
            "peak_extra_bytes": self.peak_extra_bytes,
            "expected_duration_ms": self.expected_duration_ms,
            "comes_back": [each.to_json() for each in self.comes_back],
            "broken": [{"partition": partition, "reason": reason} for partition, reason in self.broken],
            **({"reads": [each.to_json() for each in self.reads]} if self.reads else {}),
            **({"peak_spill_bytes": self.spill_bytes} if self.spill_bytes else {}),
            "base": dict(self.base),
            "inputs": {"digest": self.digest, "file": inputs_file},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], read: Callable[[str], bytes], folder: str) -> Self:
        """Inverse of `to_json`.

        Args:
            value: of the document.
            read: gives the file of a name.
            folder: of that file, for errors.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or of another type.
            CorruptFile: the file is not there, or not the one that was written.
        """
        name = value["inputs"]["file"]
        if not isinstance(name, str) or "/" in name:
            raise TypeError(f"inputs is {name!r:.80}")
        rows = pa.Table.from_pylist(value["groups"], schema=GROUPS_SCHEMA)
        rows.validate(full=True)
        if rows["number"].to_pylist() != list(range(len(rows))):
            raise ValueError("the groups are not numbered from 0")
        try:
            data = read(name)
        except FileNotFoundError:
            raise CorruptFile(f"{folder}/{name}", None, "the plan names it, and it is not there") from None
        if value["inputs"]["digest"] != hashlib.sha256(data).hexdigest():
            raise CorruptFile(f"{folder}/{name}", None, "it has not the digest that the plan has of it")
        try:
            inputs = pa.ipc.open_file(data).read_all()
        except pa.ArrowException as error:
            raise CorruptFile(f"{folder}/{name}", None, f"not an Arrow file: {error}") from error
        base = value["base"]
        check_shape(list(base.values()), [str], "base")
        check_shape(value, _FORECAST_SHAPE, "rewrite")
        duration_ms = value.get("expected_duration_ms")  # which plans of before have not
        check_shape(duration_ms, (int, None), "expected_duration_ms")
        reads = value.get("reads", [])  # likewise
        check_shape(reads, [_READS_SHAPE], "reads")
        spill_bytes = value.get("peak_spill_bytes", 0)
        check_shape(spill_bytes, int, "peak_spill_bytes")
        return cls(
            rows=rows,
            inputs=inputs,
            base=base,
            deletes_applied=value["deletes_applied"],
            delete_files_that_go=value["delete_files_that_go"],
            expected_duration_ms=duration_ms,
            comes_back=tuple(
                FreedLater(each["bytes"], each["after"], tuple(each["held_by"]))
                for each in value["comes_back"]
            ),
            broken=tuple((each["partition"], each["reason"]) for each in value["broken"]),
            reads=tuple(ReadsBeforeAndAfter(**{name: each[name] for name in _READS_SHAPE}) for each in reads),
            spill_bytes=spill_bytes,
        )
