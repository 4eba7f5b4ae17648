"""Models of a user's own making: what trains, exactly, and what is refused by name."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn import GCNConv, Layer, SAGEConv
from tests.oracle import train_plainly
from tests.sessions import losses
from tests.toys import toy_graph


class TwoLayers(nn.Module):
    """The body of most models here: two layers, and what is between them to be overridden."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(8, 6), GCNConv(6, 3)

    def between(self, rows: Tensor) -> Tensor:
        return torch.relu(rows)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        out: Tensor = self.second(graph, self.between(self.first(graph, x)))
        return out


class AsksForFeatures(TwoLayers):
    """The same, called with the graph alone."""

    def forward(self, graph: Graph) -> Tensor:  # type: ignore[override]
        return super().forward(graph, siafu.nn.features(graph))


class OneLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(8, 3)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        out: Tensor = self.conv(graph, x)
        return out


class NoGather(nn.Module):
    """Looks at each vertex alone."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 3))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        out: Tensor = self.maps(x)
        return out


class Tied(nn.Module):
    """One linear map in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = GCNConv(8, 8), GCNConv(8, 8), nn.Linear(8, 3)
        self.second.lin = self.first.lin

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.second(graph, torch.relu(self.first(graph, x))))
        return out


class Jumping(nn.Module):
    """The last layer sees what every layer before it gave, and two gathers run side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(8, 4), GCNConv(4, 4), SAGEConv(4, 4, aggr="max")])
        self.last = nn.Linear(8 + 4 + 8, 3)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        one = torch.tanh(self.convs[0](graph, x))
        two = torch.cat([self.convs[1](graph, one), self.convs[2](graph, one)], dim=1)
        out: Tensor = self.last(torch.cat([x, one, two], dim=1))
        return out


class EdgeLayer(Layer):
    """Messages of both ends of an edge."""

    gather = siafu.nn.Mean()

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(2 * in_channels, out_channels)

    def apply_edge(self, source: Tensor, target: Tensor) -> Tensor:
        return torch.tanh(self.lin(torch.cat([source, target - source], dim=1)))


class Edgewise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.edges, self.last = nn.Linear(8, 4), EdgeLayer(4, 4), GCNConv(4, 3)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        out: Tensor = self.last(graph, self.edges(graph, self.before(x)))
        return out


class EdgesFirst(nn.Module):
    """An edge function right on the features."""

    def __init__(self) -> None:
        super().__init__()
        self.edges, self.last = EdgeLayer(8, 4), GCNConv(4, 3)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        out: Tensor = self.last(graph, self.edges(graph, x))
        return out


class EdgesInARow(nn.Module):
    """Nothing between two gathers."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.first, self.second = nn.Linear(8, 4), EdgeLayer(4, 4), EdgeLayer(4, 3)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        out: Tensor = self.second(graph, self.first(graph, self.before(x)))
        return out


class ReadLate(nn.Module):
    """Of two gathers side by side one is read in the next phase, the other only after one more gather."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 4)
        self.now, self.later, self.last = GCNConv(4, 4), SAGEConv(4, 4, root_weight=False), nn.Linear(8, 3)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        rows = self.map(x)
        late = siafu.nn.Sum()(graph, rows)
        soon = self.later(graph, torch.relu(self.now(graph, rows)))
        out: Tensor = self.last(torch.cat([soon, late], dim=1))
        return out


class Dropping(TwoLayers):
    """PyTorch's own dropout, as a function."""

    def between(self, rows: Tensor) -> Tensor:
        return F.dropout(rows, 0.5, self.training)


class BothSides(Layer):
    """A layer whose map may stand before or after the gather, with a buffer."""

    gather = siafu.nn.Sum()
    linear_first = False

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.register_buffer("scale", torch.tensor(0.2))

    def transform(self, x: Tensor) -> Tensor:
        return self.lin(x) if self.linear_first else x

    def apply_vertex(self, gathered: Tensor, x: Tensor) -> Tensor:
        return self.scale * (gathered if self.linear_first else self.lin(gathered))


class Buffered(TwoLayers):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = BothSides(8, 6), BothSides(6, 3)  # type: ignore[assignment]


def frozen(model: nn.Module, *names: str) -> nn.Module:
    """`model` without a gradient for the parts of these names."""
    for name in names:
        model.get_submodule(name).requires_grad_(False)
    return model


def built(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().double()


def assert_trains_exactly(model: nn.Module, **layout: Any) -> siafu.Run:
    graph = toy_graph()
    truth = train_plainly(graph, copy.deepcopy(model), epochs=6, weight_decay=5e-4, dtype=torch.float64)
    run = siafu.train(graph.replace(val=None), model, epochs=6, **layout)
    assert losses(run) == pytest.approx(truth.losses, rel=1e-9)
    for name, weight in truth.weights.items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=1e-8, atol=1e-11, msg=name)
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        TwoLayers,
        OneLayer,
        NoGather,
        Tied,
        Jumping,
        ReadLate,
        Edgewise,
        EdgesFirst,
        EdgesInARow,
        Dropping,
        Buffered,
    ],
)
def test_it_trains_in_parts_as_in_one_piece(kind: type[nn.Module]) -> None:
    assert_trains_exactly(built(kind), servers=2, intervals=3, partition="hash")


@pytest.mark.parametrize("part", ["first", "second"])
def test_what_is_frozen_stays_and_the_rest_is_trained_exactly(part: str) -> None:
    model = frozen(built(TwoLayers), part)
    before = copy.deepcopy(model.get_submodule(part).state_dict())
    assert_trains_exactly(model, intervals=2)
    assert all(torch.equal(model.get_submodule(part).state_dict()[name], was) for name, was in before.items())


def test_features_may_be_asked_for_or_given() -> None:
    graph = toy_graph()
    torch.manual_seed(0)
    given = TwoLayers()
    torch.manual_seed(0)
    asked = AsksForFeatures()
    one, other = (siafu.train(graph, model, epochs=4) for model in (given, asked))
    assert losses(one) == losses(other)
    assert torch.equal(one.predict(graph), other.predict(graph))


@pytest.mark.parametrize("kind", [TwoLayers, AsksForFeatures])
def test_normalized_features_reach_every_model(kind: type[nn.Module]) -> None:
    graph = toy_graph()
    x = graph.x / abs(graph.x).sum(axis=1, keepdims=True)
    torch.manual_seed(0)
    model = kind()
    twin = copy.deepcopy(model)
    run = siafu.train(graph, model, epochs=3, normalize_features=True)
    same = siafu.train(graph.replace(x=x), twin, epochs=3)
    assert losses(run) == pytest.approx(losses(same))
    assert torch.equal(run.predict(graph), same.predict(graph.replace(x=x)))


def test_tied_weights_are_one_parameter_that_both_places_train() -> None:
    model = built(Tied)
    run = assert_trains_exactly(model, intervals=2)
    assert model.first.lin is model.second.lin
    assert run.summary()["parameters"] == 8 * 8 + 8 + 8 + 8 * 3 + 3


class RowsOfVertices(TwoLayers):
    """A parameter for each vertex."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(210, 8))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return super().forward(graph, x + self.rows)


def test_a_parameter_with_a_row_for_each_vertex_is_learnt() -> None:
    assert_trains_exactly(built(RowsOfVertices), intervals=2, servers=2)


def test_a_model_with_nothing_to_train_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="no parameters to train"):
        siafu.train(graph, frozen(TwoLayers(), "first", "second"))


class RunningSum(TwoLayers):
    def between(self, rows: Tensor) -> Tensor:
        return rows.cumsum(1)


class Noise(TwoLayers):
    def between(self, rows: Tensor) -> Tensor:
        return rows + torch.randn_like(rows)


class MaximumOfAll(TwoLayers):
    def between(self, rows: Tensor) -> Tensor:
        return rows - rows.amax(0)


class OtherRows(TwoLayers):
    def between(self, rows: Tensor) -> Tensor:
        return rows[torch.arange(209, -1, -1)]


class Depends(TwoLayers):
    def between(self, rows: Tensor) -> Tensor:
        return -rows if rows.sum() > 0 else rows


class FromElsewhere(TwoLayers):
    """Takes the features past Siafu."""

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return super().forward(graph, torch.from_numpy(graph.x))


class Pair(TwoLayers):
    def forward(self, graph: Graph, x: Tensor) -> Any:
        return super().forward(graph, x), x


class Nothing(TwoLayers):
    def forward(self, graph: Graph, x: Tensor) -> Any:
        return None


class Numbers(TwoLayers):
    def between(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(rows.detach().numpy())


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (RunningSum, "cumsum"),
        (Noise, "randn_like draws random numbers"),
        (MaximumOfAll, "amax.* mixes the rows of different vertices"),
        (OtherRows, "mixes the rows of different vertices"),
        (FromElsewhere, r"siafu\.nn\.features"),
        (Depends, "depends on the rows' values|mixes the rows"),
        (Pair, "rows for each vertex|one tensor|tuple"),
        (Nothing, "NoneType|None"),
        (Numbers, "numpy"),
    ],
)
def test_what_cannot_be_run_in_parts_is_refused_by_name(kind: type[nn.Module], named: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=named) as caught:
        siafu.train(graph, kind(), epochs=1)
    assert "\n" not in str(caught.value)


def test_a_model_of_another_librarys_call_is_refused() -> None:
    class Turned(TwoLayers):
        def forward(self, x: Any, edge_index: Any) -> Tensor:  # type: ignore[override]
            return super().forward(edge_index, x)

    graph = toy_graph()
    with pytest.raises(BadInput, match=r"layer\(graph, x\)"):
        siafu.train(graph, Turned(), epochs=1)
