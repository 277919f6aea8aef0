"""Every error says what cannot be done, in which state things are, and what to do next."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import iceberg_cli
from iceberg_cli.errors import CorruptFile, IcebergCliError
from iceberg_cli.plan.text import did_you_mean

PACKAGE = Path(iceberg_cli.__file__).parent
NEEDED_ELSEWHERE = (
    "iceberg_cli.engines.spark.engine",
    "iceberg_cli.iceberg.catalogs.sql.committer",
)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def every_class(kind: type[IcebergCliError] = IcebergCliError) -> Iterator[type[IcebergCliError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from every_class(below)


def load_all() -> None:
    for module in pkgutil.walk_packages([str(PACKAGE)], "iceberg_cli."):
        if not module.name.startswith(NEEDED_ELSEWHERE):
            importlib.import_module(module.name)


def test_every_class_of_errors_says_what_to_do_where_who_raises_it_does_not() -> None:
    load_all()
    found = list(every_class())
    assert {each.__name__ for each in found} >= {"Refused", "StalePlan", "OutputLost", "AccessDenied"}
    for kind in found:
        error = (
            kind("/t/f", None, "it is cut short") if issubclass(kind, CorruptFile) else kind("Cannot do it")
        )
        assert error.message, kind
        assert error.state, kind
        assert error.next_step.endswith((".", "?")), kind
        assert error.next_step[0].isupper() or error.next_step[0] in "`-", kind
        assert error.general, kind


def test_classes_that_differ_in_what_helps_say_so_themselves() -> None:
    load_all()
    own = {kind for kind in every_class() if "default_next_step" in vars(kind)}
    codes = {kind.exit_code for kind in every_class()}
    assert {kind.exit_code for kind in own} == codes


def words(value: ast.expr) -> str:
    """The literal text of an expression; what it is put together with does not matter here."""
    return "".join(
        each.value
        for each in ast.walk(value)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )


def test_every_place_that_makes_an_error_says_something_and_takes_nothing_away() -> None:
    load_all()
    names, seen = {kind.__name__ for kind in every_class()}, 0
    for name, module in modules():
        for node in ast.walk(module):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if called not in names:
                continue
            seen += 1
            where = f"{name}:{node.lineno}"
            assert node.args, f"{where}: {called} without a message"
            assert not isinstance(node.args[0], ast.Constant) or node.args[0].value, where
            for keyword in node.keywords:
                if keyword.arg == "next_step" and isinstance(keyword.value, ast.Constant | ast.JoinedStr):
                    assert words(keyword.value).strip(), f"{where}: an empty {keyword.arg}"
    assert seen > 300, "the walk finds the places that raise errors"


def test_no_place_blanks_what_an_error_says() -> None:
    for name, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and not node.value.value:
                for target in node.targets:
                    assert getattr(target, "attr", None) not in ("next_step", "state"), (
                        f"{name}:{node.lineno}"
                    )


@pytest.mark.parametrize(
    ("word", "names", "expected"),
    [
        ("snapshot", ["snapshots", "refs"], " Did you mean 'snapshots'?"),
        ("Mian", ["main", "audit"], " Did you mean 'main'?"),
        ("zzz", ["main", "audit"], ""),
        ("x", [], ""),
    ],
)
def test_near_names(word: str, names: list[str], expected: str) -> None:
    assert did_you_mean(word, names) == expected
