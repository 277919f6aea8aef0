"""JSON and YAML documents of other tools, and typed values of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iceberg_cli.errors import UsageError, how_to_install

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # a key that a path shows as it is


@dataclass(frozen=True, kw_only=True)
class Node:
    """A value of a document.

    Args:
        file: the document's, as it was named.
        path: of the value in it, "" for the whole.
        value: as JSON and YAML have it.
    """

    file: str
    path: str
    value: Any

    @property
    def where(self) -> str:
        """File and path, for messages."""
        return f"{self.file}: {self.path}" if self.path else self.file

    def child(self, key: str) -> Node | None:
        """The value of a key of an object; None where the object has it not, or null.

        Raises:
            UsageError: it is no object.
        """
        value = self.object().get(key)
        if value is None:
            return None
        return Node(file=self.file, path=self._path_of(key), value=value)

    def children(self) -> Iterator[tuple[str, Node]]:
        """The keys of an object with their values, null too.

        Raises:
            UsageError: it is no object.
        """
        for key, value in self.object().items():
            yield str(key), Node(file=self.file, path=self._path_of(str(key)), value=value)

    def _path_of(self, key: str) -> str:
        part = key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
        return f"{self.path}.{part}" if self.path else part

    def items(self) -> Iterator[Node]:
        """The elements of a list.

        Raises:
            UsageError: it is no list.
        """
        if not isinstance(self.value, list):
            raise UsageError(f"{self.where} is no list")
        for index, value in enumerate(self.value):
            yield Node(file=self.file, path=f"{self.path}[{index}]", value=value)

    def object(self) -> Mapping[str, Any]:
        """The value, which is an object.

        Raises:
            UsageError: it is none.
        """
        if not isinstance(self.value, dict):
            raise UsageError(f"{self.where} is no object")
        return self.value

    def text(self) -> str:
        """The value, which is a text.

        Raises:
            UsageError: it is none.
        """
        if not isinstance(self.value, str):
            raise UsageError(f"{self.where}: {self.value!r} is no text")
        return self.value

    def whole(self, least: int) -> int:
        """The value, which is a whole number, or the text of one.

        Raises:
            UsageError: it is none, or below `least`.
        """
        value = self.value
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{self.where}: {self.value!r} is no whole number")
        if value < least:
            raise UsageError(f"{self.where} must be at least {least}, not {value}")
        return value

    def switch(self) -> bool:
        """The value, which is true or false.

        Raises:
            UsageError: it is neither.
        """
        if not isinstance(self.value, bool):
            raise UsageError(f"{self.where}: {self.value!r} is not true or false")
        return self.value


def read_file(path: str) -> Node:
    """The document of a file.

    Raises:
        UsageError: it cannot be read, or is neither JSON nor YAML.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"Cannot read {path}: {error.strerror}", next_step="Name a file that is there."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"Cannot read {path}: it is no UTF-8", next_step=f"Correct {path}.") from error
    return Node(file=path, path="", value=_parsed(path, text))


def read_text(node: Node) -> Node:
    """The JSON document that a text of another one holds.

    Raises:
        UsageError: it is none.
    """
    try:
        return Node(file=node.file, path=node.path, value=json.loads(node.text()))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{node.where} is no JSON: {error}") from error


def _parsed(path: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.endswith(".json"):
            raise UsageError(f"Cannot read {path}: {error}", next_step=f"Correct {path}.") from error
    try:
        import yaml
    except ImportError as error:
        raise UsageError(
            f"Cannot read {path}: {error}", next_step=how_to_install(error, extra="import")
        ) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"Cannot read {path}: {reason}", next_step=f"Correct {path}.") from error
