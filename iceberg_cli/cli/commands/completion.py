"""`completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Final

import typer

from iceberg_cli.cli.help_texts import epilog
from iceberg_cli.cli.plain_command import PlainCommand
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
        script = files("iceberg_cli") / "cli" / "completions" / SCRIPTS[shell]
        typer.echo(script.read_text(encoding="utf-8"), nl=False)
