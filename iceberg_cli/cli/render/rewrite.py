"""What is rewritten by a plan with groups of files, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.plan.inspection import ID, NUMBER, SIZE, TEXT, Column
from iceberg_cli.plan.text import age, count, listed, size

if TYPE_CHECKING:
    from iceberg_cli.cli.render.surface import Surface
    from iceberg_cli.plan.column_reads import ReadsBeforeAndAfter
    from iceberg_cli.plan.groups import FreedLater, Groups

_SHOWN_PARTITIONS: Final = 30
_REASONS: Final = {
    "size": "size",
    "deletes": "deleted rows",
    "rewrite-all": "--rewrite-all",
    "purge": "--purge",
    "order": "order",
    "spec": "--output-spec current",
}


def reason_text(reason: str) -> str:
    """Why a group is rewritten, in words."""
    return _REASONS.get(reason, reason)


def rewrite_text(groups: Groups) -> str:
    """How many files become how many, in words."""
    files, bytes_ = len(groups.inputs), size(groups.size_bytes)
    return (
        f"{count(files, 'data files')} of {bytes_} {'is' if files == 1 else 'are'} rewritten to about"
        f" {groups.sum_of('expected_files'):,} of {size(groups.sum_of('expected_bytes'))} in"
        f" {count(len(groups), 'groups')}"
    )


def show_rewrite(screen: Surface, groups: Groups) -> None:
    """Print what is rewritten in each partition, and what it costs; with --verbose each group.

    Args:
        screen: where to.
        groups: of a plan.
    """
    if not len(groups):
        return
    rows = groups.rows.to_pylist()
    rows = rows if screen.layout.verbose else _by_partition(rows)
    shown = rows if screen.layout.verbose else rows[:_SHOWN_PARTITIONS]
    columns = [
        Column("partition", lambda row: row["partition"] or "the whole table", ID),
        Column("group" if screen.layout.verbose else "groups", "number", NUMBER, leaves=1),
        Column("files", "files", NUMBER),
        Column("bytes", "bytes", SIZE),
        Column("become", "expected_files", NUMBER),
        Column("about", "expected_bytes", SIZE),
        Column("rows", "rows", NUMBER, leaves=2),
        Column("for", lambda row: reason_text(row["reason"]), TEXT, leaves=3),
    ]
    screen.gap()
    screen.grid(columns, shown)
    if len(shown) < len(rows):
        screen.line(
            f"({count(len(rows) - len(shown), 'partitions')} more, which are not shown; --verbose shows each group)"
        )
    screen.gap()
    screen.facts(_cost(groups))


def _by_partition(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sums of the groups of each partition, those with most bytes first; `number` is of its groups."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        own = found.get(row["partition"])
        if own is None:
            found[row["partition"]] = {**row, "number": 1}
            continue
        own["number"] += 1
        for name in ("files", "bytes", "rows", "expected_files", "expected_bytes"):
            own[name] += row[name]
        if row["reason"] not in own["reason"].split(", "):
            own["reason"] += f", {row['reason']}"
    return sorted(found.values(), key=lambda row: -row["bytes"])


def _cost(groups: Groups) -> list[tuple[str, object, str]]:
    facts: list[tuple[str, object, str]] = [
        ("reads", f"{count(groups.sum_of('rows'), 'rows')}, {size(groups.size_bytes)}", TEXT),
        ("extra space", f"about {size(groups.peak_extra_bytes)}, beside the old files", TEXT),
    ]
    if groups.spill_bytes:
        facts.append(("sorting", f"about {size(groups.spill_bytes)} in the folder for temporary files", TEXT))
    if groups.expected_duration_ms is not None:
        facts.append(("takes", f"about {age(groups.expected_duration_ms)}, as the last runs here did", TEXT))
    if groups.deletes_applied:
        text = f"{groups.deletes_applied:,} applied, counted for each file"
        gone = groups.delete_files_that_go
        facts.append(("deletes", f"{text}; {gone:,} {'goes' if gone == 1 else 'go'}", TEXT))
    facts += [(f"reads by {each.column}", reads_text(each, is_expected=True), TEXT) for each in groups.reads]
    return [*facts, *(("comes back", _freed_text(each), TEXT) for each in groups.comes_back)]


def reads_text(reads: ReadsBeforeAndAfter, *, is_expected: bool = False) -> str:
    """What a read of one value of a column opens, of the files of its partition."""
    before, after, files, files_after = (f"{number:,.1f}".removesuffix(".0") for number in reads[1:])
    opens, now = ("opens", "then about") if is_expected else ("opened", "now")
    return f"one value {opens} {before} of {files} files of its partition, {now} {after} of {files_after}"


def _freed_text(part: FreedLater) -> str:
    held = (
        f": {listed(part.held_by[:5])}{' and more' if len(part.held_by) > 5 else ''}" if part.held_by else ""
    )
    return f"{size(part.size_bytes)}, by `expire-snapshots` once {part.after}{held}"
