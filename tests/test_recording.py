"""What `tests/recording` promises: an answer on record is given for the table that the engine was asked of, or none."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.recording import archives
from tests.recording.answers import Row, decoded, encoded
from tests.recording.canonical import form_of, form_of_file
from tests.recording.folder_state import TableFolder
from tests.recording.transcript import EngineFailed, NotOnRecord, Transcript

UUIDS = ("11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-aaaaaaaaaaaa")


def test_archives_are_small_and_each_belongs_to_a_test_that_is_there() -> None:
    found = sorted(archives.RECORDED.rglob("*"))
    files = [path for path in found if path.is_file()]
    assert files
    assert all(path.name.endswith(archives.ENDING) for path in files)
    assert max(path.stat().st_size for path in files) <= archives.MOST_BYTES
    assert sum(path.stat().st_size for path in files) <= archives.MOST_BYTES_OF_ALL
    for folder in {path.parent for path in files}:
        below = folder.relative_to(archives.RECORDED)
        if below.parts[0] in ("delta_tables", "iceberg_tables"):
            continue
        module = ast.parse((archives.RECORDED.parent / below).with_suffix(".py").read_text())
        tests = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
        starts = tuple(name.removeprefix("test_")[:80] for name in tests if name.startswith("test_"))
        assert not [path.name for path in folder.iterdir() if not path.name.startswith(starts)]


def test_what_is_drawn_is_numbered_and_times_are_all_the_same() -> None:
    text = f"{UUIDS[1]} 8123456789012345678 {UUIDS[0]} {UUIDS[1]} 1795890086745 2026-11-28 18:00:00.5 12345"
    assert form_of(text).text == "<0> <1> <2> <0> <time> <time> 12345"
    assert form_of(text, known={UUIDS[1], "1795890086745"}).text == (
        f"{UUIDS[1]} <0> <1> {UUIDS[1]} 1795890086745 <time> 12345"
    )
    assert form_of("iceberg-cli/0.7.1 iceberg-cli 1.0").text == "iceberg-cli/<version> iceberg-cli <version>"


def test_a_size_counts_unless_it_is_that_of_a_file_of_the_run() -> None:
    data = json.dumps({"size": 17, "count": 17}).encode()
    assert form_of_file("a.json", data).text == 'a.json: {"size": 17, "count": 17}'
    assert form_of_file("a.json", data, sizes={17}).text == 'a.json: {"size": "<size>", "count": 17}'


def test_rows_come_back_as_they_were() -> None:
    rows = [Row.of(("a", "b"), (1, Row.of(("c",), (b"x",)))), (None, [1.5, {"k": True}])]
    found = decoded(json.loads(json.dumps(encoded(rows))))
    assert found[0].asDict(recursive=True) == {"a": 1, "b": {"c": bytearray(b"x")}}
    assert found[1] == (None, [1.5, {"k": True}])


# -- a conversation ------------------------------------------------------------------------------------------------


def ours(folder: Path, uuid: str, rows: int = 1) -> str:
    """What a program under test writes: a file with a drawn name, and one that names it."""
    (folder / f"{uuid}.txt").write_text("content")
    (folder / "ours.json").write_text(json.dumps({"file": f"{uuid}.txt", "rows": rows}))
    return f"{uuid}.txt"


def by_engine(folder: Path, name: str) -> Callable[[], None]:
    """What an engine writes: a file that names ours."""
    return lambda: (folder / "engine.json").write_text(json.dumps({"of": name})) and None


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A conversation about a table that the first of two UUIDs was drawn for."""
    folder, path = tmp_path / "recorded", tmp_path / f"record{archives.ENDING}"
    folder.mkdir()
    table = TableFolder({"t": folder})
    name = ours(folder, UUIDS[0])
    transcript = Transcript(path, live=True)
    assert transcript.answer(table, f"files of {UUIDS[0]}", lambda: [(name, 7)]) == [(name, 7)]
    transcript.answer(table, "write", by_engine(folder, name))
    with pytest.raises(ValueError, match="no such column"):
        transcript.answer(table, "wrong", a_failure)
    transcript.close(record=True)
    return path


def a_failure() -> Any:
    raise ValueError("no such column")


def never() -> Any:
    raise AssertionError("the engine is not there")


def test_answers_speak_of_the_files_of_this_run_until_the_engine_wrote_on_them(
    record: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "now"
    folder.mkdir()
    table, transcript = TableFolder({"t": folder}), Transcript(record, live=False)
    name = ours(folder, UUIDS[1])
    assert transcript.answer(table, f"files of {UUIDS[1]}", never) == [(name, 7)]
    transcript.answer(table, "write", never)
    written = json.loads((folder / "engine.json").read_text())
    assert written == {"of": f"{UUIDS[0]}.txt"}
    assert json.loads((folder / "ours.json").read_text())["file"] == written["of"]
    assert (folder / written["of"]).exists()
    assert not (folder / name).exists()
    with pytest.raises(EngineFailed, match="no such column"):
        transcript.answer(table, "wrong", never)
    transcript.close(record=False)


def test_what_the_engine_wrote_without_naming_our_files_leaves_them_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / f"record{archives.ENDING}"
    for live, uuid in ((True, UUIDS[0]), (False, UUIDS[1])):
        folder = tmp_path / uuid
        folder.mkdir()
        name = ours(folder, uuid)
        transcript = Transcript(path, live=live)
        transcript.answer(TableFolder({"t": folder}), "write", by_engine(folder, "nothing of ours"))
        transcript.close(record=True)
        assert (folder / name).exists()
        assert json.loads((folder / "engine.json").read_text()) == {"of": "nothing of ours"}


def test_of_another_table_nothing_is_known(record: Path, tmp_path: Path) -> None:
    changes: dict[str, Callable[[Path], object]] = {
        "rows": lambda folder: ours(folder, UUIDS[1], rows=2),
        "missing": lambda folder: (folder / f"{UUIDS[1]}.txt").unlink(),
        "more": lambda folder: (folder / "more.txt").touch(),
        "content": lambda folder: (folder / f"{UUIDS[1]}.txt").write_text("other"),
    }
    for name, change in changes.items():
        folder = tmp_path / name
        folder.mkdir()
        ours(folder, UUIDS[1])
        change(folder)
        with pytest.raises(NotOnRecord, match="the table is not the one"):
            Transcript(record, live=False).answer(TableFolder({"t": folder}), f"files of {UUIDS[1]}", never)


def test_another_question_and_one_too_few_or_too_many_fail(record: Path, tmp_path: Path) -> None:
    folder = tmp_path / "now"
    folder.mkdir()
    ours(folder, UUIDS[1])
    table = TableFolder({"t": folder})
    with pytest.raises(NotOnRecord, match="asked is: rows"):
        Transcript(record, live=False).answer(table, "rows", never)
    few = Transcript(record, live=False)
    few.answer(table, f"files of {UUIDS[1]}", never)
    with pytest.raises(NotOnRecord, match="not asked any more: write"):
        few.close(record=False)
    with pytest.raises(NotOnRecord, match="nothing is on record"):
        Transcript(tmp_path / "none", live=False).answer(table, "rows", never)


def test_an_engine_that_says_something_else_is_noticed_and_recorded_only_if_asked(
    record: Path, tmp_path: Path
) -> None:
    def again(answer: int, *, recording: bool) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        table, transcript = TableFolder({"t": folder}), Transcript(record, live=True)
        name = ours(folder, UUIDS[1])
        transcript.answer(table, f"files of {UUIDS[1]}", lambda: [(name, answer)])
        transcript.answer(table, "write", by_engine(folder, name))
        with pytest.raises(ValueError, match="no such column"):
            transcript.answer(table, "wrong", a_failure)
        transcript.close(record=recording)

    before = record.read_bytes()
    again(7, recording=True)
    assert record.read_bytes() == before
    with pytest.raises(NotOnRecord, match="the engine says something else"):
        again(8, recording=False)
    again(8, recording=True)
    again(8, recording=False)
    assert record.read_bytes() != before
