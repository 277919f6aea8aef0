"""Names that the locale cannot spell work by their bytes; those that are no text are one clear error."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.lakes import AS_OF, GONE, delta_with_removed_files, four_snapshots, listing
from tests.cli.running import iceberg_cli, process

NAME = "caf\u00e9 \u672c"
BYTES = "caf\udce9"  # as Python spells a name that is no UTF-8


def an_iceberg_table(folder: Path) -> set[str]:
    four_snapshots(folder).publish()
    return GONE


def a_delta_table(folder: Path) -> set[str]:
    delta_with_removed_files(folder, "\u00fc")
    return {"\u00fc.parquet"}


@pytest.fixture(scope="session", params=["C", "de_DE.ISO-8859-1"])
def locale(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine whose file names Python does not take for UTF-8."""
    found = {**os.environ, "LC_ALL": request.param, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found.pop("PYTHONIOENCODING", None)
    if request.param != "C":
        folder = tmp_path_factory.mktemp("locales")
        localedef = shutil.which("localedef")
        made = localedef and subprocess.run(
            [localedef, "-i", "de_DE", "-f", "ISO-8859-1", folder / request.param],
            check=False,
            capture_output=True,
        )
        if not made or not (folder / request.param).is_dir():
            pytest.skip("this system cannot make a locale")
        found["LOCPATH"] = str(folder)
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("make", [an_iceberg_table, a_delta_table], ids=["iceberg", "delta"])
def test_a_table_whose_name_the_locale_cannot_spell_is_the_same_table(
    tmp_path: Path, locale: dict[str, str], make: Callable[[Path], set[str]]
) -> None:
    table = tmp_path / NAME
    gone = make(table)
    before = set(listing(table))
    assert gone <= before
    shown = process("inspect", table, env=locale)
    assert (shown.code, shown.err) == (0, "")
    assert "copy" not in shown.out
    done = process("expire-snapshots", table, *AS_OF, "--yes", "--no-progress", env=locale)
    assert (done.code, done.err) == (0, ""), done.err
    assert before - set(listing(table)) == gone


@pytest.mark.few(1)
def test_the_demo_is_made_under_a_name_that_the_locale_cannot_spell(
    tmp_path: Path, locale: dict[str, str]
) -> None:
    done = process("demo", tmp_path / NAME, env=locale)
    assert done.code == 0, done.err
    assert iceberg_cli("inspect", tmp_path / NAME / "db" / "orders", "--check").code == 0


def test_where_utf_8_is_switched_off_by_hand_one_error_says_so(
    tmp_path: Path, locale: dict[str, str]
) -> None:
    done = process("inspect", tmp_path / NAME, env=locale, python=["-X", "utf8=0"])
    assert done.code == 2
    assert done.err.startswith("error: Cannot start: files are named in ")
    assert done.err.endswith("Nothing was changed.\nStart it without -X utf8=0.\n")


@pytest.mark.parametrize("arguments", [("inspect", "NAME"), ("demo", "NAME"), ("plan", "t", "-o", "NAME")])
def test_a_name_that_is_no_utf_8_is_one_clear_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    four_snapshots(tmp_path / "t").publish()
    words = [
        f"{tmp_path}/{BYTES if word == 'NAME' else word}" if word in ("NAME", "t") else word
        for word in arguments
    ]
    ran = iceberg_cli(*words, "--format", "json")
    assert (ran.code, ran.json["error"]) == (2, "UsageError")
    assert (
        ran.json["message"]
        == f"Cannot use {tmp_path}/caf\\xe9: it is no UTF-8, in which tables name their files"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_working_folder_that_is_no_utf_8_or_is_gone_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / BYTES).mkdir()
    monkeypatch.chdir(tmp_path / BYTES)
    ran = iceberg_cli("inspect", "t")
    assert ran.code == 2
    assert ran.err.startswith(f"error: Cannot use {tmp_path}/caf\\xe9: it is no UTF-8")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for arguments in (("inspect", "t"), ("demo", "x"), ("inspect", tmp_path / "t")):
        ran = iceberg_cli(*arguments)
        assert ran.code == 2
        assert ran.err.startswith(
            "error: Cannot start: the working folder cannot be told: No such file or directory"
        )
