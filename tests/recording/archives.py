"""A document and the contents that it names, each once, in an archive that is the same for the same of both."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.spark_jars import DELTA, ICEBERG

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
ENDING = ".tar.xz"
MOST_BYTES = 200 * 1024
"""Of one archive."""
MOST_BYTES_OF_ALL = 10 * 1024 * 1024
_DOCUMENT = "record.json"


def load(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A document, and contents by digest."""
    with tarfile.open(path, "r:xz") as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        contents = {name: file.read() for name, file in files.items() if file is not None}
    return json.loads(contents.pop(_DOCUMENT)), contents


def save(path: Path, document: Mapping[str, Any], contents: Mapping[str, bytes]) -> None:
    """Write both, and which versions of Spark and its formats there are.

    Raises:
        ValueError: they take more than an archive may.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz", preset=9) as archive:
        text = json.dumps({"by": _engines(), **document}, indent=0)
        for name, data in [(_DOCUMENT, text.encode()), *sorted(contents.items())]:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    if len(out.getvalue()) > MOST_BYTES:
        raise ValueError(
            f"{path.name} would have {len(out.getvalue()):,} bytes, at most {MOST_BYTES:,} may be"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out.getvalue())


def _engines() -> str:
    jars = ", ".join(f"{jar.artifact} {jar.version}" for jar in (ICEBERG, DELTA[0]))
    return f"pyspark {version('pyspark')}, {jars}"
