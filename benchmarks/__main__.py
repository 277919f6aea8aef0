"""`python -m benchmarks NAME --size S|M|L --minutes N`, and `python -m benchmarks report`."""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks import growth, report, rows, spark, versions
from benchmarks.bench import open_bench

BENCHMARKS = {
    "expire": partial(rows.measure_rows, rows=rows.expire_rows),
    "v3": partial(rows.measure_rows, rows=rows.v3_rows),
    "delta": partial(rows.measure_rows, rows=rows.delta_rows),
    "spark": spark.main,
    "growth": growth.main,
    "driver": spark.driver,
    "versions": versions.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    add = parser.add_argument
    add("name", choices=[*sorted(BENCHMARKS), "report"])
    add("--size", choices=["S", "M", "L"], default="S")
    add("--minutes", type=float, help="no further row or pair after this time; default: 5, versions: 60")
    add("--only", default="", metavar="TEXT", help="only rows whose work or peer holds TEXT")
    add("--pairs", type=int, metavar="N", help="of each row; default: 5 on S, 3 on M, 1 on L, versions: 7")
    add("--folder", help="where the tables are made, and left, this one's own; default: a temporary folder")
    add("--spark", action="store_true", help="measure Spark's procedures too; needs a JDK and pyspark")
    add("--before", metavar="DIR", help="versions: a checkout of the version that this one is compared with")
    add("--bar", type=float, default=1.1, help="versions: the ratio that a median may reach; default: 1.1")
    about = f"append the rows as JSON lines; report reads them (there, default: {report.ROWS})"
    add("--report", metavar="FILE", help=about)
    add("--output", metavar="FILE", default=report.PAGE, help=f"report's page; default: {report.PAGE}")
    arguments = parser.parse_args()
    if arguments.name == "report":
        report.main(arguments.report or report.ROWS, arguments.output)
        return
    compares = arguments.name == "versions"
    if compares and not arguments.before:
        parser.error("versions needs --before DIR")
    if arguments.minutes is None:
        arguments.minutes = 60 if compares else 5
    options = {"before": arguments.before, "bar": arguments.bar} if compares else {}
    given = {
        name: getattr(arguments, name) for name in ("name", "minutes", "spark", "only", "pairs", "report")
    }
    with open_bench(arguments.folder, size_name=arguments.size, options=options, **given) as bench:
        BENCHMARKS[arguments.name](bench)


main()
