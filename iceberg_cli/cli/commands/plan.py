"""`plan`: the maintenance that is due, why, and what it would free; or one verb's plan, saved to a file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iceberg_cli.cli.commands.assign_row_ids import AssignOptions
from iceberg_cli.cli.commands.carry_out import tell_what_stays
from iceberg_cli.cli.commands.expire_snapshots import ExpireOptions
from iceberg_cli.cli.commands.formats import policy_of
from iceberg_cli.cli.commands.merge_dvs import MergeOptions
from iceberg_cli.cli.commands.rewrite_manifests import RewriteManifestsOptions
from iceberg_cli.cli.commands.upgrade_v3 import UpgradeOptions
from iceberg_cli.cli.context import Run, TableArgument, command
from iceberg_cli.cli.options import OptionGroups, spread_all
from iceberg_cli.errors import IcebergCliError, UsageError
from iceberg_cli.plan.nearest import did_you_mean

if TYPE_CHECKING:
    from iceberg_cli.delta.table import DeltaTable
    from iceberg_cli.iceberg.table import IcebergTable
    from iceberg_cli.plan.plan import Plan

SURVEY_SCHEMA = "iceberg-cli/survey/1"
OPTIONS: Mapping[str, type] = {
    "expire-snapshots": ExpireOptions,
    "rewrite-manifests": RewriteManifestsOptions,
    "merge-dvs": MergeOptions,
    "upgrade-v3": UpgradeOptions,
    "assign-row-ids": AssignOptions,
}
_WORST_FIRST = (1, 13, 15, 14, 16, 12, 10, 11)  # exit codes
_HELPS = {
    "target_size": "Size of new manifests (rewrite-manifests; default: commit.manifest.target-size-bytes, else 8MiB) "
    "and of new files of deletion vectors (merge-dvs; default: write.delete.target-file-size-bytes, else 64MiB; Delta: "
    "2MiB)."
}


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "plan")
    @spread_all("chosen", OPTIONS, helps=_HELPS)
    def plan(
        run: Run,
        chosen: OptionGroups,
        table: TableArgument,
        verb: Annotated[
            str | None,
            typer.Argument(metavar="[VERB]", help=f"{', '.join(OPTIONS)}; without it, every verb."),
        ] = None,
        output: Annotated[
            str | None, typer.Option("--output", "-o", metavar="FILE", help="Save the plan.")
        ] = None,
        exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 3 if something is due.")] = False,
    ) -> None:
        """Show what maintenance is due, why, and what it would free. Writes nothing to the table.

        With a verb, --output saves its plan: the document in FILE, the files that go beside it in
        FILE.removals.parquet, which is a folder of Parquet files where they are many. `apply FILE` carries it out.
        """
        from iceberg_cli.formats.open import verbs_of

        if verb is not None and verb not in OPTIONS:
            raise UsageError(
                f"{verb!r} is no verb that can be planned.{did_you_mean(verb, OPTIONS)}",
                next_step=f"VERB is one of: {', '.join(OPTIONS)}.",
            )
        if output is not None and verb is None:
            raise UsageError("--output needs a verb: a file holds one verb's plan")
        _refuse_strays(chosen, verb)
        opened = run.open(table)
        policies = {
            name: policy_of(options, opened, now_ms=run.as_of_ms)
            for name, options in chosen.groups.items()
            if verb in (None, name)
        }
        verbs = verbs_of(opened)
        plans: list[Plan] = []
        failed: dict[str, IcebergCliError] = {}
        for name, policy in policies.items():
            try:
                plans.append(verbs[name].plan(opened, policy, as_of_ms=run.as_of_ms).plan)
            except UsageError:
                raise
            except IcebergCliError as error:
                failed[name] = error
        if not plans:
            raise _worst(failed)
        run.progress.close()
        _show_open_operations(run, opened)
        if output is not None:
            save(plans[0], output)
        if verb is None:
            _show_survey(run, table, plans, failed, chosen)
        else:
            _show(run, plans[0], output)
        if failed:
            raise typer.Exit(_worst(failed).exit_code)
        if exit_code and _anything_due(plans, alone=verb is not None):
            raise typer.Exit(3)


def _worst(failed: Mapping[str, IcebergCliError]) -> IcebergCliError:
    """The first of the errors with the worst exit code."""
    return min(failed.values(), key=lambda error: _WORST_FIRST.index(error.exit_code))


def _anything_due(plans: list[Plan], *, alone: bool) -> bool:
    """Whether maintenance is due that can be carried out: a blocked plan would stay due run after run.

    A plan with an `offer` is due only where its verb is named (`alone`).
    """
    return any(made.due and not made.blocked_by and (alone or made.offer is None) for made in plans)


def _refuse_strays(chosen: OptionGroups, verb: str | None) -> None:
    """Refuse an option of another verb than the one that is planned."""
    if verb is not None and chosen.strays[verb]:
        name = chosen.strays[verb][0]
        owners = [other for other, strays in chosen.strays.items() if name not in strays]
        raise UsageError(
            f"--{name.rstrip('_').replace('_', '-')} is an option of {', '.join(owners)}, not of {verb}"
        )


def save(plan: Plan, path: str) -> None:
    """Write a plan and, beside it, its removals; existing files are replaced.

    Raises:
        UsageError: the file cannot be written.
    """
    from iceberg_cli.operation.plan_files import save_beside, write_file
    from iceberg_cli.plan.plan import encode

    assert plan.removals is not None
    beside = f"{path}.removals.parquet"
    try:
        save_beside(plan.removals, beside)
        write_file(path, encode(plan.to_json(removals_file=os.path.basename(beside))))
    except OSError as error:
        raise UsageError(f"Cannot write the plan to {error.filename or path}: {error.strerror}") from error


def _show(run: Run, made: Plan, output: str | None) -> None:
    from iceberg_cli.cli import render
    from iceberg_cli.cli.render import plan as render_plan

    if run.json:
        render.print_json(
            made.to_json(
                removals_file=None if output is None else f"{os.path.basename(output)}.removals.parquet"
            )
        )
    elif run.quiet:
        tell_what_stays(run, made)
    else:
        render_plan.show_plan(run.out, made, verbose=run.verbose)
        if output is not None:
            run.out.print(
                render.printable(
                    f"Saved to {output}. Carry it out with: {shlex.join(['iceberg-cli', 'apply', output])}"
                )
            )


def _show_survey(
    run: Run, name: str, plans: list[Plan], failed: Mapping[str, IcebergCliError], chosen: OptionGroups
) -> None:
    """Print a block for each verb, the one that frees most first, and last those that cannot be planned."""
    from iceberg_cli.cli import render
    from iceberg_cli.cli.render import plan as render_plan

    ranked = sorted(plans, key=lambda made: -(made.removals.size_bytes if made.removals is not None else 0))
    if run.json:
        render.print_json(
            {
                "schema": SURVEY_SCHEMA,
                "table": dict(plans[0].table),
                "due": _anything_due(plans, alone=False),
                "plans": [made.to_json() for made in ranked],
                "failed": [
                    {"operation": verb, **_without_schema(render.error_document(error))}
                    for verb, error in failed.items()
                ],
            }
        )
        return
    if run.quiet:
        for made in ranked:
            tell_what_stays(run, made)
        for error in failed.values():
            render.show_error(run.err, error)
    else:
        shared = run.spelled()
        commands = [
            shlex.join(["iceberg-cli", made.verb, name, *chosen.words[made.verb], *shared]) for made in ranked
        ]
        render_plan.show_survey(run.out, ranked, commands, failed)


def _without_schema(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "schema"}


def _show_open_operations(run: Run, opened: IcebergTable | DeltaTable) -> None:
    from iceberg_cli.cli import render
    from iceberg_cli.operation.recovery import operations

    for listed in operations(opened, now_ms=run.started_ms):
        verb = listed.operation.verb if listed.operation else "?"
        line = f"open operation {listed.operation_id} ({verb}): {listed.message}"
        run.err.print(render.printable(line))
