"""Break the code that decides what goes, one small way at a time, and see that its tests notice.

    .ci/mutants.py                 all modules of mutants.toml
    .ci/mutants.py retention.py    those whose path ends so

A mutant is one module with one comparison, connective, constant or call changed. It lives in a forked process, which
imports it in place of the module and runs the tests nearest to it until one fails. Exits 1 where more than a tenth of
the mutants that change behaviour survive; those that do not are listed, with the reason, in mutants.toml.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LIST: Final = Path(__file__).with_suffix(".toml")
MOST_SURVIVORS: Final = 0.1
# A mutant that never ends, or fills the memory, was noticed.
DEADLINE: Final = 5  # times what the tests take without a change
LEAST_DEADLINE_SECONDS: Final = 20
MOST_MEMORY_BYTES: Final = 12 << 30  # of addresses: threads and libraries reserve many
# What tests import besides the package: loaded once, for all forks.
LIBRARIES: Final = (
    "_pytest.assertion.rewrite",
    "fastavro",
    "hypothesis",
    "numpy",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pytest",
    "typer.testing",
)
# How a comparison is spelled, and the one that takes its place: at its bound, or its opposite.
COMPARISONS: Final[Mapping[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
OPERATORS: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
FUNCTIONS: Final = {
    "less": "less_equal", "less_equal": "less", "greater": "greater_equal", "greater_equal": "greater",
    "equal": "not_equal", "not_equal": "equal", "and_": "or_", "or_": "and_", "is_in": "is_null",
    "any": "all", "all": "any", "min": "max", "max": "min",
    "bisect_right": "bisect_left", "bisect_left": "bisect_right",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change to a module's text.

    `line` counts from 1; `before` and `after` are the changed lines without their indentation.
    """

    path: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """What tells it from others, also after lines above it have moved."""
        return f"{self.before} -> {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A module, the tests nearest to it (files or folders, cheapest first), and mutants that change no behaviour."""

    path: str
    tests: tuple[str, ...]
    equivalent: Mapping[str, str]


def targets(endings: Sequence[str]) -> list[Target]:
    """Those of mutants.toml whose paths end so; all without endings.

    Raises:
        SystemExit: it names files that are not there.
    """
    found = tomllib.loads(LIST.read_text())["module"]
    gone = [path for each in found for path in (each["path"], *each["tests"]) if not (ROOT / path).exists()]
    if gone:
        raise SystemExit(f"{LIST.name} names files that are not there: {' '.join(gone)}")
    chosen = [each for each in found if not endings or each["path"].endswith(tuple(endings))]
    return [
        Target(path=each["path"], tests=tuple(each["tests"]), equivalent=each.get("equivalent", {}))
        for each in chosen
    ]


# -- changes ---------------------------------------------------------------------------------------------------


def mutants_of(path: str) -> list[Mutant]:
    """All mutants of a module, in its order."""
    source = (ROOT / path).read_text()
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()
    found = []
    for node, text in _changes(ast.parse(source)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        changed = (data[:begin] + text.encode() + data[end:]).decode()
        first, last = node.lineno - 1, node.end_lineno
        extra = changed.count("\n") - source.count("\n")
        before, after = lines[first:last], changed.splitlines(keepends=True)[first : last + extra]
        found.append(
            Mutant(
                path=path, line=node.lineno, before=_one_line(before), after=_one_line(after), source=changed
            )
        )
    return found


def _one_line(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Each place of a module that is changed, and what stands there then."""
    for node in _deciding(tree):
        match node:
            case ast.Compare(left=left, ops=operators, comparators=rights):
                for place, operator in enumerate(operators):
                    _, other = COMPARISONS[type(operator)]
                    spelled = [COMPARISONS[type(each)][0] for each in operators]
                    spelled[place] = other
                    pairs = zip(spelled, map(_text, rights), strict=True)
                    yield node, " ".join([_text(left), *(f"{op} {right}" for op, right in pairs)])
            case ast.BoolOp(op=connective, values=values):
                other = " or " if isinstance(connective, ast.And) else " and "
                yield node, f"({other.join(f'({_text(value)})' for value in values)})"
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                yield node, f"({_text(operand)})"
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                yield node, f"({_text(left)} {OPERATORS[type(operator)]} {_text(right)})"
            case ast.Constant(value=bool(value)):
                yield node, str(not value)
            case ast.Constant(value=int(value)):
                yield node, str(value + 1)
            case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
                yield test, f"(not ({_text(test)}))"
            case ast.Call(func=ast.Attribute(attr="invert"), args=[argument]):
                yield node, _text(argument)
            case ast.Call(func=ast.Attribute(value=module, attr=name)) if name in FUNCTIONS:
                yield node.func, f"{_text(module)}.{FUNCTIONS[name]}"
            case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
                yield node.func, FUNCTIONS[name]
            case ast.Expr(value=ast.Call() | ast.Yield()) | ast.Raise() | ast.Continue() | ast.Break():
                yield node, "pass"
            case _:
                pass


def _text(node: ast.expr) -> str:
    return ast.unparse(node)


def _deciding(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that decide something: no annotation, docstring, assertion, message or decorator."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            match child:
                case ast.Raise():
                    yield child  # what it says decides nothing
                case ast.Assert() | ast.JoinedStr() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    pass
                case ast.AST():
                    yield child
                    yield from _deciding(child)


# -- runs ------------------------------------------------------------------------------------------------------


class _MutantLoader(importlib.machinery.SourceFileLoader):
    """Loads a mutant in place of its module."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the loader's signature
        return compile(self._source, self.path, "exec", dont_inherit=True)


@dataclass(frozen=True, slots=True)
class _MutantFinder(importlib.abc.MetaPathFinder):
    """Finds one module, and leaves the others to the finders after it."""

    name: str
    mutant: Mutant

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:  # fmt: skip
        if fullname != self.name:
            return None
        place = str(ROOT / self.mutant.path)
        loader = _MutantLoader(fullname, place, self.mutant.source)
        packages = [str(Path(place).parent)] if place.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            fullname, place, loader=loader, submodule_search_locations=packages
        )


def module_name(path: str) -> str:
    """`iceberg_cli.delta.vacuum` for `iceberg_cli/delta/vacuum.py`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def start(mutant: Mutant | None, tests: Sequence[str]) -> int:
    """Run tests in a forked process, on the module as it stands where there is no mutant; its process id."""
    process = os.fork()
    if process:
        return process
    with contextlib.suppress(BaseException):
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        import pytest

        sys.path.insert(0, str(ROOT))
        if mutant is not None:
            sys.meta_path.insert(0, _MutantFinder(module_name(mutant.path), mutant))
        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))
    os._exit(99)


@dataclass(slots=True)
class Pool:
    """Mutants at work, so many at a time."""

    jobs: int
    running: dict[int, tuple[Mutant, float]]

    def run(
        self, mutants: Sequence[Mutant], tests: Sequence[str], *, deadline_seconds: float
    ) -> Iterator[tuple[Mutant, bool]]:
        """Each mutant with whether it survived, as they end."""
        waiting = list(mutants)
        while waiting or self.running:
            while waiting and len(self.running) < self.jobs:
                mutant = waiting.pop(0)
                self.running[start(mutant, tests)] = mutant, time.monotonic()
            process, status = os.waitpid(-1, os.WNOHANG)
            if process in self.running:
                mutant, _ = self.running.pop(process)
                yield mutant, status == 0
            for late, (_, since) in self.running.items():
                if time.monotonic() - since > deadline_seconds:
                    with contextlib.suppress(ProcessLookupError):  # it has just ended
                        os.killpg(late, signal.SIGKILL)
            if not process:
                time.sleep(0.02)


def check(target: Target, pool: Pool) -> tuple[int, list[Mutant]]:
    """How many mutants of a module change behaviour, and those of them that survive.

    Raises:
        SystemExit: its tests fail without any change.
    """
    since = time.monotonic()
    _, status = os.waitpid(start(None, target.tests), 0)
    if status:
        raise SystemExit(f"{target.path}: its tests fail as it stands: {' '.join(target.tests)}")
    mutants = [mutant for mutant in mutants_of(target.path) if mutant.name not in target.equivalent]
    deadline_seconds = max(DEADLINE * (time.monotonic() - since), LEAST_DEADLINE_SECONDS)
    runs = pool.run(mutants, target.tests, deadline_seconds=deadline_seconds)
    survivors = [mutant for mutant, survived in runs if survived]
    survivors.sort(key=lambda mutant: mutant.line)
    print(f"{target.path}: {len(mutants) - len(survivors)} of {len(mutants)} noticed", flush=True)
    for mutant in survivors:
        print(f"  {mutant.path}:{mutant.line}: {mutant.name}", flush=True)
    return len(mutants), survivors


def main() -> int:
    """The share of all mutants that survive, against the bound."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("endings", nargs="*", metavar="MODULE", help="modules whose path ends so")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    arguments = parser.parse_args()
    chosen = targets(arguments.endings)
    if arguments.list:
        for target in chosen:
            for mutant in mutants_of(target.path):
                print(f"{mutant.path}:{mutant.line}: {mutant.name}")
        return 0
    for library in LIBRARIES:
        importlib.import_module(library)
    pool = Pool(arguments.jobs, {})
    results = [check(target, pool) for target in chosen]
    total, survivors = sum(count for count, _ in results), sum(len(found) for _, found in results)
    share = survivors / total if total else 0
    print(
        f"{survivors} of {total} mutants that change behaviour survive, {share:.1%}; bound {MOST_SURVIVORS:.0%}"
    )
    return int(share > MOST_SURVIVORS)


if __name__ == "__main__":
    sys.exit(main())
