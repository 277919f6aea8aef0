"""Plans as text: one verb's, or a survey of all. The verdict comes first, and candidates that are alike are one row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.cli.render.kinds import KIND_NAMES
from iceberg_cli.cli.render.layout import GAP
from iceberg_cli.cli.render.rewrite import rewrite_text, show_rewrite
from iceberg_cli.formats import VERB_NAMES, format_of, place_of, policies_of
from iceberg_cli.plan.difference_text import difference_text
from iceberg_cli.plan.inspection import ID, NUMBER, PATH, SIZE, SPAN, TEXT, VERDICT, Column, Row, other_than
from iceberg_cli.plan.plan import REF_NAME, Option, Plan, Step, Verdict
from iceberg_cli.plan.policy import DEFAULT
from iceberg_cli.plan.text import age, count, listed, minute, moment, singular, size

if TYPE_CHECKING:
    from iceberg_cli.cli.render.surface import Surface
    from iceberg_cli.errors import IcebergCliError

_SHOWN_ROWS: Final = 30
_NAMED: Final = 3  # of the files that a step writes
_GROUPS: Final = ("files", "versions")  # subjects of which a verdict is on many at once
_REFS: Final = ("branch", "tag")
_KNOWN_BY_NAME: Final = (
    *_REFS,
    "feature",
    "property",
)  # people know these by name, also where they are one row
_MOST_NAMES: Final = 10  # of these
_OF_BYTES: Final = re.compile(r"(\d+) of (\d+) bytes")
_REASONS: Final = ("kept: ", "expires: ", "dropped: ", "goes: ", "kept, ")  # the verdict stands beside them
_CUTOFF: Final = "older_than_ms"
# What happens to candidates that are not kept, by subject: one, or several.
_CHANGES: Final = {
    "feature": ("is added", "are added"),
    "head": ("gets row ids", "get row ids"),
    "property": ("is set", "are set"),
    "checkpoint": ("is written", "are written"),
    "log-compaction": ("is written", "are written"),
    "commit": ("leaves the branch", "leave the branch"),
    "later-version": ("is taken back", "are taken back"),
}
# What an update of Iceberg does to a ref that is there, or is not.
_REF_CHANGES: Final = {
    ("set-snapshot-ref", False): "made",
    ("set-snapshot-ref", True): "moved",
    ("remove-snapshot-ref", True): "dropped",
}
_NOUNS: Final = {
    "head": "branch heads",
    "property": "properties",
    "puffin-file": "Puffin files",
}
# Subjects of which there is one verdict, on the whole table: what is said where it changes, and where it stays.
_STATEMENTS: Final = {
    "row-ids": ("row ids are assigned", "every file has row ids"),
    "format-version": ("the format version rises to 3", "the format version is 3"),
    "version": ("the table goes back", "the table is there already"),
}


def show_plan(screen: Surface, plan: Plan, *, refused: bool = False) -> None:
    """Print a plan: the verdict, what blocks it, the candidates, the files that go, and what it was made from.

    Args:
        screen: where to.
        plan: what to print.
        refused: what blocks it follows as an error.
    """
    screen.line(headline(plan), style="bold")
    for reason in () if refused else plan.blocked_by:
        screen.line(f"blocked by: {reason}", style="bold red")
    for warning in plan.warnings:
        screen.line(f"warning: {warning}", style="yellow")
    show_verdicts(screen, plan)
    if plan.groups is not None:
        show_rewrite(screen, plan.groups)
    if plan.difference is not None:
        _show_difference(screen, plan.difference)
    _show_steps(screen, plan)
    show_removals(screen, plan)
    _show_origin(screen, plan)


# -- the verdict -----------------------------------------------------------------------------------------------


def headline(plan: Plan) -> str:
    """What would be done, in one sentence."""
    if plan.due:
        parts = _changes_of(plan)
        files, size_bytes = plan.deletes
        parts.append(f"{count(files, 'files')}, {size(size_bytes)} freed" if files else "no file is deleted")
        parts += _tagged(plan)
        if plan.grace_ms:
            parts.append(f"they wait for {age(plan.grace_ms)} first")
    else:
        parts = [_nothing_to_do(plan), *totals(plan)]
    if cutoff := _cutoff(plan):
        parts.append(cutoff)
    sentence = "; ".join(parts)
    return f"Blocked: {sentence}" if plan.blocked_by else sentence[0].upper() + sentence[1:]


def _nothing_to_do(plan: Plan) -> str:
    why = plan.not_applicable
    return "nothing to do" if why is None else f"nothing to do: {why}"


def consequence(plan: Plan) -> str:
    """What is done once the operator agrees, in totals, and what of it cannot be undone."""
    parts = _changes_of(plan)
    files, size_bytes = plan.deletes
    if files:
        be = "is" if files == 1 else "are"
        parts.append(f"{count(files, 'files')}, {size(size_bytes)}, {be} deleted for good")
    elif _removes(plan):
        parts.append("this cannot be undone")
    if plan.format_version is not None:
        parts.append(f"there is no way back from format version {plan.format_version}")
    elif plan.new_protocol:
        parts.append("there is no way back, and clients that lack these features are shut out")
    elif not files and not _removes(plan):
        parts.append("no file is deleted")
    parts += _tagged(plan)
    return f"{'; '.join(parts)}."


def _changes_of(plan: Plan) -> list[str]:
    """What goes, changes or is rewritten, in totals."""
    rewritten = [] if plan.groups is None else [rewrite_text(plan.groups)]
    return [*rewritten, *totals(plan, going_only=True)]


def _tagged(plan: Plan) -> list[str]:
    """The files that are tagged and not deleted, in words; empty if none."""
    tagged = plan.tagged
    if tagged is None:
        return []
    be = "is" if tagged.count == 1 else "are"
    tags = listed([f"{name}={value}" for name, value in tagged.tags.items()])
    files = f"{count(tagged.count, 'files')}, {size(tagged.size_bytes)}"
    return [f"{files}, {be} tagged {tags} and not deleted: {tagged.option}"]


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
        _total(plan, subject, going[subject], number)
        for subject, number in every.items()
        if going[subject] or not (going_only or subject in _REFS)
    ]


def _total(plan: Plan, subject: str, going: int, every: int) -> str:
    noun, stay = _noun(subject), every - going
    if subject in _STATEMENTS:
        return _STATEMENTS[subject][0 if going else 1]
    if not going:
        return f"{count(stay, noun)} {'stays' if stay == 1 else 'stay'}"
    if not stay:
        return f"{count(going, noun)} {_change(plan, subject, one=going == 1)}"
    return (
        f"{going:,} of {count(every, noun)} {_change(plan, subject, one=going == 1)}, "
        f"{stay:,} {'stays' if stay == 1 else 'stay'}"
    )


def _change(plan: Plan, subject: str, *, one: bool) -> str:
    """What happens to candidates that are not kept."""
    if subject in _CHANGES:
        return _CHANGES[subject][0 if one else 1]
    if _removes(plan):
        return "goes" if one else "go"
    if subject in _REFS and (found := _done_to_refs(plan, subject)):
        return f"{'is' if one else 'are'} {found}"
    return "is rewritten" if one else "are rewritten"


def _done_to_refs(plan: Plan, subject: str) -> str:
    """What the plan's updates do to the refs of a kind, in a word, where they do the same to all; else ""."""
    words = set()
    for each in plan.verdicts:
        if each.subject == subject and not each.keep:
            update = next((one for one in plan.updates if one.get(REF_NAME) == each.id), {})
            is_there = each.id in plan.base.refs
            words.add(_REF_CHANGES.get((str(update.get("action")), is_there), ""))
    return words.pop() if len(words) == 1 else ""


def _removes(plan: Plan) -> bool:
    return place_of(plan.table["format"], plan.verb).removes


def _noun(subject: str) -> str:
    """The plural of a subject, as `count` takes it."""
    if subject in _NOUNS:
        return _NOUNS[subject]
    noun = subject.replace("-", " ")
    if noun.endswith("s"):
        return noun
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def _cutoff(plan: Plan) -> str:
    """The cut-off of an expiry, how long ago it is, and where it comes from."""
    option = plan.options.get(_CUTOFF)
    if option is None or option.value is None or _by_name(plan):
        return ""
    return f"cut-off {minute(option.value)}, {age(plan.as_of_ms - option.value)} {_source(option)}"


def _by_name(plan: Plan) -> bool:
    """Whether only snapshots go that were named."""
    return "by_age" in plan.options and not plan.options["by_age"].value


def _source(option: Option) -> str:
    return f"by {option.source}"


# -- candidates ------------------------------------------------------------------------------------------------


def show_verdicts(screen: Surface, plan: Plan) -> None:
    """Print a row for each verdict, those that are alike as one; with --verbose each, in the plan's order."""
    verdicts = plan.verdicts
    if not verdicts:
        return
    groups = [[verdict] for verdict in verdicts] if screen.layout.verbose else _alike(verdicts)
    shown, cut = groups, 0
    if not screen.layout.verbose and len(groups) > _SHOWN_ROWS:
        cut = sum(map(len, groups[_SHOWN_ROWS:]))
        shown = groups[:_SHOWN_ROWS]
    location = str(plan.table["location"]).rstrip("/") + "/"
    rows = [_row(plan, group, verbose=screen.layout.verbose) for group in shown]
    columns = [Column("", "verdict", VERDICT), Column("what", "what", ID)]
    if any(row["path"] for row in rows):
        columns.append(Column("path", "path", PATH, leaves=1))
    if any(row["times_ms"] for row in rows):
        columns.append(Column("time" if screen.layout.is_wide else "age", "times_ms", SPAN))
    columns.append(Column("why", "why", TEXT))
    screen.gap()
    screen.grid(columns, rows, folder=location)
    if cut:
        screen.line(f"({cut:,} more, which are not shown; --verbose shows all)")


def _alike(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Verdicts that differ in id and age alone, together: those that go first, then those that stay."""
    groups: dict[tuple[str, bool, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.subject, verdict.keep, verdict.gist or verdict.reason), []).append(verdict)
    return sorted(groups.values(), key=lambda group: group[0].keep)


def _row(plan: Plan, group: Sequence[Verdict], *, verbose: bool) -> Row:
    first = group[0]
    is_path = len(group) == 1 and "/" in first.id
    return {
        "verdict": "keep" if first.keep else "go" if _removes(plan) else "change",
        "what": _what(group, is_path=is_path),
        "path": first.id if is_path else None,
        "times_ms": [each.timestamp_ms for each in group if each.timestamp_ms is not None],
        "why": _why(group, verbose=verbose),
    }


def _what(group: Sequence[Verdict], *, is_path: bool) -> str:
    first = group[0]
    if len(group) > 1:
        return count(len(group), _noun(first.subject))
    if match := _OF_BYTES.fullmatch(first.id):
        return f"{count(int(match[1]), first.subject)}, {size(int(match[2]))}"
    if first.subject == "versions":
        return "every version" if first.id == "log" else f"versions {first.id}"
    if first.subject == "row-ids":
        return f"row ids {first.id}"
    noun = singular(_noun(first.subject))
    return noun if is_path else f"{noun} {first.id}"


def _why(group: Sequence[Verdict], *, verbose: bool) -> str:
    first = group[0]
    aged = first.timestamp_ms is not None
    reason = first.gist if first.gist and not verbose and (aged or len(group) > 1) else first.reason
    for prefix in _REASONS:
        reason = reason.removeprefix(prefix)
    if len(group) == 1 or first.keep or first.subject not in _KNOWN_BY_NAME:
        return reason
    more = f" and {len(group) - _MOST_NAMES:,} more" if len(group) > _MOST_NAMES else ""
    return f"{reason}: {', '.join(each.id for each in group[:_MOST_NAMES])}{more}"


# -- what is done ----------------------------------------------------------------------------------------------


def _show_steps(screen: Surface, plan: Plan) -> None:
    """Print the commits, where they are more than the one change of metadata that an expiry makes."""
    change = plan.steps[0].change if plan.steps else None
    if not plan.steps or (len(plan.steps) == 1 and (change is None or change.draft is None)):
        return
    screen.gap()
    for number, step in enumerate(plan.steps, start=1):
        change = step.change
        if plan.groups is not None and number == len(plan.steps):
            parts = ["its groups, committed as they are finished"]
        elif change is None:
            parts = _uncommitted(step)
        else:
            parts = [_update_text(update) for update in change.updates]
        if change is not None and change.draft is not None:
            parts.append(_draft_text(change.draft.to_json()))
        after = f" (once {step.requires})" if step.requires else ""
        screen.line(f"step {number}, {step.name}{after}: {', '.join(parts)}")


def _show_difference(screen: Surface, difference: Row) -> None:
    """Print what the state after a plan differs in from the one before."""
    screen.gap()
    for part in difference_text(difference):
        if any(part):
            screen.part(part)


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


def show_removals(screen: Surface, plan: Plan) -> None:
    """Print the files that go by kind."""
    removals = plan.removals
    if removals is None or not removals.count:
        return
    columns = (
        Column("files that go", "kind", ID),
        Column("count", "count", NUMBER),
        Column("bytes", "bytes", SIZE),
    )
    rows = [{"kind": KIND_NAMES[kind], **numbers} for kind, numbers in removals.by_kind.items()]
    screen.gap()
    screen.grid(columns, rows)


# -- what it was made from -------------------------------------------------------------------------------------


def _show_origin(screen: Surface, plan: Plan) -> None:
    """Print the options, each with where it comes from, and the table."""
    table = plan.table
    shown = {_CUTOFF} if _cutoff(plan) else set()
    if not _by_name(plan):
        shown.add("by_age")
    others = {name: option for name, option in plan.options.items() if name not in shown}
    given = [(name, option) for name, option in others.items() if option.source != DEFAULT]
    defaults = [
        f"{option_label(name)} {option_text(name, option.value)}"
        for name, option in others.items()
        if option.source == DEFAULT and (screen.layout.verbose or option.value not in (None, False, [], ()))
    ]
    version = plan.base.version
    screen.gap()
    screen.facts(
        [
            *(
                (option_label(name), f"{option_text(name, option.value)}, {_source(option)}", TEXT)
                for name, option in given
            ),
            ("by default", ", ".join(defaults), TEXT),
            (
                "table",
                f"{table['name']}, {format_of(table['format']).version_text(table)}",
                TEXT,
            ),
            ("location", other_than(table["location"], table["name"]), PATH),
            (
                "planned on",
                f"version {version}" if version.isdigit() else version,
                TEXT if version.isdigit() else PATH,
            ),
            ("as of", moment(plan.as_of_ms), ID),
        ]
    )


def option_label(name: str) -> str:
    """An option as it is spelled on the command line."""
    if name.endswith("_bytes") and (spelled := name.replace("_", "-")) in _options_in_bytes():
        return spelled
    return name.removesuffix("_ms").removesuffix("_bytes").replace("_", "-")


@cache
def _options_in_bytes() -> frozenset[str]:
    """The options whose own name ends with their unit, without the hyphens before it."""
    every = (
        each for verb in VERB_NAMES for policy in policies_of(verb).values() for each in policy.options()
    )
    return frozenset(each.flag.removeprefix("--") for each in every if each.flag.endswith("-bytes"))


def option_text(name: str, value: object) -> str:
    """The value of an option in words, by its name where that has a unit."""
    match value:
        case None:
            return "not given"
        case bool():
            return "yes" if value else "no"
        case int() if name == _CUTOFF:
            return minute(value)
        case int() if name.endswith("_ms"):
            return age(value) if value else "none"
        case int() if name.endswith(("_bytes", "-bytes")):
            return size(value)
        case [first, last] if name == "compact_log":
            return f"{first}..{last}"
        case list() | tuple():
            return ", ".join(map(str, value)) or "not given"
    return str(value)


# -- every verb ------------------------------------------------------------------------------------------------


def show_survey(
    screen: Surface,
    plans: Sequence[Plan],
    commands: Sequence[str],
    failed: Mapping[str, IcebergCliError] | None = None,
) -> None:
    """Print which verbs are due, then a block for each: what it would do, what blocks it, and its command.

    Args:
        screen: where to.
        plans: in the order in which they are shown; those of which nothing is due come last, in one line.
        commands: as a shell reads them, one for each plan.
        failed: by verb, why it cannot be planned.
    """
    screen.line(_survey_headline(plans, failed or {}), style="bold")
    for plan, line in zip(plans, commands, strict=True):
        if not plan.due:
            continue
        screen.gap()
        screen.line(f"{plan.verb}: {headline(plan)}")
        if plan.offer is not None:
            screen.line(f"not due: {plan.offer}", indent=GAP)
        for reason in plan.blocked_by:
            screen.line(f"blocked by: {reason}", style="bold red", indent=GAP)
        screen.command(line)
    for verb, error in (failed or {}).items():
        screen.gap()
        screen.line(f"{verb}: cannot be planned", style="bold red")
        for text in (error.message, error.next_step):
            if text:
                screen.line(text, indent=GAP)
    if idle := [plan for plan in plans if not plan.due]:
        screen.gap()
        for plan in idle:
            screen.line(f"{plan.verb}: {_nothing_to_do(plan)}")


def _survey_headline(plans: Sequence[Plan], failed: Mapping[str, IcebergCliError]) -> str:
    due = [plan for plan in plans if plan.counts_as_due]
    freed = sum(plan.deletes[1] for plan in due if not plan.blocked_by)
    parts = [
        f"{listed([plan.verb for plan in due])} {'is' if len(due) == 1 else 'are'} due"
        if due
        else "Nothing is due"
    ]
    if freed:
        parts.append(f"{size(freed)} freed")
    if blocked := [plan.verb for plan in due if plan.blocked_by]:
        parts.append(f"{listed(blocked)} {'is' if len(blocked) == 1 else 'are'} blocked")
    if failed:
        parts.append(f"{listed(list(failed))} cannot be planned")
    return "; ".join(parts)
