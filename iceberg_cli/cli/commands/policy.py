"""`policy`: what a policy file means for each table, and the settings of other tools as a policy file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from iceberg_cli.cli.commands.many_tables import (
    FleetCommand,
    fleet_policy,
    leave_with_worst,
    patterns_of,
)
from iceberg_cli.cli.context import Run, command
from iceberg_cli.errors import IcebergCliError, UsageError
from iceberg_cli.plan.text import count, did_you_mean, listed

if TYPE_CHECKING:
    from iceberg_cli.api import Table
    from iceberg_cli.fleet.due import FleetPolicy
    from iceberg_cli.fleet.listing import Failures, ListedTable
    from iceberg_cli.fleet.opening import TableOpener
    from iceberg_cli.fleet.policy_file import PolicyEntry, PolicyFile, TablePolicy
    from iceberg_cli.plan.plan import Option

POLICY_CHECK_SCHEMA: Final = "iceberg-cli/policy-check/1"
POLICY_IMPORT_SCHEMA: Final = "iceberg-cli/policy-import/1"
CHECK, IMPORT = "check", "import"
ACTIONS: Final = (CHECK, IMPORT)
FORMATS: Final = ("polaris", "s3tables", "glue", "zamboni", "iceops", "unity")


def register(app: typer.Typer) -> None:
    """Add the command."""

    # Without --quiet, as `config`.
    @command(
        app,
        "policy",
        only=("document_format", "catalog_config", "storage_option", "as_of", "verbose"),
        idle=lambda values: ["--from", "--output"] if values["action"] == CHECK else [],
        changes=False,
    )
    def policy(
        run: Run,
        action: Annotated[
            str,
            typer.Argument(
                metavar="|".join(ACTIONS),
                help="check: what a policy file means; import: another tool's settings as a policy file.",
            ),
        ],
        file: Annotated[str, typer.Argument(metavar="FILE", help="The policy file, or the other tool's.")],
        patterns: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[PATTERN...]",
                help="check: show every option for these tables; import: the tables that FILE is for, or the catalog "
                "they are in, where FILE does not name them.",
            ),
        ] = None,
        source: Annotated[
            str | None,
            typer.Option("--from", metavar="|".join(FORMATS), help="import: whose settings FILE holds."),
        ] = None,
        output: Annotated[
            str | None,
            typer.Option(
                "--output",
                "-o",
                metavar="FILE",
                help="import: write the policy file here, where none is yet.",
            ),
        ] = None,
    ) -> None:
        """Show what a policy file means for each table, or make one of another tool's settings. Writes to no table.

        `policy check FILE` checks the file and shows its entries; with patterns it shows for each table the value of
        every option of each verb that the file names, and where that value comes from: a variable, the policy file,
        the configuration file, a property of the table, or the default.

        `policy import FILE --from TOOL` prints a policy file, and on standard error what has no counterpart in it.
        """
        if action not in ACTIONS:
            raise UsageError(
                f"{action!r} is nothing that policy does.{did_you_mean(action, ACTIONS)}",
                next_step="`policy check FILE` or `policy import FILE --from TOOL`.",
            )
        if action == CHECK:
            for flag, value in (("--from", source), ("--output", output)):
                if value is not None:
                    raise UsageError(f"{flag} is an option of `policy import`", next_step="Leave it out.")
            _check(run, file, patterns or ())
            return
        if source is None or source not in FORMATS:
            given = f"--from must be {listed(FORMATS, last='or')}, not {source!r}"
            raise UsageError(
                "`policy import` needs --from"
                if source is None
                else f"{given}.{did_you_mean(source, FORMATS)}",
                next_step=f"TOOL is one of: {', '.join(FORMATS)}.",
            )
        _import(run, source, file, patterns or (), output)


def _check(run: Run, path: str, patterns: Sequence[str]) -> None:
    from iceberg_cli.cli.render.report import show_error
    from iceberg_cli.fleet.due import names_of
    from iceberg_cli.fleet.listing import Failures

    chosen = fleet_policy(run, path)
    assert chosen.file is not None, "a path was given"
    rows: list[dict[str, Any]] = []
    failures = Failures()
    unmatched = dict.fromkeys(each.text for each in chosen.file.patterns)
    fleet = FleetCommand(run, patterns_of(patterns))
    opener = fleet.opener()
    for each in fleet.tables if patterns else ():
        for text in set(unmatched) - set(chosen.file.unmatched(names_of(each))):
            del unmatched[text]
        try:
            rows.append(_row(run, chosen, opener, each))
        except IcebergCliError as error:
            failures.append((each.name, error))
            run.progress.close()
            show_error(run.err, error)
    if patterns:
        of_places = fleet.failures()
        fleet.show_failures(of_places)
        failures += of_places
    run.progress.close()
    checked = _Checked(rows=rows, failures=failures, unmatched=tuple(unmatched) if patterns else None)
    if run.json:
        from iceberg_cli.cli.render import print_json

        print_json(_document(chosen.file, checked))
    else:
        _show(run, chosen.file, checked)
    leave_with_worst(failures.codes)


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """What a policy file means for tables.

    Args:
        rows: as the document has them.
        failures: by name why a table could not be opened, a place not be listed, or what makes no sense for a table.
        unmatched: patterns of the file that mean none of the tables; None where none are named.
    """

    rows: Sequence[dict[str, Any]]
    failures: Failures
    unmatched: tuple[str, ...] | None


def _row(run: Run, chosen: FleetPolicy, opener: TableOpener, listed: ListedTable) -> dict[str, Any]:
    """What the file means for one table; only one that is maintained is opened.

    Raises:
        IcebergCliError: it cannot be opened, or an option makes no sense for it.
    """
    from iceberg_cli.fleet.due import names_of

    found = chosen.of_table(names_of(listed))
    identity: Mapping[str, str | None] = {"name": listed.name, "location": None, "format": None}
    options: dict[str, Option] = {}
    if found is not None and found.maintain and found.verbs:
        table = opener.open(listed, seen=listed.metadata_location)
        identity = table.identity
        # Where it lies is a name of it, too, which not every list tells.
        names = names_of(listed, table.identity["location"])
        found = chosen.as_narrowed(names, table.properties, as_of_ms=run.as_of_ms)
        if found is not None and found.maintain:
            options = _options(run, chosen, found, table)
    assert chosen.file is not None
    return {
        "table": dict(identity),
        "maintain": found is not None and found.maintain,
        "reason": _reason(chosen.file, found),
        "window": None if found is None or found.window is None else found.window.text,
        "options": {name: {"value": each.value, "source": each.source} for name, each in options.items()},
    }


def _reason(policy: PolicyFile, found: TablePolicy | None) -> str | None:
    """Why nothing runs on a table; None where something may."""
    if found is None:
        return f"no entry of {policy.path} matches it"
    if not found.maintain and found.is_held_by_itself:
        return found.why_not_maintained
    if not found.maintain:
        return f"{found.reason or 'maintain = false'} ({found.maintain_source})"
    return None if found.verbs else f"{policy.path} names no verb for it"


def _options(run: Run, chosen: FleetPolicy, found: TablePolicy, table: Table) -> dict[str, Option]:
    """`VERB.OPTION` of each verb that the file names, in the order in which they run, `VERB.when` first."""
    from iceberg_cli.fleet.policy_file import NEVER
    from iceberg_cli.fleet.thresholds import field_of
    from iceberg_cli.formats import verbs_in_order
    from iceberg_cli.plan.plan import Option

    options: dict[str, Option] = {}
    for verb in verbs_in_order(table.format):
        if (own := found.verbs.get(verb)) is None:
            continue
        options[f"{verb}.when"] = Option(value=own.when, source=own.when_source)
        if own.when != NEVER:
            for name, least in own.thresholds.items():
                options[f"{verb}.{field_of(name)}"] = Option(value=least, source=own.sources[f"--{name}"])
            policy = chosen.policy(own, table, as_of_ms=run.as_of_ms)
            for name, value in table.options(policy, as_of=run.as_of_ms).items():
                options[f"{verb}.{name}"] = value
    return options


_WHEN_TEXT = {"due": "runs where it is due", "always": "always runs", "never": "never runs"}


def _import(run: Run, source: str, path: str, patterns: Sequence[str], output: str | None) -> None:
    from iceberg_cli.fleet.policy_import import import_policy

    imported = import_policy(source, path, patterns)
    if output is not None:
        try:
            with open(output, "x", encoding="utf-8") as file:
                file.write(imported.text)
        except OSError as error:
            raise UsageError(
                f"Cannot write {output}: {error.strerror}", next_step="Name a file that is not there yet."
            ) from error
    if run.json:
        from iceberg_cli.cli.render import print_json

        print_json(
            {
                "schema": POLICY_IMPORT_SCHEMA,
                "file": output,
                "policy": imported.text,
                "left_out": [{"path": note.path, "message": note.text} for note in imported.notes],
            }
        )
    elif output is None:
        typer.echo(imported.text, nl=False)
    for note in imported.notes:
        run.warn(f"{path}: {note.path}: {note.text}")


def _document(policy: PolicyFile, checked: _Checked) -> dict[str, Any]:
    return {
        "schema": POLICY_CHECK_SCHEMA,
        "policy": {"path": policy.path, "digest": policy.digest},
        "entries": [_entry(each) for each in (policy.defaults, *policy.entries)],
        "tables": checked.rows,
        "failed": checked.failures.to_json(),
        "unmatched": None if checked.unmatched is None else [{"match": text} for text in checked.unmatched],
    }


def _entry(entry: PolicyEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "match": [each.text for each in entry.match],
        "except": [each.text for each in entry.exclude],
        "maintain": entry.maintain,
        "reason": entry.reason or None,
        "window": None if entry.window is None else entry.window.text,
        "unsafe": None if entry.unsafe is None else sorted(entry.unsafe),
        "verbs": {verb: dict(values) for verb, values in entry.verbs.items()},
    }


def _show(run: Run, policy: PolicyFile, checked: _Checked) -> None:
    run.out.line(f"{policy.path}: {count(len(policy.entries), 'entries')}, no faults found", style="bold")
    if checked.unmatched is None:
        for entry in (policy.defaults, *policy.entries):
            _show_entry(run, entry)
        return
    for row in checked.rows:
        _show_table(run, row)
    if checked.unmatched:
        run.out.gap()
        run.out.line(f"No table among these matches {listed(checked.unmatched, last='or')}.", style="yellow")


def _show_entry(run: Run, entry: PolicyEntry) -> None:
    from iceberg_cli.plan.inspection import TEXT

    content = _entry(entry)
    if not (entry.match or entry.verbs or entry.window):
        return
    run.out.gap()
    run.out.line(f"{entry.key}: {', '.join(content['match']) or 'every table that an entry below matches'}")
    pairs: list[tuple[str, object, str]] = [
        ("except", ", ".join(content["except"]), TEXT),
        ("maintain", None if entry.maintain is None else "yes" if entry.maintain else "no", TEXT),
        *((name, content[name], TEXT) for name in ("reason", "window")),
        ("unsafe", ", ".join(content["unsafe"] or ()), TEXT),
        *((verb, _values(values), TEXT) for verb, values in content["verbs"].items()),
    ]
    run.out.facts(pairs)


def _values(values: Mapping[str, Any]) -> str:
    """What an entry has for a verb, in words."""
    from iceberg_cli.cli.render.plan import option_text

    return ", ".join(f"{key} {option_text(key, value)}" for key, value in values.items()) or "by its defaults"


def _show_table(run: Run, row: Mapping[str, Any]) -> None:
    from iceberg_cli.cli.render.plan import option_label, option_text
    from iceberg_cli.plan.inspection import TEXT

    run.out.gap()
    run.out.line(row["table"]["name"], style="bold")
    if row["reason"] is not None:
        run.out.line(f"Nothing runs on it: {row['reason']}.")
        return
    if row["window"] is not None:
        run.out.facts([("window", row["window"], TEXT)])
    for verb in dict.fromkeys(key.partition(".")[0] for key in row["options"]):
        run.out.gap()
        own = {
            key.partition(".")[2]: each for key, each in row["options"].items() if key.startswith(f"{verb}.")
        }
        when = own.pop("when")
        run.out.line(f"{verb}: {_WHEN_TEXT[when['value']]} ({when['source']})")
        run.out.facts(
            [
                (option_label(name), f"{option_text(name, each['value'])} ({each['source']})", TEXT)
                for name, each in own.items()
            ]
        )
