"""Whole runs on a table with rows: another writer may act in them, and each snapshot is held against its parent.

Everything that is asserted of a snapshot is read by the slow readers of `iceberg_cli.testing`, none of which knows how
a rewrite works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.iceberg.verbs.rewrite_data_files.plan import VERB
from iceberg_cli.iceberg.verbs.rewrite_data_files.policy import RewriteDataFiles
from iceberg_cli.operation.parts import apply
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.report import Report
from iceberg_cli.testing.crash.world import World
from iceberg_cli.testing.iceberg_files import ADDED, DATA, DELETED, EXISTING, Entry, Json, records
from iceberg_cli.testing.iceberg_reader import entries_of, manifests_of, snapshot_of
from iceberg_cli.testing.iceberg_rows import read_rows
from iceberg_cli.testing.iceberg_writer import Manifest, is_vector, key_of, summary_of
from tests.iceberg.verbs.rewrite_data_files.tables import Columns, K, N, RowsTable, multiset
from tests.iceberg.verbs.rewrite_data_files.writers import OPERATION, runtime
from tests.manifest_tables import NAME, NOW_MS, Opened, opened

Act = Callable[[RowsTable], None]
Rows = list[tuple[Any, ...]]
ROWS_DROPPED = "iceberg-cli.rows-dropped-by-deletes"
PLAIN = {"rewrite_all": True, "processes": 1}


@dataclass(kw_only=True)
class Run:
    """What a run did to a table.

    Args:
        table: to go on with: others commit to it as it is after the run.
        opened: the same as a verb sees it.
        plan: of the run.
        report: None where nothing was to be done, or it ended with an error.
        error: None where it did not.
        first: snapshots of the verb that comes first.
        own: the others of its snapshots.
        head: of main after it.
    """

    table: RowsTable
    opened: Opened
    plan: Plan
    report: Report | None = None
    error: IcebergCliError | None = None
    first: list[Json] = field(default_factory=list)
    own: list[Json] = field(default_factory=list)
    head: int = 0

    @property
    def document(self) -> Json:
        return self.table.document

    @property
    def rows(self) -> Rows:
        """What a reader sees after it: values, see `rows_of`."""
        return rows_of(self.table, self.head)

    @property
    def rows_with_ids(self) -> Rows:
        """The same, each with its id and the sequence number of its last update."""
        return rows_of(self.table, self.head, with_ids=True)

    @property
    def data(self) -> list[Entry]:
        """Live data files."""
        return [
            each for each in live_of(self.table.storage, self.document, self.head) if each["content"] == DATA
        ]

    @property
    def deletes(self) -> list[Entry]:
        """Live delete files and deletion vectors."""
        return [
            each for each in live_of(self.table.storage, self.document, self.head) if each["content"] != DATA
        ]

    @property
    def delete_names(self) -> list[str]:
        return sorted(each["file_path"].rpartition("/")[2] for each in self.deletes)

    @property
    def outputs(self) -> list[Entry]:
        """Live data files that it wrote."""
        own = {each["snapshot-id"] for each in self.own}
        return [each for each in self.data if each["snapshot_id"] in own]

    @property
    def left(self) -> list[str]:
        """Names of live data files that it did not write."""
        own = {each["file_path"] for each in self.outputs}
        return sorted(
            each["file_path"].rpartition("/")[2].removesuffix(".parquet")
            for each in self.data
            if each["file_path"] not in own
        )


def rewrite(
    table: RowsTable,
    *,
    meanwhile: Act | None = None,
    between: Act | None = None,
    before_swaps: Sequence[Act] = (),
    after_plan: Act | None = None,
    loads_again: bool = False,
    stop_requested: Callable[[], bool] = lambda: False,
    check: bool = True,
    **options: Any,
) -> Run:
    """Rewrite data files of a table.

    Args:
        table: with all that is to be in it committed.
        meanwhile: what another writer does just before the pointer is swapped for the first time.
        between: likewise, before the second time.
        before_swaps: likewise, one before each of the first swaps, which so are lost.
        after_plan: what one does before a group is read.
        loads_again: the table is loaded after that, as by a later process.
        stop_requested: as of `Runtime`.
        check: hold each snapshot against its parent; the readers here do not read every table.
        options: of the policy; where none is given all files are rewritten.
    """
    found = opened(table.storage, table.publish())
    if between is not None:
        options = {"commit_every": "1KiB", **options}  # each group by itself

    def act(what: Act | None) -> None:
        if what is None:
            return
        reload(table, found)
        what(table)
        found.catalog.locations[NAME] = table.publish()

    waiting = [*before_swaps] or ([None, between] if meanwhile is None else [meanwhile])

    def act_in_turn() -> None:
        act(waiting.pop(0))
        found.committer.meanwhile = act_in_turn if waiting else None

    found.table.load()
    before = {each["snapshot-id"] for each in found.metadata()["snapshots"]}
    planned = VERB.plan(found.table, RewriteDataFiles(**{**PLAIN, **options}), as_of_ms=NOW_MS)
    run = Run(table=table, opened=found, plan=planned.plan)
    if not planned.plan.due or planned.plan.blocked_by:
        run.head = table.document["current-snapshot-id"]
        return run
    act(after_plan)
    if loads_again:
        found.table.load()
    found.committer.meanwhile = act_in_turn
    try:
        world = World(drawn=100 * len(table.document["snapshots"]))  # another run draws other names
        own_runtime = replace(runtime(world), stop_requested=stop_requested)
        run.report = apply(planned, found.table, VERB, own_runtime)
    except IcebergCliError as error:
        run.error = error
    reload(table, found)
    run.head = table.document["current-snapshot-id"]
    for each in run.document["snapshots"]:
        if OPERATION in each["summary"] and each["snapshot-id"] not in before:
            (run.own if "deleted-data-files" in each["summary"] else run.first).append(each)
    if check:
        for snapshot in run.own:
            check_snapshot(table, run.document, snapshot, until=int(base_of(run.plan)["sequence_number"]))
    return run


def base_of(plan: Plan) -> Mapping[str, str]:
    assert plan.groups is not None
    return plan.groups.base


def reload(table: RowsTable, found: Opened) -> None:
    """Let a writer go on from what is committed, on every branch that it knows."""
    known = table.manifests
    table.reload(found.metadata(), table.version)
    # Lists of version 1 have no numbers, and a later one says that they are 0.
    no_numbers = {"content": DATA, "sequence_number": 0, "min_sequence_number": 0}
    table.manifests = {
        **known,
        **{
            snapshot_id: tuple(each._replace(row={**no_numbers, **each.row}) for each in manifests)
            for snapshot_id, manifests in table.manifests.items()
        },
    }


def rows_of(table: RowsTable, snapshot_id: int | None = None, *, with_ids: bool = False) -> Rows:
    """The rows of a snapshot, None: the current one, as values; sorted, since a multiset has no order."""
    found = read_rows(table.storage, table.document, snapshot_id or table.document["current-snapshot-id"])
    lineage = [(row.row_id, row.last_updated) if with_ids else () for row in found]
    values = [(*row.values.values(), *own) for row, own in zip(found, lineage, strict=True)]
    return sorted(values, key=repr)


def live_of(storage: Any, document: Mapping[str, Any], snapshot_id: int | None = None) -> list[Entry]:
    """The live entries of a snapshot with all that they inherit, each with its partition spec."""
    snapshot = snapshot_of(document, snapshot_id or document["current-snapshot-id"])
    return [
        each | {"spec_id": manifest["partition_spec_id"]}
        for manifest in manifests_of(storage, snapshot)
        for each in entries_of(storage, manifest)
        if each["status"] != DELETED
    ]


def numbers(table: RowsTable, name: str, values: Sequence[int], *, k: Any = None, **others: Any) -> None:
    """A data file of numbers, whose text is the partition's, or `t`."""
    text = "t" if k is None else None if k == "null" else k
    # Few rows are in several row groups; many in one, for the readers here are slow.
    group_rows = 3 if len(values) < 50 else len(values)
    table.rows(name, [(N, values), (K, [text] * len(values))], k=k, group_rows=group_rows, **others)


def in_spec(
    table: RowsTable, name: str, columns: Columns, *, spec_id: int, partition: Mapping[str, Any]
) -> None:
    """A data file of any partition spec."""
    table.rows(name, columns)
    table.added[-1] |= {"spec_id": spec_id, "partition": dict(partition)}


# -- what is true of each of our snapshots ---------------------------------------------------------------------------


def check_snapshot(
    table: RowsTable, document: Mapping[str, Any], snapshot: Mapping[str, Any], *, until: int
) -> None:
    """A snapshot has the rows of its parent, and entries and counts as the specification asks for.

    Args:
        table: whose files are read.
        document: the metadata.
        snapshot: of a rewrite.
        until: the sequence number of the snapshot that was planned on.
    """
    storage, version = table.storage, document["format-version"]
    snapshot_id, parent_id = snapshot["snapshot-id"], snapshot["parent-snapshot-id"]
    parent = snapshot_of(document, parent_id)
    after = read_rows(storage, document, snapshot_id)
    before = read_rows(storage, document, parent_id)
    assert multiset(after, version) == multiset(before, version)
    if version > 2:
        ids = [row.row_id for row in after]
        assert len(set(ids)) == len(ids)
        check_row_ids(storage, snapshot, parent)
    old = {key_of(each): each for each in live_of(storage, document, parent_id)}
    new = {key_of(each): each for each in live_of(storage, document, snapshot_id)}
    for key in old.keys() & new.keys():
        # As it was, but for how it is listed.
        names = sorted((old[key].keys() | new[key].keys()) - {"status"})
        assert len({repr([entry[key].get(name) for name in names]) for entry in (old, new)}) == 1
    outputs = {key[0] for key in new.keys() - old.keys() if new[key]["content"] == DATA}
    for key in new.keys() - old.keys():
        if new[key]["content"] != DATA:  # of rows that others deleted of what was rewritten
            assert new[key]["referenced_data_file"] in outputs
            assert is_vector(new[key]) == (version > 2)
    for manifest in manifests_of(storage, snapshot):
        if version > 1:
            check_manifest(storage, manifest, snapshot, old, until=until)
        else:
            check_first_manifest(storage, manifest, snapshot, old)
    check_summary(storage, snapshot, parent)


def check_manifest(
    storage: Any,
    manifest: Mapping[str, Any],
    snapshot: Mapping[str, Any],
    old: Mapping[Any, Entry],
    *,
    until: int,
) -> None:
    """A row of the manifest list tells what is in the manifest; new entries leave to inheritance what they must."""
    entries = entries_of(storage, manifest)
    live = [each for each in entries if each["status"] != DELETED]
    if live:
        assert manifest["min_sequence_number"] == min(each["sequence_number"] for each in live)
    for status, kind in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        counts = [each["record_count"] for each in entries if each["status"] == status]
        assert (manifest[f"{kind}_files_count"], manifest[f"{kind}_rows_count"]) == (len(counts), sum(counts))
    if manifest["added_snapshot_id"] != snapshot["snapshot-id"]:
        return
    assert manifest["sequence_number"] == snapshot["sequence-number"]
    for record, entry in zip(records(storage.read(manifest["manifest_path"])), entries, strict=True):
        file = record["data_file"]
        numbers = (record["snapshot_id"], record["sequence_number"], record["file_sequence_number"])
        match record["status"]:
            case 1 if entry["content"] != DATA:
                assert numbers == (None, None, None)
            case 1:
                assert numbers == (None, until, None)
                assert file.get("first_row_id") is None
                assert file["sort_order_id"] in (
                    0,
                    1,
                )  # what it says is held against the rows in `test_hazards_files`
            case 0:
                was = old[key_of(entry)]
                names = ("snapshot_id", "sequence_number", "file_sequence_number")
                assert numbers == tuple(was[name] for name in names)
                assert file.get("first_row_id") == was["first_row_id"]
            case _:
                was = old[key_of(entry)]
                assert numbers[1:] == (was["sequence_number"], was["file_sequence_number"])
                assert entry["snapshot_id"] == snapshot["snapshot-id"]  # or inherited


def check_first_manifest(
    storage: Any, manifest: Mapping[str, Any], snapshot: Mapping[str, Any], old: Mapping[Any, Entry]
) -> None:
    """Of version 1: nothing has a sequence number, and new entries have the id of their snapshot themselves."""
    assert "sequence-number" not in snapshot
    assert not {"sequence_number", "min_sequence_number", "content"} & manifest.keys()
    if manifest["added_snapshot_id"] != snapshot["snapshot-id"]:
        return
    for record in records(storage.read(manifest["manifest_path"])):
        file = record["data_file"]
        assert not {"sequence_number", "file_sequence_number", "content", "first_row_id"} & {*record, *file}
        assert file["block_size_in_bytes"] > 0
        is_kept = record["status"] == EXISTING
        ids = [each["snapshot_id"] for each in old.values() if each["file_path"] == file["file_path"]]
        assert [record["snapshot_id"]] == (ids if is_kept else [snapshot["snapshot-id"]])


def check_row_ids(storage: Any, snapshot: Mapping[str, Any], parent: Mapping[str, Any]) -> None:
    """Manifests of data have ranges of ids, new ones within what the snapshot reserves."""
    first, added = snapshot["first-row-id"], snapshot["added-rows"]
    known = {each["manifest_path"]: each.get("first_row_id") for each in manifests_of(storage, parent)}
    for each in manifests_of(storage, snapshot):
        if each["content"] != DATA:
            assert each["first_row_id"] is None
        elif known.get(each["manifest_path"]) is not None:
            assert each["first_row_id"] == known[each["manifest_path"]]
        else:
            waiting = sum(
                record["data_file"]["record_count"]
                for record in records(storage.read(each["manifest_path"]))
                if record["status"] != DELETED and record["data_file"]["first_row_id"] is None
            )
            assert first <= each["first_row_id"]
            assert each["first_row_id"] + waiting <= first + added


def check_summary(storage: Any, snapshot: Mapping[str, Any], parent: Mapping[str, Any]) -> None:
    """The summary counts what its manifests have, as Java counts it."""
    manifests = [Manifest(row, tuple(entries_of(storage, row))) for row in manifests_of(storage, snapshot)]
    found = dict(snapshot["summary"])
    expected = summary_of(manifests, snapshot["snapshot-id"])
    replaced = {each["manifest_path"] for each in manifests_of(storage, parent)}
    replaced -= {each.row["manifest_path"] for each in manifests}
    assert found.pop("operation") == "replace"
    assert int(found.pop("manifests-replaced")) == len(replaced)
    del found[OPERATION], expected["manifests-replaced"]
    # The writer of these tests counts tuples, whatever spec they are of.
    del found["changed-partition-count"], expected["changed-partition-count"]
    dropped = int(found.get("deleted-records", 0)) - int(found.get("added-records", 0))
    assert int(found.pop(ROWS_DROPPED)) == dropped
    assert {**expected, **found} == found == {**found, **expected}, {
        k: (found.get(k), expected.get(k)) for k in {*found, *expected} if found.get(k) != expected.get(k)
    }
