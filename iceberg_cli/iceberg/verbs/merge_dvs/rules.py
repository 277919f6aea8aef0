"""merge-dvs: new files, manifests and counts of the commit, from what was decided for each delete.

Position deletes become deletion vectors, small and mostly dead Puffin files become few, dangling deletes go.

A deletion vector hides every position delete file from its data file. So a vector holds all position deletes that
apply to its data file, never some; and where one exists already, it alone applies.

Spec: "Deletion Vectors", "Scan Planning".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.iceberg.branch.entry_columns import EQUALITY, POSITIONS, UNREADABLE, VECTOR, Bools, Ints
from iceberg_cli.iceberg.spec.table_metadata.metadata import TableMetadata
from iceberg_cli.iceberg.verbs.merge_dvs.choice import rolled, weights_of
from iceberg_cli.iceberg.verbs.merge_dvs.index import DeleteIndex
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.plan.plan import Option, Plan, Task

WITH_VECTORS: Final = 3  # the first format version that has deletion vectors
DEFAULT_TARGET_BYTES: Final = 64 << 20
DEFAULT_MIN_FILES: Final = 5
DEFAULT_DEAD_RATIO: Final = 0.3
TARGET_PROPERTY: Final = "write.delete.target-file-size-bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """The policy, with table properties and defaults for options that are not given."""

    target_bytes: int
    min_files: int
    dead_ratio: float
    keep_dangling: bool
    with_vectors: bool  # False: only position deletes that dangle go, as below version 3
    options: Mapping[str, Option]


def settings_of(metadata: TableMetadata, policy: MergeDvs) -> MergeSettings:
    """Settings from option, table property and documented default, in this order.

    Raises:
        InvalidMetadata: the property is no number.
    """
    target = policy.chosen("target_size", DEFAULT_TARGET_BYTES)
    if policy.target_size is None and TARGET_PROPERTY in metadata.properties:
        number = metadata.property_int(TARGET_PROPERTY, DEFAULT_TARGET_BYTES)
        target = Option(value=max(1, number), source=f"table property {TARGET_PROPERTY}")
    options = {
        "target_size_bytes": target,
        "min_files": policy.chosen("min_files", DEFAULT_MIN_FILES),
        "dead_ratio": policy.chosen("dead_ratio", DEFAULT_DEAD_RATIO),
        "where": policy.chosen("where"),
        "keep_dangling": policy.chosen("keep_dangling"),
    }
    return MergeSettings(
        target_bytes=target.value,
        min_files=options["min_files"].value,
        dead_ratio=options["dead_ratio"].value,
        keep_dangling=policy.keep_dangling,
        with_vectors=metadata.format_version >= WITH_VECTORS,
        options=options,
    )


SUBJECTS: Final = {
    POSITIONS: "position-delete-file",
    UNREADABLE: "position-delete-file",
    VECTOR: "puffin-file",
    EQUALITY: "equality-delete-file",
}
NEW, MOVED = 0, 1  # where an output comes from
OUTPUTS_SCHEMA: Final = pa.schema(
    {
        "origin": pa.int8(),  # NEW: `row` is a data file; MOVED: `row` is a delete
        "row": pa.int64(),
        "ref": pa.string(),
        "key": pa.binary(),
        "spec_id": pa.int32(),
        "sequence_number": pa.int64(),
        "cardinality": pa.int64(),
        "size": pa.int64(),
        "crc": pa.binary(),  # the blob's last four bytes
        "sum": pa.uint64(),  # of the positions of a NEW one, modulo 2^64
        "last_row": pa.int64(),
    }
)
_ENTRIES_PER_MANIFEST: Final = 50_000  # about 8 MiB


def shown_paths(shown: Plan | None) -> dict[int, frozenset[str]] | None:
    """Paths that a plan shown to an operator would change, by kind of delete; None without a plan."""
    if shown is None:
        return None
    return {
        kind: frozenset(v.id for v in shown.verdicts if not v.keep and v.subject == subject)
        for kind, subject in SUBJECTS.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestJob:
    """One new delete manifest, of one partition spec.

    Args:
        task: with its name.
        spec_id: of all its entries.
        start: first of the outputs that it adds.
        stop: behind the last of them.
        replaced: rows of the manifest list whose entries it takes over.
    """

    task: Task
    spec_id: int
    start: int
    stop: int
    replaced: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """The files that a merge writes, and the entries that it removes.

    Args:
        outputs: deletion vectors, by partition spec, partition and data file: rows of `OUTPUTS_SCHEMA`.
        puffins: each new Puffin file with the range of outputs in it.
        manifests: the new delete manifests.
        removed: for each delete whether its entry goes.
    """

    outputs: pa.Table
    puffins: tuple[tuple[Task, int, int], ...]
    manifests: tuple[ManifestJob, ...]
    removed: Bools = field(repr=False)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Puffin files first: manifests name them."""
        return (*(task for task, _, _ in self.puffins), *(job.task for job in self.manifests))


def ordered(outputs: pa.Table) -> pa.Table:
    """Outputs in the order in which they are written: by partition spec, partition and data file."""
    by = [("spec_id", "ascending"), ("key", "ascending"), ("ref", "ascending")]
    # `Table.sort_by` does the same, and loads Arrow's query engine for it.
    return outputs.combine_chunks().take(pc.sort_indices(outputs, sort_keys=by))


def last_weight(outputs: pa.Table, target_bytes: int) -> int:
    """Bytes of the last Puffin file, about; 0 without outputs."""
    weights = _weights(outputs)
    numbers = rolled(weights, target_bytes)
    return int(weights[numbers == numbers[-1]].sum()) if len(weights) else 0


def merge(index: DeleteIndex, outputs: pa.Table, removed: Bools, *, target_bytes: int, salted: bool) -> Merge:
    """Divide outputs into files, and entries into manifests.

    Args:
        index: of the base.
        outputs: ordered.
        removed: see `Merge`.
        target_bytes: of a Puffin file.
        salted: give all files new names as soon as one differs.
    """
    bounds = _bounds(rolled(_weights(outputs), target_bytes))
    digests = [_digest(outputs.slice(start, stop - start)) for start, stop in bounds]
    salt = hashlib.sha256("".join(digests).encode()).hexdigest() if salted else ""
    puffins = tuple(
        (Task(name=f"{_short(digest, salt)}-deletes.puffin", kind="puffin"), start, stop)
        for digest, (start, stop) in zip(digests, bounds, strict=True)
    )
    jobs = [
        _named(job, puffins, index, removed, salt)
        for job in _manifests(index, outputs["spec_id"].to_numpy(), removed)
    ]
    return Merge(outputs=outputs, puffins=puffins, manifests=tuple(jobs), removed=removed)


def _weights(outputs: pa.Table) -> Ints:
    return weights_of(outputs["size"].to_numpy(), outputs["ref"])


def _bounds(numbers: Ints) -> list[tuple[int, int]]:
    """First and behind the last of each run of equal numbers."""
    starts = np.flatnonzero(np.concatenate([[len(numbers) > 0], numbers[1:] != numbers[:-1]])).tolist()
    return list(zip(starts, [*starts[1:], len(numbers)], strict=True)) if starts else []


def _short(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def _digest(outputs: pa.Table) -> str:
    """SHA-256 of all that decides the content of a Puffin file."""
    digest = hashlib.sha256()
    for name in ("cardinality", "size", "sequence_number"):
        digest.update(outputs[name].to_numpy().tobytes())
    for name in ("crc", "key"):
        digest.update(b"\0".join(outputs[name].to_pylist()))
    digest.update("\0".join(outputs["ref"].to_pylist()).encode())
    return digest.hexdigest()


def _manifests(index: DeleteIndex, output_specs: Any, removed: Bools) -> list[ManifestJob]:
    """The new manifests: added entries and those of replaced manifests, spec by spec."""
    owners = index.deletes["manifest"].to_numpy()
    specs = index.deletes["spec_id"].to_numpy()
    replaced = np.unique(owners[removed])
    entries = np.bincount(owners, minlength=int(owners.max(initial=-1)) + 1)
    spec_of = dict(zip(owners.tolist(), specs.tolist(), strict=True))
    jobs: list[ManifestJob] = []
    for spec_id in np.unique(np.concatenate([output_specs, specs[removed]])).tolist():
        start, end = np.searchsorted(output_specs, (spec_id, spec_id + 1)).tolist()
        waiting = [row for row in replaced.tolist() if spec_of[row] == spec_id]
        while start < end or waiting:
            stop = min(end, start + _ENTRIES_PER_MANIFEST)
            room = _ENTRIES_PER_MANIFEST - (stop - start)
            taken: list[int] = []
            while waiting and (room >= entries[waiting[0]] or (stop == start and not taken)):
                room -= int(entries[waiting[0]])
                taken.append(waiting.pop(0))
            task = Task(name="", kind="manifest")
            jobs.append(
                ManifestJob(task=task, spec_id=spec_id, start=start, stop=stop, replaced=tuple(taken))
            )
            start = stop
    return jobs


def _named(
    job: ManifestJob, puffins: Sequence[tuple[Task, int, int]], index: DeleteIndex, removed: Bools, salt: str
) -> ManifestJob:
    """The job with a task that is equal where the manifest would be equal."""
    inputs = tuple(task.name for task, start, stop in puffins if start < job.stop and stop > job.start)
    mine = np.isin(index.deletes["manifest"].to_numpy(), job.replaced)
    digest = hashlib.sha256(f"{salt} {job.spec_id} {job.start} {job.stop} {inputs}".encode())
    rows = index.deletes.filter(pa.array(mine))
    digest.update(removed[mine].tobytes())
    for name in ("path", "offset", "sequence_number", "entry"):
        digest.update("\0".join(map(str, rows[name].to_pylist())).encode())
    return replace(job, task=Task(name=f"{digest.hexdigest()[:16]}-m.avro", kind="manifest", inputs=inputs))


def summary_of(index: DeleteIndex, made: Merge, *, manifests: int) -> tuple[dict[str, int], dict[str, int]]:
    """The counts of the snapshot's summary, and the differences of its totals.

    Args:
        index: of the base.
        made: the merge.
        manifests: in the base's manifest list.

    Returns:
        Summary keys without zeros among the files, and differences by key of `TOTALS`. The size of a deletion vector
        is that of its blob, as in Java.
    """
    kinds, removed = index.kinds, made.removed
    is_vector = removed & (kinds == VECTOR)
    is_equality = removed & (kinds == EQUALITY)
    is_file = removed & ~is_vector & ~is_equality
    records = index.column("record_count")
    sizes = np.where(kinds == VECTOR, index.column("size"), index.column("file_size"))
    added = {
        "added-delete-files": len(made.outputs),
        "added-dvs": len(made.outputs),
        "added-position-deletes": _total(made.outputs["cardinality"]),
        "added-files-size": _total(made.outputs["size"]),
    }
    gone = {
        "removed-delete-files": int(removed.sum()),
        "removed-dvs": int(is_vector.sum()),
        "removed-position-delete-files": int(is_file.sum()),
        "removed-equality-delete-files": int(is_equality.sum()),
        "removed-position-deletes": int(records[is_vector | is_file].sum()),
        "removed-equality-deletes": int(records[is_equality].sum()),
        "removed-files-size": int(sizes[removed].sum()),
    }
    keys = pa.chunked_array(
        [*made.outputs["key"].chunks, *index.deletes["key"].filter(pa.array(removed)).chunks], pa.binary()
    )
    replaced = sum(len(job.replaced) for job in made.manifests)
    counted = {key: count for key, count in {**added, **gone}.items() if count}
    counted |= {
        "changed-partition-count": len(pc.unique(keys)),
        "manifests-created": len(made.manifests),
        "manifests-kept": manifests - replaced,
        "manifests-replaced": replaced,
    }
    differences = {
        "total-delete-files": added["added-delete-files"] - gone["removed-delete-files"],
        "total-position-deletes": added["added-position-deletes"] - gone["removed-position-deletes"],
        "total-equality-deletes": -gone["removed-equality-deletes"],
        "total-files-size": added["added-files-size"] - gone["removed-files-size"],
    }
    return counted, differences


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)
