"""Commands that read their own values, held against typer's."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand

from iceberg_cli.cli.options.arguments import integer
from iceberg_cli.cli.options.plain_command import PlainCommand

WORDS = (
    ["t"],
    ["t", "rest"],
    ["--name", "", "t"],
    ["--name=x y", "t", "--flag"],
    ["t", "--no-either"],
    ["t", "--either"],
    ["t", "--many", "a", "--many", "b", "--many", ""],
    ["t", "-n", "7"],
    ["t", "--number", "-7"],
    ["t", "--number", "+07"],
    ["t", "--numbers", "1", "--numbers", "2"],
    ["t", "--plain", "12"],
    ["t", "--plain", " 12 "],
    ["--", "-t"],
    ["\udce9"],
)
MISTAKES = (
    [],
    ["t", "u", "v"],
    ["t", "--nope"],
    ["t", "--name"],
    ["t", "--number", "seven"],
    ["t", "--numbers", "1", "--numbers", "two"],
    ["t", "--plain", "1.5"],
    ["t", "--flag=1"],
)


def read_by(cls: type[TyperCommand], words: list[str]) -> object:
    """The values that a command gets from a command line, or what is wrong with it."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    got: list[dict[str, Any]] = []

    @app.command("c", cls=cls)
    def c(
        table: str,
        what: Annotated[str, typer.Argument()] = "summary",
        name: Annotated[str | None, typer.Option()] = None,
        text: Annotated[str, typer.Option()] = "auto",
        flag: Annotated[bool, typer.Option("--flag")] = False,
        either: Annotated[bool, typer.Option("--either/--no-either")] = True,
        many: Annotated[list[str] | None, typer.Option()] = None,
        number: Annotated[int | None, typer.Option("--number", "-n", parser=integer)] = None,
        numbers: Annotated[list[int] | None, typer.Option(parser=integer)] = None,
        plain: Annotated[int, typer.Option()] = 5,
    ) -> None:
        got.append(dict(locals()))

    command = typer.main.get_command(app)
    try:
        with command.make_context("c", list(words)) as context:
            command.invoke(context)
    except typer.TyperException as error:
        return error.format_message()
    return {key: value for key, value in got[0].items() if key != "got"}


@pytest.mark.parametrize("words", WORDS, ids=repr)
def test_plain_command_reads_the_values_that_typer_reads(words: list[str]) -> None:
    read = read_by(PlainCommand, words)
    assert isinstance(read, dict)
    assert read == read_by(TyperCommand, words)


@pytest.mark.parametrize("words", MISTAKES, ids=repr)
def test_plain_command_says_of_a_mistake_what_typer_says(words: list[str]) -> None:
    stated = read_by(PlainCommand, words)
    assert isinstance(stated, str)
    assert stated == read_by(TyperCommand, words)
