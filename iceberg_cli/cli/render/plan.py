"""Plans as text: one verb's, or a survey of all. What comes from a table passes `printable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from iceberg_cli.cli.render import KIND_NAMES, printable, table_of
from iceberg_cli.plan.plan import Plan, Step
from iceberg_cli.plan.text import age, count, moment, size

if TYPE_CHECKING:
    from rich.console import Console

    from iceberg_cli.errors import IcebergCliError

_SHOWN_ROWS = 60
_NAMED = 3  # of the files that a step writes
_GROUPS = ("files", "versions")  # subjects of which a verdict is on many at once


def show_plan(target: Console, plan: Plan, *, verbose: bool = False, refused: bool = False) -> None:
    """Print a plan, candidate by candidate, then the totals; `refused`: the reason follows as an error."""
    table = plan.table
    target.print(
        printable(
            f"{plan.verb}: {table['name']}, {table['format']} v{table['format_version']} at {table['location']}"
        )
    )
    version = f"version {plan.base.version}" if plan.base.version.isdigit() else plan.base.version
    target.print(printable(f"as of {moment(plan.as_of_ms)}, on {version}"))
    for name, option in plan.options.items():
        if option.source != "default" or verbose:
            target.print(printable(f"  {name} = {_option_text(name, option.value)}  ({option.source})"))
    show_verdicts(target, plan, verbose=verbose)
    _show_steps(target, plan)
    show_removals(target, plan)
    for warning in plan.warnings:
        target.print(printable(f"warning: {warning}"), style="yellow")
    for reason in () if refused else plan.blocked_by:
        target.print(printable(f"blocked by: {reason}"), style="bold red")
    if not (plan.due or plan.blocked_by):
        why = plan.not_applicable
        target.print(printable("Nothing to do." if why is None else f"Nothing to do: {why}."))


def _option_text(name: str, value: object) -> str:
    match value:
        case None:
            return "not given"
        case bool():
            return "yes" if value else "no"
        case int() if name == "older_than_ms":
            return moment(value)
        case int() if name.endswith("_ms"):
            return age(value)
        case int() if name.endswith("_bytes"):
            return size(value)
        case list() | tuple():
            return ", ".join(map(str, value)) or "not given"
    return str(value)


def show_verdicts(target: Console, plan: Plan, *, verbose: bool) -> None:
    """Print a row for each verdict; long runs of equal reasons are cut unless `verbose`."""
    verdicts = plan.verdicts
    goes = _goes(plan)
    cut = 0
    if not verbose and len(verdicts) > _SHOWN_ROWS:
        cut = len(verdicts) - _SHOWN_ROWS
        verdicts = verdicts[: _SHOWN_ROWS // 2] + verdicts[-_SHOWN_ROWS // 2 :]
    timed = any(verdict.timestamp_ms is not None for verdict in verdicts)
    rows = [
        (
            verdict.subject,
            verdict.id,
            *((moment(verdict.timestamp_ms),) if timed else ()),
            "keep" if verdict.keep else goes,
            verdict.reason,
        )
        for verdict in verdicts
    ]
    if rows:
        table_of(target, ("what", "id", *(("time",) if timed else ()), "verdict", "why"), rows)
    if cut:
        target.print(f"({cut:,} rows in the middle are left out; --verbose shows all)")
    for sentence in totals(plan):
        target.print(printable(sentence))


def totals(plan: Plan, *, going_only: bool = False) -> list[str]:
    """The number of candidates of each subject that go, or change, and that stay; `going_only`: where any goes."""
    going: dict[str, int] = {}
    every: dict[str, int] = {}
    for verdict in plan.verdicts:
        if verdict.subject in _GROUPS:
            continue
        every[verdict.subject] = every.get(verdict.subject, 0) + 1
        going[verdict.subject] = going.get(verdict.subject, 0) + (not verdict.keep)
    return [
        f"{going[subject]:,} of {count(number, _plural(subject))} {_goes(plan, one=1 in (number, going[subject]))}, "
        f"{number - going[subject]:,} {'stays' if number - going[subject] == 1 else 'stay'}."
        for subject, number in every.items()
        if going[subject] or not going_only
    ]


def _goes(plan: Plan, *, one: bool = False) -> str:
    """The verb for candidates that are not kept, or for one."""
    if plan.verb == "expire-snapshots":
        return "goes" if one else "go"
    return "changes" if one else "change"


def _plural(subject: str) -> str:
    noun = subject.replace("-", " ").replace("puffin", "Puffin")
    if noun.endswith("s"):
        return noun
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def show_survey(
    target: Console,
    plans: Sequence[Plan],
    commands: Sequence[str],
    failed: Mapping[str, IcebergCliError] | None = None,
) -> None:
    """Print a block for each verb: what is due, what blocks it, and the command, on lines of their own.

    Args:
        target: the console.
        plans: in the order in which they are shown.
        commands: as a shell reads them, one for each plan.
        failed: by verb, why it cannot be planned.
    """
    for plan, line in zip(plans, commands, strict=True):
        if not plan.due:
            why = plan.not_applicable
            target.print(printable(f"{plan.verb}: nothing to do" + ("" if why is None else f": {why}")))
            continue
        removals = plan.removals
        frees = (
            f" Frees {count(removals.count, 'files')}, {size(removals.size_bytes)}."
            if removals is not None and removals.count
            else ""
        )
        target.print(printable(f"{plan.verb}: {' '.join(totals(plan, going_only=True))}{frees}"))
        if plan.offer is not None:
            target.print(printable(f"  {plan.offer}: it does not count as due"))
        for reason in plan.blocked_by:
            target.print(printable(f"  blocked by: {reason}"), style="bold red")
        # Wrapped by the terminal, not by us: what is copied is one line.
        target.print(printable(f"  {line}"), soft_wrap=True)
    for verb, error in (failed or {}).items():
        target.print(printable(f"{verb}: cannot be planned"), style="bold red")
        for text in (error.message, error.next_step):
            if text:
                target.print(printable(f"  {text}"))


def _show_steps(target: Console, plan: Plan) -> None:
    """Print the commits, where they are more than the one change of metadata that an expiry makes."""
    for number, step in enumerate(plan.steps, start=1):
        change = step.change
        if len(plan.steps) == 1 and (change is None or change.draft is None):
            return
        parts = _uncommitted(step) if change is None else [_update_text(update) for update in change.updates]
        if change is not None and change.draft is not None:
            parts.append(_draft_text(change.draft.to_json()))
        after = f" (once {step.requires})" if step.requires else ""
        target.print(printable(f"step {number}, {step.name}{after}: {', '.join(parts)}"))


def _uncommitted(step: Step) -> list[str]:
    """The lines for a step without a commit: files such as checkpoints, or none."""
    if not step.tasks:
        return ["planned then"] if step.requires else ["no commit"]
    names = [task.name for task in step.tasks[:_NAMED]]
    if len(step.tasks) > _NAMED:
        names.append(f"{len(step.tasks) - _NAMED:,} more")
    return [f"no commit, writes {', '.join(names)}"]


def _update_text(update: Mapping[str, Any]) -> str:
    """The name of an update of Iceberg, or the kind of an action of Delta."""
    if "action" in update:
        return str(update["action"])
    ((kind, action),) = update.items()
    return str(action["operation"]) if kind == "commitInfo" else str(kind)


def _draft_text(draft: Mapping[str, Any]) -> str:
    if "added_manifests" not in draft:
        return f"{count(draft['adds'], 'adds')} and {count(draft['removes'], 'removes')} of files"
    new = count(draft["added_manifests"], "new manifests")
    return f"a {draft['operation']} snapshot on {draft['ref']}: {new}, {draft['kept_manifests']:,} kept"


def show_removals(target: Console, plan: Plan) -> None:
    """Print the removals by kind, then the total."""
    removals = plan.removals
    if removals is None or not removals.count:
        target.print("No file is deleted.")
        return
    rows = [
        (KIND_NAMES[kind], f"{numbers['count']:,}", size(numbers["bytes"]))
        for kind, numbers in removals.by_kind.items()
    ]
    table_of(target, ("files that go", "count", "bytes"), rows, right=("count", "bytes"))
    target.print(f"In total {count(removals.count, 'files')}, {size(removals.size_bytes)}.")
