"""Memory is what the arrays really take."""

import numpy as np
import pytest

from siafu import Graph
from siafu.graph.csr import Csr
from siafu.graph.partition import local_graph, make_partition, measure, memory_before, memory_per_server
from siafu.kernels import empty_table
from tests.toys import multi_label_graph, toy_graph

WIDTHS = (8, 20, 3)


def size(edges: Csr) -> int:
    arrays = [edges.indptr[:-1], edges.indices, *([] if edges.weights is None else [edges.weights])]
    return sum(array.nbytes for array in arrays)


def directed(weighted: bool) -> Graph:
    rng = np.random.default_rng(0)
    weights = rng.random(400) if weighted else None
    src, dst = rng.integers(0, 90, (2, 400))
    return Graph.from_edges(src, dst, num_vertices=90, edge_weight=weights, x=rng.random((90, 8)))


@pytest.mark.parametrize(
    "graph",
    [toy_graph(), toy_graph().with_bf16_features(), multi_label_graph(), directed(False), directed(True)],
)
def test_each_server_holds_what_was_estimated(graph: Graph) -> None:
    partition = make_partition(graph, 3, method="hash")
    for server, held in enumerate(memory_per_server(graph, measure(graph, partition), WIDTHS)):
        part = local_graph(graph, partition, server)
        assert held.in_edges == size(part.forward.edges)
        assert held.out_edges == (0 if graph.is_symmetric else size(part.backward.edges))
        assert held.features == graph.x[part.vertices].nbytes
        assert held.labels == (0 if graph.y is None else graph.y[part.vertices].nbytes)
        gathered = sum(table_bytes(len(part.forward.ghosts), width) for width in WIDTHS[:-1])
        gradients = sum(table_bytes(len(part.backward.ghosts), width) for width in WIDTHS[1:])
        assert held.ghosts == gathered + gradients
        assert held.activations == 2 * sum(table_bytes(len(part.vertices), width) for width in WIDTHS[1:])


def table_bytes(rows: int, width: int) -> int:
    return rows * empty_table(1, width, np.float32).strides[0]


def test_the_total_is_the_sum_of_the_parts() -> None:
    held = memory_before(toy_graph(), 3, WIDTHS)
    parts = (held.in_edges, held.out_edges, held.features, held.labels, held.ghosts, held.activations)
    assert held.total == sum(parts) > 0


@pytest.mark.parametrize("method", ["stream", "hash", "contiguous"])
def test_the_estimate_before_is_enough_for_the_mean_server(method: str) -> None:
    graph = toy_graph()
    quality = measure(graph, make_partition(graph, 3, method=method))
    held = memory_per_server(graph, quality, WIDTHS)
    assert np.mean([server.total for server in held]) <= memory_before(graph, 3, WIDTHS).total


def test_one_server_has_no_ghosts() -> None:
    assert memory_before(toy_graph(), 1, WIDTHS).ghosts == 0
