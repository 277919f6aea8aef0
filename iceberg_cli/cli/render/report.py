"""Reports of runs, and errors, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iceberg_cli.cli.render.kinds import KIND_NAMES
from iceberg_cli.cli.render.layout import GAP
from iceberg_cli.cli.render.rewrite import reads_text
from iceberg_cli.plan.inspection import ID, NUMBER, PATH, SIZE, TEXT
from iceberg_cli.plan.report import TAGGED_FILES
from iceberg_cli.plan.text import age, count, moment, size

if TYPE_CHECKING:
    from iceberg_cli.cli.render.screen import Screen
    from iceberg_cli.cli.render.surface import Surface
    from iceberg_cli.errors import IcebergCliError
    from iceberg_cli.plan.report import AbandonedOperation, Report

_SHOWN_FAILURES: Final = 60
_STATUSES: Final = {
    "done": "Done",
    "nothing_to_do": "Nothing to do",
    "partial": "Committed; some files that may go are still there, and the next run or `resume` deletes them",
}


def show_report(screen: Surface, report: Report, table: str) -> None:
    """Print the report of a run: the outcome, what was deleted and written, and what the table is now."""
    screen.gap()
    if report.abandoned is not None:
        _show_abandoned(screen, report, report.abandoned, table)
        return
    screen.line(_headline(report), style="bold green" if report.status == "done" else "bold")
    for broken in report.failed_groups[:_SHOWN_FAILURES]:
        name = f"{broken['partition']}: " if broken["partition"] else ""
        screen.line(f"broken: {name}{broken['reason']}", style="red", indent=GAP)
    for failure in report.failed_deletes[:_SHOWN_FAILURES]:
        screen.line(f"still there: {failure['path']}: {failure['reason']}", style="red", indent=GAP)
    if len(report.failed_deletes) > _SHOWN_FAILURES:
        screen.line(
            f"and {len(report.failed_deletes) - _SHOWN_FAILURES:,} more that are still there", style="red"
        )
    for note in report.notes:
        screen.line(note)
    if report.kept_again:
        screen.line(
            f"kept, because this table or one below its folder needs them now: {count(report.kept_again, 'files')}"
        )
    facts: list[tuple[str, object, str]] = [
        (*_count_of(name, number),) for name, number in report.counts.items() if number
    ]
    facts += [(f"reads by {each.column}", reads_text(each), TEXT) for each in report.reads]
    if facts:
        screen.gap()
        screen.facts(facts)
    screen.gap()
    screen.facts(
        [
            ("table", table, TEXT),
            ("snapshot", report.committed_snapshot_id and str(report.committed_snapshot_id), ID),
            ("version", None if report.committed_version is None else str(report.committed_version), ID),
            ("metadata" if report.committed_version is None else "commit", report.metadata_location, PATH),
            ("operation", report.operation_id, ID),
            (
                "took back",
                report.undone and f"{report.undone['operation']} {report.undone['operation_id']}",
                ID,
            ),
            ("undo", _undo_text(report), TEXT),
        ]
    )


def _undo_text(report: Report) -> str | None:
    """Until when the operation can be taken back; None where it cannot."""
    if not report.undo.possible:
        return None
    if report.undo.until_ms is None:
        return "possible while it is the newest of its branch"
    return f"possible until {moment(report.undo.until_ms)}"


def _headline(report: Report) -> str:
    deleted = sum(number for name, number in report.counts.items() if _deleted_kind(name))
    parts = [_STATUSES.get(report.status, report.status)]
    if of_groups := report.groups_in_words:
        how = "Done" if report.status == "done" else "Done in part"
        parts = [f"{how}: {of_groups[0]}", *of_groups[1:]]
    elif report.status == "partial" and report.verified is not None:
        parts = ["Nothing was committed: the run had to end before a group was finished"]
    if report.status == "waiting":
        parts[0] = _waiting(report)
    if report.not_applicable is not None:
        parts[0] += f": {report.not_applicable}"
    if report.earlier_deleted_files:
        now = deleted - report.earlier_deleted_files
        parts.append(
            f"{count(now, 'files')} deleted now, {deleted:,} in all, {size(report.reclaimed_bytes)} freed"
        )
    elif deleted:
        parts.append(f"{count(deleted, 'files')} deleted, {size(report.reclaimed_bytes)} freed")
    if tagged := report.counts.get(TAGGED_FILES):
        parts.append(f"{count(tagged, 'files')} tagged, not deleted")
    if report.failed_deletes:
        parts.append(f"{count(len(report.failed_deletes), 'files')} could not be deleted")
    if report.operation_id:
        parts.append(f"took {age(report.duration_ms, parts=1)}")
    return f"{report.verb}: {'; '.join(parts)}"


def _waiting(report: Report) -> str:
    """How many files wait, and until when."""
    files = f"{count(report.waiting_files, 'files')}, {size(report.waiting_bytes)},"
    wait = "waits for its" if report.waiting_files == 1 else "wait for their"
    it = "it" if report.waiting_files == 1 else "them"
    until, then = (
        ("", "") if report.waits_until_ms is None else (f" until {moment(report.waits_until_ms)}", " then")
    )
    committed = "" if report.metadata_location is None else "Committed; "
    return f"{committed}{files} {wait} grace{until}; the next run or `resume` deletes {it}{then}"


def _deleted_kind(name: str) -> str:
    """The kind of files that a result column counts deletions of; empty: none."""
    kind = name.removeprefix("deleted_").removesuffix("s_count")
    return kind if name.startswith("deleted_") and kind in KIND_NAMES else ""


def _count_of(name: str, number: int) -> tuple[str, object, str]:
    """A result column in words, its number, and of what kind that is."""
    if kind := _deleted_kind(name):
        return f"deleted {KIND_NAMES[kind]}", number, NUMBER
    words = name.removesuffix("_count").replace("_", " ").replace("puffin", "Puffin")
    return words, number, SIZE if name.endswith("_bytes_count") else NUMBER


def _show_abandoned(screen: Surface, report: Report, abandoned: AbandonedOperation, table: str) -> None:
    """Print an abandoned operation, and every file of it that nothing deletes any more: it is shown only once."""
    what = f"operation {report.operation_id}"
    if abandoned.started_ms is None:  # its journal cannot be read: not even the verb is known
        what += f" of {table}"
    else:
        what = f"{report.verb} {table}, {what}, begun at {moment(abandoned.started_ms)}"
    screen.line(f"Abandoned {what}: {abandoned.message}.")
    left = abandoned.orphans
    if left is None:
        screen.line("Which files it leaves cannot be told: its journal or the list of its files is damaged.")
        return
    if not left.count:
        screen.line("It leaves no file behind.")
        return
    files, bytes_ = count(left.count, "files"), size(left.size_bytes)
    be, stay, them = ("is", "stays", "it") if left.count == 1 else ("are", "stay", "them")
    screen.line(
        f"{files} ({bytes_}) {be} orphaned: the table does not need {them}, and no operation deletes {them} any more:"
        if left.checked
        else f"{files} that it was still to delete {stay} ({bytes_}), and no operation deletes {them} any more. "
        f"Whether the table needs {them} could not be told: {left.note}"
    )
    for file in left.files:
        screen.command(file["path"])
    if left.count > len(left.files):
        screen.line(f"and {left.count - len(left.files):,} more, which are not listed", indent=GAP)


def show_error(screen: Screen, error: IcebergCliError) -> None:
    """Print an error: a line for what cannot be done, one for the state of things if it matters, one for what to do."""
    screen.line(f"error: {error.message}", style="bold red")
    state = "" if error.was_looking and error.state == error.default_state else error.state
    for text in (state, error.next_step):
        if text:
            screen.line(text)
