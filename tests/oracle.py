"""The oracle: whole-graph training in plain PyTorch, the judge of every other way to train.

    history = train_plainly(graph, model, epochs=20, lr=0.01, seed=0, dtype=torch.float64)

Nothing here knows of phases, intervals, servers or versions: `loss(model(graph)).backward()` and torch.optim.
What it takes from Siafu is the model itself and the dropout masks, which are a function of seed and epoch.
"""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from siafu import Graph
from siafu.nn import features
from siafu.nn.dropout import counted_dropout

_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True, slots=True)
class History:
    """What a training did.

    losses:    of each epoch, over the training rows, before its update
    scores:    of each epoch, after its update and without dropout: for each split that the graph has
               {split}_accuracy (micro-F1 where vertices have several labels) and {split}_loss
    gradients: of the first epoch, by parameter; those that the loss does not depend on are not in it
    weights:   the state dictionary after the last update
    """

    losses: list[float]
    scores: list[dict[str, float]]
    gradients: dict[str, Tensor]
    weights: dict[str, Tensor]


def train_plainly(
    graph: Graph,
    model: nn.Module,
    *,
    epochs: int,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    decay: str = "all",
    optimizer: str = "adam",
    seed: int = 0,
    normalize_features: bool = False,
    dtype: torch.dtype = torch.float32,
) -> History:
    """Train a copy of `model`, starting from its weights.

    decay:              all parameters, or those of the first layer only
    seed:               of the dropout masks; epochs count from 0 there
    normalize_features: divide each row by the sum of its sizes, in float32 whatever `dtype` is
    """
    model = copy.deepcopy(model).to(dtype)
    x = model_input(graph, normalize_features).to(dtype)
    rows = split_rows(graph)
    torch_optimizer = _OPTIMIZERS[optimizer](parameter_groups(model, weight_decay, decay), lr=lr)

    losses, scores, gradients = [], [], {}
    for epoch in range(epochs):
        model.train()
        torch_optimizer.zero_grad()
        with counted_dropout(seed, epoch):
            out = model(graph, x)
        loss = loss_of(out, graph, rows["train"])
        loss.backward()
        if epoch == 0:
            gradients = gradients_of(model)
        torch_optimizer.step()
        losses.append(loss.item())
        scores.append(evaluate(graph, model, x, rows))
    return History(losses, scores, gradients, copy.deepcopy(model.state_dict()))


def model_input(graph: Graph, normalize: bool) -> Tensor:
    """The features, each row divided by the sum of its sizes if so wanted; a row of zeros stays."""
    x = features(graph)
    if not normalize:
        return x
    sums = x.abs().sum(dim=1, keepdim=True)
    return x / torch.where(sums == 0, 1.0, sums)


def split_rows(graph: Graph) -> dict[str, Tensor]:
    """The vertex ids of each split that is there."""
    splits = {"train": graph.train, "val": graph.val, "test": graph.test}
    return {split: torch.from_numpy(ids) for split, ids in splits.items() if ids is not None and len(ids)}


def parameter_groups(model: nn.Module, weight_decay: float, decay: str) -> list[dict[str, object]]:
    """As torch.optim takes them, with weight decay where it is wanted."""
    first = {id(parameter) for parameter in model.convs[0].parameters()} if decay == "first" else None
    return [
        {
            "params": [parameter],
            "weight_decay": weight_decay if first is None or id(parameter) in first else 0.0,
        }
        for parameter in model.parameters()
        if parameter.requires_grad
    ]


def loss_of(out: Tensor, graph: Graph, rows: Tensor) -> Tensor:
    """Cross-entropy, or over all labels the binary one: the mean over `rows`, and over nothing else."""
    y = torch.from_numpy(graph.y)[rows]
    if y.ndim == 1:
        return F.cross_entropy(out[rows], y)
    return F.binary_cross_entropy_with_logits(out[rows], y.to(out.dtype))


def accuracy_of(out: Tensor, graph: Graph, rows: Tensor) -> float:
    """The share of `rows` that is right; micro-F1 where vertices have several labels."""
    y = torch.from_numpy(graph.y)[rows]
    if y.ndim == 1:
        return (out[rows].argmax(dim=1) == y).double().mean().item()
    said, true = out[rows] > 0, y > 0
    return 2 * (said & true).sum().item() / max(1, said.sum().item() + true.sum().item())


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@torch.no_grad()
def evaluate(graph: Graph, model: nn.Module, x: Tensor, rows: dict[str, Tensor]) -> dict[str, float]:
    """Loss and accuracy of each split, without dropout."""
    model.eval()
    out = model(graph, x)
    losses = {f"{split}_loss": loss_of(out, graph, ids).item() for split, ids in rows.items()}
    return losses | {f"{split}_accuracy": accuracy_of(out, graph, ids) for split, ids in rows.items()}
