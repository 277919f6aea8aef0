"""merge-dvs on engines that shuffle in every way: what they merge is what sets of positions say.

Readers are pyarrow, fastavro and pyroaring (`tests/scan_planning.py`).
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64

from iceberg_cli.engines import Engine
from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import BackendUnavailable, CorruptFile
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.branch.head import head_of
from iceberg_cli.iceberg.spec.deletes.position_deletes import FileSplit, read_position_deletes
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verbs.merge_dvs import rules as merge_dvs
from iceberg_cli.iceberg.verbs.merge_dvs.blobs import BlobSpill
from iceberg_cli.iceberg.verbs.merge_dvs.build import MergeBuild
from iceberg_cli.iceberg.verbs.merge_dvs.partial_vectors import (
    CONTAINER,
    LIMITS,
    REQUEST_SCHEMA,
    MergeLimits,
    assign_buckets,
    cut,
    merge_partials,
    merge_ranges,
    numbers_of,
    partials_of,
    reported_rows,
    whole_of,
)
from iceberg_cli.iceberg.verbs.merge_dvs.plan import VERB, decide
from iceberg_cli.iceberg.verbs.merge_dvs.policy import MergeDvs
from iceberg_cli.iceberg.verbs.merge_dvs.read import DeleteReader, read_parts
from iceberg_cli.iceberg.verbs.merge_dvs.rules import settings_of
from iceberg_cli.iceberg.verbs.merge_dvs.vectors import DeletionVectors
from iceberg_cli.operation.apply import apply
from iceberg_cli.operation.runtime import Runtime
from iceberg_cli.plan.plan import StagedFile, Step, Task
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import position_deletes
from tests.budget import deep_unless
from tests.builders import NOW_MS
from tests.cli.lakes import metadata_of, newest_metadata
from tests.delete_tables import STORAGE, DeleteTable, a_table, random_table
from tests.scan_planning import view
from tests.shuffling import AdversarialEngine, Engines

# So little at once that small tables are cut in every way: ranges of one container, many buckets, shares of files.
LITTLE = MergeLimits(range_bytes=300, bucket_bytes=200, split_bytes=1_000, most_splits=5)

# -- sets, word for word -------------------------------------------------------------------------------------------


def as_java_writes(positions: Iterable[int]) -> bytes:
    """The vector of positions below 2^32, without its frame."""
    bitmap = BitMap(sorted(positions))
    bitmap.run_optimize()
    return struct.pack("<qI", 1, 0) + bitmap.serialize()


def some_positions(rng: random.Random, records: int) -> set[int]:
    """Strewn ones, runs, and crowds: each kind of container."""
    found = {rng.randrange(records) for _ in range(rng.choice([1, 30, 3_000]))}
    start = rng.randrange(records)
    found |= set(range(start, min(records, start + rng.choice([1, 100, 90_000]))))
    if rng.random() < 0.3:
        found |= {rng.randrange(min(records, CONTAINER)) for _ in range(20_000)}
    return found


@dataclass
class Deletes:
    """Delete files as sets of positions by data file, and as bytes."""

    records: list[int]
    files: list[dict[int, set[int]]]

    @classmethod
    def random(cls, seed: int) -> Deletes:
        """Many files; one data file has most of the deletes, and one delete file touches everything."""
        rng = random.Random(seed)
        records = [rng.choice([5, 1_000, 300_000]) for _ in range(12)] + [700_000]
        files = [
            {
                data: some_positions(rng, records[data] + rng.choice([0, 0, 40]))
                for data in [*rng.sample(range(13), 2), 12]
            }
            for _ in range(8)
        ]
        return cls(records, [*files, {data: some_positions(rng, records[data]) for data in range(13)}])

    def parts(self, share_rows: int) -> list[tuple[pa.Table, list[int]]]:
        """What the shares of the files say, each with the data files that it names."""
        found = []
        for number, file in enumerate(self.files):
            rows = [(f"d{data:02}", position) for data in sorted(file) for position in sorted(file[data])]
            data = position_deletes(rows, row_group_size=share_rows)
            splits = 4 if number % 2 else 1
            for split in range(splits):
                parts = read_position_deletes(
                    data, f"p{number}", record_count=len(rows), split=FileSplit(split, splits)
                )
                found.append((parts, sorted(file)))
        return found

    def expected(self) -> dict[int, set[int]]:
        """What each data file has deleted."""
        every = {data: set[int]().union(*(file.get(data, ()) for file in self.files)) for data in range(13)}
        return {data: {p for p in every[data] if p < self.records[data]} for data in every}


@pytest.mark.parametrize("seed", deep_unless(range(2), range(6)))
def test_vectors_of_pieces_that_come_in_any_order_are_those_of_sets(seed: int) -> None:
    deletes, rng = Deletes.random(seed), random.Random(seed)
    splits = deletes.parts(share_rows=rng.choice([700, 40_000]))
    weights = np.zeros(13, np.int64)
    for parts, _ in splits:
        for path, size in zip(parts["path"].to_pylist(), parts["size"].to_pylist(), strict=True):
            weights[int(path[1:])] += size
    at = assign_buckets(weights, np.array(deletes.records), replace(LITTLE, range_bytes=4_000))
    assert at.ranges.max() > 3
    columns = {
        "bucket": at.bucket,
        "width": at.width,
        "ranges": at.ranges,
        "records": np.array(deletes.records),
    }
    stated = []
    for parts, named in splits:
        values = {name: values[named] for name, values in columns.items()}
        asked = {"path": [f"d{data:02}" for data in named], "place": named, **values}
        stated.append(reported_rows(parts, pa.table(asked, schema=REQUEST_SCHEMA)))
    rng.shuffle(stated)
    buckets: dict[int, list[pa.Table]] = {}
    while stated:
        batch, stated = stated[: (count := rng.randint(1, 6))], stated[count:]
        for bucket, pieces in partials_of(batch):
            buckets.setdefault(bucket, []).append(pieces)
    assert set(buckets) <= set(range(at.buckets))
    for contents in buckets.values():
        rng.shuffle(contents)
    joined = list(map(merge_partials, buckets.values()))
    rng.shuffle(joined)
    vectors = merge_ranges(joined)

    expected = deletes.expected()
    assert vectors["place"].to_pylist() == list(range(13))
    for data, blob in enumerate(vectors["blob"].to_pylist()):
        assert blob[8:-4] == (as_java_writes(expected[data]) if expected[data] else b"")
    numbers = numbers_of(vectors).to_pydict()
    assert numbers["cardinality"] == [len(expected[data]) for data in range(13)]
    assert numbers["sum"] == [sum(expected[data]) for data in range(13)]
    assert numbers["crc"] == [blob[-4:] for blob in vectors["blob"].to_pylist()]
    assert sum(numbers["positions"]) == sum(sum(parts["cardinality"].to_pylist()) for parts, _ in splits)


def test_a_set_of_positions_above_four_billion_is_cut_and_put_together() -> None:
    positions = {3, 70_000, 2**32 - 1, 2**32 + 5, *range(3 * 2**32, 3 * 2**32 + 9_000)}
    parts = read_position_deletes(
        position_deletes([("d", position) for position in sorted(positions)]),
        "p",
        record_count=len(positions),
    )
    (blob,) = parts["blob"].to_pylist()
    for width in (CONTAINER, 40_000 * CONTAINER, 1 << 32):
        ranges = cut(blob, width, 3 * 2**32 // width + 1)
        assert len(ranges) > 1
        found = {number: set(BitMap64.deserialize(piece[8:-4])) for number, piece in ranges}
        assert set[int]().union(*found.values()) == positions
        assert all({position // width for position in found[number]} == {number} for number in found)
        assert whole_of([piece for _, piece in ranges]) == blob


# -- dealing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_buckets_are_about_even_and_ranges_begin_at_containers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.floor(rng.pareto(0.8, 5_000) * 900).astype(np.int64)
    ends = rng.integers(1, 10_000_000, 5_000)
    limits = MergeLimits(range_bytes=300_000, bucket_bytes=100_000)
    at = assign_buckets(weights, ends, limits)
    large = at.ranges > 1
    assert set(np.flatnonzero(large)) <= set(np.flatnonzero(weights > 300_000))
    assert (at.width % CONTAINER == 0).all()
    assert (at.width * at.ranges >= ends)[large].all()
    ranged = [
        b
        for start, count in zip(at.bucket[large], at.ranges[large], strict=True)
        for b in range(start, start + count)
    ]
    assert ranged == list(range(len(ranged)))
    loads = np.bincount(at.bucket[~large], weights[~large], minlength=at.buckets)[len(ranged) :]
    assert loads.max() <= 1.3 * max(loads.mean(), weights[~large].max())
    assert weights[~large].sum() / 100_000 <= len(loads) <= weights[~large].sum() / 100_000 + 1


# -- tables --------------------------------------------------------------------------------------------------------


class Driver(LocalStorage):
    """Local files, of which this process writes no Puffin file."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """See `Storage.put_if_absent`."""
        assert not path.endswith(".puffin")
        super().put_if_absent(path, data)


def opened(folder: Path, engine: Engine | None = None) -> IcebergTable:
    """The table, with this engine, or with the local one."""
    table = open_table(str(folder), storage_options={}, on_event=lambda _: None)
    assert isinstance(table, IcebergTable)
    if engine is not None:
        table.storage = Driver()
        table.use(engine)
    return table


@dataclass
class Done:
    """A merge: the plan's words, the outputs, and the new Puffin files by name."""

    stated: tuple[Any, ...]
    outputs: pa.Table
    puffins: dict[str, bytes]
    work: MergeBuild


def merged(
    folder: Path, engine: Engine | None, name: str, *, limits: MergeLimits | None = None, **values: Any
) -> Done:
    """Plan, and write all files."""
    table = opened(folder, engine)
    head = head_of(table, "main")
    settings = settings_of(table.metadata, MergeDvs(**values))
    reader = DeleteReader(table=table, metadata=table.metadata, rows=head.rows, conditions=(), limits=limits)
    decided = decide(reader, settings, None)
    made = merge_dvs.merge(
        reader.index, decided.outputs, decided.removed, target_bytes=settings.target_bytes, salted=False
    )
    work = MergeBuild(reader=reader, made=made, metadata=table.metadata)
    written(table, work, name)
    puffins = {task.name: Path(work.written[task].path).read_bytes() for task, _, _ in made.puffins}
    stated = decided.verdicts, decided.warnings, decided.removed.tolist()
    return Done(stated, made.outputs, puffins, work)


def written(table: IcebergTable, work: MergeBuild, name: str, *only: Task) -> Mapping[Task, StagedFile]:
    paths = {task: f"{table.location}/metadata/{name}-{task.name}" for task in only or work.made.tasks}
    reader = copy(work.reader)
    if table is not reader.table:
        reader.table, reader.vectors = table, replace(reader.vectors, engine=table.engine)
    return replace(work, reader=reader)(Step(name="merge"), paths)


def same(apart: Done, here: Done) -> bool:
    return (
        apart.stated == here.stated and apart.outputs.equals(here.outputs) and apart.puffins == here.puffins
    )


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(24))
def test_random_tables_are_merged_as_in_one_process(tmp_path: Path, seed: int) -> None:
    random_table(tmp_path / "t", seed)
    values = [{}, {"min_files": 1, "target_size": 800, "dead_ratio": 0.01}, {"keep_dangling": True}][seed % 3]
    limits = replace(LITTLE, range_bytes=20, bucket_bytes=60)
    apart = merged(tmp_path / "t", AdversarialEngine(STORAGE, seed=seed), "apart", limits=limits, **values)
    assert same(apart, merged(tmp_path / "t", None, "here", **values))


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(8))
def test_random_tables_are_merged_alike_whatever_is_kept_and_however_little_at_once(
    tmp_path: Path, seed: int
) -> None:
    random_table(tmp_path / "t", seed)
    values = {"min_files": 1, "target_size": 800, "dead_ratio": 0.01}
    little = replace(LITTLE, range_bytes=20, bucket_bytes=60, batch_bytes=1)
    whole = merged(tmp_path / "t", None, "whole", **values)
    for number, engine in enumerate([LocalEngine(STORAGE), AdversarialEngine(STORAGE, seed=seed)]):
        for keeps in (False, True):
            limits = replace(little, keeps_blobs=keeps, most_splits=5 if number else 1)
            name = f"little-{number}-{keeps}"
            assert same(merged(tmp_path / "t", engine, name, limits=limits, **values), whole)


def test_kept_blobs_are_those_that_were_added_in_memory_and_in_a_file() -> None:
    rng = random.Random(3)
    batches = [[rng.randbytes(rng.choice([0, 5, 400_000])) for _ in range(9)] for _ in range(6)]
    batches[2][4] = None  # type: ignore[call-overload]
    for held_bytes in (0, 3_000_000, 1 << 30):
        kept = BlobSpill(held_bytes)
        ids = [kept.add(pa.chunked_array([batch], pa.large_binary())) for batch in batches]
        assert [(batch[row] is None) == (each == -1) for batch, some in zip(batches, ids, strict=True)
                for row, each in enumerate(some.tolist())].count(False) == 0  # fmt: skip
        assert len(kept) == 53
        found = np.concatenate(ids)
        found = found[found >= 0][::-1]
        blobs = [blob for batch in batches for blob in batch if blob is not None][::-1]
        blocks = kept.block_of(found)
        assert len(set(blocks.tolist())) > 6
        for block in set(blocks.tolist()):
            rows = np.flatnonzero(blocks == block)
            assert kept.take(found[rows]).to_pylist() == [blobs[row] for row in rows.tolist()]
            assert kept.size_bytes(found[rows]) >= sum(len(blobs[row]) for row in rows.tolist())


def test_what_is_kept_is_not_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    skewed(folder)
    done = merged(folder, None, "first", min_files=1)
    for file in (folder / "data").iterdir():
        file.unlink()
    puffins = [task for task, _, _ in done.work.made.puffins]
    written(done.work.reader.table, done.work, "second", *puffins)
    assert {task.name: Path(done.work.written[task].path).read_bytes() for task in puffins} == done.puffins


def skewed(folder: Path) -> DeleteTable:
    """Data files, of which one has most of the deletes; vectors, some of them beside older position deletes."""
    rng = random.Random(5)
    table = a_table(folder)
    names = [f"d{number}" for number in range(6)]
    for name in [*names, "v1", "v2", "v3", "v4", "v5", "large"]:
        table.data(name, 400_000 if name in ("large", "v1", "v5") else 3_000, k="x")
    table.commit(1)
    older = {
        name: {rng.randrange(300_000 if name == "v1" else 3_000) for _ in range(900)} for name in ("v1", "v2")
    }
    # The only position that a vector of these lacks is in a range of which it has none.
    older["v5"] = {*range(0, 60_000, 60), 200_000}
    table.positions("older", older, k="x")
    table.commit(2)
    table.vectors("a", {"v1": older["v1"] | {5, 399_999}, "v2": set(sorted(older["v2"])[1:])}, k="x")
    table.vectors("far", {"v5": older["v5"] - {200_000}}, k="x")
    table.commit(3)
    table.vectors("b", {"v3": range(2_000)}, k="x")
    table.vectors("c", {"v4": range(0, 2_000, 7)}, k="x")
    table.commit(10)
    for number in range(5):
        some = {rng.randrange(400_000) for _ in range(6_000)}
        table.positions(
            f"p{number}", {"large": some | set(range(9_000 * number, 9_000 * number + 8_000))}, k="x"
        )
        table.commit(11 + number)
    every = {name: sorted({rng.randrange(3_000) for _ in range(1_500)}) for name in names}
    every["large"] = sorted({rng.randrange(400_000) for _ in range(20_000)})
    rows = [(table.path(name), position) for name in sorted(every) for position in every[name]]
    table.position_bytes("every", position_deletes(rows, row_group_size=2_500), len(rows), k="x")
    table.commit_and_publish(20)
    return table


@pytest.mark.few(1)
@pytest.mark.parametrize("limits", [LIMITS, LITTLE, replace(LITTLE, range_bytes=20_000)])
def test_a_data_file_with_most_of_the_deletes_is_merged_as_in_one_process(
    workers: Engines, tmp_path: Path, limits: MergeLimits
) -> None:
    folder = tmp_path / "t"
    table = skewed(folder)
    values = {"min_files": 1, "target_size": 6_000}
    apart = merged(folder, workers(), "apart", limits=limits, **values)
    assert same(apart, merged(folder, None, "here", **values))
    assert len(apart.puffins) > 2
    left_alone = {verdict.id for verdict in apart.stated[0] if verdict.keep}
    names = ("older-deletes.parquet", "a-deletes.puffin", "far-deletes.puffin")
    assert left_alone == {f"{folder}/data/{name}" for name in names}
    assert [w.count("/data/v") for w in apart.stated[1] if "lacks older position deletes" in w] == [2]
    # Nothing that has a position is here.
    assert len(apart.work.reader.kept) == 0
    assert set(apart.work.reader.index.parts["blob_id"].to_pylist()) == {-1}
    seen = view(STORAGE.read, metadata_of(folder))
    outputs = apart.outputs.to_pydict()
    assert set(outputs["ref"]) == {
        table.path(name) for name in ("v3", "v4", "large", *(f"d{n}" for n in range(6)))
    }
    found = dict(zip(outputs["ref"], vectors_in_order(apart), strict=True))
    assert found == {path: seen[path][1] for path in found}


def vectors_in_order(done: Done) -> list[set[int]]:
    """The positions of each output, as pyroaring reads them."""
    sizes = done.outputs["size"].to_pylist()
    found = []
    for task, start, stop in done.work.made.puffins:
        at = 4
        for size in sizes[start:stop]:
            body = done.puffins[task.name][at : at + size]
            found.append(set(BitMap64.deserialize(body[8:-4])))
            at += size
    return found


def by_pyiceberg(folder: Path) -> dict[str, set[int]]:
    """Deleted positions of each data file that has a deletion vector, or position deletes."""
    from pyiceberg.io.pyarrow import _read_deletes
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(str(newest_metadata(folder)))
    found: dict[str, set[int]] = {}
    for task in table.scan().plan_files():
        for delete in task.delete_files:
            positions = _read_deletes(table.io, delete).get(task.file.file_path)
            if positions is not None:
                found.setdefault(task.file.file_path, set()).update(positions.to_pylist())
    return found


def test_readers_see_the_same_after_workers_merged(workers: Engines, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    skewed(folder)
    before, also_before = view(STORAGE.read, metadata_of(folder)), by_pyiceberg(folder)
    table = opened(folder, workers())
    plan = VERB.plan(table, MergeDvs(min_files=1), as_of_ms=NOW_MS)
    runtime = Runtime(
        now_ms=lambda: NOW_MS,
        new_uuid=lambda: str(uuid.uuid4()),
        sleep_ms=lambda _ms: None,
        on_event=lambda _: None,
        host="here",
        process_id=1,
    )
    report = apply(plan, table, VERB, runtime)
    assert report.status == "done"
    assert report.counts["rewritten_delete_files_count"] == 8
    assert view(STORAGE.read, metadata_of(folder)) == before
    assert by_pyiceberg(folder) == also_before


# -- twice, lost, gone ---------------------------------------------------------------------------------------------


def test_the_same_puffin_files_written_again_are_found_there(workers: Engines, tmp_path: Path) -> None:
    skewed(tmp_path / "t")
    engine = workers()
    done = merged(tmp_path / "t", engine, "twice", target_size=6_000)
    puffins = [task for task, _, _ in done.work.made.puffins]
    written(opened(tmp_path / "t", engine), done.work, "twice", *puffins)
    assert {task.name: Path(done.work.written[task].path).read_bytes() for task in puffins} == done.puffins


def test_a_file_of_another_under_the_name_of_a_puffin_file_stays(workers: Engines, tmp_path: Path) -> None:
    skewed(tmp_path / "t")
    engine = workers()
    done = merged(tmp_path / "t", engine, "first", target_size=6_000)
    table, (task, *_) = opened(tmp_path / "t", engine), [task for task, _, _ in done.work.made.puffins]
    others = Path(f"{table.location}/metadata/second-{task.name}")
    others.write_bytes(b"another's")
    with pytest.raises(FileExistsError):
        written(table, done.work, "second", task)
    assert others.read_bytes() == b"another's"


def test_only_the_puffin_files_that_are_wanted_are_written(tmp_path: Path) -> None:
    skewed(tmp_path / "t")
    engine = AdversarialEngine(STORAGE)
    done = merged(tmp_path / "t", engine, "all", target_size=6_000, limits=LITTLE)
    _, *others, last = [task for task, _, _ in done.work.made.puffins]
    assert others
    written(opened(tmp_path / "t", engine), done.work, "some", last)
    (found,) = (tmp_path / "t/metadata").glob("some-*.puffin")
    assert found.read_bytes() == done.puffins[last.name]


class Forgetful(AdversarialEngine):
    """Of the last share it forgets that it had a row."""

    def scan(self, *args: Any, **values: Any) -> Any:
        """See `Engine.scan`."""
        *others, (parts, rows) = super().scan(*args, **values)
        return [*others, (parts, [*rows[:-1], rows[-1] - 1])]


def test_shares_that_have_too_few_rows_together_are_refused(tmp_path: Path) -> None:
    data = position_deletes([("d", position) for position in range(5_000)], row_group_size=1_000)
    (tmp_path / "p").write_bytes(data)
    files = pa.table({"path": [str(tmp_path / "p")], "file_size": [len(data)], "record_count": [5_000]})
    kept = BlobSpill()
    found = read_parts(AdversarialEngine(STORAGE), files, kept=kept, limits=LITTLE, on_event=lambda _: None)
    assert len(kept) == 0
    whole = read_position_deletes(data, str(tmp_path / "p"), record_count=5_000)
    for name in ("source", "path", "cardinality", "last"):
        assert found[name].to_pylist() == whole[name].to_pylist()
    with pytest.raises(CorruptFile, match="4999 rows were read"):
        read_parts(Forgetful(STORAGE), files, kept=kept, limits=LITTLE, on_event=lambda _: None)


class LosingAt(AdversarialEngine):
    """Loses the first part of one phase."""

    phase = ""

    def shuffle(self, scan: Any, *args: Any, **values: Any) -> Any:
        """See `Engine.shuffle`."""
        lossy = AdversarialEngine(self.storage, lost=int(scan.phase == self.phase))
        return lossy.shuffle(scan, *args, **values)


@pytest.mark.pairs
@pytest.mark.parametrize("limits", [LIMITS, LITTLE])
@pytest.mark.parametrize(
    "phase",
    [
        "joining position deletes",
        "comparing deletion vectors with older position deletes",
        "writing Puffin files",
    ],
)
def test_what_does_not_arrive_is_missed(tmp_path: Path, phase: str, limits: MergeLimits) -> None:
    skewed(tmp_path / "t")
    engine = type("Losing", (LosingAt,), {"phase": phase})(STORAGE)
    with pytest.raises(
        (BackendUnavailable, CorruptFile), match=r"workers joined|arrived|not the one that was planned"
    ):
        merged(tmp_path / "t", engine, "lost", limits=limits)


@pytest.mark.parametrize("name", ["every-deletes.parquet", "a-deletes.puffin", "b-deletes.puffin"])
def test_a_file_that_is_gone_is_named(workers: Engines, tmp_path: Path, name: str) -> None:
    skewed(tmp_path / "t")
    engine = workers()
    done = merged(tmp_path / "t", engine, "first", min_files=1)
    file = tmp_path / "t/data" / name
    file.unlink()
    table, index, on_event = (
        opened(tmp_path / "t", engine),
        done.work.reader.index,
        done.work.reader.table.on_event,
    )
    files = np.flatnonzero((index.vector >= 0) & np.isin(np.arange(len(index.data)), index.part_data))

    def again() -> None:
        DeletionVectors(engine=engine, index=index, on_event=on_event).missing(files)
        written(table, done.work, "second")

    with pytest.raises(CorruptFile, match="it is not there") as raised:
        again()
    assert raised.value.path == str(file)


@pytest.mark.parametrize("rows", [4_999, 5_001])
def test_a_share_of_a_file_with_another_number_of_rows_is_refused(rows: int) -> None:
    data = position_deletes([("d", position) for position in range(5_000)], row_group_size=1_000)
    with pytest.raises(CorruptFile, match=f"5000 rows, its manifest says {rows}"):
        read_position_deletes(data, "p", record_count=rows, split=FileSplit(1, 3))


def test_shares_of_a_file_hold_each_row_group_once() -> None:
    rows = [(f"d{position % 3}", position) for position in range(5_000)]
    data = position_deletes(sorted(rows), row_group_size=1_000)
    for count in (1, 2, 3, 5, 7):
        splits = [
            read_position_deletes(data, "p", record_count=5_000, split=FileSplit(n, count))
            for n in range(count)
        ]
        assert [len(split) > 0 for split in splits].count(True) == min(count, 5)
        found = {
            (path, position)
            for split in splits
            for path, blob in zip(split["path"].to_pylist(), split["blob"].to_pylist(), strict=True)
            for position in BitMap64.deserialize(blob[8:-4])
        }
        assert found == set(rows)
        assert sum(sum(split["cardinality"].to_pylist()) for split in splits) == 5_000
