"""Where the steps of a graph are drawn."""

import itertools
import random

import pytest

from marin_rules.views.graph_layout import Place, layout

type Graph = dict[int, list[int]]


def sweep(width: int) -> Graph:
    """One source, `width` steps from it, one that gathers them all."""
    return {0: [], **{number: [0] for number in range(1, width + 1)}, width + 1: list(range(1, width + 1))}


def random_graph(seed: int) -> Graph:
    chance = random.Random(seed)
    size = chance.randrange(1, 120)
    return {node: sorted(chance.sample(range(node), chance.randrange(min(node, 4) + 1))) for node in range(size)}


GRAPHS: dict[str, Graph] = {
    "nothing": {},
    "one": {0: []},
    "chain": {node: [node - 1] if node else [] for node in range(5)},
    "diamond": {0: [], 1: [0], 2: [0], 3: [1, 2]},
    "shortcut": {0: [], 1: [0], 2: [0, 1]},
    "numbers are names": {7: [], 100: [7], 50: [100]},
    "sweep of 5": sweep(5),
    "sweep of 198": sweep(198),
    **{f"random {seed}": random_graph(seed) for seed in range(40)},
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_nothing_overlaps_and_all_lines_go_down(graph: Graph) -> None:
    places = layout(graph, nodes_in_a_row=6)
    assert places.keys() == graph.keys()
    rows: dict[int, list[float]] = {}
    for place in places.values():
        rows.setdefault(place.row, []).append(place.column)
    for columns in rows.values():
        ordered = sorted(columns)
        assert all(right - left >= 1 for left, right in itertools.pairwise(ordered))
        assert ordered[0] >= 0
        assert ordered[-1] <= 5
    assert sorted(rows) == list(range(len(rows)))
    for node, dependencies in graph.items():
        for dependency in dependencies:
            assert places[dependency].row < places[node].row
    shuffled = list(graph.items())
    random.Random(1).shuffle(shuffled)
    assert layout(dict(shuffled), nodes_in_a_row=6) == places


def test_what_is_no_node_does_not_count() -> None:
    assert layout({3: [1, 2], 4: [3]}, nodes_in_a_row=1) == {3: Place(0, 0.0), 4: Place(1, 0.0)}


def test_a_row_follows_what_is_above_it() -> None:
    """Without that, each of two chains side by side would cross the other."""
    graph: Graph = {0: [], 1: [], 2: [1], 3: [0]}
    places = layout(graph, nodes_in_a_row=2)
    assert places[3].column < places[2].column


def test_a_long_chain_is_no_deep_recursion() -> None:
    graph = {node: [node + 1] if node < 4999 else [] for node in range(5000)}
    assert layout(graph)[0].row == 4999


class Impatient(dict[int, list[int]]):
    """A graph that can be asked only so often about its lines."""

    answers = 1000

    def __getitem__(self, node: int) -> list[int]:
        self.answers -= 1
        assert self.answers, "the layout does not come to an end"
        return super().__getitem__(node)


@pytest.mark.parametrize(
    ("graph", "rows"),
    [
        ({0: [0]}, {0: 0}),
        ({0: [1], 1: [0]}, {1: 0, 0: 1}),
        ({0: [], 1: [0, 3], 2: [1], 3: [2]}, {0: 0, 2: 0, 3: 1, 1: 2}),
    ],
    ids=["itself", "each other", "around"],
)
def test_a_cycle_is_drawn_without_the_line_that_closes_it(graph: Graph, rows: dict[int, int]) -> None:
    """Nobody plans a cycle; a damaged file may hold one."""
    places = layout(Impatient(graph), nodes_in_a_row=6)
    assert {node: place.row for node, place in places.items()} == rows


def test_a_node_is_looked_at_once_for_each_line() -> None:
    """Each node hangs on all before it: as many ways through it as there are subsets of its nodes."""
    places = layout(Impatient({node: list(range(node)) for node in range(25)}), nodes_in_a_row=1)
    assert [places[node].row for node in range(25)] == list(range(25))
