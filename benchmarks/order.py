"""`python -m benchmarks order`: how many files a read of one value opens once rows are in an order, beside the peers'.

Three tables of two columns that reads go by: values that are spread evenly, skewed ones, and such of which one follows
from the other. Each is brought into order by us and by the peers, to files of the same target. Then 1,000 rows are
drawn for each column, and for each the files are counted whose least and greatest value, as their footers have them,
do not rule it out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench, BenchTable, Line, show
from benchmarks.peers import Session, ours, python
from benchmarks.rows import DELTA_RS
from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.delta_rows import state_of
from iceberg_cli.testing.delta_writer import a_field, a_metadata, a_protocol_with, an_add, write_log
from iceberg_cli.testing.iceberg_files import DATA
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of, snapshot_of
from iceberg_cli.testing.iceberg_writer import IcebergWriter

ROWS: Final = {"S": 200_000, "M": 2_000_000, "L": 20_000_000}
FILES: Final = 32
READS: Final = 1_000  # of each column
COLUMNS: Final = ("a", "b")
KINDS: Final = ("even", "skewed", "correlated")
HEADER = "table | by | peer | column | of ours | opened | of theirs | opened | ratio | of shares | bar"
WIDTHS = (12, 20, 20, 6, 8, 8, 9, 8, 6, 9, 10)
Ints = npt.NDArray[np.int64]
_FIELDS: Final = {"a": "long", "b": "long", "v": "long"}
_Z_ORDERED: Final = ("--strategy", "z-order", "--curve-by", "a,b")
_HILBERT: Final = ("--curve-by", "a,b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A program that brings rows into an order.

    Args:
        name: of the program.
        needs_spark: whether it runs only with --spark.
        carry_out: has it do so, to files of so many bytes.
    """

    name: str
    needs_spark: bool
    carry_out: Callable[[Bench, BenchTable, int], object]


def main(bench: Bench) -> None:
    """Each table in each format, by us along both curves and by each peer."""
    show(HEADER.split(" | "), WIDTHS)
    for kind in KINDS:
        for layout, make, opened_of in (
            ("Delta", make_delta, delta_files),
            ("Iceberg", make_iceberg, iceberg_files),
        ):
            name = f"{kind}, {layout}"
            table = bench.table(
                f"{layout.lower()}_{kind}", partial(make, kind=kind, rows=ROWS[bench.size_name])
            )
            found: dict[str, list[Path]] = {}
            for peer in PEERS[layout]:
                if not bench.selects(name, peer.name) or (peer.needs_spark and not bench.spark):
                    continue
                for order, options in (("z-order", _Z_ORDERED), ("Hilbert", _HILBERT)):
                    if order not in found:
                        found[order] = _ordered(table, partial(_by_us, table, options), opened_of)
                theirs = _ordered(table, partial(peer.carry_out, bench, table, _target(table)), opened_of)
                for order in ("z-order", "Hilbert"):
                    for line in _compared(name, order, peer.name, found[order], theirs):
                        show(cells_of(line, "MISSED"), WIDTHS)
                        bench.write("order", line)


def cells_of(line: Line, missed: str) -> list[str]:
    """A measured row in the columns of `HEADER`."""
    ratio = line["opened"][0] / line["opened"][1]
    share = ratio * line["files"][1] / line["files"][0]
    return [
        line["name"], line["order"], line["peer"], line["column"], *(
            cell
            for files, opened in zip(line["files"], line["opened"], strict=True)
            for cell in (str(files), f"{opened:.2f}")
        ), f"{ratio:.2f}", f"{share:.2f}", f"1.00 {'met' if ratio <= 1 else missed}",
    ]  # fmt: skip


def _compared(
    name: str, order: str, peer: str, own: list[Path], theirs: list[Path]
) -> Iterator[dict[str, Any]]:
    for column in COLUMNS:
        opened = [_opened(files, column) for files in (own, theirs)]
        files = [len(own), len(theirs)]
        yield {"name": name, "order": order, "peer": peer, "column": column, "files": files, "opened": opened}


def _ordered(
    table: BenchTable, carry_out: Callable[[], object], files: Callable[[str], list[Path]]
) -> list[Path]:
    """Copies of the files that a program left, which stay when the next one begins."""
    table.fresh()
    carry_out()
    folder = Path(f"{table.location}-{len([*Path(table.location).parent.iterdir()])}")
    folder.mkdir()
    kept = []
    for path in files(table.location):
        kept.append(folder / path.name)
        kept[-1].hardlink_to(path)
    return kept


def _opened(files: list[Path], column: str) -> float:
    """Files that a read opens, on average over rows that are drawn."""
    spans = np.array([_span(path, column) for path in files])
    values = np.concatenate([pq.read_table(path, columns=[column])[column].to_numpy() for path in files])
    points = np.random.default_rng(7).choice(np.sort(values), READS)
    return float(np.mean([((spans[:, 0] <= point) & (point <= spans[:, 1])).sum() for point in points]))


def _span(path: Path, column: str) -> tuple[int, int]:
    """The least and the greatest value of a file, by its footer."""
    footer = pq.read_metadata(path)
    place = footer.schema.names.index(column)
    found = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
    return min(each.min for each in found), max(each.max for each in found)


def _target(table: BenchTable) -> int:
    return sum(path.stat().st_size for path in Path(table.copy).rglob("*.parquet")) // FILES


def _by_us(table: BenchTable, options: tuple[str, ...]) -> None:
    target = str(_target(table))
    ours("rewrite-data-files", table.location, "-q", "--yes", "--full", "--target-size", target, *options)()


def _delta_rs(_: Bench, table: BenchTable, target: int) -> None:
    program = (
        f"{DELTA_RS}from deltalake import WriterProperties; "
        f"t.optimize.z_order(['a', 'b'], target_size={target}, writer_properties=WriterProperties(compression='ZSTD'))"
    )
    python(program, table.location)()


def _delta_spark(bench: Bench, table: BenchTable, target: int) -> None:
    with Session(f"{bench.root}/wh", "delta") as session:
        session.call(f"SET spark.databricks.delta.optimize.maxFileSize={target}")
        session.call(f"OPTIMIZE delta.`{table.location}` ZORDER BY (a, b)")


def _iceberg_spark(bench: Bench, table: BenchTable, target: int) -> None:
    options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{target}')"
    name = f"lake.db.{Path(table.location).name}"
    with Session(f"{bench.root}/wh") as session:
        session.call(
            f"CALL lake.system.rewrite_data_files(table => '{name}', strategy => 'sort', "
            f"sort_order => 'zorder(a, b)', options => {options})"
        )


PEERS: Final = {
    "Delta": (
        Peer(name="delta-rs z_order", needs_spark=False, carry_out=_delta_rs),
        Peer(name="Delta Spark ZORDER", needs_spark=True, carry_out=_delta_spark),
    ),
    "Iceberg": (Peer(name="Iceberg Spark zorder", needs_spark=True, carry_out=_iceberg_spark),),
}


def drawn(kind: str, rows: int) -> Iterator[pa.Table]:
    """The rows of a table, in the files that it begins with."""
    numbers = np.random.default_rng(3)
    first = numbers.integers(0, 10**9, rows)
    match kind:
        case "skewed":
            columns = [
                np.minimum(numbers.zipf(1.3, rows), 10**9),
                (numbers.pareto(1.2, rows) * 1_000).astype(np.int64),
            ]
        case "correlated":
            columns = [first, first + numbers.integers(0, 10**7, rows)]
        case _:
            columns = [first, numbers.integers(0, 10**9, rows)]
    whole = pa.table({"a": columns[0], "b": columns[1], "v": numbers.integers(0, 10**9, rows)})
    for number in range(FILES):
        start = rows * number // FILES
        yield whole.slice(start, rows * (number + 1) // FILES - start)


def make_delta(location: str, *, kind: str, rows: int) -> None:
    """A table without partitions, of files whose rows are from anywhere."""
    root = Path(location)
    root.mkdir(parents=True)
    adds = []
    for number, table in enumerate(drawn(kind, rows)):
        pq.write_table(table, root / f"f{number}.parquet", compression="zstd")
        least, most = (
            {name: pick(table[name].to_numpy()).item() for name in COLUMNS} for pick in (np.min, np.max)
        )
        stats = {
            "numRecords": len(table),
            "minValues": least,
            "maxValues": most,
            "nullCount": dict.fromkeys(COLUMNS, 0),
        }
        size = (root / f"f{number}.parquet").stat().st_size
        adds.append(an_add(path=f"f{number}.parquet", size=size, stats=json.dumps(stats)))
    metadata = a_metadata(
        *(a_field(name, type_) for name, type_ in _FIELDS.items()),
        configuration={"delta.parquet.compression.codec": "zstd"},
    )
    write_log(root, [a_protocol_with(), metadata, *adds])


def delta_files(location: str) -> list[Path]:
    """The live files of a Delta table."""
    return [Path(location) / unquote(add["path"]) for add in state_of(Path(location)).adds.values()]


def make_iceberg(location: str, *, kind: str, rows: int) -> None:
    """As `make_delta`."""
    fields = [
        {"id": number, "name": name, "required": False, "type": type_}
        for number, (name, type_) in enumerate(_FIELDS.items(), start=1)
    ]
    writer = IcebergWriter(
        storage=LocalStorage(),
        location=location,
        schema={"type": "struct", "schema-id": 0, "fields": fields},
        properties={"write.parquet.compression-codec": "zstd"},
        seed=location,
        time_ms=1_790_000_000_000,
    )
    writer.commit_files("append", [writer.data_file(table) for table in drawn(kind, rows)])
    writer.publish()
    Path(f"{location}/metadata/version-hint.text").write_text("1")


def iceberg_files(location: str) -> list[Path]:
    """The live data files of an Iceberg table."""
    newest = max(
        Path(f"{location}/metadata").glob("v*.metadata.json"),
        key=lambda path: int(path.name[1:].split(".")[0]),
    )
    document, storage = json.loads(newest.read_text()), LocalStorage()
    snapshot = snapshot_of(document, document["current-snapshot-id"])
    entries = [each for manifest in manifests_of(storage, snapshot) for each in entries_of(storage, manifest)]
    live = [each for each in entries if each["status"] != 2 and each["content"] == DATA]
    return [Path(each["file_path"].removeprefix("file:")) for each in live]
