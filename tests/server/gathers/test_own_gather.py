"""A gather that this file alone knows: it trains on servers, is explained, and takes virtual time."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import siafu
from siafu.graph import Graph
from siafu.nn import Gather, Layer, Max
from siafu.program.headline import headline
from siafu.server.costs.held_array import HeldArray
from siafu.server.edges import ServerEdges
from siafu.server.gathers.behaviour import GatherBehaviour
from siafu.server.gathers.local_gather import GatherGradients, LocalGather, Mask, Weights
from siafu.server.gathers.max_gather import MaxBehaviour, MaxGather
from siafu.server.gathers.registry import GATHERS
from siafu.server.plan import compile_programs, rows_of
from siafu.training.explanation import explain
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import workload_from
from tests.oracle import train_plainly
from tests.sessions import losses
from tests.toys import toy_graph

FLOPS = 7


@dataclass(frozen=True)
class Least(Gather):
    """out_i = the least x_j of each column: the greatest of what is negated, negated."""

    def run(self, graph: Graph, x: Tensor) -> Tensor:  # type: ignore[override]
        return -Max().run(graph, -x)


class LeastGather(MaxGather):
    """Rows are negated on their way in and out, forth and back."""

    def send(self, first: int, last: int, sent: tuple[Tensor, ...]) -> None:
        super().send(first, last, (-sent[0],))

    def forward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> Tensor:
        return -super().forward(first, last)

    def send_back(self, first: int, last: int, gradient: Tensor) -> None:
        super().send_back(first, last, -gradient)

    def backward(
        self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0, weights: Weights | None = None
    ) -> GatherGradients:
        return GatherGradients((-super().backward(first, last).sent[0],), {})


class LeastBehaviour(GatherBehaviour[Least]):
    gather = Least
    blocked = False

    def local(
        self,
        gather: Least,
        server: ServerEdges,
        width: int,
        dtype: torch.dtype,
        *,
        needed: Mask | None = None,
        training: bool = True,
    ) -> LocalGather:
        return LeastGather(Max(), server, width, dtype, needed=needed, training=training)

    def held(self, gather: Least, width: int, itemsize: int, *, training: bool) -> tuple[HeldArray, ...]:
        return MaxBehaviour().held(Max(), width, itemsize, training=training)

    def flops(self, gather: Least, width: int, *, back: bool, weighted: bool) -> int:
        return FLOPS * width


class LeastConv(Layer):
    gather = Least()

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.lin = nn.Linear(width, out)

    def transform(self, x: Tensor) -> Tensor:
        return self.lin(x)  # type: ignore[no-any-return]

    def apply_vertex(self, gathered: Tensor, x: Tensor) -> Tensor:
        return gathered


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = LeastConv(8, 6), LeastConv(6, 3)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return self.second(graph, torch.tanh(self.first(graph, x)))  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GATHERS, Least, LeastBehaviour())


def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.slow
def test_it_trains_as_on_the_whole_graph(servers: int) -> None:
    graph, judged = toy_graph(), train_plainly(toy_graph(), net(), epochs=4)
    run = siafu.train(graph, net(), epochs=4, servers=servers, weight_decay=0.0)
    assert losses(run) == pytest.approx(judged.losses, rel=1e-5)


@pytest.mark.slow
def test_it_is_explained_with_its_own_cost() -> None:
    graph = toy_graph()
    stages = {stage.name: stage for stage in explain(graph, net()).training}
    assert stages["G1"].operations == ("Least, 6 wide",)
    assert stages["G1"].flops == FLOPS * 6 * graph.num_edges


@pytest.mark.slow
def test_it_takes_virtual_time_with_its_own_cost() -> None:
    graph, model = toy_graph(), net()
    programs = compile_programs(graph, model, rows_of(graph)["train"])
    numbers = {name: each.numel() for name, each in model.state_dict().items()}
    found = workload_from(programs, numbers, GraphShape.of(graph))
    gathers = [work for (lane, _), work in found.work.items() if lane == "train" and work.gathers]
    assert gathers
    assert not any(work.blocked for work in gathers)


@pytest.mark.slow
def test_a_headline_names_it() -> None:
    graph = toy_graph()
    program = compile_programs(graph, net(), rows_of(graph)["train"])["train"]
    assert headline(program) == "each epoch gathers Least, 6 wide · Least, 3 wide"
