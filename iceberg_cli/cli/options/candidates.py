"""Completion candidates for the shell's completion scripts: refs, snapshots, columns and the like of a table.

It reads tables in local folders only, takes a second at most, and prints nothing where it fails: the shell waits for
it, with a person in front. It does not open tables as commands do, for that loads libraries. Of catalogs it knows the
names that are configured, and asks none.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from iceberg_cli.errors import IcebergCliError
from iceberg_cli.formats import format_of
from iceberg_cli.formats.inspection import WHAT
from iceberg_cli.plan.text import iso

_LIMIT_S = 1.0
_MOST = 200
_LOCAL = "file://"
_METADATA = re.compile(r"(?:v(\d{1,18})|(\d{1,18})-[^/]+?)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_COMMIT = re.compile(r"(\d{20})\.json")
_CATALOG_CONFIG = "--catalog-config"
_NO_ANSWER = (
    IcebergCliError,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)


def answer(arguments: Sequence[str]) -> None:
    """Print the candidates, one a line, each with a description after a tab; then end the process in any case.

    Args:
        arguments: the kind and the words that are typed, see `candidates`.
    """
    # Not a signal: its handler would wait for the very call of a dead network disk that must not be waited for.
    limit = threading.Timer(_LIMIT_S, os._exit, (0,))
    limit.daemon = True
    limit.start()
    with contextlib.suppress(*_NO_ANSWER):
        lines = [line for line in candidates(*arguments) if _is_one_line(line)]
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
        sys.stdout.flush()
    os._exit(0)


def candidates(kind: str = "", *words: str) -> list[str]:
    """The values of a kind, the newest first where they have an order.

    Args:
        kind: `refs`, `snapshots`, `versions`, `columns` or `what`; `states`: what `diff` compares, where one of the
            words is that; `catalogs`, or `tables`, which begin with a catalog's name and a dot.
        words: as they were typed; the first that is a folder of a table, or a metadata file, is the table.

    Raises:
        OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError: the table cannot be read.
        UsageError: the configuration of catalogs cannot be read.
    """
    if kind in ("catalogs", "tables"):
        return [f"{name}{'.' * (kind == 'tables')}\tcatalog" for name in _catalogs(words)]
    if kind == "states":
        kinds = ("refs", "snapshots", "versions") if "diff" in words else ()
        return [line for each in kinds for line in candidates(each, *words)]
    place = next(_places(words), None)
    if place is None:
        return list(WHAT) if kind == "what" else []
    is_delta = os.path.isdir(f"{place}/_delta_log")
    match kind:
        case "what":
            return list(format_of("delta" if is_delta else "iceberg").looking.inspected)
        case "versions" if is_delta:
            names = os.listdir(f"{place}/_delta_log")
            versions = sorted(
                (int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))), reverse=True
            )
            return [str(version) for version in versions[:_MOST]]
        case "columns":
            return _columns_of_delta(place) if is_delta else _columns_of_iceberg(_metadata(place))
        case "refs" if not is_delta:
            metadata = _metadata(place)
            main = (
                {"main": {"type": "branch"}}
                if metadata.get("current-snapshot-id", -1) not in (-1, None)
                else {}
            )
            return [f"{name}\t{ref['type']}" for name, ref in {**main, **metadata.get("refs", {})}.items()]
        case "snapshots" if not is_delta:
            newest = sorted(_metadata(place).get("snapshots", []), key=lambda each: -each["timestamp-ms"])
            return [f"{each['snapshot-id']}\t{_about(each)}" for each in newest[:_MOST]]
    return []


def _catalogs(words: Sequence[str]) -> list[str]:
    """The names of the catalogs that are configured, in the file that is typed or configured, if one is."""
    from iceberg_cli.cli.options.configuration import Configuration
    from iceberg_cli.iceberg.catalogs.configuration import catalog_names

    # Some shells split a word at the `=`.
    parts = [part for word in words for part in word.split("=", 1) if part]
    typed = [file for flag, file in pairwise(parts) if flag == _CATALOG_CONFIG]
    path = next((file for word in typed for file in _unquoted(word)), None)
    return catalog_names(
        os.path.expanduser(path) if path else Configuration(dict).text_of(_CATALOG_CONFIG, "")
    )


def _columns_of_iceberg(metadata: dict[str, Any]) -> list[str]:
    schemas = metadata.get("schemas") or [metadata["schema"]]
    current = metadata.get("current-schema-id", schemas[0].get("schema-id"))
    (schema,) = [each for each in schemas if each.get("schema-id") == current]
    return [_column(each) for each in schema["fields"]]


def _columns_of_delta(place: str) -> list[str]:
    """Those of the newest commit that has metadata; none where only a checkpoint has it, whose reading takes long."""
    folder = f"{place}/_delta_log"
    for name in sorted(filter(_COMMIT.fullmatch, os.listdir(folder)), reverse=True):
        with open(f"{folder}/{name}", "rb") as file:
            lines = [line for line in file if b'"metaData"' in line]
        for action in map(json.loads, lines):
            if "metaData" in action:
                return [_column(each) for each in json.loads(action["metaData"]["schemaString"])["fields"]]
    return []


def _column(field: dict[str, Any]) -> str:
    kind = field["type"]
    return f"{field['name']}\t{kind if isinstance(kind, str) else kind['type']}"


def _about(snapshot: dict[str, Any]) -> str:
    operation = snapshot.get("summary", {}).get("operation", "")
    return f"{iso(snapshot['timestamp-ms'])} {operation}".strip()


def _places(words: Sequence[str]) -> Iterator[str]:
    """Folders of tables and metadata files of this machine among the words."""
    for word in words:
        for spelling in (word, *_unquoted(word)):
            path = os.path.expanduser(spelling.removeprefix(_LOCAL))
            if (os.path.isdir(path) and _is_table(path)) or (os.path.isfile(path) and _is_metadata(path)):
                yield path


def _is_table(folder: str) -> bool:
    return any(os.path.isdir(f"{folder}/{name}") for name in ("_delta_log", "metadata"))


def _is_metadata(path: str) -> bool:
    return _METADATA.fullmatch(os.path.basename(path)) is not None


def _unquoted(word: str) -> list[str]:
    try:
        return shlex.split(word)
    except ValueError:  # a quote is still open
        return []


def _metadata(place: str) -> dict[str, Any]:
    if os.path.isdir(place):
        numbers = {
            name: int(match[1] or match[2])
            for name in os.listdir(f"{place}/metadata")
            if (match := _METADATA.fullmatch(name))
        }
        place = f"{place}/metadata/{max(numbers, key=numbers.__getitem__)}"
    with open(place, "rb") as file:
        data = file.read()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    return found


def _is_one_line(line: str) -> bool:
    """Whether a line has no control characters, which would break it or move the cursor."""
    return all(part.isprintable() for part in line.split("\t", 1))
