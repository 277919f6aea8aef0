"""Files of deletion vectors: their vectors are read, checked, and copied into new files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from iceberg_cli.delta.spec.record_counts import Int64s
from iceberg_cli.delta.spec.vectors import (
    Vector,
    VectorFile,
    name_in_log,
    read_inline,
    read_vectors,
    vector_file,
)
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.merge_dvs import rules
from iceberg_cli.delta.verbs.merge_dvs.rules import INLINE, Vectors
from iceberg_cli.engines import Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.plan.plan import Staged, Task
from iceberg_cli.storage.verified_put import put_checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One new file: the places of its vectors, and the adds of their files but for where the vectors are."""

    places: Int64s
    adds: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What building a step needs."""

    found: Vectors
    file_bytes: Int64s
    outputs: Mapping[Task, Output]


def write(table: DeltaTable, work: Work, paths: Mapping[Task, str]) -> dict[Task, Staged]:
    """Write the new files of some tasks, each once its vectors are read.

    Raises:
        CorruptFile: a vector is not sound, or is read back differently. BackendUnavailable.
    """
    wanted = [task for task in work.outputs if task in paths]
    places = [place for task in wanted for place in work.outputs[task].places.tolist()]
    frames = _frames(table, work, np.array(places, np.int64))
    staged = {}
    for task in wanted:
        output = work.outputs[task]
        taken = [next(frames) for _ in range(len(output.places))]
        staged[task] = _write(table, work.found, output, taken, paths[task])
    return staged


def _frames(table: DeltaTable, work: Work, places: Int64s) -> Iterator[bytes]:
    """The frames of vectors, checked, in the order of `places`: those in files by file, those in the log last."""
    found = work.found
    in_files = places[found.file[places] != INLINE]
    files, starts = np.unique(found.file[in_files], return_index=True)
    stops = [*starts.tolist(), len(in_files)][1:]
    items = [
        (found.paths[file], int(work.file_bytes[file]), start, stop)
        for file, start, stop in zip(files.tolist(), starts.tolist(), stops, strict=True)
    ]
    told = found.told(in_files)

    def parse(batch: Sequence[tuple[tuple[str, int, int, int], bytes | None]]) -> list[list[bytes]]:
        """The frames of each file's vectors; in another process maybe."""
        return read_vectors(
            [
                VectorFile(path, data or b"", [Vector(*each) for each in told[start:stop].tolist()])
                for (path, _, start, stop), data in batch
            ]
        )

    batches = table.engine.scan(
        items,
        lambda item: Source(item[0], item[1]),
        lambda _, data: data,
        parse,
        phase="reading deletion vectors",
        on_event=table.on_event,
    )
    for batch in batches:
        for frames in batch:
            yield from frames
    inline = places[found.file[places] == INLINE]
    vectors = found.adds.column("deletionVector").combine_chunks()
    for place, each in zip(inline.tolist(), found.told(inline).tolist(), strict=True):
        text = vectors[place]["pathOrInlineDv"].as_py()
        yield read_inline(text, Vector(*each), found.adds.column("path")[place].as_py())


def _write(table: DeltaTable, found: Vectors, output: Output, frames: Sequence[bytes], path: str) -> Staged:
    """Write one file, and say of each data file where its vector is."""
    data, offsets = vector_file(frames)
    told = found.told(output.places)
    told[:, 0] = offsets
    vectors = [Vector(*each) for each in told.tolist()]
    if read_vectors([VectorFile(path, data, vectors)]) != [list(frames)]:
        raise CorruptFile(path, None, "the new file does not hold the vectors that were read")
    put_checked(table.storage, path, data)
    return Staged(path=path, row={"adds": rules.with_vectors(output.adds, name_in_log(path), offsets)})
