"""`_last_checkpoint`, the hint where to start reading, and the checksum it carries.

The checksum does not follow the protocol's text but what Delta computes: the strings `path=value` are sorted, not the
paths. The two differ where an array of scalars has more than ten elements, and Delta rejects the text's form then.

Spec: Delta protocol, "Last Checkpoint File", "Last Checkpoint File Schema", "JSON checksum".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from iceberg_cli.encoding.strict_json import loads
from iceberg_cli.errors import CorruptFile

NAME: Final = "_last_checkpoint"
_MOST_ACTIONS: Final = 30  # as many as Delta repeats; also of sidecars
_CHECKSUM: Final = "checksum"


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Hint:
    """The V2 checkpoint that a hint names."""

    path: str  # of the top level, the bare name
    size_bytes: int
    modified_ms: int
    actions: (
        Sequence[Mapping[str, Any]] | None
    )  # all of its actions but adds, removes and sidecars; None: left out
    sidecars: Sequence[Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """As Delta writes it: what is long is left out."""
        value: dict[str, Any] = {
            "path": self.path,
            "sizeInBytes": self.size_bytes,
            "modificationTime": self.modified_ms,
        }
        if self.actions is not None and len(self.actions) <= _MOST_ACTIONS:
            value["nonFileActions"] = [dict(action) for action in self.actions]
        if len(self.sidecars) <= _MOST_ACTIONS:
            value["sidecarFiles"] = [dict(sidecar) for sidecar in self.sidecars]
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCheckpoint:
    """The content of `_last_checkpoint`."""

    version: int
    actions: int  # in all of its files
    size_bytes: int  # of all of its files
    adds: int
    schema: Mapping[str, Any] | None = None  # of the Parquet file, in the form of `schemaString`
    v2: V2Hint | None = None

    def encode(self) -> bytes:
        """The file: one line of JSON, with its checksum."""
        value: dict[str, Any] = {
            "version": self.version,
            "size": self.actions,
            "sizeInBytes": self.size_bytes,
            "numOfAddFiles": self.adds,
        }
        if self.schema is not None:
            value["checkpointSchema"] = self.schema
        if self.v2 is not None:
            value["v2Checkpoint"] = self.v2.to_json()
        value[_CHECKSUM] = json_checksum(value)
        return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def may_replace(current: bytes | None, version: int, *, newest_version: int) -> bool:
    """Whether the hint may name the checkpoint of `version`: it never goes back.

    Args:
        current: the hint as it is; None where there is none.
        version: of the checkpoint that was written.
        newest_version: of the table; a hint beyond it, or one that cannot be read, is worth nothing.
    """
    try:
        found = json.loads(current or b"")
    except (ValueError, RecursionError):
        return True
    named = found.get("version") if isinstance(found, dict) else None
    return type(named) is not int or not version < named <= newest_version


def json_checksum(document: Mapping[str, Any]) -> str:
    """The MD5 of a JSON object's canonical form, its own `checksum` left out, as Delta computes it."""
    return _digest(sorted(f"{path}={value}" for path, value in _leaves_of(document)))


def text_checksum(document: Mapping[str, Any]) -> str:
    """The MD5 of a JSON object's canonical form as the protocol's text has it: sorted by path."""
    return _digest([f"{path}={value}" for path, value in sorted(_leaves_of(document))])


def _digest(leaves: Sequence[str]) -> str:
    return hashlib.md5(",".join(leaves).encode(), usedforsecurity=False).hexdigest()


def _leaves_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Path and encoded value of everything in a JSON object but its checksum."""
    return _leaves({key: value for key, value in document.items() if key != _CHECKSUM}, ())


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _leaves(item, (*path, _encoded(key)))
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _leaves(item, (*path, str(index)))
        case str():
            yield "+".join(path), _encoded(value)
        case _:
            yield "+".join(path), json.dumps(value)


def _encoded(text: str) -> str:
    """A name or a string in quotes, with all octets escaped but letters, digits and `-._~`."""
    return f'"{quote(text, safe="")}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHint:
    """The hint `_last_checkpoint`.

    Args:
        version: of the checkpoint; None where the file cannot be believed.
        fields: of its JSON; empty likewise.
        problem: why it cannot be believed.
    """

    version: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def read_hint(data: bytes, path: str) -> CheckpointHint:
    """The hint in the file's bytes."""
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
