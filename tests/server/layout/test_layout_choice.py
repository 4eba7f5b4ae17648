"""The choice between vertices and columns: by bytes where the network is slow, by edges where it is fast, by memory where it is short."""

import numpy as np
import pytest

import siafu
from siafu.graph import Graph
from siafu.graph.partition import Partition
from siafu.server.layout.layout_choice import ServerPace, chosen_layout, decided, layout_prices, told
from siafu.server.layout.traffic import PhaseTraffic
from siafu.server.plan import ServerPlan
from tests.training_runs import options

SERVERS, VERTICES = 4, 400
SLOW, FAST = 0.001, 1000.0


def graph_of(*, communities: bool) -> Graph:
    """Every vertex has 20 edges: to its own community, which is one server's, or anywhere."""
    rng = np.random.default_rng(0)
    size = VERTICES // SERVERS
    dst = np.repeat(np.arange(VERTICES), 20)
    near = dst // size * size + rng.integers(0, size, len(dst))
    src = near if communities else rng.integers(0, VERTICES, len(dst))
    x = rng.normal(size=(VERTICES, 8)).astype(np.float32)
    return Graph.from_edges(
        src, dst, num_vertices=VERTICES, x=x, y=np.arange(VERTICES) % 3, train=np.arange(VERTICES)
    )


def plan_of(*, communities: bool, model: type[siafu.nn.GNN] = siafu.nn.GCN) -> ServerPlan:
    graph = graph_of(communities=communities)
    owner = (np.arange(VERTICES) * SERVERS // VERTICES).astype(np.uint16)
    partition = Partition("contiguous", SERVERS, owner)
    return ServerPlan.of(graph, model(8, 32, 3, 3), options(servers=SERVERS), partition)


@pytest.mark.slow
def test_vertices_are_chosen_where_a_partition_has_few_ghosts() -> None:
    assert chosen_layout(layout_prices(plan_of(communities=True), SLOW)) == "vertices"


def test_columns_are_chosen_where_every_server_has_nearly_all_vertices_as_ghosts() -> None:
    prices = layout_prices(plan_of(communities=False), SLOW)
    assert chosen_layout(prices) == "columns:1,2"
    first = prices[0].traffic
    assert first.vertices / first.columns == pytest.approx(SERVERS / 2, rel=0.05)


def test_slices_narrower_than_a_cache_line_are_not_worth_a_fast_network() -> None:
    pace = ServerPace(1e6, 3e7, 9e5, 16, 8, FAST)
    assert not pace.price(PhaseTraffic(1, (16,), 1e9, 1e8)).by_columns
    assert pace.price(PhaseTraffic(1, (16,), 1e15, 1e8)).by_columns


def test_servers_that_have_most_of_the_edges_speak_for_columns() -> None:
    traffic = PhaseTraffic(1, (256,), 1e6, 1e6)
    even, uneven = (ServerPace(1e6, 3e7, 9e5, 4, 8, FAST, balance=each) for each in (1.0, 3.0))
    assert uneven.price(traffic).vertices > 2.9 * even.price(traffic).vertices
    assert uneven.price(traffic).columns == even.price(traffic).columns


def test_columns_that_do_not_fit_leave_vertices() -> None:
    plan = plan_of(communities=False)
    slow = layout_prices(plan, SLOW)
    assert chosen_layout(slow) != "vertices"
    assert decided(plan, 1).options.layout == "vertices"


@pytest.mark.slow
def test_attention_between_pairs_has_no_choice() -> None:
    plan = plan_of(communities=False, model=siafu.nn.GATv2)
    assert layout_prices(plan) == ()
    assert decided(plan, None).options.layout == "vertices"


@pytest.mark.slow
def test_attention_has_both_layouts() -> None:
    prices = layout_prices(plan_of(communities=False, model=siafu.nn.GAT), SLOW)
    assert chosen_layout(prices) == "columns:1,2,3"
    assert "goes by columns" in "".join(told(prices))


def test_a_head_that_several_servers_share_is_softened_by_each_of_them() -> None:
    pace = ServerPace(1e6, 3e7, 9e5, 4, 8, FAST)
    one, four = (pace.price(PhaseTraffic(1, (64,), 1e6, 1e6, (heads,))) for heads in (1, 4))
    plain = pace.price(PhaseTraffic(1, (64,), 1e6, 1e6))
    # Four servers have a head each, or all four the same one: each makes one softmax an edge.
    assert one.columns == four.columns > plain.columns
    assert four.vertices > one.vertices > plain.vertices


def test_both_prices_are_told() -> None:
    (line, *_) = told(layout_prices(plan_of(communities=False), SLOW))
    assert "G1, 32 wide, goes by columns: vertices send" in line
    assert "columns send" in line
