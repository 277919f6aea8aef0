"""Opens Puffin and Parquet files for `inspect --check --deep`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.parquet import Uncounted
from iceberg_cli.engines import Event, Scan, Source
from iceberg_cli.errors import BackendUnavailable
from iceberg_cli.iceberg.check.content import (
    LiveVector,
    check_position_deletes,
    check_puffin,
    check_statistics,
)
from iceberg_cli.iceberg.check.entries import POSITIONS, VECTOR
from iceberg_cli.iceberg.check.files import matches
from iceberg_cli.iceberg.spec.columns import column_types
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.operation.sizes import OUT_OF_REACH, footer_rows, within_reach
from iceberg_cli.plan.findings import UNANSWERED, Findings, Ints

Item = TypeVar("Item")

_THREADS: Final = 16
_AT_ONCE: Final = 1_024


def check_content(
    table: IcebergTable,
    files: pa.Table,
    once: pa.Table,
    stored: Ints,
    findings: Findings,
    *,
    unseen_statistics: Collection[str] = (),
) -> None:
    """Compare the content of files with manifests and metadata.

    Args:
        table: whose files.
        files: live entries, `LIVE_SCHEMA`.
        once: of them, each path once.
        stored: sizes of these by the storage, negative where there is none to see.
        findings: to add to.
        unseen_statistics: statistics files that are out of reach, which has been told.
    """
    columns = frozenset(column_types(table.metadata))
    there = once.filter(pa.array(stored >= 0))
    unseen = frozenset(once["path"].filter(pa.array(stored == OUT_OF_REACH)).to_pylist())
    _puffins(table, files, unseen, columns, findings)
    _parquet(table, there, stored[stored >= 0], findings)
    _position_deletes(table, there, findings)
    _statistics(table, unseen_statistics, columns, findings)


def _puffins(
    table: IcebergTable,
    files: pa.Table,
    unseen: Collection[str],
    columns: frozenset[int],
    findings: Findings,
) -> None:
    kinds = files["kind"].to_numpy()
    complete = pc.and_(
        files["ref"].is_valid(), pc.and_(files["offset"].is_valid(), files["blob_size"].is_valid())
    )
    vectors = files.filter(pc.and_(pa.array(kinds == VECTOR), complete))
    if not len(vectors):
        return
    data = files.filter(pa.array(kinds == 0))
    named = matches(vectors, data)
    rows = np.where(named >= 0, np.append(data["record_count"].to_numpy(), -1)[named], -1)
    vectors = vectors.append_column("rows", pa.array(rows))
    vectors = vectors.group_by(["path", "offset", "blob_size", "ref", "record_count"]).aggregate(
        [("rows", "max")]
    )
    vectors = vectors.sort_by([("path", "ascending"), ("offset", "ascending")]).combine_chunks()
    paths = vectors["path"]
    new = (
        np.append(True, pc.not_equal(paths[1:], paths[:-1]).to_numpy())
        if len(paths) > 1
        else np.array([True])
    )
    starts = np.flatnonzero(new)
    stops = np.append(starts[1:], len(vectors))

    def load(item: tuple[str, int, int], content: bytes) -> Findings:
        path, start, stop = item
        found = Findings()
        check_puffin(content, path, list(_live(vectors.slice(start, stop - start))), columns, found)
        return found

    places = zip(paths.take(pa.array(starts)).to_pylist(), starts.tolist(), stops.tolist(), strict=True)
    chosen = [item for item in places if item[0] not in unseen]
    _merge(table, chosen, lambda item: Source(item[0]), load, "opening Puffin files", findings)


def _merge(
    table: IcebergTable,
    items: Sequence[Item],
    source: Callable[[Item], Source],
    load: Callable[[Item, bytes], Findings],
    phase: str,
    findings: Findings,
) -> None:
    """Read files whole, and add their findings."""

    def read(some: Sequence[Item]) -> list[Findings]:
        scanned = table.engine.scan(
            Scan(
                source,
                load,
                lambda batch: [found for _, found in batch if found is not None],
                phase=phase,
                missing_ok=True,
            ),
            some,
            on_event=table.on_event,
        )
        return [found for batch in scanned for found in batch]

    for answers in within_reach(items, lambda item: source(item).path, read, findings, root=table.location):
        for found in answers:
            findings.merge(found)


def _live(vectors: pa.Table) -> Iterator[LiveVector]:
    columns = (
        vectors[name].to_pylist() for name in ("offset", "blob_size", "ref", "record_count", "rows_max")
    )
    for offset, size, ref, cardinality, rows in zip(*columns, strict=True):
        yield LiveVector(offset=offset, size=size, ref=ref, cardinality=cardinality, rows=rows)


def _parquet(table: IcebergTable, files: pa.Table, stored: Ints, findings: Findings) -> None:
    """The row counts of Parquet footers, but for encrypted ones."""
    chosen = files["parquet"].to_numpy()
    files, stored = files.filter(pa.array(chosen)), stored[chosen]
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(files), _AT_ONCE):
            table.on_event(Event(phase="opening Parquet files", done=start, total=len(files)))
            part = files.slice(start, _AT_ONCE)
            paths, stated = part["path"].to_pylist(), part["record_count"].to_pylist()
            sizes = stored[start : start + _AT_ONCE].tolist()
            counted = pool.map(lambda item: footer_rows(table.storage, *item), zip(paths, sizes, strict=True))
            for path, number, rows in zip(paths, stated, counted, strict=True):
                if isinstance(rows, Uncounted):
                    findings.add(rows.rule, path, rows.reason)
                elif rows not in {None, number}:
                    message = f"the file has {rows} rows, its manifest says {number}"
                    findings.add("record-count-differs", path, message)


def _position_deletes(table: IcebergTable, files: pa.Table, findings: Findings) -> None:
    """The rows of position delete files in Parquet."""
    chosen = (files["kind"].to_numpy() == POSITIONS) & files["parquet"].to_numpy()
    named = files.filter(pa.array(chosen)).select(["path", "size"]).to_pylist()

    def load(item: dict[str, Any], content: bytes) -> Findings:
        found = Findings()
        check_position_deletes(content, item["path"], found)
        return found

    def source(item: dict[str, Any]) -> Source:
        return Source(item["path"], item["size"])

    _merge(table, named, source, load, "reading position delete files", findings)


def _statistics(
    table: IcebergTable, unseen: Collection[str], columns: frozenset[int], findings: Findings
) -> None:
    for file in table.metadata.statistics:
        if file.key_metadata is not None or file.statistics_path in unseen:
            continue  # encrypted, or told of already
        try:
            data = table.storage.read(file.statistics_path)
        except FileNotFoundError:
            continue
        except BackendUnavailable as error:
            findings.add(UNANSWERED, file.statistics_path, f"it was not looked at: {error.message}")
            continue
        check_statistics(data, file, columns, findings)
