"""`inspect`: the metadata of a table. Never writes to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from iceberg_cli.cli.context import OF_CHANGES, Run, TableArgument, command
from iceberg_cli.cli.options.arguments import ReportOption, integer, positive
from iceberg_cli.errors import BackendUnavailable, CorruptFile, UsageError
from iceberg_cli.formats import Format, format_of
from iceberg_cli.formats.inspection import DOCUMENTS, SAMPLE_ROWS, WHAT, check_what
from iceberg_cli.plan.text import time_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iceberg_cli.api import Table
    from iceberg_cli.formats.inspection import CheckedTable, Inspection

Snapshot = Annotated[
    int | None,
    typer.Option("--snapshot", metavar="ID", parser=integer, help="This snapshot, not the current one."),
]
Ref = Annotated[str | None, typer.Option(metavar="NAME", help="The head of this branch or tag.")]
At = Annotated[
    str | None, typer.Option(metavar="TIME", help="The snapshot or version that was current then.")
]
Version = Annotated[
    int | None,
    typer.Option("--version", metavar="N", parser=integer, help="Delta: this version, not the newest."),
]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=integer, help="At most N rows; the newest of a log, the first of anything else."
    ),
]
Recount = Annotated[
    bool,
    typer.Option(
        "--recount", help="Iceberg's summary: count rows and bytes in all manifests; however large."
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Hold the table against its specification; exit 15 on an error, 16 where a storage did not answer.",
    ),
]
Deep = Annotated[
    bool,
    typer.Option(
        "--deep",
        help="With --check: look into Puffin and Parquet files too; Delta: hold every checkpoint against the log.",
    ),
]
Snapshots = Annotated[
    int | None,
    typer.Option(
        "--snapshots",
        metavar="N",
        parser=integer,
        help="With --check: compare N snapshots with their parents; of Iceberg tables the newest that say they changed"
        " no row, 20 where nothing is said.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the rows to FILE.parquet or FILE.jsonl; - is standard output, as with --jsonl.",
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--jsonl", help="Rows, or findings of --check, as one JSON object a line; each as it is known."
    ),
]
ByPartition = Annotated[
    bool, typer.Option("--by-partition", help="With diff: a row for each partition in which files differ.")
]
First = Annotated[
    str | None,
    typer.Argument(
        metavar="[A]", help="With diff: a ref, a snapshot id (Delta: a version), or a time as of --at."
    ),
]
Second = Annotated[
    str | None, typer.Argument(metavar="[B]", help="With diff: what A is compared with; the current state.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", metavar="NAME,...", help="With sample: only these columns."),
]
_STDOUT = "-"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "inspect", without=OF_CHANGES, idle=_idle, changes=False)
    def inspect(
        run: Run,
        table: TableArgument,
        what: Annotated[str, typer.Argument(metavar="[WHAT]", help=f"{', '.join(WHAT)}.")] = "summary",
        before: First = None,
        after: Second = None,
        snapshot: Snapshot = None,
        ref: Ref = None,
        at: At = None,
        version: Version = None,
        limit: Limit = None,
        recount: Recount = False,
        check: Check = False,
        deep: Deep = False,
        snapshots: Snapshots = None,
        by_partition: ByPartition = False,
        columns: Columns = None,
        output: Output = None,
        jsonl: JsonLines = False,
        report: ReportOption = None,
    ) -> None:
        """Show what a table is made of. Never writes to it.

        Without WHAT a summary: one screen with snapshots, refs, files by kind, manifests, row lineage and what is due.
        Every other WHAT is a table with the columns of Iceberg's metadata table of that name.
        For a Delta table WHAT is summary, history, schemas, properties, protocol, features, files, deletes,
        partitions or row-ids, and rows have the fields of the log's actions.
        diff shows what B has that A has not, and the other way round; its rows are partitions.
        sample shows rows of the table, without those that deletes hide and in no promised order: 20, or as many as
        --limit says.
        With --check it is findings: what in the table breaks which rule of the specification, and what to do; also
        which compactions, of whatever program, lost rows or row ids, or brought deleted rows back.
        """
        check_what(what)
        state: dict[str, Any] = {"snapshot_id": snapshot, "ref": ref, "version": version}
        _check_rows(run, what, output, jsonl=jsonl, check=check, by_partition=by_partition)
        _check_states(what, before, after, [*state.values(), at], by_partition=by_partition)
        _refuse_beside_check(
            what,
            check=check,
            about_it={"--deep": deep, "--snapshots": snapshots is not None},
            others={"--limit": limit, "--output": output, "--recount": recount},
        )
        if limit is not None and (what == "summary" or (what == "diff" and not by_partition)):
            raise UsageError(f"--limit is about rows, and {_ROWLESS[what]}", next_step=_NEXT[what])
        if what != "summary" and recount:
            raise UsageError(f"--recount is about the summary, not {what}")
        if what != "sample" and columns:
            raise UsageError(f"--columns is about sample, not {what}")
        limit = positive(limit, "--limit")
        state["at"] = None if at is None else time_ms(at, "--at", now_ms=run.started_ms)
        _check_report(report, what)
        opened = run.open(table, even_unreadable=check)
        own = format_of(opened.format)
        state, recount = _of_format(run, own, what, state, recount=recount)
        snapshots = snapshots if own.looking.compares else run.settings.if_typed("--snapshots", snapshots)
        lines = jsonl or output == _STDOUT
        if check:
            checked = opened.check(**state, deep=deep, snapshots=snapshots, as_of=run.as_of_ms)
            if report is not None:
                _write_page(run, opened, report, state, document=checked.document)
            _show_findings(run, checked, lines=lines)
            return
        if before is not None:
            shown = opened.diff(before, after, by_partition=by_partition, limit=limit, as_of=run.as_of_ms)
        elif what == "sample":
            most = SAMPLE_ROWS if limit is None else limit
            shown = opened.sample(most, columns or (), **state, as_of=run.as_of_ms)
        else:
            shown = opened.inspect(what, **state, limit=limit, recount=recount, as_of=run.as_of_ms)
        before_reading = shown.warnings
        for warning in before_reading:
            run.warn(warning)
        if lines or output is not None or what not in DOCUMENTS:
            _show_rows(run, shown, None if lines else output, lines=lines)
        else:
            if report is not None:
                _write_page(run, opened, report, state, summary=shown)
            _show_document(run, shown)
        for warning in shown.warnings:  # what was noticed in reading the rows
            if warning not in before_reading:
                run.warn(warning)


_ROWLESS = {"summary": "a summary has none", "diff": "those of a diff are its partitions"}
_NEXT = {"summary": f"WHAT: {', '.join(WHAT[1:])}.", "diff": "Add --by-partition."}


def _check_rows(
    run: Run, what: str, output: str | None, *, jsonl: bool, check: bool, by_partition: bool
) -> None:
    """Refuse --output and --jsonl where there are no rows, or where both, or --format, say where these go.

    Raises:
        UsageError: naming the option.
    """
    option = "--jsonl" if jsonl else "--output"
    if jsonl and output is not None:
        raise UsageError("--jsonl and --output each say where the rows go; give one of them")
    if run.json and (jsonl or output == _STDOUT):
        raise UsageError(f"{option} and --format each say what standard output has; give one of them")
    if not jsonl and output is None:
        return
    if (what == "summary" and not check) or (what == "diff" and not by_partition):
        raise UsageError(f"{option} is about rows, and {_ROWLESS[what]}", next_step=_NEXT[what])
    if output not in (None, _STDOUT) and not str(output).endswith((".parquet", ".jsonl")):
        raise UsageError(f"--output: {output!r} must end in .parquet or .jsonl")


def _check_states(
    what: str, before: str | None, after: str | None, selected: Sequence[object], *, by_partition: bool
) -> None:
    """Refuse a difference without a state, and what is about differences with any other WHAT.

    Raises:
        UsageError: naming what is missing or too much.
    """
    if what != "diff":
        if before is not None:
            extra = " ".join(filter(None, (before, after)))
            raise UsageError(
                f"{what} takes no {extra!r}", next_step="`inspect TABLE diff A [B]` takes two states."
            )
        if by_partition:
            raise UsageError(f"--by-partition is about diff, not {what}")
    elif before is None:
        raise UsageError(
            "diff compares two states, and none is named",
            next_step="`inspect TABLE diff A` compares A with the current state, `inspect TABLE diff A B` with B.",
        )
    elif any(each is not None for each in selected):
        raise UsageError("diff takes its states as A and B, not by an option")


def _check_report(report: str | None, what: str) -> None:
    """Refuse a page of what has none, or one that cannot be written, before the table is looked at.

    Raises:
        UsageError: saying which.
    """
    if report is None:
        return
    if what != "summary":
        raise UsageError(f"--report is about the summary and --check, not {what}")
    from iceberg_cli.cli.page import check_target

    check_target(report)


def _write_page(
    run: Run,
    opened: Table,
    path: str,
    state: Mapping[str, Any],
    *,
    summary: Inspection | None = None,
    document: Mapping[str, Any] | None = None,
) -> None:
    """Write the page of a summary, or of the findings in `document`."""
    from iceberg_cli.cli.page import write_page
    from iceberg_cli.cli.page.table_content import read_content

    content = read_content(opened, as_of_ms=run.as_of_ms, summary=summary, state=state)
    for warning in content.warnings:
        run.warn(warning)
    found = document or content.summary
    assert found is not None, "a command without a summary has failed"
    write_page(found, path, content=content)


_STATES = {"snapshot_id": "--snapshot", "ref": "--ref", "at": "--at", "version": "--version"}


def _idle(values: Mapping[str, Any]) -> list[str]:
    """As `Idle`."""
    what = values["what"]
    check = what == "summary" and values["check"]
    rows = what not in ("summary", "diff") or (what == "diff" and values["by_partition"])
    means = {
        "--check": what == "summary",
        "--deep": check,
        "--snapshots": check,
        "--recount": what == "summary" and not check,
        "--limit": rows,
        "--output": rows,
        "--jsonl": rows or check,
        "--columns": what == "sample",
        "--by-partition": what == "diff",
        "--report": what == "summary",
        **dict.fromkeys(_STATES.values(), what != "diff"),
    }
    return [flag for flag, has_meaning in means.items() if not has_meaning]


def _of_format(
    run: Run, own: Format, what: str, state: Mapping[str, Any], *, recount: bool
) -> tuple[dict[str, Any], bool]:
    """State and recount without what a variable or file says to tables of other formats, or to another WHAT."""
    selects = () if what in own.looking.stateless else own.looking.state_options
    state = {
        name: value if _STATES[name] in selects else run.settings.if_typed(_STATES[name], value)
        for name, value in state.items()
    }
    return state, recount if own.looking.recounts else bool(run.settings.if_typed("--recount", recount))


def _refuse_beside_check(
    what: str, *, check: bool, about_it: Mapping[str, bool], others: Mapping[str, object]
) -> None:
    """Refuse arguments that have no meaning together with --check, and those about it without it.

    Raises:
        UsageError: naming the option.
    """
    if not check:
        for option, is_given in about_it.items():
            if is_given:
                raise UsageError(f"{option} is about --check")
        return
    if what != "summary":
        raise UsageError(f"--check is about the whole table, not {what}")
    for option, value in others.items():
        if value:
            raise UsageError(f"{option} does not go with --check")


def _show_findings(run: Run, checked: CheckedTable, *, lines: bool) -> None:
    document = checked.document
    run.progress.close()
    for warning in checked.warnings:
        run.warn(warning)
    if lines:
        from iceberg_cli.cli.commands import inspect_rows

        inspect_rows.print_lines(run, inspect_rows.texts(document["findings"]))
    elif run.json:
        from iceberg_cli.cli.render import print_json

        print_json(document)
    else:
        from iceberg_cli.cli.render.inspection import show_findings

        if not run.quiet:
            with run.paging():
                show_findings(run.out, document, deep_reads=checked.deep_reads)
        elif checked.errors:
            from iceberg_cli.plan.findings import ERROR

            errors = [row for row in document["findings"] if row["severity"] == ERROR]
            document = {**document, "findings": errors}
            show_findings(run.err, document, deep_reads=checked.deep_reads)
    if checked.unanswered:
        from iceberg_cli.plan.text import count

        files = count(checked.unanswered, "files")
        run.tell(f"warning: not looked at, for the storage did not answer: {files}; all others were")
        raise typer.Exit(BackendUnavailable.exit_code)
    if checked.errors:
        raise typer.Exit(CorruptFile.exit_code)


def _show_document(run: Run, shown: Inspection) -> None:
    document = shown.to_json()
    run.progress.close()
    if run.json:
        from iceberg_cli.cli.render import print_json

        print_json(document)
    elif not run.quiet:
        from iceberg_cli.cli.render.inspection import show_summary

        with run.paging():
            show_summary(
                run.out,
                shown.inspector.summary_text(document),
                folder=f"{shown.inspector.location.rstrip('/')}/",
            )


def _show_rows(run: Run, shown: Inspection, output: str | None, *, lines: bool) -> None:
    from iceberg_cli.cli.commands import inspect_rows

    rows, what, limit = shown.inspector, shown.what, shown.limit
    if lines:
        inspect_rows.print_lines(run, inspect_rows.lines(rows, what, limit=limit))
    elif output is not None:
        inspect_rows.save(run, rows, what, output, limit=limit)
    elif run.json:
        inspect_rows.print_document(run, rows, what, limit=limit)
    elif not run.quiet:
        inspect_rows.show(run, rows, what, limit=limit)
