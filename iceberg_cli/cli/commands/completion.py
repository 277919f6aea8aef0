"""`completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

import iceberg_cli
from iceberg_cli.cli.options.help_texts import epilog
from iceberg_cli.cli.options.plain_command import PlainCommand
from iceberg_cli.errors import UsageError

SCRIPTS: Final = {"bash": "iceberg-cli.bash", "zsh": "_iceberg-cli", "fish": "iceberg-cli.fish"}


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        "completion",
        cls=PlainCommand,
        short_help="Print the completion script of a shell.",
        epilog=epilog("completion"),
    )
    def completion(
        shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"{', '.join(SCRIPTS)}.")],
    ) -> None:
        """Print the completion script of a shell.

        Bash: `source <(iceberg-cli completion bash)` in ~/.bashrc. Zsh: put the script as _iceberg-cli into a folder of
        $fpath. Fish: put it as iceberg-cli.fish into ~/.config/fish/completions.
        """
        if shell not in SCRIPTS:
            raise UsageError(
                f"There is no completion script for {shell!r}",
                next_step=f"SHELL is one of: {', '.join(SCRIPTS)}.",
            )
        typer.echo((_folder() / SCRIPTS[shell]).read_text(encoding="utf-8"), nl=False)


def _folder() -> Path:
    """Where the scripts are: a wheel has them in the package, a checkout beside it."""
    package = Path(iceberg_cli.__file__).parent
    built = package / "completions"
    return built if built.is_dir() else package.parent / "completions"
