"""rewrite-manifests: the new manifests of one group, written and read back."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.engines import BATCH_BYTES, BuiltFile, Engine, Scan, ShuffleStage, Source
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.avro.container import SYNC_BYTES, Block, container_header
from iceberg_cli.iceberg.reachability.keys import sources_of
from iceberg_cli.iceberg.spec.field_summaries import FieldSummary
from iceberg_cli.iceberg.spec.manifest import ManifestSource, open_manifest, read_entries
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_manifests.identities import IDENTITY, Identities
from iceberg_cli.iceberg.verbs.rewrite_manifests.placement import Opened, Placement, Runs, Target, place
from iceberg_cli.iceberg.verbs.rewrite_manifests.regroup import ManifestPart, Regroup
from iceberg_cli.iceberg.verbs.rewrite_manifests.rules import Rewrite, weights
from iceberg_cli.plan.plan import StagedFile, Task

Item = tuple[int, ManifestSource]  # an old manifest with its index


@dataclass(frozen=True, slots=True)
class MergedManifest:
    """A new manifest.

    `row` is its row of the manifest list without the path; `identities` are those of its entries.
    """

    data: bytes
    row: dict[str, Any]
    identities: Identities


@dataclass(frozen=True, slots=True)
class ManifestMerger:
    """Merges parts into new manifests.

    Args:
        target: schema, spec and codec of new manifests.
        spec_id: of all of them.
        syncs: of each.
        schema_text: their Avro schema.
        header: their key-value metadata.
    """

    target: Target
    spec_id: int
    syncs: Sequence[bytes]
    schema_text: str
    header: Mapping[str, bytes]

    @classmethod
    def of(cls, rewrite: Rewrite) -> ManifestMerger:
        """The merger of a rewrite; sync markers come from the names of the tasks."""
        target = rewrite.group.target
        assert target is not None
        syncs = [hashlib.sha256(task.name.encode()).digest()[:SYNC_BYTES] for task in rewrite.tasks]
        return cls(target, rewrite.group.spec_id, syncs, *target.header())

    def regroup(self, placement: Placement, first: int, last: int) -> Regroup:
        """The maker of the parts of the new manifests `first` to `last`."""
        return Regroup(target=self.target, placement=placement, syncs=self.syncs, first=first, last=last)

    def joined(self, output: int, parts: Sequence[ManifestPart]) -> MergedManifest:
        """The new manifest `output`.

        Args:
            output: its index.
            parts: all of its parts, in the order in which they were read; at least one.
        """
        target = self.target
        start = container_header(self.schema_text, self.header, codec=target.codec, sync=self.syncs[output])
        data = b"".join([start, *(part.blocks for part in parts)])
        columns = zip(*(part.summaries for part in parts), strict=True)
        row = {
            "manifest_length": len(data),
            "partition_spec_id": self.spec_id,
            "content": target.content,
            "min_sequence_number": min(part.min_sequence_number for part in parts),
            "added_files_count": 0,
            "existing_files_count": sum(part.files for part in parts),
            "deleted_files_count": 0,
            "added_rows_count": 0,
            "existing_rows_count": sum(part.rows for part in parts),
            "deleted_rows_count": 0,
            "partitions": [
                _united(column).to_row(type_name)
                for column, type_name in zip(columns, target.types, strict=True)
            ],
            "all_rows_have_ids": all(part.all_rows_have_ids for part in parts),
        }
        return MergedManifest(data, row, Identities.together(part.identities for part in parts))


def _united(summaries: Sequence[FieldSummary]) -> FieldSummary:
    found = FieldSummary()
    for each in summaries:
        found = found.united(each)
    return found


# -- on workers ----------------------------------------------------------------------------------------------------


def source_of(item: Item) -> Source:
    """The file of an old manifest."""
    return Source(item[1].path, item[1].length or 0)


def opened(item: Item, data: bytes) -> ManifestSource:
    """See `open_manifest`."""
    return open_manifest(item[1], data)


@dataclass(frozen=True, slots=True)
class ManifestSplitter:
    """Makes parts of new manifests from a batch of old ones, and sends them to the bucket of each new one.

    Args:
        regroup: makes the parts.
        targets: indices of the new manifests to make.
    """

    regroup: Regroup
    targets: frozenset[int]

    def __call__(self, batch: Sequence[tuple[Item, ManifestSource | None]]) -> dict[int, bytes]:
        """Of each new manifest its parts with their order, pickled.

        Raises:
            CorruptFile: a manifest is gone or cannot be read whole.
        """
        found: list[tuple[int, ManifestSource]] = []
        for (number, source), manifest in batch:
            if manifest is None:
                raise CorruptFile(source.path, None, "the table needs this file and it is not there")
            found.append((number, manifest))
        first = found[0][0]
        parts_by_manifest: dict[int, list[tuple[tuple[int, int], ManifestPart]]] = {}
        for index, part in enumerate(self.regroup(found)):
            if part.output in self.targets:
                parts_by_manifest.setdefault(part.output, []).append(((first, index), part))
        return {output: pickle.dumps(parts, 5) for output, parts in parts_by_manifest.items()}


@dataclass(frozen=True, slots=True)
class ManifestBuilder:
    """Builds the file of a new manifest from its parts.

    Args:
        merger: merges parts.
        paths: of the new manifests by index.
    """

    merger: ManifestMerger
    paths: Mapping[int, str]

    def __call__(self, output: int, contents: Sequence[bytes]) -> BuiltFile:
        """The file; its result is the index, the row without the path, and the identities."""
        parts = [each for content in contents for each in pickle.loads(content)]  # noqa: S301 - our own workers wrote it
        made = self.merger.joined(output, [part for _, part in sorted(parts, key=itemgetter(0))])
        return BuiltFile(self.paths[output], made.data, (output, made.row, made.identities))


_HELD_BYTES = 384 << 20
_HELD_UNSORTED_BYTES = 64 << 20
_NOT_INHERITED = 1 << 61  # above every sequence number and row id of a table
_REWRITING = "rewriting manifests"

Written = tuple[int, dict[str, Any], Identities]  # index, row of the manifest list without the path, entries


@dataclass(kw_only=True)
class ManifestBuild:
    """The new manifests of one group.

    Args:
        table: whose manifests are read and written.
        rewrite: the group, with its new manifests.
        paths: of the new manifests to make, by index.
        held_bytes: so much of the new manifests is made at a time where this process makes them; the old ones are
            read once for each time.
        batch_bytes: see `Engine.scan`.
    """

    table: IcebergTable
    rewrite: Rewrite
    paths: Mapping[int, str]
    held_bytes: int = _HELD_BYTES
    batch_bytes: int = BATCH_BYTES

    def run(self) -> dict[Task, StagedFile]:
        """Write them.

        Raises:
            CorruptFile: a manifest cannot be read whole, or what was written is not what was read.
            BackendUnavailable: workers did not write all of them.
        """
        staged: dict[Task, StagedFile] = {}
        planned: dict[Task, Identities] = {}
        written = self._on_workers(self.table.engine) if self.table.engine.is_distributed else self._here()
        for index, row, identities in written:
            task, path = self.rewrite.tasks[index], self.paths[index]
            staged[task] = StagedFile(path=path, row={"manifest_path": path, **row})
            planned[task] = identities
        self._check(staged, planned)
        return staged

    def rehearse(self) -> list[dict[str, Any]]:
        """The rows of the manifest list that they would have, without paths. Nothing is written."""
        return [made.row for _, made in self._made()]

    def _here(self) -> Iterator[Written]:
        """Write them in this process."""
        for index, made in self._made():
            self.table.storage.put_if_absent(self.paths[index], made.data)
            yield index, made.row, made.identities

    def _on_workers(self, engine: Engine) -> list[Written]:
        """Write them on workers: neither entries nor new manifests pass through this process."""
        first, last = min(self.paths), max(self.paths)
        sources = sources_of(self.rewrite.rows)
        placement = self._placement(sources)
        merger = ManifestMerger.of(self.rewrite)
        found = engine.shuffle(
            Scan(
                source_of,
                opened,
                ManifestSplitter(merger.regroup(placement, first, last), frozenset(self.paths)),
                phase=_REWRITING,
                missing_ok=True,
            ),
            [ShuffleStage(ManifestBuilder(merger, dict(self.paths)), len(self.rewrite.tasks))],
            [(number, sources[number]) for number in placement.sources_of_outputs(first, last)],
            on_event=self.table.on_event,
        )
        written: list[Written] = sorted(found, key=itemgetter(0))
        counts = [(index, identities.count) for index, _, identities in written]
        expected = [(index, _entries(placement, index)) for index in sorted(self.paths)]
        if counts != expected:
            raise BackendUnavailable(
                f"Cannot go on: workers wrote {sum(count for _, count in counts)} live files into {len(counts)} "
                f"new manifests, not {sum(count for _, count in expected)} into {len(expected)}"
            )
        return written

    def _made(self) -> Iterator[tuple[int, MergedManifest]]:
        """Each new manifest to make, with its index."""
        rewrite, group = self.rewrite, self.rewrite.group
        assert group.layout is not None
        sources = sources_of(rewrite.rows)
        placement, merger = self._placement(sources), ManifestMerger.of(rewrite)
        # Unsorted ones are made of neighbours, so only those at a cut are read twice.
        held_bytes = self.held_bytes if placement.sorted_runs else min(self.held_bytes, _HELD_UNSORTED_BYTES)
        side_by_side = max(1, held_bytes // group.layout.target_bytes)
        for first in range(0, len(rewrite.tasks), side_by_side):
            last = min(first + side_by_side, len(rewrite.tasks)) - 1
            if not any(first <= index <= last for index in self.paths):
                continue
            parts: dict[int, list[ManifestPart]] = {}
            regroup = merger.regroup(placement, first, last)
            for found in self._scan(sources, placement.sources_of_outputs(first, last), regroup, _REWRITING):
                for part in found:
                    if part.output in self.paths:
                        parts.setdefault(part.output, []).append(part)
            for index in sorted(parts):
                yield index, merger.joined(index, parts.pop(index))

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
            Scan(
                lambda number: Source(sources[number].path, sources[number].length or 0),
                lambda number, data: open_manifest(sources[number], data),
                parse,
                phase=phase,
                batch_bytes=self.batch_bytes,
            ),
            numbers,
            on_event=self.table.on_event,
        )

    def _check(self, staged: Mapping[Task, StagedFile], planned: Mapping[Task, Identities]) -> None:
        """Read the new manifests again: they hold the live entries that were read, and all of them."""
        tasks = [*staged]
        target = self.rewrite.group.target
        assert target is not None
        numbered = target.format_version > 1
        sources = [
            _source(staged[task].row, with_sequence_numbers=numbered, with_row_ids=target.with_row_ids)
            for task in tasks
        ]
        check = _ManifestIdentities(self.batch_bytes)
        written: dict[int, Identities] = {}
        for found in self._scan(sources, range(len(sources)), check, "checking manifests"):
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


def _entries(placement: Placement, index: int) -> int:
    """The number of entries of a new manifest."""
    if index + 1 < len(placement.cuts):
        return int(placement.cuts[index + 1] - placement.cuts[index])
    return int(max(ends.max() for ends in placement.ends.values()) - placement.cuts[index])


def _source(row: Mapping[str, Any], *, with_sequence_numbers: bool, with_row_ids: bool) -> ManifestSource:
    """A new manifest as its list will give it; what it must not inherit differs from any value that it has.

    All its entries are EXISTING. Without the other counts no length but the listed one is taken.
    """
    return ManifestSource(
        path=row["manifest_path"],
        data=b"",
        length=row["manifest_length"],
        content=row["content"],
        partition_spec_id=row["partition_spec_id"],
        sequence_number=_NOT_INHERITED if with_sequence_numbers else 0,
        first_row_id=_NOT_INHERITED if with_row_ids else None,
        existing_files_count=row["existing_files_count"],
    )


@dataclass(frozen=True, slots=True)
class _ManifestIdentities:
    """Returns the identities of new manifests by index; decodes about `at_once_bytes` at a time."""

    at_once_bytes: int

    def __call__(self, batch: Opened) -> dict[int, Identities]:
        """Runs maybe in another process."""
        return {
            number: Identities.together(_identities(piece) for piece in self._pieces(source))
            for number, source in batch
            if source is not None
        }

    def _pieces(self, source: ManifestSource) -> Iterator[ManifestSource]:
        """The manifest in runs of blocks; every entry must be EXISTING."""
        container = source.container
        assert container is not None
        blocks: list[Block] = []
        size_bytes = 0
        for number, block in enumerate(container.blocks, start=1):
            blocks.append(block)
            size_bytes += len(block.payload)
            if size_bytes >= self.at_once_bytes or number == len(container.blocks):
                piece = replace(container, blocks=tuple(blocks))
                yield replace(source, container=piece, existing_files_count=piece.count)
                blocks, size_bytes = [], 0


def _identities(source: ManifestSource) -> Identities:
    """The identities of a manifest's entries; values that they inherit count as missing."""
    (found,) = read_entries([source], columns=IDENTITY)
    ids = found.table["first_row_id"].combine_chunks()
    given = ids.fill_null(0).to_numpy()
    valid = ids.is_valid().to_numpy(zero_copy_only=False) & (given < _NOT_INHERITED)
    column = array_of(given, valid)
    index = found.table.column_names.index("first_row_id")
    return Identities.of(found.table.set_column(index, "first_row_id", column))
