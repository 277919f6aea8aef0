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

# What a shell of zsh runs before TAB: each match is printed, between two lines that are marked.
ZSH_STARTS = r"""
PROMPT=
fpath=(FOLDER ${(M)fpath:#*/Completion(|/Base|/Zsh|/Unix)})
autoload -Uz compinit
compinit -D -u
bindkey '^M' undefined
bindkey '^J' undefined
bindkey '^I' complete-word
mark() { print -rn -- $'\0\n' }
compprefuncs=(mark)
comppostfuncs=(mark exit)
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return $?
    fi
    local match
    local -a matches
    builtin compadd -A matches "$@"
    for match in $matches; do
        print -r -- "$IPREFIX$match"
    done
}
print ok
"""
# Starts that shell on a terminal of its own, types a line and TAB, and prints the matches.
ZSH_TYPES = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "source ${(q)1}"
repeat 4; do
    zpty -r shell line
    [[ $line == ok* ]] && break
done
zpty -w -n shell "$2"$'\t'
integer marks=0
while zpty -r shell line; do
    if [[ $line == *$'\0'* ]]; then
        (( marks++ )) && break || continue
    fi
    (( marks )) && print -r -- ${line%%$'\r'*}
done
exit 0
"""
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
    fields = [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "kind, of it", "required": False, "type": "string"},
        {"id": 3, "name": "tags", "required": False, "type": {"type": "list", "element": "string"}},
    ]
    schemas = [{"schema-id": 1, "fields": fields[:1]}, {"schema-id": 4, "fields": fields}]
    first = {
        "format-version": 2,
        "current-snapshot-id": OLD,
        "snapshots": snapshots[:1],
        "schema": schemas[0],
    }
    second = {
        "format-version": 2, "current-snapshot-id": NEW, "snapshots": snapshots, "refs": refs, "schemas": schemas,
        "current-schema-id": 4,
    }  # fmt: skip
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
    for version, names in ((0, ["old"]), (9, ["day", "n"])):
        schema = {"type": "struct", "fields": [{"name": name, "type": "date"} for name in names]}
        action = {"metaData": {"schemaString": json.dumps(schema)}}
        text = json.dumps({"commitInfo": {"note": '"metaData"'}}) + "\n" + json.dumps(action) + "\n"
        (folder / "_delta_log" / f"{version:020}.json").write_text(text)
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


def test_columns_are_those_of_the_current_schema(table: Path, delta: Path) -> None:
    assert candidates("columns", str(table)) == ["id\tlong", "kind, of it\tstring", "tags\tlist"]
    assert candidates("columns", str(table / "metadata" / "v9.metadata.json")) == ["id\tlong"]
    assert candidates("columns", str(delta)) == ["day\tdate", "n\tdate"]
    (delta / "_delta_log" / f"{9:020}.json").write_text("{}\n")
    (delta / "_delta_log" / f"{0:020}.json").unlink()
    assert candidates("columns", str(delta)) == []  # which a checkpoint alone has


def test_states_are_what_a_difference_compares_and_nothing_else_does(table: Path, delta: Path) -> None:
    refs = ["main\tbranch", "closed\ttag"]
    found = candidates("states", str(table), "diff", "main")
    assert (found[:2], found[-2:]) == (refs, candidates("snapshots", str(table)))
    assert candidates("states", str(delta), "diff") == ["10", "9", "0"]
    assert candidates("states", str(table), "snapshots") == candidates("states", "s3://b/t", "diff") == []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, with nothing configured."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith(("PYICEBERG_", "ICEBERG_CLI_"))]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.chdir(folder)
    return folder


def test_catalogs_are_those_of_the_configuration(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert candidates("catalogs") == []
    (home / ".pyiceberg.yaml").write_text(
        "catalog:\n  prod:\n    uri: http://127.0.0.1:1\n  test:\n    type: glue\n"
    )
    monkeypatch.setenv("PYICEBERG_CATALOG__LAB__URI", "http://127.0.0.1:1")
    assert candidates("catalogs") == ["prod\tcatalog", "test\tcatalog", "lab\tcatalog"]
    assert candidates("tables", "--limit", "3") == ["prod.\tcatalog", "test.\tcatalog", "lab.\tcatalog"]
    (home / "other one.yaml").write_text("catalog:\n  own:\n    type: glue\n")
    for words in (
        ["--catalog-config", "other\\ one.yaml"], ["--catalog-config='other one.yaml'", "t"],
        ["--catalog-config", "=", '"~/other one.yaml"'],
    ):  # fmt: skip
        assert candidates("catalogs", *words) == ["own\tcatalog", "lab\tcatalog"], words
    (home / "iceberg-cli.toml").write_text('catalog-config = "other one.yaml"\n')
    assert candidates("catalogs") == ["own\tcatalog", "lab\tcatalog"]


def test_a_question_loads_nothing_that_is_slow(table: Path, delta: Path, home: Path) -> None:
    (home / ".pyiceberg.yaml").write_text("catalog:\n  prod:\n    type: glue\n")
    code = (
        "import sys; from iceberg_cli.cli.options.candidates import candidates\n"
        "for kind in ('refs', 'snapshots', 'versions', 'columns', 'what', 'states', 'catalogs', 'tables'):\n"
        "    for table in sys.argv[1:]: assert candidates(kind, table, 'diff') or kind == 'versions' or 'd' in table\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & set("
        "'pyarrow numpy pyiceberg boto3 botocore s3fs fsspec requests rich pydantic sqlalchemy fastavro'.split()))"
    )
    command = [sys.executable, "-c", code, str(table), str(delta)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout, done.stderr) == ("\n", "")


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


def complete_in_zsh(program: Path, folder: Path, *words: str) -> list[str]:
    starts = folder / ".starts.zsh"
    starts.write_text(ZSH_STARTS.replace("FOLDER", str(ROOT / "completions")))
    return ran(["zsh", "-f", "-c", ZSH_TYPES, "zsh", str(starts), " ".join(words)], program, folder)


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
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


Complete = Callable[..., list[str]]


SHELLS: dict[str, Complete] = {"bash": complete_in_bash, "fish": complete_in_fish, "zsh": complete_in_zsh}


@pytest.fixture(params=["bash", "fish", pytest.param("zsh", marks=pytest.mark.deep)])
def complete(request: pytest.FixtureRequest) -> Complete:
    return in_shell(request.param)


def in_shell(shell: str) -> Complete:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    return SHELLS[shell]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([""], set(COMMANDS)),
        (["re"], {"remove-orphan-files", "restore", "resume", "rewrite-data-files", "rewrite-manifests"}),
        (["inspect", "t", "metadata"], {"metadata-log"}),
        (["inspect", "plan", "--rec"], {"--recount"}),
        (["plan", "t", "--format", ""], {"text", "json"}),
        (["expire-snapshots", "t", "--cleanup", "m"], {"metadata"}),
        (["upgrade-v3", "t", "--with", "me"], {"merge-dvs"}),
        (["upgrade-v3", "t", "--with", "merge-dvs,a"], {"merge-dvs,assign-row-ids"}),
        (["maintain", "--only", "exp"], {"expire-snapshots"}),
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
    assert complete is not complete_in_bash or dangerous == ["\\$\\(touch\\ owned\\)"]
    assert not list(table.parents[1].rglob("owned"))
    snapshots = complete(program, here, "iceberg-cli", "expire-snapshots", "t", "--yes", "--snapshot-id", "")
    assert set(snapshots) == {str(NEW), str(OLD)}
    assert complete(program, delta.parent, "iceberg-cli", "inspect", "d", "--version", "1") == ["10"]
    assert complete(program, delta.parent, "iceberg-cli", "inspect", "d", "pro") == ["properties", "protocol"]
    assert complete(program, here, "iceberg-cli", "inspect", "t", "pro") == ["properties"]
    assert complete(program, here, "iceberg-cli", "inspect", "s3://b/t", "--ref", "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_offers_states_columns_and_catalogs(
    shell: str, program: Path, table: Path, home: Path
) -> None:
    complete = in_shell(shell)
    here = table.parent
    (here / "photo").touch()
    (here / ".pyiceberg.yaml").write_text("catalog:\n  phone:\n    type: glue\n")
    assert complete(program, here, "iceberg-cli", "inspect", "t", "diff", "--limit", "9", "cl") == ["closed"]
    columns = complete(program, here, "iceberg-cli", "inspect", "t", "sample", "--columns", "tags,")
    if shell != "fish":  # the others have quoted them
        columns = [shlex.split(each)[0] for each in columns]
    assert columns == ["tags,id", r"tags,kind\, of it", "tags,tags"]
    assert set(complete(program, here, "iceberg-cli", "expire-snapshots", "pho")) == {"photo", "phone."}


@pytest.mark.deep
def test_what_may_follow_is_offered_where_it_may_stand(
    complete: Complete, program: Path, table: Path, home: Path
) -> None:
    here = table.parent
    (here / "photo").touch()
    (here / ".pyiceberg.yaml").write_text("catalog:\n  phone:\n    type: glue\n")
    for words, offered in (
        (["inspect", "t", "diff", "main", "cl"], {"closed"}),
        (["inspect", "t", "snapshots", "cl"], set()),
        (["assign-row-ids", "t", "--ref", "main,cl"], {"main,closed"}),
        (["inspect", "t", "--ref", "main,cl"], set()),
        (["survey", "x", "pho"], {"photo", "phone"}),
        (["policy", "check", "photo", "pho"], {"photo", "phone"}),
        (["policy", "check", "pho"], {"photo"}),
        (["inspect", "./pho"], {"photo"}),
    ):
        found = complete(program, here, "iceberg-cli", *words)
        assert {each.removeprefix("./") for each in found} == offered, words
