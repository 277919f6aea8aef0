"""Reading `_last_checkpoint`: a hint, so whatever is wrong with it is a reason to leave it alone, never an error.

Its checksum may be the protocol text's or Delta's own, which sorts otherwise; either is right.

Spec: "Last Checkpoint File Schema", "JSON checksum".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from iceberg_cli.delta.last_checkpoint import json_checksum
from iceberg_cli.errors import CorruptFile
from iceberg_cli.strict_json import loads


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHint:
    """What `_last_checkpoint` says.

    Args:
        version: of the checkpoint; None where the file cannot be believed.
        fields: of its JSON; empty likewise.
        problem: why it cannot be believed.
    """

    version: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def read_hint(data: bytes, path: str) -> CheckpointHint:
    """What the file's bytes say."""
    try:
        fields = loads(data, path)
    except CorruptFile as error:
        return CheckpointHint(problem=error.reason)
    version, checksum = fields.get("version"), fields.get("checksum")
    if type(version) is not int or version < 0:
        return CheckpointHint(problem=f"its version is {version!r:.40}")
    if checksum is not None and checksum not in {json_checksum(fields), text_checksum(fields)}:
        return CheckpointHint(problem=f"its checksum is {checksum!r:.40}, which is not that of its content")
    return CheckpointHint(version=version, fields=fields)


def text_checksum(document: Mapping[str, Any]) -> str:
    """The MD5 of a JSON object's canonical form as the protocol's text has it: sorted by path."""
    leaves = sorted(_leaves({key: value for key, value in document.items() if key != "checksum"}, ""))
    text = ",".join(f"{path}={value}" for path, value in leaves)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _leaves(item, _below(path, _encoded(key)))
        case list():
            for index, item in enumerate(value):
                yield from _leaves(item, _below(path, str(index)))
        case str():
            yield path, _encoded(value)
        case _:
            yield path, json.dumps(value)


def _below(path: str, name: str) -> str:
    return f"{path}+{name}" if path else name


def _encoded(text: str) -> str:
    return f'"{quote(text, safe="-._~")}"'
