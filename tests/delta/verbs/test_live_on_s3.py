"""Delta tables on S3: Spark and delta-rs read after every verb what was promised, and Spark writes on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from iceberg_cli.cli.context import now_ms
from tests.cli.running import iceberg_cli
from tests.delta_live import shapes
from tests.delta_live.lake import IDS, JOURNAL, Rows, in_order, rows_of_delta_rs, set_age
from tests.delta_spark import DeltaSpark
from tests.paths import besides_history
from tests.s3_words import WORD, delta_rs_options_of, options_of
from tests.servers import Versitygw
from tests.spark_jars import DELTA, S3A
from tests.spark_settings import settings_of_jvm, starting

pytestmark = [pytest.mark.jvm, pytest.mark.deep]

Row = tuple[int, str | None]
NOW = ("--retention", "0s", "--unsafe-allow-short-retention")
CREATE = (
    "CREATE TABLE {t} (n BIGINT, k STRING) USING delta PARTITIONED BY (k) TBLPROPERTIES"
    " ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '5')"
)
# By what a reader skips files: the bounds of a column, partitions of odd names, both. Each holds for some row.
FILTERS: Mapping[str, Callable[[Row], bool]] = {
    "n < 5 OR n > 115": lambda row: row[0] < 5 or row[0] > 115,
    "k IN ('two words', '%2F', 'a/b', 'ü漢')": lambda row: row[1] in ("two words", "%2F", "a/b", "ü漢"),
    "k IS NULL": lambda row: row[1] is None,
    "k = 'k1' AND n < 110": lambda row: row[1] == "k1" and row[0] < 110,
}


@dataclass(kw_only=True)
class TableOnS3:
    """A Delta table of the columns n and k, and the rows that its versions have by the statements that wrote them.

    Args:
        spark: writes and reads, by S3A.
        s3: the service.
        name: of its folder in the bucket.
        rows: k by n.
        promised: the versions that readers can read, each with its rows.
    """

    spark: DeltaSpark
    s3: Versitygw
    name: str
    rows: dict[int, str | None] = field(default_factory=dict)
    promised: dict[int, Rows] = field(default_factory=dict)

    @property
    def location(self) -> str:
        return f"s3://{self.s3.bucket}/{self.name}"

    @property
    def in_spark(self) -> str:
        return f"delta.`s3a://{self.s3.bucket}/{self.name}`"

    def objects(self) -> set[str]:
        """The names of all objects below the table, but for its history."""
        paths = self.s3.storage.paths(self.location)
        return besides_history(path.removeprefix(f"{self.location}/") for path in paths)

    def files(self) -> set[str]:
        """Those outside the log."""
        return {key for key in self.objects() if not key.startswith("_delta_log/")}

    def commits(self) -> list[int]:
        """The versions whose commits are in the log."""
        names = (key.removeprefix("_delta_log/").removesuffix(".json") for key in self.objects())
        return sorted(int(name) for name in names if name.isdigit())

    # -- Spark writes ------------------------------------------------------------------------------------------

    def sql(self, statement: str) -> Rows:
        """The rows of a statement; `{t}` is the table. The versions that it adds are promised."""
        rows = self.spark.sql(statement.replace("{t}", self.in_spark))
        self._promise()
        return rows

    def insert(self, first: int, last: int) -> None:
        self.rows |= {n: f"k{n % 2}" for n in range(first, last + 1)}
        self.sql(shapes.insert(first, last))

    def insert_odd(self, first: int) -> None:
        # An empty string is no value of a partition.
        self.rows |= {first + number: k or None for number, k in enumerate((*shapes.ODD, None, ""))}
        self.sql(shapes.odd(first))

    def delete(self, *numbers: int) -> None:
        for n in numbers:
            del self.rows[n]
        self.sql(shapes.delete(*numbers))

    def update(self, k: str, *numbers: int) -> None:
        self.rows |= dict.fromkeys(numbers, k)
        self.sql(f"UPDATE {{t}} SET k = '{k}' WHERE n IN ({', '.join(map(str, numbers))})")

    def _promise(self) -> None:
        newest = max(self.promised, default=-1)
        added = [version for version in self.commits() if version > newest]
        self.promised |= dict.fromkeys(added, in_order(self.rows.items()))

    # -- our program -------------------------------------------------------------------------------------------

    def verb(self, name: str, *options: object) -> None:
        """Carry out a verb, which must succeed and changes no row."""
        arguments = (*options_of(self.s3), *options, "--yes", WORD, "--format", "json", "--no-progress")
        ran = iceberg_cli(name, self.location, *arguments)
        assert ran.code == 0, (name, options, ran.out, ran.err)
        assert ran.json["status"] == "done"
        assert not [key for key in self.objects() if JOURNAL in key]
        self._promise()

    # -- both read ---------------------------------------------------------------------------------------------

    def assert_read(self) -> None:
        """Both read the newest rows by filters, and promised versions: Spark the oldest and the newest two."""
        each = sorted(self.promised)
        versions = sorted({*each[:1], *each[-2:]})
        texts = [f"SELECT n, k FROM {self.in_spark} VERSION AS OF {version}" for version in versions]
        texts += [f"SELECT n, k FROM {self.in_spark} WHERE {text}" for text in FILTERS]
        found = [in_order(rows) for rows in self.spark.queries(texts, forget=True)]
        assert found[: len(versions)] == [self.promised[version] for version in versions]
        chosen = [in_order(filter(holds, self.rows.items())) for holds in FILTERS.values()]
        assert all(chosen)
        assert found[len(versions) :] == chosen
        assert {version: self.of_delta_rs(version) for version in each} == self.promised
        assert [self.of_delta_rs(where=text) for text in FILTERS] == chosen

    def of_delta_rs(self, version: int | None = None, where: str = "TRUE") -> Rows:
        """Rows of a version, or of the newest, as delta-rs reads them."""
        options = delta_rs_options_of(self.s3)
        # To delta-rs, s3 and s3a are two stores, and a table may only name files of the one in which it was opened.
        return rows_of_delta_rs(f"s3a{self.location[2:]}", version, where=where, options=options)

    def promise_only(self, first: int) -> None:
        """Versions before this one may have lost files."""
        self.promised = {version: rows for version, rows in self.promised.items() if version >= first}

    def ids(self) -> dict[int, tuple[int, int]]:
        """The id and the commit version of each row by its n, which Spark reads; no two rows have one id."""
        [rows] = self.spark.queries([f"SELECT n, {IDS} FROM {self.in_spark}"], forget=True)
        assert len({row_id for _, row_id, _ in rows}) == len(rows)
        assert all(type(version) is int for *_, version in rows)
        return {n: (row_id, version) for n, row_id, version in rows}

    def dry_vacuum(self) -> set[str]:
        """What Spark would delete of everything that is older than now, below the table."""
        rows = self.sql("VACUUM {t} RETAIN 0 HOURS DRY RUN")
        return {row[0].removeprefix(f"s3a://{self.s3.bucket}/{self.name}/") for row in rows}


@pytest.fixture(scope="module")
def delta_spark_on_s3(versitygw: Versitygw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    """Delta Spark with Hadoop's S3A, in a process of its own."""
    folder = tmp_path_factory.mktemp("delta-on-s3")
    options = versitygw.options
    s3a = {
        "endpoint": options["endpoint_url"],
        "endpoint.region": options["region"],
        "access.key": options["key"],
        "secret.key": options["secret"],
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true",
    }
    settings = {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}
    spark = DeltaSpark(folder / "spark", settings | settings_of_jvm((*DELTA, *S3A), folder))
    with starting("Delta Spark with S3A"):
        spark.sql("SELECT 1")
    yield spark
    spark.stop()


@pytest.fixture
def table(delta_spark_on_s3: DeltaSpark, versitygw: Versitygw) -> TableOnS3:
    """A table with partitions of odd names, deletion vectors, an update and a checkpoint."""
    made = TableOnS3(spark=delta_spark_on_s3, s3=versitygw, name=f"t_{uuid.uuid4().hex}")
    made.sql(CREATE)
    made.insert_odd(0)
    made.insert(100, 149)
    made.delete(9, 101, 120, 121)
    made.update("u", 102, 130)
    made.delete(111, 112)
    assert "_delta_log/00000000000000000005.checkpoint.parquet" in made.objects()
    return made


def test_spark_and_delta_rs_read_after_every_verb_what_was_promised_and_spark_writes_on(
    table: TableOnS3,
) -> None:
    table.verb("upgrade-v3", "--feature", "rowTracking", "--feature", "v2Checkpoint")
    table.assert_read()
    table.insert(1000, 1003)

    table.verb("assign-row-ids")
    table.assert_read()
    ids = table.ids()
    table.delete(1001, 131)

    table.verb("merge-dvs", "--min-files", 2)
    table.assert_read()

    table.verb("rewrite-manifests", "--checkpoint", "v2", "--part-size", 5)
    table.assert_read()
    checkpoint = max(table.commits())
    table.insert(1010, 1013)
    later = table.ids()
    assert later.keys() == table.rows.keys()
    assert {n: later[n] for n in later if n < 1010} == {n: ids[n] for n in ids if n in later}

    since_ms, since = now_ms(), max(table.promised)
    table.update("v", 103, 1010)
    table.delete(105, 1012)
    before = table.files()
    table.verb("expire-snapshots", *NOW, "--mode", "lite", "--as-of", since_ms)
    assert before - table.files()
    table.promise_only(since)
    table.assert_read()
    table.insert(1020, 1023)

    for path in (table.s3.folder / table.name / "_delta_log").rglob("*"):
        if path.name[:20].isdigit() and int(path.name[:20]) <= checkpoint:
            set_age(path, days=40)
    table.s3.storage.put_if_absent(f"{table.location}/k=k0/part-nobody-needs.parquet", b"")
    before, due = table.files(), table.dry_vacuum()
    assert [name for name in due if name.endswith(".bin")]
    assert [name for name in due if name.startswith("k=k0/part-0")]
    table.verb("expire-snapshots", *NOW, "--mode", "full")
    assert before - table.files() == before & due
    assert not table.dry_vacuum()
    assert table.commits()[0] == checkpoint
    table.promise_only(max(table.promised))
    table.assert_read()
    table.delete(107)
    table.insert(1030, 1033)
    table.sql("VACUUM {t} RETAIN 0 HOURS")
    table.promise_only(max(table.promised))
    table.assert_read()
    assert table.ids().keys() == table.rows.keys()


def test_files_that_a_table_names_by_s3a_stay(delta_spark_on_s3: DeltaSpark, versitygw: Versitygw) -> None:
    """Those of another table, and its own that removals name in another way: it is a clone of its clone."""
    source, clone = (
        TableOnS3(spark=delta_spark_on_s3, s3=versitygw, name=f"{name}_{uuid.uuid4().hex}")
        for name in ("source", "clone")
    )
    source.sql(CREATE)
    source.insert_odd(0)
    source.insert(100, 119)
    source.delete(9, 101)
    clone.rows = dict(source.rows)
    clone.sql(f"CREATE TABLE {{t}} SHALLOW CLONE {source.in_spark}")
    clone.insert(1000, 1003)
    clone.delete(103)
    clone.delete(1002)
    files, files_of_source = clone.files(), source.files()

    clone.verb("upgrade-v3", "--feature", "rowTracking")
    clone.verb("assign-row-ids")
    clone.verb("merge-dvs", "--min-files", 2)
    clone.verb("rewrite-manifests")
    clone.assert_read()
    clone.verb("expire-snapshots", *NOW)
    clone.promise_only(max(clone.promised))
    assert files - clone.files()
    assert source.files() == files_of_source

    source.sql("DELETE FROM {t}")
    source.rows = dict(clone.rows)
    source.sql(f"CREATE OR REPLACE TABLE {{t}} SHALLOW CLONE {clone.in_spark}")
    files = clone.files()
    source.verb("expire-snapshots", *NOW, "--mode", "lite")
    source.s3.storage.put_if_absent(f"{source.location}/k=k0/part-nobody-needs.parquet", b"")
    source.verb("expire-snapshots", *NOW, "--mode", "full")
    source.promise_only(max(source.promised))
    assert files_of_source - source.files()
    assert not source.dry_vacuum()
    source.assert_read()
    assert clone.files() == files
    clone.assert_read()
