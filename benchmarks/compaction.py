"""`python -m benchmarks compaction`: `rewrite-data-files`, against a copy by pyarrow and against Spark's procedure.

`python -m benchmarks.compaction LOCATION` rewrites a table while another writer is once faster, and prints how many
seconds passed from there to the commit, and how many in all.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench, BenchTable, Row
from benchmarks.delta_compaction import delta_compaction_rows
from benchmarks.measure import PYTHON, Run, run
from benchmarks.peers import Session, find_iceberg_compaction, ours
from benchmarks.rest_tables import RestTables, catalog_options
from benchmarks.row_files import FIELDS, PARTITIONS, field_with_id, partition_of, row_files
from benchmarks.rows import COLD, WARM, floor, matching, verb
from iceberg_cli.cli.context import now_ms
from iceberg_cli.formats.open import open_table
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.operation.parts import apply
from iceberg_cli.operation.runtime import system_runtime
from iceberg_cli.plan.events import COMMIT, AnyEvent, CommitEnded, PhaseBegun
from iceberg_cli.storage import Storage
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.iceberg_files import DATA, EQUALITY_DELETES, Json
from tests.delete_tables import DeleteTable
from tests.rest_servers import rest_server_over

SIZES: Final = {"S": (60, 3_000), "M": (600, 13_000), "L": (600, 130_000)}  # files, rows of each
_MANY: Final = {"S": (1_000, 10), "M": (10_000, 100), "L": (100_000, 1_000)}  # files of few rows, partitions
FEW_ROWS: Final = 200  # about 10 KB
_WIDE: Final = {
    "S": (4, 100, 1_000),
    "M": (10, 1_000, 5_000),
    "L": (10, 10_000, 5_000),
}  # files, rows, columns
_EQUALITY: Final = 100
_LOCAL: Final = LocalStorage()
_FLOOR: Final = "floor: pyarrow copy, 2 processes"
_DELETED_KEYS: Final = 500  # of each equality delete file

# Reads the files of each partition and writes one of them, two partitions at a time, with the same codec and level.
COPY = """
import os, sys
from multiprocessing import get_context
import pyarrow as pa, pyarrow.parquet as pq
names = open(sys.argv[1]).read().split()
by_folder = {}
for name in names:
    by_folder.setdefault(os.path.basename(name).split("-")[0], []).append(name)
def copy(item):
    label, names = item
    writer = None
    for table in [pa.concat_tables([pq.read_table(name) for name in names])]:
        writer = pq.ParquetWriter(
            f"{sys.argv[1]}.{label}", table.schema, compression="zstd", compression_level=3, version="2.6",
            store_schema=False, write_page_index=True, data_page_size=1 << 20,
        )
        writer.write_table(table, row_group_size=len(table))
    writer.close()
with get_context("fork").Pool(2) as pool:
    pool.map(copy, sorted(by_folder.items()), chunksize=1)
"""

# iceberg-compaction knows catalogs alone.
COMPACTION = """
import sys
from iceberg_compaction import Compaction, CompactionConfig, RestCatalog
assert Compaction(RestCatalog("prod", uri=sys.argv[1]), "db.t", CompactionConfig()).run() is not None
"""

SPARK = "CALL lake.system.rewrite_data_files(table => 'lake.db.{}')"
SPARK_ORDER = (
    "CALL lake.system.rewrite_data_files(table => 'lake.db.{}', strategy => 'sort', sort_order => '{}', "
    "options => map('rewrite-all', 'true'))"
)
_ORDERS: Final = (
    ("sorted by one column", ("--sort-by", "n"), "n ASC NULLS FIRST"),
    ("z-order", ("--strategy", "z-order", "--curve-by", "n,a"), "zorder(n, a)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A table to compact, and the ratios that it may take at most.

    Args:
        name: of the table.
        text: what is done.
        version: of the format.
        equality: how many equality delete files it has.
        floor: to the copy by pyarrow, with the proof of rows and without; None where the copy does less than that.
        warm: to Spark's procedure in a session that has run before, likewise; None: not compared.
        cold: to Spark's procedure from the shell, likewise.
        most_mb: what all our processes may take together.
    """

    name: str
    text: str
    version: int = 2
    equality: int = 0
    floor: tuple[float, float] | None = None
    warm: tuple[float, float | None]
    cold: tuple[float, float] | None = None
    most_mb: float = 700


_WORKS: Final = (
    _Work(name="t", text="v2", floor=(2.0, 1.4), warm=(1 / 3, 1 / 4), cold=(1 / 6, 1 / 8)),
    _Work(name="v3", text="v3, a tenth deleted by DVs", version=3, warm=(1 / 3, None)),
    _Work(
        name="eq",
        text=f"v2, {_EQUALITY} equality deletes",
        equality=_EQUALITY,
        warm=(1 / 4, None),
        most_mb=900,
    ),
)


def compaction_rows(bench: Bench) -> Iterator[Row]:
    """All small files of a table of nine columns, with the proof of rows and without, and deleted rows applied."""
    files, rows = SIZES[bench.size_name]
    for work in _WORKS:
        make = partial(make_rows_table, files=files, rows=rows, version=work.version, equality=work.equality)
        table = bench.table(work.name, make)
        proved, unproved = (
            Row(
                f"{work.text}, {files} files x {rows:,} rows{label}", "", verb("rewrite-data-files", table, *options),
                None, table.fresh, look=partial(rows_of_head, table.location), most_mb=work.most_mb,
            )
            for label, options in (("", ()), (", rows not proved", ("--no-verify-rows",)))
        )  # fmt: skip
        if work.floor is not None:
            copy = floor(COPY, table, matching("f*.parquet"))
            for row, bar in zip((proved, unproved), work.floor, strict=True):
                yield replace(row, peer=_FLOOR, theirs=copy, look=None, bar=bar)
        if work is _WORKS[0]:
            yield from _beside_itself(bench, table, proved)
        if not bench.spark:
            continue
        if work is _WORKS[0]:
            yield from _over_rest(bench, table, proved, unproved)
        call = SPARK.format(work.name)
        with Session(f"{bench.root}/wh") as session:
            for row, bar in zip((proved, unproved), work.warm, strict=True):
                if bar is not None:
                    warm = partial(session.second_call, {"sql": call}, table.fresh)
                    yield replace(row, peer=WARM, theirs=warm, bar=bar)
            on_workers = ["rewrite-data-files", table.location, "-q", "--yes", "--engine", "spark"]
            yield replace(
                proved,
                name=f"{proved.name}, Spark engine",
                peer=WARM,
                ours=partial(session.second_call, {"arguments": on_workers}, table.fresh),
                theirs=partial(session.second_call, {"sql": call}, table.fresh),
                bar=1.0,
                most_mb=None,
            )
            if work is _WORKS[0]:
                for label, options, order in _ORDERS:
                    yield replace(
                        proved,
                        name=f"{proved.name}, {label}",
                        peer=WARM,
                        ours=verb("rewrite-data-files", table, *options),
                        theirs=partial(
                            session.second_call, {"sql": SPARK_ORDER.format(work.name, order)}, table.fresh
                        ),
                        bar=1 / 3,
                        most_mb=800,
                    )
            for row, bar in zip((proved, unproved), work.cold or (), strict=False):
                yield replace(row, peer=COLD, theirs=partial(session.call, call, cold=True), bar=bar)

    yield from _many_files(bench)
    yield from _wide_files(bench)
    yield from delta_compaction_rows(bench, files=files, rows=rows)


def _beside_itself(bench: Bench, table: BenchTable, row: Row) -> Iterator[Row]:
    """The same rows without partitions, against those with; and a commit that is tried again, against the whole run."""
    files, rows = SIZES[bench.size_name]
    alone = verb("rewrite-data-files", table, "--processes", "1")
    both = verb("rewrite-data-files", table)
    yield replace(
        row, name=f"{row.name}, one process", peer="in two processes", ours=alone, theirs=both, most_mb=500
    )
    whole = bench.table("whole", partial(make_rows_table, files=files, rows=rows, version=2, partitions=0))

    def both_fresh() -> None:
        table.fresh()
        whole.fresh()

    options = ("--target-size", "32MiB")
    yield replace(
        row,
        name=f"v2, no partitions, target 32 MiB, {files} files",
        peer=f"in {PARTITIONS} partitions",
        ours=verb("rewrite-data-files", whole, *options),
        theirs=verb("rewrite-data-files", table, *options),
        before=both_fresh,
        look=partial(rows_of_head, whole.location),
        their_look=partial(rows_of_head, table.location),
        bar=1.1,
    )
    done: list[dict[str, float]] = []

    def again() -> Run:
        found = run([PYTHON, "-m", "benchmarks.compaction", table.location])
        done.append(json.loads(found.output))
        return replace(found, seconds=done[-1]["again"])

    def in_all() -> Run:
        return Run(seconds=done[-1]["all"], cpu_seconds=0, peak_mb=0, driver_mb=0)

    yield Row("a commit that was lost, tried again", "its whole run", again, in_all, table.fresh, bar=0.05)


def _over_rest(bench: Bench, table: BenchTable, proved: Row, unproved: Row) -> Iterator[Row]:
    """The same rows in a REST catalog, beside iceberg-compaction, which is there alone."""
    peer = find_iceberg_compaction()
    with rest_server_over(f"jdbc:sqlite:{bench.root}/catalog.db") as uri:
        catalog = RestTables(uri)
        command = ["rewrite-data-files", "prod.db.t", "-q", "--yes", *catalog_options(bench.root, uri)]

        def fresh() -> None:
            table.fresh()
            catalog.register(table.location)

        for row, options, bar in ((proved, (), 1.0), (unproved, ("--no-verify-rows",), 0.7)):
            yield replace(
                row,
                name=f"{row.name}, over REST",
                peer="iceberg-compaction",
                ours=ours(*command, *options),
                theirs=partial(run, [peer, "-c", COMPACTION, uri]) if peer else None,
                before=fresh,
                bar=bar,
            )


def _many_files(bench: Bench) -> Iterator[Row]:
    """Files of about 10 KB, many to a partition."""
    files, partitions = _MANY[bench.size_name]
    table = bench.table(
        "many", partial(make_rows_table, files=files, rows=FEW_ROWS, version=2, partitions=partitions)
    )
    row = Row(
        f"{files:,} files of 10 KB, {partitions:,} partitions", "", verb("rewrite-data-files", table), None,
        table.fresh, look=partial(rows_of_head, table.location), most_mb=1000, pairs=1,
    )  # fmt: skip
    copy = floor(COPY, table, matching("f*.parquet"))
    yield replace(row, peer=_FLOOR, theirs=copy, look=None)
    if bench.spark:
        with Session(f"{bench.root}/wh") as session:
            warm = partial(session.second_call, {"sql": SPARK.format("many")}, table.fresh)
            yield replace(row, peer=WARM, theirs=warm, bar=1 / 3)


def _wide_files(bench: Bench) -> Iterator[Row]:
    """Files of very many columns of text, in little memory."""
    files, rows, columns = _WIDE[bench.size_name]
    table = bench.table("wide", partial(make_wide_table, files=files, rows=rows, columns=columns))
    options = ("--memory", "512MiB", "--rewrite-all")
    yield Row(
        f"{files} files x {rows:,} rows of {columns:,} columns", _FLOOR,
        verb("rewrite-data-files", table, *options), floor(COPY, table, matching("f*.parquet")), table.fresh,
        most_mb=700,
    )  # fmt: skip


def rows_of_head(location: str, _: Run) -> Hashable:
    """The number of rows in the data files of the current snapshot, and the sum of their numbers."""
    from pyiceberg.table import StaticTable

    newest = max(Path(f"{location}/metadata").glob("*.metadata.json"), key=lambda path: path.stat().st_mtime)
    files = StaticTable.from_metadata(str(newest)).inspect.data_files()["file_path"].to_pylist()
    numbers = [pq.read_table(path.removeprefix("file:"), columns=["n"])["n"].to_numpy() for path in files]
    return sum(map(len, numbers)), sum(int(each.sum()) for each in numbers)


def _column(field_id: int, name: str, type_: Any) -> Json:
    return {"id": field_id, "name": name, "required": False, "type": type_}


_LIST: Final = {"type": "list", "element-id": 10, "element": "int", "element-required": False}
SCHEMA: Final[Json] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        _column(1, "n", "long"), _column(2, "k", "string"), _column(3, "a", "double"), _column(4, "b", "int"),
        _column(5, "s", "string"), _column(6, "u", "string"), _column(7, "ts", "timestamp"),
        _column(8, "d", "decimal(12, 2)"), _column(9, "l", _LIST),
    ],
}  # fmt: skip


def make_rows_table(
    location: str,
    *,
    files: int,
    rows: int,
    version: int,
    equality: int = 0,
    partitions: int = PARTITIONS,
    storage: Storage = _LOCAL,
) -> None:
    """A table in files of zstd; of version 3, a tenth of the rows of each file is deleted.

    Args:
        location: of the table.
        files: of data.
        rows: of each.
        version: of the format.
        equality: delete files by the number of rows, each of one partition.
        partitions: in which the files are in turn; 0: it has none.
        storage: of the table.
    """
    table = DeleteTable(storage=storage, location=location, format_version=version, schema=SCHEMA)
    table.document["properties"] = {"write.parquet.compression-codec": "zstd"}
    table.document["last-column-id"] = 10
    drawn = np.random.default_rng(7)
    of = partitions or PARTITIONS
    for number, data in enumerate(row_files(files, rows, partitions=of)):
        k = partition_of(number, of)
        entry = table.file(f"f{k}-{number}.parquet", data, DATA, rows)
        table.add(entry, k=k if partitions else None)
    table.commit(1)
    if version >= 3:
        for first in range(PARTITIONS):
            k = f"p{first:02d}"
            names = [f"f{k}-{number}" for number in range(first, files, PARTITIONS)]
            table.vectors(f"v{k}", {name: set(range(first, rows, 10)) for name in names}, k=k)
        table.commit(2)
    for number in range(equality):
        k = f"p{number % PARTITIONS:02d}"
        of_partition = range(number % PARTITIONS, files, PARTITIONS)
        keys = [
            drawn.choice(of_partition) * rows + int(row) for row in drawn.integers(0, rows, _DELETED_KEYS)
        ]
        add_equality_deletes(table, f"e{k}-{number}", keys, k=k)
        table.commit(10 + number)
    table.publish()


def make_wide_table(location: str, *, files: int, rows: int, columns: int) -> None:
    """A table of columns of text, without partitions, in files of zstd."""
    ids = range(1, columns + 1)
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [_column(each, f"c{each}", "string") for each in ids],
    }
    table = DeleteTable(storage=_LOCAL, location=location, format_version=2, schema=schema)
    table.document |= {
        "properties": {"write.parquet.compression-codec": "zstd"},
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-column-id": columns,
    }
    fields = pa.schema([field_with_id(each, f"c{each}", pa.string()) for each in ids])
    drawn = np.random.default_rng(7)
    for number in range(files):
        texts = (
            pa.array([f"value {each}" for each in drawn.integers(0, 1 << 40, rows).tolist()]) for _ in ids
        )
        sink = io.BytesIO()
        pq.write_table(
            pa.Table.from_arrays([*texts], schema=fields), sink, compression="zstd", store_schema=False
        )
        table.add(table.file(f"fp-{number}.parquet", sink.getvalue(), DATA, rows))
    table.commit(1)
    table.publish()


def add_equality_deletes(table: DeleteTable, name: str, keys: list[int], *, k: str) -> None:
    """A delete file of a partition, of rows by their numbers."""
    sink = io.BytesIO()
    pq.write_table(pa.table([pa.array(keys, pa.int64())], schema=pa.schema(FIELDS[:1])), sink)
    entry = table.file(f"{name}.parquet", sink.getvalue(), EQUALITY_DELETES, len(keys), equality_ids=[1])
    table.add(entry, k=k)


def _tried_again(location: str) -> dict[str, float]:
    """Seconds from where another writer is faster to the commit after it, and of the whole run."""
    moments: list[float] = []

    def see(event: AnyEvent) -> None:
        if isinstance(event, PhaseBegun) and event.phase == COMMIT and not moments:
            _append(location)
            moments.append(time.perf_counter())
        if isinstance(event, CommitEnded):
            moments.append(time.perf_counter())

    started = time.perf_counter()
    table = open_table(location, storage_options={}, catalog_config=None, on_event=see)
    planned = VERB.plan(table, RewriteDataFiles(single_commit=True), as_of_ms=now_ms())
    report = apply(planned, table, VERB, system_runtime(on_event=see, host="bench", process_id=1))
    _, lost, committed = moments
    assert report.status == "done"
    return {"again": committed - lost, "all": time.perf_counter() - started}


def _append(location: str) -> None:
    """Another writer's commit of a file of a row."""
    newest = max(Path(f"{location}/metadata").glob("v*.metadata.json"), key=lambda path: path.stat().st_mtime)
    version = int(newest.name[1:].partition(".")[0])
    table = DeleteTable(storage=LocalStorage(), location=location, format_version=2, schema=SCHEMA)
    table.reload(json.loads(newest.read_text()), version)
    table.data(f"other-{version}", 1, k="p00")
    table.commit(10**9 + version)
    table.publish()


if __name__ == "__main__":
    print(json.dumps(_tried_again(sys.argv[1])))
