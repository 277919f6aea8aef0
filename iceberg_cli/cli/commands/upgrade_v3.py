"""`upgrade-v3`: preflight, then format version 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from iceberg_cli.cli.commands.carry_out import ApplyOptions, carry_out
from iceberg_cli.cli.commands.formats import DELTA, ICEBERG, Foreign, refuse_foreign
from iceberg_cli.cli.context import Run, TableArgument, command
from iceberg_cli.cli.options import spelled, spread
from iceberg_cli.errors import Refused, UsageError

if TYPE_CHECKING:
    from iceberg_cli.delta.table import DeltaTable
    from iceberg_cli.delta.verbs import policies
    from iceberg_cli.iceberg.table import IcebergTable
    from iceberg_cli.iceberg.verbs.upgrade_v3.rules import UpgradePolicy
    from iceberg_cli.plan.preflight import Preflight

_RECIPE = "repair-manifests,merge-dvs,assign-row-ids"


@dataclass(frozen=True, kw_only=True)
class UpgradeOptions:
    """The options of `upgrade-v3`."""

    with_: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar=_RECIPE,
            help="Do these too, each as a step of its own: repair-manifests before the upgrade, the others after it.",
        ),
    ] = None
    unsafe_drop_tags: Annotated[
        bool,
        typer.Option(
            "--unsafe-drop-tags", help="repair-manifests drops the tags on snapshots that have to go."
        ),
    ] = False
    unsafe_keep_tags: Annotated[
        bool,
        typer.Option(
            "--unsafe-keep-tags", help="repair-manifests leaves such tags and their snapshots as they are."
        ),
    ] = False

    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Delta: a table feature by the protocol's name, such as deletionVectors or v2Checkpoint.",
        ),
    ] = None
    FOREIGN: ClassVar[Foreign] = {
        ICEBERG: {"feature": "--with"},
        DELTA: {"with_": "--feature", "unsafe_drop_tags": "", "unsafe_keep_tags": ""},
    }

    def policy(self, *, now_ms: int) -> UpgradePolicy:  # noqa: ARG002 - every group of options has this signature
        """The policy that the options spell.

        Raises:
            UsageError: an option has no meaning.
        """
        from iceberg_cli.iceberg.verbs.upgrade_v3.rules import (
            DROP,
            KEEP,
            RECIPE,
            REFUSE,
            REPAIR,
            UpgradePolicy,
        )

        requested = {part.strip() for part in (self.with_ or "").split(",")} - {""}
        if self.with_ is not None and not requested:
            raise UsageError(f"--with takes {', '.join(RECIPE)}; it names none")
        if unknown := sorted(requested - set(RECIPE)):
            raise UsageError(f"--with takes {', '.join(RECIPE)}, not {', '.join(unknown)}")
        if self.unsafe_drop_tags and self.unsafe_keep_tags:
            raise UsageError("--unsafe-drop-tags and --unsafe-keep-tags exclude each other")
        tags = DROP if self.unsafe_drop_tags else KEEP if self.unsafe_keep_tags else REFUSE
        if tags != REFUSE and REPAIR not in requested:
            raise UsageError(f"--unsafe-{tags}-tags needs --with repair-manifests, which it is about")
        return UpgradePolicy(recipe=tuple(part for part in RECIPE if part in requested), tags=tags)

    def delta_policy(self, *, now_ms: int) -> policies.UpgradePolicy:  # noqa: ARG002 - no age decides here
        """The policy for a Delta table."""
        from iceberg_cli.delta.verbs.policies import UpgradePolicy

        return UpgradePolicy(features=tuple(dict.fromkeys(self.feature or ())))


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "upgrade-v3")
    @spread("carry", ApplyOptions)
    @spread("options", UpgradeOptions)
    def upgrade_v3(
        run: Run,
        carry: ApplyOptions,
        options: UpgradeOptions,
        table: TableArgument,
        check: Annotated[
            bool,
            typer.Option(
                "--check",
                help="Only look: print what is found, exit 11 if it blocks, else 0. Not with options that carry out.",
            ),
        ] = False,
    ) -> None:
        """Look for what stands in the way of format version 3, then upgrade the table to it.

        The upgrade is one commit of metadata; no file is written anew. It cannot be taken back, and engines that
        do not read version 3 stop reading the table at once: --check lists who wrote lately.
        """
        if check:
            if given := [word for word in spelled(ApplyOptions, carry) if word.startswith("--")]:
                raise UsageError(f"--check only looks; it excludes {', '.join(given)}")
            _check(run, table, options)
        else:
            carry_out(run, carry, "upgrade-v3", table, options)


def _check(run: Run, name: str, options: UpgradeOptions) -> None:
    """Print the findings of the preflight.

    Raises:
        typer.Exit: 11 where something blocks.
    """
    from iceberg_cli.cli import render
    from iceberg_cli.cli.render import findings as render_findings

    found, nothing_due = _preflight(run, run.open(name), options)
    run.progress.close()
    if run.json:
        render.print_json(found.to_json())
    elif not run.quiet or found.blocking:
        target = run.err if run.quiet else run.out
        shown = found.blocking if run.quiet else found.findings
        render_findings.show_preflight(target, [each.to_json() for each in shown], verbose=run.verbose)
        if found.blocking:
            verdict = f"blocked by {render.count(len(found.blocking), 'findings')}"
        else:
            verdict = nothing_due or "nothing blocks the upgrade"
        target.print(render.printable(f"upgrade-v3 {name}: {verdict}"))
    if found.blocking:
        raise typer.Exit(Refused.exit_code)


def _preflight(run: Run, opened: IcebergTable | DeltaTable, options: UpgradeOptions) -> tuple[Preflight, str]:
    """The preflight of a table, and why there is nothing to upgrade, or ""."""
    if opened.format == "delta":
        from iceberg_cli.delta.verbs.upgrade_v3 import preflight as delta

        refuse_foreign(options, DELTA, opened.name)
        found = delta.preflight(opened, options.delta_policy(now_ms=run.as_of_ms), as_of_ms=run.as_of_ms)
        due = any(each.id == "feature-turned-on" for each in found.findings)
        return found, "" if due else "the table has these features: nothing to upgrade"
    from iceberg_cli.iceberg.verbs.upgrade_v3.plan import check
    from iceberg_cli.iceberg.verbs.upgrade_v3.rules import TARGET

    refuse_foreign(options, ICEBERG, opened.name)
    found = check(opened, options.policy(now_ms=run.as_of_ms), as_of_ms=run.as_of_ms)
    version = opened.metadata.format_version
    return found, f"the table has format version {version}: nothing to upgrade" if version >= TARGET else ""
