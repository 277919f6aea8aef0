"""The commands of verbs that write: options from the verb's policies, one run for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from iceberg_cli.cli.commands.carry_out import ApplyOptions, carry_out
from iceberg_cli.cli.context import Run, TableArgument, command
from iceberg_cli.cli.options.arguments import (
    Argument,
    ArgumentGroup,
    VerbOptions,
    group_of,
    spelled,
    verb_group,
)
from iceberg_cli.errors import Refused, UsageError
from iceberg_cli.formats import policies_of


def register(app: typer.Typer, name: str) -> None:
    """Add the command of a verb."""
    policies = policies_of(name)
    about = next(policy.about for policy in policies.values() if policy.about)

    def groups() -> Mapping[str, ArgumentGroup]:
        return {
            "check": _check_group(
                next((policy.preflight for policy in policies.values() if policy.preflight), "")
            ),
            "options": verb_group(policies),
            "carry": group_of(ApplyOptions),
        }

    def idle(values: Mapping[str, Any]) -> list[str]:
        return [each.flag for each in group_of(ApplyOptions).arguments.values() if values.get("check")]

    @command(app, name, groups=groups, about=about, idle=idle)
    def verb(run: Run, check: bool, options: VerbOptions, carry: ApplyOptions, table: TableArgument) -> None:
        if not check:
            carry_out(run, carry, table, options)
            return
        if given := [word for word in spelled(carry, run.settings.typed) if word.startswith("--")]:
            raise UsageError(f"--check only looks; it excludes {', '.join(given)}")
        _check(run, name, table, options)


def _check_group(text: str) -> ArgumentGroup:
    """`--check` with its help, for a verb that has a preflight; the parameter is whether it was given."""
    check = Argument("check", Annotated[bool, typer.Option("--check", help=text)], False)
    return ArgumentGroup(
        {"check": check} if text else {}, lambda settings: settings.values.get("check", False)
    )


def _check(run: Run, verb: str, name: str, options: VerbOptions) -> None:
    """Print the findings of the preflight.

    Raises:
        typer.Exit: 11 where something blocks.
    """
    from iceberg_cli.cli import render
    from iceberg_cli.cli.render.inspection import show_preflight
    from iceberg_cli.plan.text import count

    table = run.open(name)
    found = table.preflight(options.policy(table, now_ms=run.as_of_ms), as_of=run.as_of_ms)
    run.progress.close()
    if run.json:
        render.print_json(found.to_json())
    elif not run.quiet or found.blocking:
        target = run.err if run.quiet else run.out
        shown = found.blocking if run.quiet else found.findings
        if found.blocking:
            verdict = f"blocked by {count(len(found.blocking), 'findings')}"
        else:
            verdict = found.nothing_due or "nothing blocks the upgrade"
        with run.paging():
            target.line(f"{verb} {name}: {verdict}", style="bold")
            show_preflight(target, [each.to_json() for each in shown])
    if found.blocking:
        raise typer.Exit(Refused.exit_code)
