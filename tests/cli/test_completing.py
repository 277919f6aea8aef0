"""What TAB offers of the table that is typed: quickly, silently, and never what a shell would carry out."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iceberg_cli.cli.options.candidates import candidates
from iceberg_cli.errors import UsageError
from iceberg_cli.formats import format_of
from iceberg_cli.formats.inspection import WHAT, check_request
from iceberg_cli.plan.inspection import StateSelector
from tests.cli.command_names import COMMANDS
from tests.cli.running import iceberg_cli
from tests.paths import ROOT

NOW_MS = 1_790_000_000_000
OLD, NEW = 3_051_729_675_574_597_004, 8_305_172_967_557_459_700


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two snapshots, two versions of the metadata, and a branch whose name a shell would carry out."""
    folder = tmp_path / "my tables" / "t"
    (folder / "metadata").mkdir(parents=True)
    snapshots = [
        {"snapshot-id": OLD, "timestamp-ms": NOW_MS - 86_400_000, "summary": {"operation": "append"}},
        {"snapshot-id": NEW, "timestamp-ms": NOW_MS, "summary": {"operation": "delete"}},
    ]
    refs = {
        "main": {"snapshot-id": NEW, "type": "branch"},
        "closed": {"snapshot-id": OLD, "type": "tag"},
        "$(touch owned)": {"snapshot-id": OLD, "type": "branch"},
        "two\nlines": {"snapshot-id": OLD, "type": "tag"},
    }
    first = {"format-version": 2, "current-snapshot-id": OLD, "snapshots": snapshots[:1]}
    second = {"format-version": 2, "current-snapshot-id": NEW, "snapshots": snapshots, "refs": refs}
    (folder / "metadata" / "v9.metadata.json").write_text(json.dumps(first))
    (folder / "metadata" / "v10.gz.metadata.json").write_bytes(gzip.compress(json.dumps(second).encode()))
    (folder / "metadata" / "version-hint.text").write_text("9")
    return folder


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    folder = tmp_path / "d"
    (folder / "_delta_log").mkdir(parents=True)
    for version in (0, 9, 10):
        (folder / "_delta_log" / f"{version:020}.json").touch()
    (folder / "_delta_log" / f"{9:020}.checkpoint.parquet").touch()
    return folder


def test_refs_and_snapshots_are_those_of_the_newest_metadata_newest_first(table: Path) -> None:
    assert candidates("refs", str(table))[:2] == ["main\tbranch", "closed\ttag"]
    assert candidates("snapshots", f"file://{table}") == [
        f"{NEW}\t2026-09-21T14:13:20.000Z delete",
        f"{OLD}\t2026-09-20T14:13:20.000Z append",
    ]
    assert candidates("versions", str(table)) == []


def test_a_metadata_file_and_one_without_refs_are_read_too(table: Path) -> None:
    assert candidates("refs", str(table / "metadata" / "v9.metadata.json")) == ["main\tbranch"]
    assert candidates("snapshots", str(table / "metadata" / "v9.metadata.json")) == [
        f"{OLD}\t2026-09-20T14:13:20.000Z append"
    ]


def test_the_table_is_found_as_it_is_typed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(table.parents[1]))
    monkeypatch.chdir(table.parent)
    targets = candidates("refs", str(table))
    for words in (
        [shlex.quote(str(table))], [str(table).replace(" ", "\\ ")], ["~/my\\ tables/t/"], ["t"], ["json", "./t"],
    ):  # fmt: skip
        assert candidates("refs", *words) == targets, words


def test_versions_of_a_delta_table(delta: Path) -> None:
    assert candidates("versions", str(delta)) == ["10", "9", "0"]
    assert candidates("refs", str(delta)) == candidates("snapshots", str(delta)) == []


def test_what_is_what_inspect_takes_for_the_format(table: Path, delta: Path) -> None:
    taken: dict[str, list[str]] = {"iceberg": [], "delta": []}
    for what in WHAT:
        for name, values in taken.items():
            try:
                check_request(format_of(name), what, StateSelector())
            except UsageError:
                continue
            values.append(what)
    assert candidates("what", str(table)) == taken["iceberg"]
    assert candidates("what", str(delta)) == taken["delta"]
    assert taken["iceberg"] != taken["delta"]
    assert candidates("what", "not/there") == list(WHAT)


@pytest.mark.parametrize("word", ["s3://b/t", "prod.db.t", "not/there", "", "'", "http://127.0.0.1:9/t", "~"])
def test_what_is_no_folder_here_is_not_looked_at(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert candidates("refs", word) == candidates("snapshots", word) == []


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with `iceberg-cli` in it."""
    script = tmp_path / "bin" / "iceberg-cli"
    script.parent.mkdir()
    start = shlex.join([sys.executable, "-m", "iceberg_cli"])
    script.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {start} "$@"\n')
    script.chmod(0o755)
    return script.parent


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b"\x1f\x8bnot gzip"),
        lambda file: file.write_text("[" * 100_000),
        lambda file: file.write_text('{"snapshots": [{"snapshot-id": 1}], "refs": {"a": null}}'),
        lambda file: (file.unlink(), os.mkfifo(file)),
    ],
    ids=["cut", "deep", "odd", "one that nobody writes into"],
)
def test_an_answer_that_cannot_be_given_is_silence(
    spoil: Callable[[Path], object], program: Path, table: Path
) -> None:
    spoil(table / "metadata" / "v10.gz.metadata.json")
    for kind in ("refs", "snapshots"):
        command = [program / "iceberg-cli", "__complete", kind, table]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("arguments", [[], ["nothing", "t"], ["refs"], ["refs", "\udcff"]])
def test_odd_questions_have_no_answer_and_no_error(arguments: list[str], program: Path) -> None:
    done = subprocess.run(
        [program / "iceberg-cli", "__complete", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_question_is_no_command(tmp_path: Path) -> None:
    assert "__complete" not in iceberg_cli("--help").out


def complete_in_bash(program: Path, folder: Path, *words: str) -> list[str]:
    line = " ".join(shlex.quote(word) for word in words)
    script = (
        f"source {shlex.quote(str(ROOT))}/completions/iceberg-cli.bash; "
        f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _iceberg_cli; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    return ran(["bash", "-c", script], program, folder)


def complete_in_fish(program: Path, folder: Path, *words: str) -> list[str]:
    script = f"source {ROOT}/completions/iceberg-cli.fish; complete -C {shlex.quote(' '.join(words))}"
    return [line.split("\t")[0] for line in ran(["fish", "-c", script], program, folder)]


def ran(command: list[str], program: Path, folder: Path) -> list[str]:
    path = f"{program}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **home, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


Complete = Callable[..., list[str]]


@pytest.fixture(params=["bash", "fish"])
def complete(request: pytest.FixtureRequest) -> Complete:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return {"bash": complete_in_bash, "fish": complete_in_fish}[request.param]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([""], set(COMMANDS)),
        (["re"], {"resume", "rewrite-manifests"}),
        (["inspect", "t", "metadata"], {"metadata-log"}),
        (["inspect", "plan", "--rec"], {"--recount"}),
        (["plan", "t", "--format", ""], {"text", "json"}),
        (["expire-snapshots", "t", "--cleanup", "m"], {"metadata"}),
        (["apply", "LIC"], {"LICENSE"}),
    ],
)
def test_tab_offers_what_fits(
    complete: Complete, program: Path, tmp_path: Path, words: list[str], offered: set[str]
) -> None:
    (tmp_path / "LICENSE").touch()
    assert set(complete(program, tmp_path, "iceberg-cli", *words)) == offered


def test_shells_offer_what_the_typed_table_has_and_carry_out_none_of_it(
    complete: Complete, program: Path, table: Path, delta: Path
) -> None:
    here = table.parent
    assert set(complete(program, here, "iceberg-cli", "inspect", "t", "--ref", "")) >= {"main", "closed"}
    assert complete(program, here, "iceberg-cli", "inspect", "t", "--ref", "cl") == ["closed"]
    dangerous = complete(program, here, "iceberg-cli", "inspect", "t", "--ref", "$")
    assert complete is complete_in_fish or dangerous == ["\\$\\(touch\\ owned\\)"]
    assert not list(table.parents[1].rglob("owned"))
    snapshots = complete(program, here, "iceberg-cli", "expire-snapshots", "t", "--yes", "--snapshot-id", "")
    assert set(snapshots) == {str(NEW), str(OLD)}
    assert complete(program, delta.parent, "iceberg-cli", "inspect", "d", "--version", "1") == ["10"]
    assert complete(program, delta.parent, "iceberg-cli", "inspect", "d", "pro") == ["properties", "protocol"]
    assert complete(program, here, "iceberg-cli", "inspect", "t", "pro") == ["properties"]
    assert complete(program, here, "iceberg-cli", "inspect", "s3://b/t", "--ref", "") == []
