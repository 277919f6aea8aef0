"""Which delete files and Puffin files are read for which deletion vectors, and in which bucket each is merged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from iceberg_cli.iceberg.spec.position_deletes import FileSplit
from iceberg_cli.iceberg.verbs.merge_dvs.columns import Ints
from iceberg_cli.iceberg.verbs.merge_dvs.index import DeleteIndex
from iceberg_cli.iceberg.verbs.merge_dvs.partial_vectors import REQUEST_SCHEMA
from iceberg_cli.iceberg.verbs.merge_dvs.splits import Buckets, MergeLimits, assign_buckets, runs_of
from iceberg_cli.iceberg.verbs.merge_dvs.worker import VECTOR_COLUMNS, DeleteFile, Item, PuffinFile


def splits_of(size_bytes: int, limits: MergeLimits) -> Iterable[FileSplit]:
    """The splits in which a position delete file of this size is decoded."""
    count = min(max(1, -(-size_bytes // limits.split_bytes)), limits.most_splits)
    return [FileSplit(number, count) for number in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRequests:
    """n deletion vectors to merge, move or compare, and the files to read for them.

    Args:
        index: of the base.
        places: index of each among those that are made; ascending.
        files: the data file of each whose position deletes are merged, or -1.
        rows: in `deletes`, of each one that exists already, or -1.
        records: numbers of rows of their data files.
        limits: of ranges, buckets and splits.
    """

    index: DeleteIndex
    places: Ints
    files: Ints
    rows: Ints
    records: Ints
    limits: MergeLimits

    def owners(self) -> tuple[Ints, Ints]:
        """The rows of `parts` to read, by delete file, and for each the index of its vector."""
        owner = np.full(len(self.index.data) + 1, -1, np.int64)  # a part of no data file has the last one
        joined = np.flatnonzero(self.files >= 0)
        owner[self.files[joined]] = joined
        parts = np.flatnonzero(owner[self.index.part_data] >= 0)
        parts = parts[np.argsort(self.index.part_delete[parts], kind="stable")]
        return parts, owner[self.index.part_data[parts]]

    def positions(self) -> Ints:
        """How many positions must arrive for each vector, each as often as a delete file has it."""
        parts, owner = self.owners()
        there = self.rows >= 0
        totals = np.zeros(len(self.places), np.int64)
        np.add.at(totals, owner, self.index.parts["cardinality"].to_numpy()[parts])
        totals[there] += self.index.column("record_count")[self.rows[there]]
        return totals

    def buckets(self) -> Buckets:
        """The buckets in which vectors are merged.

        The ends of a vector are those of its position deletes, so one that is only moved is in one range, and keeps
        its bytes.
        """
        parts, owner = self.owners()
        there = self.rows >= 0
        weights, ends = np.zeros(len(self.places), np.int64), np.zeros(len(self.places), np.int64)
        # A position takes its time and memory, however few bytes a run of them has.
        each = np.maximum(self.index.parts["size"].to_numpy(), self.index.parts["cardinality"].to_numpy())
        np.add.at(weights, owner, each[parts])
        weights[there] += self.index.column("size")[self.rows[there]]
        np.maximum.at(ends, owner, self.index.parts["last"].to_numpy()[parts] + 1)
        return assign_buckets(weights, np.minimum(ends, self.records), self.limits)

    def _columns(self, at: Buckets, numbers: Ints) -> dict[str, Ints]:
        """The buckets of some of the vectors."""
        columns = {
            "place": self.places, "bucket": at.bucket, "width": at.width, "ranges": at.ranges, "records": self.records,
        }  # fmt: skip
        return {name: values[numbers] for name, values in columns.items()}

    def items(self, at: Buckets) -> list[Item]:
        """The files that are read."""
        return [*self._delete_files(at), *self._puffin_files(at)]

    def _delete_files(self, at: Buckets) -> list[DeleteFile]:
        """The position delete files that are read, with the data files requested of each."""
        parts, owner = self.owners()
        names = self.index.parts["path"].take(pa.array(parts))
        request = pa.table(
            {"path": names, **self._columns(at, owner)}, schema=REQUEST_SCHEMA
        ).combine_chunks()
        deletes = self.index.part_delete[parts]
        starts, _ = runs_of(deletes)
        files = self.index.deletes.select(["path", "file_size", "record_count"]).take(
            pa.array(deletes[starts])
        )
        bounds = zip(starts.tolist(), [*starts[1:].tolist(), len(parts)], strict=False)
        return [
            DeleteFile(path, size, records, split, request.slice(start, stop - start))
            for (start, stop), path, size, records in zip(bounds, *files.to_pydict().values(), strict=True)
            for split in splits_of(size, self.limits)
        ]

    def _puffin_files(self, at: Buckets) -> list[PuffinFile]:
        """The Puffin files that are read, with the vectors requested of each."""
        there = np.flatnonzero(self.rows >= 0)
        index, rows = self.index, self.rows[there]
        named = index.vector_data[rows]
        # Of a vector of no data file no last row is known.
        counts = np.append(index.data["record_count"].to_numpy(), 0)
        deletes = index.deletes.take(pa.array(rows))
        columns = {name: deletes[name] for name in VECTOR_COLUMNS if name != "last_row"}
        request = pa.table({**columns, "last_row": counts[named] - 1, **self._columns(at, there)})
        paths = deletes["path"].combine_chunks().dictionary_encode()
        codes = paths.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        request, codes = request.take(pa.array(order)).combine_chunks(), codes[order]
        starts, _ = runs_of(codes)
        bounds = zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=False)
        return [
            PuffinFile(
                paths.dictionary[int(codes[a])].as_py(),
                request["file_size"][a].as_py(),
                request.slice(a, b - a),
            )
            for a, b in bounds
        ]
