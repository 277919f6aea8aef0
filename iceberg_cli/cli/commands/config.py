"""`config show`: the value of every option, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from iceberg_cli.cli.context import Run, command
from iceberg_cli.errors import UsageError
from iceberg_cli.formats import VERB_NAMES, policies_of
from iceberg_cli.plan.option_kinds import COMMAS
from iceberg_cli.plan.policy import DEFAULT
from iceberg_cli.plan.text import count, did_you_mean

if TYPE_CHECKING:
    from iceberg_cli.cli.options.settings import EverySettings, Settings
    from iceberg_cli.plan.plan import Option

CONFIG_SCHEMA: Final = "iceberg-cli/config/1"
SHOW: Final = "show"


def register(app: typer.Typer) -> None:
    """Add the command."""

    # Without --quiet: a file that has it for all commands would have this one say nothing of that.
    @command(app, "config", only=("document_format", "verbose"), changes=False)
    def config(
        run: Run,
        action: Annotated[
            str, typer.Argument(metavar=SHOW, help="The value of every option, and where it comes from.")
        ],
        of: Annotated[
            str | None, typer.Argument(metavar="[COMMAND]", help="Its options only; without it, all.")
        ] = None,
    ) -> None:
        """Show the value of every option and where it comes from.

        The configuration file is $ICEBERG_CLI_CONFIG, else iceberg-cli.toml in the working folder, else in
        $XDG_CONFIG_HOME/iceberg-cli. Its keys are options without the hyphens before them, for every command that has
        them; a table such as [expire-snapshots] holds those of one command, and `plan` takes a verb's from the verb's
        table. Above them stand variables such as ICEBERG_CLI_OLDER_THAN, above these the command line. --yes,
        --unsafe-... and secrets in plain text are taken from the command line alone.
        """
        if action != SHOW:
            raise UsageError(f"{action!r} is nothing that config does", next_step="`config show`.")
        every = run.settings.every
        assert every is not None, "a command line has settings of all commands"
        if of is not None and of not in every.commands:
            raise UsageError(
                f"{of!r} is no command with options.{did_you_mean(of, every.commands)}",
                next_step=f"COMMAND is one of: {', '.join(every.commands)}.",
            )
        options = _of_all(every) if of is None else _of_command(every, of)
        if run.json:
            from iceberg_cli.cli.render import print_json

            print_json(
                {
                    "schema": CONFIG_SCHEMA,
                    "command": of,
                    "file": every.path,
                    "options": {
                        name: {"value": each.value, "source": each.source} for name, each in options.items()
                    },
                }
            )
        else:
            _show(run, every, options)


def _of_command(every: EverySettings, name: str) -> dict[str, Option]:
    """The options of one command; those that `plan` takes from another place for one verb by `VERB.OPTION`."""
    settings = every.of_command(name)
    own = {flag.removeprefix("--"): _option(every, name, flag, settings) for flag in every.commands[name]}
    for verb in VERB_NAMES if name == "plan" else ():
        of_verb = settings.of_verb(verb)
        options = (each for policy in policies_of(verb).values() for each in policy.options())
        flags = (each.help_of for each in options if not each.positional)
        for flag in dict.fromkeys(flag for help_of in flags for flag in help_of):
            found = _option(every, name, flag, of_verb)
            if found != own[flag.removeprefix("--")]:
                own[f"{verb}.{flag.removeprefix('--')}"] = found
    return own


def _of_all(every: EverySettings) -> dict[str, Option]:
    """Every option once, and again by `COMMAND.OPTION` where a command has another value or source."""
    shared = every.of_all()
    options: dict[str, Option] = {}
    for command_name, flags in every.commands.items():
        for flag in flags:
            options.setdefault(flag.removeprefix("--"), _option(every, command_name, flag, shared))
    for command_name, flags in every.commands.items():
        own = every.of_command(command_name)
        for flag in flags:
            found, usual = _option(every, command_name, flag, own), options[flag.removeprefix("--")]
            # One key may be a value here and an array of it there.
            if found.source != usual.source or (found.source == DEFAULT and found != usual):
                options[f"{command_name}.{flag.removeprefix('--')}"] = found
    return options


def _option(every: EverySettings, command_name: str, flag: str, settings: Settings) -> Option:
    from iceberg_cli.cli.options.configured_values import without_secrets
    from iceberg_cli.plan.plan import Option

    argument = every.commands[command_name][flag]
    value = without_secrets(argument, settings.values[flag])
    # Not all readers of JSON have so long numbers.
    if argument.metavar.removesuffix(COMMAS) == "ID" and value is not None:
        value = [str(each) for each in value] if isinstance(value, list) else str(value)
    return Option(value=value, source=settings.sources.get(flag, DEFAULT))


def _show(run: Run, every: EverySettings, options: Mapping[str, Option]) -> None:
    """Print the options that are not as by default; with --verbose all of them."""
    from iceberg_cli.cli.render.plan import option_text
    from iceberg_cli.plan.inspection import ID, Column

    run.out.line(
        "There is no configuration file." if every.path is None else f"Configuration file: {every.path}"
    )
    shown = {name: each for name, each in options.items() if run.verbose or each.source != DEFAULT}
    if shown:
        columns = (Column("option", "name", ID), Column("value", "value"), Column("source", "source"))
        rows = [
            {"name": name, "value": option_text(name, each.value), "source": each.source}
            for name, each in shown.items()
        ]
        run.out.gap()
        run.out.grid(columns, rows)
    if left := len(options) - len(shown):
        run.out.gap()
        run.out.line(f"{count(left, 'options')} as by default; --verbose shows them.")
