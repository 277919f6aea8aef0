"""The page of one table: the text of the command in its order, then the graph, growth, sizes and deletes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iceberg_cli.cli.page import charts
from iceberg_cli.cli.page.blocks import Block, Blocks
from iceberg_cli.cli.page.document import render
from iceberg_cli.cli.page.snapshot_graph import Graph, GraphRow, Node, graph_of
from iceberg_cli.cli.render import inspection as render_inspection
from iceberg_cli.cli.render import plan as render_plan
from iceberg_cli.formats import format_of
from iceberg_cli.plan.column_reads import share_opened
from iceberg_cli.plan.inspection import Row
from iceberg_cli.plan.text import count, minute, moment, size

if TYPE_CHECKING:
    from markupsafe import Markup

    from iceberg_cli.api import Plan
    from iceberg_cli.cli.page.distributions import SizeDistribution
    from iceberg_cli.cli.page.table_content import TableContent

_TITLES: Final = {"plan": "Plan", "survey": "What is due", "summary": "Inspection", "check": "Check"}
_MOST_POINTS: Final = 400
_LISTED_POINTS: Final = 40
_MEASURES: Final = (
    ("total-data-files", "Data files", "files"),
    ("total-files-size", "Bytes of data and delete files", "bytes"),
    ("total-records", "Records", "records"),
)


class Chart(NamedTuple):
    """A chart, and its numbers as a table."""

    title: str
    svg: Markup
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]


class Effort(NamedTuple):
    """What a verb would free.

    Args:
        verb: its name.
        verdict: what it would do, in a sentence.
        files: that go.
        size_bytes: of these.
        share: of the most that a verb frees, in percent.
        is_due: whether there is something to do.
        blocked_by: why it is not carried out.
        blocks: the whole plan.
    """

    verb: str
    verdict: str
    files: int
    size_bytes: int
    share: float
    is_due: bool
    blocked_by: Sequence[str]
    blocks: Blocks


class Ref(NamedTuple):
    """A branch or a tag, or a checkpoint, at a row; `goes`: expiry would drop it."""

    kind: str
    name: str
    goes: bool = False


@dataclass(frozen=True, kw_only=True)
class StateRow:
    """A row beside a piece of the graph: a snapshot, a version, or several that are not shown.

    Args:
        graph: its piece.
        label: the id; of several, what they are.
        refs: at it.
        cells: time, operation, and so on.
        verdict: `go`, `keep` or nothing.
        why: the reason.
        is_current: whether readers see it.
    """

    graph: GraphRow
    label: str
    refs: Sequence[Ref] = ()
    cells: Sequence[str] = ()
    verdict: str = ""
    why: str = ""
    is_current: bool = False


@dataclass(frozen=True, kw_only=True)
class States:
    """The graph with its rows.

    Args:
        noun: `snapshots` or `versions`.
        titles: of the cells.
        graph: the drawing.
        rows: beside it.
        note: what is to be known of them.
        has_verdicts: whether there is a plan for them.
    """

    noun: str
    titles: Sequence[str]
    graph: Graph
    rows: Sequence[StateRow]
    note: str
    has_verdicts: bool


def table_page(
    document: Mapping[str, Any], content: TableContent, *, plans: Sequence[Plan], commands: Sequence[str]
) -> str:
    """The page of a document about one table; arguments are those of `write_page`."""
    kind = document.get("what") or document["schema"].split("/")[1]
    table, version = document["table"], document.get("format_version") or document["table"]["format_version"]
    return render(
        "table.html",
        title=f"{table['name']}: {_TITLES[kind].lower()}",
        heading=_TITLES[kind],
        table=table,
        format_title=format_of(table["format"]).version_text({**table, "format_version": version}),
        as_of=minute(_as_of_ms(document)),
        checked=_check_blocks(document) if kind == "check" else None,
        blocks=_blocks(kind, document, content, plans, commands),
        efforts=list(_efforts(plans)) if kind == "survey" else (),
        states=_states(content),
        growth=list(_growth(content)),
        sizes=[
            size_figure(
                sizes,
                chart_id=f"sizes{place}",
                title=f"{name.capitalize()} by size",
                marks=content.marks if name == "data files" else {},
            )
            for place, (name, sizes) in enumerate(content.sizes.items())
        ],
        partitions=content.partitions,
        partition_count=content.partition_count,
        with_deletes=content.with_deletes,
        reads=[{**each, "share": share_opened(each)} for each in content.reads],
        reads_note=content.reads_note,
        warnings=content.warnings,
    )


def blocks_page(heading: str, document: Mapping[str, Any], blocks: Sequence[Block]) -> str:
    """The page of what is blocks alone.

    Args:
        heading: what it is.
        document: its `table`, and `format_version` and `as_of_ms` where these are known.
        blocks: in their order.
    """
    table, version, as_of_ms = (document.get(name) for name in ("table", "format_version", "as_of_ms"))
    over = [heading]
    if table and version is not None:
        over.append(format_of(table["format"]).version_text({**table, "format_version": version}))
    if as_of_ms is not None:
        over.append(f"as of {minute(as_of_ms)}")
    return render(
        "blocks.html",
        title=f"{table['name']}: {heading.lower()}" if table else heading,
        over=" · ".join(over),
        name=table["name"] if table else heading,
        blocks=blocks,
    )


# -- as text ---------------------------------------------------------------------------------------------------


def _blocks(
    kind: str,
    document: Mapping[str, Any],
    content: TableContent,
    plans: Sequence[Plan],
    commands: Sequence[str],
) -> Blocks:
    """What the command prints; of a check the table's summary."""
    blocks = Blocks(as_of_ms=_as_of_ms(document))
    if kind == "plan":
        render_plan.show_plan(blocks, plans[0].content)
    elif kind == "survey":
        render_plan.show_survey(blocks, [plan.content for plan in plans], commands, _errors(document))
    elif content.summary is not None:
        folder = f"{content.summary['location'].rstrip('/')}/"
        render_inspection.show_summary(blocks, content.summary_parts, folder=folder)
    return blocks


def _as_of_ms(document: Mapping[str, Any]) -> int:
    """The "now" of a document; all plans of a survey have the same."""
    found: int = document["as_of_ms"] if "as_of_ms" in document else document["plans"][0]["as_of_ms"]
    return found


def _errors(document: Mapping[str, Any]) -> dict[str, Any]:
    from iceberg_cli.errors import IcebergCliError

    return {
        failed["operation"]: IcebergCliError(
            failed["message"], state=failed["state"], next_step=failed["next"]
        )
        for failed in document.get("failed", ())
    }


def _check_blocks(document: Mapping[str, Any]) -> Sequence[Block]:
    blocks = Blocks(as_of_ms=document["as_of_ms"])
    deep_reads = format_of(document["table"]["format"]).looking.deep_reads
    render_inspection.show_findings(blocks, document, deep_reads=deep_reads)
    return blocks.blocks


def _efforts(plans: Sequence[Plan]) -> Iterator[Effort]:
    most = max((plan.removals.size_bytes for plan in plans), default=0)
    for plan in plans:
        blocks = Blocks(as_of_ms=plan.as_of_ms)
        render_plan.show_plan(blocks, plan.content)
        yield Effort(
            verb=plan.verb,
            verdict=render_plan.headline(plan.content),
            files=plan.removals.count,
            size_bytes=plan.removals.size_bytes,
            share=100 * plan.removals.size_bytes / most if most else 0,
            is_due=plan.due,
            blocked_by=plan.blocked_by,
            blocks=blocks,
        )


# -- snapshots and versions --------------------------------------------------------------------------------------


def _states(content: TableContent) -> States | None:
    if content.summary is None or not content.states:
        return None
    if "log" in content.summary:
        return _versions(content.states, content.summary, content.expiry)
    return _snapshots(content.states, content.summary, content.expiry)


def _snapshots(rows: Sequence[Row], summary: Row, expiry: Plan | None) -> States:
    of_plan = () if expiry is None else expiry.verdicts
    verdicts = {verdict.id: verdict for verdict in of_plan if verdict.subject == "snapshot"}
    going = {(verdict.subject, verdict.id) for verdict in of_plan if not verdict.keep}
    refs: dict[str, list[Ref]] = {}
    for ref in summary["refs"]:
        kind, name = ref["type"].lower(), ref["name"]
        refs.setdefault(ref["snapshot_id"], []).append(Ref(kind, name, (kind, name) in going))
    nodes = [
        Node(
            row["snapshot_id"],
            row["parent_id"],
            (int(row["sequence_number"] or 0), row["committed_at_ms"], place),
        )
        for place, row in enumerate(rows)
    ]
    current = summary["current_snapshot_id"]
    graph = graph_of(nodes, current_id=current, named={*refs, *([current] if current else ())})
    by_id = {row["snapshot_id"]: row for row in rows}
    shown = []
    for piece in graph.rows:
        if piece.node_id is None:
            shown.append(_hidden(piece, "snapshots", {key: each.keep for key, each in verdicts.items()}))
            continue
        row, verdict = by_id[piece.node_id], verdicts.get(piece.node_id)
        totals = row["summary"] or {}
        shown.append(
            StateRow(
                graph=piece,
                label=piece.node_id,
                refs=refs.get(piece.node_id, ()),
                cells=(
                    minute(row["committed_at_ms"]),
                    row["operation"] or "",
                    _number(totals.get("total-data-files")),
                    _number(totals.get("total-records")),
                ),
                verdict="" if verdict is None else "keep" if verdict.keep else "go",
                why="" if verdict is None else verdict.reason.partition(": ")[2] or verdict.reason,
                is_current=piece.node_id == current,
            )
        )
    return States(
        noun="snapshots",
        titles=("committed", "operation", "files", "records"),
        graph=graph,
        rows=shown,
        note=""
        if expiry is None
        else f"By expire-snapshots {'; '.join(render_plan.totals(expiry.content))}.",
        has_verdicts=bool(verdicts),
    )


def _hidden(piece: GraphRow, noun: str, keeps: Mapping[str, bool]) -> StateRow:
    going = sum(not keeps[each] for each in piece.hidden if each in keeps)
    text = f"{count(len(piece.hidden), noun)} more"
    if not keeps:
        return StateRow(graph=piece, label=text)
    whole = "all go" if going == len(piece.hidden) else "all stay" if not going else f"{going:,} go"
    return StateRow(graph=piece, label=f"{text}, {whole}")


def _versions(rows: Sequence[Row], summary: Row, expiry: Plan | None) -> States:
    log = summary["log"]
    keeps, oldest, why = _kept_versions(rows, expiry)
    checkpoint = log["newest_checkpoint"]
    chips = (
        {} if checkpoint is None else {str(checkpoint["version"]): [Ref("checkpoint", checkpoint["kind"])]}
    )
    nodes = [
        Node(str(row["version"]), str(row["version"] - 1) if place else None, (row["version"],))
        for place, row in enumerate(rows)
    ]
    current = str(summary["version"])
    graph = graph_of(nodes, current_id=nodes[-1].id, named={*chips, current})
    by_id = {str(row["version"]): row for row in rows}
    shown = []
    for piece in graph.rows:
        if piece.node_id is None:
            shown.append(_hidden(piece, "versions", keeps))
            continue
        row, keep = by_id[piece.node_id], keeps.get(piece.node_id)
        shown.append(
            StateRow(
                graph=piece,
                label=piece.node_id,
                refs=chips.get(piece.node_id, ()),
                cells=(
                    minute(row["timestamp_ms"]) if row["timestamp_ms"] is not None else "",
                    row["operation"] or "",
                    f"{row['add_count']:,}",
                    f"{row['remove_count']:,}",
                ),
                verdict="" if keep is None else "keep" if keep else "go",
                why="" if keep is not False else f"before checkpoint {oldest}, which stands for it",
                is_current=piece.node_id == current,
            )
        )
    return States(
        noun="versions",
        titles=("committed", "operation", "added", "removed"),
        graph=graph,
        rows=shown,
        note=why + _log_note(summary),
        has_verdicts=bool(keeps),
    )


def _kept_versions(rows: Sequence[Row], expiry: Plan | None) -> tuple[dict[str, bool], int | None, str]:
    """Which versions stay in the log where some go, the oldest checkpoint that does, and why, as a sentence."""
    if expiry is None:
        return {}, None, ""
    oldest = expiry.content.options["oldest_checkpoint"].value
    keeps = {str(row["version"]): oldest is None or row["version"] >= oldest for row in rows}
    (why,) = (each.reason.partition(": ")[2] for each in expiry.verdicts if each.subject == "versions")
    if all(keeps.values()):
        return {}, None, f"By expire-snapshots every version stays in the log: {why}. "
    return keeps, oldest, f"By expire-snapshots the log begins anew: {why}. "


def _log_note(summary: Row) -> str:
    """Tombstones, and how far the newest version is from a checkpoint."""
    tombstones, log = summary["tombstones"], summary["log"]
    parts = [
        f"{count(tombstones['count'], 'tombstones')}, {tombstones['past_retention']:,} past their retention"
    ]
    if tombstones["past_retention_bytes"]:
        parts[0] += f" ({size(tombstones['past_retention_bytes'])})"
    if log["newest_checkpoint"] is not None:
        version = log["newest_checkpoint"]["version"]
        parts.append(f"{count(log['commits_since_checkpoint'], 'commits')} since checkpoint {version}")
    return f"{'; '.join(parts)}."


def _number(text: object) -> str:
    """A number of a snapshot's summary, which any writer may have filled in."""
    value = _whole(text)
    return "" if value is None else f"{value:,}"


def _whole(text: object) -> int | None:
    return (
        int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19 else None
    )


# -- charts ------------------------------------------------------------------------------------------------------


def _growth(content: TableContent) -> Iterator[Chart]:
    summary = content.summary
    if summary is None:
        return
    if "log" not in summary:
        line = _line_to(summary["snapshot_id"], content.states)
        for place, (key, title, unit) in enumerate(_MEASURES):
            points = [
                (row["committed_at_ms"], value)
                for row in line
                if (value := _whole((row["summary"] or {}).get(key))) is not None
            ]
            yield from _growth_chart(points, place, title, unit)
        return
    files = summary["totals"]["data_files"]
    points = []
    for row in reversed([row for row in content.states if row["version"] <= summary["version"]]):
        if row["timestamp_ms"] is not None:
            points.append((row["timestamp_ms"], files))
        files -= row["add_count"] - row["remove_count"]
    yield from _growth_chart(points[::-1], 0, "Data files", "files")


def _line_to(snapshot_id: str | None, rows: Sequence[Row]) -> list[Row]:
    """The snapshots from the oldest known ancestor of one to that one."""
    by_id = {row["snapshot_id"]: row for row in rows}
    line: dict[str, Row] = {}
    while snapshot_id is not None and snapshot_id in by_id and snapshot_id not in line:
        line[snapshot_id] = by_id[snapshot_id]
        snapshot_id = by_id[snapshot_id]["parent_id"]
    return list(line.values())[::-1]


def _growth_chart(points: Sequence[tuple[int, int]], place: int, title: str, unit: str) -> Iterator[Chart]:
    points = sorted(points, key=lambda point: point[0])
    if len(points) < 2 or points[0][0] == points[-1][0] or min(value for _, value in points) < 0:
        return
    drawn, listed = _thinned(points, _MOST_POINTS), _thinned(points, _LISTED_POINTS)
    yield Chart(
        title=title,
        svg=_markup(
            charts.growth_chart(
                [time for time, _ in drawn],
                [value for _, value in drawn],
                chart_id=f"growth{place}",
                title=f"{title} over time",
                unit=unit,
            )
        ),
        titles=("time", unit),
        rows=[(moment(time), size(value) if unit == "bytes" else f"{value:,}") for time, value in listed],
    )


def _thinned(points: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """So many points at most, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[place * last // (most - 1)] for place in range(most)]


def size_figure(
    sizes: SizeDistribution,
    *,
    chart_id: str,
    title: str,
    noun: str = "files",
    marks: Mapping[str, int] | None = None,
) -> Chart:
    """A distribution of sizes, with its numbers.

    Args:
        sizes: not empty.
        chart_id: unique in the page.
        title: what it shows.
        noun: what has these sizes.
        marks: sizes in bytes at which a line stands, by their names.
    """
    svg = charts.size_chart(sizes, chart_id=chart_id, title=title, noun=noun, marks=marks or {})
    return Chart(
        title=title,
        svg=_markup(svg),
        titles=("from", "to less than", noun, "bytes"),
        rows=[
            (size(bar.low), size(bar.high), f"{bar.files:,}", size(bar.size_bytes))
            for bar in sizes.bars()
            if bar.files
        ],
    )


def _markup(svg: str) -> Markup:
    from markupsafe import Markup

    return Markup(svg)  # noqa: S704 - of numbers and dates alone: see `charts`
