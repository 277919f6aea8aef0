"""Looks at the files that a checked version of a Delta table names: whether they are there, and what is in them.

Spec: "Data Files", "Deletion Vector Files", "Deletion Vector Format".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.delta.inspect.files import num_records, with_vectors
from iceberg_cli.delta.spec.log import LOG
from iceberg_cli.delta.spec.paths import dv_path_column, physical_column
from iceberg_cli.delta.spec.snapshot import Snapshot
from iceberg_cli.delta.spec.vectors import UNKNOWN, Vector, VectorFile, read_inline, read_vectors
from iceberg_cli.encoding.arrow import one_array
from iceberg_cli.engines import Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.plan.findings import Findings, Ints, reason_of
from iceberg_cli.table.listings import list_files
from iceberg_cli.table.stored_files import (
    GONE,
    check_content,
    check_row_counts,
    check_sizes,
    stored_sizes,
)

if TYPE_CHECKING:
    from iceberg_cli.delta.table import DeltaTable

_NO_COUNT: Final = -1
_VECTOR_FILE: Final = re.compile(r"(?:^|/)deletion_vector_[0-9a-fA-F-]{36}\.bin$")

_OfFile = tuple[
    str, list[tuple[str, Vector]]
]  # a file of vectors; data file and vector, in the order of the log


def check_stored(table: DeltaTable, snapshot: Snapshot, findings: Findings, *, deep: bool) -> int:
    """Compare the storage with the active files of a version; the number of files checked.

    Args:
        table: opened.
        snapshot: the version.
        findings: takes them.
        deep: open Parquet files too, and hold positions of deletion vectors against their rows.
    """
    root = table.location
    adds = snapshot.adds
    paths, sizes = physical_column(adds["path"], root), one_array(adds["size"]).to_numpy()
    vectors = with_vectors(adds)
    vector_paths = pc.unique(dv_path_column(vectors, root)).drop_null()
    there = _listed(table, root)
    stored = _sizes(table, there, paths, findings)
    check_sizes(
        paths,
        sizes,
        stored,
        findings,
        gone="the log names it and it is not there",
        source="the log says",
    )
    _check_dangling(there, snapshot, root, findings)
    counts: Ints = pc.fill_null(num_records(adds), _NO_COUNT).to_numpy().copy()
    if deep:
        seen = np.flatnonzero(stored >= 0)
        counts[seen] = check_row_counts(
            table,
            paths.take(pa.array(seen)),
            stored[seen],
            counts[seen],
            findings,
            source="numRecords is",
            unstated=_NO_COUNT,
        )
    rows = counts[_bools(pc.is_valid(adds["deletionVector"]))] if deep else np.full(len(vectors), _NO_COUNT)
    _check_vectors(table, vectors, rows, findings)
    return len(paths) + len(vector_paths)


def _listed(table: DeltaTable, root: str) -> pa.Table:
    """The files below the table's folder, without the log."""
    files = list_files(table.storage, root, table.on_event)
    return files.filter(pc.invert(pc.starts_with(files["path"], f"{root}/{LOG}/")))


def _sizes(table: DeltaTable, there: pa.Table, paths: pa.Array, findings: Findings) -> Ints:
    """The size of each of n files, negative where there is none to see."""
    places = pc.index_in(paths, value_set=one_array(there["path"]))
    found = one_array(there["size_bytes"]).take(places)
    sizes: Ints = pc.fill_null(found, GONE).to_numpy().copy()
    # What a listing does not show may be somewhere else, or behind a link.
    rest = np.flatnonzero(sizes == GONE)
    if len(rest):
        others = [paths[int(place)].as_py() for place in rest]
        sizes[rest] = stored_sizes(table.storage, others, findings, root=table.location)
    return sizes


def _check_dangling(there: pa.Table, snapshot: Snapshot, root: str, findings: Findings) -> None:
    """Files of deletion vectors that neither an active file nor a tombstone names."""
    vector_paths = pa.concat_arrays(
        [dv_path_column(files, root) for files in (snapshot.adds, snapshot.removes)]
    )
    removed = physical_column(snapshot.removes["path"], root)
    names = one_array(there["path"])
    shaped = names.filter(pc.match_substring_regex(names, _VECTOR_FILE.pattern))
    loose = shaped.filter(
        pc.invert(pc.is_in(shaped, value_set=pa.concat_arrays([vector_paths, removed]).drop_null()))
    )
    for path in loose.to_pylist():
        findings.add("deletion-vector-file-dangling", path, "neither an active file nor a tombstone names it")


# -- content ---------------------------------------------------------------------------------------------------


def _check_vectors(table: DeltaTable, vectors: pa.Table, rows: Ints, findings: Findings) -> None:
    """Read every active deletion vector.

    Args:
        table: opened.
        vectors: n active files with a deletion vector.
        rows: of these, negative where positions are not held against them.
        findings: takes them.
    """
    files: dict[str, list[tuple[str, Vector]]] = {}
    columns = (vectors["path"], dv_path_column(vectors, table.location), vectors["deletionVector"])
    for path, file, descriptor, count in zip(
        *(column.to_pylist() for column in columns), rows.tolist(), strict=True
    ):
        last = UNKNOWN if count < 0 else count - 1
        # An offset that is not said is none: a vector in a file begins behind the version byte.
        vector = Vector(descriptor["offset"] or 0, descriptor["sizeInBytes"], descriptor["cardinality"], last)
        if file is None:
            _check_inline(path, descriptor["pathOrInlineDv"], vector, findings)
        else:
            files.setdefault(file, []).append((path, vector))

    check_content(
        table,
        list(files.items()),
        lambda item: Source(item[0]),
        _check_file,
        findings,
        phase="reading deletion vectors",
        gone=_missing,
    )


def _check_inline(path: str, text: str, vector: Vector, findings: Findings) -> None:
    try:
        read_inline(text, vector, path)
    except CorruptFile as error:
        findings.add(_rule(lambda loose: read_inline(text, loose, path), vector), path, reason_of(error))


def _check_file(item: _OfFile, data: bytes) -> Findings:
    """Check the vectors of a file that adds reference."""
    path, requests = item
    findings = Findings()
    try:
        read_vectors([VectorFile(path, data, [vector for _, vector in requests])])
    except CorruptFile:
        for name, vector in requests:
            try:
                read_vectors([VectorFile(path, data, [vector])])
            except CorruptFile as error:
                rule = _rule(lambda loose: read_vectors([VectorFile(path, data, [loose])]), vector)
                findings.add(rule, path, f"the vector of {name}: {reason_of(error)}")
    return findings


def _rule(read: Any, vector: Vector) -> str:
    """The rule that an unreadable vector breaks: of its positions, or of the vector itself."""
    if vector.last_row != UNKNOWN:
        try:
            read(vector._replace(last_row=UNKNOWN))
        except CorruptFile:
            pass
        else:
            return "deletion-vector-position-too-high"
    return "deletion-vector-unsound"


def _missing(item: _OfFile) -> Findings:
    """The finding of a file that is not there."""
    path, requests = item
    findings = Findings()
    findings.add("deletion-vector-file-missing", path, f"{requests[0][0]} needs it and it is not there")
    return findings


def _bools(column: pa.ChunkedArray | pa.Array) -> Any:
    return one_array(column).to_numpy(zero_copy_only=False)
