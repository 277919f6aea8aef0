"""The hazards of compactions of Delta tables, by number, as far as no other module has them.

Rows are those of a reader that replays the commits alone, and knows nothing of this program.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_cli.testing.delta_rows import commits_of, rows_of, state_of
from iceberg_cli.testing.delta_vectors import an_inline_vector
from iceberg_cli.testing.delta_writer import (
    Action,
    a_commit,
    a_commit_info,
    a_field,
    a_metadata,
    a_protocol_with,
    a_remove,
    a_row_id_mark,
    an_add,
    write_checkpoint,
    write_commit,
)
from tests.cli.running import iceberg_cli
from tests.delta.verbs.rewrite_data_files.test_law import rewritten
from tests.delta.verbs.rewrite_data_files.test_plan import plan_of

FEATURES = ("deletionVectors", "appendOnly", "invariants", "columnMapping", "typeWidening")
N = a_field("n", "long")
IDS = ("_row-id", "_commit-version")
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": IDS[0],
    "delta.rowTracking.materializedRowCommitVersionColumnName": IDS[1],
}


class Table:
    """A table that is written commit by commit.

    Args:
        root: its folder, which must not be there.
        fields: of its schema.
        features: besides `FEATURES`.
        configuration: of the table.
        partitioned_by: its partition columns.
    """

    def __init__(
        self,
        root: Path,
        *fields: Any,
        features: Sequence[str] = (),
        configuration: dict[str, str] | None = None,
        partitioned_by: Sequence[str] = (),
    ) -> None:
        self.root, self.version = root, -1
        root.mkdir()
        self.metadata = a_metadata(
            *(fields or [N]), configuration=configuration or {}, partitionColumns=[*partitioned_by]
        )
        self.commit(a_commit_info(), a_protocol_with(*FEATURES, *features), self.metadata)

    def commit(self, *actions: Action) -> None:
        self.version += 1
        write_commit(self.root, self.version, a_commit(*actions))

    def file(self, name: str, content: pa.Table, *, row_group_size: int = 100, **others: Any) -> Action:
        """Write a file; its add."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(content, path, row_group_size=row_group_size, store_schema=False)
        return an_add(path=name, **{"rows": len(content), "size": path.stat().st_size} | others)

    def newest(self, kind: str) -> list[dict[str, Any]]:
        """The actions of a kind of the newest commit."""
        lines = commits_of(self.root)[-1].read_text().splitlines()
        return [action[kind] for action in map(json.loads, lines) if kind in action]

    def written(self) -> pa.Table:
        """The rows of the only new file of the newest commit, as it has them."""
        (add,) = self.newest("add")
        return pq.ParquetFile(self.root / add["path"]).read()

    def numbers(self) -> list[int]:
        """The live values of `n`, by a reader that replays the commits."""
        return sorted(int(each.split("('n', ")[1].split(")")[0]) for each in rows_of(self.root))


def numbers(first: int, last: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, last + 1), pa.int64())})


def run(table: Table, **options: Any) -> None:
    """Rewrite all files: the rows and ids stay."""
    before = rows_of(table.root)
    report = rewritten(table.root, rewrite_all=True, **options)
    assert report is not None
    assert report.status == "done"
    assert rows_of(table.root) == before


def test_1_the_remove_of_a_file_with_a_vector_has_its_vector(tmp_path: Path) -> None:
    """Else who reads the log without a checkpoint has the old rows beside their copy."""
    table = Table(tmp_path / "t")
    table.commit(table.file("a.parquet", numbers(0, 9)), table.file("b.parquet", numbers(10, 19)))
    vector = an_inline_vector([1, 2])
    add = table.file("a.parquet", numbers(0, 9), dv=vector)
    table.commit(a_remove(path="a.parquet"), add)
    run(table)
    assert {each["path"]: each.get("deletionVector") for each in table.newest("remove")} == {
        "a.parquet": vector,
        "b.parquet": None,
    }
    assert table.numbers() == [0, *range(3, 20)]


def test_3_a_vector_is_of_positions_in_the_file_also_where_row_groups_are_pruned(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    stats = {"numRecords": 6, "minValues": {"n": 0}, "maxValues": {"n": 5}, "nullCount": {"n": 0}}
    vector = an_inline_vector([1, 4])
    add = table.file("a.parquet", numbers(0, 5), row_group_size=2, dv=vector, stats=json.dumps(stats))
    other = {**stats, "minValues": {"n": -9}, "maxValues": {"n": -8}, "numRecords": 2}
    table.commit(add, table.file("b.parquet", numbers(-9, -8), stats=json.dumps(other)))
    run(table, where="n >= 4")
    assert [each["path"] for each in table.newest("remove")] == ["a.parquet"]
    assert table.written()["n"].to_pylist() == [0, 2, 3, 5]


def test_4_vectors_apply_though_the_table_takes_no_new_ones(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", configuration={"delta.enableDeletionVectors": "false"})
    table.commit(table.file("a.parquet", numbers(0, 4), dv=an_inline_vector([0])))
    run(table)
    assert table.written()["n"].to_pylist() == [1, 2, 3, 4]


def physical(number: int, name: str) -> dict[str, Any]:
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}


@pytest.mark.parametrize("by_checkpoint", [False, True])
def test_9_partition_values_are_under_physical_names(by_checkpoint: bool, tmp_path: Path) -> None:
    """The column was renamed since its files were written; and a checkpoint has them so, too."""
    fields = [a_field("id", "long", **physical(1, "n")), a_field("new", "string", **physical(2, "p"))]
    mapping = {"delta.columnMapping.mode": "name"}
    table = Table(tmp_path / "t", *fields, configuration=mapping, partitioned_by=["new"])
    for number, value in enumerate("xxy"):
        table.commit(table.file(f"{number}.parquet", numbers(number, number), partitionValues={"p": value}))
    if by_checkpoint:
        adds = [{"add": {**add, "dataChange": False}} for add in state_of(table.root).adds.values()]
        write_checkpoint(table.root, table.version, a_protocol_with(*FEATURES), table.metadata, *adds)
    run(table, where="new = 'x'")
    assert [each["partitionValues"] for each in table.newest("add")] == [{"p": "x"}]
    assert {each["path"] for each in table.newest("remove")} == {"0.parquet", "1.parquet"}
    assert json.loads(table.newest("add")[0]["stats"])["minValues"] == {"n": 0}


def test_10_columns_are_found_by_ids_and_one_that_was_added_anew_is_null(tmp_path: Path) -> None:
    """The file has other names for its columns, one of which is that of a column that came later."""
    fields = [a_field("a", "long", **physical(1, "c-1")), a_field("b", "long", **physical(3, "gone"))]
    table = Table(tmp_path / "t", *fields, configuration={"delta.columnMapping.mode": "id"})
    schema = pa.schema(
        [
            pa.field(name, pa.int64(), metadata={"PARQUET:field_id": number})
            for name, number in (("gone", "2"), ("odd name", "1"))
        ]
    )
    for number in (0, 10):
        rows = pa.table([[7, 8], [number, number + 1]], schema=schema)
        table.commit(table.file(f"{number}.parquet", rows))
    run(table)
    written = table.written()
    assert written.to_pydict() == {"c-1": [0, 1, 10, 11], "gone": [None] * 4}
    assert [each.metadata[b"PARQUET:field_id"] for each in written.schema] == [b"1", b"3"]


def test_11_rows_keep_the_ids_that_they_have_and_those_that_follow_from_their_place(tmp_path: Path) -> None:
    """Hidden ids 10, null and 30, first id 50, and the first row is deleted."""
    features = ("rowTracking", "domainMetadata")
    table = Table(tmp_path / "t", features=features, configuration=TRACKED)
    rows = pa.table({"n": [1, 2, 3], IDS[0]: [10, None, 30], IDS[1]: [None, None, 4]})
    ids = {"baseRowId": 50, "defaultRowCommitVersion": 7}
    table.commit(
        table.file("a.parquet", rows, dv=an_inline_vector([0]), **ids),
        a_row_id_mark(52),
    )
    run(table)
    assert table.written().to_pydict() == {"n": [2, 3], IDS[0]: [51, 30], IDS[1]: [7, 4]}
    (add,) = table.newest("add")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (53, table.version + 1)


def test_14_where_ids_are_supported_alone_a_file_without_any_is_rewritten_and_where_they_are_enabled_none_is(
    tmp_path: Path,
) -> None:
    features = ("rowTracking", "domainMetadata")
    for name, configuration in (("supported", {}), ("enabled", TRACKED)):
        table = Table(tmp_path / name, features=features, configuration=configuration)
        table.commit(table.file("a.parquet", numbers(0, 2)), a_row_id_mark(41))
        if name == "enabled":
            (blocked,) = plan_of(table.root, rewrite_all=True).blocked_by
            assert "files have no row ids though row tracking is enabled" in blocked
        else:
            run(table)
            (add,) = table.newest("add")
            assert add["baseRowId"] == 42
            (domain,) = table.newest("domainMetadata")
            assert json.loads(domain["configuration"])["rowIdHighWaterMark"] == 44


def test_15_rows_of_a_file_without_statistics_are_counted(tmp_path: Path) -> None:
    """The share of its rows that are deleted is none that can be told, and its new file has ids all the same."""
    table = Table(tmp_path / "t", features=("rowTracking", "domainMetadata"))
    ids = {"baseRowId": 0, "defaultRowCommitVersion": 1}
    add = table.file("a.parquet", numbers(0, 9), rows=None, dv=an_inline_vector([3]), **ids)
    table.commit(add, a_row_id_mark(9))
    run(table)
    (add,) = table.newest("add")
    assert json.loads(add["stats"])["numRecords"] == 9
    (domain,) = table.newest("domainMetadata")
    assert json.loads(domain["configuration"])["rowIdHighWaterMark"] == 18


def test_16_values_that_break_a_rule_of_the_table_are_copied(tmp_path: Path) -> None:
    """CHECK and NOT NULL that another program added, a wrong generated value, an identity out of line."""
    fields = [
        {**a_field("n", "long"), "nullable": False},
        a_field("double", "long", **{"delta.generationExpression": "n * 2"}),
        a_field("i", "long", **{f"delta.identity.{each}": 1 for each in ("start", "step", "highWaterMark")}),
    ]  # fmt: skip
    features = ("checkConstraints", "generatedColumns", "identityColumns")
    table = Table(
        tmp_path / "t", *fields, features=features, configuration={"delta.constraints.positive": "n > 0"}
    )
    rows = pa.table({"n": pa.array([-1, None, 3], pa.int64()), "double": [5, 5, 5], "i": [9, 9, 9]})
    table.commit(table.file("a.parquet", rows))
    table.commit(table.file("b.parquet", rows))
    run(table)
    assert table.written().to_pydict() == {
        "n": [-1, None, 3, -1, None, 3], "double": [5] * 6, "i": [9] * 6
    }  # fmt: skip
    assert table.newest("metaData") == []


@pytest.mark.parametrize("name", ["delta.enableChangeDataFeed", "delta.appendOnly"])
def test_17_and_18_nothing_changes_for_streams_and_feeds_and_an_append_only_table_takes_it(
    name: str, tmp_path: Path
) -> None:
    table = Table(tmp_path / "t", features=("changeDataFeed",), configuration={name: "true"})
    for first in (0, 10, 20):
        table.commit(table.file(f"{first}.parquet", numbers(first, first + 9)))
    run(table)
    changed = [each["dataChange"] for kind in ("add", "remove") for each in table.newest(kind)]
    assert changed == [False] * 4
    assert table.newest("cdc") == []
    assert not (table.root / "_change_data").exists()


def test_19_values_of_files_from_before_a_column_was_widened_have_its_type_of_today(tmp_path: Path) -> None:
    changes = {"delta.typeChanges": [{"fromType": "integer", "toType": "long", "tableVersion": 2}]}
    moment = {"delta.typeChanges": [{"fromType": "date", "toType": "timestamp_ntz", "tableVersion": 2}]}
    fields = [a_field("n", "long", **changes), a_field("at", "timestamp_ntz", **moment)]
    table = Table(tmp_path / "t", *fields, configuration={"delta.enableTypeWidening": "true"})
    narrow = pa.table({"n": pa.array([1, -(1 << 31)], pa.int32()), "at": pa.array([0, 1], pa.date32())})
    wide = pa.table({"n": [1 << 40], "at": pa.array([5], pa.timestamp("us"))})
    table.commit(table.file("a.parquet", narrow))
    table.commit(table.file("b.parquet", wide))
    run(table)
    written = table.written()
    assert written.schema.types == [pa.int64(), pa.timestamp("us")]
    assert written["n"].to_pylist() == [1, -(1 << 31), 1 << 40]
    assert written["at"].cast(pa.int64()).to_pylist() == [0, 86_400_000_000, 5]
    assert table.newest("metaData") == []
    assert changes["delta.typeChanges"] == state_of(table.root).fields[0]["metadata"]["delta.typeChanges"]


def test_20_a_shredded_variant_is_refused(tmp_path: Path) -> None:
    features = ("variantType", "variantShredding")
    table = Table(tmp_path / "t", a_field("v", "variant"), N, features=features)
    rows = pa.table({"v": [{"metadata": b"\x01\x00", "value": b"\x00", "typed_value": 1}], "n": [1]})
    table.commit(table.file("a.parquet", rows))
    (blocked,) = plan_of(table.root, rewrite_all=True).blocked_by
    assert "values of v have a type that is not written here" in blocked


def test_23_an_in_commit_time_follows_that_of_the_winner_though_its_clock_is_ahead(tmp_path: Path) -> None:
    configuration = {"delta.enableInCommitTimestamps": "true"}
    table = Table(tmp_path / "t", features=("inCommitTimestamp",), configuration=configuration)
    ahead = 4_000_000_000_000
    for number in range(3):
        info = a_commit_info(inCommitTimestamp=ahead + number)
        table.commit(info, table.file(f"{number}.parquet", numbers(number, number)))

    def winner() -> None:
        if not (table.root / "w.parquet").exists():
            info = a_commit_info(inCommitTimestamp=ahead + 10)
            table.commit(info, table.file("w.parquet", numbers(9, 9)))

    assert rewritten(table.root, at_commit=winner, rewrite_all=True) is not None
    assert table.newest("commitInfo")[0]["inCommitTimestamp"] == ahead + 11
    assert table.numbers() == [0, 1, 2, 9]


def test_28_files_of_a_shallow_clone_are_removed_as_the_log_spells_them_and_stay(tmp_path: Path) -> None:
    source = Table(tmp_path / "source")
    source.commit(*(source.file(f"{each}.parquet", numbers(each, each)) for each in range(3)))
    clone = Table(tmp_path / "clone")
    adds = state_of(source.root).adds.values()
    spelled = [f"{source.root.as_uri()}/{add['path']}" for add in adds]
    clone.commit(
        *({"add": {**add, "path": path}} for add, path in zip(adds, spelled, strict=True)),
    )
    assert rewritten(clone.root, rewrite_all=True) is not None
    assert sorted(each["path"] for each in clone.newest("remove")) == sorted(spelled)
    (add,) = clone.newest("add")
    assert (clone.root / add["path"]).is_file()
    assert clone.numbers() == source.numbers() == [0, 1, 2]


def replaced(table: Table) -> list[Action]:
    """Two files, written anew; their adds, as who has not seen that has them."""
    adds = [table.file(f"{each}.parquet", numbers(each, each + 1), row_group_size=1) for each in (0, 10)]
    table.commit(*adds)
    run(table)
    table.version += 1
    return adds


def findings(table: Table) -> dict[str, str]:
    """What a check finds of files that live twice: by path, why."""
    shown = iceberg_cli("inspect", table.root, "--check", "--format", "json").json
    return {
        each["where"]: each["message"]
        for each in shown["findings"]
        if each["id"] == "compacted-file-added-again"
    }


@pytest.mark.parametrize("again", [False, True])
def test_31_a_writer_that_adds_a_file_of_before_the_run_is_found(again: bool, tmp_path: Path) -> None:
    """With a new vector on it, as who checks nothing does; also where what took its place was replaced in turn."""
    table = Table(tmp_path / "t")
    (add, _) = replaced(table)
    assert findings(table) == {}
    if again:
        table.commit(table.file("more.parquet", numbers(20, 21)))
        run(table)
        table.version += 1
    (new,) = (each["path"] for each in table.newest("add"))
    old = {**add["add"], "deletionVector": an_inline_vector([0])}
    table.commit(a_remove(path=add["add"]["path"]), {"add": old})
    assert table.numbers().count(1) == 2
    assert findings(table) == {
        "0.parquet": f"version 2 rewrote its rows to other files, of which {new} is active, and version "
        f"{table.version} added it again: its rows are in the table twice"
    }


def test_31_what_restores_a_file_or_gives_it_another_vector_is_no_such_writer(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    adds = replaced(table)
    (new,) = table.newest("add")
    table.commit(a_remove(path=new["path"]), *adds)  # RESTORE
    for position in (0, 1):
        vector = an_inline_vector([position])
        live = next(each for each in state_of(table.root).adds.values() if each["path"] == "0.parquet")
        gone = a_remove(path="0.parquet", dv=live.get("deletionVector"), dataChange=False)
        table.commit(gone, {"add": {**live, "deletionVector": vector, "dataChange": False}})
    assert findings(table) == {}


@pytest.mark.parametrize("differs", [False, True])
def test_34_a_file_that_a_checkpoint_lists_twice_is_no_two_files(differs: bool, tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    vector = an_inline_vector([0])
    add = table.file("a.parquet", numbers(0, 9))
    table.commit(add)
    live = {**add["add"], "dataChange": False}
    write_checkpoint(
        table.root,
        table.version,
        a_protocol_with(*FEATURES),
        table.metadata,
        {"add": live},
        {"add": {**live, "deletionVector": vector} if differs else live},
    )
    ran = iceberg_cli("rewrite-data-files", table.root, "--rewrite-all", "--yes")
    if differs:
        assert ran.code == 11
        assert "the table has a.parquet more than once, with different deletion vectors" in ran.err
        assert not list(table.root.rglob("part-*.parquet"))
    else:
        assert ran.code == 0
        assert table.written()["n"].to_pylist() == [*range(10)]
