"""Learnt rows of vertices: models with a row of their own for each vertex train as they do in PyTorch, on any number of servers."""

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import siafu
from siafu.base.errors import BadInput

V, CLASSES, EPOCHS = 220, 3, 5
SETTINGS: dict[str, Any] = {"lr": 0.05, "weight_decay": 1e-3}


def graph_data(*, features: bool) -> Data:
    torch.manual_seed(1)
    part = torch.randint(0, 3, (V,))
    return Data(
        x=torch.randn(V, 4).double() if features else None,
        num_nodes=V,
        edge_index=torch.randint(0, V, (2, 1100)),
        y=torch.randint(0, CLASSES, (V,)),
        train_mask=part == 0,
        val_mask=part == 1,
        test_mask=part == 2,
    )


class ByWeight(nn.Module):
    """Rows are taken from the embedding as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(V, 8)
        self.first, self.last = pyg.GCNConv(8, 6), pyg.GCNConv(6, CLASSES)

    def forward(self, x: Tensor | None, edge_index: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(self.emb.weight, edge_index).relu(), edge_index)
        return out


class ByNumbers(ByWeight):
    """The embedding is called with the numbers of all vertices, and rows are read by the first layer and by the last."""

    def __init__(self) -> None:
        super().__init__()
        self.skip = nn.Linear(8, CLASSES)

    def forward(self, edge_index: Tensor, num_nodes: int = V) -> Tensor:
        x = self.emb(torch.arange(num_nodes))
        out: Tensor = self.last(self.first(x, edge_index).relu(), edge_index) + self.skip(x)
        return out


class OfData(nn.Module):
    """`data.n_id`, and a gather of the rows themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(V, CLASSES)
        self.conv = pyg.LGConv()

    def forward(self, data: Any) -> Tensor:
        x = out = self.emb.weight if data.n_id is None else self.emb(data.n_id)
        for _ in range(2):
            x = self.conv(x, data.edge_index)
            out = out + x
        return out / 3


class Beside(nn.Module):
    """A parameter and a buffer of vertices, beside features, with attention and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.randn(V, 5))
        self.register_buffer("places", torch.randn(V, 6))
        self.first, self.last = pyg.GATConv(9, 6), pyg.SAGEConv(6, CLASSES)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.norm(self.first(torch.cat([x, self.own], dim=1), edge_index)) + self.places
        out: Tensor = self.last(F.elu(hidden), edge_index)
        return out


class Frozen(ByWeight):
    def __init__(self) -> None:
        super().__init__()
        self.emb.weight.requires_grad_(False)


MODELS: list[type[nn.Module]] = [ByWeight, ByNumbers, OfData, Beside, Frozen]


def called(model: nn.Module, data: Data) -> Tensor:
    """What PyG gives."""
    names = list(inspect.signature(model.forward).parameters)
    if names == ["data"]:
        data = copy.copy(data)
        data.n_id = torch.arange(V)
        return model(data)  # type: ignore[no-any-return]
    given = {"x": data.x, "edge_index": data.edge_index}
    return model(**{name: each for name, each in given.items() if name in names})  # type: ignore[no-any-return]


def train_plainly(data: Data, model: nn.Module, optimizer: str) -> list[float]:
    rule = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
    made = rule([each for each in model.parameters() if each.requires_grad], **SETTINGS)
    losses = []
    for _ in range(EPOCHS):
        made.zero_grad()
        loss = F.cross_entropy(called(model, data)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        made.step()
        losses.append(loss.item())
    return losses


def made(kind: type[nn.Module]) -> tuple[Data, nn.Module]:
    torch.manual_seed(2)
    return graph_data(features=kind is Beside), kind().double()


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_it_trains_as_pyg_does(kind: type[nn.Module]) -> None:
    data, model = made(kind)
    theirs = copy.deepcopy(model)
    optimizer = "sgd" if kind is Beside else "adam"  # Adam blows up the rounding of a bias before a norm
    truth = train_plainly(data, theirs, optimizer)
    kept = {"optimizer": optimizer, "epochs": EPOCHS, **SETTINGS}
    bits = []
    for mode, servers in (("sync", 1), ("sync", 3), ("pipe", 3)):
        ours = copy.deepcopy(model)
        run = siafu.train(data, ours, mode=mode, servers=servers, intervals=3, **kept)
        found = [each.train_loss for each in run.history]
        torch.testing.assert_close(torch.tensor(found), torch.tensor(truth), rtol=1e-9, atol=0)
        bits.append(found)
    assert bits[1] == bits[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_outputs_and_gradients_are_pygs(kind: type[nn.Module]) -> None:
    data, model = made(kind)
    model.eval()
    out = siafu.nn.from_pyg(model)(siafu.Graph.from_pyg(data))
    torch.testing.assert_close(out, called(model, data), rtol=1e-9, atol=1e-9)
    model.train()
    theirs = copy.deepcopy(model)
    loss = siafu.compile(model, data)()
    wanted = F.cross_entropy(called(theirs, data)[data.train_mask], data.y[data.train_mask])
    wanted.backward()
    torch.testing.assert_close(loss, wanted.detach(), rtol=1e-9, atol=0)
    for (name, one), other in zip(model.named_parameters(), theirs.parameters(), strict=True):
        if other.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-9, atol=1e-12, msg=name)


def test_learnt_rows_take_the_place_of_features() -> None:
    data = graph_data(features=False)
    graph = siafu.Graph.from_pyg(data)
    torch.manual_seed(2)
    model = siafu.nn.LearntRows(V, 8, siafu.nn.GCN(8, 6, 2, CLASSES)).double()
    theirs, losses = copy.deepcopy(model), []
    made = torch.optim.Adam(theirs.parameters(), **SETTINGS)
    for _ in range(EPOCHS):
        made.zero_grad()
        loss = F.cross_entropy(theirs(graph)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        made.step()
        losses.append(loss.item())
    run = siafu.train(graph, model, epochs=EPOCHS, servers=2, mode="pipe", clip=1e9, **SETTINGS)
    found = torch.tensor([each.train_loss for each in run.history])
    torch.testing.assert_close(found, torch.tensor(losses), rtol=1e-9, atol=0)


def test_clipped_gradients_count_the_rows() -> None:
    data, model = made(ByWeight)
    theirs = copy.deepcopy(model)
    rule = torch.optim.SGD(theirs.parameters(), lr=5.0)
    losses = []
    for _ in range(EPOCHS):
        rule.zero_grad()
        loss = F.cross_entropy(called(theirs, data)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)
        rule.step()
        losses.append(loss.item())
    run = siafu.train(
        data,
        model,
        epochs=EPOCHS,
        optimizer="sgd",
        lr=5.0,
        weight_decay=0.0,
        clip=0.05,
        servers=2,
        intervals=3,
    )
    found = torch.tensor([each.train_loss for each in run.history])
    torch.testing.assert_close(found, torch.tensor(losses), rtol=1e-9, atol=0)


class MarkedSparse(ByNumbers):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(V, 8, sparse=True)

    def forward(self, edge_index: Tensor, num_nodes: int = V) -> Tensor:
        return super().forward(edge_index, num_nodes)


def train_sparsely(data: Data, model: Any, rule: str) -> list[float]:
    """Plain PyTorch: Adam, and a sparse optimizer of the rows that have a gradient."""
    rows = {"sparse_adam": torch.optim.SparseAdam, "adagrad": torch.optim.Adagrad}[rule]
    of_rows = rows([model.emb.weight], lr=SETTINGS["lr"])
    rest = torch.optim.Adam(
        [each for name, each in model.named_parameters() if name != "emb.weight"], **SETTINGS
    )
    losses = []
    for _ in range(EPOCHS):
        model.zero_grad()
        loss = F.cross_entropy(called(model, data)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        dense = model.emb.weight.grad.to_dense()
        kept = dense.ne(0).any(1).nonzero().squeeze(1)
        model.emb.weight.grad = torch.sparse_coo_tensor(
            kept[None], dense[kept], dense.shape, check_invariants=True
        )
        of_rows.step()
        rest.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("kind", "asked"), [(ByWeight, "sparse_adam"), (ByWeight, "adagrad"), (MarkedSparse, None)]
)
def test_a_sparse_optimizer_moves_the_rows_that_have_a_gradient(
    kind: type[nn.Module], asked: str | None
) -> None:
    data, model = made(kind)
    few = data.train_mask.nonzero()[:3]  # so that most vertices reach no training vertex
    data.train_mask = torch.zeros(V, dtype=torch.bool).index_fill(0, few.squeeze(1), value=True)
    first = model.emb.weight.detach().clone()  # type: ignore[union-attr]
    truth = train_sparsely(data, copy.deepcopy(model), asked or "sparse_adam")
    for servers in (1, 3):
        ours: Any = copy.deepcopy(model)
        run = siafu.train(data, ours, epochs=EPOCHS, servers=servers, row_optimizer=asked, **SETTINGS)
        found = torch.tensor([each.train_loss for each in run.history])
        torch.testing.assert_close(found, torch.tensor(truth), rtol=1e-9, atol=0)
        still = (ours.emb.weight == first).all(1)
        assert 0 < still.sum() < V


def test_a_sparse_optimizer_resumes_to_the_bit(tmp_path: Path) -> None:
    data, model = made(ByWeight)
    kept: dict[str, Any] = {"row_optimizer": "adagrad", **SETTINGS}
    whole = siafu.train(data, copy.deepcopy(model), epochs=4, **kept)
    siafu.train(data, copy.deepcopy(model), epochs=2, out=tmp_path / "run", **kept)
    rest = siafu.train(data, copy.deepcopy(model), epochs=4, out=tmp_path / "run", resume=True, **kept)
    assert [each.train_loss for each in rest.history] == [each.train_loss for each in whole.history]


def test_a_sparse_optimizer_without_rows_to_move_or_with_weight_decay_is_refused() -> None:
    data, model = made(ByWeight)
    with pytest.raises(BadInput, match=r"row_optimizer is sparse_adam, and optimizer sgd has no betas"):
        siafu.train(data, model, epochs=1, optimizer="sgd", row_optimizer="sparse_adam")
    with pytest.raises(BadInput, match=r"unknown row_optimizer 'adam'"):
        siafu.train(data, model, epochs=1, row_optimizer="adam")
    with pytest.raises(
        BadInput, match=r"group 'emb' has weight_decay 0.1, and adagrad of emb.weight has none"
    ):
        siafu.train(data, model, epochs=1, row_optimizer="adagrad", groups="emb: weight_decay=0.1")
    featured, _ = made(Beside)
    plain = pyg.GCN(4, 6, 2, CLASSES).double()
    with pytest.raises(BadInput, match=r"row_optimizer is adagrad, and the model learns no row"):
        siafu.train(featured, plain, epochs=1, row_optimizer="adagrad")
    with pytest.raises(BadInput, match=r"row_optimizer is adagrad, and mode sampled learns no rows"):
        siafu.train(featured, plain, epochs=1, mode="sampled", row_optimizer="adagrad")


class Categories(nn.Module):
    """An embedding of a category that vertices have among their features."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(5, 8)
        self.conv = pyg.GCNConv(11, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = torch.cat([self.emb(x[:, 0].long()), x[:, 1:]], dim=1)
        out: Tensor = self.conv(x, edge_index)
        return out


def test_an_embedding_of_categories_is_a_map_of_features() -> None:
    data, _ = made(Beside)
    data.x[:, 0] = torch.arange(V) % 5
    model = Categories().double()
    truth = train_plainly(data, copy.deepcopy(model), "adam")
    run = siafu.train(data, model, epochs=EPOCHS, servers=2, **SETTINGS)
    found = torch.tensor([each.train_loss for each in run.history])
    torch.testing.assert_close(found, torch.tensor(truth), rtol=1e-9, atol=0)


class ByFeature(ByWeight):
    def forward(self, x: Tensor | None, edge_index: Tensor) -> Tensor:
        assert x is not None
        out: Tensor = self.last(self.first(self.emb(x[:, 0].long()), edge_index), edge_index)
        return out


class Padded(Categories):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(5, 8, padding_idx=0)


def test_what_cannot_be_is_refused_by_name() -> None:
    data, model = made(ByWeight)
    with pytest.raises(BadInput, match=r"emb.weight has a row for each vertex, and Lambdas"):
        siafu.train(data, copy.deepcopy(model), epochs=1, lambdas="local")
    with pytest.raises(BadInput, match=r"mode is sampled, and emb.weight has a row for each vertex"):
        siafu.train(graph_data(features=True), copy.deepcopy(model), epochs=1, mode="sampled")
    other = graph_data(features=False)
    other.num_nodes, other.y = V + 1, torch.zeros(V + 1, dtype=torch.int64)
    other.train_mask = torch.ones(V + 1, dtype=torch.bool)
    del other.val_mask, other.test_mask
    with pytest.raises(BadInput, match=rf"rows of an nn.Embedding are those of {V + 1} vertices"):
        siafu.train(other, copy.deepcopy(model), epochs=1)
    featured, _ = made(Beside)
    with pytest.raises(BadInput, match=r"called with other numbers than the vertices' own"):
        siafu.train(featured, ByFeature(), epochs=1)
    with pytest.raises(BadInput, match=r"padding_idx or max_norm"):
        siafu.train(featured, Padded(), epochs=1)
