"""What a server makes of its own part of the graph equals its rows of what the whole graph gives."""

import numpy as np
import pytest
import torch

from siafu import nn
from siafu.program.compile import compile_model
from siafu.program.constants import constant_rows, gathers_deep
from siafu.program.record.record import state_of
from siafu.server.share import constants_of_share, surroundings
from tests.training_runs import tangled_graph

MODELS = {"gcn": nn.GCN, "sage": nn.GraphSAGE, "gin": nn.GIN}


class Simplified(torch.nn.Module):
    """Two gathers before anything is learnt."""

    def __init__(self, graph: nn.GNN) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 3)

    def forward(self, graph, x=None):  # type: ignore[no-untyped-def]
        x = nn.features(graph) if x is None else x
        return self.linear(nn.GcnSum()(graph, torch.relu(nn.GcnSum()(graph, x))))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [*MODELS, "simplified"])
def test_constants_of_a_share_are_its_rows_of_the_whole(name: str, weighted: bool) -> None:
    graph = tangled_graph(weighted=weighted)
    model = Simplified(graph) if name == "simplified" else MODELS[name](6, 4, 2, 3)  # type: ignore[arg-type]
    program = compile_model(model, graph, training=False)
    x = torch.from_numpy(graph.x).double()  # type: ignore[arg-type]
    weights = {key: each.double() for key, each in state_of(model).items()}
    whole = constant_rows(program.cut, graph, x, weights)
    assert gathers_deep(program.cut) == (2 if name == "simplified" else 1 if name != "gat" else 0)
    own = np.arange(1, graph.num_vertices, 3)
    share = constants_of_share(graph, own, lambda ids: x[torch.from_numpy(ids)], weights)(program)
    for name, rows in zip(program.constants, whole, strict=True):
        torch.testing.assert_close(share[name], rows[torch.from_numpy(own)], rtol=1e-12, atol=1e-12)


def test_surroundings_hold_the_sources_and_no_more() -> None:
    graph = tangled_graph()
    own = np.array([3, 17])
    part, vertices = surroundings(graph, own, 1)
    sources = {int(j) for i in own for j in graph.indices[graph.indptr[i] : graph.indptr[i + 1]]}
    assert set(vertices.tolist()) == sources | set(own.tolist())
    assert part.num_edges == int(np.diff(graph.indptr)[own].sum())
