"""Rules about all files of one snapshot together.

Files are joined by 64-bit keys of their paths without scheme; what the keys find is compared by canonical path.

Spec: "Scan Planning", "Deletion Vectors", "Row Lineage"; Appendix F, "Metrics".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.string_hash import among
from iceberg_cli.iceberg.check.entries import EQUALITY, POSITIONS, VECTOR
from iceberg_cli.iceberg.reachability.keys import key_set, keys_of
from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.types.transforms import parse
from iceberg_cli.paths import canonical_column
from iceberg_cli.plan.findings import Example, Findings, Ints

_MOST: Final = np.iinfo(np.int64).max


def check_snapshot(
    files: pa.Table,
    specs: Ints,
    metadata: TableMetadata,
    label: str,
    findings: Findings,
    *,
    whole: bool,
    lost: Collection[tuple[str, int | None]] = (),
) -> None:
    """Hold the live files of a snapshot against the rules about all of them.

    Args:
        files: n live entries, `LIVE_SCHEMA`.
        specs: the partition spec id of each.
        metadata: the table.
        label: how findings name the snapshot.
        findings: to add to.
        whole: whether every manifest was read; otherwise nothing is said of what is not there.
        lost: path and offset of deletes whose data file was replaced before them, which is a rule of its own.
    """
    files, specs = _once(files, specs, label, findings)
    kinds = files["kind"].to_numpy()
    data, deletes = files.filter(pa.array(kinds == 0)), files.filter(pa.array(kinds != 0))
    if metadata.format_version > 2:
        _row_ids(data, metadata, label, findings)
    if not len(deletes):
        return
    specs = specs[kinds != 0]
    if lost:
        places = zip(deletes["path"].to_pylist(), deletes["offset"].to_pylist(), strict=True)
        stays = np.array([place not in lost for place in places], np.bool_)
        deletes, specs = deletes.filter(pa.array(stays)), specs[stays]
    delete_kinds = deletes["kind"].to_numpy()
    vectors = deletes.filter(pa.array(delete_kinds == VECTOR))
    _vectors(_named(vectors), data, label, findings, whole=whole)
    if whole:
        _dangling(deletes, specs, data, metadata, label, findings)


def _once(files: pa.Table, specs: Ints, label: str, findings: Findings) -> tuple[pa.Table, Ints]:
    """The files, each once. Spec: a path is live once in a snapshot; a deletion vector is one by its offset too."""
    keys = files["key"].to_numpy()
    vector = files["kind"].to_numpy() == VECTOR
    offsets = np.where(vector, pc.fill_null(files["offset"], 0).to_numpy(), -1)
    order = np.lexsort((offsets, keys))
    same = (keys[order][1:] == keys[order][:-1]) & (offsets[order][1:] == offsets[order][:-1])
    if not same.any():
        return files, specs
    near = np.zeros(len(keys), np.bool_)
    near[order[1:][same]] = near[order[:-1][same]] = True
    places = np.flatnonzero(near)
    paths = canonical_column(files["path"].take(pa.array(places)).combine_chunks()).to_pylist()
    seen: set[tuple[str, int]] = set()
    again = np.zeros(len(keys), np.bool_)
    for place, path in zip(places.tolist(), paths, strict=True):
        again[place] = (path, int(offsets[place])) in seen
        seen.add((path, int(offsets[place])))
    findings.add_rows(
        "file-listed-twice", again, lambda i: (files["path"][i].as_py(), f"live more than once in {label}")
    )
    return files.filter(pa.array(~again)), specs[~again]


# -- row ids -----------------------------------------------------------------------------------------------------


def _row_ids(data: pa.Table, metadata: TableMetadata, label: str, findings: Findings) -> None:
    """Ranges of live files are disjoint, and all below next-row-id."""
    given = data.filter(pc.and_(data["first_row_id"].is_valid(), pc.greater(data["record_count"], 0)))
    given = given.take(pc.sort_indices(given["first_row_id"]))
    first = given["first_row_id"].to_numpy()
    records = given["record_count"].to_numpy()
    stop = np.minimum(first, _MOST - records) + records  # hostile numbers may not wrap around
    if not len(first):
        return

    def path(row: int) -> str:
        text: str = given["path"][row].as_py()
        return text

    def message(row: int) -> str:
        return f"row ids {first[row]} to {stop[row] - 1} in {label}"

    reached = np.maximum.accumulate(stop)
    owner = np.maximum.accumulate(np.where(stop == reached, np.arange(len(stop)), 0))
    overlaps = np.append(False, first[1:] < reached[:-1])
    findings.add_rows(
        "row-ids-overlap",
        overlaps,
        lambda i: (path(i), f"{message(i)}, those of {path(int(owner[i - 1]))} end at {reached[i - 1] - 1}"),
    )
    findings.add_rows(
        "row-id-negative", first < 0, lambda i: (path(i), f"first_row_id is {first[i]} in {label}")
    )
    findings.add_rows(
        "row-ids-above-next",
        first > metadata.next_row_id - records,
        lambda i: (path(i), f"{message(i)}, next-row-id is {metadata.next_row_id}"),
    )


# -- deletes -----------------------------------------------------------------------------------------------------


def _named(deletes: pa.Table) -> pa.Table:
    """The deletes that name a data file."""
    return deletes.filter(deletes["ref"].is_valid())


def matches(deletes: pa.Table, data: pa.Table) -> Ints:
    """For each delete that names a data file the row of that file in `data`, -1 where it is not there."""
    refs = deletes["ref"].combine_chunks()
    if not len(refs) or not len(data):
        return np.full(len(refs), -1, np.int64)
    named_keys = key_set([keys_of(refs)])
    rows = np.flatnonzero(among(data["key"].to_numpy(), named_keys))
    paths = canonical_column(data["path"].take(pa.array(rows)).combine_chunks())
    found = pc.fill_null(pc.index_in(canonical_column(refs), value_set=paths), -1).to_numpy()
    return np.where(found >= 0, np.append(rows, 0)[found], -1)


def _vectors(vectors: pa.Table, data: pa.Table, label: str, findings: Findings, *, whole: bool) -> None:
    """Deletion vectors against each other and against their data files."""
    if not len(vectors):
        return
    refs = vectors["ref"].to_pylist()

    def tell(message: Callable[[int], str]) -> Callable[[int], Example]:
        return lambda i: (vectors["path"][i].as_py(), f"the deletion vector of {refs[i]} {message(i)}")

    encoded = canonical_column(vectors["ref"].combine_chunks()).dictionary_encode().indices.to_numpy()
    _, firsts = np.unique(encoded, return_index=True)
    again = np.ones(len(vectors), np.bool_)
    again[firsts] = False
    findings.add_rows(
        "deletion-vectors-of-one-file", again, tell(lambda _: f"is not its only one in {label}: readers fail")
    )
    rows = matches(vectors, data)
    there = rows >= 0
    findings.add_rows(
        "deletion-vector-dangling",
        ~there & whole,
        tell(lambda _: f"is there in {label}, the data file is not"),
    )
    if not there.any():
        return
    of = data.take(pa.array(np.maximum(rows, 0)))
    own, theirs = vectors["sequence_number"].to_numpy(), of["sequence_number"].to_numpy()
    older = there & (own < theirs)
    elsewhere = there & ~older & (vectors["partition"].to_numpy() != of["partition"].to_numpy())
    findings.add_rows(
        "deletion-vector-out-of-scope",
        older,
        tell(lambda i: f"has sequence number {own[i]}, the data file {theirs[i]}: it does not apply"),
    )
    findings.add_rows(
        "deletion-vector-out-of-scope",
        elsewhere,
        tell(lambda _: "is of another partition than the data file: it does not apply"),
    )
    cardinality, records = vectors["record_count"].to_numpy(), of["record_count"].to_numpy()
    findings.add_rows(
        "deletion-vector-too-large",
        there & (cardinality > records),
        tell(lambda i: f"deletes {cardinality[i]} rows, the data file has {records[i]}"),
    )
    findings.add_rows(
        "every-row-deleted",
        there & (cardinality == records) & (records > 0) & ~again,
        lambda i: (refs[i], f"all {records[i]} rows are deleted in {label}"),
    )
    spelled = pc.not_equal(vectors["ref"].combine_chunks(), of["path"].combine_chunks())
    findings.add_rows(
        "deletion-vector-spelling",
        there & spelled.to_numpy(zero_copy_only=False),
        tell(lambda i: f"spells a path that its manifest spells {of['path'][i].as_py()}"),
    )


def _dangling(
    deletes: pa.Table, specs: Ints, data: pa.Table, metadata: TableMetadata, label: str, findings: Findings
) -> None:
    """Position and equality delete files that apply to no data file."""
    kinds = deletes["kind"].to_numpy()
    numbers = deletes["sequence_number"].to_numpy()
    partitions = deletes["partition"].to_numpy()
    data_numbers, data_partitions = data["sequence_number"].to_numpy(), data["partition"].to_numpy()
    oldest = _oldest(data_partitions, data_numbers, partitions)
    plain = [spec.spec_id for spec in metadata.partition_specs if _unpartitioned(spec.fields)]
    everywhere = data_numbers.min(initial=_MOST)
    reach = np.where((kinds == EQUALITY) & np.isin(specs, plain), everywhere, oldest)
    applies = np.where(kinds == EQUALITY, reach < numbers, reach <= numbers)
    named = np.flatnonzero((kinds == POSITIONS) & deletes["ref"].is_valid().to_numpy())
    if len(named):
        rows = matches(deletes.take(pa.array(named)), data)
        at = np.maximum(rows, 0)
        applies[named] = (
            (rows >= 0)
            & (np.append(data_numbers, _MOST)[at] <= numbers[named])
            & (np.append(data_partitions, np.uint64(0))[at] == partitions[named])
        )
    findings.add_rows(
        "deletes-dangling",
        (kinds != VECTOR) & ~applies,
        lambda i: (
            deletes["path"][i].as_py(),
            f"{'equality' if kinds[i] == EQUALITY else 'position'} deletes that apply to no data file of {label}",
        ),
    )


def _unpartitioned(fields: Sequence[Any]) -> bool:
    return all(parse(field.transform).kind == "void" for field in fields)


def _oldest(
    partitions: npt.NDArray[np.uint64], numbers: Ints, lookups: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """The lowest sequence number of data files in each of some partitions."""
    known, index = np.unique(partitions, return_inverse=True)
    lowest = np.full(len(known) + 1, _MOST, np.int64)
    np.minimum.at(lowest, index, numbers)
    places = np.searchsorted(known, lookups)
    found = places < len(known)
    found[found] = known[places[found]] == lookups[found]
    result: Ints = np.where(found, lowest[np.where(found, places, len(known))], _MOST)
    return result


# -- totals and storage ------------------------------------------------------------------------------------------


def check_totals(files: pa.Table, snapshot: Snapshot, label: str, findings: Findings) -> None:
    """Hold the totals of a snapshot's summary against its live files, all of which were read.

    Other writers' totals drift. Fewer files than a total says are another thing: a list that was cut short looks so.
    """
    kinds = files["kind"].to_numpy()
    records, sizes = files["record_count"].to_numpy(), files["size"].to_numpy()
    # As Java counts: a deletion vector has the size of its blob, not of the Puffin file that it shares.
    own = np.where(kinds == VECTOR, pc.fill_null(files["blob_size"], 0).to_numpy(), sizes)
    counted = {
        "total-data-files": int((kinds == 0).sum()),
        "total-delete-files": int((kinds != 0).sum()),
        "total-records": int(records[kinds == 0].sum()),
        "total-files-size": int(own.sum()),
        "total-position-deletes": int(records[(kinds == POSITIONS) | (kinds == VECTOR)].sum()),
        "total-equality-deletes": int(records[kinds == EQUALITY].sum()),
    }
    stated = _numbers(snapshot.summary or {})
    where = snapshot.manifest_list or label
    if not len(files) and not {"total-data-files", "total-delete-files"} & stated.keys():
        message = f"the list of {label} has no file, and no totals in the summary confirm it"
        findings.add("manifest-list-cut-short", where, message)
    for name, number in counted.items():
        if name not in stated or stated[name] == number:
            continue
        if name in {"total-data-files", "total-delete-files"} and number < stated[name]:
            message = f"{number} live files in {label}, the summary's {name} is {stated[name]}"
            findings.add("manifest-list-cut-short", where, message)
        else:
            message = f"{name} is {stated[name]}, the manifests have {number}"
            findings.add("total-differs", label, message)


def _numbers(summary: Mapping[str, str]) -> dict[str, int]:
    return {
        key: int(text)
        for key, text in summary.items()
        if key.startswith("total-") and text.isascii() and text.isdigit() and len(text) < 20
    }
