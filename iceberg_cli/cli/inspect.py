"""`inspect`: what a table is made of. Never writes to the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from iceberg_cli.cli.run import Run, TableArgument, command
from iceberg_cli.cli.values import integer, positive, time_ms
from iceberg_cli.errors import CorruptFile, UsageError

if TYPE_CHECKING:
    from iceberg_cli.inspection import Inspection

WHAT = (
    "summary",
    "snapshots",
    "refs",
    "history",
    "schemas",
    "specs",
    "properties",
    "manifests",
    "files",
    "deletes",
    "partitions",
    "statistics",
    "metadata-log",
    "row-ids",
)
_OF_DELTA = {
    "protocol": "format_version in the summary",
    "features": "format_version in the summary, or properties",
}
Snapshot = Annotated[
    int | None,
    typer.Option("--snapshot", metavar="ID", parser=integer, help="This snapshot, not the current one."),
]
Ref = Annotated[str | None, typer.Option(metavar="NAME", help="The head of this branch or tag.")]
At = Annotated[str | None, typer.Option(metavar="TIME", help="The snapshot that was current at this time.")]
Version = Annotated[int | None, typer.Option("--version", metavar="N", parser=integer, hidden=True)]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=integer, help="At most N rows: the newest of a log, the first of anything else."
    ),
]
Recount = Annotated[
    bool, typer.Option("--recount", help="Summary: count rows and bytes in all manifests, however large.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Hold the table against its specification; exit 15 on an error.")
]
Deep = Annotated[bool, typer.Option("--deep", help="With --check: look into Puffin and Parquet files too.")]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the rows to FILE.parquet or FILE.jsonl."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "inspect")
    def inspect(
        run: Run,
        table: TableArgument,
        what: Annotated[str, typer.Argument(metavar="[WHAT]", help=f"{', '.join(WHAT)}.")] = "summary",
        snapshot: Snapshot = None,
        ref: Ref = None,
        at: At = None,
        version: Version = None,
        limit: Limit = None,
        recount: Recount = False,
        check: Check = False,
        deep: Deep = False,
        output: Output = None,
    ) -> None:
        """Show what a table is made of. Never writes to it.

        Without WHAT a summary: one screen with snapshots, refs, files by kind, manifests, row lineage and what is due.
        Every other WHAT is a table with the columns of Iceberg's metadata table of that name.
        With --check it is findings: what in the table breaks which rule of the specification, and what to do.
        """
        _check(what, chosen=[o for o in (snapshot, ref, at) if o is not None], version=version)
        _refuse_beside_check(
            what, check=check, deep=deep, others={"--limit": limit, "--output": output, "--recount": recount}
        )
        if what == "summary" and (limit is not None or output is not None):
            raise UsageError(
                "--limit and --output are about rows; a summary has none",
                next_step=f"WHAT: {', '.join(WHAT[1:])}.",
            )
        if what != "summary" and recount:
            raise UsageError(f"--recount is about the summary, not {what}")
        if output is not None and not output.endswith((".parquet", ".jsonl")):
            raise UsageError(f"--output: {output!r} must end in .parquet or .jsonl")
        limit = positive(limit, "--limit")
        at_ms = None if at is None else time_ms(at, "--at", now_ms=run.started_ms)
        shown = _look(run, table, snapshot_id=snapshot, ref=ref, at_ms=at_ms)
        if check:
            _show_findings(run, shown, one_snapshot=bool({snapshot, ref, at} - {None}), deep=deep)
            return
        if what == "summary":
            _show_summary(run, shown, recount=recount)
            return
        from iceberg_cli.cli import inspect_rows

        if output is not None:
            inspect_rows.save(run, shown, what, output, limit=limit)
        elif run.json:
            inspect_rows.print_document(run, shown, what, limit=limit)
        elif not run.quiet:
            inspect_rows.show(run, shown, what, limit=limit)


def _check(what: str, *, chosen: list[object], version: int | None) -> None:
    """Refuse what has no meaning for an Iceberg table.

    Raises:
        UsageError: naming what was meant.
    """
    if what in _OF_DELTA:
        raise UsageError(
            f"{what!r} is about Delta tables; this tool opens Iceberg tables",
            next_step=f"Look at {_OF_DELTA[what]}.",
        )
    if what not in WHAT:
        raise UsageError(f"{what!r} cannot be inspected", next_step=f"WHAT is one of: {', '.join(WHAT)}.")
    if version is not None:
        raise UsageError(
            "--version is about Delta tables",
            next_step="For an Iceberg table: --snapshot ID, --ref NAME or --at TIME.",
        )
    if len(chosen) > 1:
        raise UsageError("--snapshot, --ref and --at each name the snapshot; give one of them")
    if chosen and what in _OF_TABLE:
        raise UsageError(
            f"--snapshot, --ref and --at do not change what {what} shows: it is about the whole table"
        )


def _refuse_beside_check(what: str, *, check: bool, deep: bool, others: Mapping[str, object]) -> None:
    """Refuse what has no meaning together with --check, and --deep without it.

    Raises:
        UsageError: naming the option.
    """
    if deep and not check:
        raise UsageError("--deep is about --check")
    if not check:
        return
    if what != "summary":
        raise UsageError(f"--check is about the whole table, not {what}")
    for option, value in others.items():
        if value:
            raise UsageError(f"{option} does not go with --check")


_OF_TABLE = ("snapshots", "refs", "history", "schemas", "specs", "properties", "statistics", "metadata-log")


def _look(run: Run, table: str, *, snapshot_id: int | None, ref: str | None, at_ms: int | None) -> Inspection:
    opened = run.open(table)
    from iceberg_cli.iceberg.inspect import select_snapshot
    from iceberg_cli.inspection import Inspection

    chosen = select_snapshot(opened.metadata, snapshot_id=snapshot_id, ref=ref, at_ms=at_ms)
    return Inspection(table=opened, snapshot=chosen, as_of_ms=run.as_of_ms)


def _show_findings(run: Run, shown: Inspection, *, one_snapshot: bool, deep: bool) -> None:
    from iceberg_cli.checking import Checking, heads_of
    from iceberg_cli.iceberg.check_rules import ERROR

    heads = heads_of(shown.table.metadata, shown.snapshot if one_snapshot else None)
    checked = Checking(table=shown.table, heads=heads, deep=deep).run()
    document = {**shown.header("check"), **checked.to_json()}
    run.progress.close()
    if run.json:
        from iceberg_cli.render import print_json

        print_json(document)
    elif not run.quiet:
        from iceberg_cli.render_findings import show_findings

        show_findings(run.out, document, verbose=run.verbose)
    if checked.findings.counts()[ERROR]:
        raise typer.Exit(CorruptFile.exit_code)


def _show_summary(run: Run, shown: Inspection, *, recount: bool) -> None:
    document = shown.summary(recount=recount)
    run.progress.close()
    if run.json:
        from iceberg_cli.render import print_json

        print_json(document)
    elif not run.quiet:
        from iceberg_cli.render_inspection import show_summary

        show_summary(run.out, document)
