"""`python -m benchmarks NAME --size S|M|L --minutes N`, and `python -m benchmarks report`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from benchmarks import beside, compaction, fleet, growth, order, orphans, report, rest, rows, spark, versions
from benchmarks.bench import Bench, open_bench
from benchmarks.peers import missing_package

BENCHMARKS: dict[str, Callable[[Bench], None]] = {
    "expire": partial(rows.measure_rows, rows=rows.expire_rows),
    "v3": partial(rows.measure_rows, rows=rows.v3_rows),
    "delta": partial(rows.measure_rows, rows=rows.delta_rows),
    "rest": partial(rows.measure_rows, rows=rest.rest_rows),
    "compaction": partial(rows.measure_rows, rows=compaction.compaction_rows),
    "orphans": partial(rows.measure_rows, rows=orphans.orphan_rows),
    "beside": beside.main,
    "order": order.main,
    "fleet": partial(rows.measure_rows, rows=fleet.fleet_rows),
    "spark": spark.main,
    "growth": growth.main,
    "driver": spark.driver,
    "versions": versions.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    add = parser.add_argument
    add("name", choices=[*sorted(BENCHMARKS), "report"])
    add("--size", dest="size_name", choices=["S", "M", "L"], default="S")
    add("--minutes", type=float, help="no further row or pair after this time; default: 5, versions: 60")
    add("--only", default="", metavar="TEXT", help="only rows whose work or peer holds TEXT")
    add("--pairs", type=int, metavar="N", help="of each row; default: 5 on S, 3 on M, 1 on L, versions: 7")
    add("--folder", help="where the tables are made, and left, this one's own; default: a temporary folder")
    add("--spark", action="store_true", help="measure Spark's procedures too; needs a JDK and pyspark")
    add(
        "--before",
        default="",
        metavar="DIR",
        help="versions: a checkout of the version that this one is compared with",
    )
    add("--bar", type=float, default=1.1, help="versions: the ratio that a median may reach; default: 1.1")
    about = f"append the rows as JSON lines; report reads them (there, default: {report.ROWS})"
    add("--report", metavar="FILE", help=about)
    add("--output", metavar="FILE", default=report.PAGE, help=f"report's page; default: {report.PAGE}")
    options = vars(parser.parse_args())
    folder, page, rows_file = options.pop("folder"), options.pop("output"), options["report"]
    if options["name"] == "report":
        report.main(rows_file or report.ROWS, page)
        return
    compares = options["name"] == "versions"
    if compares and not options["before"]:
        parser.error("versions needs --before DIR")
    if options["minutes"] is None:
        options["minutes"] = 60 if compares else 5
    if package := missing_package(options["name"]):
        print(f"{package} is not here: nothing to measure")
        return
    with open_bench(folder, **options) as bench:
        bench.announce()
        rows.compile_all(bench)
        BENCHMARKS[bench.name](bench)


main()
