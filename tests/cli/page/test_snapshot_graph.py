"""The graph of snapshots: a node for each, and lines that lead from each to its parent, row by row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iceberg_cli.cli.page.snapshot_graph import Graph, Node, graph_of


def drawn(graph: Graph) -> dict[str, str]:
    """By node, the node to which the lines below it lead; of nodes whose lines end in the next rows."""
    found: dict[str, str] = {}
    running: dict[int, set[str]] = {}  # by track at the top of a row: the nodes whose lines arrive there
    for row in graph.rows:
        leaving: dict[int, set[str]] = {}
        starts = {line.from_track for line in row.lines if line.from_height == 0}
        assert starts == set(running), "lines go on where those of the row above end"
        for line in row.lines:
            if (line.from_height, line.to_height) == (0, 50):
                assert line.to_track == row.track
                for child in running[line.from_track]:
                    assert row.node_id is not None
                    found[child] = row.node_id
            elif line.from_height == 0:
                leaving.setdefault(line.to_track, set()).update(running[line.from_track])
            elif line.to_height == 100:
                assert row.node_id is not None
                leaving.setdefault(line.to_track, set()).add(row.node_id)
        running = leaving
    assert not running, "no line runs out of the drawing"
    return found


def nodes(**parents: str | None) -> list[Node]:
    """Nodes by their parents, the oldest first."""
    return [Node(name, parent, (order,)) for order, (name, parent) in enumerate(parents.items())]


def test_a_line_of_snapshots_is_one_track() -> None:
    graph = graph_of(nodes(a=None, b="a", c="b"), current_id="c", named={"c"})
    assert [row.node_id for row in graph.rows] == ["c", "b", "a"]
    assert {row.track for row in graph.rows} == {0}
    assert drawn(graph) == {"c": "b", "b": "a"}


def test_a_branch_leaves_the_line_at_its_parent_and_main_stands_at_the_left() -> None:
    graph = graph_of(nodes(a=None, b="a", m="b", x="b", y="x"), current_id="m", named={"m", "y"})
    assert {row.node_id: row.track for row in graph.rows} == {"y": 1, "x": 1, "m": 0, "b": 0, "a": 0}
    assert drawn(graph) == {"y": "x", "x": "b", "m": "b", "b": "a"}


def test_a_parent_that_expired_is_a_dashed_end() -> None:
    graph = graph_of(nodes(b="gone"), current_id="b", named=set())
    ((line,),) = [row.lines for row in graph.rows]
    assert line.is_dashed
    assert line.to_height < 100


def test_of_many_snapshots_the_middle_is_one_row_but_for_those_that_refs_name() -> None:
    many = [Node(str(number), str(number - 1) if number else None, (number,)) for number in range(500)]
    graph = graph_of(many, current_id="499", named={"200"})
    shown = [row.node_id for row in graph.rows if row.node_id is not None]
    hidden = [row.hidden for row in graph.rows if row.node_id is None]
    assert len(shown) == 51
    assert "200" in shown
    assert [len(each) for each in hidden] == [259, 190]
    assert sorted(map(int, [*shown, *(name for each in hidden for name in each)])) == list(range(500))
    drawn(graph)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.integers(0, 39), st.randoms())
def test_every_child_is_drawn_to_its_parent(backs: list[int], current: int, chance: object) -> None:
    history = [
        Node(str(number), str(number - back) if 0 < back <= number else None, (number,))
        for number, back in enumerate(backs)
    ]
    graph = graph_of(history, current_id=str(current % len(history)), named={node.id for node in history})
    if graph.width < 18 * 10:  # beyond ten tracks lines are left out
        assert drawn(graph) == {node.id: node.parent_id for node in history if node.parent_id is not None}


def test_snapshots_that_name_each_other_as_parents_are_drawn_all_the_same() -> None:
    graph = graph_of(nodes(a="b", b="a"), current_id="a", named=set())
    assert {row.node_id for row in graph.rows} == {"a", "b"}
    assert drawn(graph) == {"b": "a"}
