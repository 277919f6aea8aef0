"""Golden files: what the program wrote and said when they were made, byte for byte.

`pytest tests/golden --regenerate` writes all of them anew; the diff shows what changed, and the commit says why.
Journals and documents only gain fields or get a new number; texts and help change in the commit that means to.

They were made with the versions in `made_with.json`. Where these are installed a golden file is compared as it is,
elsewhere without sizes and digests: see `marked`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from iceberg_cli import __version__

FOLDER = Path(__file__).parent / "files"
MADE_WITH = Path(__file__).parent / "made_with.json"
_LIBRARIES = ("fastavro", "isal", "numpy", "pyarrow", "rich", "typer")

Hold = Callable[[str, str], None]


def versions() -> dict[str, str]:
    """Of what has a say in sizes of compressed files, in what is made of these, and in how a text is laid out."""
    found = {name: version(name) for name in _LIBRARIES}
    return {"iceberg-cli": __version__, "zlib": zlib.ZLIB_RUNTIME_VERSION, **found}


def as_made(record: Path = MADE_WITH) -> bool:
    """Whether all versions are those with which the golden files were made, of which there is a record."""
    made_with: dict[str, str] = json.loads(record.read_text(encoding="utf-8"))
    return made_with == versions()


def record_versions(record: Path = MADE_WITH) -> None:
    """Write down with which versions golden files were made."""
    record.write_text(json.dumps(versions(), indent=1) + "\n", encoding="utf-8")


def golden(name: str) -> str:
    """The text of a golden file."""
    return (FOLDER / name).read_text(encoding="utf-8")


def marked(text: str) -> str:
    """A golden text, or today's, without what another version of a library changes.

    Avro and Parquet files have other sizes then: every number, with its unit, and every digest becomes `#`, and a run
    of blanks or lines one, for columns are as wide as their numbers. Words, names and their order stay.
    """
    text = re.sub(r"(?<![0-9a-f])[0-9a-f]{32,64}(?![0-9a-f])", "#", text)
    text = re.sub(r"\d[\d.,]*(?: (?:B|[KMGT]i?B|bytes?)\b)?", "#", text)
    return re.sub(r"[ ─━]+", " ", text)


def hold_to(name: str, text: str, *, regenerate: bool) -> None:
    """Compare a text with a golden file, or write it there."""
    path = FOLDER / name
    if regenerate:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        record_versions()
        return
    golden = path.read_text(encoding="utf-8")
    if as_made():
        same = text == golden
    else:
        text, golden = marked(text), marked(golden)
        same = text == golden
    if not same:
        # Lines, for pytest shows which of them differ.
        assert text.splitlines() == golden.splitlines(), f"not as in {path.name}"
        pytest.fail(f"other line ends than in {path.name}")
