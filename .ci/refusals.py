"""Lists where the package refuses, and a test that sees it: `python .ci/refusals.py FOLDER...`, what tests saw.

Where it refuses: every place that makes a `Refused` or one of its subclasses, and every text that becomes one of a
plan's `blocked_by`. Those are found by name: what is put into something called `blocked_by`, and what functions return
that are called there, as far as they return texts. Fails where a place was seen by no test, but for those of
refusals.toml, each with why no test of this process can see it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "iceberg_cli"
LIST: Final = Path(__file__).with_suffix(".toml")
NOT_OF_VERBS: Final = ("testing", "cli")  # the crash worlds of tests; a command line is refused before a plan
_LOOK_ONLY: Final = ("inspect", "check", "fleet")  # what they say blocks no plan
_TEXTS: Final = re.compile(r"\bstr\b")
_NOT_BLOCKING: Final = re.compile(r"warn|note")  # in names of functions
_NO_TEXT_ALONE: Final = ("str",)  # functions that return one make words for others


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the package refuses.

    Args:
        path, first, last: of its lines.
        pattern: of its text, where it blocks a plan.
        words: the beginning of its text, as it stands there.
    """

    path: str
    first: int
    last: int
    pattern: re.Pattern[str] | None
    words: str


def modules() -> dict[str, ast.Module]:
    """The package's modules by their paths."""
    paths = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in NOT_OF_VERBS
    ]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def refusing_classes(errors: ast.Module) -> frozenset[str]:
    """`Refused` and its subclasses."""
    names = {"Refused"}
    for node in errors.body:
        if isinstance(node, ast.ClassDef) and any(
            isinstance(b, ast.Name) and b.id in names for b in node.bases
        ):
            names.add(node.name)
    return frozenset(names)


def raising(path: str, tree: ast.Module, names: frozenset[str]) -> Iterator[Place]:
    """The places of a module that make a refusal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            text = next(iter(_texts(node)), None)
            words = "" if text is None else _words(text)
            yield Place(
                path=path, first=node.lineno, last=node.end_lineno or node.lineno, pattern=None, words=words
            )


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Blocking:
    """Finds the texts that may become one of a plan's `blocked_by`."""

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self._functions: dict[str, list[tuple[str, Function]]] = {}
        self._imported: dict[str, dict[str, str]] = {}  # by path and name the path of the module that has it
        self._methods = {
            id(node)
            for tree in trees.values()
            for kind in ast.walk(tree)
            if isinstance(kind, ast.ClassDef)
            for node in kind.body
        }
        for path, tree in trees.items():
            if set(_LOOK_ONLY).intersection(Path(path).parts):
                continue
            self._imported[path] = _imported(tree)
            for node in ast.walk(tree):
                if isinstance(node, Function):
                    self._functions.setdefault(node.name, []).append((path, node))
        self._seen: set[str] = set()
        self.places: dict[tuple[str, int], Place] = {}

    def find(self) -> list[Place]:
        """All of them."""
        for functions in [*self._functions.values()]:
            for path, function in functions:
                for node in ast.walk(function):
                    for value in _put_into_blocked_by(node):
                        self._take(path, function, value)
        return [*self.places.values()]

    def _take(self, path: str, function: Function, value: ast.AST) -> None:
        """Take the texts of an expression, and follow the functions and variables in it."""
        for text in _texts(value):
            words = _words(text)
            self.places[path, text.lineno] = Place(
                path=path,
                first=text.lineno,
                last=text.end_lineno or text.lineno,
                pattern=_pattern(text),
                words=words,
            )
        for node in _used(value):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    self._follow(node.func.id, [path, self._imported[path].get(node.func.id, "")])
                elif isinstance(node.func, ast.Attribute):
                    base = getattr(node.func.value, "id", "")
                    self._follow(node.func.attr, [self._imported[path].get(base, "")], methods=True)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._follow_variable(path, function, node.id)
            elif isinstance(node, ast.Attribute) and node.attr != "blocked_by":
                self._follow(node.attr, [], methods=True, properties=True)

    def _follow_variable(self, path: str, function: Function, name: str) -> None:
        key = f"{path}:{function.lineno}:{name}"
        if key in self._seen:
            return
        self._seen.add(key)
        for node in ast.walk(function):
            for value in _put_into(node, name):
                self._take(path, function, value)

    def _follow(
        self, name: str, paths: Sequence[str], *, methods: bool = False, properties: bool = False
    ) -> None:
        """Follow the functions of a name: those of these modules, and methods of all."""
        for path, function in self._functions.get(name, ()):
            returns = "" if function.returns is None else ast.unparse(function.returns)
            is_property = any(ast.unparse(each) == "property" for each in function.decorator_list)
            is_meant = path in paths if id(function) not in self._methods else methods
            key = f"{path}:{function.lineno}"
            if not is_meant or properties != is_property or key in self._seen:
                continue
            if not _TEXTS.search(returns) or returns in _NO_TEXT_ALONE or _NOT_BLOCKING.search(name):
                continue
            self._seen.add(key)
            for node in ast.walk(function):
                if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and node.value is not None:
                    self._take(path, function, node.value)


def _used(value: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression, without variables of which only an attribute is used."""
    yield value
    for child in ast.iter_child_nodes(value):
        if not (isinstance(value, ast.Attribute) and isinstance(child, ast.Name)):
            yield from _used(child)


def _imported(tree: ast.Module) -> dict[str, str]:
    """By the name that a module imports the path of the module that has it, or that it is."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                module = node.module.replace(".", "/")
                inner = f"{module}/{each.name}.py"
                found[each.asname or each.name] = inner if (ROOT / inner).exists() else f"{module}.py"
    return found


def _put_into_blocked_by(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg == "blocked_by":
        yield node.value
    yield from _put_into(node, "blocked_by")


def _put_into(node: ast.AST, name: str) -> Iterator[ast.AST]:
    """What a statement puts into a variable or attribute of this name."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None and any(_is_called(target, name) for target in targets):
            yield node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("append", "extend", "add")
        and _is_called(node.func.value, name)
    ):
        yield from node.args
    if isinstance(node, (ast.For, ast.comprehension)) and any(
        _is_called(each, name) for each in ast.walk(node.target)
    ):
        yield node.iter


def _is_called(node: ast.AST, name: str) -> bool:
    return name in (getattr(node, "attr", None), getattr(node, "id", None))


def _texts(node: ast.AST) -> Iterator[ast.JoinedStr | ast.Constant]:
    """The texts of an expression that are sentences: of several words, and not the index of something."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        if " " in _words(node).strip():
            yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def _words(text: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in text.values)


def _pattern(text: ast.JoinedStr | ast.Constant) -> re.Pattern[str]:
    parts = [text] if isinstance(text, ast.Constant) else text.values
    return re.compile(
        "".join(re.escape(str(each.value)) if isinstance(each, ast.Constant) else ".*" for each in parts),
        re.DOTALL,
    )


def seen_in(folders: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """What tests saw: by path and line, and by text, the test."""
    raised: dict[str, str] = {}
    texts: dict[str, str] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("*.json")):
            document = json.loads(path.read_text(encoding="utf-8"))
            raised = {**document["raised"], **raised}
            texts = {**document["texts"], **texts}
    return raised, texts


def test_of(place: Place, raised: dict[str, str], texts: dict[str, str]) -> str | None:
    """A test that saw a place refuse, or None."""
    if place.pattern is not None:
        return next((test for text, test in texts.items() if place.pattern.search(text)), None)
    lines = (f"{place.path}:{line}" for line in range(place.first, place.last + 1))
    return next((raised[line] for line in lines if line in raised), None)


def main() -> int:
    """Print all places with a test for each; 1 where there is none for one."""
    raised, texts = seen_in(sys.argv[1:])
    trees = modules()
    names = refusing_classes(trees["iceberg_cli/errors.py"])
    places = [place for path, tree in trees.items() for place in raising(path, tree, names)]
    places += Blocking(trees).find()
    excused: dict[str, dict[str, str]] = tomllib.loads(LIST.read_text(encoding="utf-8"))
    missing, without = 0, 0
    for place in sorted(places, key=lambda each: (each.path, each.first)):
        seen = test_of(place, raised, texts)
        reasons = excused.get(place.path, {})
        why = next((why for words, why in reasons.items() if place.words.startswith(words)), None)
        without += seen is None and why is not None
        missing += seen is None and why is None
        print(f"{place.path}:{place.first}: {place.words[:70]!r}: {seen or why or 'SEEN BY NO TEST'}")
    print(
        f"{len(places)} places refuse, {missing} of them seen by no test, and {without} for which that is excused"
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
