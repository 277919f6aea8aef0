"""`python -m benchmarks rest`: tables in a REST catalog on S3, over a slow network: expiry, compaction, deletions.

The servers are real and on this machine: Iceberg's reference server, versitygw, and Toxiproxy before both, which holds
each answer back for some milliseconds.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import boto3
import numpy as np
from botocore.config import Config

from benchmarks import outcomes
from benchmarks.bench import Bench, BenchTable, Row, Work
from benchmarks.compaction import FEW_ROWS, make_rows_table
from benchmarks.compaction import SPARK as REWRITE
from benchmarks.measure import Run, run
from benchmarks.peers import Session, find_iceberg_go, ours, python
from benchmarks.rest_tables import RestTables, catalog_options
from benchmarks.rows import WARM, expiry_call, retention
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.go_servers import VERSITYGW
from tests.large_tables import Size, Writer
from tests.rest_servers import java_options_of, pyiceberg_options_of, rest_server_over
from tests.servers import S3Server, free_port, go_binary, running
from tests.toxiproxy import running_toxiproxy

LATENCIES_MS = (1, 30)
MANIFESTS = 10  # of each snapshot
FILES = 50  # of each snapshot, the same in all
SIZES = {"S": Size(100, FILES, 10), "M": Size(1_000, FILES, 10), "L": Size(1_000, FILES, 10)}
SMALL_FILES = {"S": 100, "M": 1_000, "L": 10_000}  # of 10 KB, in ten partitions
LARGE_FILES = {"S": 10, "M": 60, "L": 600}  # of 6 MB, likewise
LARGE_ROWS = 130_000  # about 6 MB
OBJECTS = {"S": 6_000, "M": 60_000, "L": 60_000}
AT_ONCE = 64
BATCHES_AT_ONCE = 4
BUCKET = "lake"

# A floor: the DeleteObjects requests for all that the table's folder has, and nothing else.
DELETE_ALL = f"""
import os, sys
from concurrent.futures import ThreadPoolExecutor
import boto3
folder, bucket, prefix, endpoint, key, secret, region = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name=region)
keys = [{{"Key": f"{{prefix}}{{name}}"}} for name in sorted(os.listdir(folder))]
batches = [keys[at : at + 1_000] for at in range(0, len(keys), 1_000)]
with ThreadPoolExecutor({BATCHES_AT_ONCE}) as pool:
    for answer in pool.map(lambda some: s3.delete_objects(Bucket=bucket, Delete={{"Objects": some}}), batches):
        assert not answer.get("Errors")
"""
OUR_DELETE_ALL = """
import os, sys
from iceberg_cli.storage.router import open_storage
folder, bucket, prefix, endpoint, key, secret, region = sys.argv[1:]
storage = open_storage({"endpoint_url": endpoint, "key": key, "secret": secret, "region": region})
assert not storage.delete([f"s3://{bucket}/{prefix}{name}" for name in sorted(os.listdir(folder))])
"""


def rest_rows(bench: Bench) -> Iterator[Row]:
    """Expiry against bare reading, iceberg-go and Spark; compaction against Spark; deletions against requests."""
    size = SIZES[bench.size_name]
    table = _in_bucket(bench, "t", partial(make_rewritten_table, size=size))
    files = SMALL_FILES[bench.size_name]
    small = _in_bucket(bench, "small", partial(make_data_files, files=files, rows=FEW_ROWS))
    large = _in_bucket(
        bench, "large", partial(make_data_files, files=LARGE_FILES[bench.size_name], rows=LARGE_ROWS)
    )
    objects = _in_bucket(bench, "objects", partial(make_objects, count=OBJECTS[bench.size_name]))
    for latency_ms in LATENCIES_MS:
        with ExitStack() as stack:
            lake = _Lake.started(bench, latency_ms, stack)
            named = f"over {latency_ms} ms"
            expiry = ["expire-snapshots", "prod.db.t", "-q", *retention(size, size.kept), *lake.options]
            before = partial(lake.fresh, table)
            left = partial(outcomes.files_left, table.location)
            floor = lake.reads(table)
            row = Row(
                f"expiry {named}", f"floor: read by {AT_ONCE}", ours(*expiry, "--yes"), floor, before, bar=1.3
            )
            plan = ours(*expiry, "--dry-run", "--no-cache")
            yield replace(row, name=f"expiry plan {named}", ours=plan, before=partial(lake.untouched, table))
            yield row
            yield replace(row, peer="iceberg-go", theirs=lake.iceberg_go(size), look=left, bar=1 / 4, pairs=1)
            if bench.spark:
                call = expiry_call("t", size, size.kept)
                with Session(lake.spark_options, "rest") as session:
                    job = partial(session.second_call, {"sql": call}, before)
                    yield replace(row, peer=WARM, theirs=job, look=left, bar=1 / 6, pairs=1)
                    for name, what, data in (
                        ("small", f"{files:,} files of 10 KB", small),
                        ("large", f"{LARGE_FILES[bench.size_name]} files of 6 MB", large),
                    ):
                        yield Row(
                            f"{what} {named}", WARM,
                            ours("rewrite-data-files", f"prod.db.{name}", "-q", "--yes", *lake.options),
                            partial(session.second_call, {"sql": REWRITE.format(name)}, partial(lake.fresh, data)),
                            partial(lake.fresh, data), bar=1 / 3, pairs=1,
                        )  # fmt: skip
            arguments = [objects.location, BUCKET, "objects/", *lake.s3_arguments]
            yield Row(
                f"{OBJECTS[bench.size_name]:,} deletions {named}", "floor: requests alone",
                python(OUR_DELETE_ALL, *arguments), python(DELETE_ALL, *arguments), partial(_put_back, objects),
                bar=1.2,
            )  # fmt: skip


def _in_bucket(bench: Bench, name: str, make: Callable[[str], object]) -> BenchTable:
    return BenchTable(f"{bench.root}/s3/{BUCKET}/{name}", f"{bench.root}/pristine/{name}", make)


def _in_s3(table: BenchTable) -> str:
    return f"s3://{BUCKET}/{os.path.basename(table.location)}"


def _put_back(objects: BenchTable) -> None:
    """Have all objects; the service removes the folder with the last of them."""
    if objects.made:
        os.makedirs(objects.location, exist_ok=True)
    objects.fresh()


@dataclass
class _Lake:
    """A REST catalog and its storage, by ports whose answers come late."""

    bench: Bench
    s3: S3Server  # by the slow port
    catalog: RestTables  # by its own port
    slow_catalog: str

    @classmethod
    def started(cls, bench: Bench, latency_ms: int, stack: ExitStack) -> _Lake:
        """The servers, until the stack ends."""
        port, folder = free_port(), f"{bench.root}/s3"
        os.makedirs(folder, exist_ok=True)
        fast = S3Server(f"http://127.0.0.1:{port}", BUCKET)
        who = ["--access", fast.options["key"], "--secret", fast.options["secret"]]
        command = [str(go_binary(VERSITYGW)), *who, "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"]
        stack.enter_context(running([*command, "posix", folder], port))
        if not os.path.exists(f"{folder}/{BUCKET}"):
            fast.client().create_bucket(Bucket=BUCKET)
        database = f"{bench.root}/catalog-{latency_ms}.db"
        catalog = stack.enter_context(rest_server_over(f"jdbc:sqlite:{database}", s3=fast))
        toxiproxy = stack.enter_context(running_toxiproxy())
        slow = []
        for uri in (fast.endpoint, catalog):
            proxy = stack.enter_context(toxiproxy.before(uri.removeprefix("http://")))
            proxy.add("latency", "downstream", {"latency": latency_ms})
            slow.append(f"http://{proxy.address}")
        return cls(bench, S3Server(slow[0], BUCKET), RestTables(catalog), slow[1])

    @property
    def options(self) -> list[str]:
        """Our options for the catalog."""
        return catalog_options(self.bench.root, self.slow_catalog, pyiceberg_options_of(self.s3))

    @property
    def spark_options(self) -> str:
        """Spark's options for the catalog, as JSON."""
        return json.dumps({"type": "rest", "uri": self.slow_catalog, **java_options_of(self.s3)})

    @property
    def s3_arguments(self) -> list[str]:
        options = self.s3.options
        return [self.s3.endpoint, options["key"], options["secret"], options["region"]]

    def fresh(self, table: BenchTable) -> None:
        """Have the table as it was made, also in the catalog, and nothing cached."""
        table.uncached()
        self.catalog.register(_in_s3(table))

    def untouched(self, table: BenchTable) -> None:
        """The same for runs that only read."""
        table.uncached(changing=False)
        self.catalog.register(_in_s3(table))

    def reads(self, table: BenchTable) -> Work | None:
        """All metadata of the table as it is then, by so many requests at once; None where there is no curl."""
        curl = shutil.which("curl")
        endpoint, key, secret, region = self.s3_arguments
        client = boto3.client(
            "s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name=region,
            config=Config(signature_version="s3v4"),
        )  # fmt: skip

        def work() -> Run:
            names = [name for name in os.listdir(f"{table.location}/metadata") if name != "version-hint.text"]
            objects = ({"Bucket": BUCKET, "Key": f"t/metadata/{name}"} for name in names)
            urls = [client.generate_presigned_url("get_object", Params=each) for each in objects]
            config = Path(f"{self.bench.root}/urls")
            config.write_text("".join(f'url = "{url}"\noutput = "/dev/null"\n' for url in urls))
            return run([curl or "", "-sSf", "--parallel", "--parallel-max", str(AT_ONCE), "-K", str(config)])

        return work if curl else None

    def iceberg_go(self, size: Size) -> Work | None:
        """iceberg-go's expiry, None where it is not here."""
        go, options = find_iceberg_go(), self.s3.options
        env: Mapping[str, str] = {
            **os.environ, "AWS_ACCESS_KEY_ID": options["key"], "AWS_SECRET_ACCESS_KEY": options["secret"],
            "AWS_REGION": options["region"], "AWS_S3_ENDPOINT": self.s3.endpoint,
        }  # fmt: skip
        words = ["--older-than", "1s", "--retain-last", str(size.kept), "--yes", "db.t"]
        command = [str(go), "--catalog", "rest", "--uri", self.slow_catalog, "expire-snapshots", *words]
        return partial(run, command, env=env) if go else None


def make_rewritten_table(folder: str, size: Size) -> None:
    """A table in the bucket, each snapshot of which has all files in manifests of its own, as rewrites leave them."""
    writer = Writer(f"s3://{BUCKET}/t", folder=folder)
    parts = np.array_split(np.arange(size.files_per_snapshot), MANIFESTS)
    for commit in range(1, size.snapshots + 1):
        new = commit == 1
        manifests = [writer.manifest(part, len(part) if new else 0, commit) for part in parts]
        writer.snapshot(manifests, added=size.files_per_snapshot if new else 0)
    writer.publish()


def make_data_files(folder: str, files: int, rows: int) -> None:
    """A table in the bucket, of so many data files, each of so many rows."""
    location, storage = f"s3://{BUCKET}/{os.path.basename(folder)}", MemoryStorage()
    make_rows_table(location, files=files, rows=rows, version=2, partitions=10, storage=storage)
    for path in storage.paths(location):
        file = Path(f"{folder}{path.removeprefix(location)}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(storage.read(path))


def make_objects(folder: str, count: int) -> int:
    """So many objects of one byte."""
    os.makedirs(folder)
    for number in range(count):
        Path(f"{folder}/{number:06}").write_bytes(b"x")
    return count
