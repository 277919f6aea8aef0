"""`plan`: the maintenance that is due, why, and what it would free; or one verb's plan, saved to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iceberg_cli.cli.commands.carry_out import FilesOption, print_files, show_plan, tell_what_stays
from iceberg_cli.cli.context import Run, TableArgument, command
from iceberg_cli.cli.options.arguments import Argument, ArgumentGroup, ReportOption, VerbOptions, verb_group
from iceberg_cli.errors import WORST_FIRST, IcebergCliError, UsageError
from iceberg_cli.formats import VERB_NAMES, is_only_alone, is_only_by_policy, place_of, policies_of, verbs_of
from iceberg_cli.plan.text import did_you_mean

if TYPE_CHECKING:
    from iceberg_cli.api import Plan, Table
    from iceberg_cli.cli.options.settings import Settings

SURVEY_SCHEMA = "iceberg-cli/survey/1"
_BY_PLACE = "argument"
_HELPS = {
    "target_size": "Size of new manifests (rewrite-manifests; default: commit.manifest.target-size-bytes, else 8MiB), "
    "of new files of deletion vectors (merge-dvs; default: write.delete.target-file-size-bytes, else 64MiB; Delta: "
    "2MiB), and of new data files (rewrite-data-files; default: write.target-file-size-bytes, else 512MiB).",
    "ref": "These branches (assign-row-ids; default: main, then every other), or the branch or tag whose snapshot gets "
    "the tag (tag; default: main).",
}


def register(app: typer.Typer) -> None:
    """Add the command."""

    def idle(values: Mapping[str, Any]) -> Sequence[str]:
        return ["--output"] if values["verb"] is None else []

    @command(app, "plan", groups=lambda: {"chosen": _every_verb()}, idle=idle, changes=False)
    def plan(
        run: Run,
        chosen: Mapping[str, VerbOptions],
        table: TableArgument,
        verb: Annotated[
            str | None,
            typer.Argument(
                metavar="[VERB]",
                help=f"{', '.join(VERB_NAMES)}; without it, all that are part of maintenance.",
            ),
        ] = None,
        output: Annotated[
            str | None, typer.Option("--output", "-o", metavar="FILE", help="Save the plan.")
        ] = None,
        exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 3 if something is due.")] = False,
        files: FilesOption = False,
        report: ReportOption = None,
    ) -> None:
        """Show what maintenance is due, why, and what it would free. Writes nothing to the table.

        With a verb, --output saves its plan: the document in FILE, the files that go beside it in
        FILE.removals.parquet, which is a folder of Parquet files where they are many. `apply FILE` carries it out.
        """
        if verb is not None and verb not in VERB_NAMES:
            raise UsageError(
                f"{verb!r} is no verb that can be planned.{did_you_mean(verb, VERB_NAMES)}",
                next_step=f"VERB is one of: {', '.join(VERB_NAMES)}.",
            )
        if output is not None and verb is None:
            raise UsageError("--output needs a verb: a file holds one verb's plan")
        _refuse_strays(chosen, verb)
        if verb is None:
            chosen = {name: options.without_own() for name, options in chosen.items()}
        _check_report(report)
        opened = run.open(table)
        policies = {
            name: chosen[name].policy(opened, now_ms=run.as_of_ms)
            for name in ([verb] if verb is not None else _maintenance(opened.format))
        }
        plans: list[Plan] = []
        failed: dict[str, IcebergCliError] = {}
        for name, policy in policies.items():
            try:
                plans.append(opened.plan(policy, as_of=run.as_of_ms))
            except UsageError:
                raise
            except IcebergCliError as error:
                failed[name] = error
        if not plans:
            raise _worst(failed)
        run.progress.close()
        _show_open_operations(run, opened)
        if output is not None:
            plans[0].save(output, on_event=run.on_event)
        _write_page(run, opened, report, table, plans, failed, chosen if verb is None else None)
        if verb is None:
            _show_survey(run, table, plans, failed, chosen, files=files)
        else:
            _show(run, plans[0], output, files=files)
        missed = {name: error for name, error in failed.items() if verb or not is_only_by_policy(name)}
        if missed:
            raise typer.Exit(_worst(missed).exit_code)
        if exit_code and _anything_due(plans, alone=verb is not None):
            raise typer.Exit(3)


def _maintenance(format_name: str) -> Sequence[str]:
    """The verbs of a format that a plan of a table is of, where none is named."""
    return [
        name
        for name in verbs_of(format_name)
        if not is_only_alone(name) and not place_of(format_name, name).planned_by_name
    ]


def _check_report(path: str | None) -> None:
    """Refuse a page that cannot be written, before the table is looked at."""
    if path is not None:
        from iceberg_cli.cli.page import check_target

        check_target(path)


def _worst(failed: Mapping[str, IcebergCliError]) -> IcebergCliError:
    """The first of the errors with the worst exit code."""
    return min(failed.values(), key=lambda error: WORST_FIRST.index(error.exit_code))


def _anything_due(plans: Sequence[Plan], *, alone: bool) -> bool:
    """Whether maintenance is due that can be carried out: a blocked plan would stay due run after run.

    A plan with an `offer` is due only where its verb is named (`alone`).
    """
    return any(each.due and not each.blocked_by and (alone or each.content.counts_as_due) for each in plans)


def _every_verb() -> ArgumentGroup:
    """The options of all verbs, those that several have once; the parameter is `VerbOptions` by verb."""
    groups = {verb: verb_group(policies_of(verb)) for verb in VERB_NAMES}
    every: dict[str, Argument] = {}
    for verb in reversed(groups):
        if not is_only_alone(verb):
            every |= groups[verb].arguments
    by_place: dict[str, Argument] = {}
    for verb in filter(is_only_alone, groups):
        for name, each in groups[verb].arguments.items():
            if each.is_option:
                every.setdefault(name, each.optional)
            else:
                by_place[verb] = each
    for name, text in _HELPS.items():
        every[name] = every[name].with_help(text)
    texts = "; ".join(f"{each.flag} of {verb}" for verb, each in sorted(by_place.items()))
    place = typer.Argument(metavar="[ARGUMENT]", help=f"What VERB takes behind it: {texts}.")
    every[_BY_PLACE] = Argument(_BY_PLACE, Annotated[str | None, place], None)

    def make(settings: Settings) -> dict[str, VerbOptions]:
        named, text = settings.values["verb"], settings.values[_BY_PLACE]
        if text is not None and named in groups and named not in by_place:
            raise UsageError(f"{text!r} is one argument too many: {named} takes none behind it")
        options = {}
        for verb, group in groups.items():
            own = settings.of_verb(verb)
            if verb in by_place:
                value = text if verb == named else None
                own = replace(own, values={**own.values, by_place[verb].name: value})
            options[verb] = group.make(own)
        return options

    return ArgumentGroup(every, make)


def _refuse_strays(chosen: Mapping[str, VerbOptions], verb: str | None) -> None:
    """Refuse an option of another verb than the one that is planned."""
    if verb is None:
        for name, options in chosen.items():
            everywhere = {flag for other, one in chosen.items() if other != name for flag in one.typed}
            if is_only_alone(name) and (own := sorted(set(options.typed) - everywhere)):
                raise UsageError(
                    f"{', '.join(own)} is of {name}, which is no part of maintenance",
                    next_step=f"Name the verb: `plan TABLE {name} ...`.",
                )
        return
    typed = {flag for options in chosen.values() for flag in options.typed}
    for flag in sorted(typed - set(chosen[verb].typed)):
        owners = [other for other, options in chosen.items() if flag in options.typed]
        raise UsageError(f"{flag} is an option of {', '.join(owners)}, not of {verb}")


def _show(run: Run, plan: Plan, output: str | None, *, files: bool) -> None:
    import shlex

    from iceberg_cli.cli import render

    print_files(run, plan.content, files=files)
    if run.json:
        render.print_json(plan.to_json(beside=output), as_line=files)
    elif run.quiet:
        tell_what_stays(run, plan.content)
    else:
        show_plan(run, plan.content, files=files)
        if output is not None:
            run.out.gap()
            run.out.line(f"Saved to {output}. Carry it out with:")
            run.out.command(shlex.join(["iceberg-cli", "apply", output]))


def _show_survey(
    run: Run,
    name: str,
    plans: list[Plan],
    failed: Mapping[str, IcebergCliError],
    chosen: Mapping[str, VerbOptions],
    *,
    files: bool,
) -> None:
    """Print a block for each verb, the one that frees most first, and last those that cannot be planned."""
    from iceberg_cli.cli import render
    from iceberg_cli.cli.render import plan as render_plan
    from iceberg_cli.cli.render.plan_files import show_files
    from iceberg_cli.cli.render.report import show_error

    ranked = _ranked(plans)
    for each in ranked:
        print_files(run, each.content, files=files)
    if run.json:
        render.print_json(_survey_document(ranked, failed), as_line=files)
        return
    if run.quiet:
        for each in ranked:
            tell_what_stays(run, each.content)
        for error in failed.values():
            show_error(run.err, error)
    else:
        with run.paging():
            render_plan.show_survey(
                run.out, [each.content for each in ranked], _commands(run, name, ranked, chosen), failed
            )
        for each in ranked if files else ():
            if each.removals.count:
                run.out.gap()
                run.out.line(f"{each.verb}:", style="bold")
                show_files(run.out, each.content)


def _ranked(plans: Sequence[Plan]) -> list[Plan]:
    """The plans, the one that frees most first."""
    return sorted(plans, key=lambda each: -(each.removals.size_bytes))


def _survey_document(ranked: Sequence[Plan], failed: Mapping[str, IcebergCliError]) -> dict[str, Any]:
    """The `survey/1` document."""
    from iceberg_cli.cli import render

    return {
        "schema": SURVEY_SCHEMA,
        "table": dict(ranked[0].table),
        "due": _anything_due(ranked, alone=False),
        "plans": [each.to_json() for each in ranked],
        "failed": [
            {"operation": verb, **_without_schema(render.error_document(error))}
            for verb, error in failed.items()
        ],
    }


def _commands(run: Run, name: str, ranked: Sequence[Plan], chosen: Mapping[str, VerbOptions]) -> list[str]:
    """The command that carries out each plan, as a shell reads it."""
    import shlex

    shared = run.spelled()
    return [
        shlex.join(["iceberg-cli", each.verb, name, *chosen[each.verb].words, *shared]) for each in ranked
    ]


def _write_page(
    run: Run,
    opened: Table,
    path: str | None,
    name: str,
    plans: Sequence[Plan],
    failed: Mapping[str, IcebergCliError],
    chosen: Mapping[str, VerbOptions] | None,
) -> None:
    """Write the page of one verb's plan, or, where `chosen` has the options of all, of every verb's; None: of none."""
    if path is None:
        return
    from iceberg_cli.cli.page import write_page
    from iceberg_cli.cli.page.table_content import read_content

    content = read_content(opened, as_of_ms=run.as_of_ms, plans=plans)
    for warning in content.warnings:
        run.warn(warning)
    if chosen is None:
        write_page(plans[0].to_json(), path, content=content, plans=plans)
        return
    ranked = _ranked(plans)
    document, commands = _survey_document(ranked, failed), _commands(run, name, ranked, chosen)
    write_page(document, path, content=content, plans=ranked, commands=commands)


def _without_schema(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "schema"}


def _show_open_operations(run: Run, opened: Table) -> None:
    from iceberg_cli.plan.inspection import operation_text

    for listed in opened.operations():
        run.err.line(f"open operation {operation_text(listed.to_json())}")
