"""Every verb x tables x ways to be run: no traceback, one document that its schema accepts, and what an exit code says.

What a document means for the exit code is spelled out here, from the command line's contract.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iceberg_cli.storage.local import LocalStorage
from iceberg_cli.testing.delta_writer import (
    a_dv,
    a_metadata,
    a_protocol_with,
    an_add,
    commit_path,
    write_checkpoint,
)
from tests.budget import few_or_many, some
from tests.cli.command_names import VERBS
from tests.cli.lakes import AS_OF, delta_with_removed_files, four_snapshots, in_the_way
from tests.cli.running import JSON, Ran, as_nobody, iceberg_cli, process
from tests.delete_tables import DeleteTable
from tests.delta_opened import a_log
from tests.manifest_tables import a_lot
from tests.paths import FIXTURES, needs_fixtures, tables_below

WHAT = (
    "summary", "snapshots", "refs", "history", "schemas", "specs", "properties", "manifests", "files", "deletes",
    "partitions", "statistics", "metadata-log", "protocol", "features", "row-ids",
)  # fmt: skip
COMMANDS = [
    *(("inspect", "T", what) for what in WHAT),
    ("inspect", "T", "--check"),
    ("inspect", "T", "--check", "--deep"),
    ("plan", "T", *AS_OF),
    *(("plan", "T", verb, *AS_OF) for verb in VERBS),
    *((verb, "T", *AS_OF, "--yes") for verb in VERBS),
    *((verb, "T", *AS_OF, "--dry-run") for verb in VERBS),
    *((verb, "T", *AS_OF) for verb in VERBS),  # without --yes, and nobody to be asked
    ("expire-snapshots", "T", *AS_OF, "--yes", "--cleanup", "none"),
    ("expire-snapshots", "T", *AS_OF, "--yes", "--grace", "1h"),
    ("expire-snapshots", "T", *AS_OF, "--yes", "--no-resume"),
    ("expire-snapshots", "T", "--snapshot-id", "999", "--yes"),
    ("upgrade-v3", "T", "--check"),
    ("apply", "PLAN", "--yes"),
    ("apply", "PLAN", "--replan"),
    ("resume", "T", "--list"),
    ("resume", "T", "--abandon"),
    ("resume", "T"),
    ("resume", "T", "no-such-operation"),
    ("inspect", "T", "nonsense"),
    ("inspect", "T", "--nonsense"),
]


# -- tables ----------------------------------------------------------------------------------------------------------


def iceberg_v1(folder: Path) -> str:
    a_lot(1, files=4, manifests=2, storage=LocalStorage(), location=str(folder)).table()
    return str(folder)


def iceberg_v2(folder: Path) -> str:
    return four_snapshots(folder).publish()


def iceberg_v3(folder: Path) -> str:
    table = DeleteTable(storage=LocalStorage(), location=str(folder))
    table.data("a", 10)
    table.data("b", 10)
    table.commit(1)
    table.vectors("dv", {"a": [1, 2], "b": [3]})
    table.commit(2)
    table.positions("late", {"b": [4]})
    table.commit_and_publish(3)
    return str(folder)


def without_a_manifest(folder: Path) -> str:
    name = iceberg_v2(folder)
    (folder / "metadata" / "4-m0.avro").unlink()
    return name


def with_half_a_metadata_file(folder: Path) -> str:
    name = iceberg_v2(folder)
    newest = max((folder / "metadata").glob("*.metadata.json"))
    newest.write_bytes(newest.read_bytes()[:100])
    return name


def with_an_open_operation(folder: Path) -> str:
    name = iceberg_v2(folder)
    assert process("expire-snapshots", name, *AS_OF, "--yes", "--limit-deletes", "1").code == 0
    return name


def with_a_folder_for_a_file(folder: Path) -> str:
    name = iceberg_v2(folder)
    in_the_way(folder, "one")
    return name


def with_a_deletion_that_fails(folder: Path) -> str:
    name = with_a_folder_for_a_file(folder)
    assert process("expire-snapshots", name, *AS_OF, "--yes").code == 14
    return name


def with_a_damaged_journal(folder: Path) -> str:
    name = with_an_open_operation(folder)
    [journal] = (folder / "_iceberg_cli" / "ops").iterdir()
    (journal / "000001.json").write_bytes(b"{}")
    return name


def one_metadata_file(folder: Path) -> str:
    return f"{iceberg_v2(folder)}/metadata/v1.metadata.json"


def delta(folder: Path) -> str:
    return delta_with_removed_files(folder, "b")


def delta_with_a_checkpoint(folder: Path) -> str:
    actions = [a_protocol_with("deletionVectors"), a_metadata(), an_add(path="a.parquet", dv=a_dv())]
    a_log(folder, actions)
    write_checkpoint(folder, 0, *actions)
    (folder / "a.parquet").write_bytes(b"1234")
    return str(folder)


def in_a_folder_with_other_letters(folder: Path) -> str:
    folder.mkdir()
    return iceberg_v2(folder / "größe 東京")


def delta_in_a_folder_with_other_letters(folder: Path) -> str:
    folder.mkdir()
    return delta(folder / "größe 東京")


def delta_with_half_a_commit(folder: Path) -> str:
    name = delta(folder)
    commit = commit_path(folder, 1)
    commit.write_bytes(commit.read_bytes()[:-20])
    return name


def nothing(folder: Path) -> str:
    return str(folder)


def an_empty_folder(folder: Path) -> str:
    folder.mkdir()
    return str(folder)


TABLES: Mapping[str, Callable[[Path], str]] = {
    made.__name__: made
    for made in (
        iceberg_v1, iceberg_v2, iceberg_v3, without_a_manifest, with_half_a_metadata_file, with_an_open_operation,
        with_a_folder_for_a_file, with_a_deletion_that_fails, with_a_damaged_journal, one_metadata_file, delta,
        delta_with_a_checkpoint, in_a_folder_with_other_letters, delta_in_a_folder_with_other_letters,
        delta_with_half_a_commit, nothing, an_empty_folder,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Lake:
    """Tables that every command line finds as they were made, in folders that everybody may enter."""

    place: Path
    names: Mapping[str, str]

    def fresh(self, table: str) -> str:
        """Put a table back as it was; how it is named."""
        folder = self.place / table
        if folder.exists():
            shutil.rmtree(folder)
        if (self.place / "made" / table).exists():
            shutil.copytree(self.place / "made" / table, folder, symlinks=True)
        return self.names[table]

    def words(self, table: str, command: Sequence[str]) -> list[str] | None:
        """A command line about a fresh table; None where it cannot be had."""
        name = self.fresh(table)
        plan = self.place / f"{table}.plan"
        if "PLAN" in command and iceberg_cli("plan", name, "expire-snapshots", *AS_OF, "--output", plan).code:
            return None
        return [{"T": name, "PLAN": str(plan)}.get(word, word) for word in command]


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    # Not below pytest's own folder, which nobody but its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        names = {table: make(place / table) for table, make in TABLES.items()}
        (place / "made").mkdir()
        for table in TABLES:
            if (place / table).exists():
                shutil.copytree(place / table, place / "made" / table)
        place.chmod(0o755)
        yield Lake(place, names)


Spoil = Callable[[Path, list[str]], Ran]


# -- what must hold --------------------------------------------------------------------------------------------------


def codes_of(document: Mapping[str, Any]) -> set[int]:
    """The exit codes with which a document agrees."""
    kind = document["schema"].split("/")[1]
    match kind:
        case "error":
            return {document["exit_code"]}
        case "report":
            assert document["status"] in ("done", "nothing_to_do", "waiting", "partial"), (
                "else it is an error"
            )
            earlier = [each["exit_code"] for each in document["settled"] if each["exit_code"]]
            return {14} if document["failed_deletes"] else set(earlier[:1]) or {0}
        case "reports":
            return _codes_of_all(document["reports"])
        case "survey":
            return {each["exit_code"] for each in document["failed"]} or {0}
        case "inspection" if document["what"] == "check":
            unanswered = any(row["id"] == "file-not-looked-at" for row in document["findings"])
            return {16} if unanswered else {15} if document["counts"]["error"] else {0}
        case "preflight":
            return {11} if document["blocked"] else {0}
        case _:
            return {0}


def _codes_of_all(reports: Sequence[Mapping[str, Any]]) -> set[int]:
    """Of several operations the first that is not done to its end decides; why one is refused is in words only."""
    for report in reports:
        if report["failed_deletes"]:
            return {14}
        if report["status"] in ("refused", "unknown"):
            return {11, 13, 15, 16}
    return {0}


UNDONE = ("warning: ", "blocked by: ", "open operation ")  # what -q does not keep to itself
CODES = {0, 2, 10, 11, 12, 13, 14, 15, 16}


def problems(ran: Ran, words: Sequence[str]) -> Iterator[str]:
    """What is wrong with how a command line ended."""
    if ran.code not in CODES:
        yield f"exit code {ran.code}"
    if "Traceback" in ran.out + ran.err:
        yield "a traceback"
    if ran.code > 3 and not (ran.out + ran.err).strip():
        yield f"{ran.code} and not a word"
    if "--format" in words:
        try:
            document = ran.json
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it is what is looked for
            yield f"no document that its schema accepts: {error!r:.300}"
        else:
            if ran.code not in codes_of(document):
                yield f"{ran.code}, and the document says {sorted(codes_of(document))}"
    elif "-q" in words:
        if ran.out:
            yield f"-q prints {ran.out[:200]!r}"
        if ran.code > 3 and not ran.err:
            yield f"{ran.code}, and standard error is empty"
        if ran.code == 0 and words[0] != "resume":
            other = [line for line in ran.err.splitlines() if not line.startswith(UNDONE)]
            yield from (f"-q, nothing is undone, and standard error has {line!r}" for line in other[:1])
    elif not ran.out and not ran.err:
        yield "nothing at all is said"


def wrong(
    lake: Lake, cases: Sequence[tuple[str, Sequence[str]]], *options: str, spoil: Spoil | None = None
) -> list[str]:
    """Run command lines; what is wrong, each with its command line and table."""
    found = []
    for table, command in cases:
        words = lake.words(table, command)
        if words is None:
            continue
        words += options
        ran = iceberg_cli(*words) if spoil is None else spoil(lake.place / table, words)
        found += [f"{table}: {' '.join(words)}: {problem}" for problem in problems(ran, words)]
    return found


ALWAYS: list[tuple[str, Sequence[str]]] = [
    ("with_a_folder_for_a_file", ("expire-snapshots", "T", *AS_OF, "--yes")),
    ("with_a_deletion_that_fails", ("rewrite-manifests", "T", "--yes")),
    ("with_a_deletion_that_fails", ("resume", "T")),
    ("with_a_damaged_journal", ("resume", "T")),
    ("without_a_manifest", ("inspect", "T", "--check")),
    ("without_a_manifest", ("plan", "T", *AS_OF)),
    ("one_metadata_file", ("upgrade-v3", "T", "--check")),
]
EVERYTHING = [(table, command) for table in TABLES for command in COMMANDS]


@few_or_many(25)
@pytest.mark.parametrize("options", [(), JSON, ("-q",), ("-v",), (*JSON, "-q")], ids=" ".join)
def test_every_command_line_ends_as_it_says(lake: Lake, options: tuple[str, ...], budget: int) -> None:
    assert wrong(lake, [*ALWAYS, *some(EVERYTHING, budget)], *options) == []


def as_nobody_without(right: Callable[[Path], None]) -> Spoil:
    def spoil(folder: Path, words: list[str]) -> Ran:
        every = [folder, *folder.rglob("*")] if folder.exists() else []
        # What is loaded when it is needed may be out of reach of nobody.
        with tempfile.TemporaryDirectory() as copies:
            copy = Path(copies, "copy")
            if folder.exists():
                shutil.copytree(folder, copy)
            iceberg_cli(*(word.replace(str(folder), str(copy)) for word in words))
        iceberg_cli("inspect", "/nowhere/at/all")
        for path in every:
            path.chmod(0o777 if path.is_dir() else 0o666)
        right(folder)
        with as_nobody():
            ran = iceberg_cli(*words)
        for path in every:
            if path.exists():
                path.chmod(0o777)
        return ran

    return spoil


def unwritable(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o555)


def unreadable(folder: Path) -> None:
    """A file of the newest state, of those that are there."""
    named = ("*-m0.avro", "snap-*.avro", "*.metadata.json", "*.json", "*.checkpoint.parquet")
    files = [path for pattern in named for path in sorted(folder.rglob(pattern))]
    for path in files[-1:]:
        path.chmod(0)


@pytest.mark.pairs
@few_or_many(15)
@pytest.mark.parametrize("right", [unwritable, unreadable], ids=lambda right: right.__name__)
@pytest.mark.parametrize("options", [(), JSON, ("-q",)], ids=" ".join)
def test_missing_rights_end_as_the_command_line_says(
    lake: Lake, options: tuple[str, ...], right: Callable[[Path], None], budget: int
) -> None:
    here = [case for case in EVERYTHING if case[0] not in ("nothing", "an_empty_folder")]
    assert wrong(lake, some(here, budget), *options, spoil=as_nobody_without(right)) == []


@pytest.mark.pairs
@few_or_many(2)
@pytest.mark.parametrize("options", [(), JSON, ("-q",)], ids=" ".join)
@pytest.mark.parametrize("output", [">&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_no_traceback(
    lake: Lake, output: str, options: tuple[str, ...], budget: int
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    found = []
    for table, command in some(EVERYTHING, budget):
        words = lake.words(table, command)
        if words is None:
            continue
        usual = iceberg_cli(*words, *options)
        lake.words(table, command)
        ran = process(*words, *options, redirection=output)
        # Whoever read it has left, and need not be told why; a full disk is an error that standard error tells of.
        expected = usual.code if not usual.out else 141 if output == ">&-" else 16
        silent = ran.code > 3 and ran.code != 141 and not ran.err
        if ran.code != expected or "Traceback" in ran.err or silent:
            found.append(
                f"{table}: {' '.join([*words, *options])}: {ran.code}, not {expected}: {ran.err[-200:]}"
            )
    assert found == []


@pytest.mark.few(1)
@few_or_many(1)
@pytest.mark.parametrize("options", [(), JSON], ids=" ".join)
def test_a_locale_that_knows_ascii_alone_changes_nothing(
    lake: Lake, options: tuple[str, ...], budget: int
) -> None:
    odd = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def spoil(_: Path, words: list[str]) -> Ran:
        return process(*words, env=odd)

    letters: list[tuple[str, Sequence[str]]] = [
        (table, command)
        for table in ("in_a_folder_with_other_letters", "delta_in_a_folder_with_other_letters")
        for command in (("inspect", "T", "files"), ("expire-snapshots", "T", *AS_OF, "--yes"))
    ]
    assert wrong(lake, [*letters, *some(EVERYTHING, budget)], *options, spoil=spoil) == []


@needs_fixtures
@few_or_many(10)
def test_tables_of_other_engines_end_as_the_command_line_says(tmp_path: Path, budget: int) -> None:
    found = []
    for number, root in enumerate(some(tables_below(FIXTURES), budget)):
        copy = shutil.copytree(root, tmp_path / str(number), symlinks=True)
        for command in some(COMMANDS, 8):
            if "PLAN" in command:
                continue
            words = [str(copy) if word == "T" else word for word in command]
            ran = iceberg_cli(*words, *JSON)
            found += [f"{root.name}: {' '.join(words)}: {each}" for each in problems(ran, [*words, *JSON])]
    assert found == []


@pytest.mark.parametrize(
    "words",
    [("demo", "D"), ("completion", "bash"), ("completion", "tcsh"), ("config", "show"), ("--version",), ()],
)
@pytest.mark.parametrize("options", [(), ("-q",), JSON], ids=" ".join)
def test_what_is_about_no_table_ends_as_it_says(
    tmp_path: Path, words: tuple[str, ...], options: tuple[str, ...]
) -> None:
    command = [str(tmp_path / "demo") if word == "D" else word for word in words]
    ran = iceberg_cli(*command, *options)
    assert ran.code in (0, 2)
    assert "Traceback" not in ran.out + ran.err
    if ran.code == 2 and "--format" in options and words:
        assert json.loads(ran.out)["exit_code"] == 2
