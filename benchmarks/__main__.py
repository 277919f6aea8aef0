"""`python -m benchmarks NAME --size S|M|L --minutes N`, and `python -m benchmarks report`."""

from __future__ import annotations

import argparse

from benchmarks import delta, driver, expire, growth, report, spark, v3
from benchmarks.bench import opened

BENCHMARKS = {
    "expire": expire.main,
    "v3": v3.main,
    "delta": delta.main,
    "spark": spark.main,
    "growth": growth.main,
    "driver": driver.main,
}


def main() -> None:
    """Parse the command line; run one benchmark, or show the results of those that ran."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("name", choices=[*sorted(BENCHMARKS), "report"])
    parser.add_argument("--size", choices=["S", "M", "L"], default="S")
    parser.add_argument(
        "--minutes", type=float, default=5, help="start no further row or pair after this time"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose work or peer holds TEXT")
    parser.add_argument("--pairs", type=int, metavar="N", help="of each row; default: 5 on S, 3 on M, 1 on L")
    parser.add_argument(
        "--folder", help="where the tables are made, and left, this one's own; default: a temporary folder"
    )
    parser.add_argument(
        "--spark", action="store_true", help="measure Spark's procedures too; needs a JDK and pyspark"
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help=f"append the rows as JSON lines; report reads them (there, default: {report.ROWS})",
    )
    parser.add_argument(
        "--output", metavar="FILE", default=report.PAGE, help=f"report's page; default: {report.PAGE}"
    )
    arguments = parser.parse_args()
    if arguments.name == "report":
        report.main(arguments.report or report.ROWS, arguments.output)
        return
    with opened(
        arguments.folder,
        name=arguments.name,
        size_name=arguments.size,
        minutes=arguments.minutes,
        spark=arguments.spark,
        only=arguments.only,
        most_pairs=arguments.pairs,
        report=arguments.report,
    ) as bench:
        BENCHMARKS[arguments.name](bench)


main()
