"""merge-dvs on small tables, by the real program; readers are `tests.scan_planning`."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from iceberg_cli.testing.iceberg_files import position_deletes, records
from tests.cli.lakes import listed_of, metadata_of
from tests.cli.running import iceberg_cli
from tests.delete_tables import STORAGE, DeleteTable, a_table, merge, puffin, refusal, two_generations
from tests.scan_planning import entries_of, is_vector, view


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "t"


def seen(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Short name of each data file -> what a reader sees of it."""
    found = view(STORAGE.read, metadata_of(folder))
    return {Path(path).stem: value for path, value in found.items()}


def deletes(folder: Path) -> list[dict[str, Any]]:
    """Live delete entries."""
    return [entry for entry in entries_of(STORAGE.read, metadata_of(folder)) if entry["content"]]


def vectors(folder: Path) -> dict[str, dict[str, Any]]:
    """Short name of a data file -> the entry of its deletion vector."""
    return {Path(each["referenced_data_file"]).stem: each for each in deletes(folder) if is_vector(each)}


def names(folder: Path) -> set[str]:
    """Of the live delete files."""
    return {Path(entry["file_path"]).name for entry in deletes(folder)}


def dry(folder: Path, *options: object) -> dict[str, Any]:
    ran = iceberg_cli("merge-dvs", folder, *options, "--dry-run", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def verdicts(plan: dict[str, Any]) -> dict[str, tuple[bool, str]]:
    return {Path(v["id"]).name: (v["keep"], v["reason"]) for v in plan["verdicts"]}


# -- position deletes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("difference", [-8, 8, 5_000])
def test_a_position_delete_file_of_another_size_than_its_entry_says_is_merged_whole(
    folder: Path, difference: int
) -> None:
    table = DeleteTable(storage=STORAGE, location=str(folder))
    for name in "ab":
        table.data(name, 10)
    table.commit(1)
    table.positions("p", {"a": [1, 7]})
    size = len(STORAGE.read(table.added[-1]["file_path"]))
    table.added[-1]["file_size_in_bytes"] = size + difference
    table.commit(2)
    table.positions("q", {"a": [2], "b": [3]})
    table.commit_and_publish(3)
    merge(folder)
    assert seen(folder)["a"][1] == {1, 2, 7}
    assert seen(folder)["b"][1] == {3}
    assert vectors(folder).keys() == {"a", "b"}


def test_all_position_deletes_of_a_data_file_become_one_deletion_vector(folder: Path) -> None:
    two_generations(folder).publish()

    report = merge(folder)

    assert seen(folder)["a"][1] == {1, 2, 7}
    found = vectors(folder)
    assert found.keys() == {"a", "b"}
    # The greatest sequence number of what was joined; the file's own is the commit's.
    assert [(found[n]["sequence_number"], found[n]["file_sequence_number"]) for n in "ab"] == [(3, 4), (2, 4)]
    assert [found[n]["partition"] for n in "ab"] == [{"k": "x"}, {"k": "x"}]
    assert [found[n]["record_count"] for n in "ab"] == [3, 1]
    expected = {"rewritten_delete_files_count": 2, "added_delete_files_count": 2}
    assert {name: report[name] for name in expected} == expected
    assert report["added_bytes_count"] == sum(e["content_size_in_bytes"] for e in found.values())


def test_the_summary_counts_as_java_does(folder: Path) -> None:
    two_generations(folder).publish()
    old_sizes = sum(e["file_size_in_bytes"] for e in deletes(folder))
    merge(folder)
    summary = metadata_of(folder)["snapshots"][-1]["summary"]
    expected = {
        "operation": "replace", "added-delete-files": "2", "added-dvs": "2", "added-position-deletes": "4",
        "added-files-size": str(sum(e["content_size_in_bytes"] for e in deletes(folder))),
        "removed-delete-files": "2", "removed-position-delete-files": "2", "removed-position-deletes": "5",
        "removed-files-size": str(old_sizes), "changed-partition-count": "1",
        "manifests-created": "1", "manifests-replaced": "2", "manifests-kept": "1",
    }  # fmt: skip
    assert {name: summary.get(name) for name in expected} == expected
    assert "removed-dvs" not in summary


def test_entries_that_go_are_marked_deleted_with_their_own_sequence_numbers(folder: Path) -> None:
    two_generations(folder).publish()
    merge(folder)
    (row,) = [row for row in listed_of(folder) if row["content"] == 1]
    assert (row["added_files_count"], row["existing_files_count"], row["deleted_files_count"]) == (2, 0, 2)
    assert (row["min_sequence_number"], row["sequence_number"], row["first_row_id"]) == (2, 4, None)
    assert row["partitions"] == [
        {"contains_null": False, "contains_nan": False, "lower_bound": b"x", "upper_bound": b"x"}
    ]
    entries = records(STORAGE.read(row["manifest_path"]))
    gone = [e for e in entries if e["status"] == 2]
    assert {(e["sequence_number"], e["file_sequence_number"]) for e in gone} == {(2, 2), (3, 3)}
    added = [e for e in entries if e["status"] == 1]
    assert {(e["sequence_number"], e["file_sequence_number"]) for e in added} == {(3, None), (2, None)}


def test_a_deletion_vector_that_holds_the_older_deletes_stays_and_the_older_file_goes(folder: Path) -> None:
    table = two_generations(folder)
    table.vectors("v", {"a": [1, 2, 7, 9]}, k="x")
    table.commit_and_publish(4)
    merge(folder)
    assert vectors(folder).keys() == {"a", "b"}
    assert len(deletes(folder)) == 2
    assert "v-deletes.puffin" in names(folder)


def test_a_deletion_vector_that_lacks_an_older_delete_is_left_alone_with_the_files_that_name_it(
    folder: Path,
) -> None:
    table = two_generations(folder)
    table.positions("b-only", {"b": [6]}, k="x")
    table.vectors("v", {"a": [1, 9]}, k="x")
    table.commit_and_publish(4)

    plan = dry(folder)

    stated = verdicts(plan)
    assert [stated[name][0] for name in ("both-deletes.parquet", "late-deletes.parquet")] == [True, True]
    assert "lacks older position deletes" in stated["both-deletes.parquet"][1]
    assert any("left alone" in warning and "a.parquet" in warning for warning in plan["warnings"])
    merge(folder)
    # All that applies to `b` is in its vector, also what stays for the sake of `a`.
    assert vectors(folder)["b"]["record_count"] == 2
    assert names(folder) >= {"both-deletes.parquet", "late-deletes.parquet", "v-deletes.puffin"}


def test_position_deletes_in_a_file_that_cannot_be_read_hold_their_partition_back(folder: Path) -> None:
    table = two_generations(folder)
    table.positions("orc", {"a": [50]}, k="x", file_format="ORC")
    table.positions("y", {"c": [3]}, k="y")
    table.data("same", 10, k="x")  # as old as the file that cannot be read, which may delete of it too
    table.positions("same", {"same": [1]}, k="x")
    table.commit_and_publish(4)
    merge(folder)
    assert vectors(folder).keys() == {"c"}
    assert names(folder) >= {f"{name}-deletes.parquet" for name in ("both", "late", "orc", "same")}


def test_a_data_file_that_is_newer_than_a_delete_keeps_its_rows(folder: Path) -> None:
    table = a_table(folder)
    table.positions("early", {"a": [1]})
    table.data("b", 9)
    table.commit(1)
    table.data("a", 10)
    table.commit_and_publish(2)
    merge(folder)
    assert seen(folder)["a"][1] == frozenset()
    assert deletes(folder) == []


def test_a_wiped_data_file_is_reported_with_the_command_that_drops_it(folder: Path) -> None:
    table = a_table(folder, {"a": 3})
    table.positions("p", {"a": [0, 1, 2]})
    table.commit_and_publish(2)
    (warning,) = dry(folder)["warnings"]
    assert "rewrite_data_files" in warning
    assert "a.parquet" in warning


def test_positions_behind_the_end_of_a_data_file_are_left_out_and_said(folder: Path) -> None:
    table = a_table(folder, {"a": 3})
    table.positions("p", {"a": [1, 3]})
    table.commit_and_publish(2)
    (warning,) = dry(folder)["warnings"]
    assert warning == f"position deletes behind the end of 1 data file are left out: {table.path('a')}"
    merge(folder)
    assert deletes(folder)[0]["record_count"] == 1


# -- what is not quite as the specification has it -------------------------------------------------------------------


def a_schema(schema_id: int, k: str) -> dict[str, Any]:
    """As `SCHEMA`, with another type of `k`, and a string more."""
    columns = (("n", "long"), ("k", k), ("s", "string"))
    fields = [
        {"id": n, "name": name, "required": False, "type": type_}
        for n, (name, type_) in enumerate(columns, start=1)
    ]
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


def a_spec(*names: str) -> dict[str, Any]:
    """Identity of `k` and `s`, in this order; with an asterisk, void."""
    ids = {"k": (2, 1000), "s": (3, 1001)}
    fields = [
        {
            "name": name[0], "transform": "void" if name[1:] else "identity", "source-id": ids[name[0]][0],
            "field-id": ids[name[0]][1],
        }
        for name in names
    ]  # fmt: skip
    return {"spec-id": 1, "fields": fields}


def widened(folder: Path, value: Decimal) -> DeleteTable:
    """`a` is in a partition of a decimal(5,2), of which the precision is 12 after the first commit."""
    table = a_table(folder, schema=a_schema(0, "decimal(5,2)"))
    table.data("a", 10, k=value)
    table.commit(1)
    table.evolve(a_schema(1, "decimal(12,2)"))
    return table


@pytest.mark.parametrize("value", [Decimal("1.25"), Decimal("-1.28"), Decimal("327.68")])
def test_deletes_apply_over_a_partition_field_whose_precision_grew(folder: Path, value: Decimal) -> None:
    table = widened(folder, value)
    table.equality("e", k=value)
    table.positions("p", {"a": [3]}, k=value)
    table.commit_and_publish(2)
    merge(folder)
    assert names(folder) >= {"e-eq-deletes.parquet"}
    assert "p-deletes.parquet" not in names(folder)


def test_entries_of_before_and_after_a_decimal_grew_go_into_one_manifest(folder: Path) -> None:
    table = a_table(folder, schema=a_schema(0, "decimal(5,2)"))
    for name, k in (("a", Decimal("-1.25")), ("b", Decimal("2.00"))):
        table.data(name, 10, k=k)
        table.positions(f"p{name}", {name: [1]}, k=k)
    table.commit(1)
    table.evolve(a_schema(1, "decimal(12,2)"))
    table.data("c", 10, k=Decimal("12345678.90"))
    table.positions("pc", {"c": [2]}, k=Decimal("12345678.90"))
    table.commit_and_publish(2)
    merge(folder)
    assert all(is_vector(entry) for entry in deletes(folder))


@pytest.mark.parametrize(
    ("spec", "written", "k"),
    [
        (a_spec("k", "s"), a_spec("s", "k"), {"k": "K", "s": "S"}),
        (a_spec("k*", "s"), a_spec("s"), {"s": "S"}),
    ],
    ids=["in another order", "without a void field"],
)
def test_partition_values_are_found_by_field_id(
    folder: Path, spec: dict[str, Any], written: dict[str, Any], k: dict[str, str]
) -> None:
    table = a_table(folder, schema=a_schema(0, "string"), by_k=spec)
    table.data("a", 10, k={"k": None, **k})
    table.commit(1)
    table.written_by_k = written
    table.equality("e", k=k)
    table.positions("p", {"a": [3]}, k=k)
    table.vectors("v", {"gone": [1]}, k=k)
    table.commit_and_publish(2)
    merge(folder, compare=False)  # it finds partition values by name
    found = {Path(entry["file_path"]).name: entry for entry in deletes(folder)}
    assert len(found) == 2
    assert "e-eq-deletes.parquet" in found
    assert all(entry["partition"] == {"k": None, **k} for entry in found.values())
    assert vectors(folder).keys() == {"a"}


def test_a_partition_value_that_does_not_fit_the_schema_is_bad_bytes_of_its_manifest(folder: Path) -> None:
    table = a_table(folder, schema=a_schema(0, "decimal(12,2)"))
    table.data("a", 10, k=Decimal("12345678.90"))
    table.positions("p", {"a": [3]}, k=Decimal("12345678.90"))
    table.commit(1)
    table.document["schemas"] = [a_schema(0, "decimal(5,2)")]
    table.publish()
    ran = iceberg_cli("merge-dvs", folder, "--yes", "--format", "json")
    assert ran.code == 15, ran.out
    assert "1-m3.avro" in ran.json["message"]


def test_deletes_stay_that_apply_to_one_of_two_listings_of_a_data_file(folder: Path) -> None:
    table = a_table(folder, {"a": 10})
    table.positions("p", {"a": [1]})
    table.commit(2)
    table.listed(table.path("a"), 10)
    table.commit_and_publish(3)
    plan = dry(folder)
    assert not plan["steps"]
    assert "is listed twice" in verdicts(plan)["p-deletes.parquet"][1]


BOUND = 2147483546  # the field id of `file_path` in position delete files


@pytest.mark.parametrize("how", ["referenced_data_file", "bounds"])
@pytest.mark.parametrize("live", [True, False])
def test_a_position_delete_file_that_names_more_than_its_entry_says_is_left_alone(
    folder: Path, how: str, live: bool
) -> None:
    table = a_table(folder)
    if live:
        table.data("a", 10)
        table.data("b", 10)
    table.data("c", 10)
    table.commit(1)
    only = table.path("a").encode()
    stated: dict[str, Any] = {"lower_bounds": {BOUND: only}, "upper_bounds": {BOUND: only}}
    if how == "referenced_data_file":
        stated = {"referenced_data_file": table.path("a")}
    table.positions("odd", {"a": [1], "b": [2]}, **stated)
    table.positions("b", {"b": [5]})
    table.positions("c", {"c": [7]}, referenced_data_file=table.path("c"))
    table.commit_and_publish(2)
    before = seen(folder)
    plan = dry(folder)
    assert verdicts(plan)["odd-deletes.parquet"][0]
    assert verdicts(plan)["b-deletes.parquet"][0] == live
    assert any("another one" in warning for warning in plan["warnings"]) == live
    merge(folder)
    assert "odd-deletes.parquet" in names(folder)
    if how == "referenced_data_file":  # `tests.scan_planning` knows nothing of bounds
        assert seen(folder) == before
    assert "c" in vectors(folder)


@pytest.mark.parametrize("spelled", ["file://{}", "{}", "s3a://bucket{}"], ids=["file", "slashes", "s3a"])
def test_deletes_that_spell_a_live_data_file_in_another_way_stay_and_are_said(
    folder: Path, spelled: str
) -> None:
    table = a_table(folder, {"a": 10, "b": 10})
    other = spelled.format(table.path("a").replace("/data/", "//data/./"))
    table.position_bytes("p", position_deletes([(other, 1)]), 1)
    data, places = puffin({spelled.format(table.path("b").replace("/data/", "//data/")): [2]})
    table.puffin_bytes("v", data, places)
    table.commit_and_publish(2)
    plan = dry(folder)
    assert not plan["steps"]
    (warning,) = plan["warnings"]
    assert "in another way" in warning
    assert "2 data files" in warning


@pytest.mark.parametrize("position", [1 << 49, (1 << 63) - 1])
def test_a_position_that_no_vector_can_hold_is_left_out_and_said(folder: Path, position: int) -> None:
    table = a_table(folder, {"a": 10, "b": 10})
    table.positions("p", {"a": [1, position], "b": [position]})
    table.commit_and_publish(2)
    assert any("behind the end" in warning for warning in dry(folder)["warnings"])
    merge(folder)
    assert [entry["record_count"] for entry in deletes(folder)] == [1]


# -- dangling ------------------------------------------------------------------------------------------------------


def dangling(folder: Path) -> DeleteTable:
    """`a` is gone, and a deletion vector, a position delete file and an equality delete file of before stay."""
    table = a_table(folder, {"a": 10, "b": 10})
    table.positions("p", {"a": [1]})
    table.equality("e")
    table.commit(2)
    table.vectors("v", {"a": [1], "b": [2]})
    table.commit(3)
    table.remove("a", vectors=False)
    table.data("new", 5)
    table.commit_and_publish(4)
    return table


def test_deletes_that_no_data_file_needs_go_and_others_of_their_puffin_file_stay(folder: Path) -> None:
    dangling(folder)
    merge(folder)
    assert seen(folder)["b"][2], "the equality delete applies to b and stays"
    assert names(folder) == {"v-deletes.puffin", "e-eq-deletes.parquet"}
    assert vectors(folder).keys() == {"b"}


def test_keep_dangling_keeps_them(folder: Path) -> None:
    dangling(folder)
    assert not dry(folder, "--keep-dangling")["due"]


def test_an_equality_delete_goes_once_every_data_file_is_newer(folder: Path) -> None:
    table = dangling(folder)
    table.remove("b")
    table.commit_and_publish(5)
    merge(folder)
    assert deletes(folder) == []


def test_an_equality_delete_goes_that_is_as_old_as_the_oldest_data_file(folder: Path) -> None:
    """It applies to older ones only. Spec: "Scan Planning"."""
    table = a_table(folder)
    table.data("a", 10)
    table.equality("e")
    table.commit_and_publish(1)
    merge(folder)
    assert deletes(folder) == []


# -- Puffin files --------------------------------------------------------------------------------------------------


def many_puffins(folder: Path, count: int, **values: Any) -> DeleteTable:
    table = a_table(folder, {f"d{number}": 1000 for number in range(count)}, **values)
    for number in range(count):
        table.vectors(f"v{number}", {f"d{number}": range(number + 1)})
        table.commit(2 + number)
    table.publish()
    return table


@pytest.mark.parametrize(("count", "files"), [(4, 4), (5, 1)])
def test_small_puffin_files_are_joined_from_five_on(folder: Path, count: int, files: int) -> None:
    many_puffins(folder, count)
    old = {name: entry["sequence_number"] for name, entry in vectors(folder).items()}
    report = merge(folder)
    assert len(names(folder)) == files
    joined = (5, 1) if files == 1 else (0, 0)
    assert (report["rewritten_puffin_files_count"], report["added_puffin_files_count"]) == joined
    assert {name: entry["sequence_number"] for name, entry in vectors(folder).items()} == old


def test_a_mostly_dead_puffin_file_is_written_again_without_what_is_dead(folder: Path) -> None:
    table = a_table(folder, {"a": 100_000, "b": 100_000})
    table.vectors("v", {"a": range(0, 9_000, 3), "b": [1]})
    table.commit(2)
    table.vectors("w", {"a": range(0, 9_003, 3)})
    table.commit_and_publish(3)
    before = vectors(folder)["b"]
    assert verdicts(dry(folder))["v-deletes.puffin"][1].endswith("bytes are dead")
    assert not dry(folder, "--dead-ratio", "0.99")["due"]
    merge(folder)
    assert "v-deletes.puffin" not in names(folder)
    assert vectors(folder)["b"]["file_size_in_bytes"] < 1_000 < before["file_size_in_bytes"]


def test_reasons_speak_of_one_deletion_vector_in_the_singular(folder: Path) -> None:
    many_puffins(folder, 5)
    assert all(
        reason.startswith("small: 1 deletion vector of ") for _, reason in verdicts(dry(folder)).values()
    )


def test_new_files_are_closed_at_the_target_size(folder: Path) -> None:
    many_puffins(folder, 12, properties={"write.delete.target-file-size-bytes": "1500"})
    merge(folder)
    assert len(names(folder)) == 3


def test_where_limits_to_partitions(folder: Path) -> None:
    table = two_generations(folder)
    table.positions("y", {"c": [3]}, k="y")
    table.commit_and_publish(4)
    merge(folder, "--where", "k = 'y'")
    assert vectors(folder).keys() == {"c"}
    merge(folder, "--where", "k IN ('x', 'z')")
    assert all(is_vector(e) for e in deletes(folder))


@pytest.mark.parametrize(
    "options",
    [["--where", "k ="], ["--where", "nope = 1"], ["--where", "k = 1"], ["--dead-ratio", "2"], ["--dead-ratio", "x"],
     ["--min-files", "0"], ["--target-size", "-3"]],
    ids=" ".join,
)  # fmt: skip
def test_options_that_make_no_sense_are_usage_errors(folder: Path, options: list[str]) -> None:
    two_generations(folder).publish()
    ran = iceberg_cli("merge-dvs", folder, *options, "--dry-run")
    assert ran.code == 2, ran.out + ran.err


# -- versions, refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_without_deletes_has_nothing_to_do(folder: Path, version: int) -> None:
    a_table(folder, {"a": 1}, format_version=version).publish()
    assert merge(folder)["status"] == "nothing_to_do"


# -- a table that moves --------------------------------------------------------------------------------------------


def delete_more(table: DeleteTable) -> None:
    """What a writer of version 3 does: the older deletes go into the new vector of the data file."""
    table.vectors("concurrent", {"a": [1, 2, 7, 30]}, k="x")


def remove_a(table: DeleteTable) -> None:
    table.remove("a")


def compact(table: DeleteTable) -> None:
    table.remove("a", "b")
    table.data("ab", 150, k="x")


def append(table: DeleteTable) -> None:
    table.data("more", 10, k="x")


@pytest.mark.parametrize("disturb", [delete_more, remove_a, compact, append])
def test_a_saved_plan_is_made_again_for_a_table_that_moved(
    folder: Path, tmp_path: Path, disturb: Callable[[DeleteTable], None]
) -> None:
    table = two_generations(folder)
    table.publish()
    saved = tmp_path / "plan.json"
    assert iceberg_cli("plan", folder, "merge-dvs", "-o", saved).code == 0
    disturb(table)
    table.commit_and_publish(9)
    before = seen(folder)
    ran = iceberg_cli("apply", saved, "--yes", "--format", "json")
    assert ran.code == 0, ran.out + ran.err
    assert seen(folder) == before
    assert all(is_vector(e) for e in deletes(folder))


# -- files that are not sound --------------------------------------------------------------------------------------


Change = Callable[[bytearray, int, int], None]  # of a Puffin file, with a blob's offset and size


def unspoiled(data: bytearray, offset: int, size: int) -> None:
    """No change."""


def spoiled(
    folder: Path,
    change: Change,
    positions: Iterable[int] = range(0, 900, 2),
    records: int = 1000,
    **stated: int,
) -> str:
    """Six Puffin files, of which one was changed, or has other things said of it in its entry; its path."""
    table = many_puffins(folder, 5)
    table.data("a", records)
    data, places = puffin({table.path("a"): positions})
    bad = bytearray(data)
    change(bad, places[0][1], places[0][2])
    table.puffin_bytes("bad", bytes(bad), places, **stated)
    table.commit_and_publish(20)
    return f"{folder}/data/bad-deletes.puffin"


def reframed(data: bytearray, offset: int, size: int, vector: bytes) -> None:
    """The blob with another vector of the same length, and the CRC-32 that belongs to it."""
    assert len(vector) == size - 12
    body = data[offset + 4 : offset + 8] + vector
    data[offset + 4 : offset + size] = body + struct.pack(">I", zlib.crc32(body))


def break_crc(data: bytearray, offset: int, size: int) -> None:
    data[offset + size - 1] ^= 1


def break_content(data: bytearray, offset: int, size: int) -> None:
    data[offset + size // 2] ^= 1


def break_magic(data: bytearray, offset: int, size: int) -> None:
    data[offset + 4] ^= 1


def break_length(data: bytearray, offset: int, size: int) -> None:
    data[offset + 3] ^= 1


def break_file_magic(data: bytearray, offset: int, size: int) -> None:
    data[-1] ^= 1


def break_order(data: bytearray, offset: int, size: int) -> None:
    """Two values of a container change places: pyroaring takes such bytes for a set."""
    vector = bytearray(data[offset + 8 : offset + size - 4])
    vector[-4:-2], vector[-2:] = vector[-2:], vector[-4:-2]
    reframed(data, offset, size, bytes(vector))


def break_count(data: bytearray, offset: int, size: int) -> None:
    """A container header says one value more than there is room for."""
    vector = bytearray(data[offset + 8 : offset + size - 4])
    vector[22] += 1
    reframed(data, offset, size, bytes(vector))


def swap_footer(data: bytearray, offset: int, size: int) -> None:
    place = data.rindex(f'"offset": {offset}'.encode())
    data[place + 10 : place + 11] = b"5"


@pytest.mark.parametrize(
    "change",
    [
        break_crc,
        break_content,
        break_magic,
        break_length,
        break_file_magic,
        break_order,
        break_count,
        swap_footer,
    ],
)
def test_a_bad_puffin_file_is_named_and_nothing_is_planned(folder: Path, change: Change) -> None:
    path = spoiled(folder, change)
    assert path in refusal(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [("content_offset", 9_999), ("content_offset", 5), ("content_size_in_bytes", 40), ("record_count", 449),
     ("file_size_in_bytes", 10)],
)  # fmt: skip
def test_an_entry_that_does_not_fit_its_puffin_file_is_named(folder: Path, field: str, value: int) -> None:
    path = spoiled(folder, unspoiled, **{field: value})
    assert path in refusal(folder)


# -- vectors that say more than they delete --------------------------------------------------------------------------


def reaching(folder: Path, positions: list[int], *, records: int = 10) -> DeleteTable:
    """Five small Puffin files, and two more: `a` alone has a vector of `positions`, `far` one like it, beside `b`."""
    table = many_puffins(folder, 5)
    for name in ("a", "far", "b"):
        table.data(name, records)
    table.vectors("bad", {"a": positions})
    table.vectors("both", {"far": positions, "b": [1]})
    table.commit_and_publish(20)
    return table


def places(folder: Path) -> set[tuple[str, int]]:
    """Where the live deletion vectors are: file and offset."""
    return {(entry["file_path"], entry["content_offset"]) for entry in deletes(folder)}


def test_a_vector_with_a_position_behind_its_data_file_stays_as_it_is_and_the_rest_is_merged(
    folder: Path,
) -> None:
    table = reaching(folder, [3, 10])
    assert seen(folder)["a"][1] == {3}
    kept = {"bad-deletes.puffin", "both-deletes.puffin"}
    stays = {place for place in places(folder) if Path(place[0]).name in kept}
    plan = dry(folder)
    (warning,) = plan["warnings"]
    assert "2 data files are left alone" in warning
    assert "behind its last row" in warning
    assert table.path("a") in warning
    assert table.path("far") in warning
    stated = verdicts(plan)
    assert [stated[f"{name}-deletes.puffin"][0] for name in ("bad", "both")] == [True, True]
    report = merge(folder)
    assert report["rewritten_puffin_files_count"] == 5
    after = places(folder)
    assert stays <= after
    assert len({path for path, _ in after - stays}) == 1
    assert not dry(folder)["steps"]


def test_small_puffin_files_that_are_too_few_without_such_a_vector_stay(folder: Path) -> None:
    table = many_puffins(folder, 4)
    table.data("a", 10)
    table.vectors("bad", {"a": [3, 10]})
    table.commit_and_publish(20)
    plan = dry(folder)
    assert not plan["steps"]
    assert any(table.path("a") in warning for warning in plan["warnings"])


def test_position_deletes_of_a_data_file_with_such_a_vector_stay(folder: Path) -> None:
    table = two_generations(folder)
    table.vectors("bad", {"a": [1, 2, 7, 100]}, k="x")
    table.commit_and_publish(4)
    stated = verdicts(dry(folder))
    for name in ("both", "late"):
        keep, reason = stated[f"{name}-deletes.parquet"]
        assert keep
        assert f"{table.path('a')} has a deletion vector with positions behind its last row" in reason
    merge(folder)


def test_a_data_file_is_not_called_wiped_for_a_vector_that_reaches_behind_its_end(folder: Path) -> None:
    reaching(folder, [0, 1, 5], records=3)
    assert not any("no live row" in warning for warning in dry(folder)["warnings"])


def test_a_vector_that_reaches_behind_the_end_and_is_corrupt_is_refused(folder: Path) -> None:
    path = spoiled(folder, break_crc, [3, 10], 10)
    assert path in refusal(folder)


# -- other files that are not sound ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "rows", "reason"),
    [
        (b"PAR1 no Parquet", 1, "no readable Parquet"),
        (position_deletes([("/x", 1), ("/x", 2)]), 3, "2 rows"),
        (position_deletes([("/x", -1)]), 1, "position -1"),
    ],
)
def test_a_bad_position_delete_file_is_named_and_nothing_is_planned(
    folder: Path, data: bytes, rows: int, reason: str
) -> None:
    table = two_generations(folder)
    table.position_bytes("bad", data, rows, k="x")
    table.commit_and_publish(4)
    message = refusal(folder)
    assert "bad-deletes.parquet" in message
    assert reason in message


@pytest.mark.parametrize("version", [2, 3])
def test_position_deletes_that_pyarrow_cannot_open_are_no_damage(folder: Path, version: int) -> None:
    table = two_generations(folder, format_version=version)
    data = position_deletes([(table.path("gone"), 1)])
    length = int.from_bytes(data[-8:-4], "little")
    unknown = data[: -8 - length] + b"\x7f" * length + data[-8:]
    table.position_bytes("odd", unknown, 1, k="x")
    table.commit_and_publish(4)
    assert "odd-deletes.parquet here: pyarrow says: " in refusal(folder, code=11)


def test_rows_that_are_not_sorted_are_read_all_the_same(folder: Path) -> None:
    table = a_table(folder, {"a": 100, "b": 100})
    rows = [(table.path("ab"[i % 2]), (i * 37) % 100) for i in range(60)] + [(table.path("a"), 0)] * 2
    table.position_bytes("messy", position_deletes(rows), len(rows))
    table.commit_and_publish(2)
    merge(folder)


def test_the_vectors_of_high_positions_keep_their_bits(folder: Path) -> None:
    table = a_table(folder, {"a": 1 << 34})
    positions = [0, (1 << 32) - 1, 1 << 32, (1 << 33) + 5]
    table.positions("p", {"a": positions})
    table.commit_and_publish(2)
    merge(folder)
    (entry,) = deletes(folder)
    data = STORAGE.read(entry["file_path"])
    blob = data[entry["content_offset"] :][: entry["content_size_in_bytes"]]
    assert list(BitMap64.deserialize(blob[8:-4])) == positions
    assert json.loads(data[data.rindex(b'{"blobs"') : -12])["blobs"][0]["properties"]["cardinality"] == "4"
