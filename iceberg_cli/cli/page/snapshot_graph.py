"""The graph of a table's snapshots, or of a Delta table's versions: a row for each, with the lines to its parents.

Each row has its own piece of the drawing, which fills the row's height: so the graph stands beside text that wraps, and
the table is what a screen reader reads. Of many snapshots those in the middle are one row, unless a ref names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

TRACK_PX: Final = 18
_NEWEST: Final = 40
_OLDEST: Final = 10
_MOST_NAMED: Final = 60
_MOST_TRACKS: Final = 10


class Line(NamedTuple):
    """A line in a row: from a track and a height to others; heights are 0, 50 and 100 percent of the row."""

    from_track: int
    from_height: int
    to_track: int
    to_height: int
    is_dashed: bool = False

    @property
    def x1(self) -> int:
        """Where it begins, in pixels from the left."""
        return _x(self.from_track)

    @property
    def x2(self) -> int:
        """Where it ends."""
        return _x(self.to_track)


def _x(track: int) -> int:
    return TRACK_PX // 2 + TRACK_PX * track


class Node(NamedTuple):
    """A snapshot, or a version.

    Args:
        id: of it.
        parent_id: of the one before it; None: it has none.
        order: later ones have higher ones.
    """

    id: str
    parent_id: str | None
    order: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GraphRow:
    """A row of the graph.

    Args:
        lines: of its piece of the drawing.
        node_id: what stands in it; None: several that are not shown.
        track: of its node.
        hidden: the ids of those that are not shown.
    """

    lines: Sequence[Line]
    node_id: str | None = None
    track: int = 0
    hidden: Sequence[str] = ()

    @property
    def x(self) -> int:
        """Where its node stands, in pixels from the left."""
        return _x(self.track)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The rows, the newest first, and the width of the drawing in pixels."""

    rows: Sequence[GraphRow]
    width: int


def graph_of(nodes: Sequence[Node], *, current_id: str | None, named: Collection[str]) -> Graph:
    """The graph of snapshots.

    Args:
        nodes: all that the table has, in any order.
        current_id: the line of this one and its parents stands at the left.
        named: ids that refs name, whose rows are shown.
    """
    ordered = sorted(nodes, key=lambda node: node.order, reverse=True)
    tracks = _Tracks(
        known={node.id for node in nodes},
        main=_ancestors({node.id: node.parent_id for node in nodes}, current_id),
    )
    kept = [node.id for node in ordered if node.id in named][:_MOST_NAMED]
    ends = [node.id for node in (*ordered[:_NEWEST], *ordered[-_OLDEST:])]
    shown = {*kept, *ends}
    rows: list[GraphRow] = []
    hidden: list[str] = []
    for node in ordered:
        row = tracks.add(node)
        if node.id in shown:
            if hidden:
                rows.append(GraphRow(lines=tracks_before(row), hidden=tuple(hidden)))
                hidden.clear()
            rows.append(row)
        else:
            hidden.append(node.id)
    return Graph(rows=rows, width=TRACK_PX * min(max(tracks.most, 1), _MOST_TRACKS))


def tracks_before(row: GraphRow) -> Sequence[Line]:
    """The lines of a row in place of others: those that arrive at the row after it."""
    arriving = {line.from_track for line in row.lines if line.from_height == 0}
    return [Line(track, 0, track, 100, is_dashed=True) for track in sorted(arriving)]


def _ancestors(parents: Mapping[str, str | None], start: str | None) -> set[str]:
    found: set[str] = set()
    current = start
    while current is not None and current in parents and current not in found:
        found.add(current)
        current = parents[current]
    return found


@dataclass(kw_only=True)
class _Tracks:
    """The lines that run down the drawing, each towards a parent that is yet to come.

    Args:
        known: ids that have rows.
        main: those on the track at the left.
        ends: by track: the id that its line runs to; None where the track is free.
        done: ids whose rows are above.
        most: how many tracks there were at once.
    """

    known: Collection[str]
    main: Collection[str]
    ends: list[str | None] = field(default_factory=lambda: [None])
    done: set[str] = field(default_factory=set)
    most: int = 1

    def add(self, node: Node) -> GraphRow:
        """The row of the next older node."""
        arriving = [track for track, end in enumerate(self.ends) if end == node.id]
        track = arriving[0] if arriving else self._free(node.id)
        lines = [
            Line(each, 0, track, 50) if each in arriving else Line(each, 0, each, 100)
            for each, end in enumerate(self.ends)
            if end is not None
        ]
        for each in arriving:
            self.ends[each] = None
        lines += self._to_parent(node, track, lines)
        self.done.add(node.id)
        self.most = max(self.most, sum(end is not None for end in self.ends), track + 1)
        return GraphRow(
            node_id=node.id,
            track=min(track, _MOST_TRACKS - 1),
            lines=[line for line in lines if max(line.from_track, line.to_track) < _MOST_TRACKS],
        )

    def _to_parent(self, node: Node, track: int, lines: list[Line]) -> Iterator[Line]:
        parent = node.parent_id
        if parent is None:
            return
        if parent not in self.known or parent in self.done:
            yield Line(track, 50, track, 80, is_dashed=True)  # it expired, or its place is above
            return
        others = [each for each, end in enumerate(self.ends) if end == parent]
        if not others:
            self.ends[track] = parent
            yield Line(track, 50, track, 100)
            return
        # Both run to one parent: from here on one line does, the one further left.
        (other,) = others
        if other < track:
            yield Line(track, 50, other, 100)
            return
        lines.remove(Line(other, 0, other, 100))
        self.ends[other], self.ends[track] = None, parent
        yield Line(other, 0, track, 100)
        yield Line(track, 50, track, 100)

    def _free(self, node_id: str) -> int:
        """A track for a node that no line runs to: the left one is for the current state and its ancestors."""
        if node_id in self.main:
            return 0
        for track, end in enumerate(self.ends):
            if track and end is None:
                return track
        self.ends.append(None)
        return len(self.ends) - 1
