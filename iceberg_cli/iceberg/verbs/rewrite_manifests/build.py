"""rewrite-manifests: the new manifests of one group, written and read back.

Old manifests are read once. What they give to each new one goes to its bucket, and whoever has the bucket writes it: a
distributed engine where it was made, so that neither entries nor new manifests pass through this process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from iceberg_cli.encoding.arrow import array_of
from iceberg_cli.engines import BATCH_BYTES, BuiltFile, Scan, ShuffleStage, Source
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.iceberg.avro.container import SYNC_BYTES, Block, container_header
from iceberg_cli.iceberg.branch.opened_manifests import Opened
from iceberg_cli.iceberg.reachability.keys import sources_of
from iceberg_cli.iceberg.spec.manifests.field_summaries import FieldSummary
from iceberg_cli.iceberg.spec.manifests.manifest import ManifestSource, open_manifest, read_entries
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.rewrite_manifests.placement import (
    IDENTITY,
    Identities,
    Placement,
    Regroup,
    Runs,
    Target,
    parts_in_order,
    place,
)
from iceberg_cli.iceberg.verbs.rewrite_manifests.rules import Rewrite, weights
from iceberg_cli.plan.plan import StagedFile, Task

_NOT_INHERITED = 1 << 61  # above every sequence number and row id of a table

Item = tuple[int, ManifestSource]  # a manifest with its index
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class ManifestBuilder:
    """Builds new manifests of their parts.

    Args:
        target: schema, spec and codec of new manifests.
        spec_id: of all of them.
        syncs: markers of each.
        schema_text: their Avro schema.
        header: their key-value metadata.
        paths: by index.
    """

    target: Target
    spec_id: int
    syncs: Sequence[bytes]
    schema_text: str
    header: Mapping[str, bytes]
    paths: Mapping[int, str]

    @classmethod
    def of(cls, rewrite: Rewrite, paths: Mapping[int, str]) -> ManifestBuilder:
        """The builder of a rewrite; sync markers come from the names of the tasks."""
        target = rewrite.group.target
        assert target is not None
        syncs = [hashlib.sha256(task.name.encode()).digest()[:SYNC_BYTES] for task in rewrite.tasks]
        return cls(target, rewrite.group.spec_id, syncs, *target.header(), dict(paths))

    def regroup(self, placement: Placement) -> Regroup:
        """What makes the parts of the new manifests."""
        return Regroup(
            target=self.target, placement=placement, syncs=self.syncs, outputs=tuple(sorted(self.paths))
        )

    def __call__(self, output: int, contents: Sequence[bytes]) -> BuiltFile:
        """The file of a new manifest.

        Args:
            output: its index.
            contents: what `Regroup` made for it of all old manifests, in any order; at least one.

        Returns:
            The file; its result is the index, the row of the manifest list without the path, and the identities.
        """
        target, parts = self.target, parts_in_order(contents)
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
        identities = Identities.together(part.identities for part in parts)
        return BuiltFile(self.paths[output], data, (output, row, identities))


def _united(summaries: Sequence[FieldSummary]) -> FieldSummary:
    summary = FieldSummary()
    for each in summaries:
        summary = summary.united(each)
    return summary


def rehearse(rewrite: Rewrite, manifests: Sequence[ManifestSource]) -> list[dict[str, Any]]:
    """The rows of the manifest list, without paths, that new manifests made of few old ones would have.

    Args:
        rewrite: the group, with its new manifests.
        manifests: those of its rows, opened, in their order.
    """
    builder = ManifestBuilder.of(rewrite, dict.fromkeys(range(len(rewrite.tasks)), ""))
    batch = [*enumerate(manifests)]
    placement = _placement(rewrite, [Runs(builder.target)(batch)] if _sorts(rewrite) else None)
    contents = builder.regroup(placement)(batch)
    built = (builder(output, [contents[output]]) for output in sorted(contents))
    return [row for _, row, _ in (file.result for file in built)]


@dataclass(kw_only=True)
class ManifestBuild:
    """The new manifests of one group.

    Args:
        table: whose manifests are read and written.
        rewrite: the group, with its new manifests.
        paths: of the new manifests to make, by index.
        batch_bytes: see `Scan`.
    """

    table: IcebergTable
    rewrite: Rewrite
    paths: Mapping[int, str]
    batch_bytes: int = BATCH_BYTES

    def run(self) -> dict[Task, StagedFile]:
        """Write them.

        Raises:
            CorruptFile: a manifest cannot be read whole, or what was written is not what was read.
            BackendUnavailable: workers did not write all of them.
        """
        staged: dict[Task, StagedFile] = {}
        planned: dict[Task, Identities] = {}
        for index, row, identities in self._written():
            task, path = self.rewrite.tasks[index], self.paths[index]
            staged[task] = StagedFile(path=path, row={"manifest_path": path, **row})
            planned[task] = identities
        self._check(staged, planned)
        return staged

    def _written(self) -> list[tuple[int, dict[str, Any], Identities]]:
        """The results of `ManifestBuilder` for all of them, by their index."""
        items = [*enumerate(sources_of(self.rewrite.rows))]
        builder = ManifestBuilder.of(self.rewrite, self.paths)
        runs = self._scan(items, Runs(builder.target), "reading partitions") if _sorts(self.rewrite) else None
        placement = _placement(self.rewrite, runs)
        found = self.table.engine.shuffle(
            self._reading(builder.regroup(placement), "rewriting manifests"),
            [ShuffleStage(builder, len(self.rewrite.tasks))],
            [items[index] for index in placement.sources_between(min(self.paths), max(self.paths))],
            on_event=self.table.on_event,
        )
        written = sorted(found, key=itemgetter(0))
        counts = [(index, identities.count) for index, _, identities in written]
        expected = [(index, placement.entries_of(index)) for index in sorted(self.paths)]
        if counts != expected:
            raise BackendUnavailable(
                f"Cannot go on: workers wrote {sum(count for _, count in counts)} live files into {len(counts)} "
                f"new manifests, not {sum(count for _, count in expected)} into {len(expected)}"
            )
        return written

    def _reading(self, parse: Callable[[Opened], Parsed], phase: str) -> Scan[Item, ManifestSource, Parsed]:
        return Scan(
            lambda item: Source(item[1].path, item[1].length or 0),
            lambda item, data: open_manifest(item[1], data),
            lambda batch: parse([(index, opened) for (index, _), opened in batch]),
            phase=phase,
            batch_bytes=self.batch_bytes,
        )

    def _scan(self, items: Sequence[Item], parse: Callable[[Opened], Parsed], phase: str) -> Iterator[Parsed]:
        return self.table.engine.scan(self._reading(parse, phase), items, on_event=self.table.on_event)

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
        for found in self._scan([*enumerate(sources)], check, "checking manifests"):
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


def _sorts(rewrite: Rewrite) -> bool:
    """Whether entries are sorted by partition: of one new manifest each batch is, and they keep their order."""
    assert rewrite.group.target is not None
    return len(rewrite.tasks) > 1 and bool(rewrite.group.target.sort_by)


def _placement(rewrite: Rewrite, runs: Iterable[pa.Table] | None) -> Placement:
    """The new manifest of each live entry, by rows of `Runs`, or by the counts of the manifest list."""
    assert rewrite.group.layout is not None
    if runs is None:
        live = sum(rewrite.rows[f"{name}_files_count"].to_numpy() for name in ("added", "existing"))
        counts = np.asarray(live).astype(np.int64)
        rows = pa.table({"manifest": array_of(np.arange(len(counts))), "count": array_of(counts)})
    else:
        rows = pa.concat_tables(runs)
    own_weights = weights(rewrite.rows, rewrite.group.layout)
    return place(rows, own_weights, len(rewrite.tasks), sorted_runs=runs is not None)


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
    (batch,) = read_entries([source], columns=IDENTITY)
    ids = batch.table["first_row_id"].combine_chunks()
    given = ids.fill_null(0).to_numpy()
    valid = ids.is_valid().to_numpy(zero_copy_only=False) & (given < _NOT_INHERITED)
    column = array_of(given, valid)
    index = batch.table.column_names.index("first_row_id")
    return Identities.of(batch.table.set_column(index, "first_row_id", column))
