"""rewrite-manifests: the new manifests of one group, written and read back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from iceberg_cli.engines import BATCH_BYTES, Source
from iceberg_cli.errors import CorruptFile
from iceberg_cli.iceberg.arrow_arrays import array_of
from iceberg_cli.iceberg.avro import SYNC_BYTES, container_header
from iceberg_cli.iceberg.field_summaries import FieldSummary
from iceberg_cli.iceberg.identities import IDENTITY, Identities
from iceberg_cli.iceberg.manifest import ManifestSource, open_manifest, read_entries
from iceberg_cli.iceberg.manifest_placement import Opened, Placement, Runs, place
from iceberg_cli.iceberg.manifest_regroup import Part, Regroup
from iceberg_cli.iceberg.reachability import sources_of
from iceberg_cli.iceberg.rewrite_manifests import Rewrite, weights
from iceberg_cli.plan import Staged, Task
from iceberg_cli.table import IcebergTable

_HELD_BYTES = 384 << 20
_HELD_UNSORTED_BYTES = 64 << 20
_NOT_INHERITED = 1 << 61  # above every sequence number and row id of a table


@dataclass(kw_only=True)
class Building:
    """The new manifests of one group.

    Args:
        table: whose manifests are read and written.
        rewrite: the group, and what it becomes.
        paths: of the new manifests that are wanted, by their number.
        held_bytes: so much of the new manifests is made at a time; the old ones are read once for each time.
        batch_bytes: see `Engine.scan`.
    """

    table: IcebergTable
    rewrite: Rewrite
    paths: Mapping[int, str]
    held_bytes: int = _HELD_BYTES
    batch_bytes: int = BATCH_BYTES

    def run(self) -> dict[Task, Staged]:
        """Write them.

        Raises:
            CorruptFile: a manifest cannot be read whole, or what was written is not what was read.
        """
        staged: dict[Task, Staged] = {}
        planned: dict[Task, Identities] = {}
        for index, data, parts in self._made():
            task, path = self.rewrite.tasks[index], self.paths[index]
            self.table.storage.put_if_absent(path, data)
            staged[task] = Staged(path=path, row={"manifest_path": path, **self._row(data, parts)})
            planned[task] = Identities.together(part.identities for part in parts)
        self._check(staged, planned)
        return staged

    def rehearse(self) -> list[dict[str, Any]]:
        """The rows of the manifest list that they would have, without paths. Nothing is written."""
        return [self._row(data, parts) for _, data, parts in self._made()]

    def _made(self) -> Iterator[tuple[int, bytes, list[Part]]]:
        """Number and bytes of each that is wanted, and what it was put together from."""
        rewrite, group = self.rewrite, self.rewrite.group
        assert group.target is not None
        assert group.layout is not None
        text, header = group.target.header()
        sources = sources_of(rewrite.rows)
        placement = self._placement(sources)
        syncs = [hashlib.sha256(task.name.encode()).digest()[:SYNC_BYTES] for task in rewrite.tasks]
        # Unsorted ones are made of neighbours, so only those at a cut are read twice.
        held_bytes = self.held_bytes if placement.sorted_runs else min(self.held_bytes, _HELD_UNSORTED_BYTES)
        side_by_side = max(1, held_bytes // group.layout.target_bytes)
        for first in range(0, len(rewrite.tasks), side_by_side):
            last = min(first + side_by_side, len(rewrite.tasks)) - 1
            if not any(first <= index <= last for index in self.paths):
                continue
            regroup = Regroup(target=group.target, placement=placement, syncs=syncs, first=first, last=last)
            parts: dict[int, list[Part]] = {}
            for found in self._scan(sources, placement.reaching(first, last), regroup, "rewriting manifests"):
                for part in found:
                    if part.output in self.paths:
                        parts.setdefault(part.output, []).append(part)
            for index in sorted(parts):
                own = parts.pop(index)
                start = container_header(text, header, codec=group.target.codec, sync=syncs[index])
                yield index, b"".join([start, *(part.blocks for part in own)]), own

    def _placement(self, sources: Sequence[ManifestSource]) -> Placement:
        rewrite, group = self.rewrite, self.rewrite.group
        assert group.target is not None
        assert group.layout is not None
        by_partition = len(rewrite.tasks) > 1 and bool(group.target.sort_by)
        if by_partition:
            found = self._scan(sources, range(len(sources)), Runs(group.target), "reading partitions")
            runs = pa.concat_tables(found)
        else:
            live = sum(rewrite.rows[f"{name}_files_count"].to_numpy() for name in ("added", "existing"))
            counts = array_of(np.asarray(live).astype(np.int64))
            runs = pa.table({"manifest": array_of(np.arange(len(sources))), "count": counts})
        return place(runs, weights(rewrite.rows, group.layout), len(rewrite.tasks), sorted_runs=by_partition)

    def _scan(self, sources: Sequence[ManifestSource], numbers: Sequence[int], parse: Any, phase: str) -> Any:
        return self.table.engine.scan(
            numbers,
            lambda number: Source(sources[number].path, sources[number].length or 0),
            lambda number, data: open_manifest(sources[number], data),
            parse,
            phase=phase,
            batch_bytes=self.batch_bytes,
            on_event=self.table.on_event,
        )

    def _row(self, data: bytes, parts: Sequence[Part]) -> dict[str, Any]:
        """What the manifest list must say of one, but for its path."""
        group = self.rewrite.group
        assert group.target is not None
        columns = zip(*(part.summaries for part in parts), strict=True)
        return {
            "manifest_length": len(data),
            "partition_spec_id": group.spec_id,
            "content": group.content,
            "min_sequence_number": min(part.min_sequence_number for part in parts),
            "added_files_count": 0,
            "existing_files_count": sum(part.files for part in parts),
            "deleted_files_count": 0,
            "added_rows_count": 0,
            "existing_rows_count": sum(part.rows for part in parts),
            "deleted_rows_count": 0,
            "partitions": [
                _united(column).to_row(type_name)
                for column, type_name in zip(columns, group.target.types, strict=True)
            ],
            "all_rows_have_ids": all(part.all_rows_have_ids for part in parts),
        }

    def _check(self, staged: Mapping[Task, Staged], planned: Mapping[Task, Identities]) -> None:
        """Read the new manifests again: they hold the live entries that were read, and all of them."""
        tasks = [*staged]
        target = self.rewrite.group.target
        assert target is not None
        numbered = target.format_version > 1
        sources = [
            _written(staged[task].row, with_sequence_numbers=numbered, with_row_ids=target.with_row_ids)
            for task in tasks
        ]
        written: dict[int, Identities] = {}
        for found in self._scan(sources, range(len(sources)), _identities, "checking manifests"):
            written |= found
        for index, task in enumerate(tasks):
            if written.get(index) != planned[task]:
                reason = (
                    f"it holds other entries ({written.get(index)}) than were read for it ({planned[task]})"
                )
                raise CorruptFile(staged[task].path, None, reason)
        live = [self.rewrite.rows[f"{name}_files_count"].to_numpy().sum() for name in ("added", "existing")]
        found_files = sum(each.count for each in planned.values())
        if len(tasks) == len(self.rewrite.tasks) and found_files != sum(live):
            reason = f"{sum(live)} live files were to be written, and {found_files} were"
            raise CorruptFile(staged[tasks[0]].path, None, reason)


def _united(summaries: Sequence[FieldSummary]) -> FieldSummary:
    found = FieldSummary()
    for each in summaries:
        found = found.united(each)
    return found


def _written(row: Mapping[str, Any], *, with_sequence_numbers: bool, with_row_ids: bool) -> ManifestSource:
    """A new manifest as its list will give it; what it must not inherit is told from what it holds."""
    return ManifestSource(
        path=row["manifest_path"],
        data=b"",
        length=row["manifest_length"],
        content=row["content"],
        partition_spec_id=row["partition_spec_id"],
        sequence_number=_NOT_INHERITED if with_sequence_numbers else 0,
        first_row_id=_NOT_INHERITED if with_row_ids else None,
        added_files_count=0,
        existing_files_count=row["existing_files_count"],
        deleted_files_count=0,
    )


def _identities(batch: Opened) -> dict[int, Identities]:
    """The identities of new manifests by their numbers. Runs maybe in another process."""
    numbers, sources = zip(*batch, strict=True)
    return dict(zip(numbers, _each(sources), strict=True))


def _each(sources: Sequence[ManifestSource]) -> Iterator[Identities]:
    for source in sources:
        (found,) = read_entries([source], columns=IDENTITY)
        ids = found.table["first_row_id"].combine_chunks()
        given = ids.fill_null(0).to_numpy()
        valid = ids.is_valid().to_numpy(zero_copy_only=False) & (given < _NOT_INHERITED)
        column = array_of(given, valid)
        index = found.table.column_names.index("first_row_id")
        yield Identities.of(found.table.set_column(index, "first_row_id", column))
