"""What a command needs of a store or a catalog, by the requests that it sends, and the table of permissions.md.

Which action a request is, the services document: Amazon S3, "Required permissions for Amazon S3 API operations"; Google
Cloud Storage, "IAM permissions for JSON methods"; Azure Storage, "Permissions for blob service operations". A request
that has none here fails the test.
"""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from iceberg_cli.storage import Storage
from iceberg_cli.testing.crash.world import DELTA_TABLE
from tests.cli.running import Ran, iceberg_cli
from tests.crash.delta_scenes import Scene
from tests.delete_tables import DeleteTable
from tests.docs.pages import PAGES
from tests.fleet.maintaining import policy_file
from tests.iceberg.verbs.rewrite_data_files.tables import K, N, RowsTable
from tests.s3_front import Request

PAGE: Final = PAGES / "permissions.md"
HEAD: Final = ("Command", "S3", "Google Cloud Storage", "Azure", "Glue", "PostgreSQL")
NewTable = Callable[[], tuple[str, str]]
"""Makes a table; its name, and a pattern that it alone matches."""
Needs = Mapping[str, frozenset[str]]
"""By row of the table, the actions of one column."""

_LARGE_ROWS: Final = 600_000
DRY_RUN: Final = "`--dry-run` of a verb"
NOTHING: Final = "none"


def cells(page: str) -> dict[str, dict[str, frozenset[str]]]:
    """The actions that a page lists by column and row."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    start = next(place for place, line in enumerate(lines) if line.startswith("| Command | S3 |"))
    found: dict[str, dict[str, frozenset[str]]] = {name: {} for name in HEAD[1:]}
    for line in lines[start + 2 :]:
        row, *columns = (cell.strip() for cell in line.strip("|").split("|"))
        if len(columns) != len(found):
            break
        for name, cell in zip(found, columns, strict=True):
            found[name][_bare(row)] = frozenset(cell.split(", ")) - {NOTHING}
    return found


def listed(column: str) -> Needs:
    """What the page lists in a column."""
    return cells(PAGE.read_text(encoding="utf-8"))[column]


def with_column(page: str, column: str, needs: Needs) -> str:
    """A page whose table lists these actions in a column."""
    place = HEAD.index(column) + 1  # an empty part is before the first bar

    def row(match: re.Match[str]) -> str:
        parts = match[0].split("|")
        name = _bare(parts[1].strip())
        if name in needs:
            parts[place] = f" {', '.join(sorted(needs[name])) or NOTHING} "
        return "|".join(parts)

    return re.sub(r"^\|.*\|$", row, page, flags=re.MULTILINE)


def _bare(row: str) -> str:
    """The name of a row: a command is written as code."""
    return row[1:-1] if re.fullmatch(r"`[^`]*`", row) else row


# -- which action a request is ---------------------------------------------------------------------------------


def of_s3(request: Request) -> frozenset[str]:
    """The actions without `s3:`."""
    url = urlsplit(request.path)
    query = parse_qs(url.query, keep_blank_values=True)
    has_key = url.path.strip("/").count("/") > 0
    match request.method:
        case "GET" if "list-type" in query and not has_key:
            return frozenset({"ListBucket"})
        # A key that is not there is answered by 404 only to who may list the bucket, and by 403 to others.
        case "GET" | "HEAD" if has_key and not query.keys() - {"x-id"}:
            return frozenset({"GetObject"})
        case "PUT" if has_key and not query.keys() - {"x-id"}:
            return frozenset({"PutObject"})
        case "POST" if has_key and query.keys() in ({"uploads"}, {"uploadId"}):
            return frozenset({"PutObject"})
        case "PUT" if has_key and query.keys() - {"x-id"} == {"partNumber", "uploadId"}:
            return frozenset({"PutObject"})
        case "DELETE" if has_key and query.keys() - {"x-id"} == {"uploadId"}:
            return frozenset({"AbortMultipartUpload"})
        case "DELETE" if has_key and not query.keys() - {"x-id"}:
            return frozenset({"DeleteObject"})
        case "POST" if "delete" in query and b"<VersionId>" not in request.body:
            return frozenset({"DeleteObject"})
    raise AssertionError(f"no action is known of {request.method} {request.path}")


def of_gcs(request: Request) -> frozenset[str]:
    """The permissions without `storage.objects.`."""
    url = urlsplit(request.path)
    query = parse_qs(url.query)
    is_object = re.fullmatch(r"/storage/v1/b/[^/]+/o/[^/]+", url.path) is not None
    match request.method:
        case "GET" if re.fullmatch(r"/storage/v1/b/[^/]+/o", url.path):
            return frozenset({"list"})
        case "GET" if is_object:
            return frozenset({"get"})
        case "DELETE" if is_object:
            return frozenset({"delete"})
        case "POST" if url.path.startswith("/upload/storage/v1/b/"):
            # What may replace an object needs both.
            return frozenset({"create"} if query.get("ifGenerationMatch") == ["0"] else {"create", "delete"})
        case "PUT" | "DELETE" if url.path.startswith("/upload/storage/v1/b/") and "upload_id" in query:
            return frozenset()  # the session's own URI is the permission
        case "POST" if url.path == "/batch/storage/v1":
            methods = set(re.findall(rb"\r\n\r\n([A-Z]+) /storage", request.body))
            assert methods == {b"DELETE"}
            return frozenset({"delete"})
    raise AssertionError(f"no permission is known of {request.method} {request.path}")


def of_azure(request: Request) -> frozenset[str]:
    """The data actions without what they all begin with, `.../containers/blobs/`."""
    url = urlsplit(request.path)
    query = parse_qs(url.query)
    comp, is_container = query.get("comp", [""])[0], query.get("restype") == ["container"]
    match request.method:
        case "GET" if comp == "list" and is_container:
            return frozenset({"read"})
        case "GET" | "HEAD" if not comp and not is_container:
            return frozenset({"read"})
        case "PUT" if comp in ("", "block", "blocklist") and not is_container:
            return frozenset({"write"})
        case "DELETE" if not comp and not is_container:
            return frozenset({"delete"})
        case "POST" if comp == "batch":
            methods = set(re.findall(rb"\r\n\r\n([A-Z]+) /", request.body))
            assert methods == {b"DELETE"}
            return frozenset({"delete"})
    raise AssertionError(f"no data action is known of {request.method} {request.path}")


# -- what is run -----------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """What is done to the tables of a format.

    Args:
        name: of the format.
        verbs: that one table of `write_iceberg` or `write_delta` can go through, with their options.
        of_rows: likewise those that one of `write_rows` can go through.
        policy: a verb and its options, as a policy file has them.
        vouched: what emulators need.
        waits: whether files of the first verb can wait, and what it did be taken back.
    """

    name: str
    verbs: Mapping[str, Sequence[str]]
    of_rows: Mapping[str, Sequence[str]]
    policy: Mapping[str, str]
    vouched: Sequence[str]
    waits: bool = False


ICEBERG: Final = Kind(
    name="iceberg",
    verbs={
        "expire-snapshots": ("--older-than", "1s", "--retain-last", "1"),
        "tag": ("first", "--ref", "main"),
        "rewrite-manifests": ("--all-manifests",),
        "upgrade-v3": (),
        "assign-row-ids": (),
        "merge-dvs": (),
        "remove-orphan-files": ("--older-than", "0s", "--unsafe-allow-young"),
        "restore": ("--to", "first"),
    },
    of_rows={"rewrite-data-files": ("--min-input-files", "2", "--processes", "1")},
    policy={"expire-snapshots": '{ older-than = "1s", retain-last = 1 }'},
    vouched=("--unsafe-single-writer", "--unsafe-conditional-writes"),
    waits=True,
)
DELTA: Final = Kind(
    name="delta",
    verbs={
        "expire-snapshots": ("--retention", "0s", "--unsafe-allow-short-retention"),
        "rewrite-manifests": (),
        "merge-dvs": ("--min-files", "2"),
        "upgrade-v3": ("--feature", "rowTracking"),
        "assign-row-ids": (),
        "restore": ("--to", "3"),
    },
    of_rows={},
    policy={"merge-dvs": "{ min-files = 2 }"},
    vouched=("--unsafe-conditional-writes",),
    waits=True,
)


def write_iceberg(storage: Storage, location: str, *, name: str | None = None) -> str:
    """A table of version 2 with four snapshots, scattered manifests, position deletes, and a file that nothing names.

    Returns the table's metadata file.

    Args:
        storage: where it is written.
        location: of the table.
        name: of the metadata file, as catalogs give; None: that of a version.
    """
    table = DeleteTable(storage=storage, location=location, format_version=2)
    for number, file in enumerate("abc", start=1):
        table.data(file, 100)
        table.commit(number)
    table.remove("c")
    table.positions("late", {"a": [2, 7], "b": [1]})
    table.commit(4)
    storage.put_if_absent(f"{location}/data/nobody.parquet", b"PAR1")
    return table.publish(name)


def write_rows(storage: Storage, location: str, *, name: str | None = None) -> str:
    """A table of version 2 whose data files are Parquet; its metadata file, see `write_iceberg`.

    Three small files of one partition, of which rows are deleted, become one, and two others one of more than 8 MiB,
    which goes to S3 in parts: their values cannot be compressed.
    """
    table = RowsTable(storage=storage, location=location, format_version=2)
    for file in "abc":
        table.rows(file, [(N, [1, 2, 3]), (K, ["x"] * 3)], k="x")
    drawn = random.Random(1)
    for file in "de":
        values = array("q", drawn.randbytes(8 * _LARGE_ROWS))
        columns = [(N, pa.array(values, pa.int64())), (K, ["y"] * _LARGE_ROWS)]
        table.rows(file, columns, k="y", group_rows=_LARGE_ROWS)
    table.commit(1)
    table.positions("p", {"a": [1]}, k="x")
    table.commit(2)
    return table.publish(name)


def write_delta(storage: Storage, location: str) -> None:
    """A Delta table with several files of deletion vectors, and two files that no version names."""
    files = Scene().world.files
    for path, data in {
        **files,
        f"{DELTA_TABLE}/nobody-2.parquet": files[f"{DELTA_TABLE}/nobody.parquet"],
    }.items():
        storage.put_if_absent(path.replace(DELTA_TABLE, location, 1), data)


@dataclass(kw_only=True)
class Recorder:
    """Runs commands, and collects by row of the page what they need.

    Args:
        watch: while it is entered, what is needed comes into the set that it gives.
        options: of every command, by which it reaches the table.
        folder: of this machine, for a plan and a policy.
        lose: while it is entered, no commit comes in, and a verb ends with the code that it gives; None for folders.
    """

    watch: Callable[[], AbstractContextManager[set[str]]]
    options: Sequence[str]
    folder: Path
    lose: Callable[[], AbstractContextManager[int]] | None = None
    needs: dict[str, frozenset[str]] = field(default_factory=dict)

    def record(self, kind: Kind, make: NewTable, make_of_rows: NewTable) -> None:
        """Every command that a row is about, on tables on which it has something to do.

        Args:
            kind: of the tables.
            make: a new table.
            make_of_rows: likewise, for verbs that read and write rows.
        """
        for verb, options in kind.of_rows.items():
            self._record_of_rows(kind, verb, options, make_of_rows)
        table, among = make()
        self._look(kind, table, among)
        for verb, options in kind.verbs.items():
            self._write(verb, verb, table, *options, *kind.vouched)
        if kind.waits:
            table, _ = make()
            verb, options = next(iter(kind.verbs.items()))
            self._write(verb, verb, table, *options, *kind.vouched, "--grace", "1h", status="waiting")
            self._write("undo", "undo", table, *kind.vouched)
        table, _ = make()
        verb, options = next(iter(kind.verbs.items()))
        file = str(self.folder / f"{kind.name}.plan")
        self.run("plan", "plan", table, verb, *options, "--output", file)
        self._write("apply", "apply", file, *kind.vouched)
        table, _ = make()
        self._write(verb, verb, table, *options, *kind.vouched, "--limit-deletes", "1", status="partial")
        self._resume(table, *kind.vouched)
        if self.lose is not None:
            table, _ = make()
            with self.lose() as code:
                self.run(verb, verb, table, *options, *kind.vouched, "--yes", code=code)
            self._resume(table, *kind.vouched)
        table, among = make()
        policy = policy_file(self.folder / "policy.toml", kind.policy, [among])
        done = self.run("maintain", "maintain", table, "--policy", str(policy), *kind.vouched, "--yes")
        assert [each["status"] for each in done.json["runs"]] == ["done"]

    def _record_of_rows(self, kind: Kind, verb: str, options: Sequence[str], make: NewTable) -> None:
        table, _ = make()
        self.run(DRY_RUN, verb, table, *options, "--dry-run")
        self._write(verb, verb, table, *options, *kind.vouched)
        if self.lose is not None:
            table, _ = make()
            with self.lose() as code:
                self.run(verb, verb, table, *options, *kind.vouched, "--yes", code=code)
            self._resume(table, *kind.vouched)

    def run(self, row: str, *words: str, code: int = 0) -> Ran:
        """A command that ends with this exit code."""
        fresh = () if words[0] == "list" else ("--no-cache",)  # which opens no table
        with self.watch() as needed:
            ran = iceberg_cli(*words, *self.options, "--format", "json", *fresh)
        assert ran.code == code, (words, ran)
        self.needs[row] = self.needs.get(row, frozenset()) | needed
        return ran

    def _look(self, kind: Kind, table: str, among: str) -> None:
        """Everything that never writes."""
        self.run("list", "list", among)
        self.run("survey", "survey", among)
        self.run("inspect", "inspect", table)
        self.run("inspect", "inspect", table, "files")
        self.run("inspect", "inspect", table, "--check", "--deep", code=15)  # their data files are no Parquet
        self.run("plan", "plan", table)
        self.run("history", "history", table)
        for verb, options in kind.verbs.items():
            if verb not in ("assign-row-ids", "restore"):  # for which it is not ready yet
                self.run(DRY_RUN, verb, table, *options, "--dry-run")

    def _resume(self, *words: str) -> None:
        ran = self.run("resume", "resume", *words)
        assert [each["status"] for each in ran.json["reports"]] == ["done"]

    def _write(self, row: str, *words: str, status: str = "done") -> None:
        ran = self.run(row, *words, "--yes")
        assert ran.json["status"] == status, ran
