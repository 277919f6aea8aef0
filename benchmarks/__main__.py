"""`python -m benchmarks NAME --size S|M|L --minutes N`."""

from __future__ import annotations

import argparse

from benchmarks import expire, v3

BENCHMARKS = {"expire": expire.main, "v3": v3.main}


def main() -> None:
    """Parse the command line and run one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("name", choices=sorted(BENCHMARKS))
    parser.add_argument("--size", choices=["S", "M", "L"], default="S")
    parser.add_argument("--minutes", type=float, default=5, help="start no further pair after this time")
    parser.add_argument("--folder", help="where the tables are made, and left; default: a temporary folder")
    parser.add_argument(
        "--spark", action="store_true", help="measure Spark's procedures too; needs a JDK and pyspark"
    )
    arguments = parser.parse_args()
    BENCHMARKS[arguments.name](arguments.size, arguments.minutes, arguments.folder, spark=arguments.spark)


main()
