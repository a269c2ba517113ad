"""The engine: longest paths for many scenarios at once, against a plain walk through the graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import InputError
from tracekit.what_if.schedule import Graph, latest, times


def graph(n_nodes, *edges):
    """A graph and its weights from triples (from, to, weight)."""
    sources, targets, weights = (np.array(part) for part in zip(*edges, strict=True))
    return Graph(n_nodes, sources, targets), weights.astype(float)


def reached(n_nodes, *edges):
    made, weights = graph(n_nodes, *edges)
    return times(made, lambda chosen: weights[chosen, None], 1)[:, 0].tolist()


def test_a_node_waits_for_the_last_that_it_depends_on():
    assert reached(4, (0, 1, 5), (0, 2, 3), (1, 3, 1), (2, 3, 4)) == [0, 5, 3, 7]


def test_a_node_that_waits_for_no_one_starts_at_zero():
    assert reached(3, (0, 2, 1), (1, 2, 2)) == [0, 0, 2]


def test_scenarios_do_not_touch_each_other():
    made, weights = graph(3, (0, 1, 5), (1, 2, 1))
    both = np.stack([weights, 2 * weights], axis=1)
    assert times(made, lambda chosen: both[chosen], 2).tolist() == [[0, 0], [5, 10], [6, 12]]


def test_the_latest_time_of_a_node_lets_no_deadline_pass():
    made, weights = graph(4, (0, 1, 5), (0, 2, 3), (1, 3, 1), (2, 3, 2))
    deadlines = np.array([np.inf, np.inf, np.inf, 6.0])
    assert latest(made, weights, deadlines).tolist() == [0, 5, 4, 6]


def test_an_edge_that_no_longer_holds_is_minus_infinity():
    assert reached(3, (0, 2, 4), (1, 2, -np.inf)) == [0, 0, 4]


def test_a_circle_is_named_by_its_nodes_alone():
    made, weights = graph(5, (0, 1, 1), (1, 2, 1), (2, 1, 1), (2, 3, 1), (3, 4, 1))
    assert made.circle.tolist() == [1, 2]
    with pytest.raises(InputError, match="2 operations wait for each other in a circle"):
        times(made, lambda chosen: weights[chosen, None], 1)


@pytest.mark.parametrize("width", [1, 100])
def test_deep_graphs_are_walked_to_their_end_narrow_or_wide(width):
    # chains of 100 nodes side by side, and one edge that leaps over half of the first
    chains = [(100 * c + n, 100 * c + n + 1, 2) for c in range(width) for n in range(99)]
    found = reached(100 * width, *chains, (0, 50, 1000))
    assert found[49:51] == [98, 1000]
    assert found[99] == 1000 + 2 * 49
    assert found[199:200] == [198] * (width > 1)


@st.composite
def acyclic(draw):
    n = draw(st.integers(2, 12))
    pairs = [(a, b) for b in range(n) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=40))
    numbers = draw(st.permutations(range(n)))  # so that the order of numbers says nothing
    weights = draw(st.lists(st.integers(0, 50), min_size=len(chosen), max_size=len(chosen)))
    return n, [(numbers[a], numbers[b], w) for (a, b), w in zip(chosen, weights, strict=True)]


@given(acyclic())
def test_it_finds_what_a_plain_walk_finds(drawn):
    n, edges = drawn

    def longest(node):
        return max((longest(a) + w for a, b, w in edges if b == node), default=0)

    assert reached(n, *edges) == [longest(node) for node in range(n)]
