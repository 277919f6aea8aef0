"""The groups of files that an operation of many commits rewrites, and the files that are in them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.strict_json import check_shape
from iceberg_cli.errors import CorruptFile

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
    ]
)
"""Of each group: its number from 0, its partition in words, what it has, what is expected of it, whether its last file
may be small, and why it is one."""

_PREFIX, _SUFFIX = "inputs-", ".arrow"


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Groups of files, each rewritten whole or not at all.

    Args:
        rows: n groups by number: `GROUPS_SCHEMA`.
        inputs: their files, by `group`; the other columns are the format's.
        base: which state of the table they were planned on, in the format's own words.
    """

    rows: pa.Table
    inputs: pa.Table
    base: Mapping[str, str]

    def __len__(self) -> int:
        """The number of groups."""
        return int(self.rows.num_rows)

    @property
    def size_bytes(self) -> int:
        """Of all their files."""
        return int(pc.sum(self.rows["bytes"]).as_py() or 0)

    def sizes_of(self, numbers: Sequence[int]) -> int:
        """Bytes of the files of some groups."""
        return int(pc.sum(self.rows["bytes"].take(pa.array(numbers, pa.int64()))).as_py() or 0)

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
    def file(self) -> str:
        """The name of that file, which has its digest."""
        return f"{_PREFIX}{hashlib.sha256(self.data).hexdigest()}{_SUFFIX}"

    def to_json(self) -> dict[str, Any]:
        """As part of the `plan/2` document."""
        return {
            "count": len(self),
            "bytes": self.size_bytes,
            "base": dict(self.base),
            "rows": self.rows.to_pylist(),
            "inputs": self.file,
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
        name = value["inputs"]
        if not isinstance(name, str) or "/" in name:
            raise TypeError(f"inputs is {name!r:.80}")
        rows = pa.Table.from_pylist(value["rows"], schema=GROUPS_SCHEMA)
        rows.validate(full=True)
        if rows["number"].to_pylist() != list(range(value["count"])):
            raise ValueError("the groups are not numbered from 0")
        try:
            data = read(name)
        except FileNotFoundError:
            raise CorruptFile(f"{folder}/{name}", None, "the plan names it, and it is not there") from None
        if name != f"{_PREFIX}{hashlib.sha256(data).hexdigest()}{_SUFFIX}":
            raise CorruptFile(f"{folder}/{name}", None, "it has not the digest in its name")
        try:
            inputs = pa.ipc.open_file(data).read_all()
        except pa.ArrowException as error:
            raise CorruptFile(f"{folder}/{name}", None, f"not an Arrow file: {error}") from error
        base = value["base"]
        check_shape(list(base.values()), [str], "base")
        return cls(rows=rows, inputs=inputs, base=base)
