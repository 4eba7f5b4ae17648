"""Models as people write them: unchanged, the compiled step has PyG's loss and gradients, within 1e-9 in float64."""

import copy
import inspect

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import siafu
from siafu.base.errors import BadInput
from tests.nn.pyg.written_models import ODD, USUAL, A, C, D, R

V, E = 90, 420


def graph_data(model: nn.Module) -> Data:
    """A directed multigraph with self-loops; edges have what the model asks for."""
    torch.manual_seed(0)
    wanted = inspect.signature(model.forward).parameters
    return Data(
        x=torch.randn(V, D).double(),
        edge_index=torch.randint(0, V, (2, E)),
        edge_attr=torch.rand(E, A).double() if "edge_attr" in wanted else None,
        edge_type=torch.randint(0, R, (E,)) if "edge_type" in wanted else None,
        y=torch.randint(0, C, (V,)),
        train_mask=torch.rand(V) < 0.6,
    )


def called(model: nn.Module, data: Data) -> Tensor:
    """What PyG gives."""
    names = list(inspect.signature(model.forward).parameters)
    if isinstance(model, pyg.Sequential):
        return model(data.x, data.edge_index)  # type: ignore[no-any-return]
    if names == ["batch"]:
        return model(data)  # type: ignore[no-any-return]
    known = {"features": data.x, "adj": data.edge_index, "batch": None, **data.to_dict()}
    return model(**{name: known[name] for name in names if name in known})  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*USUAL, *ODD])
def test_loss_and_gradients_are_pygs(name: str) -> None:
    torch.manual_seed(1)
    model = {**USUAL, **ODD}[name]().double()
    data, theirs = graph_data(model), copy.deepcopy(model)
    loss = siafu.compile(model, data, intervals=2)()
    assert all(type(each) is nn.Parameter for each in model.parameters()), "no stand-in stays"
    wanted = F.cross_entropy(called(theirs, data)[data.train_mask], data.y[data.train_mask])
    wanted.backward()
    torch.testing.assert_close(loss, wanted.detach(), rtol=1e-9, atol=0)
    for (parameter, one), other in zip(model.named_parameters(), theirs.parameters(), strict=True):
        if other.grad is None:
            assert one.grad is None, f"{parameter} would be updated, and PyG leaves it alone"
        else:
            near = 1e-9 * max(1e-3, float(other.grad.abs().max()))
            torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=near, msg=parameter)


def test_there_are_twenty_usual_ones() -> None:
    assert len(USUAL) == 20


class FirstRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv((D, D), C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv((x, x[:50]), edge_index)
        return out


class Along(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(D, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(x.cumsum(0), edge_index)
        return out


class Greatest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(D, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden: Tensor = self.conv(x, edge_index)
        return hidden - hidden.max(dim=0).values


class Picked(Greatest):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden: Tensor = self.conv(x, edge_index)
        return hidden[x[:, 0] > 0]


REFUSED: list[tuple[type[nn.Module], str]] = [
    (FirstRows, "picks or moves rows of vertices"),
    (Along, "picks or moves rows of vertices"),
    (Greatest, "max mixes the rows of different vertices"),
    (Picked, "the model uses index"),
]


@pytest.mark.parametrize(("kind", "words"), REFUSED)
def test_rows_of_other_vertices_are_refused(kind: type[nn.Module], words: str) -> None:
    model = kind()
    with pytest.raises(BadInput, match=words):
        siafu.train(graph_data(model), model, epochs=1)


def test_a_compiled_model_is_refused() -> None:
    model = USUAL["Appnp"]()
    with pytest.raises(BadInput, match=r"went through torch.compile: give the model itself"):
        siafu.train(graph_data(model), torch.compile(model), epochs=1)
