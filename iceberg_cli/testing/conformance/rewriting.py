"""Rows through every catalog, as tests: `class TestMine(RewritingConformance)` with a fixture `catalog`.

Files are rewritten by several commits, beside another writer that appends, deletes of an input and rewrites one, and
answers of the catalog get lost. Every row of the branch, with its id on version 3, is what it was: read by the slow
readers of `iceberg_cli.testing`, which share no code with what rewrites; the other writer is theirs as well.
"""

from __future__ import annotations

import dataclasses
import io
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.engines.local import LocalEngine
from iceberg_cli.errors import CommitStateUnknown
from iceberg_cli.iceberg.catalogs import Committer
from iceberg_cli.iceberg.commit.draft import OPERATION_ID
from iceberg_cli.iceberg.commit.update import Commit, requirements_for, updates_from_json
from iceberg_cli.iceberg.spec.table_metadata.file import decode_metadata_file
from iceberg_cli.iceberg.table import IcebergTable
from iceberg_cli.iceberg.verb_registry import VERBS
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.operation.apply import apply, resume
from iceberg_cli.operation.outcomes import Attempt, Committed, Outcome
from iceberg_cli.operation.ports import Planned
from iceberg_cli.operation.runtime import Runtime, system_runtime
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.conformance.catalogs import CatalogUnderTest
from iceberg_cli.testing.conformance.commits import load
from iceberg_cli.testing.conformance.faults import Fault, FaultyCommitter
from iceberg_cli.testing.iceberg_files import DATA, Entry, Json
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of, snapshot_of
from iceberg_cli.testing.iceberg_rows import LAST_UPDATED, ROW_ID, LiteralRow, read_rows
from iceberg_cli.testing.iceberg_writer import IcebergWriter, Key, Manifest, arrow_schema, key_of

GROUPS: Final = 4
FILES: Final = 2 * GROUPS + 1  # the last one is no group by itself, but in that of those before it
ROWS: Final = 3  # of a file
_CONFLICTED: Final = "conflicted_groups_count"
# A file is nearly half as large as the least target, by its footer, so that a group has two of them.
_PADDING: Final = {"padding": "-" * 500}
# Each group is committed by itself.
POLICY: Final = RewriteDataFiles(
    target_size="4KiB", max_group_size="4KiB", rewrite_all=True, commit_every="1KiB", processes=1
)

_ROW_LINEAGE: Final = tuple(
    pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(field_id)})
    for name, field_id in (("_row_id", ROW_ID), ("_last_updated_sequence_number", LAST_UPDATED))
)


@dataclass(kw_only=True)
class Rewritten(IcebergWriter):
    """The table of a catalog under test, as another writer sees it, who commits by a committer of the catalog."""

    catalog: CatalogUnderTest
    written: int = 0  # rows

    @classmethod
    def of(cls, catalog: CatalogUnderTest, version: int) -> Rewritten:
        """The table of the catalog, in this format version, with `FILES` files, of some of which rows are deleted."""
        committer = catalog.open()
        location = committer.current()
        metadata = load(catalog.storage, location)
        found = cls(
            storage=catalog.storage,
            location=metadata.location.rstrip("/"),
            document={"format-version": metadata.format_version},
            seed=metadata.location,
            catalog=catalog,
        )
        if version > metadata.format_version:
            found.send({"action": "upgrade-format-version", "format-version": version})
        paths = found.append(FILES)
        found.delete({paths[0]: [1], paths[-1]: [0, 2]})
        return found

    @property
    def keeps_ids(self) -> bool:
        return bool(self.document["format-version"] > 2)

    # -- what it does ------------------------------------------------------------------------------------------

    def append(self, files: int = 1) -> list[str]:
        """Files of rows whose numbers none of its files had before; their paths."""
        self.look()
        entries = []
        for _ in range(files):
            numbers = range(self.written, self.written + ROWS)
            self.written += ROWS
            entries.append(self.file_of([[*numbers]]))
        self.add("append", entries)
        return [each["file_path"] for each in entries]

    def delete(self, positions: Mapping[str, Sequence[int]]) -> None:
        """Rows by their positions: by vectors from version 3 on, by a position delete file for each file below it."""
        self.look()
        if self.keeps_ids:
            self.add("delete", *self.deletion_vectors(positions))
        else:
            files = [self.position_deletes({path: some}, {}) for path, some in positions.items()]
            self.add("delete", files)

    def overwrite(self, path: str) -> None:
        """A file takes the place of another one, with the same rows."""
        self.look()
        rows = [row for row in self.rows() if row.path == path]
        columns = [[*row.values.values(), row.row_id, row.last_updated] for row in rows]
        count = 3 if self.keeps_ids else 1
        entry = self.file_of([*zip(*columns, strict=True)][:count])
        gone = [
            key_of(each)
            for each in self.live()
            if path in (each["file_path"], each.get("referenced_data_file"))
        ]
        self.add("overwrite", [entry], gone)

    # -- how ----------------------------------------------------------------------------------------------------

    def file_of(self, columns: Sequence[Sequence[Any]]) -> Entry:
        """A data file: of the table's first column, and of those of row ids where they are given."""
        schema = pa.schema(
            [arrow_schema(self.schema).field(0), *_ROW_LINEAGE][: len(columns)], metadata=_PADDING
        )
        out = io.BytesIO()
        pq.write_table(pa.table([pa.array(each) for each in columns], schema=schema), out)
        name = f"{self.written:05d}-{self.new_uuid()}.parquet"  # groups are made in the order of names
        return self.file(name, out.getvalue(), DATA, len(columns[0]), sort_order_id=0)

    def look(self) -> None:
        """Go on from what the catalog has now."""
        location = self.catalog.open().current()
        document: Json = decode_metadata_file(self.catalog.storage.read(location), location)
        head = document.get("current-snapshot-id")
        document.setdefault("refs", {} if head in (None, -1) else {"main": _branch(head)})
        self.document, self.manifests = document, {}
        self.schema = next(
            each for each in document["schemas"] if each["schema-id"] == document["current-schema-id"]
        )
        self.time_ms = max(document["last-updated-ms"] + 1, time.time_ns() // 1_000_000)  # noqa: TID251 - a test
        self._namespace = uuid.uuid5(self._namespace, location)
        if head := document["refs"].get("main", {}).get("snapshot-id"):
            listed = manifests_of(self.catalog.storage, snapshot_of(document, head))
            self.manifests[head] = tuple(
                Manifest(row, tuple(entries_of(self.catalog.storage, row))) for row in listed
            )

    def add(self, operation: str, added: Sequence[Entry], removed: Sequence[Key] = ()) -> None:
        """Commit a snapshot of main."""
        snapshot_id = self.commit_files(operation, added, removed)
        ref = {"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
        self.send(
            {"action": "add-snapshot", "snapshot": self.document["snapshots"][-1]},
            {"action": "set-snapshot-ref", **ref},
        )

    def send(self, *wire: Json) -> None:
        committer = self.catalog.open()
        location = committer.current()
        base, updates = load(self.catalog.storage, location), updates_from_json(wire)
        commit = Commit(
            updates=updates,
            requirements=requirements_for(updates, base),
            base=base,
            timestamp_ms=max(self.time_ms, base.last_updated_ms),
            commit_uuid=str(uuid.uuid4()),
        )
        attempt = dataclasses.replace(committer.prepare(commit, base_location=location), fresh=True)
        assert isinstance(committer.commit(attempt), Committed)

    # -- what is there -----------------------------------------------------------------------------------------

    def rows(self, snapshot_id: int | None = None) -> list[LiteralRow]:
        """The rows of a snapshot; None: the current one."""
        self.look()
        return read_rows(
            self.catalog.storage, self.document, snapshot_id or self.document["current-snapshot-id"]
        )

    def contents(self, snapshot_id: int | None = None) -> Counter[tuple[Any, ...]]:
        """The same as a multiset of values, with their ids from version 3 on."""
        rows = self.rows(snapshot_id)
        return Counter(
            (*row.values.values(), *((row.row_id, row.last_updated) if self.keeps_ids else ()))
            for row in rows
        )

    def check(self) -> int:
        """Each snapshot of a rewrite has the rows of its parent, and no file was added twice; how many there are."""
        self.look()
        own = [each for each in self.document["snapshots"] if OPERATION_ID in each["summary"]]
        added: list[str] = []
        for each in own:
            parent_id = each["parent-snapshot-id"]
            assert self.contents(each["snapshot-id"]) == self.contents(parent_id)
            before, after = (
                {
                    entry["file_path"]
                    for row in manifests_of(self.catalog.storage, snapshot_of(self.document, number))
                    for entry in entries_of(self.catalog.storage, row)
                    if entry["status"] != 2 and entry["content"] == DATA
                }
                for number in (parent_id, each["snapshot-id"])
            )
            added += after - before
        assert len(added) == len({*added})
        numbers = [each["sequence-number"] for each in self.document["snapshots"]]
        assert sorted(numbers) == sorted({*numbers})
        if self.keeps_ids:
            ids = [row.row_id for row in self.rows()]
            assert len(ids) == len({*ids})
        return len(own)

    # -- a run of the program ----------------------------------------------------------------------------------

    def open(self, committer: Committer) -> IcebergTable:
        """The table, as a new process would open it."""
        storage = self.catalog.storage
        engine = LocalEngine(storage, threads=1)
        return IcebergTable(name="t", storage=storage, committer=committer, engine=engine, on_event=_unseen)

    def apply(self, planned: Planned, table: IcebergTable) -> Report:
        """Carry a plan out."""
        return apply(planned, table, VERB, _runtime())

    def resume(self) -> list[Report]:
        """What another process makes of the operations that are open; none is afterwards."""
        table = self.open(self.catalog.open())
        reports = [
            resume(table, operation_id, _runtime(), verbs=VERBS)
            for operation_id in table.workspace.open_operations()
        ]
        assert table.workspace.open_operations() == []
        return reports

    def plan(self, table: IcebergTable) -> Planned:
        """All files; of those that `of` wrote there are `GROUPS` groups."""
        table.load()
        planned = VERB.plan(table, POLICY, as_of_ms=time.time_ns() // 1_000_000)  # noqa: TID251 - a test
        assert planned.plan.blocked_by == ()
        assert planned.plan.groups is not None
        assert len(planned.plan.groups) >= GROUPS
        return planned


@dataclass(kw_only=True)
class Beside(FaultyCommitter):
    """A committer beside another writer, who acts once before the swap after so many commits.

    Args:
        inside: the committer.
        acts: by how many commits were made.
    """

    inside: Committer
    acts: dict[int, Callable[[], object]]
    script: list[Fault] = field(default_factory=list)
    commits: int = 0

    def commit(self, attempt: Attempt) -> Outcome:
        self.acts.pop(self.commits, lambda: None)()
        outcome = super().commit(attempt)
        self.commits += isinstance(outcome, Committed)
        return outcome


class RewritingConformance:
    """What a rewrite of data files keeps, on every catalog.

    A subclass defines a fixture `catalog: CatalogUnderTest`, with a new table for each test, whose first column is an
    `int` or a `long`.
    """

    @pytest.mark.parametrize("version", [2, 3])
    def test_rows_stay_what_they_are_beside_others_who_append_and_delete_and_rewrite(
        self, catalog: CatalogUnderTest, version: int
    ) -> None:
        table = Rewritten.of(catalog, version)
        paths: list[list[str]] = []
        committer = Beside(
            inside=catalog.open(),
            acts={
                1: table.append,
                2: lambda: table.delete({paths[2][0]: [1]}),
                3: lambda: table.overwrite(paths[3][-1]),
            },
        )
        opened = table.open(committer)
        planned = table.plan(opened)
        groups = planned.plan.groups
        assert groups is not None
        paths += [groups.inputs_of([number])["path"].to_pylist() for number in range(GROUPS)]
        (gone,) = (row.values for row in table.rows() if (row.path, row.position) == (paths[2][0], 1))
        before = Counter(next(iter(row.values.values())) for row in table.rows())
        report = table.apply(planned, opened)
        assert (report.status, len(report.commits)) == ("partial", GROUPS - 1)
        assert (report.counts[_CONFLICTED], report.counts["remapped_deletes_count"]) == (1, 1)
        appended = range(FILES * ROWS, (FILES + 1) * ROWS)
        assert Counter(next(iter(row.values.values())) for row in table.rows()) == (
            before + Counter(appended) - Counter(gone.values())
        )
        assert table.check() == GROUPS - 1
        assert opened.workspace.open_operations() == []

    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("fault", ["lost before", "lost after"])
    @pytest.mark.parametrize("appended", [0, 1])
    def test_a_commit_whose_answer_is_lost_is_settled_and_no_row_is_there_twice(
        self, catalog: CatalogUnderTest, version: int, fault: Fault, appended: int
    ) -> None:
        table = Rewritten.of(catalog, version)
        before = table.contents()
        committer = FaultyCommitter(catalog.open(), "none", fault)
        opened = table.open(committer)
        planned = table.plan(opened)
        with pytest.raises(CommitStateUnknown):
            table.apply(planned, opened)
        assert table.contents() == before
        if appended:
            table.append(appended)
            before = table.contents()
        (report,) = table.resume()
        assert table.contents() == before
        # Where others committed meanwhile, a request that may still arrive leaves out its group, and that one alone.
        assert report.counts[_CONFLICTED] <= (appended if fault == "lost before" else 0)
        assert sum(each["groups"] for each in report.commits) + report.counts[_CONFLICTED] == GROUPS
        assert table.check() == len(report.commits)


def _branch(snapshot_id: int) -> Json:
    return {"type": "branch", "snapshot-id": snapshot_id}


def _runtime() -> Runtime:
    return system_runtime(on_event=_unseen, host="here", process_id=1)


def _unseen(_: object) -> None:
    """Nobody listens."""
