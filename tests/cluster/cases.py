"""What is trained in these tests. The process that all servers are forked from has it ready: see `fork_crew`."""

import copy
import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from siafu import Graph, nn
from siafu.server.plan import Programs, compile_programs, rows_of
from tests.oracle import History, train_plainly
from tests.toys import toy_graph
from tests.training_runs import tangled_graph

MODELS: dict[str, tuple[type[nn.GNN], dict[str, Any]]] = {
    "gcn": (nn.GCN, {}),
    "gat": (nn.GAT, {"heads": 2}),
    "sage": (nn.GraphSAGE, {}),
    "gin": (nn.GIN, {}),
    "norm": (nn.GCN, {"norm": "batch_norm"}),
}
SETTINGS = {"lr": 0.02, "weight_decay": 1e-3, "seed": 7}
# The gradient of a bias before a norm is zero but for rounding, which Adam would make as large as any other.
_OWN_SETTINGS: dict[str, dict[str, Any]] = {"norm": {"optimizer": "sgd", "lr": 0.1}}


def settings_of(name: str) -> dict[str, Any]:
    """Settings that a case is trained with."""
    return SETTINGS | _OWN_SETTINGS.get(name, {})


class RowsForFeatures(nn.LearntRows):
    """Learnt rows, for whoever calls a model with features."""

    def forward(self, graph: Graph, x: Tensor | None = None) -> Tensor:
        return super().forward(graph)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A model in double precision and a graph; which, by name."""

    name: str
    graph: Graph
    model: torch.nn.Module
    programs: Programs


@functools.cache
def case(name: str) -> Case:
    """One of `MODELS` on a graph where everyone reads from everyone, "rows": learnt ones instead of features, or "learns": one
    that learns quickly."""
    torch.manual_seed(3)
    if name == "rows":
        graph: Graph = tangled_graph()
        inner = nn.GCN(8, 8, 2, graph.num_classes, 0.5)
        model: torch.nn.Module = RowsForFeatures(graph.num_vertices, 8, inner)
    elif name == "learns":
        graph = toy_graph(600)
        model = nn.GCN(graph.num_features, 16, 2, graph.num_classes, dropout=0.2)
    else:
        kind, fixed = MODELS[name]
        graph = tangled_graph(weighted=name == "gcn")
        model = kind(graph.num_features, 8, 3 if name == "norm" else 2, graph.num_classes, 0.5, **fixed)
    double = copy.deepcopy(model).double()
    return Case(name, graph, double, compile_programs(graph, double, rows_of(graph)["train"]))


@functools.cache
def truth(name: str, epochs: int) -> History:
    """What the oracle makes of it."""
    given = case(name)
    return train_plainly(given.graph, given.model, epochs=epochs, dtype=torch.float64, **settings_of(name))
