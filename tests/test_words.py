"""Names say what a thing is, in the words of the formats: those that once stood for something private are refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.paths import ROOT

PACKAGE: Final = ROOT / "iceberg_cli"
# Each with what is said in its place.
PRIVATE: Final = {
    "apart": "on_workers, or distributed",
    "asked": "policy, or request",
    "dealt": "buckets",
    "exchange": "shuffle",
    "exchanging": "shuffle",
    "keyed": "keys",
    "keyer": "hash_paths, or hasher",
    "lacking": "missing, or without",
    "lane": "worker (a process), or cursor (of Avro)",
    "lanes": "workers (processes), or cursors (of Avro)",
    "learn": "remember",
    "learnt": "cached, or index",
    "liveness": "reachability",
    "parcel": "payload",
    "said": "the noun, or stated",
    "sift": "classify",
    "sifted": "decision, or filtered",
    "sifting": "filter",
    "told": "the noun, or stated",
    "travelling": "transport",
    "trusts": "overrides",
    "wanted": "projection, or targets",
}


def names_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a module gives or uses, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield node.lineno, name
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)) | ast.alias(name=name):
                yield node.lineno, name


def words_of(name: str) -> list[str]:
    """`ReachAnswer` and `reach_answer`: reach, answer."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace(".", "_").split("_")


def test_no_name_has_a_private_word() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        names = [(0, place.stem), *names_of(ast.parse(path.read_text()))]
        found += [
            f"{place}:{line}: {name}: say {PRIVATE[word]}"
            for line, name in names
            for word in words_of(name)
            if word in PRIVATE
        ]
    assert found == []


def test_each_part_of_a_name_is_a_word() -> None:
    tree = ast.parse("class WantedRows: pass\ndef f(asked, *, said=1): x.told(learnt=2)")
    assert {word for _, name in names_of(tree) for word in words_of(name)} >= {
        "wanted", "rows", "asked", "said", "told", "learnt",
    }  # fmt: skip
