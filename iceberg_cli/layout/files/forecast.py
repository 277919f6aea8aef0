"""What a plan says of a rewrite of files: its groups, how long it takes, whether files can be written at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.layout.compaction import Compaction, RewriteReason
from iceberg_cli.layout.files.budget import SHARES, share_of_group
from iceberg_cli.layout.files.parquet_writer import obstacle_of
from iceberg_cli.layout.files.spill import spilled_bytes
from iceberg_cli.operation.history import rewritten_bytes_per_s
from iceberg_cli.plan.groups import GROUPS_SCHEMA
from iceberg_cli.plan.text import size

if TYPE_CHECKING:
    from iceberg_cli.engines import Engine
    from iceberg_cli.plan.compaction_policy import CompactionPolicy
    from iceberg_cli.plan.groups import Groups
    from iceberg_cli.table.table import OpenTable

_REASONS: Final = {
    RewriteReason.SIZE: "size",
    RewriteReason.DELETES: "deletes",
    RewriteReason.REWRITE_ALL: "rewrite-all",
    RewriteReason.MOVED: "spec",
    RewriteReason.PURGE: "purge",
    RewriteReason.ORDER: "order",
}


def group_rows(found: Compaction, name_of: Callable[[int], str], paths: pa.ChunkedArray) -> pa.Table:
    """The groups of a plan: `GROUPS_SCHEMA`.

    Args:
        found: the files that are rewritten.
        name_of: the name of a partition, by its code.
        paths: of these files.
    """
    groups = found.groups
    ends = np.cumsum(groups.files)
    columns = {
        "number": np.arange(len(groups.files), dtype=np.int64),
        "partition": pa.array([name_of(code) for code in groups.partition.tolist()], pa.string()),
        "files": groups.files,
        "bytes": groups.size_bytes,
        "rows": groups.record_count,
        "expected_files": groups.expected_files,
        "expected_bytes": groups.expected_bytes,
        "leaves_rest": groups.leaves_rest,
        "reason": pa.array([_REASONS[RewriteReason(code)] for code in groups.reason.tolist()], pa.string()),
        "inputs_digest": pa.array(
            [
                _digest(paths.slice(int(end - length), int(length)))
                for end, length in zip(ends, groups.files, strict=True)
            ],
            pa.string(),
        ),
    }
    return pa.table(columns, schema=GROUPS_SCHEMA)


def _digest(paths: pa.ChunkedArray) -> str:
    """Of the paths of some files, with a newline after each."""
    return hashlib.sha256("".join(f"{path}\n" for path in paths.to_pylist()).encode()).hexdigest()


def expected_duration_ms(table: OpenTable, verb: str, sizes: pa.ChunkedArray) -> int | None:
    """How long files of these sizes take to be rewritten; None where none are, or no run here was measured."""
    if not len(sizes):
        return None
    location = table.workspace.location
    per_s = rewritten_bytes_per_s(table.storage, location, table.base().table_uuid, verb)
    return None if per_s is None else round(pc.sum(sizes).as_py() * 1_000 / per_s)


def expected_spill(table: OpenTable, policy: CompactionPolicy, sizes: Sequence[int], processes: int) -> int:
    """About how many bytes of groups are in the folder for temporary files at a time while they are sorted.

    Args:
        table: whose engine rewrites them; on other machines that is not known.
        policy: what the operator asked for.
        sizes: of the files of each group, in bytes.
        processes: that rewrite groups.
    """
    if table.engine.is_distributed or not len(sizes):
        return 0
    side_by_side, memory_bytes = share_of_group(
        policy.bytes_of("memory"), processes=processes, groups=len(sizes), is_distributed=False
    )
    return spilled_bytes(sizes, side_by_side=side_by_side, held_bytes=memory_bytes // SHARES)


def no_room(table: OpenTable, folder: str, policy: CompactionPolicy, groups: Groups) -> tuple[str, ...]:
    """That the new files, which go below a folder, or rows that are sorted, will not fit, as far as can be seen."""
    if policy.unsafe_accept_space:
        return ()
    places = [("new files take", groups.peak_extra_bytes, table.storage.free_bytes(folder), "where they go")]
    if groups.spill_bytes:
        import shutil  # few plans need these
        import tempfile

        place = tempfile.gettempdir()
        places.append(
            ("sorting takes", groups.spill_bytes, shutil.disk_usage(place).free, f"in {place} (TMPDIR)")
        )
    return tuple(
        f"{what} about {size(needed)}, and {size(free)} are free {where} (--unsafe-accept-space carries on)"
        for what, needed, free, where in places
        if free is not None and needed > free
    )


def library_too_old(engine: Engine) -> tuple[str, ...]:
    """That the library which writes files is too old, where the engine's tasks run."""
    ends = engine.run(_pyarrow_version, [None], may_begin=lambda: True, processes=1)
    (end,) = (each for each in ends if each is not None)
    if end.error is not None:
        raise end.error
    assert end.result is not None
    found = obstacle_of(end.result, "on Spark's workers" if engine.is_distributed else "here")
    return () if found is None else (found,)


def _pyarrow_version(_: object) -> str:
    return str(pa.__version__)
